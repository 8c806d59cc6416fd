//! Which pages are allocated next.
//!
//! Threads are spread over a few *shards*, each of which has a *run* reserved, one to four neighbouring extents, and
//! hands out its free pages; only when a run is used up is a bitmap page searched (Shore-MT §6.2.2 and §7.6 cache
//! extents for the same reason). In a file that is large enough to spare them, runs are long: of 32 allocations 31
//! search nothing. The search holds no mutex, only the shared latch of the bitmap page that it reads (§7.3). What the
//! paper had before is in the gallery (`reserve/baseline.rs`).

pub(super) mod baseline;
mod kind;

use foreshore_base::{PageId, Result, StorageError};
use foreshore_env::{
    CachePadded,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread_local,
};
use foreshore_latch::Patience;
use foreshore_wal::Urgency;

use self::baseline::Searching;
pub use self::kind::FreeSpaceKind;
use super::{EXTENT_PAGES, LARGE_PAGES, Space, bitmap};
use crate::pool::BufferPool;

/// Shards.
const SHARDS: usize = 8;
/// Extents of a run, at most.
const RUN_EXTENTS: u64 = 4;
const RUN_PAGES: u64 = RUN_EXTENTS * EXTENT_PAGES;
/// Pages that all shards together have put aside, at most.
pub(super) const MOST_PUT_ASIDE: u64 = SHARDS as u64 * RUN_PAGES;
/// Free pages that only rollback takes, while a database is written to (PAGE-16).
pub(super) const KEPT_PAGES: u32 = 16;
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
    /// What is kept for rollback. Guarded by its mutex, which is held to take a page or to add a run.
    kept: Mutex<Vec<Run>>,
    kind: FreeSpaceKind,
    /// Held for a whole search, in the ways that have one.
    searching: Searching,
}

impl Reservations {
    pub(super) fn new(kind: FreeSpaceKind) -> Reservations {
        Reservations { kind, ..Reservations::default() }
    }
}

/// Neighbouring extents that are reserved for a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    start: u64,
    /// Pages not handed out yet, by their distance from the start: all of them are free in the bitmap, because nobody
    /// else allocates in these extents.
    free: u32,
    /// The extents that are reserved, by their number in the run.
    extents: u8,
}

/// Guarded by the mutex, which is held for a few instructions.
#[derive(Debug, Default)]
pub(super) struct Map {
    /// Extents that are a shard's, or kept. At most one run for each shard, one for each page that is kept, and one for
    /// each thread that is about to give a shard one.
    reserved: Vec<u64>,
    /// Pages that were handed out and have neither been committed nor given back: their bits still say that they are
    /// free. At most one for each thread.
    pub(super) handed_out: Vec<PageId>,
    /// No extent before this page has free pages, except reserved ones.
    pub(super) first_free: u64,
    /// Raised when `first_free` may have to be lowered, so that a search that began before does not raise it.
    changes: u64,
    /// While the file is compacted: nothing is reserved from here on. Set by a compaction, taken back by it or, under
    /// [`Space::growing`], by whoever finds no page below.
    ceiling: Option<u64>,
    /// A compaction is under way, whether or not it still has its ceiling.
    compacting: bool,
}

impl Map {
    /// Reserves the extents of a run of which these pages are free in the bitmap, but for extents that are reserved and
    /// pages that are handed out; `None` if nothing is left of the first extent. (Runs would else begin among the
    /// extents of another run, and be the little that lies behind them.)
    fn reserve(&mut self, start: u64, free: u32) -> Option<Run> {
        let handed_out = self.handed_out.iter().filter_map(|page| u64::from(page.0).checked_sub(start));
        let taken =
            handed_out.filter(|index| *index < RUN_PAGES).fold(0_u32, |taken, index| taken | 1 << index);
        let mut run = Run { start, free: free & !taken, extents: 0 };
        for number in 0..RUN_EXTENTS {
            let (extent, pages) = (start + number * EXTENT_PAGES, 0xFF << (number * EXTENT_PAGES));
            let refused = self.ceiling.is_some_and(|ceiling| extent >= ceiling);
            if refused || self.reserved.contains(&extent) {
                run.free &= !pages;
            } else if run.free & pages != 0 {
                self.reserved.push(extent);
                run.extents |= 1 << number;
            }
            if run.extents == 0 {
                return None;
            }
        }
        Some(run)
    }

    /// The end of what is reserved and handed out.
    pub(super) fn end(&self) -> u64 {
        let reserved = self.reserved.iter().map(|extent| extent + EXTENT_PAGES);
        let handed_out = self.handed_out.iter().map(|page| u64::from(page.0) + 1);
        reserved.chain(handed_out).max().unwrap_or(0)
    }

    /// Begins a compaction; false: one is under way.
    pub(super) fn begin_compaction(&mut self, ceiling: u64) -> bool {
        if self.compacting {
            return false;
        }
        (self.compacting, self.ceiling) = (true, Some(ceiling));
        true
    }

    pub(super) fn end_compaction(&mut self) {
        self.lift_ceiling();
        self.compacting = false;
    }

    pub(super) fn has_ceiling(&self) -> bool {
        self.ceiling.is_some()
    }

    /// Pages above the ceiling may be reserved again; false if there is none.
    pub(super) fn lift_ceiling(&mut self) -> bool {
        match self.ceiling.take() {
            Some(ceiling) => {
                self.lower(ceiling);
                true
            }
            None => false,
        }
    }

    pub(super) fn lower(&mut self, page: u64) {
        self.first_free = self.first_free.min(page / EXTENT_PAGES * EXTENT_PAGES);
        self.changes += 1;
    }
}

impl Run {
    /// The end of its place.
    fn end(self) -> u64 {
        self.start + RUN_PAGES
    }

    /// Pages that it has left.
    fn left(&self) -> u32 {
        self.free.count_ones()
    }

    /// Its reserved extents.
    pub(super) fn extents(self) -> impl Iterator<Item = u64> {
        (0..RUN_EXTENTS)
            .filter(move |number| self.extents >> number & 1 != 0)
            .map(move |number| self.start + number * EXTENT_PAGES)
    }

    /// Hands out a page. Its extent is still reserved, so nobody sees the page as free before the map knows better.
    pub(super) fn take(&mut self, map: &Mutex<Map>) -> Option<PageId> {
        if self.free == 0 {
            return None;
        }
        let page = PageId((self.start + u64::from(self.free.trailing_zeros())) as u32);
        self.free &= self.free - 1;
        map.lock().handed_out.push(page);
        Some(page)
    }
}

/// What a page is wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'p> {
    /// It had best lie near this one.
    pub(super) hint: PageId,
    pub(super) urgency: Urgency,
    /// A bitmap page is waited for no longer than this lasts.
    pub(super) patience: Patience<'p>,
}

impl Space {
    /// A page that is free and that nobody else is given, until [`Space::settle`].
    pub(super) fn candidate(&self, pool: &BufferPool, demand: Demand<'_>) -> Result<PageId> {
        let found = match self.reservations.kind {
            FreeSpaceKind::Cached => self.candidate_cached(pool, demand),
            FreeSpaceKind::Uncached => self.candidate_uncached(pool, demand),
            FreeSpaceKind::GlobalMutex | FreeSpaceKind::GlobalTtas | FreeSpaceKind::GlobalMcs => {
                self.candidate_alone(pool, demand)
            }
        };
        match (found, demand.urgency) {
            (Err(error), Urgency::Ending) => self.take_kept().ok_or(error),
            (found, _) => found,
        }
    }

    fn take_kept(&self) -> Option<PageId> {
        let mut kept = self.reservations.kept.lock();
        kept.iter_mut().find_map(|run| run.take(&self.reservations.map))
    }

    /// Sees to it that there are pages for rollback before work takes others (PAGE-16). Two threads may both find that
    /// there are too few; then there are a few more. Not during a compaction, in which rollback has all that lies
    /// behind the ceiling.
    fn keep_some(&self, pool: &BufferPool, patience: Patience<'_>) -> Result<()> {
        while !self.map().lock().has_ceiling() {
            {
                let mut kept = self.reservations.kept.lock();
                if kept.iter().map(Run::left).sum::<u32>() >= KEPT_PAGES {
                    return Ok(());
                }
                for used_up in kept.extract_if(.., |run| run.left() == 0) {
                    self.release_run(used_up);
                }
            }
            let run = self.reserve_run(pool, PageId::NONE, patience)?;
            self.reservations.kept.lock().push(run);
        }
        Ok(())
    }

    /// Reserves a run for work, or for rollback.
    fn reserve_for(&self, pool: &BufferPool, demand: Demand<'_>) -> Result<Run> {
        let run = self.reserve_run(pool, demand.hint, demand.patience)?;
        if demand.urgency == Urgency::Work {
            self.keep_some(pool, demand.patience).inspect_err(|_| self.release_run(run))?;
        }
        Ok(run)
    }

    fn candidate_cached(&self, pool: &BufferPool, demand: Demand<'_>) -> Result<PageId> {
        let Reservations { shards, map, .. } = &self.reservations;
        let shard = &shards[SHARD.with(|shard| *shard)];
        let take_from = |shard: &Mutex<Option<Run>>| shard.lock().as_mut()?.take(map);
        if let Some(page) = take_from(shard) {
            return Ok(page);
        }
        let mut run = match self.reserve_for(pool, demand) {
            Ok(run) => run,
            // Before the disk is called full, pages that other shards have put aside are used.
            Err(error) => return shards.iter().find_map(|shard| take_from(shard)).ok_or(error),
        };
        let page = run.take(map);
        // If another thread of this shard was faster, its run goes back; what is left of it will be found again.
        if let Some(replaced) = shard.lock().replace(run) {
            self.release_run(replaced);
        }
        page.ok_or_else(|| StorageError::corrupt_page(demand.hint, "an extent with a free page has none"))
    }

    /// Ends the handing out of a page. Used, its bit is set; else it will be found again.
    pub(super) fn settle(&self, page: PageId, used: bool) {
        let mut map = self.reservations.map.lock();
        map.handed_out.retain(|other| *other != page);
        if !used {
            map.lower(u64::from(page.0));
        }
    }

    /// Takes back the runs of all shards that reach beyond `page`, and what is kept for rollback.
    pub(super) fn release_runs_beyond(&self, page: u64) {
        for shard in &self.reservations.shards {
            let mut run = shard.lock();
            if let Some(run) = run.take_if(|run| run.end() > page) {
                self.release_run(run);
            }
        }
        // Those before are room for what is moved.
        for run in self.reservations.kept.lock().drain(..) {
            self.release_run(run);
        }
    }

    pub(super) fn map(&self) -> &Mutex<Map> {
        &self.reservations.map
    }

    pub(super) fn release_run(&self, run: Run) {
        let mut map = self.reservations.map.lock();
        map.reserved.retain(|extent| !run.extents().any(|mine| mine == *extent));
        map.lower(run.start);
    }

    /// Reserves a run with free pages: near the hint, or the first there is, or a new one. The file grows behind it in
    /// time.
    fn reserve_run(&self, pool: &BufferPool, hint: PageId, patience: Patience<'_>) -> Result<Run> {
        let run = self.find_run(pool, hint, patience)?;
        self.take_space(pool, run).inspect_err(|_| self.release_run(run))?;
        self.look_ahead(pool, run.start);
        Ok(run)
    }

    fn find_run(&self, pool: &BufferPool, hint: PageId, patience: Patience<'_>) -> Result<Run> {
        pool.counters.space_searches.add(1);
        let near = u64::from(hint.0) / EXTENT_PAGES * EXTENT_PAGES;
        if hint.is_some()
            && let Some(run) = self.search(pool, near, near.saturating_add(NEAR_PAGES), patience)?
        {
            return Ok(run);
        }
        loop {
            let (start, changes) = {
                let map = self.reservations.map.lock();
                (map.first_free, map.changes)
            };
            let pages = self.page_count();
            let found = self.search(pool, start, pages, patience)?;
            {
                let mut map = self.reservations.map.lock();
                if map.changes == changes {
                    map.first_free = found.map_or(pages, |run| run.start);
                }
            }
            match found {
                Some(run) => return Ok(run),
                None => {
                    // The file is lengthened without a look at the time.
                    BufferPool::check_patience(PageId(pages as u32), patience)?;
                    self.grow(pool, pages)?;
                }
            }
        }
    }

    /// Finds and reserves a run whose first extent is in `from..to`; `None`, too, if the file was cut meanwhile and
    /// ends before what was found, or before where this looks.
    pub(super) fn search(
        &self,
        pool: &BufferPool,
        from: u64,
        to: u64,
        patience: Patience<'_>,
    ) -> Result<Option<Run>> {
        let pages = self.page_count();
        let length = if pages < LARGE_PAGES { EXTENT_PAGES } else { RUN_PAGES };
        let to = to.min(pages);
        let mut from = from;
        while from < to {
            let span_start = from / self.span * self.span;
            let span_end = (span_start + self.span).min(to);
            let bitmap = match pool.bitmap_shared_within(PageId(from as u32), patience) {
                // It was cut off meanwhile.
                Err(_) if from >= self.page_count() => return Ok(None),
                bitmap => bitmap?,
            };
            let mut index = from - span_start;
            while let Some(found) = bitmap::find_extent(bitmap.words(), index, span_end - span_start) {
                // Under the bitmap's latch: a page whose bit is not set yet is still handed out.
                let run_end = (found + length).min(self.span).min(pages - span_start);
                let free = (found..run_end).step_by(EXTENT_PAGES as usize).fold(0, |free, extent| {
                    free | u32::from(bitmap::free_in_extent(bitmap.words(), extent)) << (extent - found)
                });
                let reserved = self.reservations.map.lock().reserve(span_start + found, free);
                if let Some(run) = reserved {
                    // Asked again: the ceiling that kept this off may be gone, and with it what lay behind (PAGE-15).
                    let end = self.page_count();
                    if run.extents().all(|extent| extent < end) {
                        return Ok(Some(run));
                    }
                    self.release_run(run);
                    return Ok(None);
                }
                index = found + EXTENT_PAGES;
            }
            from = span_end;
        }
        Ok(None)
    }
}
