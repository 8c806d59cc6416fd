//! How fast it is: `cargo test --release -p foreshore-btree figures -- --ignored --nocapture`.

use std::ops::Bound;

use foreshore_env::random::Xorshift;

use super::support::{Locking, Rig, lock_manager};
use crate::{Direction, Isolation, LockKind};

const RECORDS: u64 = 200_000;
const ROUNDS: u64 = 400_000;

/// Processor time of this thread, which other work on the machine does not lengthen (it spoils the caches, though).
fn processor_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap()
}

/// Nanoseconds of each of `rounds` calls, in transactions of 8 calls with locks; locks are released in between.
fn measure(name: &str, rounds: u64, mut call: impl FnMut(&mut Locking, u64)) {
    let manager = lock_manager();
    let start = processor_ns();
    let mut session = Locking::begin(&manager, 1);
    for round in 0..rounds {
        call(&mut session, round);
        if round % 8 == 7 {
            session.owner.release_all(None);
        }
    }
    println!("{name}: {} ns", (processor_ns() - start) / rounds);
}

// cargo test --release -p foreshore-btree figures -- --ignored --nocapture
#[test]
#[ignore = "measures"]
fn figures() {
    let rig = Rig::with_frames(usize::MAX, 16_384);
    let mut random = Xorshift::new(1);
    measure("insert, ascending", RECORDS, |session, round| {
        assert!(rig.tree.insert(session, &(round * 2).to_be_bytes(), &[1; 100]).unwrap());
    });
    measure("insert, random", RECORDS / 4, |session, _| {
        let key = (random.below(RECORDS) * 2 + 1).to_be_bytes();
        rig.tree.insert(session, &key, &[1; 100]).unwrap();
    });
    for (name, range) in [("of 1,000", 1000), ("of all", RECORDS)] {
        measure(&format!("get, {name}"), ROUNDS, |session, _| {
            let key = (random.below(range) * 2).to_be_bytes();
            assert!(
                rig.tree.get(session, &key, Isolation::Serializable, |value| value[0]).unwrap().is_some()
            );
        });
        measure(&format!("update, {name}"), ROUNDS, |session, round| {
            let key = (random.below(range) * 2).to_be_bytes();
            let mut value = [1; 100];
            value[10..18].copy_from_slice(&round.to_le_bytes());
            assert!(rig.tree.update(session, &key, &value).unwrap());
        });
    }
    let (mut key, mut value) = (Vec::new(), Vec::new());
    measure("scan of 100", 4000, |session, _| {
        let from = (random.below(RECORDS - 200) * 2).to_be_bytes();
        let range = (Bound::Included(&from[..]), Bound::Unbounded);
        let mut cursor =
            rig.tree.cursor(range, Direction::Ascending, LockKind::Shared, Isolation::Serializable);
        for _ in 0..100 {
            assert!(cursor.next(session, &mut key, &mut value).unwrap());
        }
    });
}
