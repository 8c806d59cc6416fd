//! Reading a slotted page.

use std::{cmp::Ordering, ops::Range};

use foreshore_base::{Lsn, PageId, SlotIndex, TableId, limits::PAGE_BYTES};

use super::{RECORD_LENGTH_BYTES, SLOT_BYTES, Slot, extent::Extent, slot_offset};
use crate::{
    layout::{
        FLAGS, FOSTER_CHILD, HIGH_FENCE, KIND, LEFTMOST_CHILD, LEVEL, LOW_FENCE, PageKind, SKIPPED,
        SLOT_COUNT, TABLE,
    },
    words::PageWords,
};

/// What bounds a node on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Nothing: −∞ on the low side, +∞ on the high side.
    Infinite,
    /// The key that was asked for.
    Key,
}

/// A slotted page as a reader sees it; see PAGE-2 in `slotted.rs`.
#[derive(Clone, Copy, Debug)]
pub struct SlottedView<'a> {
    pub(super) words: &'a PageWords,
}

impl<'a> SlottedView<'a> {
    /// Reads `words` as a slotted page, whatever they are.
    #[inline]
    pub fn new(words: &'a PageWords) -> SlottedView<'a> {
        SlottedView { words }
    }

    /// The bytes.
    #[inline]
    pub fn words(&self) -> &'a PageWords {
        self.words
    }

    /// The page's own id.
    pub fn page_id(&self) -> PageId {
        self.words.page_id()
    }

    /// The newest record whose change the page shows.
    pub fn lsn(&self) -> Lsn {
        self.words.lsn()
    }

    /// The table whose tree the node is part of.
    #[inline]
    pub fn table(&self) -> TableId {
        TableId(self.words.u32(TABLE))
    }

    /// The level in its tree; 0 is a leaf.
    #[inline]
    pub fn level(&self) -> u8 {
        self.words.u8(LEVEL)
    }

    /// What the page is; `None` when the byte means nothing.
    #[inline]
    pub fn kind(&self) -> Option<PageKind> {
        PageKind::from_byte(self.words.u8(KIND))
    }

    /// Whether the page is a node of this table and level with none of these flags: one load tells.
    #[inline]
    pub fn is_node(&self, table: TableId, level: u8, without: u16) -> bool {
        const { assert!(TABLE.is_multiple_of(8) && LEVEL == TABLE + 4 && KIND == TABLE + 5 && FLAGS == TABLE + 6) };
        let expected = u64::from(table.0) | u64::from(level) << 32 | (PageKind::Node as u64) << 40;
        let looked_at = u64::MAX >> u16::BITS | u64::from(without) << 48;
        self.words.u64(TABLE) & looked_at == expected
    }

    /// The word of the header that says what is where.
    #[inline]
    pub(super) fn extent(&self) -> Extent {
        const { assert!(SLOT_COUNT.is_multiple_of(8)) };
        Extent(self.words.u64(SLOT_COUNT))
    }

    /// The tree's flags.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.words.u16(FLAGS)
    }

    /// Records in the page, ghosts too; never more than a page has room for.
    #[inline]
    pub fn slot_count(&self) -> u16 {
        self.extent().slot_count()
    }

    /// The places of all records, in the order of their keys.
    pub fn slot_indices(&self) -> impl Iterator<Item = SlotIndex> + use<> {
        (0..self.slot_count()).map(SlotIndex)
    }

    /// Asks for the lines that a new record of so many bytes would be written to.
    #[inline]
    pub fn prefetch_place(&self, bytes: usize) {
        self.words.prefetch_place(bytes, self.extent().heap_start());
    }

    /// How many first bytes every key of the node shares with its low fence; they are stored there only. Never more
    /// than the fence has in the page, so that keys compare as what [`SlottedView::key_into`] puts together, whatever
    /// the bytes are: a scan that is led by the one and remembers the other would else go round in circles.
    #[inline]
    pub fn prefix_len(&self) -> usize {
        self.prefix_in(self.extent()).1
    }

    /// Where the prefix is, and its length.
    #[inline]
    pub(super) fn prefix_in(&self, extent: Extent) -> (usize, usize) {
        let stored = extent.prefix_bytes();
        if stored == 0 {
            return (0, 0);
        }
        let (offset, length) = self.fence(LOW_FENCE);
        (offset, stored.min(length).min(PAGE_BYTES.saturating_sub(offset)))
    }

    /// How many first bytes of what is stored of a key all records share; heads leave them out.
    #[inline]
    pub(super) fn skipped(&self) -> usize {
        usize::from(self.words.u16(SKIPPED))
    }

    /// The head of a slot's record where so many bytes are skipped.
    #[inline]
    pub(super) fn head_behind(&self, slot: Slot, skipped: usize) -> u32 {
        (self.words.sort_key(slot.offset() + skipped, slot.suffix_len().saturating_sub(skipped)) >> 32) as u32
    }

    /// The foster child, or [`PageId::NONE`].
    #[inline]
    pub fn foster_child(&self) -> PageId {
        PageId(self.words.u32(FOSTER_CHILD))
    }

    /// The child of an inner node for keys below its first separator.
    #[inline]
    pub fn leftmost_child(&self) -> PageId {
        PageId(self.words.u32(LEFTMOST_CHILD))
    }

    /// Offset and length of a fence; offset 0 stands for infinity.
    #[inline]
    pub(super) fn fence(&self, field: usize) -> (usize, usize) {
        let word = self.words.u32(field);
        ((word & 0xFFFF) as usize, (word >> 16) as usize)
    }

    fn fence_into(&self, field: usize, key: &mut Vec<u8>) -> Fence {
        let (offset, length) = self.fence(field);
        key.clear();
        if offset == 0 {
            return Fence::Infinite;
        }
        self.words.append_to(offset, length, key);
        Fence::Key
    }

    /// The low fence: no key of the node is below it. Replaces what `key` holds.
    pub fn low_fence(&self, key: &mut Vec<u8>) -> Fence {
        self.fence_into(LOW_FENCE, key)
    }

    /// The high key: every key of the node itself is below it. Replaces what `key` holds.
    pub fn high_fence(&self, key: &mut Vec<u8>) -> Fence {
        self.fence_into(HIGH_FENCE, key)
    }

    /// Whether nothing was put into the page since it got its high key.
    pub fn ends_with_high(&self) -> bool {
        let (offset, _) = self.fence(HIGH_FENCE);
        offset != 0 && offset == self.heap_start()
    }

    /// Whether the two records before `slot` came to the page last, in this order: ascending keys are on their way
    /// there. The heap grows downwards, so the newest record is its first. Said wrongly of a few others; a hint.
    pub fn ascends_to(&self, slot: SlotIndex) -> bool {
        let Some(before) = slot.0.checked_sub(2) else { return false };
        let (older, newer) = (self.slot(SlotIndex(before)), self.slot(SlotIndex(before + 1)));
        let (value, length) = self.value_of(newer);
        newer.offset() == self.heap_start() && older.offset() == value + length
    }

    /// How `key` compares to the low fence.
    #[inline]
    pub fn compare_low(&self, key: &[u8]) -> Ordering {
        let (offset, length) = self.fence(LOW_FENCE);
        if offset == 0 { Ordering::Greater } else { self.words.compare(offset, length, key).reverse() }
    }

    /// How `key` compares to the high key.
    #[inline]
    pub fn compare_high(&self, key: &[u8]) -> Ordering {
        let (offset, length) = self.fence(HIGH_FENCE);
        if offset == 0 { Ordering::Less } else { self.words.compare(offset, length, key).reverse() }
    }

    /// Whether the node's fences enclose `key`: low fence ≤ key < high key.
    #[inline]
    pub fn encloses(&self, key: &[u8]) -> bool {
        self.compare_low(key).is_ge() && self.compare_high(key).is_lt()
    }

    /// Whether `slot` has the last record, and `key` comes behind that and below the high key.
    #[inline]
    pub fn ends_below(&self, slot: SlotIndex, key: &[u8]) -> bool {
        self.slot_count().checked_sub(1) == Some(slot.0)
            && self.compare_key(slot, key).is_lt()
            && self.compare_high(key).is_lt()
    }

    /// How the first bytes of `key` compare to the node's prefix, at this place and of this length.
    #[inline]
    pub(super) fn compare_prefix(&self, (offset, length): (usize, usize), key: &[u8]) -> Ordering {
        if length == 0 {
            return Ordering::Equal;
        }
        self.words.compare(offset, length, &key[..length.min(key.len())]).reverse()
    }

    /// Slot `slot`; nonsense when there is none.
    #[inline]
    pub fn slot(&self, slot: SlotIndex) -> Slot {
        Slot(self.words.u64(slot_offset(usize::from(slot.0))))
    }

    /// Slots; those that there are no words for are left out.
    #[inline]
    pub(super) fn slots(&self, slots: Range<u16>) -> impl Iterator<Item = Slot> {
        let word = |slot: u16| slot_offset(usize::from(slot)) / SLOT_BYTES;
        self.words.words_in(word(slots.start)..word(slots.end)).map(Slot)
    }

    #[inline]
    pub(super) fn compare_suffix(&self, slot: Slot, suffix: &[u8]) -> Ordering {
        self.words.compare(slot.offset(), slot.suffix_len(), suffix)
    }

    /// How the key of `slot` compares to `key`.
    #[inline]
    pub fn compare_key(&self, slot: SlotIndex, key: &[u8]) -> Ordering {
        let prefix = self.prefix_in(self.extent());
        let suffix = key.get(prefix.1..).unwrap_or(&[]);
        self.compare_prefix(prefix, key).reverse().then_with(|| self.compare_suffix(self.slot(slot), suffix))
    }

    /// Whether the record is deleted.
    #[inline]
    pub fn is_ghost(&self, slot: SlotIndex) -> bool {
        self.slot(slot).flags().ghost
    }

    /// Whether the record's value says where the value is.
    #[inline]
    pub fn is_overflow(&self, slot: SlotIndex) -> bool {
        self.slot(slot).flags().overflow
    }

    /// The key of `slot`, prefix and all. Replaces what `key` holds.
    pub fn key_into(&self, slot: SlotIndex, key: &mut Vec<u8>) {
        self.prefix_into(key);
        let slot = self.slot(slot);
        self.words.append_to(slot.offset(), slot.suffix_len(), key);
    }

    /// Replaces what `prefix` holds by what all keys begin with.
    pub(crate) fn prefix_into(&self, prefix: &mut Vec<u8>) {
        prefix.clear();
        let (offset, _) = self.fence(LOW_FENCE);
        self.words.append_to(offset, self.prefix_len(), prefix);
    }

    /// Offset and length of a value, cut off at the page's end.
    #[inline]
    pub fn value_place(&self, slot: SlotIndex) -> (usize, usize) {
        self.value_of(self.slot(slot))
    }

    #[inline]
    pub(super) fn value_of(&self, slot: Slot) -> (usize, usize) {
        let offset = slot.value_offset();
        let length = usize::from(self.words.u16(offset - RECORD_LENGTH_BYTES));
        (offset, length.min(PAGE_BYTES.saturating_sub(offset)))
    }

    /// Bytes of the value of `slot`.
    #[inline]
    pub fn value_len(&self, slot: SlotIndex) -> usize {
        self.value_place(slot).1
    }

    /// Bytes behind the value of a slot's record that it keeps, cut off at the page's end.
    #[inline]
    pub fn slack_of(&self, slot: Slot) -> usize {
        if slot.has_slack() { self.slack_behind(self.value_of(slot)) } else { 0 }
    }

    #[cold]
    fn slack_behind(&self, (offset, length): (usize, usize)) -> usize {
        let start = offset + length;
        let slack = match usize::from(self.words.u8(start)) {
            short @ 0..128 => short,
            long => (long - 128) << 8 | usize::from(self.words.u8(start + 1)),
        };
        slack.min(PAGE_BYTES.saturating_sub(start))
    }

    /// Bytes that the record of `slot` takes in the heap.
    #[inline]
    pub fn heap_bytes(&self, slot: SlotIndex) -> usize {
        let slot = self.slot(slot);
        slot.suffix_len() + RECORD_LENGTH_BYTES + self.value_of(slot).1 + self.slack_of(slot)
    }

    /// Appends the value of `slot` to `value`.
    #[inline]
    pub fn value_into(&self, slot: SlotIndex, value: &mut Vec<u8>) {
        let (offset, length) = self.value_place(slot);
        self.words.append_to(offset, length, value);
    }

    /// The child page that the value of `slot` names; [`PageId::NONE`] when it is no child's.
    #[inline]
    pub fn child(&self, slot: SlotIndex) -> PageId {
        const CHILD_BYTES: usize = size_of::<u32>();
        let offset = self.slot(slot).value_offset();
        // Its length and itself, in one word.
        let word = self.words.u64(offset - RECORD_LENGTH_BYTES);
        let whole = word as u16 == CHILD_BYTES as u16 && offset <= PAGE_BYTES - CHILD_BYTES;
        if whole { PageId((word >> u16::BITS) as u32) } else { PageId::NONE }
    }

    /// The child of an inner node that `key`, which lies between its fences, belongs to, and the slot that names it
    /// (`None`: the leftmost).
    #[inline(always)]
    pub fn child_for(&self, key: &[u8]) -> (Option<SlotIndex>, PageId) {
        let below = match self.find_enclosed(key) {
            Ok(slot) => slot.0 + 1,
            Err(slot) => slot.0,
        };
        match below.checked_sub(1).map(SlotIndex) {
            Some(slot) => (Some(slot), self.child(slot)),
            None => (None, self.leftmost_child()),
        }
    }

    pub(super) fn slots_end(&self) -> usize {
        self.extent().slots_end()
    }

    /// Where the heap begins; the page's end when the field makes no sense.
    pub(super) fn heap_start(&self) -> usize {
        self.extent().heap_start()
    }

    /// Bytes in one piece between the slots and the heap.
    #[inline]
    pub(crate) fn hole(&self) -> (usize, usize) {
        self.extent().hole()
    }

    /// Bytes of the heap that no record uses.
    #[inline]
    pub fn garbage_bytes(&self) -> usize {
        self.extent().garbage_bytes()
    }

    /// Bytes that new slots and records could take, after compaction.
    #[inline]
    pub fn free_bytes(&self) -> usize {
        self.room().0
    }

    /// Bytes that new slots and records could take, and how many of them without compaction.
    #[inline]
    pub fn room(&self) -> (usize, usize) {
        let extent = self.extent();
        let hole = extent.hole().1;
        (hole + extent.garbage_bytes(), hole)
    }
}
