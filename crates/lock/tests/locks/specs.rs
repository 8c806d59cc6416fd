//! Runs the specifications in `specs/`: what sessions see when their steps are taken in a given order, after the manner
//! of PostgreSQL's isolation tests. Every file is run over every lock table with every kind of intent locks, and over
//! every lock table with every policy against deadlocks that it is about; with `FORESHORE_SPECS=full` over all
//! combinations of the three.
//!
//! ```text
//! # Comments; the one at the head draws who waits for whom.
//! policies NAME…                        by default, those that look for deadlocks
//! session NAME age N                    smaller is older
//! step NAME SESSION COMMAND             see `run_command`
//! permutation STEP STEP …               an order, followed by a line for each step:
//! STEP: OUTCOME; STEP OUTCOME; …        its own outcome, then those of earlier steps that it set free
//! ```
//! Outcomes: `granted`, `refused`, `waits`, `timeout`, `cancelled`, `deadlock`, `done`, or what was asked for. Who is a
//! deadlock's victim rolls back at once. A permutation may end with waiters: their waits are cancelled.
//!
//! After every step exactly those wait who are said to: grants are made by who makes them possible, before its own step
//! ends, so there is nothing to wait for but what is expected.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use foreshore_base::{Lsn, TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicUsize, Ordering};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    Age, CancelToken, DeadlockPolicy, DigestKind, IntentLockKind, IntentMode, KeyMode, KeyRef, LockError,
    LockManager, LockOptions, LockOwner, LockTableKind, WaitPolicy,
};

use super::{NO_WAIT, TABLE, key};

/// Until an expected outcome has to be there, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// In which, at the end of a permutation, an outcome that is not expected would show.
const CALM: Duration = Duration::from_millis(15);

/// What a waiter under the policy `timeout` is given: longer than a step takes on a busy machine.
const LONG_WAIT: Duration = Duration::from_millis(1500);

struct Session {
    name: String,
    age: u64,
}

struct Step {
    session: usize,
    command: Vec<String>,
}

struct Permutation {
    steps: Vec<String>,
    /// For each step what it says and what it sets free: step and outcome.
    expected: Vec<Vec<(String, String)>>,
}

#[derive(Default)]
struct Spec {
    policies: Vec<DeadlockPolicy>,
    sessions: Vec<Session>,
    steps: BTreeMap<String, Step>,
    permutations: Vec<Permutation>,
}

fn parse(text: &str) -> Spec {
    let mut spec = Spec::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words[0].as_str() {
            "policies" => spec.policies = words[1..].iter().map(|name| policy(name)).collect(),
            "session" => {
                let age = words[3].parse().expect("an age");
                spec.sessions.push(Session { name: words[1].clone(), age });
            }
            "step" => {
                let session = spec.sessions.iter().position(|session| session.name == words[2]);
                let session = session.unwrap_or_else(|| panic!("no session {}", words[2]));
                spec.steps.insert(words[1].clone(), Step { session, command: words[3..].to_vec() });
            }
            "permutation" => {
                spec.permutations.push(Permutation { steps: words[1..].to_vec(), expected: Vec::new() });
            }
            _ => {
                let (step, rest) = line.split_once(": ").unwrap_or_else(|| panic!("not understood: {line}"));
                let mut outcomes = rest.split("; ");
                let own = outcomes.next().expect("an outcome").to_owned();
                let others = outcomes.map(|other| {
                    let (step, outcome) = other.split_once(' ').expect("step and outcome");
                    (step.to_owned(), outcome.to_owned())
                });
                let all = [(step.to_owned(), own)].into_iter().chain(others).collect();
                spec.permutations.last_mut().expect("a permutation").expected.push(all);
            }
        }
    }
    spec
}

fn policy(name: &str) -> DeadlockPolicy {
    match name {
        "wait_die" => DeadlockPolicy::WaitDie,
        "wound_wait" => DeadlockPolicy::WoundWait,
        "timeout" => DeadlockPolicy::Timeout,
        "no_wait" => DeadlockPolicy::NoWait,
        _ => panic!("no policy {name}"),
    }
}

/// The settings under which a specification is run.
fn settings(spec: &Spec) -> Vec<LockOptions> {
    let full = std::env::var("FORESHORE_SPECS").is_ok_and(|value| value == "full");
    let policies: Vec<_> = if spec.policies.is_empty() {
        let detecting = DeadlockPolicy::ALL.into_iter().filter(|policy| policy.detects());
        let exact = detecting.map(|policy| (policy, DigestKind::Exact));
        exact.chain([(DeadlockPolicy::Dreadlocks, DigestKind::Bloom)]).collect()
    } else {
        spec.policies.iter().map(|policy| (*policy, DigestKind::Exact)).collect()
    };
    let mut settings = Vec::new();
    for (place, table) in LockTableKind::ALL.into_iter().enumerate() {
        for (kind, intents) in IntentLockKind::ALL.into_iter().enumerate() {
            for (number, &(deadlock, digests)) in policies.iter().enumerate() {
                // Beside the road each pair of table and policy comes with one kind of intent locks, not always the
                // same.
                let chosen = if table == LockTableKind::default() {
                    intents == IntentLockKind::default()
                } else {
                    kind == (place + number) % IntentLockKind::ALL.len()
                };
                if full || number == 0 || chosen {
                    settings.push(LockOptions {
                        buckets: 64,
                        table,
                        intents,
                        deadlock,
                        digests,
                        deadlock_timeout: LONG_WAIT,
                        ..LockOptions::default()
                    });
                }
            }
        }
    }
    settings
}

fn key_of(name: &str) -> KeyRef<'_> {
    if name == "-inf" { KeyRef::NegativeInfinity } else { key(name.as_bytes()) }
}

fn mode(name: &str) -> KeyMode {
    *KeyMode::ALL.iter().find(|mode| mode.to_string() == name).unwrap_or_else(|| panic!("no mode {name}"))
}

fn intent_mode(name: &str) -> IntentMode {
    *IntentMode::ALL.iter().find(|mode| mode.to_string() == name).unwrap_or_else(|| panic!("no mode {name}"))
}

fn table(name: &str) -> TableId {
    if name == "volume" { TableId::VOLUME } else { TableId(1000 + u32::from(name.as_bytes()[0])) }
}

/// Takes a step and says what came of it.
fn run_command(owner: &mut LockOwner, token: &CancelToken, stretch: u32, command: &[String]) -> String {
    let wait = WaitPolicy { cancel: Some(token), ..WaitPolicy::default() };
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let until = |milliseconds: &str| {
        let limit = Duration::from_millis(milliseconds.parse().expect("milliseconds"));
        Some(Instant::now() + limit * stretch)
    };
    let result = match words[..] {
        ["lock", on, with] => owner.acquire(TABLE, key_of(on), mode(with), &wait),
        ["nowait", on, with] => owner.acquire(TABLE, key_of(on), mode(with), &NO_WAIT),
        ["within", milliseconds, on, with] => {
            let wait = WaitPolicy { deadline: until(milliseconds), ..wait };
            owner.acquire(TABLE, key_of(on), mode(with), &wait)
        }
        ["within-table", milliseconds, on, with] => {
            let wait = WaitPolicy { deadline: until(milliseconds), ..wait };
            owner.intent(table(on), intent_mode(with), &wait).map(drop)
        }
        ["try", on, with] => {
            let granted = owner.try_acquire(TABLE, key_of(on), mode(with)).expect("no limit is reached");
            return (if granted { "granted" } else { "refused" }).to_owned();
        }
        ["check", on, with] => {
            let free = owner.check(TABLE, key_of(on), mode(with));
            return (if free { "free" } else { "taken" }).to_owned();
        }
        ["table", on, with] => owner.intent(table(on), intent_mode(with), &wait).map(drop),
        ["nowait-table", on, with] => owner.intent(table(on), intent_mode(with), &NO_WAIT).map(drop),
        ["held", on] => return owner.held(TABLE, key_of(on)).unwrap().to_string(),
        ["tag"] => return owner.max_tag().to_string(),
        ["rollback"] => {
            owner.release_all(None);
            return "done".to_owned();
        }
        ["commit", lsn] => {
            owner.release_all(Some(Lsn(lsn.parse().expect("an LSN"))));
            return "done".to_owned();
        }
        _ => panic!("no such command: {words:?}"),
    };
    match result {
        Ok(()) => "granted",
        Err(LockError::WouldBlock(_)) => "refused",
        Err(LockError::Timeout(_)) => "timeout",
        Err(LockError::Cancelled) => "cancelled",
        Err(LockError::Deadlock(_)) => {
            owner.release_all(None);
            "deadlock"
        }
        Err(error) => panic!("{error}"),
    }
    .to_owned()
}

/// Steps for a session's thread, and what came of them.
type Steps = Receiver<(String, Vec<String>)>;
type Outcomes = Sender<(String, String)>;

fn serve(
    manager: &Arc<LockManager>,
    txn: u64,
    age: u64,
    token: &CancelToken,
    stretch: u32,
    (steps, outcomes): (&Steps, &Outcomes),
) {
    let mut owner = manager.begin(TxnId(txn), Age::new(age, 0), None).unwrap();
    for (name, command) in steps {
        let outcome = run_command(&mut owner, token, stretch, &command);
        if outcomes.send((name, outcome)).is_err() {
            break;
        }
    }
}

/// Runs one permutation; says what differs from the specification. Steps that come while somebody waits may be too late
/// for that on a busy machine: then it is run again, with later deadlines.
fn run(spec: &Spec, permutation: &Permutation, options: &LockOptions) -> Result<(), String> {
    let has_deadlines = spec.policies.contains(&DeadlockPolicy::Timeout)
        || spec.steps.values().any(|step| step.command[0].starts_with("within"));
    let stretches: &[u32] = if has_deadlines { &[1, 5, 25] } else { &[1] };
    let mut result = Ok(());
    for &stretch in stretches {
        result = run_within(spec, permutation, options, PATIENCE, stretch);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn run_within(
    spec: &Spec,
    permutation: &Permutation,
    options: &LockOptions,
    patience: Duration,
    stretch: u32,
) -> Result<(), String> {
    assert_eq!(permutation.steps.len(), permutation.expected.len(), "a line for each step");
    let deadlock_timeout = options.deadlock_timeout * stretch;
    let manager = LockManager::new(&LockOptions { deadlock_timeout, ..options.clone() });
    let tokens: Vec<CancelToken> = spec.sessions.iter().map(|_| CancelToken::new()).collect();
    let (outcome_sender, outcomes) = channel();
    let result = thread::scope(|scope| {
        let senders: Vec<_> = (spec.sessions.iter().zip(&tokens).enumerate())
            .map(|(number, (session, token))| {
                let (sender, steps) = channel();
                let (manager, outcomes) = (&manager, outcome_sender.clone());
                let txn = number as u64 + 1;
                scope.spawn(move || serve(manager, txn, session.age, token, stretch, (&steps, &outcomes)));
                sender
            })
            .collect();
        let mut waiting = Vec::new();
        let result =
            (permutation.steps.iter().zip(&permutation.expected)).try_for_each(|(name, expected)| {
                assert_eq!(*name, expected[0].0, "lines in the order of the steps");
                let step = &spec.steps[name];
                if step.command[0] == "cancel" {
                    tokens[step.session].cancel();
                    outcome_sender.send((name.clone(), "done".to_owned())).expect("the receiver is here");
                } else if step.command[0] == "await" {
                    outcome_sender.send((name.clone(), "done".to_owned())).expect("the receiver is here");
                } else {
                    senders[step.session]
                        .send((name.clone(), step.command.clone()))
                        .expect("the session is there");
                }
                await_outcomes(spec, &manager, expected, &mut waiting, &outcomes, patience)
            });
        let result = result.and_then(|()| match outcomes.recv_timeout(CALM) {
            Ok(late) => Err(format!("at the end also {late:?}")),
            Err(_) => Ok(()),
        });
        tokens.iter().for_each(CancelToken::cancel);
        drop(senders);
        result
    });
    assert!(manager.is_empty() && manager.waiters().is_empty());
    result
}

/// Waits for what is expected, and until exactly those wait who should: `waiting`, the sessions with a step under way.
fn await_outcomes(
    spec: &Spec,
    manager: &LockManager,
    expected: &[(String, String)],
    waiting: &mut Vec<u64>,
    outcomes: &Receiver<(String, String)>,
    patience: Duration,
) -> Result<(), String> {
    let limit = Instant::now() + patience;
    let txn = |step: &str| spec.steps[step].session as u64 + 1;
    let (waits, ends): (Vec<_>, Vec<_>) =
        expected.iter().cloned().partition(|(_, outcome)| outcome == "waits");
    waiting.extend(waits.iter().map(|(step, _)| txn(step)));
    let control = |step: &str| matches!(spec.steps[step].command[0].as_str(), "cancel" | "await");
    for (step, _) in ends.iter().filter(|(step, _)| !control(step)) {
        waiting.retain(|waiting| *waiting != txn(step));
    }
    waiting.sort_unstable();
    let mut seen = Vec::new();
    while seen.len() < ends.len() {
        match outcomes.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(outcome) => seen.push(outcome),
            Err(_) => break,
        }
    }
    let who_waits = || {
        let mut who: Vec<u64> = manager.waiters().iter().map(|(txn, _)| txn.0).collect();
        who.sort_unstable();
        who
    };
    while seen.len() == ends.len() && who_waits() != *waiting && Instant::now() < limit {
        if let Ok(outcome) = outcomes.recv_timeout(Duration::from_millis(1)) {
            seen.push(outcome);
        }
    }
    seen.extend(outcomes.try_iter());
    // Others are set free in no particular order.
    let sorted = |mut outcomes: Vec<_>| {
        outcomes.sort();
        outcomes
    };
    let (seen, ends, who) = (sorted(seen), sorted(ends), who_waits());
    if seen == ends && who == *waiting {
        Ok(())
    } else {
        Err(format!("{expected:?}\n  but saw {seen:?}, and of {waiting:?} there wait {who:?}"))
    }
}

#[test]
fn all_specifications_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/specs");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 40);
    let specs: Vec<_> = files.iter().map(|file| (file, parse(&fs::read_to_string(file).unwrap()))).collect();
    let with_settings =
        |(file, spec)| settings(spec).into_iter().map(move |options: LockOptions| (file, spec, options));
    let mut runs: Vec<(&&PathBuf, &Spec, LockOptions)> =
        specs.iter().map(|(file, spec)| (file, spec)).flat_map(with_settings).collect();
    // Those of one file one after another would end late: some wait for their deadlines.
    runs.sort_by_key(|(_, _, options)| (options.table as u8, options.intents as u8, options.deadlock as u8));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        // They wait more than they compute.
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some((file, spec, options)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    assert!(!spec.permutations.is_empty(), "{}", file.display());
                    for permutation in &spec.permutations {
                        if let Err(difference) = run(spec, permutation, options) {
                            let order = permutation.steps.join(" ");
                            let LockOptions { table, intents, deadlock, digests, .. } = options;
                            panic!(
                                "{}, {table:?}, {intents:?}, {deadlock:?}, {digests:?}, permutation {order}:\n  \
                                 {difference}",
                                file.display()
                            );
                        }
                    }
                }
            });
        }
    });
}

/// Every table meets every kind of intent locks, and every policy; the road meets everything.
#[test]
fn settings_cover_all_pairs() {
    let all = settings(&Spec::default());
    assert!(all.len() <= 9 * LockTableKind::ALL.len() || std::env::var_os("FORESHORE_SPECS").is_some());
    for table in LockTableKind::ALL {
        for intents in IntentLockKind::ALL {
            assert!(all.iter().any(|options| options.table == table && options.intents == intents));
        }
        for deadlock in DeadlockPolicy::ALL.into_iter().filter(|policy| policy.detects()) {
            let meets = |options: &&LockOptions| options.table == table && options.deadlock == deadlock;
            assert!(all.iter().any(|options| meets(&options)), "{table:?} {deadlock:?}");
        }
        let bloom = |options: &&LockOptions| options.table == table && options.digests == DigestKind::Bloom;
        assert!(all.iter().any(|options| bloom(&options)), "{table:?}");
    }
    for policy in DeadlockPolicy::ALL {
        let one = settings(&Spec { policies: vec![policy], ..Spec::default() });
        assert!(LockTableKind::ALL.iter().all(|table| one.iter().any(|options| options.table == *table)));
    }
}

/// The runner notices what is not as written, in either direction.
#[test]
fn wrong_specifications_fail() {
    let head =
        "session a age 1\nsession b age 2\nstep a1 a lock k X\nstep b1 b try k S\nstep b2 b lock k S\n";
    for (lines, holds) in [
        ("permutation a1 b1\na1: granted\nb1: refused", true),
        ("permutation a1 b1\na1: granted\nb1: granted", false),
        ("permutation a1 b1\na1: granted\nb1: waits", false),
        ("permutation b2 a1\nb2: granted\na1: waits", true),
        ("permutation b2 a1 b1\nb2: granted\na1: waits\nb1: granted; a1 granted", false),
    ] {
        let spec = parse(&format!("{head}{lines}"));
        // What is missing is waited for.
        let patience = if holds { PATIENCE } else { Duration::from_millis(300) };
        let result = run_within(&spec, &spec.permutations[0], &LockOptions::default(), patience, 1);
        assert_eq!(result.is_ok(), holds, "{lines}");
    }
}
