//! What is said of a database whose files are not all there, or no longer what they should be.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use foreshore_base::StorageError;
use foreshore_env::disk::OpenMode;

use super::{CONTROL, DATA, LOG, Place};

/// What can be done besides, unless the pages themselves are gone.
pub(super) const SALVAGE: &str = ", or save with `foreshore salvage` what does not depend on it";

/// A file of a database is not there, and what is lost with it.
pub(super) fn missing(path: PathBuf, lost: &str, more: &str) -> StorageError {
    StorageError::corrupt_file(path, format!("it is missing, {lost}; put it back or open a backup{more}"))
}

impl Place<'_> {
    /// Why this place was not opened: where a control file, a data file and a segment of a log are there it is a
    /// database, and what does not look like one of them is damaged.
    pub(super) fn judge(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::NotADatabase { path, detail } if self.has_all_files() => {
                let path = if path == self.directory { self.path(CONTROL) } else { path };
                StorageError::corrupt_file(
                    path,
                    format!("{detail}; put back the file that was there or open a backup{SALVAGE}"),
                )
            }
            error => error,
        }
    }

    fn has_all_files(&self) -> bool {
        let is_file = |name| match self.disk.open(&self.path(name), OpenMode::Read) {
            Ok(_) => true,
            // It is there, and nobody knows what it is.
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        };
        // A segment is called by its base.
        let is_segment = |path: &Path| {
            let base = path.file_stem().and_then(|stem| stem.to_str());
            path.extension().is_some_and(|end| end == "log")
                && base.is_some_and(|base| base.len() == 16 && u64::from_str_radix(base, 16).is_ok())
        };
        let has_segment =
            || self.disk.list(&self.path(LOG)).is_ok_and(|found| found.iter().any(|path| is_segment(path)));
        is_file(CONTROL) && is_file(DATA) && has_segment()
    }
}
