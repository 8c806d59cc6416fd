//! What is asked of a database when it is opened again.
//!
//! Every transaction that was prepared, and about which nobody has decided, is prepared, and no other one; the judge
//! decides about them. Then it is sound, as `verify` sees it. Each commit that was acknowledged as durable is there,
//! and none that was refused; nor has a crash taken one that was only told to have happened, and left one that began
//! its commit later. The transactions that are there, each of which left a row in the ledger, and those that
//! only read and were told that this is certain, give in the order of their commits exactly the results that they saw,
//! and exactly the tables that are found. Closed and opened once more, it holds the same.

use std::collections::BTreeSet;

use foreshore::{Database, Error, Result, TransactOptions};
use foreshore_env::{thread, time::Duration};
use foreshore_testkit::{
    FaultyDisk,
    history::{History, State},
};

use super::{
    Score,
    attempt::{Attempt, Told},
    client::{Bytes, TABLES, is_usual, table},
    copies::{self, Copy},
    plan::Plan,
    scratch::{self, Drop, Lifetimes},
};

/// How often `verify` is tried while others are in its way, and the rest between two attempts.
const MOST_ATTEMPTS: u32 = 50;
const REST: Duration = Duration::from_millis(10);
/// How long the judge waits for locks of those whose pages are being freed, or who are prepared.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of the ledger.
const LEDGER: usize = 2;

pub(super) type Table = Vec<(Vec<u8>, Vec<u8>)>;

/// A table that the judge writes to, outside of the history.
const BESIDE: &str = "beside";

/// What those who worked in a life were told.
#[derive(Default)]
pub(super) struct Said {
    pub(super) attempts: Vec<Attempt>,
    /// Of the table that comes and goes.
    pub(super) drops: Vec<Drop>,
    /// Backups that were made, or tried.
    pub(super) copies: Vec<Copy>,
    /// The life ended in good order.
    pub(super) closed: bool,
}

/// Opens and judges; `before` is what the last judgement found.
pub(super) fn judge(
    plan: &Plan,
    disk: &FaultyDisk,
    mut said: Said,
    before: State,
    locks: bool,
    score: &mut Score,
) -> std::result::Result<State, String> {
    let seen = if plan.wide && locks { Some(copies::look(plan, disk)?) } else { None };
    if locks {
        copies::judge(plan, disk, &said.copies, &said.attempts, &before)?;
        score.copies += said.copies.iter().filter(|copy| copy.made).count() as u64;
    }
    let db = open(plan, disk)?;
    decide(&db, &mut said.attempts)?;
    // Without locks trees may be damaged, too; what is asked then is whether the history shows it.
    if locks {
        sound(&db)?;
    }
    let found = tables(&db)?;
    seen.map_or(Ok(()), |seen| seen.compare(&found))?;
    let mut lives = Lifetimes::new(&before);
    let mut state = history(said.attempts, before, said.closed, &found[LEDGER], &mut lives, score)?;
    for (number, (name, found)) in (0..).zip(TABLES.iter().zip(&found)) {
        compare(name, found, number, &state)?;
    }
    let scratch = scratch::found(&db).map_err(|error| format!("reading table scratch: {error}"))?;
    if locks {
        lives.judge(&said.drops, scratch.as_ref().map(|(number, _)| *number))?;
        if let Some((number, rows)) = &scratch {
            compare("scratch", rows, *number, &state)?;
        }
    }
    state.retain(|(table, _), _| {
        (*table as usize) < TABLES.len() || scratch.as_ref().is_some_and(|(number, _)| number == table)
    });
    db.close().map_err(|error| format!("closing: {error}"))?;
    drop(db);
    let again = open(plan, disk)?;
    let again_scratch =
        scratch::found(&again).map_err(|error| format!("reading table scratch again: {error}"))?;
    if tables(&again)? != found || again_scratch != scratch {
        return Err("opened once more, it holds something else".to_owned());
    }
    again.close().map_err(|error| format!("closing once more: {error}"))?;
    Ok(state)
}

fn open(plan: &Plan, disk: &FaultyDisk) -> std::result::Result<Database, String> {
    plan.open(disk).map_err(|error| format!("opening: {error}"))
}

/// Decides about the transactions that are prepared: by their places in the order of commits, half of them are
/// committed, and half are decided about when others have written something. A transaction that was rolled back, and is
/// prepared again because that was lost, keeps its place in the order, too: it would have had its exclusive locks until
/// the rollback was durable, so nobody has seen the tables without it, but what it has read may have changed since.
fn decide(db: &Database, attempts: &mut [Attempt]) -> std::result::Result<(), String> {
    let prepared = db.prepared().map_err(|error| format!("what is prepared: {error}"))?;
    for id in prepared.iter().map(|prepared| &prepared.global_id) {
        let attempt = attempts.iter_mut().find(|attempt| attempt.row.as_ref() == Some(id));
        let name = String::from_utf8_lossy(id);
        let attempt =
            attempt.ok_or_else(|| format!("transaction {name} is prepared, and nobody has done that"))?;
        if !matches!(attempt.told, Told::Prepared | Told::Deciding | Told::Undone) {
            return Err(format!(
                "transaction {name} is prepared, and was told that it is {:?}",
                attempt.told
            ));
        }
        let draw = attempt.position % 4;
        if draw < 2 {
            write_beside(db)?;
        }
        let (decided, told) = match draw % 2 {
            0 => (db.commit_prepared(id), Told::Durable),
            _ => (db.rollback_prepared(id), Told::Refused),
        };
        decided.map_err(|error| format!("the decision about transaction {name}, {told:?}: {error}"))?;
        attempt.told = told;
    }
    for attempt in attempts {
        match attempt.told {
            Told::Prepared => return Err(format!("transaction {} was prepared and is not", attempt.name())),
            Told::Deciding => attempt.told = Told::Durable,
            Told::Undone => attempt.told = Told::Refused,
            _ => {}
        }
    }
    Ok(())
}

/// Writes long values into a table of its own.
fn write_beside(db: &Database) -> std::result::Result<(), String> {
    let options = TransactOptions { deadline: Some(PATIENCE), ..TransactOptions::default() };
    let written = db.transact_with(&options, |tx| {
        (0..3_u8).try_for_each(|key| tx.put(Bytes::new(BESIDE), &[key][..], &[b'-'; 4000][..]).map(drop))
    });
    match written {
        Err(error) if !is_usual(&error) && !matches!(error, Error::LogFull { .. }) => {
            Err(format!("writing beside what is prepared: {error}"))
        }
        _ => Ok(()),
    }
}

pub(super) fn sound(db: &Database) -> std::result::Result<(), String> {
    let mut attempts = 0;
    let report = loop {
        attempts += 1;
        match db.verify() {
            // Pages of a dropped table are still being freed, and a policy may ask that nobody waits for that.
            Err(error) if is_usual(&error) && attempts < MOST_ATTEMPTS => thread::sleep(REST),
            result => break result.map_err(|error| format!("verify: {error}"))?,
        }
    };
    if report.is_sound() { Ok(()) } else { Err(format!("unsound: {:?}", report.problems)) }
}

pub(super) fn tables(db: &Database) -> std::result::Result<[Table; 3], String> {
    let read = |number| content(db, number).map_err(|error| format!("reading: {error}"));
    Ok([read(0)?, read(1)?, read(2)?])
}

fn content(db: &Database, number: u32) -> Result<Table> {
    db.transact(|tx| tx.range(table(number), ..)?.collect::<Result<Table>>())
}

/// The tables of a database that makes none that are not there.
pub(super) fn tables_or_none(db: &Database) -> Result<[Table; 3]> {
    let read = |number| match content(db, number) {
        Err(Error::NoSuchTable { .. }) => Ok(Table::new()),
        content => content,
    };
    Ok([read(0)?, read(1)?, read(2)?])
}

/// Replays what is there; gives the tables that it makes.
pub(super) fn history(
    attempts: Vec<Attempt>,
    before: State,
    closed: bool,
    ledger: &Table,
    lives: &mut Lifetimes,
    score: &mut Score,
) -> std::result::Result<State, String> {
    let ledger: BTreeSet<&[u8]> = ledger.iter().map(|(row, _)| &row[..]).collect();
    let history = History::new();
    let there = |attempt: &&Attempt| attempt.row.as_ref().is_some_and(|row| ledger.contains(&row[..]));
    let newest = attempts.iter().filter(there).map(|attempt| attempt.tried.start).max();
    for attempt in attempts {
        let certain = attempt.told == Told::Durable || (closed && attempt.told == Told::Lazy);
        let there = attempt.row.as_ref().map_or(certain, |row| ledger.contains(&row[..]));
        match (there, attempt.told) {
            (true, Told::Refused) => {
                return Err(format!("transaction {} was refused and is there", attempt.name()));
            }
            (false, _) if certain => {
                return Err(format!(
                    "transaction {} was acknowledged as durable and is lost",
                    attempt.name()
                ));
            }
            (true, _) => {
                score.there += 1;
                lives.note(&attempt);
                history.record(attempt.position, attempt.ops);
            }
            // One that only read leaves nothing by which that could be seen.
            (false, Told::Lazy)
                if attempt.row.is_some() && newest.is_some_and(|newest| newest >= attempt.tried.end) =>
            {
                return Err(format!("transaction {} is lost, and a newer one is not", attempt.name()));
            }
            (false, Told::Refused) => {}
            (false, _) => score.lost += 1,
        }
    }
    history.replay_onto(before).map_err(|anomaly| anomaly.to_string())
}

/// What is found in a table is what the commits have made of it.
pub(super) fn compare(
    name: &str,
    found: &Table,
    number: u32,
    state: &State,
) -> std::result::Result<(), String> {
    let rows = state.range((number, vec![])..).take_while(|((table, _), _)| *table == number);
    let expected: Table = rows.map(|((_, key), value)| (key.clone(), value.clone())).collect();
    if *found == expected { Ok(()) } else { Err(format!("table {name} {}", difference(found, &expected))) }
}

/// The first row in which two tables differ.
pub(super) fn difference(found: &Table, expected: &Table) -> String {
    let text = |row: Option<&(Vec<u8>, Vec<u8>)>| match row {
        Some((key, value)) => {
            let value = &value[..value.len().min(40)];
            format!("{} = {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
        }
        None => "nothing".to_owned(),
    };
    let same = found.iter().zip(expected).take_while(|(one, other)| one == other).count();
    format!(
        "is not what the commits made of it: row {same} is {}, and should be {}",
        text(found.get(same)),
        text(expected.get(same))
    )
}

#[cfg(test)]
mod tests {
    use foreshore_env::sync::atomic::AtomicU64;

    use super::*;

    /// Whether the judge believes it: what was told of transactions, one after the other or all at a time, and whether
    /// they are there.
    fn believes(one_by_one: bool, transactions: &[(Told, bool)]) -> bool {
        let name = |position: u64| format!("0-1-{position}").into_bytes();
        let all = transactions.len() as u64;
        let attempt = |(position, (told, _)): (u64, &(Told, bool))| {
            let order = AtomicU64::new(if one_by_one { position + 1 } else { all });
            Attempt::new(position, vec![], Some(name(position)), *told, &order)
        };
        let attempts = (0..).zip(transactions).map(attempt).collect();
        let there = (0..).zip(transactions).filter(|(_, (_, there))| *there);
        let ledger: Table = there.map(|(position, _)| (name(position), b"committed".to_vec())).collect();
        let mut lives = Lifetimes::new(&State::new());
        history(attempts, State::new(), false, &ledger, &mut lives, &mut Score::default()).is_ok()
    }

    /// `Durability::Lazy` may lose the newest transactions, "never an older one without the newer". Whatever was not
    /// durable counted as a loss that may be.
    #[test]
    fn an_older_commit_is_not_lost_without_the_newer() {
        use Told::{Durable, Lazy, Unknown};
        assert!(believes(true, &[(Lazy, true), (Lazy, false), (Lazy, false)]));
        assert!(!believes(true, &[(Lazy, false), (Durable, true)]));
        assert!(!believes(true, &[(Lazy, true), (Lazy, false), (Lazy, true)]));
        assert!(!believes(true, &[(Lazy, false), (Unknown, true)]));
        assert!(believes(true, &[(Unknown, false), (Durable, true)]), "it may not have happened");
        assert!(believes(false, &[(Lazy, false), (Durable, true)]), "which of them is the older one?");
    }
}
