//! TXN-3, TXN-35 and TXN-37 under loom: every interleaving of transactions with a checkpoint, with somebody who takes
//! one of them over, and with a look at how far the log is settled, and every value that weak memory allows:
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-txn --release --lib --target-dir target/loom
//! ```
//!
//! The log is its tail: one word, advanced as the real one is. What stands in it is known from the start, because one
//! thread does all the work. A checkpoint looks at tail and table; then analysis, begun where the checkpoint says and
//! ended at any place behind the checkpoint's record, must find the same losers as analysis of the whole log.

use std::{collections::BTreeMap, sync::atomic::AtomicUsize};

use foreshore_env::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use foreshore_env::thread;

use super::{Captured, RESTING, SlotNumber, TxnTable};
use foreshore_base::{Lsn, TxnId};

/// Bytes of a record.
const RECORD: u64 = 8;

/// What a transaction logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A change of so many records.
    Change(u64),
    /// The last record.
    Commit,
}

/// Transactions, one after another, in one thread.
type Work = &'static [&'static [Step]];

/// Every record of the log that work makes: transaction, and whether it is the last one of it.
fn log_of(work: Work) -> Vec<(u64, bool)> {
    let mut log = Vec::new();
    for (index, steps) in work.iter().enumerate() {
        for step in *steps {
            match step {
                Step::Change(records) => log.extend((0..*records).map(|_| (index as u64 + 1, false))),
                Step::Commit => log.push((index as u64 + 1, true)),
            }
        }
    }
    log
}

/// Analysis: who is open after the records in `from..to`, and with which newest record.
fn analyse(log: &[(u64, bool)], mut open: BTreeMap<u64, u64>, from: u64, to: u64) -> BTreeMap<u64, u64> {
    for (index, (txn, last)) in log.iter().enumerate() {
        let lsn = (index as u64 + 1) * RECORD;
        if lsn < from || lsn >= to {
            continue;
        }
        if *last {
            open.remove(txn);
        } else {
            let newest = open.entry(*txn).or_insert(lsn);
            *newest = lsn.max(*newest);
        }
    }
    open
}

/// A first LSN of 0 would mean "none".
fn empty_log() -> AtomicU64 {
    AtomicU64::new(RECORD)
}

fn append(tail: &AtomicU64) -> Lsn {
    // As in the log: the claim of a place is an acquiring and releasing read-modify-write.
    Lsn(tail.fetch_add(RECORD, Ordering::AcqRel))
}

/// Only this thread appends, so it knows the tail. (Loom remembers one load of each word: if this thread loaded the
/// tail before it appends, loom would forget that the other one did.)
fn run(work: Work, table: &TxnTable, tail: &AtomicU64) {
    let mut next = Lsn(RECORD);
    for (index, steps) in work.iter().enumerate() {
        let slot = table.claim(TxnId(index as u64 + 1), next).unwrap();
        let mut last = Lsn::ZERO;
        for step in *steps {
            // The least that may be announced: the tail at first, its own last record later.
            table.begin_change(slot, if last == Lsn::ZERO { next } else { last });
            let records = if let Step::Change(records) = step { *records } else { 1 };
            for _ in 0..records {
                last = append(tail);
                next = last.advance(RECORD);
            }
            match step {
                Step::Change(_) => table.end_change(slot, last),
                Step::Commit => table.release(slot),
            }
        }
    }
}

/// What one checkpoint saw: horizon, table, and where its record would be.
fn look(table: &TxnTable, tail: &AtomicU64, horizon_first: bool) -> (Lsn, Captured, u64) {
    let horizon = Lsn(tail.load(Ordering::Acquire));
    let captured = table.capture();
    let horizon = if horizon_first { horizon } else { Lsn(tail.load(Ordering::Acquire)) };
    (horizon, captured, tail.load(Ordering::Acquire))
}

/// Runs a body in every interleaving of up to so many preemptions.
fn explore(name: &str, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    // Not behind the door: what loom knows of ends with each execution.
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{name}: {executions} executions, up to {preemptions} preemptions");
    assert!(executions > 100, "{executions} executions are too few to be all");
}

/// Begins the work, in a thread of its own.
fn begin(work: Work) -> (Arc<TxnTable>, Arc<AtomicU64>, thread::JoinHandle<()>) {
    let (table, tail) = (Arc::new(TxnTable::new(1, 1)), Arc::new(empty_log()));
    let own = (Arc::clone(&table), Arc::clone(&tail));
    let worker = thread::spawn(move || run(work, &own.0, &own.1));
    (table, tail, worker)
}

fn model(work: Work, horizon_first: bool, preemptions: usize) {
    explore(&format!("{work:?}"), preemptions, move || {
        let (table, tail, worker) = begin(work);
        let (horizon, captured, record) = look(&table, &tail, horizon_first);
        worker.join().unwrap();
        let log = log_of(work);
        let analysis = horizon.min(captured.pending).0;
        let open: BTreeMap<u64, u64> = captured.open.iter().map(|open| (open.txn.0, open.last.0)).collect();
        for end in record..=(log.len() as u64 + 1) * RECORD {
            let truth = analyse(&log, BTreeMap::new(), 0, end);
            let found = analyse(&log, open.clone(), analysis, end);
            assert_eq!(found, truth, "{captured:?}, horizon {horizon}, the log ends at {end}");
            // Undo needs every record of a loser.
            for txn in truth.keys() {
                let first =
                    log.iter().position(|(owner, _)| owner == txn).map(|index| (index as u64 + 1) * RECORD);
                let kept = captured.first.0.min(analysis);
                assert!(first.is_some_and(|first| kept <= first), "the log is kept from {kept} only");
            }
        }
    });
}

#[test]
fn a_checkpoint_during_one_transaction() {
    model(&[&[Step::Change(1), Step::Change(2), Step::Commit]], true, 3);
}

#[test]
fn a_checkpoint_while_a_slot_changes_hands() {
    model(&[&[Step::Change(1), Step::Commit], &[Step::Change(1)]], true, 3);
}

#[test]
fn a_checkpoint_while_a_slot_changes_hands_twice() {
    model(&[&[Step::Change(1), Step::Commit], &[Step::Change(1), Step::Commit], &[Step::Change(1)]], true, 2);
}

/// The models can fail: the horizon taken after the table.
#[test]
#[should_panic(expected = "the log ends at")]
fn a_horizon_that_is_taken_last_is_wrong() {
    model(&[&[Step::Change(1), Step::Change(1), Step::Commit]], false, 2);
}

/// What a look at the log sees: the place below which it is settled, and where it ended after the look.
type Look = fn(&TxnTable, &AtomicU64) -> (Lsn, Lsn);

fn settled(table: &TxnTable, tail: &AtomicU64) -> (Lsn, Lsn) {
    table.settled(|| Lsn(tail.load(Ordering::Acquire)))
}

/// TXN-37: whoever has a record below the place has ended, before the place at which the log ended after the look.
fn settled_model(work: Work, look: Look) {
    explore(&format!("{work:?}, settled"), 3, move || {
        let (table, tail, worker) = begin(work);
        let (place, end) = look(&table, &tail);
        worker.join().unwrap();
        let log = log_of(work);
        let lsn = |index: usize| Lsn((index as u64 + 1) * RECORD);
        for (index, (txn, _)) in log.iter().enumerate().filter(|(index, _)| lsn(*index) < place) {
            let ended = log.iter().position(|record| *record == (*txn, true)).map(lsn);
            assert!(
                ended.is_some_and(|ended| ended < end),
                "record {index} counts as settled below {place}, and its transaction is open at {end}"
            );
        }
    });
}

#[test]
fn what_is_settled_has_ended() {
    settled_model(&[&[Step::Change(1), Step::Change(1), Step::Commit]], settled);
    settled_model(&[&[Step::Change(1), Step::Commit], &[Step::Change(1)]], settled);
}

/// The model can fail: the table is looked at before the log.
#[test]
#[should_panic(expected = "counts as settled")]
fn a_tail_that_is_read_last_is_wrong() {
    settled_model(&[&[Step::Change(1), Step::Change(1), Step::Commit]], |table, tail| {
        let oldest = table.oldest();
        let tail = Lsn(tail.load(Ordering::Acquire));
        (tail.min(oldest), tail)
    });
}

/// Changes of a transaction that rests behind each.
const CHANGES: u64 = 4;

/// TXN-35: a transaction that rests is taken over, and undone from its newest record on, or goes on; never both.
fn taken_over(rest: fn(&TxnTable, SlotNumber, TxnId, Lsn)) {
    const TXN: TxnId = TxnId(1);
    explore("taken over", 6, move || {
        let (table, tail) = (Arc::new(TxnTable::new(1, 1)), Arc::new(empty_log()));
        let slot = table.claim(TXN, Lsn(RECORD)).unwrap();
        table.begin_change(slot, Lsn(RECORD));
        let owner = {
            let (table, tail) = (Arc::clone(&table), Arc::clone(&tail));
            thread::spawn(move || {
                let mut last = append(&tail);
                rest(&table, slot, TXN, last);
                for _ in 1..CHANGES {
                    if !table.resume_change(slot, TXN, last) {
                        break;
                    }
                    last = append(&tail);
                    rest(&table, slot, TXN, last);
                }
                last
            })
        };
        let taken = table.take(TXN, Lsn(tail.load(Ordering::Acquire)));
        let newest = owner.join().unwrap();
        match taken {
            Some((_, from)) => {
                assert_eq!(from, newest, "it is undone from {from} on, and goes on to {newest}");
                assert!(!table.resume_change(slot, TXN, newest), "it goes on all the same");
            }
            None => assert_eq!(newest, Lsn(CHANGES * RECORD), "nobody has taken it, and it stops"),
        }
    });
}

#[test]
fn who_rests_is_taken_over_with_all_that_it_has_done() {
    taken_over(TxnTable::rest);
}

/// The model can fail: the rest is announced before what was done.
#[test]
#[should_panic(expected = "it is undone from")]
fn a_rest_that_is_announced_first_is_wrong() {
    taken_over(|table, slot, txn, last| {
        let slot = table.slot(slot);
        slot.pending.store(RESTING | txn.0, Ordering::Release);
        slot.last.store(last.0, Ordering::Release);
    });
}
