//! Ten reads: figures 1 and 11.

use super::{
    PLOT, System,
    contention::{HOT_64, LOCKS_ARE_CHEAP, WAIT_DIE, by_cores, cores, rate},
    lines, point, ycsb,
};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Scale, Take, Value},
};

/// What carries the locks of a transaction.
const MESSAGES: &str = "messages for the locks of a transaction";
const READING: &str = "--read-percent 100";
/// Why a latch for each bucket does not keep anybody from scaling.
const LATCHES_ARE_BRIEF: &str = "a latch for each bucket, which sharers take as there, is held too briefly: 40 cores do 1,423,000 commits/s, 80 do 2,835,000, \
    and spin for 0.5 % of their time. Each of the 64 hot buckets is then visited once in 5.6 µs. Why the paper's falls was not found \
    out; a lock that all share falls";
/// Each transaction shares a lock on the table, too.
const SHARING: System = System::SharingTheTable("wait_die");
/// As the paper's lock table is.
const WAIT_DIE_LATCHING: System = System::Latching("wait_die");

pub(super) fn reads(scale: Scale) -> Experiment {
    let cores = scale.pick(&[10, 40, 80][..], cores(scale));
    Experiment {
        id: "5.1",
        paper: Paper::Orthrus,
        figure: "Figure 1",
        title: "Ten reads, two of 64 hot records among them, under two-phase locking: no conflict, and yet no scaling",
        runs: by_cores(scale, &[WAIT_DIE_LATCHING, WAIT_DIE, SHARING], cores, &format!("{READING} {HOT_64}")),
        plots: vec![lines(PLOT, "cores")],
        claims: vec![
            Claim::at_most(
                "it does not scale beyond 40 cores",
                rate(WAIT_DIE_LATCHING, At::X(80.0)),
                rate(WAIT_DIE_LATCHING, At::X(40.0)),
                1.1,
                1.2,
                "falls from 40 on",
            )
            .because(Cause::Technique, LATCHES_ARE_BRIEF),
            Claim::at_most(
                "ours: what all share, in a lock table whose queues each request changes, does not",
                rate(SHARING, At::X(80.0)),
                rate(SHARING, At::X(40.0)),
                0.9,
                1.0,
                "not in the paper",
            ),
        ],
        remark: "The paper's lock table has a latch for each bucket, which sharers take, and no intent locks: so has \
                 `lock_table=always_latched`. Two are drawn beside: the engine's own, where sharers come and go without that latch; and \
                 one in which each transaction also shares a lock on the table (`lock_table=staged`, `intent_locks=in_table`). \
                 The engine's own is up to 6 % slower here: where nobody excludes anybody, coming and going without the latch saves nothing. Where the knee lies depends on how long the old owner of a cache line keeps it, and on the window: the collapse sets in late. \
                 Read-only transactions of this engine lock what they read, as the paper's do. 10,000 records when quick, 200,000 \
                 otherwise; the paper has 10 million.",
    }
}

pub(super) fn read_only_uniform(scale: Scale) -> Experiment {
    let systems = [
        System::Orthrus(Some(1)),
        System::Orthrus(Some(2)),
        System::Orthrus(None),
        System::DeadlockFree,
        WAIT_DIE,
    ];
    let at = At::X(80.0);
    let mut runs = by_cores(scale, &systems, cores(scale), READING);
    for (run, system) in
        runs.iter_mut().zip(systems.iter().flat_map(|it| cores(scale).iter().map(move |_| *it)))
    {
        if matches!(system, System::Orthrus(_)) {
            let each = Value::Per("/counters/partitioned_messages", "/counters/partitioned_footprints");
            let x = run.takes[0].x.clone();
            run.takes.push(Take::each(MESSAGES, "", system.name(), x, each));
        }
    }
    let messages = |touched| Quantity::spot(MESSAGES, System::Orthrus(touched).name(), at);
    let sent = |says, touched, paper, within| {
        Claim::alike(says, messages(touched), Quantity::Is(paper), within, paper.to_string())
    };
    Experiment {
        id: "5.9",
        paper: Paper::Orthrus,
        figure: "Figure 11a",
        title: "Ten reads, all records alike: ORTHRUS by the partitions of a transaction, and locking",
        runs,
        plots: vec![lines(PLOT, "cores"), lines(MESSAGES, "cores")],
        claims: vec![
            sent("single: two messages for the locks of a transaction", Some(1), 2.0, 1.01),
            sent("dual: three", Some(2), 3.0, 1.01),
            sent("random: eight to ten", None, 9.0, 1.12),
            Claim::at_least(
                "single-partition ORTHRUS is ahead of locking",
                rate(System::Orthrus(Some(1)), at),
                rate(WAIT_DIE, at),
                1.05,
                0.97,
                "best of all",
            )
            .because(Cause::Technique, LOCKS_ARE_CHEAP),
            Claim::at_least(
                "dual, too",
                rate(System::Orthrus(Some(2)), at),
                rate(WAIT_DIE, at),
                1.05,
                0.97,
                "ahead of 2PL",
            )
            .because(Cause::Technique, LOCKS_ARE_CHEAP),
            Claim::at_least(
                "locking is ahead of random",
                rate(WAIT_DIE, at),
                rate(System::Orthrus(None), at),
                1.05,
                0.97,
                "outperforms it",
            ),
            Claim::order(
                "the fewer partitions, the better",
                [1, 2]
                    .map(|many| rate(System::Orthrus(Some(many)), at))
                    .into_iter()
                    .chain([rate(System::Orthrus(None), at)])
                    .collect::<Vec<_>>(),
                "single, dual, random",
            ),
            Claim::alike(
                "deadlock-free locking and 2PL are alike",
                rate(System::DeadlockFree, at),
                rate(WAIT_DIE, at),
                1.2,
                "nearly the same",
            ),
        ],
        remark: "10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}

pub(super) fn read_only_hot(scale: Scale) -> Experiment {
    const FREE_LATCHING: System = System::LatchingDeadlockFree;
    let systems =
        [System::Orthrus(Some(1)), FREE_LATCHING, WAIT_DIE_LATCHING, System::DeadlockFree, WAIT_DIE];
    let mut runs = by_cores(
        scale,
        &systems,
        scale.pick(&[40, 60, 80][..], cores(scale)),
        &format!("{READING} {HOT_64}"),
    );
    // The same, all alike, to compare with.
    let uniform = System::Orthrus(Some(1));
    let mut run = point(ycsb(scale, uniform, 80, READING), uniform, 80);
    "ORTHRUS, single, uniform".clone_into(&mut run.takes[0].series);
    runs.push(run);
    let at = At::X(80.0);
    Experiment {
        id: "5.10",
        paper: Paper::Orthrus,
        figure: "Figure 11b",
        title: "Ten reads, two of 64 hot records among them",
        runs,
        plots: vec![lines(PLOT, "cores")],
        claims: vec![
            Claim::at_least(
                "ORTHRUS does not mind, and gains a little",
                rate(uniform, at),
                Quantity::spot(PLOT, "ORTHRUS, single, uniform", at),
                1.0,
                0.97,
                "slightly above",
            ),
            Claim::at_most(
                "2PL falls from 60 cores on",
                rate(WAIT_DIE_LATCHING, at),
                rate(WAIT_DIE_LATCHING, At::X(60.0)),
                1.0,
                1.03,
                "decreases",
            )
            .because(Cause::Technique, LATCHES_ARE_BRIEF),
            Claim::at_most(
                "and so does deadlock-free locking",
                rate(FREE_LATCHING, at),
                rate(FREE_LATCHING, At::X(60.0)),
                1.0,
                1.03,
                "decreases",
            )
            .because(Cause::Technique, LATCHES_ARE_BRIEF),
            Claim::alike(
                "nearly the same for both",
                rate(FREE_LATCHING, at),
                rate(WAIT_DIE_LATCHING, at),
                1.2,
                "nearly identical",
            ),
            Claim::at_least(
                "ORTHRUS is ahead of them",
                rate(uniform, at),
                Quantity::Best(vec![rate(WAIT_DIE_LATCHING, at), rate(FREE_LATCHING, at)]),
                1.2,
                1.0,
                "ahead",
            )
            .because(Cause::Technique, LATCHES_ARE_BRIEF),
        ],
        remark: "The lock table of locking is as the paper's, with a latch for each bucket that sharers take; the engine's own, where they do \
                 not, is drawn beside. 10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}
