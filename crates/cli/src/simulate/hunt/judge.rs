//! What is asked of a database when it is opened again.
//!
//! It is sound, as `verify` sees it. Each commit that was acknowledged as durable is there, and none that was refused.
//! The transactions that are there, each of which left a row in the ledger, and those that only read and were told that
//! this is certain, give in the order of their commits exactly the results that they saw, and exactly the tables that
//! are found. Closed and opened once more, it holds the same.

use std::collections::BTreeSet;

use foreshore::{Database, Result};
use foreshore_env::{thread, time::Duration};
use foreshore_testkit::{
    FaultyDisk,
    history::{History, State},
};

use super::{
    Score,
    client::{Attempt, TABLES, Told, is_usual, table},
    plan::Plan,
};

/// How often `verify` is tried while others are in its way, and the rest between two attempts.
const MOST_ATTEMPTS: u32 = 50;
const REST: Duration = Duration::from_millis(10);
/// The number of the ledger.
const LEDGER: usize = 2;

type Table = Vec<(Vec<u8>, Vec<u8>)>;

/// Opens and judges; `before` is what the last judgement found. `closed`: the life ended in good order.
pub(super) fn judge(
    plan: &Plan,
    disk: &FaultyDisk,
    attempts: Vec<Attempt>,
    before: State,
    closed: bool,
    locks: bool,
    score: &mut Score,
) -> std::result::Result<State, String> {
    let db = open(plan, disk)?;
    // Without locks trees may be damaged, too; what is asked then is whether the history shows it.
    if locks {
        sound(&db)?;
    }
    let found = tables(&db)?;
    let state = history(attempts, before, closed, &found[LEDGER], score)?;
    for (number, (name, found)) in (0..).zip(TABLES.iter().zip(&found)) {
        let rows = state.range((number, vec![])..(number + 1, vec![]));
        let expected: Table = rows.map(|((_, key), value)| (key.clone(), value.clone())).collect();
        if *found != expected {
            return Err(format!("table {name} {}", difference(found, &expected)));
        }
    }
    db.close().map_err(|error| format!("closing: {error}"))?;
    drop(db);
    let again = open(plan, disk)?;
    if tables(&again)? != found {
        return Err("opened once more, it holds something else".to_owned());
    }
    again.close().map_err(|error| format!("closing once more: {error}"))?;
    Ok(state)
}

fn open(plan: &Plan, disk: &FaultyDisk) -> std::result::Result<Database, String> {
    plan.open(disk).map_err(|error| format!("opening: {error}"))
}

fn sound(db: &Database) -> std::result::Result<(), String> {
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

fn tables(db: &Database) -> std::result::Result<[Table; 3], String> {
    let content = |number: u32| -> Result<Table> {
        db.transact(|tx| tx.range(table(number), ..)?.collect::<Result<Table>>())
    };
    let read = |number| content(number).map_err(|error| format!("reading: {error}"));
    Ok([read(0)?, read(1)?, read(2)?])
}

/// Replays what is there; gives the tables that it makes.
fn history(
    attempts: Vec<Attempt>,
    before: State,
    closed: bool,
    ledger: &Table,
    score: &mut Score,
) -> std::result::Result<State, String> {
    let ledger: BTreeSet<&[u8]> = ledger.iter().map(|(row, _)| &row[..]).collect();
    let history = History::new();
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
                history.record(attempt.position, attempt.ops);
            }
            (false, Told::Refused) => {}
            (false, _) => score.lost += 1,
        }
    }
    history.replay_onto(before).map_err(|anomaly| anomaly.to_string())
}

/// The first row in which two tables differ.
fn difference(found: &Table, expected: &Table) -> String {
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
