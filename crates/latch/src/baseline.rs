//! The gallery: the latches that Böttcher et al. 2020 compare, beside the road's own, behind one contract.
//!
//! What a latch must do is the trait [`Latch`]; which there are is the enum [`LatchKind`]. One suite of tests runs over
//! all of them, and `foreshore bench latch` measures all of them. Nothing in the engine waits for one of these, except
//! the [`HybridLatch`].
//!
//! The spinning latches wait without end; but a waiter that has spun for longer than any critical section lasts lets
//! another thread run (`spin.rs`), because with more threads than processors a fair spinning latch would otherwise need
//! a whole turn of the scheduler for each hand-over. Those that stand for TBB's do so after 31 pauses, as TBB's do.

mod backoff;
mod hybrid_spinning;
mod mcs;
mod optimistic;
#[cfg(feature = "parking_lot")]
mod parking_lot;
mod queuing;
mod road;
mod spin;
mod spin_rw;
mod standard;
mod tas;
mod ticket;
mod ttas;

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "parking_lot")]
pub use self::parking_lot::{ParkingLotMutex, ParkingLotRwLock};
pub use backoff::TtasBackoff;
pub use hybrid_spinning::HybridSpinning;
pub use mcs::Mcs;
pub use optimistic::OptimisticLatch;
pub use queuing::QueuingRw;
pub use road::HybridShared;
pub use spin_rw::SpinRw;
pub use standard::{StdMutex, StdRwLock};
pub use tas::Tas;
pub use ticket::Ticket;
pub use ttas::Ttas;

use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};

use crate::{HybridLatch, Patience};

/// Failed optimistic reads in a row until [`Latch::read`] takes the latch (the paper's `MAX-ATTEMPTS`).
pub const MAX_ATTEMPTS: u32 = 8;

/// A latch, as the suite and the measurements see it. The latch is let go when the closure returns or panics.
///
/// What it guards is not part of it, and has to be read and written through relaxed atomics if it is also read
/// optimistically.
pub trait Latch: Default + Send + Sync + 'static {
    /// Whether sharers overlap. Where not, to share is to be alone.
    const SHARES: bool;
    /// Whether attempts to share overlap with sharers, too. Where not, they are refused unless the latch is free.
    const ATTEMPTS_SHARE: bool = Self::SHARES;
    /// Whether there are optimistic reads.
    const OPTIMISTIC: bool;

    /// Waits until the thread is alone, then runs `change`.
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R;

    /// Runs `change` alone, unless anybody holds the latch; `None` then. May also fail while somebody is about to enter
    /// or to leave.
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R>;

    /// Waits until nobody changes anything, then runs `read`.
    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        self.exclusive(read)
    }

    /// Runs `read` beside other readers, unless somebody is in the way; `None` then. May also fail while somebody is
    /// about to enter or to leave.
    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        self.try_exclusive(read)
    }

    /// As [`Latch::exclusive`], but as long as `patience` lasts; `None` when it ends. A latch that is free is taken
    /// even then.
    ///
    /// By default by attempts, again and again: a thread that waits so leaves nothing behind, holds nobody off, and may
    /// starve.
    #[inline]
    fn exclusive_within<R>(&self, patience: &Patience<'_>, change: impl FnOnce() -> R) -> Option<R> {
        let mut change = Some(change);
        again(patience, || self.try_exclusive(|| change.take().map(|change| change())).flatten())
    }

    /// As [`Latch::shared`], with the ends of [`Latch::exclusive_within`].
    #[inline]
    fn shared_within<R>(&self, patience: &Patience<'_>, read: impl FnOnce() -> R) -> Option<R> {
        let mut read = Some(read);
        again(patience, || self.try_shared(|| read.take().map(|read| read())).flatten())
    }

    /// Runs `read` without a latch, and gives what it saw if nobody changed anything meanwhile. `None` otherwise, or if
    /// there are no optimistic reads.
    #[inline]
    fn try_optimistic<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let _ = read;
        None
    }

    /// Reads as cheaply as the latch can: optimistically at first, then shared (the paper's Listings 1 and 2).
    #[inline]
    fn read<R>(&self, read: impl Fn() -> R) -> R {
        if Self::OPTIMISTIC {
            for _ in 0..MAX_ATTEMPTS {
                if let Some(seen) = self.try_optimistic(&read) {
                    return seen;
                }
            }
        }
        self.shared(read)
    }
}

/// Attempts that follow each other with nothing but a turn for others between them.
const EAGER_ATTEMPTS: u32 = 100;
/// Between later ones.
const PAUSE: Duration = Duration::from_micros(100);

/// Makes attempts until one succeeds or `patience` ends.
fn again<R>(patience: &Patience<'_>, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
    for number in 0_u32.. {
        if let Some(result) = attempt() {
            return Some(result);
        }
        let over = patience.deadline.is_some_and(|deadline| deadline <= Instant::now());
        if over || patience.is_cancelled() {
            break;
        }
        if number < EAGER_ATTEMPTS { thread::yield_now() } else { thread::sleep(PAUSE) }
    }
    None
}

/// The latches that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LatchKind {
    /// The road: [`HybridLatch`].
    Hybrid,
    /// [`HybridShared`]: the same, never read optimistically.
    HybridShared,
    /// [`HybridSpinning`]: a hybrid latch without a parking lot.
    HybridSpinning,
    /// [`OptimisticLatch`].
    Optimistic,
    /// [`Tas`].
    Tas,
    /// [`Ttas`].
    Ttas,
    /// [`TtasBackoff`].
    TtasBackoff,
    /// [`Ticket`].
    Ticket,
    /// [`Mcs`].
    Mcs,
    /// [`SpinRw`].
    SpinRw,
    /// [`QueuingRw`].
    QueuingRw,
    /// [`StdMutex`].
    StdMutex,
    /// [`StdRwLock`].
    StdRwLock,
    /// [`ParkingLotMutex`].
    #[cfg(feature = "parking_lot")]
    ParkingLotMutex,
    /// [`ParkingLotRwLock`].
    #[cfg(feature = "parking_lot")]
    ParkingLotRwLock,
}

/// Something to do with a latch of a kind that is known only at run time: the kind is looked at once, outside of what
/// is measured.
pub trait Visit {
    /// What comes of it.
    type Output;

    /// Does it with latches of type `L`.
    fn visit<L: Latch>(self) -> Self::Output;
}

impl LatchKind {
    /// All kinds, the road's first.
    pub const ALL: &'static [LatchKind] = &[
        LatchKind::Hybrid,
        LatchKind::HybridShared,
        LatchKind::HybridSpinning,
        LatchKind::Optimistic,
        LatchKind::Tas,
        LatchKind::Ttas,
        LatchKind::TtasBackoff,
        LatchKind::Ticket,
        LatchKind::Mcs,
        LatchKind::SpinRw,
        LatchKind::QueuingRw,
        LatchKind::StdMutex,
        LatchKind::StdRwLock,
        #[cfg(feature = "parking_lot")]
        LatchKind::ParkingLotMutex,
        #[cfg(feature = "parking_lot")]
        LatchKind::ParkingLotRwLock,
    ];

    /// The name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            LatchKind::Hybrid => "hybrid",
            LatchKind::HybridShared => "hybrid_shared",
            LatchKind::HybridSpinning => "hybrid_spinning",
            LatchKind::Optimistic => "optimistic",
            LatchKind::Tas => "tas",
            LatchKind::Ttas => "ttas",
            LatchKind::TtasBackoff => "ttas_backoff",
            LatchKind::Ticket => "ticket",
            LatchKind::Mcs => "mcs",
            LatchKind::SpinRw => "spin_rw",
            LatchKind::QueuingRw => "queuing_rw",
            LatchKind::StdMutex => "std_mutex",
            LatchKind::StdRwLock => "std_rwlock",
            #[cfg(feature = "parking_lot")]
            LatchKind::ParkingLotMutex => "parking_lot_mutex",
            #[cfg(feature = "parking_lot")]
            LatchKind::ParkingLotRwLock => "parking_lot_rwlock",
        }
    }

    /// Does something with latches of this kind.
    pub fn visit<V: Visit>(self, visitor: V) -> V::Output {
        match self {
            LatchKind::Hybrid => visitor.visit::<HybridLatch>(),
            LatchKind::HybridShared => visitor.visit::<HybridShared>(),
            LatchKind::HybridSpinning => visitor.visit::<HybridSpinning>(),
            LatchKind::Optimistic => visitor.visit::<OptimisticLatch>(),
            LatchKind::Tas => visitor.visit::<Tas>(),
            LatchKind::Ttas => visitor.visit::<Ttas>(),
            LatchKind::TtasBackoff => visitor.visit::<TtasBackoff>(),
            LatchKind::Ticket => visitor.visit::<Ticket>(),
            LatchKind::Mcs => visitor.visit::<Mcs>(),
            LatchKind::SpinRw => visitor.visit::<SpinRw>(),
            LatchKind::QueuingRw => visitor.visit::<QueuingRw>(),
            LatchKind::StdMutex => visitor.visit::<StdMutex>(),
            LatchKind::StdRwLock => visitor.visit::<StdRwLock>(),
            #[cfg(feature = "parking_lot")]
            LatchKind::ParkingLotMutex => visitor.visit::<ParkingLotMutex>(),
            #[cfg(feature = "parking_lot")]
            LatchKind::ParkingLotRwLock => visitor.visit::<ParkingLotRwLock>(),
        }
    }

    /// Bytes of a latch of this kind (the paper's Table 2).
    pub fn size(self) -> usize {
        struct Size;
        impl Visit for Size {
            type Output = usize;
            fn visit<L: Latch>(self) -> usize {
                size_of::<L>()
            }
        }
        self.visit(Size)
    }
}

impl fmt::Display for LatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No latch has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLatch;

impl FromStr for LatchKind {
    type Err = UnknownLatch;

    fn from_str(name: &str) -> Result<LatchKind, UnknownLatch> {
        LatchKind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or(UnknownLatch)
    }
}

/// Lets a latch go when it is dropped: at the end of a closure, or in its panic.
struct Leaving<F: FnMut()>(F);

impl<F: FnMut()> Drop for Leaving<F> {
    #[inline]
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
