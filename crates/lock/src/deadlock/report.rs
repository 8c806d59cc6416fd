//! What people are told about a deadlock.

use std::fmt;
use std::panic::Location;

use foreshore_base::{Printable, TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::time::Duration;

use crate::error::{Blocker, LockMode, Refusal};
use crate::name::KeyRef;
use crate::view::{BlockerView, TransactionView};

/// Longest part of a key that a report keeps.
const KEPT_BYTES: usize = 64;

/// The first 64 bytes of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyBytes {
    bytes: [u8; KEPT_BYTES],
    kept: u8,
    truncated: bool,
}

impl KeyBytes {
    /// Of a key in a table; there is none below all others.
    pub(crate) fn of(key: KeyRef<'_>) -> Option<KeyBytes> {
        match key {
            KeyRef::Key(bytes) => Some(KeyBytes::new(bytes)),
            KeyRef::NegativeInfinity => None,
        }
    }

    /// Keeps the beginning of a key.
    pub fn new(key: &[u8]) -> KeyBytes {
        let kept = key.len().min(KEPT_BYTES);
        let mut bytes = [0; KEPT_BYTES];
        bytes[..kept].copy_from_slice(&key[..kept]);
        KeyBytes { bytes, kept: kept as u8, truncated: kept < key.len() }
    }

    /// The bytes that were kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.kept)]
    }

    /// Whether the key was longer.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

impl fmt::Display for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes().escape_ascii())?;
        f.write_str(if self.truncated { "…" } else { "" })
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A transaction that waits, and what for. In a deadlock the next one in the cycle is in its way.
#[derive(Clone, Debug)]
pub struct DeadlockEdge {
    /// The transaction.
    pub txn: TxnId,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// Its priority.
    pub priority: i8,
    /// The call that began it.
    pub begun_at: Option<&'static Location<'static>>,
    /// The table in which, or for which, it waits.
    pub table: TableId,
    /// The key, or `None` for the place before every key, and for a lock on the table itself.
    pub key: Option<KeyBytes>,
    /// The mode that it waits for.
    pub mode: LockMode,
    /// The mode that it has there already, if its wait is for more.
    pub held: Option<LockMode>,
    /// How long it has waited.
    pub waited: Duration,
}

impl fmt::Display for DeadlockEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_who(f)?;
        write!(f, " waited {} ms for ", self.waited.as_millis())?;
        self.write_wish(f)
    }
}

impl DeadlockEdge {
    /// The transaction, as views have it.
    pub fn transaction(&self) -> TransactionView {
        let DeadlockEdge { txn: id, ref label, priority, begun_at, .. } = *self;
        TransactionView { id, label: label.clone(), priority: Some(priority), begun_at, open_for: None }
    }

    pub(crate) fn write_who(&self, f: &mut impl fmt::Write) -> fmt::Result {
        write_transaction(f, self.txn, self.label.as_deref(), Some(self.priority))
    }

    /// The lock that it waits for.
    pub(crate) fn write_wish(&self, f: &mut impl fmt::Write) -> fmt::Result {
        write!(f, "{} on ", self.mode)?;
        match (&self.key, self.mode) {
            (Some(key), _) => write!(f, "key {key} of table {}", self.table)?,
            (None, LockMode::Key(_)) => write!(f, "the place before all keys of table {}", self.table)?,
            (None, LockMode::Table(_)) => write!(f, "table {}", self.table)?,
        }
        match self.held {
            Some(held) => write!(f, ", holding {held}"),
            None => Ok(()),
        }
    }
}

/// A transaction as messages name it: with its priority, unless that is the one of all.
pub(crate) fn write_transaction(
    f: &mut impl fmt::Write,
    txn: TxnId,
    label: Option<&str>,
    priority: Option<i8>,
) -> fmt::Result {
    write!(f, "transaction {txn}")?;
    let label = label.map(Printable);
    match (label, priority.filter(|priority| *priority != 0)) {
        (Some(label), Some(priority)) => write!(f, " ({label}, priority {priority})"),
        (Some(label), None) => write!(f, " ({label})"),
        (None, Some(priority)) => write!(f, " (priority {priority})"),
        (None, None) => Ok(()),
    }
}

/// Why a transaction has to give way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VictimReason {
    /// It was in a cycle of transactions that waited for each other, and was chosen to break it.
    Deadlock,
    /// It seemed to be in a cycle, and the option `deadlock_confirmation` is off.
    Suspicion,
    /// Wait-die: it would have had to wait for this transaction, which is older or of higher priority.
    YoungerThan(TxnId),
    /// Wound-wait: this transaction, which is older or of higher priority, had to wait for it.
    WoundedBy(TxnId),
    /// It waited for as long as the option `deadlock_timeout` allows.
    TimedOut,
    /// [`crate::DeadlockPolicy::NoWait`]: it would have had to wait.
    NoWait,
}

impl VictimReason {
    /// The transaction, older or of higher priority, that it is about, if it is about one.
    pub fn older(self) -> Option<TxnId> {
        match self {
            VictimReason::YoungerThan(older) | VictimReason::WoundedBy(older) => Some(older),
            VictimReason::Deadlock
            | VictimReason::Suspicion
            | VictimReason::TimedOut
            | VictimReason::NoWait => None,
        }
    }
}

/// A deadlock: a cycle of transactions each of which waits for the next, and the last for the first. Or a wait that was
/// ended because it could have become part of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadlockReport {
    /// The cycle; the wait of the victim alone if [`DeadlockReport::reason`] is not a deadlock.
    pub cycle: Vec<DeadlockEdge>,
    /// Who gave way.
    pub victim: TxnId,
    /// Why it had to.
    pub reason: VictimReason,
    /// The transaction that the reason names.
    pub older: Option<TransactionView>,
    /// Who was in the way of the victim, the first eight of them, unless the cycle says so.
    pub blockers: Vec<BlockerView>,
    /// When it was found, in seconds since 1970.
    pub at_unix_seconds: u64,
}

impl DeadlockReport {
    /// The same for somebody who has tried again until the limit to the wait was over: the lock that the victim wanted
    /// last, for which it had waited so long in all, and who was in its way.
    pub fn refusal(&self, waited: Duration, timeout: Option<Duration>) -> Box<Refusal> {
        let wish = self.cycle.iter().find(|edge| edge.txn == self.victim);
        Box::new(Refusal {
            wish: wish.map(|wish| DeadlockEdge { waited, ..wish.clone() }),
            blockers: self.blockers.iter().map(Blocker::from).collect(),
            timeout,
        })
    }
}

impl fmt::Display for DeadlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victim = self.victim;
        match self.reason {
            VictimReason::Deadlock => {
                write!(f, "deadlock of {} transactions, transaction {victim} gave way: ", self.cycle.len())?;
            }
            VictimReason::Suspicion => write!(f, "transaction {victim} gave way to a suspected deadlock: ")?,
            VictimReason::YoungerThan(older) => {
                write!(
                    f,
                    "transaction {victim} gave way to the older transaction {older} (or of higher priority): "
                )?;
            }
            VictimReason::WoundedBy(older) => {
                write!(
                    f,
                    "transaction {victim} was in the way of the older transaction {older} (or of higher priority) and gave way: "
                )?;
            }
            VictimReason::TimedOut => write!(f, "transaction {victim} gave way after a long wait: ")?,
            VictimReason::NoWait => write!(f, "transaction {victim} gave way rather than wait: ")?,
        }
        for (place, edge) in self.cycle.iter().enumerate() {
            write!(f, "{}{edge}", if place == 0 { "" } else { "; " })?;
        }
        for (place, blocker) in self.blockers.iter().enumerate() {
            f.write_str(if place == 0 { "; in its way: " } else { ", " })?;
            write!(
                f,
                "{} {} {}",
                blocker.transaction,
                if blocker.holds { "holds" } else { "came first for" },
                blocker.mode
            )?;
        }
        Ok(())
    }
}
