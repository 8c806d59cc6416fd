//! The file system, tried on the one that is there.

#![allow(clippy::disallowed_types)]

use super::*;
use crate::{sync::atomic::AtomicU64, words::WORD_BYTES};

#[test]
fn files_belong_to_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    RealDisk.create_directory(&inner).unwrap();
    RealDisk.create_directory(&inner).unwrap();
    let path = inner.join("file");
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    file.write_all_at(b"abc", 5).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 8);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, FILE_MODE);
    assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o777, DIRECTORY_MODE);
    assert_eq!(RealDisk.open(&path, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn a_file_that_others_can_reach_is_not_private() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("file"), directory.path().join("other"));
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    assert!(file.is_private().unwrap());
    for mode in [0o644, 0o660, 0o602, 0o4600] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(!file.is_private().unwrap(), "{mode:o}");
    }
    fs::set_permissions(&path, Permissions::from_mode(FILE_MODE)).unwrap();
    fs::hard_link(&path, &other).unwrap();
    assert!(!file.is_private().unwrap());
    fs::remove_file(&other).unwrap();
    assert!(file.is_private().unwrap());
}

#[test]
fn a_symbolic_link_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (directory.path().join("target"), directory.path().join("link"));
    fs::write(&target, b"x").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let refused = [
        RealDisk.open(&link, OpenMode::Read).err(),
        RealDisk.open(&link, OpenMode::ReadWrite).err(),
        RealDisk.lock(&link).err(),
        RealDisk.lock_shared(&link).err(),
    ];
    for error in refused.map(Option::unwrap) {
        assert!(error.to_string().contains("symbolic link, and links are not followed"), "{error}");
    }
    assert_eq!(RealDisk.open(&link, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);

    let (real, other) = (directory.path().join("real"), directory.path().join("other"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &other).unwrap();
    assert!(RealDisk.list(&real).is_ok() && RealDisk.list(&other).is_err());
    assert!(RealDisk.create_directory(&real).is_ok() && RealDisk.create_directory(&other).is_err());
    // With a slash it names what it leads to.
    assert!(RealDisk.list(&other.join("")).is_ok());
}

#[test]
fn what_lies_in_a_directory_is_found_by_every_name() {
    let home = tempfile::tempdir().unwrap();
    let (own, other) = (home.path().join("own"), home.path().join("other"));
    fs::create_dir_all(own.join("inner/deep")).unwrap();
    fs::create_dir(&other).unwrap();
    let link =
        |target: &Path, name: &str| std::os::unix::fs::symlink(target, home.path().join(name)).unwrap();
    link(&own, "alias");
    link(&own.join("inner"), "short");
    link(Path::new("alias"), "second");
    for inside in
        ["own", "own/new", "own/inner/deep/new/newer", "alias/new", "short", "short/new", "second/new"]
    {
        assert!(RealDisk.lies_in(&home.path().join(inside), &own).unwrap(), "{inside}");
    }
    for inside in ["other/../own/new", "own/../own", "short/../new", "other/../short/deep/./new"] {
        assert!(RealDisk.lies_in(&home.path().join(inside), &own).unwrap(), "{inside}");
    }
    // Also when the directory itself is named by a link.
    assert!(RealDisk.lies_in(&own.join("new"), &home.path().join("second")).unwrap());
    for outside in ["other", "other/new", "ownother", "own/../new", "alias/../new/newer", "new"] {
        assert!(!RealDisk.lies_in(&home.path().join(outside), &own).unwrap(), "{outside}");
    }
    assert!(RealDisk.lies_in(Path::new("new"), Path::new(".")).unwrap());
    assert!(RealDisk.lies_in(Path::new(""), Path::new("..")).unwrap());
    assert!(RealDisk.lies_in(&other, &home.path().join("absent")).is_err());
}

#[test]
fn a_pipe_is_no_file_and_nobody_waits_for_its_other_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(RealDisk.open(&path, mode).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert!(RealDisk.lock(&path).is_err());
}

#[test]
fn a_lock_excludes_this_process_too_and_goes_with_its_guard() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("LOCK");
    let alias = directory.path().join("ALIAS");
    let guard = RealDisk.lock(&path).unwrap().unwrap();
    fs::hard_link(&path, &alias).unwrap();
    assert!(RealDisk.lock(&path).unwrap().is_none());
    assert!(RealDisk.lock(&alias).unwrap().is_none());
    drop(guard);
    assert!(RealDisk.lock(&path).unwrap().is_some());
}

/// What a fork has of its parent changes nothing of the parent's: not the file, and not the lock, when it goes.
#[test]
fn a_fork_neither_writes_nor_unlocks() {
    let directory = tempfile::tempdir().unwrap();
    let (path, lock) = (directory.path().join("file"), directory.path().join("LOCK"));
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    file.write_all_at(b"parent", 0).unwrap();
    let guard = RealDisk.lock(&lock).unwrap().unwrap();
    let (shared, mut guard) = (Arc::clone(&file), Some(guard));
    let mut command = std::process::Command::new("true");
    let changes = move || {
        guard.take();
        let refused =
            [shared.write_all_at(b"child", 0), shared.sync(), shared.set_len(1), shared.allocate(0..9)];
        let refused = refused.iter().all(|result| {
            result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        });
        if refused { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
    };
    // SAFETY: in the fork it asks for the process's id and closes a file; what it allocates, for errors, may be
    // allocated after a fork (glibc, musl). It takes no lock.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, changes) };
    assert!(command.status().unwrap().success());
    // As another process would try, which knows nothing of what this one notes.
    assert!(matches!(File::open(&lock).unwrap().try_lock(), Err(fs::TryLockError::WouldBlock)));
    assert_eq!(fs::read(&path).unwrap(), b"parent");
    drop(command);
    assert!(RealDisk.lock(&lock).unwrap().is_some(), "its owner gives it back");
}

#[test]
fn a_shared_lock_has_any_number_of_holders_and_keeps_others_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("LOCK");
    assert_eq!(RealDisk.lock_shared(&path).err().unwrap().kind(), io::ErrorKind::NotFound);
    drop(RealDisk.lock(&path).unwrap().unwrap());
    let one = RealDisk.lock_shared(&path).unwrap().unwrap();
    let other = RealDisk.lock_shared(&path).unwrap().unwrap();
    assert!(RealDisk.lock(&path).unwrap().is_none());
    drop(one);
    assert!(RealDisk.lock(&path).unwrap().is_none());
    drop(other);
    let exclusive = RealDisk.lock(&path).unwrap().unwrap();
    assert!(RealDisk.lock_shared(&path).unwrap().is_none());
    drop(exclusive);
    assert!(RealDisk.lock_shared(&path).unwrap().is_some());
}

/// A hole in the middle and one at the end, on a file system that knows them; the last byte before the first is data in
/// any case.
#[test]
fn data_is_found_behind_holes() {
    const MIB: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
    for place in [0, 5 * MIB] {
        file.write_all_at(&[1; 4096], place).unwrap();
    }
    file.set_len(9 * MIB).unwrap();
    assert_eq!(file.next_data(4095).unwrap(), Some(4095));
    let (middle, end) = (file.next_data(MIB).unwrap(), file.next_data(7 * MIB).unwrap());
    assert!(middle.is_some_and(|place| (MIB..=5 * MIB).contains(&place)), "{middle:?}");
    assert!(end.is_none_or(|place| place == 7 * MIB), "{end:?}");
    assert_eq!(middle == Some(5 * MIB), end.is_none(), "it knows both or none");
}

#[test]
fn reading_past_the_end_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
    file.allocate(0..4096).unwrap();
    assert_eq!(file.len().unwrap(), 4096);
    let mut buffer = [1; 8];
    file.read_exact_at(&mut buffer, 4088).unwrap();
    assert_eq!(buffer, [0; 8]);
    assert_eq!(file.read_exact_at(&mut buffer, 4090).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

const PIECE: usize = 64 * BLOCK_BYTES;

/// Bytes that begin where a block does, and words that do; each `shift` words behind it.
struct Memory {
    words: Vec<AtomicU64>,
    bytes: Vec<u8>,
    shift: usize,
}

impl Memory {
    fn new(bytes: usize, shift: usize) -> Memory {
        let words = (bytes + 2 * BLOCK_BYTES) / WORD_BYTES;
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Memory { words, bytes: vec![0; bytes + 2 * BLOCK_BYTES], shift: shift * WORD_BYTES }
    }

    fn begin(&self, address: usize) -> usize {
        address.next_multiple_of(BLOCK_BYTES) - address + self.shift
    }

    /// What `piece` says, the first `counts` words of it in two runs.
    fn gather(&mut self, piece: &[u8], counts: [usize; 2]) -> Parts<'_> {
        let (first, second) = (counts[0] * WORD_BYTES, (counts[0] + counts[1]) * WORD_BYTES);
        let begin = self.begin(self.words.as_ptr().addr()) / WORD_BYTES;
        let (words, _) = piece[..second].as_chunks::<WORD_BYTES>();
        for (place, word) in self.words[begin..].iter_mut().zip(words) {
            *place.get_mut() = u64::from_le_bytes(*word);
        }
        let here = self.begin(self.bytes.as_ptr().addr());
        let rest = piece.len() - second;
        self.bytes[here..here + rest].copy_from_slice(&piece[second..]);
        let run = |range: Range<usize>| {
            &self.words[begin + range.start / WORD_BYTES..begin + range.end / WORD_BYTES]
        };
        Parts { words: [run(0..first), run(first..second)], bytes: &self.bytes[here..here + rest] }
    }
}

/// Pieces of whole blocks and others, in memory that lies right or wrong, over what the cache has and not, are what was
/// written.
#[test]
fn a_stream_past_the_cache_is_read_by_all() {
    const BYTES: usize = 3 << 20;
    const WORDS: usize = BLOCK_BYTES / WORD_BYTES;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    file.allocate(0..BYTES as u64).unwrap();
    let mut expected = vec![0; BYTES];
    for (round, (first, shift)) in
        [(0, 0), (64, 0), (0, 1), (5000, 0), (BLOCK_BYTES, 0)].into_iter().enumerate()
    {
        let mut memory = Memory::new(BYTES, shift);
        let mut offset = first;
        let pieces = [
            (BLOCK_BYTES, [0, 0]),
            (64 * BLOCK_BYTES, [20 * WORDS, 43 * WORDS]),
            (2 * BLOCK_BYTES, [WORDS, 0]),
            (1 << 20, [100 * WORDS, 3]),
            (2 * BLOCK_BYTES - 1, [0, WORDS]),
            (7, [0, 0]),
            (16 * BLOCK_BYTES, [16 * WORDS, 0]),
            (500_000, [5, 6]),
        ];
        for (number, (length, counts)) in pieces.into_iter().enumerate() {
            let piece: Vec<u8> = (0..length).map(|at| (at + number * 31 + round * 7) as u8).collect();
            file.stream_at(memory.gather(&piece, counts), offset as u64).unwrap();
            expected[offset..offset + length].copy_from_slice(&piece);
            if number % 2 == 0 {
                // Into the cache, as a backup does.
                let mut some = vec![0; 1000];
                file.read_exact_at(&mut some, (offset + length / 2) as u64).unwrap();
                assert_eq!(some, expected[offset + length / 2..][..1000]);
            }
            // As a log does, again the last block.
            offset += (length / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
            let piece: Vec<u8> = piece.iter().map(|byte| byte ^ 0x55).collect();
            file.write_parts_at(memory.gather(&piece, counts), 0).unwrap();
            expected[..length].copy_from_slice(&piece);
        }
        file.sync().unwrap();
        assert!(fs::read(&path).unwrap() == expected, "round {round}");
    }
    assert_eq!(file.len().unwrap(), BYTES as u64);
}

#[test]
fn a_stream_goes_through_the_cache_where_there_is_no_way_past_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let opened = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let file = RealFile { file: opened, owner: Owner::here(), past_cache: PastCache::none() };
    let (piece, mut memory) = ([7; PIECE], Memory::new(PIECE, 0));
    let parts = memory.gather(&piece, [PIECE / WORD_BYTES, 0]);
    file.stream_at(parts, 0).unwrap();
    assert!(fs::read(&path).unwrap() == piece);

    // What cannot be written is said.
    let read_only = File::open(&path).unwrap();
    let file = RealFile { file: read_only, owner: Owner::here(), past_cache: PastCache::none() };
    assert!(file.stream_at(parts, 0).is_err());
}

/// Each segment of a log kept a second descriptor for as long as it was part of the log.
#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_stream_gives_its_descriptor_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    let descriptors = || {
        let all =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        all.filter(|target| *target == path).count()
    };
    let (piece, mut memory) = ([7; PIECE], Memory::new(PIECE, 0));
    for offset in [0, PIECE as u64] {
        // There may be no way past the cache.
        file.stream_at(memory.gather(&piece, [PIECE / WORD_BYTES, 0]), offset).unwrap();
        assert!((1..=2).contains(&descriptors()));
        file.end_stream();
        file.end_stream();
        assert_eq!(descriptors(), 1);
    }
    assert_eq!(fs::read(&path).unwrap(), [7; 2 * PIECE]);
}

/// A second descriptor, by which the stream goes, must not give what the first was not opened for.
#[test]
fn what_is_open_to_be_read_takes_no_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![1; PIECE]).unwrap();
    let (piece, mut memory) = ([7; PIECE], Memory::new(PIECE, 0));
    let file = RealDisk.open(&path, OpenMode::Read).unwrap();
    let result = file.stream_at(memory.gather(&piece, [0, 0]), 0);
    assert!(fs::read(&path).unwrap() == vec![1; PIECE], "{result:?}");
    assert!(result.is_err());
}

/// Parts are what they were, however they are divided.
#[test]
fn parts_are_divided_at_any_word_and_behind_the_words_at_any_byte() {
    let piece: Vec<u8> = (0..100).collect();
    let mut memory = Memory::new(piece.len(), 3);
    let whole = memory.gather(&piece, [4, 5]);
    assert_eq!((whole.len(), whole.to_vec()), (piece.len(), piece.clone()));
    for place in (0..72).step_by(WORD_BYTES).chain(72..=100) {
        let (before, behind) = whole.split_at(place);
        assert_eq!((before.to_vec(), behind.to_vec()), (piece[..place].to_vec(), piece[place..].to_vec()));
    }
    assert!(whole.split_at(100).1.is_empty());
    assert!(are_blocks(Parts { words: [&[], &[]], bytes: &[] }));
}

/// Of a file system that takes less than is asked for: whole blocks count, parts of one are written again, and where
/// nothing more than a part of one is taken the rest is left to the cache.
#[test]
fn blocks_that_are_written_in_part_end() {
    let blocks = 8 * BLOCK_BYTES;
    let write = |counts: &[usize]| {
        let (mut counts, mut asked) = (counts.iter(), Vec::new());
        let done = write_blocks(blocks, |done| {
            asked.push(done / BLOCK_BYTES);
            assert!(asked.len() < 100, "it does not end");
            Ok(*counts.next().unwrap_or(&(BLOCK_BYTES / 4)))
        });
        (done.unwrap() / BLOCK_BYTES, asked)
    };
    assert_eq!(write(&[8 * BLOCK_BYTES]), (8, vec![0]));
    assert_eq!(write(&[3 * BLOCK_BYTES + 100, 5 * BLOCK_BYTES]), (8, vec![0, 3]));
    assert_eq!(write(&[2 * BLOCK_BYTES + 100, 100]), (2, vec![0, 2]));
    assert_eq!(write(&[0]), (0, vec![0]));
    assert_eq!(write(&[]), (0, vec![0]));

    let refused = |errno: Errno| write_blocks(blocks, |_| Err(errno.into())).map_err(|error| error.kind());
    assert_eq!(refused(Errno::INVAL), Ok(0));
    assert_eq!(refused(Errno::NOSPC), Err(io::ErrorKind::StorageFull));
}
