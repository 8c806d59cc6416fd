use std::collections::BTreeMap;

use foreshore_env::{random::Xorshift, time::Instant};

use super::*;

const TABLE: TableId = TableId(16);

fn name(bits: u64) -> LockName {
    LockName::from_bits(bits)
}

/// TXN-17, against a map from names to modes: whatever is recorded, in whatever order and however often.
#[test]
fn every_name_is_there_once_in_the_join_of_its_modes_and_in_order() {
    let mut random = Xorshift::new(3);
    for round in 0..200 {
        let mut footprint = Footprint::default();
        let mut expected: BTreeMap<u64, KeyMode> = BTreeMap::new();
        footprint.add_table(TABLE, IntentMode::IX);
        for _ in 0..random.below(400) {
            let bits = random.below(1 + round);
            let mode = KeyMode::ALL[1 + random.below(8) as usize];
            let key = bits.to_be_bytes();
            let key = if bits == 0 { KeyRef::NegativeInfinity } else { KeyRef::Key(&key) };
            footprint.add_key(name(bits), TABLE, key, mode, 0);
            let joined = expected.entry(bits).or_insert(KeyMode::N);
            *joined = joined.join(mode);
        }
        footprint.settle(0);
        let found: Vec<(u64, KeyMode)> = footprint
            .keys()
            .map(|(table, key, mode)| {
                assert_eq!(table, TABLE);
                match key {
                    KeyRef::NegativeInfinity => (0, mode),
                    KeyRef::Key(key) => (u64::from_be_bytes(key.try_into().unwrap()), mode),
                }
            })
            .collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        assert_eq!(footprint.bytes.len(), 8 * found.iter().filter(|(bits, _)| *bits != 0).count());
    }
}

/// Each table was looked for among all others, and for each key: a plan of 50,000 tables took a minute.
#[test]
fn a_footprint_may_have_all_tables_that_there_are() {
    const TABLES: u32 = 60_000;
    let mut footprint = Footprint::default();
    let begun = Instant::now();
    for round in 0..2 {
        for table in 0..TABLES {
            // From below, and in another order than they are settled in.
            let table = TableId(TABLE.0 + (table * 7919) % TABLES);
            let mode = if table.0 % 2 == round { IntentMode::IX } else { IntentMode::IS };
            footprint.add_table(table, mode);
            footprint.add_key(name(table.0.into()), table, KeyRef::Key(b"key"), KeyMode::XN, 0);
        }
    }
    footprint.settle(0);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    assert_eq!((footprint.tables().len(), footprint.keys.len()), (TABLES as usize, TABLES as usize));
    assert!(footprint.tables().iter().all(|part| part.mode == IntentMode::IX));
    // One of them has as many keys as are worth a lock on the table.
    for key in 0..100_u32 {
        footprint.add_key(
            name((1 << 32) + u64::from(key)),
            TABLE,
            KeyRef::Key(&key.to_be_bytes()),
            KeyMode::SN,
            0,
        );
    }
    footprint.settle(100);
    let whole: Vec<_> = footprint.tables().iter().filter(|part| part.mode != IntentMode::IX).collect();
    assert_eq!((whole.len(), whole[0].table, whole[0].mode), (1, TABLE, IntentMode::SIX));
    assert_eq!(footprint.keys.len(), TABLES as usize);
}

/// Tables were in the order of their ids, and those whose ids are far apart share their locks: two plans waited for
/// each other, or both had an entry to read before each asked for it to write.
#[test]
fn tables_that_share_their_locks_are_next_to_each_other_and_ask_for_the_same() {
    let [first, second, sharing] = [16, 17, 16 + 65_520].map(TableId);
    let mut footprint = Footprint::default();
    footprint.add_table(sharing, IntentMode::IX);
    footprint.add_table(second, IntentMode::IS);
    footprint.add_table(first, IntentMode::S);
    footprint.settle(0);
    let tables: Vec<_> = footprint.tables().iter().map(|part| (part.table, part.mode)).collect();
    assert_eq!(tables, [(first, IntentMode::SIX), (sharing, IntentMode::SIX), (second, IntentMode::IS)]);
}

#[test]
fn many_keys_of_a_table_become_the_table() {
    for (mode, locked) in [(KeyMode::XN, IntentMode::X), (KeyMode::S, IntentMode::SIX)] {
        let mut footprint = Footprint::default();
        footprint.add_table(TableId(17), IntentMode::IS);
        footprint.add_table(TABLE, IntentMode::IX);
        footprint.add_key(name(0), TableId(17), KeyRef::Key(b"other"), KeyMode::SN, 100);
        for bits in 1..=150u64 {
            footprint.add_key(name(bits), TABLE, KeyRef::Key(&bits.to_be_bytes()), mode, 100);
        }
        footprint.settle(100);
        assert_eq!(footprint.tables()[0].mode, locked);
        assert_eq!(footprint.tables()[1].mode, IntentMode::IS);
        assert_eq!(footprint.keys.len(), 1);
        // What is covered is not recorded any more.
        footprint.add_key(name(900), TABLE, KeyRef::Key(b"more"), mode, 100);
        assert_eq!(footprint.keys.len(), 1);
    }
}

#[test]
fn after_too_many_misses_whole_tables_are_locked_and_no_keys() {
    let mut footprint = Footprint::default();
    footprint.add_table(TABLE, IntentMode::IS);
    footprint.add_key(name(1), TABLE, KeyRef::Key(b"key"), KeyMode::SN, 0);
    for _ in 1..PLAN_MISSES {
        assert!(!footprint.note_miss());
        assert_eq!(footprint.keys.len(), 1);
    }
    assert!(footprint.note_miss(), "this one is too many");
    assert!(!footprint.note_miss(), "it is so already");
    footprint.add_table(TableId(9), IntentMode::IS);
    footprint.settle(0);
    assert_eq!(footprint.keys.len(), 0);
    let tables: Vec<_> = footprint.tables().iter().map(|part| (part.table, part.mode)).collect();
    assert_eq!(tables, [(TableId(9), IntentMode::X), (TABLE, IntentMode::X)]);
}
