//! From page ids to frames: the seam between the ways of finding a page.
//!
//! The contract, which the tests beside this file check over every way: a page has at most one frame (PAGE-4), however
//! many threads enter it at once; a thread that asks for a page that nobody enters or takes out meanwhile is told the
//! truth, but for one thing: while others come and go, `get` may miss a page that is there. A thread that is told
//! "absent" enters the page before it does anything else, and `insert` is never wrong.

pub(super) mod baseline;
mod table;
#[cfg(test)]
mod tests;

use foreshore_base::{FrameIndex, PageId};

use self::{
    baseline::{Bucketed, Cuckoo, GlobalMutex},
    table::PageTable,
};

/// How the pool finds the frame of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranslationKind {
    /// An array of frame numbers: two loads.
    #[default]
    PageTable,
    /// A 3-ary cuckoo hash table, Shore-MT's last: three loads at most, and three hash functions.
    Cuckoo,
    /// A hash table with a mutex for each bucket, Shore-MT's second.
    Bucketed,
    /// A hash table under one mutex, Shore-MT's first.
    GlobalMutex,
}

impl TranslationKind {
    /// All of them.
    pub const ALL: [TranslationKind; 4] = [
        TranslationKind::PageTable,
        TranslationKind::Cuckoo,
        TranslationKind::Bucketed,
        TranslationKind::GlobalMutex,
    ];
}

/// The frames of the pages that have one.
#[derive(Debug)]
pub(super) enum Translation {
    PageTable(PageTable),
    Cuckoo(Cuckoo),
    Bucketed(Bucketed),
    GlobalMutex(GlobalMutex),
}

impl Translation {
    pub(super) fn new(kind: TranslationKind, frames: usize) -> Translation {
        match kind {
            TranslationKind::PageTable => Translation::PageTable(PageTable::new()),
            TranslationKind::Cuckoo => Translation::Cuckoo(Cuckoo::new(frames)),
            TranslationKind::Bucketed => Translation::Bucketed(Bucketed::new(frames)),
            TranslationKind::GlobalMutex => Translation::GlobalMutex(GlobalMutex::new(frames)),
        }
    }

    /// The frame that holds `page`, as far as anybody can know without its latch.
    #[inline]
    pub(super) fn get(&self, page: PageId) -> Option<FrameIndex> {
        match self {
            Translation::PageTable(table) => table.get(page),
            Translation::Cuckoo(table) => table.get(page),
            Translation::Bucketed(table) => table.get(page),
            Translation::GlobalMutex(table) => table.get(page),
        }
    }

    /// Enters `page`; false when it is in a frame already. The caller holds `frame` exclusively.
    pub(super) fn insert(&self, page: PageId, frame: FrameIndex) -> bool {
        match self {
            Translation::PageTable(table) => table.insert(page, frame),
            Translation::Cuckoo(table) => table.insert(page, frame),
            Translation::Bucketed(table) => table.insert(page, frame),
            Translation::GlobalMutex(table) => table.insert(page, frame),
        }
    }

    /// Takes `page` out. The caller holds its frame exclusively.
    pub(super) fn remove(&self, page: PageId) {
        match self {
            Translation::PageTable(table) => table.remove(page),
            Translation::Cuckoo(table) => table.remove(page),
            Translation::Bucketed(table) => table.remove(page),
            Translation::GlobalMutex(table) => table.remove(page),
        }
    }
}
