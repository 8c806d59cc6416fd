//! Copying the log while it is in use, for a backup.
//!
//! Each record is checked on its way: what has rotted is found while the original may still be repaired. The copy ends
//! with a mark for all of it (WAL-7), so that damage to its last batch is known for damage, too, and not taken for a
//! torn tail. Where the last segment has no room for that, it is alone in the next one.

use std::path::Path;

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::disk::{Disk, OpenMode};

use crate::{
    core::Core,
    frame::{MARK_BYTES, MAX_RECORD_BYTES, RecordKind, padded},
    log::Log,
    segment::{self, HEADER_USED_BYTES, NOTE_OFFSET, Place, SEGMENT_HEADER_BYTES, no_record, unsound},
};

/// Bytes copied at once.
const CHUNK_BYTES: u64 = 256 << 10;
// A whole record at least.
const _: () = assert!(CHUNK_BYTES >= MAX_RECORD_BYTES as u64);

impl Log {
    /// Copies what is durable of the log now, from the segment that holds `from` on, into an empty directory, durably;
    /// gives the end of the copy. [`Log::open`] finds there what a crash at this moment would have left.
    ///
    /// Nobody waits for it. `copied` is told of every piece, in bytes; an error of its ends the copy. Whoever calls it
    /// sees to it that nothing from `from` on is released meanwhile.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if a part of the log has been released, or a record from `from` on is not sound.
    pub fn copy_to(
        &self,
        from: Lsn,
        disk: &dyn Disk,
        directory: &Path,
        copied: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Lsn> {
        let core = self.core();
        let end = core.durable();
        let mark = core.geometry.place(end, MARK_BYTES as u64);
        let copy = Copy { core, from: from.0, end, mark };
        let mut base = core.geometry.base(from.0);
        while base <= mark.start {
            copy.segment(base, disk, directory, copied)?;
            base += core.geometry.segment_bytes();
        }
        disk.sync_directory(directory).map_err(StorageError::io("sync", directory))?;
        Ok(Lsn(end))
    }
}

/// What a copy has of the log.
struct Copy<'c> {
    core: &'c Core,
    /// What lies before it nobody needs.
    from: u64,
    end: u64,
    /// Where the mark for all of it goes.
    mark: Place,
}

impl Copy<'_> {
    /// Copies the segment that begins at `base`, durably.
    fn segment(
        &self,
        base: u64,
        disk: &dyn Disk,
        directory: &Path,
        copied: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let Copy { core, mark, .. } = self;
        let (geometry, log_id) = (core.geometry, core.store.log_id());
        let path = directory.join(segment::file_name(base));
        let failed = |action: &'static str| StorageError::io(action, &path);
        let file = disk.open(&path, OpenMode::CreateNew).map_err(failed("create"))?;
        file.allocate(0..geometry.segment_bytes()).map_err(failed("reserve space for"))?;
        let write = |bytes: &[u8], position: u64| file.write_all_at(bytes, position - base);
        let header: [u8; HEADER_USED_BYTES] = segment::encode_header(log_id, base, geometry);
        write(&header, base).map_err(failed("write the header of"))?;
        if base + geometry.segment_bytes() <= mark.start {
            let note = segment::encode_note(log_id, base);
            write(&note, base + NOTE_OFFSET).map_err(failed("write the header of"))?;
        }
        self.records(base, |sound, position| write(sound, position).map_err(failed("write")), copied)?;
        if let Some(at) = mark.segment_end.filter(|at| geometry.base(*at) == base) {
            write(&core.seal.encode_segment_end(Lsn(at)), at).map_err(failed("write"))?;
        }
        if geometry.base(mark.start) == base {
            let at = Lsn(mark.start);
            write(&core.seal.encode_mark(at, at), mark.start).map_err(failed("write"))?;
        }
        file.sync().map_err(failed("sync"))
    }

    /// Reads the records of the segment that begins at `base`, and gives them to `write` with their positions.
    fn records(
        &self,
        base: u64,
        write: impl Fn(&[u8], u64) -> Result<()>,
        copied: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let Copy { core, from, end, .. } = *self;
        let last = end.min(base + core.geometry.segment_bytes());
        let mut buffer = Vec::new();
        let mut position = base + SEGMENT_HEADER_BYTES;
        while position < last {
            let count = CHUNK_BYTES.min(last - position);
            buffer.resize(count as usize, 0);
            let lost = || no_record(Lsn(base), Lsn(core.low_water()), Lsn(end));
            let source = core.store.segment(base).ok_or_else(lost)?;
            source
                .file
                .read_exact_at(&mut buffer, position - base)
                .map_err(StorageError::io("read", &source.path))?;
            let Run { bytes, ends_segment } = match from.saturating_sub(position) {
                0 => sound_run(core, &buffer, position)?,
                before => Run { bytes: count.min(before), ends_segment: false },
            };
            write(&buffer[..bytes as usize], position)?;
            // The rest of a segment that has ended is void.
            let step = if ends_segment { last - position } else { bytes };
            position += step;
            copied(step)?;
        }
        Ok(())
    }
}

/// Sound records, one behind the other.
struct Run {
    bytes: u64,
    /// The last of them ends its segment.
    ends_segment: bool,
}

/// The records that `bytes`, which were read at `position`, hold whole.
fn sound_run(core: &Core, bytes: &[u8], position: u64) -> Result<Run> {
    let mut done = 0;
    loop {
        let start = core.geometry.next_start(position + done);
        if start != position + done {
            // What is left of the segment takes no record.
            return Ok(Run { bytes: bytes.len() as u64, ends_segment: true });
        }
        match core.seal.parse(&bytes[done as usize..], Lsn(start)) {
            Some((header, length)) => {
                done += padded(length);
                if header.kind == RecordKind::SEGMENT_END {
                    return Ok(Run { bytes: done, ends_segment: true });
                }
            }
            None if done > 0 => return Ok(Run { bytes: done, ends_segment: false }),
            None => return Err(unsound(Lsn(start))),
        }
        if done == bytes.len() as u64 {
            return Ok(Run { bytes: done, ends_segment: false });
        }
    }
}
