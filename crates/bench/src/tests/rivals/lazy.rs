//! When lazy commits are written: by each of them, or a while later for many.

use std::{fs, io::Read, path::Path};

use foreshore_env::{
    thread,
    time::{Duration, Instant},
};

use super::open;
use crate::{Durability, Engine, EngineKind, Named, TableIndex, tests::transact};

/// Rivals that write their logs as they are told, and how the names of these files end.
fn logs() -> Vec<(EngineKind, &'static str)> {
    let log = |kind| match kind {
        EngineKind::Rocksdb => Some((kind, "log")),
        EngineKind::Fjall => Some((kind, "jnl")),
        _ => None,
    };
    EngineKind::built().filter_map(log).collect()
}

/// What the logs in this directory begin with; no more than some commits need, as one that is made beforehand is long.
fn beginnings(directory: &Path, extension: &str) -> Vec<u8> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    logs.sort();
    assert!(!logs.is_empty(), "there is no log in {}", directory.display());
    let mut bytes = Vec::new();
    for log in logs {
        #[allow(clippy::disallowed_types, reason = "the file of another engine")]
        fs::File::open(log).unwrap().take(256 << 10).read_to_end(&mut bytes).unwrap();
    }
    bytes
}

fn commit(engine: &dyn Engine, number: u32) {
    transact(engine, |txn| Ok(txn.put(TableIndex(0), &number.to_be_bytes(), b"value")?));
}

/// How many of so many commits are followed by another log than the one before them.
fn written(kind: EngineKind, extension: &str, lazy: &str, commits: u32) -> u32 {
    let rival = (kind, vec![("lazy".to_owned(), lazy.to_owned())]);
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&rival, directory.path(), &["table".to_owned()], Durability::Lazy);
    let mut before = beginnings(directory.path(), extension);
    let mut written = 0;
    for number in 0..commits {
        commit(engine.as_ref(), number);
        let now = beginnings(directory.path(), extension);
        written += u32::from(now != before);
        before = now;
    }
    let loses = engine.caveats().iter().any(|caveat| caveat.contains("killed"));
    assert_eq!(loses, lazy == "memory", "{}: {:?}", kind.name(), engine.caveats());
    engine.close().unwrap();
    written
}

#[test]
fn a_lazy_commit_is_written_only_if_it_is_asked_for() {
    for (kind, extension) in logs() {
        assert_eq!(written(kind, extension, "write", 200), 200, "{}", kind.name());
        let in_memory = written(kind, extension, "memory", 200);
        assert!(in_memory < 100, "{}: {in_memory} writes", kind.name());
    }
}

#[test]
fn what_stays_in_memory_is_written_soon() {
    for (kind, extension) in logs() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&(kind, Vec::new()), directory.path(), &["table".to_owned()], Durability::Lazy);
        let before = beginnings(directory.path(), extension);
        commit(engine.as_ref(), 1);
        let deadline = Instant::now() + Duration::from_secs(60);
        while beginnings(directory.path(), extension) == before {
            assert!(Instant::now() < deadline, "{}: nobody writes the log", kind.name());
            thread::sleep(Duration::from_millis(1));
        }
        engine.close().unwrap();
    }
}
