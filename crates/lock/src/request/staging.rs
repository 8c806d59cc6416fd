//! How the segments of the staged table come and go: Jung et al. 2013, §4.
//!
//! A segment is handed to one slot, which uses each of its requests once. A request that was released is unlinked
//! later, by whoever cleans its chain; then its flag in the segment is cleared. The thread that clears the last flag
//! retires the segment, and when nobody can be looking at it any more it is ready again.
//!
//! ```text
//!   fresh ──▶ ready ──▶ with a slot ──▶ retired ──▶ ready
//! ```
//!
//! Where this departs from the paper:
//!
//! - Slots take whole segments: a lock costs no `fetch_and_add` on a shared pointer.
//! - Flags are bits cleared with `fetch_and`, which tells who cleared the last: the paper's bytes read as words are a
//!   data race in this language, and two could see the same word empty.
//! - T_min is the oldest *look*, not the oldest transaction: outside of one, a transaction knows nothing but its own
//!   requests. So a transaction that idles with locks pins nothing but the segments that these are in.
//! - Nobody waits for the pre-allocator: a thread that finds nothing ready recycles, allocates or sweeps itself. The
//!   paper's waiter hangs if it is itself the oldest transaction.

use std::ops::Range;

use foreshore_env::CachePadded;
#[cfg(not(foreshore_loom))]
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use super::{Request, RequestIndex, Requests, SEGMENT};
#[cfg(not(foreshore_loom))]
use crate::manager::Signal;
use crate::slot::{SLOTS, SlotId};

/// Flags in a word: few in models, so that they have two words.
const FLAGS: usize = if cfg!(foreshore_loom) { 1 } else { 64 };
const WORDS: usize = SEGMENT / FLAGS;

const _: () = assert!(SEGMENT.is_multiple_of(FLAGS) && WORDS <= 64);

/// Fewer ready segments than this wake the pre-allocator.
#[cfg(not(foreshore_loom))]
const LOW_WATER: usize = 4;
/// How many ready segments the pre-allocator makes.
const HIGH_WATER: usize = 8;

/// Which requests of a segment are in use or linked, in two levels: a bit of `top` is set while its word has any.
/// Cleared by whoever unlinks a request, AcqRel: the one that clears the last has seen everything that was done before.
#[derive(Debug)]
pub(super) struct Emptiness {
    top: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for Emptiness {
    fn default() -> Emptiness {
        Emptiness { top: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Emptiness {
    /// Sets all flags, before the segment is handed out: also of requests that are yet to be used.
    fn fill(&self) {
        self.words.iter().for_each(|word| word.store(u64::MAX >> (64 - FLAGS), Relaxed));
        self.top.store(u64::MAX >> (64 - WORDS), Relaxed);
    }

    /// Clears a flag; whether it was the last. Exactly one caller is told so.
    #[cfg_attr(foreshore_loom, expect(clippy::modulo_one, reason = "models have words of one flag"))]
    fn clear(&self, place: usize) -> bool {
        let bit = 1 << (place % FLAGS);
        let before = self.words[place / FLAGS].fetch_and(!bit, AcqRel);
        debug_assert!(before & bit != 0, "a request is unlinked once");
        if before != bit {
            return false;
        }
        let bit = 1 << (place / FLAGS);
        self.top.fetch_and(!bit, AcqRel) == bit
    }
}

/// The place of a segment in a stack.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The next segment + 1; 0: none.
    next: AtomicU32,
    /// When it was retired.
    stamp: AtomicU64,
}

/// A stack of segments: number of changes (32 bits) | segment + 1 (32 bits). The changes keep a slow `pop` from
/// succeeding after the segment that it saw has gone and come back.
#[derive(Debug, Default)]
struct Stack(AtomicU64);

impl Stack {
    fn push(&self, requests: &Requests, segment: u32) {
        self.push_all(requests, segment, segment);
    }

    /// Segments that are linked from the first to the last.
    fn push_all(&self, requests: &Requests, first: u32, last: u32) {
        let link = &requests.segment(last).link;
        let mut top = self.0.load(Relaxed);
        loop {
            link.next.store(top as u32, Relaxed);
            let new = (top & !0xFFFF_FFFF).wrapping_add(1 << 32) | u64::from(first + 1);
            match self.0.compare_exchange_weak(top, new, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn pop(&self, requests: &Requests) -> Option<u32> {
        let mut top = self.0.load(Acquire);
        loop {
            let segment = (top as u32).checked_sub(1)?;
            let next = requests.segment(segment).link.next.load(Relaxed);
            let new = (top & !0xFFFF_FFFF).wrapping_add(1 << 32) | u64::from(next);
            match self.0.compare_exchange_weak(top, new, AcqRel, Acquire) {
                Ok(_) => return Some(segment),
                Err(now) => top = now,
            }
        }
    }

    /// Takes all: the first, from which the others follow.
    fn take(&self) -> u32 {
        let mut top = self.0.load(Relaxed);
        loop {
            let new = (top & !0xFFFF_FFFF).wrapping_add(1 << 32);
            match self.0.compare_exchange_weak(top, new, AcqRel, Relaxed) {
                Ok(_) => return top as u32,
                Err(now) => top = now,
            }
        }
    }
}

/// How far all buckets have been swept. Read and written by whoever sweeps, Relaxed.
#[derive(Debug)]
struct Round {
    /// The first bucket that comes next.
    next: AtomicUsize,
    /// The epoch when the round began: how many segments had been retired.
    began: AtomicU64,
}

/// What the staged table has beside the segments.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Counts retired segments. Read at the beginning of every look, written once for [`SEGMENT`] locks.
    epoch: CachePadded<AtomicU64>,
    /// For each slot, on its own line: the epoch in which its look began; 0: it is not looking. Written by the owner of
    /// the slot, read by whoever recycles.
    starts: Box<[CachePadded<AtomicU64>]>,
    ready: CachePadded<Stack>,
    /// How many are ready: a hint.
    ready_count: AtomicUsize,
    retired: CachePadded<Stack>,
    /// Segments from here on have never been used.
    fresh: AtomicU32,
    /// How many segments are allocated before chains that nobody visits are swept for more.
    sweep_at: AtomicU32,
    /// Whether somebody sweeps. Written by whoever does: Acquire and Release, it guards `round`.
    sweeping: AtomicBool,
    round: Round,
    /// How many buckets there are to sweep.
    buckets: usize,
    /// How many there may be.
    segments: u32,
    #[cfg(not(foreshore_loom))]
    signal: Arc<Signal>,
}

impl Staging {
    pub(super) fn new(buckets: usize, segments: usize) -> Staging {
        // As many requests as buckets, so that a sweep costs a look at one bucket for each lock.
        let sweep_at = (buckets / SEGMENT).max(2 * HIGH_WATER).min(segments) as u32;
        Staging {
            epoch: CachePadded::new(AtomicU64::new(1)),
            starts: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            ready: CachePadded::default(),
            ready_count: AtomicUsize::new(0),
            retired: CachePadded::default(),
            fresh: AtomicU32::new(0),
            sweep_at: AtomicU32::new(sweep_at),
            sweeping: AtomicBool::new(false),
            round: Round { next: AtomicUsize::new(0), began: AtomicU64::new(0) },
            buckets,
            segments: segments as u32,
            #[cfg(not(foreshore_loom))]
            signal: Arc::default(),
        }
    }

    /// LOCK-14: from here to [`Staging::end_look`], nothing that the slot can reach is recycled. The caller fences
    /// (SeqCst) before it reads a link; partner is the fence of `recycle`.
    #[inline]
    pub(crate) fn begin_look(&self, slot: SlotId) {
        // Acquire: a thread that sees the number of a retired segment sees that it was unlinked.
        self.starts[slot.index()].store(self.epoch.load(Acquire), Relaxed);
    }

    /// Release: what was read is read before it can be recycled. Partner is the load of `oldest_look`.
    #[inline]
    pub(crate) fn end_look(&self, slot: SlotId) {
        self.starts[slot.index()].store(0, Release);
    }

    /// T_min.
    fn oldest_look(&self) -> u64 {
        let starts = self.starts.iter().map(|start| start.load(Acquire));
        starts.filter(|&start| start != 0).min().unwrap_or(u64::MAX)
    }

    #[cfg(not(foreshore_loom))]
    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Wakes the pre-allocator if too few segments are ready.
    fn ask_for_more(&self) {
        #[cfg(not(foreshore_loom))]
        if self.ready_count.load(Relaxed) < LOW_WATER {
            self.signal.work();
        }
    }
}

impl Requests {
    /// A request was unlinked: nobody comes to it any more who is not looking already.
    pub(crate) fn unlinked(&self, request: RequestIndex) {
        let segment = request.0 / SEGMENT as u32;
        let retiring = self.segment(segment);
        if retiring.emptiness.clear(request.0 as usize % SEGMENT) {
            let staging = self.staging();
            let stamp = staging.epoch.fetch_add(1, AcqRel);
            retiring.link.stamp.store(stamp, Relaxed);
            staging.retired.push(self, segment);
        }
    }

    /// A request that was taken for an attempt that was not made: the staged table uses it up all the same.
    pub(crate) fn use_up(&self, request: RequestIndex) {
        if self.is_staged() {
            self.unlinked(request);
        }
    }

    /// Makes those retired segments ready that nobody can be looking at; how many.
    pub(crate) fn recycle(&self) -> usize {
        let staging = self.staging();
        let mut next = staging.retired.take();
        if next == 0 {
            return 0;
        }
        // Partner is the fence of every look: either its start is seen here, or it sees what was unlinked before.
        fence(SeqCst);
        let oldest = staging.oldest_look();
        let mut recycled = 0;
        // What has to wait goes back in one piece: while somebody who looks is not running, that is nearly all.
        let mut kept = None;
        while let Some(segment) = next.checked_sub(1) {
            let link = &self.segment(segment).link;
            next = link.next.load(Relaxed);
            if link.stamp.load(Relaxed) < oldest {
                self.make_ready(segment);
                recycled += 1;
            } else {
                let first = kept.map_or(segment, |(first, last)| {
                    self.segment(last).link.next.store(segment + 1, Relaxed);
                    first
                });
                kept = Some((first, segment));
            }
        }
        if let Some((first, last)) = kept {
            staging.retired.push_all(self, first, last);
        }
        recycled
    }

    fn make_ready(&self, segment: u32) {
        self.prepare(segment);
        self.staging().ready_count.fetch_add(1, Relaxed);
        self.staging().ready.push(self, segment);
    }

    fn pop_ready(&self) -> Option<u32> {
        let segment = self.staging().ready.pop(self)?;
        self.staging().ready_count.fetch_sub(1, Relaxed);
        Some(segment)
    }

    /// Allocates a segment, if fewer than `limit` have been.
    fn allocate(&self, limit: u32) -> Option<u32> {
        let staging = self.staging();
        let below = |fresh| (fresh < limit.min(staging.segments)).then_some(fresh + 1);
        let segment = staging.fresh.fetch_update(Relaxed, Relaxed, below).ok()?;
        self.make(segment);
        Some(segment)
    }

    /// Sweeps the next buckets, as many as a segment has requests, and recycles. When all have had their turn and that
    /// was of little use, the next round is put off: the locks are held. While somebody else sweeps, does nothing: two
    /// would meet at every bucket. With as many sweepers as threads that need a segment, 32 simulated cores did little
    /// else. Whether the round has more to sweep.
    fn sweep_portion(&self, sweep: &impl Fn(Range<usize>)) -> bool {
        struct Done<'s>(&'s AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(false, Release);
            }
        }
        let staging = self.staging();
        if staging.sweeping.swap(true, Acquire) {
            return false;
        }
        let _done = Done(&staging.sweeping);
        let Round { next, began } = &staging.round;
        let first = next.load(Relaxed);
        if first == 0 {
            began.store(staging.epoch.load(Relaxed), Relaxed);
        }
        let end = (first + SEGMENT).min(staging.buckets);
        sweep(first..end);
        self.recycle();
        let is_last = end == staging.buckets;
        next.store(if is_last { 0 } else { end }, Relaxed);
        let retired = staging.epoch.load(Relaxed) - began.load(Relaxed);
        let allocated = staging.fresh.load(Relaxed);
        if is_last && retired < u64::from(allocated / 4) {
            staging.sweep_at.fetch_max(allocated.saturating_mul(2).min(staging.segments), Relaxed);
        }
        !is_last
    }

    /// A segment for a slot, of requests that nobody knows. `sweep` unlinks what can be unlinked in some buckets: a few
    /// where others may wait for the slot's locks, all only at the limit. `None`: that is reached.
    pub(super) fn next_segment(&self, sweep: impl Fn(Range<usize>)) -> Option<u32> {
        let staging = self.staging();
        let soft = staging.sweep_at.load(Relaxed);
        let segment = self
            .pop_ready()
            .or_else(|| {
                self.recycle();
                self.pop_ready()
            })
            .or_else(|| self.allocate_filled(soft))
            .or_else(|| {
                self.sweep_portion(&sweep);
                self.pop_ready()
            })
            .or_else(|| self.allocate_filled(u32::MAX))
            .or_else(|| {
                // Whoever sweeps meanwhile may have passed what this thread would find.
                sweep(0..staging.buckets);
                self.recycle();
                self.pop_ready()
            });
        staging.ask_for_more();
        segment
    }

    fn allocate_filled(&self, limit: u32) -> Option<u32> {
        let segment = self.allocate(limit)?;
        self.prepare(segment);
        Some(segment)
    }

    /// Before a segment is handed out. Nobody knows its requests.
    fn prepare(&self, segment: u32) {
        let segment = self.segment(segment);
        segment.emptiness.fill();
        segment.requests.iter().for_each(Request::renew);
    }

    /// What the pre-allocator does: makes segments ready up to the high-water mark.
    #[cfg(not(foreshore_loom))]
    pub(crate) fn replenish(&self, sweep: impl Fn(Range<usize>)) {
        let staging = self.staging();
        let missing = || HIGH_WATER.saturating_sub(staging.ready_count.load(Relaxed));
        if missing() > 0 {
            self.recycle();
        }
        let is_due = || staging.fresh.load(Relaxed) >= staging.sweep_at.load(Relaxed);
        while missing() > 0 && is_due() && self.sweep_portion(&sweep) {}
        for _ in 0..missing() {
            let Some(segment) = self.allocate(staging.sweep_at.load(Relaxed)) else { return };
            self.make_ready(segment);
        }
    }

    /// Segments allocated so far, and those of them that are ready.
    #[cfg(all(test, not(foreshore_loom)))]
    pub(crate) fn segments_allocated(&self) -> (usize, usize) {
        let staging = self.staging();
        (staging.fresh.load(Relaxed) as usize, staging.ready_count.load(Relaxed))
    }
}
