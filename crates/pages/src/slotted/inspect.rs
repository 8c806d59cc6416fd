//! Looking for damage in a slotted page, for `verify`.

use foreshore_base::{
    SlotIndex,
    limits::{MAX_KEY_BYTES, PAGE_BYTES},
};

use super::{MAX_SLOTS, RECORD_LENGTH_BYTES, Slot, SlottedView, head_of, slack_head};
use crate::layout::{GARBAGE, HEAP_START, HIGH_FENCE, LOW_FENCE, PREFIX_LENGTH, SLOT_COUNT};

impl SlottedView<'_> {
    /// Looks for damage that a checksum does not show: records and fences that leave the heap or overlap, keys out of
    /// order or outside the fences, a wrong count of garbage. Says what it found.
    pub fn inspect(&self) -> Result<(), String> {
        let stored_count = self.words().u16(SLOT_COUNT);
        if usize::from(stored_count) > MAX_SLOTS {
            return Err(format!("it claims {stored_count} slots"));
        }
        let stored_start = usize::from(self.words().u16(HEAP_START));
        let heap_start = self.heap_start();
        if stored_start != heap_start && !(stored_start == 0 && heap_start == PAGE_BYTES) {
            return Err(format!("its heap starts at {stored_start}, its slots end at {}", self.slots_end()));
        }
        let mut places = Vec::with_capacity(usize::from(stored_count) + 2);
        for (name, field) in [("low fence", LOW_FENCE), ("high key", HIGH_FENCE)] {
            let (offset, length) = self.fence(field);
            if offset != 0 {
                if length > MAX_KEY_BYTES {
                    return Err(format!("its {name} has {length} bytes"));
                }
                places.push((offset, length));
            }
        }
        let (low, low_length) = self.fence(LOW_FENCE);
        let prefix = usize::from(self.words().u16(PREFIX_LENGTH));
        if prefix > if low == 0 { 0 } else { low_length } {
            return Err(format!("its prefix of {prefix} bytes is longer than its low fence"));
        }
        for index in 0..stored_count {
            places.push(self.inspect_slot(index, prefix)?);
        }
        let (mut suffix, skipped) = (Vec::new(), self.skipped());
        let shared = stored_count.checked_sub(1).map_or(0, |last| {
            let (first, last) = (self.slot(SlotIndex(0)), self.slot(SlotIndex(last)));
            self.words().append_to(last.offset(), last.suffix_len(), &mut suffix);
            self.common_with(first, &suffix)
        });
        if skipped > shared {
            return Err(format!("heads leave out {skipped} bytes, its records share {shared}"));
        }
        if !self.keys_look_sound(stored_count) {
            self.inspect_keys(stored_count, prefix)?;
        }
        self.inspect_places(places, heap_start)
    }

    /// Where the record of a slot lies in the heap, and how long it is.
    #[inline]
    fn inspect_slot(&self, index: u16, prefix: usize) -> Result<(usize, usize), String> {
        let slot = self.slot(SlotIndex(index));
        let key = prefix + slot.suffix_len();
        if key > MAX_KEY_BYTES {
            return Err(format!("slot {index} has a key of {key} bytes"));
        }
        let value = usize::from(self.words().u16(slot.offset() + slot.suffix_len()));
        let slack = self.slack_of(slot);
        let bytes = slot.suffix_len() + RECORD_LENGTH_BYTES + value;
        if slot.has_slack() {
            // One that leaves the page was cut, and says more than it is.
            let (head, head_bytes) = slack_head(slack);
            let at = slot.offset() + bytes;
            if slack == 0 || (0..head_bytes).any(|index| self.words().u8(at + index) != head[index]) {
                return Err(format!("slot {index} has slack that says another length than it has"));
            }
        }
        Ok((slot.offset(), bytes + slack))
    }

    /// Whether what lies in the heap keeps apart, and leaves as much garbage as is counted.
    fn inspect_places(&self, mut places: Vec<(usize, usize)>, heap_start: usize) -> Result<(), String> {
        places.sort_unstable();
        let mut end = heap_start;
        let mut used = 0;
        for (offset, length) in places {
            if offset < end || offset + length > PAGE_BYTES {
                return Err(format!("the {length} bytes at {offset} overlap others or leave the heap"));
            }
            end = offset + length;
            used += length;
        }
        let (garbage, stored_garbage) = (PAGE_BYTES - heap_start - used, self.words().u16(GARBAGE));
        if garbage != usize::from(stored_garbage) {
            return Err(format!("it counts {stored_garbage} bytes of garbage, there are {garbage}"));
        }
        Ok(())
    }

    /// Whether each slot has the head of its key, each key is above the one before, and the first and the last lie
    /// between the fences, as the others then do: what [`SlottedView::inspect_keys`] asks for, without putting keys
    /// together.
    fn keys_look_sound(&self, count: u16) -> bool {
        let Some(last) = count.checked_sub(1) else { return true };
        let mut key = Vec::new();
        let mut encloses = |slot| {
            self.key_into(SlotIndex(slot), &mut key);
            self.encloses(&key)
        };
        if !encloses(0) || !encloses(last) {
            return false;
        }
        let skipped = self.skipped();
        let mut before = None::<(u64, Slot)>;
        let mut suffix = Vec::new();
        (0..count).all(|index| {
            let slot = self.slot(SlotIndex(index));
            let first = self.words().sort_key(slot.offset(), slot.suffix_len());
            let above = before.is_none_or(|(key, before)| {
                key < first
                    || key == first && {
                        suffix.clear();
                        self.words().append_to(before.offset(), before.suffix_len(), &mut suffix);
                        self.compare_suffix(slot, &suffix).is_gt()
                    }
            });
            before = Some((first, slot));
            above && slot.head() == self.head_behind(slot, skipped)
        })
    }

    /// Whether the keys are sound, as [`SlottedView::keys_look_sound`] tells, with words for what is wrong.
    #[cold]
    fn inspect_keys(&self, count: u16, prefix: usize) -> Result<(), String> {
        let (mut key, mut before) = (Vec::new(), Vec::new());
        let skipped = self.skipped();
        for index in 0..count {
            self.key_into(SlotIndex(index), &mut key);
            if self.slot(SlotIndex(index)).head() != head_of(key.get(prefix + skipped..).unwrap_or(&[])) {
                return Err(format!("slot {index} has a wrong key head"));
            }
            if index > 0 && before >= key {
                return Err(format!("slots {} and {index} are out of order", index - 1));
            }
            if !self.encloses(&key) {
                return Err(format!("slot {index} lies outside the fences"));
            }
            std::mem::swap(&mut key, &mut before);
        }
        Ok(())
    }
}
