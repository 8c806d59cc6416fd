//! Two questions that none of the papers asks: the engine as it is against what each paper ends with, and which way of
//! running transactions wins where.

use super::{RATE, log_lines};
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Plot, Run, Scale, Shape, Take},
};

pub(super) fn experiments(scale: Scale) -> Vec<Experiment> {
    vec![all_systems(scale), executions(scale)]
}

const SHORE_MT: &str = "Shore-MT";
/// Whose waiters spin.
const SPINNING: &str = "lightweight intents, hybrid dreadlocks";

/// What the papers end with, each as options for so many cores. Hybrid latches are the road's.
const SYSTEMS: [(&str, &str); 4] = [
    ("road", ""),
    // The ladder's step `final`.
    (
        SHORE_MT,
        "--set translation=cuckoo --set transit=many_lists --set latch_mode=always_shared --set intent_locks=private \
         --set log_insert=compare_exchange",
    ),
    ("staged locks", "--set lock_table=staged"),
    (
        SPINNING,
        // A thread that waits spins, and hundreds that do come to an end only because each wait does.
        "--set intent_locks=lightweight --set deadlock_policy=dreadlocks_hybrid --set lock_timeout=20ms",
    ),
];
/// Why those who lock first are ahead where records are hot.
const TAKEN_AS_ONE_GOES: &str = "locking as one goes, who waits for a second hot record holds the first, in any order. What is ahead knows \
                                 beforehand what it locks, and is a way of running this engine (`execution=planned`)";
/// Why those who lock first are ahead in TPC-C, too.
const CHAINS: &str = "a warehouse's row is a chain of transactions, and 256 cores wait for locks for 40 % of their time if they lock as they go (255,000 commits/s), and for 33 % \
                      if they lock first (267,000). Where locks travel nobody sleeps (277,000). Shore-MT does 21,000: by 32 cores already \
                      those who insert into the log wait for its tail, which they change by comparing, for 43 % of their time";
/// Why Shore-MT is ahead in TPC-B.
const ALIKE_IN_ONE_WINDOW: &str = "64 branches are 64 chains: those whose waiters sleep wait for locks for more than half of their time. Shore-MT's window is three times as long, and in such a one \
                                   the road does more, too: it was 8 % by an earlier program, and the lead is 6 % (151,000 and 161,000)";
const DEADLOCK_FREE: &str = "deadlock-free";
const ORTHRUS: &str = "ORTHRUS";

/// A workload of the papers.
struct Work {
    plot: &'static str,
    claim: &'static str,
    command: &'static str,
    /// Whether it says beforehand what it locks, and how it is divided: what the last paper's systems need.
    planned: bool,
    /// Whether nearly everybody waits for locks: hundreds who spin meanwhile take too long to simulate when it is to be
    /// quick.
    waits: bool,
    /// For how long each thread runs when quick, in all, and the least for all of them, in seconds: several times what
    /// a transaction takes on the most cores.
    quick: (f64, f64),
    /// Why others are ahead.
    why: Option<&'static str>,
}

const WORKLOADS: [Work; 7] = [
    Work {
        plot: "ten reads, commits/s",
        claim: "reading",
        command: "bench ycsb --records 20000 --read-percent 100",
        planned: true,
        waits: false,
        quick: (0.02, 0.001),
        why: None,
    },
    Work {
        plot: "ten updates, 2 of 64 hot, commits/s",
        claim: "updating hot records",
        command: "bench ycsb --records 20000 --read-percent 0 --distribution hot:64 --hot-operations 2",
        planned: true,
        waits: true,
        // A thread that waits for hot records sleeps: less is done.
        quick: (0.06, 0.06),
        why: Some(TAKEN_AS_ONE_GOES),
    },
    Work {
        plot: "TPC-C, commits/s",
        claim: "TPC-C",
        command: "bench tpcc --mix neworder-payment --warehouses 64 --items 300 --customers 30",
        planned: true,
        waits: false,
        quick: (0.02, 0.01),
        why: Some(CHAINS),
    },
    Work {
        plot: "TPC-B, commits/s",
        claim: "TPC-B",
        command: "bench tpcb --branches 64 --accounts 100",
        planned: false,
        waits: false,
        quick: (0.02, 0.008),
        why: Some(ALIKE_IN_ONE_WINDOW),
    },
    Work {
        plot: "record insertion, commits/s",
        claim: "inserting records",
        command: "bench insert --commit-every 10",
        planned: false,
        waits: false,
        quick: (0.02, 0.006),
        why: None,
    },
    Work {
        plot: "ranges of ten rows, commits/s",
        claim: "reading ranges, and a few updates",
        command: "bench txbench --keys 20000 --rows 10 --updates 0.2",
        planned: false,
        waits: false,
        quick: (0.02, 0.002),
        why: None,
    },
    Work {
        plot: "scans of 200 rows, commits/s",
        claim: "scanning",
        command: "bench scan --records 10000 --length 200",
        planned: false,
        waits: false,
        quick: (0.04, 0.004),
        why: None,
    },
];

/// The options of a system on so many cores.
fn system(name: &str, cores: u32) -> String {
    match name {
        DEADLOCK_FREE => format!("--threads {cores} --execution planned"),
        ORTHRUS => {
            // No more partitions than warehouses.
            let control = (cores / 5).clamp(1, 64);
            let execution = (cores - control).max(1);
            // No more transactions than may be open, those that end among them.
            let in_flight = (500 / execution).clamp(1, 4);
            format!(
                "--drawn-by engine --in-flight {in_flight} --execution partitioned --partitions {control} \
                 --set execution_threads={execution}"
            )
        }
        _ => {
            let options =
                SYSTEMS.iter().find(|(system, _)| *system == name).map_or("", |(_, options)| options);
            format!("--threads {cores} {options}")
        }
    }
}

fn systems(work: &Work, scale: Scale) -> Vec<&'static str> {
    let of_all = SYSTEMS.iter().map(|(name, _)| *name);
    let of_all = of_all.filter(|name| *name != SPINNING || !work.waits || scale == Scale::Full);
    of_all.chain([DEADLOCK_FREE, ORTHRUS].into_iter().filter(|_| work.planned)).collect()
}

fn all_systems(scale: Scale) -> Experiment {
    let points = scale.pick(&[1_u32, 32, 256][..], &[1, 8, 64, 256, 1024][..]);
    let mut runs = Vec::new();
    for work in &WORKLOADS {
        for name in systems(work, scale) {
            for &cores in points {
                let (each, least) = scale.pick(work.quick, (0.1, work.quick.1));
                // A mutex that all wait for lets few transactions end.
                let times = if name == SHORE_MT { scale.pick(3.0, 1.0) } else { 1.0 };
                let seconds = (each / f64::from(cores)).max(least) * times;
                let Work { command, plot, .. } = work;
                let options = system(name, cores);
                let arguments = format!(
                    "{command} --profile mesh1024 --cores {cores} --durability lazy --set log_buffer_bytes=64MiB \
                     --seconds {seconds:.5} --warm-up {seconds:.5} {options}"
                );
                runs.push(Run::simulated(arguments.trim_end(), [Take::whole(plot, name, cores, RATE)]));
            }
        }
    }
    let claim = |work: &Work| {
        let others = systems(work, scale).into_iter().filter(|name| *name != "road");
        let others = others.map(|name| Quantity::spot(work.plot, name, At::Last)).collect();
        let road = Quantity::spot(work.plot, "road", At::Last);
        let ahead = Quantity::Best(others);
        let claim = Claim::at_least(work.claim, road, ahead, 0.97, 0.97, "ours: nobody is ahead of the road");
        match work.why {
            Some(why) => claim.because(Cause::Technique, why),
            None => claim,
        }
    };
    Experiment {
        id: "6.1",
        paper: Paper::Beyond,
        figure: "first question",
        title: "The engine as it is beside what each paper ends with, on more and more cores",
        runs,
        plots: WORKLOADS.iter().map(|work| log_lines(work.plot, "cores")).collect(),
        claims: WORKLOADS.iter().map(claim).collect(),
        remark: "These are our own claims, not a paper's; each is of the most cores. Each system is this engine with the choices that the paper \
                 ends with. The latches of Böttcher et al. are the road's, so that their system is the road. ORTHRUS has a fifth of the cores, 64 at most, \
                 for locks, and random partitions; it is run where transactions say what they lock. With hybrid Dreadlocks who waits for a lock for \
                 20 ms gives up. Up to 256 cores when quick, 1,024 otherwise.",
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
        // One for each partition at least: a hot record is moved to the partition that a transaction takes it from.
        for &hot in scale.pick(&[16_u32, 4096][..], &[16, 64, 256, 1024, 4096][..]) {
            for way in WAYS {
                let rest = match way {
                    "partitioned" => {
                        let control = cores / 4;
                        format!(
                            "--cores {cores} --drawn-by engine --in-flight 4 --partitions {control} --set execution_threads={}",
                            cores - control
                        )
                    }
                    _ => format!("--cores {cores} --threads {cores} --partitions {}", cores / 4),
                };
                let arguments = format!(
                    "bench ycsb --records 10000 --value-bytes 1000 --operations {length} --read-percent 0 --distribution hot:{hot}:50 --execution {way} {rest} \
                     --partitions-per-transaction {partitions} --durability lazy --set log_buffer_bytes=64MiB {}",
                    scale.pick("--seconds 0.02 --warm-up 0.005", "--seconds 0.08 --warm-up 0.02")
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
        figure: "second question",
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
                1.03,
                0.97,
                "ours",
            )
            .because(
                Cause::Technique,
                "by 2.6 %, where 3 are claimed: two locks are little beside the rest of a transaction",
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
