//! LOCK-18: of those of whom one has to give way, one with the lowest priority does; under every policy that chooses.

use std::panic::Location;

use foreshore_base::TxnId;
use foreshore_env::sync::Arc;
use foreshore_env::thread;
use foreshore_lock::{
    Age, DeadlockPolicy, KeyMode, LockError, LockManager, LockOptions, LockOwner, LockTableKind, VictimPolicy,
};

use super::{Gate, TABLE, WAIT, key, side_by_side, tables_and_policies};

/// A transaction of a cycle; the first is the oldest.
#[derive(Clone, Copy, Debug)]
struct Member {
    priority: i8,
    /// Transactions that its pipeline has completed.
    completed: u32,
}

const fn of(priority: i8) -> Member {
    Member { priority, completed: 0 }
}

fn begin(manager: &Arc<LockManager>, place: usize, member: Member) -> LockOwner {
    let number = place as u64 + 1;
    let age = Age::new(number, member.priority);
    let mut owner = manager.begin(TxnId(number), age, None).unwrap();
    if member.completed > 0 {
        owner.renew(TxnId(number), age, None, member.completed, Location::caller());
    }
    owner
}

/// Each locks a key and then wants that of the next; the places of those who have to give way.
fn cycle(options: &LockOptions, members: &[Member]) -> Vec<usize> {
    let manager = LockManager::new(options);
    let gate = Gate::new(members.len());
    let gave_way = thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter()
            .enumerate()
            .map(|(place, &member)| {
                let (manager, gate) = (&manager, &gate);
                scope.spawn(move || {
                    let mut owner = begin(manager, place, member);
                    owner.acquire(TABLE, key(&[place as u8]), KeyMode::X, &WAIT).unwrap();
                    gate.wait();
                    let next = [((place + 1) % members.len()) as u8];
                    match owner.acquire(TABLE, key(&next), KeyMode::X, &WAIT) {
                        Ok(()) => false,
                        Err(LockError::Deadlock(report)) => {
                            assert_eq!(report.victim, owner.txn(), "{report}");
                            true
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(manager.is_empty());
    (0..members.len()).filter(|place| gave_way[*place]).collect()
}

fn detecting() -> Vec<LockOptions> {
    tables_and_policies().into_iter().filter(|options| options.deadlock.detects()).collect()
}

#[test]
fn of_a_cycle_the_least_important_gives_way() {
    side_by_side(&detecting(), |options| {
        for (priorities, victim) in [
            // Among equals the youngest.
            ([0, 0, 0], 2),
            ([0, 0, 1], 1),
            ([0, 1, 1], 0),
            ([-1, 0, 0], 0),
            ([127, -128, 0], 1),
            ([3, 2, 2], 2),
        ] {
            let gave_way = cycle(options, &priorities.map(of));
            assert_eq!(gave_way, [victim], "{priorities:?}, {options:?}");
        }
    });
}

/// Nobody looks for a cycle, but the order of ages is one of priorities first.
#[test]
fn the_important_neither_die_nor_are_wounded() {
    let by_age = [DeadlockPolicy::WaitDie, DeadlockPolicy::WoundWait];
    let settings: Vec<_> =
        tables_and_policies().into_iter().filter(|options| by_age.contains(&options.deadlock)).collect();
    assert_eq!(settings.len(), 2 * LockTableKind::ALL.len());
    side_by_side(&settings, |options| {
        for (priorities, victim) in [([0, 0], 1), ([0, 1], 0), ([-1, 0], 0), ([1, 0], 1)] {
            let gave_way = cycle(options, &priorities.map(of));
            assert_eq!(gave_way, [victim], "{priorities:?}, {options:?}");
        }
    });
}

/// What a pipeline costs is asked among those of the lowest priority.
#[test]
fn priority_goes_before_the_length_of_pipelines() {
    for (victim, chosen) in [(VictimPolicy::ShortestPipeline, 1), (VictimPolicy::LongestPipeline, 5)] {
        for options in detecting() {
            let options = LockOptions { victim, ..options };
            let member = |priority, completed| Member { priority, completed };
            // The policy would take the first.
            let first = member(0, chosen);
            assert_eq!(cycle(&options, &[first, member(0, 3)]), [0], "{options:?}");
            assert_eq!(cycle(&options, &[first, member(-1, 3)]), [1], "{options:?}");
        }
    }
}
