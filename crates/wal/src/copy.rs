//! Copying the log while it is in use, for a backup.

use std::path::Path;

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::disk::{Disk, OpenMode};

use crate::{
    log::Log,
    segment::{self, HEADER_USED_BYTES, NOTE_OFFSET, SEGMENT_HEADER_BYTES, no_record},
};

/// Bytes copied at once.
const CHUNK_BYTES: u64 = 256 << 10;

impl Log {
    /// Copies what is durable of the log now, from the segment that holds `from` on, into an empty directory, durably;
    /// gives the end of the copy. [`Log::open`] finds there what a crash at this moment would have left.
    ///
    /// Nobody waits for it. `copied` is told of every piece, in bytes; an error of its ends the copy. Whoever calls it sees
    /// to it that nothing from `from` on is released meanwhile.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if a part of the log has been released.
    pub fn copy_to(
        &self,
        from: Lsn,
        disk: &dyn Disk,
        directory: &Path,
        copied: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Lsn> {
        let core = self.core();
        let geometry = core.geometry;
        let end = core.durable();
        let mut buffer = Vec::new();
        let mut base = geometry.base(from.0);
        // Where the end is the end of a segment, the next one may not have been made.
        while base < end || base == geometry.base(from.0) {
            let lost = || no_record(Lsn(base), self.low_water(), Lsn(end));
            let source = core.store.segment(base).ok_or_else(lost)?;
            let path = directory.join(segment::file_name(base));
            let failed = |action: &'static str| StorageError::io(action, &path);
            let file = disk.open(&path, OpenMode::CreateNew).map_err(failed("create"))?;
            file.allocate(0..geometry.segment_bytes()).map_err(failed("reserve space for"))?;
            let header: [u8; HEADER_USED_BYTES] = segment::encode_header(core.store.log_id(), base, geometry);
            file.write_all_at(&header, 0).map_err(failed("write the header of"))?;
            if base + geometry.segment_bytes() < end {
                file.write_all_at(&segment::encode_note(core.store.log_id(), base), NOTE_OFFSET)
                    .map_err(failed("write the header of"))?;
            }
            let last = end.min(base + geometry.segment_bytes());
            let mut position = base + SEGMENT_HEADER_BYTES;
            while position < last {
                let count = CHUNK_BYTES.min(last - position);
                buffer.resize(count as usize, 0);
                source
                    .file
                    .read_exact_at(&mut buffer, position - base)
                    .map_err(StorageError::io("read", &source.path))?;
                file.write_all_at(&buffer, position - base).map_err(failed("write"))?;
                position += count;
                copied(count)?;
            }
            file.sync().map_err(failed("sync"))?;
            base += geometry.segment_bytes();
        }
        disk.sync_directory(directory).map_err(StorageError::io("sync", directory))?;
        Ok(Lsn(end))
    }
}
