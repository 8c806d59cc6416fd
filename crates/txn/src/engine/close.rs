//! How an engine is closed, by whom, and in a fork of its process.

use std::mem;

use foreshore_base::Result;
use foreshore_env::{
    sync::{Arc, Mutex, atomic::Ordering},
    thread,
};

use super::Engine;
use crate::{committer, core::Core};

/// How far an engine is from being closed.
pub(super) enum Standing {
    Open(Running),
    /// A thread closes it, for one that may not wait for that.
    Closing(thread::JoinHandle<Result<()>>),
    Closed,
}

/// What only an open engine has.
pub(super) struct Running {
    pub(super) checkpointer: thread::JoinHandle<()>,
    pub(super) committer: thread::JoinHandle<()>,
    /// The lock file. Given back last, when nobody writes any more.
    pub(super) _lock: Box<dyn Send + Sync>,
}

impl Engine {
    /// Closes the database: what was committed is durable when this returns, and everybody may open it again.
    /// Transactions that are still open find it closed; the next opening undoes them, and
    /// [`EngineStats::cut_off`](crate::EngineStats::cut_off) tells how many there are. Closing again does nothing.
    ///
    /// Whoever is woken by a thread for commits, as a future, this engine's or another's, gets back before that; the
    /// database is closed a moment later, unless no thread can be started for that. What fails then is told to whoever
    /// closes it again, and waits for it.
    ///
    /// # Errors
    /// [`StorageError::Forked`](foreshore_base::StorageError::Forked) in a fork of the process that opened it: nothing
    /// happens then.
    pub fn close(&self) -> Result<()> {
        self.core.life.check_process()?;
        if committer::is_here() {
            self.close_later();
            return Ok(());
        }
        let mut standing = self.standing.lock();
        match mem::replace(&mut *standing, Standing::Closed) {
            Standing::Open(running) => end(&self.core, running),
            // A panic there has been reported.
            Standing::Closing(thread) => thread.join().unwrap_or(Ok(())),
            Standing::Closed => Ok(()),
        }
    }

    /// The committer wakes those who wait for commits, and has come here with what one of them does. It waits for
    /// nobody who may be waiting for it: another thread closes the database, unless somebody does it already.
    fn close_later(&self) {
        let Some(mut standing) = self.standing.try_lock() else { return };
        *standing = match mem::replace(&mut *standing, Standing::Closed) {
            Standing::Open(running) => self.close_by_another(running),
            standing => standing,
        };
    }

    fn close_by_another(&self, running: Running) -> Standing {
        let core = Arc::clone(self.core.whole());
        // Nothing of it is dropped with a thread that does not start: nobody else may have the database yet.
        let running = Arc::new(Mutex::new(Some(running)));
        let taken = Arc::clone(&running);
        let closes = move || {
            let running = taken.lock().take();
            running.map_or(Ok(()), |running| end(&core, running))
        };
        match thread::Builder::new().name("foreshore-close".to_owned()).spawn(closes) {
            Ok(thread) => Standing::Closing(thread),
            Err(_) => {
                // There is no thread to be had. The others end by themselves.
                let running = running.lock().take();
                self.core.stop();
                let _ = self.core.shut_down();
                drop(running);
                Standing::Closed
            }
        }
    }
}

/// The end of an engine.
fn end(core: &Core, Running { checkpointer, committer, _lock }: Running) -> Result<()> {
    core.stop();
    // They end after what they are doing; a panic in one has been reported and changes nothing here.
    let _ = checkpointer.join();
    let _ = committer.join();
    core.shut_down()
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_forked() {
            // The threads and what ends with them are the other process's. The lock file is closed here: while it is
            // open, it is locked, though that process may have died.
            mem::forget(Arc::clone(self.core.whole()));
            if let Some(mut standing) = self.standing.try_lock() {
                match mem::replace(&mut *standing, Standing::Closed) {
                    Standing::Open(Running { checkpointer, committer, _lock }) => {
                        mem::forget((checkpointer, committer));
                    }
                    Standing::Closing(thread) => mem::forget(thread),
                    Standing::Closed => {}
                }
            }
            return;
        }
        // Whoever wants to know how it went calls `close`.
        let _ = self.close();
    }
}

impl Core {
    /// Nobody may do anything any more, and the engine's own threads end.
    pub(super) fn stop(&self) {
        self.life.close();
        self.growth.stop();
        self.committer.stop();
    }

    /// Writes everything, and stops the threads below. All steps are taken, whatever fails; the first failure is given.
    pub(super) fn shut_down(&self) -> Result<()> {
        let checkpoint = self.final_checkpoint();
        self.pool.close();
        let log = self.log.close();
        // From here on nobody can end any more.
        let cut_off = self.transactions.open_count().saturating_sub(self.prepared.len());
        self.cut_off.store(cut_off, Ordering::Relaxed);
        checkpoint.and(log)
    }
}
