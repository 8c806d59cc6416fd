//! From the facade's errors to the workloads' and back.

use super::facade::Error;
use crate::engine::{AbortCause, Failure};

/// Wraps the facade's error, so that [`facade_error`] can take it out again; what the workload itself complains of
/// comes out as it went in.
#[cold]
pub(super) fn failure(error: Error) -> Failure {
    let mut innermost = &error;
    while let Error::RetriesExhausted { last, .. } = innermost {
        innermost = last;
    }
    let cause = match innermost {
        Error::Deadlock(_) => AbortCause::Deadlock,
        Error::LockTimeout(_) => AbortCause::LockTimeout,
        Error::WouldBlock(_) => AbortCause::WouldBlock,
        Error::PlanMiss => AbortCause::PlanMiss,
        Error::StaleReads => AbortCause::Conflict,
        _ => AbortCause::Other,
    };
    let source = match error {
        Error::Application(complaint) => complaint,
        error => Box::new(error),
    };
    Failure { cause, source }
}

/// The facade's error for `transact`, which decides by it whether to run the transaction again; what the workload
/// itself complains of becomes the application's error.
#[cold]
pub(super) fn facade_error(failure: Failure) -> Error {
    match failure.source.downcast::<Error>() {
        Ok(error) => *error,
        Err(complaint) => Error::Application(complaint),
    }
}
