//! A database whose directory is moved, or replaced by another one, while it is open: it stops, and the other one is
//! left alone.
#![cfg(not(any(foreshore_loom, foreshore_sim)))]

use std::{collections::BTreeMap, env, fs, path::Path};

use foreshore::{Database, Error, Options, TableDefinition};

const TABLE: TableDefinition<u64, Vec<u8>> = TableDefinition::new("table");
const KEYS: u64 = 100;
/// Enough for several segments of the log.
const ROWS: u64 = 600;

type Content = BTreeMap<u64, Vec<u8>>;

fn open(path: &Path) -> Database {
    let options = Options { log_segment_bytes: 256 << 10, log_bytes: 8 << 20, ..Options::default() };
    Database::builder().options(options).open(path).unwrap()
}

/// Writes so many rows, each in a transaction of its own, until one fails. `acknowledged` has what did not.
fn write(database: &Database, first: u64, acknowledged: &mut Content) -> Result<(), Error> {
    for row in first..first + ROWS {
        let value = vec![row as u8; 3000];
        database.transact(|tx| tx.put(TABLE, row % KEYS, value.clone()))?;
        acknowledged.insert(row % KEYS, value);
    }
    database.checkpoint()
}

fn content(path: &Path) -> Content {
    let database = open(path);
    assert!(database.verify().unwrap().is_sound());
    let rows = database.transact(|tx| (0..KEYS).map(|key| Ok((key, tx.get(TABLE, key)?))).collect());
    let rows: Vec<(u64, Option<Vec<u8>>)> = rows.unwrap();
    rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn says_what_happened(error: &Error) {
    assert!(error.to_string().contains("was moved or replaced while it was open"), "{error}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if from.is_dir() { copy(&from, &to.join(name)) } else { _ = fs::copy(&from, to.join(name)).unwrap() }
    }
}

/// It took the other one's spares for its own, wrote into them, and renamed them over the other one's segments.
#[test]
fn a_database_that_is_replaced_does_the_other_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let [path, aside] = ["db", "old"].map(|name| home.path().join(name));
    let first = open(&path);
    let mut of_first = Content::new();
    // Spares are made, and segments become some.
    for round in 0..4 {
        write(&first, round * ROWS, &mut of_first).unwrap();
    }
    fs::rename(&path, &aside).unwrap();
    copy(&aside, &path);
    let second = open(&path);
    let mut of_second = of_first.clone();
    let failed = (4..8).find_map(|round| {
        let failed = write(&first, round * ROWS, &mut of_first).err();
        write(&second, round * ROWS + 7, &mut of_second).unwrap();
        failed
    });
    let closed = [&first, &second].map(|database| database.close().is_ok());
    assert!(content(&path) == of_second, "the other one has lost what it acknowledged");
    // What was not acknowledged may be there.
    let differ = content(&aside).into_iter().filter(|(key, value)| of_first.get(key) != Some(value)).count();
    assert!(differ <= 1, "{differ} of {KEYS} rows are not as they were acknowledged");
    says_what_happened(&failed.expect("it goes on in the other one's directory"));
    assert_eq!(closed, [false, true]);
}

#[test]
fn a_relative_path_that_leads_elsewhere_is_told() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    env::set_current_dir(home.path()).unwrap();
    let database = open(Path::new("db"));
    env::set_current_dir(elsewhere.path()).unwrap();
    let mut acknowledged = Content::new();
    let failed = (0..8).find_map(|round| write(&database, round * ROWS, &mut acknowledged).err());
    says_what_happened(&failed.expect("it goes on where the process went"));
    assert!(database.close().is_err());
    drop(database);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "files where the process went");
    let found = content(&home.path().join("db"));
    let differ = found.iter().filter(|(key, value)| acknowledged.get(key) != Some(value)).count();
    assert!(
        differ <= 1 && found.len() >= acknowledged.len(),
        "{differ} rows are not as they were acknowledged"
    );
}
