//! One at a time, where several large transactions have filled the log together.
//!
//! Each of them fails or is ended, though it would fit the log alone (TXN-38 keeps apart only those that meet early
//! enough). So whoever was refused beside others runs again by itself: it gets the *turn*, waits until those who have
//! written are gone, and those who begin meanwhile wait before they do.
//!
//! DB-10: a thread that waits for a turn, or for the end of one, has no transaction and no permit. Nobody waits for
//! ever: one that begins does so after [`PATIENCE`], one that wants a turn stands behind those who came before and
//! gives up when none was given for [`LINE_PATIENCE`], and the one that has it runs beside those who are still there
//! after [`ALONE_PATIENCE`], but then not again; nor more than [`RUNS`] times in all.

use std::collections::VecDeque;

use foreshore_env::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};
use foreshore_txn::{Engine, LogHolder};

/// How long those who begin wait for the end of a turn.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long one waits for a turn while none is given.
const LINE_PATIENCE: Duration = Duration::from_secs(30);
/// How long the one whose turn it is waits for the others to end.
const ALONE_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks who is still there.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Runs in one turn.
const RUNS: u32 = 4;

/// Gives out turns. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LogTurns {
    /// Somebody has it. Written with `state` locked; relaxed: a thread that reads it late begins beside a turn, or
    /// locks in vain.
    out: AtomicBool,
    state: Mutex<State>,
    over: Condvar,
}

/// Guarded by the mutex of [`LogTurns::state`].
#[derive(Debug, Default)]
struct State {
    holder: Option<Thread>,
    /// Turns so far.
    given: u64,
    /// Those who wait for a turn, by number: the first to come is the first to get it.
    line: VecDeque<u64>,
    /// Those who have come.
    come: u64,
}

impl State {
    fn is_out_for(&self, thread: &Thread) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.id() != thread.id())
    }
}

/// The right to fill the log alone. Given back on drop.
#[derive(Debug)]
pub(crate) struct LogTurn<'a> {
    turns: &'a LogTurns,
    runs: u32,
    /// The others had gone when the last run under this turn began.
    alone: bool,
}

impl LogTurns {
    /// Whether somebody has the turn.
    pub(crate) fn is_out(&self) -> bool {
        self.out.load(Ordering::Relaxed)
    }

    /// Lets the transaction that has the turn come to its end, for a while.
    #[inline]
    pub(crate) fn let_pass(&self, deadline: Option<Instant>) {
        if self.is_out() {
            self.wait_for_the_end(deadline);
        }
    }

    /// [`LogTurns::let_pass`] for somebody who does not sleep: whether to look again a little later. `since`: since
    /// when the caller has let the holder of the turn pass.
    pub(crate) fn is_to_pass(&self, since: &mut Option<Instant>, deadline: Option<Instant>) -> bool {
        if !self.is_out() {
            *since = None;
            return false;
        }
        let began = *since.get_or_insert_with(Instant::now);
        let waits = Instant::now() < earlier(began + PATIENCE, deadline);
        if !waits {
            *since = None;
        }
        waits
    }

    #[cold]
    fn wait_for_the_end(&self, deadline: Option<Instant>) {
        let until = earlier(Instant::now() + PATIENCE, deadline);
        let this = thread::current();
        let mut state = self.state.lock();
        while state.is_out_for(&this) && Instant::now() < until {
            state = self.over.wait_until(state, until);
        }
    }

    /// Whether a transaction that was refused beside others shall run again: with the turn, which it waits for if it
    /// has none.
    pub(crate) fn again<'a>(&'a self, turn: &mut Option<LogTurn<'a>>, deadline: Option<Instant>) -> bool {
        match turn {
            Some(turn) => turn.alone && turn.runs < RUNS,
            None => {
                *turn = self.take(deadline);
                turn.is_some()
            }
        }
    }

    fn take(&self, deadline: Option<Instant>) -> Option<LogTurn<'_>> {
        let this = thread::current();
        let mut state = self.state.lock();
        if state.holder.is_some() && !state.is_out_for(&this) {
            return None;
        }
        let number = state.come;
        state.come += 1;
        state.line.push_back(number);
        let (mut given, mut until) = (state.given, earlier(Instant::now() + LINE_PATIENCE, deadline));
        while state.holder.is_some() || state.line.front() != Some(&number) {
            if Instant::now() >= until {
                // Whoever is the first now waits for the one that has the turn, and is told by it.
                state.line.retain(|waiting| *waiting != number);
                return None;
            }
            state = self.over.wait_until(state, until);
            if state.given != given {
                (given, until) = (state.given, earlier(Instant::now() + LINE_PATIENCE, deadline));
            }
        }
        state.line.pop_front();
        state.holder = Some(this);
        state.given += 1;
        self.out.store(true, Ordering::Relaxed);
        Some(LogTurn { turns: self, runs: 0, alone: false })
    }
}

impl LogTurn<'_> {
    /// Waits until nobody else needs the log, for a while.
    pub(crate) fn wait_to_be_alone(&mut self, engine: &Engine, deadline: Option<Instant>) {
        let until = earlier(Instant::now() + ALONE_PATIENCE, deadline);
        self.runs += 1;
        loop {
            let holders = engine.log_retention().holders;
            let is_open =
                |holder: &LogHolder| matches!(holder, LogHolder::Transaction(_) | LogHolder::Prepared(_));
            self.alone = !holders.iter().any(|hold| is_open(&hold.holder));
            if self.alone || Instant::now() >= until {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for LogTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.holder = None;
        self.turns.out.store(false, Ordering::Relaxed);
        drop(state);
        self.turns.over.notify_all();
    }
}

fn earlier(one: Instant, other: Option<Instant>) -> Instant {
    other.map_or(one, |other| one.min(other))
}

#[cfg(test)]
mod tests {
    use foreshore_env::sync::Arc;
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{Database, TransactOptions};

    /// Submitted transactions began beside whoever was to fill the log alone. They wait, for a while; but those that do
    /// not wait do not.
    #[test]
    fn submitted_transactions_let_a_turn_pass() {
        let db = Database::builder().disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
        let turns = &db.inner().log_turns;
        let mut turn = None;
        assert!(turns.again(&mut turn, None));
        let begun = Instant::now();
        let submitted = db.plan().submit(|_| Ok(())).unwrap();
        let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
        db.plan().options(no_wait).submit(|_| Ok(())).unwrap().wait().unwrap();
        let hurried = TransactOptions { deadline: Some(LOOK_EVERY), ..TransactOptions::default() };
        db.plan().options(hurried).submit(|_| Ok(())).unwrap().wait().unwrap();
        assert!(!submitted.has_run() || begun.elapsed() >= PATIENCE);
        drop(turn.take());
        submitted.wait().unwrap();
        assert!(turns.again(&mut turn, None));
        let begun = Instant::now();
        db.plan().submit(|_| Ok(())).unwrap().wait().unwrap();
        assert!(begun.elapsed() >= PATIENCE);
        drop(turn);
        db.close().unwrap();
    }

    /// Whoever came to the mutex first had the next turn: one who waited could be passed without end.
    #[test]
    fn turns_are_given_in_the_order_of_coming() {
        let turns = LogTurns::default();
        let order = Mutex::new(Vec::new());
        let mut turn = None;
        assert!(turns.again(&mut turn, None));
        thread::scope(|scope| {
            let (turns, order) = (&turns, &order);
            for number in 1..4 {
                scope.spawn(move || {
                    let mut turn = None;
                    assert!(turns.again(&mut turn, None));
                    order.lock().push(number);
                });
                while turns.state.lock().come <= number {
                    thread::sleep(LOOK_EVERY);
                }
            }
            // One who gives up is in nobody's way.
            scope.spawn(move || assert!(!turns.again(&mut None, Some(Instant::now())))).join().unwrap();
            drop(turn.take());
            assert!(turns.again(&mut turn, None));
            order.lock().push(4);
            drop(turn.take());
        });
        assert_eq!(*order.lock(), [1, 2, 3, 4]);
    }
}
