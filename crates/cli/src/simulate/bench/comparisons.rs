//! What is measured beside the workloads: latches, and variants of the engine side by side.

use std::{path::Path, process::ExitCode};

use foreshore_bench::{BenchError, LatchReport, Length};
use foreshore_env::{
    sim::{self, World},
    time::Duration,
};

use super::{
    Left,
    again::again,
    bands::{self, Rows},
    observers::Charged,
    outlook::Outlook,
    refuse_directory, refuse_endless, settings,
};
use crate::{
    bench::{
        commit::{self, ElrArgs, KillArgs, Trial, Tried},
        comparison::{self, SideBySide},
        granularity::GranularityArgs,
        intent::IntentArgs,
        ladder::{self, LadderArgs},
        latch::{self, LatchArgs},
        locks::LocksArgs,
        memory::MemoryArgs,
        text::written,
    },
    output::{CliError, json_line, judged, line},
    simulate::{
        MachineArgs, Seeded,
        speed::{cpu_seconds, tell_speed},
    },
};

/// One run of a comparison, on a machine of its own, which has as many cores as the run has threads if nothing else was
/// said.
fn trial(trial: &Trial, machine: &MachineArgs) -> Result<Tried, CliError> {
    refuse_endless(trial.length())?;
    let settings = settings(machine, machine.cores.unwrap_or(trial.threads()), trial.seed())?;
    let outlook = Outlook::default();
    let run = || trial.run(Path::new("/bench"), &Charged::loads(&outlook)).map_err(Left::from);
    let simulated = sim::simulate_watched(&settings, run, &mut |now| outlook.look(now));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    Ok(simulated.result.map(Tried::from)?)
}

/// A stage on which each run has a process of its own, so that its machine is the first there.
fn apart(machine: &MachineArgs) -> impl FnMut(&Trial) -> Result<Tried, CliError> {
    let mut number = 0;
    move |_| {
        let tried = again(machine, &["--only".to_owned(), number.to_string()])?;
        number += 1;
        serde_json::from_value(tried)
            .map_err(|error| CliError::Other(format!("a run came to no report: {error}")))
    }
}

/// Measures on one machine, which has as many cores as there are threads if nothing else was said.
fn on_machine<R: Clone>(
    machine: &MachineArgs,
    threads: usize,
    seed: u64,
    measure: impl FnOnce(&Outlook) -> Result<R, BenchError>,
) -> Result<R, CliError> {
    let settings = settings(machine, machine.cores.unwrap_or(threads), seed)?;
    let (begun, outlook) = (cpu_seconds(), Outlook::default());
    let run = || measure(&outlook).map_err(Left::from);
    let simulated = sim::simulate_watched(&settings, run, &mut |now| outlook.look(now));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    tell_speed(simulated.accesses, begun, 0.0);
    Ok(simulated.result?)
}

/// Runs of a number of iterations are for those who count instructions.
fn refuse_iterations(iterations: Option<u64>) -> Result<(), CliError> {
    match iterations {
        None => Ok(()),
        Some(_) => Err(CliError::usage(
            "instructions are counted on the real machine",
            "leave out --iterations, or use the usual build under callgrind",
        )),
    }
}

/// What one combination takes, of those that have no warm-up.
fn lasting(seconds: Duration) -> Length {
    Length::Time { warm_up: Duration::ZERO, measured: seconds }
}

/// Early lock release; each run has a machine of its own.
pub(super) fn elr(args: &ElrArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    if let Some(only) = args.only()? {
        return json_line(&trial(&only, machine)?).map(|()| ExitCode::SUCCESS);
    }
    let measure = |on: &MachineArgs, tell| commit::elr(args, &mut apart(on), tell);
    bands::show(&COMMITS, (machine, args.threads()), args.json(), measure, |outcome| {
        commit::print(outcome, args.json())
    })
}

/// Who gives way in a deadlock; likewise.
pub(super) fn kill(args: &KillArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    if let Some(only) = args.only()? {
        return json_line(&trial(&only, machine)?).map(|()| ExitCode::SUCCESS);
    }
    let measure = |on: &MachineArgs, tell| commit::kill(args, &mut apart(on), tell);
    bands::show(&COMMITS, (machine, args.threads()), args.json(), measure, |outcome| {
        commit::print(outcome, args.json())
    })
}

const COMMITS: Rows = Rows {
    place: "/rows",
    names: &["log_latency", "zipf", "read_ratio", "side"],
    figure: "commits_per_s",
    unit: "commits/s",
};

/// The ladder, all steps on one machine.
pub(super) fn climb(args: &LadderArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    let rows =
        Rows { place: "/ladder", names: &["threads", "step"], figure: "commits_per_s", unit: "commits/s" };
    let comparison = &args.comparison;
    refuse_directory(comparison.directory())?;
    refuse_endless(comparison.length())?;
    let measure = |on: &MachineArgs, _| {
        on_machine(on, comparison.most_threads(), comparison.seed(), |outlook| {
            args.measure(&Charged::loads(outlook))
        })
        .map(ladder::outcome)
    };
    bands::show(&rows, (machine, comparison.most_threads()), comparison.json(), measure, |outcome| {
        ladder::print(args, outcome)
    })
}

/// Variants of the engine, all on one machine.
pub(super) fn side_by_side(compared: &SideBySide<'_>, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    let rows = Rows {
        place: "/results",
        names: &["threads", "variant"],
        figure: "commits_per_s",
        unit: "commits/s",
    };
    let args = compared.args();
    refuse_directory(args.directory())?;
    refuse_endless(args.length())?;
    let measure = |on: &MachineArgs, _| {
        on_machine(on, args.most_threads(), args.seed(), |outlook| compared.measure(&Charged::loads(outlook)))
    };
    bands::show(&rows, (machine, args.most_threads()), args.json(), measure, |report| {
        comparison::print(report, args)
    })
}

/// Intent locks alone, all kinds on one machine.
pub(super) fn intents(
    Seeded { args, seed }: &Seeded<IntentArgs>,
    machine: &MachineArgs,
) -> Result<ExitCode, CliError> {
    refuse_iterations(args.iterations)?;
    let rows =
        Rows { place: "/results", names: &["absolute", "kind"], figure: "elapsed_s", unit: "s for all" };
    let measure = |on: &MachineArgs, _| on_machine(on, args.threads(), *seed, |_| args.measure());
    bands::show(&rows, (machine, args.threads()), args.json(), measure, |report| args.print(report))
}

/// Latches that guard few tuples and many, all on one machine.
pub(super) fn granularity(args: &GranularityArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    let rows = Rows {
        place: "/results",
        names: &["writes", "latch", "per_latch"],
        figure: "tuples_per_s",
        unit: "tuples/s",
    };
    refuse_endless(lasting(args.seconds))?;
    let measure = |on: &MachineArgs, _| on_machine(on, args.threads(), args.seed(), |_| args.measure());
    bands::show(&rows, (machine, args.threads()), args.json(), measure, |report| args.print(report))
}

/// Single accesses to memory, by two threads at most.
pub(super) fn memory(
    Seeded { args, seed }: &Seeded<MemoryArgs>,
    machine: &MachineArgs,
) -> Result<ExitCode, CliError> {
    let rows = Rows { place: "/results", names: &["access", "kib", "threads"], figure: "ns", unit: "ns" };
    let measure = |on: &MachineArgs, _| on_machine(on, 2, *seed, |_| args.measure());
    bands::show(&rows, (machine, 2), args.json(), measure, |report| args.print(report))
}

/// The lock manager alone, all combinations on one machine.
pub(super) fn locks(
    Seeded { args, seed }: &Seeded<LocksArgs>,
    machine: &MachineArgs,
) -> Result<ExitCode, CliError> {
    refuse_iterations(args.iterations)?;
    let rows = Rows {
        place: "/results",
        names: &["locks", "mix", "keys", "table", "policy", "threads"],
        figure: "locks_per_s",
        unit: "locks/s",
    };
    refuse_endless(lasting(args.seconds))?;
    let measure = |on: &MachineArgs, _| on_machine(on, args.most_threads(), *seed, |_| args.measure());
    bands::show(&rows, (machine, args.most_threads()), args.json(), measure, |report| args.print(report))
}

/// Latches by themselves, all on one machine.
pub(super) fn latches(
    Seeded { args, seed }: &Seeded<LatchArgs>,
    machine: &MachineArgs,
) -> Result<ExitCode, CliError> {
    refuse_iterations(args.iterations)?;
    let rows = Rows { place: "/results", names: &["latch", "mix", "threads"], figure: "ns", unit: "ns" };
    refuse_endless(lasting(args.seconds))?;
    let measure = |on: &MachineArgs, _| on_machine(on, args.most_threads(), *seed, |_| latch::measure(args));
    bands::show(&rows, (machine, args.most_threads()), args.json(), measure, |report| {
        let printed = match args.json() {
            true => json_line(report),
            false => print_latches(args, machine, report),
        };
        judged(printed, report.consistent)
    })
}

fn print_latches(args: &LatchArgs, machine: &MachineArgs, report: &LatchReport) -> Result<(), CliError> {
    let settings = settings(machine, machine.cores.unwrap_or_else(|| args.most_threads()), 1)?;
    let World::Machine { profile, cores } = &settings.world else { unreachable!("made above") };
    line(format!(
        "{cores} cores of {} at {} GHz, retention {} %, remote {} %",
        profile.name, profile.gigahertz, profile.retention_percent, machine.remote
    ))?;
    line(written(|out| latch::write_report(out, report)).trim_end())
}
