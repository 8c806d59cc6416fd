//! A transactional storage manager for many cores: ordered tables of typed keys and values, serializable ACID
//! transactions from any number of threads, crash recovery; embedded in your program.
//!
//! # Ten minutes with Foreshore
//!
//! A database is a directory. A table has a name, a key type and a value type, and is made when it is first used.
//!
//! ```
//! use foreshore::{Database, TableDefinition};
//!
//! const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("bank.foreshore");
//! let db = Database::open(&path)?;
//!
//! let balance = db.transact(|tx| {
//!     let balance = tx.get_for_update(ACCOUNTS, "alice")?.unwrap_or(0) + 10;
//!     tx.put(ACCOUNTS, "alice", balance)?;
//!     Ok(balance)
//! })?; // durable here
//! assert_eq!(balance, 10);
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! For tests, [`Database::in_memory`] makes one without a directory. [`Database::builder`] opens one with other than
//! the default [`Options`], which say what to begin with:
//!
//! ```
//! # use foreshore::{Database, Durability, Options};
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("bank.foreshore");
//! let options = Options { log_bytes: 1 << 30, durability: Durability::Lazy, ..Options::default() };
//! let builder = Database::builder().options(options).pool_bytes(64 << 20);
//! let db = builder.set("lock_timeout", "5s")?.open(&path)?; // by name, as in a file of settings
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Ending.** A database is closed when its last clone is dropped, but only [`Database::close`] tells whether that
//! went well: whether the last commits that did not wait for the disk, and a last checkpoint, have got there. Without
//! either ([`std::process::exit`] drops nothing) the next opening recovers what was on the disk.
//!
//! **Transactions.** [`Database::transact`] runs a closure as one transaction: all of it happens, or nothing. If the
//! closure fails or panics, what it did is undone. If it falls victim to a deadlock, it runs again by itself, so it
//! should do nothing that cannot happen twice. A closure that only reads is better run by [`Database::read`], which
//! as a rule takes no locks on keys in the first 2 MiB that it reads, and is as serializable. For step-by-step control
//! there is [`Database::begin`]: a [`Transaction`] can move between threads, and is rolled back when it is dropped.
//!
//! ```
//! # use foreshore::{Database, TableDefinition};
//! # const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Database::open(directory.path())?;
//! let mut tx = db.begin()?;
//! tx.put(ACCOUNTS, "alice", 10)?;
//! tx.put(ACCOUNTS, "bob", 20)?;
//! let here = tx.savepoint()?;
//! tx.delete(ACCOUNTS, "bob")?;
//! tx.rollback_to(here)?;
//! tx.release(here)?;
//! for entry in tx.range(ACCOUNTS, "a".."c")? {
//!     let (name, balance) = entry?;
//!     println!("{name} has {balance}");
//! }
//! tx.commit()?;
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Many threads.** [`Database`] is `Clone + Send + Sync`. Transactions that touch different keys never wait for each
//! other; those that touch the same keys queue. Transactions are serializable, ranges included: what a scan did not
//! find stays absent until the transaction ends. Read what you are going to write with [`Transaction::get_for_update`];
//! then two such transactions queue instead of deadlocking. [`Transaction::get_many`] reads several keys in less time
//! than one after the other takes.
//!
//! ```
//! # use foreshore::{Database, TableDefinition};
//! # const COUNTER: TableDefinition<(), u64> = TableDefinition::new("counter");
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Database::open(directory.path())?;
//! let threads: Vec<_> = (0..4)
//!     .map(|_| {
//!         let db = db.clone();
//!         std::thread::spawn(move || {
//!             db.transact(|tx| {
//!                 let count = tx.get_for_update(COUNTER, ())?.unwrap_or(0);
//!                 tx.put(COUNTER, (), count + 1)
//!             })
//!         })
//!     })
//!     .collect();
//! for thread in threads {
//!     thread.join().unwrap()?;
//! }
//! # assert_eq!(db.transact(|tx| tx.get(COUNTER, ()))?, Some(4));
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Locks first.** A program that knows what a transaction will touch can say so: [`Database::plan`] names keys and
//! ranges, all their locks are granted in one order before the transaction runs, and transactions that do so never
//! deadlock with each other. [`Execution::Planned`] lets [`Database::transact`] find that out by itself, in a first run
//! without locks and without effect. This pays on many cores, where each of many long transactions wants records of one
//! of a few groups. [`Plan::submit`] gives such a transaction to threads of the database, and hands back a
//! [`Submitted`] to wait for, or to `await`; with [`Database::serve`] these threads draw the transactions themselves,
//! from a [`Procedure`].
//!
//! ```
//! # use foreshore::{Database, TableDefinition};
//! # const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Database::open(directory.path())?;
//! db.plan().write(ACCOUNTS, "alice").write(ACCOUNTS, "bob").run(|tx| {
//!     let (alice, bob) = (tx.get(ACCOUNTS, "alice")?.unwrap_or(0), tx.get(ACCOUNTS, "bob")?.unwrap_or(0));
//!     tx.put(ACCOUNTS, "alice", alice - 10)?;
//!     tx.put(ACCOUNTS, "bob", bob + 10)?;
//!     Ok(())
//! })?;
//! # assert_eq!(db.transact(|tx| tx.get(ACCOUNTS, "bob"))?, Some(10));
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Looking on.** [`Database::waits_for`] shows which transactions wait for which, [`Database::explain_wait`] says why
//! in keys and gaps, [`Database::locks`] and [`Database::deadlocks`] the rest; none of them stops anybody. Give
//! transactions a label.
//!
//! **Durability.** A commit under [`Durability::Sync`], the default, is on the disk when it returns; commits of many
//! threads share one sync. [`Durability::Lazy`] returns at once, and a crash may then lose the newest commits, but
//! never one from the middle and never half of one. [`Transaction::commit_pipelined`] returns at once too, and hands
//! back a [`CommitTicket`] that tells when the commit is on the disk: wait for it, ask it, or `await` it. A
//! [`Pipeline`] is a session whose transactions go on like this.
//!
//! ```
//! # use foreshore::{Database, TableDefinition};
//! # const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Database::open(directory.path())?;
//! let mut pipeline = db.pipeline();
//! let mut last = None;
//! for amount in 0..100 {
//!     let (_, ticket) = pipeline.transact(|tx| tx.put(ACCOUNTS, "alice", amount))?;
//!     last = Some(ticket);
//! }
//! last.unwrap().wait()?; // durable, and so is everything before it
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Backups.** [`Database::backup`] copies a database while others write, as one state of theirs; the copy opens like
//! any database. [`Database::verify`] checks one.
//!
//! **Two-phase commit.** [`Transaction::prepare`] makes a transaction ready to commit under an id that you choose, for
//! a commit over several databases. It survives every restart with its locks, until [`Database::commit_prepared`] or
//! [`Database::rollback_prepared`] ends it. Nothing else ever does: look into [`Database::prepared`] after a crash of
//! the coordinator. A transaction that is never decided about keeps its locks, and the log
//! ([`Database::log_retention`]). And no database sees a deadlock that goes through another one: limit its waits.
//!
//! ```
//! # use foreshore::{Database, TableDefinition, TransactOptions};
//! # use std::time::Duration;
//! # const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
//! # let directory = tempfile::tempdir().unwrap();
//! # let (here, there) = (Database::open(directory.path().join("1"))?, Database::open(directory.path().join("2"))?);
//! let waits = TransactOptions { lock_timeout: Some(Duration::from_secs(1)), ..TransactOptions::default() };
//! let (mut from, mut to) = (here.begin_with(&waits)?, there.begin_with(&waits)?);
//! from.put(ACCOUNTS, "alice", 90)?;
//! to.put(ACCOUNTS, "bob", 110)?;
//! from.prepare("transfer 17")?;
//! to.prepare("transfer 17")?;
//! // Write down, durably, that both will commit.
//! here.commit_prepared("transfer 17")?;
//! there.commit_prepared("transfer 17")?;
//! # assert_eq!(there.transact(|tx| tx.get(ACCOUNTS, "bob"))?, Some(110));
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Keys and values.** Integers, strings, byte strings, arrays, `bool` and tuples of these are keys ([`Key`]), ordered
//! as one expects; these, floats and `Option`s are values ([`Value`]), which you can implement for your own types.
//! `TableDefinition<&[u8], &[u8]>` is the plain byte store. [`Key`] says how to implement it for a type of your own.
//! [`limits`] has the limits of what is stored, [`Options`] those of itself; reaching one is an error.
//!
//! **Prefixes.** Keys that begin alike lie together: strings with the same beginning, and tuples with the same first
//! fields. A [`Prefix`] stands for all of them, wherever a range of keys is asked for ([`KeyRange`]): to read, to
//! count, to remove, in a plan.
//!
//! ```
//! # use foreshore::{Database, TableDefinition};
//! # let directory = tempfile::tempdir().unwrap();
//! # let db = Database::open(directory.path())?;
//! use foreshore::Prefix;
//!
//! const FILES: TableDefinition<(&str, &str), u64> = TableDefinition::new("files by owner and name");
//! const WORDS: TableDefinition<&str, u64> = TableDefinition::new("words");
//! # db.transact(|tx| {
//! #     for (owner, name) in [("al", "x"), ("alice", "a"), ("alice", "z"), ("alice b", ""), ("bob", "a")] {
//! #         tx.put(FILES, (owner, name), 1)?;
//! #     }
//! #     ["sea", "shore", "shored", "short", "ship"].iter().try_for_each(|word| tx.put(WORDS, *word, 1).map(drop))
//! # })?;
//! let (files, words) = db.read(|tx| {
//!     let files = tx.count_range(FILES, Prefix(("alice",)))?;
//!     let words: Vec<_> = tx.range(WORDS, Prefix("shor"))?.collect::<Result<_, _>>()?;
//!     Ok((files, words))
//! })?;
//! assert_eq!((files, words.len()), (2, 3)); // both files of alice; shore, shored, short
//! # Ok::<(), foreshore::Error>(())
//! ```
//!
//! **Errors.** One type, [`Error`], whose messages say what to do next where something can be done.
//!
//! # What it promises
//!
//! In short; the page "Reliability" of the book (`docs/src/reliability.md` in the sources of Foreshore) has all of it,
//! what would break each promise, and what is not promised.
//!
//! - What a commit acknowledged under [`Durability::Sync`] survives a killed process, a crash of the kernel and a power
//!   cut, given a disk that keeps what it said it synced.
//! - A transaction is there as a whole or not at all. One that was rolled back, or never committed, leaves no trace,
//!   but for tables that it was the first to use: they stay, empty.
//! - Committed transactions are strictly serializable (unless they asked for less). What a transaction read is
//!   guaranteed once its commit has returned under [`Durability::Sync`]; else once what it read is durable, too
//!   ([`CommitTicket`], [`Database::flush`]).
//! - After a failed write or sync the database stops ([`Error::Poisoned`]), and opening it again recovers it. A full
//!   disk stops nothing: changes fail ([`Error::DiskFull`], [`Error::LogFull`]) until there is room.
//! - A damaged file gives [`Error::Corrupted`] or is repaired: never a panic, and never wrong data. Only the very end
//!   of the log is excepted, where damage cannot be told from a write that a crash has torn.
//! - Every wait ends with what it waits for, or sooner: chosen as a deadlock's victim, at a deadline or lock timeout
//!   (by default there is none), cancelled, or because the database was closed or has failed. A cycle through what it
//!   cannot see, another database or a thread that has two transactions open, ends at such a limit only.
#![forbid(unsafe_code)]
#![deny(clippy::missing_errors_doc)]

mod admission;
mod backup;
mod compact;
mod database;
mod error;
mod log_turn;
mod nested;
mod options;
mod pipeline;
mod plan;
mod range;
mod read;
mod report;
mod salvage;
mod submit;
mod table;
mod transact;
mod transaction;
mod value;
mod view;

pub use foreshore_base::{
    CorruptionSite, Lsn, PageId, TxnId,
    key::{Key, KeyDecodeError, KeyPrefix, Prefix},
    limits,
};
pub use foreshore_orthrus::{Role as PartitionRole, ThreadStats as PartitionThread};
pub use foreshore_txn::{
    BackupProgress, BackupReport, Blocker, CompactReport, DeadlockPolicy, DigestKind, Direction, Durability,
    EarlyLockRelease, FreeSpaceKind, IntentLockKind, IntentMode, Isolation, KeyMode, KeyRangeModes,
    LatchMode, LockMode, LockTableKind, LogFullPolicy, LogHold, LogHolder, LogInsert, LogRetention,
    PreparedTransaction, ReadMode, RecoveryPhase, RecoveryProgress, TransitKind, TranslationKind,
    VictimPolicy, VictimReason,
    lock::{BlockerView, TransactionView},
};

pub use crate::{
    database::{Database, builder::Builder},
    error::{Error, RefusedLock, Result},
    options::Options,
    pipeline::{CommitTicket, Pipeline},
    plan::{Execution, Plan},
    range::{Cursor, KeyRange, Range, Reads},
    read::ReadTransaction,
    report::{Stats, VerifyReport},
    salvage::{KeyGap, MAX_PAGES_NAMED, Salvage, SalvageProgress, SalvageSource, SalvageTable, SalvagedRows},
    submit::{Procedure, Serving, Submitted, WaitError},
    table::{TableDefinition, TableDescription, TableLock},
    transact::TransactOptions,
    transaction::{CancelHandle, Savepoint, Transaction, TransactionAge},
    value::{Value, ValueDecodeError},
    view::{
        DeadlockView, KeyView, LockList, LockTarget, LockView, MAX_BLOCKERS_SHOWN, MAX_LOCKS_SHOWN,
        WaitGraph, WaitView,
    },
};

/// Pages of the book whose blocks of Rust are compiled and run here; its commands are run by the tests of the program.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/src/start.md")]
    struct Start;
    #[doc = include_str!("../../../docs/src/choosing.md")]
    struct Choosing;
    #[doc = include_str!("../../../docs/src/space.md")]
    struct Space;
    #[doc = include_str!("../../../docs/src/prepared.md")]
    struct Prepared;
}
