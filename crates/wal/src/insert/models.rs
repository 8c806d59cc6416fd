//! Loom models of claims and of the flusher that dozes.

use foreshore_env::{
    sync::{Arc, Condvar, Mutex},
    thread,
};

use super::*;
use crate::doze::Doze;

/// Bytes of a model's segment.
const SEGMENT: u64 = 8192;
/// Bytes of a record.
const BYTES: u64 = 32;

fn request() -> Request {
    Request { bytes: BYTES, purpose: Purpose::Forward, hint: 0 }
}

fn model(body: impl Fn(LogInsert) + Sync + Send + Copy + 'static) {
    for kind in LogInsert::ALL {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || body(kind));
    }
}

/// WAL-11 between three threads, whose claims begin at `tail`.
fn disjoint(kind: LogInsert, tail: u64, expected: [u64; 3]) {
    let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), tail));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let inserter = Arc::clone(&inserter);
            thread::spawn(move || inserter.claim(request(), |_| Ok(())).unwrap())
        })
        .collect();
    let mut claims = vec![inserter.claim(request(), |_| Ok(())).unwrap()];
    claims.extend(others.into_iter().map(|other| other.join().unwrap()));
    claims.sort_by_key(|claimed| claimed.end);
    assert_eq!(claims.iter().map(|claimed| claimed.place.start).collect::<Vec<_>>(), expected);
    assert!(claims.iter().all(|claimed| claimed.end == claimed.place.start + BYTES));
    assert_eq!(inserter.tail(), expected[2] + BYTES);
}

#[test]
fn claims_are_disjoint() {
    model(|kind| disjoint(kind, 4096, [4096, 4096 + BYTES, 4096 + 2 * BYTES]));
}

#[test]
fn claims_at_the_end_of_a_segment_are_disjoint() {
    model(|kind| match kind {
        // A group goes to the next segment as a whole, so where its members are is not fixed.
        LogInsert::Consolidated => {}
        _ => {
            disjoint(kind, SEGMENT - BYTES - 8, [SEGMENT - BYTES - 8, SEGMENT + 4096, SEGMENT + 4096 + BYTES])
        }
    });
}

/// Near a limit claims are exact, whoever else claims.
#[test]
fn no_claim_exceeds_a_limit() {
    model(|kind| {
        let limit = 4096 + 2 * BYTES;
        let check = move |end| if end > limit { Err(Refused::LogFull) } else { Ok(()) };
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), 4096));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let inserter = Arc::clone(&inserter);
                thread::spawn(move || inserter.claim(request(), check).is_ok())
            })
            .collect();
        let own = inserter.claim(request(), check).is_ok();
        let granted = others.into_iter().map(|other| other.join().unwrap()).chain([own]).filter(|it| *it);
        assert_eq!((granted.count(), inserter.tail()), (2, limit), "{kind:?}");
    });
}

/// WAL-12: who sees a claim below the tail sees what the claimer stored before.
#[test]
fn the_tail_orders_what_was_stored_before_a_claim() {
    model(|kind| {
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), 4096));
        let announced = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let claimers: Vec<_> = (0..2)
            .map(|number| {
                let (inserter, announced) = (Arc::clone(&inserter), Arc::clone(&announced));
                thread::spawn(move || {
                    announced[number].store(1, Ordering::Relaxed);
                    inserter.claim(request(), |_| Ok(())).unwrap();
                })
            })
            .collect();
        let claimed = (inserter.tail() - 4096) / BYTES;
        let seen = announced.iter().map(|announced| announced.load(Ordering::Relaxed)).sum::<u64>();
        assert!(seen >= claimed, "{claimed} claims, {seen} announced");
        for claimer in claimers {
            claimer.join().unwrap();
        }
    });
}

/// A flusher that dozes is woken by the claim that it did not see. A lost wake-up is a deadlock, which loom reports.
#[test]
fn no_claim_is_slept_through() {
    model(|kind| {
        // At the very end of a segment, where the tail of `FetchAdd` stands still until the segment is left.
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), SEGMENT));
        let doze = Arc::new(Doze::default());
        let bed = Arc::new((Mutex::new(()), Condvar::new()));
        let appender = {
            let (inserter, doze, bed) = (Arc::clone(&inserter), Arc::clone(&doze), Arc::clone(&bed));
            thread::spawn(move || {
                inserter.claim(request(), |_| Ok(())).unwrap();
                if doze.is_on() && doze.end() {
                    let _guard = bed.0.lock();
                    bed.1.notify_one();
                }
            })
        };
        let mut guard = bed.0.lock();
        while inserter.tail() == SEGMENT {
            doze.begin();
            if inserter.settled_tail() == SEGMENT {
                guard = bed.1.wait(guard);
            }
            doze.end();
        }
        drop(guard);
        appender.join().unwrap();
    });
}
