//! Values too long for a leaf: chunks in a table of their own, keyed by (id, index), both big-endian. The leaf holds a
//! reference. Chunks are written by ordinary records of the same transaction and take no locks: the lock on the key
//! that refers to them covers them.

use std::ops::Range;

use foreshore_base::{
    Lsn, Result, StorageError, TableId,
    limits::{MAX_VALUE_BYTES, OVERFLOW_CHUNK_BYTES},
};
use foreshore_env::sync::atomic::Ordering;
use foreshore_latch::Patience;
use foreshore_lock::{KeyMode, KeyRef, LockError};
use foreshore_pages::RecordFlags;
use foreshore_wal::Urgency;

use crate::{
    BTree,
    descend::RESTARTS,
    error,
    merge::Zeal,
    node::{self, Target, damaged},
    session::{Isolation, Session, TxnChain},
    tree::Tree,
    write::{Value, Verb},
};

/// Bytes of a reference: id (8), length of the value (8).
const REFERENCE_BYTES: usize = 16;
/// Chunks that are deleted together of a long value that goes bit by bit: with the images of their leaves that is an
/// eighth of a megabyte in the log.
const PART_CHUNKS: u32 = 32;

/// Where a long value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    id: u64,
    length: u64,
}

impl Reference {
    /// The reference that a record's value is; `None` if it is the value itself. Nonsense gives an empty one.
    #[inline]
    pub(crate) fn of(value: &[u8], flags: RecordFlags) -> Option<Reference> {
        flags.overflow.then(|| Reference::parse(value).unwrap_or(Reference { id: 0, length: 0 }))
    }

    pub(crate) fn parse(value: &[u8]) -> Option<Reference> {
        let (id, rest) = value.split_first_chunk()?;
        let length = u64::from_le_bytes(*rest.first_chunk()?);
        let reference = Reference { id: u64::from_le_bytes(*id), length };
        (value.len() == REFERENCE_BYTES && length <= MAX_VALUE_BYTES as u64).then_some(reference)
    }

    pub(crate) fn bytes(self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn chunks(self) -> u32 {
        self.length.div_ceil(OVERFLOW_CHUNK_BYTES as u64) as u32
    }

    pub(crate) fn digest(self) -> u64 {
        long_value_digest(self.id, self.length)
    }
}

/// A number that hardly any other long value has. Where records and the overflow table have the same sum of these,
/// wrapping, the one refers to what is in the other ([`VerifyReport::long_value_digests`](crate::VerifyReport)).
pub fn long_value_digest(id: u64, length: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele et al. 2014), over both.
    let mix = |word: u64| {
        let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    };
    mix(mix(id.wrapping_add(0x9E37_79B9_7F4A_7C15)).wrapping_add(length))
}

/// The long value that a record refers to, put together from what `chunk` appends for the key of each of its chunks in
/// the overflow table; `None` when that is false for one, or they do not make the whole. For salvage.
pub fn long_value(reference: &[u8], chunk: &mut dyn FnMut(&[u8], &mut Vec<u8>) -> bool) -> Option<Vec<u8>> {
    let reference = Reference::parse(reference)?;
    let mut value = Vec::new();
    let complete = (0..reference.chunks()).all(|index| chunk(&chunk_key(reference.id, index), &mut value));
    (complete && value.len() as u64 == reference.length).then_some(value)
}

fn chunk_key(id: u64, index: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The transaction of a session, in a table that another table's locks cover.
struct Covered<'s, S>(&'s mut S);

impl<S: Session> Session for Covered<'_, S> {
    fn acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(), LockError> {
        Ok(())
    }

    fn try_acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<bool, LockError> {
        Ok(true)
    }

    fn held(&self, _: TableId, _: KeyRef<'_>) -> Result<KeyMode, LockError> {
        Ok(KeyMode::X)
    }

    fn held_and_check(&self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(KeyMode, bool), LockError> {
        Ok((KeyMode::X, true))
    }

    /// Nobody locks a chunk, and ids are not used twice.
    fn has_requests(&self, _: TableId, _: KeyRef<'_>) -> bool {
        false
    }

    fn may_purge(&self, table: TableId, leaf: Lsn) -> bool {
        self.0.may_purge(table, leaf)
    }

    fn patience(&self) -> Patience<'_> {
        self.0.patience()
    }

    fn chain(&mut self) -> &mut TxnChain {
        self.0.chain()
    }

    fn note_logged(&mut self, lsn: Lsn, bytes: usize) {
        self.0.note_logged(lsn, bytes);
    }
}

impl BTree {
    /// Purges what is left in the overflow table, which this is, of long values that the transaction of `session` has
    /// deleted ([`Session::note_discarded`]), after its commit is in the log, or has written
    /// ([`Session::note_stored`]), after that was taken back: so nobody makes the ghosts records again (BTREE-14). And
    /// before it gives its locks back, so that no check of the tree is under way.
    ///
    /// It waits for room in the log and for latches as long as the session's patience lasts (BTREE-13), which is not to
    /// be endless. What is left in `ids` is to be purged later: the patience had an end, others took the room again and
    /// again, or the log has failed. Other errors are ignored: a compaction purges what they left.
    #[cold]
    pub fn purge_long_values(&self, session: &impl Session, ids: &mut Vec<u64>) {
        let tree = self.tree();
        if !tree.env.is_tidied() {
            return ids.clear();
        }
        if tree.env.pool.await_log_room(tree.root, Urgency::Work, session.patience()).is_err() {
            return;
        }
        let Some(_leave) = tree.env.may_tidy() else { return };
        ids.sort_unstable();
        let mut rest = ids.as_slice();
        let purged = tree.purge_chunks(session, &mut rest);
        tree.tidy_earlier(session);
        let left = match purged {
            // Others may have taken the room that there was.
            Ok(()) | Err(StorageError::WaitEnded { .. } | StorageError::LogFull { .. }) => rest.len(),
            // What fails for another reason is left to a compaction.
            Err(_) => 0,
        };
        ids.drain(..ids.len() - left);
    }
}

impl<'a> Tree<'a> {
    fn overflow(&self) -> Result<Tree<'a>> {
        match self.env.overflow_root() {
            Some(root) => Ok(Tree { env: self.env, table: TableId::OVERFLOW, root }),
            None => Err(damaged(self.root, "long values have no table")),
        }
    }

    /// As [`Tree::write`], for a value that does not fit a leaf.
    #[cold]
    pub(crate) fn write_long(
        &self,
        session: &mut impl Session,
        key: &[u8],
        value: &[u8],
        verb: Verb,
    ) -> error::Result<bool> {
        // Locked first, so that the chunks are not written in vain.
        match verb {
            Verb::Insert => {
                if self.look(session, key, KeyMode::SN, Isolation::RepeatableRead, &mut |_, _| {})? {
                    return Ok(true);
                }
            }
            Verb::Update | Verb::Delete => {
                if !self.look(session, key, KeyMode::XN, Isolation::Serializable, &mut |_, _| {})? {
                    return Ok(false);
                }
            }
            Verb::Put => {}
        }
        session.acquire(self.table, KeyRef::Key(key), KeyMode::XN)?;
        let reference = self.write_chunks(session, value)?;
        let written =
            self.write_record(session, key, Value { bytes: &reference.bytes(), overflow: true }, verb)?;
        if verb == Verb::Insert && written.existed {
            // Somebody inserted it before the key was locked.
            self.delete_overflow(session, reference)?;
        } else if let Some(replaced) = written.replaced {
            self.delete_overflow(session, replaced)?;
        }
        Ok(written.existed)
    }

    pub(crate) fn write_chunks(&self, session: &mut impl Session, value: &[u8]) -> error::Result<Reference> {
        let overflow = self.overflow()?;
        let id = self.env.next_overflow.fetch_add(1, Ordering::Relaxed) + 1;
        session.note_stored(id);
        let mut session = Covered(session);
        for (index, chunk) in (0..).zip(value.chunks(OVERFLOW_CHUNK_BYTES)) {
            let value = Value { bytes: chunk, overflow: false };
            let written = overflow.write_record(&mut session, &chunk_key(id, index), value, Verb::Insert)?;
            if written.existed {
                return Err(damaged(overflow.root, format!("the chunks of value {id} exist already")).into());
            }
        }
        Ok(Reference { id, length: value.len() as u64 })
    }

    /// Deletes the chunks of a long value to which nothing refers any more.
    #[cold]
    pub(crate) fn delete_overflow(
        &self,
        session: &mut impl Session,
        reference: Reference,
    ) -> error::Result<()> {
        session.prepare_to_discard(reference.length);
        session.note_discarded(reference.id);
        self.delete_chunks(session, reference, 0..reference.chunks())
    }

    /// Deletes a part of the chunks of a long value to which nothing refers any more, and that goes bit by bit: the
    /// last ones of its first `left`, or of all that are there. Gives how many are left; `None` if there were none.
    pub(crate) fn delete_part(
        &self,
        session: &mut impl Session,
        reference: Reference,
        left: Option<u32>,
    ) -> error::Result<Option<u32>> {
        let left = match left {
            Some(left) => left,
            None => self.chunks_left(session, reference)?,
        };
        if left == 0 {
            return Ok(None);
        }
        let from = left.saturating_sub(PART_CHUNKS);
        self.delete_chunks(session, reference, from..left)?;
        if from == 0 {
            session.note_discarded(reference.id);
        }
        Ok(Some(from))
    }

    /// How many chunks are there of a value that goes bit by bit: they are without gap from the first one on.
    fn chunks_left(&self, session: &mut impl Session, reference: Reference) -> error::Result<u32> {
        let (overflow, mut session) = (self.overflow()?, Covered(session));
        let (mut left, mut gone) = (0, reference.chunks());
        while left < gone {
            let middle = left + (gone - left) / 2;
            match overflow.get_inline(&mut session, &chunk_key(reference.id, middle), &mut |_| {})? {
                true => left = middle + 1,
                false => gone = middle,
            }
        }
        Ok(left)
    }

    fn delete_chunks(
        &self,
        session: &mut impl Session,
        reference: Reference,
        chunks: Range<u32>,
    ) -> error::Result<()> {
        let overflow = self.overflow()?;
        let mut session = Covered(session);
        for index in chunks {
            let nothing = Value { bytes: &[], overflow: false };
            overflow.write_record(&mut session, &chunk_key(reference.id, index), nothing, Verb::Delete)?;
        }
        Ok(())
    }

    /// Purges the ghosts of all chunks of these long values, in ascending order, leaf by leaf, and takes those out that
    /// it is done with.
    fn purge_chunks(&self, session: &impl Session, rest: &mut &[u64]) -> Result<()> {
        let ids = *rest;
        let gone = |key: &[u8]| {
            let id = key.first_chunk().map(|id| u64::from_be_bytes(*id));
            id.is_some_and(|id| ids.binary_search(&id).is_ok())
        };
        let mut from = rest.first().map(|id| chunk_key(*id, 0).to_vec());
        let mut refusals = 0;
        while let Some(key) = from {
            self.env.pool.await_log_room(self.root, Urgency::Work, session.patience())?;
            let target = Target::Key(&key);
            let landing = self.leaf(session.patience(), target)?;
            let Some(mut page) = self.latch(session.patience(), landing.page, target, 0)? else {
                from = Some(key);
                continue;
            };
            self.purge_where(&mut page, &gone)?;
            // A merge may have purged the leaf before.
            let underfull = self.is_underfull(page.view());
            let (low, end) = (node::low_fence(page.view()), node::high_key(page.view()));
            // What is alone has no other leaf to be merged with.
            let deserted = page.view().slot_count() == 0 && (&low, &end) != (&None, &None);
            let has_foster = page.view().foster_child().is_some();
            drop(page);
            // It would be in the way of a merge, and nobody else need come by.
            let foster = if underfull && has_foster { Some(0) } else { landing.foster };
            self.adopt_on_the_way(session, foster, target);
            if underfull && !self.merge(session, target, 0, Zeal::Tidy)? {
                let has_room = self.env.has_room();
                // Perhaps that is why. Or somebody was in the way for a moment.
                if (!has_room || deserted) && refusals < RESTARTS {
                    refusals += 1;
                    from = Some(key);
                    continue;
                }
                if !has_room {
                    return Ok(());
                }
                if deserted {
                    self.env.deserted.add(self.table, low);
                }
            }
            refusals = 0;
            // On with the first chunk that may be behind this leaf.
            let done = end.as_ref().map_or(rest.len(), |end| {
                rest.partition_point(|id| chunk_key(*id, u32::MAX).as_slice() < end.as_slice())
            });
            *rest = &rest[done..];
            let Some(end) = end else { return Ok(()) };
            from = rest.first().map(|id| end.max(chunk_key(*id, 0).to_vec()));
        }
        Ok(())
    }

    /// Reads a long value. The key that refers to it is locked.
    #[cold]
    pub(crate) fn read_overflow(
        &self,
        session: &mut impl Session,
        reference: &[u8],
    ) -> error::Result<Vec<u8>> {
        let overflow = self.overflow()?;
        let Some(reference) = Reference::parse(reference) else {
            return Err(damaged(self.root, "a reference to a long value makes no sense").into());
        };
        let mut session = Covered(session);
        let mut value = Vec::new();
        for index in 0..reference.chunks() {
            let key = chunk_key(reference.id, index);
            let read = &mut |chunk: &[u8]| value.extend_from_slice(chunk);
            // A chunk fits its leaf: this does not come back here.
            let found = overflow.get_inline(&mut session, &key, read)?;
            if !found {
                let detail = format!("chunk {index} of long value {} is missing", reference.id);
                return Err(damaged(overflow.root, detail).into());
            }
        }
        if value.len() as u64 != reference.length {
            let detail =
                format!("long value {} has {} bytes, not {}", reference.id, value.len(), reference.length);
            return Err(damaged(overflow.root, detail).into());
        }
        Ok(value)
    }
}
