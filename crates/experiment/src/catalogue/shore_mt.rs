//! Johnson et al. 2009. The machine there: 32 hardware contexts of a Niagara, logs in memory; so `niagara32` here.

mod parts;
mod tpcc;

use super::{RATE, bars, lines, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

/// Why steps before that of the locks show nothing.
const BEHIND_THE_LOCK_TABLE: &str =
    "the one mutex of the lock table is met first and hides what this step takes away";

/// What stands for the original Shore, and for Shore-MT before its steps: one mutex around each part.
const BASELINE: &str = "--set translation=global_mutex --set transit=one_list --set latch_mode=always_shared \
    --set free_space=global_mutex --set log_insert=mutex --set lock_table=global_mutex --set intent_locks=in_table";

const PER_THREAD: Value = Value::Per("/commits_per_s", "/threads");

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![
        insertion(scale),
        tpcc::new_order(scale),
        tpcc::payment(scale),
        parts::free_space(scale),
        ladder(scale),
        profile(scale),
        parts::counts(scale),
    ]
}

/// Record insertion by so many threads on as many contexts.
fn insert(scale: Scale, threads: u32) -> String {
    let rest = scale.pick(
        "--commit-every 50 --seconds 0.02 --warm-up 0.002",
        "--commit-every 1000 --seconds 0.2 --warm-up 0.05",
    );
    format!(
        "bench insert --profile niagara32 --cores {threads} --threads {threads} {rest} --durability lazy \
         --set log_buffer_bytes=64MiB --set pool_bytes={}",
        // Room for all pages that are made: a thread that needs a frame waits for the log when all are dirty.
        scale.pick("64MiB", "1GiB")
    )
}

fn insertion(scale: Scale) -> Experiment {
    const EACH: &str = "commits/s of a thread";
    const ALL: &str = "commits/s";
    let mut runs = Vec::new();
    for &threads in scale.pick(&[1, 8, 32][..], &[1, 2, 4, 8, 12, 16, 24, 32][..]) {
        for (name, options) in [("road", ""), ("original", BASELINE)] {
            let takes = [Take::whole(EACH, name, threads, PER_THREAD), Take::whole(ALL, name, threads, RATE)];
            runs.push(Run::simulated(format!("{} {options}", insert(scale, threads)).trim(), takes));
        }
    }
    let each = |name: &str, at| Quantity::spot(EACH, name, at);
    Experiment {
        id: "1.1",
        paper: Paper::ShoreMt,
        figure: "Figure 4",
        title: "Record insertion: each thread appends to a table of its own",
        runs,
        plots: vec![log_lines(EACH, "threads"), lines(ALL, "threads")],
        claims: vec![
            Claim::at_least(
                "what a thread does stays nearly flat to 32",
                each("road", At::X(32.0)),
                each("road", At::X(1.0)),
                0.8,
                0.5,
                "nearly flat",
            ),
            Claim::times(
                "one thread is three times as fast as in the original",
                each("road", At::X(1.0)),
                each("original", At::X(1.0)),
                3.0,
                1.5,
            )
            .because(
                Cause::Experiment,
                "nobody waits for a mutex when alone, and all but the mutexes is the same engine; the \
                 paper's original was slower in many more ways",
            ),
            Claim::at_most(
                "with one mutex around each part, 32 threads do no more than a few",
                each("original", At::X(32.0)),
                each("original", At::X(1.0)),
                0.25,
                0.5,
                "flat or falling from 4 to 12 on",
            ).because(Cause::Technique, "a mutex is held for so little of a transaction that 32 threads wait for the lock table's for 62 % of their time, not for nearly all of it"),
        ],
        remark: "The paper's peers (PostgreSQL, MySQL, BerkeleyDB, DBMS X) are not here; the original Shore is the engine with \
                 one mutex around each part. Transactions have 50 records when quick, the paper's 1,000 otherwise. One thread \
                 is not three times as fast as with those mutexes, because nobody waits for them then and the rest of the engine \
                 is the same: the paper's original was slower in many more ways.",
    }
}

fn ladder(scale: Scale) -> Experiment {
    const PLOT: &str = "commits/s";
    let arguments = format!(
        "bench ladder --profile niagara32 --cores 32 --threads {} --rounds 1 {}",
        scale.pick("1,8,32", "1,2,4,8,16,32"),
        scale.pick(
            "--commit-every 20 --seconds 0.008 --warm-up 0.001 --set pool_bytes=8MiB",
            "--commit-every 100 --seconds 0.04 --warm-up 0.01 --set pool_bytes=32MiB",
        ),
    );
    let take = Take::each(PLOT, "/ladder", "{/step}", "{/threads}", RATE);
    let step = |name: &str, at| Quantity::spot(PLOT, name, At::X(at));
    Experiment {
        id: "1.5",
        paper: Paper::ShoreMt,
        figure: "Figure 7",
        title: "The ladder: record insertion, from one mutex around everything to what the engine is, step by step",
        runs: vec![Run::simulated(arguments, [take])],
        plots: vec![log_lines(PLOT, "threads")],
        claims: vec![
            Claim::at_most(
                "the baseline does not scale: 8 threads do less than 4 times one's",
                step("baseline", 8.0),
                step("baseline", 1.0),
                2.0,
                4.0,
                "1.2 tps by 4 and more threads, 2.4 by one",
            )
            .because(
                Cause::Technique,
                "its one mutex is held for so little of a transaction that 8 threads do \
                 4.6 times what one does, and 32 do 4.7 times",
            ),
            Claim::times("bpool1 doubles one thread", step("bpool1", 1.0), step("baseline", 1.0), 2.0, 1.5)
                .because(
                    Cause::Technique,
                    "a thread alone waits for nobody in the buffer pool, and this engine's never was as \
                 slow as Shore's",
                ),
            Claim::times("bpool1: five times at 32", step("bpool1", 32.0), step("baseline", 32.0), 5.0, 1.5)
                .because(Cause::Technique, BEHIND_THE_LOCK_TABLE),
            Claim::times("caching: twice at 32", step("caching", 32.0), step("bpool1", 32.0), 2.0, 1.5)
                .because(Cause::Technique, BEHIND_THE_LOCK_TABLE),
            Claim::times("log: twice again", step("log", 32.0), step("caching", 32.0), 2.0, 1.5).because(
                Cause::Technique,
                "the one mutex of the lock table is met first; behind it this step loses 10 %",
            ),
            Claim::at_least(
                "all steps together: many times the baseline at 32",
                step("final", 32.0),
                step("baseline", 32.0),
                20.0,
                2.0,
                "from 1.2 tps to about 32 × one thread's",
            )
            .because(
                Cause::Technique,
                "the baseline is this engine with mutexes put back, not the slower engine that Shore \
                 was",
            ),
        ],
        remark: "The order of the bottlenecks is another one here: the one mutex of the lock table is met first and hides what is \
                 behind it, so bpool1, caching and log gain nothing before the step `lock` has taken it away. The engine never \
                 had a buffer pool as slow as Shore's. With 32 threads, one that claims \
                 space in the log by compare-and-exchange fails 22 times for each time that it does not, once that has begun, and \
                 all stay so: `lock` does 161,000 commits a second, where it begins late, bpool2 and final 94,000. The road's addition cannot fail, and does 225,000.",
    }
}

fn profile(scale: Scale) -> Experiment {
    const PLOT: &str = "share of the time of all cores";
    let parts = [
        "useful",
        "memory",
        "spinning",
        "system",
        "lock_wait",
        "latch_wait",
        "log_wait",
        "disk_wait",
        "frame_wait",
        "idle",
    ];
    const PLACES: [&str; 10] = [
        "/simulation/cores_time/useful",
        "/simulation/cores_time/memory",
        "/simulation/cores_time/spinning",
        "/simulation/cores_time/system",
        "/simulation/cores_time/lock_wait",
        "/simulation/cores_time/latch_wait",
        "/simulation/cores_time/log_wait",
        "/simulation/cores_time/disk_wait",
        "/simulation/cores_time/frame_wait",
        "/simulation/cores_time/idle",
    ];
    let run = |options: &str, x: u32| {
        let takes: Vec<Take> = (parts.iter().zip(PLACES))
            .map(|(part, place)| Take::whole(PLOT, *part, x, Value::Of(place)))
            .collect();
        Run::simulated(format!("{} {options}", insert(scale, 16)).trim(), takes)
    };
    let part = |name: &str, x| Quantity::spot(PLOT, name, At::X(x));
    Experiment {
        id: "1.6",
        paper: Paper::ShoreMt,
        figure: "§4",
        title: "Where the time of 16 threads goes: 1 the engine as it is, 2 with one mutex around each part",
        runs: vec![run("", 1), run(BASELINE, 2)],
        plots: vec![bars(PLOT, "1 road, 2 original")],
        claims: vec![
            Claim::at_least(
                "in an engine that does not scale, one lock takes most of the time",
                part("lock_wait", 2.0),
                Quantity::Is(1.0),
                0.39,
                0.10,
                "39 % in MySQL, over 80 % in BerkeleyDB",
            ).because(Cause::Technique, "16 threads do not fill the mutex of the lock table; 32 wait for it for 62 % of their time (1.1)"),
            Claim::at_most(
                "in one that does, waiting for locks and latches takes little",
                Quantity::Sum(vec![part("lock_wait", 1.0), part("latch_wait", 1.0)]),
                Quantity::Is(1.0),
                0.10,
                0.30,
                "under 10 to 15 %, which was enough to stop PostgreSQL",
            ),
        ],
        remark: "The paper's profiles are of other engines; what is compared is that a single critical section dominates, and that \
                 it does not in the engine that scales.",
    }
}
