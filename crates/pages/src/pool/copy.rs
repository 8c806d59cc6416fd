//! Copying the data file while it is in use, for a backup.
//!
//! Each page is taken as the file has it, at a moment of its own, as a crash would leave it; what the log says since
//! the last checkpoint makes one state of them. A page that is being written at that moment may come half old and half
//! new: its checksum tells, and it is read again.

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{thread, time::Duration};

use super::BufferPool;
use crate::layout;

/// How often a page whose bytes are not sound is read again, and the pause before. A write takes far less.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(2);

impl BufferPool {
    /// Pages in the data file now.
    pub fn file_pages(&self) -> u64 {
        self.space.page_count()
    }

    /// Reads pages from `first` on, as many as `bytes` has room for and the file has, as the file has them; gives how
    /// many. All are sound (PAGE-6) or nobody's; nobody's are zeros if they are not sound. See
    /// [`BufferPool::check_file_end`], too.
    ///
    /// # Errors
    /// `Corrupted` for a page in use that stays unsound; `Io`.
    pub fn copy_pages(&self, first: PageId, bytes: &mut [u8]) -> Result<usize> {
        let there = self.file_pages().saturating_sub(u64::from(first.0));
        let (pages, _) = bytes.as_chunks_mut::<PAGE_BYTES>();
        let count = usize::try_from(there).unwrap_or(usize::MAX).min(pages.len());
        for (number, page) in pages[..count].iter_mut().enumerate() {
            self.copy_page(PageId(first.0 + number as u32), page)?;
        }
        Ok(count)
    }

    fn copy_page(&self, id: PageId, page: &mut [u8; PAGE_BYTES]) -> Result<()> {
        let offset = u64::from(id.0) * PAGE_BYTES as u64;
        let mut attempt = 1;
        loop {
            self.file
                .read_exact_at(page, offset)
                .map_err(|error| StorageError::io(format!("read page {id} of"), &self.path)(error))?;
            // The header page shows no record's change.
            let newest = if id.is_some() { self.log.tail() } else { Lsn::MAX };
            let Err(damage) = self.seal.check(page, id, newest) else { return Ok(()) };
            if id.is_some() && !self.is_allocated(id)? {
                // Whoever takes it now has all of it in the log.
                page.fill(0);
                return Ok(());
            }
            // A new page may be in memory alone: nothing of it is on its way to the file, so nothing is waited for.
            let is_blank = page.iter().all(|&byte| byte == 0);
            if (is_blank || attempt == ATTEMPTS) && self.copy_from_memory(id, page).is_ok() {
                return Ok(());
            }
            if attempt == ATTEMPTS {
                return Err(damage);
            }
            attempt += 1;
            thread::sleep(PAUSE);
        }
    }

    /// A page that rots in the file, or is not there yet, may be whole in memory.
    #[cold]
    fn copy_from_memory(&self, id: PageId, page: &mut [u8; PAGE_BYTES]) -> Result<()> {
        let mut copy = self.shared(id)?.words().snapshot();
        let lsn = layout::lsn_of(&copy.0);
        if lsn > Lsn::ZERO && !self.log.is_durable(lsn) {
            self.log.flush(lsn)?;
        }
        self.seal.set(&mut copy.0);
        page.copy_from_slice(&copy.0);
        Ok(())
    }
}
