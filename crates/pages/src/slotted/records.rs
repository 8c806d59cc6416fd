//! Records of a node in private memory: what a reader makes of a leaf at once.

use std::ops::{ControlFlow, Range};

use foreshore_base::limits::PAGE_BYTES;

use super::{RECORD_LENGTH_BYTES, RecordFlags, Slot, SlottedView};
use crate::words::{LINE_BYTES, Line};

/// Bytes of a page that are copied beside the records that were asked for, rather than to copy those one by one.
const IN_PASSING: usize = 512;
/// Bytes of a key behind the prefix that are copied in one piece, needed or not: a move, where a copy by length is a
/// call.
const SHORT_SUFFIX: usize = 16;

/// Lines of a page, and one more: so many bytes as a short suffix has are there wherever a record begins.
const LINES: usize = PAGE_BYTES / LINE_BYTES + 1;
const _: () = assert!(SHORT_SUFFIX <= LINE_BYTES);

/// Copies of consecutive records of a node, in the order of their keys. Records lie close together in a page, so they
/// are copied in one piece, slots aside, and taken apart where they are looked at. What is asked of them ends in
/// nonsense at worst, as what is asked of a page (PAGE-2); there are none, and they are not ordered, where that is
/// plain.
#[derive(Debug)]
pub struct Records {
    /// What all keys begin with.
    prefix: Vec<u8>,
    /// How many bytes behind it heads leave out.
    skipped: usize,
    slots: Vec<Slot>,
    /// The page, as far as records of it were asked for: the lines with them are as in the page, and end with the byte
    /// at `end`. The others are those of pages before.
    page: Box<[Line; LINES]>,
    end: usize,
    /// What some of them are.
    any: RecordFlags,
    /// They were no records at all.
    nonsense: bool,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            prefix: Vec::new(),
            skipped: 0,
            slots: Vec::new(),
            page: Box::new([Line::default(); LINES]),
            end: 0,
            any: RecordFlags::default(),
            nonsense: false,
        }
    }
}

impl Records {
    /// Forgets them.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.any = RecordFlags::default();
        self.nonsense = false;
    }

    /// Forgets all but one, which there is.
    pub fn keep(&mut self, record: usize) {
        self.slots.truncate(record + 1);
        self.slots.drain(..record);
        self.any = self.flags(0);
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
        self.skipped = view.skipped();
        self.clear();
        self.slots.extend(view.slots(slots));
        let (mut lowest, mut highest, mut end, mut all) = (u32::MAX, 0, 0, 0);
        for slot in &self.slots {
            all |= slot.0;
            lowest = lowest.min(slot.place());
            highest = highest.max(slot.place());
            end = end.max(slot.offset() + slot.suffix_len());
        }
        self.any = Slot(all).flags();
        if self.slots.is_empty() {
            return;
        }
        let begin = Slot::at_place(lowest).offset();
        // Records do not overlap, so that one ends last.
        let (value, length) = view.value_of(Slot::at_place(highest));
        self.end = end.max(value + length).min(PAGE_BYTES);
        let expected =
            self.slots.len() * (PAGE_BYTES - view.heap_start()) / usize::from(view.slot_count().max(1));
        if self.end.saturating_sub(begin) <= expected * 2 + IN_PASSING {
            // Whole lines: they come from memory in any case.
            let lines = begin / LINE_BYTES..self.end.div_ceil(LINE_BYTES);
            view.words().copy_lines(lines, self.page.as_mut_slice());
        } else if !self.copy_each(view) {
            self.clear();
            self.nonsense = true;
        }
    }

    /// Copies records that lie scattered one by one; false if they leave the page or are more than it holds.
    #[cold]
    fn copy_each(&mut self, view: SlottedView<'_>) -> bool {
        let bytes = self.page.as_flattened_mut().as_flattened_mut();
        self.end = 0;
        for slot in &mut self.slots {
            let value = slot.value_offset();
            let length = slot.suffix_len()
                + RECORD_LENGTH_BYTES
                + usize::from(view.words().u16(value - RECORD_LENGTH_BYTES));
            if self.end.max(slot.offset()) + length > PAGE_BYTES {
                return false;
            }
            view.words().copy_to(slot.offset(), &mut bytes[self.end..self.end + length]);
            *slot = slot.with_offset(self.end);
            self.end += length;
        }
        true
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
        let rest = self.bytes()[..PAGE_BYTES].get(slot.offset()..).unwrap_or(&[]);
        let Some((suffix, rest)) = rest.split_at_checked(slot.suffix_len()) else { return (rest, &[]) };
        (suffix, value_in(rest))
    }

    /// Makes `key`, which begins with the prefix, the key of a record, and gives its value; nothing if there is no such
    /// record. For records of which [`Records::are_ordered`] is known.
    #[inline]
    pub fn give(&self, record: usize, key: &mut Vec<u8>) -> &[u8] {
        self.slots.get(record).map_or(&[], |slot| give(self.bytes(), *slot, self.prefix.len(), key))
    }

    /// Calls `visit` with key and value of each of these records that is not deleted, until it breaks off; tells
    /// whether it did, and which was the last. As [`Records::give`], which see for `key`.
    #[inline]
    pub fn visit(
        &self,
        records: impl Iterator<Item = usize>,
        key: &mut Vec<u8>,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> (Option<usize>, ControlFlow<()>) {
        let (bytes, slots, prefix) = (self.bytes(), &self.slots[..], self.prefix.len());
        let mut last = None;
        for record in records {
            let Some(slot) = slots.get(record) else { break };
            if slot.flags().ghost {
                continue;
            }
            last = Some(record);
            let value = give(bytes, *slot, prefix, key);
            if visit(key, value).is_break() {
                return (last, ControlFlow::Break(()));
            }
        }
        (last, ControlFlow::Continue(()))
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.page.as_flattened().as_flattened()
    }

    /// Replaces what `key` holds by a record's key.
    #[inline]
    pub fn key_into(&self, record: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(self.get(record).0);
    }

    /// Whether each record is whole, and its key greater than the one before. A slot's head may be nonsense too: it
    /// counts if it is that of its key.
    pub fn are_ordered(&self) -> bool {
        if self.nonsense {
            return false;
        }
        let (bytes, skipped) = (self.bytes(), self.skipped);
        let shared = self.slots.first().and_then(|first| self.suffix(*first).get(..skipped));
        let shares = |slot: &Slot| shared.is_some() && self.suffix(*slot).get(..skipped) == shared;
        if skipped > 0 && !self.slots.iter().all(shares) {
            return false;
        }
        // Of the record before; there is none before the first one.
        let (mut below, mut before) = (-1, Slot(0));
        for slot in &self.slots {
            let (offset, value) = (slot.offset() + skipped, slot.value_offset());
            let (Some(first), Some(length)) = (
                bytes.get(offset..offset + size_of::<u32>()).and_then(<[u8]>::first_chunk),
                bytes.get(value - RECORD_LENGTH_BYTES..value).and_then(<[u8]>::first_chunk),
            ) else {
                return false;
            };
            // Four bytes at once, less those behind the suffix.
            let behind = size_of::<u32>().saturating_sub(slot.suffix_len().saturating_sub(skipped)) as u32;
            let head = u32::from_be_bytes(*first) & (u64::from(u32::MAX) << (behind * u8::BITS)) as u32;
            let here = i64::from(head);
            let ordered = below < here || (below == here && self.suffix(before) < self.suffix(*slot));
            let end = value + usize::from(u16::from_le_bytes(*length));
            if !ordered || end > self.end || head != slot.head() {
                return false;
            }
            (below, before) = (here, *slot);
        }
        true
    }

    /// A record's key without the prefix.
    fn suffix(&self, slot: Slot) -> &[u8] {
        self.bytes().get(slot.offset()..slot.offset() + slot.suffix_len()).unwrap_or(&[])
    }
}

/// Makes the first `prefix` bytes of `key` the key of a record in `bytes`, and gives its value.
#[inline]
fn give<'b>(bytes: &'b [u8], slot: Slot, prefix: usize, key: &mut Vec<u8>) -> &'b [u8] {
    let (offset, length) = (slot.offset(), slot.suffix_len());
    key.truncate(prefix);
    match bytes.get(offset..offset + SHORT_SUFFIX).and_then(<[u8]>::first_chunk::<SHORT_SUFFIX>) {
        Some(first) if length <= SHORT_SUFFIX => {
            key.extend_from_slice(first);
            key.truncate(prefix + length);
        }
        _ => key.extend_from_slice(bytes.get(offset..offset + length).unwrap_or(&[])),
    }
    value_in(bytes.get(offset + length..).unwrap_or(&[]))
}

/// The value at the beginning of `bytes`, behind its length; what there is of it.
#[inline]
fn value_in(bytes: &[u8]) -> &[u8] {
    let Some((length, rest)) = bytes.split_first_chunk() else { return &[] };
    rest.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(rest)
}
