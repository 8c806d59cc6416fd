//! The contract of [`Disk`] and [`DiskFile`], with the faults let in.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use foreshore_env::{
    disk::{Disk, DiskDirectory, DiskFile, OpenMode},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use super::{
    FaultyDisk, Met, State,
    content::{BLOCK_BYTES, Content},
    names::Node,
};

/// How often a sync that is held back looks whether it still is.
const HELD_SYNC_NAP: Duration = Duration::from_millis(1);
/// How long a sync is held back at most, longer than any test is patient: one that fails meanwhile shall end.
const LONGEST_HOLD: Duration = Duration::from_secs(600);

/// What the system says of a process that has as many open files as it may.
const EMFILE: i32 = 24;

fn power_failure() -> io::Error {
    io::Error::other("the power failed (simulated)")
}

fn input_output_error() -> io::Error {
    io::Error::other("input/output error (simulated)")
}

/// Whether the power fails with this operation.
#[must_use]
struct Operation {
    last: bool,
}

impl Operation {
    /// What the operation returns after it has happened.
    fn end<T>(&self, value: T) -> io::Result<T> {
        if self.last { Err(power_failure()) } else { Ok(value) }
    }
}

impl State {
    fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(power_failure()) } else { Ok(()) }
    }

    /// Whether one more file can be opened.
    fn may_open(&mut self) -> io::Result<()> {
        self.alive()?;
        if self.faults.take_file() { Ok(()) } else { Err(io::Error::from_raw_os_error(EMFILE)) }
    }

    /// Makes names durable.
    fn sync_names(&mut self, directory: &Path) -> io::Result<()> {
        if !self.sync_operation(directory)? {
            return Err(input_output_error());
        }
        self.names.sync(directory);
        Ok(())
    }

    /// Counts an operation at which the power may fail.
    fn operation(&mut self, path: &Path) -> io::Result<Operation> {
        self.alive()?;
        self.counts.operations += 1;
        self.crashed = self.faults.crash_at.is_some_and(|number| self.counts.operations >= number);
        if self.crashed {
            self.note(Met::Power, path);
        }
        Ok(Operation { last: self.crashed })
    }

    /// Counts a sync. `Ok(true)`: it works; `Ok(false)`: it fails with EIO.
    fn sync_operation(&mut self, path: &Path) -> io::Result<bool> {
        let operation = self.operation(path)?;
        self.counts.syncs += 1;
        // A sync during which the power fails has done nothing: that it had done everything is what keeping all
        // un-synced writes covers.
        operation.end(())?;
        let fails = self.faults.fail_syncs.contains(&self.counts.syncs);
        if fails {
            self.note(Met::Sync, path);
        }
        Ok(!fails)
    }

    /// Gives back the space of a file that has lost its name. Its content stays: open handles may use it, and a crash
    /// may bring the name back.
    fn unlinked(&mut self, file: u64) {
        let blocks = self.files.get(&file).map_or(0, Content::blocks);
        self.give_blocks(blocks);
    }

    /// Cuts or extends a file, and gives back the space of what lies past its end.
    fn set_length(&mut self, file: u64, length: u64) -> io::Result<()> {
        let content = self.file_mut(file)?;
        let before = content.blocks();
        content.set_length(length);
        let freed = before - content.blocks();
        self.give_blocks(freed);
        Ok(())
    }

    /// Takes space for `[offset, offset + length)`; gives how many of the bytes have some.
    fn make_room(&mut self, file: u64, offset: u64, length: u64) -> io::Result<u64> {
        let block_bytes = BLOCK_BYTES as u64;
        let end = offset.checked_add(length).ok_or(io::ErrorKind::FileTooLarge)?;
        for block in offset / block_bytes..end.div_ceil(block_bytes) {
            if !self.file_mut(file)?.has_block(block) {
                if self.take_blocks(1) == 0 {
                    return Ok((block * block_bytes).saturating_sub(offset));
                }
                self.file_mut(file)?.reserve_block(block);
            }
        }
        Ok(length)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.may_open()?;
        let file = match (mode, state.names.get(path)) {
            (OpenMode::CreateNew, _) => {
                if state.names.get(path).is_some() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let operation = state.operation(path)?;
                let file = state.new_file();
                state.names.insert(path, Node::File(file))?;
                operation.end(file)?
            }
            (_, Some(Node::File(file))) => file,
            (_, Some(Node::Directory)) => return Err(io::ErrorKind::IsADirectory.into()),
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(OpenFile {
            disk: self.clone(),
            file,
            path: path.to_owned(),
            writable: mode != OpenMode::Read,
        }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.alive()?;
        match state.names.get(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                let operation = state.operation(path)?;
                state.names.insert(path, Node::Directory)?;
                operation.end(())
            }
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.names.get(path) != Some(Node::Directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.may_open()?;
        state.sync_names(path)
    }

    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn DiskDirectory>>> {
        let mut state = self.state.lock();
        state.may_open()?;
        match state.names.get(path) {
            Some(Node::Directory) => {
                let state = Arc::clone(&self.state);
                Ok(Some(Box::new(OpenDirectory { state, path: path.to_owned() })))
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.state.lock();
        state.may_open()?;
        state.names.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let operation = state.operation(from)?;
        if let Some(replaced) = state.names.rename(from, to)? {
            state.unlinked(replaced);
        }
        operation.end(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let operation = state.operation(path)?;
        let file = state.names.remove(path)?;
        state.unlinked(file);
        operation.end(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        state.alive()?;
        Ok(state.names.get(path).is_some())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut state = self.state.lock();
        state.alive()?;
        if state.names.get(path).is_none() {
            let operation = state.operation(path)?;
            let file = state.new_file();
            state.names.insert(path, Node::File(file))?;
            operation.end(())?;
        }
        if state.locks.contains_key(path) {
            return Ok(None);
        }
        state.locks.insert(path.to_owned(), 0);
        Ok(Some(Box::new(HeldLock { state: Arc::clone(&self.state), path: path.to_owned() })))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut state = self.state.lock();
        state.alive()?;
        if state.names.get(path).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        match state.locks.get_mut(path) {
            Some(0) => return Ok(None),
            Some(count) => *count += 1,
            None => _ = state.locks.insert(path.to_owned(), 1),
        }
        Ok(Some(Box::new(HeldLock { state: Arc::clone(&self.state), path: path.to_owned() })))
    }
}

#[derive(Debug)]
struct OpenDirectory {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl DiskDirectory for OpenDirectory {
    fn sync(&self) -> io::Result<()> {
        self.state.lock().sync_names(&self.path)
    }
}

struct HeldLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        match state.locks.get_mut(&self.path) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = state.locks.remove(&self.path),
        }
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: FaultyDisk,
    file: u64,
    /// As opened; read faults go by it.
    path: PathBuf,
    writable: bool,
}

impl OpenFile {
    fn for_writing(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state.lock();
        state.alive()?;
        if self.writable { Ok(state) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl DiskFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        state.alive()?;
        state.counts.reads += 1;
        let wanted = buffer.len().min(state.faults.longest_read.unwrap_or(usize::MAX));
        let end = offset.saturating_add(wanted as u64);
        let bad = &state.faults.bad_places;
        if bad.iter().any(|(path, range)| *path == self.path && range.start < end && offset < range.end)
            || state.faults.fail_reads.contains(&state.counts.reads)
        {
            state.note(Met::Read, &self.path);
            return Err(input_output_error());
        }
        let content = state.file_mut(self.file)?;
        let read = content.read(&mut buffer[..wanted], offset);
        if read < buffer.len() && offset + (read as u64) < content.length() {
            state.note(Met::ShortRead, &self.path);
        }
        Ok(read)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.for_writing()?;
        let operation = state.operation(&self.path)?;
        state.counts.writes += 1;
        let fails = state.faults.fail_writes.contains(&state.counts.writes);
        let wanted = if fails { bytes.len() / 2 } else { bytes.len() };
        let room = state.make_room(self.file, offset, wanted as u64)? as usize;
        state.file_mut(self.file)?.write(&bytes[..room], offset);
        if room < wanted {
            state.note(Met::Full, &self.path);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if fails {
            state.note(Met::Write, &self.path);
            return Err(input_output_error());
        }
        operation.end(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.alive()?;
        let pending = state.file_mut(self.file)?.begin_sync();
        let delay = state.faults.sync_delay;
        if !delay.is_zero() {
            drop(state);
            thread::sleep(delay);
            state = self.disk.state.lock();
        }
        let limit = Instant::now() + LONGEST_HOLD;
        while state.faults.syncs_held && !state.crashed && Instant::now() < limit {
            drop(state);
            thread::sleep(HELD_SYNC_NAP);
            state = self.disk.state.lock();
        }
        let works = state.sync_operation(&self.path)? && !state.meets_fault_of_name(self.file, &self.path);
        if works && state.faults.lying.as_ref().is_some_and(|directory| self.path.starts_with(directory)) {
            return Ok(());
        }
        let number = state.counts.syncs;
        let some = state.faults.some_of_failed_syncs;
        let content = state.file_mut(self.file)?;
        if works {
            content.end_sync(&pending);
            return Ok(());
        }
        let mut random = some.map(|seed| super::random_by(seed ^ number));
        content.fail_sync(&pending, random.as_mut());
        Err(input_output_error())
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state.lock();
        state.alive()?;
        Ok(state.file_mut(self.file)?.length())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut state = self.disk.state.lock();
        state.alive()?;
        Ok(state.file_mut(self.file)?.next_data(offset))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.for_writing()?;
        let operation = state.operation(&self.path)?;
        state.set_length(self.file, bytes)?;
        operation.end(())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.for_writing()?;
        let operation = state.operation(&self.path)?;
        let bytes = range.end.saturating_sub(range.start);
        if state.make_room(self.file, range.start, bytes)? < bytes {
            state.note(Met::Full, &self.path);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.file_mut(self.file)?.length() < range.end {
            state.set_length(self.file, range.end)?;
        }
        operation.end(())
    }
}
