//! What opening says of a catalogue, of a log and of a control file that have right checksums and make no sense: which
//! place is damaged, and why. Nothing is written then.

use foreshore::{Database, Error, TableDefinition};
use foreshore_env::sync::Arc;
use foreshore_hostile::{PAGE_BYTES, Sample, database_id, options, records, seal};
use foreshore_testkit::{CrashMode, FaultyDisk};

const TABLE: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("t");
/// Tables.
const CATALOG: u8 = 0;
const OVERFLOW: u8 = 1;
/// Kinds of pages and of records.
const NODE: u8 = 3;
const DELETE: u8 = 19;
const BURY: u8 = 24;
const COMMIT: u8 = 64;
const END: u8 = 65;
const CHECKPOINT: u8 = 66;
const TREE_CREATION: u8 = 67;
const TREE_DROPPED: u8 = 68;
const PREPARE: u8 = 69;
const PREPARE_LOCKS: u8 = 70;

/// What opening a disk says, which changes none of its files.
fn refusal(disk: &FaultyDisk) -> String {
    let everything = || -> Vec<_> {
        disk.files().into_iter().map(|path| (disk.read_file(&path).unwrap(), path)).collect()
    };
    let before = everything();
    let database = Database::builder().options(options()).read_only(true).disk(Arc::new(disk.clone()));
    match database.open(Sample::directory()) {
        Err(error @ Error::Corrupted { .. }) => {
            assert!(everything() == before, "{error}, and the files have changed");
            error.to_string()
        }
        result => panic!("{result:?}"),
    }
}

/// What opening says of this disk when one of its files is changed.
fn refusal_with(disk: &FaultyDisk, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let copy = disk.after_crash(CrashMode::KeepAll);
    let path = Sample::file(file);
    let mut bytes = copy.read_file(&path).unwrap();
    change(&mut bytes);
    seal(&path, &mut bytes, database_id(disk));
    copy.write_file(&path, &bytes).unwrap();
    refusal(&copy)
}

#[track_caller]
fn assert_says(said: &str, what: &str) {
    assert!(said.contains(what), "{what:?} was expected: {said}");
}

/// Where a row of the catalogue is: its key, and the length of its value, which follows.
struct Row {
    slot: usize,
    key: usize,
    key_bytes: usize,
    length: usize,
}

impl Row {
    /// The last row of a table, in its last leaf, which has no prefix.
    fn last(data: &[u8], table: u8) -> Row {
        let number = |at: usize| usize::from(u16::from_le_bytes([data[at], data[at + 1]]));
        let is_last =
            |page: &[u8]| page[21] == NODE && page[16..21] == [table, 0, 0, 0, 0] && page[40..42] == [0; 2];
        let page = data.chunks_exact(PAGE_BYTES).position(is_last).unwrap() * PAGE_BYTES;
        assert_eq!(number(page + 30), 0, "no prefix");
        let slot = page + 64 + 8 * (number(page + 24) - 1);
        let (key, key_bytes) = (page + number(slot + 4), number(slot + 6) & 0x1FFF);
        Row { slot, key, key_bytes, length: key + key_bytes }
    }

    fn value(&self) -> usize {
        self.length + 2
    }

    /// Gives it a key of the same length.
    fn set_key(&self, data: &mut [u8], key: &[u8]) {
        data[self.key..self.key + self.key_bytes].copy_from_slice(key);
        // The first four bytes stand in the slot, too, as a number.
        data[self.slot..self.slot + 4].copy_from_slice(&[key[3], key[2], key[1], key[0]]);
    }
}

/// Rows that no version has written: cut off, of a table that cannot be, of a root that is none, under a name that is
/// no text.
#[test]
fn rows_of_the_catalogue() {
    type Change = fn(&Row, &mut [u8]);
    let sample = Sample::closed();
    let cases: [(&str, Change); 6] = [
        ("a row of the catalogue is too short", |row, data| data[row.length] = 7),
        ("an impossible table or root", |row, data| data[row.value()] = 15),
        ("an impossible table or root", |row, data| data[row.value()..][..4].fill(0xFF)),
        ("an impossible table or root", |row, data| data[row.value() + 4..][..4].fill(0)),
        ("is not UTF-8", |row, data| row.set_key(data, b"name\xFF")),
        // Its key is this byte, and the table's number.
        ("a row of a dropped table is too short", |row, data| {
            row.set_key(data, &[0xFF, 0, 0, 0, 16]);
            data[row.length] = 7;
        }),
    ];
    for (says, change) in cases {
        let said = refusal_with(&sample.disk, "data", |data| {
            let row = Row::last(data, CATALOG);
            assert_eq!(&data[row.key..row.key + row.key_bytes], b"names");
            change(&row, data);
        });
        assert_says(&said, says);
    }
}

/// A record of the log, in its segment.
#[derive(Clone, Copy, Debug)]
struct Record {
    start: usize,
    lsn: u64,
    prev: u64,
    txn: u64,
    kind: u8,
}

fn all(log: &[u8]) -> Vec<Record> {
    let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    let records = records(log).into_iter().map(|(start, _)| Record {
        start,
        lsn: number(start + 8),
        prev: number(start + 16),
        txn: number(start + 24) & 0xFFFF_FFFF_FFFF,
        kind: log[start + 30],
    });
    records.collect()
}

/// The disk of a process that died in the midst of work, with one segment of log: one transaction has committed, one
/// was prepared, and one had taken part of its changes back, and was open.
fn interrupted() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let database = Database::builder().options(options()).disk(Arc::new(disk.clone()));
    let db = database.open(Sample::directory()).unwrap();
    let value = &[7; 50][..];
    db.transact(|tx| (0..20).try_for_each(|key| tx.put(TABLE, key, value).map(drop))).unwrap();
    db.checkpoint().unwrap();
    let mut prepared = db.begin().unwrap();
    prepared.put(TABLE, 100, value).unwrap();
    prepared.prepare("id").unwrap();
    let mut open = db.begin().unwrap();
    open.put(TABLE, 200, value).unwrap();
    let here = open.savepoint().unwrap();
    open.put(TABLE, 201, value).unwrap();
    open.rollback_to(here).unwrap();
    db.transact(|tx| tx.put(TABLE, 300, value).map(drop)).unwrap();
    open.delete(TABLE, 3).unwrap();
    db.transact(|tx| tx.put(TABLE, 301, value).map(drop)).unwrap();
    let left = disk.after_crash(CrashMode::KeepAll);
    drop(open);
    left
}

/// The only segment of its log.
const SEGMENT: &str = "log/0000000000000000.log";

/// What opening says when something is written into a record of this disk's log.
fn refusal_at(disk: &FaultyDisk, at: usize, bytes: &[u8]) -> String {
    refusal_with(disk, SEGMENT, |log| log[at..at + bytes.len()].copy_from_slice(bytes))
}

struct Interrupted {
    disk: FaultyDisk,
    log: Vec<Record>,
}

impl Interrupted {
    fn new() -> Interrupted {
        let disk = interrupted();
        let database = Database::builder().options(options()).read_only(true).disk(Arc::new(disk.clone()));
        let db = database.open(Sample::directory()).unwrap();
        assert_eq!((db.stats().recovery_losers, db.prepared().unwrap().len()), (1, 1));
        let log = all(&disk.read_file(&Sample::file(SEGMENT)).unwrap());
        Interrupted { disk, log }
    }

    fn last(&self, kind: u8) -> Record {
        *self.log.iter().rfind(|record| record.kind == kind).unwrap()
    }

    /// The last record but one of the transaction that was open is a compensation, and the last deletes.
    fn loser(&self) -> [Record; 2] {
        let [bury, delete] = [BURY, DELETE].map(|kind| self.last(kind));
        assert_eq!((delete.prev, delete.txn), (bury.lsn, bury.txn));
        [bury, delete]
    }
}

/// The chain of a transaction that is undone leads into another's, to its own end, or forward.
#[test]
fn chains_of_who_is_undone() {
    let scene = Interrupted::new();
    let [bury, delete] = scene.loser();
    let commit = *scene.log.iter().rfind(|record| record.kind == COMMIT && record.lsn < delete.lsn).unwrap();
    let said = refusal_at(&scene.disk, delete.start + 16, &commit.lsn.to_le_bytes());
    assert_says(
        &said,
        &format!("a record of transaction {} in the chain of transaction {}", commit.txn, bury.txn),
    );

    let said = refusal_with(&scene.disk, SEGMENT, |log| {
        log[delete.start + 16..][..8].copy_from_slice(&commit.lsn.to_le_bytes());
        log[commit.start + 24..][..6].copy_from_slice(&bury.txn.to_le_bytes()[..6]);
    });
    assert_says(&said, "a transaction that has ended cannot be undone");

    for next in [bury.lsn, delete.lsn, u64::MAX] {
        let said = refusal_at(&scene.disk, bury.start + 32, &next.to_le_bytes());
        assert_says(&said, &format!("the record refers forward, to {next}"));
    }
    // Between two records.
    let said = refusal_at(&scene.disk, delete.start + 16, &(bury.lsn - 8).to_le_bytes());
    assert_says(&said, &(bury.lsn - 8).to_string());
}

/// Records of kinds that no version has written, of each crate's numbers.
#[test]
fn kinds_of_records_that_are_none() {
    let scene = Interrupted::new();
    let [_, delete] = scene.loser();
    for kind in [9, 15, 21, 60, 71, 95, 200] {
        let said = refusal_at(&scene.disk, delete.start + 30, &[kind]);
        assert_says(&said, &format!("kind {kind}"));
    }
    // A record without a payload, of kinds that have one.
    let commit = scene.last(COMMIT);
    for kind in [TREE_CREATION, TREE_DROPPED] {
        let said = refusal_at(&scene.disk, commit.start + 30, &[kind]);
        assert_says(&said, &format!("the record of kind {kind} is too short"));
    }
}

/// What was prepared gets its locks back from the log, or nothing opens.
#[test]
fn prepared_transactions() {
    let scene = Interrupted::new();
    let (prepare, locks) = (scene.last(PREPARE), scene.last(PREPARE_LOCKS));
    assert_eq!((locks.lsn, locks.txn), (prepare.prev, prepare.txn));
    let [bury, _] = scene.loser();
    let cases: [(&str, usize, &[u8]); 5] = [
        ("there should be the record of a prepared transaction", prepare.start + 40, &[0xFF; 8]),
        ("there should be locks of a prepared transaction", prepare.start + 56, &[9]),
        ("there should be locks of a prepared transaction", locks.start + 32, &[2]),
        ("there should be locks of a prepared transaction", locks.start + 33, &[77]),
        ("the locks of a prepared transaction are another's", locks.start + 24, &bury.txn.to_le_bytes()[..6]),
    ];
    for (says, at, bytes) in cases {
        assert_says(&refusal_at(&scene.disk, at, bytes), says);
    }
}

/// The control file and the checkpoint that it names say the same.
#[test]
fn a_checkpoint_that_is_not_that_of_the_control_file() {
    let scene = Interrupted::new();
    // Where redo begins, and from where the log is needed, in both slots.
    let cases = [(48, -8, "contradicts the control file"), (56, 8, "no sound record starts there")];
    for (field, more, says) in cases {
        let said = refusal_with(&scene.disk, "control", |control| {
            for slot in [0, 4096] {
                let place = slot + field;
                let number = u64::from_le_bytes(control[place..place + 8].try_into().unwrap());
                let other = number.wrapping_add_signed(more);
                control[place..place + 8].copy_from_slice(&other.to_le_bytes());
            }
        });
        assert_says(&said, says);
    }
    let said = refusal_with(&scene.disk, "control", |control| {
        for slot in [0, 4096] {
            control[slot + 40..slot + 48].copy_from_slice(&scene.last(DELETE).lsn.to_le_bytes());
        }
    });
    assert_says(&said, "there should be a sound checkpoint record");
}

/// Numbers behind which others would begin anew: of the next transaction, of which one would pass for the system's own,
/// and of a long value, to which the next one would be added. The checkpoint says which is the next, and the keys of
/// long values have theirs.
#[test]
fn numbers_behind_which_there_is_none() {
    let scene = Interrupted::new();
    let checkpoint = scene.last(CHECKPOINT);
    for (field, number) in [(16, u64::MAX), (16, (1 << 48) + 1), (24, u64::MAX), (24, 1 << 63)] {
        let said = refusal_at(&scene.disk, checkpoint.start + 32 + field, &number.to_le_bytes());
        assert_says(&said, "there should be a sound checkpoint record");
    }
    let said = refusal_with(&Sample::closed().disk, "data", |data| {
        let row = Row::last(data, OVERFLOW);
        let mut key = data[row.key..row.key + row.key_bytes].to_vec();
        key[0] = 0xFF;
        row.set_key(data, &key);
    });
    assert_says(&said, &format!("no long value has the id {}", 0xFF00_0000_0000_0003_u64));
}

/// The creation of a table did not commit, and a recovery that was to take it back was interrupted in its turn: between
/// the record that says so and the end of the transaction.
#[test]
fn the_creation_of_a_table_that_was_undone() {
    let disk = FaultyDisk::new();
    let open = |disk: &FaultyDisk| {
        let database = Database::builder().options(options()).disk(Arc::new(disk.clone()));
        database.open(Sample::directory()).unwrap()
    };
    let db = open(&disk);
    db.checkpoint().unwrap();
    db.transact(|tx| tx.put(TABLE, 1, &b""[..]).map(drop)).unwrap();
    let left = disk.after_crash(CrashMode::KeepAll);
    let path = Sample::file(SEGMENT);
    let log = |disk: &FaultyDisk| disk.read_file(&path).unwrap();
    let cut = |mut log: Vec<u8>, from: usize| {
        log[from..].fill(0);
        left.write_file(&path, &log).unwrap();
    };
    let bytes = log(&left);
    let creation = *all(&bytes).iter().find(|record| record.kind == TREE_CREATION).unwrap();
    let is_its = |kind: u8| move |record: &&Record| record.kind == kind && record.txn == creation.txn;
    cut(bytes.clone(), all(&bytes).iter().find(is_its(COMMIT)).unwrap().start);

    let recovered = left.after_crash(CrashMode::KeepAll);
    drop(open(&recovered));
    let bytes = log(&recovered);
    let dropped = *all(&bytes).iter().find(is_its(TREE_DROPPED)).unwrap();
    cut(bytes.clone(), all(&bytes).iter().find(is_its(END)).unwrap().start);
    for next in [dropped.lsn, u64::MAX] {
        let said = refusal_at(&left, dropped.start + 32, &next.to_le_bytes());
        assert_says(&said, &format!("the record refers forward, to {next}"));
    }
    let db = open(&left);
    assert_eq!(db.stats().recovery_losers, 1);
    assert!(db.tables().unwrap().is_empty() && db.verify().unwrap().is_sound());
}
