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
