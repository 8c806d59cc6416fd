//! How a fuzzer's bytes become changes of a file: any bytes are some changes, similar bytes are similar ones.

/// Reads numbers from bytes; zeros when they are used up.
#[derive(Clone, Debug)]
pub(crate) struct Source<'d> {
    rest: &'d [u8],
}

impl<'d> Source<'d> {
    pub(crate) fn new(data: &'d [u8]) -> Source<'d> {
        Source { rest: data }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&first, rest)) => {
                self.rest = rest;
                first
            }
            None => 0,
        }
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'d [u8] {
        let (first, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        first
    }

    /// What is left.
    pub(crate) fn rest(&mut self) -> &'d [u8] {
        std::mem::take(&mut self.rest)
    }

    /// One change of `target`: bytes overwritten, a number made extreme, or a piece copied over another.
    pub(crate) fn edit(&mut self, target: &mut [u8]) {
        if target.is_empty() {
            return;
        }
        let kind = self.u8();
        let at = usize::from(self.u16()) % target.len();
        let room = target.len() - at;
        match kind % 5 {
            0 | 1 => {
                let bytes = self.bytes(1 + usize::from(kind >> 4));
                let count = bytes.len().min(room);
                target[at..at + count].copy_from_slice(&bytes[..count]);
            }
            2 => {
                // Where numbers of this width lie, and the values at which arithmetic goes wrong.
                let width = [1, 2, 4, 8][usize::from(kind >> 6)];
                let extreme =
                    [0, 1, u64::MAX, u64::MAX >> 1, 1 << 31, 1 << 15, 63, 8192][usize::from(kind >> 3) % 8];
                let at = at / width * width;
                let count = width.min(target.len() - at);
                target[at..at + count].copy_from_slice(&extreme.to_le_bytes()[..count]);
            }
            3 => target[at] = target[at].wrapping_add(self.u8()),
            _ => {
                let from = usize::from(self.u16()) % target.len();
                let count = usize::from(kind).min(room).min(target.len() - from);
                target.copy_within(from..from + count, at);
            }
        }
    }
}
