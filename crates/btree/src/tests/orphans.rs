//! Foster children that nobody has adopted, as a crash between split and adoption leaves them; and leaves that are
//! found without a descent.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{PageId, SlotIndex, TableId, TxnId};
use foreshore_env::{
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::{KeyMode, KeyRef, LockError};
use foreshore_pages::RecordFlags;
use foreshore_wal::FIRST_LSN;

use super::support::{Rig, scan};
use crate::{
    Direction, Finger, Isolation, NoLocks, Session, TxnChain, VerifyReport, image::Outline, node, record,
};

const KEYS: u8 = 31;
/// What nobody may be held up for; half of what a fault in the pool would take.
const FAR: Duration = Duration::from_secs(30);

/// A tree of which the last thing in the log is the split of a leaf, not yet adopted.
struct Orphaned {
    rig: Rig,
    /// The leaf that was split.
    parent: PageId,
    contents: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn orphaned() -> Orphaned {
    let whole = Rig::new(4);
    let mut session = NoLocks::new(TxnId(1));
    for number in 0..KEYS {
        assert!(whole.tree.insert(&mut session, &[number * 7 % KEYS], &[number; 9]).unwrap());
    }
    let (mut reader, mut payload) = (whole.log.reader(FIRST_LSN), Vec::new());
    let mut splits = Vec::new();
    while let Some(header) = reader.next(&mut payload).unwrap() {
        splits.extend((header.kind == record::SPLIT).then_some(header.lsn));
    }
    for lsn in splits.into_iter().rev() {
        let until = |name: &str| whole.redone_until(&format!("db/{name}-{}", lsn.0), 4, lsn.advance(1));
        let rig = until("orphaned");
        let is_parent = |page: &PageId| {
            let page = rig.env.pool.shared(*page).unwrap();
            page.view().level() == 0 && page.view().foster_child().is_some()
        };
        if let Some(parent) = rig.pages().into_iter().find(is_parent) {
            // Reading is what adopts: from a tree of its own.
            return Orphaned { contents: until("model").contents(), rig, parent };
        }
    }
    panic!("no leaf was split");
}

impl Orphaned {
    fn outline(&self, page: PageId) -> Outline {
        Outline::of(self.rig.env.pool.shared(page).unwrap().view())
    }

    /// A key of the foster child.
    fn key(&self) -> Vec<u8> {
        let child = self.rig.env.pool.shared(self.outline(self.parent).foster).unwrap();
        node::key_of(child.view(), SlotIndex(0))
    }
}

/// Whoever comes through a foster child, reading or writing, leaves it adopted.
#[test]
fn a_foster_child_is_adopted_by_whoever_passes() {
    for way in 0..4 {
        let orphaned = orphaned();
        let (rig, key) = (&orphaned.rig, orphaned.key());
        assert_eq!(rig.verify().foster_children, 1);
        let mut session = NoLocks::new(TxnId(2));
        match way {
            0 => {
                let found = rig.tree.get(&mut session, &key, Isolation::Serializable, |_| ()).unwrap();
                assert!(found.is_some());
            }
            1 => assert!(rig.tree.put(&mut session, &key, &orphaned.contents[&key]).unwrap()),
            2 => rig.tree.maintain(&mut session, &key).unwrap(),
            _ => {
                let range = (Bound::Included(&key[..]), Bound::Unbounded);
                scan(&rig.tree, &mut session, range, Direction::Ascending).unwrap();
            }
        }
        assert_eq!(rig.verify().foster_children, 0, "way {way}");
        assert_eq!(rig.contents(), orphaned.contents);
    }
}

/// Whoever came by waited for the leaf, or had it read from the file, with its parent latched: nobody else came past.
#[test]
fn whoever_passes_waits_for_no_leaf_to_have_its_foster_child_adopted() {
    let orphaned = orphaned();
    let (rig, key) = (&orphaned.rig, orphaned.key());
    thread::scope(|scope| {
        // It can be read, but not changed.
        let leaf = rig.env.pool.shared(orphaned.parent).unwrap();
        let reader = scope.spawn(|| {
            rig.tree.get(&mut NoLocks::new(TxnId(2)), &key, Isolation::Serializable, |_| ()).unwrap()
        });
        let begun = Instant::now();
        while !reader.is_finished() && begun.elapsed() < FAR {
            thread::sleep(Duration::from_millis(1));
        }
        let waits = !reader.is_finished();
        drop(leaf);
        assert!(reader.join().unwrap().is_some());
        assert!(!waits);
    });
    assert_eq!(rig.verify().foster_children, 1);
    // The next to come has it adopted.
    rig.tree.maintain(&mut NoLocks::new(TxnId(3)), &key).unwrap();
    assert_eq!(rig.verify().foster_children, 0);
}

/// Whoever came by waited for room in the log with the leaf and its parent latched, and nobody else came past either.
#[test]
fn whoever_passes_waits_for_no_room_to_have_a_foster_child_adopted() {
    let orphaned = orphaned();
    let (rig, key) = (&orphaned.rig, orphaned.key());
    let read = || rig.tree.get(&mut NoLocks::new(TxnId(2)), &key, Isolation::Serializable, |_| ()).unwrap();
    assert!(rig.ends_without_room(FAR, || assert!(read().is_some())), "it waits");
    assert_eq!(rig.verify().foster_children, 1);
    // The next to come has it adopted.
    read();
    assert_eq!(rig.verify().foster_children, 0);
}

/// A leaf that goes to its left neighbour takes its foster child with it.
#[test]
fn a_foster_child_goes_with_a_merge_of_its_parent() {
    let orphaned = orphaned();
    let (rig, parent) = (&orphaned.rig, orphaned.outline(orphaned.parent));
    let low = parent.low.expect("a left neighbour");
    let own = |key: &[u8]| low.as_slice() <= key && parent.high.as_deref().is_none_or(|high| key < high);
    let mut session = NoLocks::new(TxnId(2));
    let mut contents = orphaned.contents.clone();
    let mut before = None;
    for key in orphaned.contents.keys() {
        if *key < low {
            before = Some(key);
        } else if own(key) {
            assert!(rig.tree.delete(&mut session, key).unwrap());
            contents.remove(key);
        }
    }
    assert!(contents.len() < orphaned.contents.len());
    rig.tree.condense(&session, before.map(Vec::as_slice), 1).unwrap();
    assert!(!rig.pages().contains(&orphaned.parent), "it is still there");
    rig.verify();
    assert_eq!(rig.contents(), contents);
}

/// A leaf whose chain goes on beyond the next separator, or ends before it, is damaged, also where no record lies
/// there.
#[test]
fn a_foster_child_outside_its_fences_is_damage() {
    let orphaned = orphaned();
    let (rig, parent) = (&orphaned.rig, orphaned.outline(orphaned.parent));
    let child = orphaned.outline(parent.foster);
    let (low, end) = (parent.low.clone().unwrap_or_default(), child.high.clone().unwrap());
    for border in [low, end.clone(), [&end[..], &[1]].concat()] {
        let empty = |page: PageId, outline: Outline| {
            rig.env.pool.exclusive(page).unwrap().edit().format(&outline.header()).unwrap();
        };
        empty(orphaned.parent, Outline { high: Some(border.clone()), ..parent.clone() });
        empty(parent.foster, Outline { low: Some(border.clone()), ..child.clone() });
        let error = rig.tree.verify(&mut VerifyReport::default()).unwrap_err();
        assert!(error.to_string().contains("foster child lies outside its fences"), "{border:?}: {error}");
    }
}

/// A session that takes any place for the one where it was last.
struct Misled {
    session: NoLocks,
    finger: Finger,
}

impl Session for Misled {
    fn acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<(), LockError> {
        self.session.acquire(table, key, mode)
    }

    fn try_acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError> {
        self.session.try_acquire(table, key, mode)
    }

    fn held(&self, table: TableId, key: KeyRef<'_>) -> Result<KeyMode, LockError> {
        self.session.held(table, key)
    }

    fn held_and_check(
        &self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(KeyMode, bool), LockError> {
        self.session.held_and_check(table, key, mode)
    }

    fn has_requests(&self, table: TableId, key: KeyRef<'_>) -> bool {
        self.session.has_requests(table, key)
    }

    fn finger(&self, _: TableId) -> Option<Finger> {
        Some(self.finger)
    }

    fn chain(&mut self) -> &mut TxnChain {
        self.session.chain()
    }
}

/// A finger is a hint: wherever it points, a write reaches the leaf of its key.
#[test]
fn a_finger_may_point_anywhere() {
    let rig = Rig::new(4);
    let mut model = BTreeMap::new();
    for number in 0..KEYS {
        rig.tree.insert(&mut NoLocks::new(TxnId(1)), &[number], &[0; 9]).unwrap();
        model.insert(vec![number], vec![0; 9]);
    }
    let beyond = PageId(rig.pages().into_iter().map(|page| page.0).max().unwrap() + 1);
    let pages = rig.pages().into_iter().chain([beyond]);
    for (leaf, slot) in pages.flat_map(|page| [0, 1, 3, u16::MAX].map(|slot| (page, slot))) {
        let finger = Finger { leaf, slot: SlotIndex(slot), found: None };
        let mut session = Misled { session: NoLocks::new(TxnId(2)), finger };
        for number in (0..KEYS).step_by(3) {
            let value = (leaf.0 ^ u32::from(slot)).to_le_bytes();
            assert!(rig.tree.put(&mut session, &[number], &value).unwrap());
            assert!(rig.tree.update(&mut session, &[number], &value).unwrap());
            model.insert(vec![number], value.to_vec());
        }
        assert_eq!(rig.contents(), model, "{finger:?}");
    }
    rig.verify();
}

/// A tree of all keys, and a leaf of it with fences on both sides.
fn with_bounded_leaf(writer: &mut NoLocks) -> (Rig, PageId) {
    let rig = Rig::new(4);
    for number in 0..KEYS {
        rig.tree.insert(writer, &[number], &[0; 9]).unwrap();
    }
    let is_bounded = |page: &PageId| {
        let outline = Outline::of(rig.env.pool.shared(*page).unwrap().view());
        outline.level == 0 && outline.low.is_some() && outline.high.is_some()
    };
    let leaf = rig.pages().into_iter().find(is_bounded).unwrap();
    (rig, leaf)
}

/// On a page that is damaged behind a right checksum the finger of an absent key may point to a record that lies beyond
/// the leaf's fences. A transaction that wrote its key changed that one, and readers, who descend, did not see it.
#[test]
fn a_finger_that_points_to_a_misplaced_record_does_not_move_its_key() {
    for beyond in [true, false] {
        let mut writer = NoLocks::new(TxnId(1));
        let (rig, leaf) = with_bounded_leaf(&mut writer);
        let mut page = rig.env.pool.exclusive(leaf).unwrap();
        let (slot, key) = match beyond {
            true => (SlotIndex(page.view().slot_count()), KEYS - 1),
            false => (SlotIndex(0), 0),
        };
        page.edit().insert(slot, &[key], &[0; 9], RecordFlags::default()).unwrap();
        drop(page);
        let finger = Finger { leaf, slot, found: None };
        let mut session = Misled { session: NoLocks::new(TxnId(2)), finger };
        assert!(rig.tree.put(&mut session, &[key], b"new").unwrap());
        let read =
            rig.tree.get(&mut writer, &[key], Isolation::Serializable, <[u8]>::to_vec).unwrap().unwrap();
        assert_eq!(read, b"new", "beyond the high fence: {beyond}");
        assert!(rig.tree.verify(&mut VerifyReport::default()).is_err());
    }
}

/// Nor is a new key added to the leaf behind such a record.
#[test]
fn a_finger_to_a_leaf_with_a_misplaced_record_does_not_bring_new_keys_there() {
    let mut writer = NoLocks::new(TxnId(1));
    let (rig, leaf) = with_bounded_leaf(&mut writer);
    let mut page = rig.env.pool.exclusive(leaf).unwrap();
    while page.view().slot_count() > 0 {
        page.edit().remove(SlotIndex(0));
    }
    page.edit().insert(SlotIndex(0), &[0], &[0; 9], RecordFlags::default()).unwrap();
    drop(page);
    let finger = Finger { leaf, slot: SlotIndex(0), found: None };
    let mut session = Misled { session: NoLocks::new(TxnId(2)), finger };
    assert!(rig.tree.insert(&mut session, &[0, 1], b"new").unwrap());
    let read = rig.tree.get(&mut writer, &[0, 1], Isolation::Serializable, <[u8]>::to_vec).unwrap();
    assert_eq!(read.as_deref(), Some(&b"new"[..]));
}
