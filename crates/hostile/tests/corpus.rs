//! What the fuzzer runs, on a stable compiler: the committed corpus, and mutations of it. `FORESHORE_MUTATIONS` is how
//! many of these for each target.

use std::{fs, path::PathBuf};

use foreshore_env::{
    random::Xorshift,
    sync::OnceLock,
    time::{Duration, Instant},
};
use foreshore_hostile::{panics, targets::TARGETS};

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
    let (name, run) = TARGETS.iter().find(|(name, _)| *name == target).expect("the name of a target");
    let inputs = corpus(name);
    for (path, input) in &inputs {
        println!("{path}");
        run(input);
        assert_eq!(panics::seen(), [""; 0], "{path}");
    }
    let given = std::env::var("FORESHORE_MUTATIONS").ok().and_then(|count| count.parse().ok());
    let count = given.unwrap_or(if *name == "key" { FAST } else { SLOW });
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
