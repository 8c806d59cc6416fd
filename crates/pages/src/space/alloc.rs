//! Allocating and freeing pages.
//!
//! Threads are spread over a few *shards*, each of which has a *run* reserved, one to four neighbouring extents, and hands
//! out its free pages; only when a run is used up is a bitmap page searched (Shore-MT §6.2.2 and §7.6 cache extents for
//! the same reason). In a file that is large enough to spare them, runs are long: of 32 allocations 31 search nothing. The
//! search holds no mutex, only the shared latch of the bitmap page that it reads (§7.3).
//!
//! Latch order: pages of the tree, then the new page, then its bitmap page. Whoever holds a bitmap page waits for nothing
//! but room in the log, so a thread has at most one [`NewPage`] or [`FreeingPage`] at a time (PAGE-10).

use foreshore_base::{Lsn, PageId, Result, StorageError};
use foreshore_env::{
    CachePadded,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread_local,
};

use super::{EXTENT_PAGES, Space, bitmap};
use crate::{
    layout::{KIND, PageKind},
    pool::{BufferPool, ExclusivePage, SharedPage},
    words::{PageBuffer, PageWords},
};

/// Shards.
const SHARDS: usize = 8;
/// Extents of a run, at most.
const RUN_EXTENTS: u64 = 4;
const RUN_PAGES: u64 = RUN_EXTENTS * EXTENT_PAGES;
/// Pages of a file in which runs are longer than one extent: a small file shall not grow for what shards put aside.
const LARGE_PAGES: u64 = 2048;
/// How far from the hint a free extent is looked for before any other.
const NEAR_PAGES: u64 = 512;

thread_local! {
    /// The shard that this thread allocates from.
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

/// Hands out shards in turn. Relaxed: it orders nothing.
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

/// Which extents are being allocated from. All of it is forgotten when the database closes.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// Each shard's run, if it has had one yet. Guarded by its mutex, which is held to take a page or change runs.
    shards: [CachePadded<Mutex<Option<Run>>>; SHARDS],
    map: Mutex<Map>,
}

/// Neighbouring extents that are reserved for a shard.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    /// Pages not handed out yet, by their distance from the start: all of them are free in the bitmap, because nobody
    /// else allocates in these extents.
    free: u32,
    /// The extents that are reserved, by their number in the run.
    extents: u8,
}

/// Guarded by the mutex, which is held for a few instructions.
#[derive(Debug, Default)]
struct Map {
    /// Extents that are a shard's. At most one run for each shard and one for each thread that is about to give a shard
    /// one.
    reserved: Vec<u64>,
    /// Pages that were handed out and have neither been committed nor given back: their bits still say that they are
    /// free. At most one for each thread.
    handed_out: Vec<PageId>,
    /// No extent before this page has free pages, except reserved ones.
    first_free: u64,
    /// Raised when `first_free` may have to be lowered, so that a search that began before does not raise it.
    changes: u64,
}

impl Map {
    /// Reserves the extents of a run of which these pages are free in the bitmap, but for extents that are reserved and
    /// pages that are handed out; `None` if nothing is left.
    fn reserve(&mut self, start: u64, free: u32) -> Option<Run> {
        let handed_out = self.handed_out.iter().filter_map(|page| u64::from(page.0).checked_sub(start));
        let taken =
            handed_out.filter(|index| *index < RUN_PAGES).fold(0_u32, |taken, index| taken | 1 << index);
        let mut run = Run { start, free: free & !taken, extents: 0 };
        for number in 0..RUN_EXTENTS {
            let (extent, pages) = (start + number * EXTENT_PAGES, 0xFF << (number * EXTENT_PAGES));
            if self.reserved.contains(&extent) {
                run.free &= !pages;
            } else if run.free & pages != 0 {
                self.reserved.push(extent);
                run.extents |= 1 << number;
            }
        }
        (run.free != 0).then_some(run)
    }

    fn lower(&mut self, page: u64) {
        self.first_free = self.first_free.min(page / EXTENT_PAGES * EXTENT_PAGES);
        self.changes += 1;
    }
}

impl Run {
    /// Its reserved extents.
    fn extents(self) -> impl Iterator<Item = u64> {
        (0..RUN_EXTENTS)
            .filter(move |number| self.extents >> number & 1 != 0)
            .map(move |number| self.start + number * EXTENT_PAGES)
    }

    /// Hands out a page. Its extent is still reserved, so nobody sees the page as free before the map knows better.
    fn take(&mut self, map: &Mutex<Map>) -> Option<PageId> {
        if self.free == 0 {
            return None;
        }
        let page = PageId((self.start + u64::from(self.free.trailing_zeros())) as u32);
        self.free &= self.free - 1;
        map.lock().handed_out.push(page);
        Some(page)
    }
}

impl Space {
    /// A page that is free and that nobody else is given, until [`Space::settle`].
    pub(super) fn candidate(&self, pool: &BufferPool, hint: PageId) -> Result<PageId> {
        let Reservations { shards, map } = &self.reservations;
        let shard = &shards[SHARD.with(|shard| *shard)];
        let take_from = |shard: &Mutex<Option<Run>>| shard.lock().as_mut()?.take(map);
        if let Some(page) = take_from(shard) {
            return Ok(page);
        }
        let mut run = match self.reserve_run(pool, hint) {
            Ok(run) => run,
            // Before the disk is called full, pages that other shards have put aside are used.
            Err(error) => return shards.iter().find_map(|shard| take_from(shard)).ok_or(error),
        };
        let page = run.take(map);
        // If another thread of this shard was faster, its run goes back; what is left of it will be found again.
        if let Some(replaced) = shard.lock().replace(run) {
            self.release_run(replaced);
        }
        page.ok_or_else(|| StorageError::corrupt_page(hint, "an extent with a free page has none"))
    }

    /// Ends the handing out of a page. Used, its bit is set; else it will be found again.
    pub(super) fn settle(&self, page: PageId, used: bool) {
        let mut map = self.reservations.map.lock();
        map.handed_out.retain(|other| *other != page);
        if !used {
            map.lower(u64::from(page.0));
        }
    }

    fn release_run(&self, run: Run) {
        let mut map = self.reservations.map.lock();
        map.reserved.retain(|extent| !run.extents().any(|mine| mine == *extent));
        map.lower(run.start);
    }

    /// Reserves a run with free pages: near the hint, or the first there is, or a new one.
    fn reserve_run(&self, pool: &BufferPool, hint: PageId) -> Result<Run> {
        pool.counters.space_searches.add(1);
        let near = u64::from(hint.0) / EXTENT_PAGES * EXTENT_PAGES;
        if hint.is_some()
            && let Some(run) = self.search(pool, near, near.saturating_add(NEAR_PAGES))?
        {
            return Ok(run);
        }
        loop {
            let (start, changes) = {
                let map = self.reservations.map.lock();
                (map.first_free, map.changes)
            };
            let pages = self.page_count();
            let found = self.search(pool, start, pages)?;
            {
                let mut map = self.reservations.map.lock();
                if map.changes == changes {
                    map.first_free = found.map_or(pages, |run| run.start);
                }
            }
            match found {
                Some(run) => return Ok(run),
                None => self.grow(pool, pages)?,
            }
        }
    }

    /// Finds and reserves a run whose first extent is in `from..to`.
    fn search(&self, pool: &BufferPool, from: u64, to: u64) -> Result<Option<Run>> {
        let pages = self.page_count();
        let length = if pages < LARGE_PAGES { EXTENT_PAGES } else { RUN_PAGES };
        let to = to.min(pages);
        let mut from = from;
        while from < to {
            let span_start = from / self.span * self.span;
            let span_end = (span_start + self.span).min(to);
            let bitmap = pool.bitmap_shared(PageId(from as u32))?;
            let mut index = from - span_start;
            while let Some(found) = bitmap::find_extent(bitmap.words(), index, span_end - span_start) {
                // Under the bitmap's latch: a page whose bit is not set yet is still handed out.
                let run_end = (found + length).min(self.span).min(pages - span_start);
                let free = (found..run_end).step_by(EXTENT_PAGES as usize).fold(0, |free, extent| {
                    free | u32::from(bitmap::free_in_extent(bitmap.words(), extent)) << (extent - found)
                });
                if let Some(run) = self.reservations.map.lock().reserve(span_start + found, free) {
                    return Ok(Some(run));
                }
                index = found + EXTENT_PAGES;
            }
            from = span_end;
        }
        Ok(None)
    }
}

/// A page that is being allocated: latched exclusively, zeros but for its id; its bitmap page is latched too.
///
/// The caller fills it, logs *one* record that says what it holds and that it is allocated, and calls
/// [`NewPage::commit`]. If it is dropped instead, nothing has happened.
#[derive(Debug)]
#[must_use]
pub struct NewPage<'p> {
    parts: Option<Parts<'p>>,
}

#[derive(Debug)]
struct Parts<'p> {
    page: ExclusivePage<'p>,
    bitmap: ExclusivePage<'p>,
    /// What was in the frame, if the page was still in the pool since it was freed: its bytes, and from where on it was dirty.
    /// A drop brings them back, because a checkpoint may still have to write them.
    before: Option<(Box<PageBuffer>, Lsn)>,
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

    /// Makes the allocation real, by the record at `lsn`. The new page shows that record.
    pub fn commit(mut self, lsn: Lsn) -> ExclusivePage<'p> {
        let Some(Parts { mut page, mut bitmap, .. }) = self.parts.take() else {
            unreachable!("the parts leave with commit, which takes the whole")
        };
        let pool = page.place().pool;
        pool.space.set_bit(bitmap.words(), page.id(), true);
        bitmap.applied(lsn);
        drop(bitmap);
        pool.space.settle(page.id(), true);
        page.applied(lsn);
        // The record says all that the page holds, as an image would.
        page.words().set_image_lsn(lsn);
        pool.counters.allocations.add(1);
        page
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if let Some(Parts { page, bitmap, before }) = self.parts.take() {
            drop(bitmap);
            let (pool, id) = (page.place().pool, page.id());
            match before {
                Some((bytes, recovery_lsn)) => {
                    page.words().load_from(&bytes.0);
                    page.place().frame.set_recovery_lsn(recovery_lsn);
                }
                None => page.evacuate(),
            }
            pool.space.settle(id, false);
        }
    }
}

/// A page that is being freed; its bitmap page is latched exclusively. The caller logs one record that says so and calls
/// [`FreeingPage::commit`]; if this is dropped instead, nothing has happened.
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
        pool.space.reservations.map.lock().lower(u64::from(self.id.0));
        pool.counters.frees.add(1);
    }
}

/// Damage that a checksum does not show: another page in a bitmap page's place.
fn check_kind(id: PageId, words: &PageWords) -> Result<()> {
    if PageKind::from_byte(words.u8(KIND)) == Some(PageKind::Bitmap) {
        Ok(())
    } else {
        Err(StorageError::corrupt_page(id, "it should be a bitmap page"))
    }
}

impl BufferPool {
    /// A free page, near `hint` if there is one. Disk full and the like are errors before anything has changed.
    ///
    /// The caller may hold pages of a tree, but no other [`NewPage`] or [`FreeingPage`] (PAGE-10).
    pub fn allocate(&self, hint: PageId) -> Result<NewPage<'_>> {
        let id = self.space.candidate(self, hint)?;
        self.take_page(id).inspect_err(|_| self.space.settle(id, false))
    }

    fn take_page(&self, id: PageId) -> Result<NewPage<'_>> {
        let (mut page, resident) = self.exclusive_unread(id)?;
        let bitmap = match self.bitmap_for(id, false) {
            Ok(bitmap) => bitmap,
            Err(error) => {
                if !resident {
                    page.evacuate();
                }
                return Err(error);
            }
        };
        let before = resident.then(|| (page.words().snapshot(), page.place().frame.recovery_lsn()));
        page.place().frame.mark_dirty(self.log.tail());
        BufferPool::clear(&mut page);
        Ok(NewPage { parts: Some(Parts { page, bitmap, before }) })
    }

    /// The bitmap page of `id`, exclusively and prepared, if the bit of `id` is as expected.
    fn bitmap_for(&self, id: PageId, used: bool) -> Result<ExclusivePage<'_>> {
        let mut bitmap = self.exclusive(self.space.bitmap_of(id))?;
        check_kind(bitmap.id(), bitmap.words())?;
        if self.space.bit(bitmap.words(), id) != used {
            let detail =
                if used { "it is in use, but marked as free" } else { "it is free, but marked as in use" };
            return Err(StorageError::corrupt_page(id, detail));
        }
        // Undo may split or free, and must not fail for want of log.
        bitmap.prepare_rollback()?;
        Ok(bitmap)
    }

    /// The bitmap page of `id`, shared.
    pub(super) fn bitmap_shared(&self, id: PageId) -> Result<SharedPage<'_>> {
        let bitmap = self.shared(self.space.bitmap_of(id))?;
        check_kind(bitmap.id(), bitmap.words())?;
        Ok(bitmap)
    }

    /// Begins to free page `id`, to which nothing refers any more. The caller may hold pages of a tree, `id` among them,
    /// but no other [`NewPage`] or [`FreeingPage`] (PAGE-10).
    pub fn free_page(&self, id: PageId) -> Result<FreeingPage<'_>> {
        if self.space.is_fixed(id) || u64::from(id.0) >= self.page_count() {
            return Err(StorageError::corrupt_page(id, "it is no page that could be freed"));
        }
        Ok(FreeingPage { bitmap: self.bitmap_for(id, true)?, id })
    }
}
