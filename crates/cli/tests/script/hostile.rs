//! Input that is not meant well: every line is answered, nothing breaks, and the database is sound afterwards.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use foreshore::Database;
use foreshore_env::random::Xorshift;
use serde_json::{Value as Json, json};

use crate::player::{PATIENCE, Player};

/// Ends the script; its exit status, and that the database is sound.
#[track_caller]
fn end_sound(player: Player) -> i32 {
    let (_, status, directory) = player.end();
    let db = Database::open(directory.path().join("db")).unwrap();
    assert!(db.verify().unwrap().is_sound());
    status
}

#[test]
fn lines_that_are_no_commands_are_answered_with_their_number() {
    let mut player = Player::new();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = format!("{{\"op\":\"get\",\"key\":{}", "{\"hex\":".repeat(100_000));
    let lines: [&[u8]; 12] = [
        b"garbage",
        b"\xFF\xFE\x00\x01",
        b"\0\0\0",
        b"null",
        b"{\"op\":\"get\",\"key\":\"\xC3\"}",
        b"{\"op\":\"get\"",
        b"{}{}",
        b"{\"op\":\"get\",\"key\":\"k\",\"op2\":1}",
        b"{\"op\":\"begin\",\"deadline_ms\":1e99}",
        b"{\"op\":\"scan\",\"limit\":18446744073709551616}",
        deep.as_bytes(),
        deep_object.as_bytes(),
    ];
    for (number, line) in lines.iter().enumerate() {
        // Twice as many lines as answers before: each answer was preceded by a fence.
        player.send_bytes(line);
        player.send_bytes(b"\n");
        let answers = player.settled();
        assert_eq!(answers.len(), 1, "{}: {answers:?}", line.escape_ascii());
        assert_eq!(answers[0]["error"], "malformed", "{}", line.escape_ascii());
        assert_eq!(answers[0]["line"], 2 * number as u64 + 1);
        let message = answers[0]["message"].as_str().unwrap();
        assert!(message.len() < 400, "a stranger's text is not repeated at length: {message}");
    }
    player.send_bytes(b"\r\n   \n\n");
    assert!(player.settled().is_empty(), "blank lines are nothing");
    player.ok("main", "begin", json!({}));
    assert_eq!(end_sound(player), 1);
}

/// Whatever of a bad line could be read says whose it is, and nothing of it is done.
#[test]
fn bad_lines_are_told_to_those_who_sent_them() {
    let mut player = Player::new();
    player.ok("a", "begin", json!({}));
    let lines: [(&[u8], Json, Json, &str); 16] = [
        (
            br#"{"id":1,"session":"a","op":"get","op":"put","key":"k"}"#,
            json!(1),
            json!("a"),
            "\"op\" occurs twice",
        ),
        (br#"{"id":2,"session":"a","id":3,"op":"commit"}"#, json!(2), json!("a"), "\"id\" occurs twice"),
        (
            br#"{"id":4,"session":"a","op":"put","key":{"hex":"00","hex":"01"}}"#,
            json!(4),
            json!("a"),
            "\"hex\" occurs twice",
        ),
        (br#"{"id":"5","session":"a","op":"nothing"}"#, json!("5"), json!("a"), "no op \"nothing\""),
        (br#"{"id":6,"session":"a","op":"put","key":"k"}"#, json!(6), json!("a"), "missing field `value`"),
        (br#"{"id":7,"session":"a","op":"get","key":["k"]}"#, json!(7), json!("a"), "give a string"),
        (
            br#"{"id":8,"session":"a","op":"begin","deadline_ms":1e308}"#,
            json!(8),
            json!("a"),
            "floating point",
        ),
        (br#"{"id":9,"session":"a","op":"begin","deadline_ms":1e999}"#, json!(9), json!("a"), "out of range"),
        (br#"{"id":10,"session":"a","op":"scan","limit":-1}"#, json!(10), json!("a"), "invalid value"),
        (b"{\"id\":11,\"session\":\"a\",\"op\":\"get\",\"key\":\"\xFF\"}", json!(11), json!("a"), "unicode"),
        (b"{\"id\":12,\"session\":\"a\",\"op\":\"get\",\"key\":\"\0\"}", json!(12), json!("a"), "control"),
        (br#"{"id":1e308,"session":"a","op":"commit"}"#, Json::Null, json!("a"), "an id is"),
        (br#"{"id":true,"session":"a","op":"commit"}"#, Json::Null, json!("a"), "an id is"),
        (br#"{"id":{"a":1},"session":"a","op":"commit"}"#, Json::Null, json!("a"), "an id is"),
        (br#"{"id":13,"session":["a"],"op":"commit"}"#, json!(13), Json::Null, "name of a session"),
        (br#"{"id":14,"session":"a","op":"commit""#, json!(14), json!("a"), "EOF"),
    ];
    for (line, id, session, part) in lines {
        player.send_bytes(line);
        player.send_bytes(b"\n");
        let answers = player.settled();
        assert_eq!(answers.len(), 1, "{}: {answers:?}", line.escape_ascii());
        let answer = &answers[0];
        assert_eq!((&answer["error"], &answer["id"]), (&json!("malformed"), &id), "{answer}");
        assert_eq!(answer.get("session").cloned().unwrap_or_default(), session, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{part:?} is not in {answer}");
    }
    // What was said with them has had no effect: the transaction is open, and empty.
    assert_eq!(player.ok("a", "scan", json!({}))["entries"], json!([]));
    for id in [json!(u64::MAX), json!(i64::MIN), json!(""), json!("\0\n\u{2028}"), Json::Null] {
        assert_eq!(player.ok("a", "get", json!({"key": "k", "id": id.clone()}))["id"], id);
    }
    assert_eq!(end_sound(player), 1);
}

/// The script is broken off while statements wait: the program ends by itself.
#[test]
fn the_input_ends_in_the_middle_of_a_wait() {
    for tail in [&b""[..], b"{\"op\":\"get\",\"key\":"] {
        let mut player = Player::new();
        for session in ["a", "b", "c"] {
            player.ok(session, "begin", json!({}));
        }
        player.ok("a", "put", json!({"key": "k", "value": "1"}));
        for session in ["b", "c"] {
            player.play(&json!({"session": session, "op": "get_for_update", "key": "k", "id": session}));
        }
        player.send_bytes(tail);
        let (answers, status, directory) = player.end();
        let cancelled = answers.iter().filter(|answer| answer["error"] == "cancelled").count();
        assert_eq!((cancelled, status), (2, i32::from(!tail.is_empty())), "{answers:?}");
        let db = Database::open(directory.path().join("db")).unwrap();
        assert!(db.verify().unwrap().is_sound());
    }
}

/// A script whose input, answers and errors are at hand.
fn start() -> (tempfile::TempDir, Child) {
    let directory = tempfile::tempdir().unwrap();
    let child = start_in(directory.path(), "");
    (directory, child)
}

/// As [`start`], in this directory, when the shell has done something.
fn start_in(directory: &Path, before: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{before} exec {} script db", env!("CARGO_BIN_EXE_foreshore"))])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Nobody reads the answers any more while the last statement waits, and the input ends then: the program does, too,
/// and has done everything.
#[test]
fn a_reader_that_goes_away_during_a_wait_ends_the_script() {
    let (_directory, mut child) = start();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in [
        r#"{"op":"begin","session":"a"}"#,
        r#"{"op":"begin","session":"b"}"#,
        r#"{"op":"put","session":"a","key":"k","value":"1"}"#,
    ] {
        writeln!(stdin, "{line}").unwrap();
        assert!(answers.next().unwrap().unwrap().contains("\"ok\""));
    }
    drop(answers);
    let last = r#"{"op":"get","session":"b","key":"k"}"#;
    let _ = writeln!(stdin, "{last}");
    drop(stdin);
    let limit = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < limit, "it waits for nobody");
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text_of(&output.stderr)), (Some(0), String::new()));
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn long_lines_are_skipped() {
    let mut player = Player::new();
    let mut line = br#"{"op":"put","key":"k","value":""#.to_vec();
    line.resize(10 << 20, b'x');
    line.extend(b"\"}\n");
    player.send_bytes(&line);
    let answers = player.settled();
    assert_eq!((answers.len(), &answers[0]["error"]), (1, &json!("line_too_long")));
    // A long value that is not too long.
    player.ok("main", "begin", json!({}));
    player.ok("main", "put", json!({"key": "k", "value": "x".repeat(3 << 20)}));
    let read = player.ok("main", "get", json!({"key": "k"}));
    assert_eq!(read["value"].as_str().unwrap().len(), 3 << 20);
    // A last line without an end.
    player.send_bytes(b"{\"op\":\"commit\"");
    let (answers, status, _) = player.end();
    assert_eq!((answers.len(), &answers[0]["error"], status), (1, &json!("malformed"), 1));
}

#[test]
fn thousands_of_sessions_meet_a_limit() {
    const SESSIONS: usize = 2500;
    let mut player = Player::new();
    let mut begun = 0;
    let mut input = Vec::new();
    for number in 0..SESSIONS {
        // Also names that are good for nothing.
        let name = if number == 0 { "\0\n\"".to_owned() } else { format!("s{number}") };
        writeln!(input, "{}", json!({"op": "begin", "session": name, "id": number})).unwrap();
    }
    player.send_bytes(&input);
    for answer in player.settled() {
        match answer["status"].as_str() {
            Some("ok") => begun += 1,
            _ => assert_eq!(answer["error"], "too_many_sessions", "{answer}"),
        }
    }
    assert_eq!(begun, 1000);
    player.ok("s1", "put", json!({"key": "k", "value": "1"}));
    player.ok("\0\n\"", "rollback", json!({}));
    assert_eq!(end_sound(player), 0);
}

#[test]
fn a_session_that_waits_takes_so_many_commands_and_no_more() {
    let mut player = Player::new();
    for session in ["a", "b"] {
        player.ok(session, "begin", json!({}));
    }
    player.ok("a", "put", json!({"key": "k", "value": "1"}));
    let mut input = Vec::new();
    for number in 0..1100 {
        writeln!(input, "{}", json!({"op": "get", "key": "k", "session": "b", "id": number})).unwrap();
    }
    player.send_bytes(&input);
    let answers = player.settled();
    let refused = answers.iter().filter(|answer| answer["error"] == "too_many_pending").count();
    assert_eq!((refused, answers.len()), (100, 101), "and one is blocked");
    let answers = player.play(&json!({"op": "rollback", "session": "a"}));
    assert_eq!(answers.len(), 1001);
    assert!(answers.iter().all(|answer| answer["status"] == "ok"));
}

/// The same in bytes: what waits takes a bounded part of the memory.
#[test]
fn commands_that_wait_are_limited_in_bytes() {
    let mut player = Player::new();
    for session in ["a", "b"] {
        player.ok(session, "begin", json!({"durability": "lazy"}));
    }
    player.ok("a", "put", json!({"key": "k", "value": "1"}));
    let blocked = player.one(&json!({"op": "get", "key": "k", "session": "b", "id": "waits"}));
    assert_eq!(blocked["status"], "blocked");
    let large =
        json!({"op": "put", "key": "large", "value": "x".repeat(3 << 20), "session": "b", "id": "large"});
    let mut input = large.to_string().into_bytes();
    input.push(b'\n');
    let mut refused = 0;
    for _ in 0..24 {
        player.send_bytes(&input);
    }
    for answer in player.settled() {
        assert_eq!(answer["error"], "too_many_pending", "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("67108864 bytes"), "{answer}");
        refused += 1;
    }
    assert_eq!(refused, 24 - 21, "21 of three megabytes are less than 64");
    // So are large ones for others; short ones that may help are not. What was answered has gone.
    player.ok("c", "begin", json!({"durability": "lazy"}));
    player.fails("c", "put", json!({"key": "more", "value": "x".repeat(3 << 20)}), "too_many_pending");
    let mut answers = player.play(&json!({"op": "commit", "session": "a"}));
    // The commit, what waited, and so much work that on a busy machine the next command is read before it is done.
    while answers.len() < 2 + 21 {
        answers.push(player.next());
    }
    assert_eq!(
        answers.iter().filter(|answer| answer["id"] == "large" && answer["status"] == "ok").count(),
        21
    );
    assert!(player.settled().is_empty());
    player.send_bytes(&input);
    assert_eq!(player.settled().len(), 1);
}

/// Commands in no order at all, half of them damaged; each is answered exactly once, not counting that it was blocked.
#[test]
fn random_commands_are_answered_one_by_one() {
    const COMMANDS: u64 = 1500;
    // The same lines every time.
    let mut random = Xorshift::new(0x5EED);
    let mut player = Player::new();
    let ops = [
        "begin",
        "get",
        "get_for_update",
        "put",
        "insert",
        "update",
        "delete",
        "scan",
        "lock_table",
        "savepoint",
        "rollback_to",
        "release",
        "commit",
        "commit",
        "rollback",
        "rollback",
        "cancel",
        "explain",
    ];
    let mut answered = vec![0u32; COMMANDS as usize];
    let mut anonymous = 0;
    let mut count = |answers: Vec<Json>| {
        for answer in answers.iter().filter(|answer| answer["status"] != "blocked") {
            match answer["id"].as_u64() {
                Some(id) => answered[id as usize] += 1,
                None => anonymous += 1,
            }
        }
    };
    for id in 0..COMMANDS {
        let op = ops[random.below(ops.len() as u64) as usize];
        let mut command = json!({"op": op, "id": id, "session": format!("s{}", random.below(4))});
        let key = format!("k{}", random.below(4));
        let fields: &[(&str, Json)] = match op {
            "begin" => &[("durability", json!("lazy"))],
            "get" | "get_for_update" | "delete" => &[("key", json!(key))],
            "put" | "insert" | "update" => &[("key", json!(key)), ("value", json!("v"))],
            "scan" => &[("lo", json!(key))],
            "lock_table" => &[("mode", json!("shared"))],
            "savepoint" | "rollback_to" | "release" => &[("name", json!(key))],
            _ => &[],
        };
        for (name, value) in fields {
            command[*name] = value.clone();
        }
        let mut line = command.to_string().into_bytes();
        if random.below(8) == 0 {
            // Not within the number, or it would be another's.
            let place = random.below(line.len() as u64) as usize;
            if !line[place].is_ascii_digit() {
                line[place] = [b'\xFF', b'{', b'"', b'\0', b'x'][random.below(5) as usize];
            }
        }
        line.push(b'\n');
        player.send_bytes(&line);
        if id % 16 == 0 {
            count(player.settled());
        }
    }
    count(player.settled());
    let (last, status, directory) = player.end();
    count(last);
    assert_eq!(status, 1);
    assert!(answered.iter().all(|&answers| answers <= 1), "nothing is answered twice");
    let unanswered = answered.iter().filter(|&&answers| answers == 0).count();
    assert_eq!(unanswered, anonymous, "what was not answered with its id was too damaged to have one");
    let db = Database::open(directory.path().join("db")).unwrap();
    assert!(db.verify().unwrap().is_sound());
}

/// Nobody reads the answers any more: the program ends, and says what was not done.
#[test]
fn a_reader_that_goes_away_ends_the_script() {
    let (_directory, mut child) = start();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let limit = Instant::now() + PATIENCE;
    while stdin.write_all(b"{\"op\":\"locks\"}\n").is_ok() {
        assert!(Instant::now() < limit, "it reads on for nobody");
        thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("cannot write to standard output")
            && said.contains("\n  line 2 and all that follow were not done"),
        "{said}"
    );
}

/// What was committed could not be made durable. That nobody read the last answer is nothing beside it.
#[test]
fn a_close_that_fails_is_told() {
    let (directory, mut child) = start();
    let put = |number: u32| json!({"op": "put", "key": "k", "value": format!("{number:0500}")}).to_string();
    let lines = |puts: u32| {
        let begin = r#"{"op":"begin","durability":"lazy"}"#.to_owned();
        [begin].into_iter().chain((0..puts).map(put)).chain([r#"{"op":"commit"}"#.to_owned()])
    };
    let mut stdin = child.stdin.take().unwrap();
    lines(1).for_each(|line| writeln!(stdin, "{line}").unwrap());
    drop(stdin);
    assert!(child.wait_with_output().unwrap().status.success());

    // More of log than a file may have here.
    let mut child = start_in(directory.path(), "ulimit -f 64;");
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines(300) {
        writeln!(stdin, "{line}").unwrap();
        assert!(answers.next().unwrap().unwrap().contains("\"ok\""));
    }
    drop(answers);
    stdin.write_all(b"{\"op\":\"locks\"}\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = text_of(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the disk is full"), "{said}");
}

/// Damage is told by the exit status, too.
#[test]
fn damage_that_a_statement_meets_is_told() {
    let mut player = Player::new();
    player.ok("a", "begin", json!({}));
    player.ok("a", "put", json!({"key": "k", "value": "x".repeat(1000)}));
    player.ok("a", "commit", json!({}));
    let (_, status, directory) = player.end();
    assert_eq!(status, 0);
    let data = directory.path().join("db/data");
    let mut bytes = std::fs::read(&data).unwrap();
    let place = bytes.windows(100).position(|some| some == [b'x'; 100]).unwrap();
    bytes[place] = b'y';
    std::fs::write(&data, bytes).unwrap();

    let mut player = Player::in_directory(directory);
    player.ok("a", "begin", json!({}));
    player.fails("a", "get", json!({"key": "k"}), "corrupted");
    assert_eq!(player.end().1, 1);
}

#[test]
fn what_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("letter"), "dear").unwrap();
    for arguments in [&["script", "."][..], &["script", ".", "--set", "pool_bytes=none"], &["script"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(arguments)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
