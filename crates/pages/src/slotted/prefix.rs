//! What keys of a node share with its low fence, and how it gets longer.

use foreshore_base::limits::PAGE_BYTES;

use super::{Slot, SlottedView};
use crate::layout::LOW_FENCE;

impl SlottedView<'_> {
    /// How many first bytes the low fence shares with `key`, as far as it lies in the page.
    pub(super) fn common_prefix(&self, key: &[u8]) -> usize {
        let (offset, length) = self.fence(LOW_FENCE);
        if offset == 0 { 0 } else { self.common_at(offset, length, key) }
    }

    /// How many first bytes a slot's record, behind the prefix, shares with `suffix`.
    pub(super) fn common_with(&self, slot: Slot, suffix: &[u8]) -> usize {
        self.common_at(slot.offset(), slot.suffix_len(), suffix)
    }

    /// How many first bytes of the `length` at `offset` are those of `other`.
    fn common_at(&self, offset: usize, length: usize, other: &[u8]) -> usize {
        let own = (offset..offset + length).take_while(|at| *at < PAGE_BYTES).map(|at| self.words.u8(at));
        own.zip(other).take_while(|(own, other)| own == *other).count()
    }

    /// Whether each key begins with what the low fence and this key share, so that a record that
    /// [`SlottedMut::narrow`](super::SlottedMut::narrow) shortens loses nothing; on a sound page those below the key
    /// do.
    pub fn can_narrow(&self, high: &[u8]) -> bool {
        let shared = high.get(self.prefix_len()..self.common_prefix(high)).unwrap_or(&[]);
        let begins = |slot: Slot| slot.suffix_len() >= shared.len() && self.words.has(slot.offset(), shared);
        self.slots(0..self.slot_count()).all(begins)
    }

    /// The slot of a record of whose key so many bytes fewer are stored, the first ones. Its head stays as it is.
    pub(super) fn without_first(&self, slot: Slot, bytes: usize) -> Slot {
        let length = slot.suffix_len().saturating_sub(bytes);
        let offset = slot.offset() + (slot.suffix_len() - length);
        slot.with_suffix(offset, length)
    }
}
