//! The earlier of two moments, in whichever world.

use crate::time::Instant;

/// The earlier of two moments, of which there may be only one: until when a wait lasts that has a limit of its own, and
/// perhaps a deadline.
#[inline]
pub fn earlier(limit: Instant, deadline: Option<Instant>) -> Instant {
    deadline.map_or(limit, |deadline| deadline.min(limit))
}
