//! The ways of finding free pages.

/// How free pages are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeSpaceKind {
    /// Each thread takes pages from extents that are its own for a while.
    #[default]
    Cached,
    /// Each allocation searches the bitmaps: Shore-MT before it had caches.
    Uncached,
    /// As [`FreeSpaceKind::Uncached`], under one mutex, which is held while latches and reads are waited for:
    /// Shore-MT's first.
    GlobalMutex,
    /// As [`FreeSpaceKind::GlobalMutex`], with a test-and-test-and-set spinlock in its place (Shore-MT, figure 6).
    GlobalTtas,
    /// As [`FreeSpaceKind::GlobalMutex`], with an MCS queue lock in its place (Shore-MT, figure 6).
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
