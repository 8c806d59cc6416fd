use std::collections::BTreeMap;

use foreshore_base::{
    PageId, SlotIndex, TableId,
    limits::{MAX_INLINE_VALUE_BYTES, MAX_KEY_BYTES, PAGE_BYTES},
};
use proptest::prelude::*;

use super::*;
use crate::{
    layout::{IMAGE_LSN, LOW_FENCE, PREFIX_LENGTH, SKIPPED, SLOT_COUNT, TABLE},
    words::{PageBuffer, PageWords},
};

fn node(low: Option<&[u8]>, high: Option<&[u8]>) -> PageWords {
    let words = PageWords::default();
    let header = NodeHeader { table: TableId(9), low, high, ..NodeHeader::default() };
    SlottedMut::new(&words).format(&header).unwrap();
    words
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, RecordFlags)>;

/// The page holds what the model holds, by every way of asking.
fn assert_same(words: &PageWords, model: &Model) {
    let view = SlottedView::new(words);
    view.inspect().unwrap();
    assert_eq!(usize::from(view.slot_count()), model.len());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for (index, (expected, (content, flags))) in model.iter().enumerate() {
        let slot = SlotIndex(index as u16);
        view.key_into(slot, &mut key);
        value.clear();
        view.value_into(slot, &mut value);
        assert_eq!((&key, &value, view.slot(slot).flags()), (expected, content, *flags));
        assert_eq!(view.find(expected), Ok(slot));
        assert_eq!(view.value_len(slot), content.len());
    }
    let all = 0..model.len() as u16;
    // What was copied before does not matter.
    let mut records = Records::default();
    for range in [all.clone(), all.end / 3..all.end - all.end / 3, all.end / 2..all.end, 0..0, all] {
        assert_copied(view, &range, &mut records, model);
    }
}

fn assert_copied(view: SlottedView<'_>, range: &std::ops::Range<u16>, records: &mut Records, model: &Model) {
    records.copy(view, range.clone());
    assert_eq!(records.len(), range.len());
    assert!(records.are_ordered());
    let mut any = RecordFlags::default();
    let mut key = Vec::new();
    for (record, (expected, (content, flags))) in
        model.iter().skip(range.start.into()).take(range.len()).enumerate()
    {
        records.key_into(record, &mut key);
        assert_eq!((&key, records.get(record).1, records.flags(record)), (expected, &content[..], *flags));
        any = RecordFlags { ghost: any.ghost | flags.ghost, overflow: any.overflow | flags.overflow };
    }
    assert_eq!(records.any(), any);
    assert_eq!(records.get(range.len()), (&[][..], &[][..]));
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>, bool),
    Remove(Vec<u8>),
    Ghost(Vec<u8>, bool),
    Trim(Vec<u8>),
    Patch(Vec<u8>, usize, Vec<u8>),
    Find(Vec<u8>),
    Compact,
}

/// Keys of few letters, so that they meet; some long. All begin with "k", so that they lie between "k" and "l".
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop::sample::select(&b"\0ab\xff"[..]), 0..6),
        1 => (prop::collection::vec(prop::sample::select(&b"ab"[..]), 0..3), 100..600_usize)
            .prop_map(|(mut key, length)| { key.resize(length, b'a'); key }),
    ]
    .prop_map(|mut key| {
        key.splice(0..0, *b"key");
        key
    })
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = |most: usize| prop::collection::vec(any::<u8>(), 0..most);
    let value = || prop_oneof![4 => bytes(40), 1 => bytes(900)];
    prop_oneof![
        6 => (key(), value(), any::<bool>()).prop_map(|(key, value, overflow)| Step::Put(key, value, overflow)),
        2 => key().prop_map(Step::Remove),
        2 => (key(), any::<bool>()).prop_map(|(key, ghost)| Step::Ghost(key, ghost)),
        1 => key().prop_map(Step::Trim),
        1 => (key(), 0..50_usize, value()).prop_map(|(key, at, bytes)| Step::Patch(key, at, bytes)),
        1 => key().prop_map(Step::Find),
        1 => Just(Step::Compact),
    ]
}

/// How long the value of a record can become where it lies.
fn capacity(view: SlottedView<'_>, slot: SlotIndex) -> usize {
    view.value_len(slot) + view.slack_of(view.slot(slot))
}

fn run(words: &PageWords, model: &mut Model, step: &Step) {
    let mut page = SlottedMut::new(words);
    let view = SlottedView::new(words);
    match step {
        Step::Put(key, value, overflow) => {
            let flags = RecordFlags { ghost: false, overflow: *overflow };
            let free = view.free_bytes();
            let kept = view.find(key).map_or(0, |slot| capacity(view, slot));
            let (outcome, needed) = match view.find(key) {
                Ok(slot) => (page.replace_value(slot, value, flags), value.len().saturating_sub(kept)),
                Err(slot) => {
                    let suffix = key.len() - view.prefix_len();
                    (page.insert(slot, key, value, flags), RECORD_OVERHEAD_BYTES + suffix + value.len())
                }
            };
            // Exactly when there is room it succeeds, however the room is scattered.
            assert_eq!(outcome.is_ok(), free >= needed, "{free} bytes free, {needed} needed");
            if outcome.is_ok() {
                model.insert(key.clone(), (value.clone(), flags));
                assert_eq!(capacity(view, view.find(key).unwrap()), value.len().max(kept));
            }
        }
        Step::Remove(key) => {
            let found = view.find(key);
            assert_eq!(found.is_ok(), model.remove(key).is_some());
            if let Ok(slot) = found {
                page.remove(slot);
            }
        }
        Step::Ghost(key, ghost) => {
            if let (Ok(slot), Some((_, flags))) = (view.find(key), model.get_mut(key)) {
                page.set_ghost(slot, *ghost);
                flags.ghost = *ghost;
            }
        }
        Step::Trim(key) => {
            if let Ok(slot) = view.find(key) {
                let (free, slack) = (view.free_bytes(), view.slack_of(view.slot(slot)));
                page.trim(slot);
                assert_eq!(view.free_bytes(), free + slack);
                assert_eq!(capacity(view, slot), model[key].0.len());
            }
        }
        Step::Patch(key, at, bytes) => {
            if let (Ok(slot), Some((value, _))) = (view.find(key), model.get_mut(key)) {
                page.patch_value(slot, *at, bytes);
                for (target, byte) in value.iter_mut().skip(*at).zip(bytes) {
                    *target = *byte;
                }
            }
        }
        Step::Find(key) => {
            let expected = model.keys().take_while(|other| *other < key).count() as u16;
            let found = view.find(key);
            assert_eq!(found.unwrap_or_else(|slot| slot), SlotIndex(expected));
            assert_eq!(found.is_ok(), model.contains_key(key));
            assert_eq!(view.find_from_end(key), found);
        }
        Step::Compact => page.compact(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_page_behaves_as_a_map(steps in prop::collection::vec(step(), 1..120), fenced in any::<bool>()) {
        let words = if fenced { node(Some(b"key"), Some(b"kez")) } else { node(None, None) };
        prop_assert_eq!(SlottedView::new(&words).prefix_len(), if fenced { 2 } else { 0 });
        let mut model = Model::new();
        for step in &steps {
            run(&words, &mut model, step);
            assert_same(&words, &model);
        }
    }

    /// Any record moves to any node that encloses it, whatever the two prefixes are.
    #[test]
    fn records_move_between_prefixes(
        keys in prop::collection::btree_set(key(), 1..8),
        slack in prop::sample::select(&[0_usize, 1, 2, 127, 128, 129, 255, 256, 300][..]),
    ) {
        let source = node(None, None);
        let mut model = Model::new();
        for key in &keys {
            run(&source, &mut model, &Step::Put(key.clone(), vec![7; slack + 1], false));
            run(&source, &mut model, &Step::Put(key.clone(), b"v".to_vec(), false));
        }
        let view = SlottedView::new(&source);
        let header = NodeHeader { low: Some(b"key"), high: Some(b"key\xff\xff\xff\xff\xff\xff"), ..NodeHeader::default() };
        let mut builder = PageBuilder::new(&header).unwrap();
        for slot in 0..view.slot_count() {
            builder.push_from(view, SlotIndex(slot)).unwrap();
        }
        let target = PageWords::default();
        target.set_page_id(PageId(3));
        let (count, free) = (builder.count(), builder.free_bytes());
        builder.store(&target);
        prop_assert_eq!(SlottedView::new(&target).prefix_len(), 3);
        prop_assert_eq!(SlottedView::new(&target).free_bytes(), free);
        prop_assert_eq!((target.page_id(), count), (PageId(3), model.len()));
        assert_same(&target, &model);
        for slot in view.slot_indices() {
            prop_assert_eq!(capacity(SlottedView::new(&target), slot), slack + 1);
        }
    }

    /// Records that are copied in pieces make the very page that they make one by one: what is redone is what was done.
    #[test]
    fn copies_in_pieces_are_the_same_page(
        steps in prop::collection::vec(step(), 1..60),
        fences in prop::sample::select(vec![
            (None, None),
            (Some(&b"key"[..]), None),
            (Some(&b"key"[..]), Some(&b"kez"[..])),
            (Some(&b"key"[..]), Some(&b"key\xff\xff\xff\xff\xff\xff"[..])),
        ]),
        from in prop::sample::select(vec![(None, None), (Some(&b"key"[..]), Some(&b"key\xff\xff\xff\xff\xff\xff"[..]))]),
    ) {
        let source = node(from.0, from.1);
        let mut model = Model::new();
        for step in &steps {
            run(&source, &mut model, step);
        }
        let view = SlottedView::new(&source);
        let header = NodeHeader { low: fences.0, high: fences.1, ..NodeHeader::default() };
        let pages = [PageWords::default(), PageWords::default()];
        let (mut one_by_one, mut in_pieces) = (PageBuilder::new(&header).unwrap(), PageBuilder::new(&header).unwrap());
        let pushed = (0..view.slot_count()).try_for_each(|slot| one_by_one.push_from(view, SlotIndex(slot)));
        prop_assert_eq!(in_pieces.push_all_from(view, 0..view.slot_count()), pushed);
        one_by_one.store(&pages[0]);
        in_pieces.store(&pages[1]);
        prop_assert!(pages[0].snapshot().0 == pages[1].snapshot().0);
    }

    /// Records that are appended together make the very page that they make one by one: whatever is there of the page
    /// before, and however few of them fit.
    #[test]
    fn appended_records_make_the_same_page(
        steps in prop::collection::vec(step(), 0..60),
        fenced in any::<bool>(),
        more in prop::collection::btree_map(key(), (prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 0..40),
    ) {
        let fences = if fenced { (Some(&b"key"[..]), Some(&b"kez"[..])) } else { (None, None) };
        let [together, each] = [node(fences.0, fences.1), node(fences.0, fences.1)];
        let mut model = Model::new();
        for step in &steps {
            run(&together, &mut model, step);
        }
        each.load_from(&together.snapshot().0);
        let before = together.snapshot();
        let view = SlottedView::new(&together);
        let last = model.last_key_value().map(|(key, _)| key.clone());
        let more: Vec<_> = more
            .iter()
            .filter(|(key, _)| last.as_ref().is_none_or(|last| *key > last))
            .map(|(key, (value, overflow))| (&key[..], &value[..], RecordFlags { ghost: false, overflow: *overflow }))
            .collect();
        let bytes = |(key, value, _): &(&[u8], &[u8], _)| RECORD_OVERHEAD_BYTES + key.len() + value.len();
        let in_one_piece = view.room().1 >= more.iter().map(bytes).sum();
        let done = SlottedMut::new(&together).append(more.iter().copied());
        let one_by_one = more.iter().try_for_each(|(key, value, flags)| {
            SlottedMut::new(&each).insert(SlotIndex(SlottedView::new(&each).slot_count()), key, value, *flags)
        });
        prop_assert_eq!(done, one_by_one);
        if done.is_err() {
            prop_assert!(together.snapshot().0 == before.0);
            return Ok(());
        }
        model.extend(more.iter().map(|(key, value, flags)| (key.to_vec(), (value.to_vec(), *flags))));
        assert_same(&together, &model);
        prop_assert!(!in_one_piece || together.snapshot().0 == each.snapshot().0);
    }

    /// PAGE-2: a page of random bytes, of random bytes under a plausible header, and a good page with damage: every
    /// reader's question and every edit ends, and stays inside.
    #[test]
    fn hostile_bytes_give_nonsense_and_nothing_worse(
        seed in any::<u64>(),
        plausible in 0..3_u8,
        probes in prop::collection::vec((key(), any::<u16>()), 1..12),
    ) {
        let mut random = foreshore_env::random::Xorshift::new(seed);
        let mut page = PageBuffer::boxed();
        page.0.as_chunks_mut::<8>().0.iter_mut().for_each(|chunk| *chunk = random.next_u64().to_le_bytes());
        let words = PageWords::default();
        words.load_from(&page.0);
        match plausible {
            0 => {}
            1 => {
                words.set_u16(SLOT_COUNT, random.below(300) as u16);
                words.set_u16(PREFIX_LENGTH, random.below(4) as u16);
                words.set_u32(LOW_FENCE, 8000 | 4 << 16);
            }
            _ => {
                let good = node(Some(b"key"), Some(b"kez"));
                let mut model = Model::new();
                for number in 0..100_u32 {
                    let key = [b"key", &number.to_be_bytes()[..]].concat();
                    run(&good, &mut model, &Step::Put(key, b"value".to_vec(), false));
                }
                words.load_from(&good.snapshot().0);
                for _ in 0..random.below(20) {
                    words.set_u8(16 + random.below(PAGE_BYTES as u64 - 16) as usize, random.next_u64() as u8);
                }
            }
        }
        let view = SlottedView::new(&words);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut records = Records::default();
        for (_, index) in &probes {
            let start = (*index % 300).min(view.slot_count());
            records.copy(view, start..view.slot_count());
            let mut keys = Vec::new();
            for record in 0..records.len() {
                let slot = SlotIndex(start + record as u16);
                records.key_into(record, &mut first);
                // Else a scan of such a page goes round in circles.
                prop_assert_eq!(view.compare_key(slot, &first), std::cmp::Ordering::Equal);
                prop_assert!(records.get(record).1.len() <= PAGE_BYTES);
                keys.push(first.clone());
            }
            prop_assert!(!records.are_ordered() || keys.is_sorted_by(|one, next| one < next));
        }
        for (key, index) in &probes {
            let slot = SlotIndex(*index);
            let found = view.find(key).unwrap_or_else(|slot| slot);
            prop_assert!(usize::from(found.0) <= MAX_SLOTS);
            view.child_for(key);
            view.key_into(slot, &mut first);
            prop_assert!(first.len() <= 2 * PAGE_BYTES);
            // Else a scan of such a page goes round in circles.
            prop_assert_eq!(view.compare_key(slot, key), first[..].cmp(&key[..]));
            let itself = first.clone();
            prop_assert_eq!(view.compare_key(slot, &itself), std::cmp::Ordering::Equal);
            second.clear();
            view.value_into(slot, &mut second);
            prop_assert!(second.len() <= PAGE_BYTES);
            prop_assert!(view.low_fence(&mut first) == Fence::Infinite || first.len() <= PAGE_BYTES);
            prop_assert!(view.high_fence(&mut first) == Fence::Infinite || first.len() <= PAGE_BYTES);
            let _ = (view.compare_key(slot, key), view.child(slot), view.encloses(key), view.free_bytes());
            let _ = (view.kind(), view.is_ghost(slot), view.is_overflow(slot));
        }
        let _ = view.inspect();
        let mut edit = SlottedMut::new(&words);
        for (key, index) in &probes {
            let slot = SlotIndex(index % 200);
            let _ = edit.insert(slot, key, b"value", RecordFlags::default());
            let _ = edit.append([key, key].map(|key| (&key[..], &b"value"[..], RecordFlags::default())).into_iter());
            let _ = edit.replace_value(slot, &[7; 100], RecordFlags::default());
            edit.patch_value(slot, usize::from(*index), b"patch");
            let _ = edit.replace_value(slot, b"7", RecordFlags::default());
            edit.trim(slot);
            edit.set_ghost(slot, true);
            let _ = edit.set_high(Some(key));
            let _ = edit.narrow(key);
            edit.remove(slot);
            edit.compact();
        }
    }
}

#[test]
fn the_longest_record_fits_between_the_longest_fences() {
    let low = vec![1; MAX_KEY_BYTES];
    let high = vec![2; MAX_KEY_BYTES];
    let words = node(Some(&low), Some(&high));
    let key = [vec![1; MAX_KEY_BYTES - 1], vec![9]].concat();
    let value = vec![3; MAX_INLINE_VALUE_BYTES];
    SlottedMut::new(&words).insert(SlotIndex(0), &key, &value, RecordFlags::default()).unwrap();
    SlottedView::new(&words).inspect().unwrap();
    assert_eq!(SlottedView::new(&words).find(&key), Ok(SlotIndex(0)));
    let full = SlottedMut::new(&words).insert(SlotIndex(1), &high, &value, RecordFlags::default());
    assert_eq!(full, Err(PageFull));
}

/// A compaction would move less of it than it says, or more, and the neighbour lost bytes when the value grew again.
#[test]
fn slack_that_does_not_say_its_length_is_found() {
    let words = node(None, None);
    for (slot, key) in [(0, b"a"), (1, b"b")] {
        SlottedMut::new(&words).insert(SlotIndex(slot), key, &[7; 300], RecordFlags::default()).unwrap();
    }
    for kept in [1, 280] {
        SlottedMut::new(&words)
            .replace_value(SlotIndex(0), &vec![7; 300 - kept], RecordFlags::default())
            .unwrap();
        let view = SlottedView::new(&words);
        view.inspect().unwrap();
        let slot = view.slot(SlotIndex(0));
        assert_eq!(view.slack_of(slot), kept);
        let (place, length) = view.value_of(slot);
        let right = [view.words().u8(place + length), view.words().u8(place + length + 1)];
        // None; none, and one, in two bytes; beyond the page.
        for wrong in [[0, right[1]], [128, 0], [128, 1], [0xFF, 0xFF]] {
            words.write(place + length, &wrong);
            assert!(view.inspect().is_err(), "{wrong:?} for {right:?}");
        }
        words.write(place + length, &right);
        view.inspect().unwrap();
    }
}

/// What heads leave out of these keys, in a node without fences, built at once and record by record.
fn skipped(keys: &[&[u8]]) -> (usize, PageWords) {
    let words = node(None, None);
    for key in keys {
        let (Ok(slot) | Err(slot)) = SlottedView::new(&words).find(key);
        SlottedMut::new(&words).insert(slot, key, b"value", RecordFlags::default()).unwrap();
        SlottedView::new(&words).inspect().unwrap();
    }
    let mut builder = PageBuilder::new(&NodeHeader::default()).unwrap();
    builder.push_all_from(SlottedView::new(&words), 0..keys.len() as u16).unwrap();
    let built = PageWords::default();
    builder.store(&built);
    let view = SlottedView::new(&built);
    view.inspect().unwrap();
    assert_eq!(view.skipped(), SlottedView::new(&words).skipped(), "{keys:?}");
    (view.skipped(), words)
}

/// It is not put together in private memory; the page is the same, whatever it was before.
#[test]
fn a_node_without_records_replaces_all_of_a_page() {
    let fences: [&[u8]; 4] = [b"", b"key", b"key 1234", &[7; MAX_KEY_BYTES]];
    let fences = fences.map(Some).into_iter().chain([None]);
    for (low, high) in fences.clone().flat_map(|low| fences.clone().map(move |high| (low, high))) {
        let header = NodeHeader {
            table: TableId(9),
            level: 3,
            low,
            high,
            leftmost: PageId(5),
            ..NodeHeader::default()
        };
        let pages = [0, 0xA5].map(|before| {
            let words = PageWords::default();
            words.load_from(&[before; PAGE_BYTES]);
            PageBuilder::new(&header).unwrap().store(&words);
            words
        });
        let [clean, dirty] = pages.each_ref().map(|words| words.snapshot());
        let (head, image_lsn) = (0..TABLE, IMAGE_LSN..IMAGE_LSN + 8);
        assert!(dirty.0[head.clone()].iter().chain(&dirty.0[image_lsn.clone()]).all(|byte| *byte == 0xA5));
        let rest = |at: &usize| !head.contains(at) && !image_lsn.contains(at);
        assert_eq!((0..PAGE_BYTES).filter(rest).find(|at| clean.0[*at] != dirty.0[*at]), None);
        let view = SlottedView::new(&pages[1]);
        view.inspect().unwrap();
        let mut key = Vec::new();
        let fence = view.low_fence(&mut key);
        assert_eq!((fence == Fence::Key).then_some(&key[..]), low);
        let fence = view.high_fence(&mut key);
        assert_eq!((fence == Fence::Key).then_some(&key[..]), high);
        assert_eq!((view.slot_count(), view.level(), view.leftmost_child()), (0, 3, PageId(5)));
    }
}

#[test]
fn heads_begin_behind_what_all_records_share() {
    for (expected, keys) in [
        (0, &[][..]),
        (0, &[&b"order 17"[..]]),
        (7, &[b"order 17", b"order 12"]),
        (6, &[b"order 17", b"order 12", b"order 2"]),
        (6, &[b"order ", b"order 12", b"order 2"]),
        (0, &[b"order 17", b"order 12", b"x"]),
        (1, &[b"order 17", b"order 12", b"old"]),
    ] {
        let (skipped, words) = skipped(keys);
        assert_eq!(skipped, expected, "{keys:?}");
        let view = SlottedView::new(&words);
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        // Keys of the node, and some that do not begin as they do.
        for key in
            sorted.iter().copied().chain([&b""[..], b"o", b"order", b"order 3", b"p", b"order 18", b"a"])
        {
            let found = sorted.binary_search(&key).map(|at| SlotIndex(at as u16));
            assert_eq!(view.find(key), found.map_err(|at| SlotIndex(at as u16)), "{key:?} among {keys:?}");
        }
    }
}

#[test]
fn a_wrong_count_of_skipped_bytes_is_found() {
    let (right, words) = skipped(&[b"order 17", b"order 12", b"order 25"]);
    for wrong in [0, 1, right - 1, right + 1, 8, 9, usize::from(u16::MAX)] {
        words.set_u16(SKIPPED, wrong as u16);
        assert!(SlottedView::new(&words).inspect().is_err(), "{wrong} for {right}");
        let mut records = Records::default();
        records.copy(SlottedView::new(&words), 0..3);
        assert!(!records.are_ordered(), "{wrong} for {right}");
    }
    // Beyond all suffixes nothing is shared, whatever the heads are; and an empty node skips nothing.
    let mut edit = SlottedMut::new(&words);
    for slot in (0..3).map(SlotIndex) {
        let place = slot_offset(usize::from(slot.0));
        words.set_u64(place, SlottedView::new(&words).slot(slot).with_head(0).0);
    }
    let mut records = Records::default();
    records.copy(SlottedView::new(&words), 0..3);
    assert!(!records.are_ordered() && SlottedView::new(&words).inspect().is_err());
    (0..3).for_each(|_| edit.remove(SlotIndex(0)));
    SlottedView::new(&words).inspect().unwrap();
    words.set_u16(SKIPPED, 1);
    assert!(SlottedView::new(&words).inspect().is_err());
}

#[test]
fn keys_outside_the_prefix_sort_to_the_ends() {
    let words = node(Some(b"mmm"), Some(b"mmz"));
    SlottedMut::new(&words).insert(SlotIndex(0), b"mmm5", b"", RecordFlags::default()).unwrap();
    let view = SlottedView::new(&words);
    assert_eq!(view.find(b"a"), Err(SlotIndex(0)));
    assert_eq!(view.find(b"m"), Err(SlotIndex(0)));
    assert_eq!(view.find(b"z"), Err(SlotIndex(1)));
    assert!(
        view.compare_low(b"m").is_lt()
            && view.compare_low(b"mmm").is_eq()
            && view.compare_high(b"mmz").is_eq()
    );
    assert!(view.encloses(b"mmm") && !view.encloses(b"mmz") && !view.encloses(b"mml"));
    assert!(view.compare_key(SlotIndex(0), b"mmm6").is_lt() && view.compare_key(SlotIndex(0), b"a").is_gt());
}

#[test]
fn inner_nodes_lead_to_children() {
    let words = PageWords::default();
    let header = NodeHeader { level: 1, leftmost: PageId(10), ..NodeHeader::default() };
    SlottedMut::new(&words).format(&header).unwrap();
    for (slot, (key, child)) in [(b"f", 11_u32), (b"p", 12)].into_iter().enumerate() {
        let mut page = SlottedMut::new(&words);
        page.insert(SlotIndex(slot as u16), key, &child.to_le_bytes(), RecordFlags::default()).unwrap();
    }
    let view = SlottedView::new(&words);
    for (key, slot, child) in [
        (&b"a"[..], None, 10),
        (b"f", Some(0), 11),
        (b"g", Some(0), 11),
        (b"p", Some(1), 12),
        (b"z", Some(1), 12),
    ] {
        assert_eq!(view.child_for(key), (slot.map(SlotIndex), PageId(child)));
    }
    SlottedMut::new(&words).set_child(SlotIndex(0), PageId(99));
    assert_eq!(view.child(SlotIndex(0)), PageId(99));
}

#[test]
fn the_high_key_shrinks_without_losing_space() {
    let words = node(Some(b"a"), None);
    let mut page = SlottedMut::new(&words);
    for (slot, key) in [b"b", b"c"].into_iter().enumerate() {
        page.insert(SlotIndex(slot as u16), key, b"value", RecordFlags::default()).unwrap();
    }
    let free = page.view().free_bytes();
    page.set_high(Some(b"xxxx")).unwrap();
    assert_eq!(page.view().free_bytes(), free - 4);
    page.set_high(Some(b"yy")).unwrap();
    assert_eq!(page.view().free_bytes(), free - 2);
    page.view().inspect().unwrap();
    let mut high = Vec::new();
    assert_eq!((page.view().high_fence(&mut high), &high[..]), (Fence::Key, &b"yy"[..]));
    page.set_high(None).unwrap();
    assert_eq!(page.view().high_fence(&mut high), Fence::Infinite);
    assert_eq!(page.view().free_bytes(), free);
    page.view().inspect().unwrap();
}

/// The newest two tell, in their order, and only before the slot behind them.
#[test]
fn a_run_of_ascending_keys_is_seen_where_it_ends() {
    let words = node(None, None);
    let expected = |key: &[u8], run_ends_at: Option<u16>| {
        let (Ok(slot) | Err(slot)) = SlottedView::new(&words).find(key);
        SlottedMut::new(&words).insert(slot, key, b"value", RecordFlags::default()).unwrap();
        let view = SlottedView::new(&words);
        let ends = (0..=view.slot_count()).find(|slot| view.ascends_to(SlotIndex(*slot)));
        assert_eq!(ends, run_ends_at, "{}", key.escape_ascii());
    };
    expected(b"z", None);
    expected(b"a", None);
    expected(b"b", Some(2));
    expected(b"c", Some(3));
    expected(b"y", Some(4));
    // Keys that descend are none.
    expected(b"x", None);
    expected(b"w", None);
}

/// A page that got its high key last holds the same as one that had it from the beginning, and its garbage is what that
/// has less.
#[test]
fn narrowing_leaves_out_what_the_fences_share() {
    for (low, high) in [(&b"key"[..], &b"kez"[..]), (b"key1", b"key1zz"), (b"k", b"l")] {
        let words = node(Some(low), None);
        let narrow = node(Some(low), Some(high));
        let (mut model, mut narrow_model) = (Model::new(), Model::new());
        for number in 0..90_u32 {
            let key = [low, &number.to_be_bytes()[..number as usize % 5]].concat();
            let value = vec![number as u8; number as usize % 40];
            for (words, model) in [(&words, &mut model), (&narrow, &mut narrow_model)] {
                run(words, model, &Step::Put(key.clone(), value.clone(), number % 7 == 0));
            }
        }
        let mut page = SlottedMut::new(&words);
        page.narrow(high).unwrap();
        assert_eq!(page.view().prefix_len(), common_prefix(low, high));
        assert_same(&words, &model);
        let mut found = Vec::new();
        assert_eq!((page.view().high_fence(&mut found), &found[..]), (Fence::Key, high));
        assert_eq!(page.view().free_bytes(), SlottedView::new(&narrow).free_bytes());
        page.compact();
        assert_same(&words, &model);
        assert_eq!(page.view().free_bytes(), SlottedView::new(&narrow).free_bytes());
    }
}

/// Records whose bytes lie far apart are copied one by one, and it makes no difference.
#[test]
fn scattered_records_are_copied_too() {
    let words = node(Some(b"key"), Some(b"kez"));
    let mut model = Model::new();
    // Every fortieth of them comes late, and so lies apart from its neighbours.
    for number in (0..300_u32).filter(|number| number % 40 != 0).chain((0..300).step_by(40)) {
        let key = [b"key", &number.to_be_bytes()[..]].concat();
        run(&words, &mut model, &Step::Put(key, vec![number as u8; 9], false));
    }
    assert_same(&words, &model);
    let mut records = Records::default();
    for start in 0..=260 {
        assert_copied(SlottedView::new(&words), &(start..start + 9), &mut records, &model);
        assert_copied(SlottedView::new(&words), &(start..start + 40), &mut records, &model);
    }
}

#[test]
fn inspection_finds_what_a_checksum_does_not() {
    let good = || {
        let words = node(Some(b"key"), Some(b"kez"));
        for (slot, key) in [b"key1", b"key2", b"key3"].into_iter().enumerate() {
            SlottedMut::new(&words)
                .insert(SlotIndex(slot as u16), key, b"v", RecordFlags::default())
                .unwrap();
        }
        SlottedView::new(&words).inspect().unwrap();
        words
    };
    type Damage = (&'static str, fn(&PageWords));
    let damages: [Damage; 8] = [
        ("slots", |words| words.set_u16(SLOT_COUNT, 5000)),
        ("heap", |words| words.set_u16(crate::layout::HEAP_START, 3)),
        ("prefix", |words| words.set_u16(PREFIX_LENGTH, 9)),
        ("order", |words| words.move_up(slot_offset(0), 1)),
        ("head", |words| words.set_u8(slot_offset(1), 200)),
        ("garbage", |words| words.set_u16(crate::layout::GARBAGE, 1)),
        ("overlap", |words| words.set_u16(slot_offset(2) + 4, words.u16(slot_offset(1) + 4))),
        ("fence", |words| words.set_u32(crate::layout::HIGH_FENCE, words.u32(LOW_FENCE))),
    ];
    for (name, damage) in damages {
        let words = good();
        damage(&words);
        assert!(SlottedView::new(&words).inspect().is_err(), "{name}");
    }
}
