//! Something for each table, made when the table is first touched; and the tags that early releases leave there.

use foreshore_base::{Lsn, limits::MAX_TABLES};
use foreshore_env::CachePadded;
use foreshore_env::sync::OnceLock;
use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

use super::{EntryIndex, IntentMode};

/// Entries allocated together.
const CHUNK: usize = if cfg!(foreshore_loom) { 1 } else { 64 };

type Chunk<T> = Box<[CachePadded<T>]>;

/// A `T` for each table and the volume.
#[derive(Debug)]
pub(super) struct Entries<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
}

impl<T: Default> Entries<T> {
    pub(super) fn new() -> Entries<T> {
        Entries { chunks: (0..=MAX_TABLES / CHUNK).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    #[cfg_attr(foreshore_loom, expect(clippy::modulo_one, reason = "models have chunks of one"))]
    pub(super) fn get(&self, entry: EntryIndex) -> &T {
        let make = || (0..CHUNK).map(|_| CachePadded::default()).collect();
        &self.chunks[entry.0 as usize / CHUNK].get_or_init(make)[entry.0 as usize % CHUNK]
    }

    /// All that were ever touched, and their neighbours.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().filter_map(OnceLock::get).flatten().map(|entry| &**entry)
    }
}

/// What early releases leave on a table (Kimura et al. 2012, §5.3). Written by whoever releases, read by everybody; the
/// Release of a raise is the partner of the Acquire of a look. They only grow.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// Highest commit LSN of an early release that changed the table as such: of X.
    own: AtomicU64,
    /// Highest commit LSN of an early release that changed something below: of IX and SIX.
    descendants: AtomicU64,
}

impl Tags {
    /// Intents look at changes of the table as such, absolute locks at all changes.
    #[inline]
    pub(crate) fn tag(&self, mode: IntentMode) -> Lsn {
        let own = self.own.load(Acquire);
        Lsn(if mode.is_absolute() { own.max(self.descendants.load(Acquire)) } else { own })
    }

    #[inline]
    pub(crate) fn leave(&self, mode: IntentMode, lsn: Lsn) {
        let tag = match mode {
            IntentMode::IX | IntentMode::SIX => &self.descendants,
            IntentMode::X => &self.own,
            IntentMode::IS | IntentMode::S => return,
        };
        // Nearly always somebody has been here with an older commit; a thread that comes late writes nothing.
        if tag.load(Acquire) < lsn.0 {
            tag.fetch_max(lsn.0, Release);
        }
    }
}
