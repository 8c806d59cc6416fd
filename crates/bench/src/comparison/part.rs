//! What an observer is told of a comparison.

use foreshore_env::time::Duration;

use crate::Observer;

/// Tells an observer of a part as a part of the whole.
pub(super) struct Part<'o> {
    pub(super) observer: &'o dyn Observer,
    /// Rows loaded before, and in all.
    pub(super) rows: (u64, u64),
    /// Time passed before, and in all.
    pub(super) time: (Duration, Duration),
}

impl Observer for Part<'_> {
    fn loading(&self, rows: u64, _of: u64) {
        self.observer.loading(self.rows.0 + rows, self.rows.1);
    }

    fn running(&self, elapsed: Duration, _of: Duration, commits: u64) {
        let (before, total) = self.time;
        self.observer.running(before + elapsed, total, commits);
    }

    fn checking(&self) {}
}
