//! On a slow disk, those who look at tables take longer than they would wait for a lock.

use std::io;

use foreshore::TableDefinition;
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode, RealDisk},
    hand_on,
    sync::Arc,
    thread,
    time::Instant,
};

use super::*;
use crate::{dump::dump_table, stat::measure};

const LEAVES: u64 = 280;
const ROWS: u64 = 7 * LEAVES;
const ROW_BYTES: usize = 1000;
/// As many reads as there are leaves, at least, take longer than [`PATIENCE`].
const READ: Duration = Duration::from_millis(10);

/// A disk on which only reading the data file takes long.
#[derive(Debug)]
struct SlowDisk(RealDisk);

impl Disk for SlowDisk {
    hand_on!(0: create_directory, sync_directory, list, rename, remove, exists, lies_in, lock, lock_shared);

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.0.open(path, mode)?;
        Ok(if path.ends_with("data") { Arc::new(SlowFile(file)) } else { file })
    }
}

#[derive(Debug)]
struct SlowFile(Arc<dyn DiskFile>);

impl DiskFile for SlowFile {
    hand_on!(0: write_all_at, sync, len, set_len, allocate);

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        thread::sleep(READ);
        self.0.read_at(buffer, offset)
    }
}

#[test]
fn who_waits_for_pages_is_not_out_of_patience() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path()).unwrap();
    const LONG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("long");
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(LONG, key, &[b'x'; ROW_BYTES][..]).map(drop)))
        .unwrap();
    db.close().unwrap();
    let open = || {
        let builder = Database::builder().read_only(true).disk(Arc::new(SlowDisk(RealDisk)));
        builder.open(directory.path()).unwrap()
    };
    let looks: [fn(&Database); 2] = [
        |db| {
            let mut out = Vec::new();
            dump_table(db, &db.tables().unwrap()[0], 0, &mut out).unwrap();
            let lines = out.split_inclusive(|byte| *byte == b'\n').count() as u64;
            assert_eq!(lines, ROWS + 2, "a header, the entries, and the end");
        },
        |db| assert_eq!(measure(db, "long").unwrap().entries, ROWS),
    ];
    // Both at the same time, each with pages of its own.
    thread::scope(|scope| {
        let open = &open;
        for look in looks {
            scope.spawn(move || {
                let db = open();
                let begun = Instant::now();
                look(&db);
                assert!(begun.elapsed() > PATIENCE, "it was too quick to show anything");
                db.close().unwrap();
            });
        }
    });
}
