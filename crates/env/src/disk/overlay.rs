//! A disk that is read and never changed: what is written to it stays in memory, in blocks that are copied when they
//! are first written, and is forgotten with it.
//!
//! So whoever opens something "for reading" may run the same code as everybody else, recovery from a crash included,
//! and not a byte of what lies below changes. Nothing below is opened for writing, and a lock is taken as a shared one.
//!
//! Over nothing it is a disk in memory.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
};

use super::{Disk, DiskFile, OpenMode};
use crate::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

/// The unit of copying.
const BLOCK_BYTES: u64 = 4096;

/// A disk over another one, which stays as it is. Dropping it forgets all changes.
#[derive(Debug)]
pub struct Overlay {
    under: Arc<dyn Disk>,
    names: Mutex<Names>,
    budget: Arc<Budget>,
}

/// What differs from the names below. Guarded by the mutex of [`Overlay::names`].
#[derive(Debug, Default)]
struct Names {
    /// Files that were opened, made or renamed; `None`: there is none under this name any more.
    files: BTreeMap<PathBuf, Option<Arc<OverlayFile>>>,
    directories: BTreeSet<PathBuf>,
}

/// Blocks that may be copied.
#[derive(Debug)]
struct Budget {
    limit: u64,
    /// Relaxed: a count.
    taken: AtomicU64,
}

impl Budget {
    fn take(&self) -> io::Result<()> {
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Ok(());
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let megabytes = (self.limit * BLOCK_BYTES) >> 20;
        let text =
            format!("more than {megabytes} MiB would have to be changed in memory; open it for writing");
        Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
    }
}

impl Overlay {
    /// A disk that shows what `under` has, and keeps at most `bytes` bytes of changes; more fail with `OutOfMemory`.
    pub fn new(under: Arc<dyn Disk>, bytes: u64) -> Overlay {
        let budget = Budget { limit: bytes / BLOCK_BYTES, taken: AtomicU64::new(0) };
        Overlay { under, names: Mutex::default(), budget: Arc::new(budget) }
    }

    /// A disk that lies in memory, without a limit.
    pub fn of_nothing() -> Overlay {
        Overlay::new(Arc::new(Nothing), u64::MAX)
    }

    /// The file of this name, looked for below when it was not used yet.
    fn find(&self, names: &mut Names, path: &Path) -> io::Result<Arc<OverlayFile>> {
        match names.files.get(path) {
            Some(Some(file)) => Ok(Arc::clone(file)),
            Some(None) => Err(io::ErrorKind::NotFound.into()),
            None => {
                let under = self.under.open(path, OpenMode::Read)?;
                let length = under.len()?;
                let file = Arc::new(OverlayFile::new(Some(under), length, Arc::clone(&self.budget)));
                names.files.insert(path.to_owned(), Some(Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn is_there(&self, names: &Names, path: &Path) -> io::Result<bool> {
        match names.files.get(path) {
            Some(file) => Ok(file.is_some()),
            None => Ok(names.directories.contains(path) || self.under.exists(path)?),
        }
    }
}

impl Disk for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = self.names.lock();
        if mode != OpenMode::CreateNew {
            return Ok(self.find(&mut names, path)?);
        }
        if self.is_there(&names, path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(OverlayFile::new(None, 0, Arc::clone(&self.budget)));
        names.files.insert(path.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !self.is_there(&names, path)? {
            names.directories.insert(path.to_owned());
        }
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let names = self.names.lock();
        let mut found = match self.under.list(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound && names.directories.contains(path) => {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        found.retain(|path| !matches!(names.files.get(path), Some(None)));
        for (name, file) in &names.files {
            if file.is_some() && name.parent() == Some(path) && !found.contains(name) {
                found.push(name.clone());
            }
        }
        Ok(found)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        let file = self.find(&mut names, from)?;
        names.files.insert(from.to_owned(), None);
        names.files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !self.is_there(&names, path)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        names.files.insert(path.to_owned(), None);
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.is_there(&self.names.lock(), path)
    }

    fn lies_in(&self, path: &Path, directory: &Path) -> io::Result<bool> {
        self.under.lies_in(path, directory)
    }

    /// A shared lock of the file below, if there is one.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.lock_shared(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        match self.under.lock_shared(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Box::new(()))),
            result => result,
        }
    }
}

/// A disk that has nothing, below what an [`Overlay`] keeps.
#[derive(Debug)]
struct Nothing;

impl Disk for Nothing {
    fn open(&self, _path: &Path, _mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _path: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn exists(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Nothing that is anywhere is in memory.
    fn lies_in(&self, _path: &Path, _directory: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn lock_shared(&self, _path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A file of an [`Overlay`].
struct OverlayFile {
    under: Option<Arc<dyn DiskFile>>,
    changes: Mutex<Changes>,
    budget: Arc<Budget>,
}

/// Guarded by the mutex of [`OverlayFile::changes`].
struct Changes {
    length: u64,
    /// So many first bytes of the file below still show, where no block hides them.
    shown: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK_BYTES as usize]>>,
}

impl fmt::Debug for OverlayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayFile").field("under", &self.under).finish_non_exhaustive()
    }
}

impl OverlayFile {
    fn new(under: Option<Arc<dyn DiskFile>>, length: u64, budget: Arc<Budget>) -> OverlayFile {
        let changes = Changes { length, shown: length, blocks: BTreeMap::new() };
        OverlayFile { under, changes: Mutex::new(changes), budget }
    }

    /// Reads what lies below; zeros past what shows of it.
    fn read_under(&self, shown: u64, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let count = shown.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (below, rest) = buffer.split_at_mut(count);
        rest.fill(0);
        match &self.under {
            Some(under) => under.read_exact_at(below, offset),
            None => Ok(()),
        }
    }

    /// Calls `visit` with each piece of a range that lies in one block: the block, where in it, and where in the range.
    fn for_pieces(
        offset: u64,
        length: usize,
        mut visit: impl FnMut(u64, usize, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let place = offset + done as u64;
            let within = (place % BLOCK_BYTES) as usize;
            let count = (length - done).min(BLOCK_BYTES as usize - within);
            visit(place / BLOCK_BYTES, within, done..done + count)?;
            done += count;
        }
        Ok(())
    }
}

impl Drop for OverlayFile {
    fn drop(&mut self) {
        let blocks = self.changes.lock().blocks.len();
        self.budget.taken.fetch_sub(blocks as u64, Ordering::Relaxed);
    }
}

impl DiskFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let changes = self.changes.lock();
        let count = changes.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        Self::for_pieces(offset, count, |block, within, range| match changes.blocks.get(&block) {
            Some(bytes) => {
                let end = within + range.len();
                buffer[range].copy_from_slice(&bytes[within..end]);
                Ok(())
            }
            None => self.read_under(changes.shown, &mut buffer[range], block * BLOCK_BYTES + within as u64),
        })?;
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut changes = self.changes.lock();
        let shown = changes.shown;
        Self::for_pieces(offset, bytes.len(), |block, within, range| {
            let copy = match changes.blocks.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let mut copy = Box::new([0; BLOCK_BYTES as usize]);
                    // What is written whole need not be read, and perhaps cannot be.
                    if range.len() < copy.len() {
                        self.read_under(shown, &mut *copy, block * BLOCK_BYTES)?;
                    }
                    self.budget.take()?;
                    entry.insert(copy)
                }
            };
            copy[within..within + range.len()].copy_from_slice(&bytes[range]);
            Ok(())
        })?;
        changes.length = changes.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.changes.lock().length)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let changes = self.changes.lock();
        let copied = changes.blocks.range(offset / BLOCK_BYTES..).next();
        let copied = copied.map(|(block, _)| offset.max(block * BLOCK_BYTES));
        let below = match &self.under {
            Some(under) if offset < changes.shown => under.next_data(offset)?,
            _ => None,
        };
        Ok(below.filter(|place| *place < changes.shown).into_iter().chain(copied).min())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut changes = self.changes.lock();
        if bytes < changes.length {
            let whole = bytes.div_ceil(BLOCK_BYTES);
            let cut = changes.blocks.split_off(&whole);
            self.budget.taken.fetch_sub(cut.len() as u64, Ordering::Relaxed);
            if let Some(last) = changes.blocks.get_mut(&(bytes / BLOCK_BYTES)) {
                last[(bytes % BLOCK_BYTES) as usize..].fill(0);
            }
            changes.shown = changes.shown.min(bytes);
        }
        changes.length = bytes;
        Ok(())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        let mut changes = self.changes.lock();
        changes.length = changes.length.max(range.end);
        Ok(())
    }
}

#[cfg(all(test, not(foreshore_sim), not(foreshore_loom)))]
mod tests {
    use super::*;
    use crate::{disk::RealDisk, random::Xorshift};

    fn below() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| (number % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (directory, path)
    }

    fn content(disk: &dyn Disk, path: &Path) -> Vec<u8> {
        let file = disk.open(path, OpenMode::Read).unwrap();
        let mut bytes = vec![0xEE; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Below there are two blocks with a hole between them and a hole behind; what is written into holes is data,
    /// above.
    #[test]
    fn data_is_found_below_and_above() {
        const MIB: u64 = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let under = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        under.write_all_at(&[1; 4096], 4 * MIB).unwrap();
        under.set_len(9 * MIB).unwrap();
        let overlay = Overlay::new(Arc::new(RealDisk), MIB);
        let file = overlay.open(&path, OpenMode::ReadWrite).unwrap();
        for place in [0, 4 * MIB + 7, 8 * MIB] {
            assert_eq!(file.next_data(place).unwrap(), under.next_data(place).unwrap());
        }
        file.write_all_at(&[1], MIB + 5000).unwrap();
        file.write_all_at(&[1], 7 * MIB).unwrap();
        let known = under.next_data(8 * MIB).unwrap().is_none();
        let expected =
            [(0, MIB + 4096), (MIB + 4096, MIB + 4096), (MIB + 4100, MIB + 4100), (5 * MIB, 7 * MIB)];
        for (from, place) in expected {
            assert_eq!(file.next_data(from).unwrap(), Some(if known { place } else { from }), "{from}");
        }
        file.set_len(2 * MIB).unwrap();
        file.set_len(9 * MIB).unwrap();
        assert_eq!(file.next_data(2 * MIB).unwrap(), None, "what was cut does not come back");
    }

    #[test]
    fn what_is_written_shows_above_and_not_below() {
        let (_directory, path) = below();
        let before = content(&RealDisk, &path);
        let overlay = Overlay::new(Arc::new(RealDisk), 1 << 20);
        let file = overlay.open(&path, OpenMode::ReadWrite).unwrap();
        let mut model = before.clone();
        let mut random = Xorshift::new(1);
        for step in 0..500 {
            let offset = random.below(30_000) as usize;
            match random.below(8) {
                0 => {
                    file.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                1 => {
                    file.allocate(0..offset as u64).unwrap();
                    model.resize(model.len().max(offset), 0);
                }
                _ => {
                    let bytes = vec![step as u8; random.below(6000) as usize];
                    file.write_all_at(&bytes, offset as u64).unwrap();
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
            file.sync().unwrap();
            assert!(content(&overlay, &path) == model, "step {step}");
        }
        assert_eq!(content(&RealDisk, &path), before);
    }

    #[test]
    fn names_change_above_and_not_below() {
        let (directory, path) = below();
        let home = directory.path();
        let overlay = Overlay::new(Arc::new(RealDisk), 1 << 20);
        let names = |disk: &dyn Disk, home: &Path| {
            let mut names = disk.list(home).unwrap();
            names.sort();
            names
        };
        let other = home.join("other");
        overlay.rename(&path, &other).unwrap();
        assert_eq!(names(&overlay, home), std::slice::from_ref(&other));
        assert_eq!(content(&overlay, &other), content(&RealDisk, &path));
        assert!(overlay.open(&path, OpenMode::Read).is_err() && !overlay.exists(&path).unwrap());
        let made = overlay.open(&path, OpenMode::CreateNew).unwrap();
        assert!(made.is_empty().unwrap() && overlay.open(&path, OpenMode::CreateNew).is_err());
        overlay.remove(&other).unwrap();
        assert!(overlay.remove(&other).is_err());
        let inner = home.join("inner");
        assert!(overlay.list(&inner).is_err());
        overlay.create_directory(&inner).unwrap();
        overlay.open(&inner.join("x"), OpenMode::CreateNew).unwrap();
        assert_eq!(names(&overlay, &inner.join("")), [inner.join("x")]);
        overlay.sync_directory(home).unwrap();
        assert_eq!(names(&RealDisk, home), [path]);
    }

    #[test]
    fn its_lock_is_a_shared_one_and_needs_no_file() {
        let (directory, _path) = below();
        let lock = directory.path().join("LOCK");
        let overlay = || Overlay::new(Arc::new(RealDisk), 1 << 20);
        assert!(overlay().lock(&lock).unwrap().is_some());
        assert!(!lock.exists());
        drop(RealDisk.lock(&lock).unwrap());
        let readers = [overlay().lock(&lock).unwrap(), overlay().lock(&lock).unwrap()];
        assert!(readers.iter().all(Option::is_some) && RealDisk.lock(&lock).unwrap().is_none());
        drop(readers);
        let _writer = RealDisk.lock(&lock).unwrap().unwrap();
        assert!(overlay().lock(&lock).unwrap().is_none());
    }

    #[test]
    fn its_memory_is_limited() {
        let (_directory, path) = below();
        let overlay = Overlay::new(Arc::new(RealDisk), 3 * BLOCK_BYTES);
        let file = overlay.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&[1; 2 * BLOCK_BYTES as usize], 0).unwrap();
        file.write_all_at(&[1; BLOCK_BYTES as usize], 2 * BLOCK_BYTES).unwrap();
        let error = file.write_all_at(&[1], 4 * BLOCK_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        file.set_len(BLOCK_BYTES).unwrap();
        file.write_all_at(&[1], 4 * BLOCK_BYTES).unwrap();
        // A file that is gone has none.
        overlay.remove(&path).unwrap();
        let other = overlay.open(&path.with_extension("other"), OpenMode::CreateNew).unwrap();
        other.write_all_at(&[1; BLOCK_BYTES as usize], 0).unwrap();
        assert!(other.write_all_at(&[1; BLOCK_BYTES as usize], 3 * BLOCK_BYTES).is_err());
        drop(file);
        other.write_all_at(&[1; BLOCK_BYTES as usize], 3 * BLOCK_BYTES).unwrap();
    }

    /// A block that could not be read took its part of the memory, and never gave it back.
    #[test]
    fn what_cannot_be_read_takes_no_memory() {
        let (_directory, path) = below();
        let overlay = Overlay::new(Arc::new(RealDisk), BLOCK_BYTES);
        let file = overlay.open(&path, OpenMode::ReadWrite).unwrap();
        let under = RealDisk.open(&path, OpenMode::ReadWrite).unwrap();
        let length = under.len().unwrap();
        under.set_len(0).unwrap();
        assert_eq!(file.write_all_at(&[1], 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        under.set_len(length).unwrap();
        file.write_all_at(&[1], 0).unwrap();
    }
}
