//! The segment files: which there are, making the next, recycling the old.
//!
//! A segment that is no longer needed is renamed to a spare; a spare becomes the next segment by getting a fresh
//! header and, when that is durable, its new name. So a file with the name of a segment has had a durable header
//! before it had the name (WAL-5), and nothing is written to a spare before its old name is durably gone (WAL-6).

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode},
    sabotage::{Fault, planted},
    sync::{Arc, Mutex},
};

use crate::{
    options::LogOptions,
    segment::{self, Geometry},
};

/// Begins the name of a spare.
const SPARE_PREFIX: &str = "spare-";

/// An open segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: PathBuf,
}

/// The segment files of one log.
#[derive(Debug)]
pub(crate) struct Store {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    log_id: u64,
    geometry: Geometry,
    files: Mutex<Files>,
}

/// Guarded by the mutex of [`Store::files`].
#[derive(Debug, Default)]
struct Files {
    /// The segments of the log in order, without gap. The last one is being written.
    live: VecDeque<Segment>,
    /// Files whose content nobody needs.
    spares: Vec<PathBuf>,
    /// The number in the name of the next spare.
    next_spare: u64,
}

/// What lies in the directory of a log.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Base and path, ascending.
    pub(crate) segments: Vec<(u64, PathBuf)>,
    /// Spares, with the numbers in their names.
    pub(crate) spares: Vec<(u64, PathBuf)>,
}

/// Looks into the directory of a log. Files with other names are nobody's business.
pub(crate) fn list(disk: &dyn Disk, directory: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    for path in disk.list(directory).map_err(StorageError::io("list", directory))? {
        if let Some(base) = segment::base_in_name(&path) {
            listing.segments.push((base, path));
        } else if let Some(number) = spare_number(&path) {
            listing.spares.push((number, path));
        }
    }
    listing.segments.sort();
    listing.spares.sort();
    Ok(listing)
}

fn spare_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(SPARE_PREFIX)?.parse().ok()
}

impl Store {
    /// A store of these segments and spares.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        geometry: Geometry,
        live: VecDeque<Segment>,
        spares: Vec<(u64, PathBuf)>,
    ) -> Store {
        let next_spare = spares.iter().map(|(number, _)| number.saturating_add(1)).max().unwrap_or(0);
        let spares = spares.into_iter().map(|(_, path)| path).collect();
        let files = Mutex::new(Files { live, spares, next_spare });
        Store { disk, directory: directory.to_owned(), log_id, geometry, files }
    }

    pub(crate) fn log_id(&self) -> u64 {
        self.log_id
    }

    /// The segment that begins at `base`, if it is part of the log.
    pub(crate) fn segment(&self, base: u64) -> Option<Segment> {
        let files = self.files.lock();
        let first = files.live.front()?.base;
        let index = base.checked_sub(first)? / self.geometry.segment_bytes();
        files.live.get(usize::try_from(index).ok()?).cloned()
    }

    /// Makes the next segment. The one before it is durable to its end (WAL-5).
    pub(crate) fn make(&self, base: u64) -> Result<Segment> {
        let recycled = self.files.lock().spares.pop();
        let (spare, mode) = match recycled {
            Some(path) => (path, OpenMode::ReadWrite),
            None => (self.spare_path(), OpenMode::CreateNew),
        };
        let file = self.disk.open(&spare, mode).map_err(StorageError::io("open", &spare))?;
        let failed = |action: &'static str| StorageError::io(action, &spare);
        let bytes = self.geometry.segment_bytes();
        if file.len().map_err(failed("measure"))? < bytes {
            file.allocate(bytes).map_err(failed("reserve space for"))?;
        }
        let header = segment::encode_header(self.log_id, base, self.geometry);
        file.write_all_at(&header, 0).map_err(failed("write the header of"))?;
        file.sync().map_err(failed("sync"))?;
        let path = self.directory.join(segment::file_name(base));
        self.disk.rename(&spare, &path).map_err(failed("rename"))?;
        if !planted(Fault::SegmentNameUnsynced) {
            self.sync_directory()?;
        }
        let segment = Segment { base, file, path };
        self.files.lock().live.push_back(segment.clone());
        Ok(segment)
    }

    /// Takes the segments out of the log that end at or before `position`, all but the last one.
    pub(crate) fn release_before(&self, position: u64) -> Result<()> {
        let mut released = Vec::new();
        {
            let mut files = self.files.lock();
            while files.live.len() > 1 && files.live[1].base <= position {
                released.extend(files.live.pop_front().map(|segment| segment.path));
            }
        }
        self.recycle(released)
    }

    /// Turns files that nobody needs into spares, as many as are kept, and removes the others.
    pub(crate) fn recycle(&self, paths: Vec<PathBuf>) -> Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        let room = LogOptions::SPARE_SEGMENTS.saturating_sub(self.files.lock().spares.len());
        let mut spares = Vec::new();
        for path in paths {
            if spares.len() < room {
                let spare = self.spare_path();
                self.disk.rename(&path, &spare).map_err(StorageError::io("rename", &path))?;
                spares.push(spare);
            } else {
                self.disk.remove(&path).map_err(StorageError::io("remove", &path))?;
            }
        }
        self.sync_directory()?;
        self.files.lock().spares.append(&mut spares);
        Ok(())
    }

    fn spare_path(&self) -> PathBuf {
        let mut files = self.files.lock();
        let number = files.next_spare;
        files.next_spare = number.saturating_add(1);
        self.directory.join(format!("{SPARE_PREFIX}{number}"))
    }

    fn sync_directory(&self) -> Result<()> {
        self.disk.sync_directory(&self.directory).map_err(StorageError::io("sync", &self.directory))
    }
}
