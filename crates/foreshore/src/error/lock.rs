//! What errors tell about locks, with the names of tables and readable keys: an error outlives its database.

use foreshore_env::time::Duration;
use foreshore_txn::{Blocker, Refusal};

use super::Error;
use crate::{
    database::Inner,
    view::{DeadlockView, Names, WaitView, wish_of},
};

/// What is in an [`Error::LockTimeout`] or [`Error::WouldBlock`]: the lock that was not granted, and who was in the
/// way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefusedLock {
    /// Who wanted what, and how long it had waited; without those in its way, who are in `blockers`. `None` if it was
    /// no lock that was waited for, but those who work on the same page, or who write, or, to be begun, those who were
    /// submitted before.
    pub wait: Option<WaitView>,
    /// Who was in the way at last, as in [`WaitView::blockers`]: nobody, if they went away at the last moment.
    pub blockers: Vec<Blocker>,
    /// The global ids of those among them that are prepared: each stays in the way until somebody decides about it.
    pub prepared: Vec<Vec<u8>>,
    /// The [`lock_timeout`](crate::TransactOptions::lock_timeout) that had passed. `None`: it was a deadline, or
    /// nothing was waited for, or it was a call that waits by itself, as [`Database::verify`](crate::Database::verify)
    /// does.
    pub lock_timeout: Option<Duration>,
    /// Whether the limit that had passed was one of 10 s, set because what waited had begun within the body of another
    /// transaction (see [`Database::transact`](crate::Database::transact)). If so, that one may be in the way, and then
    /// no wait is long enough.
    pub within_body: bool,
}

/// What to do about a prepared transaction that is in the way: waiting does not help.
const DECIDE: &str = "decide about what is prepared, by Database::commit_prepared or rollback_prepared, or, \
     after this program has closed the database, by `foreshore prepared`";

/// Until when something waited whose limit is that of DB-11.
const WITHIN_BODY: &str = "as long as what begins within the body of another transaction waits";
/// What to do then: to wait longer does not help.
const NOT_WITHIN: &str =
    "that other transaction may be in the way: do this with it, or after it, not within its body";

/// What an error adds that counts too many transactions, so many of which are prepared: how many, and what to do about
/// them.
pub(super) fn decide_some(prepared: usize) -> String {
    match prepared {
        0 => String::new(),
        1 => format!("; 1 of them is prepared: {DECIDE}"),
        _ => format!("; {prepared} of them are prepared: {DECIDE}"),
    }
}

impl RefusedLock {
    pub(crate) fn new(refusal: Refusal, database: Option<&Inner>) -> RefusedLock {
        let names = Names::of_tables(database, refusal.wish.iter().map(|wish| wish.table));
        let wait = refusal.wish.as_ref().map(|wish| names.edge(wish));
        RefusedLock::of(wait, refusal.blockers, refusal.timeout, database)
    }

    /// Of a victim that has tried again until the limit to the wait was over: the lock that it wanted last, for which
    /// it had waited so long in all, and who was in its way.
    pub(crate) fn of_victim(
        victim: &DeadlockView,
        waited: Duration,
        limit: Duration,
        database: &Inner,
    ) -> RefusedLock {
        let wish = victim.wish();
        let blockers = wish.iter().flat_map(|wish| &wish.blockers).map(Blocker::from).collect();
        let wait = wish.map(|wish| WaitView { waited, blockers: Vec::new(), ..wish.clone() });
        RefusedLock::of(wait, blockers, Some(limit), Some(database))
    }

    fn of(
        wait: Option<WaitView>,
        blockers: Vec<Blocker>,
        lock_timeout: Option<Duration>,
        database: Option<&Inner>,
    ) -> RefusedLock {
        let prepared = database.and_then(|database| database.engine.prepared().ok()).unwrap_or_default();
        let holds = |txn| blockers.iter().any(|blocker| blocker.txn == txn);
        let prepared = prepared.into_iter().filter(|prepared| holds(prepared.txn));
        let prepared = prepared.map(|prepared| prepared.global_id).collect();
        RefusedLock { wait, prepared, blockers, lock_timeout, within_body: false }
    }

    /// Of what was submitted and not begun in time; `limit`: that of the body in which it was, if it was not its
    /// deadline.
    pub(crate) fn not_begun(limit: Option<Duration>) -> RefusedLock {
        RefusedLock {
            wait: None,
            blockers: Vec::new(),
            prepared: Vec::new(),
            lock_timeout: limit,
            within_body: limit.is_some(),
        }
    }

    pub(super) fn timed_out(&self) -> String {
        let waited = match &self.wait {
            Some(wait) => wait.to_string(),
            None => "waited for others that did not finish".to_owned(),
        };
        let (until, next) = match self.lock_timeout {
            _ if self.within_body => (WITHIN_BODY.to_owned(), NOT_WITHIN),
            Some(limit) => (
                format!("which is its lock_timeout ({} ms)", limit.as_millis()),
                "raise lock_timeout, or make those transactions shorter",
            ),
            None => ("until its deadline".to_owned(), "wait longer, or make those transactions shorter"),
        };
        let next = if self.prepared.is_empty() { next } else { DECIDE };
        format!("{waited}, {until}{}; {next}", self.in_the_way())
    }

    pub(super) fn refused(&self) -> String {
        let what = match &self.wait {
            Some(wait) => format!("{} would have to wait for {}", wait.transaction, wish_of(wait)),
            None => "a lock is not free".to_owned(),
        };
        let next = if self.prepared.is_empty() { "try again later, or allow waiting" } else { DECIDE };
        format!("{what}{}; {next}", self.in_the_way())
    }

    fn in_the_way(&self) -> String {
        let mut text = String::new();
        for (number, blocker) in self.blockers.iter().enumerate() {
            text.push_str(if number == 0 { "; in its way: " } else { ", " });
            text.push_str(&blocker.to_string());
        }
        text
    }
}

impl Error {
    /// Of a wait whose limit was set because it began within the body of a transaction (DB-11).
    #[cold]
    pub(crate) fn within_body(mut self) -> Error {
        if let Error::LockTimeout(lock) = &mut self {
            lock.within_body = true;
        }
        self
    }
}
