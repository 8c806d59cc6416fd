//! Runs the specifications in `specs/`: what sessions see when their steps are taken in a given order, after the manner of
//! PostgreSQL's isolation tests. Every file is run over every lock table.
//!
//! ```text
//! # Comments; the one at the head draws who waits for whom.
//! session NAME age N                    smaller is older
//! step NAME SESSION COMMAND             see `run_command`
//! permutation STEP STEP …               an order, followed by a line for each step:
//! STEP: OUTCOME; STEP OUTCOME; …        its own outcome, then those of earlier steps that it set free
//! ```
//! Outcomes: `granted`, `refused`, `waits`, `timeout`, `cancelled`, `deadlock`, `done`, or what was asked for. Who is a
//! deadlock's victim rolls back at once. A permutation may end with waiters: their waits are cancelled.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use foreshore_base::{Lsn, TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    CancelToken, IntentMode, LockError, LockManager, LockOptions, LockOwner, Mode, WaitPolicy,
};

use super::{NO_WAIT, TABLE, key, over_all_tables};

/// Until an expected outcome has to be there, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// In which an outcome that is not expected would show.
const CALM: Duration = Duration::from_millis(15);

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
    sessions: Vec<Session>,
    steps: BTreeMap<String, Step>,
    permutations: Vec<Permutation>,
}

fn parse(text: &str) -> Spec {
    let mut spec = Spec::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words[0].as_str() {
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

fn mode(name: &str) -> Mode {
    *Mode::ALL.iter().find(|mode| mode.to_string() == name).unwrap_or_else(|| panic!("no mode {name}"))
}

fn intent_mode(name: &str) -> IntentMode {
    *IntentMode::ALL.iter().find(|mode| mode.to_string() == name).unwrap_or_else(|| panic!("no mode {name}"))
}

fn table(name: &str) -> TableId {
    if name == "volume" { TableId(u32::MAX) } else { TableId(1000 + u32::from(name.as_bytes()[0])) }
}

/// Takes a step and says what came of it.
fn run_command(owner: &mut LockOwner, token: &CancelToken, command: &[String]) -> String {
    let wait = WaitPolicy { deadline: None, no_wait: false, cancel: Some(token) };
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["lock", on, with] => owner.acquire(TABLE, key(on.as_bytes()), mode(with), &wait),
        ["nowait", on, with] => owner.acquire(TABLE, key(on.as_bytes()), mode(with), &NO_WAIT),
        ["within", milliseconds, on, with] => {
            let wait_for = Duration::from_millis(milliseconds.parse().expect("milliseconds"));
            let wait = WaitPolicy { deadline: Some(Instant::now() + wait_for), ..wait };
            owner.acquire(TABLE, key(on.as_bytes()), mode(with), &wait)
        }
        ["try", on, with] => {
            let granted =
                owner.try_acquire(TABLE, key(on.as_bytes()), mode(with)).expect("no limit is reached");
            return (if granted { "granted" } else { "refused" }).to_owned();
        }
        ["check", on, with] => {
            let free = owner.check(TABLE, key(on.as_bytes()), mode(with));
            return (if free { "free" } else { "taken" }).to_owned();
        }
        ["table", on, with] => owner.intent(table(on), intent_mode(with), &wait),
        ["nowait-table", on, with] => owner.intent(table(on), intent_mode(with), &NO_WAIT),
        ["held", on] => return owner.held(TABLE, key(on.as_bytes())).to_string(),
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
    steps: &Steps,
    outcomes: &Outcomes,
) {
    let mut owner = manager.begin(TxnId(txn), age, None).unwrap();
    for (name, command) in steps {
        let outcome = run_command(&mut owner, token, &command);
        if outcomes.send((name, outcome)).is_err() {
            break;
        }
    }
}

/// Runs one permutation; says what differs from the specification.
fn run(spec: &Spec, permutation: &Permutation, options: &LockOptions) -> Result<(), String> {
    run_within(spec, permutation, options, PATIENCE)
}

fn run_within(
    spec: &Spec,
    permutation: &Permutation,
    options: &LockOptions,
    patience: Duration,
) -> Result<(), String> {
    assert_eq!(permutation.steps.len(), permutation.expected.len(), "a line for each step");
    let manager = LockManager::new(options);
    let tokens: Vec<CancelToken> = spec.sessions.iter().map(|_| CancelToken::new()).collect();
    let (outcome_sender, outcomes) = channel();
    let result = thread::scope(|scope| {
        let senders: Vec<_> = (spec.sessions.iter().zip(&tokens).enumerate())
            .map(|(number, (session, token))| {
                let (sender, steps) = channel();
                let (manager, outcomes) = (&manager, outcome_sender.clone());
                scope.spawn(move || serve(manager, number as u64 + 1, session.age, token, &steps, &outcomes));
                sender
            })
            .collect();
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
                await_outcomes(spec, &manager, expected, &outcomes, patience)
            });
        tokens.iter().for_each(CancelToken::cancel);
        drop(senders);
        result
    });
    assert!(manager.is_empty() && manager.waiting().is_empty());
    result
}

/// Waits for what is expected, and a little longer for what is not.
fn await_outcomes(
    spec: &Spec,
    manager: &LockManager,
    expected: &[(String, String)],
    outcomes: &Receiver<(String, String)>,
    patience: Duration,
) -> Result<(), String> {
    let limit = Instant::now() + patience;
    let (waits, ends): (Vec<_>, Vec<_>) =
        expected.iter().cloned().partition(|(_, outcome)| outcome == "waits");
    let mut seen = Vec::new();
    while seen.len() < ends.len() {
        match outcomes.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(outcome) => seen.push(outcome),
            Err(_) => break,
        }
    }
    let is_waiting = |step: &str| {
        let txn = TxnId(spec.steps[step].session as u64 + 1);
        manager.waiting().iter().any(|edge| edge.txn == txn)
    };
    while !waits.iter().all(|(step, _)| is_waiting(step)) && Instant::now() < limit {
        if let Ok(outcome) = outcomes.recv_timeout(Duration::from_millis(1)) {
            seen.push(outcome);
            break;
        }
    }
    while let Ok(outcome) = outcomes.recv_timeout(CALM) {
        seen.push(outcome);
    }
    // Others are set free in no particular order.
    let sorted = |mut outcomes: Vec<_>| {
        outcomes.sort();
        outcomes
    };
    let (seen, ends) = (sorted(seen), sorted(ends));
    if seen == ends { Ok(()) } else { Err(format!("{expected:?}\n  but saw {seen:?}")) }
}

#[test]
fn all_specifications_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/specs");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12);
    for file in files {
        let spec = parse(&fs::read_to_string(&file).unwrap());
        assert!(!spec.permutations.is_empty(), "{}", file.display());
        over_all_tables(|options| {
            for permutation in &spec.permutations {
                if let Err(difference) = run(&spec, permutation, &options) {
                    let order = permutation.steps.join(" ");
                    panic!("{}, {:?}, permutation {order}:\n  {difference}", file.display(), options.table);
                }
            }
        });
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
        let result =
            run_within(&spec, &spec.permutations[0], &LockOptions::default(), Duration::from_millis(300));
        assert_eq!(result.is_ok(), holds, "{lines}");
    }
}
