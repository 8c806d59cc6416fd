//! LOCK-15 under loom: intents and absolute locks of three transactions, in every interleaving and with every value
//! that weak memory allows:
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-lock --release --lib --target-dir target/loom
//! ```
//!
//! What conflicts is never held at a time; and a waiter has been granted the lock when the others are gone. Without any
//! one of the three fences a model fails.

use foreshore_base::{Lsn, TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicU32, Ordering::Relaxed};
use foreshore_env::thread;

use super::super::{EntryIndex, IntentHold, IntentLocks, IntentMode};
use super::Private;
use crate::age::Age;
use crate::slot::{Identity, SLOTS, SlotId, Slots};

struct Scene {
    locks: Private,
    slots: Slots,
    /// Holders of intents, and of absolute locks, as they know themselves.
    intents: AtomicU32,
    absolutes: AtomicU32,
}

const TABLE: TableId = TableId(1);

impl Scene {
    fn new() -> Arc<Scene> {
        let slots = Slots::new();
        // All of them are used, so that an absolute lock looks at all.
        for txn in 0..SLOTS as u64 {
            drop(slots.claim(|_| Identity::new(TxnId(txn), Age::new(txn, 0), None)));
        }
        let (intents, absolutes) = (AtomicU32::new(0), AtomicU32::new(0));
        let locks = Private::new();
        // Made before there are threads: loom does not see how `OnceLock` orders the making and the use.
        locks.entries.get(EntryIndex::of(TABLE));
        Arc::new(Scene { locks, slots, intents, absolutes })
    }

    fn hold(slot: u16) -> IntentHold {
        IntentHold { slot: SlotId(slot), place: 0, held: None }
    }

    /// Asks for a lock without waiting, keeps it for a moment, and leaves a tag. Whether it got it.
    fn pass_through(&self, slot: u16, mode: IntentMode, tag: u64) -> bool {
        let entry = EntryIndex::of(TABLE);
        let granted = self.locks.try_request(&self.slots, entry, Scene::hold(slot), mode).is_some();
        if granted {
            self.held(slot, mode, tag);
        }
        granted
    }

    /// It holds a lock: nobody holds what conflicts.
    fn held(&self, slot: u16, mode: IntentMode, tag: u64) {
        let (own, others) = if mode.is_absolute() {
            (&self.absolutes, &self.intents)
        } else {
            (&self.intents, &self.absolutes)
        };
        own.fetch_add(1, Relaxed);
        assert_eq!(others.fetch_add(0, Relaxed), 0, "what conflicts is held at a time");
        own.fetch_sub(1, Relaxed);
        let held = [(EntryIndex::of(TABLE), mode)].into_iter();
        self.locks.release(&self.slots, SlotId(slot), 0, held, Some(Lsn(tag)));
    }
}

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn an_intent_and_an_absolute_lock_exclude_each_other() {
    bounded(|| {
        let scene = Scene::new();
        let other = Arc::clone(&scene);
        let intent = thread::spawn(move || other.pass_through(0, IntentMode::IX, 5));
        let absolute = scene.pass_through(1, IntentMode::S, 6);
        let intent = intent.join().unwrap();
        assert!(intent || absolute, "one of them was free to go");
        assert!(scene.locks.is_empty(&scene.slots));
        // Whoever locks the table now sees the change below it.
        let tag = scene.locks.tag(&scene.slots, EntryIndex::of(TABLE), IntentMode::S);
        assert_eq!(tag, Lsn(if intent { 5 } else { 0 }));
    });
}

/// The absolute request waits; the end of the intent is the only thing that can end its wait.
#[test]
fn the_end_of_an_intent_grants_the_absolute_lock_that_waits() {
    bounded(|| {
        let scene = Scene::new();
        let other = Arc::clone(&scene);
        let intent = thread::spawn(move || other.pass_through(0, IntentMode::IX, 5));
        let entry = EntryIndex::of(TABLE);
        let asked = scene.locks.request(&scene.slots, entry, Scene::hold(1), IntentMode::S);
        intent.join().unwrap();
        if asked.is_err() {
            assert!(scene.slots.wait_of(SlotId(1)).word().is_granted(), "a lost wake-up");
            scene.locks.withdraw(&scene.slots, entry, SlotId(1));
        }
        scene.held(1, IntentMode::S, 6);
        assert!(scene.locks.is_empty(&scene.slots));
    });
}

/// An intent that showed itself and had to take that back, while an absolute lock ends: nobody is left behind.
#[test]
fn an_intent_that_is_taken_back_is_in_nobodys_way() {
    bounded(|| {
        let scene = Scene::new();
        let entry = EntryIndex::of(TABLE);
        let other = Arc::clone(&scene);
        let intent = thread::spawn(move || other.pass_through(0, IntentMode::IX, 5));
        if scene.locks.try_request(&scene.slots, entry, Scene::hold(2), IntentMode::X).is_some() {
            let asked = scene.locks.request(&scene.slots, entry, Scene::hold(1), IntentMode::S);
            assert!(asked.is_err());
            scene.held(2, IntentMode::X, 7);
            intent.join().unwrap();
            assert!(scene.slots.wait_of(SlotId(1)).word().is_granted(), "a lost wake-up");
            scene.locks.withdraw(&scene.slots, entry, SlotId(1));
            scene.held(1, IntentMode::S, 8);
        } else {
            intent.join().unwrap();
        }
        assert!(scene.locks.is_empty(&scene.slots));
    });
}

/// A transaction that waits for an absolute lock gets it when the holders before it are gone, however many intents have
/// come meanwhile. Each of them was in its way for a moment, and of many that do not wait, one always.
#[test]
fn an_intent_that_comes_later_is_in_nobodys_way() {
    bounded(|| {
        let scene = Scene::new();
        let entry = EntryIndex::of(TABLE);
        assert!(scene.locks.try_request(&scene.slots, entry, Scene::hold(2), IntentMode::X).is_some());
        assert!(scene.locks.request(&scene.slots, entry, Scene::hold(1), IntentMode::S).is_err());
        let other = Arc::clone(&scene);
        let intent = thread::spawn(move || other.pass_through(0, IntentMode::IX, 5));
        scene.held(2, IntentMode::X, 7);
        assert!(scene.slots.wait_of(SlotId(1)).word().is_granted(), "nobody holds anything");
        scene.locks.withdraw(&scene.slots, entry, SlotId(1));
        scene.held(1, IntentMode::S, 8);
        intent.join().unwrap();
        assert!(scene.locks.is_empty(&scene.slots));
    });
}

/// A transaction gives back the first of three locks, and the others move down by one: whoever asks for one of them
/// meanwhile sees it. It saw neither place of the second when it had passed its new one before the move, and came to
/// its old one after the third had got that.
#[test]
fn a_lock_that_moves_is_seen() {
    bounded(|| {
        let scene = Scene::new();
        let Some(Scene { locks, slots, .. }) = Arc::into_inner(scene) else {
            unreachable!("nobody else has it")
        };
        let entry = |table| EntryIndex::of(TableId(table));
        let held = [(entry(1), IntentMode::IS), (entry(2), IntentMode::IX), (entry(3), IntentMode::IX)];
        for (place, (entry, mode)) in held.into_iter().enumerate() {
            let hold = IntentHold { slot: SlotId(0), place, held: None };
            assert!(locks.try_request(&slots, entry, hold, mode).is_some());
        }
        let mine = Arc::new((IntentLocks::Private(locks), slots));
        let theirs = Arc::clone(&mine);
        let mover = thread::spawn(move || {
            let (locks, slots) = &*theirs;
            for place in 0..2 {
                let (entry, mode) = held[place + 1];
                locks.relocate(slots, SlotId(0), place, entry, mode);
            }
            locks.release(slots, SlotId(0), 2, held[..1].iter().copied(), None);
        });
        let (locks, slots) = &*mine;
        assert!(
            locks.try_request(slots, entry(2), Scene::hold(1), IntentMode::S).is_none(),
            "granted beside IX"
        );
        mover.join().unwrap();
        assert_eq!(slots.get(SlotId(0)).intents.find(entry(3)), Some(IntentMode::IX));
    });
}
