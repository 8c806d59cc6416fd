//! `foreshore simulate bench`: a benchmark on a simulated machine.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
};

use foreshore_bench::{BenchError, EngineOptions, Length, Observer, Report, RunOptions, Workload, engines};
use foreshore_env::{
    sim::{self, Device, MachineReport, Profile, Settings, World},
    time::Duration,
};
use serde::Serialize;

use super::MachineArgs;
use crate::{
    bench::{CommonArgs, WorkloadArgs, summary},
    output::{CHECK_FAILED, CliError, json_line, line},
};

/// The longest that a run may take, in virtual time.
const LIMIT: Duration = Duration::from_secs(7200);
/// Picoseconds in a second.
const SECOND: f64 = 1e12;
/// Places where threads slept that are named.
const PLACES: usize = 10;

/// What `bench` reports, and what the machine did meanwhile.
#[derive(Serialize)]
struct SimulatedReport {
    #[serde(flatten)]
    report: Report,
    simulation: Simulation,
}

/// What the machine did while it was measured.
#[derive(Clone, Serialize)]
struct Simulation {
    profile: String,
    cores: usize,
    device: String,
    retention_percent: u64,
    remote_percent: u64,
    /// Shares of the time of all cores; they add up to 1.
    cores_time: BTreeMap<&'static str, f64>,
    /// Seconds that threads slept, by what for: locks, latches, the log, anything else.
    threads_slept_s: BTreeMap<&'static str, f64>,
    /// For each committed transaction.
    per_transaction: BTreeMap<&'static str, f64>,
    /// Accesses to shared memory, and switches between threads, in all.
    accesses: u64,
    switches: u64,
    /// The lines of memory that cores waited for most.
    hottest_lines: Vec<Line>,
    /// Where threads slept longest.
    sleeps: Vec<Sleep>,
}

#[derive(Clone, Serialize)]
struct Line {
    /// Where in the source it was accessed when it moved, the most frequent place first.
    places: Vec<String>,
    moves: u64,
    /// Share of the time of all cores.
    waited: f64,
}

#[derive(Clone, Serialize)]
struct Sleep {
    place: String,
    count: u64,
    seconds: f64,
}

/// Counts from the end of the warm-up to the beginning of the checks.
struct Watch {
    warm_up: Duration,
    counting: Cell<bool>,
    seen: RefCell<Option<MachineReport>>,
}

impl Observer for Watch {
    fn loading(&self, _rows: u64, _of: u64) {}

    fn running(&self, elapsed: Duration, _of: Duration, _commits: u64) {
        if elapsed >= self.warm_up && !self.counting.replace(true) {
            sim::count_anew();
        }
    }

    fn checking(&self) {
        *self.seen.borrow_mut() = sim::report();
    }
}

pub(super) fn run(workload: WorkloadArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    let (workload, args) = workload.into_parts()?;
    if args.dir.is_some() {
        return Err(CliError::usage("a simulated database has no directory", "leave out --dir"));
    }
    let cores = machine.cores.unwrap_or_else(|| args.threads());
    let settings = settings(machine, cores, args.seed)?;
    let simulated =
        sim::simulate(&settings, || measure(workload.as_ref(), &args).map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    let (report, machine_report) = simulated.result.map_err(CliError::Other)?;
    let simulation = simulation(machine, &settings, &machine_report, report.commits);
    if args.json {
        json_line(&SimulatedReport { report: report.clone(), simulation })?;
    } else {
        summary::print(&report, None)?;
        print(&simulation)?;
    }
    Ok(if report.consistent { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
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
    let profile = profile.clone().with_remote_percent(machine.remote);
    let retention = machine.retention.unwrap_or(profile.retention_percent);
    let profile = Box::new(profile.with_retention_percent(retention));
    Ok(Settings { seed, world: World::Machine { profile, cores }, device, limit: LIMIT })
}

/// Runs on the simulated machine.
fn measure(workload: &dyn Workload, args: &CommonArgs) -> Result<(Report, MachineReport), BenchError> {
    let options = EngineOptions {
        directory: PathBuf::from("/bench"),
        durability: args.durability,
        isolation: args.isolation,
        execution: args.execution,
        settings: args.settings.clone(),
    };
    let warm_up = match args.length() {
        Length::Time { warm_up, .. } => warm_up,
        Length::Iterations(_) => Duration::ZERO,
    };
    let engine = engines::open(args.engine, &workload.tables(), &options)?;
    let run = RunOptions { threads: args.threads(), length: args.length(), seed: args.seed };
    let watch = Watch { warm_up, counting: Cell::new(false), seen: RefCell::new(None) };
    let mut report = foreshore_bench::run(engine.as_ref(), workload, &run, &watch)?;
    engine.close()?;
    report.options.extend(options.describe());
    let seen = watch.seen.into_inner().expect("a machine reports when the checks begin");
    Ok((report, seen))
}

/// What threads that slept at this place waited for.
fn reason(place: &str) -> &'static str {
    const CRATES: [(&str, &str); 3] =
        [("crates/lock/", "locks"), ("crates/latch/", "latches"), ("crates/wal/", "log")];
    CRATES.iter().find(|(folder, _)| place.starts_with(folder)).map_or("other", |(_, reason)| reason)
}

fn simulation(machine: &MachineArgs, settings: &Settings, seen: &MachineReport, commits: u64) -> Simulation {
    let World::Machine { profile, .. } = &settings.world else { unreachable!("made above") };
    let total = seen.total_ps.max(1) as f64;
    let share = |picoseconds: u64| picoseconds as f64 / total;
    let each = |count: u64| count as f64 / commits.max(1) as f64;
    let mut threads_slept_s = BTreeMap::new();
    for sleep in &seen.sleeps {
        *threads_slept_s.entry(reason(&sleep.place)).or_default() += sleep.time_ps as f64 / SECOND;
    }
    Simulation {
        profile: profile.name.to_owned(),
        cores: seen.cores,
        device: machine.device.clone(),
        retention_percent: profile.retention_percent,
        remote_percent: machine.remote,
        cores_time: BTreeMap::from([
            ("useful", share(seen.computing_ps)),
            ("memory", share(seen.memory_ps)),
            ("spinning", share(seen.spinning_ps)),
            ("system", share(seen.system_ps)),
            ("idle", share(seen.idle_ps)),
        ]),
        threads_slept_s,
        per_transaction: BTreeMap::from([
            ("accesses", each(seen.accesses)),
            ("atomic_changes", each(seen.changes)),
            ("lines_from_memory", each(seen.lines_from_memory)),
            ("lines_from_socket", each(seen.lines_from_socket)),
            ("lines_from_elsewhere", each(seen.lines_from_elsewhere)),
            ("switches", each(seen.switches)),
        ]),
        accesses: seen.accesses,
        switches: seen.switches,
        hottest_lines: (seen.hottest.iter())
            .map(|hot| Line {
                places: hot
                    .places
                    .iter()
                    .take(3)
                    .map(|(place, count)| format!("{place} ({count})"))
                    .collect(),
                moves: hot.moves,
                waited: share(hot.waited),
            })
            .collect(),
        sleeps: (seen.sleeps.iter().take(PLACES))
            .map(|sleep| Sleep {
                place: sleep.place.clone(),
                count: sleep.count,
                seconds: sleep.time_ps as f64 / SECOND,
            })
            .collect(),
    }
}

fn print(simulation: &Simulation) -> Result<(), CliError> {
    let shares: Vec<String> = (simulation.cores_time.iter())
        .map(|(name, share)| format!("{name} {:.1} %", share * 100.0))
        .collect();
    let Simulation { cores, profile, device, .. } = simulation;
    line(format!("\n  {cores} cores of {profile}, files on {device}: {}", shares.join(", ")))?;
    let each: Vec<String> =
        simulation.per_transaction.iter().map(|(name, count)| format!("{name} {count:.1}")).collect();
    line(format!("  per transaction: {}", each.join(", ")))?;
    let slept: Vec<String> =
        simulation.threads_slept_s.iter().map(|(name, time)| format!("{name} {time:.6}")).collect();
    line(format!("  threads slept, s: {}", slept.join(", ")))?;
    for hot in &simulation.hottest_lines {
        line(format!("  {:>6.2} %  {:>9} moves  {}", hot.waited * 100.0, hot.moves, hot.places.join(", ")))?;
    }
    Ok(())
}
