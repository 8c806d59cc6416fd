//! How long cores have computed.

use super::{count_anew, explorer, machine};
use crate::{
    hint,
    sim::{Schedule, simulate},
    thread,
    time::{Duration, Instant, computed},
};

/// A thread that sleeps does not compute, two compute twice as long as one, and counting anew takes nothing away.
#[test]
fn sleep_is_no_computation() {
    const NAP: Duration = Duration::from_millis(500);
    simulate(&machine(3), || {
        let begun = computed().unwrap();
        thread::sleep(NAP);
        let slept = computed().unwrap();
        assert!(slept >= begun && slept - begun < NAP / 1000, "{slept:?}");
        let work = || {
            let begin = Instant::now();
            while begin.elapsed() < NAP {
                hint::work(1000);
            }
        };
        thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
        });
        count_anew();
        let worked = computed().unwrap() - slept;
        assert!(worked >= NAP * 2 && worked < NAP * 2 + NAP / 100, "{worked:?}");
    })
    .unwrap();
}

/// Schedules without a machine have no time that could be computed in.
#[test]
fn nobody_counts_without_a_machine() {
    assert_eq!(computed(), None);
    simulate(&explorer(1, Schedule::Random), || assert_eq!(computed(), None)).unwrap();
}
