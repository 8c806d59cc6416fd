//! Views of locks, waits and deadlocks, as text, JSON and DOT.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CancelHandle, Database, Direction, Error, LockTarget, LogHolder, TableDefinition, TableLock,
    TransactOptions, Transaction, TxnId, VictimReason, WaitView,
};
use serde_json::Value as Json;

const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
const NUMBERS: TableDefinition<i64, i64> = TableDefinition::new("numbers");

fn open(notes: bool) -> (tempfile::TempDir, Database) {
    open_with(notes, &[])
}

fn open_with(notes: bool, settings: &[(&str, &str)]) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let mut builder = Database::builder().set("lock_notes", &notes.to_string()).unwrap();
    for (name, value) in settings {
        builder = builder.set(name, value).unwrap();
    }
    let db = builder.open(directory.path()).unwrap();
    db.transact(|tx| {
        for name in ["a", "b", "d"] {
            tx.put(ACCOUNTS, name, 1)?;
        }
        tx.put(NUMBERS, -5, 1).map(|_| ())
    })
    .unwrap();
    (directory, db)
}

#[track_caller]
fn begin(db: &Database, label: &str) -> Transaction {
    db.begin_with(&TransactOptions { label: Some(label.into()), ..TransactOptions::default() }).unwrap()
}

/// Cancels when it is dropped, so that a failed assertion ends the waits of the threads beside it.
struct Cancels(CancelHandle);

impl Drop for Cancels {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs `wait` in a transaction of another thread, and `look` while it waits.
fn while_waiting(
    db: &Database,
    label: &str,
    wait: impl FnOnce(&mut Transaction) -> Result<(), Error> + Send,
    look: impl FnOnce(&WaitView),
) {
    let mut waiter = begin(db, label);
    let (id, cancels) = (waiter.id(), Cancels(waiter.cancel_handle()));
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = wait(&mut waiter);
        });
        let cancels = cancels;
        let limit = Instant::now() + Duration::from_secs(120);
        let view = loop {
            if let Some(view) = db.explain_wait(id) {
                break view;
            }
            assert!(Instant::now() < limit, "{label} does not come to wait");
            thread::yield_now();
        };
        look(&view);
        drop(cancels);
    });
}

#[test]
fn an_insert_that_waits_is_explained_by_the_gap() {
    let (_directory, db) = open(true);
    let line = line!() + 1;
    let mut report = begin(&db, "report");
    report
        .scan(ACCOUNTS, "a".."c", Direction::Ascending, |_, _| std::ops::ControlFlow::Continue(()))
        .unwrap();
    while_waiting(
        &db,
        "insert",
        |tx| tx.insert(ACCOUNTS, "c", 7).map(|_| ()),
        |wait| {
            let text = wait.to_string();
            let LockTarget::Key { table, key } = &wait.target else { panic!("{text}") };
            assert_eq!((table.as_str(), key.text.as_str()), ("accounts", "b"));
            assert_eq!(wait.wanted.to_string(), "NX");
            assert_eq!(wait.blockers.len(), 1);
            let blocker = &wait.blockers[0];
            assert!(blocker.holds && blocker.held_for.is_some());
            assert_eq!(blocker.transaction.begun_at.map(|at| at.line()), Some(line));
            let (waiter, holder) = (wait.transaction.id, blocker.transaction.id);
            assert!(text.starts_with(&format!("transaction {waiter} (insert) has waited ")), "{text}");
            let middle = format!(
                " ms for NX on key \"b\" of accounts, to put a key into the gap above it; in its way: \
                 transaction {holder} (report) holds the gap above it as S for "
            );
            assert!(text.contains(&middle), "{text}");
            assert!(text.contains("tests/facade/views.rs:"), "{text}");
            // The same in the list of all, and as JSON.
            let all = db.waits_for();
            assert_eq!(all.waits.len(), 1);
            let json: Json = serde_json::from_str(&all.to_json()).unwrap();
            let wait = &json["waits"][0];
            assert_eq!(wait["transaction"]["label"], "insert");
            assert_eq!(wait["target"]["key"], "b");
            assert_eq!(wait["target"]["key_hex"], "62");
            assert_eq!(wait["wanted"], "NX");
            assert_eq!(wait["blockers"][0]["transaction"]["id"], holder.0);
            assert_eq!(wait["blockers"][0]["holds"], true);
            assert!(wait["waited_ms"].is_f64() && wait["blockers"][0]["held_ms"].is_f64());
            let dot = all.to_dot();
            assert!(dot.contains(&format!("t{waiter} [label=\"transaction {waiter} (insert)\"];")), "{dot}");
            assert!(
                dot.contains(&format!("t{waiter} -> t{holder} [style=solid, label=\"NX on key \\\"b\\\""))
            );
        },
    );
    assert!(db.explain_wait(report.id()).is_none());
}

#[test]
fn locks_are_listed_with_tables_and_readable_keys() {
    let (_directory, db) = open(true);
    let mut tx = begin(&db, "say \"hi\"\n");
    tx.put(ACCOUNTS, "b", 2).unwrap();
    tx.get(NUMBERS, -5).unwrap();
    let list = db.locks();
    assert_eq!(list.omitted, 0);
    let mut lines: Vec<String> = list
        .locks
        .iter()
        .map(|lock| format!("{} {}", lock.target, lock.granted.expect("nobody waits")))
        .collect();
    lines.sort();
    let expected = [
        "key \"b\" of accounts XN",
        "key -5 of numbers SN",
        "table accounts IX",
        "table numbers IS",
        "the database IX",
    ];
    assert_eq!(lines, expected);
    let json: Json = serde_json::from_str(&list.to_json()).unwrap();
    assert_eq!(json["locks"].as_array().unwrap().len(), 5);
    assert_eq!(json["omitted"], 0);
    for lock in json["locks"].as_array().unwrap() {
        assert_eq!(lock["transaction"]["label"], "say \"hi\"\n");
        assert!(lock["transaction"]["begun_at"].as_str().unwrap().contains("views.rs"));
        assert!(lock.get("wanted").is_none() && lock.get("waited_ms").is_none());
    }
    let text = list.to_string();
    assert_eq!(text.lines().count(), 5, "{text}");
    let line = text.lines().find(|line| line.contains("key -5 of numbers")).unwrap();
    assert!(line.starts_with(&format!("transaction {} (say ", tx.id())), "{line}");
    assert!(line.contains(") has SN on key -5 of numbers for ") && line.ends_with(" ms"), "{line}");
    let mut cut = list;
    cut.locks.truncate(1);
    cut.omitted = 4;
    assert!(cut.to_string().ends_with("\nand 4 more"), "{cut}");
    tx.commit().unwrap();
    assert!(db.locks().locks.is_empty());
    assert_eq!(db.locks().to_string(), "no locks");
    assert_eq!(db.waits_for().to_string(), "nobody waits for a lock");
}

#[test]
fn who_waits_is_shown_as_text_with_what_it_has() {
    let (_directory, db) = open(false);
    let mut reader = begin(&db, "reader");
    assert_eq!(reader.get(ACCOUNTS, "b").unwrap(), Some(1));
    while_waiting(
        &db,
        "writer",
        |tx| tx.get(ACCOUNTS, "b").and_then(|_| tx.put(ACCOUNTS, "b", 3)).map(|_| ()),
        |wait| {
            let (graph, list) = (db.waits_for().to_string(), db.locks().to_string());
            assert!(graph.starts_with(&format!("{} has waited ", wait.transaction)), "{graph}");
            assert_eq!(graph.lines().count(), 1, "{graph}");
            let line = list.lines().find(|line| line.contains(", and has waited ")).expect(&list);
            assert!(line.contains("(writer) has SN on key \"b\" of accounts, and has waited "), "{line}");
            assert!(line.ends_with(" ms for XN there"), "{line}");
        },
    );
}

#[test]
fn without_notes_a_lock_that_nobody_waits_for_has_no_key() {
    let (_directory, db) = open(false);
    let mut tx = begin(&db, "tx");
    tx.put(ACCOUNTS, "b", 2).unwrap();
    let unknown = |locks: &[foreshore::LockView]| {
        locks.iter().filter(|lock| matches!(lock.target, LockTarget::Unknown { .. })).count()
    };
    assert_eq!(unknown(&db.locks().locks), 1);
    while_waiting(
        &db,
        "reader",
        |tx| tx.get(ACCOUNTS, "b").map(|_| ()),
        |wait| {
            assert_eq!(unknown(&db.locks().locks), 0);
            assert!(wait.blockers[0].held_for.is_none());
            let text = wait.to_string();
            assert!(text.contains("SN on key \"b\" of accounts, to read the key; in its way:"), "{text}");
            assert!(text.contains("holds the key as XN (open for "), "{text}");
        },
    );
}

#[test]
fn a_wait_for_a_table_is_explained() {
    for table in ["latched", "global_mutex", "staged"] {
        for intents in ["private", "lightweight", "in_table", "inherited"] {
            wait_for_a_table(&[("lock_table", table), ("intent_locks", intents)]);
        }
    }
}

fn wait_for_a_table(kinds: &[(&str, &str)]) {
    let (_directory, db) = open_with(false, kinds);
    let mut writer = begin(&db, "writer");
    writer.put(ACCOUNTS, "b", 2).unwrap();
    while_waiting(
        &db,
        "all",
        |tx| tx.lock_table(ACCOUNTS, TableLock::Shared),
        |wait| {
            let text = wait.to_string();
            assert!(
                text.contains("for S on table accounts, to read all keys; in its way: transaction "),
                "{text}"
            );
            assert!(text.contains("(writer) holds it as IX"), "{text}");
            let waiter = wait.transaction.id;
            while_waiting(
                &db,
                "late",
                |tx| tx.put(ACCOUNTS, "a", 3).map(|_| ()),
                |wait| {
                    assert!(
                        wait.to_string()
                            .contains(&format!("transaction {waiter} (all) came first for it as S"))
                    );
                    let dot = db.waits_for().to_dot();
                    assert!(
                        dot.contains(&format!("t{} -> t{waiter} [style=dashed", wait.transaction.id)),
                        "{dot}"
                    );
                    // Intents that cost their holders nothing shared are listed all the same, and nobody is stopped.
                    let on_accounts: Vec<(TxnId, String)> = (db.locks().locks.iter())
                        .filter(
                            |lock| matches!(&lock.target, LockTarget::Table { table } if table == "accounts"),
                        )
                        .map(|lock| {
                            let mode = lock.granted.or(lock.wanted).unwrap();
                            (lock.transaction.id, format!("{mode} {}", lock.granted.is_some()))
                        })
                        .collect();
                    for (id, mode) in
                        [(writer.id(), "IX true"), (waiter, "S false"), (wait.transaction.id, "IX false")]
                    {
                        assert!(on_accounts.contains(&(id, mode.to_owned())), "{kinds:?}: {on_accounts:?}");
                    }
                    assert_eq!(on_accounts.len(), 3, "{kinds:?}: {on_accounts:?}");
                },
            );
        },
    );
}

/// Sets of modes that know less lock more, and the explanation says what is locked.
#[test]
fn an_insert_that_waits_is_explained_by_the_modes_that_there_are() {
    for table in ["latched", "global_mutex", "staged"] {
        for (modes, wanted) in [("lomet", "SX"), ("next_key", "X")] {
            let (_directory, db) = open_with(true, &[("lock_table", table), ("key_range_modes", modes)]);
            let mut report = begin(&db, "report");
            report
                .scan(ACCOUNTS, "a".."c", Direction::Ascending, |_, _| std::ops::ControlFlow::Continue(()))
                .unwrap();
            while_waiting(
                &db,
                "insert",
                |tx| tx.insert(ACCOUNTS, "c", 7).map(|_| ()),
                |wait| {
                    let text = wait.to_string();
                    assert_eq!(wait.wanted.to_string(), wanted, "{modes}: {text}");
                    assert!(
                        text.contains("to put a key into the gap above it; in its way: transaction "),
                        "{text}"
                    );
                    assert!(text.contains("(report) holds "), "{text}");
                    assert_eq!(wait.blockers.len(), 1, "{text}");
                    assert!(wait.blockers[0].holds && wait.blockers[0].mode.to_string() == "S", "{text}");
                },
            );
        }
    }
}

#[test]
fn a_deadlock_is_remembered_with_names_and_reason() {
    let (_directory, db) = open(false);
    let (mut one, mut two) = (begin(&db, "one"), begin(&db, "two"));
    one.put(ACCOUNTS, "a", 2).unwrap();
    two.put(ACCOUNTS, "b", 2).unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let victim = two.id();
        scope.spawn(move || {
            sender.send(one.put(ACCOUNTS, "b", 3).is_ok()).unwrap();
            one.commit().unwrap();
        });
        let Err(Error::Deadlock(view)) = two.put(ACCOUNTS, "a", 3) else {
            panic!("the younger one gives way")
        };
        assert_eq!((view.victim, view.reason, view.cycle.len()), (victim, VictimReason::Deadlock, 2));
        let text = view.to_string();
        assert!(text.contains("for XN on key \"a\" of accounts, to change the key"), "{text}");
        assert!(text.contains("gave way (chosen to break the cycle)"), "{text}");
        let json: Json = serde_json::from_str(&view.to_json()).unwrap();
        assert_eq!(json["victim"], victim.0);
        assert!(json["cycle"].as_array().unwrap().iter().all(|member| {
            member["target"]["table"] == "accounts"
                && member["transaction"]["begun_at"].as_str().unwrap().contains("views.rs")
        }));
        two.rollback().unwrap();
    });
    assert!(receiver.recv().unwrap());
    let kept = db.deadlocks();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].cycle.len(), 2);
}

/// The ring keeps the newest 128.
#[test]
fn no_more_than_128_deadlocks_are_kept() {
    let (_directory, db) = open(false);
    let mut last = TxnId(0);
    for _ in 0..130 {
        let (mut one, mut two) = (begin(&db, "one"), begin(&db, "two"));
        one.get(ACCOUNTS, "a").unwrap();
        two.get(ACCOUNTS, "a").unwrap();
        last = two.id();
        thread::scope(|scope| {
            scope.spawn(move || one.put(ACCOUNTS, "a", 2).unwrap());
            assert!(matches!(two.put(ACCOUNTS, "a", 3), Err(Error::Deadlock(_))));
            two.rollback().unwrap();
        });
    }
    let kept = db.deadlocks();
    assert_eq!((kept.len(), kept[127].victim), (128, last));
    assert_eq!(db.stats().deadlocks, 130);
}

#[test]
fn who_holds_the_log_is_named() {
    let (_directory, db) = open(false);
    let mut writer = begin(&db, "import");
    writer.put(ACCOUNTS, "z", 1).unwrap();
    db.checkpoint().unwrap();
    db.transact(|tx| tx.put(NUMBERS, 7, 7).map(|_| ())).unwrap();
    let retention = db.log_retention();
    assert!(retention.used_bytes > 0 && retention.used_bytes < retention.work_bytes);
    assert!(retention.work_bytes < retention.capacity_bytes);
    let held = retention.holders.iter().map(|hold| hold.held_bytes);
    assert!(held.is_sorted_by(|one, next| one >= next), "{retention:?}");
    let first = &retention.holders[0].holder;
    assert!(matches!(first, LogHolder::Transaction(view) if view.id == writer.id()), "{retention:?}");
    let told = first.to_string();
    assert!(told.contains("(import), open for ") && told.ends_with(" s"), "{told}");
    writer.rollback().unwrap();
    db.checkpoint().unwrap();
    let retention = db.log_retention();
    assert!(matches!(&retention.holders[..], [hold] if matches!(hold.holder, LogHolder::Pages)));
}

/// Who gives way depends on it: so it is to be seen wherever it is not the one of all.
#[test]
fn an_unusual_priority_is_shown_and_a_usual_one_is_not() {
    let with = |label: &str, priority| TransactOptions {
        label: Some(label.into()),
        priority,
        ..TransactOptions::default()
    };
    let json = |text: String| serde_json::from_str::<Json>(&text).unwrap();
    let (_directory, db) = open(true);
    let mut report = db.begin_with(&with("report", 3)).unwrap();
    report.put(ACCOUNTS, "b", 2).unwrap();
    let named = format!("transaction {} (report, priority 3)", report.id());
    let nameless = db.begin_with(&TransactOptions { priority: -128, ..TransactOptions::default() }).unwrap();
    while_waiting(
        &db,
        "reader",
        |tx| tx.get(ACCOUNTS, "b").map(|_| ()),
        |wait| {
            let (text, waiter) = (wait.to_string(), wait.transaction.id);
            assert!(text.starts_with(&format!("transaction {waiter} (reader) has waited ")), "{text}");
            assert!(text.contains(&format!("in its way: {named} holds the key as XN for ")), "{text}");
            let graph = db.waits_for();
            let dot = graph.to_dot();
            assert!(dot.contains(&format!("[label=\"{named}\"]")), "{dot}");
            let wait = &json(graph.to_json())["waits"][0];
            assert_eq!(wait["transaction"].get("priority"), None, "{wait}");
            assert_eq!(wait["blockers"][0]["transaction"]["priority"], 3, "{wait}");
            for lock in db.locks().locks {
                let shown = lock.transaction.priority;
                assert_eq!(shown, Some(if lock.transaction.id == waiter { 0 } else { 3 }), "{lock:?}");
            }
        },
    );
    let hasty = TransactOptions { no_wait: true, ..with("hasty", -1) };
    let refused = db.begin_with(&hasty).unwrap().get(ACCOUNTS, "b").unwrap_err();
    assert!(refused.to_string().contains(&format!("; in its way: {named} in mode XN")), "{refused}");
    assert!(refused.to_string().contains("(hasty, priority -1) would have to wait"), "{refused}");
    // Of a cycle, in the error and in what is kept.
    let mut cheap = nameless;
    let id = cheap.id();
    cheap.put(ACCOUNTS, "a", 2).unwrap();
    let error = thread::scope(|scope| {
        let cheap = scope.spawn(move || cheap.put(ACCOUNTS, "b", 3).unwrap_err());
        report.put(ACCOUNTS, "a", 3).unwrap();
        cheap.join().unwrap()
    });
    let kept = db.deadlocks();
    for text in [error.to_string(), kept[0].to_string()] {
        assert!(text.contains(&format!("transaction {id} (priority -128) has waited ")), "{text}");
        assert!(text.contains(&format!("{named} has waited ")), "{text}");
    }
    let mut priorities: Vec<_> = (json(kept[0].to_json())["cycle"].as_array().unwrap().iter())
        .map(|member| member["transaction"]["priority"].as_i64().unwrap())
        .collect();
    priorities.sort_unstable();
    assert_eq!(priorities, [-128, 3]);
}
