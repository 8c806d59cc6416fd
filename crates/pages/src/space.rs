//! The data file as space: its header page, its growth, and which pages are in use.
//!
//! Page 0 is the header page (`space/header.rs`).
//!
//! The file is divided into spans. The second page of each is its bitmap page: bit n of its body says whether page n of
//! the span is in use. An extent is eight pages, one byte of a bitmap. The file grows by whole extents, and never by
//! some of two spans at once; a span's bitmap page is formatted when the file first reaches it, by its own record.
//!
//! Nothing but bits is durable. What is in memory (which extents a thread allocates from, where to look for free ones)
//! is a hint: the bit, under its bitmap page's exclusive latch, decides.

mod alloc;
pub(crate) mod bitmap;
mod census;
mod compact;
mod header;
mod holes;
mod reserve;
#[cfg(test)]
mod tests;

use std::path::Path;

use foreshore_base::{
    Lsn, PageId, Result, StorageError, TxnId,
    limits::{MAX_PAGES, PAGE_BYTES},
};
use foreshore_env::{
    disk::DiskFile,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use foreshore_latch::Patience;
use foreshore_wal::{RecordHeader, Urgency};

pub use alloc::{FREE_IN_USE, FreeingPage, NewPage};
pub(crate) use census::hole_end;
pub use compact::{Compaction, NewEnd};
pub(crate) use header::Header;
pub use reserve::FreeSpaceKind;

use self::reserve::{MOST_PUT_ASIDE, Reservations};
use crate::{
    layout::{KIND, PAGE_HEADER_BYTES, PageKind, Seal},
    pool::{BITMAP_FORMAT, BufferPool},
    words::{PageBuffer, PageWords},
};

/// Pages in an extent.
pub(crate) const EXTENT_PAGES: u64 = 8;
/// Most pages that one bitmap page covers: as many as its body has bits.
pub const BITMAP_SPAN: u32 = (PAGE_BYTES as u32 - PAGE_HEADER_BYTES as u32) * 8;
/// Spans are whole words of their bitmap.
const SPAN_UNIT: u32 = 64;
/// Where in its span the bitmap page is.
const BITMAP_INDEX: u64 = 1;
/// The format of the data file that this version writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// Extents that a file begins with.
const FIRST_PAGES: u64 = 64;
/// A file grows by a sixteenth of itself, within these bounds.
const LEAST_GROWTH_PAGES: u64 = 128;
const MOST_GROWTH_PAGES: u64 = 8192;
const GROWTH_SHARE: u64 = 16;
/// Pages of a file that is not small: runs are longer than one extent, for it may grow for what shards put aside, and
/// it grows ahead of need, by the cleaner, by two sixteenths when less than one is left behind what is reserved, and
/// little is free before that.
const LARGE_PAGES: u64 = 2048;

const _: () = assert!(BITMAP_SPAN.is_multiple_of(SPAN_UNIT) && FIRST_PAGES.is_multiple_of(EXTENT_PAGES));

/// The data file as space.
#[derive(Debug)]
pub(crate) struct Space {
    /// Pages that a bitmap page covers.
    span: u64,
    /// Pages in the file, whole extents. Written under `growing`, after the file has grown and its new bitmap page is
    /// there; Release pairs with the Acquire of readers.
    pages: AtomicU64,
    /// Held by whoever lengthens or cuts the file, ends a compaction or closes the pool: how many pages surely have
    /// space on the disk.
    pub(crate) growing: Mutex<u64>,
    /// Every page surely has. Written under `growing`; relaxed: whoever sees it late asks for space that is there.
    has_no_holes: AtomicBool,
    reservations: Reservations,
    /// The last bitmap page, if it was zeros when the file was opened, though its span has pages that the header page
    /// counts: redo formats it, or it was lost (PAGE-19).
    blank: Option<PageId>,
}

impl Space {
    fn new(span: u32, pages: u64, kind: FreeSpaceKind) -> Space {
        Space {
            span: u64::from(span),
            pages: AtomicU64::new(pages),
            growing: Mutex::new(0),
            has_no_holes: AtomicBool::new(false),
            reservations: Reservations::new(kind),
            blank: None,
        }
    }

    /// Writes the header page and the first bitmap page of a new file, durably.
    pub(crate) fn create(
        file: &dyn DiskFile,
        path: &Path,
        seal: Seal,
        span: u32,
        kind: FreeSpaceKind,
    ) -> Result<(Space, Header)> {
        let fits = span > 0 && span <= BITMAP_SPAN && span.is_multiple_of(SPAN_UNIT);
        if !fits {
            let what = "pages of one bitmap (a multiple of 64)";
            return Err(StorageError::beyond_limit(what, u64::from(BITMAP_SPAN), u64::from(span)));
        }
        let pages = FIRST_PAGES.min(u64::from(span));
        file.allocate(0..pages * PAGE_BYTES as u64).map_err(StorageError::io("reserve space for", path))?;
        let header = Header { span, horizon: Lsn::ZERO, count: pages };
        let bitmap = PageWords::default();
        bitmap.set_page_id(PageId(BITMAP_INDEX as u32));
        format(&bitmap);
        bitmap::set(&bitmap, 0, true);
        let mut page = bitmap.snapshot();
        seal.set(&mut page.0);
        file.write_all_at(&page.0, BITMAP_INDEX * PAGE_BYTES as u64)
            .map_err(StorageError::io("write", path))?;
        header.write(file, seal).map_err(StorageError::io("write", path))?;
        file.sync().map_err(StorageError::io("sync", path))?;
        let space = Space { has_no_holes: AtomicBool::new(true), ..Space::new(span, pages, kind) };
        Ok((space, header))
    }

    /// Opens an existing file; gives what its header page says, too. For salvage one that cannot be read is what such a
    /// page usually is, and the count is not believed.
    ///
    /// # Errors
    /// Among others `Corrupted` for a file that was cut (PAGE-19).
    pub(crate) fn open(
        file: &dyn DiskFile,
        path: &Path,
        seal: Seal,
        kind: FreeSpaceKind,
        salvage: bool,
    ) -> Result<(Space, Header)> {
        let bytes = file.len().map_err(StorageError::io("measure", path))?;
        let pages = (bytes / PAGE_BYTES as u64).min(MAX_PAGES) / EXTENT_PAGES * EXTENT_PAGES;
        let header = match Header::read(file, path, seal) {
            Err(_) if salvage => Header::LOST,
            header => header?,
        };
        let mut space = Space::new(header.span, pages, kind);
        if !salvage {
            if pages < header.count {
                return Err(StorageError::corrupt_file(
                    path,
                    cut_off(bytes / PAGE_BYTES as u64, header.count),
                ));
            }
            space.blank = space.forget_unformatted_spans(file, path, header.count)?;
        }
        Ok((space, header))
    }

    /// A crash between the growth into a new span and the record that formats its bitmap page leaves a span that
    /// nobody has used: the file is taken to end before it. Earlier versions could leave several, by writing a page
    /// that they had cut off. But none of the `count` pages that the header page speaks of is forgotten: the bitmap
    /// page is given that is zeros in their last span.
    fn forget_unformatted_spans(
        &self,
        file: &dyn DiskFile,
        path: &Path,
        count: u64,
    ) -> Result<Option<PageId>> {
        let mut page = PageBuffer::zeroed();
        while let start @ 1.. = self.page_count().saturating_sub(1) / self.span * self.span {
            let bitmap = start + BITMAP_INDEX;
            file.read_exact_at(&mut page.0, bitmap * PAGE_BYTES as u64)
                .map_err(StorageError::io("read the last bitmap page of", path))?;
            if page.0.iter().any(|byte| *byte != 0) {
                break;
            }
            if start < count {
                return Ok(Some(PageId(bitmap as u32)));
            }
            self.pages.store(start, Ordering::Release);
        }
        Ok(None)
    }

    pub(crate) fn page_count(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// The page whose bits cover `page`.
    pub(crate) fn bitmap_of(&self, page: PageId) -> PageId {
        PageId((u64::from(page.0) / self.span * self.span + BITMAP_INDEX) as u32)
    }

    /// Whether `page` is the header page or a bitmap page: allocated for ever.
    fn is_fixed(&self, page: PageId) -> bool {
        !page.is_some() || self.bitmap_of(page) == page
    }

    /// Sets or clears the bit of `page` in its bitmap page.
    pub(crate) fn set_bit(&self, bitmap: &PageWords, page: PageId, used: bool) {
        bitmap::set(bitmap, u64::from(page.0) % self.span, used);
    }

    fn bit(&self, bitmap: &PageWords, page: PageId) -> bool {
        bitmap::get(bitmap, u64::from(page.0) % self.span)
    }

    /// Lengthens the file if it still has `seen` pages, and no compaction could make way. On a full disk nothing
    /// changes.
    fn grow(&self, pool: &BufferPool, seen: u64) -> Result<()> {
        let mut reserved = self.growing.lock();
        let pages = self.page_count();
        if pages != seen || self.map().lock().lift_ceiling() {
            return Ok(());
        }
        let room = self.room(pages);
        if room == 0 {
            return Err(StorageError::beyond_limit("pages of the data file", MAX_PAGES, pages + 1));
        }
        let wanted = growth(pages).min(room);
        let longer = match reserve(pool, &mut reserved, pages + wanted) {
            // The last free extents of a disk are used too.
            Err(_) if wanted > EXTENT_PAGES => reserve(pool, &mut reserved, pages + EXTENT_PAGES)?,
            result => result?,
        };
        self.add(pool, pages, longer)
    }

    /// Pages that the file may grow by at once: up to the end of a span.
    fn room(&self, pages: u64) -> u64 {
        ((pages / self.span + 1) * self.span).min(MAX_PAGES) - pages
    }

    /// Takes the pages that the file has become longer by. By the holder of `growing`.
    fn add(&self, pool: &BufferPool, pages: u64, longer: u64) -> Result<()> {
        if pages.is_multiple_of(self.span) {
            self.format_bitmap(pool, PageId((pages + BITMAP_INDEX) as u32))?;
        }
        self.pages.store(longer, Ordering::Release);
        Ok(())
    }

    /// Has the file lengthened by the cleaner if it should be longer soon, now that pages from `start` on are reserved.
    fn look_ahead(&self, pool: &BufferPool, start: u64) {
        let pages = self.page_count();
        if pages >= LARGE_PAGES && start + growth(pages) > pages {
            pool.want_growth(pages);
        }
    }

    /// Lengthens the file if it still has `seen` pages, before anybody waits for that; not during a compaction, nor
    /// while as much is free before its end, beside what shards may have put aside: whoever goes on through the file,
    /// and frees what lies behind, would have it grow for ever.
    fn grow_ahead(&self, pool: &BufferPool, seen: u64) -> Result<()> {
        let may_grow = || self.page_count() == seen && !self.map().lock().has_ceiling();
        if !may_grow() || self.has_free(pool, seen - growth(seen), growth(seen) + MOST_PUT_ASIDE)? {
            return Ok(());
        }
        let mut reserved = self.growing.lock();
        if !may_grow() {
            return Ok(());
        }
        match (2 * growth(seen)).min(self.room(seen)) {
            0 => Ok(()),
            wanted => self.add(pool, seen, reserve(pool, &mut reserved, seen + wanted)?),
        }
    }

    /// Makes the bitmap page of a new span: a system transaction of its own.
    fn format_bitmap(&self, pool: &BufferPool, id: PageId) -> Result<()> {
        // It may be in a frame, if the file was longer once and somebody looked at it when it was cut.
        let (mut page, _) = pool.exclusive_unread(id, Patience::ENDLESS)?;
        let bound = pool.log.tail();
        let payload: [&[u8]; 1] = [&id.0.to_le_bytes()];
        let lsn = match pool.log.append(Urgency::Ending, TxnId::SYSTEM, Lsn::ZERO, BITMAP_FORMAT, &payload) {
            Ok(lsn) => lsn,
            Err(error) => {
                page.evacuate();
                return Err(error);
            }
        };
        page.place().frame.mark_dirty(bound);
        BufferPool::clear(&mut page);
        format(page.words());
        page.applied(lsn);
        page.words().set_image_lsn(lsn);
        Ok(())
    }

    /// Lengthens the file in recovery, so that it has page `id`, which the record at `lsn` writes: growth is made
    /// durable by checkpoints only. For salvage as far as any record says, since nobody knows how much of a file was
    /// cut off.
    pub(crate) fn extend_to(&self, pool: &BufferPool, id: PageId, lsn: Lsn) -> Result<()> {
        if u64::from(id.0) < self.page_count() {
            return Ok(());
        }
        let mut reserved = self.growing.lock();
        let count = self.page_count();
        // A span begins with a record of its own, and none before that writes one of its pages (PAGE-20).
        if u64::from(id.0) >= (count.div_ceil(self.span) + 1) * self.span && !pool.salvage {
            let detail =
                format!("it writes page {id}, and no record before it made that of a file of {count} pages");
            return Err(StorageError::corrupt_log(lsn, detail));
        }
        let pages = (u64::from(id.0) / EXTENT_PAGES + 1) * EXTENT_PAGES;
        if pages > count {
            self.pages.store(reserve(pool, &mut reserved, pages)?, Ordering::Release);
        }
        Ok(())
    }
}

impl BufferPool {
    /// See [`Space::grow_ahead`].
    pub(crate) fn grow_ahead(&self, seen: u64) -> Result<()> {
        self.space.grow_ahead(self, seen)
    }

    /// Whether the bitmap page is there that was zeros when the file was opened: redo has formatted it, or it was lost
    /// (PAGE-19).
    pub(crate) fn check_blank_bitmap(&self) -> Result<()> {
        match self.space.blank.map(|id| (id, self.shared(id).map(drop))) {
            Some((id, Err(StorageError::Corrupted { .. }))) => {
                Err(StorageError::corrupt_page(id, LOST_BITMAP))
            }
            Some((_, result)) => result,
            None => Ok(()),
        }
    }
}

/// Of a bitmap page that is zeros, though the file has had its span.
const LOST_BITMAP: &str = "it is empty, though it says which pages are in use: a write of it was lost; \
                           open a backup, or save with `foreshore salvage` what can be read";

/// What is wrong with a file that has fewer pages than its header page counts.
fn cut_off(pages: u64, count: u64) -> String {
    format!(
        "it has {pages} whole pages, and had {count} at the last checkpoint: its end was cut off; put it back, open a backup, \
         or save with `foreshore salvage` what can be read"
    )
}

/// The bitmap page of `page` in a file whose spans are of the usual length: for whoever cannot read its header.
pub(crate) fn bitmap_page(page: PageId) -> PageId {
    PageId(page.0 / BITMAP_SPAN * BITMAP_SPAN + BITMAP_INDEX as u32)
}

/// By how many pages a file of so many grows.
fn growth(pages: u64) -> u64 {
    let wanted = (pages / GROWTH_SHARE).clamp(LEAST_GROWTH_PAGES, MOST_GROWTH_PAGES);
    wanted / EXTENT_PAGES * EXTENT_PAGES
}

/// Reserves space for `pages` pages, of which the first ones have it already; returns them. A file system may look at
/// each page that it is asked for, whether it has space or not. By the holder of `growing`; the file of a closed pool
/// may be another's (PAGE-13).
fn reserve(pool: &BufferPool, reserved: &mut u64, pages: u64) -> Result<u64> {
    pool.check_open()?;
    let bytes = |pages: u64| pages * PAGE_BYTES as u64;
    if pages > *reserved {
        pool.file
            .allocate(bytes(*reserved)..bytes(pages))
            .map_err(StorageError::io(format!("reserve space for {pages} pages in all in"), &pool.path))?;
        *reserved = pages;
        pool.space.has_no_holes.store(true, Ordering::Relaxed);
    }
    Ok(pages)
}

/// Makes a page of zeros a bitmap page: its own bit is set.
pub(crate) fn format(words: &PageWords) {
    words.set_u8(KIND, PageKind::Bitmap as u8);
    bitmap::set(words, BITMAP_INDEX, true);
}

/// The page id of a [`BITMAP_FORMAT`] record.
pub(crate) fn decode_format(header: &RecordHeader, payload: &[u8]) -> Result<PageId> {
    match payload.try_into().map(u32::from_le_bytes).map(PageId) {
        Ok(id) if id.is_some() => Ok(id),
        _ => Err(StorageError::corrupt_log(header.lsn, "it formats no bitmap page")),
    }
}
