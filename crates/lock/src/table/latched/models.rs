//! Requests that come to a bucket and go beside its latch, under loom: in every interleaving, and with every value that
//! weak memory lets a load see.
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-lock --release --lib --target-dir target/loom
//! ```
//!
//! A waiter does not sleep here: a wait that has not been ended although nobody is in its way, when all threads have
//! gone, is a lost wake-up. Faults are planted to show that the models see them.

use std::cell::Cell;
use std::ops::ControlFlow;

use foreshore_base::Lsn;
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::Ordering;
use foreshore_env::thread;

use super::Bucket;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::{FreeRequests, Modes, RequestIndex, Requests};
use crate::slot::{SlotId, Slots};
use crate::table::list::List;
use crate::table::queue::View;
use crate::table::wakes::Wakes;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Fault {
    None,
    /// The thread that has the latch does not guard the list.
    Guard,
    /// A tag is left by a load and a store.
    Tag,
    /// A list stays shared when somebody in it wants more.
    Doubt,
    /// A thread that comes beside the latch does not release what it has written into its request.
    Comes,
    /// A thread that goes beside the latch does not release what it has done.
    Goes,
    /// The thread that guards the list does not acquire what those in it have written.
    Guards,
}

std::thread_local! {
    /// Loom runs the threads of a model on one.
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
}

pub(in crate::table) fn has(fault: Fault) -> bool {
    FAULT.get() == fault
}

/// The ordering of a step, or none where the fault is that it has none.
pub(in crate::table) fn weakened(fault: Fault, ordering: Ordering) -> Ordering {
    if has(fault) { Ordering::Relaxed } else { ordering }
}

const NAME: LockName = LockName::from_bits(5);
const ELSEWHERE: LockName = LockName::from_bits(6);

struct World {
    requests: Requests,
    slots: Slots,
    bucket: Bucket,
    /// Of slots 0, 1 and 2.
    of: [RequestIndex; 3],
}

impl World {
    fn new() -> World {
        let requests = Requests::new(8, None);
        let of = [0, 1, 2].map(|slot| FreeRequests::new(SlotId(slot)).take(&requests, 0, |_| {}).unwrap());
        World { requests, slots: Slots::new(), bucket: Bucket::default(), of }
    }

    fn view(&self, name: LockName) -> View<'_> {
        View { requests: &self.requests, slots: &self.slots, name }
    }

    /// Locks a name if it is free; gives the tag.
    fn try_lock(&self, slot: u16, name: LockName, mode: KeyMode) -> Option<Lsn> {
        let request = self.of[usize::from(slot)];
        self.bucket.try_request(&self.requests, name, SlotId(slot), request, mode)
    }

    /// Locks a name, or begins to wait.
    fn lock(&self, slot: u16, mode: KeyMode) {
        let request = self.of[usize::from(slot)];
        let _ = self.bucket.alone(|queue| queue.request(&self.view(NAME), SlotId(slot), request, mode));
    }

    fn convert(&self, slot: u16, mode: KeyMode) {
        let request = self.of[usize::from(slot)];
        let _ = self.bucket.alone(|queue| queue.convert(&self.view(NAME), request, mode));
    }

    fn release(&self, slot: u16, name: LockName, tag: Option<Lsn>) {
        let request = self.of[usize::from(slot)];
        self.bucket.release(&self.view(name), request, tag, &mut Wakes::default());
    }

    /// Whether its request is in the queue and granted. (One that was refused says anything.)
    fn holds(&self, slot: u16, mode: KeyMode) -> bool {
        self.look().contains(&(NAME, SlotId(slot), Modes::held(mode)))
    }

    /// What somebody sees who looks on.
    fn look(&self) -> Vec<(LockName, SlotId, Modes)> {
        self.bucket.beside(|queue| {
            let look = || {
                let mut seen = Vec::new();
                queue.list.each(&self.requests, |request| {
                    seen.push((request.name(), request.slot(), request.modes()));
                    ControlFlow::Continue(())
                });
                seen
            };
            let seen = look();
            thread::yield_now();
            assert_eq!(look(), seen, "it changed under the latch");
            seen
        })
    }
}

/// Runs the programs over a world that `prepare` made, each on a thread; then `check`.
fn explore(fault: Fault, prepare: fn(&World), programs: &'static [fn(&World)], check: fn(&World)) {
    FAULT.set(fault);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if programs.len() > 2 { 3 } else { 5 });
    builder.check(move || {
        let world = Arc::new(World::new());
        prepare(&world);
        let spawned: Vec<_> = programs[1..]
            .iter()
            .map(|&program| {
                let world = Arc::clone(&world);
                thread::spawn(move || program(&world))
            })
            .collect();
        programs[0](&world);
        spawned.into_iter().for_each(|thread| thread.join().unwrap());
        check(&world);
    });
}

fn nothing(_: &World) {}

/// Of two that want the same, exactly one gets it.
fn newcomers(fault: Fault) {
    explore(
        fault,
        nothing,
        &[
            |world| world.lock(0, KeyMode::X),
            |world| {
                if world.try_lock(1, NAME, KeyMode::X).is_some() {
                    assert!(world.holds(1, KeyMode::X), "it was lost");
                }
            },
        ],
        |world| {
            assert!(!(world.holds(0, KeyMode::X) && world.holds(1, KeyMode::X)), "both hold it");
            assert!(world.holds(0, KeyMode::X) || world.holds(1, KeyMode::X), "nobody holds it");
        },
    );
}

#[test]
fn newcomers_exclude_each_other() {
    newcomers(Fault::None);
    explore(
        Fault::None,
        nothing,
        &[|world| _ = world.try_lock(0, NAME, KeyMode::X), |world| _ = world.try_lock(1, NAME, KeyMode::X)],
        |world| assert_ne!(world.holds(0, KeyMode::X), world.holds(1, KeyMode::X)),
    );
}

#[test]
#[should_panic(expected = "it was lost")]
fn newcomers_need_the_guard() {
    newcomers(Fault::Guard);
}

/// Sharers of a name, and another name of the bucket, beside each other: everybody gets what does not conflict.
#[test]
fn sharers_and_strangers_come_together() {
    explore(
        Fault::None,
        nothing,
        &[
            |world| assert!(world.try_lock(0, NAME, KeyMode::S).is_some()),
            |world| assert!(world.try_lock(1, NAME, KeyMode::S).is_some()),
            |world| assert!(world.try_lock(2, ELSEWHERE, KeyMode::X).is_some()),
        ],
        |world| assert_eq!(world.look().len(), 3),
    );
}

/// Whichever of two sharers is first when it goes: nobody is lost, and nobody stays.
#[test]
fn sharers_come_and_go_in_any_order() {
    explore(
        Fault::None,
        |world| assert!(world.try_lock(2, NAME, KeyMode::S).is_some()),
        &[
            |world| {
                assert!(world.try_lock(0, NAME, KeyMode::S).is_some());
                world.release(0, NAME, None);
            },
            |world| {
                assert!(world.try_lock(1, ELSEWHERE, KeyMode::S).is_some());
                world.release(2, NAME, None);
            },
        ],
        |world| {
            assert_eq!(world.look(), [(ELSEWHERE, SlotId(1), Modes::held(KeyMode::S))]);
            world.release(1, ELSEWHERE, None);
            assert!(world.bucket.queue.list.is_open_and_bare());
        },
    );
}

/// A sharer that comes to another beside the latch, and somebody who wants it exclusively: not both.
#[test]
fn a_second_sharer_and_a_writer() {
    explore(
        Fault::None,
        |world| assert!(world.try_lock(0, ELSEWHERE, KeyMode::S).is_some()),
        &[|world| _ = world.try_lock(1, NAME, KeyMode::S), |world| _ = world.try_lock(2, NAME, KeyMode::X)],
        |world| {
            let (shared, exclusive) = (world.holds(1, KeyMode::S), world.holds(2, KeyMode::X));
            assert!(shared != exclusive, "one of them is first");
            assert_eq!(world.look().len(), 2);
        },
    );
}

/// Two sharers of a name go while somebody waits for it: granted, whoever was the last.
#[test]
fn a_writer_waits_for_all_sharers() {
    explore(
        Fault::None,
        |world| {
            assert!(
                world.try_lock(0, NAME, KeyMode::S).is_some()
                    && world.try_lock(1, NAME, KeyMode::S).is_some()
            );
        },
        &[
            |world| {
                world.release(1, NAME, None);
                world.release(0, NAME, None);
            },
            |world| world.lock(2, KeyMode::X),
        ],
        |world| {
            assert!(world.holds(2, KeyMode::X), "a lost wake-up");
            world.release(2, NAME, None);
            assert!(world.bucket.queue.list.is_open_and_bare(), "the next comes beside the latch");
        },
    );
}

/// A waiter for a request that is alone is granted the lock when it goes, whichever way that is.
#[test]
fn a_release_and_a_waiter() {
    explore(
        Fault::None,
        |world| assert!(world.try_lock(0, NAME, KeyMode::X).is_some()),
        &[|world| world.release(0, NAME, None), |world| world.lock(1, KeyMode::X)],
        |world| {
            assert!(world.holds(1, KeyMode::X), "a lost wake-up");
            world.release(1, NAME, None);
            assert!(world.bucket.queue.list.is_open_and_bare(), "the next comes beside the latch");
        },
    );
}

#[test]
fn two_releases_and_a_waiter() {
    explore(
        Fault::None,
        |world| {
            assert!(
                world.try_lock(0, NAME, KeyMode::S).is_some()
                    && world.try_lock(1, NAME, KeyMode::S).is_some()
            );
        },
        &[
            |world| world.release(0, NAME, None),
            |world| world.release(1, NAME, None),
            |world| world.lock(2, KeyMode::X),
        ],
        |world| assert!(world.holds(2, KeyMode::X), "a lost wake-up"),
    );
}

fn conversion_and_newcomer(fault: Fault) {
    explore(
        fault,
        |world| assert!(world.try_lock(0, NAME, KeyMode::S).is_some()),
        &[|world| world.convert(0, KeyMode::X), |world| _ = world.try_lock(1, NAME, KeyMode::S)],
        |world| {
            let (converted, came) = (world.holds(0, KeyMode::X), world.holds(1, KeyMode::S));
            assert!(converted != came, "one of them is first");
        },
    );
}

#[test]
fn a_conversion_and_a_newcomer() {
    conversion_and_newcomer(Fault::None);
}

#[test]
#[should_panic(expected = "one of them is first")]
fn a_conversion_must_be_known() {
    conversion_and_newcomer(Fault::Doubt);
}

fn look_beside(fault: Fault) {
    explore(
        fault,
        |world| assert!(world.try_lock(0, NAME, KeyMode::S).is_some()),
        &[
            |world| {
                world.release(0, NAME, None);
                assert!(world.try_lock(0, ELSEWHERE, KeyMode::X).is_some());
            },
            |world| {
                let one = |name, mode| vec![(name, SlotId(0), Modes::held(mode))];
                let seen = world.look();
                let possible = [one(NAME, KeyMode::S), vec![], one(ELSEWHERE, KeyMode::X)];
                assert!(possible.contains(&seen), "it changed under the latch: {seen:?}");
            },
        ],
        |world| {
            assert_eq!(world.look().len(), 1);
            world.release(0, ELSEWHERE, None);
            assert!(world.bucket.queue.list.is_open_and_bare());
        },
    );
}

/// A request that goes and comes back for another name is seen as the one or the other.
#[test]
fn who_looks_sees_one_moment() {
    look_beside(Fault::None);
}

#[test]
#[should_panic(expected = "it changed under the latch")]
fn who_looks_needs_the_guard() {
    look_beside(Fault::Guard);
}

/// The request is in the list before what it says is.
#[test]
#[should_panic(expected = "it changed under the latch")]
fn who_comes_has_to_release_its_request() {
    look_beside(Fault::Comes);
}

#[test]
#[should_panic(expected = "it changed under the latch")]
fn who_guards_has_to_acquire_requests() {
    look_beside(Fault::Guards);
}

/// LOCK-9: a transaction that is granted what was released sees the tag.
fn comes_after_a_tag(fault: Fault) {
    explore(
        fault,
        |world| assert!(world.try_lock(0, NAME, KeyMode::X).is_some()),
        &[
            |world| world.release(0, NAME, Some(Lsn(7))),
            |world| {
                if let Some(tag) = world.try_lock(1, NAME, KeyMode::S) {
                    assert_eq!(tag, Lsn(7), "granted, and the tag is not seen");
                }
            },
        ],
        |world| assert_eq!(world.bucket.queue.tag(), Lsn(7)),
    );
}

#[test]
fn who_comes_sees_the_tag() {
    comes_after_a_tag(Fault::None);
}

#[test]
#[should_panic(expected = "granted, and the tag is not seen")]
fn who_goes_has_to_release_its_tag() {
    comes_after_a_tag(Fault::Goes);
}

/// One goes beside the latch, the other under it.
fn two_tags(fault: Fault) {
    explore(
        fault,
        |world| {
            assert!(world.try_lock(0, NAME, KeyMode::X).is_some());
        },
        &[
            |world| world.release(0, NAME, Some(Lsn(7))),
            |world| {
                assert!(world.try_lock(1, ELSEWHERE, KeyMode::X).is_some());
                world.release(1, ELSEWHERE, Some(Lsn(9)));
            },
        ],
        |world| assert_eq!(world.bucket.queue.tag(), Lsn(9), "a tag was lowered"),
    );
}

#[test]
fn tags_are_never_lowered() {
    two_tags(Fault::None);
}

#[test]
#[should_panic(expected = "a tag was lowered")]
fn tags_need_an_exchange() {
    two_tags(Fault::Tag);
}
