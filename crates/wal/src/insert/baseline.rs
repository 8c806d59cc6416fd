//! What the others are measured against: the tail under a mutex, as in a log manager that nobody has worked on yet.

use foreshore_env::{
    CachePadded,
    sync::{Mutex, atomic::AtomicU64},
};

use super::{Claimed, Refused, Request, advance};
use crate::segment::Geometry;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct OneMutex {
    /// Held by the one who claims.
    mutex: CachePadded<Mutex<()>>,
    /// Where the log ends. Written under the mutex, read by all.
    pub(super) tail: CachePadded<AtomicU64>,
    geometry: Geometry,
}

impl OneMutex {
    pub(super) fn new(geometry: Geometry, tail: u64) -> OneMutex {
        let tail = CachePadded::new(AtomicU64::new(tail));
        OneMutex { mutex: CachePadded::new(Mutex::new(())), tail, geometry }
    }

    #[inline]
    pub(super) fn claim(
        &self,
        request: Request,
        check: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        let _turn = self.mutex.lock();
        advance(&self.tail, self.geometry, request.bytes, check)
    }
}
