//! What the fuzzer runs of the program: the texts that users give it. Each function takes any bytes and must come back:
//! with whatever answer, but without a panic, an endless loop, or memory without bounds, and with a database that is
//! sound. A test replays the committed corpus on a stable compiler.

use std::{
    io::{self, Write},
    path::Path,
};

use foreshore::{Database, Options};
use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_testkit::FaultyDisk;

use crate::{
    dump::{dump_table, write_no_tables},
    load::{
        sink::Sink,
        source::{self, Columns, Form},
    },
    script,
};

/// An input that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(20);
/// How many entries a batch has: some inputs have more.
const BATCH_ENTRIES: usize = 3;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 2] = [("load", load), ("script", script)];

/// Runs the target of this name.
///
/// # Panics
/// When there is none; and wherever the program does, which is what it is run for.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target.expect("the name of a target").1(data);
}

/// An empty database in memory, as small as it can be.
fn database() -> (FaultyDisk, Database) {
    let disk = FaultyDisk::new();
    disk.set_free_space(Some(64 << 20));
    let options = Options {
        pool_bytes: 1 << 20,
        log_bytes: 8 << 20,
        log_segment_bytes: 256 << 10,
        log_buffer_bytes: 256 << 10,
        lock_buckets: 64,
        ..Options::default()
    };
    let builder = Database::builder().options(options).disk(Arc::new(disk.clone()));
    let db = builder.open(Path::new("/db")).expect("an empty disk");
    (disk, db)
}

/// The database is sound, and its dump makes another one of the same content.
fn end(db: &Database, begun: Instant) {
    let report = db.verify().expect("nobody holds a lock");
    assert!(report.is_sound(), "{:?}", report.problems.first());
    let dumped = dump(db);
    let (_disk, other) = database();
    let mut sink = Sink::new(|| Ok(other.clone()), BATCH_ENTRIES, false);
    let columns = Columns { table: None, default_table: None, key: None, key_type: None, value: None };
    let read = source::read(Form::Jsonl, &dumped[..], &columns, &mut sink);
    read.and_then(|()| sink.finish()).expect("what was dumped can be loaded");
    assert!(dump(&other) == dumped, "what was loaded from a dump is not what was dumped");
    assert!(begun.elapsed() < LONGEST, "it takes {:?}", begun.elapsed());
    db.close().expect("a sound disk");
}

/// All tables, as `dump` writes them.
fn dump(db: &Database) -> Vec<u8> {
    let mut dumped = Vec::new();
    let tables = db.tables().expect("a sound database");
    if tables.is_empty() {
        write_no_tables(&mut dumped).expect("memory");
    }
    for (table, tables_left) in tables.iter().zip((0..tables.len() as u64).rev()) {
        dump_table(db, table, tables_left, &mut dumped).expect("a sound database");
    }
    dumped
}

/// A file for `load`. The first byte says how it is read.
fn load(data: &[u8]) {
    let begun = Instant::now();
    let Some((&how, input)) = data.split_first() else { return };
    let (_disk, db) = database();
    let form = [Form::Csv, Form::Tsv, Form::Jsonl, Form::Jsonl][usize::from(how & 3)];
    let named = |bit: u8, name: &str| (how & bit != 0).then(|| name.to_owned());
    let columns = Columns {
        table: named(4, "t"),
        default_table: named(8, "input"),
        key: named(16, "id"),
        key_type: [None, Some("u32"), Some("i64"), Some("bytes")][usize::from(how >> 6)].map(str::to_owned),
        value: named(32, "name"),
    };
    let mut sink = Sink::new(|| Ok(db.clone()), BATCH_ENTRIES, how & 4 == 0);
    // What cannot be read is refused in words.
    let read = source::read(form, input, &columns, &mut sink).map_err(|error| error.to_string());
    let _ = if read.is_ok() { sink.finish() } else { sink.flush() };
    end(&db, begun);
}

/// Lines for `script`.
fn script(data: &[u8]) {
    let begun = Instant::now();
    let (_disk, db) = database();
    let output: Box<dyn Write + Send> = Box::new(io::sink());
    let _ = script::play_all(&db, data, output);
    end(&db, begun);
}
