//! Directories that stay open.
#![allow(clippy::disallowed_types)]

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::super::DiskDirectory;

/// Refuses a link to a directory.
pub(super) fn directory(path: &Path) -> io::Result<&Path> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link"));
    }
    Ok(path)
}

impl DiskDirectory for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}
