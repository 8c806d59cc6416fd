//! The contract of lock tables, over every implementation: random operations against a model that is written down from
//! the rules and recomputes everything.

use std::collections::BTreeMap;

use foreshore_base::{Lsn, TxnId};
use foreshore_env::random::Xorshift;

use super::{LockTable, Withdrawn};
use crate::age::Age;
use crate::deadlock::SlotSet;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::options::{LockOptions, LockTableKind};
use crate::request::{FreeRequests, Modes, RequestIndex};
use crate::slot::{Identity, SlotId, Slots};

const KINDS: [LockTableKind; 5] = LockTableKind::ALL;
const SLOTS: usize = 6;

fn names() -> [LockName; 4] {
    // Two buckets of two names each.
    [1, 2, 1 << 55, 1 << 55 | 5].map(LockName::from_bits)
}

/// A queue as the rules describe it.
#[derive(Clone, Debug, Default)]
struct Model {
    queue: Vec<(SlotId, Modes)>,
    tag: Lsn,
}

impl Model {
    fn place(&self, slot: SlotId) -> Option<usize> {
        self.queue.iter().position(|(other, _)| *other == slot)
    }

    /// LOCK-2, word by word.
    fn is_free(&self, place: usize) -> bool {
        let (_, Modes { granted, requested, .. }) = self.queue[place];
        self.queue.iter().enumerate().all(|(other_place, (_, other))| {
            other_place == place
                || if granted != KeyMode::N {
                    other.granted.compatible(requested)
                } else if other_place < place {
                    other.requested.compatible(requested)
                } else {
                    other.granted.compatible(requested)
                }
        })
    }

    /// Grants until nothing more can be: conversions first, then in order.
    fn settle(&mut self) -> Vec<SlotId> {
        let mut woken = Vec::new();
        for conversions in [true, false] {
            for place in 0..self.queue.len() {
                let (slot, modes) = self.queue[place];
                if modes.is_waiting() && (modes.granted != KeyMode::N) == conversions && self.is_free(place) {
                    self.queue[place].1.granted = modes.requested;
                    woken.push(slot);
                }
            }
        }
        for place in 0..self.queue.len() {
            assert!(
                !self.queue[place].1.is_waiting() || !self.is_free(place),
                "one pass is enough: {self:?}"
            );
        }
        woken
    }

    fn check_invariants(&self) {
        for (place, (_, one)) in self.queue.iter().enumerate() {
            assert!(one.requested.covers(one.granted));
            for (_, other) in &self.queue[..place] {
                assert!(one.granted.compatible(other.granted), "LOCK-3: {self:?}");
            }
        }
    }
}

struct Harness {
    table: LockTable,
    slots: Slots,
    free: Vec<FreeRequests>,
    /// Request by slot and name.
    requests: BTreeMap<(usize, usize), RequestIndex>,
    /// The name for which a slot waits.
    waits: [Option<usize>; SLOTS],
    models: [Model; 4],
}

impl Harness {
    fn new(kind: LockTableKind) -> Harness {
        Harness {
            table: LockTable::new(&LockOptions { buckets: 2, table: kind, ..LockOptions::default() }),
            slots: Slots::new(),
            // Requests are taken here, not by the slots' own states.
            free: (0..SLOTS).map(|slot| FreeRequests::new(SlotId(slot as u16))).collect(),
            requests: BTreeMap::new(),
            waits: [None; SLOTS],
            models: Default::default(),
        }
    }

    fn held(&self, slot: usize) -> usize {
        self.requests.keys().filter(|(owner, _)| *owner == slot).count()
    }

    /// The tag of a bucket: the model keeps it by name.
    fn tag(&self, name: usize) -> Lsn {
        self.models[name & !1].tag.max(self.models[name | 1].tag)
    }

    fn ask(&mut self, slot: usize, name: usize, mode: KeyMode, may_wait: bool) {
        let id = SlotId(slot as u16);
        let lock_name = names()[name];
        let model = &mut self.models[name];
        let (request, granted, wanted) = match model.place(id) {
            Some(place) => {
                let granted = model.queue[place].1.granted;
                (self.requests[&(slot, name)], granted, granted.join(mode))
            }
            None => {
                let held = self.requests.keys().filter(|(owner, _)| *owner == slot).count();
                (self.table.take_request(&mut self.free[slot], held).unwrap(), KeyMode::N, mode)
            }
        };
        if granted == wanted {
            return;
        }
        let before = model.clone();
        match model.place(id) {
            Some(place) => model.queue[place].1.requested = wanted,
            None => model.queue.push((id, Modes::new(KeyMode::N, wanted))),
        }
        let place = model.place(id).unwrap();
        let free = model.is_free(place);
        if free {
            model.queue[place].1.granted = wanted;
        }
        let tag = self.tag(name);
        assert_eq!(self.table.check(lock_name, id, wanted, granted != KeyMode::N), free);
        let outcome = match (may_wait, granted) {
            (true, KeyMode::N) => self.table.request(&self.slots, lock_name, id, request, wanted).ok(),
            (true, _) => self.table.convert(&self.slots, lock_name, request, wanted).ok(),
            (false, KeyMode::N) => self.table.try_request(&self.slots, lock_name, id, request, wanted),
            (false, _) => self.table.try_convert(&self.slots, lock_name, request, wanted),
        };
        assert_eq!(outcome, free.then_some(tag));
        let model = &mut self.models[name];
        if free && model.queue.iter().all(|(_, modes)| modes.is_shared()) {
            // LOCK-16: it may stand before the others.
            let first = self.table.requests_on(lock_name)[0].0;
            if first == id && granted == KeyMode::N {
                model.queue.rotate_right(1);
            }
        }
        if free || may_wait {
            self.requests.insert((slot, name), request);
            self.waits[slot] = (!free).then_some(name);
        } else {
            self.models[name] = before;
            if granted == KeyMode::N {
                self.free[slot].give(self.table.requests(), request);
            }
        }
    }

    fn withdraw(&mut self, slot: usize, name: usize) {
        let request = self.requests[&(slot, name)];
        assert_eq!(self.table.withdraw(&self.slots, names()[name], request), Withdrawn::Gone);
        self.waits[slot] = None;
        let model = &mut self.models[name];
        let place = model.place(SlotId(slot as u16)).unwrap();
        let granted = model.queue[place].1.granted;
        model.queue[place].1.requested = granted;
        if granted == KeyMode::N {
            model.queue.remove(place);
            self.requests.remove(&(slot, name));
            self.free[slot].give(self.table.requests(), request);
        }
        self.settle(name);
    }

    fn release(&mut self, slot: usize, name: usize, tag: Option<Lsn>) {
        let request = self.requests.remove(&(slot, name)).unwrap();
        self.table.release(&self.slots, names()[name], request, tag);
        self.free[slot].give(self.table.requests(), request);
        let model = &mut self.models[name];
        let place = model.place(SlotId(slot as u16)).unwrap();
        let (_, modes) = model.queue.remove(place);
        if modes.granted.is_exclusive() {
            model.tag = model.tag.max(tag.unwrap_or(Lsn::ZERO));
        }
        self.settle(name);
    }

    fn settle(&mut self, name: usize) {
        for woken in self.models[name].settle() {
            let slot = woken.index();
            let request = self.requests[&(slot, name)];
            assert!(self.slots.wait_of(woken).word().is_granted());
            assert_eq!(self.table.withdraw(&self.slots, names()[name], request), Withdrawn::Granted);
            self.waits[slot] = None;
        }
    }

    fn compare(&self) {
        for (name, model) in self.models.iter().enumerate() {
            model.check_invariants();
            assert_eq!(self.table.requests_on(names()[name]), model.queue);
            assert_eq!(self.table.is_requested(names()[name]), !model.queue.is_empty());
            assert_eq!(self.table.tag(names()[name]), self.tag(name));
        }
        for (slot, waits) in self.waits.iter().enumerate() {
            let id = SlotId(slot as u16);
            let word = self.slots.wait_of(id).word();
            assert_eq!(word.is_waiting(), waits.is_some());
            if let Some(name) = *waits {
                let request = self.requests[&(slot, name)];
                let blockers = self.table.blockers(&self.slots, id, word, request, |_| ()).unwrap();
                let mut digest = SlotSet::default();
                self.slots.wait_of(id).union_into(&mut digest);
                assert!(digest == blockers, "LOCK-11");
                let model = &self.models[name];
                let place = model.place(id).unwrap();
                let (_, own) = model.queue[place];
                for (other_place, (other, modes)) in model.queue.iter().enumerate() {
                    let counted = if other_place < place && own.granted == KeyMode::N {
                        modes.requested
                    } else {
                        modes.granted
                    };
                    let blocks = other_place != place && !counted.compatible(own.requested);
                    assert_eq!(blockers.contains(*other), blocks, "{model:?} {slot}");
                }
                let in_the_way: Vec<SlotId> = self
                    .table
                    .holders(names()[name], id, own.requested, own.granted != KeyMode::N)
                    .iter()
                    .map(|(slot, _)| *slot)
                    .collect();
                assert!(in_the_way.iter().all(|slot| blockers.contains(*slot)));
                assert_eq!(in_the_way.len(), blockers.iter().count());
            }
        }
    }
}

#[test]
fn random_operations_agree_with_the_rules() {
    for kind in KINDS {
        for seed in 1..200 {
            let mut random = Xorshift::new(seed);
            let mut harness = Harness::new(kind);
            for step in 0..600 {
                let slot = random.below(SLOTS as u64) as usize;
                let name = random.below(4) as usize;
                if let Some(name) = harness.waits[slot] {
                    if random.below(3) == 0 {
                        harness.withdraw(slot, name);
                    }
                } else if random.below(3) == 0 {
                    let tag = (random.below(2) == 0).then_some(Lsn(step));
                    for name in 0..4 {
                        if harness.requests.contains_key(&(slot, name)) {
                            harness.release(slot, name, tag);
                        }
                    }
                    assert_eq!(harness.held(slot), 0);
                } else {
                    let mode = KeyMode::ALL[1 + random.below(8) as usize];
                    harness.ask(slot, name, mode, random.below(3) > 0);
                }
                harness.compare();
            }
            for slot in 0..SLOTS {
                if let Some(name) = harness.waits[slot] {
                    harness.withdraw(slot, name);
                }
                for name in 0..4 {
                    if harness.requests.contains_key(&(slot, name)) {
                        harness.release(slot, name, None);
                    }
                }
            }
            harness.compare();
            assert!(harness.table.is_empty());
        }
    }
}

#[test]
fn a_victim_is_made_once_and_not_granted_any_more() {
    for kind in KINDS {
        let mut harness = Harness::new(kind);
        harness.ask(0, 0, KeyMode::X, true);
        harness.ask(1, 0, KeyMode::X, true);
        harness.ask(2, 0, KeyMode::S, true);
        let victim = SlotId(1);
        let word = harness.slots.wait_of(victim).word();
        let request = harness.requests[&(1, 0)];
        let make = |word| harness.table.make_victim(&harness.slots, victim, word, request, || ());
        assert!(make(word));
        assert!(!make(word), "the wait has ended");
        // The victim has not left yet, but the release passes it by; who stands behind it waits for it.
        let first = harness.requests[&(0, 0)];
        harness.table.release(&harness.slots, names()[0], first, None);
        assert!(harness.slots.wait_of(victim).word().is_victim());
        assert!(harness.slots.wait_of(SlotId(2)).word().is_waiting());
        assert_eq!(harness.table.withdraw(&harness.slots, names()[0], request), Withdrawn::Victim);
        assert!(harness.slots.wait_of(SlotId(2)).word().is_granted());
    }
}

#[test]
fn more_waiters_than_one_step_wakes_are_all_granted() {
    for kind in KINDS {
        let slots = Slots::new();
        let table = LockTable::new(&LockOptions { buckets: 1, table: kind, ..LockOptions::default() });
        let name = names()[0];
        let mut requests = Vec::new();
        for txn in 0..100 {
            let (slot, _, _state) = slots.claim(|_| Identity::new(TxnId(txn), Age::new(0, 0), None)).unwrap();
            let request = table.take_request(&mut FreeRequests::new(slot), 0).unwrap();
            let mode = if txn == 0 { KeyMode::X } else { KeyMode::S };
            assert_eq!(table.request(&slots, name, slot, request, mode).is_ok(), txn == 0);
            requests.push((slot, request));
        }
        table.release(&slots, name, requests[0].1, None);
        for &(slot, request) in &requests[1..] {
            assert!(slots.wait_of(slot).word().is_granted());
            assert_eq!(table.withdraw(&slots, name, request), Withdrawn::Granted);
            table.release(&slots, name, request, None);
        }
        assert!(table.is_empty());
    }
}
