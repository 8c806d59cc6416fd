use foreshore_env::sync::atomic::AtomicU64;

use super::*;
use convoy::CONVOY;
use crowd::PROBATION;
use limit::SPELL;

/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);

/// An admission with a limit of one.
fn limited() -> Admission {
    let admission = Admission::new(DeadlockPolicy::Dreadlocks);
    (0..ALARM).for_each(|_| admission.note_victim(|| 0));
    while admission.limit() != Some(1) {
        admission.enter(None, None).unwrap().end(true);
    }
    admission
}

/// Ends the turns of those who are between two transactions.
fn end_rests(admission: &Admission) {
    wake(&admission.state.lock().let_in(Instant::now() + TURN));
}

#[test]
fn nobody_waits_as_long_as_few_are_victims() {
    let admission = Admission::new(DeadlockPolicy::Dreadlocks);
    for round in 1..100 {
        (0..ALARM).for_each(|_| admission.note_victim(|| round * ALARM * u64::from(TOLERANCE)));
        assert!(admission.enter(None, None).is_none());
    }
    assert_eq!(admission.waits(), 0);
}

#[test]
fn one_at_a_time_when_most_are_victims() {
    // Whoever has waited for too long goes in, beside one who sleeps inside on a busy machine: then it is tried again.
    assert!((0..100).any(|_| all_are_in_time()), "they lose their patience, each time");
}

/// Whether no thread lost its patience; then no two of eight threads were inside.
fn all_are_in_time() -> bool {
    let admission = Arc::new(limited());
    let inside = Arc::new(AtomicU32::new(0));
    let lost = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (admission, inside) = (Arc::clone(&admission), Arc::clone(&inside));
            let lost = Arc::clone(&lost);
            thread::spawn(move || {
                join(admission.number);
                // Fewer ends than it takes to try two at a time.
                for _ in 0..4 {
                    let start = Instant::now();
                    let permit = admission.enter(None, None);
                    if start.elapsed() >= PATIENCE {
                        lost.store(true, Ordering::SeqCst);
                    }
                    let others = inside.fetch_add(1, Ordering::SeqCst);
                    assert!(others == 0 || lost.load(Ordering::SeqCst), "{others} beside it");
                    thread::sleep(Duration::from_micros(100));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.unwrap().end(false);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    end_rests(&admission);
    let state = admission.state.lock();
    assert_eq!((state.turns.len(), state.waiting.len()), (0, 0));
    !lost.load(Ordering::SeqCst)
}

#[test]
fn who_waits_goes_in_when_his_patience_or_time_is_over() {
    let admission = limited();
    let permit = admission.enter(None, None);
    thread::scope(|scope| {
        scope.spawn(|| {
            join(admission.number);
            let start = Instant::now();
            drop(admission.enter(None, None).unwrap());
            assert!(start.elapsed() >= PATIENCE);
            // One time in ten the machine may have nothing better to do.
            assert!((0..10).any(|_| {
                let start = Instant::now();
                drop(admission.enter(None, Some(start + Duration::from_millis(5))).unwrap());
                start.elapsed() < PATIENCE
            }));
        });
    });
    // And a thread that is inside does not wait for itself.
    assert!(admission.enter(None, None).is_none());
    drop(permit);
    assert!(admission.enter(None, None).is_some());
}

#[test]
fn the_oldest_goes_in_first_and_who_is_new_last() {
    // A thread that loses its patience goes in beside the others: then it is tried again.
    let order = (0..100).find_map(|_| in_what_order(&[None, Some(7), None, Some(5)])).unwrap();
    // Which of the new ones is first depends on where they are (`queue.rs`).
    assert!(matches!(order[..], [3, 1, 0, 2] | [3, 1, 2, 0]), "{order:?}");
}

/// In which order those go in who come one after another, of these ages; `None` if one of them loses its patience.
fn in_what_order(ages: &[Option<u64>]) -> Option<Vec<usize>> {
    let admission = limited();
    let permit = admission.enter(None, None);
    let (order, lost) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        for (number, &age) in ages.iter().enumerate() {
            let (admission, order, lost) = (&admission, &order, &lost);
            scope.spawn(move || {
                join(admission.number);
                let start = Instant::now();
                let permit = admission.enter(age, None);
                lost.fetch_or(start.elapsed() >= PATIENCE, Ordering::SeqCst);
                order.lock().push(number);
                drop(permit);
            });
            while admission.waiting() <= number as u64 && !lost.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
        drop(permit);
    });
    (!lost.into_inner()).then(|| order.into_inner())
}

#[test]
fn who_is_not_in_the_crowd_comes_and_goes() {
    let admission = limited();
    let _permit = admission.enter(None, None);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(admission.enter(None, None).is_none());
            admission.note_victim(|| 0);
            assert!(admission.enter(None, Some(Instant::now())).is_some(), "in the crowd");
            // Of another database it is not.
            assert!(limited().enter(None, Some(Instant::now())).is_some());
            let other = limited();
            other.enter(None, None).unwrap().end(false);
            end_rests(&admission);
            assert!(admission.enter(None, Some(Instant::now())).is_some(), "still");
            end_rests(&admission);
            // However long this machine has stood still.
            let just_now = Instant::now() + 1000 * MEMORY;
            with_member(admission.number, |member| (member.runs, member.met_at) = (PROBATION, just_now));
            assert!(admission.enter(None, Some(Instant::now())).is_some(), "not for long enough");
            end_rests(&admission);
            with_member(admission.number, |member| member.met_at = Instant::now() - MEMORY);
            assert!(admission.enter(None, None).is_none(), "no longer");
        });
    });
    assert_eq!(admission.waits(), 3);
}

#[test]
fn all_go_in_when_nobody_leaves() {
    let admission = limited();
    let permit = admission.enter(None, None);
    let (start, inside) = (Instant::now(), AtomicU32::new(0));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    join(admission.number);
                    let permit = admission.enter(None, None);
                    inside.fetch_add(1, Ordering::SeqCst);
                    // As one who waits for the others.
                    while inside.load(Ordering::SeqCst) < 6 && start.elapsed() < FAR {
                        thread::sleep(Duration::from_millis(1));
                    }
                    drop(permit);
                })
            })
            .collect();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(start.elapsed() < FAR, "they waited for each other");
    drop(permit);
}

#[test]
fn who_gives_way_before_he_waits_has_a_processor() {
    for policy in [DeadlockPolicy::WaitDie, DeadlockPolicy::WoundWait, DeadlockPolicy::NoWait] {
        let admission = Admission::new(policy);
        (0..ALARM).for_each(|_| admission.note_victim(|| 0));
        // So many that it halves, and windows that nobody waits at the end of.
        for run in 0_u32.. {
            let Some(limit) = admission.limit() else { break };
            assert!(limit >= admission.processors, "{policy:?}");
            if let Some(permit) = admission.enter(None, None) {
                permit.end(run % 192 < 4);
            }
        }
    }
}

#[test]
fn the_limit_goes_when_nobody_is_in_the_way() {
    let admission = limited();
    let start = Instant::now();
    while start.elapsed() < FAR {
        match admission.enter(None, None) {
            Some(permit) => permit.end(false),
            None => return assert_eq!(admission.limit(), None),
        }
    }
    panic!("there is still a limit of {:?}", admission.limit());
}

/// An admission that was asked whether there is a convoy: so many threads to a processor have waited, and such a share
/// of the processors was busy, in hundredths.
fn asked(waiting: u32, busy: u32) -> Admission {
    let admission = Admission::new(DeadlockPolicy::Dreadlocks);
    let processors = admission.processors;
    let mut begun = None;
    // This machine may stand still for longer than one can say anything of.
    while begun.is_none_or(|begun: Instant| begun.elapsed() >= 10 * SPELL) {
        begun = Some(Instant::now());
        let zero = Duration::ZERO;
        admission.state.lock().watch.pace.at = Instant::now() - SPELL;
        admission.look_for_convoy(|at| Some(Pace { at, waited: zero, computed: zero }));
        thread::sleep(SPELL);
        let before = admission.state.lock().watch.pace.at;
        admission.look_for_convoy(|at| {
            let spell = (at - before) * processors;
            Some(Pace { at, waited: spell * waiting, computed: spell * busy / 100 })
        });
    }
    admission
}

#[test]
fn a_convoy_is_let_in_by_as_many_as_there_are_processors() {
    let convoy = asked(CONVOY + 1, 60);
    assert_eq!(convoy.limit(), Some(convoy.processors));
    // A thread that waits for locks belongs to it from now on, and nobody asks how long.
    convoy.note_wait(|| unreachable!("it is known"));
    assert!(convoy.enter(None, None).is_some());
    assert_eq!(asked(CONVOY - 1, 60).limit(), None, "few wait");
    assert_eq!(asked(CONVOY + 1, 40).limit(), None, "processors have time to spare");
}

#[test]
fn after_a_convoy_there_is_a_lull() {
    let convoy = asked(CONVOY + 1, 60);
    convoy.forget_limit(&mut convoy.state.lock(), Instant::now());
    assert_eq!(convoy.limit(), None);
    convoy.state.lock().watch.pace.at = Instant::now() - SPELL;
    convoy.look_for_convoy(|_| unreachable!());
    convoy.state.lock().watch.rests_until = Instant::now();
    let looked = AtomicU64::new(0);
    convoy.look_for_convoy(|_| {
        looked.fetch_add(1, Ordering::SeqCst);
        None
    });
    assert_eq!(looked.into_inner(), 1);
}

#[test]
fn who_comes_back_at_once_keeps_his_turn_for_a_while() {
    assert!((0..100).any(|_| {
        let admission = limited();
        let (runs, until) = (AtomicU64::new(0), Instant::now() + 20 * TURN);
        let run_on = || {
            join(admission.number);
            while Instant::now() < until {
                drop(admission.enter(None, None));
                runs.fetch_add(1, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            // One more than a limit rises to.
            (0..=admission.processors).for_each(|_| drop(scope.spawn(run_on)));
        });
        // Both had turns, and these were not of one run each.
        admission.waits() >= 4 && runs.into_inner() >= 20 * admission.waits()
    }));
}

#[test]
fn the_turn_of_who_does_not_come_back_is_ended() {
    // Well before any of them loses its patience.
    assert!((0..100).any(|_| {
        let admission = limited();
        admission.enter(None, None).unwrap().end(false);
        drop(admission.enter(None, None));
        assert!(!admission.state.lock().turns.is_empty(), "it rests");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                join(admission.number);
                let start = Instant::now();
                assert!(admission.enter(None, None).is_some());
                start.elapsed() < PATIENCE / 2
            });
            other.join().unwrap()
        })
    }));
}
