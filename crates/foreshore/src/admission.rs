//! Keeping a crowd from trampling itself: how many transactions run at a time when most of them are in each other's way.
//!
//! Two-phase locking thrashes. When many transactions want a few records, each that is let in beyond a certain number makes more
//! others give way than it completes (Carey, Krishnamurthi, Livny 1990; Weikum et al. 1994). So when more than one run in twenty
//! ends as the victim of a deadlock, transactions are let in by a limit that looks for the most that stays below that: it
//! halves when there are too many victims and rises slowly when there are none. As long as nobody is in the way there is
//! no limit and nothing is counted: a transaction reads one word that nobody writes.
//!
//! How low it may go depends on the policy. Where transactions wait for each other (dreadlocks, the wait-for graph, time limits),
//! those who wait keep their locks, others wait for these, and one at a time may be the most. Where they give way before they wait
//! (wait-die, wound-wait, no-wait), many victims are the rule, and no harm as long as each has a processor of its own to run on
//! in vain. What makes such a crowd collapse is that those who hold the locks have none: the limit stays at the number of
//! processors.
//!
//! The limit is for the crowd alone: for threads that have lately been victims. Others, which read another table say, come and
//! go as ever. A thread has left the crowd when it was no victim in [`PROBATION`] runs and for [`MEMORY`].
//!
//! DB-9: a transaction that waits here has no lock yet, nor has its thread a permit. When nobody has left for
//! [`PATIENCE`], all who wait go in, whatever the limit says: who is inside may be waiting for one of them.
//!
//! Those who wait have places in the order of their ages, and those who run for the first time come after all others, in the order
//! in which they came. So whoever gave way once does not wait behind those who came later, and nobody is passed for ever.

mod limit;

use std::{cell::RefCell, collections::VecDeque};

use foreshore_env::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread, thread_local,
    time::{Duration, Instant},
};

use crate::DeadlockPolicy;
use limit::Limit;

/// Nobody left for so long: those who wait go in.
const PATIENCE: Duration = Duration::from_millis(250);
/// Runs, and time, without being a victim after which a thread has left the crowd.
const PROBATION: u32 = 16;
const MEMORY: Duration = Duration::from_secs(1);
/// Of so many transactions beside the crowd one looks whether it has gone.
const PASSES: u32 = 64;
/// Databases whose crowds a thread remembers to be in.
const CROWDS: usize = 8;
/// A thread that has just ended a transaction may begin the next one before those who wait: a switch of threads for each
/// transaction costs more than the transaction. But from time to time who waits is let in first.
const TURN: Duration = Duration::from_micros(500);
/// No limit.
const FREE: u32 = u32::MAX;
/// Victims without a limit after which is asked how many transactions have committed meanwhile.
const ALARM: u64 = 16;
/// One victim to so many runs is one too many.
const TOLERANCE: u64 = 20;

thread_local! {
    /// The crowds that this thread is in.
    static CROWDS_OF_THREAD: RefCell<Vec<Member>> = const { RefCell::new(Vec::new()) };
}

/// A thread in the crowd of one database.
#[derive(Debug)]
struct Member {
    /// Of the [`Admission`].
    number: u64,
    /// Whether it has a permit: then it does not wait for itself.
    inside: bool,
    /// Runs since it was a victim, and when that was.
    runs: u32,
    victim_at: Instant,
}

/// Changes what this thread knows of its crowds; `None`: the thread is ending and knows nothing any more.
fn with_crowds<R>(change: impl FnOnce(&mut Vec<Member>) -> R) -> Option<R> {
    CROWDS_OF_THREAD.try_with(|crowds| change(&mut crowds.borrow_mut())).ok()
}

/// Changes what this thread knows of itself in the crowd of that number; `None`: it is not in it.
fn with_member<R>(number: u64, change: impl FnOnce(&mut Member) -> R) -> Option<R> {
    with_crowds(|crowds| crowds.iter_mut().find(|member| member.number == number).map(change)).flatten()
}

/// This thread is a victim: it belongs to the crowd.
fn join(number: u64) {
    let victim_at = Instant::now();
    let known = with_member(number, |member| (member.runs, member.victim_at) = (0, victim_at));
    if known.is_none() {
        with_crowds(|crowds| {
            if crowds.len() == CROWDS {
                crowds.retain(|member| member.inside);
            }
            crowds.push(Member { number, inside: false, runs: 0, victim_at });
        });
    }
}

/// The next number for an [`Admission`]. Relaxed: numbers only have to differ.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Lets transactions in. See the [module](self).
#[derive(Debug)]
pub(crate) struct Admission {
    /// No other in this process has it.
    number: u64,
    /// The limit is never lower.
    least: u32,
    /// [`FREE`], or how many run at a time; changed with `state` locked.
    limit: AtomicU32,
    state: Mutex<State>,
    /// Transactions that had to wait here; for [`Stats`](crate::Stats) only.
    waits: AtomicU64,
    /// Transactions beside the crowd, while there is a limit.
    passes: AtomicU32,
}

/// Guarded by the mutex of [`Admission::state`].
#[derive(Debug)]
struct State {
    /// What is known of the limit; `None`: there is none.
    limit: Option<Limit>,
    /// Permits that are out, with those that were granted to one who waited and has not looked yet.
    running: u32,
    /// Those who wait and have not been granted a permit, the oldest first.
    waiting: VecDeque<Arc<Seat>>,
    /// Somebody was woken and has not looked yet.
    woken: bool,
    /// When one who waited was let in before others.
    last_turn: Instant,
    /// When somebody last left.
    last_leave: Instant,
    /// Without a limit: victims since `commits`.
    victims: u64,
    /// Without a limit: commits when victims were last counted anew.
    commits: u64,
}

/// The place of one who waits.
#[derive(Debug)]
struct Seat {
    /// Of its transaction; `u64::MAX` if that has never run.
    age: u64,
    /// It has a permit, which is counted. Guarded by the mutex of [`Admission::state`].
    granted: AtomicBool,
    /// It may come in.
    vacancy: Condvar,
}

/// The right to run. Given back on drop, or with [`Permit::end`].
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    victim: bool,
}

impl Admission {
    /// For transactions under this policy.
    pub(crate) fn new(policy: DeadlockPolicy) -> Admission {
        let now = Instant::now();
        let waits = policy.detects() || policy == DeadlockPolicy::Timeout;
        Admission {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            least: if waits { 1 } else { processors() },
            limit: AtomicU32::new(FREE),
            state: Mutex::new(State {
                limit: None,
                running: 0,
                waiting: VecDeque::new(),
                woken: false,
                last_turn: now,
                last_leave: now,
                victims: 0,
                commits: 0,
            }),
            waits: AtomicU64::new(0),
            passes: AtomicU32::new(0),
        }
    }

    /// How many transactions are let in at a time; `None`: all.
    pub(crate) fn limit(&self) -> Option<u32> {
        // Relaxed: a figure. Who acts on it locks the state.
        let limit = self.limit.load(Ordering::Relaxed);
        (limit != FREE).then_some(limit)
    }

    /// Transactions that wait now.
    pub(crate) fn waiting(&self) -> u64 {
        self.state.lock().waiting.len() as u64
    }

    /// Transactions that had to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Waits for the right to run, if there is a limit and this thread is in the crowd; until `deadline` at most. `age`: that of
    /// the transaction, if it has run before.
    pub(crate) fn enter(&self, age: Option<u64>, deadline: Option<Instant>) -> Option<Permit<'_>> {
        self.limit()?;
        self.enter_limited(age.unwrap_or(u64::MAX), deadline)
    }

    #[cold]
    fn enter_limited(&self, age: u64, deadline: Option<Instant>) -> Option<Permit<'_>> {
        let now = Instant::now();
        let waits = with_member(self.number, |member| {
            let has_left =
                member.runs >= PROBATION && now.saturating_duration_since(member.victim_at) >= MEMORY;
            !member.inside && !has_left
        });
        if waits != Some(true) {
            // Relaxed: it only has to come to this now and then.
            if self.passes.fetch_add(1, Ordering::Relaxed).is_multiple_of(PASSES) {
                self.forget_if_over(now);
            }
            return None;
        }
        let mut state = self.state.lock();
        if !state.has_room() {
            self.waits.fetch_add(1, Ordering::Relaxed);
            // Moves on whenever somebody leaves.
            let end = |state: &State| {
                let patience = state.last_leave.max(now) + PATIENCE;
                deadline.map_or(patience, |deadline| deadline.min(patience))
            };
            let seat = state.take_seat(age);
            loop {
                let until = end(&state);
                state = seat.vacancy.wait_until(state, until);
                state.woken = false;
                if seat.granted.load(Ordering::Relaxed) {
                    // It was counted when it was granted.
                    state.running -= 1;
                    break;
                }
                if state.has_room() || Instant::now() >= end(&state) {
                    state.waiting.retain(|other| !Arc::ptr_eq(other, &seat));
                    break;
                }
            }
        }
        state.running += 1;
        drop(state);
        with_member(self.number, |member| member.inside = true);
        Some(Permit { admission: self, victim: false })
    }

    /// Forgets the limit if the crowd has gone.
    fn forget_if_over(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.running == 0
            && state.waiting.is_empty()
            && now.saturating_duration_since(state.last_leave) >= MEMORY
        {
            state.limit = None;
            self.limit.store(FREE, Ordering::Relaxed);
        }
    }

    /// One that had no permit became a victim: its thread belongs to the crowd from now on. `commits`: transactions that
    /// have committed in this database so far, if it comes to that.
    #[cold]
    pub(crate) fn note_victim(&self, commits: impl FnOnce() -> u64) {
        join(self.number);
        let mut state = self.state.lock();
        if state.limit.is_some() {
            return;
        }
        state.victims += 1;
        if state.victims < ALARM {
            return;
        }
        let commits = commits();
        let committed = commits.saturating_sub(state.commits);
        if state.victims * TOLERANCE > committed + state.victims {
            let limit = Limit::new(processors(), self.least, Instant::now());
            self.limit.store(limit.value(), Ordering::Relaxed);
            state.limit = Some(limit);
            state.last_leave = Instant::now();
        }
        (state.victims, state.commits) = (0, commits);
    }

    fn leave(&self, victim: bool) {
        with_member(self.number, |member| {
            member.inside = false;
            member.runs = member.runs.saturating_add(1);
        });
        if victim {
            join(self.number);
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        state.running -= 1;
        state.last_leave = now;
        let crowded = !state.waiting.is_empty();
        if let Some(mut limit) = state.limit.take() {
            state.limit = limit.note(victim, crowded, now).then_some(limit);
            self.limit.store(state.limit.as_ref().map_or(FREE, Limit::value), Ordering::Relaxed);
        }
        if state.limit.is_none() {
            return state.waiting.iter().for_each(|seat| seat.vacancy.notify_one());
        }
        if !state.has_room() {
            return;
        }
        if now.saturating_duration_since(state.last_turn) >= TURN
            && let Some(seat) = state.waiting.pop_front()
        {
            state.last_turn = now;
            state.running += 1;
            state.woken = true;
            seat.granted.store(true, Ordering::Relaxed);
            seat.vacancy.notify_one();
        } else if !state.woken
            && let Some(seat) = state.waiting.front()
        {
            seat.vacancy.notify_one();
            state.woken = true;
        }
    }
}

fn processors() -> u32 {
    u32::try_from(thread::available_parallelism()).unwrap_or(FREE - 1)
}

impl State {
    fn has_room(&self) -> bool {
        self.limit.as_ref().is_none_or(|limit| self.running < limit.value())
    }

    /// Before those who are younger, and behind those as old.
    fn take_seat(&mut self, age: u64) -> Arc<Seat> {
        let seat = Arc::new(Seat { age, granted: AtomicBool::new(false), vacancy: Condvar::new() });
        let place = self.waiting.partition_point(|other| other.age <= age);
        self.waiting.insert(place, Arc::clone(&seat));
        seat
    }
}

impl Permit<'_> {
    /// The run is over. `victim`: it had to give way.
    pub(crate) fn end(mut self, victim: bool) {
        self.victim = victim;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.leave(self.victim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn nobody_waits_as_long_as_few_are_victims() {
        let admission = Admission::new(DeadlockPolicy::Dreadlocks);
        for round in 1..100 {
            (0..ALARM).for_each(|_| admission.note_victim(|| round * ALARM * TOLERANCE));
            assert!(admission.enter(None, None).is_none());
        }
        assert_eq!(admission.waits(), 0);
    }

    #[test]
    fn one_at_a_time_when_most_are_victims() {
        // Whoever has waited for too long goes in, beside one who sleeps inside on a busy machine: then it is tried again.
        assert!((0..100).any(|_| all_are_in_time()), "they lose their patience, each time");
    }

    /// Whether nobody lost his patience; then no two of eight threads were inside.
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
        let state = admission.state.lock();
        assert_eq!((state.running, state.waiting.len()), (0, 0));
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
        // And who is inside does not wait for himself.
        assert!(admission.enter(None, None).is_none());
        drop(permit);
        assert!(admission.enter(None, None).is_some());
    }

    #[test]
    fn the_oldest_goes_in_first_and_who_is_new_last() {
        // Whoever loses his patience goes in beside the others: then it is tried again.
        let order = (0..100).find_map(|_| in_what_order(&[None, Some(7), None, Some(5)]));
        assert_eq!(order, Some(vec![3, 1, 0, 2]));
    }

    /// In which order those go in who come one after another, of these ages; `None` if one of them loses his patience.
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
                assert!(admission.enter(None, Some(Instant::now())).is_some(), "still");
                // However long this machine has stood still.
                let just_now = Instant::now() + 1000 * MEMORY;
                with_member(admission.number, |member| {
                    (member.runs, member.victim_at) = (PROBATION, just_now)
                });
                assert!(admission.enter(None, Some(Instant::now())).is_some(), "not for long enough");
                with_member(admission.number, |member| member.victim_at = Instant::now() - MEMORY);
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
            while admission.limit().is_some() {
                assert!(admission.limit() >= Some(processors()), "{policy:?}");
                // So many that it halves, until a window begins that nobody waits at the end of.
                for victim in [true; 4].into_iter().chain([false; 60]) {
                    if let Some(permit) = admission.enter(None, None) {
                        permit.end(victim);
                    }
                }
                assert!(admission.limit() >= Some(processors()), "{policy:?}");
                (0..64).for_each(|_| drop(admission.enter(None, None)));
            }
        }
    }

    #[test]
    fn the_limit_goes_when_nobody_is_in_the_way() {
        let admission = limited();
        for _ in 0..100_000 {
            match admission.enter(None, None) {
                Some(permit) => permit.end(false),
                None => return assert_eq!(admission.limit(), None),
            }
        }
        panic!("there is still a limit of {:?}", admission.limit());
    }
}
