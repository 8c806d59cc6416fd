//! A database by a relative path, in a process that goes elsewhere: a test by itself, for all threads of a process share where it is.

use foreshore::{Database, TableDefinition};

const TABLE: TableDefinition<u32, &[u8]> = TableDefinition::new("table");

/// The next file of the log was looked for where the process had gone, and the database stopped.
#[test]
fn a_process_may_go_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    std::env::set_current_dir(home.path()).unwrap();
    let open = |path: &str| {
        let builder = Database::builder().set("log_segment_bytes", "256KiB").unwrap();
        builder.set("log_bytes", "4MiB").unwrap().open(path)
    };
    let db = open("db").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::env::set_current_dir(elsewhere.path()).unwrap();
    let value = vec![7; 1 << 10];
    for number in 0..8 {
        db.transact(|tx| {
            (0..1 << 10).try_for_each(|key| tx.put(TABLE, number << 10 | key, &value[..]).map(drop))
        })
        .unwrap();
        db.checkpoint().unwrap();
    }
    assert_eq!(db.path(), home.path().canonicalize().unwrap().join("db"));
    db.close().unwrap();
    drop(db);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    std::env::set_current_dir(home.path()).unwrap();
    let db = open("db").unwrap();
    assert_eq!(
        db.transact(|tx| tx.range(TABLE, ..)?.try_fold(0, |count, entry| entry.map(|_| count + 1))).unwrap(),
        8 << 10
    );
}
