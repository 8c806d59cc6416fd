//! Updates of one table, whose records are chosen alike or from a hot set: figures 4, 12 and 13.

use super::{PLOT, System, dreadlocks, lines, log_lines, point, ycsb};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale},
};

/// Why wait-die is ahead where nearly everybody waits.
const SLEEPERS_HOLD: &str = "who waits for a lock sleeps here, and a lock that is handed to a sleeper is held while it wakes; who \
                             dies leaves the hot records to those who run";
/// Why wait-die does not fall.
const DEAD_PAUSE: &str = "who dies pauses before it runs again, the longer the more often it has died: 80 cores have 1.6 deaths for each commit, and do 253,000 \
                          commits/s, 20 cores 209,000";
/// Why it makes no difference to those who lock first which of their records are hot.
const HELD_THROUGHOUT: &str = "deadlock-free locking asks for locks in the order of their hashed names, and holds what is hot throughout, wherever it comes: two \
                               hot records first, last, anywhere: 211,000, 209,000, 202,000 commits/s. Who locks as it goes \
                               holds what comes last only briefly, and deadlocks are few: 24 for 2,191 commits";
/// Why nobody is far ahead where locks are waited for little: the paper's systems have no log.
const TAIL_OF_THE_LOG: &str = "ten updates change the log's tail twelve times, and its line moves six times in a microsecond: nobody does more than 508,000 commits/s. \
                               One hot record first, last, anywhere: deadlock-free 486,000, 486,000, 490,000, the best 2PL 504,000, 505,000, 433,000. With the \
                               hot one last Dreadlocks wait for that line for 42 % of their time, and deadlock-free for 8 %. The paper's systems have no log";
/// Why one partition is not ahead of locking where nobody waits.
pub(super) const LOCKS_ARE_CHEAP: &str = "a shared lock is two atomic changes here, where the paper's are latches and lists: a store \
                               without any locks is 3 % ahead of locking, and for that a fifth of the cores is given up \
                               (crates/orthrus/MEASURED.md)";
/// Why several partitions are behind where a few records are hot.
const HELD_MEANWHILE: &str = "the hot locks of one partition are held while those of the next are waited for: 628 µs, if there \
                              are two, in place of 223 (crates/orthrus/MEASURED.md)";

/// Ten records, two of the 64 hot ones first.
pub(super) const HOT_64: &str = "--distribution hot:64 --hot-operations 2";
const UPDATING: &str = "--read-percent 0";

pub(super) const WAIT_DIE: System = System::Locking("wait_die");
const GRAPH: System = System::Locking("wait_for_graph");

pub(super) fn rate(system: System, at: At) -> Quantity {
    Quantity::spot(PLOT, system.name(), at)
}

/// Each system on each number of cores.
pub(super) fn by_cores(scale: Scale, systems: &[System], cores: &[u32], rest: &str) -> Vec<Run> {
    let pairs = systems.iter().flat_map(|system| cores.iter().map(move |cores| (*system, *cores)));
    pairs.map(|(system, cores)| point(ycsb(scale, system, cores, rest), system, cores)).collect()
}

pub(super) fn cores(scale: Scale) -> &'static [u32] {
    scale.pick(&[10, 80], &[10, 20, 40, 60, 80])
}

pub(super) fn deadlock_handling(scale: Scale) -> Experiment {
    let mut runs = Vec::new();
    let dreadlocks = dreadlocks(scale);
    let systems = [System::DeadlockFree, WAIT_DIE, dreadlocks, GRAPH];
    for &hot in scale.pick(&[64_u32, 1024][..], &[4, 16, 64, 256, 1024, 4096][..]) {
        for cores in [10, 80] {
            for system in systems {
                let rest = format!("{UPDATING} --distribution hot:{hot} --hot-operations 2");
                let mut run = point(ycsb(scale, system, cores, &rest), system, hot);
                run.takes[0].plot = if cores == 10 { "10 cores, commits/s" } else { "80 cores, commits/s" };
                runs.push(run);
            }
        }
    }
    let on = |plot, system: System, at| Quantity::spot(plot, system.name(), at);
    let many = |system, at| on("80 cores, commits/s", system, at);
    let few = |system, at| on("10 cores, commits/s", system, at);
    // By how much each is ahead of each.
    let apart = |at| {
        let pairs = systems.into_iter().flat_map(|one| systems.map(|other| (few(one, at), few(other, at))));
        pairs.map(|both| Quantity::Ratio(Box::new(both))).collect::<Vec<_>>()
    };
    // The most contended point of the paper.
    let at_64 = At::X(64.0);
    Experiment {
        id: "5.2",
        paper: Paper::Orthrus,
        figure: "Figure 4",
        title: "Ten updates, two of them hot: what handling deadlocks costs, by the number of hot records",
        runs,
        plots: vec![
            log_lines("80 cores, commits/s", "hot records"),
            log_lines("10 cores, commits/s", "hot records"),
        ],
        claims: vec![
            Claim::times(
                "80 cores, most contended: deadlock-free is 2.2 times wait-die",
                many(System::DeadlockFree, at_64),
                many(WAIT_DIE, at_64),
                2.2,
                1.6,
            )
            .because(Cause::Technique, SLEEPERS_HOLD),
            Claim::times(
                "5.5 times dreadlocks",
                many(System::DeadlockFree, at_64),
                many(dreadlocks, at_64),
                5.5,
                1.6,
            ),
            Claim::times(
                "5.5 times the wait-for graph",
                many(System::DeadlockFree, at_64),
                many(GRAPH, at_64),
                5.5,
                1.6,
            ),
            Claim::at_least(
                "80 cores, little contention: deadlock-free is best, too",
                many(System::DeadlockFree, At::Last),
                Quantity::Best(vec![
                    many(WAIT_DIE, At::Last),
                    many(dreadlocks, At::Last),
                    many(GRAPH, At::Last),
                ]),
                1.0,
                0.97,
                "always best",
            )
            .because(
                Cause::Technique,
                "they are within one percent: where transactions hardly meet, handling deadlocks costs nothing here",
            ),
            Claim::at_most(
                "10 cores: no two differ much, however many records are hot",
                Quantity::Best([at_64, At::Last].into_iter().flat_map(apart).collect()),
                Quantity::Is(1.0),
                1.3,
                1.5,
                "small differences",
            ),
        ],
        remark: "Quick: Dreadlocks are the engine's own, who sleep; otherwise they spin, as theirs do. 10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}

pub(super) fn updates(scale: Scale) -> Experiment {
    let systems = [
        System::Orthrus(Some(1)),
        System::Orthrus(Some(2)),
        System::Orthrus(None),
        System::DeadlockFree,
        WAIT_DIE,
    ];
    let points = scale.pick(&[20, 80][..], cores(scale));
    const ALIKE: &str = "all records alike, commits/s";
    let at = At::X(80.0);
    let mut runs = by_cores(scale, &systems, points, &format!("{UPDATING} {HOT_64}"));
    runs.extend(by_cores(scale, &systems, points, UPDATING).into_iter().map(|mut run| {
        run.takes[0].plot = ALIKE;
        run
    }));
    let uniform = |system: System| Quantity::spot(ALIKE, system.name(), at);
    let times = |says, touched, paper| {
        Claim::times(says, rate(System::Orthrus(touched), at), rate(WAIT_DIE, at), paper, 1.6)
    };
    Experiment {
        id: "5.11",
        paper: Paper::Orthrus,
        figure: "Figure 12",
        title: "Ten updates, two of 64 hot records among them; and all records alike",
        runs,
        plots: vec![lines(PLOT, "cores"), lines(ALIKE, "cores")],
        claims: vec![
            Claim::order(
                "all records alike: the fewer partitions, the better",
                [Some(1), Some(2), None].map(|touched| uniform(System::Orthrus(touched))),
                "as reading: single, dual, random",
            ).because(Cause::Technique, "messages are little beside ten updates: 512,000, 510,000 and 512,000 commits/s"),
            Claim::at_least(
                "single-partition ORTHRUS is ahead of locking then",
                uniform(System::Orthrus(Some(1))),
                Quantity::Best(vec![uniform(System::DeadlockFree), uniform(WAIT_DIE)]),
                1.05,
                0.97,
                "as reading",
            )
            .because(Cause::Technique, LOCKS_ARE_CHEAP),
            Claim::alike(
                "and 2PL and deadlock-free locking are alike",
                uniform(WAIT_DIE),
                uniform(System::DeadlockFree),
                1.2,
                "as reading",
            ).because(Cause::Experiment, "80 threads have 800 of the 10,000 records locked at a time: wait-die ends 665 of 2,927 attempts early. Of the paper's 10 million hardly any meet"),
            times("ORTHRUS, random, at 80 cores: 2.3 times wait-die", None, 2.3)
                .because(Cause::Technique, HELD_MEANWHILE),
            times("dual: 3.35 times", Some(2), 3.35).because(Cause::Technique, HELD_MEANWHILE),
            times("single: 4.65 times", Some(1), 4.65).because(Cause::Technique, DEAD_PAUSE),
            Claim::alike(
                "deadlock-free locking is flat from 20 cores on",
                rate(System::DeadlockFree, at),
                rate(System::DeadlockFree, At::X(20.0)),
                1.3,
                "1,000,000/s from 20 on",
            ),
            Claim::at_most(
                "wait-die falls from 20 cores on",
                rate(WAIT_DIE, at),
                rate(WAIT_DIE, At::X(20.0)),
                0.9,
                1.0,
                "falls",
            )
            .because(
                Cause::Technique,
                DEAD_PAUSE,
            ),
        ],
        remark: "10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}

pub(super) fn positions(scale: Scale) -> Experiment {
    const CASES: [(u32, &str); 6] =
        [(2, "first"), (2, "last"), (2, "random"), (1, "first"), (1, "last"), (1, "random")];
    let dreadlocks = dreadlocks(scale);
    let systems = [System::DeadlockFree, WAIT_DIE, dreadlocks, GRAPH];
    let mut runs = Vec::new();
    for &hot in scale.pick(&[64_u32, 1024][..], &[4, 16, 64, 256, 1024][..]) {
        // When quick, few are hot in all cases, and many in the one that a claim speaks of.
        let wanted =
            |case: &&(u32, &str)| hot == 64 || matches!((scale, case), (Scale::Full, _) | (_, (2, "last")));
        for &(count, position) in CASES.iter().filter(wanted) {
            for system in systems {
                let rest = format!(
                    "{UPDATING} --distribution hot:{hot} --hot-operations {count} --hot-position {position}"
                );
                let mut run = point(ycsb(scale, system, 80, &rest), system, hot);
                run.takes[0].series = format!("{count} hot {position}: {}", system.name());
                runs.push(run);
            }
        }
    }
    let at =
        |case: &str, system: System| Quantity::spot(PLOT, format!("{case}: {}", system.name()), At::X(64.0));
    let best = |case: &str| Quantity::Best(systems[1..].iter().map(|&system| at(case, system)).collect());
    let free = |case: &str| at(case, System::DeadlockFree);
    let last =
        |system: System, hot| Quantity::spot(PLOT, format!("2 hot last: {}", system.name()), At::X(hot));
    Experiment {
        id: "5.12",
        paper: Paper::Orthrus,
        figure: "Figure 13",
        title: "Ten updates on 80 cores, one or two of them hot: first, last, anywhere",
        runs,
        plots: vec![log_lines(PLOT, "hot records")],
        claims: vec![
            Claim::times(
                "two hot first: deadlock-free is 2.2 times the best 2PL",
                free("2 hot first"),
                best("2 hot first"),
                2.2,
                1.6,
            )
            .because(Cause::Technique, SLEEPERS_HOLD),
            Claim::times("one hot first: 1.4 times", free("1 hot first"), best("1 hot first"), 1.4, 1.4)
                .because(Cause::Technique, TAIL_OF_THE_LOG),
            Claim::at_least(
                "two hot last, of 1,024: 2PL is ahead",
                Quantity::Best(systems[1..].iter().map(|&system| last(system, 1024.0)).collect()),
                last(System::DeadlockFree, 1024.0),
                1.05,
                0.97,
                "ahead at first",
            ).because(Cause::Technique, "both do what the log's tail gives, 505,000 commits/s: who locks first waits for locks for 13 % of its time and for that line for 30 %, who locks as it goes for 5 % \
                 and 51 %"),
            Claim::at_least(
                "of 64: deadlock-free is",
                free("2 hot last"),
                best("2 hot last"),
                1.05,
                0.97,
                "ahead of all",
            )
            .because(Cause::Experiment, HELD_THROUGHOUT),
            Claim::times(
                "one hot last: dreadlocks are 1.5 times deadlock-free",
                at("1 hot last", dreadlocks),
                free("1 hot last"),
                1.5,
                1.4,
            )
            .because(Cause::Technique, TAIL_OF_THE_LOG),
            Claim::times(
                "the wait-for graph is 1.3 times deadlock-free",
                at("1 hot last", GRAPH),
                free("1 hot last"),
                1.3,
                1.4,
            )
            .because(Cause::Technique, TAIL_OF_THE_LOG),
            Claim::at_least(
                "two hot anywhere: deadlock-free is ahead",
                free("2 hot random"),
                best("2 hot random"),
                1.05,
                0.97,
                "always ahead",
            )
            .because(Cause::Technique, SLEEPERS_HOLD),
            Claim::at_least(
                "one hot anywhere: deadlock-free is ahead",
                free("1 hot random"),
                best("1 hot random"),
                1.05,
                0.97,
                "always ahead",
            ),
        ],
        remark: "Quick: Dreadlocks are the engine's own, who sleep; otherwise they spin. Deadlock-free locking asks for locks in the order of their hashed names here, not of the keys: hot records are neither first \
                 nor last among them, so that it holds them longer than the paper's does when they come last, and shorter when first. 10,000 records when quick, 200,000 otherwise; the paper has 10 million.",
    }
}
