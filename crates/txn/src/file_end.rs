//! Who counts on the end of the data file: backups that copy its pages, and the compaction that moves and cuts them.
//!
//! What a backup has copied begins at a checkpoint of its own, and the log from there on may speak of any page that the
//! file had then: until the pages are copied nobody cuts. All else a compaction does may go on beside it.
//!
//! TXN-34: no thread waits here for ever, none when the database is closed, and none at all for something that its own
//! thread has begun: both tell their users how far they are, and those may call anything.

use foreshore_env::{
    sync::{Condvar, Mutex, MutexGuard},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::{error::TxnError, life::Life};

/// How long a thread waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(60);
/// Between two looks whether the database is still open.
const LOOK_WHETHER_OPEN: Duration = Duration::from_millis(100);

const COMPACTING: TxnError = TxnError::Busy { reason: "another compaction of this database is under way" };
const COPYING: TxnError = TxnError::Busy { reason: "a backup copies the pages of this database" };
const CUTTING: TxnError = TxnError::Busy { reason: "a compaction cuts the file of this database" };

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FileEnd {
    /// Held for a look.
    users: Mutex<Users>,
    /// Somebody's turn is over.
    over: Condvar,
}

/// Guarded by the mutex of [`FileEnd::users`].
#[derive(Debug, Default)]
struct Users {
    /// Whose compaction is under way.
    compacting: Option<Thread>,
    /// The compaction cuts the file: for the length of a checkpoint, and it calls nobody meanwhile.
    cutting: bool,
    /// Whose backups copy pages.
    copying: Vec<Thread>,
}

/// What a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Compact,
    Cut,
    Copy,
}

/// The right to go on; over when it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn<'e> {
    end: &'e FileEnd,
    of: Use,
    thread: Thread,
}

impl FileEnd {
    /// For a compaction: while nobody else compacts. That a backup copies pages now is told before any page has moved.
    pub(crate) fn compact(&self, life: &Life) -> Result<Turn<'_>, TxnError> {
        self.turn(life, Use::Compact, |users, mine| match &users.compacting {
            Some(other) => Err((COMPACTING, other.id() == mine.id())),
            None => users.none_copies(mine),
        })
    }

    /// For the cut at the end of a compaction.
    pub(crate) fn cut(&self, life: &Life) -> Result<Turn<'_>, TxnError> {
        self.turn(life, Use::Cut, Users::none_copies)
    }

    /// For a backup: while nobody cuts.
    pub(crate) fn copy(&self, life: &Life) -> Result<Turn<'_>, TxnError> {
        self.turn(life, Use::Copy, |users, _| if users.cutting { Err((CUTTING, false)) } else { Ok(()) })
    }

    /// Waits until `free` says so; its error says who is in the way, and whether that is this thread itself. That
    /// `life` is over is another error.
    fn turn(
        &self,
        life: &Life,
        of: Use,
        free: impl Fn(&Users, &Thread) -> Result<(), (TxnError, bool)>,
    ) -> Result<Turn<'_>, TxnError> {
        let (thread, deadline) = (thread::current(), Instant::now() + TURN_WAIT);
        let mut users: MutexGuard<'_, Users> = self.users.lock();
        while let Err((busy, mine)) = free(&users, &thread) {
            life.check()?;
            let now = Instant::now();
            if mine || now >= deadline {
                return Err(busy);
            }
            users = self.over.wait_until(users, deadline.min(now + LOOK_WHETHER_OPEN));
        }
        match of {
            Use::Compact => users.compacting = Some(thread.clone()),
            Use::Cut => users.cutting = true,
            Use::Copy => users.copying.push(thread.clone()),
        }
        Ok(Turn { end: self, of, thread })
    }
}

impl Users {
    fn none_copies(&self, mine: &Thread) -> Result<(), (TxnError, bool)> {
        if self.copying.is_empty() {
            return Ok(());
        }
        Err((COPYING, self.copying.iter().any(|other| other.id() == mine.id())))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut users = self.end.users.lock();
        match self.of {
            Use::Compact => users.compacting = None,
            Use::Cut => users.cutting = false,
            Use::Copy => {
                let mine = users.copying.iter().position(|other| other.id() == self.thread.id());
                if let Some(index) = mine {
                    users.copying.swap_remove(index);
                }
            }
        }
        self.end.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foreshore_base::StorageError;
    use foreshore_env::{disk::Disk, sync::Arc};
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{Engine, EngineOptions};

    /// Whoever waited here for its turn did so for a minute, though the database was closed.
    #[test]
    fn nobody_waits_for_a_turn_in_a_closed_database() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let core = engine.core();
        let copies = core.file_end.copy(&core.life).unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| core.file_end.cut(&core.life).map(drop));
            thread::sleep(LOOK_WHETHER_OPEN);
            assert!(!waiter.is_finished());
            engine.close().unwrap();
            let ended = waiter.join().unwrap();
            assert!(matches!(ended, Err(TxnError::Storage(StorageError::Closed))), "{ended:?}");
        });
        assert!(begun.elapsed() < TURN_WAIT / 2, "{:?}", begun.elapsed());
        drop(copies);
    }
}
