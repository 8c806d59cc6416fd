//! `foreshore load` on files that nobody meant: words, never a panic, and a sound database. `FORESHORE_MUTATIONS` is
//! how many are tried.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use foreshore::Database;
use foreshore_env::random::Xorshift;
use foreshore_hostile::panics;

/// Files of each form, with what goes wrong in real ones.
const SEEDS: [(&str, &[u8]); 8] = [
    ("csv", b"id,name,amount\n1,Alice,10\n2,\"Bob, the \"\"second\"\"\",-3\n3,,\n"),
    ("tsv", b"id\tname\n1\tAlice\n2\tBob\n"),
    ("jsonl", b"{\"id\":1,\"name\":\"Alice\"}\n{\"id\":2,\"name\":\"B\\u00f6b\"}\n"),
    (
        "jsonl",
        b"{\"table\":\"a\",\"key_type\":\"u32\",\"value_type\":\"str\"}\n{\"key\":1,\"value\":\"x\"}\n{\"key\":{\"bytes\":\"\\\\x00\"},\"value\":\"y\"}\n",
    ),
    (
        "jsonl",
        b"{\"table\":\"a\",\"key_type\":\"u128\",\"value_type\":\"f64\",\"ends\":true}\n{\"key\":1,\"value\":0.5}\n{\"end\":\"a\",\"entries\":1,\"tables_left\":0}\n",
    ),
    ("jsonl", b"{\"table\":\"\",\"key_type\":\"\",\"value_type\":\"\"}\n{\"key\":\"\\\\xFF\",\"value\":null}\n"),
    ("jsonl", b"{\"tables\":0}\n"),
    ("csv", b"\xEF\xBB\xBFid;name\r\n1;A\r\n\r\n\"2;B\r\n"),
];

/// What is put into inputs.
const PIECES: [&[u8]; 12] = [
    b"\"",
    b"\n",
    b"\0",
    b"\xFF\xFE",
    b",",
    b"{",
    b"}]",
    b"[[[[[[[[",
    b"18446744073709551616",
    b"-0",
    b"\\x0",
    b"\\u",
];

fn mutate(input: &[u8], random: &mut Xorshift) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.below(5) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => {
                let piece = PIECES[random.below(PIECES.len() as u64) as usize];
                bytes.splice(at..at, piece.iter().copied());
            }
            2 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            3 => bytes.extend_from_within(at..),
            // A line, or a field, that is longer than any buffer, and nesting that is deeper than any stack.
            _ if random.below(4) == 0 => {
                let piece = PIECES[random.below(PIECES.len() as u64) as usize];
                let many: Vec<u8> = piece.iter().copied().cycle().take(300_000).collect();
                bytes.splice(at..at, many);
            }
            _ => {}
        }
    }
    bytes
}

fn load(directory: &Path, form: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_foreshore"), "load", "db", "input", "--format", form])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

#[test]
fn any_file_is_loaded_or_explained() {
    let count = std::env::var("FORESHORE_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(32);
    let directory = tempfile::tempdir().unwrap();
    let (mut loaded, mut refused) = (0, 0);
    for number in 0..count {
        let mut random = Xorshift::new((number + 1_u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (form, seed) = SEEDS[random.below(SEEDS.len() as u64) as usize];
        fs::write(directory.path().join("input"), mutate(seed, &mut random)).unwrap();
        let key = ["--key-column", ["id", "name", ""][random.below(3) as usize]];
        let key_type = ["--key-type", ["str", "u32", "i64", "bool", "bytes"][random.below(5) as usize]];
        let mut arguments = vec!["--table", "t", "--replace"];
        arguments.extend(key.iter().chain(&key_type).take(2 * random.below(3) as usize));
        let output = load(directory.path(), form, &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "input {number}: {said}");
        match output.status.code() {
            Some(0) => loaded += 1,
            Some(2) => {
                // On a slow machine it says before that it recovers what the last one left.
                assert!(said.lines().any(|line| line.starts_with("error: ")), "input {number}: {said}");
                refused += 1;
            }
            status => panic!("input {number} ends with {status:?}: {said}"),
        }
    }
    assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
    let db = Database::open(directory.path().join("db")).unwrap();
    assert!(db.verify().unwrap().is_sound());
}

/// What the fuzzer runs of the program, on a stable compiler: the committed corpus, and mutations of it.
#[test]
fn the_corpus_is_taken_or_refused() {
    panics::watch();
    let count = std::env::var("FORESHORE_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(60);
    for (name, run) in foreshore_cli::hostile::TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut paths: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let inputs: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(inputs.len() >= 3, "{}", directory.display());
        for (input, path) in inputs.iter().zip(&paths) {
            run(input);
            // Of the database's own threads, too.
            assert_eq!(panics::seen(), [""; 0], "{}", path.display());
        }
        for number in 0..count {
            let mut random = Xorshift::new(0xF0 + number);
            let mut input = mutate(&inputs[random.below(inputs.len() as u64) as usize], &mut random);
            input.truncate(4096);
            let survived = std::panic::catch_unwind(|| run(&input));
            assert!(survived.is_ok(), "{name}: mutation {number}: {}", input.escape_ascii());
            assert_eq!(panics::seen(), [""; 0], "{name}: mutation {number}: {}", input.escape_ascii());
        }
    }
}
