//! Backups: a copy of the database that is made while others write.
//!
//! 1. `control.backup`, a control file that says nothing yet, is the first file of the copy, but for the lock file:
//!    what has it is no database yet, and opening it says what it is. Whatever fails before another file is made, the
//!    backup can be tried again.
//! 2. A checkpoint, so that little of the log is needed, if one may be taken (TXN-42); from the control file of the
//!    last one on the log is kept (a [`Pin`]).
//! 3. The pages, each as the data file has it at some moment: as a crash would leave them.
//! 4. The log from the pin to its durable end, each record checked, and a mark under it. All that a page shows is in
//!    it: pages are written after their records.
//! 5. `control.backup` says what the control file of step 2 said, and becomes `control`, and the copy a database: one
//!    that crashed when step 4 began. Opening it recovers it.
//!
//! TXN-30: a copy has its control file when all else is durable in it, and whatever lacks it is not opened.
//!
//! TXN-31: a backup keeps the log for as long as that is at most a quarter of what the log may hold, beyond what others
//! need anyway, and nobody finds the log full for it; then it ends, not the work of others.

use std::{collections::BTreeMap, io, ops::ControlFlow, path::Path};

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    disk::{Disk, OpenMode},
    sync::{Arc, Mutex},
};

use crate::{
    control::{Control, ControlFile},
    core::Core,
    engine::{CONTROL, CONTROL_BACKUP, DATA, LOCK, LOG, sync_parent},
    error::TxnError,
};

/// Pages copied at once.
const CHUNK_PAGES: usize = 32;
/// Backups may keep one part in this many of the log.
const LOG_SHARE: u64 = 4;

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes copied.
    pub done_bytes: u64,
    /// Bytes to copy, as far as is known now: pages and log grow while they are copied.
    pub total_bytes: u64,
}

/// A backup that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Pages copied.
    pub pages: u64,
    /// Bytes of the log copied.
    pub log_bytes: u64,
    /// What was committed below this LSN is in the copy, and nothing else.
    pub end: Lsn,
}

/// From where backups need the log. Guarded by its mutex, which is held for a look.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By a number of each backup.
    from: BTreeMap<u64, Lsn>,
    next: u64,
}

impl Pins {
    /// From where the log is kept if its owner would release it below `log_from`: TXN-31. What others need is not held
    /// against a backup: the log would be kept without it.
    pub(crate) fn keep(&self, log_from: Lsn, capacity_bytes: u64) -> Lsn {
        let mut state = self.state.lock();
        state.from.retain(|_, from| log_from.0.saturating_sub(from.0) <= capacity_bytes / LOG_SHARE);
        state.from.values().copied().min().map_or(log_from, |from| from.min(log_from))
    }

    /// The backups that need the log below `log_from` end: work has no room because of them (TXN-31).
    pub(crate) fn give_way(&self, log_from: Lsn) {
        self.state.lock().from.retain(|_, from| *from >= log_from);
    }

    /// From where the oldest backup needs the log.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.state.lock().from.values().copied().min()
    }
}

/// Keeps the log for a backup until it is dropped.
struct Pin<'c> {
    pins: &'c Pins,
    number: u64,
}

impl<'c> Pin<'c> {
    /// Under the control file's mutex, so that no checkpoint has read the pins and not yet released.
    fn new(pins: &'c Pins, from: Lsn) -> Pin<'c> {
        let mut state = pins.state.lock();
        let number = state.next;
        state.next += 1;
        state.from.insert(number, from);
        drop(state);
        Pin { pins, number }
    }

    fn holds(&self) -> bool {
        self.pins.state.lock().from.contains_key(&self.number)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pins.state.lock().from.remove(&self.number);
    }
}

/// One backup.
pub(crate) struct Backup<'b> {
    pub(crate) core: &'b Core,
    /// Where the database is.
    pub(crate) own: (&'b dyn Disk, &'b Path),
    pub(crate) disk: &'b Arc<dyn Disk>,
    pub(crate) target: &'b Path,
    pub(crate) progress: &'b mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
}

impl Backup<'_> {
    /// The steps of the [module](self), in their order.
    pub(crate) fn run(mut self) -> Result<BackupReport, TxnError> {
        self.core.check_open()?;
        self.make_target()?;
        let lock = self.target.join(LOCK);
        let held = self.disk.lock(&lock).map_err(StorageError::io("lock", &lock))?;
        let _held = held.ok_or_else(|| self.occupied("somebody else is making something there"))?;
        // Again: until now somebody else may have been making something there.
        self.is_there()?;
        let begun = Control::new(self.core.log.id());
        let mut control = ControlFile::create(&**self.disk, &self.target.join(CONTROL_BACKUP), begun)?;
        self.sync(self.target)?;
        sync_parent(&**self.disk, self.target)?;
        // The copy's recovery begins at this checkpoint: until its pages are copied no compaction takes pages away that
        // the log from there on speaks of.
        let file_end = self.core.file_end.copy(&self.core.life)?;
        self.core.try_checkpoint()?;
        let (content, pin) = {
            let control = self.core.control.lock();
            let content = Control { clean: false, ..control.content() };
            (content, Pin::new(&self.core.backups, content.log_from))
        };
        let pages = self.copy_pages(&pin)?;
        drop(file_end);
        let log = self.target.join(LOG);
        self.disk.create_directory(&log).map_err(StorageError::io("make", &log))?;
        self.sync(self.target)?;
        let data_bytes = pages * PAGE_BYTES as u64;
        let (mut log_bytes, mut stopped) = (0, false);
        let end = self.core.log.copy_to(content.log_from, &**self.disk, &log, &mut |bytes| {
            log_bytes += bytes;
            let ahead = self.core.log.durable().0.saturating_sub(content.log_from.0).max(log_bytes);
            let progress =
                BackupProgress { done_bytes: data_bytes + log_bytes, total_bytes: data_bytes + ahead };
            stopped = (self.progress)(progress).is_break();
            if stopped || !pin.holds() { Err(StorageError::Closed) } else { Ok(()) }
        });
        if stopped {
            return Err(self.stopped("it was cancelled"));
        }
        self.check(&pin)?;
        let end = end?;
        control.write(content)?;
        let name = self.target.join(CONTROL);
        control.rename(&**self.disk, &name)?;
        self.sync(self.target).inspect_err(|_| {
            // Whether it would be there after a crash nobody knows, so it is no copy. The error that counts is the
            // first.
            let _ = control.rename(&**self.disk, &self.target.join(CONTROL_BACKUP));
        })?;
        Ok(BackupReport { pages, log_bytes, end })
    }

    /// The target is absent or empty, or has what a backup has left that failed before its first page; and it is not in
    /// the database. Then it is there.
    fn make_target(&self) -> Result<()> {
        let (disk, directory) = self.own;
        for own in [directory, &directory.join(LOG)] {
            if disk.lies_in(self.target, own).map_err(StorageError::io("look for the target in", own))? {
                let inside =
                    io::Error::new(io::ErrorKind::InvalidInput, "it lies in the database that is copied");
                return Err(StorageError::io("make a backup in", self.target)(inside));
            }
        }
        if self.is_there()? {
            return Ok(());
        }
        self.disk.create_directory(self.target).map_err(StorageError::io("make", self.target))
    }

    /// Whether the target is there; an error if something is in it that is in the way.
    fn is_there(&self) -> Result<bool> {
        let paths = match self.disk.list(&self.target.join("")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            paths => paths.map_err(StorageError::io("list", self.target))?,
        };
        if paths.iter().all(|path| [LOCK, CONTROL_BACKUP].iter().any(|name| path.ends_with(name))) {
            return Ok(true);
        }
        Err(self.occupied("the directory is not empty"))
    }

    /// The target is somebody else's.
    fn occupied(&self, by: &str) -> StorageError {
        StorageError::io("make a backup in", self.target)(io::Error::new(io::ErrorKind::AlreadyExists, by))
    }

    /// Copies all pages that there are when it comes to the end of the file; gives how many. Ends as soon as nothing
    /// can come of it.
    fn copy_pages(&mut self, pin: &Pin<'_>) -> Result<u64, TxnError> {
        let path = self.target.join(DATA);
        let file = self.disk.open(&path, OpenMode::CreateNew).map_err(StorageError::io("create", &path))?;
        let mut bytes = vec![0; CHUNK_PAGES * PAGE_BYTES];
        let mut done = 0;
        loop {
            let first = PageId(u32::try_from(done).unwrap_or(u32::MAX));
            let copied = self.core.pool.copy_pages(first, &mut bytes);
            // First: of a closed database the file may be another's, and what is in it no damage.
            self.check(pin)?;
            let count = copied?;
            if count == 0 {
                break;
            }
            let copied = &bytes[..count * PAGE_BYTES];
            // What nobody has written leaves a hole.
            if copied.iter().any(|&byte| byte != 0) {
                let place = done * PAGE_BYTES as u64;
                file.write_all_at(copied, place).map_err(StorageError::io("write", &path))?;
            }
            done += count as u64;
            let total = self.core.pool.file_pages().max(done);
            let log = self.core.log.used_bytes();
            let progress = BackupProgress {
                done_bytes: done * PAGE_BYTES as u64,
                total_bytes: total * PAGE_BYTES as u64 + log,
            };
            if (self.progress)(progress).is_break() {
                return Err(self.stopped("it was cancelled"));
            }
        }
        self.core.pool.check_file_end()?;
        // The last pages may have left one.
        file.set_len(done * PAGE_BYTES as u64).map_err(StorageError::io("extend", &path))?;
        file.sync().map_err(StorageError::io("sync", &path))?;
        Ok(done)
    }

    fn sync(&self, directory: &Path) -> Result<()> {
        self.disk.sync_directory(directory).map_err(StorageError::io("sync", directory))
    }

    /// Whether the database is still open, and the log kept for it (TXN-31).
    fn check(&self, pin: &Pin<'_>) -> Result<(), TxnError> {
        self.core.check_open()?;
        if pin.holds() {
            return Ok(());
        }
        let reason = "the log grew too much meanwhile; write less, or raise log_bytes \
                      (of which 512 times log_segment_bytes count)";
        Err(self.stopped(reason))
    }

    fn stopped(&self, reason: &'static str) -> TxnError {
        TxnError::BackupStopped { path: self.target.to_owned(), reason }
    }
}
