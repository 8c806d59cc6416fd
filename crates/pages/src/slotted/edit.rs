//! Changing a slotted page, under its exclusive latch.

use foreshore_base::{PageId, SlotIndex, limits::PAGE_BYTES};

use super::{
    MAX_SLOTS, RECORD_LENGTH_BYTES, RecordFlags, SLOT_BYTES, Slot, SlottedView,
    build::{NodeHeader, PageBuilder},
    common_prefix, slack_head, slot_offset,
};
use crate::{
    layout::{
        FLAGS, FOSTER_CHILD, GARBAGE, HEAP_START, HIGH_FENCE, LEFTMOST_CHILD, LOW_FENCE, PREFIX_LENGTH,
        SKIPPED, SLOT_COUNT,
    },
    words::{PageBuffer, PageWords},
};

/// The page has no room for this, even after compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page is full")]
pub struct PageFull;

/// The most bytes of a record that is put together before it is written.
const SHORT_RECORD: usize = 256;

/// A slotted page that may be changed: the caller holds its latch exclusively. What an operation returns as an error
/// it has not begun.
///
/// On a page of nonsense with a valid checksum the outcome is other nonsense, never an access outside the page.
#[derive(Debug)]
pub struct SlottedMut<'a> {
    words: &'a PageWords,
}

impl<'a> SlottedMut<'a> {
    /// Edits `words`, whose latch the caller holds exclusively.
    #[inline]
    pub fn new(words: &'a PageWords) -> SlottedMut<'a> {
        SlottedMut { words }
    }

    /// The page for reading.
    #[inline]
    pub fn view(&self) -> SlottedView<'a> {
        SlottedView::new(self.words)
    }

    /// Makes the page an empty node; page id and LSNs stay.
    pub fn format(&mut self, header: &NodeHeader<'_>) -> Result<(), PageFull> {
        PageBuilder::new(header)?.store(self.words);
        Ok(())
    }

    /// Puts a record before `slot`. `key` is the whole key and must belong there.
    pub fn insert(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        value: &[u8],
        flags: RecordFlags,
    ) -> Result<(), PageFull> {
        let view = self.view();
        let count = view.slot_count();
        let suffix = key.get(view.prefix_len()..).unwrap_or(&[]);
        let record = suffix.len() + RECORD_LENGTH_BYTES + value.len();
        if slot.0 > count || usize::from(count) == MAX_SLOTS {
            return Err(PageFull);
        }
        let offset = self.make_hole(SLOT_BYTES, record)?;
        let skipped = self.skip_with(suffix, count);
        self.write_record(offset, suffix, value);
        let place = slot_offset(usize::from(slot.0));
        self.words.move_up(place, usize::from(count - slot.0));
        self.words.set_u64(place, Slot::new(suffix, skipped, offset, flags).0);
        self.words.set_u64(SLOT_COUNT, view.extent().with_records(1, offset));
        Ok(())
    }

    /// Puts records behind all others: whole keys, which ascend, values and flags. The page becomes what inserting one
    /// after the other makes of it, but for where compaction falls; all are written with one pass over their bytes.
    pub fn append<'r>(
        &mut self,
        records: impl DoubleEndedIterator<Item = (&'r [u8], &'r [u8], RecordFlags)> + ExactSizeIterator + Clone,
    ) -> Result<(), PageFull> {
        let view = self.view();
        let (count, prefix) = (view.slot_count(), view.prefix_len());
        let records = records.map(|(key, value, flags)| (key.get(prefix..).unwrap_or(&[]), value, flags));
        let (Some((first, ..)), Some((last, ..))) = (records.clone().next(), records.clone().next_back())
        else {
            return Ok(());
        };
        if usize::from(count) + records.len() > MAX_SLOTS {
            return Err(PageFull);
        }
        let bytes = |suffix: &[u8], value: &[u8]| suffix.len() + RECORD_LENGTH_BYTES + value.len();
        let total = records.clone().map(|(suffix, value, _)| bytes(suffix, value)).sum();
        let offset = self.make_hole(records.len() * SLOT_BYTES, total)?;
        let skipped = match (count, records.len()) {
            (0, 2..) => {
                let shared = common_prefix(first, last);
                self.skip(shared);
                shared
            }
            _ => self.skip_with(last, count),
        };
        // The heap grows downwards.
        let mut heap = Vec::with_capacity(total);
        let mut place = slot_offset(usize::from(count) + records.len());
        for (suffix, value, flags) in records.clone().rev() {
            place -= SLOT_BYTES;
            self.words.set_u64(place, Slot::new(suffix, skipped, offset + heap.len(), flags).0);
            heap.extend_from_slice(suffix);
            heap.extend_from_slice(&(value.len() as u16).to_le_bytes());
            heap.extend_from_slice(value);
        }
        self.words.write(offset, &heap);
        self.words.set_u64(SLOT_COUNT, self.view().extent().with_records(records.len() as u16, offset));
        Ok(())
    }

    /// Replaces a value and the record's flags. What a shorter value leaves is the record's slack.
    pub fn replace_value(
        &mut self,
        slot: SlotIndex,
        value: &[u8],
        flags: RecordFlags,
    ) -> Result<(), PageFull> {
        let view = self.view();
        if slot.0 >= view.slot_count() {
            return Err(PageFull);
        }
        let old = view.slot(slot);
        let (place, length) = view.value_of(old);
        let capacity = length + view.slack_of(old);
        if let Some(slack) = capacity.checked_sub(value.len()) {
            self.words.set_u16(place - RECORD_LENGTH_BYTES, value.len() as u16);
            self.words.write(place, value);
            let (head, head_bytes) = slack_head(slack);
            self.words.write(place + value.len(), &head[..head_bytes]);
            let slot_word = old.with_flags(flags).with_slack(slack > 0);
            self.words.set_u64(slot_offset(usize::from(slot.0)), slot_word.0);
            return Ok(());
        }
        // The old record's bytes count as free when the page has to be compacted for the new one.
        let old_bytes = old.suffix_len() + RECORD_LENGTH_BYTES + capacity;
        let new_bytes = old_bytes - capacity + value.len();
        if view.free_bytes() + old_bytes < new_bytes {
            return Err(PageFull);
        }
        let mut suffix = Vec::with_capacity(old.suffix_len());
        self.words.append_to(old.offset(), old.suffix_len(), &mut suffix);
        if view.hole().1 >= new_bytes {
            self.add_garbage(old_bytes);
        } else if !self.compact_except(Some(slot)) {
            return Err(PageFull);
        }
        let offset = self.reserve(0, new_bytes)?;
        self.write_record(offset, &suffix, value);
        let slot_word = old.with_offset(offset).with_flags(flags).with_slack(false);
        self.words.set_u64(slot_offset(usize::from(slot.0)), slot_word.0);
        Ok(())
    }

    /// Takes a record's slack from it.
    pub fn trim(&mut self, slot: SlotIndex) {
        let view = self.view();
        if slot.0 < view.slot_count() {
            let old = view.slot(slot);
            self.add_garbage(view.slack_of(old));
            self.words.set_u64(slot_offset(usize::from(slot.0)), old.with_slack(false).0);
        }
    }

    /// Overwrites bytes inside a value, from `at` on; what lies past the value's end is dropped.
    #[inline]
    pub fn patch_value(&mut self, slot: SlotIndex, at: usize, bytes: &[u8]) {
        let (offset, length) = self.view().value_place(slot);
        let part = bytes.len().min(length.saturating_sub(at));
        self.words.write(offset.saturating_add(at), &bytes[..part]);
    }

    /// Names another child in an inner node's record.
    pub fn set_child(&mut self, slot: SlotIndex, child: PageId) {
        self.patch_value(slot, 0, &child.0.to_le_bytes());
    }

    /// Makes a record a ghost, or brings it back.
    #[inline]
    pub fn set_ghost(&mut self, slot: SlotIndex, ghost: bool) {
        let old = self.view().slot(slot);
        self.set_flags(slot, RecordFlags { ghost, ..old.flags() });
    }

    /// Makes ghosts of a record and of those in so many slots behind it.
    pub fn bury(&mut self, slot: SlotIndex, further: u16) {
        (slot.0..=slot.0.saturating_add(further)).for_each(|slot| self.set_ghost(SlotIndex(slot), true));
    }

    /// Sets a record's flags.
    #[inline]
    fn set_flags(&mut self, slot: SlotIndex, flags: RecordFlags) {
        let view = self.view();
        if slot.0 < view.slot_count() {
            self.words.set_u64(slot_offset(usize::from(slot.0)), view.slot(slot).with_flags(flags).0);
        }
    }

    /// Takes a record out.
    pub fn remove(&mut self, slot: SlotIndex) {
        let view = self.view();
        let count = view.slot_count();
        if slot.0 >= count {
            return;
        }
        let bytes = view.heap_bytes(slot);
        let place = slot_offset(usize::from(slot.0));
        self.words.move_down(place, usize::from(count - slot.0 - 1));
        self.words.set_u16(SLOT_COUNT, count - 1);
        if count == 1 {
            self.words.set_u16(SKIPPED, 0);
        }
        self.add_garbage(bytes);
    }

    /// Names a foster child, or none.
    pub fn set_foster(&mut self, child: PageId) {
        self.words.set_u32(FOSTER_CHILD, child.0);
    }

    /// Names the child below the first separator.
    pub fn set_leftmost(&mut self, child: PageId) {
        self.words.set_u32(LEFTMOST_CHILD, child.0);
    }

    /// Sets the tree's flags.
    pub fn set_node_flags(&mut self, flags: u16) {
        self.words.set_u16(FLAGS, flags);
    }

    /// Replaces the high key by a key inside the node's range (`None`: +∞). The prefix stays: it is common to the
    /// smaller range too. For a larger range build the page anew.
    pub(crate) fn set_high(&mut self, key: Option<&[u8]>) -> Result<(), PageFull> {
        let old = self.words.u32(HIGH_FENCE);
        let place = match key {
            None => 0,
            Some(key) => {
                let offset = self.reserve(0, key.len())?;
                self.words.write(offset, key);
                offset as u32 | (key.len() as u32) << 16
            }
        };
        // Compaction may have moved the old one, never changed its length.
        let garbage = if old & 0xFFFF == 0 { 0 } else { (old >> 16) as usize };
        self.words.set_u32(HIGH_FENCE, place);
        self.add_garbage(garbage);
        Ok(())
    }

    /// Replaces the high key by a key inside the node's range, and lengthens the prefix to what the low fence and this
    /// key share. Records stay where they are: what is left out of their keys becomes garbage.
    pub fn narrow(&mut self, high: &[u8]) -> Result<(), PageFull> {
        self.set_high(Some(high))?;
        let view = self.view();
        let (old, prefix) = (view.prefix_len(), view.common_prefix(high));
        let Some(cut @ 1..) = prefix.checked_sub(old) else { return Ok(()) };
        let count = usize::from(view.slot_count());
        for place in (0..count).map(slot_offset) {
            let slot = Slot(self.words.u64(place));
            self.words.set_u64(place, view.without_first(slot, cut).0);
        }
        self.words.set_u16(PREFIX_LENGTH, prefix as u16);
        match view.skipped().checked_sub(cut) {
            // The heads begin where they did.
            Some(skipped) => self.words.set_u16(SKIPPED, skipped as u16),
            None => self.skip(0),
        }
        self.add_garbage(cut * count);
        Ok(())
    }

    /// How many bytes are skipped once a record with this suffix is among the `count` that there are, whose heads are
    /// made to fit. Of two records it is all that they share; what joins them later can only share less.
    #[inline]
    fn skip_with(&mut self, suffix: &[u8], count: u16) -> usize {
        let (view, skipped) = (self.view(), self.view().skipped());
        let first = view.slot(SlotIndex(0));
        let shares = |skipped| suffix.get(..skipped).is_some_and(|own| self.words.has(first.offset(), own));
        if count > 1 && (skipped == 0 || shares(skipped)) { skipped } else { self.skip_anew(suffix, count) }
    }

    #[cold]
    fn skip_anew(&mut self, suffix: &[u8], count: u16) -> usize {
        let view = self.view();
        let shared = if count == 0 { 0 } else { view.common_with(view.slot(SlotIndex(0)), suffix) };
        let skipped = if count > 1 { shared.min(view.skipped()) } else { shared };
        self.skip(skipped);
        skipped
    }

    /// Has heads begin behind so many bytes, which all records share.
    fn skip(&mut self, skipped: usize) {
        self.words.set_u16(SKIPPED, skipped as u16);
        let view = self.view();
        for place in (0..usize::from(view.slot_count())).map(slot_offset) {
            let slot = Slot(self.words.u64(place));
            self.words.set_u64(place, slot.with_head(view.head_behind(slot, skipped)).0);
        }
    }

    /// Closes the gaps in the heap. A page whose records do not fit a page (nonsense) stays as it is.
    pub fn compact(&mut self) {
        self.compact_except(None);
    }

    /// Closes the gaps, and that of the record of slot `except`, which loses its record. False when the page is
    /// nonsense and stayed as it was.
    fn compact_except(&mut self, except: Option<SlotIndex>) -> bool {
        let view = self.view();
        let (mut page, floor) = (self.words.snapshot(), view.slots_end());
        let mut start = PAGE_BYTES;
        let mut take = |page: &mut PageBuffer, offset: usize, length: usize| {
            start = start.checked_sub(length).filter(|start| *start >= floor)?;
            self.words.copy_to(offset, &mut page.0[start..start + length]);
            Some(start)
        };
        for field in [LOW_FENCE, HIGH_FENCE] {
            let (offset, length) = view.fence(field);
            if offset != 0 {
                let Some(moved) = take(&mut page, offset, length) else { return false };
                page.0[field..field + 2].copy_from_slice(&(moved as u16).to_le_bytes());
            }
        }
        for index in view.slot_indices() {
            let slot = view.slot(index);
            let bytes = view.heap_bytes(index);
            let offset = if except == Some(index) { Some(0) } else { take(&mut page, slot.offset(), bytes) };
            let Some(moved) = offset else { return false };
            let place = slot_offset(usize::from(index.0));
            page.0[place..place + SLOT_BYTES].copy_from_slice(&slot.with_offset(moved).0.to_le_bytes());
        }
        page.0[HEAP_START..HEAP_START + 2].copy_from_slice(&(start as u16).to_le_bytes());
        page.0[GARBAGE..GARBAGE + 2].copy_from_slice(&[0; 2]);
        self.words.load_from(&page.0);
        true
    }

    /// Makes room for `slots` bytes of slots and `record` bytes of heap, and takes the latter; returns where they are.
    fn reserve(&mut self, slots: usize, record: usize) -> Result<usize, PageFull> {
        let offset = self.make_hole(slots, record)?;
        self.words.set_u16(HEAP_START, offset as u16);
        Ok(offset)
    }

    /// As [`SlottedMut::reserve`], but takes nothing yet.
    #[inline]
    fn make_hole(&mut self, slots: usize, record: usize) -> Result<usize, PageFull> {
        let (end, hole) = self.view().hole();
        if hole >= slots + record { Ok(end + hole - record) } else { self.make_hole_slowly(slots, record) }
    }

    #[cold]
    fn make_hole_slowly(&mut self, slots: usize, record: usize) -> Result<usize, PageFull> {
        if self.view().free_bytes() < slots + record {
            return Err(PageFull);
        }
        self.compact();
        let (end, hole) = self.view().hole();
        if hole < slots + record { Err(PageFull) } else { Ok(end + hole - record) }
    }

    #[inline]
    fn write_record(&mut self, offset: usize, suffix: &[u8], value: &[u8]) {
        let length = (value.len() as u16).to_le_bytes();
        let bytes = suffix.len() + RECORD_LENGTH_BYTES + value.len();
        let mut record = [0; SHORT_RECORD];
        if let Some(record) = record.get_mut(..bytes) {
            // In one piece: each of three would read and write the words at its ends.
            let (key_part, rest) = record.split_at_mut(suffix.len());
            let (length_part, value_part) = rest.split_at_mut(RECORD_LENGTH_BYTES);
            key_part.copy_from_slice(suffix);
            length_part.copy_from_slice(&length);
            value_part.copy_from_slice(value);
            return self.words.write(offset, record);
        }
        self.words.write(offset, suffix);
        self.words.write(offset + suffix.len(), &length);
        self.words.write(offset + suffix.len() + RECORD_LENGTH_BYTES, value);
    }

    fn add_garbage(&mut self, bytes: usize) {
        let garbage = usize::from(self.words.u16(GARBAGE)) + bytes;
        self.words.set_u16(GARBAGE, garbage.min(PAGE_BYTES) as u16);
    }
}
