//! A tree beside a `BTreeMap`, with nodes so small that structure changes are constant. At the end of every run the log
//! is redone into an empty file (twice), and each page must be byte for byte the same.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{Lsn, TxnId, limits::MAX_INLINE_VALUE_BYTES};
use foreshore_env::sync::Arc;
use foreshore_lock::LockManager;
use proptest::prelude::*;

use super::{
    relocate::compact,
    support::{LATCH_MODES, Locking, Rig, lock_manager, scan},
};
use crate::{Direction, Isolation, LatchMode, LockKind, NoLocks, Session, TxnChain};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Insert(u8, usize),
    Update(u8, usize),
    Put(u8, usize),
    Delete(u8),
    DeleteRange(u8, u8),
    InsertRange(u8, u8),
    Get(u8),
    /// So many from here on, in steps; for a change.
    GetMany(u8, u8, u8, bool),
    Scan(Bound<u8>, Bound<u8>, bool),
    Maintain(u8),
    /// To so many extents.
    Compact(u64),
    Commit,
    Savepoint,
    RollBackToSavepoint,
    RollBack,
}

fn bound() -> impl Strategy<Value = Bound<u8>> {
    prop_oneof![
        any::<u8>().prop_map(Bound::Included),
        any::<u8>().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

/// Mostly short values, some as long as a leaf allows, some longer.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..40_usize, 2 => 100..1792_usize, 1 => Just(1792_usize), 1 => 1793..6000_usize]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<u8>(), length()).prop_map(|(key, length)| Op::Insert(key, length)),
        2 => (any::<u8>(), length()).prop_map(|(key, length)| Op::Update(key, length)),
        4 => (any::<u8>(), length()).prop_map(|(key, length)| Op::Put(key, length)),
        4 => any::<u8>().prop_map(Op::Delete),
        1 => (any::<u8>(), 1..60_u8).prop_map(|(from, count)| Op::DeleteRange(from, count)),
        1 => (any::<u8>(), 1..40_u8).prop_map(|(from, count)| Op::InsertRange(from, count)),
        2 => any::<u8>().prop_map(Op::Get),
        2 => (any::<u8>(), 0..40_u8, any::<u8>(), any::<bool>())
            .prop_map(|(from, count, step, change)| Op::GetMany(from, count, step, change)),
        3 => (bound(), bound(), any::<bool>()).prop_map(|(low, high, up)| Op::Scan(low, high, up)),
        2 => any::<u8>().prop_map(Op::Maintain),
        1 => (1..8_u64).prop_map(Op::Compact),
        2 => Just(Op::Commit),
        1 => Just(Op::Savepoint),
        1 => Just(Op::RollBackToSavepoint),
        1 => Just(Op::RollBack),
    ]
}

fn op_of_short_values() -> impl Strategy<Value = Op> {
    op().prop_map(|op| match op {
        Op::Insert(key, length) => Op::Insert(key, length.min(MAX_INLINE_VALUE_BYTES)),
        Op::Update(key, length) => Op::Update(key, length.min(MAX_INLINE_VALUE_BYTES)),
        Op::Put(key, length) => Op::Put(key, length.min(MAX_INLINE_VALUE_BYTES)),
        other => other,
    })
}

/// Keys of very different lengths, in the order of their numbers. Some share long beginnings.
fn key(number: u8, long: bool) -> Vec<u8> {
    let mut key = vec![number >> 5];
    if long {
        key.resize(1 + usize::from(number >> 5) * 250, number >> 5);
    }
    key.extend_from_slice(&[number, number.wrapping_mul(37)]);
    key
}

fn value(number: u8, length: usize, step: usize) -> Vec<u8> {
    let mut value = vec![number; length];
    // Equal lengths that differ in a part only take another way.
    value.iter_mut().skip(length / 2).take(3).for_each(|byte| *byte = step as u8);
    value
}

/// A transaction of either kind.
trait Txn: Session {
    /// What it may still take back keeps its room (BTREE-16), but for chunks of long values, which it does not lock.
    const KEEPS_ROOM: bool;

    fn fresh(manager: &Arc<LockManager>, number: u64) -> Self;
}

impl Txn for NoLocks {
    const KEEPS_ROOM: bool = false;

    fn fresh(_: &Arc<LockManager>, number: u64) -> NoLocks {
        NoLocks::new(TxnId(number))
    }
}

impl Txn for Locking {
    const KEEPS_ROOM: bool = true;

    fn fresh(manager: &Arc<LockManager>, number: u64) -> Locking {
        Locking { no_wait: true, ..Locking::begin(manager, number) }
    }
}

/// Whatever else a range may be, the model panics on some.
fn model_range(model: &Model, low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    model
        .iter()
        .filter(|(key, _)| match low {
            Bound::Included(low) => *key >= low,
            Bound::Excluded(low) => *key > low,
            Bound::Unbounded => true,
        })
        .filter(|(key, _)| match high {
            Bound::Included(high) => *key <= high,
            Bound::Excluded(high) => *key < high,
            Bound::Unbounded => true,
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

struct Run<'r, T> {
    rig: &'r Rig,
    session: T,
    model: Model,
    committed: Model,
    savepoint: (Model, Lsn),
    long: bool,
    /// There are no long values.
    short_values: bool,
}

impl<T: Txn> Run<'_, T> {
    fn roll_back(&mut self, until: Lsn) {
        let mut chain: TxnChain = *self.session.chain();
        let before = self.rig.env.pool.stats().allocations;
        self.rig.roll_back(&mut chain, until);
        let after = self.rig.env.pool.stats().allocations;
        assert!(after == before || !self.short_values || !T::KEEPS_ROOM, "a rollback took a page");
        *self.session.chain() = chain;
    }

    fn step(&mut self, op: &Op, step: usize) {
        let (tree, long) = (&self.rig.tree, self.long);
        let key = |number: u8| key(number, long);
        let session = &mut self.session;
        match *op {
            Op::Insert(number, length) => {
                let (key, value) = (key(number), value(number, length, step));
                assert_eq!(tree.insert(session, &key, &value).unwrap(), !self.model.contains_key(&key));
                self.model.entry(key).or_insert(value);
            }
            Op::Update(number, length) => {
                let (key, value) = (key(number), value(number, length, step));
                assert_eq!(tree.update(session, &key, &value).unwrap(), self.model.contains_key(&key));
                self.model.entry(key).and_modify(|old| *old = value);
            }
            Op::Put(number, length) => {
                let (key, value) = (key(number), value(number, length, step));
                assert_eq!(tree.put(session, &key, &value).unwrap(), self.model.contains_key(&key));
                self.model.insert(key, value);
            }
            Op::Delete(number) => {
                let key = key(number);
                assert_eq!(tree.delete(session, &key).unwrap(), self.model.remove(&key).is_some());
            }
            Op::DeleteRange(from, count) => {
                for number in from..from.saturating_add(count) {
                    assert_eq!(
                        tree.delete(session, &key(number)).unwrap(),
                        self.model.remove(&key(number)).is_some()
                    );
                }
            }
            Op::InsertRange(from, count) => {
                for number in from..from.saturating_add(count) {
                    let value = value(number, 20, step);
                    tree.put(session, &key(number), &value).unwrap();
                    self.model.insert(key(number), value);
                }
            }
            Op::Get(number) => {
                let got = tree.get(session, &key(number), Isolation::Serializable, <[u8]>::to_vec).unwrap();
                assert_eq!(got.as_ref(), self.model.get(&key(number)));
            }
            Op::GetMany(from, count, by, change) => {
                let numbers = (0..count).map(|number| from.wrapping_add(number.wrapping_mul(by)));
                let keys: Vec<_> = numbers.map(key).collect();
                let kind = if change { LockKind::Exclusive } else { LockKind::Shared };
                let mut got = Vec::new();
                let read = |number, value: Option<&[u8]>| got.push((number, value.map(<[u8]>::to_vec)));
                tree.get_many(session, &keys, kind, Isolation::Serializable, read).unwrap();
                let expected = keys.iter().map(|key| self.model.get(key).cloned());
                assert_eq!(got, expected.enumerate().collect::<Vec<_>>());
            }
            Op::Scan(low, high, up) => {
                let (low, high) = (low.map(key), high.map(key));
                let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                let direction = if up { Direction::Ascending } else { Direction::Descending };
                let mut expected = model_range(&self.model, &low, &high);
                if !up {
                    expected.reverse();
                }
                assert_eq!(scan(tree, session, range, direction).unwrap(), expected);
            }
            Op::Maintain(number) => tree.maintain(session, &key(number)).unwrap(),
            Op::Compact(extents) => {
                compact(self.rig, session, extents * 8);
            }
            Op::Savepoint => self.savepoint = (self.model.clone(), session.chain().last),
            Op::RollBackToSavepoint => {
                let (model, lsn) = self.savepoint.clone();
                self.model = model;
                self.roll_back(lsn);
            }
            Op::RollBack => {
                self.model = self.committed.clone();
                self.roll_back(Lsn::ZERO);
            }
            Op::Commit => {}
        }
    }
}

fn run<T: Txn>(ops: &[Op], node_capacity: usize, long: bool, mode: LatchMode) {
    let rig = Rig::with_mode(node_capacity, 1024, mode);
    let manager = lock_manager();
    let mut number = 1;
    let session = T::fresh(&manager, number);
    let savepoint = (Model::new(), Lsn::ZERO);
    let short_values = !ops.iter().any(|op| match op {
        Op::Insert(_, length) | Op::Update(_, length) | Op::Put(_, length) => {
            *length > MAX_INLINE_VALUE_BYTES
        }
        _ => false,
    });
    let (model, committed) = (Model::new(), Model::new());
    let mut run = Run { rig: &rig, session, model, committed, savepoint, long, short_values };
    for (step, op) in ops.iter().enumerate() {
        run.step(op, step);
        if matches!(op, Op::Commit | Op::RollBack) {
            number += 1;
            run.committed = run.model.clone();
            run.savepoint = (run.model.clone(), Lsn::ZERO);
            run.session = T::fresh(&manager, number);
            // The locks of the last transaction go when it is dropped: after the new one has begun.
        }
        if step % 16 == 0 {
            rig.verify();
        }
    }
    // Before the report: a scan may purge.
    assert_eq!(rig.contents(), run.model);
    let report = rig.verify();
    assert_eq!(report.records as usize, run.model.len());
    let redone = rig.redone("db/redone", node_capacity);
    assert_eq!(redone.verify(), report);
    for page in rig.pages() {
        assert!(rig.page(page).0 == redone.page(page).0, "page {page} differs after redo");
    }
    assert_eq!(redone.contents(), run.model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// BTREE-2, BTREE-10, BTREE-11.
    #[test]
    fn a_tree_behaves_as_a_map(
        ops in prop::collection::vec(op(), 1..150),
        node_capacity in 3..7_usize,
        long in any::<bool>(),
        mode in prop::sample::select(&LATCH_MODES[..]),
    ) {
        run::<NoLocks>(&ops, node_capacity, long, mode);
    }

    /// The same with locks, which keep ghosts and borders from vanishing. A single transaction never waits for itself.
    #[test]
    fn a_locked_tree_behaves_as_a_map(
        ops in prop::collection::vec(op(), 1..150),
        node_capacity in 3..7_usize,
        long in any::<bool>(),
        mode in prop::sample::select(&LATCH_MODES[..]),
    ) {
        run::<Locking>(&ops, node_capacity, long, mode);
    }

    /// BTREE-16: and no rollback needs a page, whatever others and it itself have put where it took something out.
    #[test]
    fn a_locked_tree_keeps_room_for_what_may_come_back(
        ops in prop::collection::vec(op_of_short_values(), 1..200),
        node_capacity in prop::sample::select(&[5, usize::MAX][..]),
        mode in prop::sample::select(&LATCH_MODES[..]),
    ) {
        run::<Locking>(&ops, node_capacity, true, mode);
    }

    /// Whole pages: splits by bytes.
    #[test]
    fn a_tree_of_full_pages_behaves_as_a_map(
        ops in prop::collection::vec(op(), 1..200),
        mode in prop::sample::select(&LATCH_MODES[..]),
    ) {
        run::<NoLocks>(&ops, usize::MAX, true, mode);
    }
}
