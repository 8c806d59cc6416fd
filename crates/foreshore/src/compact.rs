//! Giving space back.

use std::ops::ControlFlow;

use foreshore_txn::CompactReport;

use crate::{
    database::Database,
    error::{Error, Result},
};

impl Database {
    /// Gives space back while the database is used: merges entries into fewer pages, moves pages from the end of the
    /// data file to free places before, and cuts the file. [`Stats::fragmented_bytes`](crate::Stats::fragmented_bytes)
    /// tells what is wholly free now; of that, 16 pages and a thirty-second of the pages in use stay, and no file gets
    /// shorter than 64 pages. What deleted records and half-empty leaves take besides is not known before they are
    /// visited.
    ///
    /// Others read and write meanwhile. What they have in use stays where it is ([`CompactReport::pages_left`]); a
    /// table that somebody has locked exclusively is left alone. Costs about three times the moved pages in log. The
    /// free pages that stay are there so that the file need not grow at once. Waits for a backup that copies pages, and
    /// for another compaction, a minute at most.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # const ROWS: TableDefinition<u32, &[u8]> = TableDefinition::new("rows");
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// # db.transact(|tx| {
    /// #     for row in 0..2000 {
    /// #         tx.put(ROWS, row, &[7_u8; 1000][..])?;
    /// #     }
    /// #     Ok(())
    /// # })?;
    /// db.drop_table("rows")?;
    /// let report = db.compact()?;
    /// assert!(report.pages_after < report.pages_before);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LockTimeout`] when somebody keeps the whole database locked for a minute, as a check does, or the log
    /// has no room for as long; [`Error::Busy`] when a backup or another compaction takes as long, or waits for this
    /// one because it calls it; [`Error::LogFull`] while others need all of the log; [`Error::ReadOnly`]; as any
    /// transaction that writes, [`Error::LogHeld`], [`Error::DiskFull`], [`Error::LimitExceeded`] if the data file is
    /// as large as it may be, [`Error::TooManyTransactions`], [`Error::PoolExhausted`], [`Error::Corrupted`],
    /// [`Error::Io`], [`Error::Closed`], [`Error::Poisoned`], [`Error::Forked`]. What was done until an error stays
    /// done, and is sound.
    pub fn compact(&self) -> Result<CompactReport> {
        self.compact_with(|_| ControlFlow::Continue(()))
    }

    /// As [`Database::compact`]; `progress` is called after each small step with what was done so far, also while the
    /// pages of dropped tables are waited for, and may stop the compaction: what was done stays done, and once pages
    /// move, the file is cut as far as that goes.
    ///
    /// # Errors
    /// As [`Database::compact`].
    pub fn compact_with(
        &self,
        mut progress: impl FnMut(CompactReport) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        let report = self.engine().compact(&mut progress);
        report.map_err(|error| Error::from_operation(error, self.inner()))
    }
}
