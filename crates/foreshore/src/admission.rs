//! Keeping a crowd from trampling itself: how many transactions run at a time when most of them are in each other's
//! way.
//!
//! Two-phase locking thrashes. When many transactions want a few records, each that is let in beyond a certain number
//! makes more others give way than it completes (Carey, Krishnamurthi, Livny 1990; Weikum et al. 1994). So when more
//! than one run in twenty ends as the victim of a deadlock, transactions are let in by a limit that looks for the most
//! that stays below that: it halves when there are too many victims and rises slowly when there are none.
//!
//! And it forms convoys (Blasgen, Gray, Mitoma, Price 1979). When more threads wait for locks than there are
//! processors, a lock that is released goes to a thread that sleeps, and all behind it wait until it has been woken and
//! has run: each wait costs two switches of threads, and finds cold caches. So when waits for locks add up to more than
//! [`CONVOY`](convoy::CONVOY) threads for each processor, and processors are busy, no more transactions are let in than
//! there are processors. That limit rises while these have time to spare, and falls again when they have none.
//!
//! The same holds for room in the log's buffer. Many threads that write much fill it faster than it is written: then
//! most of them stand in the middle of their transactions, each for a few more bytes, and whoever is passed by the
//! others for long keeps the log from being shortened. So waits for room there count like those for locks, and whoever
//! ends a transaction that has written while others wait for room belongs to the crowd.
//!
//! Threads that are let in have *turns*: one runs its transactions one after another for [`TURN`], and then lets in the
//! next. As long as nobody is in the way there is no limit and nothing is counted: a transaction reads one word that
//! nobody writes.
//!
//! How low it may go depends on the policy. Where transactions wait for each other (dreadlocks, the wait-for graph,
//! time limits), those who wait keep their locks, others wait for these, and one at a time may be the most. Where they
//! give way before they wait (wait-die, wound-wait, no-wait), many victims are the rule, and no harm as long as each
//! has a processor of its own to run on in vain. What makes such a crowd collapse is that those who hold the locks have
//! none: the limit stays at the number of processors.
//!
//! The limit is for the crowd alone: for threads that have lately been victims, and in a convoy those that have waited
//! for locks or have crowded the log. Others, which read another table say, come and go as ever. A thread has left the
//! crowd when it was in nobody's way in [`PROBATION`](crowd::PROBATION) runs and for [`MEMORY`].
//!
//! DB-9: a transaction that waits here has no lock yet, nor has its thread a turn. When nobody has left for
//! [`PATIENCE`], all who wait go in, whatever the limit says: a thread that is inside may be waiting for one of them.
//!
//! Those who wait have places in the order of their ages, and those who run for the first time come after all others,
//! in the order in which they came, or nearly so (`queue.rs`). So whoever gave way once does not wait behind those who
//! came later, and nobody is passed for ever.

mod convoy;
mod crowd;
mod limit;
mod queue;
#[cfg(test)]
mod tests;

use foreshore_env::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, computed, earlier},
};

use crate::DeadlockPolicy;
use convoy::{Pace, Watch};
use crowd::{Arrival, MEMORY, TURN, Turn, join, with_member};
use limit::{Limit, Runs, TOLERANCE};
use queue::{NEW, Queue, Seat};

/// How long nobody may have left until all who wait go in.
const PATIENCE: Duration = Duration::from_millis(250);
/// How many transactions pass beside the crowd for one that looks whether the crowd has gone.
const PASSES: u32 = 64;
/// How many transactions have waited for one that looks whether they are many.
const WAITS: u32 = 8;
/// No limit.
const FREE: u32 = u32::MAX;
/// Victims without a limit after which is asked how many transactions have committed meanwhile.
const ALARM: u64 = 16;

/// The next number for an [`Admission`]. Relaxed: numbers only have to differ.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Lets transactions in. See the [module](self).
#[derive(Debug)]
pub(crate) struct Admission {
    /// No other in this process has it.
    number: u64,
    processors: u32,
    /// The limit is never lower.
    least: u32,
    /// [`FREE`], or how many run at a time; changed with `state` locked.
    limit: AtomicU32,
    /// A thread that waits for a lock, or crowds the log, belongs to the crowd. Changed with `state` locked.
    convoy: AtomicBool,
    state: Mutex<State>,
    /// Transactions that had to wait here; for [`Stats`](crate::Stats) only.
    waits: AtomicU64,
    /// Transactions beside the crowd, while there is a limit.
    passes: AtomicU32,
    /// Transactions that have waited beside the crowd.
    waiters: AtomicU32,
}

/// Guarded by the mutex of [`Admission::state`].
#[derive(Debug)]
struct State {
    /// What is known of the limit; `None`: there is none.
    limit: Option<Limit>,
    /// Turns that are not over, with those of threads that were let in and have not looked yet, and those at rest of
    /// threads that will not come back.
    turns: Vec<Granted>,
    /// Those who wait and have not been let in.
    waiting: Queue,
    /// When somebody's turn last ended.
    last_leave: Instant,
    /// Without a limit: victims since `commits`.
    victims: u64,
    /// Without a limit: commits when victims were last counted anew.
    commits: u64,
    /// Looks out for convoys.
    watch: Watch,
}

/// A turn, and from when on it is ended if its thread is between two transactions.
#[derive(Debug)]
struct Granted {
    turn: Arc<Turn>,
    until: Instant,
}

/// The right to run a transaction. Given back on drop, or with [`Permit::end`].
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    turn: Arc<Turn>,
    victim: bool,
}

impl Admission {
    /// For transactions under this policy.
    pub(crate) fn new(policy: DeadlockPolicy) -> Admission {
        let now = Instant::now();
        let waits = policy.detects() || policy == DeadlockPolicy::Timeout;
        let processors = u32::try_from(thread::available_parallelism()).unwrap_or(FREE - 1);
        Admission {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            processors,
            least: if waits { 1 } else { processors },
            limit: AtomicU32::new(FREE),
            convoy: AtomicBool::new(false),
            state: Mutex::new(State {
                limit: None,
                turns: Vec::new(),
                waiting: Queue::default(),
                last_leave: now,
                victims: 0,
                commits: 0,
                watch: Watch::new(now),
            }),
            waits: AtomicU64::new(0),
            passes: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
        }
    }

    /// How many transactions are let in at a time; `None`: all.
    pub(crate) fn limit(&self) -> Option<u32> {
        // Relaxed: a figure. Whoever acts on it locks the state.
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

    /// Waits for the right to run, if there is a limit and this thread is in the crowd; until `deadline` at most.
    /// `age`: that of the transaction, if it has run before.
    pub(crate) fn enter(&self, age: Option<u64>, deadline: Option<Instant>) -> Option<Permit<'_>> {
        self.limit()?;
        self.enter_limited(age.unwrap_or(NEW), deadline)
    }

    #[cold]
    fn enter_limited(&self, age: u64, deadline: Option<Instant>) -> Option<Permit<'_>> {
        let now = Instant::now();
        let turn = match with_member(self.number, |member| member.arrive(now)) {
            Some(Arrival::GoesOn(turn)) => turn,
            Some(Arrival::Asks(turn)) => {
                self.ask(&turn, age, now, deadline);
                with_member(self.number, crowd::Member::begin);
                turn
            }
            Some(Arrival::Passes) | None => {
                // Relaxed: it only has to come to this now and then.
                if self.passes.fetch_add(1, Ordering::Relaxed).is_multiple_of(PASSES) {
                    self.forget_if_over(now);
                }
                return None;
            }
        };
        Some(Permit { admission: self, turn, victim: false })
    }

    /// Waits until `turn` begins.
    fn ask(&self, turn: &Arc<Turn>, age: u64, now: Instant, deadline: Option<Instant>) {
        let mut state = self.state.lock();
        wake(&state.let_in(now));
        if state.has_room() {
            return state.begin(turn, now);
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        // Moves on whenever somebody leaves.
        let end = |state: &State| earlier(state.last_leave.max(now) + PATIENCE, deadline);
        let seat = state.waiting.sit_down(age, turn);
        let mut looked = now;
        while !turn.runs() {
            if looked >= end(&state) {
                state.waiting.stand_up(&seat);
                state.begin(turn, looked);
                break;
            }
            let until = end(&state).min(looked + state.expectation(&seat));
            state = seat.vacancy.wait_until(state, until);
            looked = Instant::now();
            wake(&state.let_in(looked));
        }
        // It may have taken a while until its thread had a processor.
        if let Some(granted) = state.turns.iter_mut().find(|granted| Arc::ptr_eq(&granted.turn, turn)) {
            granted.until = looked + TURN;
        }
    }

    /// Forgets the limit if the crowd has gone.
    fn forget_if_over(&self, now: Instant) {
        let mut state = self.state.lock();
        wake(&state.let_in(now));
        if state.turns.is_empty()
            && state.waiting.is_empty()
            && now.saturating_duration_since(state.last_leave) >= MEMORY
        {
            self.forget_limit(&mut state, now);
        }
    }

    fn begin_limit(&self, state: &mut State, now: Instant) {
        let limit = Limit::new(self.processors, self.least, now);
        self.limit.store(limit.value(), Ordering::Relaxed);
        state.limit = Some(limit);
        state.last_leave = now;
    }

    fn forget_limit(&self, state: &mut State, now: Instant) {
        self.limit.store(FREE, Ordering::Relaxed);
        self.convoy.store(false, Ordering::Relaxed);
        state.limit = None;
        state.watch.rest(now);
    }

    /// One that had no permit became a victim: its thread belongs to the crowd from now on. `commits`: transactions
    /// that have committed in this database so far, if it comes to that.
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
        if state.victims * u64::from(TOLERANCE) > committed + state.victims {
            self.begin_limit(&mut state, Instant::now());
        }
        (state.victims, state.commits) = (0, commits);
    }

    /// A transaction has had to wait for a lock, or crowds the log; `waited`: for how long all have, since the database
    /// was opened, if it comes to that.
    #[cold]
    pub(crate) fn note_wait(&self, waited: impl FnOnce() -> Duration) {
        // Relaxed, both: it only has to come to it soon, and now and then.
        if self.convoy.load(Ordering::Relaxed) {
            join(self.number);
        } else if self.waiters.fetch_add(1, Ordering::Relaxed).is_multiple_of(WAITS) {
            self.look_for_convoy(|at| Some(Pace { at, waited: waited(), computed: computed()? }));
        }
    }

    fn look_for_convoy(&self, pace: impl FnOnce(Instant) -> Option<Pace>) {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.watch.sees_convoy(self.processors, now, pace) {
            // Relaxed, as above.
            self.convoy.store(true, Ordering::Relaxed);
            if state.limit.is_none() {
                self.begin_limit(&mut state, now);
            }
        }
    }

    /// A run in this turn is over.
    fn leave(&self, turn: &Arc<Turn>, victim: bool) {
        let now = Instant::now();
        let runs = match with_member(self.number, |member| member.end_run(victim, now)) {
            Some(None) => return,
            Some(Some(runs)) => runs,
            // The thread is ending.
            None => Runs { ended: 1, victims: victim.into(), ..Runs::default() },
        };
        let mut state = self.state.lock();
        turn.end();
        state.turns.retain(|granted| !Arc::ptr_eq(&granted.turn, turn));
        state.last_leave = now;
        let crowded = !state.waiting.is_empty();
        if let Some(limit) = &mut state.limit {
            if limit.note(runs, crowded, now) {
                self.limit.store(limit.value(), Ordering::Relaxed);
            } else {
                self.forget_limit(&mut state, now);
            }
        }
        let next = state.let_in(now);
        drop(state);
        // A thread that is woken may get the processor at once, before this one goes on: were the state locked
        // meanwhile, nobody else could leave, and the processor of one that wants to would stand idle.
        wake(&next);
        with_member(self.number, |member| member.left(Instant::now()));
    }
}

/// Wakes those who were let in.
fn wake(seats: &[Arc<Seat>]) {
    seats.iter().for_each(|seat| seat.vacancy.notify_one());
}

impl State {
    fn has_room(&self) -> bool {
        self.limit.as_ref().is_none_or(|limit| self.turns.len() < limit.value() as usize)
    }

    /// Ends the turns of threads that have not come back, and lets in as many as there is room for; they have to be
    /// woken.
    #[must_use]
    fn let_in(&mut self, now: Instant) -> Vec<Arc<Seat>> {
        self.turns.retain(|granted| granted.until > now || !granted.turn.end_at_rest());
        let mut seats = Vec::new();
        while self.has_room()
            && let Some(seat) = self.waiting.next(thread::processor())
        {
            self.begin(&seat.turn, now);
            seats.push(seat);
        }
        seats
    }

    fn begin(&mut self, turn: &Arc<Turn>, now: Instant) {
        turn.begin();
        self.turns.push(Granted { turn: Arc::clone(turn), until: now + TURN });
    }

    /// When its time should have come, twice over. If all whose turn it is stay away, those who wait must look after
    /// themselves.
    fn expectation(&self, seat: &Arc<Seat>) -> Duration {
        let before = self.waiting.before(seat).unwrap_or(0);
        let limit = self.limit.as_ref().map_or(1, |limit| limit.value() as usize);
        2 * TURN * u32::try_from(before / limit + 1).unwrap_or(u32::MAX)
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
        self.admission.leave(&self.turn, self.victim);
    }
}
