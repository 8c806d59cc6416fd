//! `foreshore simulate bench`: a benchmark on a simulated machine.

mod bands;
mod comparisons;
mod observers;
mod source;

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use foreshore_bench::{BenchError, EngineOptions, Length, Report, RunOptions, Workload, engines};
use foreshore_env::{
    sim::{self, Device, HotLine, MachineReport, Profile, Settings, World},
    time::Duration,
};
use serde::Serialize;

use self::observers::{Charged, Watch};
use super::{
    MachineArgs, Parts, Simulated,
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
    /// The same on the machines of `--bands`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bands: Vec<Band>,
}

/// What a workload came to on one of the machines of `--bands`.
#[derive(Serialize)]
struct Band {
    retention_percent: u64,
    remote_percent: u64,
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
    /// Shares of the time of all cores; they add up to 1. A core whose thread waits, with nobody else to run, waits for what
    /// that thread waits for.
    cores_time: BTreeMap<&'static str, f64>,
    /// Seconds that threads slept, by what for: locks, latches, the log, anything else.
    threads_slept_s: BTreeMap<&'static str, f64>,
    /// For each committed transaction.
    per_transaction: BTreeMap<&'static str, f64>,
    /// Accesses to shared memory, and switches between threads, in all.
    accesses: u64,
    switches: u64,
    /// How long things lasted that ended meanwhile, on average: locks on keys, from grant to release, and those of them that somebody
    /// waited for when they were released.
    lasted_ns: BTreeMap<&'static str, f64>,
    /// The lines of memory that cores waited for most.
    hottest_lines: Vec<Line>,
    /// Where threads slept longest.
    sleeps: Vec<Sleep>,
}

#[derive(Clone, Serialize)]
struct Line {
    /// What lies there, and which field of which structure was accessed most, as far as they can be told.
    name: String,
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

pub(super) fn run(what: Simulated, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    match what.into_parts()? {
        Parts::Workload(workload, args) => run_workload(workload.as_ref(), &args, machine),
        Parts::Latches(args) => comparisons::latches(&args, machine),
        Parts::Granularity(args) => comparisons::granularity(&args, machine),
        Parts::Memory(args) => comparisons::memory(&args, machine),
        Parts::Locks(args) => comparisons::locks(&args, machine),
        Parts::Elr(args) => comparisons::elr(&args, machine),
        Parts::Killpolicy(args) => comparisons::kill(&args, machine),
        Parts::Ladder(args) => comparisons::climb(&args, machine),
        Parts::Dreadlocks(args) => comparisons::side_by_side(&args.side_by_side()?, machine),
        Parts::Nodeadlock(args) => comparisons::side_by_side(&args.side_by_side()?, machine),
/// Simulated files lie in no directory of this machine.
fn refuse_directory(directory: Option<&Path>) -> Result<(), CliError> {
    match directory {
        None => Ok(()),
        Some(_) => Err(CliError::usage("a simulated database has no directory", "leave out --dir")),
    }
}

        Parts::Keyrange(args) => comparisons::side_by_side(&args.side_by_side()?, machine),
        Parts::Intent(args) => comparisons::intents(&args, machine),
    }
}

fn run_workload(
    workload: &dyn Workload,
    args: &CommonArgs,
    machine: &MachineArgs,
) -> Result<ExitCode, CliError> {
    let (settings, report, machine_report) = simulate(workload, args, machine)?;
    let simulation = simulation(machine, &settings, &machine_report, report.ended);
    let bands = bands(workload, args, machine)?;
    let consistent = report.consistent && bands.iter().all(|band| band.report.consistent);
    let simulated = SimulatedReport { report, simulation, bands };
    let printed = if args.json {
        json_line(&simulated)
    } else {
        summary::print(&simulated.report, None)
            .and_then(|()| print(&simulated.simulation))
            .and_then(|()| print_bands(&simulated.bands))
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
    if let Length::Time { warm_up, measured } = args.length()
        && warm_up + measured > LONGEST
    {
        let most = LONGEST.as_secs();
        return Err(CliError::usage(
            format!("a simulated run takes {most} s at most"),
            "virtual time is dear: a hundredth of a second says much",
        ));
    }
    let options = args.engine_options(workload, Path::new("/bench"))?;
    let begun = cpu_seconds();
    let simulated =
        sim::simulate(&settings, || measure(workload, args, &options).map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    let (report, machine_report, prepared) = simulated.result.map_err(CliError::Other)?;
    tell_speed(simulated.accesses, begun, prepared);
    Ok((settings, report, machine_report))
}

/// The workload on the machines of `--bands`, in turn.
fn bands(workload: &dyn Workload, args: &CommonArgs, machine: &MachineArgs) -> Result<Vec<Band>, CliError> {
    let run = |machine: &MachineArgs| {
        let (settings, report, seen) = simulate(workload, args, machine)?;
        let simulation = simulation(machine, &settings, &seen, report.ended);
        let Simulation { retention_percent, remote_percent, .. } = simulation;
        Ok(Band { retention_percent, remote_percent, report, simulation })
    };
    bands::machines(machine).iter().map(run).collect()
}

fn print_bands(bands: &[Band]) -> Result<(), CliError> {
    let rates = || bands.iter().map(|band| band.report.commits_per_s);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    if !bands.is_empty() {
        line(format!("\n  on machines that are a little other: {least:.0} to {most:.0} commits/s"))?;
    }
    for Band { retention_percent, remote_percent, report, .. } in bands {
        let rate = report.commits_per_s;
        line(format!(
            "  retention {retention_percent:>2} %, remote {remote_percent:>3} %  {rate:>12.0} commits/s"
        ))?;
    }
    Ok(())
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

/// Runs on the simulated machine. Loading is not charged: it is no part of what is measured, and what it leaves behind lies
/// in memory, not all in the caches of the cores that loaded. Gives the seconds of CPU that it took, too.
fn measure(
    workload: &dyn Workload,
    args: &CommonArgs,
    options: &EngineOptions,
) -> Result<(Report, MachineReport, f64), BenchError> {
    let begin = cpu_seconds();
    let watch = match args.length() {
        Length::Time { warm_up, .. } => Watch::new(Charged::loads(), warm_up),
        Length::Iterations(_) => Watch::new(Charged::all(), Duration::ZERO),
    };
    let engine = engines::open(args.engine, &workload.tables(), options)?;
    let run = RunOptions { threads: args.threads(), length: args.length(), seed: args.seed };
    let mut report = foreshore_bench::run(engine.as_ref(), workload, &run, &watch)?;
    engine.close()?;
    report.options.extend(options.describe());
    let seen = watch.seen.into_inner().expect("a machine reports when the checks begin");
    let prepared = watch.began.get().map_or(0.0, |began| began - begin);
    Ok((report, seen, prepared))
}

/// What threads that slept at this place waited for.
fn reason(place: &str) -> &'static str {
    const CRATES: [(&str, &str); 4] = [
        ("crates/lock/", "locks"),
        ("crates/latch/", "latches"),
        ("crates/wal/", "log"),
        ("crates/env/src/sim/disk", "disk"),
    ];
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
        cores_time: cores_time(seen),
        threads_slept_s,
        per_transaction: BTreeMap::from([
            ("accesses", each(seen.accesses)),
            ("atomic_changes", each(seen.changes)),
            ("lines_from_memory", each(seen.lines_from_memory)),
            ("lines_from_last_cache", each(seen.lines_from_last_cache)),
            ("lines_from_socket", each(seen.lines_from_socket)),
            ("lines_from_elsewhere", each(seen.lines_from_elsewhere)),
            ("switches", each(seen.switches)),
        ]),
        accesses: seen.accesses,
        switches: seen.switches,
        lasted_ns: (seen.lasted.iter())
            .map(|it| (it.what, it.time_ps as f64 / it.count.max(1) as f64 / 1000.0))
            .collect(),
        hottest_lines: (seen.hottest.iter())
            .map(|hot| Line {
                name: line_name(hot),
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

/// What a line is called: what was said to lie there, and the field whose access moved it most often.
fn line_name(hot: &HotLine) -> String {
    let field = hot.places.first().and_then(|(place, _)| source::field(place));
    match (&hot.name, field) {
        (Some(name), Some(field)) => format!("{name}, {field}"),
        (Some(name), None) => name.clone(),
        (None, Some(field)) => field,
        (None, None) => hot.places.first().map_or_else(|| "unnamed".to_owned(), |(place, _)| place.clone()),
    }
}

/// What the time of all cores went to.
fn cores_time(seen: &MachineReport) -> BTreeMap<&'static str, f64> {
    let total = seen.total_ps.max(1) as f64;
    let mut waits: BTreeMap<&'static str, u64> = BTreeMap::new();
    for waited in &seen.waited {
        *waits.entry(reason(&waited.place)).or_default() += waited.time_ps;
    }
    let waits_for = |what: &str| waits.get(what).copied().unwrap_or(0);
    let (locks, latches, log, disk) =
        (waits_for("locks"), waits_for("latches"), waits_for("log"), waits_for("disk"));
    let parts = [
        ("useful", seen.computing_ps),
        ("memory", seen.memory_ps),
        ("spinning", seen.spinning_ps),
        ("system", seen.system_ps),
        ("lock_wait", locks),
        ("latch_wait", latches),
        ("log_wait", log),
        ("disk_wait", disk),
        ("idle", seen.idle_ps - locks - latches - log - disk),
    ];
    let sum: u64 = parts.iter().map(|(_, time)| time).sum();
    assert_eq!(sum, seen.total_ps, "ENV-7: the time of all cores is what they did and waited for");
    parts.into_iter().map(|(name, time)| (name, time as f64 / total)).collect()
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
    let lasted: Vec<String> =
        simulation.lasted_ns.iter().map(|(what, time)| format!("{what} {time:.0}")).collect();
    line(format!("  lasted on average, ns: {}", lasted.join(", ")))?;
    for hot in &simulation.hottest_lines {
        line(format!(
            "  {:>6.2} %  {:>9} moves  {}: {}",
            hot.waited * 100.0,
            hot.moves,
            hot.name,
            hot.places.join(", ")
        ))?;
    }
    Ok(())
}
