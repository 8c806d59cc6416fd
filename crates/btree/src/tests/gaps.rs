//! Key-range locking, exhaustively at a small scope: BTREE-5, BTREE-7, BTREE-8.
//!
//! Six keys, each present, deleted (a ghost) or absent; every scan (both directions, every pair of bounds, point
//! reads); every single-key operation of another transaction. The oracle knows no locks: an operation that changes what
//! the scan gives must not get through while the scanner runs, whether it comes before the scan or after it. Operations
//! that had to wait although they change nothing for the scan are counted: that is the precision of the modes.

use std::{collections::BTreeMap, fmt, ops::Bound};

use foreshore_base::{Lsn, TableId};
use foreshore_env::sync::Arc;
use foreshore_latch::Patience;
use foreshore_lock::{KeyMode, KeyRangeModes, KeyRef, LockError, LockManager};

use super::support::{Locking, Rig, lock_manager, lock_manager_with, scan};
use crate::{Direction, Isolation, LockKind, NoLocks, Session, TreeError, TxnChain, node::Target};

const KEYS: u8 = 6;

/// Between any two keys there is room for another.
fn key(number: u8) -> [u8; 1] {
    [number * 2]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Present,
    Ghost,
    Absent,
}

#[derive(Clone, Copy, Debug)]
enum Look {
    Get(u8),
    Scan(Bound<u8>, Bound<u8>, Direction),
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u8),
    Update(u8),
    Put(u8),
    Delete(u8),
}

/// What happens between the scan and the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Ghosts are purged and nodes merged wherever that is allowed.
    Tidying,
    /// Other keys are inserted wherever that is allowed, which splits nodes.
    Splitting,
    /// The scanner inserts this key itself.
    OwnInsert(u8),
    /// The same, and takes it back.
    OwnRollback(u8),
}

/// What a session leaves out, to show that the test would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    /// Gaps are not locked.
    Gaps,
    /// A new key in the transaction's own gap does not inherit the gap's mode.
    Inheritance,
    /// Ghosts and borders vanish although they are locked.
    Purge,
}

struct Session6 {
    inner: Locking,
    sabotage: Sabotage,
}

impl Session6 {
    fn begin(manager: &Arc<LockManager>, txn: u64, sabotage: Sabotage) -> Session6 {
        let inner =
            Locking { no_wait: true, gaps: sabotage != Sabotage::Gaps, ..Locking::begin(manager, txn) };
        Session6 { inner, sabotage }
    }
}

impl Session for Session6 {
    fn acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<(), LockError> {
        self.inner.acquire(table, key, mode)
    }

    fn try_acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError> {
        self.inner.try_acquire(table, key, mode)
    }

    fn held(&self, table: TableId, key: KeyRef<'_>) -> Result<KeyMode, LockError> {
        if self.sabotage == Sabotage::Inheritance { Ok(KeyMode::N) } else { self.inner.held(table, key) }
    }

    fn held_and_check(
        &self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(KeyMode, bool), LockError> {
        let (_, free) = self.inner.held_and_check(table, key, mode)?;
        Ok((self.held(table, key)?, free))
    }

    fn has_requests(&self, table: TableId, key: KeyRef<'_>) -> bool {
        self.sabotage != Sabotage::Purge && self.inner.has_requests(table, key)
    }

    fn chain(&mut self) -> &mut TxnChain {
        self.inner.chain()
    }
}

/// Purges one key's ghost and no other.
struct OnlyPurge(u8, NoLocks);

impl Session for OnlyPurge {
    fn acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(), LockError> {
        unreachable!("nothing but a purge")
    }

    fn try_acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<bool, LockError> {
        unreachable!("nothing but a purge")
    }

    fn held(&self, _: TableId, _: KeyRef<'_>) -> Result<KeyMode, LockError> {
        unreachable!("nothing but a purge")
    }

    fn held_and_check(&self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(KeyMode, bool), LockError> {
        unreachable!("nothing but a purge")
    }

    fn has_requests(&self, _: TableId, name: KeyRef<'_>) -> bool {
        name != KeyRef::Key(&[self.0])
    }

    fn chain(&mut self) -> &mut TxnChain {
        self.1.chain()
    }
}

type Model = BTreeMap<u8, u8>;

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    pairs: u64,
    missed: u64,
    false_conflicts: u64,
    true_conflicts: u64,
}

struct Bench {
    rig: Rig,
    manager: Arc<LockManager>,
    next_txn: u64,
    sabotage: Sabotage,
    tally: Tally,
}

impl Bench {
    fn new(node_capacity: usize, sabotage: Sabotage) -> Bench {
        let rig = Rig::with_frames(node_capacity, 128);
        Bench { rig, manager: lock_manager(), next_txn: 1, sabotage, tally: Tally::default() }
    }

    fn begin(&mut self) -> Session6 {
        self.next_txn += 1;
        Session6::begin(&self.manager, self.next_txn, self.sabotage)
    }

    fn purge(&self, key: u8) {
        let tree = self.rig.tree.tree();
        let target = Target::Key(std::slice::from_ref(&key));
        let landing = tree.leaf(Patience::ENDLESS, target).unwrap();
        let mut page = tree.latch(Patience::ENDLESS, landing.page, target, 0).unwrap().unwrap();
        let session = OnlyPurge(key, NoLocks::new(foreshore_base::TxnId(1)));
        tree.purge(&session, &mut page).unwrap();
    }

    /// Brings the tree into a state. With `borders`, all keys are inserted first, so that absent keys are borders too.
    fn set(&mut self, states: &[State], borders: bool) -> Model {
        let mut session = NoLocks::new(foreshore_base::TxnId(1));
        let mut model = Model::new();
        for filler in 0..=2 * KEYS + 1 {
            self.rig.tree.delete(&mut session, &[filler]).unwrap();
            self.purge(filler);
        }
        if !borders {
            for filler in 0..=2 * KEYS + 1 {
                self.rig.maintain(&mut session, &[filler]);
            }
        }
        for (number, state) in (1..).zip(states) {
            if borders || *state != State::Absent {
                self.rig.tree.put(&mut session, &key(number), &[100 + number]).unwrap();
            }
        }
        for (number, state) in (1..).zip(states) {
            match state {
                State::Present => drop(model.insert(number, 100 + number)),
                State::Ghost => assert!(self.rig.tree.delete(&mut session, &key(number)).unwrap()),
                State::Absent => {
                    self.rig.tree.delete(&mut session, &key(number)).unwrap();
                    self.purge(number * 2);
                }
            }
        }
        model
    }

    fn look(&self, session: &mut Session6, look: Look) -> Result<Model, TreeError> {
        match look {
            Look::Get(number) => {
                let value =
                    self.rig.tree.get(session, &key(number), Isolation::Serializable, |value| value[0])?;
                Ok(value.map(|value| (number, value)).into_iter().collect())
            }
            Look::Scan(low, high, direction) => {
                let (low, high) = (low.map(key), high.map(key));
                let range = (low.as_ref().map(|key| &key[..]), high.as_ref().map(|key| &key[..]));
                let records = scan(&self.rig.tree, session, range, direction)?;
                Ok(records.into_iter().map(|(key, value)| (key[0] / 2, value[0])).collect())
            }
        }
    }

    fn change(&self, session: &mut Session6, change: Change) -> Result<bool, TreeError> {
        let tree = &self.rig.tree;
        match change {
            Change::Insert(number) => tree.insert(session, &key(number), &[200]),
            Change::Update(number) => tree.update(session, &key(number), &[201]),
            Change::Put(number) => tree.put(session, &key(number), &[202]),
            Change::Delete(number) => tree.delete(session, &key(number)),
        }
    }

    fn roll_back(&self, session: &mut Session6, until: Lsn) {
        let mut chain = *session.chain();
        self.rig.roll_back(&mut chain, until);
        *session.chain() = chain;
    }

    /// Takes a change back and makes its key what it was.
    fn restore(&self, mut session: Session6, change: Change, states: &[State]) {
        self.roll_back(&mut session, Lsn::ZERO);
        drop(session);
        let number = change.number();
        if states[usize::from(number) - 1] == State::Absent {
            self.purge(number * 2);
        }
    }

    /// What another transaction's change does to a scan that was made before.
    fn scan_then_change(&mut self, look: Look, between: Between, states: &[State], model: &Model) {
        let mut scanner = self.begin();
        let result = self.look(&mut scanner, look).unwrap();
        assert_eq!(result, oracle(look, model), "{look:?}");
        let mut model = model.clone();
        match between {
            Between::Nothing => {}
            Between::Tidying => {
                let session = self.begin();
                for number in 1..=KEYS {
                    self.rig.tree.tree().maintain(&session, Target::Key(&key(number))).unwrap();
                }
            }
            Between::Splitting => {
                for number in 1..=KEYS {
                    let mut session = self.begin();
                    // Refused where the scanner has locked.
                    let _ = self.rig.tree.insert(&mut session, &[number * 2 + 1], &[7]);
                }
            }
            Between::OwnInsert(number) => {
                let before = scanner.chain().last;
                let inserted = self.rig.tree.insert(&mut scanner, &key(number), &[50]).unwrap();
                assert_eq!(inserted, !model.contains_key(&number));
                if inserted {
                    model.insert(number, 50);
                }
                assert_eq!(inserted, scanner.chain().last != before);
            }
            Between::OwnRollback(number) => {
                self.rig.tree.put(&mut scanner, &key(number), &[50]).unwrap();
                self.roll_back(&mut scanner, Lsn::ZERO);
            }
        }
        for change in changes() {
            let mut writer = self.begin();
            let matters = oracle(look, &model) != oracle(look, &change.applied(&model));
            let outcome = self.change(&mut writer, change);
            self.count(
                matters,
                &outcome,
                format_args!("{look:?}, {between:?}, then {change:?} on {states:?}"),
            );
            // What was absent may stay behind as a ghost, which the purge must not take under the scanner's lock.
            self.roll_back(&mut writer, Lsn::ZERO);
            drop(writer);
            if states[usize::from(change.number()) - 1] == State::Absent && between == Between::Nothing {
                self.purge(change.number() * 2);
            }
        }
        self.roll_back(&mut scanner, Lsn::ZERO);
    }

    /// What a scan sees of another transaction's change that was made before and is not committed.
    fn change_then_scans(&mut self, change: Change, states: &[State], model: &Model) {
        let mut writer = self.begin();
        self.change(&mut writer, change).unwrap();
        for look in looks() {
            let mut scanner = self.begin();
            let matters = oracle(look, model) != oracle(look, &change.applied(model));
            let outcome = self.look(&mut scanner, look);
            if let Ok(seen) = &outcome
                && !matters
            {
                assert_eq!(*seen, oracle(look, model), "{look:?} after {change:?} on {states:?}");
            }
            self.count(matters, &outcome, format_args!("{change:?}, then {look:?} on {states:?}"));
        }
        self.restore(writer, change, states);
    }

    fn count<T>(&mut self, matters: bool, outcome: &Result<T, TreeError>, case: fmt::Arguments<'_>) {
        self.tally.pairs += 1;
        match (outcome, matters) {
            (Ok(_), false) => {}
            (Ok(_), true) => {
                assert!(self.sabotage != Sabotage::None, "missed: {case}");
                self.tally.missed += 1;
            }
            (Err(TreeError::Lock(LockError::WouldBlock(_))), true) => self.tally.true_conflicts += 1,
            (Err(TreeError::Lock(LockError::WouldBlock(_))), false) => self.tally.false_conflicts += 1,
            (Err(error), _) => panic!("{case}: {error}"),
        }
    }
}

impl Change {
    fn number(self) -> u8 {
        let (Change::Insert(number) | Change::Update(number) | Change::Put(number) | Change::Delete(number)) =
            self;
        number
    }

    fn applied(self, model: &Model) -> Model {
        let mut model = model.clone();
        match self {
            Change::Insert(number) => drop(model.entry(number).or_insert(200)),
            Change::Update(number) => drop(model.entry(number).and_modify(|value| *value = 201)),
            Change::Put(number) => drop(model.insert(number, 202)),
            Change::Delete(number) => drop(model.remove(&number)),
        }
        model
    }
}

/// What a look gives on a state, by the meaning of bounds alone.
fn oracle(look: Look, model: &Model) -> Model {
    let inside = |number: &u8| match look {
        Look::Get(wanted) => *number == wanted,
        Look::Scan(low, high, _) => {
            (match low {
                Bound::Included(low) => *number >= low,
                Bound::Excluded(low) => *number > low,
                Bound::Unbounded => true,
            }) && match high {
                Bound::Included(high) => *number <= high,
                Bound::Excluded(high) => *number < high,
                Bound::Unbounded => true,
            }
        }
    };
    model.iter().filter(|(number, _)| inside(number)).map(|(number, value)| (*number, *value)).collect()
}

fn looks() -> Vec<Look> {
    let mut bounds = vec![Bound::Unbounded];
    for number in 1..=KEYS {
        bounds.extend([Bound::Included(number), Bound::Excluded(number)]);
    }
    let mut looks: Vec<Look> = (1..=KEYS).map(Look::Get).collect();
    for low in &bounds {
        for high in &bounds {
            let empty = match (low, high) {
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
                (Bound::Included(low), Bound::Included(high)) => low > high,
                (
                    Bound::Included(low) | Bound::Excluded(low),
                    Bound::Included(high) | Bound::Excluded(high),
                ) => low >= high,
            };
            if !empty {
                looks.push(Look::Scan(*low, *high, Direction::Ascending));
                looks.push(Look::Scan(*low, *high, Direction::Descending));
            }
        }
    }
    looks
}

fn changes() -> Vec<Change> {
    (1..=KEYS)
        .flat_map(|number| {
            [Change::Insert(number), Change::Update(number), Change::Put(number), Change::Delete(number)]
        })
        .collect()
}

fn states() -> Vec<Vec<State>> {
    let mut states = vec![Vec::new()];
    for _ in 0..KEYS {
        states = states
            .into_iter()
            .flat_map(|state: Vec<State>| {
                [State::Present, State::Ghost, State::Absent].map(|last| {
                    let mut state = state.clone();
                    state.push(last);
                    state
                })
            })
            .collect();
    }
    states
}

/// A wide and a narrow leaf; with and without absent keys as borders.
const LAYOUTS: [(usize, bool); 3] = [(usize::MAX, false), (3, false), (3, true)];

#[test]
fn no_change_gets_past_a_scan_nor_a_scan_past_a_change() {
    let looks = looks();
    for (layout, (node_capacity, borders)) in LAYOUTS.into_iter().enumerate() {
        let mut bench = Bench::new(node_capacity, Sabotage::None);
        for (index, state) in states().into_iter().enumerate() {
            // Each look in each state, in one of the layouts.
            let model = bench.set(&state, borders);
            for (number, look) in looks.iter().enumerate() {
                if (index + number) % LAYOUTS.len() == layout {
                    bench.scan_then_change(*look, Between::Nothing, &state, &model);
                }
            }
            for (number, change) in changes().into_iter().enumerate() {
                if (index + number) % LAYOUTS.len() == layout {
                    bench.change_then_scans(change, &state, &model);
                }
            }
        }
        bench.rig.verify();
        report("pairs", node_capacity, borders, &bench.tally);
    }
}

fn report(what: &str, node_capacity: usize, borders: bool, tally: &Tally) {
    let nodes = if node_capacity == usize::MAX { "wide" } else { "narrow" };
    println!("{what}, {nodes} nodes, absent borders {borders}: {tally:?}");
    assert_eq!(tally.missed, 0);
    assert!(tally.true_conflicts > 0, "nothing was tested");
}

/// A step between the scan and the change: every `stride`-th state.
fn with_steps(sabotage: Sabotage, stride: usize, between: &dyn Fn(usize) -> Between) -> Tally {
    let mut bench = Bench::new(3, sabotage);
    let looks = looks();
    for (index, state) in states().into_iter().enumerate().step_by(stride) {
        for (number, look) in looks.iter().enumerate() {
            if (index / stride + number).is_multiple_of(8) {
                let model = bench.set(&state, number % 3 == 0);
                bench.scan_then_change(*look, between(number), &state, &model);
            }
        }
    }
    bench.tally
}

#[test]
fn structure_changes_in_between_lose_no_lock() {
    report("tidying", 3, true, &with_steps(Sabotage::None, 5, &|_| Between::Tidying));
    report("splitting", 3, true, &with_steps(Sabotage::None, 5, &|_| Between::Splitting));
}

#[test]
fn inserts_into_the_own_gap_lose_no_lock() {
    let own = |number: usize| Between::OwnInsert(1 + (number / 8 % usize::from(KEYS)) as u8);
    report("own insert", 3, true, &with_steps(Sabotage::None, 3, &own));
    let own = |number: usize| Between::OwnRollback(1 + (number / 8 % usize::from(KEYS)) as u8);
    report("own insert taken back", 3, true, &with_steps(Sabotage::None, 3, &own));
}

/// Kimura et al. 2012, Figure 3: the sets of modes that it compares miss nothing either, and are only coarser.
#[test]
fn other_sets_of_modes_are_coarser_and_miss_nothing() {
    let mut false_conflicts = Vec::new();
    for modes in KeyRangeModes::ALL {
        let mut bench = Bench::new(3, Sabotage::None);
        bench.manager = lock_manager_with(modes);
        let looks = looks();
        let between = |number: usize| match number % 4 {
            0 => Between::Tidying,
            1 => Between::OwnInsert(1 + (number / 8 % usize::from(KEYS)) as u8),
            _ => Between::Nothing,
        };
        for (index, state) in states().into_iter().enumerate().step_by(22) {
            for (number, look) in looks.iter().enumerate() {
                if (index / 22 + number).is_multiple_of(8) {
                    let model = bench.set(&state, number % 3 == 0);
                    bench.scan_then_change(*look, between(number), &state, &model);
                }
            }
            let model = bench.set(&state, index % 2 == 0);
            for change in changes() {
                bench.change_then_scans(change, &state, &model);
            }
        }
        report(&format!("{modes:?}"), 3, true, &bench.tally);
        false_conflicts.push(bench.tally.false_conflicts);
    }
    assert!(false_conflicts.is_sorted_by(|finer, coarser| finer < coarser), "{false_conflicts:?}");
}

/// The weaker levels lock no gaps, and still see nothing that is not committed.
#[test]
fn weaker_isolation_reads_only_what_is_committed() {
    let mut bench = Bench::new(3, Sabotage::None);
    let (mut seen, mut waited) = (0, 0);
    for (index, state) in states().into_iter().enumerate().step_by(7) {
        let model = bench.set(&state, index % 2 == 0);
        for change in changes() {
            let mut writer = bench.begin();
            bench.change(&mut writer, change).unwrap();
            for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
                for direction in [Direction::Ascending, Direction::Descending] {
                    let mut reader = bench.begin();
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    let mut cursor = bench.rig.tree.cursor(all, direction, LockKind::Shared, isolation);
                    let (mut key, mut value, mut result) = (Vec::new(), Vec::new(), Model::new());
                    let outcome = loop {
                        match cursor.next(&mut reader, &mut key, &mut value) {
                            Ok(true) => drop(result.insert(key[0] / 2, value[0])),
                            other => break other,
                        }
                    };
                    match outcome {
                        Ok(_) => {
                            seen += 1;
                            assert_eq!(result, model, "{change:?} on {state:?}");
                        }
                        Err(_) => {
                            waited += 1;
                            assert_ne!(change.applied(&model), model, "{change:?} on {state:?}");
                        }
                    }
                    // The reader has locked no gap: there is room for a new key. (A writer that missed its key has.)
                    if change.applied(&model) == model {
                        continue;
                    }
                    let mut other = bench.begin();
                    assert!(bench.rig.tree.insert(&mut other, &[2 * KEYS + 1], &[1]).unwrap());
                    bench.roll_back(&mut other, Lsn::ZERO);
                    drop(other);
                    bench.purge(2 * KEYS + 1);
                }
                let mut reader = bench.begin();
                let number = change.number();
                let got = bench.rig.tree.get(&mut reader, &key(number), isolation, |value| value[0]);
                if let Ok(got) = got {
                    assert_eq!(got.as_ref(), model.get(&number), "{change:?} on {state:?}");
                }
            }
            bench.restore(writer, change, &state);
        }
    }
    assert!(seen > 1000 && waited > 1000, "{seen} scans, {waited} waits");
}

/// A cursor for changes keeps others from reading the keys it gave, and from filling the gaps between them.
#[test]
fn an_exclusive_cursor_excludes_readers_of_its_keys() {
    let mut bench = Bench::new(3, Sabotage::None);
    let state =
        [State::Present, State::Present, State::Absent, State::Present, State::Present, State::Present];
    let model = bench.set(&state, true);
    let mut owner = bench.begin();
    let (low, high) = (key(2), key(5));
    let range = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let mut cursor =
        bench.rig.tree.cursor(range, Direction::Ascending, LockKind::Exclusive, Isolation::Serializable);
    let (mut key_out, mut value) = (Vec::new(), Vec::new());
    while cursor.next(&mut owner, &mut key_out, &mut value).unwrap() {}
    for number in 1..=KEYS {
        let mut reader = bench.begin();
        let read = bench.look(&mut reader, Look::Get(number));
        // A gap locked shared lets others see that nothing is in it.
        let locked = (2..=5).contains(&number) && model.contains_key(&number);
        assert_eq!(read.is_err(), locked, "key {number}");
        if let Ok(read) = read {
            assert_eq!(read, oracle(Look::Get(number), &model));
        }
        drop(reader);
        let mut writer = bench.begin();
        let inserted = bench.change(&mut writer, Change::Put(number));
        assert_eq!(inserted.is_err(), (2..=5).contains(&number), "key {number}");
        bench.restore(writer, Change::Put(number), &state);
    }
}

/// BTREE-15: of what is deleted, a cursor for changes says that it is absent, as of a gap. Others pass it too; nobody
/// fills it; and its own transaction can, once it is alone there.
#[test]
fn an_exclusive_cursor_locks_ghosts_as_gaps() {
    let mut bench = Bench::new(3, Sabotage::None);
    let (low, high) = (key(2), key(5));
    let range = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    let none_there = |state: &Vec<State>| !state[1..5].contains(&State::Present);
    for (index, state) in states().into_iter().filter(none_there).enumerate() {
        let model = bench.set(&state, index % 2 == 0);
        for direction in [Direction::Ascending, Direction::Descending] {
            let (mut owner, mut other) = (bench.begin(), bench.begin());
            for session in [&mut owner, &mut other] {
                let isolation = Isolation::Serializable;
                let mut cursor = bench.rig.tree.cursor(range, direction, LockKind::Exclusive, isolation);
                assert!(!cursor.next(session, &mut Vec::new(), &mut Vec::new()).unwrap(), "{state:?}");
            }
            for number in 2..=5 {
                let put = Change::Put(number);
                assert!(bench.change(&mut owner, put).is_err(), "key {number} of {state:?} is another's too");
            }
            drop(other);
            for number in 2..=5 {
                let (put, get) = (Change::Put(number), Look::Get(number));
                let mut third = bench.begin();
                assert_eq!(bench.look(&mut third, get).unwrap(), Model::new());
                drop(third);
                let mut third = bench.begin();
                assert!(bench.change(&mut third, put).is_err(), "key {number} of {state:?} is locked");
                drop(third);
                bench.change(&mut owner, put).unwrap();
                let mut third = bench.begin();
                assert!(bench.look(&mut third, get).is_err(), "key {number} of {state:?} is not committed");
            }
            bench.roll_back(&mut owner, Lsn::ZERO);
            drop(owner);
            (2..=5).filter(|&number| state[usize::from(number) - 1] == State::Absent).for_each(|number| {
                bench.purge(number * 2);
            });
            let mut reader = bench.begin();
            let all = Look::Scan(Bound::Unbounded, Bound::Unbounded, direction);
            assert_eq!(bench.look(&mut reader, all).unwrap(), model);
        }
    }
    bench.rig.verify();
}

/// The tests above can fail: each with its kind of locking left out.
#[test]
fn sabotage_is_noticed() {
    let tally = with_steps(Sabotage::Gaps, 9, &|_| Between::Nothing);
    println!("gaps not locked: {tally:?}");
    assert!(tally.missed > 0);
    let tally = with_steps(Sabotage::Inheritance, 9, &|number| {
        Between::OwnInsert(1 + (number / 8 % usize::from(KEYS)) as u8)
    });
    println!("gap not inherited: {tally:?}");
    assert!(tally.missed > 0);
    let tally = with_steps(Sabotage::Purge, 9, &|_| Between::Tidying);
    println!("locked ghosts purged: {tally:?}");
    assert!(tally.missed > 0);
}
