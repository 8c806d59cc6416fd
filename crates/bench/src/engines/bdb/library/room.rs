//! Memory for what the library answers.

/// Room that the library writes into, and how much of it is filled.
#[derive(Default)]
pub(super) struct Room {
    /// All of it may be written; only the first `filled` bytes mean anything.
    pub(super) bytes: Vec<u8>,
    pub(super) filled: usize,
}

impl Room {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    pub(super) fn capacity(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// Makes room for so many bytes; what is filled stays.
    pub(super) fn make(&mut self, bytes: u32) {
        let bytes = (bytes as usize).next_power_of_two().max(128);
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
    }

    pub(super) fn fill(&mut self, with: &[u8]) {
        self.make(with.len() as u32);
        self.bytes[..with.len()].copy_from_slice(with);
        self.filled = with.len();
    }
}
