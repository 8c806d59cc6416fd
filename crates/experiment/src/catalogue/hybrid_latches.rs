//! Böttcher et al. 2020. The machine there: two sockets with 20 hardware threads each, so `xeon2x10` here.

mod counters;
mod sizes;

use super::{RATE, lines, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![
        tpcc(scale),
        scans(scale),
        granularity(scale),
        counters::counters(scale),
        contention(scale),
        sizes::sizes(),
        sizes::parking(),
    ]
}

/// How pages are latched, as the option latch_mode has it.
const MODES: [&str; 4] = ["hybrid", "optimistic", "always_shared", "always_exclusive"];
const COMMITS: &str = "commits/s";

/// A workload with each kind of latches, by so many threads.
fn by_latches(workload: &str, points: &[u32], thread_seconds: f64) -> Vec<Run> {
    let run = |mode: &str, threads: u32| {
        // About as many commits whatever the number of threads, but not before they have all begun.
        let seconds = (thread_seconds / f64::from(threads)).max(0.006);
        // One thread has a core for itself: the engine's own threads have another.
        let cores = threads.max(2);
        let arguments = format!(
            "{workload} --profile xeon2x10 --cores {cores} --threads {threads} --durability lazy --set latch_mode={mode} \
             --seconds {seconds:.5} --warm-up {seconds:.5} --set log_buffer_bytes=64MiB"
        );
        Run::simulated(arguments, [Take::whole(COMMITS, mode, threads, RATE)])
    };
    MODES.iter().flat_map(|mode| points.iter().map(move |threads| run(mode, *threads))).collect()
}

fn tpcc(scale: Scale) -> Experiment {
    let workload = format!(
        "bench tpcc --mix neworder-payment {}",
        scale.pick(
            "--warehouses 40 --items 300 --customers 30",
            "--warehouses 100 --items 10000 --customers 300 --set pool_bytes=1GiB"
        )
    );
    let points = scale.pick(&[1, 40][..], &[1, 5, 10, 20, 30, 40][..]);
    let rate = |mode: &str, at| Quantity::spot(COMMITS, mode, at);
    Experiment {
        id: "4.1",
        paper: Paper::HybridLatches,
        figure: "Figure 6a",
        title: "TPC-C by the latches of pages",
        runs: by_latches(&workload, points, scale.pick(0.12, 1.0)),
        plots: vec![lines(COMMITS, "threads")],
        claims: vec![
            Claim::at_least(
                "optimistic reads scale",
                rate("hybrid", At::X(40.0)),
                rate("hybrid", At::X(1.0)),
                20.0,
                10.0,
                "dominates",
            ).because(Cause::Experiment, "HyPer's transactions lock no records: here 40 threads wait for locks for 21 % of their time"),
            Claim::at_least(
                "shared latches stop, because readers contend in the upper nodes",
                rate("hybrid", At::X(40.0)),
                rate("always_shared", At::X(40.0)),
                1.5,
                1.1,
                "behind",
            )
            .because(
                Cause::Technique,
                "HyPer's transactions lock no records: here they wait for locks for 21 % of their time, and for 24 % with shared latches. These \
                 cost 160 atomic changes a transaction, and take memory from 16 to 23 % of the time",
            ),
            Claim::order(
                "40 threads",
                [
                    Quantity::Best(vec![rate("hybrid", At::X(40.0)), rate("optimistic", At::X(40.0))]),
                    rate("always_shared", At::X(40.0)),
                    rate("always_exclusive", At::X(40.0)),
                ],
                "optimistic and hybrid, shared, exclusive",
            ),
        ],
        remark: "The mutex of the system, the paper's fifth, is not here: a page has one latch, and shared latching is the same by another one. \
                 HyPer's indexes are radix trees, and its transactions lock no records; here they do. NewOrder and Payment only; warehouses are \
                 small when quick. `hybrid` and `optimistic` are one run: they differ in what follows reads that keep failing, and none did here.",
    }
}

fn scans(scale: Scale) -> Experiment {
    let workload = format!("bench scan --records {0} --length {0}", scale.pick(2000, 10_000));
    let points = scale.pick(&[1, 10][..], &[1, 5, 10, 20, 30, 40][..]);
    let rate = |mode: &str, at| Quantity::spot(COMMITS, mode, at);
    let at = At::X(scale.pick(10.0, 20.0));
    Experiment {
        id: "4.2",
        paper: Paper::HybridLatches,
        figure: "Figure 6b",
        title: "Scans of a whole table by the latches of pages",
        runs: by_latches(&workload, points, scale.pick(0.24, 4.0)),
        plots: vec![lines(COMMITS, "threads")],
        claims: vec![
            Claim::alike(
                "hybrid and shared latches are alike",
                rate("hybrid", at),
                rate("always_shared", at),
                1.15,
                "converge",
            ),
            Claim::alike(
                "and exclusive ones",
                rate("hybrid", at),
                rate("always_exclusive", at),
                1.3,
                "converge",
            )
            .because(
                Cause::Experiment,
                "ten threads scan the same pages in the same order: with exclusive latches they wait for each other for 60 % \
                 of their time, with the others for 3 %, and spin for a sixth",
            ),
        ],
        remark: "A scan without an index, in place of TPC-H. All threads scan the same pages in the same order, so that exclusive latches meet more \
                 than where each begins elsewhere.",
    }
}

fn granularity(scale: Scale) -> Experiment {
    const READING: &str = "tuples/s, none updated";
    const WRITING: &str = "tuples/s, a tenth of them updated";
    const LATCHES: [&str; 4] = ["optimistic", "hybrid", "spin_rw", "std_rwlock"];
    const PER_LATCH: [f64; 4] = [10.0, 100.0, 1000.0, 10_000.0];
    let run = |latch: &&str| {
        let arguments = format!(
            "bench granularity --latch {latch} --writes 0,10 --per-latch 10,100,1000,10000 --profile xeon2x10 --threads 40 \
             --cores 40 --seconds {}",
            scale.pick("0.0001", "0.001")
        );
        let take = |plot, writes: &str| {
            let take = Take::each(plot, "/results", "{/latch}", "{/per_latch}", Value::Of("/tuples_per_s"));
            take.only("/writes", writes)
        };
        Run::simulated(arguments, [take(READING, "0"), take(WRITING, "10")])
    };
    let reading = |latch: &str, tuples| Quantity::spot(READING, latch, At::X(tuples));
    let writing = |latch: &str, tuples| Quantity::spot(WRITING, latch, At::X(tuples));
    let pessimistic = |tuples| ["spin_rw", "std_rwlock"].map(|latch| writing(latch, tuples));
    Experiment {
        id: "4.3",
        paper: Paper::HybridLatches,
        figure: "Figure 7",
        title: "Scans and updates of tuples, by how many a latch guards",
        runs: LATCHES.iter().map(run).collect(),
        plots: vec![log_lines(READING, "tuples for a latch"), log_lines(WRITING, "tuples for a latch")],
        claims: vec![
            Claim::at_least(
                "reading, the hybrid latch needs no more than 1,000 tuples",
                reading("hybrid", 1000.0),
                reading("hybrid", 10_000.0),
                0.95,
                0.85,
                "sweet spot at 1,000",
            ),
            Claim::at_most(
                "a latch that readers share needs ten times as many",
                reading("spin_rw", 1000.0),
                reading("spin_rw", 10_000.0),
                0.95,
                0.99,
                "sweet spot at 10,000",
            ).because(Cause::Machine, "who reads 1,000 tuples comes to a latch twice for 125 lines of tuples, and 40 threads are seldom at the same one: beside the hybrid latch the spinlock has 0.80 of the \
                 rate with 100 tuples for a latch, and 0.99 with 1,000"),
            Claim::at_least(
                "with a tenth updated, the hybrid latch of 1,000 tuples beats all latches that readers share",
                writing("hybrid", 1000.0),
                Quantity::Best(PER_LATCH.into_iter().flat_map(pessimistic).collect()),
                1.0,
                0.97,
                "outperforms all other configurations",
            )
            .because(
                Cause::Experiment,
                "a tenth of the tuples, which is what is updated here, is more than what the paper can mean: each latch of \
                 1,000 keeps readers away most of the time, whichever it is, and all do best with 100, hybrid and \
                 reader-writer mutex alike (1,038 and 1,021 million tuples a second; with 1,000, 727 and 632)",
            ),
        ],
        remark: "The paper does not say what its share of writes is a share of; here it is one of the tuples touched. 200,000 tuples of eight bytes, \
                 without a database around them.",
    }
}

fn contention(scale: Scale) -> Experiment {
    const PLOT: &str = "acquisitions/s";
    let arguments = format!(
        "bench latch --latch all --mix contended --threads {} --seconds {} --rounds 3",
        scale.pick("1,2,8,32", "1,2,4,8,16,32,64,128"),
        // Long enough that each thread gets its turn on a processor.
        scale.pick("0.3", "0.9"),
    );
    let take = Take::each(PLOT, "/results", "{/latch}", "{/threads}", Value::Of("/acquisitions_per_s"));
    let rate = |series: &str, at| Quantity::spot(PLOT, series, at);
    Experiment {
        id: "4.5",
        paper: Paper::HybridLatches,
        figure: "Figure 8",
        title: "One latch, taken exclusively by more and more threads",
        runs: vec![Run::real(arguments, [take])],
        plots: vec![log_lines(PLOT, "threads")],
        claims: vec![
            Claim::at_least(
                "with a parking lot it is hardly affected",
                rate("hybrid", At::Last),
                rate("hybrid", At::First),
                0.7,
                0.4,
                "almost flat",
            ),
            Claim::at_least(
                "nor is the mutex of the system",
                rate("std_mutex", At::Last),
                rate("std_mutex", At::First),
                0.7,
                0.4,
                "almost flat",
            )
            .because(
                Cause::Experiment,
                "it is flat from two threads on, 32, 25 and 28 million/s by 2, 8 and 32; a thread alone, who never finds \
                 it taken, does 74 million",
            ),
            Claim::at_least(
                "backing off is the best way of spinning",
                rate("ttas_backoff", At::Last),
                Quantity::Best(["tas", "ttas", "ticket", "mcs"].map(|latch| rate(latch, At::Last)).to_vec()),
                1.1,
                0.97,
                "best of the spinlocks",
            ),
            Claim::at_least(
                "the parking lot beats all spinlocks",
                rate("hybrid", At::Last),
                Quantity::Best(vec![
                    rate("tas", At::Last),
                    rate("ttas", At::Last),
                    rate("ttas_backoff", At::Last),
                    rate("ticket", At::Last),
                    rate("mcs", At::Last),
                ]),
                1.1,
                0.97,
                "best, with the mutex",
            )
            .because(
                Cause::Machine,
                "with two processors hardly anybody waits at the same time: whoever runs takes the latch again and again, whichever it is, and \
                 by 32 threads the one that had it least had less than a hundredth of a percent of it",
            ),
        ],
        remark: "The paper has 40 hardware threads; this machine may have few, so more threads than that are more than it can run. With two \
                 processors there is little traffic that a spinlock could save by looking first, and who runs takes the latch again \
                 and again: test-and-set looks good for that reason.",
    }
}
