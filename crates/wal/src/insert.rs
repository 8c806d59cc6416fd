//! Where the next record goes: the only thing about which those who append have to agree.
//!
//! As in Shore-MT (Johnson et al. 2009, §6.2.4) the critical section of an append settles only *where* the record goes;
//! checksum and copy happen outside of it, in parallel. How the threads agree is chosen by [`LogInsert`]. The contract,
//! whatever was chosen:
//!
//! - WAL-11: claims are disjoint and ascend, no claim crosses the end of a segment, and what lies between two claims is
//!   the rest of a segment and the next one's header. A thread that claims the first place of a new segment also ends
//!   the one before.
//! - WAL-12: the tail is advanced by read-modify-writes that acquire and release, by the one who claims or by another
//!   that acts for it and with which it is ordered. So a thread that sees a tail sees what was stored before the claims
//!   below it.
//! - WAL-10, WAL-13, and the ring's size: no claim ends where it may not.
//! - Nobody who claims waits for a sync; but for the flusher when the ring is full, or until space was taken on the
//!   disk.

mod baseline;
mod compare_exchange;
mod consolidated;
mod fetch_add;

use foreshore_env::{
    hint,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::segment::{Geometry, Place};
use baseline::OneMutex;
use compare_exchange::CompareExchange;
use consolidated::Consolidated;
use fetch_add::FetchAdd;

/// How those who append agree on where their records go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogInsert {
    /// Everybody advances the tail by an addition that cannot fail; whose record does not fit into what was allowed for
    /// all asks for the next part.
    #[default]
    FetchAdd,
    /// Everybody advances the tail by compare-exchange, and tries again when somebody else was faster.
    CompareExchange,
    /// A thread that finds the tail in use joins a group, and one claims for the whole group.
    Consolidated,
    /// One mutex around the tail: a baseline to measure against.
    Mutex,
}

impl LogInsert {
    /// All of them.
    pub const ALL: [LogInsert; 4] =
        [LogInsert::FetchAdd, LogInsert::CompareExchange, LogInsert::Consolidated, LogInsert::Mutex];
}

/// Whether somebody may use what is kept for ending work: of the log, and of what the crates above keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Work: it may be refused when the log, or the disk, is nearly full.
    Work,
    /// What ends work (a commit, a rollback with its compensations, a checkpoint): it must get through.
    Ending,
}

/// What somebody wants to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// A multiple of 8.
    pub(crate) bytes: u64,
    /// `None`: a record of the log's own, of which there are few.
    pub(crate) urgency: Option<Urgency>,
    /// Spreads those who append over groups.
    pub(crate) hint: u64,
}

/// A claimed place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) place: Place,
    /// Where the record ends.
    pub(crate) end: u64,
}

impl Claimed {
    /// What a record of `bytes` takes of a log that ends at `tail`.
    #[inline]
    fn at(tail: u64, geometry: Geometry, bytes: u64) -> Claimed {
        let place = geometry.place(tail, bytes);
        Claimed { place, end: place.start + bytes }
    }
}

/// Why no place was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The ring is full.
    NoRoom,
    /// The log is full.
    LogFull,
}

/// The tail of the log, and how it advances.
#[derive(Debug)]
pub(crate) enum Inserter {
    CompareExchange(CompareExchange),
    FetchAdd(FetchAdd),
    Consolidated(Consolidated),
    Mutex(OneMutex),
}

impl Inserter {
    /// A log that ends at `tail`. For parts of `block_bytes`, a power of two, [`LogInsert::FetchAdd`] asks at once.
    pub(crate) fn new(kind: LogInsert, geometry: Geometry, tail: u64, block_bytes: u64) -> Inserter {
        match kind {
            LogInsert::CompareExchange => Inserter::CompareExchange(CompareExchange::new(geometry, tail)),
            LogInsert::FetchAdd => Inserter::FetchAdd(FetchAdd::new(geometry, tail, block_bytes)),
            LogInsert::Consolidated => Inserter::Consolidated(Consolidated::new(geometry, tail)),
            LogInsert::Mutex => Inserter::Mutex(OneMutex::new(geometry, tail)),
        }
    }

    /// Where the log ends. Acquires what was released with the claims below it.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.read(|word| word.load(Ordering::Acquire))
    }

    /// Has the line fetched that [`Inserter::claim`] changes first.
    #[inline]
    pub(crate) fn prefetch(&self) {
        match self {
            Inserter::CompareExchange(inserter) => hint::prefetch(&inserter.tail, hint::Access::Write),
            Inserter::FetchAdd(inserter) => inserter.prefetch(),
            Inserter::Consolidated(_) | Inserter::Mutex(_) => {}
        }
    }

    /// As [`Inserter::tail`], by a read-modify-write: a claim is below the tail given here, or acquires what was stored
    /// before this call; so does a thread for which another claims.
    pub(crate) fn settled_tail(&self) -> u64 {
        self.read(|word| word.fetch_or(0, Ordering::AcqRel))
    }

    /// Where the log ends, by what `read` finds in the word that says it.
    #[inline]
    fn read(&self, read: impl Fn(&AtomicU64) -> u64) -> u64 {
        match self {
            Inserter::CompareExchange(inserter) => read(&inserter.tail),
            Inserter::FetchAdd(inserter) => inserter.tail(read),
            Inserter::Consolidated(inserter) => read(&inserter.tail),
            Inserter::Mutex(inserter) => read(&inserter.tail),
        }
    }

    /// Takes a place at the tail. `check` is asked whether the log may end where it would end then, with this urgency;
    /// under [`LogInsert::FetchAdd`] also whether work may fill a block to its end. What it has allowed once, it must
    /// not refuse later.
    #[inline]
    pub(crate) fn claim(
        &self,
        request: Request,
        check: impl Fn(Option<Urgency>, u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        let check_own = |end| check(request.urgency, end);
        match self {
            Inserter::CompareExchange(inserter) => inserter.claim(request, check_own),
            Inserter::FetchAdd(inserter) => inserter.claim(request, check),
            Inserter::Consolidated(inserter) => inserter.claim(request, check_own),
            Inserter::Mutex(inserter) => inserter.claim(request, check_own),
        }
    }
}

/// Advances a tail that only the caller may advance now.
#[inline]
fn advance(
    tail: &AtomicU64,
    geometry: Geometry,
    bytes: u64,
    check: impl Fn(u64) -> Result<(), Refused>,
) -> Result<Claimed, Refused> {
    let claimed = Claimed::at(tail.load(Ordering::Relaxed), geometry, bytes);
    check(claimed.end)?;
    // A read-modify-write though nobody else writes: WAL-12.
    tail.swap(claimed.end, Ordering::AcqRel);
    Ok(claimed)
}

#[cfg(all(test, foreshore_loom))]
mod models;
#[cfg(all(test, not(foreshore_loom)))]
mod tests;
