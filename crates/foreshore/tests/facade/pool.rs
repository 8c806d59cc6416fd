//! The buffer pool as a user meets it: databases larger than their memory, whichever way their pages are found and
//! latched.

use foreshore::{Database, TableDefinition};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const COUNT: u64 = 6000;

fn value(key: u64, round: u8) -> Vec<u8> {
    vec![key as u8 ^ round; 300]
}

#[test]
fn a_database_larger_than_its_pool_keeps_all_rows() {
    for setting in [
        ("translation", "page_table"),
        ("translation", "cuckoo"),
        ("translation", "bucketed"),
        ("translation", "global_mutex"),
        ("transit", "one_list"),
        ("transit", "many_lists"),
        ("latch_mode", "always_shared"),
        ("latch_mode", "always_exclusive"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let builder = Database::builder().pool_bytes(512 << 10).set(setting.0, setting.1)?;
            builder.set("durability", "lazy")?.open(directory.path().join("db"))
        };
        let db = open().unwrap();
        std::thread::scope(|scope| {
            for part in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..2 {
                        for key in (part..COUNT).step_by(3) {
                            db.transact(|tx| tx.put(ROWS, key, value(key, round).as_slice())).unwrap();
                        }
                    }
                });
            }
        });
        let read_all = |db: &Database| {
            db.transact(|tx| {
                let mut count = 0;
                for (entry, expected) in tx.range(ROWS, ..)?.zip(0..) {
                    let (key, bytes) = entry?;
                    assert!(key == expected && bytes == value(key, 1), "{setting:?}: row {key}");
                    count += 1;
                }
                Ok(count)
            })
        };
        assert_eq!(read_all(&db).unwrap(), COUNT, "{setting:?}");
        let stats = db.stats();
        assert!(stats.pool_evictions > stats.pool_frames, "{setting:?}: {stats:?}");
        db.close().unwrap();
        let db = open().unwrap();
        assert_eq!(read_all(&db).unwrap(), COUNT, "{setting:?}");
        assert!(db.verify().unwrap().is_sound(), "{setting:?}");
    }
}
