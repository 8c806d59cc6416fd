//! Loading: all parts of a workload, by several threads.

use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::{LOOK_EVERY, join_all};
use crate::{
    BenchError,
    engine::{Engine, Failure},
    observer::Observer,
    threads::start_all,
    workload::{Loader, Workload},
};

/// Loads all parts of a workload, `threads` at a time.
pub fn load(
    engine: &dyn Engine,
    workload: &dyn Workload,
    threads: usize,
    seed: u64,
    observer: &dyn Observer,
) -> Result<(), BenchError> {
    let parts = workload.load_parts();
    let (next, rows) = (AtomicU64::new(0), AtomicU64::new(0));
    let total = workload.load_rows();
    let load_parts = || -> Result<(), Failure> {
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return Ok(());
            }
            let result = workload.load_part(part, seed, &mut Loader::new(engine, &rows));
            if result.is_err() {
                next.store(parts, Ordering::Relaxed);
                return result;
            }
        }
    };
    thread::scope(|scope| {
        let count = threads.min(parts.try_into().unwrap_or(usize::MAX));
        let give_up = |_: &[_]| next.store(parts, Ordering::Relaxed);
        let loaders = start_all(scope, count, |_| load_parts, give_up)?;
        while loaders.iter().any(|loader| !loader.is_finished()) {
            observer.loading(rows.load(Ordering::Relaxed), total);
            thread::sleep(LOOK_EVERY.min(Duration::from_millis(10)));
        }
        observer.loading(rows.load(Ordering::Relaxed), total);
        join_all(loaders).map(|_| ())
    })
}
