//! TPC-C, NewOrder and Payment: figures 8, 9 and 10.

use super::{PARTS, PLOT, System, TIME, bars, dreadlocks, length, lines, log_lines, point};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
};

/// Why ORTHRUS is behind.
const CHAINS: &str = "a warehouse's row is a chain of transactions however it is locked, and a link is no shorter where locks travel: with 16 warehouses on 80 \
    cores one takes 96 µs under ORTHRUS, 83 under deadlock-free locking and 81 under 2PL";

/// Why ORTHRUS is hardly ahead where there are many warehouses.
const NOBODY_MEETS: &str = "with 128 warehouses 80 cores wait for locks for a tenth of their time, and the three ways are within 2 %: ORTHRUS does 354,000 commits/s, \
    deadlock-free locking 349,000, 2PL 354,000. Locks cost the others less here than there (5.9)";

/// Why 2PL does not fall, and computes more.
const WAITERS_SLEEP: &str = "who waits for a lock sleeps, and nobody's wait makes another's longer: by 80 cores threads wait for locks for 60 % of the time, \
    and there are four deadlocks for 1,111 commits. The paper's waiters spin, and look for deadlocks meanwhile";

fn systems(scale: Scale) -> [System; 3] {
    [System::Orthrus(None), System::DeadlockFree, dreadlocks(scale)]
}

/// NewOrder and Payment, half and half.
fn tpcc(scale: Scale, system: System, cores: u32, warehouses: u32) -> String {
    let size = scale.pick("--items 300 --customers 30", "--items 10000 --customers 300");
    // No more partitions than warehouses; and few transactions at a time, whose locks others wait for.
    let options = system.options(cores).replace("--in-flight 4", "--in-flight 2");
    let control = System::control(cores);
    let options = options
        .replace(&format!("--partitions {control}"), &format!("--partitions {}", control.min(warehouses)));
    format!(
        "bench tpcc --mix neworder-payment --warehouses {warehouses} {size} {options} --durability lazy {}",
        length(scale, true)
    )
}

fn rate(system: System, at: At) -> Quantity {
    Quantity::spot(PLOT, system.name(), at)
}

pub(super) fn warehouses(scale: Scale) -> Experiment {
    let (cores, points) = (80, scale.pick(&[16_u32, 128][..], &[1, 4, 8, 16, 32, 64, 128][..]));
    let mut runs = Vec::new();
    for system in systems(scale) {
        runs.extend(points.iter().map(|&many| point(tpcc(scale, system, cores, many), system, many)));
    }
    let [orthrus, free, locking] = systems(scale);
    Experiment {
        id: "5.6",
        paper: Paper::Orthrus,
        figure: "Figure 8",
        title: "TPC-C, NewOrder and Payment, by the number of warehouses",
        runs,
        plots: vec![log_lines(PLOT, "warehouses")],
        claims: vec![
            Claim::times(
                "many warehouses: ORTHRUS is 1.3 times deadlock-free locking",
                rate(orthrus, At::Last),
                rate(free, At::Last),
                1.3,
                1.3,
            )
            .because(Cause::Technique, NOBODY_MEETS),
            Claim::times(
                "1.5 times 2PL with dreadlocks",
                rate(orthrus, At::Last),
                rate(locking, At::Last),
                1.5,
                1.3,
            )
            .because(Cause::Technique, NOBODY_MEETS),
            Claim::at_least(
                "few: the gap to 2PL is wider",
                rate(orthrus, At::First),
                rate(locking, At::First),
                2.0,
                1.5,
                "grows",
            )
            .because(Cause::Technique, CHAINS),
        ],
        remark: "Quick: 16 and 128 warehouses. All have few items and customers, so that they fit a simulated machine.",
    }
}

pub(super) fn cores(scale: Scale) -> Experiment {
    let points = scale.pick(&[10_u32, 40, 80][..], &[10, 20, 40, 60, 80][..]);
    let mut runs = Vec::new();
    for system in systems(scale) {
        runs.extend(points.iter().map(|&cores| point(tpcc(scale, system, cores, 16), system, cores)));
    }
    let [orthrus, free, locking] = systems(scale);
    let (ten, eighty) = (At::X(10.0), At::X(80.0));
    Experiment {
        id: "5.7",
        paper: Paper::Orthrus,
        figure: "Figure 9",
        title: "TPC-C, 16 warehouses, by the number of cores",
        runs,
        plots: vec![lines(PLOT, "cores")],
        claims: vec![
            Claim::alike(
                "10 cores: deadlock-free locking is as fast as 2PL",
                rate(free, ten),
                rate(locking, ten),
                1.15,
                "identical",
            ),
            Claim::at_most(
                "2PL falls as cores are added",
                rate(locking, eighty),
                rate(locking, At::X(40.0)),
                0.9,
                1.0,
                "begins to drop from 10 on",
            )
            .because(Cause::Technique, WAITERS_SLEEP),
            Claim::at_least("ORTHRUS scales", rate(orthrus, eighty), rate(orthrus, ten), 2.0, 1.1, "scales")
                .because(Cause::Technique, CHAINS),
            Claim::times(
                "80 cores: ORTHRUS is twice deadlock-free locking",
                rate(orthrus, eighty),
                rate(free, eighty),
                2.0,
                1.5,
            )
            .because(Cause::Technique, CHAINS),
            Claim::times(
                "ten times 2PL with dreadlocks",
                rate(orthrus, eighty),
                rate(locking, eighty),
                10.0,
                1.6,
            )
            .because(Cause::Technique, CHAINS),
        ],
        remark: "Warehouses have few items and customers, so that they fit a simulated machine.",
    }
}

pub(super) fn breakdown(scale: Scale) -> Experiment {
    let runs = [16, 128].into_iter().flat_map(|many| systems(scale).map(|system| (many, system)));
    let runs = runs.enumerate().map(|(number, (many, system))| {
        let takes = PARTS.map(|(part, place)| Take::whole(TIME, part, number + 1, Value::Of(place)));
        Run::simulated(tpcc(scale, system, 80, many), takes)
    });
    let useful = |x| Quantity::spot(TIME, "useful", At::X(x));
    Experiment {
        id: "5.8",
        paper: Paper::Orthrus,
        figure: "Figure 10",
        title: "Where the time goes on 80 cores, 16 warehouses: 1 ORTHRUS, 2 deadlock-free locking, 3 2PL with dreadlocks; 4 to 6 with 128",
        runs: runs.collect(),
        plots: vec![bars(TIME, "1 ORTHRUS, 2 deadlock-free, 3 2PL; 4 to 6 likewise")],
        claims: vec![
            Claim::times(
                "ORTHRUS computes 2.5 times as much of its time as deadlock-free locking",
                useful(1.0),
                useful(2.0),
                18.0 / 7.2,
                1.6,
            )
            .because(Cause::Technique, WAITERS_SLEEP),
            Claim::times("and 5 times as much as 2PL", useful(1.0), useful(3.0), 18.0 / 3.7, 1.6)
                .because(Cause::Technique, WAITERS_SLEEP),
            Claim::alike("ORTHRUS: 18 % of its time", useful(1.0), Quantity::Is(0.18), 1.6, "18 %"),
            Claim::alike("deadlock-free locking: 7.2 %", useful(2.0), Quantity::Is(0.072), 1.6, "7.2 %")
                .because(Cause::Technique, WAITERS_SLEEP),
            Claim::alike("2PL: 3.7 %", useful(3.0), Quantity::Is(0.037), 1.6, "3.7 %")
                .because(Cause::Technique, WAITERS_SLEEP),
            Claim::at_least(
                "with 128 warehouses ORTHRUS computes more of its time, too",
                useful(4.0),
                Quantity::Best(vec![useful(5.0), useful(6.0)]),
                1.05,
                0.97,
                "more",
            ),
        ],
        remark: "The paper counts execution threads only; here control threads count, too.",
    }
}
