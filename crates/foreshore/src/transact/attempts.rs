//! What follows on a run: another one, at once or a little later, or the end.

use foreshore_env::{
    random::jittered_pause,
    time::{Duration, Instant},
};
use foreshore_txn::{Engine, VictimReason};

use super::{DEFAULT_RETRIES, Run, TransactOptions};
use crate::{
    ReadMode,
    database::Database,
    error::{Error, RefusedLock, Result},
    log_turn::{LogTurn, LogTurns},
    view::DeadlockView,
};

/// The runs of a transaction, one after another.
pub(super) struct Attempts<'a> {
    database: &'a Database,
    options: &'a TransactOptions,
    deadline: Option<Instant>,
    /// `None`: it takes no part in them.
    log_turns: Option<&'a LogTurns>,
    turn: Option<LogTurn<'a>>,
    read_mode: ReadMode,
    failures: Failures,
}

/// What follows on a run.
pub(super) enum Next<R> {
    /// Another one.
    AtOnce,
    /// Another one, after this pause.
    After(Duration),
    /// The end.
    Give(Result<R>),
}

impl<'a> Attempts<'a> {
    pub(super) fn new(
        database: &'a Database,
        options: &'a TransactOptions,
        deadline: Option<Instant>,
        log_turns: Option<&'a LogTurns>,
        read_mode: ReadMode,
    ) -> Attempts<'a> {
        Attempts {
            database,
            options,
            deadline,
            log_turns,
            turn: None,
            read_mode,
            failures: Failures::default(),
        }
    }

    /// How the next run reads, unless it is planned.
    pub(super) fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// Whether it runs alone, so that it finds room in the log.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// DB-10.
    #[inline]
    pub(super) fn wait_for_log(&mut self, engine: &Engine) {
        match (&mut self.turn, self.log_turns) {
            (Some(turn), _) => turn.wait_to_be_alone(engine, self.deadline),
            (None, Some(turns)) => turns.let_pass(self.deadline),
            (None, None) => {}
        }
    }

    /// What follows on this run.
    #[inline]
    pub(super) fn next<R>(&mut self, run: Run<R>) -> Next<R> {
        match run {
            Run::Committed(committed) => Next::Give(Ok(committed)),
            // No pause: the next run waits for what this one met.
            Run::Missed => Next::AtOnce,
            // What was read is locked now, so this happens once.
            Run::Stale => {
                self.read_mode = ReadMode::Locking;
                Next::AtOnce
            }
            Run::Failed(error) => self.after_failure(error, false),
            Run::Crowded(error) => self.after_failure(error, true),
            Run::Victim(report) => self.after_failure(Error::Deadlock(report), false),
        }
    }

    /// `crowded`: because it and others have filled the log together.
    #[cold]
    fn after_failure<R>(&mut self, error: Error, crowded: bool) -> Next<R> {
        self.failures.note(&error, self.options);
        if !wants_log(&error) {
            // What it waits for now has nothing to do with the log, and others wait for the turn (DB-10).
            self.turn = None;
        } else if self.failures.may_run_again(self.options)
            && let Some(turns) = self.log_turns
        {
            // Where somebody fills the log alone: not for ever.
            let soon = if crowded {
                turns.again(&mut self.turn, self.database.engine(), self.deadline)
            } else {
                Ok(self.turn.is_none() && turns.is_out())
            };
            match soon {
                Ok(true) => return Next::AtOnce,
                Ok(false) => {}
                Err(error) => return Next::Give(Err(self.database.inner().error(error))),
            }
        }
        match self.failures.runs_again(error, self.database, self.options, self.deadline) {
            Ok(pause) => Next::After(pause),
            Err(error) => Next::Give(Err(error)),
        }
    }
}

/// Whether a transaction has failed for want of room in the log.
pub(super) fn wants_log(error: &Error) -> bool {
    matches!(error, Error::LogFull { .. } | Error::LogHeld)
}

/// What a victim was refused that would only have had to wait: its policy lets nobody wait there, or not for longer.
fn refused(error: &Error) -> Option<&DeadlockView> {
    use VictimReason::{NoWait, TimedOut, YoungerThan};
    match error {
        Error::Deadlock(victim) if matches!(victim.reason, YoungerThan(_) | NoWait | TimedOut) => {
            Some(victim)
        }
        _ => None,
    }
}

/// The runs of a transaction that have failed.
#[derive(Default)]
pub(crate) struct Failures {
    runs: u32,
    /// Those that count against [`TransactOptions::retries`].
    counted: u32,
    /// Since when it has waited for what it was refused, by running again.
    waits_since: Option<Instant>,
}

impl Failures {
    /// One more, with this error.
    #[cold]
    pub(crate) fn note(&mut self, error: &Error, options: &TransactOptions) {
        self.runs = self.runs.saturating_add(1);
        let refused = refused(error);
        if let Some(victim) = refused {
            self.waits_since.get_or_insert_with(|| {
                let now = Instant::now();
                victim.wish().and_then(|wish| now.checked_sub(wish.waited)).unwrap_or(now)
            });
        }
        // DB-12.
        if refused.is_none() || options.retries < DEFAULT_RETRIES {
            self.counted = self.counted.saturating_add(1);
        }
    }

    fn may_run_again(&self, options: &TransactOptions) -> bool {
        self.counted <= options.retries
    }

    /// Whether a transaction is to run again whose last run ended with `error`, which is noted: after which pause, or
    /// how it ends (DB-5, DB-12).
    #[cold]
    pub(crate) fn runs_again(
        &self,
        error: Error,
        database: &Database,
        options: &TransactOptions,
        deadline: Option<Instant>,
    ) -> Result<Duration> {
        if !error.is_retryable() {
            return Err(error);
        }
        let now = Instant::now();
        let left = |end: Option<Instant>| end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
        let mut longest = left(deadline);
        if !self.may_run_again(options) || longest.is_zero() {
            return Err(Error::RetriesExhausted { attempts: self.runs, last: Box::new(error) });
        }
        if let Some(victim) = refused(&error)
            && let Some(since) = self.waits_since
            && let (Some(timeout), within_body) = options.longest_wait(database.options())
        {
            let until_timeout = left(since.checked_add(timeout));
            if until_timeout.is_zero() {
                let waited = now.saturating_duration_since(since);
                let lock = RefusedLock::of_victim(victim, waited, timeout, database.inner());
                let error = Error::LockTimeout(Box::new(lock));
                return Err(if within_body { error.within_body() } else { error });
            }
            longest = longest.min(until_timeout);
        }
        Ok(jittered_pause(self.runs).min(longest))
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::{sync::Arc, thread};
    use foreshore_testkit::FaultyDisk;

    use super::*;

    /// The turn stayed with a transaction that ran again for another reason, through all its pauses.
    #[test]
    fn whoever_fails_of_something_else_gives_the_turn_back() {
        let db = Database::builder().disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
        let (options, turns) = (TransactOptions::default(), &db.inner().log_turns);
        let mut attempts = Attempts::new(&db, &options, None, Some(turns), ReadMode::Locking);
        let next = attempts.next::<()>(Run::Crowded(Error::LogHeld));
        assert!(matches!(next, Next::AtOnce) && attempts.has_turn() && turns.is_out());
        // It wants the turn, and runs again in it.
        attempts.wait_for_log(db.engine());
        let next = attempts.next::<()>(Run::Crowded(Error::LogHeld));
        assert!(matches!(next, Next::AtOnce) && attempts.has_turn());
        let next = attempts.next::<()>(Run::Failed(Error::StaleReads));
        assert!(matches!(next, Next::After(_)) && !attempts.has_turn() && !turns.is_out());
        thread::scope(|scope| {
            let others = scope.spawn(|| turns.again(&mut None, db.engine(), Some(Instant::now())));
            assert!(others.join().unwrap().unwrap());
        });
    }
}
