//! Opening: where the log ends, and whether what lies there is a torn tail or damage.
//!
//! A crash leaves everything below the durable position as it was written, and of what was written after that any
//! sectors, in the one segment that had un-synced writes (WAL-5). So the first place where no sound record stands may
//! be followed by sound records: that is a torn tail, and the log ends at the first gap. But the same picture arises
//! when a durable record rots, and then the log must not be cut, because committed work would be lost in silence.
//!
//! What decides is proof that the gap was durable once (WAL-7):
//! - a segment after the gap's own: it is made only when the one before it is durable to its end;
//! - a mark after the gap, a sound record that says that everything below some LSN was durable when it was made, if
//!   that LSN lies beyond the gap;
//! - a note in the gap's own segment that another one follows (WAL-14).
//!
//! A log that ends where a segment ends, and not one byte later, is damaged as well if that segment has the note: what
//! follows it is gone.
//!
//! With proof the log is damaged. Without, the gap is the end. What follows it in its segment is then overwritten, so
//! that no later append can make it part of the log again (WAL-4).
//!
//! Damage inside the last batch cannot be told from a torn tail if the crash came within a flush interval of it; a log
//! that was quiet for longer, or closed, ends with a mark for all of it.

mod damaged;

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
};

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode, is_out_of_files},
    sync::Arc,
};

use crate::{
    frame::{HEADER_BYTES, RecordKind, Seal, padded, word_at},
    segment::{self, Geometry, HEADER_USED_BYTES},
    store::{self, Listing, Segment, Spare, Store},
};

pub(crate) use damaged::open as open_damaged;

/// What overwrites a torn tail. No zero, so that it is known again.
const CUT: u8 = 0xC5;

/// A log as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) store: Store,
    pub(crate) geometry: Geometry,
    /// The segment in which the log ends.
    pub(crate) last: Segment,
    /// Where the last record ends.
    pub(crate) end: u64,
    /// The last record is a mark for all before it.
    pub(crate) sealed: bool,
}

/// Finds the end of the log, reading from `from` on, and makes it fit for appending.
pub(crate) fn open(disk: Arc<dyn Disk>, directory: &Path, log_id: u64, from: Lsn) -> Result<Found> {
    let Listing { segments, spares } = store::list(&*disk, directory)?;
    let first = segments.iter().rposition(|&(base, _)| base <= from.0);
    let Some(first) = first else {
        // Any segment tells how the log is cut; without one the directory is what is damaged.
        let geometry = segments.first().map(|(base, path)| read_geometry(&*disk, path, log_id, *base));
        return Err(match geometry {
            Some(geometry) => gone(directory, geometry?.base(from.0)),
            None => none_there(directory),
        });
    };
    let geometry = read_geometry(&*disk, &segments[first].1, log_id, segments[first].0)?;
    if geometry.base(from.0) != segments[first].0 {
        return Err(gone(directory, geometry.base(from.0)));
    }
    if !geometry.is_start(geometry.next_start(from.0)) || !(from.0.is_multiple_of(8)) {
        return Err(StorageError::corrupt_log(from, "no record can start there"));
    }
    let mut scan = Scan::new(log_id, geometry, from);
    let Walked { live, unnoted } = scan.walk(&*disk, directory, &segments[first..])?;
    // Whoever gave the last one its name may have died before that was durable.
    disk.sync_directory(directory).map_err(StorageError::io("sync", directory))?;
    unnoted.iter().try_for_each(|segment| segment.note_successor(log_id))?;
    let last = live[live.len() - 1].clone();
    let (end, sealed) = (scan.position, scan.sealed);
    let mut cleared = Vec::new();
    for (number, spare) in whole_spares(&*disk, spares, geometry)? {
        if scan.clear_coming(&spare, last.base)? {
            cleared.push((number, spare));
        } else {
            let Spare { file, path } = spare;
            drop(file);
            disk.remove(&path).map_err(StorageError::io("remove", &path))?;
        }
    }
    let unneeded = segments[..first]
        .iter()
        .map(|(_, path)| Spare::open(&*disk, path.clone()).map_err(StorageError::io("open", path)));
    let unneeded = unneeded.collect::<Result<Vec<_>>>()?;
    let store = Store::new(disk, directory, log_id, geometry, live, cleared)?;
    store.recycle(unneeded)?;
    Ok(Found { store, geometry, last, end, sealed })
}

/// The segments of the log from the place on where it is read.
struct Walked {
    /// All of them, the oldest first.
    live: VecDeque<Segment>,
    /// Those that another one follows and that have no note of it (WAL-14), or the newest, which may be nowhere but in
    /// the system's cache. Whoever made their successors died before it could say so, or its version did not.
    unnoted: Vec<Segment>,
}

/// Removes spares that were being made when the power failed, or the disk was full: they have no space of their own. So
/// goes what is no file and has the name of one, a link for example, and a file that others can reach, by its
/// permissions or by another name: it would become a segment. Nothing is lost with them.
fn whole_spares(
    disk: &dyn Disk,
    spares: Vec<(u64, PathBuf)>,
    geometry: Geometry,
) -> Result<Vec<(u64, Spare)>> {
    let is_whole = |file: &dyn DiskFile| -> io::Result<bool> {
        Ok(file.len()? >= geometry.segment_bytes() && file.is_private()?)
    };
    let mut whole = Vec::new();
    for (number, path) in spares {
        let spare = Spare::open(disk, path.clone());
        match spare.and_then(|spare| Ok(is_whole(&*spare.file)?.then_some(spare))) {
            Ok(Some(spare)) => whole.push((number, spare)),
            // It is whole, perhaps: the space in it is promised (WAL-13).
            Err(error) if is_out_of_files(&error) => return Err(StorageError::io("open", &path)(error)),
            Ok(None) | Err(_) => {
                disk.remove(&path).map_err(StorageError::io("remove", &path))?;
            }
        }
    }
    Ok(whole)
}

/// What whoever has lost a part of the log can do.
const REMEDY: &str =
    "; put the file back, open a backup, or save with `foreshore salvage` what does not depend on it";

/// There is no segment at all, and nothing tells how they were called.
fn none_there(directory: &Path) -> StorageError {
    let detail = "none of its segments is there, and what was committed since the last checkpoint may be missing with them; put \
                  them back (files called 16 hexadecimal digits and `.log`), open a backup, or save with `foreshore salvage` what the \
                  data file has";
    StorageError::corrupt_file(directory, detail)
}

/// The segment that begins at `base` was there once, and is not.
fn gone(directory: &Path, base: u64) -> StorageError {
    let path = directory.join(segment::file_name(base));
    StorageError::corrupt_file(path, format!("it is missing, and with it committed transactions{REMEDY}"))
}

fn read_geometry(disk: &dyn Disk, path: &Path, log_id: u64, base: u64) -> Result<Geometry> {
    let file = disk.open(path, OpenMode::Read).map_err(StorageError::io("open", path))?;
    let bytes = file.len().map_err(StorageError::io("measure", path))?;
    let mut header = [0; HEADER_USED_BYTES];
    if bytes < header.len() as u64 {
        return Err(StorageError::corrupt_file(path, "the segment is shorter than its header"));
    }
    file.read_exact_at(&mut header, 0).map_err(StorageError::io("read the header of", path))?;
    let geometry = segment::decode_header(&header, path, log_id, base)?;
    if bytes < geometry.segment_bytes() {
        return Err(StorageError::corrupt_file(path, "the segment is cut short"));
    }
    Ok(geometry)
}

/// The walk along the log.
struct Scan {
    log_id: u64,
    seal: Seal,
    geometry: Geometry,
    /// Where the last record ended.
    position: u64,
    /// Everything below is known to be durable.
    proven: u64,
    /// The last record is a mark for all before it.
    sealed: bool,
    /// The segment that is looked at.
    bytes: Vec<u8>,
}

impl Scan {
    fn new(log_id: u64, geometry: Geometry, from: Lsn) -> Scan {
        Scan {
            log_id,
            seal: Seal::new(log_id),
            geometry,
            position: from.0,
            proven: from.0,
            sealed: false,
            bytes: Vec::new(),
        }
    }

    /// Goes along the segments to the end of the log, and makes the last of them fit for appending.
    fn walk(&mut self, disk: &dyn Disk, directory: &Path, segments: &[(u64, PathBuf)]) -> Result<Walked> {
        let mut walked = Walked { live: VecDeque::new(), unnoted: Vec::new() };
        let mut rest = segments.iter().peekable();
        while let Some((base, path)) = rest.next() {
            let segment = self.open(disk, *base, path)?;
            walked.live.push_back(segment.clone());
            self.load(&segment)?;
            let complete = self.run(segment.base);
            let followed = segment::has_note(&self.bytes, self.log_id, segment.base);
            if complete {
                match rest.peek() {
                    Some((next, _)) if *next == self.position => {
                        // The newest note may be in the system's cache alone, if its sync failed.
                        if !followed || rest.len() == 1 {
                            walked.unnoted.push(segment);
                        }
                        continue;
                    }
                    None if !followed => {}
                    _ => return Err(gone(directory, self.position)),
                }
            } else {
                self.check_for_damage(segment.base, rest.peek().map(|(base, _)| *base), followed)?;
            }
            self.write_again(&segment)?;
            self.cut(&segment)?;
            segment.file.sync().map_err(StorageError::io("sync", path))?;
            return Ok(walked);
        }
        Err(gone(directory, self.position))
    }

    /// Opens a segment, which must be as large as the others.
    fn open(&self, disk: &dyn Disk, base: u64, path: &Path) -> Result<Segment> {
        if read_geometry(disk, path, self.log_id, base)?.segment_bytes() != self.geometry.segment_bytes() {
            return Err(StorageError::corrupt_file(path, "its segment size is not that of the log"));
        }
        let file = disk.open(path, OpenMode::ReadWrite).map_err(StorageError::io("open", path))?;
        Ok(Segment { base, file, path: path.to_owned() })
    }

    /// Reads a segment.
    fn load(&mut self, segment: &Segment) -> Result<()> {
        let bytes = self.geometry.segment_bytes() as usize;
        self.bytes.clear();
        if self.bytes.try_reserve_exact(bytes).is_err() {
            let what = "memory for a segment of the log in bytes";
            return Err(StorageError::beyond_limit(what, 0, bytes as u64));
        }
        self.bytes.resize(bytes, 0);
        segment.file.read_exact_at(&mut self.bytes, 0).map_err(StorageError::io("read", &segment.path))
    }

    /// Goes on along the sound records of the loaded segment. True when they lead to its end.
    fn run(&mut self, base: u64) -> bool {
        let end = base + self.geometry.segment_bytes();
        loop {
            let start = self.geometry.next_start(self.position);
            if start >= end {
                self.position = end;
                return true;
            }
            let bytes = &self.bytes[(start - base) as usize..];
            let Some((header, length)) = self.seal.parse(bytes, Lsn(start)) else { return false };
            if header.kind == RecordKind::SEGMENT_END {
                self.position = end;
                return true;
            }
            let mark = self.seal.parse_mark(bytes, Lsn(start));
            self.sealed = mark == Some(Lsn(start));
            self.proven = mark.map_or(self.proven, |durable| self.proven.max(durable.0.min(start)));
            self.position = start + padded(length);
        }
    }

    /// Whether there is proof that the record that is missing at the position was durable once.
    fn check_for_damage(&self, base: u64, later_segment: Option<u64>, followed: bool) -> Result<()> {
        let gap = Lsn(self.geometry.next_start(self.position));
        if let Some(later) = later_segment {
            let detail =
                format!("no sound record starts there, but the log goes on with a segment at {later}");
            return Err(StorageError::corrupt_log(gap, detail));
        }
        if followed {
            let detail = "no sound record starts there, but another segment followed this one";
            return Err(StorageError::corrupt_log(gap, detail));
        }
        let mut start = gap.0 + 8;
        while let Some(found) = self.next_candidate(base, start) {
            let bytes = &self.bytes[(found - base) as usize..];
            start = match self.seal.parse(bytes, Lsn(found)) {
                // What a sound record carries is not looked into: it may be anything.
                Some((_, length)) => found + padded(length),
                None => found + 8,
            };
            if let Some(durable) = self.seal.parse_mark(bytes, Lsn(found))
                && durable > gap
            {
                let detail =
                    format!("no sound record starts there, but everything below {durable} was durable");
                return Err(StorageError::corrupt_log(gap, detail));
            }
        }
        Ok(())
    }

    /// The next place from `start` on where a record says that it belongs there.
    fn next_candidate(&self, base: u64, start: u64) -> Option<u64> {
        let end = base + self.geometry.segment_bytes() - HEADER_BYTES as u64;
        (start..=end).step_by(8).find(|&at| word_at(&self.bytes, (at - base) as usize + 8) == at)
    }

    /// Writes what is not known to be durable once more, for the sync that follows. What was read may be in the cache
    /// alone: the process died before its sync, or the sync failed, and then the kernel takes the cache for clean and a
    /// sync by itself does nothing.
    fn write_again(&self, segment: &Segment) -> Result<()> {
        let from = self.proven.max(self.geometry.next_start(segment.base));
        if from >= self.position {
            return Ok(());
        }
        let bytes = &self.bytes[(from - segment.base) as usize..(self.position - segment.base) as usize];
        segment
            .file
            .write_all_at(bytes, from - segment.base)
            .map_err(StorageError::io("write once more the tail of", &segment.path))
    }

    /// Overwrites the records of a spare that was about to follow the segment at `last` when the log was left. They are
    /// whole, and say that they belong where others will be. False: they cannot be read; the spare must go.
    fn clear_coming(&mut self, Spare { file, path }: &Spare, last: u64) -> Result<bool> {
        let mut header = [0; HEADER_USED_BYTES];
        if file.read_exact_at(&mut header, 0).is_err() {
            return Ok(false);
        }
        let Some(base) = segment::base_in_header(&header, self.log_id).filter(|base| *base >= last) else {
            return Ok(true);
        };
        let segment = Segment { base, file: Arc::clone(file), path: path.clone() };
        match self.load(&segment) {
            Err(StorageError::Io { .. }) => return Ok(false),
            loaded => loaded?,
        }
        self.position = base;
        self.cut(&segment)?;
        segment.file.sync().map_err(StorageError::io("sync", path)).map(|()| true)
    }

    /// Overwrites what follows the end, so that nothing of it ever passes for a record. What an earlier opening
    /// overwrote is overwritten again: it too may be in the cache alone.
    fn cut(&self, segment: &Segment) -> Result<()> {
        let gap = self.geometry.next_start(self.position);
        let Some(rest) = self.bytes.get((gap - segment.base) as usize..) else { return Ok(()) };
        let mut end = gap + rest.iter().take_while(|&&byte| byte == CUT).count() as u64;
        while let Some(found) = self.next_candidate(segment.base, end.next_multiple_of(8)) {
            end = found + HEADER_BYTES as u64;
        }
        if end == gap {
            return Ok(());
        }
        let cut = vec![CUT; (end - gap) as usize];
        segment
            .file
            .write_all_at(&cut, gap - segment.base)
            .map_err(StorageError::io("cut the torn tail of", &segment.path))
    }
}
