//! What `dump` writes is whole, or does not load as if it were.

use std::io::Write;

use foreshore::{Database, TableDefinition, TableLock};
use serde_json::json;

use crate::{
    make_database,
    scene::{Scene, parsed, text},
};

/// Nobody decides about a prepared transaction here, so nobody waits for its locks for long.
#[test]
fn locks_are_waited_for_with_patience() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    let db = Database::open(scene.path("db")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.lock_table(TableDefinition::encoded("names"), TableLock::Exclusive).unwrap();
    tx.put(TableDefinition::<&str, u64>::new("names"), "carol", 1).unwrap();
    tx.prepare(b"held").unwrap();
    db.close().unwrap();
    for command in ["dump db", "stat db"] {
        let output = scene.run(command);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.contains("names")), (Some(2), true), "{command}: {said}");
    }
}

#[test]
fn a_dump_that_was_cut_off_is_refused() {
    let scene = Scene::new();
    make_database(&scene.path("one"));
    let dump = scene.succeed("dump one");
    let ends: Vec<usize> = dump.match_indices('\n').map(|(place, _)| place + 1).collect();
    assert_eq!(ends.len(), 16, "four tables, with a header and an end each, and eight entries");
    let mut begin = 0;
    for (number, &end) in ends.iter().enumerate() {
        // In the middle of each line, and behind each but the last.
        for cut in [begin + (end - begin) / 2, end] {
            if cut == dump.len() {
                continue;
            }
            let output = scene.run_with_input("load two - --format jsonl --replace", &dump.as_bytes()[..cut]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{cut}: {said}");
            let entries = dump[..cut].lines().filter(|line| line.starts_with("{\"key\"")).count();
            if cut == end {
                let kept = if entries == 0 {
                    "no entry of it is in the database".to_owned()
                } else {
                    let were = if entries == 1 { "entry was" } else { "entries were" };
                    format!("{entries} {were} loaded, up to line ")
                };
                assert!(said.contains("the dump is not whole") && said.contains(&kept), "{cut}: {said}");
            } else {
                assert!(said.contains(&format!("line {}: ", number + 1)), "{cut}: {said}");
            }
        }
        begin = end;
    }
    // What is whole but for the last end of a line is whole.
    let output =
        scene.run_with_input("load two - --format jsonl --replace", &dump.as_bytes()[..dump.len() - 1]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(scene.succeed("dump two"), dump);
}

/// Of entries with one key the last one is there.
#[test]
fn what_replaces_another_entry_was_loaded_too() {
    let scene = Scene::new();
    let header = r#"{"table":"t","key_type":"str","value_type":"i64","ends":true}"#;
    let entries = "{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":2}\n";
    scene.write("cut.jsonl", format!("{header}\n{entries}"));
    let said = scene.fail("load db cut.jsonl --replace");
    assert!(said.contains("2 entries were loaded, up to line 3;"), "{said}");
    assert!(!said.contains("in the database"), "{said}");
    assert_eq!(scene.dump("db").len(), 2, "the table and one entry");
}

#[test]
fn the_end_of_a_table_is_compared_with_what_came() {
    const HEAD: &str = r#"{"table":"t","key_type":"str","value_type":"i64","ends":true}"#;
    const ENTRY: &str = r#"{"key":"a","value":1}"#;
    const LAST: &str = r#"{"end":"t","entries":1,"tables_left":0}"#;
    let scene = Scene::new();
    for (lines, part) in [
        (vec![HEAD, LAST], "line 2: 0 entries"),
        (vec![HEAD, ENTRY, r#"{"key":"b","value":2}"#, LAST], "line 4: 2 entries"),
        (vec![HEAD, ENTRY, r#"{"end":"u","entries":1,"tables_left":0}"#], "line 3: the end of table \"u\""),
        (vec![HEAD, ENTRY, LAST, ENTRY], "line 4: "),
        (vec![HEAD, ENTRY, HEAD, ENTRY, LAST], "line 3: "),
        (vec![HEAD, ENTRY, r#"{"end":"t","entries":1,"tables_left":1}"#], "too early"),
        (
            vec![HEAD, ENTRY, r#"{"end":"t","entries":1,"tables_left":2}"#, HEAD, ENTRY, LAST],
            "line 6: tables are missing",
        ),
    ] {
        let input = lines.join("\n");
        let output = scene.run_with_input("load db - --format jsonl --replace --json", input.as_bytes());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{input}: {said}");
        assert!(said.contains("the dump is not whole") && said.contains(part), "{input}: {said}");
        assert_eq!(parsed(&text(&output.stdout))["error"]["code"], "incomplete_dump");
    }
    // One dump behind the other.
    let input = [HEAD, ENTRY, LAST, &HEAD.replace("\"t\"", "\"u\""), ENTRY, &LAST.replace("\"t\"", "\"u\"")];
    let output = scene.run_with_input("load two - --format jsonl", input.join("\n").as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// It is as empty as its database, and not as a file of which everything was cut off.
#[test]
fn a_dump_without_tables_is_one() {
    const LINE: &str = "{\"tables\":0}\n";
    let scene = Scene::new();
    Database::open(scene.path("one")).unwrap().close().unwrap();
    assert_eq!(scene.succeed("dump one"), LINE);
    scene.write("dump.jsonl", LINE);
    let printed = scene.succeed("load two dump.jsonl");
    assert!(printed.starts_with("0 entries into no table of two"), "{printed}");
    assert_eq!(scene.succeed("dump two"), LINE);
    scene.succeed("salvage one saved.jsonl --jsonl");
    assert_eq!(std::fs::read_to_string(scene.path("saved.jsonl")).unwrap(), LINE);
    scene.write("cut.jsonl", "");
    assert!(scene.fail("load three cut.jsonl").contains("the input is empty"));
    assert!(!scene.path("three").exists());

    // With others, in any order; but nothing else may stand behind it, and no table may be left before it.
    make_database(&scene.path("four"));
    let dump = scene.succeed("dump four");
    for (number, input) in [format!("{LINE}{dump}"), format!("{dump}{LINE}")].iter().enumerate() {
        scene.write("both.jsonl", input);
        scene.succeed(&format!("load both{number} both.jsonl"));
        assert_eq!(scene.succeed(&format!("dump both{number}")), dump);
    }
    let first = dump.find("tables_left").unwrap();
    let first = first + dump[first..].find('\n').unwrap() + 1;
    for input in [format!("{LINE}{{\"key\":1,\"value\":2}}\n"), format!("{}{LINE}", &dump[..first])] {
        scene.write("bad.jsonl", &input);
        let said = scene.fail("load bad bad.jsonl --replace");
        assert!(said.contains("the dump is not whole: line "), "{input}: {said}");
    }
    // An object of the user's own may be like that.
    scene.write("own.jsonl", LINE);
    scene.succeed("load own own.jsonl --key-column tables --key-type u8");
    assert_eq!(scene.dump("own")[1]["key"], 0);
}

/// Dumps of older programs, and files that somebody has written.
#[test]
fn what_promises_no_end_needs_none() {
    let scene = Scene::new();
    make_database(&scene.path("one"));
    let dump = scene.succeed("dump one");
    let plain: String = dump
        .lines()
        .filter(|line| !line.starts_with("{\"end\""))
        .map(|line| line.replace(",\"ends\":true", "") + "\n")
        .collect();
    assert_eq!(plain.lines().count(), 12);
    scene.write("plain.jsonl", &plain);
    scene.succeed("load two plain.jsonl");
    assert_eq!(scene.succeed("dump two"), dump);
    // Objects of the user's own may have such fields.
    scene.write("own.jsonl", "{\"end\":\"names\",\"entries\":7,\"tables_left\":0}\n");
    scene.succeed("load own own.jsonl --key-column end");
    assert_eq!(scene.dump("own")[1]["key"], "names");
}

/// Numbers are numbers, where JSON has them; and what older programs wrote of them, which was bytes, is taken.
#[test]
fn numbers_of_all_types_are_written_as_such() {
    const FLOATS: TableDefinition<i128, f64> = TableDefinition::new("floats");
    const HALVES: TableDefinition<u128, f32> = TableDefinition::new("halves");
    let scene = Scene::new();
    let db = Database::open(scene.path("one")).unwrap();
    db.transact(|tx| {
        for (key, value) in [(i128::MIN, 0.1), (-1, f64::NAN), (0, -0.0), (i128::MAX, 1e300)] {
            tx.put(FLOATS, key, value)?;
        }
        tx.put(HALVES, u128::MAX, 0.5)?;
        tx.put(HALVES, 7, f32::INFINITY).map(drop)
    })
    .unwrap();
    db.close().unwrap();
    let dump = scene.dump("one floats");
    assert_eq!(dump[1], json!({ "key": i128::MIN.to_string(), "value": 0.1 }));
    assert_eq!((&dump[2]["key"], dump[2]["value"].get("bytes").is_some()), (&json!(-1), true));
    assert_eq!(dump[4], json!({ "key": i128::MAX.to_string(), "value": 1e300 }));
    let dump = scene.dump("one halves");
    assert_eq!(dump[1]["key"], 7);
    assert_eq!(dump[2], json!({ "key": u128::MAX.to_string(), "value": 0.5 }));
    let dump = scene.succeed("dump one");
    scene.write("dump.jsonl", &dump);
    scene.succeed("load two dump.jsonl");
    assert_eq!(scene.succeed("dump two"), dump);
    scene.write(
        "old.jsonl",
        r#"{"table":"halves","key_type":"u128","value_type":"f32"}
           {"key":"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07","value":"\\x00\\x00\\x00?"}
           {"key":"1234567890123456","value":"\\x00\\x00\\x80?"}"#,
    );
    scene.succeed("load old old.jsonl");
    let dump = scene.dump("old");
    assert_eq!(dump[1], json!({ "key": 7, "value": 0.5 }));
    let key = u128::from_be_bytes(*b"1234567890123456");
    assert_eq!(dump[2], json!({ "key": key.to_string(), "value": 1.0 }));
}

/// Only dumps of programs that knew no ends have numbers as bytes: digits in a string are a number, and anything else
/// is none.
#[test]
fn digits_in_a_string_are_a_number() {
    let scene = Scene::new();
    scene.write("own.jsonl", "{\"id\":\"42\",\"v\":1}\n{\"id\":\"1234567890123456\",\"v\":2}\n");
    for key_type in ["u128", "i128", "u64"] {
        scene.succeed(&format!("load {key_type} own.jsonl --key-column id --key-type {key_type}"));
        let dump = scene.dump(key_type);
        assert_eq!((&dump[1]["key"], &dump[2]["key"]), (&json!(42), &json!(1_234_567_890_123_456_u64)));
    }
    for id in ["x", "", "a string of more bytes", "1234567890123456x"] {
        scene.write("bad.jsonl", format!("{{\"id\":\"{id}\"}}\n"));
        let said = scene.fail("load bad bad.jsonl --key-column id --key-type u128");
        assert!(said.contains("line 1: field \"id\": expected a whole number that fits u128"), "{said}");
    }
    let float = |ends: &str| {
        format!(
            "{{\"table\":\"f\",\"key_type\":\"u128\",\"value_type\":\"f64\"{ends}}}\n{{\"key\":\"42\",\"value\":\"1.5\"}}\n"
        )
    };
    for ends in ["", ",\"ends\":true"] {
        scene.write("float.jsonl", float(ends));
        let said = scene.fail("load float float.jsonl");
        assert!(said.contains("line 2: value: expected a number, found \"1.5\""), "{said}");
    }
}

/// Ctrl-C ends a load in good order, also while it waits for its input.
#[test]
fn an_interrupted_load_says_how_far_it_came() {
    let scene = Scene::new();
    let mut child = scene.start("load db - --format csv --table t --key-type u64 --batch 100");
    let mut stdin = child.stdin.take().unwrap();
    // More than the pipe and the program's buffers hold: so it has begun.
    let filling = "x".repeat(100);
    let rows: String = (0..20_000).map(|row| format!("{row},{filling}\n")).collect();
    stdin.write_all(format!("key,value\n{rows}").as_bytes()).unwrap();
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    let (count, _) = said.split_once(" loaded, up to line ").unwrap();
    let count: usize = count.rsplit(' ').nth(2).unwrap().parse().unwrap();
    assert!(count > 0, "{said}");
    assert_eq!(scene.dump("db").len(), count + 1, "{said}");
    drop(stdin);
}

/// What an entry has beside its key and its value, no table takes.
#[test]
fn an_entry_of_a_dump_has_a_key_and_a_value() {
    let scene = Scene::new();
    for (entry, part) in [
        (r#"{"key":"a","value":"b","note":"c"}"#, "the field \"note\" would be lost"),
        (r#"{"key":"a","note":"c"}"#, "there is no field \"value\""),
        (r#"{"key":"a","value":"b","value":"c"}"#, "\"value\" occurs twice"),
    ] {
        let header = r#"{"table":"t","key_type":"str","value_type":"str"}"#;
        scene.write("dump.jsonl", format!("{header}\n{entry}\n"));
        let said = scene.fail("load db dump.jsonl");
        assert!(said.contains("line 2: ") && said.contains(part), "{said}");
        assert!(!scene.path("db").exists(), "{entry}");
    }
}

#[test]
fn types_that_no_table_takes_make_no_database() {
    let scene = Scene::new();
    for (length, fits) in [(892, true), (893, false)] {
        let [key_type, value_type] = ["k", "v"].map(|letter| letter.repeat(length));
        // One more between them.
        let key_type = &key_type[1..];
        let header = json!({ "table": "t", "key_type": key_type, "value_type": value_type });
        scene.write("dump.jsonl", format!("{header}\n"));
        if fits {
            scene.succeed("load db dump.jsonl");
            continue;
        }
        let said = scene.fail("load other dump.jsonl");
        assert!(said.contains("have 1786 bytes, and may have 1784") && said.contains("next: "), "{said}");
        assert!(!scene.path("other").exists());
    }
}
