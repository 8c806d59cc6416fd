//! Pages whose checksum is right and whose content is nonsense: errors, never a panic, an endless loop or an access
//! out of bounds.

use std::ops::Bound;

use foreshore_base::{PageId, SlotIndex, StorageError, TxnId, limits::PAGE_BYTES};
use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_pages::{NodeHeader, PageBuilder};
use proptest::prelude::*;

use super::support::Rig;
use crate::{Direction, Isolation, LockKind, NoLocks, TreeError, VerifyReport};

/// A tree of four levels.
fn rig() -> Rig {
    let rig = Rig::with_frames(4, 512);
    let mut session = NoLocks::new(TxnId(1));
    for number in 0..120_u8 {
        rig.tree.insert(&mut session, &[number, number], &[number; 9]).unwrap();
    }
    for number in (0..120_u8).step_by(5) {
        rig.tree.delete(&mut session, &[number, number]).unwrap();
    }
    assert!(rig.verify().levels > 3);
    rig
}

/// Everything a user can do. Errors are fine; what is checked is that it ends.
fn exercise(rig: &Rig) -> Vec<StorageError> {
    let mut session = NoLocks::new(TxnId(2));
    let mut errors = Vec::new();
    let mut note = |result: Result<bool, TreeError>| match result {
        Err(TreeError::Storage(error)) => errors.push(error),
        Err(TreeError::Lock(error)) => panic!("{error}"),
        Ok(_) => {}
    };
    let tree = &rig.tree;
    for number in (0..125_u8).step_by(3) {
        let key = [number, number];
        note(tree.get(&mut session, &key, Isolation::Serializable, |_| ()).map(|found| found.is_some()));
        note(tree.insert(&mut session, &[number, number + 1], b"new"));
        note(tree.put(&mut session, &key, &[1; 50]));
        note(tree.update(&mut session, &[number, number + 1], &[2; 5]));
        note(tree.delete(&mut session, &key));
        note(tree.maintain(&mut session, &key).map(|()| true));
    }
    for direction in [Direction::Ascending, Direction::Descending] {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = tree.cursor(all, direction, LockKind::Shared, Isolation::Serializable);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut given = 0;
        loop {
            match cursor.next(&mut session, &mut key, &mut value) {
                Ok(true) => given += 1,
                Ok(false) => break,
                Err(error) => {
                    note(Err(error));
                    break;
                }
            }
            assert!(given < 1_000_000, "a scan without end");
        }
    }
    note(tree.verify(&mut VerifyReport::default()).map(|()| true).map_err(TreeError::from));
    errors
}

/// Runs with a time limit: a hang is a failure, not a test that never ends.
fn in_time(rig: Rig) -> Vec<StorageError> {
    let rig = Arc::new(rig);
    let worker = thread::spawn({
        let rig = Arc::clone(&rig);
        move || exercise(&rig)
    });
    let deadline = Instant::now() + Duration::from_secs(120);
    while !worker.is_finished() {
        assert!(Instant::now() < deadline, "an operation on a damaged page hangs");
        thread::sleep(Duration::from_millis(1));
    }
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn write(rig: &Rig, page: PageId, offset: usize, bytes: &[u8]) {
    rig.env.pool.exclusive(page).unwrap().words().write(offset, bytes);
}

/// Pages by level, the root's first.
fn by_level(rig: &Rig) -> Vec<Vec<PageId>> {
    let mut levels = vec![Vec::new(); 8];
    rig.tree
        .pages(&mut |page| {
            let level = rig.env.pool.shared(page).unwrap().view().level();
            levels[usize::from(level)].push(page);
        })
        .unwrap();
    levels.retain(|level| !level.is_empty());
    levels.reverse();
    levels
}

const FOSTER: usize = 32;
const LEFTMOST: usize = 44;

/// Pointers to a page itself, to the root, to nothing, to a sibling, up, beyond the file, into another tree.
#[test]
fn bad_pointers_are_errors() {
    let probe = rig();
    let levels = by_level(&probe);
    let (root, inner, leaves) = (levels[0][0], levels[1][0], &levels[levels.len() - 1]);
    let targets = [
        root,
        inner,
        levels[1][1],
        levels[2][0],
        leaves[0],
        leaves[1],
        probe.overflow.root(),
        PageId::NONE,
        PageId(1),
        PageId(9_999),
        PageId(u32::MAX),
    ];
    for page in [root, inner, levels[2][0], leaves[0], leaves[3]] {
        for field in [FOSTER, LEFTMOST] {
            for target in targets {
                // The same steps give the same pages.
                let rig = rig();
                let before = rig.env.pool.shared(page).unwrap().words().u32(field);
                write(&rig, page, field, &target.0.to_le_bytes());
                let errors = in_time(rig);
                assert!(
                    before == target.0 || !errors.is_empty(),
                    "page {page}, field {field}, target {target}"
                );
            }
        }
    }
}

/// Two leaves that are each other's foster child.
#[test]
fn a_foster_loop_is_an_error() {
    let rig = rig();
    let levels = by_level(&rig);
    let leaves = &levels[levels.len() - 1];
    let (one, other) = (leaves[0], leaves[1]);
    write(&rig, one, FOSTER, &other.0.to_le_bytes());
    write(&rig, other, FOSTER, &one.0.to_le_bytes());
    assert!(in_time(rig).iter().all(|error| matches!(error, StorageError::Corrupted { .. })));
}

/// The same where the tree is taken apart, which goes to its last page: it would wait for a latch of its own.
#[test]
fn a_foster_loop_is_found_when_the_tree_is_taken_apart() {
    let rig = rig();
    let mut leaves = by_level(&rig).pop().unwrap();
    let at = leaves.iter().position(|&leaf| !rig.env.pool.shared(leaf).unwrap().view().ends_with_high());
    let (last, other) = (leaves.remove(at.unwrap()), leaves[0]);
    write(&rig, last, FOSTER, &other.0.to_le_bytes());
    write(&rig, other, FOSTER, &last.0.to_le_bytes());
    let error = rig.tree.reap(PageId::NONE).unwrap_err();
    assert!(error.to_string().contains("loop"), "{error}");
}

/// A leaf that is cut behind all of its records leaves out of their keys what the new fences share: of a key that does
/// not begin with it, the wrong bytes would be gone, and nobody told.
#[test]
fn a_wrong_first_byte_is_found_before_the_prefix_hides_it() {
    let rig = Rig::with_frames(8, 64);
    let mut session = NoLocks::new(TxnId(1));
    let mut insert = |number: u8| rig.tree.insert(&mut session, &[b'k', number], b"value");
    for number in 0..20 {
        insert(number).unwrap();
    }
    let last = {
        let mut leaves = by_level(&rig).pop().unwrap();
        leaves.retain(|&leaf| !rig.env.pool.shared(leaf).unwrap().view().ends_with_high());
        leaves[0]
    };
    let first = rig.env.pool.shared(last).unwrap().view().slot(SlotIndex(0)).offset();
    assert_eq!(rig.env.pool.shared(last).unwrap().words().u8(first), b'k');
    write(&rig, last, first, b"z");
    let errors: Vec<_> = (20..40).filter_map(|number| insert(number).err()).collect();
    assert!(
        matches!(errors[..], [TreeError::Storage(StorageError::Corrupted { .. }), ..]),
        "of 20 keys behind it nobody was told: {errors:?}"
    );
}

/// A prefix that the fences do not share: a key between them that does not begin with it is not there, and not another
/// one's record.
#[test]
fn a_prefix_that_is_not_common_gives_nobody_another_s_record() {
    let rig = Rig::with_frames(4, 256);
    let mut session = NoLocks::new(TxnId(1));
    for key in [
        b"aaa0", b"aaa1", b"aaa2", b"aaa3", b"aaa4", b"aaa5", b"aaa6", b"aaa7", b"aaa8", b"aab0", b"aab1",
        b"aab2", b"zzz1", b"zzz2", b"zzz3",
    ] {
        rig.tree.insert(&mut session, key, key).unwrap();
    }
    let leaves = by_level(&rig).pop().unwrap();
    let holds = |leaf: &PageId| rig.env.pool.shared(*leaf).unwrap().view().find(b"aab0").is_ok();
    let page = rig.env.pool.exclusive(leaves.into_iter().find(holds).unwrap()).unwrap();
    let (mut low, mut high) = (Vec::new(), Vec::new());
    page.view().low_fence(&mut low);
    page.view().high_fence(&mut high);
    assert!(low.starts_with(b"aa") && high == b"zzz1", "{low:?} {high:?}");
    let header = NodeHeader {
        table: page.view().table(),
        low: Some(&low),
        high: Some(b"aazz"),
        foster: page.view().foster_child(),
        ..NodeHeader::default()
    };
    let mut narrower = PageBuilder::new(&header).unwrap();
    narrower.push_all_from(page.view(), 0..page.view().slot_count()).unwrap();
    narrower.store(page.words());
    // The high key, where it is: what it was before.
    let at = PAGE_BYTES - low.len() - high.len();
    assert_eq!((page.words().u8(at), page.words().u8(at + 3)), (b'a', b'z'));
    page.words().write(at, &high);
    drop(page);
    let mut read =
        |key: &[u8]| rig.tree.get(&mut session, key, Isolation::Serializable, <[u8]>::to_vec).unwrap();
    assert_eq!((read(b"aab0"), read(b"bbb0"), read(b"mmb2")), (Some(b"aab0".to_vec()), None, None));
    assert!(!rig.tree.update(&mut session, b"bbb0", b"none").unwrap());
    assert!(!rig.tree.delete(&mut session, b"mmb2").unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes anywhere, but for page id and LSNs, which are checked when a page is read.
    #[test]
    fn any_bytes_are_survived(
        pages in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..3),
        edits in prop::collection::vec(
            (prop_oneof![16..48_usize, 56..400_usize, 7600..8192_usize], prop::collection::vec(any::<u8>(), 1..5)),
            1..6,
        ),
    ) {
        let rig = rig();
        let all: Vec<PageId> = by_level(&rig).concat();
        for (index, inner) in pages {
            // Inner pages are few, and matter more.
            let page = if inner { all[index.index(8)] } else { *index.get(&all) };
            for (offset, bytes) in &edits {
                let end = if *offset < 48 { 48 } else { 8192 };
                write(&rig, page, *offset, &bytes[..bytes.len().min(end - offset)]);
            }
        }
        in_time(rig);
    }
}
