//! What the fuzzer runs of the program: the texts that users give it. Each function takes any bytes and must come back:
//! with whatever answer, but without a panic, an endless loop, or memory without bounds, and with a database that is
//! sound. A test replays the committed corpus on a stable compiler.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::Path,
};

use foreshore::{Database, Direction, Options, TableDefinition};
use foreshore_env::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use foreshore_testkit::FaultyDisk;
use serde_json::{Value as Json, json};

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
/// The most commands that are made of bytes.
const MOST_COMMANDS: usize = 300;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 3] = [("load", load), ("script", script), ("commands", commands)];

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
    let read = read.and_then(|()| sink.finish().map_err(|error| error.to_string()));
    if read.is_ok() {
        let entries = sink.entries();
        match form {
            Form::Csv => check_separated(&db, b',', input, &columns, entries),
            Form::Tsv => check_separated(&db, b'\t', input, &columns, entries),
            // Each of the user's own objects is an entry.
            Form::Jsonl if columns.key.is_some() => {
                assert_eq!(entries, lines(unmarked(input)), "objects that are there")
            }
            Form::Jsonl => {}
        }
    } else {
        let _ = sink.flush();
    }
    end(&db, begun);
}

/// Without the mark of the byte order.
fn unmarked(input: &[u8]) -> &[u8] {
    input.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(input)
}

/// Lines that are not blank.
fn lines(text: &[u8]) -> u64 {
    let is_blank = |line: &&[u8]| line.iter().all(u8::is_ascii_whitespace);
    text.split(|&byte| byte == b'\n').filter(|line| !is_blank(line)).count() as u64
}

/// What was loaded is what a reader finds that has the whole input at once.
fn check_separated(db: &Database, separator: u8, input: &[u8], columns: &Columns, entries: u64) {
    let mut reader =
        csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(unmarked(input));
    let headers = reader.headers().expect("names of columns").clone();
    let column = |name: &str| headers.iter().position(|header| header == name).expect("a column");
    let key = columns.key.as_deref().map_or(0, column);
    let value = columns.value.as_deref().map(column);
    let records: Vec<_> = reader.records().map(|record| record.expect("a record")).collect();
    assert_eq!(records.len() as u64, entries, "records that are there");
    if columns.key_type.is_some() {
        return;
    }
    let object = |record: &csv::StringRecord| {
        let fields = headers.iter().zip(record).enumerate().filter(|(place, _)| *place != key);
        let fields = fields.map(|(_, (name, field))| (name.to_owned(), field.into()));
        Json::Object(fields.collect()).to_string()
    };
    let expected = records.iter().map(|record| {
        let value = value.map_or_else(|| object(record), |value| record[value].to_owned());
        (record[key].to_owned(), value)
    });
    let expected: BTreeMap<String, String> = expected.collect();
    let table = columns.table.as_deref().or(columns.default_table.as_deref()).expect("a name");
    let loaded = db.transact(|tx| {
        let mut cursor = tx.cursor(TableDefinition::encoded(table), .., Direction::Ascending)?;
        let mut loaded = BTreeMap::new();
        while let Some((key, text)) = cursor.next_encoded(tx)? {
            let text = std::str::from_utf8(text).expect("text");
            // The columns are in another order.
            let text = match value {
                Some(_) => text.to_owned(),
                None => serde_json::from_str::<Json>(text).expect("an object").to_string(),
            };
            loaded.insert(String::from_utf8(key.to_vec()).expect("text"), text);
        }
        Ok(loaded)
    });
    assert_eq!(loaded.expect("a sound database"), expected);
}

/// Lines for `script`.
fn script(data: &[u8]) {
    let answers = play(data);
    let last = answers.iter().filter(|answer| answer["status"] != "blocked").count();
    assert_eq!(last as u64, lines(data), "each line has one answer, and those that wait another one before");
}

/// Plays these lines; gives what was said.
fn play(lines: &[u8]) -> Vec<Json> {
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);
    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let begun = Instant::now();
    let (_disk, db) = database();
    let said = Said::default();
    // What is no command is answered; all else that can go wrong has to do with the disk, or with who reads.
    let _ = script::play_all(&db, lines, Box::new(said.clone())).expect("a sound disk");
    end(&db, begun);
    let said = said.0.lock();
    said.split_inclusive(|&byte| byte == b'\n')
        .map(|line| serde_json::from_slice(line).expect("an answer"))
        .collect()
}

/// Commands for `script` that are made of any bytes, three for each: few sessions and few keys, so that they meet.
fn commands(data: &[u8]) {
    let commands: Vec<Json> = (0..).zip(data.chunks_exact(3).take(MOST_COMMANDS)).map(command).collect();
    let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
    let mut open: BTreeSet<u64> = (0..commands.len() as u64).collect();
    for answer in play(text.as_bytes()) {
        let id = answer["id"].as_u64().expect("the id of a command");
        let is_open = if answer["status"] == "blocked" { open.contains(&id) } else { open.remove(&id) };
        assert!(is_open, "an answer behind the last one: {answer}");
        assert!(answer["error"] != "malformed", "{answer}");
    }
    assert!(open.is_empty(), "no answers: {open:?}");
}

/// One command.
fn command((id, bytes): (u64, &[u8])) -> Json {
    const KEYS: [&str; 8] = ["", "a", "ab", "b", "c", "m", "y", "z"];
    const LENGTHS: [usize; 4] = [0, 10, 900, 6000];
    let &[kind, whom, how] = bytes else { unreachable!("three bytes") };
    let one_of = |names: &[&'static str], number: u8| names[usize::from(number) % names.len()];
    let is = |bit: u8| how >> bit & 1 == 1;
    let (key, other) = (one_of(&KEYS, how & 7), one_of(&KEYS, how >> 3 & 7));
    let table = one_of(&["t", "u"], whom >> 7);
    let value = "v".repeat(LENGTHS[usize::from(how >> 6)]);
    let name = one_of(&["one", "two"], how & 1);
    let mut command = match kind % 24 {
        0..3 => json!({
            "op": "begin",
            "isolation": one_of(&["serializable", "serializable", "repeatable_read", "read_committed"], how & 3),
            "priority": i32::from(how >> 2 & 7) - 3,
            "no_wait": how >> 5 == 0,
            "read_only": how >> 5 == 1,
            "deadline_ms": if how >> 5 == 2 { 3 } else { 60_000 },
            "durability": one_of(&["sync", "pipelined", "lazy"], how >> 5),
        }),
        3 => json!({ "op": "get", "table": table, "key": key }),
        4 => json!({ "op": "get_for_update", "table": table, "key": key }),
        5 => json!({ "op": "delete", "table": table, "key": key }),
        6..9 => json!({ "op": "put", "table": table, "key": key, "value": value }),
        9 => json!({ "op": "insert", "table": table, "key": key, "value": value }),
        10 => json!({ "op": "update", "table": table, "key": key, "value": value }),
        11 => json!({
            "op": "scan", "table": table, "lo": key, "hi": other, "reverse": is(6), "for_update": is(7),
        }),
        12 => json!({
            "op": "scan", "table": table, "lo": key, "lo_inclusive": is(3), "reverse": is(4), "for_update": is(5),
            "skip_locked": is(6), "limit": if is(7) { 1000 } else { 1 },
        }),
        13 => {
            let modes =
                ["intent_shared", "intent_exclusive", "shared", "shared_intent_exclusive", "exclusive"];
            json!({ "op": "lock_table", "table": table, "mode": one_of(&modes, how) })
        }
        14 => json!({ "op": "savepoint", "name": name }),
        15 => json!({ "op": "rollback_to", "name": name }),
        16 => json!({ "op": "release", "name": name }),
        17 | 18 => json!({ "op": "commit" }),
        19 => json!({ "op": "rollback" }),
        20 => json!({ "op": "cancel" }),
        21 => json!({ "op": "explain" }),
        _ => return json!({ "id": id, "op": one_of(&["locks", "waits_for", "deadlocks"], how) }),
    };
    command["id"] = json!(id);
    command["session"] = json!(one_of(&["a", "b", "c", "d"], whom & 3));
    command
}
