//! The intent locks that a transaction holds, for others to look at.

use foreshore_env::sync::Mutex;
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{EntryIndex, IntentMode};

/// Intent locks that are published without a mutex: more tables than nearly every transaction touches.
const INLINE: usize = 16;

/// The intent locks of a slot, in the order of its owner's list. Written by the owner, or while it waits for an entry
/// by whoever grants it that, under the entry's latch; read by everybody. A lock that moves down, for others before it
/// have ended, does so under its entry's latch.
///
/// `Lightweight` uses it as a hint for the search for deadlocks (LOCK-8); for `Private` it is the truth (LOCK-15).
/// Where requests are in the lock table, it tells views what their names mean.
#[derive(Debug)]
pub(crate) struct Published {
    /// Entry × 8 + mode.
    inline: [AtomicU64; INLINE],
    /// How many intent locks are published. Stored with Release after what it counts; read with Acquire before.
    count: AtomicU32,
    /// The intent locks beyond those in `inline`.
    more: Mutex<Vec<u64>>,
}

impl Default for Published {
    fn default() -> Published {
        Published {
            inline: std::array::from_fn(|_| AtomicU64::new(0)),
            count: AtomicU32::new(0),
            more: Mutex::new(Vec::new()),
        }
    }
}

impl Published {
    /// Publishes the lock at `place` in the owner's list; a new one stands behind all others.
    #[inline]
    pub(crate) fn set(&self, place: usize, entry: EntryIndex, mode: IntentMode) {
        let encoded = u64::from(entry.0) << 3 | mode as u64;
        match self.inline.get(place) {
            Some(published) => published.store(encoded, Relaxed),
            None => self.set_more(place - INLINE, encoded),
        }
        if self.count.load(Relaxed) as usize <= place {
            self.count.store(place as u32 + 1, Release);
        }
    }

    #[cold]
    fn set_more(&self, place: usize, encoded: u64) {
        let mut more = self.more.lock();
        match more.get_mut(place) {
            Some(published) => *published = encoded,
            None => more.push(encoded),
        }
    }

    /// Withdraws the locks from `place` on.
    #[inline]
    pub(crate) fn truncate(&self, place: usize) {
        if self.count.load(Relaxed) as usize > INLINE {
            self.more.lock().truncate(place.saturating_sub(INLINE));
        }
        self.count.store(place as u32, Release);
    }

    /// What is held of an entry.
    pub(crate) fn find(&self, entry: EntryIndex) -> Option<IntentMode> {
        let count = self.count.load(Acquire) as usize;
        let found =
            |encoded: u64| (encoded >> 3 == u64::from(entry.0)).then(|| IntentMode::from_bits(encoded & 7));
        let inline = self.inline.iter().take(count).find_map(|published| found(published.load(Relaxed)));
        if inline.is_some() || count <= INLINE {
            return inline;
        }
        self.more.lock().iter().find_map(|&encoded| found(encoded))
    }

    /// Calls `see` with every lock.
    pub(crate) fn each(&self, mut see: impl FnMut(EntryIndex, IntentMode)) {
        let count = self.count.load(Acquire) as usize;
        let mut decoded =
            |encoded: u64| see(EntryIndex((encoded >> 3) as u32), IntentMode::from_bits(encoded & 7));
        self.inline.iter().take(count).for_each(|published| decoded(published.load(Relaxed)));
        if count > INLINE {
            self.more.lock().iter().for_each(|&encoded| decoded(encoded));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }
}
