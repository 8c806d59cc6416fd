//! Who counts on the end of the data file: backups that copy its pages, and the compaction that moves and cuts them.
//!
//! What a backup has copied begins at a checkpoint of its own, and the log from there on may speak of any page that the
//! file had then: until the pages are copied nobody cuts. All else a compaction does may go on beside it.
//!
//! TXN-34: no thread waits here for ever, and none at all for something that its own thread has begun: both tell their
//! users how far they are, and those may call anything.

use foreshore_env::{
    sync::{Condvar, Mutex, MutexGuard},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::error::TxnError;

/// How long a thread waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(60);

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
    pub(crate) fn compact(&self) -> Result<Turn<'_>, TxnError> {
        self.turn(Use::Compact, |users, mine| match &users.compacting {
            Some(other) => Err((COMPACTING, other.id() == mine.id())),
            None => users.none_copies(mine),
        })
    }

    /// For the cut at the end of a compaction.
    pub(crate) fn cut(&self) -> Result<Turn<'_>, TxnError> {
        self.turn(Use::Cut, Users::none_copies)
    }

    /// For a backup: while nobody cuts.
    pub(crate) fn copy(&self) -> Result<Turn<'_>, TxnError> {
        self.turn(Use::Copy, |users, _| if users.cutting { Err((CUTTING, false)) } else { Ok(()) })
    }

    /// Waits until `free` says so; its error says who is in the way, and whether that is this thread itself.
    fn turn(
        &self,
        of: Use,
        free: impl Fn(&Users, &Thread) -> Result<(), (TxnError, bool)>,
    ) -> Result<Turn<'_>, TxnError> {
        let (thread, deadline) = (thread::current(), Instant::now() + TURN_WAIT);
        let mut users: MutexGuard<'_, Users> = self.users.lock();
        while let Err((busy, mine)) = free(&users, &thread) {
            if mine || Instant::now() >= deadline {
                return Err(busy);
            }
            users = self.over.wait_until(users, deadline);
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
