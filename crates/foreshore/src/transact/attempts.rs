//! What follows on a run: another one, at once or a little later, or the end.

use foreshore_env::{
    random::{self, Xorshift},
    time::{Duration, Instant},
};
use foreshore_txn::Engine;

use super::{Run, TransactOptions};
use crate::{
    ReadMode,
    error::{Error, Result},
    log_turn::{LogTurn, LogTurns},
};

/// The first pause is at most this long; each later one may be twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The runs of a transaction, one after another.
pub(super) struct Attempts<'a> {
    options: &'a TransactOptions,
    deadline: Option<Instant>,
    /// `None`: it takes no part in them.
    log_turns: Option<&'a LogTurns>,
    turn: Option<LogTurn<'a>>,
    read_mode: ReadMode,
    /// Those that count against [`TransactOptions::retries`].
    count: u32,
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
        options: &'a TransactOptions,
        deadline: Option<Instant>,
        log_turns: Option<&'a LogTurns>,
        read_mode: ReadMode,
    ) -> Attempts<'a> {
        Attempts { options, deadline, log_turns, turn: None, read_mode, count: 0 }
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
        self.count += 1;
        if wants_log(&error)
            && self.count <= self.options.retries
            && let Some(turns) = self.log_turns
        {
            // Where somebody fills the log alone: not for ever.
            let soon = if crowded {
                turns.again(&mut self.turn, self.deadline)
            } else {
                self.turn.is_none() && turns.is_out()
            };
            if soon {
                return Next::AtOnce;
            }
        }
        match runs_again(error, self.count, self.options, self.deadline) {
            Ok(pause) => Next::After(pause),
            Err(error) => Next::Give(Err(error)),
        }
    }
}

/// Whether a transaction has failed for want of room in the log.
pub(super) fn wants_log(error: &Error) -> bool {
    matches!(error, Error::LogFull { .. } | Error::LogHeld)
}

/// Whether a transaction is to run again, after so many attempts of which the last ended with `error`: after which
/// pause, or how it ends (DB-5). The pause lets those who won go on before this one is in their way again; it is
/// jittered, so that two victims of each other do not meet in step.
#[cold]
pub(crate) fn runs_again(
    error: Error,
    attempts: u32,
    options: &TransactOptions,
    deadline: Option<Instant>,
) -> Result<Duration> {
    if !error.is_retryable() {
        return Err(error);
    }
    let left = deadline.map_or(LONGEST_PAUSE, |deadline| deadline.saturating_duration_since(Instant::now()));
    if attempts > options.retries || left.is_zero() {
        return Err(Error::RetriesExhausted { attempts, last: Box::new(error) });
    }
    let most = FIRST_PAUSE.saturating_mul(1 << attempts.min(16)).min(LONGEST_PAUSE);
    let jittered = Xorshift::new(random::seed()).below(most.as_nanos() as u64);
    Ok(Duration::from_nanos(jittered).min(left))
}
