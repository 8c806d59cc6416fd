//! Bytes to and from atomic words, little-endian, with relaxed accesses.
//!
//! In the simulated world an access is one of the caller's source: what it costs and what it is called depend on that.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a word.
pub const WORD_BYTES: usize = size_of::<u64>();
/// Words in a cache line.
pub const LINE_WORDS: usize = 8;
/// Words that are copied in one turn where there are many: a compiler unrolls no loop of atomic accesses of which it
/// does not know how many they are, and one word a turn takes twice as many instructions.
const TURN: usize = 8;
/// How many words are many. Fewer are copied where they are wanted, without a call.
const MANY: usize = 64;

/// Loads the words of `from` to `to`, as many as both have.
#[inline]
#[cfg_attr(foreshore_sim, track_caller)]
pub fn load(from: &[AtomicU64], to: &mut [[u8; WORD_BYTES]]) {
    if to.len() >= MANY {
        return load_many(from, to);
    }
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed).to_le_bytes();
    }
}

#[inline(never)]
#[cfg_attr(foreshore_sim, track_caller)]
fn load_many(from: &[AtomicU64], to: &mut [[u8; WORD_BYTES]]) {
    let count = from.len().min(to.len());
    let (turns, rest) = from[..count].as_chunks::<TURN>();
    let (places, last) = to[..count].as_chunks_mut::<TURN>();
    for (from, to) in turns.iter().zip(places) {
        load(from, to);
    }
    load(rest, last);
}

/// Fills `to`, whole words of it, with the words of the first run and then with those of the second.
///
/// # Panics
/// If it has room for fewer.
#[cfg_attr(foreshore_sim, track_caller)]
pub fn load_runs(runs: [&[AtomicU64]; 2], to: &mut [u8]) {
    let (places, _) = to.as_chunks_mut::<WORD_BYTES>();
    let (first, rest) = places.split_at_mut(runs[0].len());
    load(runs[0], first);
    load(runs[1], &mut rest[..runs[1].len()]);
}

/// Stores the words of `from` to `to`, as many as both have.
#[inline]
#[cfg_attr(foreshore_sim, track_caller)]
pub fn store(from: &[[u8; WORD_BYTES]], to: &[AtomicU64]) {
    if from.len() >= MANY {
        return store_many(from, to);
    }
    for (from, to) in from.iter().zip(to) {
        to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
    }
}

#[inline(never)]
#[cfg_attr(foreshore_sim, track_caller)]
fn store_many(from: &[[u8; WORD_BYTES]], to: &[AtomicU64]) {
    let count = from.len().min(to.len());
    let (turns, rest) = from[..count].as_chunks::<TURN>();
    let (places, last) = to[..count].as_chunks::<TURN>();
    for (from, to) in turns.iter().zip(places) {
        store(from, to);
    }
    store(rest, last);
}

/// Stores zeros.
#[cfg_attr(foreshore_sim, track_caller)]
pub fn clear(words: &[AtomicU64]) {
    let (turns, rest) = words.as_chunks::<TURN>();
    for turn in turns {
        for word in turn {
            word.store(0, Ordering::Relaxed);
        }
    }
    for word in rest {
        word.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_sim))))]
mod tests {
    use super::*;

    #[test]
    fn as_many_words_as_both_have_are_copied() {
        let counts = || (0..20).chain(MANY - 2..MANY + 2 * TURN);
        for (words, chunks) in counts().flat_map(|words| counts().map(move |chunks| (words, chunks))) {
            let memory: Vec<AtomicU64> = (0..words).map(|word| AtomicU64::new(word as u64 + 1)).collect();
            let mut bytes = vec![[0xFF; WORD_BYTES]; chunks];
            load(&memory, &mut bytes);
            for (index, chunk) in bytes.iter().enumerate() {
                let expected = if index < words { index as u64 + 1 } else { u64::MAX };
                assert_eq!(u64::from_le_bytes(*chunk), expected, "{index} of {words}, {chunks}");
            }
            let bytes: Vec<_> = (0..chunks).map(|chunk| (chunk as u64 + 100).to_le_bytes()).collect();
            store(&bytes, &memory);
            for (index, word) in memory.iter().enumerate() {
                let expected = if index < chunks { index as u64 + 100 } else { index as u64 + 1 };
                assert_eq!(word.load(Ordering::Relaxed), expected, "{index} of {words}, {chunks}");
            }
            clear(&memory);
            assert!(memory.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
