//! Files, behind a trait, so that tests can put a disk under the engine that fails, tears and forgets.

mod hand_on;
mod overlay;
mod parts;
#[cfg(not(foreshore_sim))]
mod real;

use std::{
    fmt, io,
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::io::Errno;

pub use overlay::Overlay;
pub use parts::Parts;

#[cfg(foreshore_sim)]
pub use crate::sim::SimulatedDisk as RealDisk;
#[cfg(not(foreshore_sim))]
pub use real::RealDisk;

/// A block of a disk, or several: what is written past the system's cache begins and ends where one does.
pub const BLOCK_BYTES: usize = 4096;

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must exist; reading only.
    Read,
    /// It must exist; reading and writing.
    ReadWrite,
    /// It must not exist; it is made, for the owner alone (0600 whatever the umask).
    CreateNew,
}

/// Whether an error of opening a file says that, for the moment, neither this process nor perhaps any other can open
/// one more: nothing has happened then.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// A directory tree of files. Paths are passed as given; symbolic links in the last component are refused.
///
/// What a crash may undo: everything that no completed [`DiskFile::sync`] or [`Disk::sync_directory`] covers.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens or makes a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes a directory for the owner alone (0700). No error when it is there.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes names durable: files made, renamed or removed in this directory, also those that a call before has failed
    /// to make so (file systems with a journal refuse all further work after that).
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Opens a directory, for whoever will have to sync it when no more files can be opened. `None`: this disk has
    /// [`Disk::sync_directory`] only.
    fn open_directory(&self, _path: &Path) -> io::Result<Option<Box<dyn DiskDirectory>>> {
        Ok(None)
    }

    /// Names in a directory, unsorted.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Replaces `to` by `from`, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Whether something is there.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Whether `path`, where nothing need be yet, is the existing `directory` or lies in it, whatever names, links and
    /// mounts lead there. A disk that has none of these compares the names.
    fn lies_in(&self, path: &Path, directory: &Path) -> io::Result<bool> {
        Ok(without_dots(path).starts_with(without_dots(directory)))
    }

    /// Takes an exclusive lock on a lock file, made when absent, against other processes and against this one;
    /// `None` when somebody holds it. Dropping the box gives it back.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>>;

    /// Takes a shared lock on a lock file, which must exist and is opened for reading only: any number may have one,
    /// while nobody has the exclusive one. `None` when somebody has.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>>;
}

/// A path without `.` and `..`, as far as its names tell.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            named => plain.push(named),
        }
    }
    plain
}

/// An open directory.
pub trait DiskDirectory: Send + Sync + fmt::Debug {
    /// As [`Disk::sync_directory`].
    fn sync(&self) -> io::Result<()>;
}

/// An open file. Reads and writes name their place, so any number of threads may use it at the same time.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file as needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// As [`DiskFile::write_all_at`], of what lies in several places.
    fn write_parts_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        self.write_all_at(&parts.to_vec(), offset)
    }

    /// As [`DiskFile::write_parts_at`], for what nobody will read soon: past the system's cache, where the file allows
    /// it. That spares the processor a copy, and a sync that follows the search for it. Whole blocks of [`BLOCK_BYTES`]
    /// go that way if each part begins and ends at a multiple of the block, in memory and in the file; anything else
    /// goes as usual.
    fn stream_at(&self, parts: Parts<'_>, offset: u64) -> io::Result<()> {
        self.write_parts_at(parts, offset)
    }

    /// Nothing will be [streamed](DiskFile::stream_at) soon: gives back what was taken for that.
    fn end_stream(&self) {}

    /// Makes contents and length durable. After an error nothing may be assumed about what is on the disk, and a
    /// second call that succeeds proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether nobody but its owner can reach the file: its permissions, and that it has one name. Without permissions
    /// and links there is nobody else.
    fn is_private(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Whether `path` leads to this very file now. On a disk where nobody else renames anything it does.
    fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }

    /// The first place from `offset` on where there may be something but zeros, or `None`: from there to its end the
    /// file is a hole. A file that does not know its holes gives `offset`.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Reserves space for these bytes, so that writing there cannot run out of it. A file that ends before them is
    /// lengthened.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;

    /// Reads exactly `buffer.len()` bytes; an error of kind `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
