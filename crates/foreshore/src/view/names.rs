//! From ids and bytes to names and keys.

use std::collections::HashMap;

use foreshore_base::{TableId, key::Key};
use foreshore_txn::{
    DeadlockEdge, DeadlockReport, KeyBytes, LockBlocker, LockMode, LockPlace, LockRow, LockTransaction,
    LockWait,
};

use super::{BlockerView, DeadlockView, KeyForm, KeyView, LockTarget, LockView, TransactionView, WaitView};
use crate::{
    database::{Database, Inner},
    table::TableDescription,
};

/// What stands for the whole database where tables are locked.
const VOLUME: TableId = TableId(u32::MAX);

/// The tables of a database, by id.
pub(crate) struct Names(HashMap<TableId, TableDescription>);

impl Names {
    /// Those that there are. Of a closed database nothing is known, and ids have to do.
    pub(super) fn of(database: &Database) -> Names {
        let tables = database.table_infos().unwrap_or_default();
        Names(tables.iter().map(|info| (info.id(), TableDescription::of(info))).collect())
    }

    /// Some of them, as far as they are known. Where something has failed already nothing else may.
    pub(crate) fn of_tables(database: Option<&Inner>, ids: impl Iterator<Item = TableId>) -> Names {
        let mut names = HashMap::new();
        if let Some(database) = database {
            for id in ids.filter(|id| (TableId::FIRST_USER..VOLUME).contains(id)) {
                if names.contains_key(&id) {
                    continue;
                }
                let used = database.tables.by_id(id).cloned();
                let known =
                    used.or_else(|| database.engine.tables().ok()?.into_iter().find(|info| info.id() == id));
                names.extend(known.map(|info| (id, TableDescription::of(&info))));
            }
        }
        Names(names)
    }

    fn table(&self, id: TableId) -> String {
        match self.0.get(&id) {
            Some(table) => table.name.clone(),
            // Below the first of users: what the database keeps for itself.
            None => format!("#{id}"),
        }
    }

    fn target(&self, place: LockPlace) -> LockTarget {
        match place {
            LockPlace::Table(VOLUME) => LockTarget::Database,
            LockPlace::Table(table) => LockTarget::Table { table: self.table(table) },
            LockPlace::Key(table, key) => {
                let key_type = self.0.get(&table).map_or("", |table| &table.key_type);
                LockTarget::Key { table: self.table(table), key: readable(key_type, &key) }
            }
            LockPlace::BeforeAll(table) => LockTarget::BelowFirstKey { table: self.table(table) },
            LockPlace::Name(name) => LockTarget::Unknown { name: name.bits() },
        }
    }

    pub(super) fn lock(&self, lock: LockRow) -> LockView {
        LockView {
            target: self.target(lock.target),
            transaction: lock.txn.into(),
            granted: lock.granted,
            wanted: lock.wanted,
            held_for: lock.held_for,
            waited: lock.waited,
        }
    }

    pub(super) fn wait(&self, wait: LockWait) -> WaitView {
        WaitView {
            target: self.target(wait.target),
            transaction: wait.txn.into(),
            wanted: wait.wanted,
            held: wait.held,
            number: wait.number,
            blockers_omitted: wait.omitted,
            waited: wait.waited,
            blockers: wait.blockers.into_iter().map(BlockerView::from).collect(),
        }
    }

    /// Somebody who waits, without those in the way.
    pub(crate) fn edge(&self, edge: &DeadlockEdge) -> WaitView {
        WaitView {
            transaction: TransactionView {
                id: edge.txn.0,
                label: edge.label.clone(),
                priority: Some(edge.priority),
                begun_at: edge.begun_at,
                open_for: None,
            },
            target: self.target(match (edge.key, edge.mode) {
                (Some(key), _) => LockPlace::Key(edge.table, key),
                (None, LockMode::Key(_)) => LockPlace::BeforeAll(edge.table),
                (None, LockMode::Table(_)) => LockPlace::Table(edge.table),
            }),
            wanted: edge.mode,
            held: edge.held,
            number: 0,
            blockers_omitted: 0,
            waited: edge.waited,
            blockers: Vec::new(),
        }
    }

    pub(crate) fn deadlock(&self, report: &DeadlockReport) -> DeadlockView {
        let mut cycle: Vec<WaitView> = report.cycle.iter().map(|edge| self.edge(edge)).collect();
        if let Some(victim) = cycle.first_mut() {
            victim.blockers = report.blockers.iter().cloned().map(BlockerView::from).collect();
        }
        DeadlockView {
            cycle,
            victim: report.victim.0,
            reason: report.reason,
            older: report.older.clone().map(TransactionView::from),
            at_unix_seconds: report.at_unix_seconds,
        }
    }
}

impl From<LockBlocker> for BlockerView {
    fn from(blocker: LockBlocker) -> BlockerView {
        BlockerView {
            transaction: blocker.txn.into(),
            mode: blocker.mode,
            holds: blocker.holds,
            held_for: blocker.held_for,
        }
    }
}

impl From<LockTransaction> for TransactionView {
    fn from(txn: LockTransaction) -> TransactionView {
        let LockTransaction { txn, label, priority, begun_at, open_for, .. } = txn;
        TransactionView { id: txn.0, label, priority, begun_at, open_for }
    }
}

fn digits<K: Key>(bytes: &[u8]) -> Option<String>
where
    K::Owned: ToString,
{
    K::decode(bytes).ok().map(|number| number.to_string())
}

/// A key of a table with this type of keys.
fn readable(key_type: &str, key: &KeyBytes) -> KeyView {
    let (bytes, truncated) = (key.bytes(), key.is_truncated());
    let number = match key_type {
        "u8" => digits::<u8>(bytes),
        "u16" => digits::<u16>(bytes),
        "u32" => digits::<u32>(bytes),
        "u64" => digits::<u64>(bytes),
        "u128" => digits::<u128>(bytes),
        "i8" => digits::<i8>(bytes),
        "i16" => digits::<i16>(bytes),
        "i32" => digits::<i32>(bytes),
        "i64" => digits::<i64>(bytes),
        "i128" => digits::<i128>(bytes),
        "bool" => digits::<bool>(bytes),
        _ => None,
    };
    let (text, form) = match (number, key_type, std::str::from_utf8(bytes)) {
        (Some(number), ..) => (number, KeyForm::Plain),
        (None, "str", Ok(text)) => (text.to_owned(), KeyForm::Text),
        // Cut off within a character.
        (None, "str", Err(error)) if truncated => {
            (String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned(), KeyForm::Text)
        }
        _ => (bytes.escape_ascii().to_string(), KeyForm::Escaped),
    };
    KeyView { text, bytes: bytes.to_vec(), truncated, form }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<K: Key>(key: &K) -> String {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        readable(K::NAME, &KeyBytes::new(&bytes)).to_string()
    }

    #[test]
    fn keys_are_shown_as_they_were_written() {
        assert_eq!(shown(&"größer"), "\"größer\"");
        assert_eq!(shown(&"say \"no\"\n"), "\"say \\\"no\\\"\\n\"");
        assert_eq!(shown(&-17i64), "-17");
        assert_eq!(shown(&u128::MAX), u128::MAX.to_string());
        assert_eq!(shown(&true), "true");
        assert_eq!(shown(&b"a\0\xFF".as_slice()), "\"a\\x00\\xff\"");
        // Three bytes each: the 64th is in the middle of a character.
        assert_eq!(shown(&"€".repeat(30).as_str()), format!("\"{}\"…", "€".repeat(21)));
        // Bytes that are no encoding of the type are shown nevertheless.
        assert_eq!(readable("u64", &KeyBytes::new(b"abc")).to_string(), "\"abc\"");
        assert_eq!(readable("str", &KeyBytes::new(b"a\xFF")).to_string(), "\"a\\xff\"");
    }
}
