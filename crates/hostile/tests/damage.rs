//! Every byte of a small database damaged, in turn: an error or the right answer, never a panic, a hang or wrong data.
//!
//! By itself this takes a sample of the places, some seconds long. All of them, or every n-th:
//!
//! ```text
//! FORESHORE_FLIPS=full cargo test --release -p foreshore-hostile --test damage -- --nocapture
//! FORESHORE_FLIPS=20   cargo test --release -p foreshore-hostile --test damage -- --nocapture
//! ```
//!
//! `FORESHORE_FLIPS_FROM` shifts the places, so that runs of every n-th add up to all of them.

use std::collections::BTreeMap;

use foreshore_env::{
    random::Xorshift,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_hostile::{Damage, Extent, PAGE_BYTES, Sample, Verdict, extents, judge, panics};

/// Tests that count panics come one after another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// A case that takes longer hangs.
const LONGEST_CASE: Duration = Duration::from_secs(180);
/// Cases of a sample, in each test that is not asked for more.
const SAMPLE_CASES: usize = 700;

/// A way to damage a sample, and how it is opened.
struct Case {
    damage: Damage,
    read_only: bool,
}

/// Judges all cases on all processors; fails with the first few promises that were broken.
fn judge_all(sample: &Sample, cases: Vec<Case>) -> BTreeMap<String, usize> {
    let _alone = ONE_AT_A_TIME.lock();
    panics::watch();
    let count = cases.len();
    let shared = Arc::new(Shared {
        sample: sample.clone(),
        cases,
        next: AtomicUsize::new(0),
        under_way: Mutex::default(),
        verdicts: Mutex::default(),
        broken: Mutex::default(),
    });
    let workers: Vec<_> = (0..thread::available_parallelism().clamp(1, 8))
        .map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work(number))
        })
        .collect();
    while !workers.iter().all(|worker| worker.is_finished()) {
        thread::sleep(Duration::from_millis(5));
        for (began, case) in shared.under_way.lock().values() {
            assert!(began.elapsed() < LONGEST_CASE, "{}: a hang: {case}", sample.name);
        }
    }
    for worker in workers {
        worker.join().expect("workers catch panics");
    }
    let panics = panics::seen();
    let broken = shared.broken.lock().clone();
    assert!(
        panics.is_empty() && broken.is_empty(),
        "{}: of {count} cases {} broke a promise, {} panics: {:#?} {:#?}",
        sample.name,
        broken.len(),
        panics.len(),
        &broken[..broken.len().min(5)],
        &panics[..panics.len().min(5)],
    );
    let verdicts = shared.verdicts.lock().clone();
    println!("{}: {count} cases: {verdicts:?}", sample.name);
    verdicts
}

/// What the workers of [`judge_all`] share.
struct Shared {
    sample: Sample,
    cases: Vec<Case>,
    /// The case that is taken next.
    next: AtomicUsize,
    /// By worker: since when, and what. Guarded by its mutex, as the next two are.
    under_way: Mutex<BTreeMap<usize, (Instant, String)>>,
    verdicts: Mutex<BTreeMap<String, usize>>,
    broken: Mutex<Vec<String>>,
}

impl Shared {
    fn work(&self, worker: usize) {
        while let Some(case) = self.cases.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let text = case.damage.to_string();
            self.under_way.lock().insert(worker, (Instant::now(), text.clone()));
            let disk = self.sample.copy();
            case.damage.inflict(&disk);
            let judged = std::panic::catch_unwind(|| judge(&disk, &self.sample.states, case.read_only))
                .unwrap_or_else(|_| Err("a panic".to_owned()));
            match judged {
                Ok(verdict) => *self.verdicts.lock().entry(format!("{verdict:?}")).or_default() += 1,
                Err(broken) => self.broken.lock().push(format!("{text}: {broken}")),
            }
            self.under_way.lock().remove(&worker);
        }
    }
}

/// How many places lie between two that are damaged, and which is the first; `None` for a sample.
fn stride() -> (Option<usize>, usize) {
    let from = std::env::var("FORESHORE_FLIPS_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(0);
    match std::env::var("FORESHORE_FLIPS").as_deref() {
        Ok("full") => (Some(1), from),
        Ok(number) => (Some(number.parse().expect("FORESHORE_FLIPS is `full` or a number")), from),
        Err(_) => (None, from),
    }
}

/// Every byte of each sector that says something, and one of each other sector.
fn places(sample: &Sample) -> Vec<(usize, u64)> {
    let mut places = Vec::new();
    for (number, extent) in extents(&sample.disk).iter().enumerate() {
        for sector in (0..extent.length).step_by(512) {
            let full = extent.sectors.binary_search(&sector).is_ok();
            let count = if full { 512.min(extent.length - sector) } else { 1 };
            places.extend((0..count).map(|byte| (number, sector + byte)));
        }
    }
    places
}

/// Places in the control file, and in the heads of pages and segments: few bytes that matter most.
fn is_head(file: &Extent, byte: u64) -> bool {
    file.file.ends_with("control") || byte % (PAGE_BYTES as u64) < 96
}

/// Some of the places, half of them in heads.
fn some_places(files: &[Extent], all: &[(usize, u64)], random: &mut Xorshift) -> Vec<(usize, u64)> {
    let (heads, others): (Vec<(usize, u64)>, Vec<_>) =
        all.iter().partition(|(file, byte)| is_head(&files[*file], *byte));
    let mut half = |places: &[(usize, u64)]| -> Vec<_> {
        (0..SAMPLE_CASES / 2).map(|_| places[random.below(places.len() as u64) as usize]).collect()
    };
    [half(&heads), half(&others)].concat()
}

fn flip(sample: &Sample) {
    let files = extents(&sample.disk);
    let all = places(sample);
    let mut random = Xorshift::new(0xF11B);
    let chosen = match stride() {
        (Some(stride), from) => all.iter().skip(from).step_by(stride).copied().collect(),
        (None, _) => some_places(&files, &all, &mut random),
    };
    let cases = chosen.into_iter().enumerate().map(|(number, (file, byte))| {
        let file = files[file].file.clone();
        let damage = if number.is_multiple_of(2) {
            Damage::Flip { file, byte, bit: random.below(8) as u8 }
        } else {
            Damage::Invert { file, byte }
        };
        Case { damage, read_only: random.below(3) == 0 }
    });
    let verdicts = judge_all(sample, cases.collect());
    assert!(verdicts.len() >= 2, "some damage is found, some does no harm: {verdicts:?}");
}

#[test]
fn every_byte_of_a_closed_database() {
    flip(&Sample::closed());
}

#[test]
fn every_byte_of_a_crashed_database() {
    flip(&Sample::crashed());
}

/// Without damage everything is there: the judge and the samples themselves.
#[test]
fn samples_are_sound() {
    for sample in [Sample::closed(), Sample::crashed()] {
        for read_only in [true, false] {
            let verdict = judge(&sample.copy(), &sample.states[sample.states.len() - 1..], read_only);
            assert_eq!(verdict, Ok(Verdict::Sound), "{}", sample.name);
        }
        let sizes = sample.states.iter().map(|state| state.values().map(BTreeMap::len).sum::<usize>());
        println!(
            "{}: {:?} records, {} places",
            sample.name,
            sizes.collect::<Vec<_>>(),
            places(&sample).len()
        );
    }
}

/// The judge finds wrong data: the control of the tests above.
#[test]
fn wrong_data_is_noticed() {
    let sample = Sample::closed();
    let mut states = sample.states.clone();
    let table = states[0].get_mut("accounts").expect("a table");
    let (key, value) = table.pop_first().expect("a record");
    let error = judge(&sample.copy(), &states, false).expect_err("a record too many");
    assert!(error.contains("wrong data"), "{error}");
    let mut other = value;
    other[3] ^= 1;
    states[0].get_mut("accounts").expect("a table").insert(key, other);
    let error = judge(&sample.copy(), &states, true).expect_err("another value");
    assert!(error.contains("wrong data"), "{error}");
}

/// Files that end early, at any sector and beside it.
#[test]
fn files_that_were_cut() {
    for sample in [Sample::closed(), Sample::crashed()] {
        let mut random = Xorshift::new(0xC07);
        let mut cases = Vec::new();
        for Extent { file, length, sectors } in extents(&sample.disk) {
            // Where something is lost, and a few lengths where nothing is.
            let step = if stride().0.is_some() { 1 } else { (sectors.len() / 40).max(1) };
            let mut lengths: Vec<u64> = sectors.iter().copied().step_by(step).collect();
            lengths.extend([1, 7, 4095, 4096, length / 2, length - 1, length - 512, length - 8192]);
            for length in lengths.into_iter().filter(|&cut| cut < length) {
                let length = length.saturating_add_signed(random.below(3) as i64 - 1);
                cases.push(Case {
                    damage: Damage::Cut { file: file.clone(), length },
                    read_only: random.below(3) == 0,
                });
            }
        }
        let verdicts = judge_all(&sample, cases);
        assert!(verdicts.contains_key("Refused"), "{verdicts:?}");
    }
}

/// Pages and sectors in each other's places, zeros and old bytes in their place, and files under each other's names.
#[test]
fn pieces_in_wrong_places() {
    for sample in [Sample::closed(), Sample::crashed()] {
        let mut random = Xorshift::new(0x5A);
        let mut damages = Vec::new();
        let files = extents(&sample.disk);
        for Extent { file, length, sectors } in &files {
            for piece in [512, 4096, PAGE_BYTES as u64] {
                let mut starts: Vec<u64> = sectors.iter().map(|start| start / piece * piece).collect();
                starts.dedup();
                starts.retain(|start| start + piece <= *length);
                if starts.len() < 2 {
                    continue;
                }
                for _ in 0..25 {
                    let mut any = || starts[random.below(starts.len() as u64) as usize];
                    let (one, other) = (any(), any());
                    if one != other {
                        let (file, from, to) = (file.clone(), one, other);
                        damages.push(Damage::Swap { file: file.clone(), length: piece, one, other });
                        damages.push(Damage::Repeat { file, length: piece, from, to });
                    }
                    let byte = any();
                    let with = vec![random.below(3) as u8 * 85; piece as usize];
                    damages.push(Damage::Overwrite { file: file.clone(), byte, with });
                }
            }
            damages.push(Damage::Append { file: file.clone(), bytes: vec![0xA5; 3 * PAGE_BYTES] });
            damages.push(Damage::Append { file: file.clone(), bytes: vec![0; 16 * PAGE_BYTES + 1] });
            damages.push(Damage::Remove { file: file.clone() });
        }
        for (index, one) in files.iter().enumerate() {
            for other in &files[index + 1..] {
                damages.push(Damage::Rename { one: one.file.clone(), other: other.file.clone() });
            }
        }
        let cases = damages.into_iter().map(|damage| Case { damage, read_only: random.below(3) == 0 });
        judge_all(&sample, cases.collect());
    }
}
