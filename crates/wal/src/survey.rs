//! What the segments of a log say by themselves, where nobody knows the log's id: for salvage.

use std::path::Path;

use foreshore_base::{Lsn, Result};
use foreshore_env::disk::{Disk, OpenMode};

use crate::{
    frame::word_at,
    segment::{self, HEADER_USED_BYTES},
    store,
};

/// The id of the log in a directory, by the header of its newest segment that has a sound one, and where the run of
/// segments begins that leads up to it.
pub(crate) fn survey(disk: &dyn Disk, directory: &Path) -> Result<Option<(u64, Lsn)>> {
    let mut found: Option<(u64, u64)> = None;
    for (base, path) in store::list(disk, directory)?.segments.into_iter().rev() {
        let mut header = [0; HEADER_USED_BYTES];
        let Ok(file) = disk.open(&path, OpenMode::Read) else { continue };
        if file.read_exact_at(&mut header, 0).is_err() {
            continue;
        }
        // The header's own id: what is asked is whether the rest of it is sound.
        let id = word_at(&header, 16);
        let Ok(geometry) = segment::decode_header(&header, &path, id, base) else { continue };
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
