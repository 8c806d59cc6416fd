//! A disk in memory that fails, tears and forgets.
//!
//! Every file exists twice: as the page cache shows it and as the platter holds it. A completed
//! [`DiskFile::sync`] copies the one to the other, a completed [`Disk::sync_directory`] does the same for the names
//! in a directory. [`FaultyDisk::after_crash`] is the disk that the next open finds: what was synced, and of the
//! rest nothing, everything, some blocks, or some sectors in some of their versions.

mod content;
mod faults;
mod names;
mod operations;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use foreshore_env::{
    random::Xorshift,
    sync::{Arc, Mutex},
};

use content::{BLOCK_BYTES, Content};
use faults::Faults;
use names::{Names, Node};

#[cfg(doc)]
use foreshore_env::disk::{Disk, DiskFile};

/// What a crash does to everything that no completed sync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMode {
    /// It is gone.
    DropUnsynced,
    /// It is there.
    KeepAll,
    /// Each block of 4 KiB, which is what the kernel writes back, is there as it was behind one of the writes since the
    /// last sync, or not at all, by this seed; of the names of a directory, a prefix of the changes is there.
    SubsetRandom(u64),
    /// Each 512-byte sector is there or not, by this seed, in the newest or an older version written since the last
    /// sync; of the names of a directory, a prefix of the changes is there.
    TornRandom(u64),
}

/// A file system in memory. Clones are handles to the same disk. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk {
    /// Everything; one mutex, because tests need no speed.
    state: Arc<Mutex<State>>,
}

/// Guarded by the mutex of [`FaultyDisk::state`].
#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    names: Names,
    /// Held lock files: by how many, or exclusively (0).
    locks: BTreeMap<PathBuf, usize>,
    faults: Faults,
    counts: Counts,
    /// Faults that somebody has met.
    met: BTreeMap<(Met, PathBuf), u64>,
    crashed: bool,
}

/// A fault that somebody has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// There was no space.
    Full,
    /// A write ended in the middle, with an error.
    Write,
    /// A read failed.
    Read,
    /// A read gave less than was asked for and there is.
    ShortRead,
    /// A sync failed, and what it should have made durable is gone, or some of it.
    Sync,
    /// The power failed.
    Power,
}

/// How often the disk was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Everything that changes the disk or makes a change durable: the places where a crash can come.
    pub operations: u64,
    /// Calls of `sync` and `sync_directory`.
    pub syncs: u64,
    /// Calls of `write_all_at`.
    pub writes: u64,
    /// Calls of `read_at`.
    pub reads: u64,
}

impl FaultyDisk {
    /// An empty disk that does not fail.
    pub fn new() -> FaultyDisk {
        FaultyDisk::default()
    }

    /// How often the disk was used so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Lets the power fail at operation `number` (counted as [`Counts::operations`], from 1): that operation returns
    /// an error, though a write or a change of names may have happened, and every later call fails.
    pub fn crash_at(&self, number: u64) {
        self.state.lock().faults.crash_at = Some(number);
    }

    /// Lets the power fail now: every later call fails.
    pub fn crash(&self) {
        self.state.lock().crashed = true;
    }

    /// Whether the power has failed.
    pub fn is_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Lets sync `number` (counted as [`Counts::syncs`], from 1) fail with EIO. As on Linux, what it should have made
    /// durable is then taken for clean: later syncs succeed without it. Names come with the next sync of their
    /// directory.
    pub fn fail_sync(&self, number: u64) {
        self.state.lock().faults.fail_syncs.insert(number);
    }

    /// Lets the next sync to end, of a file whose name has this extension by then, fail, as with
    /// [`FaultyDisk::fail_sync`], and none of another file that somebody in the background comes to first: `log` is a
    /// segment of a log that has records that count, and none that is being made.
    pub fn fail_next_sync_of(&self, extension: &'static str) {
        self.state.lock().faults.fail_sync_of = Some(extension);
    }

    /// Lets each sync that fails have written some of its blocks of 4 KiB, by this seed: `None`, as at first, none of
    /// them.
    pub fn keep_some_of_failed_syncs(&self, seed: Option<u64>) {
        self.state.lock().faults.some_of_failed_syncs = seed;
    }

    /// Lets write `number` (counted as [`Counts::writes`], from 1) fail with EIO after half of its bytes.
    pub fn fail_write(&self, number: u64) {
        self.state.lock().faults.fail_writes.insert(number);
    }

    /// Lets read `number` (counted as [`Counts::reads`], from 1) fail with EIO.
    pub fn fail_read(&self, number: u64) {
        self.state.lock().faults.fail_reads.insert(number);
    }

    /// Takes back the failures of reads, writes and syncs that have not come yet.
    pub fn fail_no_more(&self) {
        let faults = &mut self.state.lock().faults;
        (faults.fail_reads, faults.fail_writes, faults.fail_syncs) = Default::default();
        faults.fail_sync_of = None;
    }

    /// The faults that somebody has met, with the file or directory, and how often.
    pub fn met(&self) -> Vec<(Met, PathBuf, u64)> {
        let state = self.state.lock();
        state.met.iter().map(|((met, path), count)| (*met, path.clone(), *count)).collect()
    }

    /// Leaves room for `bytes` more (in blocks of 4 KiB); what needs more fails with `StorageFull`. `None`: no end.
    pub fn set_free_space(&self, bytes: Option<u64>) {
        self.state.lock().faults.free_blocks = bytes.map(|bytes| bytes / BLOCK_BYTES as u64);
    }

    /// Lets whatever has to open something fail, as in a process that has as many open files as it may, until this is
    /// called with `false`.
    pub fn set_out_of_files(&self, out_of_files: bool) {
        self.set_files_left(out_of_files.then_some(0));
    }

    /// As [`FaultyDisk::set_out_of_files`], after so many more have been opened. `None`: no end.
    pub fn set_files_left(&self, files: Option<u32>) {
        self.state.lock().faults.files_left = files;
    }

    /// As [`FaultyDisk::set_files_left`], for one file: others are closed then, and the next can be opened. `None`: no
    /// more.
    pub fn refuse_one_file_after(&self, files: Option<u32>) {
        self.state.lock().faults.files_before_refusal = files;
    }

    /// What [`FaultyDisk::set_free_space`] has left, in bytes.
    pub fn free_space(&self) -> Option<u64> {
        self.state.lock().faults.free_blocks.map(|blocks| blocks * BLOCK_BYTES as u64)
    }

    /// Bytes that files take, in blocks of 4 KiB.
    pub fn used_space(&self) -> u64 {
        let state = self.state.lock();
        let files = state.names.files().filter_map(|file| state.files.get(&file));
        files.map(|content| content.blocks() * BLOCK_BYTES as u64).sum()
    }

    /// Bytes of a file that have no space, as after a crash: a write into them takes some.
    pub fn holes(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.state.lock();
        let content = state.content_mut(path)?;
        Ok((content.length().div_ceil(BLOCK_BYTES as u64) - content.blocks()) * BLOCK_BYTES as u64)
    }

    /// Lets each read give at most `bytes` bytes (at least one).
    pub fn set_longest_read(&self, bytes: Option<usize>) {
        self.state.lock().faults.longest_read = bytes.map(|bytes| bytes.max(1));
    }

    /// Lets reads of these bytes of a file fail with EIO.
    pub fn fail_reads(&self, path: &Path, range: Range<u64>) {
        self.state.lock().faults.bad_places.push((path.to_owned(), range));
    }

    /// Forgets all read faults.
    pub fn heal_reads(&self) {
        self.state.lock().faults.bad_places.clear();
    }

    /// Lets each sync take this long, so that what happens meanwhile has time to happen. It covers what was written
    /// before it began.
    pub fn set_sync_delay(&self, delay: std::time::Duration) {
        self.state.lock().faults.sync_delay = delay;
    }

    /// Lets every sync that comes from now on wait, without an effect, until this is called with `false` or the power
    /// fails (ten minutes at most). What is written while one waits it does not cover.
    pub fn hold_syncs(&self, hold: bool) {
        self.state.lock().faults.syncs_held = hold;
    }

    /// Lets every sync of a file that was opened in this directory, or below it, succeed without doing anything: a
    /// drive whose cache forgets. `None`: no more. For the proof that tests of crashes would notice.
    pub fn lie_about_syncs(&self, directory: Option<&Path>) {
        self.state.lock().faults.lying = directory.map(Path::to_owned);
    }

    /// The disk that the next open finds if the power fails now. This disk stays as it is.
    #[must_use]
    pub fn after_crash(&self, mode: CrashMode) -> FaultyDisk {
        let state = self.state.lock();
        let seed = match mode {
            CrashMode::SubsetRandom(seed) | CrashMode::TornRandom(seed) => seed,
            CrashMode::DropUnsynced | CrashMode::KeepAll => 0,
        };
        let mut random = random_by(seed);
        let names = state.names.after_crash(mode, &mut random);
        let files = names
            .files()
            .filter_map(|file| Some((file, state.files.get(&file)?.after_crash(mode, &mut random))))
            .collect();
        let survivor = State { files, names, next_file: state.next_file, ..State::default() };
        FaultyDisk { state: Arc::new(Mutex::new(survivor)) }
    }

    /// The disk that the next open finds if only the process dies: what it wrote is in the cache, and what was not
    /// synced is not on the platter, where a power failure may come later. This disk stays as it is.
    #[must_use]
    pub fn after_kill(&self) -> FaultyDisk {
        let State { ref files, ref names, next_file, .. } = *self.state.lock();
        let survivor = State { files: files.clone(), names: names.clone(), next_file, ..State::default() };
        FaultyDisk { state: Arc::new(Mutex::new(survivor)) }
    }

    /// Flips one bit of a file, in the cache and on the platter.
    ///
    /// # Panics
    /// When the file is not there or not that long: a test that damages nothing would prove nothing.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) {
        let mut state = self.state.lock();
        let content = state.content_mut(path).expect("the file to damage");
        assert!(content.flip_bit(byte, bit), "{} has no byte {byte}", path.display());
    }

    /// The content of a file as reads see it.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        let content = state.content_mut(path)?;
        let mut bytes = vec![0; content.length() as usize];
        content.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Makes a file, or replaces its content, durably and without counting.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.names.get(path).is_none() {
            let file = state.new_file();
            state.names.insert(path, Node::File(file))?;
            state.names.sync(names::parent(path));
        }
        state.content_mut(path)?.replace(bytes);
        Ok(())
    }

    /// The paths of all files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().names.paths_of_files()
    }
}

/// What a seed draws; those of neighbouring seeds are unlike.
fn random_by(seed: u64) -> Xorshift {
    let mut random = Xorshift::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D);
    for _ in 0..4 {
        random.next_u64();
    }
    random
}

impl State {
    fn note(&mut self, met: Met, path: &Path) {
        *self.met.entry((met, path.to_owned())).or_default() += 1;
    }

    fn new_file(&mut self) -> u64 {
        self.next_file += 1;
        self.files.insert(self.next_file, Content::default());
        self.next_file
    }

    fn content_mut(&mut self, path: &Path) -> io::Result<&mut Content> {
        match self.names.get(path) {
            Some(Node::File(file)) => self.file_mut(file),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, file: u64) -> io::Result<&mut Content> {
        self.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Takes blocks of the budget; gives how many it got.
    fn take_blocks(&mut self, wanted: u64) -> u64 {
        match &mut self.faults.free_blocks {
            None => wanted,
            Some(free) => {
                let got = wanted.min(*free);
                *free -= got;
                got
            }
        }
    }

    fn give_blocks(&mut self, blocks: u64) {
        if let Some(free) = &mut self.faults.free_blocks {
            *free += blocks;
        }
    }
}
