//! Kimura, Graefe, Kuno 2012. The machine there: six cores, logs on a hard disk (10 ms) or an SSD (30 µs); and a
//! Niagara.

mod commits;

use super::{RATE, bars, constants, lines, log_lines, marks};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

const PLOT: &str = "commits/s";
/// The second machine of the paper, a Niagara with 64 contexts.
const NIAGARA: &str = "--profile niagara32 --cores 64";
/// Why policies that make many give way lose little.
const GIVING_WAY_IS_CHEAP: &str = "giving way costs little here: by 60 threads more than half of the attempts end early with wait-die, and a third \
    with wound-wait, and 75 and 81 % of the throughput are left";

/// Why inherited intent locks are faster than there.
const ALL_ARE_INHERITED: &str = "every intent lock is inherited here, not only hot ones, so that without absolute locks nothing \
    is touched that others change: 3.2 ms for 60,000 transactions, 46 with lightweight ones, whose counters all share, and 460 in the table, \
    where latches pass from one to the next. Four times as many take four times as long, so it is no matter of how they begin. With 60 absolute \
    locks between them it is 27, 53 and 470";

/// Why some give way although nobody deadlocks.
const BLOOM: &str = "all of these are suspicions by digests of three bits of 512 for each transaction, which nobody confirms, as in the paper. The \
    engine's own Dreadlocks, with exact digests and confirmed, end nobody by 60 threads. How many are wrong by their bits and how many \
    out of date was not looked into";

const ABORTED: &str = "share of attempts aborted";

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![
        modes(scale),
        intent(scale),
        waiting(scale),
        no_deadlock(scale),
        commits::victims(scale),
        commits::early_release(scale),
        commits::skew(scale),
        anomaly(scale),
        defaults(),
    ]
}

fn rate(series: &str, at: At) -> Quantity {
    Quantity::spot(PLOT, series, at)
}

fn modes(scale: Scale) -> Experiment {
    const WAITS: &str = "requests that waited, for each commit";
    let run = |existing: &u32| {
        let arguments = format!(
            "bench keyrange --existing {existing} --threads 6 --cores 6 --rounds 1 {}",
            scale.pick("--seconds 0.01 --warm-up 0.002", "--seconds 0.2 --warm-up 0.05")
        );
        let waits = Value::Per("/counters/lock_waits", "/counted_commits");
        let takes = [
            Take::each(PLOT, "/results", "{/variant}", existing.to_string(), RATE),
            Take::each(WAITS, "/results", "{/variant}", existing.to_string(), waits),
        ];
        Run::simulated(arguments, takes)
    };
    let waits = |series: &str| Quantity::spot(WAITS, series, At::X(0.0));
    Experiment {
        id: "3.1",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 3",
        title: "Four ranges and an update in a small table: orthogonal key-range modes, Lomet's, and locks on the next key",
        runs: scale.pick(&[0, 100][..], &[0, 20, 40, 60, 80, 100][..]).iter().map(run).collect(),
        plots: vec![
            lines(PLOT, "percent of ranges at keys that exist"),
            lines(WAITS, "percent of ranges at keys that exist"),
        ],
        claims: vec![
            Claim::at_least(
                "up to 15 % ahead of Lomet's modes",
                rate("orthogonal", At::X(0.0)),
                rate("lomet", At::X(0.0)),
                1.05,
                1.0,
                "up to 15 %",
            ),
            Claim::at_most(
                "because fewer requests wait",
                waits("orthogonal"),
                waits("lomet"),
                0.95,
                1.0,
                "more precise",
            ),
            Claim::times(
                "4 to 5 times as fast as locks on the next key",
                rate("orthogonal", At::X(0.0)),
                rate("next_key", At::X(0.0)),
                4.5,
                1.5,
            )
            .because(
                Cause::Experiment,
                "the paper's factor has its page layout in it; here all modes have the same pages, \
                 and differ by their waits alone",
            ),
        ],
        remark: "A good part of the paper's factor over locks on the next key is its page layout, it says; here all modes have the same pages.",
    }
}

fn anomaly(scale: Scale) -> Experiment {
    const FOUND: &str = "runs with a result that no serial order gives";
    let seeds = scale.pick("0..400", "0..1000");
    let run = |plant: &str, x: u32| {
        let found = Take::whole(FOUND, "runs", x, Value::Count("/failures"));
        Run::simulated(format!("--seeds {seeds} {plant}").trim_end(), [found]).that_may_fail()
    };
    let found = |x| Quantity::spot(FOUND, "runs", At::X(x));
    Experiment {
        id: "3.8",
        paper: Paper::KeyRangeLocks,
        figure: "Table 6",
        title: "Early lock release without tags: readers answer what is not durable yet",
        runs: vec![run("", 1), run("--plant TagForgotten --stop-after 1", 2)],
        plots: vec![bars(FOUND, "1 with tags, 2 without")],
        claims: vec![
            Claim::at_most(
                "with tags there is no such result",
                found(1.0),
                Quantity::Is(1.0),
                0.0,
                0.0,
                "none",
            ),
            Claim::at_least(
                "without tags there is",
                found(2.0),
                Quantity::Is(1.0),
                1.0,
                1.0,
                "Table 6 shows one",
            ),
        ],
        remark: "Simulated databases with random schedules and power failures, each judged by replay; the fault leaves out the tags that early \
                 released locks leave behind. One seed in ninety finds it (nine of the first 823), and which do changes with the program, so that 400 are tried when quick.",
    }
}

fn defaults() -> Experiment {
    let (run, plot, claims) = constants(&[
        ("bits of a digest that is a Bloom filter", "bits", 512.0),
        ("bits of a transaction in it", "bits", 3.0),
        ("sleep of who waits for a lock", "ms", 10.0),
        ("longest pipeline", "transactions", 100_000.0),
    ]);
    Experiment {
        id: "3.9",
        paper: Paper::KeyRangeLocks,
        figure: "§4, §6",
        title: "Constants of digests, sleeps and pipelines",
        runs: vec![run],
        plots: vec![plot],
        claims,
        remark: "Nothing is measured: these are constants and defaults of options. Who waits for a lightweight intent lock polls every millisecond \
                 in the paper; here it sleeps until it is woken.",
    }
}

fn intent(scale: Scale) -> Experiment {
    const TIME: &str = "seconds for all transactions";
    let arguments = format!(
        "bench intent --kind in_table,inherited,lightweight,private --absolute {} --transactions {} --threads 60 {NIAGARA}",
        scale.pick("0,60", "0,100,1000,10000"),
        // A thousand for each thread: what each does for the first time does not count then.
        scale.pick("60000", "1000000"),
    );
    let take = Take::each(TIME, "/results", "{/kind}", "{/absolute}", Value::Of("/elapsed_s"));
    let time = |series: &str, at| Quantity::spot(TIME, series, at);
    let load = At::Last;
    Experiment {
        id: "3.2",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 4",
        title: "Intent locks alone, 60 threads, with a number of absolute locks between them: time for all",
        runs: vec![Run::simulated(arguments, [take])],
        plots: vec![marks(TIME, "absolute locks")],
        claims: vec![
            Claim::times(
                "inherited locks (SLI): 5 to 6 times as fast as those in the table",
                time("in_table", At::First),
                time("inherited", At::First),
                5.5,
                1.5,
            )
            .because(Cause::Technique, ALL_ARE_INHERITED),
            Claim::times(
                "lightweight ones (LIL): another 3 to 5 times",
                time("inherited", At::First),
                time("lightweight", At::First),
                4.0,
                1.5,
            )
            .because(Cause::Technique, ALL_ARE_INHERITED),
            Claim::alike(
                "lightweight ones hardly mind absolute locks",
                time("lightweight", load),
                time("lightweight", At::First),
                1.5,
                "hardly",
            )
            .because(
                Cause::Experiment,
                "where one transaction in a hundred takes one, three in ten wait: 600 of 60,000 make 214 ms of 46. With 60 it is 53",
            ),
        ],
        remark: "60 threads on 64 simulated contexts of a Niagara, as in the paper. The first two ratios are those without absolute locks.",
    }
}

fn waiting(scale: Scale) -> Experiment {
    let arguments = format!(
        "bench dreadlocks --wait spin,sleep,backoff,hybrid --threads {} --seconds {} --rounds {} --warm-up 0.1",
        scale.pick("1,2,8,32", "1,2,3,4,6,8,16,32,128"),
        scale.pick("0.9", "6"),
        scale.pick("3", "6"),
    );
    let takes = [
        Take::each(PLOT, "/results", "{/variant}", "{/threads}", RATE),
        Take::each(ABORTED, "/results", "{/variant}", "{/threads}", Value::Of("/abort_ratio")),
    ];
    let aborted = |series: &str, at| Quantity::spot(ABORTED, series, at);
    Experiment {
        id: "3.3",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 5",
        title: "Dreadlocks by the way of waiting: TPC-B, where nobody deadlocks",
        runs: vec![Run::real(arguments, takes)],
        plots: vec![log_lines(PLOT, "threads"), lines(ABORTED, "threads")],
        claims: vec![
            Claim::at_least(
                "spinning is best while there is a core for each thread",
                rate("spin", At::X(2.0)),
                Quantity::Best(vec![rate("sleep", At::X(2.0)), rate("backoff", At::X(2.0))]),
                1.05,
                0.97,
                "5 to 20 % ahead",
            )
            .because(
                Cause::Technique,
                "who sleeps here has spun for a moment before: on six simulated cores, with a thread each, spinning alone \
                 is 9 % behind sleeping with backoff, too (270,000 commits/s and 296,000)",
            ),
            Claim::at_most(
                "spinning falls once there is none",
                rate("spin", At::Last),
                rate("backoff", At::Last),
                0.7,
                0.97,
                "deteriorates quickly",
            ),
            Claim::at_most(
                "with backoff nobody is suspected wrongly",
                aborted("backoff", At::Peak),
                Quantity::Is(1.0),
                0.0005,
                0.01,
                "no false deadlocks",
            )
            .because(Cause::Technique, BLOOM),
        ],
        remark: "The number of cores is this machine's: where it has two, the paper's six are two here. A branch has 5,000 accounts, the paper's 100,000.",
    }
}

fn no_deadlock(scale: Scale) -> Experiment {
    let arguments = format!(
        "bench nodeadlock --policies backoff,wound_wait,wait_die --threads {} --rounds 1 {} {NIAGARA}",
        scale.pick("1,10,60", "1,2,4,8,10,16,32,64"),
        // A thread that waits sleeps for 10 ms at first.
        scale.pick("--seconds 0.1 --warm-up 0.03", "--seconds 0.5 --warm-up 0.1"),
    );
    let takes = [
        Take::each(PLOT, "/results", "{/variant}", "{/threads}", RATE),
        Take::each(ABORTED, "/results", "{/variant}", "{/threads}", Value::Of("/abort_ratio")),
    ];
    let aborted = |series: &str| Quantity::spot(ABORTED, series, At::Last);
    let many_give_way = |says, aborted| {
        Claim::at_least(says, aborted, Quantity::Is(1.0), 0.01, 0.001, "thousands of 100,000")
    };
    Experiment {
        id: "3.4",
        paper: Paper::KeyRangeLocks,
        figure: "Figure 6",
        title: "Five tellers in the order of their keys: who gives way although nobody deadlocks",
        runs: vec![Run::simulated(arguments, takes)],
        plots: vec![log_lines(PLOT, "threads"), lines(ABORTED, "threads")],
        claims: vec![
            Claim::times(
                "twice as fast as wound-wait with more than 10 threads",
                rate("backoff", At::Last),
                rate("wound_wait", At::Last),
                2.0,
                1.5,
            )
            .because(Cause::Technique, GIVING_WAY_IS_CHEAP),
            Claim::times(
                "twice as fast as wait-die",
                rate("backoff", At::Last),
                rate("wait_die", At::Last),
                2.0,
                1.5,
            )
            .because(Cause::Technique, GIVING_WAY_IS_CHEAP),
            Claim::at_most(
                "almost nobody gives way",
                aborted("backoff"),
                Quantity::Is(1.0),
                0.001,
                0.01,
                "almost none",
            )
            .because(Cause::Technique, BLOOM),
            many_give_way("with wound-wait many do", aborted("wound_wait")),
            many_give_way("and with wait-die", aborted("wait_die")),
        ],
        remark: "64 simulated contexts of a Niagara, as in the paper. Nobody spins here, and who waits sleeps: waiting costs a policy less than in \
                 the paper, and giving way more of what it gains.",
    }
}
