//! How far a recovery is, for those who wait for it.

use std::fmt;

use foreshore_base::Lsn;
use foreshore_env::sync::Arc;

/// Bytes of the log between two reports of the pass forward.
const REPORT_EVERY: u64 = 1 << 20;

/// What a recovery is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryPhase {
    /// History is repeated: measured in bytes of the log.
    Redo,
    /// What had not committed is undone: measured in transactions.
    Undo,
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// What is being done.
    pub phase: RecoveryPhase,
    /// How much of it is done, in what the [phase](RecoveryPhase) is measured in.
    pub done: u64,
    /// How much there is to do in this phase, measured in the same.
    pub total: u64,
}

/// Whom a recovery tells how far it is: called by the thread that opens the database, at the beginning and the end of
/// each phase and now and then in between. What it does, recovery waits for.
#[derive(Clone)]
pub struct RecoveryObserver(Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

impl RecoveryObserver {
    /// Calls `observe`.
    pub fn new(observe: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> RecoveryObserver {
        RecoveryObserver(Arc::new(observe))
    }
}

impl fmt::Debug for RecoveryObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryObserver")
    }
}

/// One phase that is under way.
pub(super) struct Reports<'a> {
    observer: Option<&'a RecoveryObserver>,
    now: RecoveryProgress,
    reported: u64,
}

impl<'a> Reports<'a> {
    pub(super) fn begin(
        observer: Option<&'a RecoveryObserver>,
        phase: RecoveryPhase,
        total: u64,
    ) -> Reports<'a> {
        let reports = Reports { observer, now: RecoveryProgress { phase, done: 0, total }, reported: 0 };
        reports.tell();
        reports
    }

    fn tell(&self) {
        if let Some(observer) = self.observer {
            (observer.0)(self.now);
        }
    }

    /// The pass forward, from `from` on, is at `lsn`.
    #[inline]
    pub(super) fn at(&mut self, from: Lsn, lsn: Lsn) {
        self.now.done = lsn.0.saturating_sub(from.0).min(self.now.total);
        if self.now.done - self.reported >= REPORT_EVERY {
            self.reported = self.now.done;
            self.tell();
        }
    }

    /// One more transaction is undone.
    pub(super) fn one_more(&mut self) {
        self.now.done += 1;
        self.tell();
    }

    /// The phase is over.
    pub(super) fn end(mut self) {
        if self.now.done < self.now.total {
            self.now.done = self.now.total;
            self.tell();
        }
    }
}
