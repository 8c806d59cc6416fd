//! Places of the data file that have no space on the disk: a crash leaves them where the file had grown, and whoever
//! copies a file where nothing was written.

use foreshore_base::{Result, StorageError, is_disk_full, limits::PAGE_BYTES};
use foreshore_env::sync::atomic::Ordering;

use super::{EXTENT_PAGES, Space, reserve, reserve::Run};
use crate::pool::BufferPool;

impl BufferPool {
    /// Takes the space of the data file again, as far as the disk has it: growth is made durable by checkpoints only,
    /// and a crash before may leave the file its length and holes in it. Before recovery writes. Where the disk is
    /// full, free pages are taken with their space (PAGE-21).
    pub fn fill_holes(&self) -> Result<()> {
        match reserve(self, &mut self.space.growing.lock(), self.page_count()) {
            Err(StorageError::Io { source, .. }) if is_disk_full(&source) => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

impl Space {
    /// Sees to it that the disk has space for a run (PAGE-21).
    pub(super) fn take_space(&self, pool: &BufferPool, run: Run) -> Result<()> {
        if self.has_no_holes.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Nobody closes the pool meanwhile (PAGE-13).
        let _growing = self.growing.lock();
        pool.check_open()?;
        let offset = |page: u64| page * PAGE_BYTES as u64;
        run.extents().try_for_each(|extent| {
            pool.file
                .allocate(offset(extent)..offset(extent + EXTENT_PAGES))
                .map_err(StorageError::io("reserve free pages of", &pool.path))
        })
    }
}
