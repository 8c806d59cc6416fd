//! Notes of what was locked and since when, for those who want to see keys and not only their hashes.
//!
//! A transaction writes its notes on lines of its own, one for each lock, in the order of acquisition, and with no
//! read-modify-write; views read them whenever they like. A note is never changed as long as its transaction holds
//! anything (LOCK-10), so a version for all notes of a slot is enough to know that they belong together.
//!
//! ```text
//! state:  version (32 bits) | notes written (32 bits)      version + 1: all are void
//! ```

use foreshore_base::{TableId, TxnId, limits::MAX_TRANSACTIONS};
use foreshore_env::CachePadded;
use foreshore_env::sync::OnceLock;
use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use foreshore_env::time::{Duration, Instant};

use super::LockTarget;
use crate::deadlock::KeyBytes;
use crate::name::{KeyRef, LockName};
use crate::slot::{Slot, SlotId};

/// Notes allocated together.
const CHUNK: usize = 64;

/// Chunks of a slot: a transaction's locks after the first 4,096 are not noted.
const CHUNKS: usize = 64;

/// Words of a key that are kept: as much as reports keep.
const WORDS: usize = 8;

const LENGTH_SHIFT: u32 = 32;
const TRUNCATED: u64 = 1 << 40;
const BEFORE_ALL: u64 = 1 << 41;

/// A lock. Written by the owner of the slot, read by everybody, all Relaxed: the slot's state orders it.
#[derive(Debug, Default)]
struct Note {
    name: AtomicU64,
    /// When it was granted, in nanoseconds since the notes were begun.
    since_ns: AtomicU64,
    /// Table (32 bits), bytes of the key that are kept (8 bits), TRUNCATED, BEFORE_ALL.
    target: AtomicU64,
    key: [AtomicU64; WORDS],
}

/// The notes of a slot.
#[derive(Debug)]
struct SlotNotes {
    /// See the head of this file. Written by the owner of the slot with Release; partners are the Acquire loads of
    /// readers.
    state: AtomicU64,
    chunks: [OnceLock<Box<[Note]>>; CHUNKS],
}

/// A note that was read.
pub(crate) struct NoteRead {
    pub(crate) name: LockName,
    pub(crate) target: LockTarget,
    pub(crate) since: Instant,
}

/// The notes of all slots.
#[derive(Debug)]
pub(crate) struct Notes {
    begun: Instant,
    slots: Box<[CachePadded<SlotNotes>]>,
}

impl Notes {
    pub(crate) fn new() -> Notes {
        let fresh = || SlotNotes { state: AtomicU64::new(0), chunks: [const { OnceLock::new() }; CHUNKS] };
        Notes {
            begun: Instant::now(),
            slots: (0..MAX_TRANSACTIONS).map(|_| CachePadded::new(fresh())).collect(),
        }
    }

    /// Notes the lock that has just been granted. By the owner of the slot.
    pub(crate) fn write(&self, slot: SlotId, name: LockName, table: TableId, key: KeyRef<'_>) {
        let notes = &self.slots[slot.index()];
        let state = notes.state.load(Relaxed);
        let place = state as u32 as usize;
        let Some(chunk) = notes.chunks.get(place / CHUNK) else { return };
        let note = &chunk.get_or_init(|| (0..CHUNK).map(|_| Note::default()).collect())[place % CHUNK];
        note.name.store(name.bits(), Relaxed);
        note.since_ns.store(self.begun.elapsed().as_nanos() as u64, Relaxed);
        let bytes = match key {
            KeyRef::Key(bytes) => bytes,
            KeyRef::NegativeInfinity => &[],
        };
        let kept = &bytes[..bytes.len().min(8 * WORDS)];
        let mut target = u64::from(table.0) | (kept.len() as u64) << LENGTH_SHIFT;
        target |= if kept.len() < bytes.len() { TRUNCATED } else { 0 };
        target |= if key == KeyRef::NegativeInfinity { BEFORE_ALL } else { 0 };
        note.target.store(target, Relaxed);
        for (word, part) in note.key.iter().zip(kept.chunks(8)) {
            let mut padded = [0; 8];
            padded[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        notes.state.store(state + 1, Release);
    }

    /// Voids all notes of a slot: its owner gives its locks back.
    pub(crate) fn forget(&self, slot: SlotId) {
        let state = &self.slots[slot.index()].state;
        let version = state.load(Relaxed) >> 32;
        state.store(version.wrapping_add(1) << 32, Relaxed);
        // Partner is the fence of `read`: a thread that reads something of a later note sees the new version.
        fence(Release);
    }

    /// Calls `see` with all notes of a slot and the transaction that they are of; with none if they were voided
    /// meanwhile.
    pub(crate) fn read(&self, slot: SlotId, published: &Slot, mut see: impl FnMut(TxnId, NoteRead)) {
        let notes = &self.slots[slot.index()];
        let state = notes.state.load(Acquire);
        let chunks = notes.chunks.iter().map_while(OnceLock::get).flat_map(|chunk| chunk.iter());
        let read: Vec<NoteRead> =
            chunks.take(state as u32 as usize).map(|note| self.read_note(note)).collect();
        let txn = published.txn();
        // Partner is the fence of `forget`.
        fence(Acquire);
        if notes.state.load(Relaxed) >> 32 == state >> 32 {
            read.into_iter().for_each(|note| see(txn, note));
        }
    }

    fn read_note(&self, note: &Note) -> NoteRead {
        let target = note.target.load(Relaxed);
        let table = TableId(target as u32);
        let mut bytes = [0; 8 * WORDS + 1];
        for (part, word) in bytes.chunks_exact_mut(8).zip(&note.key) {
            part.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        let kept = (target >> LENGTH_SHIFT) as usize & 0xFF;
        // One byte more is what makes a key a truncated one.
        let kept = if target & TRUNCATED == 0 { kept.min(8 * WORDS) } else { 8 * WORDS + 1 };
        let since = Duration::from_nanos(note.since_ns.load(Relaxed));
        NoteRead {
            name: LockName::from_bits(note.name.load(Relaxed)),
            target: if target & BEFORE_ALL == 0 {
                LockTarget::Key(table, KeyBytes::new(&bytes[..kept]))
            } else {
                LockTarget::BeforeAll(table)
            },
            since: self.begun + since,
        }
    }
}
