//! How threads wait for cores.

use super::*;

/// Threads that fell asleep on one core, because it alone was free, were woken into its queue alone: 85 waited there,
/// and for most other cores nobody did.
#[test]
fn who_is_woken_goes_to_a_shorter_queue() {
    let compute = |milliseconds: u64| {
        let own = AtomicU64::new(0);
        while own.fetch_add(1, SeqCst) < milliseconds * 100 {
            hint::work(10_000);
        }
    };
    let simulated = simulate(&machine(4), || {
        let begin = Instant::now();
        let wake = begin + Duration::from_millis(5);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| compute(200));
            }
            let woken: Vec<_> = (0..12)
                .map(|_| {
                    scope.spawn(|| {
                        thread::sleep(wake.saturating_duration_since(Instant::now()));
                        compute(5);
                    })
                })
                .collect();
            woken.into_iter().for_each(|thread| thread.join().unwrap());
            wake.elapsed()
        })
    });
    // On one core they take sixty.
    let took = simulated.unwrap().result.as_millis();
    assert!(took < 45, "{took} ms");
}

/// A call that wakes 16 threads went on for 192 us and let all of them run at its beginning: a thread that had no core
/// to itself was taken from a queue by a core whose clock was behind. They had all run after 27 us.
#[test]
fn no_thread_runs_before_it_is_woken() {
    const SLEEPERS: u64 = 16;
    let profile = Box::new(Profile::named("vm2-zen4").unwrap().clone());
    let wake_ns = profile.wake_ns;
    let settings = Settings { world: World::Machine { profile, cores: 2 }, ..machine(2) };
    let simulated = simulate(&settings, || {
        let (gate, opened) = (Mutex::new(false), Condvar::new());
        let stop = AtomicU64::new(0);
        thread::scope(|scope| {
            let sleepers: Vec<_> = (0..SLEEPERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut open = gate.lock();
                        while !*open {
                            open = opened.wait(open);
                        }
                        drop(open);
                        Instant::now()
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(5));
            // No core is idle when they are woken.
            scope.spawn(|| {
                while stop.load(SeqCst) == 0 {
                    hint::work(1000);
                }
            });
            thread::sleep(Duration::from_millis(1));
            *gate.lock() = true;
            let begin = Instant::now();
            stop.store(1, Release);
            opened.notify_all();
            let ran = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap() - begin);
            ran.map(|after| after.as_nanos() as u64).collect::<Vec<_>>()
        })
    });
    let mut ran = simulated.unwrap().result;
    ran.sort_unstable();
    for (number, after) in (1..).zip(ran) {
        let woken = number * wake_ns;
        assert!(after >= woken, "number {number} ran after {after} ns, and is woken after {woken}");
    }
}
