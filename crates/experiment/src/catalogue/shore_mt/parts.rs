//! One part of the engine at a time: the mutex of the free space (figure 6), and what is counted (§6).

use super::{PER_THREAD, bars, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

/// Why many threads gain little.
const BITMAP_LATCH: &str = "the mutex is not what 32 threads wait for: behind it is the latch of one bitmap \
    page, which takes four fifths of their time whatever the mutex is. The road has run \
    lists for each thread instead";

/// Why one thread gains little.
const ALONE: &str = "a thread alone waits for no lock, and what it spends on the mutex is little beside \
    five records of 2,000 bytes";

pub(super) fn free_space(scale: Scale) -> Experiment {
    const EACH: &str = "commits/s of a thread";
    const KINDS: [(&str, &str); 4] = [
        ("mutex", "global_mutex"),
        ("test and test-and-set", "global_ttas"),
        ("MCS", "global_mcs"),
        ("refactored", "uncached"),
    ];
    let mut runs = Vec::new();
    for (name, kind) in KINDS {
        for &threads in scale.pick(&[1, 32][..], &[1, 2, 4, 8, 16, 32][..]) {
            let arguments = format!(
                "bench insert --profile niagara32 --cores {threads} --threads {threads} --commit-every 5 --value-bytes 2000 \
                 --durability lazy --set free_space={kind} --set pool_bytes=64MiB {}",
                scale.pick("--seconds 0.012 --warm-up 0.002", "--seconds 0.03 --warm-up 0.01")
            );
            runs.push(Run::simulated(arguments, [Take::whole(EACH, name, threads, PER_THREAD)]));
        }
    }
    let each = |name: &str, threads| Quantity::spot(EACH, name, At::X(threads));
    let times = |says, name, threads, paper| {
        Claim::times(says, each(name, threads), each("mutex", threads), paper, 1.4)
    };
    Experiment {
        id: "1.4",
        paper: Paper::ShoreMt,
        figure: "Figure 6",
        title: "One contended mutex, that of the free space: other locks, and none while latches are waited for",
        runs,
        plots: vec![log_lines(EACH, "threads")],
        claims: vec![
            times("test and test-and-set: 90 % more by one thread", "test and test-and-set", 1.0, 1.9)
                .because(Cause::Technique, ALONE),
            Claim::alike(
                "by 32 threads it changes nothing",
                each("test and test-and-set", 32.0),
                each("mutex", 32.0),
                1.3,
                "unchanged",
            ),
            Claim::at_least(
                "MCS: more by 32 threads",
                each("MCS", 32.0),
                each("mutex", 32.0),
                1.3,
                1.05,
                "scales better",
            )
            .because(Cause::Technique, BITMAP_LATCH),
            times("refactored: 30 % less by one thread", "refactored", 1.0, 0.7)
                .because(Cause::Technique, ALONE),
            times("refactored: three times by 32", "refactored", 32.0, 3.0)
                .because(Cause::Technique, BITMAP_LATCH),
        ],
        remark: "Records have 2,000 bytes, so that a page is allocated for every few of them. The engine around the mutex is what it is today: one \
                 thread does not wait for it, so that neither a cheaper lock nor a longer way to it shows as much as in the paper's.",
    }
}

pub(super) fn counts(scale: Scale) -> Experiment {
    const SEARCHES: &str = "searches for each page allocated";
    const CHANGES: &str = "atomic changes for each transaction";
    let insert = |kind: &str, x: u32| {
        let arguments = format!(
            "bench insert --iterations {} --commit-every 100 --durability lazy --set free_space={kind}",
            scale.pick(100, 1000)
        );
        let searches = Value::Per("/counters/page_searches", "/counters/page_allocations");
        Run::real(arguments, [Take::whole(SEARCHES, "searches", x, searches)])
    };
    let read = |options: &str, x: u32| {
        let arguments = format!(
            "bench ycsb --records 2000 --read-percent 100 --threads 1 --cores 1 --durability lazy --seconds 0.001 --warm-up 0.0005 {options}"
        );
        let changes = Value::Of("/simulation/per_transaction/atomic_changes");
        Run::simulated(arguments.trim_end(), [Take::whole(CHANGES, "ten reads", x, changes)])
    };
    let searches = |x| Quantity::spot(SEARCHES, "searches", At::X(x));
    let changes = |x| Quantity::spot(CHANGES, "ten reads", At::X(x));
    Experiment {
        id: "1.7",
        paper: Paper::ShoreMt,
        figure: "§6",
        title: "What is counted: searches for free pages, and atomic changes of ten reads",
        runs: vec![
            insert("uncached", 1),
            insert("cached", 2),
            read("--set translation=global_mutex --set latch_mode=always_shared", 1),
            read("--set translation=bucketed --set latch_mode=always_shared", 2),
            read("", 3),
        ],
        plots: vec![
            bars(SEARCHES, "1 without caches, 2 with"),
            bars(CHANGES, "1 one mutex and shared latches, 2 a mutex for each bucket, 3 road"),
        ],
        claims: vec![
            Claim::at_most(
                "caches of extents take away 95 % of the searches",
                searches(2.0),
                searches(1.0),
                0.05,
                0.2,
                "over 95 %",
            )
            .because(
                Cause::Experiment,
                "few pages are allocated when it is quick, and the first search of each thread counts",
            ),
            Claim::at_most(
                "optimistic latches and a table without mutexes take away most changes of shared memory",
                changes(3.0),
                changes(1.0),
                0.67,
                0.9,
                "one of three critical sections; later all",
            ),
        ],
        remark: "The paper went from three critical sections for each visit of a page to two, by pinning what is pinned already without one. This \
                 engine has no pins: a reader's latch is a version that it looks at twice. What remains are its locks.",
    }
}
