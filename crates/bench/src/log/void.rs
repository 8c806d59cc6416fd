//! A disk that forgets what is written to it, at once: what is measured on it is not a disk.

use std::{
    collections::HashMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode, Parts},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct VoidDisk {
    files: Mutex<HashMap<PathBuf, Arc<VoidFile>>>,
}

/// A file that has a length, and zeros in it.
#[derive(Debug, Default)]
struct VoidFile {
    /// Relaxed: it orders nothing.
    bytes: AtomicU64,
}

fn absent() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for VoidDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        match (files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Ok(Arc::<VoidFile>::clone(file)),
            (None, OpenMode::CreateNew) => {
                let file = Arc::<VoidFile>::default();
                files.insert(path.to_owned(), Arc::clone(&file));
                Ok(file)
            }
            (None, _) => Err(absent()),
        }
    }

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.files.lock().keys().filter(|file| file.parent() == Some(path)).cloned().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or_else(absent)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().remove(path).map(|_| ()).ok_or_else(absent)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.lock(path)
    }
}

impl DiskFile for VoidFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.bytes.load(Ordering::Relaxed).saturating_sub(offset);
        let count = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        buffer[..count].fill(0);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.bytes.fetch_max(offset + bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn write_parts_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        self.bytes.fetch_max(offset + parts.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.load(Ordering::Relaxed))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.bytes.fetch_max(range.end, Ordering::Relaxed);
        Ok(())
    }
}
