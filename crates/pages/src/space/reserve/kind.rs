//! The ways of finding free pages.

/// How free pages are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeSpaceKind {
    /// Each thread takes pages from extents that are its own for a while.
    #[default]
    Cached,
    /// Each allocation searches the bitmaps: Shore-MT before it had caches.
    Uncached,
    /// The same under one mutex, which is held while latches and reads are waited for: Shore-MT's first.
    GlobalMutex,
    /// The same under a test-and-test-and-set spinlock (Shore-MT, figure 6).
    GlobalTtas,
    /// The same under an MCS queue lock (Shore-MT, figure 6).
    GlobalMcs,
}

impl FreeSpaceKind {
    /// All of them.
    pub const ALL: [FreeSpaceKind; 5] = [
        FreeSpaceKind::Cached,
        FreeSpaceKind::Uncached,
        FreeSpaceKind::GlobalMutex,
        FreeSpaceKind::GlobalTtas,
        FreeSpaceKind::GlobalMcs,
    ];
}
