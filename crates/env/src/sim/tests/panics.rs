//! Panics of simulated threads, while others run (ENV-10).

use super::*;

/// Sleeps when it is dropped, and looks before and afterwards whether its thread panics.
struct Sleeper<'a>(&'a AtomicU64);

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        assert!(thread::panicking());
        self.0.store(1, Release);
        thread::sleep(Duration::from_millis(1));
        assert!(thread::panicking());
        self.0.store(2, Release);
    }
}

/// While the panic of one unwinds, and what it drops sleeps, another spins for it and a third waits, and neither
/// panics: `std` says that all do, and whoever spun gave up no turn any more, for ever.
#[test]
fn who_panics_leaves_the_others_alone() {
    let program = || {
        let (step, told) = (AtomicU64::new(0), (Mutex::new(false), Condvar::new()));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _sleeper = Sleeper(&step);
                std::panic::resume_unwind(Box::new("as it should"));
            });
            scope.spawn(|| {
                while step.load(SeqCst) == 0 {
                    hint::spin_loop();
                }
                assert!(!thread::panicking());
                assert!(hint::spin_until(u64::MAX, || step.load(SeqCst) == 2));
                assert!(!thread::panicking());
                *told.0.lock() = true;
                told.1.notify_all();
            });
            scope.spawn(|| {
                let mut is_told = told.0.lock();
                while !*is_told {
                    is_told = told.1.wait(is_told);
                    assert!(!thread::panicking());
                }
            });
            let panic = panics.join().unwrap_err();
            assert!(!thread::panicking());
            *panic.downcast::<&str>().unwrap()
        })
    };
    everywhere(&"as it should", program);
}

/// Two that panic at the same time, one in the middle of the other's panic, each know it; who ends in good order
/// meanwhile does, too.
#[test]
fn two_panic_at_a_time() {
    let program = || {
        let [first, second] = [(); 2].map(|()| AtomicU64::new(0));
        thread::scope(|scope| {
            let one = scope.spawn(|| {
                let _sleeper = Sleeper(&first);
                panic!("one");
            });
            let other = scope.spawn(|| {
                while first.load(SeqCst) == 0 {
                    hint::spin_loop();
                }
                assert!(!thread::panicking());
                let _sleeper = Sleeper(&second);
                panic!("other");
            });
            while second.load(SeqCst) == 0 {
                hint::spin_loop();
            }
            assert!(!thread::panicking());
            assert!(one.join().is_err() && other.join().is_err() && !thread::panicking());
        });
        second.load(SeqCst)
    };
    everywhere(&2, program);
}

/// A simulation whose thread panics says so.
#[test]
fn a_panic_is_reported() {
    for settings in worlds() {
        let run = simulate(&settings, || {
            let step = AtomicU64::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _sleeper = Sleeper(&step);
                    panic!("a fault");
                });
                scope.spawn(|| assert!(hint::spin_until(u64::MAX, || step.load(SeqCst) == 2)));
            });
        });
        assert!(matches!(run, Err(Failed::Panicked { .. })), "{run:?}");
        assert!(!std::thread::panicking());
    }
}
