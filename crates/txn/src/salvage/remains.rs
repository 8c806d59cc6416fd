//! The files of a damaged database, of which some may be missing, or something else.

use std::{io, path::Path};

use foreshore_env::{
    disk::{Disk, OpenMode, Overlay},
    hand_on,
    sync::Arc,
};

use crate::engine::{DATA, LOG};

/// What an empty file may take in memory: it is never written.
const EMPTY_BYTES: u64 = 1 << 20;

/// The disk with what is left of a database. Where its data file is missing and its log is not, there seems to be an
/// empty one: the log has whole pages. Whether that is so.
pub(super) fn disk(disk: &Arc<dyn Disk>, directory: &Path) -> (Arc<dyn Disk>, bool) {
    let is_missing = |name: &str| matches!(disk.exists(&directory.join(name)), Ok(false));
    if !is_missing(DATA) || is_missing(LOG) {
        return (Arc::new(Remains(Arc::clone(disk))), false);
    }
    let with_data: Arc<dyn Disk> = Arc::new(Overlay::new(Arc::clone(disk), EMPTY_BYTES));
    match with_data.open(&directory.join(DATA), OpenMode::CreateNew) {
        Ok(_) => (Arc::new(Remains(with_data)), true),
        // Somebody has just made one.
        Err(_) => (Arc::new(Remains(Arc::clone(disk))), false),
    }
}

/// A disk on which nobody holds a lock on what is no file.
#[derive(Debug)]
struct Remains(Arc<dyn Disk>);

impl Disk for Remains {
    hand_on!(0: open, create_directory, sync_directory, list, rename, remove, exists, lies_in);

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.lock_shared(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        // The control file is locked as well by whoever has the database open.
        match self.0.lock_shared(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Some(Box::new(()))),
            result => result,
        }
    }
}
