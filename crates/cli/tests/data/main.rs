//! `foreshore load`, `dump`, `stat` and `verify` from outside: real files in, the same data out, damage found, mistakes
//! explained.

mod damage;
mod dumps;
mod input;
#[cfg(target_os = "linux")]
mod interruptions;
mod paths;
mod scene;

use std::{fs, path::Path, process::Command};

use foreshore::{Database, TableDefinition};
use scene::{Scene, parsed, text};
use serde_json::Value as Json;

/// A database with a table of each kind of type.
fn make_database(path: &Path) {
    const NAMES: TableDefinition<&str, u64> = TableDefinition::new("names");
    const PAIRS: TableDefinition<(u32, &str), (f64, Option<&str>)> = TableDefinition::new("pairs");
    const BYTES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("bytes");
    const EMPTY: TableDefinition<i64, bool> = TableDefinition::new("empty");
    let db = Database::open(path).unwrap();
    db.transact(|tx| {
        tx.put(NAMES, "alice", u64::MAX)?;
        tx.put(NAMES, "ängström \"\\", 7)?;
        tx.put(PAIRS, (7, "x"), (0.1, Some("ü")))?;
        tx.put(PAIRS, (8, ""), (f64::NAN, None))?;
        for length in [0_usize, 1, 300, 100_000] {
            let value: Vec<u8> = (0..length).map(|place| (place * 7) as u8).collect();
            tx.put(BYTES, &length.to_be_bytes(), &value[..])?;
        }
        tx.get(EMPTY, 1)
    })
    .unwrap();
    db.close().unwrap();
}

#[test]
fn a_dump_loads_back_to_the_same_dump() {
    let scene = Scene::new();
    make_database(&scene.path("one"));
    let dump = scene.succeed("dump one");
    assert!(dump.contains(r#"{"table":"names","key_type":"str","value_type":"u64","ends":true}"#), "{dump}");
    assert!(dump.contains(r#"{"key":"alice","value":18446744073709551615}"#), "{dump}");
    scene.write("dump.jsonl", &dump);
    let report = scene.json("load two dump.jsonl --json");
    assert_eq!((&report["entries"], report["tables"].as_array().unwrap().len()), (&8.into(), 4));
    assert_eq!(scene.succeed("dump two"), dump);
    let output = scene.run_with_input("load three - --format jsonl --batch 1 --quiet", dump.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(scene.succeed("dump three"), dump);
    // One table alone, and under another name.
    scene.write("names.jsonl", scene.succeed("dump one names"));
    scene.succeed("load four names.jsonl --table people");
    assert_eq!(scene.dump("four people")[1], parsed(r#"{"key":"alice","value":18446744073709551615}"#));
    // With its own types, so that the program that made it can use the copy.
    const PEOPLE: TableDefinition<&str, u64> = TableDefinition::new("people");
    let db = Database::open(scene.path("four")).unwrap();
    assert_eq!(db.transact(|tx| tx.get(PEOPLE, "alice")).unwrap(), Some(u64::MAX));
}

#[test]
fn csv_comes_in_by_a_key_column() {
    let scene = Scene::new();
    let rows = "id,name,city\n10,\"Smith, John\",Zürich\n9,Ann,\"New\nYork\"\n100,Bob,\n";
    scene.write("people.v1.csv", rows);
    scene.succeed("load db people.v1.csv --key-column id --key-type u32");
    assert_eq!(
        scene.dump("db people"),
        [
            r#"{"table":"people","key_type":"u32","value_type":"str","ends":true}"#,
            r#"{"key":9,"value":"{\"name\":\"Ann\",\"city\":\"New\\nYork\"}"}"#,
            r#"{"key":10,"value":"{\"name\":\"Smith, John\",\"city\":\"Zürich\"}"}"#,
            r#"{"key":100,"value":"{\"name\":\"Bob\",\"city\":\"\"}"}"#,
        ]
        .map(parsed)
    );
    scene.write("words.tsv", "word\tmeaning\ttimes\nshore\tedge of the sea\t3\n");
    scene.succeed("load db words.tsv --value-column meaning --table dictionary");
    assert_eq!(scene.dump("db dictionary")[1], parsed(r#"{"key":"shore","value":"edge of the sea"}"#));
}

#[test]
fn json_lines_come_in_by_a_key_field() {
    let scene = Scene::new();
    scene.write(
        "events.jsonl",
        "{\"t\":-5,\"what\":\"start\",\"x\":1.10}\n\n  {\"what\":\"end\",\"t\":3}  \n",
    );
    scene.succeed("load db events.jsonl --key-column t --key-type i64");
    let dump = scene.dump("db");
    assert_eq!(dump[1]["key"], -5);
    assert_eq!(dump[1]["value"], r#"{"t":-5,"what":"start","x":1.10}"#, "as it stands in the file");
    assert_eq!(dump[2]["key"], 3);
    scene.succeed("load db events.jsonl --key-column t --key-type i64 --value-column what --table kinds");
    assert_eq!(scene.dump("db kinds")[1], parsed(r#"{"key":-5,"value":"start"}"#));
    // A field, too, is as it stands in the file, unless it is a string.
    let fields = [
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.10", "1.10"),
        ("-0.0e-7", "-0.0e-7"),
        (r#"{"b":1, "a":[ 2,1.0],"a":3}"#, r#"{"b":1, "a":[ 2,1.0],"a":3}"#),
        (r#""b\u00f6\n""#, "bö\n"),
        ("null", "null"),
    ];
    let lines =
        fields.iter().enumerate().map(|(key, (field, _))| format!("{{\"k\":{key},\"v\" : {field} }}\n"));
    scene.write("fields.jsonl", lines.collect::<String>());
    scene.succeed("load db fields.jsonl --key-column k --key-type u8 --value-column v");
    let dump = scene.dump("db fields");
    for (key, (_, value)) in fields.iter().enumerate() {
        assert_eq!((&dump[key + 1]["key"], &dump[key + 1]["value"]), (&key.into(), &Json::from(*value)));
    }
    let said = scene.fail("load db events.jsonl --table more");
    assert!(said.contains("--key-column"), "{said}");
}

#[test]
fn many_entries_come_in_batches() {
    let scene = Scene::new();
    let rows: String = (0..5000).map(|row| format!("{row},value {row}\n")).collect();
    scene.write("rows.csv", format!("key,value\n{rows}"));
    let report = scene.json(
        "load db rows.csv --key-type u64 --value-column value --batch 300 --json --set pool_bytes=1MiB",
    );
    assert_eq!(report["entries"], 5000);
    let dump = scene.dump("db");
    assert_eq!(dump.len(), 5001);
    assert_eq!(dump[5000], parsed(r#"{"key":4999,"value":"value 4999"}"#));
    let report = scene.json("verify db --json");
    assert_eq!((&report["sound"], &report["tables"]), (&true.into(), &1.into()));
}

#[test]
fn a_bad_line_is_named_and_what_came_before_it_is_kept() {
    let scene = Scene::new();
    for (name, content, arguments, line, complaint) in [
        ("short.csv", "a,b\n1,2\n3,4\n5\n", "", 4, "1 field, where the header names 2"),
        ("latin.csv", "a,b\n1,2\n3,4\n5,\u{FF}\n", "", 4, "not UTF-8"),
        ("number.csv", "a,b\n1,2\n3,4\nfive,6\n", "--key-type u8", 4, "five"),
        ("twice.csv", "a,b\n1,2\n3,4\n1,6\n", "", 4, "--replace"),
        ("bad.jsonl", "{\"a\":\"1\"}\n{\"a\":\"2\"}\n{\"a\":\n", "--key-column a", 3, "EOF"),
        (
            "field.jsonl",
            "{\"a\":\"1\"}\n{\"a\":\"2\"}\n{\"b\":1}\n",
            "--key-column a",
            3,
            "there is no field \"a\"",
        ),
        ("kind.jsonl", "{\"a\":\"1\"}\n{\"a\":\"2\"}\n{\"a\":7}\n", "--key-column a", 3, "expected a string"),
    ] {
        let latin: Vec<u8> = content.chars().map(|character| character as u8).collect();
        scene.write(name, if name == "latin.csv" { latin } else { content.into() });
        for batch in [1, 1000] {
            let said = scene.fail(&format!(
                "load db {name} --table {name}{batch} --batch {batch} --set pool_bytes=1MiB {arguments}"
            ));
            assert!(said.contains(&format!("line {line}:")) && said.contains(complaint), "{name}: {said}");
            assert_eq!(scene.dump(&format!("db {name}{batch}")).len(), 3, "{name}: two entries and a header");
        }
    }
    scene.succeed("load db twice.csv --table replaced --replace");
    assert_eq!(scene.dump("db replaced").len(), 3);
    let key = "k".repeat(3072);
    scene.write("long.csv", format!("a,b\n1,2\n{key},3\n"));
    let said = scene.fail("load db long.csv");
    assert!(said.contains("line 3:") && said.contains("3072") && said.contains("2048"), "{said}");
}

/// Records of several lines, blank lines and either kind of line's end: a record is where it begins.
#[test]
fn lines_are_counted_as_an_editor_does() {
    let scene = Scene::new();
    let long = "x".repeat(20_000);
    let rows = [
        ("1,\"a\nb\n\nc\"\n2,3\nfive,\"6\n7\"\n8,9\n".to_owned(), 7),
        ("1,2\n\n\nfive,6\n".to_owned(), 5),
        (format!("1,\"{long}\n{long}\"\n\nfive,{long}\n"), 5),
        ("1,\"2\n\"\n3\n".to_owned(), 4),
        ("1,\"2\n\"\n3,4\n1,5\n".to_owned(), 5),
        (format!("1,\"2\n\"\n{},4\n", "k".repeat(3072)), 4),
        ("1,\"2\n\"\n3,\u{FF}\n".to_owned(), 4),
    ];
    for (number, (rows, line)) in rows.iter().enumerate() {
        let latin: Vec<u8> = format!("a,b\n{rows}").chars().map(|character| character as u8).collect();
        let dos: Vec<u8> = latin
            .iter()
            .flat_map(|byte| match byte {
                b'\n' => vec![b'\r', b'\n'],
                other => vec![*other],
            })
            .collect();
        for (name, content) in [("unix", latin), ("dos", dos)] {
            scene.write("rows.csv", content);
            let key_type = if rows.contains("five") { "u8" } else { "str" };
            let said = scene.fail(&format!("load db rows.csv --table {name}{number} --key-type {key_type}"));
            assert!(said.contains(&format!("line {line}: ")), "{number}, {name}: {said}");
        }
    }
}

#[test]
fn mistakes_are_explained_and_make_nothing() {
    let scene = Scene::new();
    scene.write("data.csv", "a,b\n1,2\n");
    scene.write("data.bin", "a,b\n1,2\n");
    scene.write("empty.csv", "");
    scene.write("empty.jsonl", "");
    scene.write("bad.jsonl", "{\"a\":\n");
    scene.write("short.csv", "a,b\n1\n");
    for (arguments, complaint) in [
        ("load db absent.csv", "absent.csv"),
        ("load db data.bin", "--format"),
        ("load db data.csv --key-type float", "u64"),
        ("load db data.csv --set pool=1", "pool_bytes"),
        ("load db data.csv --set pool_bytes=lots", "16MiB"),
        ("load db data.csv --key-column c", "name one of: a, b"),
        ("load db data.csv --value-column c", "name one of: a, b"),
        ("load db data.csv --key-type bool", "line 2"),
        ("load db empty.csv", "empty"),
        ("load db empty.jsonl", "empty"),
        ("load db bad.jsonl --key-column a", "line 1"),
        ("load db short.csv", "line 2"),
        ("dump db", "db"),
        ("stat db", "db"),
        ("verify db", "db"),
    ] {
        let said = scene.fail(arguments);
        assert!(said.contains(complaint), "{arguments}: {said}");
        assert!(!scene.path("db").exists(), "{arguments} made a database");
    }
    for (arguments, complaint) in [
        ("torture --seconds 0", "more than 0 and at most 1000000"),
        ("bench tpcc --warehouses 0", "1..=10000"),
        ("verify data.csv", "not a Foreshore database"),
        ("stat .", "not a Foreshore database"),
    ] {
        let said = scene.fail(arguments);
        assert!(said.contains(complaint), "{arguments}: {said}");
    }
    scene.succeed("load db data.csv");
    let said = scene.fail("dump db nothing");
    assert!(said.contains("there is no table \"nothing\""), "{said}");
    for (command, code) in [
        ("dump db nothing --json", "no_such_table"),
        ("drop db nothing --json", "no_such_table"),
        ("rename db nothing something --json", "no_such_table"),
        ("rename db data data --json", "table_exists"),
    ] {
        let output = scene.run(command);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert_eq!(parsed(text(&output.stdout).trim())["error"]["code"], code, "{command}");
    }
    let said = scene.fail("load db data.csv --table data --key-type u64");
    assert!(said.contains("str → str") && said.contains("u64 → str"), "{said}");
}

/// What a refused input leaves is what was before the refused line, or is said.
#[test]
fn a_refused_input_leaves_what_came_before() {
    let scene = Scene::new();
    scene.write("none.csv", format!("a,b\n{},1\n", "k".repeat(3000)));
    scene.write("none.jsonl", format!("{{\"a\":\"1\",\"b\":\"{}\"}}\n", "v".repeat((16 << 20) + 1)));
    for (arguments, part) in
        [("none.csv", "line 2: a key of 3000 bytes"), ("none.jsonl --key-column a", "line 1: a value of")]
    {
        let said = scene.fail(&format!("load none {arguments}"));
        assert!(said.contains(part) && !said.contains("was made"), "{said}");
        assert!(said.contains("nothing was loaded") && !said.contains("in the database"), "{said}");
        assert!(!scene.path("none").exists(), "{arguments} made a database");
    }
    scene.write("named.csv", "a,b\n1,2\n");
    let said = scene.fail(&format!("load none named.csv --table {}", "t".repeat(256)));
    assert!(said.contains("1 to 255 bytes, not 256") && !scene.path("none").exists(), "{said}");

    scene.write("one.csv", "a,b\n1,2\n3\n");
    let said = scene.fail("load db one.csv");
    assert!(said.contains("line 3") && !said.contains("was made"), "{said}");
    assert!(said.contains("all entries before that line were loaded"), "{said}");
    assert_eq!(scene.dump("db").len(), 2, "the table and one entry");
    scene.write("two.csv", "a,b\n");
    scene.succeed("load db two.csv");
    assert_eq!(scene.dump("db two").len(), 1, "a table without entries");
    scene.write("more.csv", "a,b\n1\n");
    let said = scene.fail("load db more.csv");
    assert!(said.contains("line 2") && !said.contains("was made"), "{said}");
    assert!(said.contains("nothing was loaded"), "{said}");
    assert!(scene.fail("dump db more").contains("there is no table"));
    scene.write("letter", "dear");
    let said = scene.fail("load letter two.csv");
    assert!(said.contains("not a Foreshore database"), "{said}");
}

#[test]
fn a_program_is_told_of_a_failure_in_its_language() {
    let scene = Scene::new();
    for (arguments, code) in [
        ("verify db --json", "io"),
        ("stat . --json", "not_a_database"),
        ("load db absent.csv --json", "io"),
        ("bench tpcb --dir . --json", "usage"),
        ("bench tpcb --set no_such=1 --json", "usage"),
        ("load db data.csv --set no_such=1 --json", "usage"),
        ("load db data.csv --set pool_bytes=many --json", "usage"),
    ] {
        scene.write("something", "");
        scene.write("data.csv", "a,b\n1,2\n");
        let output = scene.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let report = parsed(text(&output.stdout).lines().last().unwrap());
        assert_eq!(report["error"]["code"], code, "{report}");
        let message = report["error"]["message"].as_str().unwrap();
        assert!(text(&output.stderr).contains(message), "{message}");
    }
}

#[test]
fn stat_counts() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    let report = scene.json("stat db --json");
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 4);
    let names = tables.iter().find(|table| table["name"] == "names").unwrap();
    assert_eq!((&names["entries"], &names["value_bytes"]), (&2.into(), &16.into()));
    assert_eq!((&names["key_type"], &names["value_type"]), (&"str".into(), &"u64".into()));
    assert_eq!(report["counters"]["tables"], 4);
    assert!(report["counters"]["pages"].as_u64().unwrap() > 10);
    assert_eq!(scene.json("stat db --quick --json")["tables"][0].get("entries"), None);
    let log = &report["log"];
    assert_eq!(log["holders"][0]["holder"], "pages changed since the last checkpoint");
    assert!(log["work_bytes"].as_u64() < log["capacity_bytes"].as_u64(), "{log}");
    let printed = scene.succeed("stat db");
    assert!(
        printed.contains("names") && printed.contains("2 entries") && printed.contains("log_tail"),
        "{printed}"
    );
}

#[test]
fn verify_finds_damage() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    let printed = scene.succeed("verify db");
    assert!(printed.contains("is sound: 4 tables, "), "{printed}");
    let data = scene.path("db/data");
    // Not a copy from before: that would be another damage.
    let flip = |place: usize| {
        let mut bytes = fs::read(&data).unwrap();
        bytes[place] ^= 0x10;
        fs::write(&data, bytes).unwrap();
    };
    let mut found = 0;
    // The middle of each page.
    for place in (4096..fs::read(&data).unwrap().len()).step_by(8192) {
        flip(place);
        let output = scene.run("verify db --json");
        let report: Json = serde_json::from_slice(&output.stdout).unwrap();
        let problems = report["problems"].as_array().unwrap();
        match output.status.code() {
            Some(0) => assert!(report["sound"] == true && problems.is_empty()),
            Some(1) => {
                assert!(report["sound"] == false && !problems.is_empty());
                let page = format!("page {}", place / 8192);
                assert!(problems[0].as_str().unwrap().contains(&page), "{problems:?}");
                // However many pages lie behind it.
                assert!(problems.len() <= 2, "{problems:?}");
                found += 1;
            }
            other => panic!("{other:?}: {}", text(&output.stderr)),
        }
        flip(place);
    }
    assert!(found >= 10, "{found}");
    scene.succeed("verify db");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let scene = Scene::new();
    let rows: String = (0..20_000).map(|row| format!("{row},value\n")).collect();
    scene.write("rows.csv", format!("key,value\n{rows}"));
    scene.succeed("load db rows.csv");
    let output = scene.run_unread("dump db");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    // Ended early, but in good order.
    scene.succeed("verify db");
}

/// The limit of the shell is an error that names the file, and what was committed before is kept.
#[test]
fn a_file_size_limit_is_an_error_and_not_the_end() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    let rows: String = (0..20_000).map(|number| format!("{number},{number}\n")).collect();
    scene.write("rows.csv", format!("id,name\n{rows}"));
    let limited = format!("ulimit -f 64; exec {} load db rows.csv", env!("CARGO_BIN_EXE_foreshore"));
    let output = Command::new("sh").args(["-c", &limited]).current_dir(scene.path("")).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("too large"), "{said}");
    assert!(scene.succeed("stat db").contains("2 entries"));
    scene.succeed("verify db");
}

/// When the disk is full in the middle, it is said how many entries are there, and they are; loading what is behind
/// them, or all again, leads to the end.
#[test]
fn after_a_full_disk_it_is_said_where_to_go_on() {
    let scene = Scene::new();
    let filling = "x".repeat(100);
    let rows: String = (0..20_000).map(|number| format!("{number},{filling}\n")).collect();
    scene.write("rows.csv", format!("id,name\n{rows}"));
    let limited = format!(
        "ulimit -f 2000; exec {} load db rows.csv --key-type u64 --set log_segment_bytes=256KiB",
        env!("CARGO_BIN_EXE_foreshore")
    );
    let output = Command::new("sh").args(["-c", &limited]).current_dir(scene.path("")).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    if let Some((count, rest)) = said.split_once(" loaded, up to line ") {
        let count: u64 = count.rsplit(' ').nth(2).unwrap().parse().unwrap();
        let line: u64 = rest.split(';').next().unwrap().parse().unwrap();
        assert!(count > 0 && line == count + 1, "{said}");
        assert_eq!(scene.dump("db rows").len() as u64, count + 1, "{said}");
    } else {
        assert!(said.contains("is not certain; load everything again with --replace"), "{said}");
    }
    scene.succeed("load db rows.csv --key-type u64 --replace");
    assert_eq!(scene.dump("db rows").len(), 20_001);
    scene.succeed("verify db");
}

/// A backup does not go on where it stopped: what it left is in the way of the next.
#[test]
fn after_a_full_disk_a_backup_is_made_anew() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    let limited = format!("ulimit -f 64; exec {} backup db copy --json", env!("CARGO_BIN_EXE_foreshore"));
    let output = Command::new("sh").args(["-c", &limited]).current_dir(scene.path("")).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the disk is full") && said.contains("remove what is left of copy"), "{said}");
    assert!(said.contains("start again") && !said.contains("continue"), "{said}");
    assert_eq!(parsed(text(&output.stdout).trim_end())["error"]["code"], "disk_full");
    fs::remove_dir_all(scene.path("copy")).unwrap();
    scene.succeed("backup db copy");
}

#[test]
fn a_backup_opens_like_any_database_and_the_original_stays_as_it_is() {
    let scene = Scene::new();
    scene.write(
        "rows.jsonl",
        "{\"table\":\"t\",\"key_type\":\"str\",\"value_type\":\"i64\"}\n{\"key\":\"a\",\"value\":1}\n",
    );
    scene.succeed("load db rows.jsonl");
    let dumped = scene.succeed("dump db");
    let report = scene.json("backup db copy --json");
    assert!(report["pages"].as_u64().unwrap() > 8 && report["end_lsn"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(scene.succeed("dump copy"), dumped);
    assert!(scene.succeed("verify copy").contains("is sound"));
    assert!(scene.succeed("backup db other").contains("next: foreshore verify other"));
    for (arguments, part) in [("backup db copy", "not empty"), ("backup nothing copy2", "no database")] {
        let output = scene.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn a_dropped_table_with_a_damaged_page_is_told() {
    let scene = Scene::new();
    let row = "x".repeat(500);
    let rows: String = (0..2000).map(|id| format!("{id},{row}\n")).collect();
    scene.write("large.csv", format!("id,text\n{rows}"));
    scene.succeed("load db large.csv --key-column id --key-type u32 --set durability=lazy");
    let data = scene.path("db/data");
    let mut bytes = fs::read(&data).unwrap();
    let page = (0..bytes.len() / 8192).rev().find(|page| bytes[page * 8192 + 4000] == b'x').unwrap();
    bytes[page * 8192 + 4000] ^= 1;
    fs::write(&data, bytes).unwrap();
    let output = scene.run("drop db large --json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = parsed(text(&output.stdout).trim());
    assert_eq!((&report["dropped"], &report["dropped_left"]), (&Json::from("large"), &Json::from(1)));
    let failure = report["drop_failures"][0].as_str().unwrap();
    assert!(failure.contains("\"large\"") && failure.contains(&format!("page {page}")), "{failure}");
    assert_eq!(scene.run("compact db --json").status.code(), Some(1));
    let output = scene.run("compact db");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("foreshore verify db"), "{printed}");
    assert!(printed.contains("cannot be freed") && printed.contains(&format!("page {page}")), "{printed}");
    let output = scene.run("verify db");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn a_dropped_table_s_space_is_given_back() {
    let scene = Scene::new();
    let row = "x".repeat(500);
    let rows: String = (0..6000).map(|id| format!("{id},{row}\n")).collect();
    scene.write("large.csv", format!("id,text\n{rows}"));
    scene.write("small.csv", "id,text\n7,seven\n");
    scene.succeed("load db large.csv --key-column id --key-type u32 --set durability=lazy");
    scene.succeed("load db small.csv --key-column id --key-type u32");
    let small = scene.dump("db small");
    let length = || fs::metadata(scene.path("db/data")).unwrap().len();
    let full = length();
    assert!(scene.fail("drop db medium").contains("foreshore stat db --quick"));
    assert_eq!(scene.json("drop db large --json")["dropped"], "large");
    assert_eq!(length(), full, "the space is kept for the next table");
    let report = scene.json("compact db --json");
    assert_eq!(report["pages_before"].as_u64().unwrap() * 8192, full);
    assert_eq!(report["pages_after"].as_u64().unwrap() * 8192, length());
    assert!(report["fragmented_bytes_before"].as_u64().unwrap() > 3_000_000, "{report}");
    assert!(report["fragmented_bytes_after"].as_u64().unwrap() < 600_000, "{report}");
    assert!(length() * 4 < full && report["pages_left"] == 0, "{report}");
    assert_eq!(scene.dump("db small"), small);
    scene.succeed("verify db");
    // In one step.
    scene.succeed("load db large.csv --key-column id --key-type u32 --set durability=lazy");
    let printed = scene.succeed("drop db large --compact");
    assert!(printed.contains("table large of db is dropped") && printed.contains("pages moved"), "{printed}");
    assert!(length() * 4 < full);
    assert!(scene.fail("compact nowhere").contains("nowhere"));
}

/// A name may have anything in it, what steers a terminal included: printed, it is text; for a program it is itself.
#[test]
fn names_are_printed_as_text() {
    let scene = Scene::new();
    let name = "red \u{1b}[31m \u{7}bell";
    let db = Database::open(scene.path("db")).unwrap();
    db.transact(|tx| tx.put(TableDefinition::<u8, u8>::new(name), 1, 1).map(drop)).unwrap();
    db.close().unwrap();
    let printed = scene.succeed("stat db");
    assert!(printed.contains(r"red \x1b[31m \x07bell"), "{printed}");
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    let report: Json = serde_json::from_str(&scene.succeed("stat db --json")).unwrap();
    assert_eq!(report["tables"][0]["name"], name);
    // What is wrong with it, too: its leaf, which nobody else has.
    let data = scene.path("db/data");
    let mut bytes = fs::read(&data).unwrap();
    let is_leaf = |page: &[u8]| (page[21], u32::from_le_bytes(page[16..20].try_into().unwrap())) == (3, 16);
    let leaf = bytes.chunks(8192).position(is_leaf).unwrap();
    bytes[leaf * 8192 + 4000] ^= 1;
    fs::write(&data, bytes).unwrap();
    let output = scene.run("verify db");
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains(r"table red \x1b[31m \x07bell:"), "{printed:?}");
    assert!(printed.ends_with("foreshore salvage db NEW_DIR\n"), "{printed}");
}

/// A name that has ends of lines begins none.
#[test]
fn names_of_tables_stay_in_their_line() {
    let scene = Scene::new();
    let name = "x\u{1b}[31m\ny";
    scene.write("rows.csv", "a,b\n1,2\n");
    for (arguments, part) in [
        (&["load", "db", "rows.csv", "--table", name][..], r"1 entry into x\x1b[31m\x0ay of db"),
        (&["rename", "db", name, "\n"], r"table x\x1b[31m\x0ay of db is called \x0a now"),
        (&["rename", "db", "\n", name], r"table \x0a of db is called x\x1b[31m\x0ay now"),
        (&["drop", "db", name], r"table x\x1b[31m\x0ay of db is dropped"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(arguments)
            .current_dir(scene.path(""))
            .output()
            .unwrap();
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(printed.contains(part) && printed.lines().count() == 1, "{printed:?}");
    }
}

/// Paths are whatever their owner calls them.
#[test]
fn paths_give_no_orders_to_a_terminal() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    let name = "copy\u{1b}[31m";
    let copy = |status: i32| -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(["backup", "db", name])
            .current_dir(scene.path(""))
            .output()
            .unwrap();
        let said = text(&[output.stdout, output.stderr].concat());
        assert_eq!(output.status.code(), Some(status), "{said:?}");
        assert!(said.contains(r"copy\x1b[31m") && !said.contains('\u{1b}'), "{said:?}");
        said
    };
    copy(0);
    assert!(scene.path(name).is_dir());
    let said = copy(2);
    assert!(said.contains("is not empty") && said.contains("next: name a directory"), "{said}");
    scene.write("letter", "dear");
    let said = scene.fail("backup db letter");
    assert!(said.contains("letter is not a directory") && said.contains("next: name a directory"), "{said}");
    assert!(scene.fail("backup db db/copy").contains("lies in the database"));
}
