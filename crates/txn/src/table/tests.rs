use foreshore_env::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::*;

fn open(captured: &Captured) -> Vec<(u64, u64)> {
    captured.open.iter().map(|open| (open.txn.0, open.last.0)).collect()
}

#[test]
fn a_transaction_is_seen_from_its_first_record_to_its_last() {
    let table = TxnTable::new(4, 1);
    let nothing = Captured { open: Vec::new(), pending: Lsn::MAX, first: Lsn::MAX };
    assert_eq!(table.capture(), nothing);
    let slot = table.claim(TxnId(1), Lsn(100)).unwrap();
    let seen = table.capture();
    assert_eq!((open(&seen), seen.pending, seen.first), (vec![], Lsn::MAX, Lsn(100)));
    table.begin_change(slot, Lsn(104));
    let seen = table.capture();
    assert_eq!((open(&seen), seen.pending, seen.first), (vec![], Lsn(104), Lsn(100)));
    table.end_change(slot, Lsn(112));
    let seen = table.capture();
    assert_eq!((open(&seen), seen.pending, seen.first), (vec![(1, 112)], Lsn::MAX, Lsn(100)));
    table.begin_change(slot, Lsn(120));
    table.advance(slot, Lsn(128), Lsn(136));
    let seen = table.capture();
    assert_eq!((open(&seen), seen.pending), (vec![(1, 128)], Lsn(136)));
    table.release(slot);
    assert_eq!(table.capture(), nothing);
    assert_eq!(table.open_count(), 0);
}

#[test]
fn slots_are_limited_and_come_back() {
    let table = TxnTable::new(3, 1);
    let slots: Vec<_> = (1..=3).map(|txn| table.claim(TxnId(txn), Lsn(txn)).unwrap()).collect();
    assert!(matches!(table.claim(TxnId(4), Lsn(4)), Err(StorageError::LimitExceeded { limit: 3, .. })));
    assert_eq!(table.open_count(), 3);
    table.release(slots[1]);
    assert_eq!(table.claim(TxnId(5), Lsn(5)).unwrap(), slots[1]);
}

#[test]
fn ids_ascend_and_begin_where_they_are_told() {
    let table = TxnTable::new(1, 77);
    assert_eq!((table.draw(), table.draw(), table.next_txn()), (TxnId(77), TxnId(78), 79));
    assert_eq!(TxnTable::new(1, 0).draw(), TxnId(1), "0 is no transaction");
}

/// Fields of one owner are never taken for those of another, whatever the threads do.
#[test]
fn a_slot_is_read_as_it_was_under_one_owner() {
    let table = Arc::new(TxnTable::new(2, 1));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (table, stop) = (Arc::clone(&table), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let txn = table.draw();
                    let base = txn.0 * 1000;
                    let slot = table.claim(txn, Lsn(base)).unwrap();
                    for step in 1..5 {
                        table.begin_change(slot, Lsn(base + step * 10));
                        table.end_change(slot, Lsn(base + step * 10 + 1));
                    }
                    table.release(slot);
                }
            })
        })
        .collect();
    let mut seen = 0;
    while seen < 20_000 {
        let captured = table.capture();
        for open in captured.open {
            assert_eq!(open.last.0 / 1000, open.txn.0, "the newest record is the owner's");
            seen += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().unwrap();
    }
}

/// Threads that draw at one place, where only one does as a rule, draw each id once all the same.
#[test]
fn ids_of_blocks_are_drawn_once() {
    const THREADS: usize = 4;
    const DRAWS: usize = 20_000;
    let table = TxnTable::new(4, 1);
    let mut ids: Vec<u64> = thread::scope(|scope| {
        let table = &table;
        let draw = |thread| move || (0..DRAWS).map(|_| table.draw_at(thread % 2).0).collect::<Vec<_>>();
        let drawing: Vec<_> = (0..THREADS).map(|thread| scope.spawn(draw(thread))).collect();
        drawing.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    ids.push(table.draw().0);
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids[0] > 0);
    assert!(*ids.last().unwrap() < table.next_txn());
    // One draw in 64 goes to the common counter, few more.
    assert!(table.next_txn() < 2 * (THREADS * DRAWS) as u64, "{}", table.next_txn());
}
