//! Two questions that none of the papers asks: the engine as it is against what each paper ends with, and which way of running
//! transactions wins where.

use super::{RATE, log_lines};
use crate::{
    claim::{At, Claim, Quantity},
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
    let points = scale.pick(&[1_u32, 32, 128][..], &[1, 8, 64, 256, 1024][..]);
    let mut runs = Vec::new();
    for (plot, workload) in workloads {
        for (name, options) in SYSTEMS {
            if plot.starts_with("TPC-B") && name == "deadlock-free" {
                continue;
            }
            for &cores in points {
                let arguments = format!(
                    "{workload} --profile mesh1024 --cores {cores} --threads {cores} --durability lazy {} {options}",
                    scale.pick("--seconds 0.003 --warm-up 0.001", "--seconds 0.004 --warm-up 0.002")
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
            claim("updating hot records: nobody is ahead", workloads[1].0),
            claim("TPC-B: nobody is ahead", workloads[2].0),
        ],
        remark: "These are our own claims, not a paper's. Each system is this engine with the choices that the paper ends with; partitioned \
                 execution, which needs threads of its own, is in 6.2. Up to 128 cores when quick, 1,024 otherwise.",
    }
}

fn executions(scale: Scale) -> Experiment {
    const WAYS: [&str; 3] = ["dynamic", "planned", "partitioned"];
    const PLOTS: [(u32, &str); 2] =
        [(2, "transactions of 2 updates, commits/s"), (16, "transactions of 16 updates, commits/s")];
    let cores = scale.pick(16, 64);
    let mut runs = Vec::new();
    for (length, plot) in PLOTS {
        for &hot in scale.pick(&[16_u32, 4096][..], &[4, 16, 64, 256, 1024, 4096][..]) {
            for &partitions in scale.pick(&[1_u32, 2][..], &[1, 2, 4][..]) {
                for way in WAYS {
                    let rest = match way {
                        "partitioned" => {
                            let control = cores / 4;
                            format!(
                                "--cores {} --threads 4 --in-flight 32 --partitions {control} --set execution_threads={}",
                                cores + 4,
                                cores - control
                            )
                        }
                        _ => format!("--cores {cores} --threads {cores} --partitions {}", cores / 4),
                    };
                    let arguments = format!(
                        "bench ycsb --records 10000 --value-bytes 1000 --operations {length} --read-percent 0 --distribution hot:{hot}:50 --execution {way} {rest} \
                         --partitions-per-transaction {partitions} --durability lazy {}",
                        scale.pick("--seconds 0.005 --warm-up 0.002", "--seconds 0.006 --warm-up 0.003")
                    );
                    let series =
                        format!("{way}, {partitions} partition{}", if partitions == 1 { "" } else { "s" });
                    runs.push(Run::simulated(arguments, [Take::whole(plot, series, hot, RATE)]));
                }
            }
        }
    }
    let at = |plot: &'static str, way: &str, at| Quantity::spot(plot, format!("{way}, 1 partition"), at);
    Experiment {
        id: "6.2",
        paper: Paper::Beyond,
        figure: "none",
        title: "Which way of running transactions wins: by contention, length and partitions of a transaction",
        runs,
        plots: PLOTS
            .iter()
            .map(|(_, name)| Plot { name, x: "hot records, half of all accesses", shape: Shape::Map })
            .collect(),
        claims: vec![
            Claim::at_least(
                "short, little contention: locking as one goes wins",
                at(PLOTS[0].1, "dynamic", At::Last),
                Quantity::Best(vec![
                    at(PLOTS[0].1, "planned", At::Last),
                    at(PLOTS[0].1, "partitioned", At::Last),
                ]),
                1.0,
                0.9,
                "ours",
            ),
            Claim::at_least(
                "long, much contention: locking first wins",
                Quantity::Best(vec![
                    at(PLOTS[1].1, "planned", At::First),
                    at(PLOTS[1].1, "partitioned", At::First),
                ]),
                at(PLOTS[1].1, "dynamic", At::First),
                1.1,
                1.0,
                "ours",
            ),
        ],
        remark: "These are our own claims. The stronger the colour, the more commits; the strongest in a column wins there.",
    }
}
