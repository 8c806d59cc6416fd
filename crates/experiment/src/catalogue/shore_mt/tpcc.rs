//! Parts of TPC-C: figure 5.

use super::{BASELINE, PER_THREAD, RATE, lines, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take},
};

const EACH: &str = "commits/s of a thread";
const ALL: &str = "commits/s";
/// The rival.
const ORIGINAL: &str = "original";

fn runs(scale: Scale, mix: &str) -> Vec<Run> {
    let run = |threads: u32, name: &str, options: &str| {
        // About as many commits whatever the number of threads, but not before they have all begun.
        let seconds = (scale.pick(0.1, 1.0) / f64::from(threads)).max(0.008);
        // One thread has a core for itself: the engine's own threads have another.
        let cores = threads.max(2);
        let arguments = format!(
            "bench tpcc {mix} --profile niagara32 --cores {cores} --threads {threads} --warehouses 32 {} --durability lazy \
             --seconds {seconds:.5} --warm-up {seconds:.5} --set log_buffer_bytes=64MiB",
            scale.pick("--items 300 --customers 30", "--items 10000 --customers 300 --set pool_bytes=1GiB"),
        );
        let takes = [Take::whole(EACH, name, threads, PER_THREAD), Take::whole(ALL, name, threads, RATE)];
        Run::simulated(format!("{arguments} {options}").trim_end(), takes)
    };
    let points = scale.pick(&[1, 8, 32][..], &[1, 2, 4, 8, 16, 24, 32][..]);
    let both = |&threads: &u32| [run(threads, "road", ""), run(threads, ORIGINAL, BASELINE)];
    points.iter().flat_map(both).collect()
}

/// Shore-MT is the fastest of the paper's engines.
fn ahead() -> Claim {
    let theirs = Quantity::spot(ALL, ORIGINAL, At::X(32.0));
    Claim::at_least("32 threads: ahead of the rival", all(32.0), theirs, 1.05, 1.0, "the highest performance")
}

fn each(threads: f64) -> Quantity {
    Quantity::spot(EACH, "road", At::X(threads))
}

fn all(threads: f64) -> Quantity {
    Quantity::spot(ALL, "road", At::X(threads))
}

pub(super) fn new_order(scale: Scale) -> Experiment {
    Experiment {
        id: "1.2",
        paper: Paper::ShoreMt,
        figure: "Figure 5, left",
        title: "TPC-C's NewOrder",
        runs: runs(scale, "--mix neworder"),
        plots: vec![log_lines(EACH, "threads"), lines(ALL, "threads")],
        claims: vec![
            ahead(),
            Claim::at_least(
                "it goes on to scale to 32 threads",
                all(32.0),
                all(8.0),
                2.0,
                1.3,
                "scales, with a dip",
            ),
            Claim::at_most(
                "with a dip: a thread does less than with few",
                each(32.0),
                each(1.0),
                0.9,
                0.97,
                "a significant dip at 16",
            )
            .because(
                Cause::Technique,
                "who reads ITEM writes no shared memory here and rows of STOCK are locked one by one: \
                 7 % of the time of 32 threads is spent waiting for locks, 1 % for latches",
            ),
        ],
        remark: "DBMS X and PostgreSQL are not here: the rival is this engine with one mutex around each part, as in 1.1. Warehouses have few items and customers when quick, so that they fit a simulated machine; \
                 clients draw warehouses anew each time, so that there is contention as in the paper.",
    }
}

pub(super) fn payment(scale: Scale) -> Experiment {
    Experiment {
        id: "1.3",
        paper: Paper::ShoreMt,
        figure: "Figure 5, right",
        title: "TPC-C's Payment, a warehouse for each client",
        runs: runs(scale, "--mix payment --warehouse-per-client --split --partitions 32"),
        plots: vec![log_lines(EACH, "threads"), lines(ALL, "threads")],
        claims: vec![
            ahead(),
            Claim::at_least(
                "a thread does as much with 32 as alone",
                each(32.0),
                each(1.0),
                0.8,
                0.5,
                "scales to 32 threads",
            ),
        ],
        remark: "The rival is that of 1.2. Fifteen in a hundred payments are for a customer of another warehouse, as TPC-C has it. Each warehouse has tables of its own: in \
                 common ones the rows of 32 warehouses lie on one page, whose latch each payment takes exclusively, and a thread does 0.4 of \
                 what it does alone. The claim is of clients that have nothing in common.",
    }
}
