//! How a database is opened.

mod check;
mod choices;
mod engine;
mod names;
mod units;

use foreshore_env::time::Duration;
use foreshore_txn::{
    DeadlockPolicy, DigestKind, EarlyLockRelease, IntentLockKind, KeyRangeModes, VictimPolicy,
};

use crate::{
    Durability, Execution, FreeSpaceKind, Isolation, LatchMode, LockTableKind, LogFullPolicy, LogInsert,
    ReadMode, TransitKind, TranslationKind, error::Error,
};

/// How a database is opened. Each opening may choose anew.
///
/// Begin with [`pool_bytes`](Self::pool_bytes), [`log_bytes`](Self::log_bytes), [`durability`](Self::durability) and
/// [`lock_timeout`](Self::lock_timeout); the defaults of all others serve. Some options exist only so that designs can
/// be compared: [`translation`](Self::translation), [`transit`](Self::transit), [`free_space`](Self::free_space),
/// [`latch_mode`](Self::latch_mode), [`log_insert`](Self::log_insert), [`log_latency`](Self::log_latency),
/// [`lock_table`](Self::lock_table), [`key_range_modes`](Self::key_range_modes), [`intent_locks`](Self::intent_locks),
/// [`deadlock_policy`](Self::deadlock_policy), [`deadlock_digests`](Self::deadlock_digests) and
/// [`deadlock_confirmation`](Self::deadlock_confirmation).
///
/// ```
/// use foreshore::Options;
///
/// let mut options = Options { pool_bytes: 64 << 20, ..Options::default() };
/// options.set("log_bytes", "1GiB")?;
/// assert_eq!(options.log_bytes, 1 << 30);
/// # Ok::<(), foreshore::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether the database is created when the directory is absent or empty. Default: true.
    pub create: bool,
    /// Whether the database is opened only to be read: not a byte of it changes, a directory that may not be written
    /// will do, and others may have it open in the same way at the same time. Writes fail with [`Error::ReadOnly`], a
    /// table that is not there is [`Error::NoSuchTable`], and whoever needs what a prepared transaction has locked gets
    /// [`Error::WouldBlock`] at once: nobody can decide there. After a crash it is recovered in memory, or not opened
    /// if that changes more than 1 GiB. What no sync covers may be read then: a power failure takes it back, unless
    /// somebody has opened it to write. Default: false.
    pub read_only: bool,
    /// Memory for pages, in bytes, 512 KiB to 32,767 GiB. Tables may be larger. Default: 256 MiB.
    pub pool_bytes: usize,
    /// Whether the system gives the pool all of its memory when the database is opened, which takes a tenth of a second
    /// for each GiB, two seconds where a virtual machine has to get the memory from its host. Otherwise it does when
    /// pages are first used, a few MiB ahead of them: memory that is never needed is never taken, but transactions that
    /// bring new pages pay for it until the pool has been full once. Linux only, from 5.14 on; elsewhere it changes
    /// nothing. Default: false.
    pub prefault: bool,
    /// How the buffer pool finds pages. Default: page_table.
    pub translation: TranslationKind,
    /// How the buffer pool keeps track of pages that are being read or written. Default: in_frame.
    pub transit: TransitKind,
    /// How free pages are found for tables that grow. Default: cached.
    pub free_space: FreeSpaceKind,
    /// How many pages at most are read ahead of a scan, in the background; 0 for none. In a small pool no more than an
    /// eighth of it. Default: 32.
    pub read_ahead: usize,
    /// Threads that write changed pages to the file before their room in the pool is needed, 1 to 64. More than one
    /// helps where many threads change much more data than fits in the pool, and processors are idle. Default: 1.
    pub cleaners: usize,
    /// How readers latch the nodes of tables. Default: hybrid.
    pub latch_mode: LatchMode,
    /// The most bytes of the log that may be needed at a time; no more than 512 files of it count, since each is open.
    /// On the disk it may take two files more, since the first and the last are needed only in part; a database that
    /// was made with larger ones keeps their size. Transactions that are open at the same time must fit in three
    /// eighths: the rest is kept so that every one of them can be rolled back. If more than that is needed when the
    /// database is opened, because it was larger before, say, the log may hold eight thirds of what is needed until the
    /// database is closed. At least four times [`Options::log_segment_bytes`], or four files of a database that is
    /// there and was made with smaller ones. Default: 4 GiB.
    pub log_bytes: u64,
    /// Size of a file of the log, 256 KiB to 256 MiB, rounded up to a power of two; fixed when the database is made,
    /// and without effect on one that is there.
    /// There are as many files as hold what may come next and what would take it back if the disk were full: eight
    /// thirds of half of [`Options::log_buffer_bytes`], and half a segment; with the defaults two at least. Default: 16
    /// MiB.
    pub log_segment_bytes: u64,
    /// Memory for log records on their way to the disk; a power of two, 256 KiB to 1 GiB. Default: 16 MiB.
    pub log_buffer_bytes: usize,
    /// How threads agree on where their records go in the log. Default: fetch_add.
    pub log_insert: LogInsert,
    /// Whether the log is written past the system's cache (`O_DIRECT`), where the file system allows it: hardly anybody
    /// reads it again, and a copy of it would cost memory and processor time, and each sync a search for it. False for
    /// a disk that is slow beside what is written, if commits are [`Durability::Lazy`]: the cache takes what the disk
    /// cannot, for a while. Default: true.
    pub log_past_cache: bool,
    /// What is done when the log is full and an open transaction needs it. What was refused, or ended, because several
    /// have filled the log together, [`Database::transact`](crate::Database::transact) runs again, alone. Default:
    /// throttle.
    pub log_full: LogFullPolicy,
    /// How long a [`Durability::Lazy`] commit may take to reach the disk: more than 0, clamped to between 1 ms and one
    /// day. Default: 100 ms.
    pub flush_interval: Duration,
    /// After how many bytes of changes in the log a checkpoint is made. The whole pages that the log gets beside the
    /// changes, one for the first change of each page after a checkpoint, do not count; in all the log grows by at most
    /// an eighth of [`Options::log_bytes`], and by what one transaction writes, because it is looked at when
    /// transactions end. What is logged after the last checkpoint must be read when the database is opened after a
    /// crash. Default: 256 MiB.
    pub checkpoint_bytes: u64,
    /// How long recovery after a crash may take: pages are written and checkpoints taken often enough for that, as far
    /// as the disk is fast enough, and never less often than [`Options::checkpoint_bytes`] says. `recovery_estimate_ns`
    /// in [`Stats`](crate::Stats) is what it would take now. An estimate, from what redo took in the last recovery;
    /// what is open at a crash is undone besides. Zero: no target. Default: 30 s.
    pub recovery_target: Duration,
    /// Which locks of a transaction that has committed are released while it still waits for the disk. Default:
    /// shared_and_exclusive.
    pub early_lock_release: EarlyLockRelease,
    /// How many transactions a [`Pipeline`](crate::Pipeline) completes before it waits for the disk: 1 to 100,000.
    /// Default: 100,000.
    pub pipeline_length: u32,
    /// Which transaction gives way in a deadlock, of those with the lowest
    /// [`priority`](crate::TransactOptions::priority). Default: youngest.
    pub victim_policy: VictimPolicy,
    /// A time by which every sync of the log is prolonged, to measure what a slower disk would do. Default: 0s.
    pub log_latency: Duration,
    /// Which lock table holds the locks. Default: latched.
    pub lock_table: LockTableKind,
    /// Which modes locks on keys and the gaps between them have. Default: orthogonal.
    pub key_range_modes: KeyRangeModes,
    /// How locks on tables and the volume are kept. Default: private.
    pub intent_locks: IntentLockKind,
    /// How deadlocks are found or avoided. Default: dreadlocks.
    pub deadlock_policy: DeadlockPolicy,
    /// How digests stand for transactions, under the policies that have them. Default: exact.
    pub deadlock_digests: DigestKind,
    /// Whether a suspected deadlock is confirmed before a transaction has to give way. False is only for experiments.
    /// Default: true.
    pub deadlock_confirmation: bool,
    /// Under the policy `timeout`, how long a transaction waits for a lock before it gives way. Default: 1 s.
    pub deadlock_timeout: Duration,
    /// Whether [`Database::transact`](crate::Database::transact) lets fewer transactions run at a time when more than
    /// one in twenty is the victim of a deadlock: about as many as stay below that, but no fewer than there are
    /// processors under the policies `wait_die`, `wound_wait` and `no_wait`, where transactions give way before they
    /// wait. And no more than there are processors run at a time, when more than twice as many wait for locks, or for
    /// room in the log's buffer, and the processors are busy: threads then take turns of a millisecond. Only threads
    /// that have lately been victims, or have waited for locks, or have written while others waited for room in the
    /// log, wait to be let in, before their transaction has any lock; and none goes on waiting once no thread has come
    /// out for 250 ms. Default: true.
    pub admission_control: bool,
    /// How long a transaction waits for a lock before the operation fails, unless it says otherwise; 0 for as long as
    /// it takes (10 s within the body of another transaction). Deadlocks are found without a limit. Default: 0s.
    pub lock_timeout: Duration,
    /// Whether transactions note the key and the time of every lock, so that
    /// [`Database::locks`](crate::Database::locks) shows those too that nobody waits for. Costs a reading of the clock
    /// for each lock. Default: false.
    pub lock_notes: bool,
    /// Buckets of the lock table, 32 bytes each (64 in the staged one), rounded up to a power of two, 16,777,216 at
    /// most. There should be several times as many as locks are held at a time, since locks that share one cost more.
    /// 0: four for each page of [`Options::pool_bytes`], 65,536 at least. Default: 0.
    pub lock_buckets: usize,
    /// How many locks on the keys of one table a transaction may have before a lock on the table is tried in their
    /// place: with exactly the last of them, or, where leaves are read under latches, with the batch that it is part of
    /// (66 at most); 0 for never. It is tried without waiting, and again when there are twice as many. Default:
    /// 100,000.
    pub escalation_locks: usize,
    /// How many bytes of locks (72 for each) a transaction may have before the same is tried for the table on which it
    /// has most, of those that it has not locked so yet; 0 for never. Default: 16 MiB.
    pub escalation_bytes: usize,
    /// The most locks that one transaction may hold; one that was prepared before the database was opened may have
    /// more. Default: 1,000,000.
    pub max_locks_per_transaction: usize,
    /// The most locks that all transactions may hold together, beyond the 256 that each of them is sure of; rounded up
    /// to a multiple of 256, in which they are handed out. Those of transactions that were prepared before the database
    /// was opened come on top. Default: 8,000,000.
    pub max_locks: usize,
    /// How durable a commit is when the call returns, unless the commit says otherwise. Default: sync.
    pub durability: Durability,
    /// The isolation of transactions from each other, unless they say otherwise. Default: serializable.
    pub isolation: Isolation,
    /// How [`Database::transact`](crate::Database::transact) reads, unless the call says otherwise. Transactions that
    /// are planned, and those of [`Database::begin`](crate::Database::begin), read under locks. With another lock table
    /// than the latched one, [`ReadMode::Hybrid`] reads only pages without locks that nobody has changed lately: under
    /// a mutex it cannot be seen whether a key is locked, and in the staged table a lock is seen for a while after its
    /// release. Default: locking.
    pub read_mode: ReadMode,
    /// How [`Database::transact`](crate::Database::transact) gets its locks, unless the call says otherwise. Default:
    /// dynamic.
    pub execution: Execution,
    /// How many threads lock for transactions that are given to [`Plan::submit`](crate::Plan::submit) or
    /// [`Database::serve`](crate::Database::serve): each for its part of the lock names; 1 to 256. They are started
    /// with the first such transaction. Default: 1.
    pub control_threads: usize,
    /// How many threads run these transactions; 1 to 256. Default: 2.
    pub execution_threads: usize,
    /// Whether these threads change from one kind to the other, by how much there is to do. There are as many as the
    /// two numbers together, of which at first `control_threads` lock, later at least one, and at most as many as there
    /// are parts of the lock names: `control_threads`, but at least 8, or all threads but one where that is less. (With
    /// two threads nothing moves.) What was decided is in [`Database::stats`](crate::Database::stats). Default: false.
    pub automatic_threads: bool,
    /// How many transactions each of the threads that run them has begun and not ended, at most. All these threads
    /// together have at most 768: where there are many, each has room for fewer. A transaction that waits for a lock
    /// counts, so when all of them wait, those that are submitted later wait, too, until one has ended or their
    /// deadlines pass. One that has committed counts no longer, though it has its place among the open transactions
    /// until its locks are back, which takes a moment where threads that lock have much to do. Default: 16.
    pub execution_window: usize,
    /// How many submitted transactions may wait to begin: the next one is refused with [`Error::SubmitQueueFull`].
    /// Procedures that are served wait with them, and are never refused. At least 1. Default: 65,536.
    pub submit_queue: usize,
    /// How many messages the ring between two of these threads holds, rounded up to a power of two: 1 to 65,536, and no
    /// more than 2²⁴ in all rings, whose memory is taken with the first transaction. There is a ring for each pair of
    /// threads and each direction: with 256 threads of either kind 164,000, of 32 bytes a message or more. Default: 64.
    pub ring_capacity: usize,
    /// Whether each of these threads stays on a processor of its own, as far as there are enough: those that lock on
    /// the first ones. Only on Linux; elsewhere it has no effect. Useful on a machine that does nothing else. Default:
    /// false.
    pub pin_threads: bool,
    /// False grants every lock to everybody. Only for tests, which must see that isolation is then gone.
    #[doc(hidden)]
    pub locking: bool,
    /// False lets transactions that read without locks commit whatever others have changed meanwhile. Only for tests,
    /// which must see what happens then.
    #[doc(hidden)]
    pub read_validation: bool,
    /// False lets readers of early released locks forget what they depend on. Only for tests, which must see what
    /// happens then.
    #[doc(hidden)]
    pub release_tags: bool,
    /// Most records in a node of a tree; small in tests, so that trees split and merge all the time.
    #[doc(hidden)]
    pub node_capacity: usize,
}

fn invalid(name: &str, value: &str, expected: &str) -> Error {
    Error::InvalidOption { name: name.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{choices::Choice, *};

    #[test]
    fn every_option_can_be_set_to_what_it_is() {
        let defaults = Options::default();
        let mut options = Options::default();
        for name in Options::NAMES {
            let value = defaults.get(name).unwrap();
            options.set(name, &value).unwrap();
        }
        assert_eq!(options, defaults);
        options.check(|| None).unwrap();
    }

    #[test]
    fn the_pool_s_choices_reach_the_engine() {
        let mut options = Options::default();
        for translation in TranslationKind::ALL {
            options.set("translation", &translation.name()).unwrap();
            assert_eq!(options.engine().pool.translation, translation);
        }
        for transit in TransitKind::ALL {
            options.set("transit", &transit.name()).unwrap();
            assert_eq!(options.engine().pool.transit, transit);
        }
        for free_space in FreeSpaceKind::ALL {
            options.set("free_space", &free_space.name()).unwrap();
            assert_eq!(options.engine().pool.free_space, free_space);
        }
        options.set("read_ahead", "7").unwrap();
        assert_eq!(options.engine().pool.read_ahead, 7);
        options.set("cleaners", "3").unwrap();
        assert_eq!(options.engine().pool.cleaners, 3);
    }

    #[test]
    fn the_log_s_choices_reach_the_engine() {
        let mut options = Options::default();
        for insert in LogInsert::ALL {
            options.set("log_insert", &insert.name()).unwrap();
            assert_eq!(options.engine().log.insert, insert);
        }
        options.set("recovery_target", "7s").unwrap();
        assert_eq!(options.engine().recovery_target, Duration::from_secs(7));
        for policy in LogFullPolicy::ALL {
            options.set("log_full", &policy.name()).unwrap();
            assert_eq!(options.engine().log_full, policy);
        }
    }

    #[test]
    fn wrong_names_and_values_are_refused_and_explained() {
        let mut options = Options::default();
        let error = options.set("pool", "1MiB").unwrap_err();
        assert!(matches!(error, Error::UnknownOption { .. }) && error.to_string().contains("pool_bytes"));
        for name in Options::NAMES {
            let error = options.set(name, "a lot").unwrap_err();
            assert!(matches!(&error, Error::InvalidOption { name: named, .. } if named == name), "{error}");
        }
        let error = options.set("execution", "partitioned").unwrap_err().to_string();
        for next in ["dynamic or planned", "Plan::submit", "Database::serve", "--execution partitioned"] {
            assert!(error.contains(next), "{error}");
        }
        assert_eq!(options, Options::default());
        for (name, value) in [
            ("pool_bytes", "64KiB"),
            ("cleaners", "0"),
            ("cleaners", "65"),
            ("log_segment_bytes", "1KiB"),
            ("log_segment_bytes", "1GiB"),
            ("log_bytes", "16MiB"),
            ("log_buffer_bytes", "3MiB"),
            ("log_buffer_bytes", "1KiB"),
            ("log_buffer_bytes", "9223372036854775808"),
            ("flush_interval", "0s"),
            ("deadlock_timeout", "0ms"),
            ("pipeline_length", "0"),
            ("pipeline_length", "100001"),
            ("control_threads", "0"),
            ("control_threads", "257"),
            ("execution_threads", "0"),
            ("execution_threads", "257"),
            ("execution_window", "0"),
            ("submit_queue", "0"),
            ("ring_capacity", "0"),
            ("ring_capacity", "65537"),
            ("lock_buckets", "16777217"),
            ("max_locks", "0"),
            ("max_locks_per_transaction", "0"),
        ] {
            let mut options = Options::default();
            let error = options.set(name, value).and_then(|()| options.check(|| None)).unwrap_err();
            assert!(matches!(&error, Error::InvalidOption { name: named, .. } if named == name), "{error}");
        }
    }
}
