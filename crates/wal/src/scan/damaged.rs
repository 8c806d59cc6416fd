//! Opening a log as far as it can be read, whatever is wrong with it: for salvage, on a disk that keeps nothing.
//!
//! Records tell by themselves that they are sound and where they belong, so a header is believed where it is sound and
//! missed where it is not. The log ends at the first place where no record stands; whether that is a torn tail or
//! damage is said, and makes no other difference. Nothing is written: not the torn tail, nor what a sync may have lost.

use std::{collections::VecDeque, path::Path};

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::{
    disk::{Disk, OpenMode},
    sync::Arc,
};

use super::{Found, Scan, gone, none_there, read_geometry};
use crate::{
    segment::{self, Geometry, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES},
    store::{self, Listing, Segment, Spare, Store, as_damage, sound},
};

/// Bytes that are lost together where a disk does not give them back.
const SECTOR_BYTES: usize = 512;

/// The log from the segment of `from` on up to its end, or up to where it cannot be read; then why.
///
/// # Errors
/// Without that first segment, and where this process gets no more files.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    directory: &Path,
    log_id: u64,
    from: Lsn,
) -> Result<(Found, Option<StorageError>)> {
    let Listing { segments, spares } = store::list(&*disk, directory)?;
    // As a header says how the log is cut, or else the length of a file.
    let geometry = segments
        .iter()
        .find_map(|(base, path)| sound(read_geometry(&*disk, path, log_id, *base)).transpose())
        .or_else(|| segments.iter().find_map(|(base, path)| by_length(&*disk, path, *base).transpose()))
        .transpose()?
        .ok_or_else(|| none_there(directory))?;
    if !segments.iter().any(|(base, _)| *base == geometry.base(from.0)) {
        return Err(gone(directory, geometry.base(from.0)));
    }
    let mut scan = Scan::new(log_id, geometry, from);
    let mut live: VecDeque<Segment> = VecDeque::new();
    let mut base = geometry.base(from.0);
    let damage = loop {
        let path = directory.join(segment::file_name(base));
        let is_last = !segments.iter().any(|(other, _)| *other == base + geometry.segment_bytes());
        let file = sound(disk.open(&path, OpenMode::ReadWrite).map_err(StorageError::io("open", &path)))?;
        let Some(file) = file else { break Some(gone(directory, base)) };
        let segment = Segment { base, file, path };
        let unread = scan.load_what_can_be_read(&segment)?;
        let header = read_geometry(&*disk, &segment.path, log_id, base).err();
        let header = header.map(as_damage).transpose()?;
        live.push_back(segment);
        let complete = scan.run(base);
        let followed = segment::has_note(&scan.bytes, log_id, base);
        if complete && is_last && !followed {
            break None;
        }
        if !complete {
            let later = (!is_last).then(|| base + geometry.segment_bytes());
            break scan.check_for_damage(base, later, followed).err().or(unread).or(header);
        }
        base += geometry.segment_bytes();
    };
    let Some(last) = live.back().cloned() else {
        return Err(damage.unwrap_or_else(|| gone(directory, base)));
    };
    let open = |(number, path)| Some((number, Spare::open(&*disk, path).ok()?));
    let spares = spares.into_iter().filter_map(open).collect();
    let store = Store::new(disk, directory, log_id, geometry, live, spares)?;
    // Nobody appends, and no mark shall be put under it.
    Ok((Found { store, geometry, last, end: scan.position, sealed: true }, damage))
}

/// How a log is cut of which no header is sound: each of its files has one length.
fn by_length(disk: &dyn Disk, path: &Path, base: u64) -> Result<Option<Geometry>> {
    let bytes = disk.open(path, OpenMode::Read).and_then(|file| file.len());
    let bytes = sound(bytes.map_err(StorageError::io("measure", path)))?;
    let possible = |bytes: &u64| {
        bytes.is_power_of_two()
            && (MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(bytes)
            && base.is_multiple_of(*bytes)
    };
    Ok(bytes.filter(possible).map(Geometry::new))
}

impl Scan {
    /// As [`Scan::load`]; zeros stand for what is not there or cannot be read. Gives the first error.
    fn load_what_can_be_read(&mut self, segment: &Segment) -> Result<Option<StorageError>> {
        match self.load(segment) {
            Err(StorageError::Io { .. }) => {}
            result => return result.map(|()| None),
        }
        let mut first = None;
        for (sector, place) in self.bytes.chunks_mut(SECTOR_BYTES).zip((0..).step_by(SECTOR_BYTES)) {
            if let Err(error) = segment.file.read_exact_at(sector, place) {
                sector.fill(0);
                first.get_or_insert(error);
            }
        }
        Ok(first.map(|error| StorageError::io("read", &segment.path)(error)))
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use foreshore_testkit::FaultyDisk;

    use super::*;

    #[test]
    fn a_length_that_no_segment_has_is_believed_of_none() {
        let disk = FaultyDisk::new();
        let path = Path::new("/segment");
        let least = MIN_SEGMENT_BYTES;
        for (bytes, base, possible) in [
            (least, 0, true),
            (least, 3 * least, true),
            (2 * least, 6 * least, true),
            (2 * least, 3 * least, false),
            (least / 2, 0, false),
            (3 * least, 0, false),
            (3 * least, 2 * least, false),
            (least + 1, 0, false),
            (0, 0, false),
        ] {
            disk.write_file(path, &vec![0; bytes as usize]).unwrap();
            let found = by_length(&disk, path, base).unwrap();
            let found = found.map(|geometry| geometry.segment_bytes());
            assert_eq!(found, possible.then_some(bytes), "{bytes} bytes from {base}");
        }
        assert!(by_length(&disk, Path::new("/absent"), 0).unwrap().is_none());
    }
}
