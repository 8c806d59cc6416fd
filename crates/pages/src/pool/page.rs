//! The three ways to hold a page: optimistically, shared, exclusively. Nothing outlives its latch.

use foreshore_base::{Lsn, PageId, Result};
use foreshore_env::sabotage::{Fault, planted};
use foreshore_latch::{ExclusiveGuard, SharedGuard, Version};
use foreshore_wal::Urgency;

use super::FrameRef;
use crate::{
    slotted::{SlottedMut, SlottedView},
    words::PageWords,
};

/// A page that is read without a latch. Whatever was read is true only if [`OptimisticPage::validate`] says so
/// afterwards; the same holds for an error that came of following a page id read from it.
#[derive(Clone, Copy, Debug)]
pub struct OptimisticPage<'p> {
    pub(super) place: FrameRef<'p>,
    pub(super) version: Version,
    pub(super) id: PageId,
}

impl<'p> OptimisticPage<'p> {
    /// Which page it is.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The bytes, old and new ones mixed.
    #[inline]
    pub fn words(&self) -> &'p PageWords {
        self.place.words
    }

    /// The bytes as a slotted page.
    #[inline]
    pub fn view(&self) -> SlottedView<'p> {
        SlottedView::new(self.place.words)
    }

    /// The version that reads are validated against.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the page has not changed, nor left its frame, since it was taken.
    #[inline]
    pub fn validate(&self) -> bool {
        self.place.frame.latch.validate(self.version)
    }

    /// The page exclusively, if nobody holds it and it has not changed.
    #[inline]
    pub fn upgrade(self) -> Option<ExclusivePage<'p>> {
        // The frame holds the page at this version (checked when it was taken), so it does now.
        let guard = self.place.frame.latch.upgrade(self.version)?;
        Some(ExclusivePage { place: self.place, guard, id: self.id })
    }

    /// The page shared, if nobody holds it exclusively and it has not changed.
    #[inline]
    pub fn share(self) -> Option<SharedPage<'p>> {
        let guard = self.place.frame.latch.shared_if(self.version)?;
        Some(SharedPage { place: self.place, guard, id: self.id })
    }
}

/// What a page shows under its latch, shared or exclusive: borrowed from its holder, for the words outlive the latch.
macro_rules! latched_page {
    ($page:ident) => {
        impl $page<'_> {
            /// Which page it is.
            #[inline]
            pub fn id(&self) -> PageId {
                self.id
            }

            /// The bytes.
            #[inline]
            pub fn words(&self) -> &PageWords {
                self.place.words
            }

            /// The bytes as a slotted page.
            #[inline]
            pub fn view(&self) -> SlottedView<'_> {
                SlottedView::new(self.place.words)
            }

            /// The newest record whose change the page shows.
            #[inline]
            pub fn lsn(&self) -> Lsn {
                self.place.words.lsn()
            }
        }
    };
}

latched_page!(SharedPage);
latched_page!(ExclusivePage);

/// A page that nobody changes meanwhile.
#[derive(Debug)]
#[must_use]
pub struct SharedPage<'p> {
    pub(super) place: FrameRef<'p>,
    pub(super) guard: SharedGuard<'p>,
    pub(super) id: PageId,
}

impl<'p> SharedPage<'p> {
    /// The page's version, which stands at least as long as this.
    #[inline]
    pub fn version(&self) -> Version {
        self.guard.version()
    }

    /// Lets the latch go, and keeps what is needed to find out later whether the page is still the same.
    #[inline]
    pub fn release(self) -> OptimisticPage<'p> {
        OptimisticPage { place: self.place, version: self.guard.version(), id: self.id }
    }
}

/// A page that nobody else holds. The order of every change (PAGE-7): [`prepare`](ExclusivePage::prepare)`(urgency)?`,
/// `log.append(…)?`, change the words, [`applied`](ExclusivePage::applied)`(lsn)`.
#[derive(Debug)]
#[must_use]
pub struct ExclusivePage<'p> {
    pub(super) place: FrameRef<'p>,
    pub(super) guard: ExclusiveGuard<'p>,
    pub(super) id: PageId,
}

impl<'p> ExclusivePage<'p> {
    /// The bytes as a slotted page to change.
    #[inline]
    pub fn edit(&mut self) -> SlottedMut<'_> {
        SlottedMut::new(self.place.words)
    }

    /// Makes the page ready for a change that is not logged yet: marks it dirty, and logs its image if the log holds
    /// none since the redo horizon. The image is as urgent as the change. When it fails, nothing is changed.
    #[inline]
    pub fn prepare(&mut self, urgency: Urgency) -> Result<()> {
        if self.is_prepared() { Ok(()) } else { self.prepare_slow(urgency) }
    }

    #[inline]
    fn is_prepared(&self) -> bool {
        self.place.frame.is_dirty() && self.place.words.image_lsn() >= self.place.pool.horizon()
    }

    #[cold]
    fn prepare_slow(&mut self, urgency: Urgency) -> Result<()> {
        let FrameRef { pool, frame, words, .. } = self.place;
        // Every record about this change will lie at the log's end or behind it.
        let bound = pool.log.tail();
        if words.image_lsn() < pool.horizon() {
            let image = match planted(Fault::ImageSkipped) {
                true => bound,
                false => pool.log_image(self.id, words, urgency)?,
            };
            words.set_image_lsn(image);
            // The page now depends on the image's record: it may not be written before that is durable (PAGE-3).
            if !planted(Fault::ImageSkipped) {
                words.set_lsn(image);
            }
        }
        frame.mark_dirty(bound);
        Ok(())
    }

    /// Records that the page shows the change of the record at `lsn`. The page was prepared before.
    #[inline]
    pub fn applied(&mut self, lsn: Lsn) {
        debug_assert!(self.place.frame.is_dirty(), "page {} was changed without being prepared", self.id);
        debug_assert!(self.lsn() < lsn, "page {} shows {} already, not {lsn}", self.id, self.lsn());
        self.place.words.set_lsn(lsn);
    }

    /// Lets readers in, and nobody in between.
    pub fn downgrade(self) -> SharedPage<'p> {
        SharedPage { place: self.place, guard: self.guard.downgrade(), id: self.id }
    }

    /// Takes the page out of its frame without writing it, and frees the frame.
    pub(crate) fn evacuate(self) {
        let FrameRef { pool, frame, index, .. } = self.place;
        pool.translation.remove(self.id);
        frame.set_page(PageId::NONE);
        frame.set_recovery_lsn(Lsn::ZERO);
        drop(self.guard);
        pool.free.lock().push(index);
    }

    pub(crate) fn place(&self) -> FrameRef<'p> {
        self.place
    }
}
