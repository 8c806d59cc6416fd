//! What to do next, where it takes more than a line to say.

use std::{
    fmt::Display,
    io::{Error, ErrorKind},
    path::Path,
};

use foreshore_txn::LogHolder;

/// The next step after an operation that failed so.
pub(super) fn next_step(action: &str, error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidInput if action == "make a backup in" => "name a place beside it",
        ErrorKind::NotFound | ErrorKind::NotADirectory => "check the path",
        ErrorKind::AlreadyExists => "name another place",
        ErrorKind::InvalidInput => "name another place, or put back the file that was there",
        ErrorKind::PermissionDenied => "obtain permission, or run as a user who has it",
        _ => "remove the cause, and try again",
    }
}

/// A path in a sentence, where there must be something to be read.
pub(super) fn shown(path: &Path) -> impl Display {
    if path.as_os_str().is_empty() { Path::new("\"\"").display() } else { path.display() }
}

/// What else may have become of what is not of this transaction: a cursor stays good after every rollback.
pub(super) fn or_ended(what: &str) -> &'static str {
    if what == "savepoint" { ", or was undone by a rollback or released" } else { "" }
}

/// What is wrong with all frames of a pool, and the next step.
pub(super) fn of_frames(stalled: bool) -> &'static str {
    if stalled {
        "have unwritten changes, and the disk is not keeping up; find out what holds it up"
    } else {
        "are in use; raise pool_bytes"
    }
}

/// What to tell of a file whose format this version does not read.
pub(super) fn of_format(path: &Path, found: u32, supported: u32) -> String {
    format!(
        "{} has format {found}, this version reads formats up to {supported}; open it with a matching version of \
         Foreshore, dump it there and load it here",
        path.display()
    )
}

/// What is wrong with what is no database.
pub(super) fn of_a_stranger(path: &Path, detail: &str) -> String {
    format!(
        "{} is not a Foreshore database: {detail}; name a database, or, to make one, a new or empty directory",
        shown(path)
    )
}

/// What has become of partitioned execution.
pub(super) fn of_a_dead_thread(path: &Path) -> String {
    format!(
        "a thread of partitioned execution of database {} has died, so submitted and served transactions do not run, \
         though others do; close the database and open it again to submit",
        path.display()
    )
}

/// Of a commit that nobody has confirmed.
pub(super) fn of_an_unknown_outcome(cause: &impl Display) -> String {
    format!(
        "it is unknown whether the transaction committed ({cause}); open the database again and look: all of it is \
         there, or nothing"
    )
}

/// Of a run that left its plan.
pub(super) const PLAN_MISSED: &str = "the transaction touched something outside its plan that others have locked; \
     roll back, and add it to the plan";

/// Where a transaction may have no more locks.
pub(super) const FEWER_LOCKS: &str = "lock the whole table with lock_table, use smaller transactions, or raise \
     max_locks_per_transaction or max_locks";

/// Where no more may be submitted.
pub(super) const SUBMIT_LATER: &str = "wait for some results before you submit more, or raise submit_queue";

/// Of a wait that could be for the thread that waits.
pub(super) const NOT_IN_A_BODY: &str = "the body of a submitted or served transaction does not wait for another one, \
     which may need its thread; wait after it, on another thread, or with wait_until";

/// How to get a larger log: no more than 512 of its files count, whose size is fixed when a database is made.
pub(super) const RAISE_LOG: &str = "raise log_bytes (of which 512 times log_segment_bytes count)";

/// For the message of a full log: who needs most of it, and what to do about that. `is_own`: it is the transaction that
/// was refused.
pub(super) fn by_whom(holder: Option<&LogHolder>, is_own: bool) -> String {
    let most_by = match holder {
        Some(holder) if is_own => format!(", most by this transaction itself ({holder})"),
        Some(holder) => format!(", most by {holder}"),
        None => String::new(),
    };
    let next = match holder {
        Some(_) if is_own => "commit it sooner, split it into smaller ones",
        Some(LogHolder::Prepared(_)) => "commit or roll back the prepared transaction",
        Some(LogHolder::Backup) => "wait for the backup",
        _ => "end the oldest transaction, use smaller ones",
    };
    format!("{most_by}; {next}, or {RAISE_LOG}")
}
