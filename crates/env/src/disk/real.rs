//! The file system.
#![allow(clippy::disallowed_types)]

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fs::{FallocateFlags, OFlags};

use super::{Disk, DiskFile, OpenMode};

/// Permission bits of files: the owner alone.
const FILE_MODE: u32 = 0o600;
/// Permission bits of directories: the owner alone.
const DIRECTORY_MODE: u32 = 0o700;

/// Lock files held by this process, by device and inode: locks of the operating system do not all keep a process
/// from itself. Guarded by the mutex.
static HELD_HERE: Mutex<Option<HashMap<(u64, u64), Held>>> = Mutex::new(None);

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

/// Refuses what is no regular file: a pipe or a device would neither keep what it is given nor have a length.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Refuses a link to a directory.
fn directory(path: &Path) -> io::Result<&Path> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link"));
    }
    Ok(path)
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
        let file = regular(options.open(path)?)?;
        if mode == OpenMode::CreateNew {
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        }
        Ok(Arc::new(RealFile(file)))
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
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path)?,
            Err(error) => return Err(error),
        };
        take_lock(regular(file)?, Held::Exclusively)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut options = OpenOptions::new();
        take_lock(regular(options.read(true).custom_flags(open_flags()).open(path)?)?, Held::Shared(1))
    }
}

/// Locks a lock file; `None` when somebody, this process included, holds it in another way.
fn take_lock(file: File, wanted: Held) -> io::Result<Option<Box<dyn Send + Sync>>> {
    let metadata = file.metadata()?;
    let identity = (metadata.dev(), metadata.ino());
    let mut held = HELD_HERE.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.get_or_insert_default();
    let new = match (held.get(&identity), wanted) {
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
            held.insert(identity, new);
            Ok(Some(Box::new(FileLock { file, identity })))
        }
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// A held lock file. If the process dies, the operating system's lock goes with the descriptor.
struct FileLock {
    file: File,
    identity: (u64, u64),
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let mut held = HELD_HERE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = held.as_mut() else { return };
        match held.get_mut(&self.identity) {
            Some(Held::Shared(count)) if *count > 1 => *count -= 1,
            _ => _ = held.remove(&self.identity),
        }
        // Closing alone is not enough: a process that another thread is just starting has all descriptors until it becomes
        // another program, and with them the lock. Should this fail, closing does it, only later.
        let _ = self.file.unlock();
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            // Some file systems cannot reserve; the length is what the format needs.
            Err(rustix::io::Errno::OPNOTSUPP) => self.extend(bytes),
            result => Ok(result?),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.extend(bytes)
    }
}

impl RealFile {
    fn extend(&self, bytes: u64) -> io::Result<()> {
        if self.len()? < bytes { self.set_len(bytes) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_their_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        RealDisk.create_directory(&inner).unwrap();
        RealDisk.create_directory(&inner).unwrap();
        let path = inner.join("file");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(b"abc", 5).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 8);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, FILE_MODE);
        assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o777, DIRECTORY_MODE);
        assert_eq!(
            RealDisk.open(&path, OpenMode::CreateNew).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, b"x").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(RealDisk.open(&link, OpenMode::Read).is_err());
        assert!(RealDisk.lock(&link).is_err());

        let (real, other) = (directory.path().join("real"), directory.path().join("other"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &other).unwrap();
        assert!(RealDisk.list(&real).is_ok() && RealDisk.list(&other).is_err());
        assert!(RealDisk.create_directory(&real).is_ok() && RealDisk.create_directory(&other).is_err());
        // With a slash it names what it leads to.
        assert!(RealDisk.list(&other.join("")).is_ok());
    }

    #[test]
    fn what_lies_in_a_directory_is_found_by_every_name() {
        let home = tempfile::tempdir().unwrap();
        let (own, other) = (home.path().join("own"), home.path().join("other"));
        fs::create_dir_all(own.join("inner/deep")).unwrap();
        fs::create_dir(&other).unwrap();
        let link =
            |target: &Path, name: &str| std::os::unix::fs::symlink(target, home.path().join(name)).unwrap();
        link(&own, "alias");
        link(&own.join("inner"), "short");
        link(Path::new("alias"), "second");
        for inside in
            ["own", "own/new", "own/inner/deep/new/newer", "alias/new", "short", "short/new", "second/new"]
        {
            assert!(RealDisk.lies_in(&home.path().join(inside), &own).unwrap(), "{inside}");
        }
        for inside in ["other/../own/new", "own/../own", "short/../new", "other/../short/deep/./new"] {
            assert!(RealDisk.lies_in(&home.path().join(inside), &own).unwrap(), "{inside}");
        }
        // Also when the directory itself is named by a link.
        assert!(RealDisk.lies_in(&own.join("new"), &home.path().join("second")).unwrap());
        for outside in ["other", "other/new", "ownother", "own/../new", "alias/../new/newer", "new"] {
            assert!(!RealDisk.lies_in(&home.path().join(outside), &own).unwrap(), "{outside}");
        }
        assert!(RealDisk.lies_in(Path::new("new"), Path::new(".")).unwrap());
        assert!(RealDisk.lies_in(Path::new(""), Path::new("..")).unwrap());
        assert!(RealDisk.lies_in(&other, &home.path().join("absent")).is_err());
    }

    #[test]
    fn a_pipe_is_no_file_and_nobody_waits_for_its_other_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        for mode in [OpenMode::Read, OpenMode::ReadWrite] {
            assert_eq!(RealDisk.open(&path, mode).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert!(RealDisk.lock(&path).is_err());
    }

    #[test]
    fn a_lock_excludes_this_process_too_and_goes_with_its_guard() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let alias = directory.path().join("ALIAS");
        let guard = RealDisk.lock(&path).unwrap().unwrap();
        fs::hard_link(&path, &alias).unwrap();
        assert!(RealDisk.lock(&path).unwrap().is_none());
        assert!(RealDisk.lock(&alias).unwrap().is_none());
        drop(guard);
        assert!(RealDisk.lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_shared_lock_has_any_number_of_holders_and_keeps_others_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        assert_eq!(RealDisk.lock_shared(&path).err().unwrap().kind(), io::ErrorKind::NotFound);
        drop(RealDisk.lock(&path).unwrap().unwrap());
        let one = RealDisk.lock_shared(&path).unwrap().unwrap();
        let other = RealDisk.lock_shared(&path).unwrap().unwrap();
        assert!(RealDisk.lock(&path).unwrap().is_none());
        drop(one);
        assert!(RealDisk.lock(&path).unwrap().is_none());
        drop(other);
        let exclusive = RealDisk.lock(&path).unwrap().unwrap();
        assert!(RealDisk.lock_shared(&path).unwrap().is_none());
        drop(exclusive);
        assert!(RealDisk.lock_shared(&path).unwrap().is_some());
    }

    #[test]
    fn reading_past_the_end_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
        file.allocate(4096).unwrap();
        assert_eq!(file.len().unwrap(), 4096);
        let mut buffer = [1; 8];
        file.read_exact_at(&mut buffer, 4088).unwrap();
        assert_eq!(buffer, [0; 8]);
        assert_eq!(file.read_exact_at(&mut buffer, 4090).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
