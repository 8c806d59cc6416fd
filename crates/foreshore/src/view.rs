//! Who holds which lock and who waits for whom, as tables and keys.
//!
//! A view stops nobody: it copies one queue of the lock table after another. What it shows of one key is as it was at
//! one moment; what it shows of two keys may never have been true at the same time.

mod dot;
mod json;
mod keys;
mod names;
mod text;

use foreshore_base::TxnId;
use foreshore_env::time::Duration;
use foreshore_txn::{
    LockManager, LockMode, MAX_BLOCKERS, VictimReason,
    lock::{BlockerView, TransactionView},
};

use crate::database::Database;
pub(crate) use names::Names;
pub(crate) use text::wish_of;

/// A key, in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyView {
    /// As people read it: text as it is, integers in digits, tuples by their fields in brackets, everything else as
    /// bytes with escapes.
    pub text: String,
    /// Its encoding; no more than the first 64 bytes.
    pub bytes: Vec<u8>,
    /// Whether it is longer.
    pub truncated: bool,
    form: KeyForm,
}

/// What [`KeyView::text`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyForm {
    /// A number, a truth value, or a tuple by its fields.
    Plain,
    /// Text as it is.
    Text,
    /// Bytes, those that are no text escaped.
    Escaped,
}

/// What a lock is on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockTarget {
    /// The database as a whole: everybody announces there what it is going to do in tables.
    Database,
    /// A table.
    Table {
        /// Its name.
        table: String,
    },
    /// A key, the gap between it and the next key, or both: the mode says which.
    Key {
        /// The table's name.
        table: String,
        /// The key.
        key: KeyView,
    },
    /// The gap below the first key of a table.
    BelowFirstKey {
        /// The table's name.
        table: String,
    },
    /// A key that nobody waits for, in a database opened without [`Options::lock_notes`](crate::Options::lock_notes).
    Unknown {
        /// Its hash.
        name: u64,
    },
}

/// A lock that is held, or waited for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockView {
    /// Whose.
    pub transaction: TransactionView,
    /// On what.
    pub target: LockTarget,
    /// The mode that it has.
    pub granted: Option<LockMode>,
    /// The mode that it waits for.
    pub wanted: Option<LockMode>,
    /// How long it has had the lock; with [`Options::lock_notes`](crate::Options::lock_notes), for keys.
    pub held_for: Option<Duration>,
    /// How long it has waited.
    pub waited: Option<Duration>,
}

/// The locks of a database. Made by [`Database::locks`]. Shown as text, a line for each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockList {
    /// The locks: those on tables first, the others in no particular order.
    pub locks: Vec<LockView>,
    /// How many more there are.
    pub omitted: u64,
}

/// A transaction that waits for a lock, and who is in its way. Shown as text, it says why in terms of keys and gaps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitView {
    /// Who waits.
    pub transaction: TransactionView,
    /// For what.
    pub target: LockTarget,
    /// The mode that it waits for.
    pub wanted: LockMode,
    /// The mode that it has there already.
    pub held: Option<LockMode>,
    /// Which of its waits this is: no two of a transaction have the same number. 0 in reports about those who gave way.
    pub number: u64,
    /// How long it has waited.
    pub waited: Duration,
    /// Who is in the way: the first [`MAX_BLOCKERS_SHOWN`], in the order in which they came.
    pub blockers: Vec<BlockerView>,
    /// How many more there are.
    pub blockers_omitted: usize,
}

/// Everybody who waits for a lock. Made by [`Database::waits_for`]. Shown as text, a line for each, as [`WaitView`] is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitGraph {
    /// The waiters. An edge was true at one moment, two edges not necessarily at the same: a cycle seen here is a
    /// deadlock only if it is in [`Database::deadlocks`] afterwards.
    pub waits: Vec<WaitView>,
}

/// A deadlock that was resolved, or a wait that was ended lest it become part of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadlockView {
    /// Each waited for the next, and the last for the first. They have no blockers: that is the next one. If the reason
    /// is not a deadlock, only what the victim waited for, with the first eight of those in its way.
    pub cycle: Vec<WaitView>,
    /// Who gave way.
    pub victim: TxnId,
    /// Why it had to.
    pub reason: VictimReason,
    /// The transaction that the reason names.
    pub older: Option<TransactionView>,
    /// When, in seconds since 1970.
    pub at_unix_seconds: u64,
}

/// Those in the way of one waiter that views show.
pub const MAX_BLOCKERS_SHOWN: usize = MAX_BLOCKERS;

/// Locks that [`Database::locks`] shows.
pub const MAX_LOCKS_SHOWN: usize = 100_000;

impl Database {
    /// The locks that views look at: none in a fork of the process that opened the database.
    fn viewed(&self) -> Option<&LockManager> {
        let engine = self.engine();
        if engine.is_forked() { None } else { Some(engine.locks()) }
    }

    /// The locks that are held or waited for, at most [`MAX_LOCKS_SHOWN`]. Stops nobody; what it shows of one key is as
    /// it was at one moment, and what it shows of two may never have been true at the same time.
    ///
    /// Keys are known where somebody waits, and everywhere with [`Options::lock_notes`](crate::Options::lock_notes). In
    /// a fork of the process that opened the database this view and the others are empty.
    pub fn locks(&self) -> LockList {
        let Some(manager) = self.viewed() else { return LockList { locks: Vec::new(), omitted: 0 } };
        let names = Names::of(self);
        let (locks, omitted) = manager.locks(MAX_LOCKS_SHOWN);
        LockList { locks: locks.into_iter().map(|lock| names.lock(lock)).collect(), omitted }
    }

    /// Who waits for whom. Stops nobody.
    ///
    /// ```
    /// # use foreshore::Database;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// let waits = db.waits_for();
    /// assert!(waits.waits.is_empty());
    /// std::fs::write(directory.path().with_extension("dot"), waits.to_dot())?;
    /// # std::fs::remove_file(directory.path().with_extension("dot"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waits_for(&self) -> WaitGraph {
        let Some(manager) = self.viewed() else { return WaitGraph { waits: Vec::new() } };
        let names = Names::of(self);
        WaitGraph { waits: manager.waits().into_iter().map(|wait| names.wait(wait)).collect() }
    }

    /// The transactions that wait for a lock ([`Transaction::id`](crate::Transaction::id)), each with the number of the
    /// wait that it is in ([`WaitView::number`]): for those who look often. Takes no lock and no latch.
    pub fn waiters(&self) -> Vec<(TxnId, u64)> {
        self.viewed().map(LockManager::waiters).unwrap_or_default()
    }

    /// Why a transaction ([`Transaction::id`](crate::Transaction::id)) does not go on: the key or gap that it waits
    /// for, and who has it. `None` if it waits for no lock.
    pub fn explain_wait(&self, transaction: TxnId) -> Option<WaitView> {
        let wait = self.viewed()?.wait_of(transaction)?;
        Some(Names::of(self).wait(wait))
    }

    /// The newest 128 of those who had to give way, oldest first: in deadlocks, or under a policy against them; who
    /// waited for whom, for what, for how long, and why it was this one. Not those who asked not to wait
    /// ([`Error::WouldBlock`](crate::Error::WouldBlock)) or for so long only
    /// ([`Error::LockTimeout`](crate::Error::LockTimeout)): their error says it.
    pub fn deadlocks(&self) -> Vec<DeadlockView> {
        let Some(manager) = self.viewed() else { return Vec::new() };
        let names = Names::of(self);
        manager.deadlocks().iter().map(|report| names.deadlock(report)).collect()
    }
}

impl LockList {
    /// `{"locks":[…],"omitted":n}` on one line.
    pub fn to_json(&self) -> String {
        json::lock_list(self)
    }
}

impl WaitGraph {
    /// `{"waits":[…]}` on one line.
    pub fn to_json(&self) -> String {
        json::wait_graph(self)
    }

    /// For Graphviz: an arrow from each waiter to everybody in its way, dashed to those that only came first.
    pub fn to_dot(&self) -> String {
        dot::wait_graph(self)
    }
}

impl WaitView {
    /// As in [`WaitGraph::to_json`].
    pub fn to_json(&self) -> String {
        json::wait(self)
    }
}

impl DeadlockView {
    /// `{"cycle":[…],"victim":n,"kind":"…","reason":"…","at_unix_seconds":n}` on one line. The kind is a word that
    /// stays the same: `deadlock`, `suspicion`, `wait_die`, `wound_wait`, `timeout` or `no_wait`; the reason is for
    /// people.
    pub fn to_json(&self) -> String {
        json::deadlock(self)
    }

    /// For Graphviz: an arrow from each to whom it waited for, the victim in a double frame.
    pub fn to_dot(&self) -> String {
        dot::deadlock(self)
    }

    /// What the victim waited for.
    pub(crate) fn wish(&self) -> Option<&WaitView> {
        self.cycle.iter().find(|wait| wait.transaction.id == self.victim)
    }

    /// Why the victim had to give way, for people.
    pub fn why(&self) -> String {
        text::reason(self)
    }
}
