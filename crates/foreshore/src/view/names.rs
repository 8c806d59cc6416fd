//! From ids and bytes to names and keys.

use std::collections::BTreeMap;

use foreshore_base::TableId;
use foreshore_txn::{DeadlockEdge, DeadlockReport, LockMode, lock};

use super::{DeadlockView, LockTarget, LockView, WaitView, keys::readable};
use crate::{
    database::{Database, Inner},
    table::TableDescription,
};

/// The tables of a database, by id.
pub(crate) struct Names(BTreeMap<TableId, TableDescription>);

impl Names {
    /// The names of all tables that there are. Of a closed database nothing is known, and ids have to do.
    pub(super) fn of(database: &Database) -> Names {
        let tables = database.table_infos().unwrap_or_default();
        Names(tables.iter().map(|info| (info.id(), TableDescription::of(info))).collect())
    }

    /// The names of some tables, as far as they are known. Where something has failed already nothing else may.
    pub(crate) fn of_tables(database: Option<&Inner>, ids: impl Iterator<Item = TableId>) -> Names {
        let mut names = BTreeMap::new();
        if let Some(database) = database {
            for id in ids.filter(|id| (TableId::FIRST_USER..TableId::VOLUME).contains(id)) {
                if names.contains_key(&id) {
                    continue;
                }
                // One that was dropped meanwhile was used by whoever asks.
                let there = database.engine.table_by_id(id);
                let known = there.or_else(|| database.tables.by_id(id).cloned());
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

    fn target(&self, place: lock::LockTarget) -> LockTarget {
        match place {
            lock::LockTarget::Table(TableId::VOLUME) => LockTarget::Database,
            lock::LockTarget::Table(table) => LockTarget::Table { table: self.table(table) },
            lock::LockTarget::Key(table, key) => {
                let key_type = self.0.get(&table).map_or("", |table| &table.key_type);
                LockTarget::Key { table: self.table(table), key: readable(key_type, &key) }
            }
            lock::LockTarget::BeforeAll(table) => LockTarget::BelowFirstKey { table: self.table(table) },
            lock::LockTarget::Name(name) => LockTarget::Unknown { name: name.bits() },
        }
    }

    pub(super) fn lock(&self, lock: lock::LockView) -> LockView {
        LockView {
            target: self.target(lock.target),
            transaction: lock.transaction,
            granted: lock.granted,
            wanted: lock.wanted,
            held_for: lock.held_for,
            waited: lock.waited,
        }
    }

    pub(super) fn wait(&self, wait: lock::WaitView) -> WaitView {
        WaitView {
            target: self.target(wait.target),
            transaction: wait.transaction,
            wanted: wait.wanted,
            held: wait.held,
            number: wait.number,
            blockers_omitted: wait.omitted,
            waited: wait.waited,
            blockers: wait.blockers,
        }
    }

    /// Somebody who waits, without those in the way.
    pub(crate) fn edge(&self, edge: &DeadlockEdge) -> WaitView {
        WaitView {
            transaction: edge.transaction(),
            target: self.target(match (edge.key, edge.mode) {
                (Some(key), _) => lock::LockTarget::Key(edge.table, key),
                (None, LockMode::Key(_)) => lock::LockTarget::BeforeAll(edge.table),
                (None, LockMode::Table(_)) => lock::LockTarget::Table(edge.table),
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
            victim.blockers.clone_from(&report.blockers);
        }
        DeadlockView {
            cycle,
            victim: report.victim,
            reason: report.reason,
            older: report.older.clone(),
            at_unix_seconds: report.at_unix_seconds,
        }
    }
}
