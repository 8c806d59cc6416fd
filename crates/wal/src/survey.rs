//! What the segments of a log say by themselves, where nobody knows the log's id: for salvage, and for whoever asks
//! before the log is opened.

use std::path::Path;

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::disk::{Disk, OpenMode};

use crate::{
    frame::word_at,
    segment::{self, Geometry, HEADER_USED_BYTES},
    store::{self, sound},
};

/// The id of the log in a directory, by the header of its newest segment that has a sound one, and where the run of
/// segments begins that leads up to it.
pub(crate) fn survey(disk: &dyn Disk, directory: &Path) -> Result<Option<(u64, Lsn)>> {
    let mut found: Option<(u64, u64)> = None;
    for (base, path) in store::list(disk, directory)?.segments.into_iter().rev() {
        let Some((id, geometry)) = sound_header(disk, &path, base)? else { continue };
        match found {
            None => found = Some((id, base)),
            Some((newest, next)) if newest == id && base + geometry.segment_bytes() == next => {
                found = Some((id, base));
            }
            Some(_) => break,
        }
    }
    Ok(found.map(|(id, base)| (id, Lsn(base))))
}

/// How large the segments of the log in a directory are, by the newest that has a sound header; `None` if none has.
pub(crate) fn segment_bytes(disk: &dyn Disk, directory: &Path) -> Result<Option<u64>> {
    let mut segments = store::list(disk, directory)?.segments.into_iter().rev();
    let newest = segments.find_map(|(base, path)| sound_header(disk, &path, base).transpose());
    Ok(newest.transpose()?.map(|(_, geometry)| geometry.segment_bytes()))
}

/// The id and the size in the header of a segment, if that can be read and is sound.
fn sound_header(disk: &dyn Disk, path: &Path, base: u64) -> Result<Option<(u64, Geometry)>> {
    let mut header = [0; HEADER_USED_BYTES];
    let read = disk.open(path, OpenMode::Read).and_then(|file| file.read_exact_at(&mut header, 0));
    if sound(read.map_err(StorageError::io("read the header of", path)))?.is_none() {
        return Ok(None);
    }
    // The header's own id: what is asked is whether the rest of it is sound.
    let id = word_at(&header, 16);
    Ok(segment::decode_header(&header, path, id, base).ok().map(|geometry| (id, geometry)))
}
