//! How far the log is settled: below a place in it, every transaction that has a record there has ended, durably.
//!
//! C. Mohan, *Commit_LSN: A Novel and Simple Method for Reducing Locking and Latching in Transaction Processing
//! Systems* (VLDB 1990): a page whose LSN is below the first record of the oldest open transaction shows nothing that
//! is not committed, and whoever reads it needs no locks to know that. It departs from the paper in that "ended" is
//! "ended, and the end is durable" here, so that reading such a page makes nobody depend on a commit that a crash can
//! take back.
//!
//! TXN-37: a page whose LSN is below [`Settled::lsn`] shows committed and durable changes only. The argument: the place
//! is the smaller of the log's tail, read *first*, and of the first records of all open transactions, read after that.
//! Somebody with a record below it had its place in the table before that record was in the log (TXN-3: the store of
//! `first` comes before the append, which advances the tail by a releasing exchange; the tail is read by an acquire).
//! So the look either found `first`, and then the place is not above it, or found that this transaction had given its
//! slot back: its commit or end record was in the log. The tail is read once more after the look, and the place counts
//! only when the log is durable to there. A rollback ends after its compensations, so the page shows these, too, or has
//! a greater LSN by them. Records of structure changes carry along what is not committed: their LSNs are greater than
//! those of the changes that they carry.

use foreshore_base::{Lsn, Result};
use foreshore_env::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use foreshore_wal::Log;

use crate::{life::Life, table::TxnTable};

/// How often the table of transactions is looked through at most: it costs some microseconds.
const INTERVAL: Duration = Duration::from_millis(1);

/// How far the log is settled, as far as anybody has looked.
#[derive(Debug)]
pub(crate) struct Settled {
    /// Ascends. Release, partner is the Acquire of readers: a thread that sees it sees the ends of all transactions
    /// before it.
    lsn: AtomicU64,
    /// No look before this, in nanoseconds since `began`. Written by whoever looks; relaxed, for it orders nothing.
    next_look_ns: AtomicU64,
    began: Instant,
    /// Found by the last look, and not durable yet: the place, and where the log ended after the look.
    found: Mutex<Option<(Lsn, Lsn)>>,
}

impl Settled {
    pub(crate) fn new() -> Settled {
        Settled {
            lsn: AtomicU64::new(0),
            next_look_ns: AtomicU64::new(0),
            began: Instant::now(),
            found: Mutex::new(None),
        }
    }

    /// Pages with a lower LSN are settled.
    #[inline]
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    /// Looks whether more is settled by now, unless somebody has done so a moment ago.
    #[cold]
    pub(crate) fn look(&self, life: &Life, log: &Log, transactions: &TxnTable) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if now < self.next_look_ns.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut found) = self.found.try_lock() else { return };
        self.next_look_ns.store(now.saturating_add(INTERVAL.as_nanos() as u64), Ordering::Relaxed);
        if found.is_none() {
            *found = look(life, log, transactions).ok();
        }
        if let Some((place, end)) = *found
            && log.durable() >= end
        {
            self.raise(place);
            *found = None;
        }
    }

    /// Looks at once, and makes the log durable for it.
    pub(crate) fn settle(&self, life: &Life, log: &Log, transactions: &TxnTable) -> Result<()> {
        let _only_one = self.found.lock();
        let (place, end) = look(life, log, transactions)?;
        log.flush(Lsn(end.0 - 1))?;
        self.raise(place);
        Ok(())
    }

    /// For those who hold the mutex.
    fn raise(&self, place: Lsn) {
        self.lsn.store(place.0.max(self.lsn.load(Ordering::Relaxed)), Ordering::Release);
    }
}

/// The place, and where the log ended after the look.
fn look(life: &Life, log: &Log, transactions: &TxnTable) -> Result<(Lsn, Lsn)> {
    let seen = transactions.settled(|| log.tail());
    // TXN-39: a transaction that could not undo its changes gives its place in the table back all the same, after this
    // fails.
    life.check()?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foreshore_env::{disk::Disk, sync::Arc, thread};
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{BeginOptions, Engine, EngineOptions};

    /// TXN-39: what could not be undone any more does not count as settled, though its transaction has ended and all of
    /// its records are durable.
    #[test]
    fn what_was_not_undone_is_never_settled() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", &[]).unwrap();
        let core = engine.core();
        let look = || {
            thread::sleep(INTERVAL * 2);
            core.settled.look(&core.life, &core.log, &core.transactions);
            core.settled.lsn()
        };
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, b"key", b"never committed").unwrap();
        let written = core.log.tail();
        core.log.flush(Lsn(written.0 - 1)).unwrap();
        assert!(look() < written);
        core.log.poison("the disk is gone");
        assert!(txn.rollback().is_err());
        assert!(look() < written);
    }
}
