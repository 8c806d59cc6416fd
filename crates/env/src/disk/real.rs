//! The file system.
#![allow(clippy::disallowed_types)]

mod directory;
mod past_cache;

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    ops::Range,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{fs::OFlags, io::Errno};
#[cfg(target_os = "linux")]
use rustix::{
    fs::{FallocateFlags, SeekFrom},
    io::retry_on_intr,
};

use super::{BLOCK_BYTES, Disk, DiskDirectory, DiskFile, OpenMode, Parts};
use crate::process::Owner;
use directory::directory;
use past_cache::PastCache;

/// Permission bits of files: the owner alone.
const FILE_MODE: u32 = 0o600;
/// Permission bits of directories: the owner alone.
const DIRECTORY_MODE: u32 = 0o700;

/// Lock files held by this process, by device and inode: locks of the operating system do not all keep a process
/// from itself; and who took them, because a fork has a copy. Guarded by the mutex.
static HELD_HERE: Mutex<Option<HeldHere>> = Mutex::new(None);

type HeldHere = HashMap<(u64, u64), (Held, Owner)>;

/// How a lock file is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Exclusively,
    /// By so many, at least one.
    Shared(usize),
}

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Links are refused, and opening a pipe does not wait for its other end.
fn open_flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32
}

/// What opening says of a link, in words: the system speaks of too many of them.
fn no_link(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => {
            io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, and links are not followed")
        }
        _ => error,
    }
}

/// Refuses what is no regular file: a pipe or a device would neither keep what it is given nor have a length.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(open_flags());
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => _ = options.write(true),
            OpenMode::CreateNew => _ = options.write(true).create_new(true).mode(FILE_MODE),
        }
        let file = regular(options.open(path).map_err(no_link)?)?;
        if mode == OpenMode::CreateNew {
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        }
        // To open it once more would make what is open to be read a file that can be written.
        let past_cache = if mode == OpenMode::Read { PastCache::none() } else { PastCache::default() };
        Ok(Arc::new(RealFile { file, owner: Owner::here(), past_cache }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Ok(()) => fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory(path)?.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn DiskDirectory>>> {
        Ok(Some(Box::new(File::open(path)?)))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(directory(path)?)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A directory is known by device and inode, under which it stands in all of its mounts.
    fn lies_in(&self, path: &Path, directory: &Path) -> io::Result<bool> {
        let identity = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
        let wanted = identity(directory)?;
        // The deepest of it that is there: what is below has no links.
        let mut there = Err(io::ErrorKind::NotFound.into());
        for ancestor in path.ancestors() {
            let named = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
            there = fs::canonicalize(named);
            if !matches!(&there, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
        }
        for ancestor in there?.ancestors() {
            if identity(ancestor)? == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(open_flags());
        let file = match options.clone().create_new(true).mode(FILE_MODE).open(path) {
            Ok(file) => {
                file.set_permissions(Permissions::from_mode(FILE_MODE))?;
                file
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.open(path).map_err(no_link)?
            }
            Err(error) => return Err(error),
        };
        take_lock(regular(file)?, Held::Exclusively)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(open_flags()).open(path).map_err(no_link)?;
        take_lock(regular(file)?, Held::Shared(1))
    }
}

/// Locks a lock file; `None` when somebody, this process included, holds it in another way.
fn take_lock(file: File, wanted: Held) -> io::Result<Option<Box<dyn Send + Sync>>> {
    let metadata = file.metadata()?;
    let identity = (metadata.dev(), metadata.ino());
    let mut held = HELD_HERE.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.get_or_insert_default();
    // What a process holds of which this one is a fork, the system's lock tells of.
    held.retain(|_, (_, owner)| owner.is_here());
    let new = match (held.get(&identity).map(|(held, _)| held), wanted) {
        (None, _) => wanted,
        (Some(Held::Shared(count)), Held::Shared(more)) => Held::Shared(count + more),
        (Some(_), _) => return Ok(None),
    };
    let locked = match wanted {
        Held::Exclusively => file.try_lock(),
        Held::Shared(_) => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => {
            let owner = Owner::here();
            held.insert(identity, (new, owner));
            Ok(Some(Box::new(FileLock { file, identity, owner })))
        }
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// A held lock file. If the process dies, the operating system's lock goes with the descriptor.
struct FileLock {
    file: File,
    identity: (u64, u64),
    /// Who took it. A fork of that process has the descriptor as well, and with it the lock, until it closes it.
    owner: Owner,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // To unlock would take it from the process that has it.
            return;
        }
        let mut held = HELD_HERE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = held.as_mut() else { return };
        match held.get_mut(&self.identity) {
            Some((Held::Shared(count), _)) if *count > 1 => *count -= 1,
            _ => _ = held.remove(&self.identity),
        }
        // Closing alone is not enough: a process that another thread is just starting has all descriptors until it
        // becomes another program, and with them the lock. Should this fail, closing does it, only later.
        let _ = self.file.unlock();
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    /// Who opened it.
    owner: Owner,
    past_cache: PastCache,
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.own()?.write_all_at(bytes, offset)
    }

    fn write_parts_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        let file = self.own()?;
        let done = match write_parts(file, parts, offset) {
            // Some systems cannot write from several places.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::Unsupported) => {
                0
            }
            result => result?,
        };
        if done == parts.len() {
            Ok(())
        } else {
            file.write_all_at(&parts.to_vec()[done..], offset + done as u64)
        }
    }

    fn stream_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        self.own()?;
        // Where words are copied first, the copy lies anywhere.
        let whole =
            cfg!(target_endian = "little") && offset.is_multiple_of(BLOCK_BYTES as u64) && are_blocks(parts);
        let done = if whole { self.write_past_cache(parts, offset)? } else { 0 };
        if done == parts.len() {
            return Ok(());
        }
        self.write_parts_at(parts.split_at(done).1, offset + done as u64)
    }

    fn end_stream(&self) {
        self.past_cache.close();
    }

    fn sync(&self) -> io::Result<()> {
        self.own()?.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn is_private(&self) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        Ok(metadata.mode() & 0o7777 == FILE_MODE && metadata.nlink() == 1)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let there = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        let here = self.file.metadata()?;
        Ok((here.dev(), here.ino()) == (there.dev(), there.ino()))
    }

    /// Moves the place of the descriptor, which nobody else goes by.
    #[cfg(target_os = "linux")]
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // Some file systems do not know.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(error) => Err(error.into()),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.own()?.set_len(bytes)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        let bytes = range.end.saturating_sub(range.start);
        let file = self.own()?;
        // A signal that somebody handles may break it off.
        let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), range.start, bytes);
        match retry_on_intr(allocate) {
            // Some file systems cannot reserve; the length is what the format needs.
            Err(Errno::OPNOTSUPP) => self.extend(range.end),
            result => Ok(result?),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.extend(range.end)
    }
}

impl RealFile {
    /// The file, to be changed. A fork of the process that opened it has it as well, with a copy of what that process
    /// had in memory then: two of them that write are as bad as two that have opened it.
    fn own(&self) -> io::Result<&File> {
        if self.owner.is_here() {
            return Ok(&self.file);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to the process that has opened it, of which this one is a fork: use the database there",
        ))
    }

    /// Writes whole blocks to where one begins, as far as that goes past the cache; how much that was.
    fn write_past_cache(&self, blocks: Parts<'_>, offset: u64) -> io::Result<usize> {
        let Some(file) = self.past_cache.file(&self.file) else { return Ok(0) };
        write_blocks(blocks.len(), |done| write_parts(&file, blocks.split_at(done).1, offset + done as u64))
    }

    fn extend(&self, bytes: u64) -> io::Result<()> {
        if self.len()? < bytes { self.set_len(bytes) } else { Ok(()) }
    }
}

/// Writes what lies in several places, or a part of it; how much that was.
#[cfg(all(target_endian = "little", not(foreshore_loom)))]
fn write_parts(file: &File, parts: Parts<'_>, offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, &parts.places(), offset)?)
}

#[cfg(any(target_endian = "big", foreshore_loom))]
fn write_parts(file: &File, parts: Parts<'_>, offset: u64) -> io::Result<usize> {
    file.write_at(&parts.to_vec(), offset)
}

/// Whether all parts begin and end where a block does.
fn are_blocks(parts: Parts<'_>) -> bool {
    let [first, second] = parts.words.map(|run| (run.as_ptr().addr(), size_of_val(run)));
    [first, second, (parts.bytes.as_ptr().addr(), parts.bytes.len())]
        .into_iter()
        .filter(|&(_, bytes)| bytes > 0)
        .all(|(address, bytes)| address.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES))
}

/// Writes so many bytes, whole blocks, as far as `write`, which is told how much is written already, takes them; how
/// much that was.
fn write_blocks(bytes: usize, mut write: impl FnMut(usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes {
        match write(done) {
            // What is left of a block that was written in part does not begin where one does, so the block is written
            // again; but a system that takes only a part of the first would do so for ever.
            Ok(count) if count < BLOCK_BYTES => break,
            Ok(count) => done += count / BLOCK_BYTES * BLOCK_BYTES,
            // A file system may refuse after all.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
