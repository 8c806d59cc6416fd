//! The ways in which a transaction may run. The suites take each.

use foreshore::{Database, Execution, ReadMode, Result, TransactOptions, Transaction};

/// How a transaction comes to its locks, and whose thread runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each lock when it is needed, in the caller's thread.
    Dynamic,
    /// As `Dynamic`, and reads need no locks where they can do without.
    Hybrid,
    /// Planned by reconnaissance, in the caller's thread.
    Planned,
    /// Planned by reconnaissance, in a thread of partitioned execution.
    Submitted,
}

impl Way {
    pub(crate) const ALL: [Way; 4] = [Way::Dynamic, Way::Hybrid, Way::Planned, Way::Submitted];

    /// Runs a body to its end. Planned or submitted it runs twice at least, and only its last run counts.
    pub(crate) fn run<R: Send + 'static>(
        self,
        db: &Database,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.run_with(db, &TransactOptions::default(), body)
    }

    pub(crate) fn run_with<R: Send + 'static>(
        self,
        db: &Database,
        options: &TransactOptions,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let (execution, read_mode) = match self {
            Way::Dynamic => (Execution::Dynamic, ReadMode::Locking),
            Way::Hybrid => (Execution::Dynamic, ReadMode::Hybrid),
            Way::Planned => (Execution::Planned, ReadMode::Locking),
            Way::Submitted => return db.plan().options(options.clone()).submit(body)?.wait(),
        };
        let (execution, read_mode) = (Some(execution), Some(read_mode));
        db.transact_with(&TransactOptions { execution, read_mode, ..options.clone() }, body)
    }
}
