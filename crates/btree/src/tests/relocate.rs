//! Nodes that move, and leaves that are merged, by a compaction. BTREE-2, BTREE-6, BTREE-10.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{PageId, SlotIndex, TableId, TxnId};
use foreshore_env::{
    random::Xorshift,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use foreshore_pages::FREE_IN_USE;
use foreshore_wal::Urgency;

use super::support::{LATCH_MODES, Locking, Rig, lock_manager, scan};
use crate::node::Target;
use crate::{BTree, Direction, Isolation, NoLocks, Reaped, Relocated, Session, VerifyReport, record};

/// Compacts both trees of the rig to so many pages, but for their roots; gives how many pages moved.
pub(super) fn compact(rig: &Rig, session: &impl Session, pages: u64) -> usize {
    for tree in [&rig.tree, &rig.overflow] {
        let mut from = None;
        while let Some(next) = tree.condense(session, from.as_deref(), 7).unwrap().next {
            from = Some(next);
        }
    }
    let Some(mut compaction) = rig.env.pool.begin_compaction(pages) else { return 0 };
    let mut moved = 0;
    for page in compaction.pages_above().unwrap() {
        let trees =
            [&rig.tree, &rig.overflow].map(|tree| tree.relocate(session, &mut compaction, page).unwrap());
        moved += trees.iter().filter(|relocated| matches!(relocated, Relocated::To(_))).count();
    }
    let end = compaction.choose_end().unwrap();
    // No checkpoint in between: nothing crashes here, and images of pages would leave out what redo is compared with.
    compaction.cut(end).unwrap();
    moved
}

fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

fn filled(rig: &Rig, rows: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut session = NoLocks::new(TxnId(1));
    for row in 0..rows {
        rig.tree.insert(&mut session, &key(row), &[row as u8; 200]).unwrap();
    }
    for row in (0..rows).filter(|row| row % 8 != 0) {
        rig.tree.delete(&mut session, &key(row)).unwrap();
    }
    // The last ghost of each leaf is left to whoever comes next.
    (0..rows).for_each(|row| rig.maintain(&mut session, &key(row)));
    rig.contents()
}

#[test]
fn nodes_move_to_the_front_and_redo_finds_them_there() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(4, 2048, mode);
        let content = filled(&rig, 1200);
        let before = rig.verify();
        let length = rig.env.pool.page_count();
        let moved = compact(&rig, &NoLocks::new(TxnId(1)), rig.env.pool.least_page_count().unwrap());
        assert!(moved > 20, "{moved} moved");
        assert!(rig.env.pool.page_count() * 2 < length, "{length} to {}", rig.env.pool.page_count());
        assert!(rig.contents() == content);
        let report = rig.verify();
        assert!(report.records == before.records && report.pages <= before.pages, "{report:?}");
        let redone = rig.redone("db/redone", 4);
        assert_eq!(redone.verify(), report);
        for page in rig.pages() {
            assert!(rig.page(page).0 == redone.page(page).0, "page {page} differs after redo");
        }
        assert!(redone.contents() == content);
    }
}

/// What was sparse is dense: two neighbours that fit one page are one.
#[test]
fn leaves_that_fit_one_page_are_merged() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    for row in 0..4000 {
        rig.tree.insert(&mut session, &key(row), &[row as u8; 100]).unwrap();
    }
    // Three fifths of each leaf: what is left is too much for those who tidy as they pass.
    for row in (0..4000).filter(|row| row % 5 > 1) {
        rig.tree.delete(&mut session, &key(row)).unwrap();
    }
    let before = rig.verify();
    let condensed = rig.tree.condense(&session, None, usize::MAX).unwrap();
    let after = rig.verify();
    assert!(condensed.next.is_none() && condensed.merged > 20, "{condensed:?}");
    let leaves = |report: VerifyReport| report.pages - report.inner_pages;
    assert_eq!(leaves(before) - leaves(after), condensed.merged);
    assert_eq!((after.records, after.ghosts), (1600, 0));
    assert!(after.pages * 10 < before.pages * 7, "{} pages of {}", after.pages, before.pages);
    assert_eq!(rig.tree.condense(&session, None, usize::MAX).unwrap().merged, 0, "a second time");
}

/// Of every second record, or of two in five, no two leaves fit one page: a compaction left all of them as they were.
#[test]
fn leaves_that_do_not_fit_one_page_are_refilled() {
    for (node_capacity, part, kept, tenths) in
        [(usize::MAX, 2, 1, 7), (usize::MAX, 5, 3, 8), (40, 2, 1, 7), (usize::MAX, 10, 8, 10)]
    {
        let rig = Rig::with_frames(node_capacity, 2048);
        let mut session = NoLocks::new(TxnId(1));
        for row in 0..6000 {
            rig.tree.insert(&mut session, &key(row), &vec![row as u8; 60 + row as usize % 90]).unwrap();
        }
        for row in (0..6000).filter(|row| row % part >= kept) {
            rig.tree.delete(&mut session, &key(row)).unwrap();
        }
        let (before, content) = (rig.verify(), rig.contents());
        let condensed = rig.tree.condense(&session, None, usize::MAX).unwrap();
        let after = rig.verify();
        println!("{node_capacity}, {kept} of {part}: {condensed:?}, {before:?}, {after:?}");
        let leaves = |report: &VerifyReport| report.pages - report.inner_pages;
        assert_eq!(leaves(&before) - leaves(&after), condensed.merged);
        assert!(leaves(&after) * 10 <= leaves(&before) * tenths, "{after:?} of {before:?}");
        assert!(rig.contents() == content);
        // Small inner nodes are tidied behind the walk: who was the last child of one has a neighbour then.
        let again = rig.tree.condense(&session, None, usize::MAX).unwrap().merged;
        assert!(again <= u64::from(node_capacity < usize::MAX) * 4, "{again} a second time");
        let after = rig.verify();
        let redone = rig.redone("db/redone", 4);
        assert_eq!(redone.verify(), after);
        assert!(redone.contents() == content);
    }
}

/// Two leaves whose records would fit one page, but not their fences, or not with what their keys have in common there,
/// were neither merged nor refilled.
#[test]
fn leaves_that_do_not_fit_one_page_with_its_fences_are_refilled() {
    for length in [40, 120, 300] {
        let rig = Rig::with_frames(usize::MAX, 2048);
        let mut session = NoLocks::new(TxnId(1));
        // Nothing in common but by chance.
        let key = |row: u64| {
            let head = row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            head.into_iter().cycle().take(length).collect::<Vec<u8>>()
        };
        for row in 0..3000 {
            rig.tree.insert(&mut session, &key(row), &[row as u8; 20]).unwrap();
        }
        rig.tree.condense(&session, None, usize::MAX).unwrap();
        for row in (0..3000).filter(|row| row % 2 > 0) {
            rig.tree.delete(&mut session, &key(row)).unwrap();
        }
        let (before, content) = (rig.verify(), rig.contents());
        rig.tree.condense(&session, None, usize::MAX).unwrap();
        let after = rig.verify();
        assert!(rig.contents() == content);
        let leaves = |report: &VerifyReport| report.pages - report.inner_pages;
        assert!(leaves(&after) * 100 <= leaves(&before) * 52, "{length}: {after:?} of {before:?}");
    }
}

/// A crash between a cut and its merge leaves a leaf more, which the next compaction merges.
#[test]
fn a_leaf_that_was_cut_and_not_merged_is_merged_later() {
    let rig = Rig::new(usize::MAX);
    let mut session = NoLocks::new(TxnId(1));
    for row in 0..500 {
        rig.tree.insert(&mut session, &key(row), &[row as u8; 100]).unwrap();
    }
    for row in (0..500).filter(|row| row % 2 > 0) {
        rig.tree.delete(&mut session, &key(row)).unwrap();
        rig.maintain(&mut session, &key(row));
    }
    let (before, content) = (rig.verify(), rig.contents());
    assert!(rig.tree.tree().cut_for_refill(&session, Target::First).unwrap());
    assert_eq!(rig.verify().pages, before.pages + 1);
    let redone = rig.redone("db/redone", usize::MAX);
    assert_eq!(redone.verify(), rig.verify());
    assert!(redone.contents() == content);
    let condensed = redone.tree.condense(&session, None, usize::MAX).unwrap();
    assert_eq!(redone.verify().pages + condensed.merged, before.pages + 1);
    assert!(redone.contents() == content);
    assert!(condensed.merged > 1, "{condensed:?} {before:?} {:?}", redone.verify());
}

/// A gap that a transaction has found empty stays so, whatever borders come and go. BTREE-8.
#[test]
fn what_was_found_absent_stays_so_when_leaves_are_refilled() {
    let rig = Rig::new(usize::MAX);
    let manager = lock_manager();
    let mut session = NoLocks::new(TxnId(1));
    for row in 0..2000 {
        rig.tree.insert(&mut session, &key(row), &[row as u8; 100]).unwrap();
    }
    let odd = || (0..2000).filter(|row| row % 2 > 0);
    for row in odd() {
        rig.tree.delete(&mut session, &key(row)).unwrap();
    }
    (0..2000).for_each(|row| rig.maintain(&mut session, &key(row)));
    let mut reader = Locking::begin(&manager, 2);
    for row in odd() {
        let found = rig.tree.get(&mut reader, &key(row), Isolation::Serializable, |_| ()).unwrap();
        assert_eq!(found, None);
    }
    let before = rig.verify();
    rig.tree.condense(&Locking::begin(&manager, 3), None, usize::MAX).unwrap();
    assert!(rig.verify().pages < before.pages);
    for row in odd() {
        let mut writer = Locking::begin(&manager, 4 + row);
        writer.no_wait = true;
        assert!(rig.tree.insert(&mut writer, &key(row), b"new").is_err(), "row {row}");
    }
}

#[test]
fn a_root_moves_with_the_row_that_names_it() {
    let rig = Rig::new(4);
    let mut session = NoLocks::new(TxnId(1));
    // Of a tree that is made last, behind others.
    filled(&rig, 600);
    let last = BTree::create(&rig.env, TableId(77)).unwrap();
    for row in 0..50 {
        last.insert(&mut session, &key(row), b"row").unwrap();
        rig.overflow.insert(&mut session, &key(row), &[9; 20]).unwrap();
    }
    let row = [&b"abc"[..], &last.root().0.to_le_bytes(), b"rest"].concat();
    rig.overflow.insert(&mut session, b"name", &row).unwrap();
    let (old, clone) = (last.root(), last.clone());
    let mut compaction = rig.env.pool.begin_compaction(64).unwrap();
    assert_eq!(last.relocate(&session, &mut compaction, old).unwrap(), Relocated::Root);
    let wrong = last.relocate_root(&session, &mut compaction, (&rig.overflow, b"name", 2));
    assert!(wrong.is_err_and(|error| error.to_string().contains("does not name the root")));
    let moved = last.relocate_root(&session, &mut compaction, (&rig.overflow, b"name", 3)).unwrap();
    let Relocated::To(new) = moved else { panic!("{moved:?}") };
    drop(compaction);
    assert!(new < old && clone.root() == new);
    let mut value = Vec::new();
    rig.overflow.get(&mut session, b"name", Isolation::Serializable, |row| value = row.to_vec()).unwrap();
    assert_eq!(value, [&b"abc"[..], &new.0.to_le_bytes(), b"rest"].concat());
    let whole = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(scan(&clone, &mut session, whole, Direction::Ascending).unwrap().len(), 50);
    let mut pages = Vec::new();
    last.pages(&mut |page| pages.push(page)).unwrap();
    assert!(pages.contains(&new) && !pages.contains(&old) && !rig.env.pool.is_allocated(old).unwrap());
    let redone = rig.redone("db/redone", 4);
    for page in pages.into_iter().chain(rig.pages()) {
        assert!(rig.page(page).0 == redone.page(page).0, "page {page} differs after redo");
    }
}

#[test]
fn pages_that_are_none_of_the_tree_do_not_move() {
    let rig = Rig::new(4);
    filled(&rig, 600);
    let session = NoLocks::new(TxnId(1));
    let free = (64..rig.env.pool.page_count() as u32)
        .map(PageId)
        .find(|page| !rig.env.pool.is_allocated(*page).unwrap())
        .unwrap();
    let others = rig.pages();
    let mut compaction = rig.env.pool.begin_compaction(64).unwrap();
    assert_eq!(rig.tree.relocate(&session, &mut compaction, free).unwrap(), Relocated::NotFound);
    for page in others {
        let of_this = rig.tree.relocate(&session, &mut compaction, page).unwrap();
        let moved = matches!(of_this, Relocated::To(_));
        if moved {
            assert_eq!(
                rig.tree.relocate(&session, &mut compaction, page).unwrap(),
                Relocated::NotFound,
                "twice"
            );
        }
    }
    drop(compaction);
    rig.verify();
}

/// Readers and writers of a tree whose nodes move all the time.
#[test]
fn a_tree_is_used_while_its_nodes_move() {
    for mode in LATCH_MODES {
        let rig = Rig::with_mode(5, 2048, mode);
        const ROWS: u64 = 600;
        let mut session = NoLocks::new(TxnId(1));
        // A tree in front of it, whose pages become free little by little.
        let front = BTree::create(&rig.env, TableId(78)).unwrap();
        for row in 0..ROWS {
            front.insert(&mut session, &key(row), b"row").unwrap();
        }
        let ceiling = rig.env.pool.page_count();
        for row in 0..ROWS {
            rig.tree.insert(&mut session, &key(row), &row.to_le_bytes()).unwrap();
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let users: Vec<_> = (0..3)
                .map(|user| {
                    let (rig, done) = (&rig, &done);
                    scope.spawn(move || {
                        let (mut random, mut session) =
                            (Xorshift::new(user + 1), NoLocks::new(TxnId(user + 2)));
                        let mut rounds = 0;
                        while !done.load(Ordering::Relaxed) || rounds < 200 {
                            rounds += 1;
                            // Of keys that only this thread changes.
                            let row = random.below(ROWS / 3) * 3 + user;
                            let read = |session: &mut NoLocks| {
                                rig.tree
                                    .get(session, &key(row), Isolation::Serializable, <[u8]>::to_vec)
                                    .unwrap()
                            };
                            assert!(rig.tree.delete(&mut session, &key(row)).unwrap());
                            assert_eq!(read(&mut session), None);
                            assert!(rig.tree.insert(&mut session, &key(row), &row.to_le_bytes()).unwrap());
                            assert_eq!(read(&mut session), Some(row.to_le_bytes().to_vec()));
                        }
                    })
                })
                .collect();
            let mut moved = 0;
            let mut reaped = Reaped::Page;
            while reaped == Reaped::Page {
                for _ in 0..8 {
                    reaped = front.reap(PageId::NONE).unwrap();
                }
                moved += compact(&rig, &NoLocks::new(TxnId(9)), ceiling);
            }
            done.store(true, Ordering::Relaxed);
            users.into_iter().for_each(|user| user.join().unwrap());
            assert!(moved > 60, "{moved} moved");
        });
        rig.verify();
        let content = rig.contents();
        assert_eq!(content.len() as u64, ROWS);
        assert!(content.values().zip(0..).all(|(value, row)| *value == u64::to_le_bytes(row)));
    }
}

/// The children of a node.
fn children(rig: &Rig, page: PageId) -> Vec<PageId> {
    let page = rig.env.pool.shared(page).unwrap();
    let view = page.view();
    if view.level() == 0 {
        return Vec::new();
    }
    let others = (0..view.slot_count()).map(|slot| view.child(SlotIndex(slot)));
    [view.leftmost_child()].into_iter().chain(others).collect()
}

/// A bitmap page with a right checksum that calls a node in use free: it is not overwritten, and whoever holds it as
/// the parent of what moves does not wait for itself.
#[test]
fn a_node_in_use_is_no_page_to_move_to() {
    for parent in [false, true] {
        let rig = Rig::new(4);
        let content = filled(&rig, 1200);
        let session = NoLocks::new(TxnId(1));
        let least = rig.env.pool.least_page_count().unwrap();
        let mut compaction = rig.env.pool.begin_compaction(least).unwrap();
        let above = compaction.pages_above().unwrap();
        let child = |page: PageId| children(&rig, page).into_iter().find(|child| above.contains(child));
        // The first page that is found free: the parent of what moves, which has just come there, or any leaf.
        let (free, from) = if parent {
            let inner = above.iter().copied().find(|page| child(*page).is_some()).unwrap();
            let moved = rig.tree.relocate(&session, &mut compaction, inner).unwrap();
            let Relocated::To(free) = moved else { panic!("{moved:?}") };
            (free, child(free).unwrap())
        } else {
            let mut leaves = Vec::new();
            rig.tree.pages(&mut |page| leaves.push(page)).unwrap();
            leaves.retain(|page| children(&rig, *page).is_empty());
            (leaves.into_iter().min().unwrap(), above[0])
        };
        drop(compaction);
        let lsn = rig.env.append_system(Urgency::Work, record::PURGE, &[]).unwrap();
        rig.env.pool.free_page(free).unwrap().commit(lsn);
        let mut compaction = rig.env.pool.begin_compaction(least).unwrap();
        let begun = Instant::now();
        let moved = rig.tree.relocate(&session, &mut compaction, from);
        let took = begun.elapsed();
        assert!(
            moved.is_err_and(|error| error.to_string().contains(FREE_IN_USE)),
            "page {free} was overwritten"
        );
        assert!(took < Duration::from_secs(5), "{took:?}");
        drop(compaction);
        assert!(rig.contents() == content);
    }
}
