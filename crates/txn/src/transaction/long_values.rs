//! Long values whose chunks leave their pages when a transaction ends. No lock names a chunk, and nobody comes by where
//! they lie, so whoever has deleted them purges them, or has written them and takes that back (BTREE-14).

use std::mem;

use foreshore_base::Lsn;
use foreshore_env::time::{Duration, Instant};

use super::{session::TxnSession, waiting::Waiting};

/// How long the end of a transaction waits for the latches of pages that its long values leave.
const PURGE_WAIT: Duration = Duration::from_millis(100);

/// What a transaction knows of its long values, by their ids.
#[derive(Debug, Default)]
pub(crate) struct LongValues {
    /// Those that it has deleted.
    deleted: Vec<u64>,
    /// Those that it has written, and its newest record before that. These ascend.
    written: Vec<(Lsn, u64)>,
    /// Those that it has written and taken back since: nobody has them, whatever its end.
    taken_back: Vec<u64>,
}

impl LongValues {
    pub(super) fn delete(&mut self, id: u64) {
        self.deleted.push(id);
    }

    pub(super) fn write(&mut self, before: Lsn, id: u64) {
        self.written.push((before, id));
    }

    /// The transaction has gone back to a record of its chain.
    pub(crate) fn take_back(&mut self, until: Lsn) {
        let first = self.written.partition_point(|(before, _)| *before < until);
        self.taken_back.extend(self.written.drain(first..).map(|(_, id)| id));
    }

    /// Whether a commit leaves all chunks where they are.
    #[inline]
    pub(crate) fn stay(&self) -> bool {
        self.deleted.is_empty() && self.taken_back.is_empty()
    }
}

impl TxnSession {
    /// What is due between the commit's record and the end of its locks: long values that it has deleted leave their
    /// pages.
    #[inline]
    pub(crate) fn purge_deleted(&mut self) {
        if !self.long_values.stay() {
            let LongValues { deleted, taken_back, .. } = mem::take(&mut self.long_values);
            self.purge_long_values([deleted, taken_back].concat());
        }
    }

    /// What is due between the last record of a rollback and the end of its locks: long values that it has written
    /// leave their pages.
    #[inline]
    pub(crate) fn purge_written(&mut self) {
        self.long_values.take_back(Lsn::ZERO);
        if !self.long_values.taken_back.is_empty() {
            let LongValues { taken_back, .. } = mem::take(&mut self.long_values);
            self.purge_long_values(taken_back);
        }
    }

    #[cold]
    fn purge_long_values(&mut self, mut ids: Vec<u64>) {
        // The transaction is over: its own deadline says nothing about this.
        self.waiting = Waiting { deadline: Some(Instant::now() + PURGE_WAIT), ..Waiting::default() };
        let core = self.core();
        core.long_values().purge_long_values(self, &mut ids);
        core.note_log_growth(core.log.tail());
    }
}
