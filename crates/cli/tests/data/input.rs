//! Files as people have them: what is wrong with them is said so that it can be mended.

use crate::scene::{Scene, parsed, text};

#[test]
fn a_key_that_is_there_is_shown_as_dump_shows_it() {
    let scene = Scene::new();
    scene.write("c.csv", "a,b\n1,2\n1,3\n");
    for (table, key_type, key) in [("n", "u64", "1"), ("s", "str", "\"1\""), ("b", "bytes", "\"1\"")] {
        let said = scene.fail(&format!("load db c.csv --table {table} --key-type {key_type}"));
        assert!(said.contains(&format!("line 3: the key {key} is in table \"{table}\" already")), "{said}");
    }
}

/// The advice was to use the types that the table was made with: nothing said how, and for values there is no option.
#[test]
fn who_has_other_types_than_the_table_is_told_how_to_give_them() {
    let scene = Scene::new();
    scene.write("t.csv", "id,name\n1,one\n");
    scene.succeed("load db t.csv --key-type u64");
    let said = scene.fail("load db t.csv --replace");
    assert!(said.contains("table \"t\" holds u64 → str, and the input is str → str"), "{said}");
    assert!(said.contains("--key-type") && said.contains("no entry of it is in the database"), "{said}");
    scene.succeed("load db t.csv --replace --key-type u64");

    let head = "{\"table\":\"n\",\"key_type\":\"u64\",\"value_type\":\"i64\"}\n";
    scene.write("n.jsonl", format!("{head}{{\"key\":1,\"value\":10}}\n"));
    scene.succeed("load db n.jsonl");
    let said = scene.fail("load db t.csv --table n --key-type u64");
    assert!(said.contains("lines that name the types, as `foreshore dump` writes them"), "{said}");
    scene.write("more.jsonl", format!("{head}{{\"key\":2,\"value\":20}}\n"));
    scene.succeed("load db more.jsonl");
    let refused = parsed(&text(&scene.run("load db t.csv --json").stdout));
    assert_eq!(refused["error"]["code"], "type_mismatch");
}

#[test]
fn a_line_that_is_no_object_is_explained() {
    let scene = Scene::new();
    for (name, content, found) in [
        ("pretty.json", "[\n  {\"a\":\"1\"},\n  {\"a\":\"2\"}\n]\n", "an array begins here"),
        ("short.json", "[{\"a\":\"1\"},{\"a\":\"2\"}]\n", "an array begins here"),
        ("object.json", "{\n  \"a\": \"1\"\n}\n", "EOF"),
        ("number.json", "7\n", "found 7"),
    ] {
        scene.write(name, content);
        let said = scene.fail(&format!("load db {name} --key-column a"));
        assert!(said.contains("line 1: each line must be one JSON object"), "{name}: {said}");
        assert!(said.contains(found), "{name}: {said}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let scene = Scene::new();
    scene.write("own.jsonl", "\u{FEFF}{\"a\":\"1\"}\n{\"a\":\"2\"}\n");
    scene.succeed("load db own.jsonl --key-column a");
    let dump = scene.dump("db");
    assert_eq!(dump[1], parsed(r#"{"key":"1","value":"{\"a\":\"1\"}"}"#));
    assert_eq!(dump.len(), 3);
}

#[test]
fn another_separator_is_noticed() {
    let scene = Scene::new();
    scene.write("semicolons.csv", "id;name\n1;one\n");
    scene.write("tabs.csv", "id\tname\n1\tone\n");
    scene.write("commas.tsv", "id,name\n1,one\n");
    scene.write("column.csv", "id\n1\n2\n");
    for (file, hint) in
        [("semicolons.csv", "commas"), ("tabs.csv", "--format tsv"), ("commas.tsv", "--format csv")]
    {
        let said = scene.fail(&format!("load db {file}"));
        assert!(said.contains("only one column") && said.contains(hint), "{file}: {said}");
        assert!(!scene.path("db").exists());
    }
    scene.succeed("load db column.csv");
    assert_eq!(scene.dump("db").len(), 3);
}

/// Which of them is meant, nobody knows; and an object of both would be none.
#[test]
fn columns_have_different_names() {
    let scene = Scene::new();
    scene.write("twice.csv", "id,v,v\n1,2,3\n");
    scene.write("nameless.csv", "id,,\n1,2,3\n");
    for (file, name) in [("twice.csv", "\"v\""), ("nameless.csv", "\"\"")] {
        for arguments in ["", " --key-column id --value-column v"] {
            let said = scene.fail(&format!("load db {file}{arguments}"));
            assert!(said.contains(&format!("several columns are called {name}")), "{said}");
            assert!(said.contains("next: give each of them a name of its own"), "{said}");
            assert!(!scene.path("db").exists());
        }
    }
}

/// In a dump it stands for bytes that are no key of the table's type. From elsewhere it made a key that no program can
/// read.
#[test]
fn an_object_is_no_key_unless_a_dump_has_it() {
    let scene = Scene::new();
    for (key_type, bytes) in [("u64", "a"), ("str", "\\\\xff"), ("bytes", "a")] {
        scene.write("own.jsonl", format!("{{\"k\":{{\"bytes\":\"{bytes}\"}}}}\n"));
        let said = scene.fail(&format!("load db own.jsonl --key-column k --key-type {key_type}"));
        assert!(said.contains("line 1: field \"k\": expected a"), "{said}");
        assert!(!scene.path("db").exists());
    }
}

/// It would take all lines that follow, and they would be gone without a word.
#[test]
fn a_quotation_that_does_not_end_is_told() {
    let scene = Scene::new();
    for (number, (content, said)) in [
        ("k,v\n1,\"a\n2,b\n3,c\n", "line 2: a quoted field does not end\n  nothing was loaded"),
        ("k,v\n1,\"a", "line 2: a quoted field does not end\n  nothing was loaded"),
        ("k,v\n1,\"", "line 2: a quoted field does not end\n  nothing was loaded"),
        ("k,v\r\n1,a\r\n\r\n\"2,b\r\n3,c", "line 4: a quoted field does not end\n  all entries before"),
        ("k,v\n1,a\n2,\"b\"\"\n\n", "line 3: a quoted field does not end\n  all entries before"),
        ("k,v\n1,a\n\"2\n\",\"b\n3,c\n", "line 3: a quoted field, which begins in line 4, does not end"),
        ("k,\"v\n1,a\n", "line 1: a quoted field does not end\n  nothing was loaded"),
        ("\"", "line 1: a quoted field does not end\n  nothing was loaded"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("open{number}.csv");
        scene.write(&name, content);
        let told = scene.fail(&format!("load db {name}"));
        assert!(told.contains(said), "{content:?}: {told}");
    }
    // One that does, at the very end, and quotation marks that begin none.
    for (number, content) in
        ["k,v\n1,\"a\"", "k,v\n1,\"a\"\"\"\n", "k,v\n1,a\"b\n", "k,v\n1,\"\"\r\n"].iter().enumerate()
    {
        let name = format!("closed{number}.csv");
        scene.write(&name, content);
        scene.succeed(&format!("load db {name}"));
        assert_eq!(scene.dump(&format!("db closed{number}")).len(), 2, "{content:?}");
    }
}

/// A second stray mark ended the quotation that the first had begun: the lines between were one value, or gone.
#[test]
fn text_behind_a_quotation_is_told() {
    let scene = Scene::new();
    for (name, content, lines) in [
        ("two.csv", "k,v\n1,\"tall\n2,plain\n3,5\" disk\n4,x\n", [2, 4]),
        ("title.tsv", "k\tv\n1\ta\n2\t\"Heroes\" by Bowie\n", [3, 3]),
        ("key.csv", "k,v\n\"1\"x,2\n", [2, 2]),
        ("header.csv", "k,\"v\"w\n1,2\n", [1, 1]),
        ("marked.csv", "\u{feff}\"k\" x,v\n1,2\n", [1, 1]),
    ] {
        scene.write(name, content);
        let told = scene.fail(&format!("load db {name}"));
        let [record, line] = lines;
        let said =
            format!("line {record}: cannot be read: in line {line}, text follows the end of a quoted field");
        assert!(told.contains(&said), "{content:?}: {told}");
    }
    // Marks that are doubled, or begin no quotation.
    scene.write("sound.csv", "k,v\n1,\"a \"\"b\"\"\"\r\n2,5\" disk\n\"3\",\"c\n,d\"\n");
    scene.write("marked-sound.csv", "\u{feff}\"k,\",\"v,\"\"\"\n1,\"a\"\n2,b\n3,c\n");
    for name in ["sound", "marked-sound"] {
        scene.succeed(&format!("load db {name}.csv"));
        assert_eq!(scene.dump(&format!("db {name}")).len(), 4);
    }
}

#[test]
fn a_program_is_told_which_line() {
    let scene = Scene::new();
    scene.write("short.csv", "a,b\n1,2\n3\n");
    let output = scene.run("load db short.csv --json");
    assert_eq!(output.status.code(), Some(2));
    let error = parsed(&text(&output.stdout))["error"].clone();
    assert_eq!((&error["code"], &error["line"]), (&"bad_line".into(), &3.into()), "{error}");
}

/// Whatever the line was, a field of it was wrong "at line 1", too.
#[test]
fn what_is_wrong_with_a_field_is_of_its_line() {
    let scene = Scene::new();
    scene.write("own.jsonl", "{\"k\":\"a\"}\n{\"k\":\"\\ud800\"}\n");
    let said = scene.fail("load db own.jsonl --key-column k");
    assert!(said.contains("line 2: field \"k\": ") && !said.contains(" at line "), "{said}");
    let head = "{\"table\":\"t\",\"key_type\":\"u64\",\"value_type\":\"f64\"}\n";
    scene.write("dump.jsonl", format!("{head}{{\"key\":1,\"value\":1e999}}\n"));
    let said = scene.fail("load db dump.jsonl");
    assert!(said.contains("line 2: field \"value\": ") && !said.contains(" at line "), "{said}");
}

/// Nobody knows which of them is meant, and one would be gone without a word. Within a field that is stored as it
/// stands, nothing is.
#[test]
fn fields_have_different_names() {
    let scene = Scene::new();
    for (line, arguments) in [
        ("{\"k\":1,\"k\":2,\"v\":3}", "--key-column k --key-type u8"),
        ("{\"k\":1,\"v\":2,\"v\":3}", "--key-column k --key-type u8 --value-column v"),
        ("{\"table\":\"t\",\"table\":\"u\",\"key_type\":\"str\",\"value_type\":\"str\"}", ""),
        ("{\"k\":{\"bytes\":\"a\",\"bytes\":\"b\"},\"v\":3}", "--key-column k"),
    ] {
        scene.write("twice.jsonl", format!("{line}\n"));
        let said = scene.fail(&format!("load db twice.jsonl {arguments}"));
        assert!(said.contains("line 1: ") && said.contains("\" occurs twice"), "{line}: {said}");
        assert!(!scene.path("db").exists());
    }
    let within = r#"{"k":1,"v":{"a":1,"a":2}}"#;
    scene.write("within.jsonl", format!("{within}\n"));
    scene.succeed("load db within.jsonl --key-column k --key-type u8");
    assert_eq!(scene.dump("db")[1]["value"], within);
}

/// An object with a key is the user's own, whatever else it looks like.
#[test]
fn an_object_that_looks_like_the_head_of_a_dump_is_an_entry() {
    let scene = Scene::new();
    let lines = [
        r#"{"table":"orders","key_type":"natural","value_type":"row"}"#,
        r#"{"table":"people","key_type":"made up","value_type":"row"}"#,
    ];
    scene.write("tables.jsonl", lines.join("\n"));
    scene.succeed("load db tables.jsonl --key-column table");
    let dump = scene.dump("db");
    assert_eq!(dump[1]["key"], "orders");
    assert_eq!((dump.len(), &dump[2]["value"]), (3, &lines[1].into()));
    // In one without the key, the key was meant for another file.
    for (flag, value) in [("--key-column", "id"), ("--key-type", "u64"), ("--value-column", "name")] {
        let said = scene.fail(&format!("load other tables.jsonl {flag} {value}"));
        assert!(said.contains("is a dump") && said.contains(&format!("next: leave out {flag}")), "{said}");
    }
    assert!(!scene.path("other").exists());
}

#[test]
fn numbers_of_128_bits_are_read_with_all_their_digits() {
    let scene = Scene::new();
    let (most, least) = (u128::MAX.to_string(), i128::MIN.to_string());
    for (key_type, number) in [("u128", &most), ("i128", &least)] {
        scene.write("own.jsonl", format!("{{\"id\":{number}}}\n"));
        scene.succeed(&format!("load {key_type} own.jsonl --key-column id --key-type {key_type}"));
        assert_eq!(scene.dump(key_type)[1]["key"], **number);
        scene.write(
            "dump.jsonl",
            format!(
                "{{\"table\":\"t\",\"key_type\":\"{key_type}\",\"value_type\":\"{key_type}\"}}\n\
                 {{\"key\":{number},\"value\":{number}}}\n{{\"key\":1234567890123456,\"value\":0}}\n"
            ),
        );
        scene.succeed(&format!("load dumped.{key_type} dump.jsonl"));
        let dump = scene.dump(&format!("dumped.{key_type}"));
        let [long, short] = if key_type == "u128" { [2, 1] } else { [1, 2] };
        assert_eq!((&dump[long]["key"], &dump[long]["value"]), (&(**number).into(), &(**number).into()));
        assert_eq!(dump[short]["key"], 1_234_567_890_123_456_u64);
    }
    // What does not fit does not, and what is no text is none.
    scene.write("own.jsonl", format!("{{\"id\":{most}0}}\n"));
    for (key_type, expected) in
        [("u128", "expected a whole number that fits u128"), ("str", "give --key-type")]
    {
        let said = scene.fail(&format!("load db own.jsonl --key-column id --key-type {key_type}"));
        assert!(said.contains(expected), "{said}");
    }
}
