//! A disk that calls somebody before each of its changes: the places where a crash can come.

use std::{fmt, io, ops::Range, path::Path};

use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode},
    hand_on,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use foreshore_testkit::FaultyDisk;

/// Called with the number of the change that comes next, from 1.
pub(crate) type Visit = dyn Fn(u64) + Send + Sync;

/// A disk that is watched.
#[derive(Clone)]
pub(crate) struct Probe {
    inner: FaultyDisk,
    watch: Arc<Watch>,
}

struct Watch {
    changes: AtomicU64,
    visit: Box<Visit>,
}

impl Watch {
    fn note(&self) {
        (self.visit)(self.changes.fetch_add(1, Ordering::Relaxed) + 1);
    }
}

impl Probe {
    pub(crate) fn new(inner: FaultyDisk, visit: Box<Visit>) -> Probe {
        Probe { inner, watch: Arc::new(Watch { changes: AtomicU64::new(0), visit }) }
    }

    /// How many changes there were.
    pub(crate) fn changes(&self) -> u64 {
        self.watch.changes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

impl Disk for Probe {
    hand_on!(inner: list, exists, lies_in, lock_shared);

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            self.watch.note();
        }
        let file = self.inner.open(path, mode)?;
        Ok(Arc::new(ProbeFile { file, watch: Arc::clone(&self.watch) }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.watch.note();
        self.inner.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.watch.note();
        self.inner.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch.note();
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.watch.note();
        self.inner.remove(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.watch.note();
        self.inner.lock(path)
    }
}

struct ProbeFile {
    file: Arc<dyn DiskFile>,
    watch: Arc<Watch>,
}

impl fmt::Debug for ProbeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProbeFile")
    }
}

impl DiskFile for ProbeFile {
    hand_on!(file: read_at, len);

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.watch.note();
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.note();
        self.file.sync()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.watch.note();
        self.file.set_len(bytes)
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.watch.note();
        self.file.allocate(range)
    }
}
