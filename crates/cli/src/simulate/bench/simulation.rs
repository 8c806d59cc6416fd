//! What a simulated machine did, as it is told.

use std::collections::BTreeMap;

use foreshore_env::sim::{HotLine, MachineReport, Settings, World};
use serde::Serialize;

use super::source;
use crate::{
    output::{CliError, line},
    simulate::MachineArgs,
};

/// Picoseconds in a second.
const SECOND: f64 = 1e12;
/// Places where threads slept that are named.
const PLACES: usize = 10;

/// What the machine did while it was measured.
#[derive(Serialize)]
pub(super) struct Simulation {
    profile: String,
    cores: usize,
    device: String,
    retention_percent: u64,
    remote_percent: u64,
    /// Shares of the time of all cores; they add up to 1. A core whose thread waits, with nobody else to run, waits for
    /// what that thread waits for.
    cores_time: BTreeMap<&'static str, f64>,
    /// Seconds that threads slept, by what for: locks, latches, the log, the disk, frames of the pool, admission,
    /// messages of partitioned execution, anything else.
    threads_slept_s: BTreeMap<&'static str, f64>,
    /// For each committed transaction.
    per_transaction: BTreeMap<&'static str, f64>,
    /// Accesses to shared memory, and switches between threads, in all.
    accesses: u64,
    switches: u64,
    /// How long things lasted that ended meanwhile, on average: locks on keys, from grant to release, and those of them
    /// that somebody waited for when they were released.
    lasted_ns: BTreeMap<&'static str, f64>,
    /// The lines of memory that cores waited for most.
    hottest_lines: Vec<Line>,
    /// Where threads slept longest.
    sleeps: Vec<Sleep>,
}

#[derive(Serialize)]
struct Line {
    /// What lies there, and which field of which structure was accessed most, as far as they can be told.
    name: String,
    /// Where in the source it was accessed when it moved, the most frequent place first.
    places: Vec<String>,
    moves: u64,
    /// Share of the time of all cores.
    waited: f64,
}

#[derive(Serialize)]
struct Sleep {
    place: String,
    count: u64,
    seconds: f64,
}

/// What cores wait for whose threads sleep, by the places where they do: parts of the source, what threads are said to
/// have slept for, and the share of the cores' time. What is found nowhere here is idle.
const REASONS: [(&str, &str, &str); 15] = [
    ("crates/lock/", "locks", "lock_wait"),
    // Between two attempts of a transaction that had to give way.
    ("crates/foreshore/src/transact.rs", "locks", "lock_wait"),
    ("crates/txn/src/insist", "locks", "lock_wait"),
    ("crates/latch/", "latches", "latch_wait"),
    ("crates/wal/", "log", "log_wait"),
    ("crates/txn/src/committer", "log", "log_wait"),
    ("crates/txn/src/transaction/log_room", "log", "log_wait"),
    ("crates/txn/src/transaction/company", "log", "log_wait"),
    ("crates/foreshore/src/log_turn", "log", "log_wait"),
    ("crates/env/src/sim/disk", "disk", "disk_wait"),
    ("crates/pages/", "frames", "frame_wait"),
    ("crates/foreshore/src/admission", "admission", "admission_wait"),
    // For a place among the transactions that are open.
    ("crates/foreshore/src/transact/place", "admission", "admission_wait"),
    ("crates/orthrus/", "messages", "message_wait"),
    ("crates/foreshore/src/submit", "messages", "message_wait"),
];

/// What threads that slept at this place waited for, and whose share of the cores' time that is.
fn reason(place: &str) -> (&'static str, &'static str) {
    let found = REASONS.iter().find(|(part, _, _)| place.starts_with(part));
    found.map_or(("other", "idle"), |(_, slept, share)| (slept, share))
}

impl Simulation {
    pub(super) fn of(
        machine: &MachineArgs,
        settings: &Settings,
        seen: &MachineReport,
        commits: u64,
    ) -> Result<Simulation, CliError> {
        let World::Machine { profile, .. } = &settings.world else { unreachable!("made above") };
        let total = seen.total_ps.max(1) as f64;
        let share = |picoseconds: u64| picoseconds as f64 / total;
        let each = |count: u64| count as f64 / commits.max(1) as f64;
        let mut threads_slept_s = BTreeMap::new();
        for sleep in &seen.sleeps {
            *threads_slept_s.entry(reason(&sleep.place).0).or_default() += sleep.time_ps as f64 / SECOND;
        }
        Ok(Simulation {
            profile: profile.name.to_owned(),
            cores: seen.cores,
            device: machine.device.clone(),
            retention_percent: profile.retention_percent,
            remote_percent: machine.remote,
            cores_time: cores_time(seen)?,
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
        })
    }
}

/// Sources of the simulator itself: what is accessed there is a part of its own mutexes, condition variables and
/// threads, and whoever drops a guard does not say where.
const SIMULATOR: &str = "crates/env/src/sim/";

/// What a line is called: what was said to lie there, and what was accessed where it moved most often, of the places in
/// the engine.
fn line_name(hot: &HotLine) -> String {
    let place = hot.places.iter().map(|(place, _)| place).find(|place| !place.starts_with(SIMULATOR));
    let field = place.and_then(|place| source::field(place));
    match (&hot.name, field) {
        (Some(name), Some(field)) => format!("{name}, {field}"),
        (Some(name), None) => name.clone(),
        (None, Some(field)) => field,
        (None, None) => place.cloned().unwrap_or_else(|| "unnamed".to_owned()),
    }
}

/// What the time of all cores went to.
fn cores_time(seen: &MachineReport) -> Result<BTreeMap<&'static str, f64>, CliError> {
    let mut parts = BTreeMap::from([
        ("useful", seen.computing_ps),
        ("memory", seen.memory_ps),
        ("spinning", seen.spinning_ps),
        ("system", seen.system_ps),
    ]);
    parts.extend(REASONS.map(|(_, _, share)| (share, 0)));
    let mut idle = seen.idle_ps;
    for waited in &seen.waited {
        let share = reason(&waited.place).1;
        if share != "idle" {
            *parts.entry(share).or_default() += waited.time_ps;
            idle = idle.saturating_sub(waited.time_ps);
        }
    }
    parts.insert("idle", idle);
    let sum: u64 = parts.values().sum();
    if sum != seen.total_ps {
        return Err(CliError::Other(format!(
            "ENV-7: the cores computed, waited and idled for {sum} ps of {} ps; no shares are shown that do not add up\n  \
             next: this is a fault of the simulator: report it with the command line",
            seen.total_ps
        )));
    }
    let total = seen.total_ps.max(1) as f64;
    Ok(parts.into_iter().map(|(name, time)| (name, time as f64 / total)).collect())
}

/// Prints it for people.
pub(super) fn print(simulation: &Simulation) -> Result<(), CliError> {
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

#[cfg(test)]
mod tests {
    use foreshore_env::sim::Waited;

    use super::*;

    fn report(total_ps: u64, idle_ps: u64, waited: &[(&str, u64)]) -> MachineReport {
        let waited =
            waited.iter().map(|(place, time_ps)| Waited { place: (*place).to_owned(), time_ps: *time_ps });
        MachineReport {
            cores: 1,
            total_ps,
            computing_ps: 500,
            memory_ps: 0,
            spinning_ps: 0,
            system_ps: 0,
            idle_ps,
            waited: waited.collect(),
            accesses: 0,
            changes: 0,
            lines_from_memory: 0,
            lines_from_last_cache: 0,
            lines_from_socket: 0,
            lines_from_elsewhere: 0,
            switches: 0,
            hottest: Vec::new(),
            sleeps: Vec::new(),
            lasted: Vec::new(),
        }
    }

    #[test]
    fn each_wait_has_its_reason_and_the_shares_add_up() {
        let waited = [
            ("crates/lock/src/latched.rs:1", 10),
            ("crates/foreshore/src/transact.rs:279", 20),
            ("crates/wal/src/core/append.rs:1", 30),
            ("crates/pages/src/pool/clock.rs:115", 40),
            ("crates/foreshore/src/admission.rs:218", 40),
            ("crates/foreshore/src/transact/place.rs:94", 10),
            ("crates/orthrus/src/bell.rs:87", 60),
            ("crates/foreshore/src/submit.rs:112", 70),
            ("crates/bench/src/runner/gate.rs:1", 80),
        ];
        let shares = cores_time(&report(1000, 500, &waited)).unwrap();
        for (name, share) in [
            ("useful", 0.5),
            ("lock_wait", 0.03),
            ("log_wait", 0.03),
            ("frame_wait", 0.04),
            ("admission_wait", 0.05),
            ("message_wait", 0.13),
            ("latch_wait", 0.0),
            ("disk_wait", 0.0),
            ("idle", 0.22),
        ] {
            assert!((shares[name] - share).abs() < 1e-9, "{name}: {shares:?}");
        }
        assert!((shares.values().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
    }

    /// A file was renamed, and 41 % of the time of the cores was idle from then on, where it waits for room in the log.
    #[test]
    fn the_places_of_all_reasons_are_in_the_sources() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (part, ..) in REASONS {
            let path = root.join(part);
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{part} is nowhere");
        }
    }

    /// ENV-7. It was a panic, and status 101.
    #[test]
    fn shares_that_do_not_add_up_are_an_error() {
        for report in [report(1001, 500, &[]), report(1000, 500, &[("crates/lock/src/latched.rs:1", 501)])] {
            let error = cores_time(&report).unwrap_err().to_string();
            assert!(error.contains("ENV-7") && error.contains("next:"), "{error}");
        }
    }

    /// A mutex is locked at a place of the engine and unlocked in the simulator: that was the most frequent place, and
    /// gave the name.
    #[test]
    fn no_line_has_the_name_of_the_simulator_s_own_structures() {
        let hot = |places: &[(&str, u64)]| HotLine {
            name: None,
            moves: 3,
            waited: 1,
            places: places.iter().map(|(place, count)| ((*place).to_owned(), *count)).collect(),
        };
        let unlocked = ("crates/env/src/sim/lock.rs:119", 2);
        assert_eq!(line_name(&hot(&[unlocked, ("crates/nothing.rs:1", 1)])), "crates/nothing.rs:1");
        assert_eq!(line_name(&hot(&[unlocked])), "unnamed");
    }
}
