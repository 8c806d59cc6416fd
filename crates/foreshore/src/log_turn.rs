//! One at a time, where several large transactions have filled the log together.
//!
//! Each of them fails or is ended, though it would fit the log alone (TXN-38 keeps apart only those that meet early
//! enough). So whoever was refused beside others runs again by itself: it gets the *turn*, waits until those who have
//! written are gone, and those who begin meanwhile wait before they do.
//!
//! DB-10: a thread that waits for a turn, or for the end of one, has no transaction and no permit. Nobody waits for
//! ever: one that begins does so after [`PATIENCE`], and at once when the run of the one that has the turn began
//! [`HOLDER_PATIENCE`] ago, for that may wait for something else; one that wants a turn stands behind those who came
//! before and gives up when none was given for [`LINE_PATIENCE`], or the database is closed; and the one that has it
//! runs beside those who are still there after [`ALONE_PATIENCE`], but then not again; nor more than [`RUNS`] times in
//! all, nor when a run has failed of anything else.

use std::collections::VecDeque;

use foreshore_base::StorageError;
use foreshore_env::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant, earlier},
};
use foreshore_txn::{Engine, LogHolder, LogRetention};

/// How long those who begin wait for the end of a turn.
const PATIENCE: Duration = Duration::from_secs(1);
/// For how long they wait for a turn at all, since its last run has begun.
const HOLDER_PATIENCE: Duration = Duration::from_secs(10);
/// How long one waits for a turn while none is given.
const LINE_PATIENCE: Duration = Duration::from_secs(30);
/// How long the one whose turn it is waits for the others to end.
const ALONE_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks who is still there.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Between two looks of whoever waits for a turn whether the database is still open.
const LOOK_WHETHER_OPEN: Duration = Duration::from_millis(100);
/// Runs in one turn.
const RUNS: u32 = 4;
/// If more than this part of the room for work is filled when a run is to begin, a checkpoint comes before it.
const LEFT: u64 = 16;
/// How long it waits for that checkpoint at most: it may fail.
const LEFT_PATIENCE: Duration = Duration::from_secs(1);

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
    holder: Option<Holder>,
    /// Turns so far.
    given: u64,
    /// Those who wait for a turn, by number: the first to come is the first to get it.
    line: VecDeque<u64>,
    /// Those who have come.
    come: u64,
}

/// Who has the turn.
#[derive(Debug)]
struct Holder {
    thread: Thread,
    /// When it got it, or when its last run began, or began to wait to be alone.
    since: Instant,
}

impl State {
    fn is_out_for(&self, thread: &Thread) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.thread.id() != thread.id())
    }

    /// Until when the holder is let pass.
    fn passes_until(&self) -> Option<Instant> {
        self.holder.as_ref().map(|holder| holder.since + HOLDER_PATIENCE)
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
    /// when the caller has let the holder of the turn pass, until it has begun.
    pub(crate) fn is_to_pass(&self, since: &mut Option<Instant>, deadline: Option<Instant>) -> bool {
        if !self.is_out() {
            *since = None;
            return false;
        }
        let began = *since.get_or_insert_with(Instant::now);
        let until = earlier(began + PATIENCE, self.state.lock().passes_until());
        Instant::now() < earlier(until, deadline)
    }

    #[cold]
    fn wait_for_the_end(&self, deadline: Option<Instant>) {
        let until = earlier(Instant::now() + PATIENCE, deadline);
        let this = thread::current();
        let mut state = self.state.lock();
        while state.is_out_for(&this) {
            let until = earlier(until, state.passes_until());
            if Instant::now() >= until {
                return;
            }
            state = self.over.wait_until(state, until);
        }
    }

    /// Whether a transaction that was refused beside others shall run again: with the turn, which it waits for if it
    /// has none.
    ///
    /// # Errors
    /// While it waited the database was closed, or has stopped.
    pub(crate) fn again<'a>(
        &'a self,
        turn: &mut Option<LogTurn<'a>>,
        engine: &Engine,
        deadline: Option<Instant>,
    ) -> Result<bool, StorageError> {
        match turn {
            Some(turn) => Ok(turn.alone && turn.runs < RUNS),
            None => {
                *turn = self.take(engine, deadline)?;
                Ok(turn.is_some())
            }
        }
    }

    fn take(&self, engine: &Engine, deadline: Option<Instant>) -> Result<Option<LogTurn<'_>>, StorageError> {
        let this = thread::current();
        let mut state = self.state.lock();
        if state.holder.is_some() && !state.is_out_for(&this) {
            return Ok(None);
        }
        let number = state.come;
        state.come += 1;
        state.line.push_back(number);
        let (mut given, mut until) = (state.given, earlier(Instant::now() + LINE_PATIENCE, deadline));
        while state.holder.is_some() || state.line.front() != Some(&number) {
            let (now, open) = (Instant::now(), engine.check_open());
            if now >= until || open.is_err() {
                // Whoever is the first now waits for the one that has the turn, and is told by it.
                state.line.retain(|waiting| *waiting != number);
                return open.map(|()| None);
            }
            state = self.over.wait_until(state, until.min(now + LOOK_WHETHER_OPEN));
            if state.given != given {
                (given, until) = (state.given, earlier(Instant::now() + LINE_PATIENCE, deadline));
            }
        }
        state.line.pop_front();
        state.holder = Some(Holder { thread: this, since: Instant::now() });
        state.given += 1;
        self.out.store(true, Ordering::Relaxed);
        Ok(Some(LogTurn { turns: self, runs: 0, alone: false }))
    }
}

impl LogTurn<'_> {
    /// Waits until nobody else needs the log, and what others have left there is gone, for a while, and not once the
    /// database is closed: then its run ends when it begins.
    pub(crate) fn wait_to_be_alone(&mut self, engine: &Engine, deadline: Option<Instant>) {
        let until = earlier(Instant::now() + ALONE_PATIENCE, deadline);
        self.runs += 1;
        self.goes_on();
        let mut asked = None;
        loop {
            let LogRetention { holders, used_bytes, work_bytes, .. } = engine.log_retention();
            let is_open =
                |holder: &LogHolder| matches!(holder, LogHolder::Transaction(_) | LogHolder::Prepared(_));
            self.alone = !holders.iter().any(|hold| is_open(&hold.holder));
            let is_shorter = match asked {
                Some((low_water, end)) => engine.log().low_water() > low_water || Instant::now() >= end,
                // Its own part would keep that, too, if a change is to be undone and run again for want of room.
                None if self.alone && used_bytes > work_bytes / LEFT => {
                    asked = Some((engine.ask_for_log_room(), Instant::now() + LEFT_PATIENCE));
                    false
                }
                None => true,
            };
            if self.alone && is_shorter || Instant::now() >= until || engine.check_open().is_err() {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        self.goes_on();
    }

    /// Those who begin let it pass from now on.
    fn goes_on(&self) {
        if let Some(holder) = &mut self.turns.state.lock().holder {
            holder.since = Instant::now();
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

#[cfg(test)]
mod tests {
    use foreshore_env::sync::Arc;
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{Database, TableDefinition, TransactOptions};

    fn take<'a>(turns: &'a LogTurns, turn: &mut Option<LogTurn<'a>>, engine: &Engine) -> bool {
        turns.again(turn, engine, None).unwrap()
    }

    /// Submitted transactions began beside whoever was to fill the log alone. They wait, for a while; but those that do
    /// not wait do not.
    #[test]
    fn submitted_transactions_let_a_turn_pass() {
        let db = Database::builder().disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
        let turns = &db.inner().log_turns;
        let mut turn = None;
        assert!(take(turns, &mut turn, db.engine()));
        let begun = Instant::now();
        let submitted = db.plan().submit(|_| Ok(())).unwrap();
        let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
        db.plan().options(no_wait).submit(|_| Ok(())).unwrap().wait().unwrap();
        let hurried = TransactOptions { deadline: Some(LOOK_EVERY), ..TransactOptions::default() };
        db.plan().options(hurried).submit(|_| Ok(())).unwrap().wait().unwrap();
        assert!(!submitted.has_run() || begun.elapsed() >= PATIENCE);
        drop(turn.take());
        submitted.wait().unwrap();
        assert!(take(turns, &mut turn, db.engine()));
        let begun = Instant::now();
        db.plan().submit(|_| Ok(())).unwrap().wait().unwrap();
        assert!(begun.elapsed() >= PATIENCE);
        drop(turn);
        db.close().unwrap();
    }

    /// Whoever came to the mutex first had the next turn: one who waited could be passed without end.
    #[test]
    fn turns_are_given_in_the_order_of_coming() {
        let db = Database::builder().disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
        let (turns, engine) = (LogTurns::default(), db.engine());
        let order = Mutex::new(Vec::new());
        let mut turn = None;
        assert!(take(&turns, &mut turn, engine));
        thread::scope(|scope| {
            let (turns, order) = (&turns, &order);
            for number in 1..4 {
                scope.spawn(move || {
                    let mut turn = None;
                    assert!(take(turns, &mut turn, engine));
                    order.lock().push(number);
                });
                while turns.state.lock().come <= number {
                    thread::sleep(LOOK_EVERY);
                }
            }
            // One who gives up is in nobody's way.
            scope
                .spawn(move || assert!(!turns.again(&mut None, engine, Some(Instant::now())).unwrap()))
                .join()
                .unwrap();
            drop(turn.take());
            assert!(take(turns, &mut turn, engine));
            order.lock().push(4);
            drop(turn.take());
        });
        assert_eq!(*order.lock(), [1, 2, 3, 4]);
    }

    /// One whose turn it was kept everybody who began waiting, for as long as it waited for something else itself.
    #[test]
    fn a_turn_that_lasts_is_not_waited_for() {
        let db = Database::builder().disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
        let turns = &db.inner().log_turns;
        let mut turn = None;
        assert!(take(turns, &mut turn, db.engine()));
        let begin = || {
            thread::scope(|scope| {
                let begun = Instant::now();
                scope.spawn(|| turns.let_pass(None)).join().unwrap();
                begun.elapsed()
            })
        };
        assert!(begin() >= PATIENCE);
        let later = Some(Instant::now() + PATIENCE);
        assert!(turns.is_to_pass(&mut None, later));
        if let Some(holder) = &mut turns.state.lock().holder {
            holder.since -= HOLDER_PATIENCE;
        }
        assert!(begin() < PATIENCE);
        assert!(!turns.is_to_pass(&mut None, later));
        // Its next run is waited for again.
        turn.as_mut().unwrap().wait_to_be_alone(db.engine(), None);
        assert!(turns.is_to_pass(&mut None, Some(Instant::now() + PATIENCE)));
        // Who has waited long enough, and finds no place to begin, does not wait anew.
        let mut since = Some(Instant::now() - PATIENCE);
        assert!(!turns.is_to_pass(&mut since, None) && !turns.is_to_pass(&mut since, None));
    }

    /// Whoever waited for a turn, or to be alone, did not hear that the database was closed.
    #[test]
    fn whoever_waits_for_a_turn_hears_of_the_end() {
        const TABLE: TableDefinition<u64, u64> = TableDefinition::new("table");
        let db = Database::builder().disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
        let turns = &db.inner().log_turns;
        let mut turn = None;
        assert!(take(turns, &mut turn, db.engine()));
        let mut writer = db.begin().unwrap();
        writer.put(TABLE, 1, 1).unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| turns.again(&mut None, db.engine(), None));
            let alone = scope.spawn(|| turn.as_mut().unwrap().wait_to_be_alone(db.engine(), None));
            thread::sleep(LOOK_WHETHER_OPEN);
            assert!(!waiter.is_finished() && !alone.is_finished());
            db.close().unwrap();
            let ended = waiter.join().unwrap();
            assert!(matches!(ended, Err(StorageError::Closed)), "{ended:?}");
            alone.join().unwrap();
        });
        assert!(begun.elapsed() < ALONE_PATIENCE, "{:?}", begun.elapsed());
        drop(writer);
    }
}
