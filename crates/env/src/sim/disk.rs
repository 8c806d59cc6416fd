//! The disk of a simulated machine: files in memory, and a device that takes its time.
//!
//! Reading and writing copy to and from a page cache, which has room for everything; what `sync` writes, and what is
//! read that was only streamed past the cache, goes through the device, one request after the other. Nothing fails
//! here: a disk that fails is put under the engine by tests.
#![allow(clippy::disallowed_types)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    arena, calls, kernel,
    scheduler::Spent,
    time::{Duration, Instant, PICOSECONDS},
};
use crate::disk::{BLOCK_BYTES, Disk, DiskFile, OpenMode, Parts};

/// Bytes of a piece of a file; pieces that were never written take no memory.
const PIECE_BYTES: usize = 64 << 10;
/// Picoseconds to copy a byte to or from the page cache: 10 GB/s.
const COPY: u64 = 100;

/// A storage device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// How long one request takes that moves nothing.
    pub latency: Duration,
    /// How many bytes it writes, or reads, in a second.
    pub bytes_per_second: u64,
}

impl Device {
    /// Names and devices: a hard disk, a solid-state disk, one that is safe against power failure, and memory.
    pub const ALL: [(&'static str, Device); 4] = [
        ("hdd", Device { latency: Duration::from_millis(10), bytes_per_second: 150_000_000 }),
        ("ssd", Device { latency: Duration::from_micros(100), bytes_per_second: 1_000_000_000 }),
        ("plp", Device { latency: Duration::from_micros(15), bytes_per_second: 3_000_000_000 }),
        ("nvram", Device { latency: Duration::ZERO, bytes_per_second: 10_000_000_000 }),
    ];

    /// The device of this name.
    pub fn named(name: &str) -> Option<Device> {
        Device::ALL.iter().find(|(other, _)| *other == name).map(|(_, device)| *device)
    }
}

/// What the kernel keeps of the disk.
#[derive(Debug)]
pub(super) struct Storage {
    files: BTreeMap<PathBuf, Arc<File>>,
    directories: BTreeSet<PathBuf>,
    /// Held lock files: by how many, or exclusively (0).
    locks: BTreeMap<PathBuf, usize>,
    device: Device,
    /// When the device has done all requests so far.
    busy_until: u64,
}

impl Storage {
    pub(super) fn new(device: Device) -> Storage {
        Storage {
            files: BTreeMap::new(),
            directories: BTreeSet::from([PathBuf::from("/")]),
            locks: BTreeMap::new(),
            device,
            busy_until: 0,
        }
    }
}

/// The disk of the simulation that runs, empty when that begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulatedDisk;

#[derive(Debug, Default)]
struct File(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    pieces: Vec<Option<Box<[u8]>>>,
    length: u64,
    /// Bytes written since the last sync.
    unsynced: u64,
    /// Blocks that the page cache does not have: they were streamed past it. All others were written or read by way of
    /// it, or are holes, which no device is asked for.
    uncached: BTreeSet<u64>,
}

impl File {
    /// Held for copying alone: no switch to another thread happens meanwhile.
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of the operating system that copies so many bytes.
fn call(bytes: usize) {
    calls::turn();
    kernel::with(|kernel| {
        let call = kernel.scheduler.costs().system_call;
        kernel.spend(Spent::System, call + bytes as u64 * COPY);
    });
}

/// Waits until the device has written so many bytes.
fn write_to_device(bytes: u64) {
    call(0);
    wait_for_device(bytes);
}

/// Waits until the device has done a request of so many bytes.
fn wait_for_device(bytes: u64) {
    let done = kernel::with(|kernel| {
        let storage = &mut kernel.storage;
        let (latency, speed) = (storage.device.latency.as_nanos() as u64, storage.device.bytes_per_second);
        let picoseconds = latency * PICOSECONDS + bytes.saturating_mul(1_000_000_000_000 / speed.max(1));
        storage.busy_until = storage.busy_until.max(kernel.clock) + picoseconds;
        storage.busy_until
    });
    if let Some(done) = done {
        calls::sleep_until(Instant::from_picoseconds(done));
    }
}

/// Whether all parts begin and end where a block does, in memory and in the file: then nothing of them is left in the
/// page cache.
fn are_blocks(parts: Parts<'_>, offset: u64) -> bool {
    let [first, second] = parts.words.map(|run| (run.as_ptr().addr(), size_of_val(run)));
    let places = [first, second, (parts.bytes.as_ptr().addr(), parts.bytes.len())];
    let mut taken = places.into_iter().filter(|&(_, bytes)| bytes > 0);
    offset.is_multiple_of(BLOCK_BYTES as u64)
        && taken.all(|(start, bytes)| (start | bytes).is_multiple_of(BLOCK_BYTES))
}

/// Calls `f` with the storage.
fn storage<R>(f: impl FnOnce(&mut Storage) -> io::Result<R>) -> io::Result<R> {
    call(0);
    let outside = || Err(io::Error::other("there is no simulated disk outside of a simulation"));
    kernel::with(|kernel| f(&mut kernel.storage)).unwrap_or_else(outside)
}

fn parent_is_there(storage: &Storage, path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() || storage.directories.contains(parent) => Ok(()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        storage(|storage| {
            let file = storage.files.get(path).map(Arc::clone);
            match (mode, file) {
                (OpenMode::CreateNew, Some(_)) => Err(io::ErrorKind::AlreadyExists.into()),
                (OpenMode::CreateNew, None) => {
                    parent_is_there(storage, path)?;
                    let file = Arc::new(File::default());
                    storage.files.insert(path.to_owned(), Arc::clone(&file));
                    Ok(file as Arc<dyn DiskFile>)
                }
                (OpenMode::Read | OpenMode::ReadWrite, Some(file)) => Ok(file),
                (OpenMode::Read | OpenMode::ReadWrite, None) => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        storage(|storage| {
            if storage.files.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            // The directories above are there: a simulated machine has no tree of its own.
            storage.directories.extend(path.ancestors().map(Path::to_owned));
            Ok(())
        })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        storage(|storage| {
            let there = storage.directories.contains(path);
            if there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        })?;
        write_to_device(0);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        storage(|storage| {
            if !storage.directories.contains(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let names = storage.files.keys().chain(&storage.directories).chain(storage.locks.keys());
            Ok(names.filter(|name| name.parent() == Some(path)).cloned().collect())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        storage(|storage| {
            parent_is_there(storage, to)?;
            let file = storage.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            storage.files.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        storage(|storage| match storage.files.remove(path) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        storage(|storage| Ok(storage.files.contains_key(path) || storage.directories.contains(path)))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        storage(|storage| {
            parent_is_there(storage, path)?;
            if storage.locks.contains_key(path) {
                return Ok(None);
            }
            storage.locks.insert(path.to_owned(), 0);
            Ok(Some(Box::new(Lock(path.to_owned())) as Box<dyn Send + Sync>))
        })
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        storage(|storage| {
            parent_is_there(storage, path)?;
            match storage.locks.get_mut(path) {
                Some(0) => return Ok(None),
                Some(count) => *count += 1,
                None => _ = storage.locks.insert(path.to_owned(), 1),
            }
            Ok(Some(Box::new(Lock(path.to_owned())) as Box<dyn Send + Sync>))
        })
    }
}

/// A held lock file.
struct Lock(PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        kernel::with(|kernel| match kernel.storage.locks.get_mut(&self.0) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = kernel.storage.locks.remove(&self.0),
        });
    }
}

impl Content {
    /// Calls `f` with each piece of a range: its place in the range and the range in the piece.
    fn for_pieces(offset: u64, length: usize, mut f: impl FnMut(usize, usize, Range<usize>)) {
        let mut done = 0;
        while done < length {
            let place = offset as usize + done;
            let within = place % PIECE_BYTES;
            let count = (PIECE_BYTES - within).min(length - done);
            f(done, place / PIECE_BYTES, within..within + count);
            done += count;
        }
    }

    fn set_length(&mut self, length: u64) {
        let pieces = (length as usize).div_ceil(PIECE_BYTES);
        if length < self.length {
            self.pieces.truncate(pieces);
            // What is cut off reads as zeros when the file grows again.
            let rest = length as usize % PIECE_BYTES;
            if rest > 0
                && let Some(Some(last)) = self.pieces.get_mut(pieces - 1)
            {
                last[rest..].fill(0);
            }
        }
        arena::outside(|| drop(self.uncached.split_off(&length.div_ceil(BLOCK_BYTES as u64))));
        self.length = length;
    }

    /// Blocks of a range, also those of which it has a part.
    fn blocks(range: Range<u64>) -> Range<u64> {
        range.start / BLOCK_BYTES as u64..range.end.div_ceil(BLOCK_BYTES as u64)
    }

    /// The page cache gets this range; gives how many bytes of it the device has to be asked for.
    fn cache(&mut self, range: Range<u64>) -> u64 {
        if self.uncached.is_empty() {
            return 0;
        }
        let blocks = Content::blocks(range);
        arena::outside(|| {
            let missing: Vec<u64> = self.uncached.range(blocks).copied().collect();
            missing.iter().for_each(|block| _ = self.uncached.remove(block));
            (missing.len() * BLOCK_BYTES) as u64
        })
    }

    /// The page cache does not have this range any more.
    fn uncache(&mut self, range: Range<u64>) {
        arena::outside(|| self.uncached.extend(Content::blocks(range)));
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        self.length = self.length.max(offset + bytes.len() as u64);
        self.unsynced += bytes.len() as u64;
        Content::for_pieces(offset, bytes.len(), |done, piece, range| {
            if self.pieces.len() <= piece {
                self.pieces.resize_with(piece + 1, || None);
            }
            let target = self.pieces[piece].get_or_insert_with(|| vec![0; PIECE_BYTES].into());
            let count = range.len();
            target[range].copy_from_slice(&bytes[done..done + count]);
        });
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        call(buffer.len());
        let missing = self.content().cache(offset..offset + buffer.len() as u64);
        if missing > 0 {
            wait_for_device(missing);
        }
        let content = self.content();
        let count = content.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        Content::for_pieces(offset, count, |done, piece, range| {
            let target = &mut buffer[done..done + range.len()];
            match content.pieces.get(piece) {
                Some(Some(bytes)) => target.copy_from_slice(&bytes[range]),
                _ => target.fill(0),
            }
        });
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        call(bytes.len());
        let mut content = self.content();
        // A block of which only a part is written is fetched later: a thread that wrote does not wait.
        content.cache(offset..offset + bytes.len() as u64);
        content.write(bytes, offset);
        Ok(())
    }

    /// What it takes is charged as of any other write: the device is paid for when the file is synced.
    fn stream_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        self.write_parts_at(parts, offset)?;
        if are_blocks(parts, offset) {
            self.content().uncache(offset..offset + parts.len() as u64);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.content().unsynced);
        write_to_device(bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        call(0);
        Ok(self.content().length)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        call(0);
        self.content().set_length(bytes);
        Ok(())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        call(0);
        let mut content = self.content();
        content.length = content.length.max(range.end);
        Ok(())
    }
}
