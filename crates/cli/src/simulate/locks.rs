//! `foreshore simulate locks`: what locks cost, counted.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use foreshore_bench::{LockCostReport, lock_costs};

use super::SimulateLocksArgs;
use crate::{
    bench::text::written,
    output::{CliError, json_line, line},
};

pub(super) fn run(args: &SimulateLocksArgs) -> Result<ExitCode, CliError> {
    let report = lock_costs(&args.lock_tables, &args.intent_locks)?;
    if args.json {
        json_line(&report)?;
    } else {
        line(written(|out| write_report(out, &report)).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A table for each lock table with each kind of intent locks, a line for each operation.
fn write_report(out: &mut String, report: &LockCostReport) -> fmt::Result {
    writeln!(out, "Counts of one operation in steady state, nobody in its way")?;
    for kind in &report.results {
        writeln!(
            out,
            "\n{}, intent locks {}: {:.2} cache lines moved a transaction between two cores\n\
             {:28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>12}",
            kind.lock_table,
            kind.intent_locks,
            kind.lines_moved,
            "",
            "changes",
            "stores",
            "fences",
            "latches",
            "mutexes",
            "allocations"
        )?;
        for cost in &kind.operations {
            writeln!(
                out,
                "{:28} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>12.2}",
                cost.operation,
                cost.changes,
                cost.stores,
                cost.fences,
                cost.latches,
                cost.mutexes,
                cost.allocations
            )?;
        }
    }
    Ok(())
}
