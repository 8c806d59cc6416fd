//! Appending: BTREE-10 and BTREE-11 for records that come many at a time.

use std::collections::BTreeMap;

use foreshore_base::{Lsn, PageId, TableId, TxnId};
use foreshore_env::random::Xorshift;

use super::support::{Rig, TABLE};
use crate::{Append, BTree, NoLocks, Reaped, Session, TxnChain, is_undoable, undo, undo_next};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Ascending keys from `first` on, with values short, empty and long.
fn entries(first: u32, count: u32, random: &mut Xorshift) -> Entries {
    let value = |number: u32, random: &mut Xorshift| {
        let length = if random.below(15) == 0 { 5000 } else { random.below(300) as usize };
        vec![number as u8; length]
    };
    (first..first + count).map(|number| (number.to_be_bytes().to_vec(), value(number, random))).collect()
}

#[test]
fn appended_records_are_records() {
    for (capacity, seed) in [(4, 1), (4, 2), (usize::MAX, 3), (usize::MAX, 4)] {
        let rig = Rig::new(capacity);
        let (mut random, mut model) = (Xorshift::new(seed), BTreeMap::new());
        let mut next = 0;
        for txn in 1..40 {
            let mut session = NoLocks::new(TxnId(txn));
            let mut changed = model.clone();
            let count = random.below(80) as u32;
            let batch = entries(next, count, &mut random);
            assert_eq!(rig.tree.append(&mut session, &batch).unwrap(), Append::Done);
            changed.extend(batch);
            // Among other changes of the same transaction.
            for _ in 0..random.below(10) {
                let key = (random.below(u64::from(next + count) + 1) as u32).to_be_bytes();
                if random.below(2) == 0 {
                    rig.tree.delete(&mut session, &key).unwrap();
                    changed.remove(&key[..]);
                } else {
                    rig.tree.put(&mut session, &key, &[7; 30]).unwrap();
                    changed.insert(key.to_vec(), vec![7; 30]);
                }
            }
            // Also when it is taken back: the ghosts keep their keys until they are purged.
            next += count + 1;
            if random.below(3) == 0 {
                let until = session.chain().last;
                rig.roll_back(session.chain(), Lsn::ZERO);
                assert!(session.chain().last >= until);
            } else {
                model = changed;
            }
            assert_eq!(rig.contents(), model, "transaction {txn}");
        }
        rig.verify();
        let again = rig.redone("db/again", capacity);
        again.verify();
        for page in rig.pages() {
            assert!(rig.page(page).0 == again.page(page).0, "page {page} after redo");
        }
        assert_eq!(again.contents(), model);
    }
}

#[test]
fn leaves_are_full() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    let batch: Entries = (0..20_000_u32).map(|n| (n.to_be_bytes().to_vec(), vec![1; 60])).collect();
    let before = rig.log.tail();
    for part in batch.chunks(1000) {
        assert_eq!(rig.tree.append(&mut session, part).unwrap(), Append::Done);
    }
    let bytes = rig.log.tail().0 - before.0;
    let report = rig.verify();
    assert_eq!(report.records, 20_000);
    let used = report.bytes_used as f64 / (report.bytes_used + report.bytes_free) as f64;
    // What is missing are the prefixes that keys share once the leaf has a high fence.
    assert!(used > 0.93, "leaves are {used} full");
    // Hardly more than the records themselves.
    assert!(bytes < 20_000 * 80, "{bytes} bytes of log");
}

#[test]
fn what_is_not_behind_all_others_is_refused() {
    let rig = Rig::new(4);
    let mut session = NoLocks::new(TxnId(1));
    let entry = |key: &str| (key.as_bytes().to_vec(), b"v".to_vec());
    assert_eq!(rig.tree.append(&mut session, &[] as &[(Vec<u8>, Vec<u8>)]).unwrap(), Append::Done);
    assert_eq!(rig.tree.append(&mut session, &[entry("b"), entry("c")]).unwrap(), Append::Done);
    for (refused, number) in [
        (vec![entry("c")], 0),
        (vec![entry("a")], 0),
        (vec![entry("b"), entry("d")], 0),
        (vec![entry("b"), entry("d"), entry("d")], 0),
        (vec![entry("e"), entry("d")], 1),
        (vec![entry("d"), entry("d")], 1),
        (vec![entry("d"), entry("e"), entry("e"), entry("d")], 2),
    ] {
        let ended = rig.tree.append(&mut session, &refused).unwrap();
        assert_eq!(ended, Append::NotBehind { entry: number, of_ghost: false }, "{refused:?}");
        assert_eq!(rig.contents().len(), 2);
    }
    // Deleted records are in nobody's way, here: nobody holds a lock on them.
    for key in ["t", "u", "v", "w", "x", "xx"] {
        rig.tree.insert(&mut session, key.as_bytes(), b"").unwrap();
        rig.tree.delete(&mut session, key.as_bytes()).unwrap();
    }
    assert_eq!(rig.tree.append(&mut session, &[entry("u"), entry("x")]).unwrap(), Append::Done);
    assert_eq!(rig.contents().len(), 4);
    assert_eq!(rig.tree.append(&mut session, &[entry("y"), entry("z")]).unwrap(), Append::Done);
    rig.verify();
    // Limits are those of a write, and looked at before anything is done.
    let long = (vec![b'~'; 3000], Vec::new());
    assert!(rig.tree.append(&mut session, &[(b"zz".to_vec(), Vec::new()), long]).is_err());
    assert!(!rig.contents().contains_key(&b"zz"[..]));
}

/// A crash after each of the compensations of an append; undo goes on from there, and takes nothing back twice.
#[test]
fn undo_of_an_append_survives_a_crash_at_every_step() {
    for capacity in [4, usize::MAX] {
        let rig = Rig::new(capacity);
        let mut setup = NoLocks::new(TxnId(1));
        let mut random = Xorshift::new(5);
        assert_eq!(rig.tree.append(&mut setup, &entries(0, 30, &mut random)).unwrap(), Append::Done);
        let expected = rig.contents();
        let mut loser = NoLocks::new(TxnId(2));
        let appended = entries(100, 40, &mut random);
        assert_eq!(rig.tree.append(&mut loser, &appended).unwrap(), Append::Done);
        // Between them, so that their leaves are split, and ghosts are between them when they are buried.
        for (key, _) in appended.iter().step_by(2) {
            rig.tree.put(&mut loser, &[&key[..], &[1]].concat(), &[9; 200]).unwrap();
        }
        let newest = loser.chain().last;
        rig.roll_back(loser.chain(), Lsn::ZERO);
        assert_eq!(rig.contents(), expected);
        // The compensations, and where undo goes on after each.
        let (mut reader, mut payload) = (rig.log.reader(newest), Vec::new());
        let mut steps = vec![(newest, newest)];
        while let Some(header) = reader.next(&mut payload).unwrap() {
            if header.txn == TxnId(2) && header.lsn > newest {
                steps.push((header.lsn, undo_next(&header, &payload).unwrap()));
            }
        }
        assert!(steps.len() > 20, "{} steps", steps.len());
        // An append whose leaf was split is the next one again after its first compensation.
        let interrupted = steps.windows(2).any(|pair| pair[0].1 == pair[1].1);
        assert!(interrupted || capacity > 4);
        for (index, (last, next)) in steps.into_iter().enumerate().step_by(if capacity == 4 { 1 } else { 3 })
        {
            let crashed = rig.redone_until(&format!("db/crash{capacity}-{index}"), capacity, last.advance(1));
            let mut chain = TxnChain { txn: TxnId(2), first: Lsn::ZERO, last };
            finish_undo(&crashed, &mut chain, next);
            assert_eq!(crashed.contents(), expected, "crash at {last}");
            crashed.verify();
        }
    }
}

/// A log or a page that is damaged behind a right checksum: no record of anybody else is buried, and undo ends.
#[test]
fn an_append_that_makes_no_sense_is_not_taken_back() {
    let rig = Rig::new(usize::MAX);
    let (mut session, mut other) = (NoLocks::new(TxnId(1)), NoLocks::new(TxnId(2)));
    let entry = |key: &[u8]| (key.to_vec(), b"v".to_vec());
    assert_eq!(rig.tree.append(&mut session, &[entry(b"a"), entry(b"c")]).unwrap(), Append::Done);
    rig.tree.insert(&mut other, b"b", b"v").unwrap();
    let (mut chain, mut payload) = (*session.chain(), Vec::new());
    let header = rig.log.read(chain.last, &mut payload).unwrap();
    let error = undo(&rig.env, &rig.tables(), &header, &payload, &mut chain).unwrap_err();
    assert!(error.to_string().contains("other records between"), "{error}");
    let place = payload.iter().position(|byte| *byte == b'c').unwrap();
    for key in *b"Aa" {
        payload[place] = key;
        let error = undo(&rig.env, &rig.tables(), &header, &payload, &mut chain).unwrap_err();
        assert!(error.to_string().contains("makes no sense"), "{error}");
    }
    assert_eq!((rig.contents().len(), chain.last), (3, session.chain().last));
}

fn finish_undo(rig: &Rig, chain: &mut TxnChain, next: Lsn) {
    let (tables, mut lsn, mut payload) = (rig.tables(), next, Vec::new());
    while lsn > Lsn::ZERO {
        let header = rig.log.read(lsn, &mut payload).unwrap();
        lsn = match undo_next(&header, &payload) {
            Some(next) => next,
            None => {
                if is_undoable(header.kind) {
                    undo(&rig.env, &tables, &header, &payload, chain).unwrap();
                }
                header.prev
            }
        };
    }
}

/// Two million small records were appended within what the log has room for, and could not be taken back: a
/// compensation for each took five times as much, and the database could not be opened again.
#[test]
fn taking_an_append_back_takes_no_more_log_than_the_append() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    let batch: Entries = (0..20_000_u32).map(|n| (n.to_be_bytes().to_vec(), vec![1; 4])).collect();
    let before = rig.log.tail().0;
    assert_eq!(rig.tree.append(&mut session, &batch).unwrap(), Append::Done);
    let forward = rig.log.tail().0 - before;
    rig.roll_back(session.chain(), Lsn::ZERO);
    let back = rig.log.tail().0 - before - forward;
    assert!(back < forward / 10, "{forward} bytes forward, {back} back");
    assert!(rig.contents().is_empty());
}

/// Keys that share much take little of a page, and all of it in a log record: one of a hundred was longer than the log
/// takes.
#[test]
fn an_append_is_logged_in_records_that_the_log_takes() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    let key = |number: u16| [&[b'k'; 900][..], &number.to_be_bytes()].concat();
    let entry = |number: u16| (key(number), Vec::new());
    let ends: Entries = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|number| entry(number * 1000)).into();
    assert_eq!(rig.tree.append(&mut session, &ends).unwrap(), Append::Done);
    // A leaf between fences, with many records; then the upper ones are gone, and whatever is behind them.
    for number in 2001..2200 {
        assert!(rig.tree.insert(&mut session, &key(number), b"").unwrap());
    }
    let behind: Vec<u16> = (2100..2200).chain([3000, 4000, 5000, 6000, 7000, 8000]).collect();
    behind.iter().for_each(|&number| assert!(rig.tree.delete(&mut session, &key(number)).unwrap()));
    let again: Entries = behind.iter().map(|&number| entry(number)).collect();
    assert_eq!(rig.tree.append(&mut session, &again).unwrap(), Append::Done);
    assert_eq!(rig.contents().len(), 9 + 199);
    rig.verify();
}

/// Taking a tree apart, with a crash after each page: what is left is always a tree of pages, and in the end nothing
/// is.
#[test]
fn a_tree_is_taken_apart_page_by_page() {
    let rig = Rig::new(4);
    let mut session = NoLocks::new(TxnId(1));
    assert_eq!(rig.tree.append(&mut session, &entries(0, 120, &mut Xorshift::new(3))).unwrap(), Append::Done);
    // Of several parts.
    assert!(rig.tree.insert(&mut session, b"\xFF", &[7; 200_000]).unwrap());
    let (mut cleared, mut freed) = (PageId::NONE, 0);
    loop {
        let before = rig.tree.remains(&mut |_, _| Ok(())).unwrap();
        match rig.tree.reap(cleared).unwrap() {
            Reaped::Page => {
                freed += 1;
                let mut pages = Vec::new();
                let mut visit = |page, _: &_| {
                    pages.push(page);
                    Ok(())
                };
                let left = rig.tree.remains(&mut visit).unwrap();
                assert_eq!(left.pages, before.pages - 1);
                rig.overflow.pages(&mut |page| pages.push(page)).unwrap();
                pages.sort_unstable();
                let mut allocated = Vec::new();
                rig.env.pool.visit_allocated(&mut |page| allocated.push(page)).unwrap();
                assert_eq!(pages, allocated);
                if freed % 10 == 1 {
                    let crashed = rig.redone(&format!("db/reaped{freed}"), 4);
                    assert_eq!(crashed.tree.remains(&mut |_, _| Ok(())).unwrap(), left);
                }
            }
            Reaped::LongValues { leaf, references } => {
                assert!(!references.is_empty() && before.long_values >= references.len() as u64);
                let mut session = NoLocks::new(TxnId(2));
                for reference in references {
                    // How much of it is left is remembered, or found out.
                    let (mut left, mut known) = (u32::MAX, None);
                    while left > 0 {
                        let rest = rig.tree.delete_long_value(&mut session, &reference, known).unwrap();
                        let rest = rest.expect("there were some");
                        assert!(rest < left);
                        known = if known.is_none() { Some(rest) } else { None };
                        left = rest;
                    }
                    assert_eq!(rig.tree.delete_long_value(&mut session, &reference, None).unwrap(), None);
                }
                cleared = leaf;
            }
            Reaped::Gone => break,
        }
    }
    assert!(freed > 40, "{freed} pages");
    assert!(!rig.env.pool.is_allocated(rig.tree.root()).unwrap());
    // Its root's page is somebody else's now: it stays alone.
    let other = loop {
        let other = BTree::create(&rig.env, TableId(TABLE.0 + 1)).unwrap();
        if other.root() == rig.tree.root() {
            break other;
        }
    };
    assert_eq!(rig.tree.reap(PageId::NONE).unwrap(), Reaped::Gone);
    assert!(rig.env.pool.is_allocated(other.root()).unwrap());
}
