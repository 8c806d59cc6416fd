//! A disk on which one write kills the process: at a place in the program, not at a moment.

use std::{io, ops::Range, path::Path};

use foreshore_env::{
    disk::{BLOCK_BYTES, Disk, DiskFile, OpenMode, Parts, RealDisk},
    hand_on,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use signal_hook::{consts::SIGKILL, low_level::raise};

/// The file system, which kills the process before, in the middle of, or after one of its changes.
#[derive(Debug)]
pub(crate) struct FatalDisk {
    disk: RealDisk,
    steps: Arc<Steps>,
}

/// How many steps there are to the fatal one. A change has three: before it, and for a write in its middle, and after
/// it.
#[derive(Debug)]
struct Steps(AtomicU64);

impl Steps {
    /// One step on; at the fatal one this does not return.
    fn step(&self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            while raise(SIGKILL).is_ok() {
                thread::yield_now();
            }
        }
    }

    /// A change that is no write.
    fn around<T>(&self, change: impl FnOnce() -> T) -> T {
        self.step();
        let result = change();
        self.step();
        result
    }
}

impl FatalDisk {
    /// The process dies at about this change, counted from 1.
    pub(crate) fn new(change: u64) -> FatalDisk {
        FatalDisk { disk: RealDisk, steps: Arc::new(Steps(AtomicU64::new(change))) }
    }
}

impl Disk for FatalDisk {
    hand_on!(disk: list, exists, lies_in, lock, lock_shared);

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.steps.around(|| self.disk.open(path, mode))?;
        Ok(Arc::new(FatalFile { file, steps: Arc::clone(&self.steps) }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.steps.around(|| self.disk.create_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.steps.around(|| self.disk.sync_directory(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.steps.around(|| self.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.steps.around(|| self.disk.remove(path))
    }
}

#[derive(Debug)]
struct FatalFile {
    file: Arc<dyn DiskFile>,
    steps: Arc<Steps>,
}

impl FatalFile {
    /// Writes one half and then the other.
    fn halves<T>(&self, halves: [T; 2], write: impl Fn(T) -> io::Result<()>) -> io::Result<()> {
        self.steps.step();
        for half in halves {
            write(half)?;
            self.steps.step();
        }
        Ok(())
    }
}

impl DiskFile for FatalFile {
    hand_on!(file: read_at, len, is_private);

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.halves([(first, offset), (second, offset + first.len() as u64)], |(bytes, offset)| {
            self.file.write_all_at(bytes, offset)
        })
    }

    fn stream_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        if parts.len() < 2 * BLOCK_BYTES {
            // A block, too, may be written in part.
            return self.write_all_at(&parts.to_vec(), offset);
        }
        let (first, second) = parts.split_at(parts.len() / 2 / BLOCK_BYTES * BLOCK_BYTES);
        self.halves([(first, offset), (second, offset + first.len() as u64)], |(parts, offset)| {
            self.file.stream_at(parts, offset)
        })
    }

    fn end_stream(&self) {
        self.file.end_stream();
    }

    fn sync(&self) -> io::Result<()> {
        self.steps.around(|| self.file.sync())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.steps.around(|| self.file.set_len(bytes))
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.steps.around(|| self.file.allocate(range))
    }
}
