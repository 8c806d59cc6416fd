//! `foreshore simulate bench`: a benchmark on a simulated machine.

mod again;
mod bands;
mod comparisons;
mod observers;
mod outlook;
mod simulation;
mod source;

use std::{path::Path, process::ExitCode};

use foreshore_bench::{BenchError, EngineOptions, Failure, Length, Report, RunOptions, Workload, engines};
use foreshore_env::{
    sim::{self, Device, MachineReport, Profile, Settings, World},
    time::Duration,
};
use serde::Serialize;
use serde_json::Value;

use self::{
    observers::{Charged, Watch},
    outlook::Outlook,
    simulation::Simulation,
};
use super::{
    MachineArgs, Simulated,
    speed::{cpu_seconds, tell_speed},
};
use crate::{
    bench::{CommonArgs, summary},
    output::{CliError, json_line, judged, line},
};

/// The longest that a run may take, in virtual time.
const LIMIT: Duration = Duration::from_secs(7200);
/// The longest that a workload is measured, warm-up included: the rest is for what is done before and after.
const LONGEST: Duration = Duration::from_secs(3600);

/// What `bench` reports, and what the machine did meanwhile.
#[derive(Serialize)]
struct SimulatedReport {
    #[serde(flatten)]
    report: Report,
    simulation: Simulation,
    /// The same on the machines of `--bands`, with `retention_percent` and `remote_percent` beside the rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bands: Vec<Value>,
}

pub(super) fn run(what: Simulated, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    match what {
        Simulated::Workload(args) => run_workload(args.into_parts()?, machine),
        Simulated::Txbench(args) => run_workload(args.into_parts()?, machine),
        Simulated::Latch(args) => comparisons::latches(&args, machine),
        Simulated::Granularity(args) => comparisons::granularity(&args, machine),
        Simulated::Memory(args) => comparisons::memory(&args, machine),
        Simulated::Locks(args) => comparisons::locks(&args, machine),
        Simulated::Elr(args) => comparisons::elr(&args, machine),
        Simulated::Killpolicy(args) => comparisons::kill(&args, machine),
        Simulated::Ladder(args) => comparisons::climb(&args, machine),
        Simulated::Dreadlocks(args) => comparisons::side_by_side(&args.side_by_side()?, machine),
        Simulated::Nodeadlock(args) => comparisons::side_by_side(&args.side_by_side()?, machine),
        Simulated::Keyrange(args) => comparisons::side_by_side(&args.side_by_side()?, machine),
        Simulated::Intent(args) => comparisons::intents(&args, machine),
    }
}

fn run_workload(
    (workload, args): (Box<dyn Workload>, CommonArgs),
    machine: &MachineArgs,
) -> Result<ExitCode, CliError> {
    let (settings, mut report, machine_report) = simulate(workload.as_ref(), &args, machine)?;
    let simulation = Simulation::of(machine, &settings, &machine_report, report.ended)?;
    let World::Machine { cores, .. } = settings.world else { unreachable!("made for a machine") };
    let bands = bands(machine, cores)?;
    report.consistent &= bands.iter().all(bands::is_consistent);
    let consistent = report.consistent;
    let simulated = SimulatedReport { report, simulation, bands };
    let printed = if args.json {
        json_line(&simulated)
    } else {
        summary::print(&simulated.report, None)
            .and_then(|()| simulation::print(&simulated.simulation))
            .and_then(|()| print_bands(&simulated.bands, bands::has_remote(machine, cores)))
    };
    judged(printed, consistent)
}

/// One run of a workload.
fn simulate(
    workload: &dyn Workload,
    args: &CommonArgs,
    machine: &MachineArgs,
) -> Result<(Settings, Report, MachineReport), CliError> {
    refuse_directory(args.dir.as_deref())?;
    let cores = machine.cores.unwrap_or_else(|| args.computing_threads());
    let settings = settings(machine, cores, args.seed)?;
    refuse_endless(args.length())?;
    let options = args.engine_options(workload, Path::new("/bench"))?;
    let (begun, outlook) = (cpu_seconds(), Outlook::default());
    let run = || measure(workload, args, &options, &outlook).map_err(Left::from);
    let simulated = sim::simulate_watched(&settings, run, &mut |now| outlook.look(now));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    let (report, machine_report, prepared) = simulated.result?;
    tell_speed(simulated.accesses, begun, prepared);
    Ok((settings, report, machine_report))
}

/// What is left of a benchmark's error when its machine, or its process, is gone.
#[derive(Clone, Debug)]
struct Left {
    /// A word for programs.
    code: String,
    /// Whether it is damage, or a failed check.
    is_finding: bool,
    message: String,
}

impl From<BenchError> for Left {
    fn from(error: BenchError) -> Left {
        let error = CliError::from(error);
        Left { code: error.code().to_owned(), is_finding: error.is_finding(), message: error.to_string() }
    }
}

impl From<Left> for CliError {
    fn from(Left { code, is_finding, message }: Left) -> CliError {
        match &*code {
            _ if is_finding => BenchError::from(Failure::inconsistent(message)).into(),
            "usage" => BenchError::Invalid(message).into(),
            _ => CliError::Other(message),
        }
    }
}

/// Simulated files lie in no directory of this machine.
fn refuse_directory(directory: Option<&Path>) -> Result<(), CliError> {
    match directory {
        None => Ok(()),
        Some(_) => Err(CliError::usage("a simulated database has no directory", "leave out --dir")),
    }
}

/// What takes so much virtual time would be given up when it had run for weeks.
fn refuse_endless(length: Length) -> Result<(), CliError> {
    match length {
        Length::Time { warm_up, measured } if warm_up + measured > LONGEST => Err(CliError::usage(
            format!("a simulated run takes {} s at most, all of it together", LONGEST.as_secs()),
            "virtual time is expensive: a hundredth of a second tells much",
        )),
        _ => Ok(()),
    }
}

/// The workload on the machines of `--bands`, in turn.
fn bands(machine: &MachineArgs, cores: usize) -> Result<Vec<Value>, CliError> {
    let run = |machine: &MachineArgs| {
        let mut band = again::again(machine, &[])?;
        for name in ["retention_percent", "remote_percent"] {
            band[name] = band["simulation"][name].clone();
        }
        Ok(band)
    };
    bands::machines(machine, cores).iter().map(run).collect()
}

fn print_bands(bands: &[Value], has_remote: bool) -> Result<(), CliError> {
    let rate = |band: &Value| band["commits_per_s"].as_f64().unwrap_or(f64::NAN);
    let rates = || bands.iter().map(rate);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    if !bands.is_empty() {
        line(format!("\n  on machines that are a little different: {least:.0} to {most:.0} commits/s"))?;
        if !has_remote {
            line(format!("  {}", bands::WITHOUT_REMOTE))?;
        }
    }
    bands.iter().try_for_each(|band| {
        let percent = |name: &str| band[name].as_u64().unwrap_or(0);
        let (retention, remote) = (percent("retention_percent"), percent("remote_percent"));
        let verdict = if bands::is_consistent(band) { "" } else { "  INCONSISTENT" };
        line(format!(
            "  retention {retention:>2} %, remote {remote:>3} %  {:>12.0} commits/s{verdict}",
            rate(band)
        ))
    })
}

fn settings(machine: &MachineArgs, cores: usize, seed: u64) -> Result<Settings, CliError> {
    let profile = Profile::named(&machine.profile).ok_or_else(|| {
        let names: Vec<&str> = Profile::names().collect();
        CliError::usage(format!("there is no machine {:?}", machine.profile), names.join(", "))
    })?;
    let device = Device::named(&machine.device).ok_or_else(|| {
        let names: Vec<&str> = Device::ALL.iter().map(|(name, _)| *name).collect();
        CliError::usage(format!("there is no device {:?}", machine.device), names.join(", "))
    })?;
    if machine.remote != 100 && !profile.has_remote(cores) {
        return Err(CliError::usage(
            format!("{cores} cores of {} are near each other: no costs are remote", profile.name),
            format!("leave out --remote, or take more than {} cores", profile.cores_per_cluster),
        ));
    }
    let profile = profile.clone().with_remote_percent(machine.remote);
    let retention = machine.retention.unwrap_or(profile.retention_percent);
    let profile = Box::new(profile.with_retention_percent(retention));
    Ok(Settings { seed, world: World::Machine { profile, cores }, device, limit: LIMIT })
}

/// Runs on the simulated machine. Loading is not charged: it is no part of what is measured, and what it leaves behind
/// lies in memory, not all in the caches of the cores that loaded. Gives the seconds of CPU that it took, too.
fn measure(
    workload: &dyn Workload,
    args: &CommonArgs,
    options: &EngineOptions,
    outlook: &Outlook,
) -> Result<(Report, MachineReport, f64), BenchError> {
    let begin = cpu_seconds();
    let watch = match args.length() {
        Length::Time { warm_up, .. } => Watch::new(Charged::loads(outlook), warm_up),
        Length::Iterations(_) => Watch::new(Charged::all(outlook), Duration::ZERO),
    };
    let engine = engines::open(args.engine, &workload.tables(), options)?;
    let run = RunOptions { threads: args.threads(), length: args.length(), seed: args.seed };
    let mut report = foreshore_bench::run(engine.as_ref(), workload, &run, &watch)?;
    engine.close()?;
    report.options.extend(options.describe());
    let seen = watch.seen.into_inner().expect("a machine reports when the checks begin");
    // Of a number of iterations all is charged, and nothing only prepares.
    let prepared = match args.length() {
        Length::Time { .. } => watch.began.get().map_or(0.0, |began| began - begin),
        Length::Iterations(_) => 0.0,
    };
    Ok((report, seen, prepared))
}
