//! A database that was opened by a relative path, in a process that goes somewhere else: alone in its program, because all threads
//! share the working directory.
#![cfg(not(any(foreshore_loom, foreshore_sim)))]

use std::{env, fs};

use foreshore::{Database, TableDefinition};

const TABLE: TableDefinition<u64, Vec<u8>> = TableDefinition::new("table");
const ROWS: u64 = 3000;

#[test]
fn a_database_stays_where_it_was_opened() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    env::set_current_dir(home.path()).unwrap();
    let database = Database::builder().set("log_segment_bytes", "1MiB").unwrap().open("db").unwrap();
    env::set_current_dir(elsewhere.path()).unwrap();
    // Enough for new segments of the log and checkpoints.
    for row in 0..ROWS {
        database.transact(|tx| tx.put(TABLE, row % 100, vec![row as u8; 3000])).unwrap();
    }
    database.checkpoint().unwrap();
    database.close().unwrap();
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "files where the process went");
    let database = Database::open(home.path().join("db")).unwrap();
    let last = database.transact(|tx| tx.get(TABLE, (ROWS - 1) % 100)).unwrap();
    assert_eq!(last, Some(vec![(ROWS - 1) as u8; 3000]));
}
