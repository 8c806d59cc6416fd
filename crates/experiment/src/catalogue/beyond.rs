//! Two questions that none of the papers asks: the engine as it is against what each paper ends with, and which way of running
//! transactions wins where.

use super::{RATE, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Plot, Run, Scale, Shape, Take},
};

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![all_systems(scale), executions(scale)]
}

/// What each paper ends with, as options.
const SYSTEMS: [(&str, &str); 5] = [
    ("road", ""),
    // The ladder's step `final`.
    (
        "Shore-MT",
        "--set translation=cuckoo --set transit=many_lists --set latch_mode=always_shared --set intent_locks=private \
         --set log_insert=compare_exchange",
    ),
    ("staged locks", "--set lock_table=staged"),
    (
        "lightweight intents, spinning dreadlocks",
        "--set intent_locks=lightweight --set deadlock_policy=dreadlocks_hybrid",
    ),
    ("deadlock-free", "--execution planned"),
];

fn all_systems(scale: Scale) -> Experiment {
    let workloads = [
        ("ten reads, commits/s", "bench ycsb --records 10000 --value-bytes 1000 --read-percent 100"),
        (
            "ten updates, 2 of 64 hot, commits/s",
            "bench ycsb --records 10000 --value-bytes 1000 --read-percent 0 --distribution hot:64 --hot-operations 2",
        ),
        ("TPC-B, commits/s", "bench tpcb --branches 64 --accounts 100"),
    ];
    let points = scale.pick(&[1_u32, 16, 64][..], &[1, 8, 64, 256, 1024][..]);
    let mut runs = Vec::new();
    for (plot, workload) in workloads {
        for (name, options) in SYSTEMS {
            if plot.starts_with("TPC-B") && name == "deadlock-free" {
                continue;
            }
            for &cores in points {
                let length = match scale {
                    // Who waits for hot records sleeps: less is done, and more of it is under way when it begins.
                    Scale::Quick if workload.contains("hot:") => "--seconds 0.01 --warm-up 0.005",
                    Scale::Quick => "--seconds 0.003 --warm-up 0.002",
                    Scale::Full => "--seconds 0.01 --warm-up 0.005",
                };
                let arguments = format!(
                    "{workload} --profile mesh1024 --cores {cores} --threads {cores} --durability lazy --set log_buffer_bytes=64MiB {length} {options}"
                );
                runs.push(Run::simulated(arguments.trim_end(), [Take::whole(plot, name, cores, RATE)]));
            }
        }
    }
    let claim = |says, plot| {
        let others =
            SYSTEMS[1..].iter().filter(|(name, _)| !(plot == workloads[2].0 && *name == "deadlock-free"));
        let others = others.map(|(name, _)| Quantity::spot(plot, *name, At::Last)).collect();
        Claim::at_least(
            says,
            Quantity::spot(plot, "road", At::Last),
            Quantity::Best(others),
            0.95,
            0.7,
            "ours",
        )
    };
    Experiment {
        id: "6.1",
        paper: Paper::Beyond,
        figure: "none",
        title: "The engine as it is beside what each paper ends with, on more and more cores",
        runs,
        plots: workloads.iter().map(|(plot, _)| log_lines(plot, "cores")).collect(),
        claims: vec![
            claim("reading, on the most cores: nobody is ahead", workloads[0].0),
            claim("updating hot records: nobody is ahead", workloads[1].0).because(
                Cause::Technique,
                "locks that are taken in one order are held for less time by those who wait for the \
                 next: where a few records are hot, planned execution is ahead of the road, which \
                 locks as it goes",
            ),
            claim("TPC-B: nobody is ahead", workloads[2].0),
        ],
        remark: "These are our own claims, not a paper's. Each system is this engine with the choices that the paper ends with; partitioned \
                 execution, which needs threads of its own, is in 6.2. Up to 64 cores when quick, 1,024 otherwise.",
    }
}

/// Length of a transaction, and of how many partitions its records are: a map each.
const MAPS: [(u32, u32, &str); 6] = [
    (2, 1, "2 updates of 1 partition, commits/s"),
    (2, 2, "2 updates of 2 partitions, commits/s"),
    (16, 1, "16 updates of 1 partition, commits/s"),
    (16, 2, "16 updates of 2 partitions, commits/s"),
    (16, 4, "16 updates of 4 partitions, commits/s"),
    (16, 8, "16 updates of 8 partitions, commits/s"),
];

fn executions(scale: Scale) -> Experiment {
    const WAYS: [&str; 3] = ["dynamic", "planned", "partitioned"];
    let cores = scale.pick(16, 64);
    let maps = &MAPS[..scale.pick(4, 6)];
    let mut runs = Vec::new();
    for &(length, partitions, plot) in maps {
        for &hot in scale.pick(&[16_u32, 4096][..], &[4, 16, 64, 256, 1024, 4096][..]) {
            for way in WAYS {
                let rest = match way {
                    "partitioned" => {
                        let control = cores / 4;
                        format!(
                            "--cores {cores} --drawn-by engine --in-flight 16 --partitions {control} --set execution_threads={}",
                            cores - control
                        )
                    }
                    _ => format!("--cores {cores} --threads {cores} --partitions {}", cores / 4),
                };
                let arguments = format!(
                    "bench ycsb --records 10000 --value-bytes 1000 --operations {length} --read-percent 0 --distribution hot:{hot}:50 --execution {way} {rest} \
                     --partitions-per-transaction {partitions} --durability lazy --set log_buffer_bytes=64MiB {}",
                    scale.pick("--seconds 0.005 --warm-up 0.002", "--seconds 0.006 --warm-up 0.003")
                );
                runs.push(Run::simulated(arguments, [Take::whole(plot, way, hot, RATE)]));
            }
        }
    }
    let at = |(_, _, plot): (u32, u32, &'static str), way: &str, at| Quantity::spot(plot, way, at);
    let (short, long) = (MAPS[0], MAPS[2]);
    Experiment {
        id: "6.2",
        paper: Paper::Beyond,
        figure: "none",
        title: "Which way of running transactions wins: by contention, length and partitions of a transaction",
        runs,
        plots: maps
            .iter()
            .map(|(_, _, name)| Plot { name, x: "hot records, half of all accesses", shape: Shape::Map })
            .collect(),
        claims: vec![
            Claim::at_least(
                "short, little contention: locking as one goes wins",
                at(short, "dynamic", At::Last),
                Quantity::Best(vec![at(short, "planned", At::Last), at(short, "partitioned", At::Last)]),
                1.0,
                0.9,
                "ours",
            ),
            Claim::at_least(
                "long, much contention: locking first wins",
                Quantity::Best(vec![at(long, "planned", At::First), at(long, "partitioned", At::First)]),
                at(long, "dynamic", At::First),
                1.1,
                1.0,
                "ours",
            ),
        ],
        remark: "These are our own claims. The stronger the colour, the nearer to the best of its column, which has a frame.",
    }
}
