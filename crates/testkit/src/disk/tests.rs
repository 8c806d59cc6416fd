use std::{collections::HashSet, time::Duration};

use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode},
    thread,
};

use super::*;

const MODES: [CrashMode; 4] =
    [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::SubsetRandom(7), CrashMode::TornRandom(7)];

fn path(name: &str) -> PathBuf {
    PathBuf::from("/db").join(name)
}

/// A disk with a durable directory `/db`.
fn disk() -> FaultyDisk {
    let disk = FaultyDisk::new();
    disk.create_directory(Path::new("/db")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    disk
}

/// A durable file of `length` bytes of `fill`.
fn file(disk: &FaultyDisk, name: &str, fill: u8, length: usize) -> Arc<dyn DiskFile> {
    let file = disk.open(&path(name), OpenMode::CreateNew).unwrap();
    file.write_all_at(&vec![fill; length], 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory(Path::new("/db")).unwrap();
    file
}

#[test]
fn what_is_synced_survives_every_crash() {
    let disk = disk();
    file(&disk, "a", 1, 2000);
    for mode in MODES {
        assert_eq!(disk.after_crash(mode).read_file(&path("a")).unwrap(), vec![1; 2000]);
    }
}

#[test]
fn what_is_not_synced_is_lost_kept_or_torn_by_sector() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 8 * 512);
    handle.write_all_at(&[2; 8 * 512], 0).unwrap();
    let after = |mode| disk.after_crash(mode).read_file(&path("a")).unwrap();
    assert_eq!(after(CrashMode::DropUnsynced), vec![1; 8 * 512]);
    assert_eq!(after(CrashMode::KeepAll), vec![2; 8 * 512]);
    let mut mixed = 0;
    for seed in 0..64 {
        let bytes = after(CrashMode::TornRandom(seed));
        assert_eq!(bytes, after(CrashMode::TornRandom(seed)), "a seed gives one outcome");
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is never torn");
        }
        mixed += u32::from(bytes.contains(&1) && bytes.contains(&2));
    }
    assert!(mixed > 32, "{mixed}");
}

/// As one of its whole versions: what it was before, or behind one of the writes.
#[test]
fn a_block_is_there_as_a_whole_or_not_at_all() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 8 * BLOCK_BYTES);
    handle.write_all_at(&[2; 8 * BLOCK_BYTES], 0).unwrap();
    handle.write_all_at(&[3; 100], 5 * BLOCK_BYTES as u64).unwrap();
    let mut mixed = 0;
    for seed in 0..64 {
        let bytes = disk.after_crash(CrashMode::SubsetRandom(seed)).read_file(&path("a")).unwrap();
        for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let (first, rest) = block.split_at(100);
            let states = [(1, 1), (2, 2), (3, 2)];
            let states = if number == 5 { &states[..] } else { &states[..2] };
            assert!(states.contains(&(first[0], rest[0])), "block {number}, seed {seed}");
            assert!(first.iter().all(|&byte| byte == first[0]) && rest.iter().all(|&byte| byte == rest[0]));
        }
        mixed += u32::from(bytes.contains(&1) && bytes.contains(&2));
    }
    assert!(mixed > 32, "{mixed}");
}

/// Only its newest version came, or none: the kernel may have written any.
#[test]
fn an_older_version_of_a_block_may_be_what_survives() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 2 * BLOCK_BYTES);
    for fill in 2..=3 {
        handle.write_all_at(&[fill; 2 * BLOCK_BYTES], 0).unwrap();
    }
    let seen: HashSet<(u8, u8)> = (0..400)
        .map(|seed| disk.after_crash(CrashMode::SubsetRandom(seed)).read_file(&path("a")).unwrap())
        .map(|bytes| (bytes[0], bytes[BLOCK_BYTES]))
        .collect();
    assert_eq!(seen.len(), 9, "each block by itself: {seen:?}");
}

/// A sector is written so often that its first versions are forgotten. No block is made of what is left of them and of
/// others of that time.
#[test]
fn a_version_that_is_forgotten_tears_no_block() {
    let disk = disk();
    let handle = file(&disk, "a", 1, BLOCK_BYTES);
    handle.write_all_at(&[2; BLOCK_BYTES], 0).unwrap();
    for fill in 3..20 {
        handle.write_all_at(&[fill; 512], 0).unwrap();
    }
    let seen: HashSet<(u8, u8)> = (0..400)
        .map(|seed| disk.after_crash(CrashMode::SubsetRandom(seed)).read_file(&path("a")).unwrap())
        .map(|bytes| (bytes[0], bytes[512]))
        .collect();
    // The last one and four before it.
    let known = (15..20).map(|fill| (fill, 2));
    assert_eq!(seen, known.chain([(1, 1)]).collect::<HashSet<_>>());
}

#[test]
fn a_disk_that_lies_about_its_syncs_loses_what_it_promised() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 10);
    disk.lie_about_syncs(Some(Path::new("/elsewhere")));
    handle.write_all_at(&[2; 10], 0).unwrap();
    handle.sync().unwrap();
    disk.lie_about_syncs(Some(Path::new("/db")));
    handle.write_all_at(&[3; 10], 0).unwrap();
    handle.sync().unwrap();
    assert_eq!(disk.read_file(&path("a")).unwrap(), [3; 10]);
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).read_file(&path("a")).unwrap(), [2; 10]);
    assert_eq!(disk.after_crash(CrashMode::KeepAll).read_file(&path("a")).unwrap(), [3; 10]);
}

#[test]
fn an_older_version_of_a_sector_may_be_what_survives() {
    let disk = disk();
    let handle = file(&disk, "a", 0, 512);
    for fill in 1..=3 {
        handle.write_all_at(&[fill; 512], 0).unwrap();
    }
    let seen: HashSet<u8> = (0..200)
        .map(|seed| disk.after_crash(CrashMode::TornRandom(seed)).read_file(&path("a")).unwrap()[0])
        .collect();
    assert_eq!(seen, HashSet::from([0, 1, 2, 3]));
}

#[test]
fn lengths_are_part_of_what_is_lost() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 700);
    handle.set_len(100).unwrap();
    handle.set_len(900).unwrap();
    let mut expected = vec![1; 100];
    expected.resize(900, 0);
    assert_eq!(disk.read_file(&path("a")).unwrap(), expected);
    let after = |mode| disk.after_crash(mode).read_file(&path("a")).unwrap();
    assert_eq!(after(CrashMode::DropUnsynced), vec![1; 700]);
    assert_eq!(after(CrashMode::KeepAll), expected);
    handle.sync().unwrap();
    assert_eq!(after(CrashMode::DropUnsynced), expected);
}

#[test]
fn names_need_a_sync_of_their_directory_and_survive_in_order() {
    let disk = disk();
    file(&disk, "a", 1, 10);
    disk.open(&path("b"), OpenMode::CreateNew).unwrap().sync().unwrap();
    disk.rename(&path("a"), &path("c")).unwrap();
    disk.remove(&path("b")).unwrap();
    let names = |mode| {
        let mut names = disk.after_crash(mode).list(Path::new("/db")).unwrap();
        names.sort();
        names
    };
    assert_eq!(names(CrashMode::DropUnsynced), [path("a")]);
    assert_eq!(names(CrashMode::KeepAll), [path("c")]);
    let prefixes = [vec![path("a")], vec![path("a"), path("b")], vec![path("b"), path("c")], vec![path("c")]];
    let seen: HashSet<Vec<PathBuf>> = (0..100).map(|seed| names(CrashMode::TornRandom(seed))).collect();
    assert_eq!(seen, HashSet::from(prefixes));
    disk.sync_directory(Path::new("/db")).unwrap();
    assert_eq!(names(CrashMode::DropUnsynced), [path("c")]);
}

#[test]
fn a_rename_replaces_and_the_replaced_one_comes_back_if_it_is_undone() {
    let disk = disk();
    file(&disk, "a", 1, 10);
    file(&disk, "b", 2, 10);
    disk.rename(&path("a"), &path("b")).unwrap();
    assert_eq!(disk.read_file(&path("b")).unwrap(), [1; 10]);
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).read_file(&path("b")).unwrap(), [2; 10]);
    assert_eq!(disk.files(), [path("b")]);
}

#[test]
fn what_lies_in_a_lost_directory_is_lost() {
    let disk = FaultyDisk::new();
    disk.create_directory(Path::new("/db")).unwrap();
    file(&disk, "a", 1, 10);
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).files(), Vec::<PathBuf>::new());
    assert_eq!(disk.after_crash(CrashMode::KeepAll).files(), [path("a")]);
    assert!(disk.open(Path::new("/no/file"), OpenMode::CreateNew).is_err());
}

#[test]
fn the_power_fails_at_the_chosen_operation_and_stays_off() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 10);
    let so_far = disk.counts().operations;
    disk.crash_at(so_far + 2);
    handle.write_all_at(&[2; 10], 0).unwrap();
    handle.sync().unwrap_err();
    assert!(disk.is_crashed());
    handle.write_all_at(&[3; 10], 0).unwrap_err();
    handle.read_at(&mut [0], 0).unwrap_err();
    disk.open(&path("a"), OpenMode::Read).unwrap_err();
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).read_file(&path("a")).unwrap(), [1; 10]);
    assert_eq!(disk.after_crash(CrashMode::KeepAll).read_file(&path("a")).unwrap(), [2; 10]);
}

/// A sync took its picture when it ended, and what others wrote meanwhile was durable, too.
#[test]
fn a_sync_covers_nothing_that_is_written_while_it_lasts() {
    // On a busy machine it may begin later than what is to be written while it lasts: then it is given more time.
    let written_during_a_sync = |milliseconds| {
        let disk = disk();
        let handle = file(&disk, "a", 1, 2 * 512);
        handle.write_all_at(&[2; 2 * 512], 0).unwrap();
        disk.hold_syncs(true);
        thread::scope(|scope| {
            let sync = scope.spawn(|| handle.sync());
            thread::sleep(Duration::from_millis(milliseconds));
            handle.write_all_at(&[3; 512], 0).unwrap();
            handle.set_len(3 * 512).unwrap();
            disk.hold_syncs(false);
            sync.join().unwrap().unwrap();
        });
        let is_covered = disk.after_crash(CrashMode::DropUnsynced).read_file(&path("a")).unwrap()[0] == 3;
        (!is_covered).then_some(disk)
    };
    let disk = [100, 1000, 10_000].into_iter().find_map(written_during_a_sync);
    let disk = disk.expect("it covers what was written while it lasted, each time");
    let after = |mode| disk.after_crash(mode).read_file(&path("a")).unwrap();
    assert_eq!(after(CrashMode::DropUnsynced), [2; 2 * 512]);
    assert_eq!(after(CrashMode::KeepAll), [[3; 512], [2; 512], [0; 512]].concat());
    // What was there before the sync is not there again.
    let torn: HashSet<u8> = (0..200).map(|seed| after(CrashMode::TornRandom(seed))[0]).collect();
    assert_eq!(torn, HashSet::from([2, 3]));
}

/// Of two syncs that overlap, the one that began first may end last; the other has covered what it covers.
#[test]
fn syncs_that_overlap_take_nothing_back() {
    let mut content = Content::default();
    content.write(&[1; 512], 0);
    let first = content.begin_sync();
    content.write(&[2; 1024], 0);
    let second = content.begin_sync();
    content.end_sync(&second);
    content.end_sync(&first);
    let mut bytes = [0; 1024];
    let survivor = content.after_crash(CrashMode::DropUnsynced, &mut random_by(1));
    assert_eq!((survivor.read(&mut bytes, 0), bytes), (1024, [2; 1024]));
}

#[test]
fn a_failed_sync_may_have_saved_some() {
    let mut seen = [0; 3];
    for seed in 0..64 {
        let disk = disk();
        let handle = file(&disk, "a", 1, 8 * BLOCK_BYTES);
        handle.write_all_at(&[2; 8 * BLOCK_BYTES], 0).unwrap();
        disk.keep_some_of_failed_syncs(Some(seed));
        disk.fail_sync(disk.counts().syncs + 1);
        handle.sync().unwrap_err();
        handle.sync().unwrap();
        let bytes = disk.after_crash(CrashMode::KeepAll).read_file(&path("a")).unwrap();
        let new = bytes.chunks(BLOCK_BYTES).filter(|block| **block == [2; BLOCK_BYTES]).count();
        let old = bytes.chunks(BLOCK_BYTES).filter(|block| **block == [1; BLOCK_BYTES]).count();
        assert_eq!(new + old, 8, "whole blocks");
        seen[usize::from(old > 0) + usize::from(new == 0)] += 1;
    }
    assert!(seen.iter().all(|&count| count > 0), "all, some, none: {seen:?}");
}

#[test]
fn a_sync_fails_for_the_name_that_its_file_has_by_then() {
    let disk = disk();
    let [becomes, other] = ["a", "b"].map(|name| file(&disk, name, 1, 1024));
    disk.fail_next_sync_of("log");
    becomes.sync().unwrap();
    disk.rename(&path("a"), &path("a.log")).unwrap();
    other.sync().unwrap();
    becomes.sync().unwrap_err();
    becomes.sync().unwrap();
    disk.fail_next_sync_of("log");
    disk.fail_no_more();
    becomes.sync().unwrap();
    assert_eq!(disk.met().len(), 1);
}

#[test]
fn a_failed_sync_loses_what_it_should_have_saved() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 1024);
    handle.write_all_at(&[2; 512], 0).unwrap();
    disk.fail_sync(disk.counts().syncs + 1);
    handle.sync().unwrap_err();
    handle.write_all_at(&[3; 512], 512).unwrap();
    handle.sync().unwrap();
    assert_eq!(disk.read_file(&path("a")).unwrap()[..512], [2; 512], "the cache still shows it");
    for mode in MODES {
        let bytes = disk.after_crash(mode).read_file(&path("a")).unwrap();
        assert_eq!((bytes[0], bytes[512]), (1, 3), "{mode:?}");
    }
}

#[test]
fn space_runs_out_and_comes_back() {
    let disk = disk();
    disk.set_free_space(Some(2 * 4096));
    let handle = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    let error = handle.write_all_at(&[1; 3 * 4096], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(handle.len().unwrap(), 2 * 4096, "what fits is written");
    handle.write_all_at(&[2; 2 * 4096], 0).unwrap();
    disk.remove(&path("a")).unwrap();
    let other = disk.open(&path("b"), OpenMode::CreateNew).unwrap();
    assert_eq!(other.allocate(0..3 * 4096).unwrap_err().kind(), io::ErrorKind::StorageFull);
    other.set_len(0).unwrap();
    other.allocate(0..2 * 4096).unwrap();
    other.write_all_at(&[1; 2 * 4096], 0).unwrap();
    assert_eq!(other.write_all_at(&[1], 2 * 4096).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn space_taken_in_vain_comes_back() {
    let disk = disk();
    disk.set_free_space(Some(4 * 4096));
    let handle = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    handle.allocate(0..9 * 4096).unwrap_err();
    handle.allocate(0..4096).unwrap();
    let other = disk.open(&path("b"), OpenMode::CreateNew).unwrap();
    other.allocate(0..3 * 4096).unwrap();
    other.allocate(0..4 * 4096).unwrap_err();
}

#[test]
fn reads_can_be_short_and_can_fail() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 100);
    disk.set_longest_read(Some(3));
    assert_eq!(handle.read_at(&mut [0; 10], 95).unwrap(), 3);
    let mut whole = [0; 100];
    handle.read_exact_at(&mut whole, 0).unwrap();
    assert_eq!(whole, [1; 100]);
    disk.fail_reads(&path("a"), 50..51);
    handle.read_exact_at(&mut [0; 50], 0).unwrap();
    handle.read_exact_at(&mut [0; 51], 0).unwrap_err();
    disk.heal_reads();
    handle.read_exact_at(&mut whole, 0).unwrap();
}

#[test]
fn writes_can_fail_half_way() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 100);
    disk.fail_write(disk.counts().writes + 1);
    handle.write_all_at(&[2; 100], 0).unwrap_err();
    assert_eq!(disk.read_file(&path("a")).unwrap()[49..51], [2, 1]);
}

#[test]
fn bits_flip_on_the_platter_too() {
    let disk = disk();
    file(&disk, "a", 0, 10);
    disk.flip_bit(&path("a"), 3, 2);
    assert_eq!(disk.read_file(&path("a")).unwrap()[3], 4);
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).read_file(&path("a")).unwrap()[3], 4);
    disk.write_file(&path("a"), b"xyz").unwrap();
    disk.write_file(&path("new"), b"abc").unwrap();
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).read_file(&path("a")).unwrap(), b"xyz");
    assert_eq!(disk.after_crash(CrashMode::DropUnsynced).read_file(&path("new")).unwrap(), b"abc");
}

#[test]
fn a_lock_file_has_one_holder_and_a_crash_frees_it() {
    let disk = disk();
    let guard = disk.lock(&path("LOCK")).unwrap().unwrap();
    assert!(disk.lock(&path("LOCK")).unwrap().is_none());
    assert!(disk.after_crash(CrashMode::KeepAll).lock(&path("LOCK")).unwrap().is_some());
    drop(guard);
    assert!(disk.lock(&path("LOCK")).unwrap().is_some());
}

/// What was met is told, with its place; what was only threatened is not.
#[test]
fn faults_that_were_met_are_counted() {
    let disk = disk();
    let handle = file(&disk, "a", 1, 100);
    let counts = disk.counts();
    disk.fail_write(counts.writes + 1);
    disk.fail_read(counts.reads + 2);
    disk.fail_sync(counts.syncs + 1);
    handle.write_all_at(&[2; 100], 0).unwrap_err();
    handle.read_exact_at(&mut [0; 10], 0).unwrap();
    handle.read_exact_at(&mut [0; 10], 0).unwrap_err();
    handle.sync().unwrap_err();
    disk.set_longest_read(Some(5));
    handle.read_exact_at(&mut [0; 10], 90).unwrap();
    disk.set_longest_read(None);
    handle.read_at(&mut [0; 10], 95).unwrap();
    disk.set_free_space(Some(0));
    handle.allocate(0..1 << 20).unwrap_err();
    let a = path("a");
    let met = [Met::Full, Met::Write, Met::Read, Met::ShortRead, Met::Sync].map(|met| (met, a.clone(), 1));
    assert_eq!(disk.met(), met);
    disk.fail_write(disk.counts().writes + 1);
    disk.fail_no_more();
    handle.write_all_at(&[3; 100], 0).unwrap();
    disk.crash_at(disk.counts().operations + 1);
    handle.sync().unwrap_err();
    assert_eq!(disk.met().last(), Some(&(Met::Power, a, 1)));
}
