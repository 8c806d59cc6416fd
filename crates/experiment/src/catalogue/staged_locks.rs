//! Jung et al. 2013. The machine there: four sockets of eight cores, so `r810` here; what was MySQL's lock manager
//! under one mutex is the lock table `global_mutex`, theirs is `staged`.

mod breakdown;
mod updates;

use super::{RATE, bars, lines, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

const PLOT: &str = "commits/s";
/// Why the collapse begins with other numbers of cores.
const KNEE: &str = "the knee lies between 8 and 16 cores here: with 8 the system takes 56 % of their time, for sleeps and wake-ups, and yet \
                    somebody who runs takes the mutex at once; with 16 cores wait for four tenths of the time, while who was woken is on the way";
/// Why more cores do not lower the peak.
const TWO_FILL_THE_MUTEX: &str = "the peak is that of 2 threads, whatever the number of cores: nothing lies between transactions here, and two fill the mutex";
/// Why one mutex is ahead where nobody wants it.
const ALONE_A_MUTEX_IS_CHEAPER: &str = "two threads hardly meet at the mutex, and a staged lock is dearer than one under it where nobody waits: requests come from segments that are \
                                        fetched and given back";
/// Why a few clients are too many for one mutex.
const NOTHING_BETWEEN: &str = "the paper's clients are remote, so that few of 32 are in the server at a time. Here nothing lies between transactions, and all \
                               32 want the mutex: on 32 cores they wait for two thirds of the time, while who was woken is on the way";

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![
        collapse(scale),
        all_sizes(scale),
        normalised(scale),
        breakdown::breakdown(scale),
        updates::aborts(scale),
        updates::lifetimes(scale),
        updates::hotspot(scale),
        costs(),
    ]
}

/// Range reads by so many threads on so many cores, with a lock table.
fn txbench(scale: Scale, table: &str, rows: u32, cores: u32, threads: u32) -> String {
    // Under a mutex that everybody waits for, 100 rows take a while.
    let quick = match (rows > 10, table) {
        (true, "global_mutex") => "--keys 3000 --seconds 0.05 --warm-up 0.004",
        (true, _) => "--keys 3000 --seconds 0.03 --warm-up 0.004",
        (false, _) => "--keys 3000 --seconds 0.004 --warm-up 0.002",
    };
    format!(
        "bench txbench --rows {rows} --profile r810 --cores {cores} --threads {threads} --durability lazy \
         --set lock_table={table} {}",
        scale.pick(quick, full_length(table, rows))
    )
}

/// Rows as many as in the paper, and time enough that each of 500 threads ends transactions that began in it.
fn full_length(table: &str, rows: u32) -> &'static str {
    match (rows > 10, table) {
        (true, "global_mutex") => "--keys 100000 --seconds 0.3 --warm-up 0.1",
        _ => "--keys 100000 --seconds 0.05 --warm-up 0.02",
    }
}

fn threads(scale: Scale) -> &'static [u32] {
    scale.pick(&[2, 32, 200], &[1, 2, 4, 8, 16, 32, 64, 128, 200, 500])
}

fn rate(series: &str, at: At) -> Quantity {
    Quantity::spot(PLOT, series, at)
}

fn collapse(scale: Scale) -> Experiment {
    let mut runs = Vec::new();
    for (cores, name) in [(4, "4 cores"), (8, "8 cores"), (16, "16 cores")] {
        for &threads in threads(scale) {
            let take = Take::whole(PLOT, name, threads, RATE);
            runs.push(Run::simulated(txbench(scale, "global_mutex", 10, cores, threads), [take]));
        }
    }
    Experiment {
        id: "2.1",
        paper: Paper::StagedLocks,
        figure: "Figure 1",
        title: "Range reads under a lock table with one mutex: more cores, fewer transactions",
        runs,
        plots: vec![log_lines(PLOT, "threads")],
        claims: vec![
            Claim::keeps(
                "8 cores under load keep three quarters of their peak",
                rate("8 cores", At::Last),
                rate("8 cores", At::Peak),
                0.75,
                1.3,
            )
            .because(Cause::Machine, KNEE),
            Claim::keeps(
                "16 cores keep a third",
                rate("16 cores", At::Last),
                rate("16 cores", At::Peak),
                0.33,
                1.6,
            ),
            Claim::at_most(
                "16 cores under load do less than 4",
                rate("16 cores", At::Last),
                rate("4 cores", At::Last),
                0.95,
                1.0,
                "below the curve of 4 cores",
            ),
            Claim::at_most(
                "the peak of 16 cores is below that of 8",
                rate("16 cores", At::Peak),
                rate("8 cores", At::Peak),
                0.97,
                1.03,
                "below",
            )
            .because(Cause::Experiment, TWO_FILL_THE_MUTEX),
        ],
        remark: "MySQL is not here: its lock system is the lock table with one mutex for everything, under the same engine. How deep the \
                 collapse is depends on how the mutex waits; a simulated one that spins before it sleeps falls deeper than a real one.",
    }
}

fn all_sizes(scale: Scale) -> Experiment {
    let all_cores = scale.pick(&[4, 32][..], &[4, 8, 16, 32][..]);
    let mut runs = Vec::new();
    for table in ["staged", "global_mutex"] {
        for rows in [10, 100] {
            for &cores in all_cores {
                for &threads in threads(scale) {
                    let series = format!("{table}, {rows} rows, {cores} cores");
                    let take = Take::whole(PLOT, series, threads, RATE);
                    runs.push(Run::simulated(txbench(scale, table, rows, cores, threads), [take]));
                }
            }
        }
    }
    let mut claims = Vec::new();
    for (rows, kept, more) in [
        (10, "S = 10: 32 cores keep their peak under load", "S = 10: 32 cores do more than 4"),
        (100, "S = 100: 32 cores keep their peak under load", "S = 100: 32 cores do more than 4"),
    ] {
        let ours = |cores: u32, at| rate(&format!("staged, {rows} rows, {cores} cores"), at);
        claims.push(Claim::at_least(
            kept,
            ours(32, At::Last),
            ours(32, At::Peak),
            0.85,
            0.6,
            "at worst a small degradation",
        ));
        claims.push(Claim::at_least(
            more,
            ours(32, At::Peak),
            ours(4, At::Peak),
            1.5,
            1.1,
            "every added core raises the peak",
        ));
    }
    for (rows, falls, lower) in [
        (10, "S = 10: with one mutex 32 cores collapse under load", "and their peak is below that of 4"),
        (100, "S = 100: with one mutex 32 cores collapse under load", "and their peak is below that of 4"),
    ] {
        let theirs = |cores: u32, at| rate(&format!("global_mutex, {rows} rows, {cores} cores"), at);
        claims.push(Claim::at_most(falls, theirs(32, At::Last), theirs(32, At::Peak), 0.5, 0.8, "collapses"));
        let lower = Claim::at_most(lower, theirs(32, At::Peak), theirs(4, At::Peak), 0.97, 1.03, "below");
        claims.push(lower.because(Cause::Experiment, TWO_FILL_THE_MUTEX));
    }
    let behind = |(rows, cores, threads): (u32, u32, u32)| {
        let of =
            |table: &str| rate(&format!("{table}, {rows} rows, {cores} cores"), At::X(f64::from(threads)));
        Quantity::Ratio(Box::new((of("global_mutex"), of("staged"))))
    };
    let places = [10, 100].into_iter().flat_map(|rows| all_cores.iter().map(move |&cores| (rows, cores)));
    let places =
        places.flat_map(|(rows, cores)| threads(scale).iter().map(move |&threads| (rows, cores, threads)));
    claims.push(
        Claim::at_most(
            "never behind the lock table that it replaces",
            Quantity::Best(places.map(behind).collect()),
            Quantity::Is(1.0),
            1.03,
            1.1,
            "at least as high everywhere",
        )
        .because(Cause::Technique, ALONE_A_MUTEX_IS_CHEAPER),
    );
    claims.push(Claim::at_least(
        "far ahead on 32 cores under load",
        rate("staged, 10 rows, 32 cores", At::Last),
        rate("global_mutex, 10 rows, 32 cores", At::Last),
        4.0,
        1.5,
        "9.7 ×",
    ));
    Experiment {
        id: "2.2",
        paper: Paper::StagedLocks,
        figure: "Figure 10",
        title: "Range reads of 10 and 100 rows, 4 to 32 cores: the staged lock table beside the one with a mutex",
        runs,
        plots: vec![log_lines(PLOT, "threads")],
        claims,
        remark: "PostgreSQL-like snapshots (MySQL with repeatable read), DBMS X and Shore-MT are not here.",
    }
}

fn normalised(scale: Scale) -> Experiment {
    const LITTLE: &str = "32 threads, commits/s";
    const LARGE: &str = "100 rows, commits/s";
    let load = scale.pick(200, 500);
    let points = scale.pick(&[1, 4, 16, 32][..], &[1, 2, 4, 8, 16, 24, 32][..]);
    let mut runs = Vec::new();
    for table in ["staged", "global_mutex", "latched"] {
        for &cores in points {
            let take = |plot| Take::whole(plot, table, cores, RATE);
            runs.push(Run::simulated(txbench(scale, table, 10, cores, load), [take(PLOT)]));
            if table != "latched" {
                runs.push(Run::simulated(txbench(scale, table, 10, cores, 32), [take(LITTLE)]));
                runs.push(Run::simulated(txbench(scale, table, 100, cores, load), [take(LARGE)]));
            }
        }
    }
    let on = |plot, table: &str, cores: f64| Quantity::spot(plot, table, At::X(cores));
    Experiment {
        id: "2.3",
        paper: Paper::StagedLocks,
        figure: "Figure 11",
        title: "The same by the number of cores, under much load and under little, 10 rows and 100",
        runs,
        plots: vec![lines(PLOT, "cores"), lines(LARGE, "cores"), lines(LITTLE, "cores")],
        claims: vec![
            Claim::at_least(
                "almost perfect scaling to 16 cores",
                rate("staged", At::X(16.0)),
                rate("staged", At::X(1.0)),
                12.0,
                6.0,
                "almost linear",
            ).because(Cause::Machine, "16 cores spend 35 % of their time on lines of memory that others had before, one core hardly any"),
            Claim::at_least(
                "then it saturates, and does not fall",
                rate("staged", At::X(32.0)),
                rate("staged", At::X(16.0)),
                0.9,
                0.75,
                "saturates",
            ),
            Claim::at_most(
                "a lock table with one mutex falls as cores are added",
                rate("global_mutex", At::X(32.0)),
                rate("global_mutex", At::X(4.0)),
                0.9,
                1.0,
                "falls",
            ),
            Claim::at_least(
                "100 rows: saturation starts earlier",
                Quantity::Ratio(Box::new((rate("staged", At::X(16.0)), rate("staged", At::X(1.0))))),
                Quantity::Ratio(Box::new((on(LARGE, "staged", 16.0), on(LARGE, "staged", 1.0)))),
                1.05,
                0.97,
                "starts earlier",
            ),
            Claim::at_least(
                "and nothing is lost then, either",
                on(LARGE, "staged", 32.0),
                on(LARGE, "staged", 16.0),
                0.9,
                0.75,
                "does not degrade",
            ),
            Claim::at_most(
                "100 rows: one mutex falls",
                on(LARGE, "global_mutex", 32.0),
                on(LARGE, "global_mutex", 4.0),
                0.9,
                1.0,
                "falls",
            ),
            Claim::at_least(
                "32 threads are benign: one mutex loses little from 4 cores on",
                on(LITTLE, "global_mutex", 32.0),
                on(LITTLE, "global_mutex", 4.0),
                0.8,
                0.5,
                "a small degradation at worst",
            )
            .because(Cause::Experiment, NOTHING_BETWEEN),
        ],
        remark: "`latched`, a latch for each bucket, is this engine's own choice; it is drawn beside. Much load is 500 threads in the paper, 200 when quick; \
                 the paper also has both.",
    }
}

fn costs() -> Experiment {
    const COUNT: &str = "of one lock, and of its release";
    let of = |what, place| {
        ["S lock on a key", "release of an S lock", "X lock on a key"].map(move |operation| {
            Take::each(COUNT, "", format!("{operation}: {what}"), "1", Value::Of(place))
                .only("/operation", operation)
        })
    };
    let takes = |table: &str, x: u32| -> Vec<Take> {
        let rows: &'static str = match table {
            "staged" => "/results/0/operations",
            "latched" => "/results/1/operations",
            _ => "/results/2/operations",
        };
        [
            of("atomic changes", "/changes"),
            of("latches", "/latches"),
            of("mutexes", "/mutexes"),
            of("fences", "/fences"),
        ]
        .concat()
        .into_iter()
        .map(|take| Take { rows, x: x.to_string(), ..take })
        .collect()
    };
    let runs = vec![Run::simulated(
        "locks --lock-tables staged,latched,global_mutex",
        [takes("staged", 1), takes("latched", 2), takes("global_mutex", 3)].concat(),
    )];
    let count = |what: &str, x| Quantity::spot(COUNT, format!("S lock on a key: {what}"), At::X(x));
    Experiment {
        id: "2.8",
        paper: Paper::StagedLocks,
        figure: "Figures 3 to 8",
        title: "What a lock costs, counted: 1 staged, 2 a latch for each bucket, 3 one mutex",
        runs,
        plots: vec![bars(COUNT, "1 staged, 2 latched, 3 global mutex")],
        claims: vec![
            Claim::at_most(
                "a lock takes no latch and no mutex",
                Quantity::Sum(vec![count("latches", 1.0), count("mutexes", 1.0)]),
                Quantity::Is(1.0),
                0.01,
                0.25,
                "none",
            )
            .because(
                Cause::Technique,
                "now and then a new segment of requests is fetched under a latch; the lock itself \
                 takes none",
            ),
            Claim::at_most(
                "two atomic changes: the chain's tail, and the next free request",
                count("atomic changes", 1.0),
                Quantity::Is(1.0),
                2.0,
                4.0,
                "2",
            )
            .because(Cause::Technique, "the rest is the share of a lock in fetching a segment of requests"),
        ],
        remark: "What the staged lock table takes now and then is a latch for a new segment of requests, not for a lock. The table with a latch \
                 for each bucket, the engine's own, needs none either where a bucket is empty, or all in it share.",
    }
}
