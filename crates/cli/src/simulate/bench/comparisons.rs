//! What is measured beside the workloads: latches, and variants of the engine side by side.

use std::{path::Path, process::ExitCode};

use foreshore_bench::{BenchError, LatchReport, LatchResult, Report, Silent};
use foreshore_env::sim::{self, Settings, World};
use serde::Serialize;

use super::{machines_of_bands, settings};
use crate::{
    bench::{
        commit::Trial,
        comparison::{self, SideBySide},
        granularity::GranularityArgs,
        intent::IntentArgs,
        ladder::{self, LadderArgs},
        latch::{self, LatchArgs},
        locks::LocksArgs,
    },
    output::{CliError, json_line, line},
    simulate::{MachineArgs, speed::tell_speed},
};

/// A comparison cannot run on several machines in turn.
fn check_one_machine(machine: &MachineArgs) -> Result<(), CliError> {
    if machine.bands {
        return Err(CliError::usage("this is itself a comparison", "leave out --bands"));
    }
    Ok(())
}

/// One run of a comparison, on a machine of its own, which has as many cores as the run has threads if nothing else was said.
pub(super) fn trial(trial: &Trial, machine: &MachineArgs) -> Result<Report, CliError> {
    check_one_machine(machine)?;
    let settings = settings(machine, machine.cores.unwrap_or(trial.threads()), trial.seed())?;
    let run = || trial.run(Path::new("/bench"), &Silent).map_err(|error| error.to_string());
    let simulated = sim::simulate(&settings, run);
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    simulated.result.map_err(CliError::Other)
}

/// The ladder, all steps on one machine.
pub(super) fn climb(args: &LadderArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    check_one_machine(machine)?;
    let cores = machine.cores.unwrap_or_else(|| args.comparison.most_threads());
    let settings = settings(machine, cores, args.comparison.seed())?;
    let simulated = sim::simulate(&settings, || args.measure().map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    tell_speed(simulated.accesses, 0.0);
    ladder::print(args, &simulated.result.map_err(CliError::Other)?)
}

/// Variants of the engine, all on one machine.
pub(super) fn side_by_side(compared: &SideBySide<'_>, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    check_one_machine(machine)?;
    let args = compared.args();
    let settings = settings(machine, machine.cores.unwrap_or_else(|| args.most_threads()), args.seed())?;
    let simulated = sim::simulate(&settings, || compared.measure().map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    tell_speed(simulated.accesses, 0.0);
    comparison::print(&simulated.result.map_err(CliError::Other)?, args)
}

/// Intent locks alone, all kinds on one machine.
pub(super) fn intents(args: &IntentArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    args.print(&on_one_machine(machine, args.threads(), || args.measure())?)
}

/// Latches that guard few tuples and many, all on one machine.
pub(super) fn granularity(args: &GranularityArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    args.print(&on_one_machine(machine, args.threads(), || args.measure())?)
}

/// Measures on one machine, which has as many cores as there are threads if nothing else was said.
fn on_one_machine<R: Clone>(
    machine: &MachineArgs,
    threads: usize,
    measure: impl FnOnce() -> Result<R, BenchError>,
) -> Result<R, CliError> {
    check_one_machine(machine)?;
    let settings = settings(machine, machine.cores.unwrap_or(threads), 1)?;
    let simulated = sim::simulate(&settings, || measure().map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    tell_speed(simulated.accesses, 0.0);
    simulated.result.map_err(CliError::Other)
}

/// The lock manager alone, all combinations on one machine.
pub(super) fn locks(args: &LocksArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    args.print(&on_one_machine(machine, args.most_threads(), || args.measure())?)
}

/// What a latch came to on one of the machines of `--bands`.
#[derive(Serialize)]
struct LatchBand {
    retention_percent: u64,
    remote_percent: u64,
    acquisitions_per_s: f64,
    ns: f64,
    computed_ns: Option<f64>,
}

/// Latches on the simulated machine; with `--bands` each result beside those of the other machines.
pub(super) fn latches(args: &LatchArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    let (settings, report) = measure_latches(args, machine)?;
    let mut bands: Vec<Vec<LatchBand>> = report.results.iter().map(|_| Vec::new()).collect();
    for machine in machines_of_bands(machine) {
        let (_, report) = measure_latches(args, &machine)?;
        for (bands, result) in bands.iter_mut().zip(&report.results) {
            bands.push(LatchBand {
                retention_percent: machine.retention.unwrap_or_default(),
                remote_percent: machine.remote,
                acquisitions_per_s: result.acquisitions_per_s,
                ns: result.ns,
                computed_ns: result.computed_ns,
            });
        }
    }
    if args.json() {
        json_line(&with_bands(&report, &bands)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let World::Machine { profile, cores } = &settings.world else { unreachable!("made above") };
    line(format!(
        "{cores} cores of {} at {} GHz, retention {} %, remote {} %",
        profile.name, profile.gigahertz, profile.retention_percent, machine.remote
    ))?;
    line(latch::text(&report).trim_end())?;
    if machine.bands {
        line("\n  ns on this machine, and the least and most on machines that are a little other")?;
        for (result, bands) in report.results.iter().zip(&bands) {
            let (least, most) = (bands.iter().map(|band| band.ns))
                .fold((f64::INFINITY, 0.0_f64), |(least, most), ns| (least.min(ns), most.max(ns)));
            let LatchResult { latch, mix, threads, ns, .. } = result;
            line(format!("  {latch:<20}{mix:<12}{threads:>5} threads{ns:>12.1} ({least:.1} to {most:.1})"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_latches(args: &LatchArgs, machine: &MachineArgs) -> Result<(Settings, LatchReport), CliError> {
    let settings = settings(machine, machine.cores.unwrap_or_else(|| args.most_threads()), 1)?;
    let simulated = sim::simulate(&settings, || latch::measure(args).map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    tell_speed(simulated.accesses, 0.0);
    Ok((settings, simulated.result.map_err(CliError::Other)?))
}

/// The report, each of its results with what it came to on the other machines.
fn with_bands(report: &LatchReport, bands: &[Vec<LatchBand>]) -> Result<serde_json::Value, CliError> {
    let told = |error: serde_json::Error| CliError::Other(error.to_string());
    let mut whole = serde_json::to_value(report).map_err(told)?;
    let results = whole["results"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    for (result, bands) in results.iter_mut().zip(bands).filter(|(_, bands)| !bands.is_empty()) {
        result["bands"] = serde_json::to_value(bands).map_err(told)?;
    }
    Ok(whole)
}
