//! What is where in a slotted page, as its header says.

use foreshore_base::limits::PAGE_BYTES;

use super::{MAX_SLOTS, slot_offset};
use crate::layout::{GARBAGE, HEAP_START, PREFIX_LENGTH, SLOT_COUNT};

/// The word of the header that says what is where: slots, start of the heap, garbage, prefix; 16 bits each. Read at
/// once, so that they are of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent(pub(super) u64);

const _: () =
    assert!(HEAP_START == SLOT_COUNT + 2 && GARBAGE == SLOT_COUNT + 4 && PREFIX_LENGTH == SLOT_COUNT + 6);

impl Extent {
    /// Never more than a page has room for.
    #[inline]
    pub(super) fn slot_count(self) -> u16 {
        (self.0 as u16).min(MAX_SLOTS as u16)
    }

    /// As stored, whatever it is.
    #[inline]
    pub(super) fn prefix_bytes(self) -> usize {
        (self.0 >> 48) as usize
    }

    #[inline]
    pub(super) fn slots_end(self) -> usize {
        slot_offset(usize::from(self.slot_count()))
    }

    /// The page's end when the field makes no sense.
    #[inline]
    pub(super) fn heap_start(self) -> usize {
        match usize::from((self.0 >> 16) as u16) {
            start if (self.slots_end()..=PAGE_BYTES).contains(&start) => start,
            _ => PAGE_BYTES,
        }
    }

    #[inline]
    pub(super) fn hole(self) -> (usize, usize) {
        let end = self.slots_end();
        (end, self.heap_start() - end)
    }

    #[inline]
    pub(super) fn garbage_bytes(self) -> usize {
        usize::from((self.0 >> 32) as u16).min(PAGE_BYTES - self.heap_start())
    }

    /// This extent with so many more slots, and the heap from `heap_start` on.
    #[inline]
    pub(super) fn with_records(self, more: u16, heap_start: usize) -> u64 {
        self.0 & !0xFFFF_FFFF | (heap_start as u64 & 0xFFFF) << 16 | u64::from(self.slot_count() + more)
    }
}
