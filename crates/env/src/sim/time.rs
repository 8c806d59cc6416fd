//! Virtual time.

use std::ops::{Add, AddAssign, Sub, SubAssign};

pub use std::time::Duration;

use super::kernel::{self, Kernel};

/// Picoseconds in a nanosecond: the kernel counts the one, programs see the other.
pub(super) const PICOSECONDS: u64 = 1000;

/// Seconds since 1970 when every simulation begins.
const EPOCH: u64 = 1_700_000_000;

/// A moment of virtual time. Outside of a simulation time stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Now, on the clock of the core that this thread runs on.
    pub fn now() -> Instant {
        Instant(kernel::with(Kernel::read_clock).unwrap_or(0) / PICOSECONDS)
    }

    /// From the kernel.
    pub(super) fn from_picoseconds(moment: u64) -> Instant {
        Instant(moment.div_ceil(PICOSECONDS))
    }

    /// For the kernel.
    pub(super) fn picoseconds(self) -> u64 {
        self.0.saturating_mul(PICOSECONDS)
    }

    /// The time since then.
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// The time from `earlier`; zero when that was later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same.
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// The time from `earlier`; `None` when that was later.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// So much later, if time goes so far.
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        let nanoseconds = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_add(nanoseconds).map(Instant)
    }

    /// So much earlier, if time goes so far.
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        let nanoseconds = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_sub(nanoseconds).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        self.checked_add(duration).expect("overflow when adding duration to instant")
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        self.checked_sub(duration).expect("overflow when subtracting duration from instant")
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

/// Seconds since 1970: a fixed moment, and the virtual time since.
pub fn unix_seconds() -> u64 {
    EPOCH + Instant::now().0 / 1_000_000_000
}

/// How long the cores of the machine have computed by now, all together: all that they did but idling; `None` outside
/// of a machine.
pub fn computed() -> Option<Duration> {
    super::computed()
}

/// How long this thread has had a core of the machine by now; `None` outside of a machine.
pub fn computed_here() -> Option<Duration> {
    super::computed_here()
}
