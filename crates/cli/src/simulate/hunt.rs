//! One run of a campaign: a database under the explorer, on a disk that fails, through some lives.
//!
//! Everything follows from the seed (`hunt/plan.rs`): the schedule, the options, how many threads there are and what
//! they do (`hunt/client.rs`), and how each life of the database ends. Each life's end is judged (`hunt/judge.rs`).

mod attempt;
mod client;
mod copies;
mod hand;
mod judge;
mod last_act;
mod plan;
mod queue;
mod scratch;
mod server;
mod wide;
mod wide_client;

use foreshore::{Database, Error};
use foreshore_env::{
    random::Xorshift,
    sim::{self, Device, Schedule, Settings, Turn, World},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use foreshore_testkit::{CrashMode, FaultyDisk, Met, history::State};
use serde::{Deserialize, Serialize};

use client::{Client, Outcome, Shared, is_usual};
use hand::Hand;
use judge::Said;
use plan::{End, Life, Plan};

/// The longest that a run may take, in virtual time: long waits for locks are part of it.
const LIMIT: Duration = Duration::from_secs(600);
/// How long after its last life threads of the database may end.
const FAREWELL: Duration = Duration::from_millis(100);
/// Characters that are told of what went wrong: a whole history is no help.
const LONGEST_REASON: usize = 1500;

/// What is other than the seed says.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Every lock is granted: what the judge must see shows that it can.
    pub(super) without_locking: bool,
    /// The most threads.
    pub(super) threads: Option<u64>,
    /// The most transactions of a thread in a life.
    pub(super) transactions: Option<u64>,
    /// The turns that threads take.
    pub(super) turns: Option<Vec<Turn>>,
}

/// What came of a run, for programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) seed: u64,
    /// What is wrong; `None` when nothing was found.
    pub(super) failure: Option<String>,
    pub(super) threads: u64,
    /// Procedures that threads of the database draw from, beside these threads.
    pub(super) servers: u64,
    pub(super) lives: u64,
    /// The options that are not as they are by default.
    pub(super) options: String,
    /// How the lives ended.
    pub(super) ends: String,
    /// Transactions that the judge found in the database.
    pub(super) committed: u64,
    /// Commits that were lost and were allowed to be.
    pub(super) lost: u64,
    /// Backups that were made while others worked, and judged.
    pub(super) copies: u64,
    /// Turns that threads took.
    pub(super) turns: u64,
}

/// Something panicked, in whatever thread.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Runs a seed; gives the turns of its schedule, too. An error is why nothing could be run.
pub(super) fn hunt(seed: u64, changes: &Changes) -> Result<(Told, Vec<Turn>), String> {
    let plan = Plan::of(seed, changes);
    let schedule = changes.turns.clone().map_or_else(|| plan.schedule.clone(), Schedule::Replayed);
    let world = World::Explorer(schedule);
    let settings = Settings { seed, world, device: Device::ALL[0].1, limit: LIMIT };
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICKED.store(true, Ordering::Relaxed);
        usual(panic);
    }));
    let simulated = sim::simulate(&settings, || play(&plan, seed, changes));
    let (mut failure, score, turns) = match simulated {
        Ok(simulated) => {
            let (result, score) = simulated.result;
            let outlive = || format!("threads outlive the database: {}", simulated.left.join("; "));
            let failure = result.err().or_else(|| (!simulated.left.is_empty()).then(outlive));
            (failure, score, simulated.turns)
        }
        Err(failed) => {
            let why = failed.to_string();
            let turns = match failed {
                sim::Failed::Stopped { turns, .. } | sim::Failed::Panicked { turns, .. } => turns,
                sim::Failed::Settings(_) | sim::Failed::Memory(_) => return Err(why),
            };
            (Some(why), Score::default(), turns)
        }
    };
    if PANICKED.load(Ordering::Relaxed) {
        failure.get_or_insert_with(|| "a thread panicked".to_owned());
    }
    if let Some(failure) = &mut failure {
        *failure = failure.chars().take(LONGEST_REASON).collect();
    }
    let settings: Vec<String> = plan.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let ends: Vec<String> = plan.lives.iter().map(|life| format!("{:?}", life.end)).collect();
    let told = Told {
        seed,
        failure,
        threads: plan.threads,
        servers: plan.servers,
        lives: plan.lives.len() as u64,
        options: settings.join(","),
        ends: ends.join(", "),
        committed: score.there,
        lost: score.lost,
        copies: score.copies,
        turns: turns.len() as u64,
    };
    Ok((told, turns))
}

/// What the judge counts.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    there: u64,
    lost: u64,
    copies: u64,
}

fn play(plan: &Plan, seed: u64, changes: &Changes) -> (Result<(), String>, Score) {
    let mut score = Score::default();
    let result = live(plan, seed, changes, &mut score);
    // A background thread that had the last hold of what it works for ends a moment after the database.
    thread::sleep(FAREWELL);
    (result, score)
}

fn live(plan: &Plan, seed: u64, changes: &Changes, score: &mut Score) -> Result<(), String> {
    let mut disk = FaultyDisk::new();
    if let Some(number) = plan.crashed_creation {
        disk = crashed_opening(plan, &disk, number, plan.lives[0].mode)?;
    }
    let shared = Shared::default();
    let mut state = State::new();
    for (number, life) in plan.lives.iter().enumerate() {
        let db = plan.open(&disk).map_err(|error| format!("opening for life {number}: {error}"))?;
        prepare(life, &disk, seed);
        // A power failure that is only threatened, or comes in the end, excuses nobody.
        let has_failed = || disk.met().iter().any(|(met, ..)| *met != Met::ShortRead);
        let outcomes = work(plan, seed, number, &db, &shared);
        let failed_at_work = has_failed();
        let locks = !changes.without_locking;
        let mut said = Said::default();
        let hand = hand(plan, seed, number, plan.threads);
        let is_closed = plan.is_closed_early(life);
        let open = match is_closed {
            true => Ok(None),
            false => last_act::play(life, hand, &db, &disk, plan.prepares, &shared.order, &mut said),
        };
        let failed = has_failed();
        let closed = end(&db, life, &disk);
        if let Some(error) = open.as_ref().err().filter(|error| locks && is_surprise(error, failed, plan)) {
            return Err(format!("the last act of life {number}, which ends by {:?}: {error}", life.end));
        }
        drop(open);
        drop(db);
        for outcome in outcomes {
            if let Some(wrong) = outcome.wrong.filter(|_| locks) {
                return Err(format!("life {number}: {wrong}"));
            }
            let is_wrong = |error: &Error| {
                let told_so = is_closed && matches!(error, Error::Closed { .. });
                locks && !told_so && is_forbidden(error, failed_at_work)
            };
            if let Some(error) = outcome.error.filter(is_wrong) {
                return Err(format!("life {number}, which ends by {:?}: {error}", life.end));
            }
            said.attempts.extend(outcome.attempts);
            said.drops.extend(outcome.drops);
            said.copies.extend(outcome.copies);
        }
        if let (End::Closed, Err(error)) = (life.end, &closed) {
            return Err(format!("closing life {number} on a disk without fault: {error}"));
        }
        for &number in &life.crashed_recoveries {
            disk = crashed_opening(plan, &plan.left(&disk, life), number, life.mode)?;
        }
        disk = plan.left(&disk, life);
        said.closed = closed.is_ok();
        let judged = judge::judge(plan, &disk, said, state, locks, score);
        state = judged.map_err(|why| format!("after life {number}, which ended by {:?}: {why}", life.end))?;
    }
    Ok(())
}

/// An opening in which the power fails at an operation; gives the disk that the next one finds.
fn crashed_opening(
    plan: &Plan,
    disk: &FaultyDisk,
    number: u64,
    mode: CrashMode,
) -> Result<FaultyDisk, String> {
    disk.crash_at(number);
    match plan.open(disk) {
        // It came up before the power failed; that it closes in good order is not to be expected.
        Ok(db) => _ = db.close(),
        Err(error) if sees_damage(&error) => {
            return Err(format!("an opening in which the power failed at operation {number}: {error}"));
        }
        Err(_) => {}
    }
    Ok(disk.after_crash(mode))
}

/// Lets the disk fail as the life is to end.
fn prepare(life: &Life, disk: &FaultyDisk, seed: u64) {
    // In half of the runs a sync that fails has done some of its work.
    disk.keep_some_of_failed_syncs(seed.is_multiple_of(2).then_some(seed));
    let counts = disk.counts();
    match life.end {
        End::Closed => {}
        End::Power(at) => disk.crash_at(counts.operations + at),
        End::Sync(at) => disk.fail_sync(counts.syncs + at),
        End::Write(at) => disk.fail_write(counts.writes + at),
        End::Read(at) => disk.fail_read(counts.reads + at),
        End::Full(bytes) => disk.set_free_space(Some(bytes)),
    }
}

/// Lets the clients work.
fn work(plan: &Plan, seed: u64, life: usize, db: &Database, shared: &Shared) -> Vec<Outcome> {
    let hand = |number| hand(plan, seed, life, number);
    // The last act has the number behind the last client's.
    let served = (plan.servers > 0).then(|| server::serve(plan, db, shared, hand, plan.threads + 1));
    let mut outcomes: Vec<Outcome> = thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.threads)
            .map(|number| {
                let client = Client {
                    db: db.clone(),
                    shared,
                    hand: hand(number),
                    ways: plan.ways,
                    prepares: plan.prepares,
                    checkpoint_every: plan.checkpoint_every,
                    attempts: Vec::new(),
                    drops: Vec::new(),
                    tickets: Vec::new(),
                    submitted: Vec::new(),
                    closes: plan.is_closed_early(&plan.lives[life]),
                    copies: Vec::new(),
                };
                scope.spawn(move || client.run(plan.transactions, plan.is_log_small()))
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    outcomes.extend(match served {
        Some(Ok(served)) => served.wait(),
        Some(Err(error)) => vec![Outcome { error: Some(error), ..Outcome::default() }],
        None => Vec::new(),
    });
    outcomes
}

/// What a client of a life draws its operations with.
fn hand(plan: &Plan, seed: u64, life: usize, number: u64) -> Hand {
    let name = seed.wrapping_mul(64 * 64).wrapping_add(life as u64 * 64 + number + 1);
    Hand {
        random: Xorshift::new(name.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        life,
        number,
        keys: plan.keys,
        long_values: plan.long_values,
        wide: plan.wide,
    }
}

/// Ends a life: by closing, or by a power failure that has not come before.
fn end(db: &Database, life: &Life, disk: &FaultyDisk) -> foreshore::Result<()> {
    if let End::Power(at) = life.end
        && at % 2 == 0
    {
        disk.crash();
    }
    db.close()
}

/// Whether a client must not meet this error, given whether the disk has failed.
fn is_forbidden(error: &Error, disk_failed: bool) -> bool {
    !disk_failed || sees_damage(error)
}

/// Whether a last act must not meet this error.
fn is_surprise(error: &Error, disk_failed: bool, plan: &Plan) -> bool {
    let full = matches!(error, Error::LogFull { .. }) && plan.is_log_small();
    !is_usual(error) && !full && is_forbidden(error, disk_failed)
}

/// Whether the error says that stored bytes are not what was written: no crash and no failing disk is a reason for
/// that.
fn sees_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupted { .. } | Error::UpgradeRequired { .. } | Error::NotADatabase { .. })
}
