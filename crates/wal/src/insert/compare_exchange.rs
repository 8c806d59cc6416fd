//! The tail is one word, advanced by compare-exchange: nobody holds it, so a preempted thread holds up nobody's claim.

use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Claimed, Refused, Request};
use crate::segment::Geometry;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CompareExchange {
    /// Where the log ends. Advanced by compare-exchange of whoever appends.
    pub(super) tail: CachePadded<AtomicU64>,
    geometry: Geometry,
}

impl CompareExchange {
    pub(super) fn new(geometry: Geometry, tail: u64) -> CompareExchange {
        CompareExchange { tail: CachePadded::new(AtomicU64::new(tail)), geometry }
    }

    #[inline]
    pub(super) fn claim(
        &self,
        request: Request,
        check: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let claimed = Claimed::at(position, self.geometry, request.bytes);
            check(claimed.end)?;
            match self.tail.compare_exchange_weak(position, claimed.end, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Ok(claimed),
                Err(now) => position = now,
            }
        }
    }
}
