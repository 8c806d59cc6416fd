//! Allocating and freeing pages.
//!
//! Latch order: pages of the tree, then the new page, then its bitmap page. Whoever holds a bitmap page waits for
//! nothing but room in the log, and hardly for that, so a thread has at most one [`NewPage`] or [`FreeingPage`] at a
//! time. The new page for one that moves frees that one, too, and may hold two bitmap pages, the lower one first
//! (PAGE-10).

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId};
use foreshore_env::time::{Duration, Instant};
use foreshore_latch::Patience;
use foreshore_wal::Urgency;

use super::reserve::Demand;
use crate::{
    layout::{self, KIND, PageKind},
    pool::{BufferPool, ExclusivePage, OptimisticPage, SharedPage},
    words::{PageBuffer, PageWords},
};

/// Room in the log without which nobody keeps a bitmap page: for the record of an allocation and three images, and for
/// those that others append meanwhile.
const LOG_ROOM_BYTES: u64 = 64 << 10;
/// How often whoever waits for that looks whether it was cancelled.
const CANCEL_LOOK: Duration = Duration::from_millis(20);

/// A page that is being allocated: latched exclusively, zeros but for its id; its bitmap page is latched too.
///
/// The caller fills it, logs *one* record that says what it holds and that it is allocated, and calls
/// [`NewPage::commit`]. If it is dropped instead, nothing has happened.
#[derive(Debug)]
#[must_use]
pub struct NewPage<'p> {
    parts: Option<Parts<'p>>,
}

/// What was in the frame, if the page was still in the pool since it was freed: its bytes, and from where on it was
/// dirty.
type Before = (Box<PageBuffer>, Lsn);

#[derive(Debug)]
struct Parts<'p> {
    page: ExclusivePage<'p>,
    bitmap: ExclusivePage<'p>,
    /// A drop brings it back, because a checkpoint may still have to write it.
    before: Option<Before>,
    /// The page that is freed by the same record, if one is.
    freed: Option<Freed<'p>>,
}

/// A page whose content moves to a new one.
#[derive(Debug)]
struct Freed<'p> {
    id: PageId,
    /// Its bitmap page, if that is not the new page's.
    bitmap: Option<ExclusivePage<'p>>,
}

impl<'p> NewPage<'p> {
    /// The new page. Private until [`NewPage::commit`].
    pub fn page(&mut self) -> &mut ExclusivePage<'p> {
        match &mut self.parts {
            Some(parts) => &mut parts.page,
            None => unreachable!("the parts leave with commit, which takes the whole"),
        }
    }

    /// Which page it is.
    pub fn id(&self) -> PageId {
        self.parts.as_ref().map_or(PageId::NONE, |parts| parts.page.id())
    }

    /// The node that the page was before, if the pool still had it: its table and its flags.
    pub fn former_node(&self) -> Option<(TableId, u16)> {
        let (bytes, _) = self.parts.as_ref()?.before.as_ref()?;
        layout::node_of(&bytes.0)
    }

    /// Makes the allocation real, by the record at `lsn`. The new page shows that record.
    pub fn commit(self, lsn: Lsn) -> ExclusivePage<'p> {
        self.commit_with(lsn, |_| {})
    }

    /// Makes the allocation real, as `commit`, and fills the page when its bitmap page is released: all who allocate
    /// pages nearby come for that one, so whoever has it does as little as can be.
    pub fn commit_with(mut self, lsn: Lsn, fill: impl FnOnce(&PageWords)) -> ExclusivePage<'p> {
        let Some(Parts { mut page, mut bitmap, freed, .. }) = self.parts.take() else {
            unreachable!("the parts leave with commit, which takes the whole")
        };
        let pool = page.place().pool;
        pool.space.set_bit(bitmap.words(), page.id(), true);
        if let Some(Freed { id, bitmap: other }) = freed {
            match other {
                Some(mut other) => {
                    pool.space.set_bit(other.words(), id, false);
                    other.applied(lsn);
                }
                None => pool.space.set_bit(bitmap.words(), id, false),
            }
            pool.space.map().lock().lower(u64::from(id.0));
            pool.counters.frees.add(1);
        }
        bitmap.applied(lsn);
        drop(bitmap);
        pool.space.settle(page.id(), true);
        fill(page.words());
        page.applied(lsn);
        // The record says all that the page holds, as an image would.
        page.words().set_image_lsn(lsn);
        pool.counters.allocations.add(1);
        page
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if let Some(Parts { page, bitmap, before, freed }) = self.parts.take() {
            drop((bitmap, freed));
            let (pool, id) = (page.place().pool, page.id());
            take_back(page, before);
            pool.space.settle(id, false);
        }
    }
}

/// The page is not allocated: what was in the frame is there again.
fn take_back(page: ExclusivePage<'_>, before: Option<Before>) {
    match before {
        Some((bytes, recovery_lsn)) => {
            page.words().load_from(&bytes.0);
            page.place().frame.set_recovery_lsn(recovery_lsn);
        }
        None => page.evacuate(),
    }
}

/// A page that is being freed; its bitmap page is latched exclusively. The caller logs one record that says so and
/// calls [`FreeingPage::commit`]; if this is dropped instead, nothing has happened.
#[derive(Debug)]
#[must_use]
pub struct FreeingPage<'p> {
    bitmap: ExclusivePage<'p>,
    id: PageId,
}

impl FreeingPage<'_> {
    /// Which page it is.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Makes it real, by the record at `lsn`. From here on the page may be allocated anew.
    pub fn commit(mut self, lsn: Lsn) {
        let pool = self.bitmap.place().pool;
        pool.space.set_bit(self.bitmap.words(), self.id, false);
        self.bitmap.applied(lsn);
        drop(self.bitmap);
        pool.space.map().lock().lower(u64::from(self.id.0));
        pool.counters.frees.add(1);
    }
}

/// Damage that a checksum does not show: a page is given away that is in use.
pub const FREE_IN_USE: &str = "its bitmap page says that it is free, but it is in use";
/// Damage that a checksum does not show: a page is given away that is in use for ever.
pub(super) const GIVES_FIXED: &str = "it gives itself or the header page away";

/// Damage that a checksum does not show: another page in a bitmap page's place.
fn check_kind(id: PageId, words: &PageWords) -> Result<()> {
    if PageKind::from_byte(words.u8(KIND)) == Some(PageKind::Bitmap) {
        Ok(())
    } else {
        Err(StorageError::corrupt_page(id, "it should be a bitmap page"))
    }
}

impl BufferPool {
    /// A free page, near `hint`, a page in use, if there is one. Disk full and the like are errors before anything has
    /// changed.
    ///
    /// The caller may hold pages of a tree, but no other [`NewPage`] or [`FreeingPage`] (PAGE-10).
    ///
    /// # Errors
    /// Among others `Corrupted` if the bitmap gives `hint` itself away: whoever holds it would wait for itself. So it
    /// is with the bitmap page and the header.
    pub fn allocate(&self, hint: PageId) -> Result<NewPage<'_>> {
        self.allocate_for(hint, Urgency::Work, Patience::ENDLESS)
    }

    /// As [`BufferPool::allocate`], with the end of [`BufferPool::optimistic_within`]; for rollback pages are there
    /// that work does not get (PAGE-16).
    pub fn allocate_for(
        &self,
        hint: PageId,
        urgency: Urgency,
        patience: Patience<'_>,
    ) -> Result<NewPage<'_>> {
        let id = self.space.candidate(self, Demand { hint, urgency, patience })?;
        if id == hint {
            self.space.settle(id, false);
            return Err(StorageError::corrupt_page(id, FREE_IN_USE));
        }
        self.take_page(id, urgency, patience).inspect_err(|_| self.space.settle(id, false))
    }

    fn take_page(&self, id: PageId, urgency: Urgency, patience: Patience<'_>) -> Result<NewPage<'_>> {
        if self.space.is_fixed(id) {
            return Err(StorageError::corrupt_page(self.space.bitmap_of(id), GIVES_FIXED));
        }
        let (mut page, resident) = self.exclusive_unread(id, patience)?;
        let before = resident.then(|| (page.words().snapshot(), page.place().frame.recovery_lsn()));
        page.place().frame.mark_dirty(self.log.tail());
        BufferPool::clear(&mut page);
        // Last, because all who allocate pages nearby come for it.
        match self.bitmap_for(id, false, urgency, patience) {
            Ok(bitmap) => Ok(NewPage { parts: Some(Parts { page, bitmap, before, freed: None }) }),
            Err(error) => {
                take_back(page, before);
                Err(error)
            }
        }
    }

    /// The new page `to`, handed out by `Space::take_below`, for the content of `from`, which lies behind it and is
    /// freed by the same record. The only holder of two bitmap pages at a time; the lower one comes first (PAGE-10).
    pub(super) fn take_page_of(
        &self,
        to: PageId,
        from: PageId,
        patience: Patience<'_>,
    ) -> Result<NewPage<'_>> {
        debug_assert!(to < from, "page {from} is moved up, to {to}");
        let mut new =
            self.take_page(to, Urgency::Work, patience).inspect_err(|_| self.space.settle(to, false))?;
        if let Some(parts) = &mut new.parts {
            let id = self.space.bitmap_of(from);
            let bitmap = if id == parts.bitmap.id() {
                self.expect_bit(&parts.bitmap, from, true)?;
                None
            } else {
                Some(self.bitmap_for(from, true, Urgency::Work, patience)?)
            };
            parts.freed = Some(Freed { id: from, bitmap });
        }
        Ok(new)
    }

    /// The bitmap page of `id`, exclusively and prepared, if the bit of `id` is as expected, and while the log has room
    /// for the record: behind one thread that waits for that with a bitmap page, all who allocate would sleep. (Whoever
    /// moves a page has another one meanwhile.)
    fn bitmap_for(
        &self,
        id: PageId,
        used: bool,
        urgency: Urgency,
        patience: Patience<'_>,
    ) -> Result<ExclusivePage<'_>> {
        let bitmap_id = self.space.bitmap_of(id);
        let bitmap = loop {
            let bitmap = self.exclusive_within(bitmap_id, patience)?;
            if self.has_log_room(urgency) {
                break bitmap;
            }
            drop(bitmap);
            self.await_log_room(bitmap_id, urgency, patience)?;
        };
        self.prepare_bit(bitmap, id, used)
    }

    fn prepare_bit<'p>(
        &self,
        mut bitmap: ExclusivePage<'p>,
        id: PageId,
        used: bool,
    ) -> Result<ExclusivePage<'p>> {
        self.expect_bit(&bitmap, id, used)?;
        // Undo may split or free, and must not fail for want of log.
        bitmap.prepare(Urgency::Ending)?;
        Ok(bitmap)
    }

    fn expect_bit(&self, bitmap: &ExclusivePage<'_>, id: PageId, used: bool) -> Result<()> {
        check_kind(bitmap.id(), bitmap.words())?;
        if self.space.bit(bitmap.words(), id) == used {
            return Ok(());
        }
        let detail =
            if used { "it is in use, but marked as free" } else { "it is free, but marked as in use" };
        Err(StorageError::corrupt_page(id, detail))
    }

    /// The bitmap page of `id`, shared.
    pub(super) fn bitmap_shared(&self, id: PageId) -> Result<SharedPage<'_>> {
        self.bitmap_shared_within(id, Patience::ENDLESS)
    }

    /// As [`BufferPool::bitmap_shared`], with the end of [`BufferPool::optimistic_within`].
    pub(super) fn bitmap_shared_within(&self, id: PageId, patience: Patience<'_>) -> Result<SharedPage<'_>> {
        let bitmap = self.shared_within(self.space.bitmap_of(id), patience)?;
        check_kind(bitmap.id(), bitmap.words())?;
        Ok(bitmap)
    }

    /// Begins to free page `id`, to which nothing refers any more. The caller may hold pages of a tree, `id` among
    /// them, but no other [`NewPage`] or [`FreeingPage`] (PAGE-10).
    ///
    /// For rollback: the record is to be appended as [`Urgency::Ending`]. For work there is
    /// [`BufferPool::free_page_within`].
    ///
    /// # Errors
    /// Among others `Corrupted` if `id` is the header page, a bitmap page, or not in the file, and if it is free.
    pub fn free_page(&self, id: PageId) -> Result<FreeingPage<'_>> {
        self.check_freed(id)?;
        Ok(FreeingPage { bitmap: self.bitmap_for(id, true, Urgency::Ending, Patience::ENDLESS)?, id })
    }

    /// As [`BufferPool::free_page`], for work, with the end of [`BufferPool::optimistic_within`].
    ///
    /// # Errors
    /// As [`BufferPool::free_page`].
    pub fn free_page_within(&self, id: PageId, patience: Patience<'_>) -> Result<FreeingPage<'_>> {
        self.check_freed(id)?;
        Ok(FreeingPage { bitmap: self.bitmap_for(id, true, Urgency::Work, patience)?, id })
    }

    /// As [`BufferPool::free_page`], for work, if that needs no waiting, for room in the log neither, and no read from
    /// the file.
    ///
    /// # Errors
    /// As [`BufferPool::free_page`].
    pub fn free_page_now(&self, id: PageId) -> Result<Option<FreeingPage<'_>>> {
        self.check_freed(id)?;
        if !self.has_log_room(Urgency::Work) {
            return Ok(None);
        }
        let bitmap = self.optimistic_now(self.space.bitmap_of(id)).and_then(OptimisticPage::upgrade);
        let prepared = bitmap.map(|bitmap| self.prepare_bit(bitmap, id, true)).transpose()?;
        Ok(prepared.map(|bitmap| FreeingPage { bitmap, id }))
    }

    /// Waits until the bitmap page that [`BufferPool::free_page_now`] needs for `id` is in the pool and nobody changes
    /// it, with the end of [`BufferPool::optimistic_within`]. For those who latch nothing yet.
    ///
    /// # Errors
    /// Those of reading a page.
    pub fn await_free_page(&self, id: PageId, patience: Patience<'_>) -> Result<()> {
        self.optimistic_within(self.space.bitmap_of(id), patience).map(drop)
    }

    /// Whether the log has room for a change of some pages: 64 KiB, a hint. Without it nobody keeps a bitmap
    /// page (PAGE-10).
    #[inline]
    pub fn has_log_room(&self, urgency: Urgency) -> bool {
        self.log.has_room(urgency, LOG_ROOM_BYTES)
    }

    /// Waits until that is so, with the end of [`BufferPool::optimistic_within`]. For those who latch nothing yet of
    /// what others want; `page` is the one that they are about to change.
    ///
    /// # Errors
    /// `WaitEnded`, which names `page`.
    pub fn await_log_room(&self, page: PageId, urgency: Urgency, patience: Patience<'_>) -> Result<()> {
        while !self.has_log_room(urgency) {
            BufferPool::check_patience(page, patience)?;
            let look = patience.cancelled.map(|_| Instant::now() + CANCEL_LOOK);
            let until = [look, patience.deadline].into_iter().flatten().min();
            self.log.await_room(urgency, LOG_ROOM_BYTES, until);
        }
        Ok(())
    }

    fn check_freed(&self, id: PageId) -> Result<()> {
        if self.space.is_fixed(id) || u64::from(id.0) >= self.page_count() {
            return Err(StorageError::corrupt_page(id, "it is not a page that could be freed"));
        }
        Ok(())
    }
}
