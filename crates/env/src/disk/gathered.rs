//! What lies in several places of memory, to be written in one go.

#[cfg(all(target_endian = "little", not(foreshore_loom), not(foreshore_sim)))]
use std::io::IoSlice;

use crate::{
    sync::atomic::AtomicU64,
    words::{self, WORD_BYTES},
};

/// Bytes that come one behind the other in a file: those of two runs of words, little-endian, and some more.
///
/// A word that is stored to while it is written reaches the file as it was before or after.
#[derive(Clone, Copy, Debug)]
pub struct Gathered<'a> {
    /// The words, the second run behind the first.
    pub words: [&'a [AtomicU64]; 2],
    /// What comes behind them.
    pub bytes: &'a [u8],
}

impl<'a> Gathered<'a> {
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
    pub fn split_at(self, place: usize) -> (Gathered<'a>, Gathered<'a>) {
        let [first, second] = self.words;
        let in_words = place.min((first.len() + second.len()) * WORD_BYTES);
        assert!(in_words.is_multiple_of(WORD_BYTES), "{place} is within a word");
        let count = in_words / WORD_BYTES;
        let (first, first_rest) = first.split_at(count.min(first.len()));
        let (second, second_rest) = second.split_at(count - first.len());
        let (bytes, bytes_rest) = self.bytes.split_at(place - in_words);
        (
            Gathered { words: [first, second], bytes },
            Gathered { words: [first_rest, second_rest], bytes: bytes_rest },
        )
    }

    /// All of them in one place.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut whole = vec![0; self.len()];
        let (mut places, _) = whole.as_chunks_mut::<WORD_BYTES>();
        for run in self.words {
            let (here, rest) = places.split_at_mut(run.len());
            words::load(run, here);
            places = rest;
        }
        let behind = whole.len() - self.bytes.len();
        whole[behind..].copy_from_slice(self.bytes);
        whole
    }

    /// Where they lie in memory, for the system alone, in at most three places; none where the words are not in memory as they are in a
    /// file.
    #[cfg(all(target_endian = "little", not(foreshore_loom), not(foreshore_sim)))]
    pub(super) fn places(&self) -> Vec<IoSlice<'a>> {
        let run = |words: &'a [AtomicU64]| {
            let start = words.as_ptr().cast::<u8>();
            // SAFETY: these are the bytes of `words`, which have the size and all values of `u64`. Nobody in this process reads through
            // the slice, whose address is all that `IoSlice` keeps: the system does, and to it a store meanwhile is no race.
            unsafe { std::slice::from_raw_parts(start, size_of_val(words)) }
        };
        let [first, second] = self.words;
        // An empty one has no address that a file would take which is written past the cache.
        [run(first), run(second), self.bytes]
            .into_iter()
            .filter(|place| !place.is_empty())
            .map(IoSlice::new)
            .collect()
    }
}
