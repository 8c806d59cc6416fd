//! Stamps: what a thread keeps of a page that it has read without a latch, to learn later whether it is still the same.

use foreshore_base::{FrameIndex, Lsn, PageId};
use foreshore_latch::Version;

use super::{BufferPool, ExclusivePage, OptimisticPage};

/// A page in a frame, at a version of that: as long as nothing changes and the page stays, it is equal to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageVersion {
    id: PageId,
    frame: FrameIndex,
    version: Version,
}

/// A page as it was at a moment. It keeps nothing in the pool: the page may change, and leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStamp {
    page: PageVersion,
    /// The newest record whose change the page shows: with the id it stands for the whole content (PAGE-7: every change
    /// has a record of its own, and its LSN is greater than the one before).
    lsn: Lsn,
}

impl PageStamp {
    /// Which page it is.
    #[inline]
    pub fn id(&self) -> PageId {
        self.page.id
    }

    /// The newest record whose change the page showed.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Becomes the stamp of the page as it will be when `page` is released, with the record at `lsn` as its newest
    /// change; false, and no change, if somebody else has changed the page since it was stamped.
    pub fn follow(&mut self, page: &ExclusivePage<'_>, lsn: Lsn) -> bool {
        let followed = page.was(self.page);
        if followed {
            *self = PageStamp { page: page.next_version(), lsn };
        }
        followed
    }
}

impl ExclusivePage<'_> {
    /// Whether the page was at this version when it was latched.
    #[inline]
    pub fn was(&self, PageVersion { id, frame, version }: PageVersion) -> bool {
        self.id == id && self.place.index == frame && version.precedes(self.guard.version())
    }

    /// The page as it will be when it is released, as long as nobody else changes it and it stays.
    #[inline]
    pub fn next_version(&self) -> PageVersion {
        PageVersion { id: self.id, frame: self.place.index, version: self.guard.version() }
    }
}

impl OptimisticPage<'_> {
    /// The newest record whose change the page shows; to be validated, as all that is read.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.place.words.lsn()
    }

    /// The page, as long as it is not changed and stays. True if it is validated afterwards.
    #[inline]
    pub fn at_version(&self) -> PageVersion {
        PageVersion { id: self.id, frame: self.place.index, version: self.version }
    }

    /// What to remember of the page. True if the page is validated afterwards.
    #[inline]
    pub fn stamp(&self) -> PageStamp {
        PageStamp { page: self.at_version(), lsn: self.lsn() }
    }
}

impl BufferPool {
    /// Whether a page has not changed since it was stamped. No wait, no read from the file: of a page that is latched
    /// exclusively at this moment, or has left the pool, nobody knows.
    #[inline]
    pub fn is_current(&self, stamp: &PageStamp) -> bool {
        // A frame that was emptied meanwhile was latched exclusively for that, so its version is another (PAGE-4).
        let PageVersion { frame, version, .. } = stamp.page;
        self.frame(frame).frame.latch.validate(version) || self.has_content(stamp)
    }

    /// Latched without being changed, or written, evicted and read again, the page has another version but the same
    /// LSN.
    #[cold]
    fn has_content(&self, stamp: &PageStamp) -> bool {
        self.optimistic_now(stamp.id()).is_some_and(|page| {
            let same = page.lsn() == stamp.lsn;
            same && page.validate()
        })
    }
}
