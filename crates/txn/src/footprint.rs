//! What a transaction is expected to touch: the locks that are asked for before it runs.
//!
//! Ren, Faleiro, Abadi 2016 (ORTHRUS), §3.2 and §4.1: locks that are known in advance are granted in one order for all
//! transactions, so that no cycle can close. Where this departs: the paper leaves ranges out; here a gap is a name like
//! a key's (the key below it), so a footprint has gaps, and what appears in a range after it was recorded is met as a
//! lock that the footprint does not have.
//!
//! TXN-17: the order is the volume, tables by the entries of their locks, keys by name; each once, in the join of all
//! modes that were recorded for it: the first of the tables that share an entry asks for what all of them need. Nobody
//! who follows a footprint waits for a lock out of this order: while it runs, it only tries.

use std::{collections::BTreeMap, ops::Range};

use foreshore_base::{Places, TableId};
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::{EntryIndex, IntentMode, KeyMode, KeyRef, LockName};

/// How many runs may meet a lock that is neither in the footprint nor free before the tables are locked as a whole.
pub const PLAN_MISSES: u32 = 8;

/// Keys that are recorded before they are put in order for the first time.
const UNSETTLED: usize = 64;

/// The locks that a transaction is expected to need. Made by [`crate::Txn::end_reconnaissance`], granted by
/// [`crate::Txn::follow`].
#[derive(Debug, Default)]
pub struct Footprint {
    tables: Vec<TablePart>,
    places: Places<TableId>,
    keys: Vec<KeyPart>,
    /// The keys, one behind another.
    bytes: Vec<u8>,
    /// Keys at which they are put in order next.
    settle_at: usize,
    /// Runs that met a lock which was neither here nor free.
    misses: u32,
    /// Tables are locked exclusively as a whole, those too that are met later.
    whole: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TablePart {
    pub(crate) table: TableId,
    pub(crate) mode: IntentMode,
}

#[derive(Debug)]
struct KeyPart {
    name: LockName,
    table: TableId,
    /// `None`: −∞.
    key: Option<Range<usize>>,
    mode: KeyMode,
}

impl Footprint {
    /// Expects a lock on a table, or on keys of it.
    pub(crate) fn add_table(&mut self, table: TableId, mode: IntentMode) {
        let mode = if self.whole { IntentMode::X } else { mode };
        match self.place(table) {
            Some(place) => self.tables[place].mode = self.tables[place].mode.join(mode),
            None => {
                self.tables.push(TablePart { table, mode });
                self.places.note_last(&self.tables, |part| part.table);
            }
        }
    }

    #[inline]
    fn place(&self, table: TableId) -> Option<usize> {
        self.places.place(&self.tables, table, |part| part.table)
    }

    /// Expects a lock on a key or gap. From `escalation` keys of one table on, the table is locked in their place; 0:
    /// never.
    pub(crate) fn add_key(
        &mut self,
        name: LockName,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
        escalation: usize,
    ) {
        if self.is_covered(table, mode) {
            return;
        }
        let key = match key {
            KeyRef::NegativeInfinity => None,
            KeyRef::Key(key) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(key);
                Some(start..self.bytes.len())
            }
        };
        self.keys.push(KeyPart { name, table, key, mode });
        if self.keys.len() >= self.settle_at.max(UNSETTLED) {
            self.settle(escalation);
            self.settle_at = self.keys.len() * 2;
        }
    }

    /// Puts everything in the order in which it is granted, each name once (TXN-17).
    pub(crate) fn settle(&mut self, escalation: usize) {
        self.tables.sort_unstable_by_key(|part| (EntryIndex::of(part.table), part.table));
        self.places.note_all(&self.tables, |part| part.table);
        let recorded = self.keys.len();
        // Two keys may share a name: what counts is the name.
        self.keys.sort_unstable_by_key(|part| part.name.bits());
        self.keys.dedup_by(|later, kept| {
            let same = later.name == kept.name;
            if same {
                kept.mode = kept.mode.join(later.mode);
            }
            same
        });
        if planted(Fault::PartitionsUnordered) {
            self.keys.reverse();
        }
        if escalation > 0 && self.keys.len() >= escalation {
            self.escalate(escalation);
        }
        for sharing in
            self.tables.chunk_by_mut(|one, next| EntryIndex::of(one.table) == EntryIndex::of(next.table))
        {
            let joined = sharing.iter().map(|part| part.mode).reduce(IntentMode::join);
            sharing.iter_mut().for_each(|part| part.mode = joined.unwrap_or(part.mode));
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.retain(|part| !self.is_covered(part.table, part.mode));
        if keys.len() == recorded {
            self.keys = keys;
            return;
        }
        // Keys that were recorded several times have left their bytes.
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for range in keys.iter_mut().filter_map(|part| part.key.as_mut()) {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[range.clone()]);
            *range = start..bytes.len();
        }
        (self.keys, self.bytes) = (keys, bytes);
    }

    /// Locks tables in place of many keys, as transactions without a plan do (TXN-16); here it is asked for in order,
    /// so it may wait.
    #[cold]
    fn escalate(&mut self, escalation: usize) {
        let mut counts: BTreeMap<TableId, (usize, usize)> = BTreeMap::new();
        for key in &self.keys {
            let (keys, writes) = counts.entry(key.table).or_default();
            *keys += 1;
            *writes += usize::from(key.mode.is_exclusive());
        }
        for part in &mut self.tables {
            let (keys, writes) = counts.get(&part.table).copied().unwrap_or_default();
            if keys >= escalation {
                part.mode = part.mode.join(if writes * 2 > keys { IntentMode::X } else { IntentMode::S });
            }
        }
    }

    /// Whether the lock on the table makes one on a key needless.
    fn is_covered(&self, table: TableId, mode: KeyMode) -> bool {
        let needed = if mode.is_exclusive() { IntentMode::X } else { IntentMode::S };
        self.place(table).is_some_and(|place| self.tables[place].mode.covers(needed))
    }

    /// A run met a lock that was not here (it is now) and not free. After [`PLAN_MISSES`] of them, whole tables are
    /// expected: each further miss adds one, and a table that is locked exclusively is not missed again. So there is an
    /// end. Whether that begins now.
    pub(crate) fn note_miss(&mut self) -> bool {
        self.misses += 1;
        if self.whole || self.misses < PLAN_MISSES {
            return false;
        }
        self.whole = true;
        self.tables.iter_mut().for_each(|part| part.mode = IntentMode::X);
        self.forget_keys();
        true
    }

    /// Whether tables are locked as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The tables, in the order in which they are locked once settled.
    pub(crate) fn tables(&self) -> &[TablePart] {
        &self.tables
    }

    /// The keys and gaps, in the order of their names once settled.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (TableId, KeyRef<'_>, KeyMode)> {
        self.keys_from(0).map(|(_, table, key, mode)| (table, key, mode))
    }

    /// The name of a key or gap, by its place in that order.
    pub(crate) fn name(&self, place: usize) -> Option<LockName> {
        self.keys.get(place).map(|part| part.name)
    }

    /// The keys and gaps from a place in that order on.
    pub(crate) fn keys_from(
        &self,
        place: usize,
    ) -> impl Iterator<Item = (LockName, TableId, KeyRef<'_>, KeyMode)> {
        self.keys.get(place..).unwrap_or_default().iter().map(|part| {
            let key =
                part.key.clone().map_or(KeyRef::NegativeInfinity, |range| KeyRef::Key(&self.bytes[range]));
            (part.name, part.table, key, part.mode)
        })
    }

    /// Locks no keys: where locking is off.
    pub(crate) fn forget_keys(&mut self) {
        self.keys.clear();
        self.bytes.clear();
    }

    /// Whether it has more keys than this, also where each has been recorded twice, which is put in order later.
    pub(crate) fn is_beyond(&self, most: usize) -> bool {
        self.keys.len() > most.saturating_mul(2).saturating_add(UNSETTLED)
    }
}

#[cfg(test)]
mod tests;
