//! Building a whole node in private memory: for splits, merges and growth.

use foreshore_base::{
    PageId, SlotIndex, TableId,
    limits::{MAX_KEY_BYTES, PAGE_BYTES},
};

use super::{
    MAX_SLOTS, PageFull, RECORD_LENGTH_BYTES, RecordFlags, SLOT_BYTES, Slot, SlottedView, common_prefix,
    head_of, slack_head, slot_offset,
};
use crate::{
    layout::{
        FLAGS, FOSTER_CHILD, HEAP_START, HIGH_FENCE, IMAGE_LSN, KIND, LEFTMOST_CHILD, LEVEL, LOW_FENCE,
        PAGE_HEADER_BYTES, PREFIX_LENGTH, PageKind, SKIPPED, SLOT_COUNT, TABLE,
    },
    words::{PageBuffer, PageWords},
};

/// What a node is before it has records.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeHeader<'a> {
    /// The table whose tree it is part of.
    pub table: TableId,
    /// 0 is a leaf.
    pub level: u8,
    /// The tree's flags.
    pub flags: u16,
    /// The low fence; `None` is −∞.
    pub low: Option<&'a [u8]>,
    /// The high key; `None` is +∞.
    pub high: Option<&'a [u8]>,
    /// The foster child, or [`PageId::NONE`].
    pub foster: PageId,
    /// The child below the first separator, or [`PageId::NONE`].
    pub leftmost: PageId,
}

impl NodeHeader<'_> {
    /// How many first bytes all keys between the fences share.
    pub fn prefix_len(&self) -> usize {
        match (self.low, self.high) {
            (Some(low), Some(high)) => common_prefix(low, high),
            _ => 0,
        }
    }

    /// Bytes that a node has for slots and records between these fences.
    pub fn capacity(&self) -> usize {
        let fences = self.low.map_or(0, <[u8]>::len) + self.high.map_or(0, <[u8]>::len);
        (PAGE_BYTES - PAGE_HEADER_BYTES).saturating_sub(fences)
    }
}

/// A node in the making, in private memory. Records are pushed in key order; [`PageBuilder::store`] then replaces a
/// page by it, under that page's exclusive latch.
#[derive(Debug)]
pub struct PageBuilder {
    header: [u8; PAGE_HEADER_BYTES],
    /// The fences, as they lie at the page's end.
    fences: Vec<u8>,
    /// What is behind the header, from the first record on: keys that ascend make one node after the other without any.
    page: Option<Box<PageBuffer>>,
    prefix: usize,
    count: usize,
    heap_start: usize,
}

impl PageBuilder {
    /// An empty node with these fences, without garbage.
    pub fn new(header: &NodeHeader<'_>) -> Result<PageBuilder, PageFull> {
        let mut builder = PageBuilder {
            header: [0; PAGE_HEADER_BYTES],
            fences: [header.high, header.low].map(Option::unwrap_or_default).concat(),
            page: None,
            prefix: header.prefix_len(),
            count: 0,
            heap_start: PAGE_BYTES,
        };
        builder.put(TABLE, header.table.0.to_le_bytes());
        builder.put(LEVEL, [header.level]);
        builder.put(KIND, [PageKind::Node as u8]);
        builder.put(FLAGS, header.flags.to_le_bytes());
        builder.put(PREFIX_LENGTH, (builder.prefix as u16).to_le_bytes());
        builder.put(FOSTER_CHILD, header.foster.0.to_le_bytes());
        builder.put(LEFTMOST_CHILD, header.leftmost.0.to_le_bytes());
        for (field, key) in [(LOW_FENCE, header.low), (HIGH_FENCE, header.high)] {
            if let Some(key) = key {
                let offset = builder.take(0, key.len())?;
                builder.put(field, (offset as u32 | (key.len() as u32) << 16).to_le_bytes());
            }
        }
        Ok(builder)
    }

    /// Sets a field of the header.
    fn put<const N: usize>(&mut self, field: usize, bytes: [u8; N]) {
        self.header[field..field + N].copy_from_slice(&bytes);
    }

    /// What is behind the header.
    fn page(&mut self) -> &mut [u8; PAGE_BYTES] {
        let PageBuilder { page, fences, .. } = self;
        let begin = || {
            let mut page = PageBuffer::boxed();
            page.0[PAGE_BYTES - fences.len()..].copy_from_slice(fences);
            page
        };
        &mut page.get_or_insert_with(begin).0
    }

    fn take(&mut self, slots: usize, bytes: usize) -> Result<usize, PageFull> {
        if self.free_bytes() < slots + bytes {
            return Err(PageFull);
        }
        self.heap_start -= bytes;
        Ok(self.heap_start)
    }

    /// Appends a record. `key` is the whole key, above all before it and between the fences.
    pub fn push(&mut self, key: &[u8], value: &[u8], flags: RecordFlags) -> Result<(), PageFull> {
        self.push_with_slack(key, value, 0, flags)
    }

    /// As [`PageBuilder::push`], with so many bytes of slack behind the value.
    pub fn push_with_slack(
        &mut self,
        key: &[u8],
        value: &[u8],
        slack: usize,
        flags: RecordFlags,
    ) -> Result<(), PageFull> {
        if key.len() > MAX_KEY_BYTES {
            return Err(PageFull);
        }
        self.push_suffix(key.get(self.prefix..).unwrap_or(&[]), value, slack, flags)
    }

    /// The same, with what of the key is behind the node's prefix.
    pub fn push_suffix(
        &mut self,
        suffix: &[u8],
        value: &[u8],
        slack: usize,
        flags: RecordFlags,
    ) -> Result<(), PageFull> {
        if self.prefix + suffix.len() > MAX_KEY_BYTES {
            return Err(PageFull);
        }
        let place = self.add(suffix.len() + RECORD_LENGTH_BYTES + value.len() + slack)?;
        let (key_part, rest) = self.page()[place..].split_at_mut(suffix.len());
        key_part.copy_from_slice(suffix);
        let (length_part, rest) = rest.split_at_mut(RECORD_LENGTH_BYTES);
        length_part.copy_from_slice(&(value.len() as u16).to_le_bytes());
        let (value_part, rest) = rest.split_at_mut(value.len());
        value_part.copy_from_slice(value);
        begin_slack(rest, slack);
        self.name(Slot::new(suffix, 0, place, flags).with_slack(slack > 0));
        Ok(())
    }

    /// Takes the bytes of another record.
    #[inline]
    fn add(&mut self, bytes: usize) -> Result<usize, PageFull> {
        if self.count == MAX_SLOTS {
            return Err(PageFull);
        }
        self.take(SLOT_BYTES, bytes)
    }

    /// Gives the record that was added last its slot.
    #[inline]
    fn name(&mut self, slot: Slot) {
        let place = slot_offset(self.count);
        self.page()[place..place + SLOT_BYTES].copy_from_slice(&slot.0.to_le_bytes());
        self.count += 1;
    }

    /// Appends a record of another page, whatever that page's prefix is.
    pub(crate) fn push_from(&mut self, view: SlottedView<'_>, slot: SlotIndex) -> Result<(), PageFull> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        view.key_into(slot, &mut key);
        view.value_into(slot, &mut value);
        let slot = view.slot(slot);
        self.push_with_slack(&key, &value, view.slack_of(slot), slot.flags())
    }

    /// Appends records of another page, whatever that page's prefix is. Where the prefix here is that page's or longer,
    /// a record has what it needs in one piece: what is left of its key, and its value.
    pub fn push_all_from(
        &mut self,
        view: SlottedView<'_>,
        slots: std::ops::Range<u16>,
    ) -> Result<(), PageFull> {
        let before = view.prefix_len();
        for index in slots.map(SlotIndex) {
            let slot = view.slot(index);
            let cut = self.prefix.checked_sub(before).filter(|cut| *cut <= slot.suffix_len());
            let value = usize::from(view.words().u16(slot.offset() + slot.suffix_len()));
            let (start, end) = (slot.offset() + cut.unwrap_or(0), slot.value_offset() + value);
            match cut {
                Some(cut) if end <= PAGE_BYTES && before + slot.suffix_len() <= MAX_KEY_BYTES => {
                    let slack = view.slack_of(slot);
                    let place = self.add(end - start + slack)?;
                    let (record, rest) = self.page()[place..].split_at_mut(end - start);
                    view.words().copy_to(start, record);
                    begin_slack(rest, slack);
                    let slot = Slot::new(&record[..slot.suffix_len() - cut], 0, place, slot.flags());
                    self.name(slot.with_slack(slack > 0));
                }
                _ => self.push_from(view, index)?,
            }
        }
        Ok(())
    }

    /// Records pushed so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes left for slots and records.
    pub fn free_bytes(&self) -> usize {
        self.heap_start - slot_offset(self.count)
    }

    /// How many first bytes of every key the node leaves out.
    pub fn prefix_len(&self) -> usize {
        self.prefix
    }

    /// Replaces a page's content; page id and LSNs stay. The caller holds the page's latch exclusively.
    pub fn store(mut self, words: &PageWords) {
        self.put(SLOT_COUNT, (self.count as u16).to_le_bytes());
        self.put(HEAP_START, (self.heap_start as u16).to_le_bytes());
        self.skip();
        words.write(TABLE, &self.header[TABLE..IMAGE_LSN]);
        words.write(SKIPPED, &self.header[SKIPPED..]);
        match self.page {
            Some(page) => words.write(PAGE_HEADER_BYTES, &page.0[PAGE_HEADER_BYTES..]),
            None => {
                words.clear_to(PAGE_HEADER_BYTES, self.heap_start);
                words.write(self.heap_start, &self.fences);
            }
        }
    }

    /// Has heads begin behind what all records share; the first and the last of them tell.
    fn skip(&mut self) {
        let count = self.count;
        let Some(last @ 1..) = count.checked_sub(1) else { return };
        let page = self.page();
        let skipped = common_prefix(suffix(page, slot(page, 0)), suffix(page, slot(page, last)));
        if skipped == 0 {
            return;
        }
        for place in 0..count {
            let slot = slot(page, place);
            let head = head_of(suffix(page, slot).get(skipped..).unwrap_or(&[]));
            let place = slot_offset(place);
            page[place..place + SLOT_BYTES].copy_from_slice(&slot.with_head(head).0.to_le_bytes());
        }
        self.put(SKIPPED, (skipped as u16).to_le_bytes());
    }
}

/// What is behind a record's value; the rest of its slack is zeros.
#[inline]
fn begin_slack(behind_value: &mut [u8], slack: usize) {
    let (head, bytes) = slack_head(slack);
    behind_value[..bytes].copy_from_slice(&head[..bytes]);
}

fn slot(page: &[u8; PAGE_BYTES], place: usize) -> Slot {
    let (words, _) = page[slot_offset(place)..].as_chunks();
    Slot(u64::from_le_bytes(words[0]))
}

fn suffix(page: &[u8; PAGE_BYTES], slot: Slot) -> &[u8] {
    &page[slot.offset()..slot.offset() + slot.suffix_len()]
}
