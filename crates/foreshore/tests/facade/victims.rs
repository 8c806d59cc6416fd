//! Why a transaction was ended: its error, and what the database remembers of it, under every policy.

use std::{
    ops::ControlFlow,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    Database, DeadlockView, Direction, Durability, Error, LockTarget, TableDefinition, TableLock,
    TransactOptions, Transaction, TxnId, VictimReason,
};
use foreshore_env::random::Xorshift;
use serde_json::Value as Json;

const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);
/// 64 threads read, write and lock tables, give way and wait, while others look at everything: nobody is stopped by
/// that, what they see is well-formed and bounded, and afterwards nothing is left.
#[test]
fn views_amid_a_storm() {
    for table in TABLES {
        let settings = [("lock_table", table), ("lock_notes", "true")];
        storm_under_views(&settings);
    }
}

fn storm_under_views(settings: &[(&str, &str)]) {
    const THREADS: u64 = 64;
    const LASTS: Duration = Duration::from_millis(700);
    let (_directory, db) = open(settings);
    let (begun, stop, committed) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    let (mut looks, mut graphs) = (0, 0);
    thread::scope(|scope| {
        // A failure ends the others, too.
        let _stops = Stops(&stop);
        for number in 0..THREADS {
            let (db, stop, committed) = (&db, &stop, &committed);
            scope.spawn(move || storm_worker(db, number, stop, committed));
        }
        // On a busy machine it takes longer until there is something to see.
        let is_enough = |graphs| graphs > 0 && committed.load(Ordering::Relaxed) > THREADS;
        while begun.elapsed() < LASTS || (!is_enough(graphs) && begun.elapsed() < FAR) {
            let locks = db.locks();
            assert!(locks.locks.len() <= 100_000);
            serde_json::from_str::<Json>(&locks.to_json()).expect("JSON");
            let graph = db.waits_for();
            let json: Json = serde_json::from_str(&graph.to_json()).expect("JSON");
            assert_eq!(json["waits"].as_array().unwrap().len(), graph.waits.len());
            let (nodes, _) = dot::parse(&graph.to_dot());
            assert!(nodes.len() <= 1024);
            for wait in &graph.waits {
                graphs += 1;
                if let Some(wait) = db.explain_wait(wait.transaction.id) {
                    serde_json::from_str::<Json>(&wait.to_json()).expect("JSON");
                    assert!(wait.to_string().contains(" has waited "), "{wait}");
                }
            }
            for deadlock in db.deadlocks() {
                serde_json::from_str::<Json>(&deadlock.to_json()).expect("JSON");
                dot::parse(&deadlock.to_dot());
            }
            looks += 1;
        }
    });
    let commits = committed.into_inner();
    assert!(
        looks > 0 && graphs > 0 && commits > THREADS,
        "{looks} looks at {graphs} waits, {commits} commits"
    );
    assert!(db.locks().locks.is_empty() && db.waits_for().waits.is_empty() && db.waiters().is_empty());
}

/// Ends the storm when it is dropped.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transactions of a few steps until it is to stop; counts those that are committed.
fn storm_worker(db: &Database, number: u64, stop: &AtomicBool, committed: &AtomicU64) {
    let mut random = Xorshift::new(number + 1);
    while !stop.load(Ordering::Relaxed) {
        let mut tx = begin(db, "\"storm\" \\");
        tx.set_lock_timeout(Some(Duration::from_millis(50)));
        let mut steps = (0..4).map(|_| (random.below(12), random.below(8)));
        let done = steps.try_for_each(|(action, key)| {
            let key = [key as u8, 0, b'\\', b'"'];
            match action {
                0 => tx.lock_table(BYTES, TableLock::Shared),
                1..=4 => tx.get(BYTES, key.as_slice()).map(drop),
                5 => tx.scan(BYTES, .., Direction::Ascending, |_, _| ControlFlow::Continue(())),
                6 => tx.delete(BYTES, key.as_slice()).map(drop),
                _ => tx.put(BYTES, key.as_slice(), b"".as_slice()).map(drop),
            }
        });
        match done {
            Ok(()) => {
                tx.commit_with(Durability::Lazy).unwrap();
                committed.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Deadlock(_) | Error::LockTimeout(_)) => tx.rollback().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

const BYTES_NAME: &str = "bytes \"and\" \\ more\n\0";
const BYTES: TableDefinition<&[u8], &[u8]> = TableDefinition::new(BYTES_NAME);
const TABLES: [&str; 3] = ["latched", "staged", "global_mutex"];

fn open(settings: &[(&str, &str)]) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let builder =
        settings.iter().fold(Database::builder().set("pool_bytes", "2MiB"), |builder, (name, value)| {
            builder.and_then(|builder| builder.set(name, value))
        });
    let db = builder.unwrap().open(directory.path()).unwrap();
    db.transact(|tx| {
        tx.put(ACCOUNTS, "a", 1)?;
        tx.put(ACCOUNTS, "b", 1).map(|_| ())
    })
    .unwrap();
    (directory, db)
}

#[track_caller]
fn begin(db: &Database, label: &str) -> Transaction {
    db.begin_with(&TransactOptions { label: Some(label.into()), ..TransactOptions::default() }).unwrap()
}

fn until_waiting(db: &Database, transaction: TxnId) {
    let limit = Instant::now() + FAR;
    while db.explain_wait(transaction).is_none() {
        assert!(Instant::now() < limit, "transaction {transaction} does not come to wait");
        thread::yield_now();
    }
}

/// The older has `a`, the younger `b`, and the younger wants `a`; the older wants `b` then, if `meets`. What those are
/// told who give way.
fn clash(db: &Database, meets: bool) -> Vec<Error> {
    let (mut old, mut young) = (begin(db, "old"), begin(db, "young"));
    old.put(ACCOUNTS, "a", 2).unwrap();
    young.put(ACCOUNTS, "b", 2).unwrap();
    let (young_id, (sender, receiver)) = (young.id(), mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            let result = young.get(ACCOUNTS, "a");
            young.rollback().unwrap();
            sender.send(result).unwrap();
        });
        let second = if meets {
            until_waiting(db, young_id);
            old.get(ACCOUNTS, "b").err()
        } else {
            None
        };
        if meets {
            old.rollback().unwrap();
            return receiver.recv().unwrap().err().into_iter().chain(second).collect();
        }
        let first = receiver.recv().unwrap().err();
        old.rollback().unwrap();
        first.into_iter().collect()
    })
}

/// The policy, whether the younger one must be waited for by the older, the kind of the report, and words of its
/// reason.
const POLICIES: [(&str, bool, &str, &str); 9] = [
    ("dreadlocks", true, "deadlock", "chosen to break the cycle"),
    ("dreadlocks_spin", true, "deadlock", "chosen to break the cycle"),
    ("dreadlocks_sleep", true, "deadlock", "chosen to break the cycle"),
    ("dreadlocks_hybrid", true, "deadlock", "chosen to break the cycle"),
    ("wait_for_graph", true, "deadlock", "chosen to break the cycle"),
    ("wait_die", false, "wait_die", "died: younger than transaction"),
    ("wound_wait", true, "wound_wait", "wounded by older transaction"),
    ("timeout", false, "timeout", "timed out after"),
    ("no_wait", false, "no_wait", "would block"),
];

#[test]
fn every_policy_tells_why() {
    for (policy, meets, kind, reason) in POLICIES {
        for table in TABLES {
            let settings = [("lock_table", table), ("deadlock_policy", policy), ("deadlock_timeout", "20ms")];
            tells_why(&settings, meets, kind, reason);
        }
    }
}

#[test]
fn an_unconfirmed_suspicion_is_told() {
    for table in TABLES {
        let settings =
            [("lock_table", table), ("deadlock_digests", "bloom"), ("deadlock_confirmation", "false")];
        tells_why(&settings, true, "suspicion", "digest hit, not confirmed");
    }
}

fn tells_why(settings: &[(&str, &str)], meets: bool, kind: &str, reason: &str) {
    let (directory, db) = open(settings);
    let errors = clash(&db, meets);
    let kept = db.deadlocks();
    assert!(!errors.is_empty() && kept.len() == errors.len(), "{settings:?}: {errors:?}");
    db.close().unwrap();
    drop((db, directory));
    // The error is complete, though there is no database any more.
    for error in errors {
        let text = error.to_string();
        let Error::Deadlock(victim) = error else { panic!("{settings:?}: {text}") };
        let view = kept.iter().find(|view| view.victim == victim.victim).expect("it is remembered");
        assert_eq!(view.to_string(), victim.to_string());
        let waits = format!("for SN on key \"{}\" of accounts, to read the key", other_key(view));
        for part in [reason, &waits, "(old)", "(young)", "; roll back and run the transaction again"] {
            assert!(text.contains(part), "{settings:?}: {part:?} is not in {text}");
        }
        check(view, kind, reason);
    }
}

/// What the victim waited for: the other one's key.
fn other_key(view: &DeadlockView) -> &'static str {
    let wait = view.cycle.iter().find(|wait| wait.transaction.id == view.victim).unwrap();
    if wait.transaction.label.as_deref() == Some("old") { "b" } else { "a" }
}

fn check(view: &DeadlockView, kind: &str, reason: &str) {
    let json: Json = serde_json::from_str(&view.to_json()).unwrap();
    assert_eq!((&json["kind"], &json["victim"]), (&kind.into(), &view.victim.0.into()), "{json}");
    assert!(json["reason"].as_str().unwrap().contains(reason), "{json}");
    for wait in json["cycle"].as_array().unwrap() {
        assert_eq!(wait["target"]["table"], "accounts");
        assert!(wait["transaction"]["begun_at"].as_str().unwrap().contains("victims.rs"), "{wait}");
        assert!(wait["waited_ms"].is_number(), "{wait}");
    }
    match kind {
        "deadlock" => assert_eq!(view.cycle.len(), 2),
        _ => {
            let blocker = &json["cycle"][0]["blockers"][0];
            assert!(blocker["holds"] == true && blocker["transaction"]["label"].is_string(), "{json}");
        }
    }
    if matches!(view.reason, VictimReason::YoungerThan(_) | VictimReason::WoundedBy(_)) {
        assert_eq!(json["older"]["label"], "old", "{json}");
    }
    let (nodes, edges) = dot::parse(&view.to_dot());
    assert_eq!(nodes.len(), 2, "{}", view.to_dot());
    assert!(nodes.values().any(|label| label.contains("(old)")), "{nodes:?}");
    assert!(edges.iter().any(|(from, ..)| *from == format!("t{}", view.victim)), "{edges:?}");
}

#[test]
fn refusals_in_masses_are_remembered_up_to_128() {
    let (_directory, db) = open(&[("deadlock_policy", "no_wait")]);
    let mut holder = begin(&db, "holder");
    holder.put(ACCOUNTS, "a", 2).unwrap();
    let mut last = TxnId(0);
    for _ in 0..200 {
        let mut other = begin(&db, "other");
        assert!(matches!(other.get(ACCOUNTS, "a"), Err(Error::Deadlock(_))));
        last = other.id();
    }
    let kept = db.deadlocks();
    assert_eq!((kept.len(), kept[127].victim, db.stats().deadlock_precautions), (128, last, 200));
}

/// Who did not want to wait, or not so long, is told what for, with whom, and what to do next.
#[test]
fn a_refused_lock_is_named_in_the_error() {
    let (directory, db) = open(&[("lock_timeout", "15ms")]);
    let mut holder = begin(&db, "holder");
    holder.put(ACCOUNTS, "a", 2).unwrap();
    holder.lock_table(BYTES, TableLock::Exclusive).unwrap();
    let mut other = begin(&db, "other");
    let timed_out = other.get(ACCOUNTS, "a").unwrap_err();
    let Error::LockTimeout(lock) = &timed_out else { panic!("{timed_out}") };
    assert_eq!((lock.lock_timeout, lock.blockers.len()), (Some(Duration::from_millis(15)), 1));
    let wait = lock.wait.as_ref().unwrap();
    assert!(matches!(&wait.target, LockTarget::Key { table, .. } if table == "accounts"));
    other.set_lock_timeout(None);
    other.set_deadline(Some(Instant::now() + Duration::from_millis(5)));
    let deadline = other.get(BYTES, [0, 0xFF].as_slice()).unwrap_err();
    other.set_no_wait(true);
    let refused = other.put(ACCOUNTS, "a", 3).unwrap_err();
    let (id, holder_id) = (other.id(), holder.id());
    drop((other, holder));
    db.close().unwrap();
    drop((db, directory));
    let text = timed_out.to_string();
    for part in [
        &format!("transaction {id} (other) has waited "),
        " ms for SN on key \"a\" of accounts, to read the key, which is its lock_timeout (15 ms)",
        &format!("; in its way: transaction {holder_id} (holder) in mode XN; raise lock_timeout"),
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let text = deadline.to_string();
    assert!(
        text.contains("ms for IS on table bytes") && text.contains(", until its deadline; in its way"),
        "{text}"
    );
    let text = refused.to_string();
    let expected = format!(
        "transaction {id} (other) would have to wait for XN on key \"a\" of accounts, to change the key; in its way: \
         transaction {holder_id} (holder) in mode XN; try again later, or allow waiting"
    );
    assert_eq!(text, expected);
    assert!(!timed_out.is_retryable() && !deadline.is_retryable() && !refused.is_retryable());
}

/// Keys, labels and names of any kind: the views stay JSON and DOT.
#[test]
fn views_of_strange_names_are_well_formed() {
    let label = "\"] ; }\\ \n\r\t\0 \u{2028} größer \u{7f} -> t1";
    let keys: [&[u8]; 6] = [b"", b"\0", b"\"\\", &[0xFF; 1024], b"-> [label=\"", &[0xC3]];
    for notes in ["true", "false"] {
        let (_directory, db) = open(&[("lock_notes", notes)]);
        let mut holder = begin(&db, label);
        for key in keys {
            holder.put(BYTES, key, b"".as_slice()).unwrap();
        }
        let mut waiters: Vec<Transaction> = keys.iter().map(|_| begin(&db, label)).collect();
        let cancels: Vec<_> = waiters.iter_mut().map(Transaction::cancel_handle).collect();
        thread::scope(|scope| {
            for (waiter, key) in waiters.iter_mut().zip(keys) {
                scope.spawn(move || assert!(matches!(waiter.get(BYTES, key), Err(Error::Cancelled))));
            }
            let limit = Instant::now() + FAR;
            while db.waits_for().waits.len() < keys.len() && Instant::now() < limit {
                thread::yield_now();
            }
            let graph = db.waits_for();
            let parsed: Json = serde_json::from_str(&graph.to_json()).unwrap();
            let mut seen: Vec<Vec<u8>> = graph
                .waits
                .iter()
                .map(|wait| match &wait.target {
                    LockTarget::Key { key, .. } => key.bytes.clone(),
                    other => panic!("{other}"),
                })
                .collect();
            seen.sort();
            let mut expected: Vec<Vec<u8>> =
                keys.iter().map(|key| key[..key.len().min(64)].to_vec()).collect();
            expected.sort();
            let (nodes, edges) = dot::parse(&graph.to_dot());
            let locks: Json = serde_json::from_str(&db.locks().to_json()).unwrap();
            let explained: Vec<_> =
                graph.waits.iter().filter_map(|wait| db.explain_wait(wait.transaction.id)).collect();
            cancels.iter().for_each(|cancel| cancel.cancel());
            assert_eq!(seen, expected);
            assert_eq!((nodes.len(), edges.len()), (keys.len() + 1, keys.len()));
            assert!(
                parsed["waits"].as_array().unwrap().iter().all(|wait| wait["transaction"]["label"] == label)
            );
            assert!(locks["locks"].as_array().unwrap().len() > 2 * keys.len(), "{locks}");
            for wait in &explained {
                let json: Json = serde_json::from_str(&wait.to_json()).unwrap();
                assert_eq!(json["target"]["table"], BYTES_NAME);
                assert_eq!(json["target"]["truncated"] == true, wait.to_string().contains('…'), "{wait}");
            }
            assert_eq!(explained.len(), keys.len());
        });
    }
}

/// Reads graphs as Graphviz does, as far as views use its language.
mod dot {
    use std::collections::BTreeMap;

    /// A name, a string without its quotation marks, or a sign.
    #[derive(Clone, PartialEq, Debug)]
    enum Token {
        Name(String),
        Text(String),
        Sign(char),
        Arrow,
    }

    fn tokens(text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '"' => {
                    let mut value = String::new();
                    loop {
                        match characters.next().expect("a string ends") {
                            '"' => break,
                            '\\' => value.push(characters.next().expect("something is escaped")),
                            other => {
                                assert!(!other.is_control(), "{text:?}");
                                value.push(other);
                            }
                        }
                    }
                    tokens.push(Token::Text(value));
                }
                '-' => {
                    assert_eq!(characters.next(), Some('>'), "{text:?}");
                    tokens.push(Token::Arrow);
                }
                '{' | '}' | '[' | ']' | ';' | '=' | ',' => tokens.push(Token::Sign(character)),
                space if space.is_whitespace() => {}
                letter if letter.is_ascii_alphanumeric() || letter == '_' => {
                    let mut name = letter.to_string();
                    while let Some(letter) =
                        characters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_')
                    {
                        name.push(letter);
                    }
                    tokens.push(Token::Name(name));
                }
                other => panic!("{other:?} in {text:?}"),
            }
        }
        tokens
    }

    /// Nodes with their labels, and edges with their attributes.
    #[expect(clippy::type_complexity, reason = "for this test alone")]
    pub(super) fn parse(
        text: &str,
    ) -> (BTreeMap<String, String>, Vec<(String, String, BTreeMap<String, String>)>) {
        let tokens = tokens(text);
        let mut tokens = tokens.into_iter().peekable();
        let name = |token: Option<Token>| match token {
            Some(Token::Name(name)) => name,
            other => panic!("{other:?} in {text}"),
        };
        assert_eq!(name(tokens.next()), "digraph");
        name(tokens.next());
        assert_eq!(tokens.next(), Some(Token::Sign('{')));
        let (mut nodes, mut edges) = (BTreeMap::new(), Vec::new());
        while tokens.next_if_eq(&Token::Sign('}')).is_none() {
            let from = name(tokens.next());
            if tokens.next_if_eq(&Token::Sign('=')).is_some() {
                name(tokens.next());
                assert_eq!(tokens.next(), Some(Token::Sign(';')));
                continue;
            }
            let to = tokens.next_if_eq(&Token::Arrow).map(|_| name(tokens.next()));
            let mut attributes = BTreeMap::new();
            assert_eq!(tokens.next(), Some(Token::Sign('[')));
            while tokens.next_if_eq(&Token::Sign(']')).is_none() {
                let attribute = name(tokens.next());
                assert_eq!(tokens.next(), Some(Token::Sign('=')));
                let (Some(Token::Name(value)) | Some(Token::Text(value))) = tokens.next() else {
                    panic!("{text}")
                };
                attributes.insert(attribute, value);
                tokens.next_if_eq(&Token::Sign(','));
            }
            assert_eq!(tokens.next(), Some(Token::Sign(';')));
            match to {
                Some(to) => edges.push((from, to, attributes)),
                None if from == "node" => {}
                None => {
                    let label = attributes.remove("label").expect("a label");
                    assert!(nodes.insert(from, label).is_none(), "a node is there twice");
                }
            }
        }
        assert_eq!(tokens.next(), None);
        assert!(edges.iter().all(|(from, to, _)| nodes.contains_key(from) && nodes.contains_key(to)));
        (nodes, edges)
    }
}
