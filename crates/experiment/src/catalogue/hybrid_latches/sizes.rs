//! Sizes and constants: table 2 and §3.4.

use super::super::{bars, constants};
use crate::{
    claim::{At, Claim, Quantity},
    experiment::{Experiment, Paper, Run, Take, Value},
};

pub(super) fn parking() -> Experiment {
    let (run, plot, claims) = constants(&[
        ("parking spaces", "spaces", 512.0),
        ("between two looks around of who waits for a latch", "ms", 10.0),
    ]);
    Experiment {
        id: "4.7",
        paper: Paper::HybridLatches,
        figure: "§3.4",
        title: "Constants of the parking lot",
        runs: vec![run],
        plots: vec![plot],
        claims,
        remark: "Nothing is measured. Spaces are chained where threads wait for addresses that share one; how is tested in crates/latch.",
    }
}

pub(super) fn sizes() -> Experiment {
    const PLOT: &str = "bytes";
    let take = Take::each(PLOT, "/results", "{/latch}", "1", Value::Of("/size_bytes"));
    let size = |series: &str| Quantity::spot(PLOT, series, At::First);
    let is = |says, series, bytes: f64| Claim::exactly(says, size(series), bytes);
    Experiment {
        id: "4.6",
        paper: Paper::HybridLatches,
        figure: "Table 2",
        title: "How large latches are",
        runs: vec![Run::real(
            "bench latch --latch all --mix read-only --threads 1 --seconds 0.01 --rounds 1",
            [take],
        )],
        plots: vec![bars(PLOT, "")],
        claims: vec![
            is("hybrid: 16 bytes", "hybrid", 16.0),
            is("optimistic: 8", "optimistic", 8.0),
            is("reader-writer spinlock: 8", "spin_rw", 8.0),
            Claim::at_most(
                "the mutex of the system is no larger than theirs",
                size("std_mutex"),
                Quantity::Is(1.0),
                40.0,
                40.0,
                "40",
            ),
            Claim::at_most(
                "nor is its reader-writer mutex",
                size("std_rwlock"),
                Quantity::Is(1.0),
                56.0,
                56.0,
                "56",
            ),
        ],
        remark: "Theirs are C++'s: `std::mutex` has 40 bytes, Rust's is a word for the futex.",
    }
}
