//! What a seed stands for: schedule, options, how many threads do how much, and what happens to the disk.

use foreshore::{Builder, Database, Options, Result};
use foreshore_env::{random::Xorshift, sim::Schedule, sync::Arc, time::Duration};
use foreshore_testkit::{CrashMode, FaultyDisk};

use super::{Changes, wide_client};

/// Among how many operations, writes or syncs of the disk a fault lies.
const FAULTS_WITHIN: u64 = 250;
/// Among how many steps the schedule by priorities changes them.
const CHANGES_WITHIN: u64 = 300_000;
/// How deep recoveries are crashed in a row.
const MOST_CRASHED_RECOVERIES: u64 = 3;
/// Among how many operations of the disk a last checkpoint is torn; many have fewer.
const LAST_ACT_WITHIN: u64 = 40;
/// The longest time that a sync takes, in microseconds: thousands of steps.
const LONGEST_SYNC_US: u64 = 500;
/// The most that is left of a disk that runs full, in bytes beyond what the empty database needs.
const MOST_ROOM: u64 = 1 << 20;

/// What ends a life of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is closed.
    Closed,
    /// The power fails at this operation of the disk.
    Power(u64),
    /// This sync returns an error.
    Sync(u64),
    /// This write returns an error.
    Write(u64),
    /// This read returns an error.
    Read(u64),
    /// The disk has room for so many bytes more.
    Full(u64),
}

/// From one opening to the next.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) end: End,
    /// What the next opening finds.
    pub(super) mode: CrashMode,
    /// The numbers of the operations at which the power fails in the next openings.
    pub(super) crashed_recoveries: Vec<u64>,
    /// Whether a transaction stays open over a last checkpoint; and at which operation of the disk in it the power
    /// fails, if the life ends by that.
    pub(super) last_act: Option<u64>,
}

/// What a seed stands for.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    pub(super) options: Options,
    /// The options that are not as they are by default.
    pub(super) settings: Vec<(&'static str, &'static str)>,
    pub(super) threads: u64,
    /// How transactions may run.
    pub(super) ways: Ways,
    /// Whether some transactions are committed in two phases.
    pub(super) prepares: bool,
    /// Whether lives end as those of killed processes do: the next opening finds what was written in the cache, and a
    /// power failure in it may take that back.
    pub(super) killed: bool,
    /// Whether transactions do what only some seeds do, and clients more than transactions.
    pub(super) wide: bool,
    /// Whether a client closes the database while others work, in lives that end by closing.
    pub(super) closes: bool,
    /// Procedures from which threads of the database draw transactions themselves, each as many as a thread runs.
    pub(super) servers: u64,
    /// What each thread runs in a life.
    pub(super) transactions: u64,
    /// A thread takes a checkpoint instead of one in so many transactions. Where that is often, changes are on their
    /// way when checkpoints begin.
    pub(super) checkpoint_every: u64,
    pub(super) keys: u64,
    /// One value in so many is long: pages go in and out of a small pool then.
    pub(super) long_values: u64,
    /// The power fails at this operation of the very first opening.
    pub(super) crashed_creation: Option<u64>,
    /// How long a sync takes: commits wait meanwhile, and others go on.
    pub(super) sync_delay: Duration,
    /// The most bytes that a read gives.
    pub(super) longest_read: Option<usize>,
    pub(super) lives: Vec<Life>,
}

/// How the transactions of a run may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    /// Step by step.
    Stepwise,
    /// In any way, beside each other.
    Mixed,
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It gets each lock when it needs it.
    Stepwise,
    /// It gets its locks first.
    Planned,
    /// It gets its locks first, from threads of the database, and others of these run it.
    Submitted,
}

/// One seed in this many is mixed.
const MIXED_EVERY: u64 = 3;
/// One seed in this many has transactions that are prepared, and one in this many has processes killed. Both are chosen
/// without a draw, so that the other seeds stay as they were.
const PREPARES_EVERY: u64 = 4;
const KILLED_EVERY: u64 = 5;
/// Of the seeds whose lives would end with nothing wrong, one in this many has a read fail in each life.
const READS_FAIL_EVERY: u64 = 7;
/// Among how many reads it is; there are few.
const READS_WITHIN: u64 = 60;

/// What the threads of partitioned execution are like in a mixed run.
const PARTITIONED: [(&str, &[&str]); 5] = [
    ("control_threads", &["2", "2", "1", "3"]),
    ("execution_threads", &["3", "3", "1", "2"]),
    ("execution_window", &["16", "1", "3"]),
    ("ring_capacity", &["1", "2", "64"]),
    ("automatic_threads", &["false", "true"]),
];

/// How many procedures are served in a mixed run: fewer than fit the windows, and more.
const SERVERS: [u64; 4] = [0, 0, 3, 8];

impl Ways {
    /// Those of a seed, with how many procedures are served. What they draw is drawn apart, so that the other seeds
    /// stay as they were.
    fn draw_for(
        seed: u64,
        options: &mut Options,
        settings: &mut Vec<(&'static str, &'static str)>,
    ) -> (Ways, u64) {
        if seed % MIXED_EVERY != MIXED_EVERY - 1 {
            return (Ways::Stepwise, 0);
        }
        let mut random = Xorshift::new(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) | 1);
        for (name, values) in PARTITIONED {
            random.next_u64();
            let value = values[random.below(values.len() as u64) as usize];
            options.set(name, value).expect("the values above are values of their options");
            settings.push((name, value));
        }
        random.next_u64();
        (Ways::Mixed, SERVERS[random.below(SERVERS.len() as u64) as usize])
    }

    /// The way of the next transaction.
    pub(super) fn draw(self, random: &mut Xorshift) -> Way {
        match self {
            Ways::Stepwise => Way::Stepwise,
            Ways::Mixed => {
                [Way::Stepwise, Way::Planned, Way::Submitted, Way::Submitted][random.below(4) as usize]
            }
        }
    }
}

/// The options of which one value is drawn, and the values.
const CHOICES: [(&str, &[&str]); 21] = [
    (
        "lock_table",
        &["latched", "latched", "staged", "staged", "global_mutex", "always_latched", "global_mcs"],
    ),
    (
        "deadlock_policy",
        &[
            "dreadlocks",
            "dreadlocks",
            "dreadlocks",
            "dreadlocks_spin",
            "dreadlocks_sleep",
            "dreadlocks_hybrid",
            "wait_for_graph",
            "wait_die",
            "wound_wait",
            "timeout",
            "no_wait",
        ],
    ),
    ("deadlock_digests", &["exact", "exact", "bloom"]),
    ("deadlock_timeout", &["1s", "10ms"]),
    ("victim_policy", &["youngest", "shortest_pipeline", "longest_pipeline"]),
    ("intent_locks", &["lightweight", "private", "in_table", "inherited"]),
    ("key_range_modes", &["orthogonal", "orthogonal", "lomet", "next_key"]),
    ("escalation_locks", &["100000", "100000", "4", "0"]),
    ("early_lock_release", &["shared_and_exclusive", "shared_and_exclusive", "shared", "off"]),
    ("pipeline_length", &["100000", "3", "1"]),
    ("log_insert", &["compare_exchange", "fetch_add", "consolidated", "mutex"]),
    ("latch_mode", &["hybrid", "hybrid", "optimistic", "always_shared", "always_exclusive"]),
    ("translation", &["page_table", "cuckoo", "bucketed", "global_mutex"]),
    ("transit", &["in_frame", "one_list", "many_lists"]),
    ("pool_bytes", &["1MiB", "512KiB", "512KiB"]),
    ("log_bytes", &["64MiB", "4MiB", "1MiB"]),
    ("checkpoint_bytes", &["1MiB", "128KiB", "16KiB"]),
    ("flush_interval", &["100ms", "1ms"]),
    ("lock_notes", &["false", "true"]),
    ("deadlock_confirmation", &["true"]),
    ("read_mode", &["locking", "hybrid", "hybrid"]),
];

impl Plan {
    /// The plan of a seed.
    pub(super) fn of(seed: u64, changes: &Changes) -> Plan {
        let mut random = Xorshift::new(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // The first numbers of neighbouring seeds are alike.
        for _ in 0..8 {
            random.next_u64();
        }
        let schedule = match random.below(3) {
            0 => Schedule::Priorities { changes: 1 + random.below(6) as u32, within_steps: CHANGES_WITHIN },
            _ => Schedule::Random,
        };
        let (mut options, mut settings) = draw_options(&mut random, changes);
        let (ways, servers) = Ways::draw_for(seed, &mut options, &mut settings);
        let threads = 2 + random.below(5);
        let transactions = 4 + random.below(20);
        let checkpoint_every = [60, 60, 5][random.below(3) as usize];
        let keys = match random.below(4) {
            0 => 2 + random.below(4),
            1 | 2 => 2 + random.below(30),
            _ => 300,
        };
        let long_values = [50, 50, 5][random.below(3) as usize];
        let crashed_creation = (random.below(8) == 0).then(|| 1 + random.below(60));
        let longest_read = (random.below(4) == 0).then(|| 1 + random.below(20_000) as usize);
        let delayed = random.below(3) > 0;
        let sync_delay =
            if delayed { Duration::from_micros(random.below(LONGEST_SYNC_US)) } else { Duration::ZERO };
        let mut lives: Vec<Life> = (0..=random.below(3)).map(|_| Life::draw(&mut random)).collect();
        if seed % READS_FAIL_EVERY == 4 {
            fail_reads(seed, &mut lives);
        }
        draw_cleaners(&mut random, &mut options, &mut settings);
        let wide = wide_client::is_wide(seed);
        let closes = wide && wide_client::draw(seed, &mut options, &mut settings);
        Plan {
            schedule,
            options,
            settings,
            threads: changes.threads.map_or(threads, |most| most.min(threads)),
            transactions: changes.transactions.map_or(transactions, |most| most.min(transactions)),
            ways,
            prepares: seed % PREPARES_EVERY == 1,
            killed: seed % KILLED_EVERY == 3,
            wide,
            closes,
            servers: changes.threads.map_or(servers, |most| most.min(servers)),
            checkpoint_every,
            keys,
            long_values,
            crashed_creation,
            sync_delay,
            longest_read,
            lives,
        }
    }

    /// The disk that the opening behind a life finds.
    pub(super) fn left(&self, disk: &FaultyDisk, life: &Life) -> FaultyDisk {
        if self.killed { disk.after_kill() } else { disk.after_crash(life.mode) }
    }

    /// Opens the database.
    pub(super) fn open(&self, disk: &FaultyDisk) -> Result<Database> {
        disk.set_longest_read(self.longest_read);
        disk.set_sync_delay(self.sync_delay);
        self.builder(disk).open("/db")
    }

    /// Opens whatever lies on a disk.
    pub(super) fn builder(&self, disk: &FaultyDisk) -> Builder {
        Database::builder().options(self.options.clone()).disk(Arc::new(disk.clone()))
    }

    /// Whether somebody closes it while others work.
    pub(super) fn is_closed_early(&self, life: &Life) -> bool {
        self.closes && life.end == End::Closed
    }

    /// Whether the log may run full by itself.
    pub(super) fn is_log_small(&self) -> bool {
        self.options.log_bytes < 16 << 20
    }
}

/// In half of the runs a few options are other ones, so that a failure is met with few of them; in the others all are.
fn draw_options(random: &mut Xorshift, changes: &Changes) -> (Options, Vec<(&'static str, &'static str)>) {
    let mut options = Options {
        pool_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        log_bytes: 64 << 20,
        log_buffer_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        node_capacity: [4, 4, 8, usize::MAX][random.below(4) as usize],
        locking: !changes.without_locking,
        ..Options::default()
    };
    let few = random.below(2) == 0;
    let mut settings = Vec::new();
    for (name, values) in CHOICES {
        let value = values[random.below(values.len() as u64) as usize];
        let kept = few && random.below(6) != 0;
        if kept || options.get(name).as_deref() == Some(value) {
            continue;
        }
        options.set(name, value).expect("the values above are values of their options");
        settings.push((name, value));
    }
    (options, settings)
}

/// How many threads write pages ahead of the clock. Drawn last, so that what else a seed stands for does not depend on
/// it.
fn draw_cleaners(
    random: &mut Xorshift,
    options: &mut Options,
    settings: &mut Vec<(&'static str, &'static str)>,
) {
    let value = ["1", "2", "3"][random.below(3) as usize];
    if options.get("cleaners").as_deref() != Some(value) {
        options.set("cleaners", value).expect("a number of cleaners");
        settings.push(("cleaners", value));
    }
}

/// Drawn apart, so that the other seeds stay as they were.
fn fail_reads(seed: u64, lives: &mut [Life]) {
    let mut random = Xorshift::new(seed.wrapping_mul(0xA076_1D64_78BD_642F) | 1);
    random.next_u64();
    for life in lives.iter_mut().filter(|life| life.end == End::Closed) {
        life.end = End::Read(1 + random.below(READS_WITHIN));
    }
}

impl Life {
    fn draw(random: &mut Xorshift) -> Life {
        let at = 1 + random.below(FAULTS_WITHIN);
        let end = match random.below(10) {
            0..3 => End::Closed,
            3..7 => End::Power(at),
            7 => End::Sync(1 + at / 4),
            8 => End::Write(at),
            _ => End::Full(random.below(MOST_ROOM)),
        };
        let mode = match random.below(4) {
            0 => CrashMode::DropUnsynced,
            1 => CrashMode::KeepAll,
            2 => CrashMode::SubsetRandom(random.next_u64()),
            _ => CrashMode::TornRandom(random.next_u64()),
        };
        let crashed = if random.below(3) == 0 { 1 + random.below(MOST_CRASHED_RECOVERIES) } else { 0 };
        let crashed_recoveries = (0..crashed).map(|_| 1 + random.below(60)).collect();
        let last_act = (random.below(2) == 0).then(|| 1 + random.below(LAST_ACT_WITHIN));
        Life { end, mode, crashed_recoveries, last_act }
    }
}
