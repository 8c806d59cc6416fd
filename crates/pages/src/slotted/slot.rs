//! One slot of a slotted page: the table at the head of `slotted.rs`, as code.

use foreshore_base::limits::MAX_KEY_BYTES;

use super::{RECORD_LENGTH_BYTES, RecordFlags, head_of};

const OFFSET_SHIFT: u32 = 32;
const LENGTH_SHIFT: u32 = 48;
const LENGTH_MASK: u64 = (1 << 13) - 1;
const SLACK: u64 = 1 << 61;
const OVERFLOW: u64 = 1 << 62;
const GHOST: u64 = 1 << 63;

// A key's length fits its bits.
const _: () = assert!(MAX_KEY_BYTES <= LENGTH_MASK as usize);

/// One slot, decoded. See the table at the head of `slotted.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(super) u64);

impl Slot {
    /// The slot of a record in a node that skips so many bytes.
    pub(super) fn new(suffix: &[u8], skipped: usize, offset: usize, flags: RecordFlags) -> Slot {
        let ghost = if flags.ghost { GHOST } else { 0 };
        let overflow = if flags.overflow { OVERFLOW } else { 0 };
        let place = (offset as u64) << OFFSET_SHIFT | (suffix.len() as u64 & LENGTH_MASK) << LENGTH_SHIFT;
        Slot(u64::from(head_of(suffix.get(skipped..).unwrap_or(&[]))) | place | ghost | overflow)
    }

    /// The same record with other flags.
    pub(super) fn with_flags(self, flags: RecordFlags) -> Slot {
        let ghost = if flags.ghost { GHOST } else { 0 };
        let overflow = if flags.overflow { OVERFLOW } else { 0 };
        Slot(self.0 & !(GHOST | OVERFLOW) | ghost | overflow)
    }

    /// The same record with slack or without.
    pub(super) fn with_slack(self, slack: bool) -> Slot {
        Slot(self.0 & !SLACK | if slack { SLACK } else { 0 })
    }

    pub(super) fn with_offset(self, offset: usize) -> Slot {
        Slot(self.0 & !(0xFFFF << OFFSET_SHIFT) | (offset as u64) << OFFSET_SHIFT)
    }

    /// The same record with another part of its key.
    pub(super) fn with_suffix(self, offset: usize, length: usize) -> Slot {
        let place = (offset as u64 & 0xFFFF) << OFFSET_SHIFT | (length as u64 & LENGTH_MASK) << LENGTH_SHIFT;
        Slot(self.0 & (GHOST | OVERFLOW | SLACK | u64::from(u32::MAX)) | place)
    }

    /// The same record with another head.
    pub(super) fn with_head(self, head: u32) -> Slot {
        Slot(self.0 & !u64::from(u32::MAX) | u64::from(head))
    }

    #[inline]
    pub(super) fn head(self) -> u32 {
        self.0 as u32
    }

    /// Where the record lies.
    #[inline]
    pub fn offset(self) -> usize {
        (self.0 >> OFFSET_SHIFT & 0xFFFF) as usize
    }

    /// Bytes of the key after the prefix.
    #[inline]
    pub fn suffix_len(self) -> usize {
        (self.0 >> LENGTH_SHIFT & LENGTH_MASK) as usize
    }

    /// Ghost and overflow bits.
    #[inline]
    pub fn flags(self) -> RecordFlags {
        RecordFlags { ghost: self.0 & GHOST != 0, overflow: self.0 & OVERFLOW != 0 }
    }

    /// Whether the record has slack.
    #[inline]
    pub fn has_slack(self) -> bool {
        self.0 & SLACK != 0
    }

    /// The slot but for its head, as a number that sorts by the record's offset.
    #[inline]
    pub(super) fn place(self) -> u32 {
        ((self.0 >> OFFSET_SHIFT) as u32).rotate_left(LENGTH_SHIFT - OFFSET_SHIFT)
    }

    /// The slot with this [place](Slot::place), without a head.
    #[inline]
    pub(super) fn at_place(place: u32) -> Slot {
        Slot(u64::from(place.rotate_right(LENGTH_SHIFT - OFFSET_SHIFT)) << OFFSET_SHIFT)
    }

    #[inline]
    pub(super) fn value_offset(self) -> usize {
        self.offset() + self.suffix_len() + RECORD_LENGTH_BYTES
    }
}
