//! Commits on their way to a slow disk: figures 7, 8 and 9.

use super::{PLOT, RATE, bars, lines, log_lines, rate};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

/// The original Shore-MT, which releases shared locks early at most: locks on the next key, inherited intent locks,
/// Dreadlocks that spin and are not confirmed, the youngest gives way, and the pool and the log that the ladder (1.5)
/// ends with.
const SHORE_MT: &str = "--set key_range_modes=next_key --set intent_locks=inherited --set deadlock_policy=dreadlocks_spin \
    --set deadlock_digests=bloom --set deadlock_confirmation=false --set victim_policy=youngest --set translation=cuckoo \
    --set transit=many_lists --set latch_mode=always_shared --set log_insert=compare_exchange";
const ORIGINAL: &str = "original Shore-MT, 10ms";

/// Why early release gains less on a slow disk.
const ALONE_ON_A_SLOW_DISK: &str = "whoever is alone does much: without early release one pipeline keeps the locks that all need and commits 110,000 a \
                 second; with it six do 442,000, and with 30 µs 489,000 where all tellers are alike";

/// Why policies differ more.
const A_FLUSH_IS_DEAR: &str = "a flush for a victim costs as many transactions as it lasts, and they are faster here: one pipeline alone commits 106,000 a \
    second, so that 10 ms are a thousand transactions, and 30 µs three";

pub(super) fn victims(scale: Scale) -> Experiment {
    let run = |latency: &str, length: &str| {
        let take = Take::each(PLOT, "/rows", "{/side}, {/log_latency}", "1", RATE);
        Run::simulated(
            format!("bench killpolicy --cores 6 --device nvram --log-latency {latency} {length}"),
            [take],
        )
    };
    Experiment {
        id: "3.5",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 7",
        title: "Deadlocks between pipelines: who gives way",
        runs: vec![
            run("10ms", scale.pick("--seconds 0.4 --warm-up 0.05", "--seconds 2")),
            run("30us", scale.pick("--seconds 0.02 --warm-up 0.005", "--seconds 0.5")),
        ],
        plots: vec![bars(PLOT, "")],
        claims: vec![
            Claim::times(
                "a slow disk: ending the shortest pipeline is 2 to 4 times as fast as ending the longest",
                rate("shortest_pipeline, 10ms", At::First),
                rate("longest_pipeline, 10ms", At::First),
                3.0,
                1.5,
            )
            .because(Cause::Experiment, A_FLUSH_IS_DEAR),
            Claim::alike(
                "ending the youngest is as bad as ending the longest",
                rate("youngest, 10ms", At::First),
                rate("longest_pipeline, 10ms", At::First),
                2.0,
                "behaves similarly",
            )
            .because(
                Cause::Experiment,
                "which of the two is worse is a matter of how many deadlocks come before one pipeline is alone, each with a flush of 10 ms: 168 for 1,000 commits \
                 with the youngest, 89 with the longest",
            ),
            Claim::alike(
                "a fast disk: the difference is small",
                rate("shortest_pipeline, 30us", At::First),
                rate("longest_pipeline, 30us", At::First),
                1.25,
                "small",
            )
            .because(Cause::Experiment, A_FLUSH_IS_DEAR),
        ],
        remark: "The mechanism is the paper's: ending the shortest pipeline soon leaves one that nobody stops, the other policies go on \
                 fighting, with a flush for each victim. Its factor is what such a flush costs in transactions: 10 ms are many more of \
                 them in a faster engine, so the factor is larger here. A branch has 1,000 accounts, the paper's 100,000.",
    }
}

pub(super) fn early_release(scale: Scale) -> Experiment {
    let run = |latency: &str, ratios: &str, length: &str| {
        let arguments = format!(
            "bench elr --cores 6 --device nvram --read-ratio {ratios} --log-latency {latency} {length}"
        );
        Run::simulated(
            arguments,
            [Take::each(PLOT, "/rows", "{/side}, {/log_latency}", "{/read_ratio}", RATE)],
        )
    };
    let all = "0,0.25,0.5,0.75,1";
    let at = At::X;
    Experiment {
        id: "3.6",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 8",
        title: "Early lock release: TPC-B on a slow disk, six pipelines",
        runs: vec![
            run("10ms", scale.pick("0", all), scale.pick("--seconds 0.4 --warm-up 0.1", "--seconds 0.3")),
            run(
                "30us",
                scale.pick("0,1", all),
                scale.pick("--seconds 0.02 --warm-up 0.005", "--seconds 0.3"),
            ),
            Run::simulated(
                format!("bench elr --cores 6 --device nvram --read-ratio 0 --log-latency 10ms --elr shared --seconds 0.4 --warm-up 0.05 {SHORE_MT}"),
                [Take::each(PLOT, "/rows", ORIGINAL, "{/read_ratio}", RATE)],
            ),
        ],
        plots: vec![log_lines(PLOT, "share of updates turned into reads")],
        claims: vec![
            Claim::times(
                "all locks released early, 10 ms: 5 times as fast",
                rate("shared_and_exclusive, 10ms", at(0.0)),
                rate("off, 10ms", at(0.0)),
                5.0,
                1.6,
            ).because(Cause::Experiment, "how often a pipeline waits for the disk without early release is a matter of few deadlocks: 442,000 commits/s if all locks are released early, 110,000 if none is"),
            Claim::times(
                "30 µs: 3 times",
                rate("shared_and_exclusive, 30us", at(0.0)),
                rate("off, 30us", at(0.0)),
                3.0,
                1.6,
            ),
            Claim::alike(
                "shared locks alone gain nothing",
                rate("shared, 10ms", at(0.0)),
                rate("off, 10ms", at(0.0)),
                1.15,
                "nothing",
            )
            .because(
                Cause::Experiment,
                "too few deadlocks to tell: 10 without and 7 with it in 0.1 s, each of which waits 10 ms for the disk",
            ),
            Claim::at_least(
                "10 ms: up to 50 times the original Shore-MT",
                rate("shared_and_exclusive, 10ms", at(0.0)),
                rate(ORIGINAL, at(0.0)),
                50.0,
                5.0,
                "sometimes more than 50 ×",
            ),
            Claim::at_least(
                "with reads only, no early release is at most 5 % ahead",
                rate("shared_and_exclusive, 30us", at(1.0)),
                rate("off, 30us", at(1.0)),
                0.95,
                0.8,
                "5 %",
            )
            .because(
                Cause::Technique,
                "the history is still written, so that without early release a pipeline keeps its locks on it for its next \
                 transaction, and asks for fewer anew",
            ),
        ],
        remark: "The original Shore-MT is this engine with its locks, Dreadlocks, pool and log. A branch has 1,000 accounts, the paper's 100,000.",
    }
}

pub(super) fn skew(scale: Scale) -> Experiment {
    const TIMES: &str = "times as fast as without early release";
    let run = |latency: &str, zipf: &str, length: &str| {
        let arguments = format!(
            "bench elr --cores 6 --device nvram --read-ratio 0 --elr off,shared_and_exclusive --zipf {zipf} --log-latency {latency} {length}"
        );
        let take = Take::each(TIMES, "/rows", "{/log_latency}", "{/zipf}", Value::Of("/ratio"));
        Run::simulated(arguments, [take.only("/side", "shared_and_exclusive")])
    };
    let all = "0,0.5,1,1.5,2";
    let times = |series: &str, at| Quantity::spot(TIMES, series, At::X(at));
    Experiment {
        id: "3.7",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 9",
        title: "What early lock release gains, by skew and latency of the log",
        runs: scale.pick(
            vec![
                run("10ms", "1", "--seconds 0.4 --warm-up 0.1"),
                run("30us", "0,1,2", "--seconds 0.02 --warm-up 0.005"),
            ],
            ["0", "30us", "100us", "1ms", "10ms"].map(|latency| run(latency, all, "--seconds 0.3")).to_vec(),
        ),
        plots: vec![lines(TIMES, "exponent of Zipf's law")],
        claims: vec![
            Claim::times("10 ms, Zipf 1: 5 times", times("10ms", 1.0), Quantity::Is(1.0), 5.0, 1.6)
                .because(Cause::Technique, ALONE_ON_A_SLOW_DISK),
            Claim::times("30 µs, Zipf 1: 3 times", times("30us", 1.0), Quantity::Is(1.0), 3.0, 1.6),
            Claim::at_least(
                "the slower the disk, the more is gained",
                times("10ms", 1.0),
                times("30us", 1.0),
                1.1,
                1.0,
                "5 times, and 3",
            )
            .because(Cause::Technique, ALONE_ON_A_SLOW_DISK),
        ],
        remark: "Beyond Zipf 1 the most popular branch is the bottleneck of both sides, and the gain goes: one pipeline that keeps that \
                 lock loses nothing by being alone. A branch has 1,000 accounts, the paper's 100,000.",
    }
}
