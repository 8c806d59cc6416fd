//! Records of a node in private memory: what a reader makes of a leaf at once.

use std::{cmp::Ordering, ops::Range};

use foreshore_base::{SlotIndex, limits::PAGE_BYTES};

use super::{RECORD_LENGTH_BYTES, RecordFlags, Slot, SlottedView, head_of};

/// Bytes of a page that are copied beside the records that were asked for, rather than to copy those one by one.
const IN_PASSING: usize = 512;

/// Copies of consecutive records of a node, in the order of their keys. Records lie close together in a page, so they are copied
/// in one piece, slots aside, and taken apart where they are looked at. What is asked of them ends in nonsense at worst, as what is
/// asked of a page (PAGE-2); there are none, and they are not ordered, where that is plain.
#[derive(Debug, Default)]
pub struct Records {
    /// What all keys begin with.
    prefix: Vec<u8>,
    /// Offsets in them count from `base`.
    slots: Vec<Slot>,
    base: usize,
    /// What was copied, so many bytes; the others are old, so that none has to be cleared in vain.
    bytes: Vec<u8>,
    used: usize,
    /// What some of them are.
    any: RecordFlags,
    /// They were no records at all.
    nonsense: bool,
}

impl Records {
    /// Forgets them.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.any = RecordFlags::default();
        self.nonsense = false;
    }

    /// How many there are, deleted ones too.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Replaces them by those of a node; true if the node is validated afterwards.
    pub fn copy(&mut self, view: SlottedView<'_>, slots: Range<u16>) {
        view.prefix_into(&mut self.prefix);
        self.clear();
        let mut all = 0;
        let (mut begin, mut end, mut highest) = (PAGE_BYTES, 0, None::<(usize, SlotIndex)>);
        self.slots.extend(slots.map(|index| {
            let slot = view.slot(SlotIndex(index));
            let offset = slot.offset();
            all |= slot.0;
            begin = begin.min(offset);
            end = end.max(offset + slot.suffix_len());
            if highest.is_none_or(|(highest, _)| highest <= offset) {
                highest = Some((offset, SlotIndex(index)));
            }
            slot
        }));
        self.any = Slot(all).flags();
        let Some((_, highest)) = highest else { return };
        // Records do not overlap, so that one ends last.
        let (value, length) = view.value_place(highest);
        let end = end.max(value + length).min(PAGE_BYTES);
        let expected =
            self.slots.len() * (PAGE_BYTES - view.heap_start()) / usize::from(view.slot_count().max(1));
        if end.saturating_sub(begin) <= expected * 2 + IN_PASSING {
            self.copy_range(view, begin..end);
        } else if !self.copy_each(view) {
            self.clear();
            self.nonsense = true;
        }
    }

    /// Copies a part of the page, by whole words.
    fn copy_range(&mut self, view: SlottedView<'_>, range: Range<usize>) {
        self.base = range.start & !(size_of::<u64>() - 1);
        let length = range.end.saturating_sub(self.base).next_multiple_of(size_of::<u64>());
        view.words().copy_to(self.base, self.room(length));
    }

    /// Copies records that lie scattered one by one; false if they leave the page or are more than it holds.
    #[cold]
    fn copy_each(&mut self, view: SlottedView<'_>) -> bool {
        self.base = 0;
        let mut used = 0;
        for index in 0..self.slots.len() {
            let slot = self.slots[index];
            let value = slot.value_offset();
            let length = slot.suffix_len()
                + RECORD_LENGTH_BYTES
                + usize::from(view.words().u16(value - RECORD_LENGTH_BYTES));
            if used.max(slot.offset()) + length > PAGE_BYTES {
                return false;
            }
            view.words().copy_to(slot.offset(), &mut self.room(used + length)[used..]);
            self.slots[index] = slot.with_offset(used);
            used += length;
        }
        true
    }

    /// Room for so many bytes, to be overwritten.
    fn room(&mut self, length: usize) -> &mut [u8] {
        self.used = length;
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        &mut self.bytes[..length]
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// What a record is.
    #[inline]
    pub fn flags(&self, record: usize) -> RecordFlags {
        self.slots.get(record).map_or(RecordFlags::default(), |slot| slot.flags())
    }

    /// What some of the records are.
    #[inline]
    pub fn any(&self) -> RecordFlags {
        self.any
    }

    /// What all keys begin with.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// A record's key without the prefix, and its value; both empty if there is no such record.
    #[inline]
    pub fn get(&self, record: usize) -> (&[u8], &[u8]) {
        let Some(slot) = self.slots.get(record) else { return (&[], &[]) };
        let bytes = self.bytes();
        let rest = bytes.get(slot.offset().wrapping_sub(self.base)..).unwrap_or(&[]);
        let Some((suffix, rest)) = rest.split_at_checked(slot.suffix_len()) else { return (rest, &[]) };
        let Some((length, rest)) = rest.split_first_chunk() else { return (suffix, &[]) };
        (suffix, rest.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(rest))
    }

    #[inline]
    fn suffix_of(&self, slot: Slot) -> &[u8] {
        let rest = self.bytes().get(slot.offset().wrapping_sub(self.base)..).unwrap_or(&[]);
        rest.get(..slot.suffix_len()).unwrap_or(rest)
    }

    /// Replaces what `key` holds by a record's key.
    #[inline]
    pub fn key_into(&self, record: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(self.get(record).0);
    }

    /// Whether each key is greater than the one before. A slot's head may be nonsense too: it counts if it is that of its key.
    pub fn are_ordered(&self) -> bool {
        let mut before = None::<Slot>;
        !self.nonsense
            && self.slots.iter().all(|slot| {
                let ordered = slot.head() == self.head(*slot)
                    && before.is_none_or(|before| match before.head().cmp(&slot.head()) {
                        Ordering::Less => true,
                        Ordering::Equal => self.suffix_of(before) < self.suffix_of(*slot),
                        Ordering::Greater => false,
                    });
                before = Some(*slot);
                ordered
            })
    }

    /// The head that a slot should have: four bytes at once, where there are so many, less those behind the key.
    #[inline]
    fn head(&self, slot: Slot) -> u32 {
        let start = slot.offset().wrapping_sub(self.base);
        let Some(first) = self.bytes().get(start..).and_then(<[u8]>::first_chunk) else {
            return head_of(self.suffix_of(slot));
        };
        let behind = size_of::<u32>().saturating_sub(slot.suffix_len()) as u32;
        u32::from_be_bytes(*first) & u32::MAX.checked_shl(behind * u8::BITS).unwrap_or(0)
    }
}
