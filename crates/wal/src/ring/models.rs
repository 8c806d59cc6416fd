//! Loom models of the ring: every interleaving, and every value that weak memory allows.
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-wal --release --lib --target-dir target/loom
//! ```

use foreshore_env::{sync::Arc, thread};

use super::*;

/// Bytes of a model's ring: one record fills it.
const RING: usize = 32;
/// Where a model's log begins.
const START: u64 = 4096;

/// Writes a record that fills the ring and says `value` in every word.
fn write(ring: &Ring, position: u64, value: u64) {
    ring.write(position, RING as u64, &[value; 3], &[]);
}

/// As [`write`], when the place is free.
fn write_when_free(ring: &Ring, position: u64, value: u64) {
    while ring.taken(position + RING as u64) > ring.bytes() {
        thread::yield_now();
    }
    write(ring, position, value);
}

/// The value that all words of a copied record say.
fn value(bytes: &[u8]) -> u64 {
    assert_eq!(bytes.len(), RING);
    let words: Vec<u64> = bytes.chunks(WORD_BYTES).skip(1).map(|word| frame::word_at(word, 0)).collect();
    assert!(words.iter().all(|&word| word == words[0]), "a record that is not whole: {words:?}");
    words[0]
}

/// The flusher: takes the record at `position` when it is published.
fn flush(ring: &Ring, position: u64) -> u64 {
    while ring.published(position).is_none() {
        thread::yield_now();
    }
    let mut bytes = [0; RING];
    ring.copy_out(position, &mut bytes);
    ring.retire(position, position + RING as u64);
    value(&bytes)
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// WAL-1: what is published is whole, and a place is used again only when it is empty.
#[test]
fn the_flusher_sees_whole_records_in_two_laps() {
    model(|| {
        let ring = Arc::new(Ring::new(RING, START));
        let appender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                for lap in 1..=2 {
                    write_when_free(&ring, START + (lap - 1) * RING as u64, lap);
                }
            })
        };
        assert_eq!(flush(&ring, START), 1);
        assert_eq!(flush(&ring, START + RING as u64), 2);
        appender.join().unwrap();
    });
}

/// Another thread takes the place that a record had.
#[test]
fn a_place_goes_from_one_appender_to_another() {
    model(|| {
        let ring = Arc::new(Ring::new(RING, START));
        write(&ring, START, 1);
        let second = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || write_when_free(&ring, START + RING as u64, 2))
        };
        assert_eq!(flush(&ring, START), 1);
        assert_eq!(flush(&ring, START + RING as u64), 2);
        second.join().unwrap();
    });
}

/// A reader gets the whole record, or is told that it is not there yet or not there any more.
#[test]
fn a_reader_is_never_given_a_mixture() {
    model(|| {
        let ring = Arc::new(Ring::new(RING, START));
        let appender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                write(&ring, START, 1);
                assert_eq!(flush(&ring, START), 1);
                write(&ring, START + RING as u64, 2);
            })
        };
        let mut bytes = Vec::new();
        match ring.read(START, &mut bytes) {
            Found::Bytes(length) => assert_eq!((length, value(&bytes)), (RING, 1)),
            Found::Unpublished | Found::Written => {}
            Found::Nothing => panic!("a length that nobody wrote"),
        }
        appender.join().unwrap();
        assert_eq!(ring.read(START, &mut bytes), Found::Written);
        assert_eq!(ring.read(START + RING as u64, &mut bytes), Found::Bytes(RING));
        assert_eq!(value(&bytes), 2);
    });
}

/// A reader of what was published gets it, or is told that it is not there any more, whoever has taken the place.
#[test]
fn a_reader_that_comes_too_late_is_told() {
    model(|| {
        let ring = Arc::new(Ring::new(RING, START));
        write(&ring, START, 1);
        let flusher = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || assert_eq!(flush(&ring, START), 1))
        };
        let appender = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || write_when_free(&ring, START + RING as u64, 2))
        };
        let mut bytes = Vec::new();
        match ring.read(START, &mut bytes) {
            Found::Bytes(length) => assert_eq!((length, value(&bytes)), (RING, 1)),
            found => assert_eq!(found, Found::Written),
        }
        flusher.join().unwrap();
        appender.join().unwrap();
    });
}
