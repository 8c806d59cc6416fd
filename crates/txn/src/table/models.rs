//! TXN-3 under loom: every interleaving of transactions and a checkpoint, and every value that weak memory allows:
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

use super::{Captured, TxnTable};
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

fn model(work: Work, horizon_first: bool, preemptions: usize) {
    // Not behind the door: what loom knows of ends with each execution.
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        let table = Arc::new(TxnTable::new(1, 1));
        let tail = Arc::new(empty_log());
        let worker = {
            let (table, tail) = (Arc::clone(&table), Arc::clone(&tail));
            thread::spawn(move || run(work, &table, &tail))
        };
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
    let executions = executions.load(Ordering::Relaxed);
    println!("{work:?}: {executions} executions, up to {preemptions} preemptions");
    assert!(executions > 100, "{executions} executions are too few to be all");
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
