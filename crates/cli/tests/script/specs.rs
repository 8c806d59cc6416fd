//! Runs the specifications in `specs/`: what sessions see when their statements are made in a given order, after the
//! manner of PostgreSQL's isolation tests. Every file is run on the road and over a choice of all lock tables × intent
//! locks × policies, another one for each file; with `FORESHORE_SPECS=full` over all of them.
//!
//! ```text
//! # Comments; the one at the head draws who waits for whom.
//! setup KEY=VALUE …                     what is there before each permutation
//! step NAME SESSION COMMAND …           see `command`
//! permutation STEP STEP …               an order, followed by a line for each step:
//! STEP: OUTCOME; STEP OUTCOME; …        its own outcome, then those of earlier steps that it set free
//! ```
//! Outcomes: `ok`, a value or `none`, `key=value …` or `empty`, `inserted` or `exists`, `deleted` or `absent`, `blocked
//! by SESSION …`, or the word of an error. `await` takes no step, but waits for what others come to.
//!
//! That is how it goes where cycles are looked for. Under the other policies a permutation is run as far as it goes the
//! same way, and it is known how it ends there (`course.rs`).

use std::{collections::BTreeMap, fs, path::Path, thread};

use foreshore::{DeadlockPolicy, IntentLockKind};
use serde_json::{Value as Json, json};

use crate::{
    course::{Course, Foresight, Met},
    player::Player,
};

/// The option of `begin` that is a time.
const DEADLINE: &str = "deadline_ms";

#[derive(Default)]
struct Spec {
    setup: Vec<(String, String)>,
    /// Session and command.
    steps: BTreeMap<String, (String, Vec<String>)>,
    permutations: Vec<Permutation>,
}

impl Spec {
    /// Whether it depends on the time that its steps take.
    fn has_deadlines(&self) -> bool {
        self.steps.values().any(|(_, words)| words.iter().any(|word| word.starts_with(DEADLINE)))
    }
}

struct Permutation {
    steps: Vec<String>,
    expected: Vec<String>,
}

fn parse(text: &str) -> Spec {
    let mut spec = Spec::default();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words[0].as_str() {
            "setup" => spec.setup = words[1..].iter().map(|word| pair(word)).collect(),
            "step" => {
                let earlier = spec.steps.insert(words[1].clone(), (words[2].clone(), words[3..].to_vec()));
                assert!(earlier.is_none(), "step {} is there twice", words[1]);
            }
            "permutation" => {
                spec.permutations.push(Permutation { steps: words[1..].to_vec(), expected: Vec::new() });
            }
            _ => {
                let permutation = spec.permutations.last_mut().expect("a permutation");
                permutation.expected.push(line.to_owned());
            }
        }
    }
    spec
}

fn pair(word: &str) -> (String, String) {
    let (name, value) = word.split_once('=').expect("name=value");
    (name.to_owned(), value.to_owned())
}

/// A step's command for the program; deadlines so many times as late as they are written.
fn command(words: &[String], table: &str, stretch: u64) -> Json {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["begin", ref options @ ..] => {
            // That a commit is on the disk changes nothing of what others see.
            let mut command = json!({"op": "begin", "durability": "lazy"});
            for option in options {
                let (name, value) = pair(option);
                command[&name] = serde_json::from_str(&value).unwrap_or_else(|_| value.into());
                if name == DEADLINE {
                    command[&name] = (command[&name].as_u64().expect("milliseconds") * stretch).into();
                }
            }
            command
        }
        [op @ ("get" | "get_for_update" | "delete"), key] => json!({"op": op, "table": table, "key": key}),
        [op @ ("put" | "insert" | "update"), key, value] => {
            json!({"op": op, "table": table, "key": key, "value": value})
        }
        ["scan", ref options @ ..] => {
            let mut command = json!({"op": "scan", "table": table});
            let mut bounds = ["lo", "hi"].into_iter();
            for option in options {
                match *option {
                    "reverse" | "for_update" | "skip_locked" => command[*option] = true.into(),
                    bound => command[bounds.next().expect("two bounds")] = bound.into(),
                }
            }
            command
        }
        ["lock_table", mode] => json!({"op": "lock_table", "table": table, "mode": mode}),
        [op @ ("savepoint" | "rollback_to" | "release"), name] => json!({"op": op, "name": name}),
        [op @ ("commit" | "rollback" | "cancel")] => json!({"op": op}),
        _ => panic!("no such command: {words:?}"),
    }
}

/// An answer as specifications have it.
fn outcome(answer: &Json) -> String {
    let text = |json: &Json| json.as_str().expect("text").to_owned();
    if answer["status"] == "blocked" {
        let waits_for = answer["waits_for"].as_array().expect("whom it waits for");
        let mut sessions: Vec<String> = waits_for.iter().map(|other| text(&other["session"])).collect();
        sessions.sort();
        sessions.dedup();
        let names = sessions.iter().map(|session| session.split('.').next().expect("a name"));
        return format!("blocked by {}", names.collect::<Vec<_>>().join(" "));
    }
    if answer["status"] == "error" {
        return text(&answer["error"]);
    }
    if let Some(value) = answer.get("value") {
        return value.as_str().unwrap_or("none").to_owned();
    }
    if let Some(entries) = answer["entries"].as_array() {
        let entries: Vec<String> =
            entries.iter().map(|entry| format!("{}={}", text(&entry[0]), text(&entry[1]))).collect();
        return if entries.is_empty() { "empty".to_owned() } else { entries.join(" ") };
    }
    for (field, yes, no) in [("inserted", "inserted", "exists"), ("deleted", "deleted", "absent")] {
        if let Some(done) = answer[field].as_bool() {
            return (if done { yes } else { no }).to_owned();
        }
    }
    "ok".to_owned()
}

/// Runs a permutation in a table and in sessions of its own; says what differs from the specification, or how it went.
fn run(
    spec: &Spec,
    permutation: &Permutation,
    player: &mut Player,
    number: usize,
    policy: &'static str,
    stretch: u64,
) -> Result<Met, String> {
    assert_eq!(permutation.steps.len(), permutation.expected.len(), "a line for each step");
    let table = format!("table{number}");
    let session = |name: &str| format!("{name}.{number}");
    player.ok("setup", "begin", json!({}));
    for (key, value) in &spec.setup {
        player.ok("setup", "put", json!({"table": table, "key": key, "value": value}));
    }
    player.ok("setup", "commit", json!({}));
    let mut foresight = Foresight::under(policy);
    let mut result = Ok(());
    for (step, written) in permutation.steps.iter().zip(&permutation.expected) {
        let (name, words) = &spec.steps[step];
        let course = foresight.next(name, words, written, |step| &spec.steps[step].0);
        let expected = &match course {
            Course::AsWritten | Course::AsWrittenTheLastTime => written.clone(),
            Course::GivesWay => format!("{step}: deadlock"),
            Course::Unknown => break,
        };
        let mut answers = Vec::new();
        if words[0] == "await" {
            answers.push(json!({"id": step, "status": "ok"}));
            answers.extend((1..expected.split("; ").count()).map(|_| player.next()));
        } else {
            let mut command = command(words, &table, stretch);
            command["id"] = step.as_str().into();
            command["session"] = session(name).into();
            player.send(&command);
        }
        answers.extend(player.settled());
        // Nor is it known when a cycle is seen: until then all its members wait.
        if expected.contains(" deadlock") && !answers.iter().any(|answer| answer["error"] == "deadlock") {
            answers.push(player.next());
            answers.extend(player.settled());
        }
        let (own, others): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer["id"] == step.as_str());
        let mut own: Vec<String> = own.into_iter().map(outcome).collect();
        // A victim waits until it is found: whether it was seen doing so is a matter of time.
        if own.len() == 2 && own[0].starts_with("blocked by ") && own[1] == "deadlock" {
            own.remove(0);
        }
        // Others are set free in no particular order. Who is set free by the first of several locks that go may wait
        // for the next of them for a moment.
        let mut others: Vec<String> = (others.iter().enumerate())
            .filter(|(place, answer)| {
                answer["status"] != "blocked"
                    || others[place + 1..].iter().all(|later| later["id"] != answer["id"])
            })
            .map(|(_, answer)| format!("{} {}", answer["id"].as_str().unwrap_or("?"), outcome(answer)))
            .collect();
        others.sort();
        others.insert(0, format!("{step}: {}", own.join(", then ")));
        let seen = others.join("; ");
        if seen != *expected {
            result = Err(format!("expected {expected}\n   but saw {seen}"));
            break;
        }
        if matches!(course, Course::GivesWay | Course::AsWrittenTheLastTime) {
            break;
        }
    }
    // Whatever has happened, the next permutation finds nothing of this one in its way.
    for (name, _) in spec.steps.values() {
        for op in ["cancel", "rollback"] {
            player.play(&json!({"op": op, "session": session(name)}));
        }
    }
    let locks = player.one(&json!({"op": "locks"}));
    assert_eq!(locks["locks"], json!([]), "nothing is left");
    result.map(|()| foresight.met())
}

/// What a database is opened with.
#[derive(Clone, Copy, Debug)]
struct Setting {
    table: &'static str,
    intents: &'static str,
    policy: &'static str,
    digests: &'static str,
}

const TABLES: [&str; 3] = ["latched", "staged", "global_mutex"];
const INTENTS: [&str; IntentLockKind::ALL.len()] = ["private", "lightweight", "in_table", "inherited"];
const POLICIES: [&str; DeadlockPolicy::ALL.len()] = [
    "dreadlocks",
    "dreadlocks_spin",
    "dreadlocks_sleep",
    "dreadlocks_hybrid",
    "wait_for_graph",
    "wait_die",
    "wound_wait",
    "timeout",
    "no_wait",
];

/// The road first.
fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for table in TABLES {
        for intents in INTENTS {
            let exact = POLICIES.map(|policy| (policy, "exact"));
            settings.extend(
                (exact.into_iter().chain([("dreadlocks", "bloom")])).map(|(policy, digests)| Setting {
                    table,
                    intents,
                    policy,
                    digests,
                }),
            );
        }
    }
    settings
}

/// Of all settings beside the road, each file is run over one in so many; it has no factor in common with the numbers
/// of tables, intent locks and policies, so that each file meets all of them.
const STRIDE: usize = 11;

/// Programs that run at a time.
const WORKERS: usize = 4;

#[test]
fn all_specifications_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/script/specs");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 48);
    let specs: Vec<(String, Spec)> = (files.iter())
        .map(|file| (file.display().to_string(), parse(&fs::read_to_string(file).unwrap())))
        .collect();
    assert!(specs.iter().all(|(_, spec)| !spec.permutations.is_empty()));
    let full = std::env::var("FORESHORE_SPECS").is_ok_and(|value| value == "full");
    let settings = settings();
    let chosen = |number: usize| {
        let files = specs.iter().enumerate();
        let chosen =
            files.filter(move |(file, _)| full || number == 0 || (file + number).is_multiple_of(STRIDE));
        chosen.map(|(_, spec)| spec)
    };
    let mut met: BTreeMap<&str, Met> = BTreeMap::new();
    // They wait for each other more than they compute.
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let mine = settings.iter().enumerate().skip(worker).step_by(WORKERS);
                let hold = move |(number, setting): (usize, &Setting)| {
                    (setting.policy, all_hold_with(*setting, chosen(number)))
                };
                scope.spawn(move || mine.map(hold).collect::<Vec<_>>())
            })
            .collect();
        for (policy, seen) in workers.into_iter().flat_map(|worker| worker.join().unwrap()) {
            met.entry(policy).or_default().add(seen);
        }
    });
    for (policy, met) in met {
        met.assert_all_of(policy);
    }
}

fn all_hold_with<'s>(setting: Setting, specs: impl Iterator<Item = &'s (String, Spec)>) -> Met {
    let Setting { table, intents, policy, digests } = setting;
    let mut player = Player::with(&format!(
        "pool_bytes=4MiB lock_table={table} intent_locks={intents} deadlock_policy={policy} \
         deadlock_digests={digests} deadlock_timeout=600s"
    ));
    let mut met = Met::default();
    let mut number = 0;
    for (file, spec) in specs {
        for permutation in &spec.permutations {
            // Steps may come too late for a deadline on a busy machine: then once more, with a later one.
            let stretches: &[u64] = if spec.has_deadlines() { &[1, 5, 25] } else { &[1] };
            let mut runs = stretches.iter().map(|&stretch| {
                number += 1;
                run(spec, permutation, &mut player, number, policy, stretch)
            });
            let mut ended = runs.next().expect("it runs");
            while ended.is_err()
                && let Some(again) = runs.next()
            {
                ended = again;
            }
            match ended {
                Ok(seen) => met.add(seen),
                Err(difference) => {
                    let order = permutation.steps.join(" ");
                    panic!("{file}, {setting:?}, permutation {order}:\n  {difference}");
                }
            }
        }
    }
    let (answers, status, _) = player.end();
    assert_eq!((answers, status), (Vec::new(), 0));
    met
}

/// The runner notices what is not as written, in either direction.
#[test]
fn wrong_specifications_fail() {
    let head =
        "setup k=1\nstep a0 a begin\nstep b0 b begin\nstep a1 a put k 2\nstep b1 b get k\nstep ac a commit\n";
    let mut player = Player::new();
    for (number, (lines, holds)) in [
        ("a1: ok\nb1: blocked by a\nac: ok; b1 2", true),
        ("a1: ok\nb1: blocked by a\nac: ok; b1 1", false),
        ("a1: ok\nb1: blocked by b\nac: ok; b1 2", false),
        ("a1: ok\nb1: blocked by a\nac: ok", false),
        ("a1: ok\nb1: 1\nac: ok", false),
        ("a1: blocked by b\nb1: blocked by a\nac: ok; b1 2", false),
    ]
    .into_iter()
    .enumerate()
    {
        let spec = parse(&format!("{head}permutation a0 b0 a1 b1 ac\na0: ok\nb0: ok\n{lines}"));
        let result = run(&spec, &spec.permutations[0], &mut player, number, "dreadlocks", 1);
        assert_eq!(result.is_ok(), holds, "{lines}: {result:?}");
    }
}
