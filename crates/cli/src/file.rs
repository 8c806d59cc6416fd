//! Files that the program writes for its user, beside databases: reports, pictures, answers, schedules.
#![allow(
    clippy::disallowed_types,
    reason = "the user's files, not a part of a database; real ones in the simulated world, too"
)]

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use crate::output::CliError;

/// Permission bits: the owner alone, as for the files of a database.
const MODE: u32 = 0o600;
/// Permission bits of directories.
const DIRECTORY_MODE: u32 = 0o700;

/// Writes a file, whole or not at all, in the place of the one that was there. It is its owner's alone, whatever the
/// umask.
///
/// # Errors
/// Where there is something other than a file: what a link leads to is not written, nor is the link replaced.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CliError> {
    replace(path, content.as_ref()).map_err(CliError::io(format!("write {}", path.display())))
}

/// Whether [`write`] can write a file there, as far as can be told before hours of work: that is not made, and what is
/// there stays as it is.
pub(crate) fn try_write(path: &Path) -> Result<(), CliError> {
    let part = begin(path).map(|(_, part)| part);
    part.and_then(fs::remove_file).map_err(CliError::io(format!("write {}", path.display())))
}

/// Makes a directory and those above it, as far as they are missing, for their owner alone.
pub(crate) fn make_directory(path: &Path) -> Result<(), CliError> {
    make_missing(path).map_err(CliError::io(format!("make the directory {}", path.display())))
}

fn make_missing(path: &Path) -> io::Result<()> {
    let make = || {
        DirBuilder::new().mode(DIRECTORY_MODE).create(path)?;
        // The umask may have taken bits of the owner's.
        fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
    };
    match (make(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            make_missing(parent)?;
            make()
        }
        (Err(_), _) if path.is_dir() => Ok(()),
        (made, _) => made,
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let (mut file, part) = begin(path)?;
    file.set_permissions(Permissions::from_mode(MODE))
        .and_then(|()| file.write_all(content))
        .and_then(|()| fs::rename(&part, path))
        .inspect_err(|_| _ = fs::remove_file(&part))
}

/// A new file beside the one of this path, and its own path.
fn begin(path: &Path) -> io::Result<(File, PathBuf)> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => {
            return Err(refused("it is a symbolic link; name the file itself"));
        }
        Ok(there) if !there.is_file() => {
            return Err(refused("it exists and is not a regular file; name another"));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let name = path.file_name().ok_or_else(|| refused("it names no file"))?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}", process::id()));
    let part = path.with_file_name(part);
    // Does not follow a link either: what is there already is an error.
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&part)?;
    Ok((file, part))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(all(test, not(foreshore_sim)))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_takes_the_place_of_a_file_and_of_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o666)).unwrap();
        for name in ["new", "old"] {
            write(&at(name), "content").unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"content");
            assert_eq!(fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777, MODE, "{name}");
        }
        fs::write(at("victim"), "precious").unwrap();
        symlink(at("victim"), at("link")).unwrap();
        symlink(at("absent"), at("dangling")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        for name in ["link", "dangling", "directory", "nowhere/file", ".."] {
            assert!(write(&at(name), "content").is_err() && try_write(&at(name)).is_err(), "{name}");
        }
        for name in ["new", "old", "absent"] {
            try_write(&at(name)).unwrap();
        }
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        assert!(at("link").is_symlink() && !at("absent").exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 6, "nothing is left over");
    }
}
