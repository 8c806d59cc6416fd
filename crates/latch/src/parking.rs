//! The parking lot of Böttcher et al. 2020, §3.4 (after WebKit's): where threads sleep that wait for a latch or a lock.
//!
//! An address stands for what is waited for (that of the waiter's word, for example, which is even); it is never
//! followed. 512 spaces, each a queue under its own mutex, are chosen by a hash of the address; addresses that meet in
//! one space are told apart in its queue. Each wait sleeps on a condition variable of its own, so that a wake-up
//! reaches exactly whom it is meant for.
//!
//! A wake-up cannot get lost if both sides keep to the protocol (LATCH-5). The sleeper: announce yourself in a word
//! that the waker looks at, then [`park`] with a `validate` that reads the word. The waker: change the word, and if it
//! shows a sleeper, [`unpark_one`] or [`unpark_all`]. `validate` runs under the mutex of the space, under which
//! sleepers are taken out of the queue as well: either it sees the change, or the waker sees the sleeper.

mod parker;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};

use foreshore_env::CachePadded;
use foreshore_env::sync::{Arc, Mutex, MutexGuard};
use foreshore_env::time::{Duration, Instant, earlier};

use crate::hybrid::Wish;
use parker::{Bed, Parker};

/// A waiter looks around this often: cancellation, eviction, deadlock.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Parking spaces. More are not needed: there are never more contended addresses than threads (Böttcher et al. 2020,
/// §3.4). Models have one for latches and one for words, in which addresses meet.
pub const SPACES: usize = if cfg!(foreshore_loom) { 2 } else { 512 };

/// Sleepers taken out of a queue at one time, so that they are woken after its mutex is released, without allocation.
const BATCH: usize = 16;

/// How a wait in the parking lot ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// Somebody woke the thread, or so it seems: look again at what you wait for.
    Woken,
    /// `validate` said that there is nothing to wait for; the thread did not sleep.
    NotNeeded,
    /// The deadline passed. The thread has left the queue.
    Deadline,
    /// `look` said to give up. The thread has left the queue.
    GaveUp,
}

/// A parking space: the sleepers of all addresses that share it, in the order in which they are to be woken.
struct Space {
    /// Its mutex guards the queue and orders `validate` and callbacks. Never held while a thread is woken, and nothing
    /// else is acquired under it.
    queue: Mutex<VecDeque<Waiter>>,
}

/// A sleeper.
struct Waiter {
    address: usize,
    wait: Wait,
    parker: Arc<Parker>,
}

/// What a sleeper says about itself.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    /// What it wants of the latch at the address; `None` if that is no latch.
    pub(crate) wish: Option<Wish>,
    /// Goes to the head of the queue: it was there before.
    pub(crate) favoured: bool,
    /// Is to be given the latch.
    pub(crate) due: bool,
}

impl Wait {
    /// For a word that is no latch's.
    const FOR_A_WORD: Wait = Wait { wish: None, favoured: false, due: false };
}

/// How a wait for a latch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// As [`Parked::Woken`].
    Woken,
    /// Woken, and holds what it wished for.
    Granted,
    /// As [`Parked::NotNeeded`].
    NotNeeded,
    /// As [`Parked::Deadline`].
    Deadline,
    /// As [`Parked::GaveUp`].
    GaveUp,
}

impl From<Ended> for Parked {
    fn from(ended: Ended) -> Parked {
        match ended {
            Ended::Woken | Ended::Granted => Parked::Woken,
            Ended::NotNeeded => Parked::NotNeeded,
            Ended::Deadline => Parked::Deadline,
            Ended::GaveUp => Parked::GaveUp,
        }
    }
}

/// The sleepers that come next at an address.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    /// The first one's wish.
    pub(crate) wish: Option<Wish>,
    /// 1, or the number of sharers that stand one behind the other.
    pub(crate) count: usize,
    /// Whether the first is to be given the latch.
    pub(crate) due: bool,
    /// Whether others stand behind them.
    pub(crate) more: bool,
}

/// What to do with the next sleepers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// Let them sleep.
    Leave,
    /// Wake them.
    Wake,
    /// Wake them and tell them that they hold the latch.
    Grant,
}

/// What came out of a panicking `look`.
pub(crate) type Panic = Box<dyn Any + Send>;

#[cfg(not(foreshore_loom))]
static LOT: [CachePadded<Space>; SPACES] = [const { CachePadded::new(Space::new()) }; SPACES];
#[cfg(foreshore_loom)]
loom::lazy_static! {
    static ref LOT: [CachePadded<Space>; SPACES] = std::array::from_fn(|_| CachePadded::new(Space::new()));
}

/// Sleeps at `address` until woken.
///
/// - `validate` runs under the space's mutex, and the thread sleeps only if it answers `true`. It must not park, unpark
///   or wait.
/// - `look` runs without any mutex, once when the thread is in the queue and then about every 10 ms; `false` gives up.
///   If it panics, the thread leaves the queue, and a wake-up that has chosen it goes to the next.
///
/// [`Parked::Deadline`] and [`Parked::GaveUp`] are only returned when no wake-up had chosen the thread: no wake-up by
/// [`unpark_one`] is swallowed by somebody who leaves.
#[track_caller]
pub fn park(
    address: usize,
    validate: impl FnOnce() -> bool,
    deadline: Option<Instant>,
    mut look: impl FnMut() -> bool,
) -> Parked {
    let (ended, panicked) = park_for(address, Wait::FOR_A_WORD, validate, deadline, Some(&mut look));
    if let Some(panic) = panicked {
        if matches!(ended, Ended::Woken | Ended::Granted) {
            unpark_one(address, |_| {});
        }
        panic::resume_unwind(panic);
    }
    ended.into()
}

/// [`park`] for those who need not look around: it sleeps until it is woken or the deadline has passed.
#[track_caller]
pub fn park_until(address: usize, validate: impl FnOnce() -> bool, deadline: Instant) -> Parked {
    // Models have no time: there a thread sleeps until it is woken, so that no nap hides a wake-up that is lost.
    let deadline = (!cfg!(foreshore_loom)).then_some(deadline);
    let (ended, _) = park_for(address, Wait::FOR_A_WORD, validate, deadline, None);
    ended.into()
}

/// Wakes everybody who sleeps at `address` now, in order. Returns how many.
pub fn unpark_all(address: usize) -> usize {
    let mut left = None;
    let mut woken = 0;
    loop {
        let mut batch = Batch::default();
        {
            let mut queue = space(address).lock();
            // Threads that come later are not meant: the loop ends although they may come faster than it wakes.
            let all = || queue.iter().filter(|waiter| waiter.address == address).count();
            let left = left.get_or_insert_with(all);
            batch.take(&mut queue, address, *left);
            *left = if batch.count == 0 { 0 } else { *left - batch.count };
        }
        woken += batch.count;
        batch.wake(false);
        if left == Some(0) {
            return woken;
        }
    }
}

/// Wakes whoever has slept longest at `address`. `callback` runs under the space's mutex, in any case, and is told
/// whether more sleep there: the place to correct a word that says so. It must not park, unpark or wait.
pub fn unpark_one(address: usize, callback: impl FnOnce(bool)) -> bool {
    let mut batch = Batch::default();
    {
        let mut queue = space(address).lock();
        batch.take(&mut queue, address, 1);
        callback(any(&queue, address));
    }
    let woken = batch.count > 0;
    batch.wake(false);
    woken
}

/// Shows `decide`, under the space's mutex, who comes next at `address`, and does with them what it says.
pub(crate) fn pass(address: usize, decide: impl FnOnce(Option<Next>) -> Pass) {
    let mut batch = Batch::default();
    let mut granted = false;
    {
        let mut queue = space(address).lock();
        let next = next(&queue, address);
        let pass = decide(next);
        if let Some(next) = next
            && pass != Pass::Leave
        {
            batch.take(&mut queue, address, next.count);
            granted = pass == Pass::Grant;
        }
    }
    batch.wake(granted);
}

/// [`park`] for latches. A panic of `look` is handed back beside the state in which it was caught: the caller puts its
/// latch in order first. Without a `look` the thread sleeps until it is woken or the deadline has passed.
#[track_caller]
pub(crate) fn park_for(
    address: usize,
    wait: Wait,
    validate: impl FnOnce() -> bool,
    deadline: Option<Instant>,
    mut look: Option<&mut dyn FnMut() -> bool>,
) -> (Ended, Option<Panic>) {
    let bed = Bed::take();
    let parker = bed.parker();
    let waiter = Waiter { address, wait, parker: Arc::clone(parker) };
    {
        let mut queue = space(address).lock();
        if !validate() {
            return (Ended::NotNeeded, None);
        }
        if wait.favoured {
            queue.push_front(waiter);
        } else {
            queue.push_back(waiter);
        }
    }
    let (ended, panicked) = loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            break (Ended::Deadline, None);
        }
        let mut wake_up = deadline;
        if let Some(look) = &mut look {
            match panic::catch_unwind(AssertUnwindSafe(&mut **look)) {
                Ok(true) => {}
                Ok(false) => break (Ended::GaveUp, None),
                Err(panic) => break (Ended::GaveUp, Some(panic)),
            }
            let next = now + LOOK_INTERVAL;
            wake_up = Some(earlier(next, deadline));
        }
        if let Some(granted) = parker.sleep(wake_up) {
            return (if granted { Ended::Granted } else { Ended::Woken }, None);
        }
    };
    {
        let mut queue = space(address).lock();
        let own = |waiter: &Waiter| Arc::ptr_eq(&waiter.parker, parker);
        if let Some(place) = queue.iter().position(own) {
            queue.remove(place);
            return (ended, panicked);
        }
    }
    // Somebody has taken this thread out of the queue and is about to tell it, in a moment.
    (if parker.await_answer() { Ended::Granted } else { Ended::Woken }, panicked)
}

impl Space {
    #[cfg(not(foreshore_loom))]
    const fn new() -> Space {
        Space { queue: Mutex::new(VecDeque::new()) }
    }

    #[cfg(foreshore_loom)]
    fn new() -> Space {
        Space { queue: Mutex::new(VecDeque::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
        self.queue.lock()
    }
}

/// Sleepers that have been taken out of a queue and not yet been woken.
#[derive(Default)]
struct Batch {
    waiters: [Option<Waiter>; BATCH],
    count: usize,
}

impl Batch {
    /// Moves the first `wanted` sleepers at `address` here, as far as there is room.
    fn take(&mut self, queue: &mut VecDeque<Waiter>, address: usize, wanted: usize) {
        let mut place = 0;
        while self.count < wanted.min(BATCH) && place < queue.len() {
            if queue[place].address == address {
                self.waiters[self.count] = queue.remove(place);
                self.count += 1;
            } else {
                place += 1;
            }
        }
    }

    /// Wakes them. Not under the mutex: a critical section ends before the kernel is called.
    fn wake(self, granted: bool) {
        for waiter in self.waiters.into_iter().take(self.count).flatten() {
            waiter.parker.answer(granted);
        }
    }
}

/// Who comes next at `address`.
fn next(queue: &VecDeque<Waiter>, address: usize) -> Option<Next> {
    let mut here = queue.iter().filter(|waiter| waiter.address == address).map(|waiter| waiter.wait);
    let first = here.next()?;
    let mut next = Next { wish: first.wish, count: 1, due: first.due, more: false };
    for wait in here {
        if wait.wish != Some(Wish::Shared) || next.wish != wait.wish || next.count == BATCH {
            next.more = true;
            break;
        }
        next.count += 1;
    }
    Some(next)
}

/// Whether anybody sleeps at `address`.
fn any(queue: &VecDeque<Waiter>, address: usize) -> bool {
    queue.iter().any(|waiter| waiter.address == address)
}

/// The first sleeper at `address`.
#[cfg(all(test, not(foreshore_loom)))]
pub(crate) fn first(address: usize) -> Option<Wait> {
    space(address).lock().iter().find(|waiter| waiter.address == address).map(|waiter| waiter.wait)
}

/// How many sleep at `address`.
#[cfg(all(test, not(foreshore_loom)))]
pub(crate) fn sleepers(address: usize) -> usize {
    space(address).lock().iter().filter(|waiter| waiter.address == address).count()
}

/// The space of an address: the upper bits of a multiplication by the golden ratio (Fibonacci hashing). In models it
/// must not depend on where the allocator puts things: loom takes it that every run is as the one before.
fn space(address: usize) -> &'static Space {
    if cfg!(foreshore_loom) {
        return &LOT[address & 1];
    }
    let hash = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &LOT[(hash >> (u64::BITS - SPACES.ilog2())) as usize]
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
