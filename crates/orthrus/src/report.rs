//! What the threads tell of themselves.

/// What the threads have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Transactions that were done, whatever came of them.
    pub done: u64,
    /// Transactions that were begun and not ended when this was asked.
    pub in_flight: u64,
    /// Transactions that nobody had begun when this was asked.
    pub queued: u64,
    /// Footprints whose locks were asked for, each time.
    pub footprints: u64,
    /// Partitions that they went to, in all.
    pub visits: u64,
    /// Messages that carried a footprint: for each time that its locks were asked for, one more than it has partitions.
    pub messages: u64,
    /// Messages that carried locks to be given back: one for each partition.
    pub releases: u64,
    /// Messages that found their ring full and waited at their sender.
    pub rings_full: u64,
    /// Locks that were not free when they were asked for.
    pub waits: u64,
    /// How often a transaction was put off for a little: a table was locked, a deadlock was resolved, as many
    /// transactions were open as may be, or one was to go on alone in the log. One that waits is counted each time that
    /// it has looked again.
    pub later: u64,
    /// Threads that lock, when this was asked.
    pub controllers: u64,
    /// Threads that began to lock because there was more to lock than those could who did, in automatic mode.
    pub to_control: u64,
    /// Threads that began to run transactions for the like reason.
    pub to_execution: u64,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It locks and unlocks, in its partitions.
    Control,
    /// It runs transactions.
    Execution,
}

/// One of the threads, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStats {
    /// What it does now.
    pub role: Role,
    /// Partitions that it looks after.
    pub partitions: usize,
    /// Transactions that it has run to their end.
    pub done: u64,
    /// Whether it stays on one processor, as it was told to.
    pub pinned: bool,
}
