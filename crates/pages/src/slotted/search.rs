//! Finding a key in a slotted page.

use std::cmp::Ordering;

use foreshore_base::{SlotIndex, limits::PAGE_BYTES};

use super::{SLOT_BYTES, Slot, SlottedView, slot_offset, sort_key_of};

/// What is left of a key that is sought in a node, behind what the node's keys share: the prefix, and the bytes that
/// are skipped.
#[derive(Clone, Copy)]
struct Sought<'k> {
    /// Its first eight bytes, as a number that sorts as they do.
    first: u64,
    /// The key behind the prefix, with the bytes that are skipped.
    suffix: &'k [u8],
    /// So much of a record's key is skipped.
    skipped: usize,
}

impl<'k> Sought<'k> {
    /// What is left of `key` behind a prefix of so many bytes, and behind so many that are skipped.
    #[inline]
    fn new(key: &'k [u8], prefix: usize, skipped: usize) -> Sought<'k> {
        // Under a torn header there may be more of them than the key has.
        let suffix = key.get(prefix..).unwrap_or(&[]);
        Sought { first: sort_key_of(key, prefix + skipped), suffix, skipped }
    }

    #[inline]
    fn rest(self) -> &'k [u8] {
        self.suffix.get(self.skipped..).unwrap_or(&[])
    }

    #[inline]
    fn head(self) -> u32 {
        (self.first >> 32) as u32
    }
}

impl SlottedView<'_> {
    /// The slot that holds `key`, or the slot before which it belongs.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Result<SlotIndex, SlotIndex> {
        let extent = self.extent();
        let (count, prefix) = (extent.slot_count(), self.prefix_in(extent));
        match self.compare_prefix(prefix, key) {
            Ordering::Less => Err(SlotIndex(0)),
            Ordering::Greater => Err(SlotIndex(count)),
            Ordering::Equal => self.find_behind(prefix.1, count, key),
        }
    }

    /// As [`SlottedView::find`], for a key between the fences: it begins with what they share, which is not looked at
    /// again. On the way down; a search that is led astray by a page of nonsense finds that out in the leaf. In inner
    /// nodes heads tell, as a rule.
    #[inline(always)]
    pub(super) fn find_enclosed(&self, key: &[u8]) -> Result<SlotIndex, SlotIndex> {
        let extent = self.extent();
        let (prefix, count) = (self.prefix_in(extent).1, extent.slot_count());
        let sought = Sought::new(key, prefix, self.skipped());
        let low = self.first_by_head(count, sought);
        let slot = self.slot(SlotIndex(low));
        let told = (low >= count || slot.head() != sought.head())
            && (sought.skipped == 0 || self.begins_with_skipped(low, sought));
        if told { Err(SlotIndex(low)) } else { self.find_from_elsewhere(low, count, sought) }
    }

    /// Whether what is sought has the few bytes that all records share; false also when that is not easily told.
    #[inline]
    fn begins_with_skipped(&self, near: u16, sought: Sought<'_>) -> bool {
        let record = self.slot(SlotIndex(near.saturating_sub(1)));
        sought.suffix.first_chunk().is_some_and(|own| {
            sought.skipped <= own.len() && self.words.agree(record.offset(), own, sought.skipped)
        })
    }

    /// The search among all `count` slots, for a key that begins with the node's `prefix` bytes.
    #[inline]
    fn find_behind(&self, prefix: usize, count: u16, key: &[u8]) -> Result<SlotIndex, SlotIndex> {
        let sought = Sought::new(key, prefix, self.skipped());
        self.find_from(self.first_by_head(count, sought), count, sought)
    }

    /// The first slot whose head is not below that of what is sought.
    #[inline(always)]
    fn first_by_head(&self, count: u16, sought: Sought<'_>) -> u16 {
        let head = sought.head();
        self.first_slot(0, count, |slot| slot.head() < head)
    }

    /// The rest of a search that heads led to `low`.
    #[inline]
    fn find_from(&self, low: u16, count: u16, sought: Sought<'_>) -> Result<SlotIndex, SlotIndex> {
        let (slot, skipped) = (self.slot(SlotIndex(low)), sought.skipped);
        let same_head = low < count && slot.head() == sought.head();
        if skipped > 0 && count > 0 {
            // Of records that all share these bytes any tells, best one that is needed in any case.
            let beside = if same_head { slot } else { self.slot(SlotIndex(low.saturating_sub(1))) };
            let own = &sought.suffix[..skipped.min(sought.suffix.len())];
            match self.words.compare(beside.offset(), skipped, own) {
                Ordering::Greater => return Err(SlotIndex(0)),
                Ordering::Less => return Err(SlotIndex(count)),
                Ordering::Equal => {}
            }
        }
        if !same_head {
            return Err(SlotIndex(low));
        }
        self.words.prefetch_behind(slot.offset());
        // Mostly the head tells one key from all others.
        match self.compare_sought(slot, sought) {
            Ordering::Equal => Ok(SlotIndex(low)),
            Ordering::Greater => Err(SlotIndex(low)),
            Ordering::Less => self.find_beside(low + 1, count, sought),
        }
    }

    /// [`SlottedView::find_from`] where it is rarely due: a call.
    #[cold]
    fn find_from_elsewhere(&self, low: u16, count: u16, sought: Sought<'_>) -> Result<SlotIndex, SlotIndex> {
        self.find_from(low, count, sought)
    }

    /// Where [`SlottedView::find`] would look first, for somebody who comes back a moment later: asks for the lines of
    /// the record there, and looks at nothing of it. A hint, also of a key that is not in the node.
    #[inline]
    pub fn approach(&self, key: &[u8]) -> SlotIndex {
        let extent = self.extent();
        let sought = Sought::new(key, self.prefix_in(extent).1, self.skipped());
        let low = SlotIndex(self.first_by_head(extent.slot_count(), sought));
        self.words.prefetch_at(self.slot(low).offset());
        low
    }

    /// As [`SlottedView::find`], for a key that may well come after all others, as ascending ones do: one comparison
    /// tells.
    #[inline]
    pub fn find_from_end(&self, key: &[u8]) -> Result<SlotIndex, SlotIndex> {
        match self.slot_count() {
            count @ 1.. if self.compare_key(SlotIndex(count - 1), key).is_lt() => Err(SlotIndex(count)),
            _ => self.find(key),
        }
    }

    /// The rest of a search among `low..count`, whose first slots may have the same head.
    fn find_beside(&self, low: u16, count: u16, sought: Sought<'_>) -> Result<SlotIndex, SlotIndex> {
        let head = sought.head();
        // Without a prefix all slots have the same head, often.
        let all = count > 0 && self.slot(SlotIndex(count - 1)).head() == head;
        let high = if all { count } else { self.first_slot(low, count, |slot| slot.head() <= head) };
        self.prefetch_probes(low, high);
        let low = self.first_slot(low, high, |slot| self.compare_sought(slot, sought).is_lt());
        let found = low < high && self.compare_sought(self.slot(SlotIndex(low)), sought).is_eq();
        if found { Ok(SlotIndex(low)) } else { Err(SlotIndex(low)) }
    }

    /// Asks for the keys that the first three steps of a search among these slots may look at, by halves as
    /// `partition_point` takes them, so that their misses overlap.
    #[inline]
    fn prefetch_probes(&self, low: u16, high: u16) {
        let count = high.saturating_sub(low);
        if count < 8 {
            return;
        }
        let first = count / 2;
        let second = (count - first) / 2;
        let third = (count - first - second) / 2;
        for probe in
            [first, second, first + second, third, second + third, first + third, first + second + third]
        {
            self.words.prefetch_line(self.slot(SlotIndex(low + probe)).offset());
        }
    }

    /// How the key of `slot` compares to what is sought, behind the prefix that they share.
    #[inline]
    fn compare_sought(&self, slot: Slot, sought: Sought<'_>) -> Ordering {
        let (offset, other) = (slot.offset() + sought.skipped, sought.rest().len());
        let length = slot.suffix_len().saturating_sub(sought.skipped).min(PAGE_BYTES.saturating_sub(offset));
        let first = self.words.sort_key(offset, length);
        first.cmp(&sought.first).then_with(|| {
            // Zeros stand for bytes that are not there, so the shorter one comes first.
            if length.min(other) <= 8 {
                length.cmp(&other)
            } else {
                self.words.compare(offset, length, sought.rest())
            }
        })
    }

    /// The first slot of `low..high` that is not `before`; `high` if there is none. Takes the same steps whatever the
    /// slots are: there is no branch to mispredict.
    #[inline]
    fn first_slot(&self, low: u16, high: u16, before: impl Fn(Slot) -> bool) -> u16 {
        let first = slot_offset(usize::from(low)) / SLOT_BYTES;
        let count = usize::from(high.saturating_sub(low));
        low + self.words.partition_point(first, count, |slot| before(Slot(slot))) as u16
    }
}
