//! Whether a database may still be used, for all who share it.

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    process::Owner,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use foreshore_lock::Lifeline;
use foreshore_wal::Log;

/// A database lives from its opening until it is closed, or its log fails. There is no way back. A fork of its process
/// has a dead copy: the threads are not there that write, flush and wake, and a latch may be held by one of them for
/// ever.
#[derive(Debug)]
pub(crate) struct Life {
    log: Arc<Log>,
    owner: Owner,
    /// Set once by close, with release; read with acquire by whoever begins anything.
    closed: AtomicBool,
}

impl Life {
    pub(crate) fn new(log: &Arc<Log>) -> Arc<Life> {
        Arc::new(Life { log: Arc::clone(log), owner: Owner::here(), closed: AtomicBool::new(false) })
    }

    /// Whether anything may still be done.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        match self.log.poisoned() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Whether this is the process that has opened it. Asked before anything is waited for or given back.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.owner.is_here() { Ok(()) } else { Err(StorageError::Forked) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Nothing more is begun, and nobody waits for a lock any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// This life as the lock manager knows it: those who wait for locks stop when it ends.
    pub(crate) fn lifeline(self: &Arc<Life>) -> Lifeline {
        let life = Arc::clone(self);
        Lifeline::new(move || life.check())
    }
}
