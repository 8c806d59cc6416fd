//! Loom models of claims and of the flusher that dozes.

use foreshore_env::{
    sync::{Arc, Condvar, Mutex, atomic::AtomicBool},
    thread,
};

use super::*;
use crate::doze::Doze;

/// Bytes of a model's segment.
const SEGMENT: u64 = 8192;
/// Bytes of a record.
const BYTES: u64 = 32;
/// Two records fit in a block.
const BLOCK: u64 = 64;

fn request() -> Request {
    Request { bytes: BYTES, urgency: Some(Urgency::Work), hint: 0 }
}

fn model(body: impl Fn(LogInsert) + Sync + Send + Copy + 'static) {
    for kind in LogInsert::ALL {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || body(kind));
    }
}

/// WAL-11 between two threads that claim twice each, beginning at `tail`. (Three, of which two wait for the third by
/// spinning, are beyond loom: it need never let the third run. `tests.rs` has eight.)
fn disjoint(kind: LogInsert, tail: u64, expected: [u64; 4]) {
    let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), tail, BLOCK));
    let claim = |inserter: &Inserter| [(); 2].map(|()| inserter.claim(request(), |_, _| Ok(())).unwrap());
    let other = {
        let inserter = Arc::clone(&inserter);
        thread::spawn(move || claim(&inserter))
    };
    let mut claims = [claim(&inserter), other.join().unwrap()].concat();
    claims.sort_by_key(|claimed| claimed.end);
    assert_eq!(claims.iter().map(|claimed| claimed.place.start).collect::<Vec<_>>(), expected);
    assert!(claims.iter().all(|claimed| claimed.end == claimed.place.start + BYTES));
    assert_eq!(inserter.tail(), expected[3] + BYTES);
}

#[test]
fn claims_are_disjoint() {
    model(|kind| disjoint(kind, 4096, [0, 1, 2, 3].map(|number| 4096 + number * BYTES)));
}

#[test]
fn claims_at_the_end_of_a_segment_are_disjoint() {
    model(|kind| match kind {
        // A group goes to the next segment as a whole, so where its members are is not fixed.
        LogInsert::Consolidated => {}
        _ => {
            let (last, first) = (SEGMENT - BYTES - 8, SEGMENT + 4096);
            disjoint(kind, last, [last, first, first + BYTES, first + 2 * BYTES]);
        }
    });
}

/// However claims meet, and wherever the limit lies in a block.
#[test]
fn no_claim_exceeds_a_limit() {
    for records in 1..=3 {
        model(move |kind| {
            let limit = 4096 + records * BYTES;
            let check = move |_, end| if end > limit { Err(Refused::LogFull) } else { Ok(()) };
            let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), 4096, BLOCK));
            let claim = move |inserter: &Inserter| [(); 2].map(|()| inserter.claim(request(), check).is_ok());
            let other = {
                let inserter = Arc::clone(&inserter);
                thread::spawn(move || claim(&inserter))
            };
            let own = claim(&inserter);
            let granted = own.into_iter().chain(other.join().unwrap()).filter(|granted| *granted).count();
            assert_eq!((granted as u64, inserter.tail()), (records, limit), "{kind:?}");
        });
    }
}

/// Refused claims come again when the limit has risen, beside others; the tail never goes back.
#[test]
fn a_limit_that_rises_is_kept() {
    model(|kind| {
        let limit = Arc::new(AtomicU64::new(4096 + BYTES));
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), 4096, BLOCK));
        let claim = move |inserter: &Inserter, limit: &AtomicU64| {
            let allowed =
                |_, end| if end > limit.load(Ordering::Acquire) { Err(Refused::LogFull) } else { Ok(()) };
            let claimed = inserter.claim(request(), allowed).ok()?;
            assert!(claimed.end <= limit.load(Ordering::Acquire), "{kind:?}");
            Some(claimed.place.start)
        };
        let other = {
            let (inserter, limit) = (Arc::clone(&inserter), Arc::clone(&limit));
            thread::spawn(move || [(); 2].map(|()| claim(&inserter, &limit)))
        };
        let first = claim(&inserter, &limit);
        let seen = inserter.tail();
        limit.store(4096 + 3 * BYTES, Ordering::Release);
        let second = claim(&inserter, &limit);
        let later = inserter.tail();
        let mut starts: Vec<u64> =
            other.join().unwrap().into_iter().chain([first, second]).flatten().collect();
        starts.sort_unstable();
        let all = (0..starts.len() as u64).map(|number| 4096 + number * BYTES);
        assert!(starts.iter().copied().eq(all), "{kind:?}: {starts:?}");
        let end = inserter.tail();
        assert_eq!(end, 4096 + starts.len() as u64 * BYTES, "{kind:?}");
        assert!(4096 < seen && seen <= later && later <= end, "{kind:?}");
    });
}

/// WAL-12: a thread that sees a claim below the tail sees what the claimer stored before.
#[test]
fn the_tail_orders_what_was_stored_before_a_claim() {
    model(|kind| {
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), 4096, BLOCK));
        let announced = Arc::new(AtomicU64::new(0));
        let claimer = {
            let (inserter, announced) = (Arc::clone(&inserter), Arc::clone(&announced));
            thread::spawn(move || {
                for number in 1..=2 {
                    announced.store(number, Ordering::Relaxed);
                    inserter.claim(request(), |_, _| Ok(())).unwrap();
                }
            })
        };
        // One of them is its own, between those of the other.
        inserter.claim(request(), |_, _| Ok(())).unwrap();
        let claimed = (inserter.tail() - 4096) / BYTES - 1;
        let seen = announced.load(Ordering::Relaxed);
        assert!(seen >= claimed, "{claimed} claims, {seen} announced");
        claimer.join().unwrap();
    });
}

/// A flusher that dozes is woken by the claim that it did not see. A lost wake-up is a deadlock, which loom reports.
#[test]
fn no_claim_is_slept_through() {
    model(|kind| {
        // At the very end of a segment, where the tail of `FetchAdd` stands still until the segment is left.
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), SEGMENT, BLOCK));
        let doze = Arc::new(Doze::default());
        let bed = Arc::new((Mutex::new(()), Condvar::new()));
        let appender = {
            let (inserter, doze, bed) = (Arc::clone(&inserter), Arc::clone(&doze), Arc::clone(&bed));
            thread::spawn(move || {
                inserter.claim(request(), |_, _| Ok(())).unwrap();
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

/// WAL-18: a claim that the flusher's last look does not see comes from a thread that then sees the gate shut.
#[test]
fn no_claim_is_overlooked_at_the_end() {
    model(|kind| {
        // At the very end of a segment, where the tail of `FetchAdd` stands still until the segment is left.
        let inserter = Arc::new(Inserter::new(kind, Geometry::new(SEGMENT), SEGMENT, BLOCK));
        let is_shut = Arc::new(AtomicBool::new(false));
        let appender = {
            let (inserter, is_shut) = (Arc::clone(&inserter), Arc::clone(&is_shut));
            thread::spawn(move || {
                [(); 2].map(|()| {
                    let claimed = inserter.claim(request(), |_, _| Ok(())).unwrap();
                    (claimed.end, is_shut.load(Ordering::Relaxed))
                })
            })
        };
        // Another claims beside it, before.
        inserter.claim(request(), |_, _| Ok(())).unwrap();
        is_shut.store(true, Ordering::Relaxed);
        let last_look = inserter.settled_tail();
        // And behind it, perhaps for a group that the appender is in.
        inserter.claim(request(), |_, _| Ok(())).unwrap();
        for (end, sees_it_shut) in appender.join().unwrap() {
            assert!(end <= last_look || sees_it_shut, "{kind:?}: {end} behind {last_look}");
        }
    });
}
