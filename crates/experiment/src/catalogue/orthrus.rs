//! Ren, Faleiro, Abadi 2016. The machine there: eight sockets of ten cores, so `westmere8x10` here. *Deadlock-free
//! locking* is planned execution (`--execution planned`), ORTHRUS is `partitioned`, Partitioned-store
//! `partitioned-store`; 2PL is `dynamic`, with a policy against deadlocks.

mod contention;
mod partitions;
mod reading;
mod tpcc;

use super::{PARTS, RATE, TIME, bars, lines, log_lines};
use crate::experiment::{Experiment, Run, Scale, Take};

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![
        reading::reads(scale),
        contention::deadlock_handling(scale),
        partitions::execution_threads(scale),
        partitions::partitions_of_a_transaction(scale),
        partitions::share_of_two(scale),
        tpcc::warehouses(scale),
        tpcc::cores(scale),
        tpcc::breakdown(scale),
        reading::read_only_uniform(scale),
        reading::read_only_hot(scale),
        contention::updates(scale),
        contention::positions(scale),
    ]
}

const PLOT: &str = "commits/s";
/// A lock table with a latch for each bucket that everybody takes.
const LATCHING: &str = "--set lock_table=always_latched";

/// A way of running transactions, as options of the program.
#[derive(Clone, Copy)]
enum System {
    /// Two-phase locking with this policy against deadlocks.
    Locking(&'static str),
    /// The same, and the lock table is as the paper's: each bucket has a latch, which sharers take, too.
    Latching(&'static str),
    /// The same, and all share a lock on the table that is in the lock table, whose queue each request changes.
    SharingTheTable(&'static str),
    /// All locks first, in one order, in a table with latches for sharers.
    LatchingDeadlockFree,
    /// All locks first, in one order.
    DeadlockFree,
    /// Control and execution threads, one in five controls; from so many partitions; `None`: as it comes.
    Orthrus(Option<u32>),
    /// One spin latch for each partition.
    Store,
}

impl System {
    /// Its name in the plots.
    fn name(self) -> String {
        match self {
            System::Locking(policy) => format!("2PL, {policy}"),
            System::Latching(policy) => format!("2PL, {policy}, sharers latch"),
            System::SharingTheTable(policy) => format!("2PL, {policy}, a lock that all share"),
            System::LatchingDeadlockFree => "deadlock-free, sharers latch".to_owned(),
            System::DeadlockFree => "deadlock-free".to_owned(),
            System::Orthrus(Some(1)) => "ORTHRUS, single".to_owned(),
            System::Orthrus(Some(2)) => "ORTHRUS, dual".to_owned(),
            System::Orthrus(Some(many)) => format!("ORTHRUS, {many} partitions"),
            System::Orthrus(None) => "ORTHRUS, random".to_owned(),
            System::Store => "partitioned-store".to_owned(),
        }
    }

    /// Control threads on so many cores: a fifth of them, as in the paper's 16 of 80.
    fn control(cores: u32) -> u32 {
        (cores / 5).max(1)
    }

    /// The options, for so many cores. The execution threads of ORTHRUS draw their transactions themselves, as the
    /// paper's do.
    fn options(self, cores: u32) -> String {
        match self {
            System::Locking(policy) => {
                format!(
                    "--cores {cores} --threads {cores} --set deadlock_policy={policy} --set admission_control=false"
                )
            }
            System::DeadlockFree => format!("--cores {cores} --threads {cores} --execution planned"),
            System::Latching(policy) => format!("{} {LATCHING}", System::Locking(policy).options(cores)),
            System::SharingTheTable(policy) => {
                let rest = "--set lock_table=staged --set intent_locks=in_table";
                format!("{} {rest}", System::Locking(policy).options(cores))
            }
            System::LatchingDeadlockFree => format!("{} {LATCHING}", System::DeadlockFree.options(cores)),
            System::Orthrus(touched) => {
                let control = System::control(cores);
                let touched = touched
                    .map_or_else(String::new, |touched| format!(" --partitions-per-transaction {touched}"));
                format!(
                    "--cores {cores} --drawn-by engine --in-flight 4 --execution partitioned --partitions {control}{touched} \
                     --set execution_threads={}",
                    (cores - control).max(1)
                )
            }
            System::Store => format!(
                "--cores {cores} --threads {cores} --execution partitioned-store --partitions {cores}"
            ),
        }
    }
}

/// How long a run lasts. The paper's systems have no log; here each page is logged as a whole when it is first changed,
/// which is over before anything is measured if the log's buffer has room for all of them, and a transaction that
/// updates is given the time for it; and everything is in memory.
fn length(scale: Scale, updates: bool) -> String {
    let warm_up = if updates { 0.02 } else { scale.pick(0.003, 0.01) };
    let rest = scale.pick(
        "--seconds 0.006 --set log_buffer_bytes=64MiB",
        "--seconds 0.03 --set log_buffer_bytes=256MiB --set pool_bytes=1GiB",
    );
    format!("{rest} --warm-up {warm_up}")
}

/// Dreadlocks: those that spin, as the paper's do. Eighty cores that spin take a quarter of an hour to simulate; when
/// it is to be quick those of this engine, which sleep, take their place.
fn dreadlocks(scale: Scale) -> System {
    System::Locking(scale.pick("dreadlocks", "dreadlocks_spin"))
}

/// YCSB on so many cores.
fn ycsb(scale: Scale, system: System, cores: u32, rest: &str) -> String {
    let options = system.options(cores);
    let updates = rest.contains("--read-percent 0");
    let options = if updates && rest.contains("hot:") {
        // What a thread has under way keeps hot records locked.
        options.replace("--in-flight 4", "--in-flight 2")
    } else {
        options
    };
    format!(
        "bench ycsb --records {} --value-bytes 1000 {rest} {options} --durability lazy {}",
        scale.pick(10_000, 200_000),
        length(scale, updates)
    )
}

/// A point of the plot of throughput.
fn point(arguments: String, system: System, x: impl std::fmt::Display) -> Run {
    Run::simulated(arguments, [Take::whole(PLOT, system.name(), x, RATE)])
}
