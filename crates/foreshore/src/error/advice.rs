//! What to do about a failure of the operating system.

use std::io::{Error, ErrorKind};

/// The next step after an operation that failed so.
pub(super) fn next_step(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "check the path",
        ErrorKind::AlreadyExists | ErrorKind::InvalidInput => "name another place",
        ErrorKind::PermissionDenied => "obtain permission, or run as a user who has it",
        _ => "remove the cause, and try again",
    }
}
