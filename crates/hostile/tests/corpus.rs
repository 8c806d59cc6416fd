//! What the fuzzer runs, on a stable compiler: the committed corpus, and mutations of it. `FORESHORE_MUTATIONS` is how
//! many of these for each target.

use std::{collections::BTreeMap, fs, path::PathBuf};

use foreshore_env::{
    random::Xorshift,
    sync::OnceLock,
    time::{Duration, Instant},
};
use foreshore_hostile::{PAGE_BYTES, Sample, panics, records, targets};

/// Mutations for each target whose cases open a database, and for the others.
const SLOW: usize = 150;
const FAST: usize = 20_000;
/// An input that takes longer, also on a busy machine, would be a way to keep a program busy.
const LONGEST_RUN: Duration = Duration::from_secs(120);

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a directory").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a corpus")))
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 3, "{} has a corpus", directory.display());
    inputs
}

/// One to four random changes, or two inputs one after the other.
fn mutate(inputs: &[(String, Vec<u8>)], random: &mut Xorshift) -> Vec<u8> {
    let any = |random: &mut Xorshift| inputs[random.below(inputs.len() as u64) as usize].1.clone();
    let mut input = any(random);
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() as u64 + 1) as usize;
        match random.below(5) {
            0 => input.truncate(at),
            1 => input.insert(at, random.next_u64() as u8),
            2 => input.extend((0..random.below(24)).map(|_| random.next_u64() as u8).collect::<Vec<_>>()),
            3 => input.extend(any(random)),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = random.next_u64() as u8;
                }
            }
        }
    }
    input.truncate(4096);
    input
}

fn replay(target: &str) {
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(panics::watch);
    let (name, run) = (target, |input: &[u8]| targets::run(target, input));
    let inputs = corpus(name);
    for (path, input) in &inputs {
        println!("{path}");
        run(input);
        assert_eq!(panics::seen(), [""; 0], "{path}");
    }
    let given = std::env::var("FORESHORE_MUTATIONS").ok().and_then(|count| count.parse().ok());
    let count = given.unwrap_or(if name == "key" { FAST } else { SLOW });
    let seed = std::env::var("FORESHORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for number in 0..count {
        // Each by its own number, so that one that fails is found again.
        let mut random =
            Xorshift::new(((seed << 32) | (number as u64 + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let input = mutate(&inputs, &mut random);
        let begun = Instant::now();
        let survived = std::panic::catch_unwind(|| run(&input));
        assert!(survived.is_ok(), "{name}: mutation {number} of seed {seed}: {input:?}");
        // Of this target or of one that is tried beside it.
        assert_eq!(panics::seen(), [""; 0], "{name}: mutation {number} of seed {seed}: {input:?}");
        let taken = begun.elapsed();
        assert!(taken < LONGEST_RUN, "{name}: mutation {number} of seed {seed} takes {taken:?}: {input:?}");
    }
}

#[test]
fn page() {
    replay("page");
}

#[test]
fn log_record() {
    replay("log_record");
}

#[test]
fn log_kinds() {
    replay("log_kinds");
}

#[test]
fn page_and_log() {
    replay("page_and_log");
}

#[test]
fn log_segment() {
    replay("log_segment");
}

#[test]
fn control() {
    replay("control");
}

#[test]
fn open() {
    replay("open");
}

#[test]
fn key() {
    replay("key");
}

/// A seed that changes nothing tries nothing: that was so for most, after the bytes had got another meaning.
#[test]
fn every_seed_changes_a_file() {
    let mut idle = Vec::new();
    for target in targets::names() {
        for (path, input) in corpus(target) {
            let changes = targets::changes(target, &input);
            if changes.is_some_and(|changes| changes.is_empty()) {
                idle.push(path);
            }
        }
    }
    assert!(idle.is_empty(), "{idle:#?}");
}

/// What a place in a file is counted from.
#[derive(Clone, Copy)]
enum From {
    Start,
    Slot,
    Page,
    Record,
}

/// The seeds that stand for one field, where that is, and what it becomes.
fn meant() -> Vec<(&'static str, String, From, usize, Vec<u8>)> {
    const MOST: [u8; 8] = [0xFF; 8];
    const ZERO: [u8; 8] = [0; 8];
    let slot = [
        ("sequence", 16, 8),
        ("database", 24, 8),
        ("page_bytes", 32, 8),
        ("checkpoint", 40, 8),
        ("redo", 48, 8),
        ("log_from", 56, 8),
        ("roots", 64, 8),
        // Behind it is the checksum.
        ("format", 8, 4),
    ];
    let extremes = [("most", MOST), ("zero", ZERO)];
    let slots = slot.into_iter().flat_map(|(field, place, width)| {
        extremes.map(|(name, bytes)| {
            ("control", format!("{field}_{name}"), From::Slot, place, bytes[..width].to_vec())
        })
    });
    // Somewhere in a payload.
    let any = [(32, 0), (32, 1), (40, u32::MAX), (40, u32::MAX), (32, 1 << 31), (32, 1 << 15)];
    let any = (0..).zip(any).map(|(number, (place, value))| {
        ("log_record", format!("any_{number}"), From::Record, place, value.to_le_bytes().to_vec())
    });
    let skipped = [("zero", 0), ("one", 1), ("seven", 7), ("most", u16::MAX), ("past_keys", 64)];
    let skipped = skipped.into_iter().map(|(name, value)| {
        ("page", format!("skipped_{name}"), From::Page, 56, value.to_le_bytes().to_vec())
    });
    let others: [(&str, &str, From, usize, &[u8]); 37] = [
        ("control", "one_slot", From::Slot, 40, &MOST),
        ("log_record", "kind", From::Record, 30, &[0x28]),
        ("log_record", "prev", From::Record, 16, &MOST),
        ("log_record", "txn", From::Record, 24, &MOST[..6]),
        ("log_record", "page_id", From::Record, 32, &MOST[..4]),
        ("log_record", "slot", From::Record, 40, &MOST[..2]),
        ("log_record", "key_bytes", From::Record, 44, &MOST[..2]),
        ("log_segment", "header", From::Start, 24, &MOST),
        ("log_segment", "size", From::Start, 32, &1_u64.to_le_bytes()),
        ("log_segment", "length", From::Start, 4096, &32_u32.to_le_bytes()),
        ("page", "bitmap_cleared", From::Page, 64, &ZERO),
        ("page", "foster_to_self", From::Page, 32, &4_u32.to_le_bytes()),
        ("page", "fences", From::Page, 36, &[0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0]),
        ("page", "heap_start", From::Page, 26, &64_u16.to_le_bytes()),
        ("page", "level", From::Page, 20, &[0x28]),
        ("page", "lsn", From::Page, 8, &ZERO),
        ("page", "prefix", From::Page, 30, &0x7FF_u16.to_le_bytes()),
        ("page", "slot_count", From::Page, 24, &MOST[..2]),
        ("page", "span", From::Page, 80, &64_u32.to_le_bytes()),
        ("page", "endless_scan", From::Page, 64, &ZERO),
        ("page", "endless_scan", From::Page, 30, &0x7FF_u16.to_le_bytes()),
        ("page", "endless_scan", From::Page, 32, &4_u32.to_le_bytes()),
        ("open", "control", From::Slot, 40, &MOST),
        ("open", "page", From::Page, 16, &MOST[..4]),
        ("log_kinds", "segment_end_prev", From::Record, 16, &MOST),
        ("log_kinds", "end_txn", From::Record, 24, &MOST[..6]),
        ("log_kinds", "append_page", From::Record, 32, &MOST[..4]),
        ("log_kinds", "bury_page", From::Record, 32, &MOST[..4]),
        ("log_kinds", "revive_page", From::Record, 32, &MOST[..4]),
        ("log_kinds", "merge_page", From::Record, 32, &MOST[..4]),
        ("log_kinds", "reap_page", From::Record, 32, &MOST[..4]),
        ("log_kinds", "move_page", From::Record, 32, &MOST[..4]),
        ("log_kinds", "prepare_payload", From::Record, 32, &MOST),
        ("log_kinds", "prepare_locks_payload", From::Record, 32, &MOST),
        ("page_and_log", "slot_count", From::Page, 24, &MOST[..2]),
        ("page_and_log", "lsn", From::Page, 8, &ZERO),
        ("page_and_log", "page_id", From::Record, 32, &MOST[..4]),
    ];
    let others = others
        .map(|(target, seed, from, place, bytes)| (target, seed.to_owned(), from, place, bytes.to_vec()));
    slots.chain(any).chain(skipped).chain(others).collect()
}

#[test]
fn seeds_do_what_their_names_say() {
    let mut others = Vec::new();
    for (target, seed, from, place, bytes) in meant() {
        let inputs = corpus(target);
        let (path, input) = inputs.iter().find(|(path, _)| path.ends_with(&format!("/{seed}"))).expect(&seed);
        let changes = targets::changes(target, input).expect("a target of files");
        let done = changes.iter().any(|change| {
            let starts: Vec<usize> = match from {
                From::Start => vec![0],
                From::Slot => vec![0, 4096],
                From::Page => (0..change.after.len()).step_by(PAGE_BYTES).collect(),
                From::Record => records(&change.before).into_iter().map(|(start, _)| start).collect(),
            };
            let at = |file: &[u8], start: usize| {
                file.get(start + place..start + place + bytes.len()).map(<[u8]>::to_vec)
            };
            starts.into_iter().any(|start| {
                let after = at(&change.after, start);
                after.as_ref() == Some(&bytes) && after != at(&change.before, start)
            })
        });
        if !done {
            others.push(format!("{path} does not make byte {place} and those behind it {bytes:?}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// Records of kinds that no other sample has are among them: what `fuzz/corpus/log_kinds` is for.
#[test]
fn a_sample_has_records_of_many_kinds() {
    let sample = Sample::of_many_kinds();
    let mut found = BTreeMap::new();
    for file in
        sample.disk.files().into_iter().filter(|file| file.extension().is_some_and(|end| end == "log"))
    {
        let bytes = sample.disk.read_file(&file).expect("a segment of the sample");
        for (start, _) in records(&bytes) {
            *found.entry(bytes[start + 30]).or_insert(0) += 1;
        }
    }
    println!("{found:?}");
    // Pages; rows, rows taken back and changes of trees; transactions. An end of a segment has a record only where one
    // fits, and no root moves.
    let wanted = [1, 16, 17, 19, 20, 24, 25, 27, 32, 33, 34, 35, 37, 38, 39, 40, 64, 65, 66, 67, 69, 70];
    let missing: Vec<_> = wanted.iter().filter(|kind| !found.contains_key(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
