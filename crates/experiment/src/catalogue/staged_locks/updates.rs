//! The experiments in which some transactions update: figures 13 to 15.

use super::{PLOT, RATE, full_length, lines, log_lines, rate, threads, txbench};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

/// Why few give way under one mutex, too.
const DREADLOCKS_NEED_NO_MUTEX: &str = "MySQL's deadlock checks hold the mutex that everybody waits for; Dreadlocks, which look for \
    them here, need none, whatever the lock table";
/// Why one mutex is further behind.
const TRANSACTIONS_ARE_SHORT: &str = "ten locked rows take a core 8 µs here (two threads), and 240 µs there, through the server and its network: the mutex is a \
    larger part of a transaction, and two threads fill it, where MySQL's peak is that of 20";
const ABORTED: &str = "share of attempts aborted";
const READING: &str = "nobody updates, commits/s";

/// As [`txbench`], with updates.
fn updating(scale: Scale, table: &str, rows: u32, threads: u32, rest: &str) -> String {
    // As many rows as in the paper, where transactions lock many of them. Under one mutex they take long.
    let quick = match (rows > 10, table) {
        (true, "global_mutex") => "--keys 100000 --seconds 0.12 --warm-up 0.04 --set log_buffer_bytes=64MiB",
        (true, _) => "--keys 100000 --seconds 0.03 --warm-up 0.01 --set log_buffer_bytes=64MiB",
        // By 200 threads on 32 cores a turn of each takes several milliseconds, and 10 are not enough for a figure that
        // does not hang on the seed.
        (false, _) => "--keys 20000 --seconds 0.03 --warm-up 0.01 --set log_buffer_bytes=64MiB",
    };
    let length = scale.pick(quick, full_length(table, rows));
    format!(
        "bench txbench --rows {rows} --profile r810 --cores 32 --threads {threads} --durability lazy --set lock_table={table} \
         --updates 0.2 {length} {rest}"
    )
    .trim_end()
    .to_owned()
}

pub(super) fn aborts(scale: Scale) -> Experiment {
    let mut runs = Vec::new();
    for table in ["staged", "global_mutex"] {
        for &threads in scale.pick(&[8, 64, 200][..], threads(scale)) {
            let takes = [
                Take::whole(PLOT, table, threads, RATE),
                Take::whole(ABORTED, table, threads, Value::Aborted),
            ];
            runs.push(Run::simulated(updating(scale, table, 100, threads, ""), takes));
            let reading = updating(scale, table, 100, threads, "").replace("--updates 0.2 ", "");
            runs.push(Run::simulated(reading, [Take::whole(READING, table, threads, RATE)]));
        }
    }
    let reading = |series: &str| Quantity::spot(READING, series, At::Last);
    let aborted = |series: &str| Quantity::spot(ABORTED, series, At::Peak);
    Experiment {
        id: "2.5",
        paper: Paper::StagedLocks,
        figure: "Figure 13",
        title: "100 rows, nobody or a fifth of the transactions update, 32 cores: throughput and aborts",
        runs,
        plots: vec![log_lines(PLOT, "threads"), log_lines(READING, "threads"), lines(ABORTED, "threads")],
        claims: vec![
            Claim::at_least(
                "reading only: ahead under load",
                reading("staged"),
                reading("global_mutex"),
                2.0,
                1.1,
                "several times",
            ),
            Claim::at_most(
                "updates cost throughput under load, by lock conflicts",
                rate("staged", At::Last),
                reading("staged"),
                0.9,
                1.0,
                "a degradation",
            ),
            Claim::at_most(
                "few transactions are aborted",
                aborted("staged"),
                Quantity::Is(1.0),
                0.067,
                0.2,
                "at worst 6.7 %",
            ),
            Claim::at_least(
                "many with one mutex",
                aborted("global_mutex"),
                Quantity::Is(1.0),
                0.2,
                0.067,
                "up to 46 %",
            )
            .because(Cause::Experiment, DREADLOCKS_NEED_NO_MUTEX),
            Claim::at_least(
                "ahead under load",
                rate("staged", At::Last),
                rate("global_mutex", At::Last),
                2.0,
                1.1,
                "several times",
            ),
        ],
        remark: "MySQL aborts so many because its deadlock checks hold the mutex for which everybody waits. Here both lock tables \
                 have the same Dreadlocks, which need no mutex: the difference in aborts is not the lock table's.",
    }
}

pub(super) fn lifetimes(scale: Scale) -> Experiment {
    const LIFE: &str = "median lifetime, µs";
    let mut runs = Vec::new();
    for table in ["staged", "global_mutex"] {
        for &threads in scale.pick(&[8, 32, 200][..], threads(scale)) {
            let take = |kind, place| Take::whole(LIFE, format!("{table}, {kind}"), threads, Value::Of(place));
            let takes = [
                take("reading", "/by_kind/read_only/latency_us/p50"),
                take("updating", "/by_kind/read_update/latency_us/p50"),
            ];
            runs.push(Run::simulated(updating(scale, table, 100, threads, ""), takes));
        }
    }
    let life = |series: &str, at| Quantity::spot(LIFE, series, at);
    Experiment {
        id: "2.6",
        paper: Paper::StagedLocks,
        figure: "Figure 14",
        title: "How long transactions take under the load of 2.5",
        runs,
        plots: vec![log_lines(LIFE, "threads")],
        claims: vec![
            Claim::at_most(
                "readers take no longer under load than their turn on the cores",
                life("staged, reading", At::Last),
                life("staged, reading", At::X(32.0)),
                scale.pick(200.0, 500.0) / 32.0 * 1.5,
                scale.pick(200.0, 500.0) / 32.0 * 3.0,
                "flat",
            ),
            Claim::at_least(
                "with one mutex they take much longer",
                life("global_mutex, reading", At::Last),
                life("staged, reading", At::Last),
                2.0,
                1.1,
                "both kinds explode",
            ),
        ],
        remark: "The paper's clients are remote, so that their servers wait for the network between statements. Here nothing lies between \
                 transactions.",
    }
}

pub(super) fn hotspot(scale: Scale) -> Experiment {
    let mut runs = Vec::new();
    let points = scale.pick(&[2, 20, 200][..], &[1, 2, 20, 64, 200, 500][..]);
    for table in ["staged", "global_mutex"] {
        for &threads in points {
            let reading = Take::whole(PLOT, format!("{table}, reading"), threads, RATE);
            runs.push(Run::simulated(txbench(scale, table, 10, 32, threads), [reading]));
            let takes = [
                Take::whole(PLOT, format!("{table}, hotspot"), threads, RATE),
                Take::whole(ABORTED, format!("{table}, hotspot"), threads, Value::Aborted),
            ];
            runs.push(Run::simulated(updating(scale, table, 10, threads, "--hot 0.05"), takes));
        }
    }
    Experiment {
        id: "2.7",
        paper: Paper::StagedLocks,
        figure: "Figure 15",
        title: "10 rows, 32 cores: readers everywhere, and a fifth of updates within 5 % of the rows",
        runs,
        plots: vec![log_lines(PLOT, "threads"), lines(ABORTED, "threads")],
        claims: vec![
            Claim::times(
                "reading: 4.4 times the peak",
                rate("staged, reading", At::Peak),
                rate("global_mutex, reading", At::Peak),
                4.4,
                2.0,
            )
            .because(Cause::Experiment, TRANSACTIONS_ARE_SHORT),
            Claim::times(
                "reading: 9.7 times under load",
                rate("staged, reading", At::Last),
                rate("global_mutex, reading", At::Last),
                9.7,
                2.0,
            )
            .because(Cause::Experiment, TRANSACTIONS_ARE_SHORT),
            Claim::times(
                "hotspot: 3.8 times the peak",
                rate("staged, hotspot", At::Peak),
                rate("global_mutex, hotspot", At::Peak),
                3.8,
                2.0,
            )
            .because(Cause::Experiment, TRANSACTIONS_ARE_SHORT),
            Claim::times(
                "hotspot: 16.5 times under load",
                rate("staged, hotspot", At::Last),
                rate("global_mutex, hotspot", At::Last),
                16.5,
                2.0,
            ).because(Cause::Experiment, "when quick 5 % of the rows are 1,000, and 5,000 there: with the staged table 200 threads wait for each other's rows for 63 % of their time"),
            Claim::at_most(
                "hotspot: hardly anybody is aborted",
                Quantity::spot(ABORTED, "staged, hotspot", At::Peak),
                Quantity::Is(1.0),
                0.0019,
                0.05,
                "0.19 %",
            )
            .because(
                Cause::Experiment,
                "when quick 5 % of the rows are 1,000, and 5,000 there: conflicts are five times as frequent",
            ),
            Claim::at_least(
                "hotspot: with one mutex many are",
                Quantity::spot(ABORTED, "global_mutex, hotspot", At::Peak),
                Quantity::Is(1.0),
                0.22,
                0.05,
                "44 %",
            )
            .because(Cause::Experiment, DREADLOCKS_NEED_NO_MUTEX),
        ],
        remark: "Under load is 500 threads in the paper, 200 when quick. With 20,000 rows a table when quick, 5 % are 1,000 rows: \
                 conflicts are more frequent than in the paper's 100,000.",
    }
}
