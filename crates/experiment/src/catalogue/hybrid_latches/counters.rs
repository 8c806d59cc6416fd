//! What an acquisition costs: table 3.

use super::super::log_lines;
use crate::{
    claim::{At, Cause, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Scale, Take, Value},
    judgement::rounded,
};

const READING: &str = "reading, ns of processors";
const WRITING: &str = "writing, ns of processors";
/// Cycles of the paper's processors in a nanosecond.
const GIGAHERTZ: f64 = 2.2;

/// A latch of Table 3.
struct Row {
    latch: &'static str,
    /// Its name there.
    name: &'static str,
    /// Cycles: of a reader by 1 thread and by 40, of a writer alone; and how each is claimed.
    cycles: [(&'static str, f64); 3],
}

const TABLE_3: [Row; 6] = [
    Row {
        latch: "queuing_rw",
        name: "local spinning",
        cycles: [
            ("local spinning, a reader alone", 141.0),
            ("local spinning, 40 readers", 77_584.0),
            ("local spinning, a writer alone", 70.0),
        ],
    },
    Row {
        latch: "spin_rw",
        name: "reader-writer spinlock",
        cycles: [
            ("reader-writer spinlock, a reader alone", 57.0),
            ("reader-writer spinlock, 40 readers", 4531.0),
            ("reader-writer spinlock, a writer alone", 60.0),
        ],
    },
    Row {
        latch: "std_rwlock",
        name: "reader-writer mutex",
        cycles: [
            ("reader-writer mutex, a reader alone", 81.0),
            ("reader-writer mutex, 40 readers", 9583.0),
            ("reader-writer mutex, a writer alone", 95.0),
        ],
    },
    Row {
        latch: "optimistic",
        name: "optimistic",
        cycles: [
            ("optimistic, a reader alone", 8.0),
            ("optimistic, 40 readers", 12.0),
            ("optimistic, a writer alone", 97.0),
        ],
    },
    Row {
        latch: "hybrid_spinning",
        name: "hybrid",
        cycles: [
            ("hybrid without parking lot, a reader alone", 11.0),
            ("hybrid without parking lot, 40 readers", 17.0),
            ("hybrid without parking lot, a writer alone", 69.0),
        ],
    },
    Row {
        latch: "hybrid",
        name: "hybrid with parking lot",
        cycles: [
            ("hybrid with parking lot, a reader alone", 11.0),
            ("hybrid with parking lot, 40 readers", 17.0),
            ("hybrid with parking lot, a writer alone", 82.0),
        ],
    },
];

/// The columns that are claimed as they are, within a factor of two.
fn absolute() -> Vec<Claim> {
    const COLUMNS: [(&str, f64); 3] = [(READING, 1.0), (READING, 40.0), (WRITING, 1.0)];
    let of = |row: &Row| {
        let name = row.name;
        let claim = move |((plot, threads), (says, cycles)): ((&'static str, f64), (&'static str, f64))| {
            let there = Quantity::Is(cycles / GIGAHERTZ);
            let paper = format!("{cycles} cycles, {} ns", rounded(cycles / GIGAHERTZ));
            let claim = Claim::alike(says, Quantity::spot(plot, name, At::X(threads)), there, 2.0, paper);
            match name {
                "optimistic" => claim.because(Cause::Experiment, "a writer alone makes one compare-and-swap and one store here; why that takes 97 cycles there, of 20 instructions, is not said"),
                _ => claim,
            }
        };
        COLUMNS.into_iter().zip(row.cycles).map(claim).collect::<Vec<_>>()
    };
    TABLE_3.iter().flat_map(of).collect()
}

pub(super) fn counters(scale: Scale) -> Experiment {
    let mut runs = Vec::new();
    for Row { latch, name, .. } in TABLE_3 {
        for (mix, plot, seconds) in [
            ("read-only", READING, scale.pick("0.00004", "0.0002")),
            ("write-only", WRITING, scale.pick("0.001", "0.002")),
        ] {
            let arguments = format!(
                "bench latch --latch {latch} --mix {mix} --threads 1,40 --profile xeon2x10 --cores 41 --seconds {seconds}"
            );
            runs.push(Run::simulated(
                arguments,
                [Take::each(plot, "/results", name, "{/threads}", Value::Of("/computed_ns"))],
            ));
        }
    }
    let reading = |series: &str, at| Quantity::spot(READING, series, At::X(at));
    let writing = |series: &str, at| Quantity::spot(WRITING, series, At::X(at));
    let (optimistic, spin, mutex, queue, spinning, hybrid) = (
        "optimistic",
        "reader-writer spinlock",
        "reader-writer mutex",
        "local spinning",
        "hybrid",
        "hybrid with parking lot",
    );
    let relative = vec![
        Claim::times(
            "40 readers: the spinlock costs 378 times the optimistic latch",
            reading(spin, 40.0),
            reading(optimistic, 40.0),
            4531.0 / 12.0,
            2.5,
        ),
        Claim::times(
            "40 readers: the mutex, 799 times",
            reading(mutex, 40.0),
            reading(optimistic, 40.0),
            9583.0 / 12.0,
            2.5,
        ),
        Claim::alike(
            "the hybrid latch reads as cheaply as the optimistic one",
            reading(hybrid, 40.0),
            reading(optimistic, 40.0),
            2.0,
            "17 cycles and 12",
        ),
        Claim::order(
            "40 readers, the dearest first",
            [reading(queue, 40.0), reading(mutex, 40.0), reading(spin, 40.0), reading(hybrid, 40.0)],
            "77,584; 9,583; 4,531; 17 cycles",
        ),
        Claim::times(
            "40 writers: the spinlock costs 124 times the hybrid latch with its parking lot",
            writing(spin, 40.0),
            writing(hybrid, 40.0),
            52215.0 / 421.0,
            2.5,
        ),
        Claim::order(
            "40 writers, the dearest first",
            [
                writing(queue, 40.0),
                writing(spin, 40.0),
                writing(mutex, 40.0),
                writing(optimistic, 40.0),
                writing(spinning, 40.0),
                writing(hybrid, 40.0),
            ],
            "79,928; 52,215; 29,201; 8,636; 4,082; 421 cycles",
        ),
    ];
    Experiment {
        id: "4.4",
        paper: Paper::HybridLatches,
        figure: "Table 3",
        title: "What an acquisition costs processors, reading and writing, by 1 thread and by 40",
        runs,
        plots: vec![log_lines(READING, "threads"), log_lines(WRITING, "threads")],
        claims: [absolute(), relative].concat(),
        remark: "As there, a thread that sleeps spends nothing; 2.2 cycles there are a nanosecond. What a reader costs is claimed within a factor of \
                 two, by one thread and by 40, and what a writer costs that is alone; what 40 writers cost, only relative to each other. The spinlock and the queue \
                 are of the kinds of tbb's, and wait as its threads do, in the system after 31 pauses: what that takes decides which of the two is the dearer, and is partly \
                 estimated. How the paper's optimistic latch waits is not said; ours backs off. The speculative latch (transactional memory) is not \
                 here.",
    }
}
