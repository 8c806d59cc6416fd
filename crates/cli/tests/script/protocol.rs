//! Commands and answers.

use std::time::{Duration, Instant};

use foreshore::{Database, TableDefinition};
use serde_json::{Value as Json, json};

use crate::player::{PATIENCE, Player};

fn begin_both(player: &mut Player) {
    for session in ["a", "b"] {
        player.ok(session, "begin", json!({"durability": "lazy"}));
    }
}

#[test]
fn commits_of_every_durability_are_there_when_the_script_has_ended() {
    let mut player = Player::new();
    for durability in ["sync", "pipelined", "lazy"] {
        for key in ["k", durability] {
            player.ok(durability, "begin", json!({"durability": durability}));
            player.ok(durability, "put", json!({"key": key, "value": durability}));
            player.ok(durability, "commit", json!({}));
        }
        // Its locks are free: nobody else has to wait.
        player.ok("other", "begin", json!({"durability": "lazy"}));
        assert_eq!(player.ok("other", "get", json!({"key": "k"}))["value"], durability);
        player.ok("other", "commit", json!({}));
    }
    player.fails("main", "begin", json!({"durability": "eventual"}), "malformed");
    let (_, status, directory) = player.end();
    assert_eq!(status, 1, "one line was no command");
    let db = Database::open(directory.path().join("db")).unwrap();
    let table: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");
    for key in ["sync", "pipelined", "lazy"] {
        let value = db.transact(|tx| tx.get(table, key.as_bytes())).unwrap();
        assert_eq!(value.as_deref(), Some(key.as_bytes()));
    }
}

#[test]
fn every_operation_answers_with_its_result() {
    let mut player = Player::new();
    let begun = player.ok("a", "begin", json!({"id": 7, "label": "all", "isolation": "serializable"}));
    assert_eq!((&begun["id"], &begun["session"]), (&json!(7), &json!("a")));
    assert!(begun["transaction"].is_u64());
    for (op, fields, field, result) in [
        ("get", json!({"key": "k"}), "value", Json::Null),
        ("put", json!({"key": "k", "value": "1"}), "existed", json!(false)),
        ("put", json!({"key": "k", "value": "2"}), "existed", json!(true)),
        ("get", json!({"key": "k"}), "value", json!("2")),
        ("get_for_update", json!({"key": "k"}), "value", json!("2")),
        ("insert", json!({"key": "k", "value": "3"}), "inserted", json!(false)),
        ("insert", json!({"key": {"hex": "ff00"}, "value": {"hex": "6869"}}), "inserted", json!(true)),
        ("get", json!({"key": {"hex": "FF00"}}), "value", json!("hi")),
        ("update", json!({"key": "k", "value": {"hex": "80"}}), "updated", json!(true)),
        ("update", json!({"key": "l", "value": ""}), "updated", json!(false)),
        ("get", json!({"key": "k"}), "value", json!({"hex": "80"})),
        ("scan", json!({}), "entries", json!([["k", {"hex": "80"}], [{"hex": "ff00"}, "hi"]])),
        ("get", json!({"key": "k", "table": "other"}), "value", Json::Null),
        ("delete", json!({"key": "k"}), "deleted", json!(true)),
        ("delete", json!({"key": "k"}), "deleted", json!(false)),
    ] {
        let answer = player.ok("a", op, fields.clone());
        assert_eq!(answer[field], result, "{op} {fields}");
    }
    player.ok("a", "lock_table", json!({"mode": "exclusive"}));
    player.ok("a", "commit", json!({"id": "done"}));
    let (answers, status, _) = player.end();
    assert_eq!((answers, status), (Vec::new(), 0));
}

#[test]
fn scans_have_bounds_directions_and_limits() {
    let mut player = Player::new();
    player.ok("main", "begin", json!({}));
    for key in ["a", "b", "c", "d"] {
        player.ok("main", "put", json!({"key": key, "value": ""}));
    }
    for (fields, keys) in [
        (json!({"lo": "b", "hi": "d"}), "bc"),
        (json!({"lo": "b", "hi": "d", "lo_inclusive": false}), "c"),
        (json!({"lo": "b", "hi": "d", "hi_inclusive": true}), "bcd"),
        (json!({"lo": "b", "hi": "d", "hi_inclusive": true, "reverse": true}), "dcb"),
        (json!({"reverse": true, "limit": 1}), "d"),
        (json!({"limit": 0}), ""),
        (json!({"lo": "d", "hi": "b"}), ""),
        (json!({"hi": "b", "for_update": true}), "a"),
    ] {
        let answer = player.ok("main", "scan", fields.clone());
        let found = answer["entries"].as_array().unwrap().iter().map(|entry| entry[0].as_str().unwrap());
        assert_eq!(found.collect::<String>(), keys, "{fields}");
    }
}

#[test]
fn a_statement_that_waits_says_so_soon_and_ends_with_the_same_id() {
    let mut player = Player::new();
    // The best of a few, for the machine may be busy with something else.
    let (mut soonest, begun) = (Duration::MAX, Instant::now());
    for round in 0.. {
        if round >= 5 && (soonest < Duration::from_millis(100) || begun.elapsed() > PATIENCE) {
            break;
        }
        begin_both(&mut player);
        player.ok("a", "put", json!({"key": "k", "value": "1"}));
        let sent = Instant::now();
        player.send(&json!({"id": round, "session": "b", "op": "get", "key": "k"}));
        let blocked = player.next();
        soonest = soonest.min(sent.elapsed());
        assert_eq!((&blocked["id"], &blocked["status"]), (&json!(round), &json!("blocked")));
        assert_eq!(blocked["wanted"], "SN");
        assert_eq!(
            (&blocked["target"]["table"], &blocked["target"]["key"]),
            (&json!("default"), &json!("k"))
        );
        let blockers = blocked["waits_for"].as_array().unwrap();
        assert_eq!(blockers.len(), 1);
        assert_eq!((&blockers[0]["session"], &blockers[0]["mode"]), (&json!("a"), &json!("XN")));
        assert!(blocked["why"].as_str().unwrap().contains("on key \"k\" of default, to read the key"));
        // Further commands are taken, and done afterwards.
        assert!(player.play(&json!({"id": "later", "session": "b", "op": "commit"})).is_empty());
        let explained = player.one(&json!({"session": "b", "op": "explain"}));
        assert_eq!((&explained["waits"], &explained["wanted"]), (&json!(true), &json!("SN")));
        let mut answers = player.play(&json!({"id": "free", "session": "a", "op": "commit"}));
        let place = answers.iter().position(|answer| answer["id"] == "free").unwrap();
        assert_eq!(answers.remove(place)["status"], "ok");
        assert_eq!((&answers[0]["id"], &answers[0]["value"]), (&json!(round), &json!("1")));
        assert_eq!((&answers[1]["id"], &answers[1]["status"]), (&json!("later"), &json!("ok")));
        assert_eq!(player.one(&json!({"session": "b", "op": "explain"}))["waits"], false);
    }
    assert!(soonest < Duration::from_millis(100), "{soonest:?}");
}

/// A scan comes to wait for one key, goes on, and comes to wait for another: both waits are told, with whom they are
/// for.
#[test]
fn a_statement_that_waits_twice_says_so_twice() {
    let mut player = Player::new();
    player.ok("setup", "begin", json!({}));
    for key in ["k1", "k2", "k3"] {
        player.ok("setup", "put", json!({"key": key, "value": "0"}));
    }
    player.ok("setup", "commit", json!({}));
    begin_both(&mut player);
    player.ok("c", "begin", json!({}));
    player.ok("a", "put", json!({"key": "k1", "value": "1"}));
    player.ok("c", "put", json!({"key": "k3", "value": "3"}));
    let told = |answer: &Json, key: &str, session: &str| {
        assert_eq!((&answer["id"], &answer["status"]), (&json!("scan"), &json!("blocked")), "{answer}");
        assert_eq!(
            (&answer["target"]["key"], &answer["waits_for"][0]["session"]),
            (&json!(key), &json!(session))
        );
    };
    let first = player.one(&json!({"id": "scan", "session": "b", "op": "scan"}));
    told(&first, "k1", "a");
    // It stays with one report for each wait, however often it is looked at.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(25));
        assert!(player.settled().is_empty());
    }
    let answers = player.play(&json!({"id": "a", "session": "a", "op": "commit"}));
    assert_eq!(answers.len(), 2, "{answers:?}");
    let second = answers.iter().find(|answer| answer["id"] == "scan").unwrap();
    told(second, "k3", "c");
    let answers = player.play(&json!({"id": "c", "session": "c", "op": "rollback"}));
    let scanned = answers.iter().find(|answer| answer["id"] == "scan").unwrap();
    assert_eq!(scanned["entries"], json!([["k1", "1"], ["k2", "0"], ["k3", "0"]]), "{scanned}");
    assert_eq!(answers.len(), 2, "{answers:?}");
}

#[test]
fn who_gave_way_is_shown_with_reason_and_graph() {
    let mut player = Player::with("deadlock_policy=wait_die");
    begin_both(&mut player);
    player.ok("a", "put", json!({"key": "x", "value": "1"}));
    let answer = player.gives_way("b", "get", json!({"key": "x", "id": "dies"}));
    assert_eq!((&answer["id"], &answer["kind"]), (&json!("dies"), &json!("wait_die")), "{answer}");
    assert!(answer["reason"].as_str().unwrap().starts_with("died: younger than transaction"), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("on key \"x\" of default"), "{answer}");
    let shown = player.one(&json!({"op": "deadlocks"}));
    let report = &shown["deadlocks"][0];
    assert_eq!((&report["kind"], &report["older"]["label"]), (&json!("wait_die"), &json!("a")), "{report}");
    assert_eq!(report["cycle"][0]["blockers"][0]["transaction"]["label"], "a");
    assert!(report["dot"].as_str().unwrap().starts_with("digraph deadlock {"), "{report}");
    assert!(report["text"].as_str().unwrap().contains("gave way (died: younger than"), "{report}");
}

#[test]
fn a_deadlock_is_answered_with_its_cycle() {
    let mut player = Player::new();
    begin_both(&mut player);
    player.ok("a", "put", json!({"key": "x", "value": "1"}));
    player.ok("b", "put", json!({"key": "y", "value": "1"}));
    player.play(&json!({"session": "a", "op": "put", "key": "y", "value": "2", "id": 1}));
    let answer = player.gives_way("b", "get", json!({"key": "x"}));
    assert_eq!(answer["retryable"], true);
    let cycle = answer["cycle"].as_array().unwrap();
    let member = |label: &str| {
        cycle.iter().find(|member| member["transaction"]["label"] == label).expect("a member of the cycle")
    };
    assert_eq!(cycle.len(), 2);
    assert_eq!((&member("a")["wanted"], &member("a")["target"]["key"]), (&json!("XN"), &json!("y")));
    assert_eq!((&member("b")["wanted"], &member("b")["target"]["key"]), (&json!("SN"), &json!("x")));
    assert_eq!(answer["victim"], member("b")["transaction"]["id"]);
    player.fails("b", "get", json!({"key": "x"}), "transaction_failed");
    assert_eq!(player.play(&json!({"session": "b", "op": "rollback"})).len(), 2, "a goes on");
    let kept = player.one(&json!({"op": "deadlocks"}));
    assert_eq!(kept["deadlocks"][0]["victim"], answer["victim"]);
    assert_eq!(kept["deadlocks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_priority_is_in_every_answer_that_names_its_transaction() {
    let mut player = Player::new();
    player.ok("a", "begin", json!({"priority": 5}));
    player.ok("b", "begin", json!({"priority": -5}));
    player.ok("a", "put", json!({"key": "x", "value": "1"}));
    let answers = player.play(&json!({"session": "b", "op": "get", "key": "x", "id": 1}));
    assert_eq!(answers[0]["waits_for"][0]["transaction"]["priority"], 5, "{answers:?}");
    assert!(answers[0]["why"].as_str().unwrap().contains("(a, priority 5) holds the key"), "{answers:?}");
    assert!(answers[0]["why"].as_str().unwrap().contains("(b, priority -5) has waited"), "{answers:?}");
    let priorities = |answer: &Json, list: &str| {
        let all = answer[list].as_array().unwrap().iter();
        let mut shown: Vec<_> = all.map(|entry| entry["transaction"]["priority"].as_i64()).collect();
        shown.sort_unstable();
        shown.dedup();
        shown
    };
    assert_eq!(priorities(&player.one(&json!({"op": "locks"})), "locks"), [Some(-5), Some(5)]);
    assert_eq!(priorities(&player.one(&json!({"op": "waits_for"})), "waits"), [Some(-5)]);
}

#[test]
fn the_database_can_be_looked_at_while_sessions_wait() {
    let mut player = Player::new();
    begin_both(&mut player);
    player.ok("a", "scan", json!({"table": "t"}));
    player.play(&json!({"session": "b", "op": "insert", "key": "k", "value": "", "table": "t"}));
    let locks = player.one(&json!({"op": "locks"}));
    let shown: Vec<String> = (locks["locks"].as_array().unwrap().iter())
        .map(|lock| {
            let mode = |name: &str| lock[name].as_str().unwrap_or("-").to_owned();
            let on = lock["target"]["on"].as_str().unwrap();
            format!("{} {on} {} {}", lock["transaction"]["label"], mode("granted"), mode("wanted"))
        })
        .collect();
    for expected in [
        "\"a\" database IS -",
        "\"a\" table IS -",
        "\"b\" database IX -",
        "\"b\" table IX -",
        "\"a\" below_first_key NS -",
        "\"b\" key XN -",
        "\"b\" below_first_key - NX",
    ] {
        assert!(shown.iter().any(|line| line == expected), "{expected} is not in {shown:?}");
    }
    assert_eq!((shown.len(), &locks["omitted"]), (7, &json!(0)), "{shown:?}");
    let waits = player.one(&json!({"op": "waits_for"}));
    assert_eq!(waits["waits"][0]["blockers"][0]["mode"], "NS");
    assert!(waits["dot"].as_str().unwrap().starts_with("digraph waits_for {"));
    let explained = player.one(&json!({"session": "b", "op": "explain"}));
    let why = explained["why"].as_str().unwrap();
    assert!(
        why.contains("NX on the place before all keys of t, to put a key into the gap above it"),
        "{why}"
    );
}

#[test]
fn a_cancelled_session_waits_no_longer() {
    let mut player = Player::new();
    begin_both(&mut player);
    player.ok("a", "put", json!({"key": "k", "value": "1"}));
    player.play(&json!({"id": "wait", "session": "b", "op": "get", "key": "k"}));
    let answers = player.play(&json!({"session": "b", "op": "cancel"}));
    assert_eq!((&answers[0]["status"], &answers[0]["cancelled"]), (&json!("ok"), &json!(true)));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]), (&json!("wait"), &json!("cancelled")));
    assert_eq!(answers.len(), 2);
    player.fails("b", "put", json!({"key": "l", "value": "1"}), "cancelled");
    player.fails("b", "commit", json!({}), "cancelled");
    player.fails("b", "rollback", json!({}), "no_transaction");
    assert_eq!(player.one(&json!({"session": "b", "op": "cancel"}))["cancelled"], false);
    assert_eq!(player.one(&json!({"session": "nobody", "op": "cancel"}))["cancelled"], false);
    player.ok("b", "begin", json!({}));
    player.ok("b", "put", json!({"key": "l", "value": "1"}));
}

#[test]
fn a_crowd_of_waiters_is_cut() {
    let mut player = Player::new();
    player.ok("first", "begin", json!({}));
    player.ok("first", "put", json!({"key": "k", "value": "1"}));
    for waiter in 0..70 {
        let session = format!("waiter {waiter}");
        player.ok(&session, "begin", json!({}));
        player.send(&json!({"session": session, "op": "get", "key": "k"}));
        let blocked = player.settled();
        assert!(blocked.iter().any(|answer| answer["status"] == "blocked"), "{blocked:?}");
    }
    let waits = player.one(&json!({"op": "waits_for"}));
    assert_eq!((waits["waits"].as_array().unwrap().len(), &waits["waits_omitted"]), (64, &json!(6)));
}

#[test]
fn what_makes_no_sense_is_an_error_with_a_word() {
    let mut player = Player::new();
    for op in ["commit", "rollback"] {
        player.fails("a", op, json!({}), "no_transaction");
    }
    player.fails("a", "get", json!({"key": "k"}), "no_transaction");
    player.fails("a", "savepoint", json!({"name": "s"}), "no_transaction");
    player.ok("a", "begin", json!({"read_only": true}));
    player.fails("a", "begin", json!({}), "transaction_open");
    player.ok("a", "get", json!({"key": "k"}));
    player.fails("a", "put", json!({"key": "k", "value": ""}), "read_only");
    player.fails("a", "delete", json!({"key": "k"}), "read_only");
    player.fails("a", "scan", json!({"for_update": true}), "read_only");
    player.fails("a", "get_for_update", json!({"key": "k"}), "read_only");
    for mode in ["intent_exclusive", "shared_intent_exclusive", "exclusive"] {
        player.fails("a", "lock_table", json!({ "mode": mode }), "read_only");
    }
    for mode in ["intent_shared", "shared"] {
        player.ok("a", "lock_table", json!({ "mode": mode }));
    }
    player.fails("a", "rollback_to", json!({"name": "s"}), "no_such_savepoint");
    player.fails("a", "get", json!({"key": "k".repeat(5000)}), "key_too_long");
    player.fails("a", "get", json!({"key": "k", "table": ""}), "limit_exceeded");
    player.ok("a", "rollback", json!({}));
    // Savepoints end with what they were made after, and with their transaction.
    player.ok("a", "begin", json!({}));
    player.ok("a", "savepoint", json!({"name": "one"}));
    player.ok("a", "put", json!({"key": "k", "value": "1"}));
    player.ok("a", "savepoint", json!({"name": "two"}));
    player.ok("a", "rollback_to", json!({"name": "one"}));
    assert_eq!(player.ok("a", "get", json!({"key": "k"}))["value"], Json::Null);
    player.fails("a", "rollback_to", json!({"name": "two"}), "no_such_savepoint");
    // A name that is used again stands for the later one, until that is undone.
    player.ok("a", "savepoint", json!({"name": "again"}));
    player.ok("a", "put", json!({"key": "k", "value": "2"}));
    player.ok("a", "savepoint", json!({"name": "two"}));
    player.ok("a", "savepoint", json!({"name": "again"}));
    player.ok("a", "put", json!({"key": "k", "value": "3"}));
    player.ok("a", "rollback_to", json!({"name": "again"}));
    assert_eq!(player.ok("a", "get", json!({"key": "k"}))["value"], "2");
    player.ok("a", "rollback_to", json!({"name": "two"}));
    player.ok("a", "rollback_to", json!({"name": "again"}));
    assert_eq!(player.ok("a", "get", json!({"key": "k"}))["value"], Json::Null);
    // Released, it is gone with those after it, and what was done stays. The name stands for the earlier one again.
    player.ok("a", "savepoint", json!({"name": "again"}));
    player.ok("a", "put", json!({"key": "k", "value": "4"}));
    player.ok("a", "savepoint", json!({"name": "two"}));
    player.ok("a", "release", json!({"name": "again"}));
    player.fails("a", "rollback_to", json!({"name": "two"}), "no_such_savepoint");
    player.fails("a", "release", json!({"name": "two"}), "no_such_savepoint");
    assert_eq!(player.ok("a", "get", json!({"key": "k"}))["value"], "4");
    player.ok("a", "rollback_to", json!({"name": "again"}));
    assert_eq!(player.ok("a", "get", json!({"key": "k"}))["value"], Json::Null);
    player.ok("a", "release", json!({"name": "again"}));
    player.fails("a", "release", json!({"name": "again"}), "no_such_savepoint");
    player.ok("a", "commit", json!({}));
    player.ok("a", "begin", json!({}));
    player.fails("a", "rollback_to", json!({"name": "one"}), "no_such_savepoint");
}

#[test]
fn the_end_of_the_input_rolls_back_what_is_open() {
    let mut player = Player::new();
    begin_both(&mut player);
    player.ok("a", "put", json!({"key": "kept", "value": "1"}));
    player.ok("a", "commit", json!({}));
    player.ok("a", "begin", json!({}));
    player.ok("a", "put", json!({"key": "lost", "value": "1"}));
    player.play(&json!({"id": "waits", "session": "b", "op": "get", "key": "lost"}));
    player.play(&json!({"id": "behind", "session": "b", "op": "begin"}));
    let (answers, status, directory) = player.end();
    assert_eq!(status, 0);
    let errors: Vec<_> = answers.iter().map(|answer| (&answer["id"], &answer["error"])).collect();
    assert_eq!(errors, [(&json!("waits"), &json!("cancelled")), (&json!("behind"), &json!("cancelled"))]);
    let mut player = Player::in_directory(directory);
    player.ok("main", "begin", json!({}));
    assert_eq!(player.ok("main", "scan", json!({}))["entries"], json!([["kept", "1"]]));
}

#[test]
fn tables_of_text_can_be_used_and_others_are_refused() {
    const TEXT: TableDefinition<&str, &str> = TableDefinition::new("text");
    const NUMBERS: TableDefinition<u64, &str> = TableDefinition::new("numbers");
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    db.transact(|tx| {
        tx.put(TEXT, "größer", "ja")?;
        tx.put(NUMBERS, 1, "eins")
    })
    .unwrap();
    db.close().unwrap();
    drop(db);
    let mut player = Player::in_directory(directory);
    player.ok("main", "begin", json!({}));
    assert_eq!(player.ok("main", "get", json!({"table": "text", "key": "größer"}))["value"], "ja");
    player.ok("main", "put", json!({"table": "text", "key": "kleiner", "value": "nein"}));
    for (key, value) in [(json!({"hex": "ff"}), json!("")), (json!("k"), json!({"hex": "ff"}))] {
        player.fails("main", "put", json!({"table": "text", "key": key, "value": value}), "not_text");
    }
    player.fails("main", "get", json!({"table": "numbers", "key": "1"}), "type_mismatch");
    player.ok("main", "commit", json!({}));
    let (_, _, directory) = player.end();
    let db = Database::open(directory.path().join("db")).unwrap();
    assert_eq!(db.transact(|tx| tx.get(TEXT, "kleiner")).unwrap().as_deref(), Some("nein"));
}
