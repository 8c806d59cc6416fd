//! Redo: repeating history, page by page, by page LSN.
//!
//! A page that was torn by the crash cannot be read. Its first change behind the redo horizon logged it whole (PAGE-7),
//! so its records are skipped until an image or a record that formats the page comes by; if none comes, the page is
//! damaged for another reason, and [`BufferPool::finish_redo`] says so.
//!
//! Images and formats are applied without reading the page: every later record of the page follows in the log. Not so
//! for salvage: its log may end before what the file has.
//!
//! PAGE-18: a page that shows a change already is dirty all the same. It may be in the system's cache only: the process
//! that wrote it died before its sync, or that failed, and then the kernel takes the cache for clean. So it is written
//! again before the log is released; but not where all that is written is lost at the end.

use foreshore_base::{CorruptionSite, Lsn, PageId, Result, StorageError};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::atomic::Ordering,
};
use foreshore_latch::Patience;
use foreshore_wal::RecordHeader;

use super::{
    BufferPool, ExclusivePage,
    image::{self, BITMAP_FORMAT, PAGE_IMAGE},
};
use crate::{space, words::PageWords};

impl BufferPool {
    /// Applies the change of the record at `lsn` to page `id`, unless the page shows it already. Records of one page
    /// must come in the order of the log. An error of `apply` stops the database: the page may be half changed.
    pub fn redo(&self, id: PageId, lsn: Lsn, apply: impl FnOnce(&PageWords) -> Result<()>) -> Result<()> {
        if self.is_awaiting(id) {
            return Ok(());
        }
        if u64::from(id.0) >= self.page_count() {
            self.await_image(id, "it lies beyond the end of the data file".to_owned());
            return Ok(());
        }
        match self.exclusive(id) {
            Ok(mut page) => self.redo_on(&mut page, lsn, apply),
            Err(StorageError::Corrupted { site: CorruptionSite::Page(_), detail }) => {
                self.await_image(id, detail);
                Ok(())
            }
            Err(error @ StorageError::Io { .. }) if self.salvage => {
                self.await_image(id, error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a page whose bytes are `known` shows the change at `lsn`; marks it as what is to be written again
    /// (PAGE-18).
    fn shows(&self, page: &ExclusivePage<'_>, lsn: Lsn, known: bool) -> bool {
        let shows = known && page.lsn() >= lsn;
        if !(shows && self.transient) {
            page.place().frame.mark_dirty(lsn);
        }
        shows
    }

    fn redo_on(
        &self,
        page: &mut ExclusivePage<'_>,
        lsn: Lsn,
        apply: impl FnOnce(&PageWords) -> Result<()>,
    ) -> Result<()> {
        if self.shows(page, lsn, true) && !planted(Fault::RedoUnconditional) {
            return Ok(());
        }
        apply(page.words()).map_err(|error| self.fatal(error))?;
        page.applied(lsn);
        Ok(())
    }

    /// Applies a record that writes the whole page: `apply` is given zeros with the page id set.
    pub fn redo_format(
        &self,
        id: PageId,
        lsn: Lsn,
        apply: impl FnOnce(&PageWords) -> Result<()>,
    ) -> Result<()> {
        self.redo_whole(id, lsn, |page| {
            BufferPool::clear(page);
            apply(page.words())
        })
    }

    fn redo_whole(
        &self,
        id: PageId,
        lsn: Lsn,
        write: impl FnOnce(&mut ExclusivePage<'_>) -> Result<()>,
    ) -> Result<()> {
        if !id.is_some() {
            return Err(StorageError::corrupt_log(lsn, "it writes page 0"));
        }
        self.space.extend_to(self, id, lsn)?;
        let (mut page, known) = match self.newer_in_file(id)? {
            Some(page) => (page, true),
            None => self.exclusive_unread(id, Patience::ENDLESS)?,
        };
        if self.shows(&page, lsn, known) {
            return Ok(());
        }
        write(&mut page).map_err(|error| self.fatal(error))?;
        page.words().set_page_id(id);
        page.words().set_lsn(lsn);
        page.words().set_image_lsn(lsn);
        self.image_has_come(id);
        Ok(())
    }

    /// For salvage, a page that can be read: the file may have it newer than any record of a damaged log.
    fn newer_in_file(&self, id: PageId) -> Result<Option<ExclusivePage<'_>>> {
        if !self.salvage || self.is_awaiting(id) {
            return Ok(None);
        }
        match self.exclusive(id) {
            Ok(page) => Ok(Some(page)),
            Err(StorageError::Corrupted { site: CorruptionSite::Page(_), .. } | StorageError::Io { .. }) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Applies a record of this crate's kinds; false when it is of another.
    pub fn redo_record(&self, header: &RecordHeader, payload: &[u8]) -> Result<bool> {
        match header.kind {
            PAGE_IMAGE => {
                let (id, page) = image::decode(header, payload)?;
                self.redo_whole(id, header.lsn, |target| {
                    target.words().load_from(&page.0);
                    Ok(())
                })?;
            }
            BITMAP_FORMAT => {
                let id = space::decode_format(header, payload)?;
                self.redo_format(id, header.lsn, |words| {
                    space::format(words);
                    Ok(())
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies the bitmap's side of a record that allocates `page`.
    pub fn redo_allocate(&self, page: PageId, lsn: Lsn) -> Result<()> {
        self.redo(self.space.bitmap_of(page), lsn, |words| {
            self.space.set_bit(words, page, true);
            Ok(())
        })
    }

    /// Applies the bitmap's side of a record that frees `page`.
    pub fn redo_free(&self, page: PageId, lsn: Lsn) -> Result<()> {
        self.redo(self.space.bitmap_of(page), lsn, |words| {
            self.space.set_bit(words, page, false);
            Ok(())
        })
    }

    /// Applies the bitmaps' side of a record that allocates `to` and frees `from`: they may be on one bitmap page.
    pub fn redo_move(&self, from: PageId, to: PageId, lsn: Lsn) -> Result<()> {
        if self.space.bitmap_of(from) != self.space.bitmap_of(to) {
            return self.redo_allocate(to, lsn).and_then(|()| self.redo_free(from, lsn));
        }
        self.redo(self.space.bitmap_of(to), lsn, |words| {
            self.space.set_bit(words, to, true);
            self.space.set_bit(words, from, false);
            Ok(())
        })
    }

    /// Ends redo: pages that were never repaired are damaged, and so is the file if it has lost its last bitmap page
    /// (PAGE-19).
    pub fn finish_redo(&self) -> Result<()> {
        self.check_blank_bitmap()?;
        match self.awaiting.lock().first_key_value() {
            None => Ok(()),
            Some((page, detail)) => Err(StorageError::corrupt_page(
                *page,
                format!("{detail}, and the log has changes for it but no image to repair it with"),
            )),
        }
    }

    fn is_awaiting(&self, id: PageId) -> bool {
        // Relaxed: redo of one page is one thread after another, ordered by whoever hands the records out.
        self.awaiting_count.load(Ordering::Relaxed) > 0 && self.awaiting.lock().contains_key(&id)
    }

    #[cold]
    fn await_image(&self, id: PageId, detail: String) {
        let mut awaiting = self.awaiting.lock();
        awaiting.insert(id, detail);
        self.awaiting_count.store(awaiting.len(), Ordering::Relaxed);
    }

    fn image_has_come(&self, id: PageId) {
        if self.is_awaiting(id) {
            let mut awaiting = self.awaiting.lock();
            awaiting.remove(&id);
            self.awaiting_count.store(awaiting.len(), Ordering::Relaxed);
        }
    }
}
