//! The segment files: which there are, making the next, recycling the old.
//!
//! A segment that is no longer needed is renamed to a spare; a spare becomes the next segment by getting a fresh header
//! and, when that and all of the log before it are durable, its new name. So a file with the name of a segment has had
//! a durable header before it had the name (WAL-5), and nothing is written to a spare before its old name is durably
//! gone (WAL-6).
//!
//! Between the two it is *coming*: it may have records already, which nobody counts on. A crash makes a spare of it
//! again; whoever opens the log overwrites those records, because they belong to LSNs that others will have.
//!
//! Spares are also made ahead of time, so that there is space on the disk for what has been promised (WAL-13). A spare
//! that has its whole length has its space; one that was being made when the disk was full, or the power failed, is
//! removed. Each stays open: what was promised is written, though no file can be opened any more when it is needed.
//!
//! WAL-17: files are made, renamed and removed by path, which may lead elsewhere meanwhile: somebody has moved the
//! directory, or put another database in its place. So it is looked first whether the newest segment is where it was,
//! and if not, the log fails.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
};

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    disk::{Disk, DiskDirectory, DiskFile, OpenMode, is_out_of_files},
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

impl Segment {
    /// Writes into it, durably, that another segment follows.
    pub(crate) fn note_successor(&self, log_id: u64) -> Result<()> {
        let note = segment::encode_note(log_id, self.base);
        self.file
            .write_all_at(&note, segment::NOTE_OFFSET)
            .and_then(|()| self.file.sync())
            .map_err(StorageError::io("note what follows in", &self.path))
    }
}

/// A file whose content nobody needs, open.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: PathBuf,
}

impl Spare {
    /// One that is there.
    pub(crate) fn open(disk: &dyn Disk, path: PathBuf) -> io::Result<Spare> {
        disk.open(&path, OpenMode::ReadWrite).map(|file| Spare { file, path })
    }
}

/// The segment files of one log.
#[derive(Debug)]
pub(crate) struct Store {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Open, because names are synced when perhaps nothing can be opened.
    opened: Option<Box<dyn DiskDirectory>>,
    log_id: u64,
    geometry: Geometry,
    files: Mutex<Files>,
    /// Held while a segment is prepared.
    preparing: Mutex<()>,
}

/// Guarded by the mutex of [`Store::files`].
#[derive(Debug, Default)]
struct Files {
    /// The segments of the log in order, without gap.
    live: VecDeque<Segment>,
    /// Those that will follow, in order: with durable headers, and the names of spares.
    coming: VecDeque<Segment>,
    spares: Vec<Spare>,
    /// One of them is being prepared: still space of the log.
    making: bool,
    /// The number in the name of the next spare.
    next_spare: u64,
}

impl Files {
    /// The newest segment.
    fn newest(&self) -> Option<&Segment> {
        self.coming.back().or(self.live.back())
    }
}

/// What lies in the directory of a log.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Base and path, ascending.
    pub(crate) segments: Vec<(u64, PathBuf)>,
    /// Spares, with the numbers in their names.
    pub(crate) spares: Vec<(u64, PathBuf)>,
}

/// Passes on an error that says something of a file. Where this process gets no more files, nothing is wrong with it.
pub(crate) fn as_damage(error: StorageError) -> Result<StorageError> {
    match error {
        StorageError::Io { ref source, .. } if is_out_of_files(source) => Err(error),
        error => Ok(error),
    }
}

/// What was read, or nothing where the file is not as it should be.
pub(crate) fn sound<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => as_damage(error).map(|_| None),
    }
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

/// `None`: what was to be opened cannot be for the moment, and can later.
fn unless_out_of_files<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Err(StorageError::Io { source, .. }) if is_out_of_files(&source) => Ok(None),
        opened => opened.map(Some),
    }
}

impl Store {
    /// A store of these segments and spares, with the numbers in their names.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        geometry: Geometry,
        live: VecDeque<Segment>,
        spares: Vec<(u64, Spare)>,
    ) -> Result<Store> {
        let next_spare = spares.iter().map(|(number, _)| number.saturating_add(1)).max().unwrap_or(0);
        let spares = spares.into_iter().map(|(_, spare)| spare).collect();
        let files = Mutex::new(Files { live, coming: VecDeque::new(), spares, making: false, next_spare });
        let preparing = Mutex::new(());
        let opened = disk.open_directory(directory).map_err(StorageError::io("open", directory))?;
        Ok(Store { disk, directory: directory.to_owned(), opened, log_id, geometry, files, preparing })
    }

    pub(crate) fn log_id(&self) -> u64 {
        self.log_id
    }

    /// The segment that begins at `base`, if it is part of the log or will be.
    pub(crate) fn segment(&self, base: u64) -> Option<Segment> {
        let files = self.files.lock();
        let first = files.live.front()?.base;
        let index = usize::try_from(base.checked_sub(first)? / self.geometry.segment_bytes()).ok()?;
        files.live.iter().chain(&files.coming).nth(index).cloned()
    }

    /// Makes the first segment.
    pub(crate) fn make(&self, base: u64) -> Result<Segment> {
        let segment = self.prepare(base)?;
        self.admit()?;
        Ok(segment)
    }

    /// The segment that begins at `base`, behind all others unless it has been prepared already. It is written under
    /// the name of a spare until it is [admitted](Store::admit).
    pub(crate) fn prepare(&self, base: u64) -> Result<Segment> {
        let _one_at_a_time = self.preparing.lock();
        match self.segment(base) {
            Some(segment) => Ok(segment),
            None => self.prepare_next(base),
        }
    }

    /// Prepares the segment behind the one at `base`, if that is the newest one, from a spare, if there is one.
    pub(crate) fn prepare_after(&self, base: u64) -> Result<()> {
        let _one_at_a_time = self.preparing.lock();
        let is_due = {
            let files = self.files.lock();
            !files.spares.is_empty() && files.newest().is_some_and(|newest| newest.base == base)
        };
        if is_due {
            self.prepare_next(base + self.geometry.segment_bytes())?;
        }
        Ok(())
    }

    /// Prepares the next segment, from a spare, or from a new file.
    fn prepare_next(&self, base: u64) -> Result<Segment> {
        self.check_place()?;
        let recycled = {
            let mut files = self.files.lock();
            let recycled = files.spares.pop();
            files.making = recycled.is_some();
            recycled
        };
        let is_new = recycled.is_none();
        let Spare { file, path } = recycled.map_or_else(|| self.new_spare(), Ok)?;
        let failed = |action: &'static str| StorageError::io(action, &path);
        let bytes = self.geometry.segment_bytes();
        if file.len().map_err(failed("measure"))? < bytes {
            file.allocate(0..bytes).map_err(failed("reserve space for"))?;
        }
        let header = segment::encode_header(self.log_id, base, self.geometry);
        file.write_all_at(&header, 0).map_err(failed("write the header of"))?;
        file.sync().map_err(failed("sync"))?;
        if is_new {
            self.sync_directory()?;
        }
        let segment = Segment { base, file, path };
        let mut files = self.files.lock();
        files.coming.push_back(segment.clone());
        files.making = false;
        Ok(segment)
    }

    /// Makes the first of the coming segments part of the log. The one before it is durable to its end (WAL-5), and
    /// says durably that this one follows before anything in this one counts as durable (WAL-14).
    pub(crate) fn admit(&self) -> Result<()> {
        let (coming, before) = {
            let files = self.files.lock();
            (files.coming.front().cloned(), files.live.back().cloned())
        };
        let Some(Segment { base, file, path: spare }) = coming else { return Ok(()) };
        self.check_place()?;
        let path = self.directory.join(segment::file_name(base));
        self.disk.rename(&spare, &path).map_err(StorageError::io("rename", &spare))?;
        if !planted(Fault::SegmentNameUnsynced) {
            self.sync_directory()?;
        }
        if let Some(before) = before {
            // The last of the log's list, so it is not being recycled.
            before.note_successor(self.log_id)?;
        }
        let mut files = self.files.lock();
        files.coming.pop_front();
        files.live.push_back(Segment { base, file, path });
        Ok(())
    }

    /// Makes a spare, durably: another segment's space on the disk is the log's. False: for the moment no file can be
    /// opened; nothing has happened.
    pub(crate) fn reserve(&self) -> Result<bool> {
        self.check_place()?;
        let Some(Spare { file, path }) = unless_out_of_files(self.new_spare())? else { return Ok(false) };
        let reserved = file
            .allocate(0..self.geometry.segment_bytes())
            .map_err(StorageError::io("reserve space for", &path))
            .and_then(|()| file.sync().map_err(StorageError::io("sync", &path)))
            .and_then(|()| self.sync_directory());
        if reserved.is_err() {
            // What it has taken is for others. The error that counts is the first.
            drop(file);
            let _ = self.disk.remove(&path);
            return reserved.map(|()| true);
        }
        self.files.lock().spares.push(Spare { file, path });
        Ok(true)
    }

    /// Up to which position there is space on the disk: segments, and spares that will become some.
    pub(crate) fn space_end(&self) -> u64 {
        let files = self.files.lock();
        let segments = files.spares.len() as u64 + u64::from(files.making) + 1;
        files.newest().map_or(0, |last| last.base + segments * self.geometry.segment_bytes())
    }

    /// Takes the segments out of the log that end at or before `position`, all but the last one: they are spares from
    /// then on.
    pub(crate) fn release_before(&self, position: u64) -> Result<()> {
        let mut released = Vec::new();
        {
            let mut files = self.files.lock();
            while files.live.len() > 1 && files.live[1].base <= position {
                released
                    .extend(files.live.pop_front().map(|Segment { file, path, .. }| Spare { file, path }));
            }
        }
        self.recycle(released)
    }

    /// Turns files that nobody needs into spares.
    pub(crate) fn recycle(&self, unneeded: Vec<Spare>) -> Result<()> {
        if unneeded.is_empty() {
            return Ok(());
        }
        self.check_place()?;
        let mut spares = Vec::new();
        for Spare { file, path } in unneeded {
            let spare = self.spare_path();
            self.disk.rename(&path, &spare).map_err(StorageError::io("rename", &path))?;
            spares.push(Spare { file, path: spare });
        }
        self.sync_directory()?;
        self.files.lock().spares.append(&mut spares);
        Ok(())
    }

    /// Takes out those spares of which there are more than are kept, and more than make the space reach to `needed`.
    /// They are no space of the log any more. WAL-15: what is kept only for its next use is within `capacity`, but for
    /// two segments that are needed in part.
    pub(crate) fn take_surplus(&self, needed: u64, capacity: u64) -> Vec<Spare> {
        let mut files = self.files.lock();
        let bytes = self.geometry.segment_bytes();
        let end = files.newest().map_or(0, |newest| newest.base + bytes);
        let wanted = usize::try_from(needed.saturating_sub(end).div_ceil(bytes)).unwrap_or(usize::MAX);
        let most = usize::try_from(capacity.div_ceil(bytes) + 2).unwrap_or(usize::MAX);
        let room = most.saturating_sub(files.live.len() + files.coming.len());
        // Those that are about to be used are still called spares.
        let waiting = LogOptions::SPARE_SEGMENTS.saturating_sub(files.coming.len());
        let kept = wanted.max(waiting.min(room)).min(files.spares.len());
        files.spares.split_off(kept)
    }

    /// Removes files that were taken out.
    pub(crate) fn remove(&self, spares: Vec<Spare>) -> Result<()> {
        if spares.is_empty() {
            return Ok(());
        }
        self.check_place()?;
        for Spare { file, path } in spares {
            // Its space is free only when it is closed.
            drop(file);
            self.disk.remove(&path).map_err(StorageError::io("remove", &path))?;
        }
        self.sync_directory()
    }

    /// WAL-17. Whoever moves the directory between this and what it is for is not seen.
    fn check_place(&self) -> Result<()> {
        let newest = || self.files.lock().live.back().cloned();
        while let Some(Segment { base, file, path }) = newest() {
            if file.is_at(&path).map_err(StorageError::io("look for", &path))? {
                break;
            }
            // It keeps its name while it is the newest.
            if newest().is_some_and(|newest| newest.base == base) {
                let moved = "the database was moved or replaced while it was open, or, with a relative path, the working directory \
                             has changed; open it where it is now";
                return Err(StorageError::io("find", &path)(io::Error::new(io::ErrorKind::NotFound, moved)));
            }
        }
        Ok(())
    }

    /// A new file with the name of a spare, without any length.
    fn new_spare(&self) -> Result<Spare> {
        let path = self.spare_path();
        let file = self.disk.open(&path, OpenMode::CreateNew).map_err(StorageError::io("create", &path))?;
        Ok(Spare { file, path })
    }

    fn spare_path(&self) -> PathBuf {
        let mut files = self.files.lock();
        let number = files.next_spare;
        files.next_spare = number.saturating_add(1);
        self.directory.join(format!("{SPARE_PREFIX}{number}"))
    }

    fn sync_directory(&self) -> Result<()> {
        let synced = match &self.opened {
            Some(directory) => directory.sync(),
            None => self.disk.sync_directory(&self.directory),
        };
        synced.map_err(StorageError::io("sync", &self.directory))
    }
}
