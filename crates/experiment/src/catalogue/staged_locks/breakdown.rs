//! Where the time goes: figure 12.

use super::{
    super::{PARTS, TIME, bars},
    PLOT, RATE, txbench,
};
use crate::{
    claim::{At, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

pub(super) fn breakdown(scale: Scale) -> Experiment {
    let run = |table: &str, x: u32| {
        let takes = PARTS.map(|(name, place)| Take::whole(TIME, name, x, Value::Of(place)));
        let takes = takes
            .into_iter()
            .chain((table == "global_mutex").then(|| Take::whole(PLOT, "all threads", x, RATE)));
        let arguments = txbench(scale, table, 10, 32, scale.pick(200, 500));
        // Behind an MCS latch hardly any transaction ends.
        let arguments = match table {
            "global_mcs" => arguments.replace(scale.pick("--seconds 0.004", "--seconds 0.05"), "--seconds 1"),
            _ => arguments,
        };
        Run::simulated(arguments, takes.collect::<Vec<_>>())
    };
    let all = |x| Quantity::spot(PLOT, "all threads", At::X(x));
    let mut mcs = run("global_mcs", 4);
    mcs.takes.push(Take::whole(PLOT, "all threads", 4, RATE));
    let part = |name: &str, x| Quantity::spot(TIME, name, At::X(x));
    let lost =
        |x| Quantity::Sum(["spinning", "waiting for locks", "system"].map(|name| part(name, x)).to_vec());
    Experiment {
        id: "2.4",
        paper: Paper::StagedLocks,
        figure: "Figure 12",
        title: "Where the time goes on 32 cores: 1 the staged lock table, 2 one mutex, 3 a latch for each bucket, 4 one MCS latch",
        runs: vec![run("staged", 1), run("global_mutex", 2), run("latched", 3), mcs],
        plots: vec![
            bars(TIME, "1 staged, 2 global mutex, 3 latched, 4 MCS"),
            bars(PLOT, "2 global mutex, 4 MCS"),
        ],
        claims: vec![
            Claim::at_most(
                "no time for mutexes in the staged lock table",
                lost(1.0),
                Quantity::Is(1.0),
                0.05,
                0.15,
                "virtually none",
            ),
            Claim::at_least(
                "with one mutex more than half of the time is spent for it",
                lost(2.0),
                Quantity::Is(1.0),
                0.5,
                0.25,
                "over 50 %, and idle at 32 cores",
            ),
            Claim::at_most(
                "with an MCS latch hardly anything is done: whoever is next in its queue may not be running",
                all(4.0),
                all(2.0),
                0.1,
                0.5,
                "5,000 a minute",
            ),
            Claim::at_least(
                "and nearly all of the time is lost",
                Quantity::Sum(vec![part("idle", 4.0), part("spinning", 4.0)]),
                Quantity::Is(1.0),
                0.95,
                0.5,
                "over 95 %, idle",
            ),
        ],
        remark: "Spinning, sleeping for the mutex and the system's part of that sleep are one thing in three places; their sum counts. \
                 Who waits for an MCS latch spins here, and lets others run now and then; the paper's waiters were idle.",
    }
}
