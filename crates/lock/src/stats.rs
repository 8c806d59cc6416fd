//! What a lock manager has done so far.

use foreshore_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use foreshore_env::time::Duration;

/// Figures since the lock manager was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Locks on keys that were granted and given back.
    pub released: u64,
    /// Requests that had to wait, for keys and for tables.
    pub waits: u64,
    /// Time spent waiting, in all.
    pub waited_ns: u64,
    /// The longest wait.
    pub longest_wait_ns: u64,
    /// Deadlocks resolved, each by one victim.
    pub deadlocks: u64,
    /// Times that digests showed a cycle and the exact walk did not, or somebody else had resolved it by then. Nobody
    /// was harmed.
    pub suspicions_refuted: u64,
    /// Transactions that gave way without a confirmed deadlock, under a policy that asks for that.
    pub precautions: u64,
    /// Locks on keys that became one on their table.
    pub escalations: u64,
    /// Times that they could not, because others were in the way.
    pub escalations_refused: u64,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// Waits that were cancelled.
    pub cancelled: u64,
}

/// The figures of waits. Written where somebody waits, which is slow anyway; every field by everybody, Relaxed: they
/// order nothing.
#[derive(Debug, Default)]
pub(crate) struct WaitCounters {
    pub(crate) waits: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) longest_wait_ns: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    pub(crate) suspicions_refuted: AtomicU64,
    pub(crate) precautions: AtomicU64,
    pub(crate) escalations: AtomicU64,
    pub(crate) escalations_refused: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) cancelled: AtomicU64,
}

impl WaitCounters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn waited(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        WaitCounters::add(&self.waits);
        self.waited_ns.fetch_add(ns, Relaxed);
        self.longest_wait_ns.fetch_max(ns, Relaxed);
    }

    pub(crate) fn fill(&self, stats: &mut LockStats) {
        stats.waits = self.waits.load(Relaxed);
        stats.waited_ns = self.waited_ns.load(Relaxed);
        stats.longest_wait_ns = self.longest_wait_ns.load(Relaxed);
        stats.deadlocks = self.deadlocks.load(Relaxed);
        stats.suspicions_refuted = self.suspicions_refuted.load(Relaxed);
        stats.precautions = self.precautions.load(Relaxed);
        stats.escalations = self.escalations.load(Relaxed);
        stats.escalations_refused = self.escalations_refused.load(Relaxed);
        stats.timeouts = self.timeouts.load(Relaxed);
        stats.cancelled = self.cancelled.load(Relaxed);
    }
}
