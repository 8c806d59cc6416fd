//! Threads that there may be no room for: the system has a limit to them.

use foreshore_env::thread;

use crate::BenchError;

/// Starts a thread; `what` says for the error which one it is.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    what: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>, BenchError> {
    let started = thread::Builder::new().spawn_scoped(scope, work);
    started.map_err(|source| BenchError::Thread { what: what.to_owned(), source })
}

/// Starts so many threads, each with what `work` gives for its number. If one of them cannot be started, those before
/// it are shown to `give_up`, which sees to it that they end: the scope waits for them.
pub(crate) fn start_all<'scope, T: Send + 'scope, W: FnOnce() -> T + Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    count: usize,
    work: impl Fn(usize) -> W,
    give_up: impl FnOnce(&[thread::ScopedJoinHandle<'scope, T>]),
) -> Result<Vec<thread::ScopedJoinHandle<'scope, T>>, BenchError> {
    let mut started = Vec::new();
    for number in 0..count {
        match start(scope, &format!("thread {} of {count}", number + 1), work(number)) {
            Ok(thread) => started.push(thread),
            Err(error) => {
                give_up(&started);
                return Err(error);
            }
        }
    }
    Ok(started)
}
