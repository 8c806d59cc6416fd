//! Every interleaving, and every value that weak memory lets a load see, of small programs over a staged bucket:
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-lock --release --lib --target-dir target/loom
//! ```
//!
//! A waiter does not sleep here: a wait that has not been ended although nobody is in its way, when all threads have
//! gone, is a lost wake-up. Faults are planted to show that the models see them.

use std::cell::Cell;

use foreshore_env::sync::Arc;
use foreshore_env::thread;

use super::{Bucket, order};
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::{FreeRequests, Modes, RequestIndex, Requests};
use crate::slot::{SlotId, Slots};
use crate::table::Withdrawn;
use crate::table::queue::View;
use crate::table::wakes::Wakes;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Fault {
    None,
    /// The fences of S1 to S6.
    Fence,
    /// The look for waiters by whoever has claimed in vain.
    Pass,
    /// The announcement of a look.
    Look,
}

std::thread_local! {
    /// Loom runs the threads of a model on one.
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
}

pub(in crate::table) fn has(fault: Fault) -> bool {
    FAULT.get() == fault
}

const NAME: LockName = LockName::from_bits(5);
const ELSEWHERE: LockName = LockName::from_bits(6);

/// Of slots 0, 1 and 2, or as a model says.
type Three = [RequestIndex; 3];

struct World {
    requests: Requests,
    slots: Slots,
    bucket: Bucket,
}

impl World {
    fn new() -> World {
        World { requests: Requests::new(8, Some(1)), slots: Slots::new(), bucket: Bucket::default() }
    }

    fn view(&self) -> View<'_> {
        View { requests: &self.requests, slots: &self.slots, name: NAME }
    }

    /// A request for a slot, of a segment of its own.
    fn take(&self, slot: u16) -> RequestIndex {
        FreeRequests::new(SlotId(slot)).take(&self.requests, 0, |_| {}).unwrap()
    }

    fn try_lock(&self, slot: u16, request: RequestIndex, mode: KeyMode) -> bool {
        let mut wakes = Wakes::default();
        self.bucket.try_request(&self.view(), SlotId(slot), request, mode, &mut wakes).is_some()
    }

    /// Locks or not.
    fn try_to_lock(&self, slot: u16, request: RequestIndex, mode: KeyMode) {
        self.try_lock(slot, request, mode);
    }

    /// Locks, or begins to wait.
    fn lock(&self, slot: u16, request: RequestIndex, mode: KeyMode) {
        let _ = self.bucket.alone(|queue| queue.request(&self.view(), SlotId(slot), request, mode));
    }

    fn convert(&self, request: RequestIndex, mode: KeyMode) {
        let _ = self.bucket.alone(|queue| queue.convert(&self.view(), request, mode));
    }

    fn release(&self, request: RequestIndex) {
        self.bucket.release(&self.view(), request, None, &mut Wakes::default());
    }

    fn withdraw(&self, request: RequestIndex) -> Withdrawn {
        self.bucket.alone(|queue| queue.withdraw(&self.view(), request, &mut Wakes::default()))
    }

    fn holds(&self, request: RequestIndex, mode: KeyMode) -> bool {
        self.requests.get(request).modes() == Modes::held(mode)
    }
}

/// Runs the programs over a world that `prepare` made, each on a thread; then `check`.
fn explore(
    name: &str,
    fault: Fault,
    prepare: fn(&World) -> Three,
    programs: &'static [fn(&World, Three)],
    check: fn(&World, Three),
) {
    FAULT.set(fault);
    // Not behind the door: what loom knows of ends with each execution.
    let executions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    // Well above what a known fault needs.
    builder.preemption_bound = Some(if programs.len() > 2 { 3 } else { 5 });
    builder.max_branches = 10_000;
    builder.check(move || {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let world = Arc::new(World::new());
        let prepared = prepare(&world);
        let spawned: Vec<_> = programs[1..]
            .iter()
            .map(|&program| {
                let world = Arc::clone(&world);
                thread::spawn(move || program(&world, prepared))
            })
            .collect();
        programs[0](&world, prepared);
        spawned.into_iter().for_each(|thread| thread.join().unwrap());
        check(&world, prepared);
    });
    println!("{name}: {executions:?} executions");
}

fn three(world: &World) -> Three {
    [0, 1, 2].map(|slot| world.take(slot))
}

/// S1 twice: of two that want the same, the one that was appended first gets it.
#[test]
fn newcomers() {
    explore(
        "two newcomers",
        Fault::None,
        three,
        &[
            |world, requests| world.try_to_lock(0, requests[0], KeyMode::X),
            |world, requests| world.try_to_lock(1, requests[1], KeyMode::X),
        ],
        |world, requests| {
            let holders = requests.iter().filter(|&&request| world.holds(request, KeyMode::X)).count();
            assert_eq!(holders, 1);
        },
    );
}

fn one_holds(world: &World) -> Three {
    let requests = three(world);
    assert!(world.try_lock(0, requests[0], KeyMode::X));
    requests
}

fn release_and_wait(fault: Fault) {
    explore(
        "a release and a waiter",
        fault,
        one_holds,
        &[
            |world, requests| world.release(requests[0]),
            |world, requests| world.lock(1, requests[1], KeyMode::X),
        ],
        |world, requests| assert!(world.holds(requests[1], KeyMode::X), "a lost wake-up"),
    );
}

/// S4 and S6.
#[test]
fn a_release_and_a_waiter() {
    release_and_wait(Fault::None);
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn a_release_and_a_waiter_need_fences() {
    release_and_wait(Fault::Fence);
}

/// Two sharers release while somebody waits.
#[test]
fn two_sharers_release_and_one_waits() {
    explore(
        "two releases and a waiter",
        Fault::None,
        |world| {
            let requests = three(world);
            assert!(world.try_lock(0, requests[0], KeyMode::S) && world.try_lock(1, requests[1], KeyMode::S));
            requests
        },
        &[
            |world, requests| world.release(requests[0]),
            |world, requests| world.release(requests[1]),
            |world, requests| world.lock(2, requests[2], KeyMode::X),
        ],
        |world, requests| assert!(world.holds(requests[2], KeyMode::X), "a lost wake-up"),
    );
}

fn convert_beside_newcomer(fault: Fault) {
    explore(
        "a conversion and a newcomer",
        fault,
        |world| {
            let requests = three(world);
            assert!(world.try_lock(0, requests[0], KeyMode::S));
            requests
        },
        &[
            |world, requests| world.convert(requests[0], KeyMode::X),
            |world, requests| world.try_to_lock(1, requests[1], KeyMode::S),
        ],
        |world, requests| {
            let (converted, came) =
                (world.holds(requests[0], KeyMode::X), world.holds(requests[1], KeyMode::S));
            assert!(!(converted && came), "both hold it");
            assert!(converted || came, "a lost wake-up");
        },
    );
}

/// S1 and S2; and if the newcomer is seen and goes, the conversion goes on.
#[test]
fn a_conversion_and_a_newcomer() {
    convert_beside_newcomer(Fault::None);
}

#[test]
#[should_panic(expected = "both hold it")]
fn a_conversion_and_a_newcomer_need_fences() {
    convert_beside_newcomer(Fault::Fence);
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn who_claims_in_vain_has_to_look_for_waiters() {
    convert_beside_newcomer(Fault::Pass);
}

/// S granted, X waits and gives up, S comes.
#[test]
fn a_waiter_that_leaves_and_one_that_comes() {
    explore(
        "a waiter leaves, another comes",
        Fault::None,
        |world| {
            let requests = three(world);
            assert!(world.try_lock(0, requests[0], KeyMode::S));
            world.lock(1, requests[1], KeyMode::X);
            requests
        },
        &[
            |world, requests| assert_eq!(world.withdraw(requests[1]), Withdrawn::Gone),
            |world, requests| world.lock(2, requests[2], KeyMode::S),
        ],
        |world, requests| assert!(world.holds(requests[2], KeyMode::S), "a lost wake-up"),
    );
}

/// The emptied chain and whoever appends to it.
#[test]
fn a_chain_is_emptied_beside_a_newcomer() {
    explore(
        "cleaning and a newcomer",
        Fault::None,
        |world| {
            let requests = one_holds(world);
            world.release(requests[0]);
            requests
        },
        &[
            |world, _| world.bucket.alone(|queue| queue.list.clean(&world.requests)),
            |world, requests| assert!(world.try_lock(1, requests[1], KeyMode::X)),
        ],
        |world, requests| {
            assert!(world.holds(requests[1], KeyMode::X));
            assert!(!world.try_lock(2, requests[2], KeyMode::S), "it is found");
        },
    );
}

fn recycle_beside_look(fault: Fault) {
    explore(
        "recycling and a look",
        fault,
        |world| {
            // Both requests of a segment are in the chain, obsolete; and one that makes the chain a longer one.
            let mut free = FreeRequests::new(SlotId(0));
            let used = [0, 1].map(|_| free.take(&world.requests, 0, |_| {}).unwrap());
            let requests = [used[0], world.take(1), world.take(2)];
            for request in used {
                assert!(world.try_lock(0, request, KeyMode::S));
                world.release(request);
            }
            requests
        },
        &[
            |world, _| {
                world.bucket.alone(|queue| queue.list.clean(&world.requests));
                if world.requests.recycle() > 0 {
                    // At once it is used for another name.
                    let reused = FreeRequests::new(SlotId(0)).take(&world.requests, 0, |_| {}).unwrap();
                    world.requests.get(reused).set(ELSEWHERE, SlotId(0), Modes::held(KeyMode::X));
                }
            },
            |world, requests| {
                let staging = world.requests.staging();
                world.requests.get(requests[1]).set(NAME, SlotId(1), Modes::claim(KeyMode::S));
                if !has(Fault::Look) {
                    staging.begin_look(SlotId(1));
                }
                if !world.bucket.queue.list.push(&world.requests, requests[1]) {
                    order();
                    world.bucket.queue.list.look_ahead(&world.requests, requests[1], |other| {
                        assert!(other.name() == NAME, "it was recycled under a look");
                        false
                    });
                }
                staging.end_look(SlotId(1));
            },
        ],
        |world, _| assert!(!world.bucket.queue.list.is_bare()),
    );
}

/// LOCK-14.
#[test]
fn nothing_is_recycled_under_a_look() {
    recycle_beside_look(Fault::None);
}

#[test]
#[should_panic(expected = "it was recycled under a look")]
fn a_look_must_be_announced() {
    recycle_beside_look(Fault::Look);
}

/// Two clear the last flags of a segment: one retires it.
#[test]
fn a_segment_is_retired_once() {
    explore(
        "the last two flags",
        Fault::None,
        |world| {
            let mut free = FreeRequests::new(SlotId(0));
            let [first, last] = [0, 1].map(|_| free.take(&world.requests, 0, |_| {}).unwrap());
            [first, last, RequestIndex::NONE]
        },
        &[
            |world, requests| world.requests.unlinked(requests[0]),
            |world, requests| world.requests.unlinked(requests[1]),
        ],
        |world, _| assert_eq!(world.requests.recycle(), 1),
    );
}
