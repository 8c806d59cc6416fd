//! A file's second descriptor, for what is written past the system's cache.

use std::{
    fs::File,
    io, mem,
    sync::{Arc, Mutex, PoisonError},
};

#[cfg(target_os = "linux")]
use std::{
    fs::OpenOptions,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

#[cfg(target_os = "linux")]
use rustix::fs::OFlags;

use crate::disk::is_out_of_files;

/// The descriptor, open from its first use until it is given back. Guarded by its mutex, which is not held while it is
/// written to.
#[derive(Debug, Default)]
pub(super) struct PastCache(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Arc<File>),
    /// The file cannot be opened so, or must not.
    None,
}

impl PastCache {
    /// For a file that is not written past the cache.
    pub(super) fn none() -> PastCache {
        PastCache(Mutex::new(State::None))
    }

    /// The descriptor that belongs to `file`; `None` if there can be none, or none for the moment.
    pub(super) fn file(&self, file: &File) -> Option<Arc<File>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Closed) {
            *state = match open(file) {
                Ok(file) => State::Open(Arc::new(file)),
                // It is tried again.
                Err(error) if is_out_of_files(&error) => State::Closed,
                Err(_) => State::None,
            };
        }
        if let State::Open(file) = &*state { Some(Arc::clone(file)) } else { None }
    }

    /// Gives it back until it is used again.
    pub(super) fn close(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Open(_)) {
            drop(mem::take(&mut *state));
        }
    }
}

/// Opens a file that is open once more, whatever its name is by now.
#[cfg(target_os = "linux")]
fn open(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

#[cfg(not(target_os = "linux"))]
fn open(_: &File) -> io::Result<File> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
