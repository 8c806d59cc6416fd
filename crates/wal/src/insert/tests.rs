//! One contract over all kinds of claims.

use std::cell::Cell;

use foreshore_env::{sync::Arc, thread};
use proptest::prelude::*;

use super::*;
use crate::{
    frame::{HEADER_BYTES, MAX_RECORD_BYTES},
    segment::SEGMENT_HEADER_BYTES,
};

const SEGMENT: u64 = 128 << 10;
const BLOCK: u64 = 16 << 10;

/// WAL-11, of claims in their order, the first of which was made when the log ended at `tail`. `end`: where it ends
/// now.
fn check_contract(geometry: Geometry, tail: u64, end: u64, claims: &[Claimed]) {
    let mut position = tail;
    for claimed in claims {
        let Place { segment_end, start } = claimed.place;
        assert!(start < claimed.end, "nothing was claimed at {start}");
        assert_eq!(
            geometry.base(start),
            geometry.base(claimed.end - 1),
            "{start} crosses the end of a segment"
        );
        if start != position {
            let border = geometry.base(start);
            assert_eq!(start, border + SEGMENT_HEADER_BYTES, "void between {position} and {start}");
            assert!(position <= border && border - position < SEGMENT, "a segment is left out");
            let room = border - position;
            let expected = (room >= HEADER_BYTES as u64).then_some(position);
            assert_eq!(segment_end, expected, "the end of the segment before {start}");
        } else {
            assert_eq!(segment_end, None, "nothing ends before {start}");
        }
        position = claimed.end;
    }
    assert_eq!(position, end, "the tail");
}

fn request(bytes: u64, hint: u64, urgency: Option<Urgency>) -> Request {
    Request { bytes, urgency, hint }
}

proptest! {
    #[test]
    fn claims_of_one_thread_follow_each_other(
        sizes in proptest::collection::vec((4u64..8192, 0usize..3), 1..100),
        tail in 512u64..16_384 * 3,
        segments in 0u64..40,
    ) {
        let geometry = Geometry::new(SEGMENT);
        let tail = geometry.next_start(tail * 8 + (segments << 40));
        let urgencies = [Some(Urgency::Work), Some(Urgency::Ending), None];
        for kind in LogInsert::ALL {
            let inserter = Inserter::new(kind, geometry, tail, BLOCK);
            prop_assert_eq!(inserter.tail(), tail);
            let claims: Vec<Claimed> = sizes
                .iter()
                .map(|&(units, urgency)| {
                    let claimed = inserter.claim(request(units * 8, units, urgencies[urgency]), |_, _| Ok(())).unwrap();
                    assert_eq!((inserter.tail(), inserter.settled_tail()), (claimed.end, claimed.end));
                    claimed
                })
                .collect();
            check_contract(geometry, tail, inserter.tail(), &claims);
        }
    }
}

#[test]
fn claims_of_many_threads_fill_the_log_without_gap() {
    let geometry = Geometry::new(SEGMENT);
    for kind in LogInsert::ALL {
        for tail in [SEGMENT_HEADER_BYTES, SEGMENT, SEGMENT - 8] {
            let inserter = Arc::new(Inserter::new(kind, geometry, tail, BLOCK));
            let mut claims: Vec<Claimed> = thread::scope(|scope| {
                let threads: Vec<_> = (0..8u64)
                    .map(|number| {
                        let inserter = &inserter;
                        scope.spawn(move || {
                            let claim = |round: u64| {
                                let bytes = 32 + (number * 31 + round * 7919) % 4096 * 8;
                                let urgency = [Urgency::Work, Urgency::Ending][(round % 2) as usize];
                                inserter.claim(request(bytes, number, Some(urgency)), |_, _| Ok(())).unwrap()
                            };
                            (0..2000).map(claim).collect::<Vec<_>>()
                        })
                    })
                    .collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            claims.sort_by_key(|claimed| claimed.end);
            check_contract(geometry, tail, inserter.tail(), &claims);
        }
    }
}

#[test]
fn who_is_refused_has_claimed_nothing() {
    let geometry = Geometry::new(SEGMENT);
    for kind in LogInsert::ALL {
        let inserter = Inserter::new(kind, geometry, SEGMENT_HEADER_BYTES, BLOCK);
        for refused in [Refused::NoRoom, Refused::LogFull] {
            let asked = Cell::new(0);
            let result = inserter.claim(request(64, 1, Some(Urgency::Work)), |_, end| {
                asked.set(end);
                Err(refused)
            });
            // What was asked last was about the very place.
            assert_eq!((result, asked.get()), (Err(refused), SEGMENT_HEADER_BYTES + 64), "{kind:?}");
            assert_eq!(inserter.tail(), SEGMENT_HEADER_BYTES, "{kind:?}");
        }
    }
}

/// A group that is refused as a whole: each of its members gets the answer that it would get alone.
#[test]
fn members_of_a_group_that_is_refused_try_by_themselves() {
    let geometry = Geometry::new(SEGMENT);
    let limit = SEGMENT_HEADER_BYTES + 100 * 32;
    for kind in LogInsert::ALL {
        let inserter = Inserter::new(kind, geometry, SEGMENT_HEADER_BYTES, BLOCK);
        let check = |_, end| if end > limit { Err(Refused::LogFull) } else { Ok(()) };
        let granted: usize = thread::scope(|scope| {
            let claim = || inserter.claim(request(32, 0, Some(Urgency::Work)), check).is_ok();
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(move || (0..40).filter(|_| claim()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((granted, inserter.tail()), (100, limit), "{kind:?}");
    }
}

/// More threads with longest records than could ever be cut off at one point: a limit is kept to the byte.
#[test]
fn a_limit_is_kept_by_a_crowd_with_long_records() {
    const LONG: u64 = MAX_RECORD_BYTES as u64;
    let geometry = Geometry::new(1 << 20);
    // In the middle of a block, after a few segments.
    let limit = (4 << 20) + 5 * LONG + BLOCK / 2;
    for kind in LogInsert::ALL {
        let inserter = Inserter::new(kind, geometry, SEGMENT_HEADER_BYTES, BLOCK);
        let check = |_, end| if end > limit { Err(Refused::LogFull) } else { Ok(()) };
        thread::scope(|scope| {
            for number in 0..40 {
                let inserter = &inserter;
                let claim = move || inserter.claim(request(LONG, number, Some(Urgency::Work)), check);
                scope.spawn(move || while claim().is_ok_and(|claimed| claimed.end <= limit) {});
            }
        });
        let tail = inserter.tail();
        assert!(tail <= limit && tail + LONG > limit, "{kind:?}: {tail} of {limit}");
    }
}
