use std::ops::Bound;

use super::*;

fn get(key: &str, result: Option<&str>) -> Op {
    Op::Get { table: 1, key: key.into(), result: result.map(Into::into) }
}

fn put(key: &str, value: &str, existed: bool) -> Op {
    Op::Put { table: 1, key: key.into(), value: value.into(), existed }
}

fn insert(key: &str, value: &str, inserted: bool) -> Op {
    Op::Insert { table: 1, key: key.into(), value: value.into(), inserted }
}

fn delete(key: &str, existed: bool) -> Op {
    Op::Delete { table: 1, key: key.into(), existed }
}

fn scan(low: Bound<&str>, high: Bound<&str>, descending: bool, complete: bool, keys: &[&str]) -> Op {
    Op::Scan {
        table: 1,
        low: low.map(Into::into),
        high: high.map(Into::into),
        descending,
        complete,
        result: keys.iter().map(|key| (key.as_bytes().to_vec(), b"v".to_vec())).collect(),
    }
}

#[test]
fn a_serial_history_replays_whatever_the_order_of_recording() {
    let history = History::new();
    history.record(30, vec![get("a", None), get("b", Some("2")), delete("b", true), delete("b", false)]);
    history.record(10, vec![insert("a", "1", true), insert("a", "x", false), put("b", "2", false)]);
    history.record(20, vec![delete("a", true), put("b", "2", true)]);
    history.record(
        40,
        vec![
            Op::Update { table: 1, key: b"a".to_vec(), value: b"3".to_vec(), updated: false },
            get("a", None),
            put("a", "3", false),
            Op::Update { table: 1, key: b"a".to_vec(), value: b"4".to_vec(), updated: true },
            get("a", Some("4")),
        ],
    );
    assert_eq!(history.len(), 4);
    let state = history.replay_onto(State::new()).unwrap();
    assert_eq!(state, State::from([((1, b"a".to_vec()), b"4".to_vec())]));
}

#[test]
fn a_lost_update_is_caught() {
    let history = History::new();
    history.record(1, vec![put("a", "0", false)]);
    history.record(2, vec![get("a", Some("0")), put("a", "1", true)]);
    history.record(3, vec![get("a", Some("0")), put("a", "1", true)]);
    let anomaly = history.replay().unwrap_err();
    assert_eq!((anomaly.position, anomaly.index), (Position::At(3), 0));
    assert!(anomaly.to_string().contains("transaction 3"), "{anomaly}");
}

#[test]
fn write_skew_is_caught() {
    let history = History::new();
    history.record(1, vec![put("a", "1", false), put("b", "1", false)]);
    history.record(2, vec![get("a", Some("1")), get("b", Some("1")), put("a", "0", true)]);
    history.record(3, vec![get("a", Some("1")), get("b", Some("1")), put("b", "0", true)]);
    assert_eq!(history.replay().unwrap_err().position, Position::At(3));
}

#[test]
fn a_phantom_is_caught() {
    let history = History::new();
    history.record(1, vec![put("a", "v", false), put("c", "v", false)]);
    history.record(2, vec![insert("b", "v", true)]);
    let blind = scan(Bound::Included("a"), Bound::Included("c"), false, true, &["a", "c"]);
    history.record(3, vec![blind]);
    assert_eq!(history.replay().unwrap_err().position, Position::At(3));
}

#[test]
fn scans_know_bounds_directions_tables_and_early_ends() {
    let history = History::new();
    let other = Op::Put { table: 2, key: b"b".to_vec(), value: b"v".to_vec(), existed: false };
    history.record(
        1,
        vec![
            other,
            put("a", "v", false),
            put("b", "v", false),
            put("c", "v", false),
            scan(Bound::Unbounded, Bound::Unbounded, false, true, &["a", "b", "c"]),
            scan(Bound::Unbounded, Bound::Unbounded, true, true, &["c", "b", "a"]),
            scan(Bound::Excluded("a"), Bound::Excluded("c"), false, true, &["b"]),
            scan(Bound::Included("b"), Bound::Unbounded, true, false, &["c"]),
            scan(Bound::Included("c"), Bound::Excluded("b"), false, true, &[]),
            scan(Bound::Excluded("b"), Bound::Excluded("b"), false, true, &[]),
        ],
    );
    history.replay().unwrap();
    history.record(2, vec![scan(Bound::Included("b"), Bound::Unbounded, true, false, &["b"])]);
    assert_eq!(history.replay().unwrap_err().index, 0);
}

#[test]
fn savepoints_undo_changes_and_keep_the_reads_checked() {
    let history = History::new();
    history.record(
        1,
        vec![
            put("a", "1", false),
            Op::Savepoint,
            put("a", "2", true),
            Op::Savepoint,
            delete("a", true),
            get("a", None),
            Op::RollbackTo(0),
            get("a", Some("1")),
            put("b", "1", false),
            Op::RollbackTo(0),
            get("b", None),
        ],
    );
    history.replay().unwrap();
    history.record(2, vec![Op::Savepoint, Op::Savepoint, Op::RollbackTo(0), Op::RollbackTo(1)]);
    assert_eq!(history.replay().unwrap_err().index, 3);
    let history = History::new();
    let (outer, inner) = (Op::Savepoint, Op::Savepoint);
    let change = put("a", "1", false);
    history.record(
        1,
        vec![outer, change, inner, Op::Release(1), get("a", Some("1")), Op::RollbackTo(0), get("a", None)],
    );
    history.replay().unwrap();
    history.record(2, vec![Op::Savepoint, Op::Savepoint, Op::Release(0), Op::RollbackTo(1)]);
    assert_eq!(history.replay().unwrap_err().index, 3);
    let history = History::new();
    history.record(1, vec![Op::Savepoint, put("a", "1", false), get("a", None), Op::RollbackTo(0)]);
    assert_eq!(history.replay().unwrap_err().index, 2);
}

#[test]
fn a_reader_fits_somewhere_in_its_interval_or_is_caught() {
    let build = |after, before, seen: &str| {
        let history = History::new();
        for place in [10, 20, 30] {
            history.record(place, vec![put("a", &place.to_string(), place != 10)]);
        }
        history.record_between(after, before, vec![get("a", Some(seen))]);
        history.replay()
    };
    build(10, 30, "20").unwrap();
    build(10, 10, "10").unwrap();
    build(15, 25, "10").unwrap();
    build(15, 25, "20").unwrap();
    build(30, 99, "30").unwrap();
    build(99, 99, "30").unwrap();
    build(20, 30, "10").unwrap_err();
    build(10, 29, "30").unwrap_err();
    build(21, 29, "10").unwrap_err();
    build(40, 50, "20").unwrap_err();
    build(25, 15, "20").unwrap_err();
}

#[test]
fn a_reader_sees_one_state_and_not_two() {
    let history = History::new();
    history.record(1, vec![put("a", "1", false), put("b", "1", false)]);
    history.record(2, vec![put("a", "2", true)]);
    history.record(3, vec![put("b", "2", true)]);
    history.record_between(0, 9, vec![get("a", Some("1")), get("b", Some("2"))]);
    history.replay().unwrap_err();
}

#[test]
fn two_transactions_cannot_share_a_place() {
    let history = History::new();
    history.record(1, vec![put("a", "1", false)]);
    history.record(1, vec![put("b", "1", false)]);
    assert!(history.replay().is_err());
    assert!(!history.is_empty());
}

/// As [`scan`], by a cursor that skips what is locked; each entry has the value `v`.
fn skip(descending: bool, complete: bool, keys: &[&str]) -> Op {
    match scan(Bound::Included("b"), Bound::Unbounded, descending, complete, keys) {
        Op::Scan { table, low, high, descending, complete, result } => {
            Op::Skip { table, low, high, descending, complete, result }
        }
        op => op,
    }
}

#[test]
fn what_is_skipped_is_a_matter_of_time_and_what_is_got_is_not() {
    let replay = |ops: Vec<Op>| {
        let history = History::new();
        history.record(1, ["a", "b", "c", "d", "e"].map(|key| put(key, "v", false)).into());
        history.record(2, vec![put("d", "w", true)]);
        history.record(3, ops);
        history.replay()
    };
    for ops in [
        vec![skip(false, true, &[]), skip(false, false, &[]), skip(true, true, &["e", "c", "b"])],
        vec![skip(false, true, &["b", "e"]), skip(true, false, &["e"])],
        // What it has written itself comes behind the end, was deleted again, or is no longer so.
        vec![put("c", "v", true), skip(false, false, &["b"]), skip(false, true, &["c"])],
        vec![delete("c", true), skip(false, true, &["b"])],
        vec![Op::Savepoint, put("c", "w", true), Op::RollbackTo(0), skip(false, true, &["b", "e"])],
    ] {
        assert_eq!(replay(ops.clone()), Ok(()), "{ops:?}");
    }
    for wrong in [
        // Changed, never there, outside of the range, out of order, twice.
        vec![skip(false, false, &["d"])],
        vec![skip(false, false, &["f"])],
        vec![skip(false, false, &["a"])],
        vec![skip(false, false, &["c", "b"])],
        vec![skip(true, false, &["b", "c"])],
        vec![skip(false, false, &["b", "b"])],
        // Its own is passed over.
        vec![put("c", "v", true), skip(false, false, &["e"])],
        vec![put("c", "v", true), skip(false, true, &[])],
        vec![delete("c", true), skip(false, true, &["c"])],
    ] {
        let anomaly = replay(wrong.clone()).expect_err("it is believed");
        assert_eq!((anomaly.position, anomaly.index), (Position::At(3), wrong.len() - 1), "{wrong:?}");
    }
}

#[test]
fn what_is_there_what_is_removed_and_keys_alone_are_judged() {
    let contains = |key: &str, present| Op::Contains { table: 1, key: key.into(), present };
    let all = || (Bound::Unbounded, Bound::Unbounded);
    let keys = |descending, complete, result: &[&str]| {
        let ((low, high), result) = (all(), result.iter().map(|&key| key.into()).collect());
        Op::Keys { table: 1, low, high, descending, complete, result }
    };
    let remove = |low: &str, removed| {
        let (low, high) = (Bound::Excluded(low.into()), Bound::Unbounded);
        Op::RemoveRange { table: 1, low, high, most: 2, removed }
    };
    let replay = |ops: &[Op]| {
        let history = History::new();
        history.record(1, vec![put("a", "v", false), put("b", "v", false), put("c", "v", false)]);
        history.record(2, ops.to_vec());
        history.replay().map_err(|anomaly| anomaly.index)
    };
    replay(&[contains("a", true), contains("d", false), keys(true, false, &["c", "b"])]).unwrap();
    replay(&[
        Op::Savepoint,
        remove("a", 2),
        keys(false, true, &["a"]),
        Op::RollbackTo(0),
        get("c", Some("v")),
    ])
    .unwrap();
    assert_eq!(replay(&[contains("a", false)]), Err(0));
    assert_eq!(replay(&[keys(false, true, &["a", "b"])]), Err(0));
    replay(&[remove("", 2), keys(false, true, &["c"])]).unwrap();
    assert_eq!(replay(&[remove("a", 1)]), Err(0));
    assert_eq!(replay(&[remove("", 3)]), Err(0));
    assert_eq!(replay(&[remove("", 2), contains("b", true)]), Err(1));
    assert_eq!(replay(&[remove("a", 2), contains("b", true)]), Err(1));
}
