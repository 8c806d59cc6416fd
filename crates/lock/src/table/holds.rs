//! Who holds what of a name, joined.

use crate::mode::KeyMode;

/// How many hold each part of a name, shared or exclusively, so that a conversion's own share can be taken out.
#[derive(Clone, Copy, Default)]
pub(super) struct Holds {
    /// The bits of a mode.
    counts: [u32; 5],
}

impl Holds {
    pub(super) fn add(&mut self, mode: KeyMode) {
        for (bit, count) in self.counts.iter_mut().enumerate() {
            *count += u32::from(mode.bits() >> bit & 1);
        }
    }

    pub(super) fn without(mut self, mode: KeyMode) -> Holds {
        for (bit, count) in self.counts.iter_mut().enumerate() {
            *count -= u32::from(mode.bits() >> bit & 1);
        }
        self
    }

    pub(super) fn joined(&self) -> KeyMode {
        let bits = self.counts.iter().enumerate().map(|(bit, &count)| u8::from(count > 0) << bit);
        KeyMode::from_bits(bits.sum())
    }
}
