//! Stamps: what somebody keeps of a page that he has read without a latch, to learn later whether it is still the same.

use foreshore_base::{FrameIndex, Lsn, PageId};
use foreshore_latch::Version;

use super::{BufferPool, ExclusivePage, OptimisticPage};

/// A page as it was at a moment. It keeps nothing in the pool: the page may change, and leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStamp {
    id: PageId,
    frame: FrameIndex,
    version: Version,
    /// The newest record whose change the page shows: with the id it stands for the whole content (PAGE-7: every change has
    /// a record of its own, and its LSN is greater than the one before).
    lsn: Lsn,
}

impl PageStamp {
    /// Which page it is.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The newest record whose change the page showed.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Becomes the stamp of the page as it will be when `page` is released, with the record at `lsn` as its newest change;
    /// false, and no change, if somebody else has changed the page since it was stamped.
    pub fn follow(&mut self, page: &ExclusivePage<'_>, lsn: Lsn) -> bool {
        let after = page.guard.version();
        if page.id != self.id || page.place.index != self.frame || !self.version.precedes(after) {
            return false;
        }
        *self = PageStamp { version: after, lsn, ..*self };
        true
    }
}

impl OptimisticPage<'_> {
    /// The newest record whose change the page shows; to be validated, as all that is read.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.place.words.lsn()
    }

    /// What to remember of the page. True if the page is validated afterwards.
    #[inline]
    pub fn stamp(&self) -> PageStamp {
        PageStamp { id: self.id, frame: self.place.index, version: self.version, lsn: self.lsn() }
    }
}

impl BufferPool {
    /// Whether a page has not changed since it was stamped. No wait, no read from the file: of a page that is latched
    /// exclusively at this moment, or has left the pool, nobody knows.
    #[inline]
    pub fn is_current(&self, stamp: &PageStamp) -> bool {
        // A frame that was emptied meanwhile was latched exclusively for that, so its version is another (PAGE-4).
        self.frame(stamp.frame).frame.latch.validate(stamp.version) || self.has_content(stamp)
    }

    /// Latched without being changed, or written, evicted and read again, the page has another version but the same LSN.
    #[cold]
    fn has_content(&self, stamp: &PageStamp) -> bool {
        self.optimistic_now(stamp.id).is_some_and(|page| {
            let same = page.lsn() == stamp.lsn;
            same && page.validate()
        })
    }
}
