//! Histories of appends to lists, drawn from a seed and played by several clients at once. What the answers say goes to
//! `adya`, which knows nothing of the program: serializable transactions must be strictly serializable for it, and the
//! same clients under `read_committed` must not be.
//!
//! A command is sent when all before it have been answered or wait, and a client has one at a time; so a seed is one
//! history.

use std::{collections::BTreeSet, time::Duration};

use adya::{History, Opts, Report, Valid, Workload};
use foreshore_env::random::Xorshift;
use serde_json::{Value as Json, json};

use crate::player::{PATIENCE, Player};

const CLIENTS: usize = 5;
/// Of each client.
const TRANSACTIONS: usize = 20;
const KEYS: u64 = 4;

/// The list that all clients begin at once, each having found that it is not there: what `read_committed` cannot keep
/// apart, whatever the time that anything takes. Somebody reads it at the end.
const FIRST: u64 = 1_000_000;

/// One operation of a transaction.
#[derive(Clone, Debug)]
enum Step {
    /// By its key, or as the only one of a range.
    Read {
        key: u64,
        scanned: bool,
    },
    Append {
        key: u64,
        element: u64,
    },
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Begin,
    /// The step of this number; of an append the reading of the list.
    Get(usize),
    /// The writing of the list by the append of this number.
    Put(usize),
    Rollback,
}

/// A session, and the transaction that it is in.
struct Client {
    number: usize,
    next: Next,
    steps: Vec<Step>,
    /// The lists that were read, of an append the one before it.
    seen: Vec<Vec<u64>>,
    left: usize,
    /// A command is on its way.
    waits: bool,
}

impl Client {
    /// Whether it has not looked yet whether the first list is there.
    fn begins_the_first(&self) -> bool {
        self.left == TRANSACTIONS && matches!(self.next, Next::Begin | Next::Get(0))
    }
}

/// A list as it is written.
fn elements(list: &Json) -> Vec<u64> {
    let list = list.as_str().unwrap_or_default();
    list.split_whitespace().map(|element| element.parse().unwrap()).collect()
}

/// Plays a history.
struct Stage<'i> {
    player: Player,
    isolation: &'i str,
    random: Xorshift,
    elements: u64,
    /// As `adya` reads it: a line for each beginning and each end.
    history: String,
    committed: usize,
}

impl Stage<'_> {
    /// Until all clients have done all that they have to do.
    fn play(&mut self) {
        let mut clients: Vec<Client> = (0..CLIENTS)
            .map(|number| Client {
                number,
                next: Next::Begin,
                steps: Vec::new(),
                seen: Vec::new(),
                left: TRANSACTIONS,
                waits: false,
            })
            .collect();
        loop {
            let free: Vec<usize> =
                (0..CLIENTS).filter(|&client| !clients[client].waits && clients[client].left > 0).collect();
            let answers = match free.len() {
                0 if clients.iter().all(|client| client.left == 0) => return self.look_back(),
                // All wait: for who gives way.
                0 => vec![self.player.next()],
                count => {
                    let drawn = free[self.random.below(count as u64) as usize];
                    let begins = clients.iter().position(|client| !client.waits && client.begins_the_first());
                    let client = &mut clients[begins.unwrap_or(drawn)];
                    let command = self.command(client);
                    client.waits = true;
                    self.player.play(&command)
                }
            };
            for answer in answers.iter().filter(|answer| answer["status"] != "blocked") {
                let number = answer["id"].as_u64().expect("a client's number") as usize;
                clients[number].waits = false;
                self.take(&mut clients[number], answer);
            }
        }
    }

    /// Reads the list that all have begun.
    fn look_back(&mut self) {
        let steps = vec![Step::Read { key: FIRST, scanned: false }];
        let mut reader =
            Client { number: CLIENTS, next: Next::Begin, steps, seen: Vec::new(), left: 1, waits: false };
        self.tell("invoke", &reader);
        self.player.ok("reader", "begin", json!({}));
        let answer = self.player.ok("reader", "get", json!({"key": FIRST.to_string()}));
        reader.seen.push(elements(&answer["value"]));
        self.player.ok("reader", "commit", json!({}));
        self.tell("ok", &reader);
    }

    /// A client's next command.
    fn command(&mut self, client: &mut Client) -> Json {
        let mut command = match client.next {
            Next::Begin => {
                client.steps = match client.left {
                    TRANSACTIONS => {
                        self.elements += 1;
                        vec![Step::Append { key: FIRST, element: self.elements }]
                    }
                    _ => self.draw(),
                };
                client.seen.clear();
                self.tell("invoke", client);
                let durability = ["sync", "pipelined", "lazy", "lazy"][self.random.below(4) as usize];
                json!({"op": "begin", "isolation": self.isolation, "durability": durability})
            }
            Next::Get(step) if step == client.steps.len() => json!({"op": "commit"}),
            Next::Get(step) => match client.steps[step] {
                Step::Read { key, scanned: true } => {
                    let key = key.to_string();
                    json!({"op": "scan", "lo": key, "hi": key, "hi_inclusive": true})
                }
                Step::Read { key, .. } | Step::Append { key, .. } => {
                    json!({"op": "get", "key": key.to_string()})
                }
            },
            Next::Put(step) => {
                let Step::Append { key, element } = client.steps[step] else {
                    panic!("{:?} writes nothing", client.steps[step]);
                };
                let list = client.seen[step].iter().chain([&element]);
                let list: Vec<String> = list.map(u64::to_string).collect();
                json!({"op": "put", "key": key.to_string(), "value": list.join(" ")})
            }
            Next::Rollback => json!({"op": "rollback"}),
        };
        command["session"] = format!("client {}", client.number).into();
        command["id"] = client.number.into();
        command
    }

    /// Steps on different keys. Lists go out of use, so that there are always some that nobody has begun: what
    /// `read_committed` does not lock are keys that are not there.
    fn draw(&mut self) -> Vec<Step> {
        let first = self.elements / 6 * KEYS;
        let keys: BTreeSet<u64> =
            (0..=self.random.below(4)).map(|_| first + self.random.below(KEYS)).collect();
        let reads_only = self.random.below(4) == 0;
        keys.into_iter()
            .map(|key| match self.random.below(3) {
                kind if kind == 0 || reads_only => Step::Read { key, scanned: self.random.below(2) == 0 },
                _ => {
                    self.elements += 1;
                    Step::Append { key, element: self.elements }
                }
            })
            .collect()
    }

    /// What an answer means to its client.
    fn take(&mut self, client: &mut Client, answer: &Json) {
        let ok = answer["status"] == "ok";
        // Whoever gives way begins something else afterwards.
        assert!(ok || answer["error"] == "deadlock", "{answer}");
        client.next = match client.next {
            Next::Begin if ok => Next::Get(0),
            Next::Get(step) if ok && step == client.steps.len() => {
                self.tell("ok", client);
                self.committed += 1;
                client.left -= 1;
                Next::Begin
            }
            Next::Get(step) if ok => {
                let list = match client.steps[step] {
                    Step::Read { scanned: true, .. } => &answer["entries"][0][1],
                    _ => &answer["value"],
                };
                client.seen.push(elements(list));
                match client.steps[step] {
                    Step::Read { .. } => Next::Get(step + 1),
                    Step::Append { .. } => Next::Put(step),
                }
            }
            Next::Put(step) if ok => Next::Get(step + 1),
            Next::Get(step) if step < client.steps.len() => Next::Rollback,
            Next::Put(_) => Next::Rollback,
            Next::Rollback if ok => {
                self.tell("fail", client);
                client.left -= 1;
                Next::Begin
            }
            next => panic!("{next:?}: {answer}"),
        };
    }

    /// A line of the history. What was read is known at the end alone.
    fn tell(&mut self, kind: &str, client: &Client) {
        let operation = |(place, step): (usize, &Step)| match *step {
            Step::Read { key, .. } => {
                json!(["r", key, if kind == "ok" { json!(client.seen[place]) } else { Json::Null }])
            }
            Step::Append { key, element } => json!(["append", key, element]),
        };
        let value: Vec<Json> = client.steps.iter().enumerate().map(operation).collect();
        self.history += &json!({"type": kind, "process": client.number, "value": value}).to_string();
        self.history.push('\n');
    }
}

/// Plays a seed's history; what adya says of it.
fn judge(seed: u64, isolation: &str, options: &str) -> Report {
    let mut stage = Stage {
        player: Player::with(options),
        isolation,
        random: Xorshift::new((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        elements: 0,
        history: String::new(),
        committed: 0,
    };
    stage.play();
    let Stage { player, history, committed, .. } = stage;
    let (answers, status, _) = player.end();
    assert_eq!((answers, status), (Vec::new(), 0));
    // A history of which hardly anything is committed shows nothing.
    let begun = CLIENTS * TRANSACTIONS;
    assert!(committed * 5 > begun * 2, "seed {seed}, {options}: {committed} of {begun} committed");
    check(&history)
}

fn check(history: &str) -> Report {
    let opts = Opts { timeout: PATIENCE + Duration::from_secs(60), ..Opts::default() };
    assert_eq!(opts.models, ["strict-serializable"]);
    adya::check(&History::from_json(history).unwrap(), Workload::ListAppend, &opts)
}

/// Seeds, each with an option that has to do with locks.
const PLAYS: [(u64, &str); 6] = [
    (1, "pool_bytes=4MiB"),
    (2, "lock_table=staged"),
    (3, "lock_table=global_mutex"),
    (4, "early_lock_release=off"),
    (5, "intent_locks=inherited"),
    (6, "deadlock_policy=wait_for_graph"),
];

#[test]
fn histories_are_strictly_serializable() {
    for (seed, options) in PLAYS {
        let report = judge(seed, "serializable", options);
        assert_eq!(report.valid, Valid::True, "seed {seed}, {options}: {:?}", report.anomalies);
    }
}

/// The control: nothing but the isolation is another.
#[test]
fn histories_of_read_committed_are_not() {
    for (seed, options) in PLAYS {
        let report = judge(seed, "read_committed", options);
        assert_eq!(report.valid, Valid::False, "seed {seed}, {options}: nothing was found");
        assert!(!report.anomalies.is_empty());
    }
}

/// The shortest of them, in which nobody waits: both begin a list that neither has found.
#[test]
fn a_list_that_two_begin_is_found() {
    let mut player = Player::new();
    let mut history = String::new();
    let mut tell = |kind: &str, process: u64, list: Option<u64>| {
        let value = match list {
            None => json!([["append", 1, process]]),
            Some(only) => json!([["r", 1, [only]]]),
        };
        history += &format!("{}\n", json!({"type": kind, "process": process, "value": value}));
    };
    for (process, session) in [(1, "a"), (2, "b")] {
        tell("invoke", process, None);
        player.ok(session, "begin", json!({"isolation": "read_committed"}));
        assert_eq!(player.ok(session, "get", json!({"key": "list"}))["value"], Json::Null);
    }
    for (process, session) in [(1, "a"), (2, "b")] {
        player.ok(session, "put", json!({"key": "list", "value": process.to_string()}));
        player.ok(session, "commit", json!({}));
        tell("ok", process, None);
    }
    player.ok("c", "begin", json!({}));
    assert_eq!(player.ok("c", "get", json!({"key": "list"}))["value"], "2", "the first one's is lost");
    tell("invoke", 3, Some(2));
    tell("ok", 3, Some(2));
    let report = check(&history);
    assert_eq!(report.valid, Valid::False);
    assert!(!report.anomalies.is_empty());
}
