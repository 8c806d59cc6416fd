//! What lies in several places of memory, to be written in one go.

#[cfg(all(target_endian = "little", not(foreshore_loom), not(foreshore_sim)))]
use std::{io::IoSlice, mem};

use crate::{
    sync::atomic::AtomicU64,
    words::{self, WORD_BYTES},
};

/// Bytes that come one behind the other in a file: those of two runs of words, little-endian, and some more.
///
/// Nobody shall store to the words while they are written: what reaches the file of such a word may be nothing that it
/// ever was.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The words, the second run behind the first.
    pub words: [&'a [AtomicU64]; 2],
    /// What comes behind them.
    pub bytes: &'a [u8],
}

impl<'a> Parts<'a> {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        let words: usize = self.words.iter().map(|run| run.len()).sum();
        words * WORD_BYTES + self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes before `place` and those from there on.
    ///
    /// # Panics
    /// If there are fewer, or if the place is within a word.
    pub fn split_at(self, place: usize) -> (Parts<'a>, Parts<'a>) {
        let [first, second] = self.words;
        let in_words = place.min((first.len() + second.len()) * WORD_BYTES);
        assert!(in_words.is_multiple_of(WORD_BYTES), "{place} is within a word");
        let count = in_words / WORD_BYTES;
        let (first, first_rest) = first.split_at(count.min(first.len()));
        let (second, second_rest) = second.split_at(count - first.len());
        let (bytes, bytes_rest) = self.bytes.split_at(place - in_words);
        (
            Parts { words: [first, second], bytes },
            Parts { words: [first_rest, second_rest], bytes: bytes_rest },
        )
    }

    /// All of them in one place.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut whole = vec![0; self.len()];
        words::load_runs(self.words, &mut whole);
        let behind = whole.len() - self.bytes.len();
        whole[behind..].copy_from_slice(self.bytes);
        whole
    }

    /// Where they lie in memory, in at most three places, for the system alone.
    #[cfg(all(target_endian = "little", not(foreshore_loom), not(foreshore_sim)))]
    pub(super) fn places(&self) -> Vec<IoSlice<'a>> {
        let [first, second] = self.words.map(|run| (run.as_ptr().cast::<u8>(), size_of_val(run)));
        [first, second, (self.bytes.as_ptr(), self.bytes.len())]
            .into_iter()
            // An empty one has no address that a file would take which is written past the cache.
            .filter(|&(_, bytes)| bytes > 0)
            .map(|(start, bytes)| {
                let place = Place { start, bytes };
                // SAFETY: on Unix `IoSlice` is by its documentation what the system takes, which is what `Place` is;
                // the memory lives as long as it says. No reference to the bytes is made, so words may be stored to
                // meanwhile: nobody but the system reads.
                unsafe { mem::transmute::<Place, IoSlice<'a>>(place) }
            })
            .collect()
    }
}

/// The system's `iovec`.
#[cfg(all(target_endian = "little", not(foreshore_loom), not(foreshore_sim)))]
#[repr(C)]
struct Place {
    start: *const u8,
    bytes: usize,
}
