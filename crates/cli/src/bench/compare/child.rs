//! One run in a process of its own.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use foreshore_env::{
    thread,
    time::{Duration, Instant},
};
use serde::Deserialize;

use super::result::Round;
use crate::directory::Directory;

/// Time that a run may take for loading and checking, beside the time that it is told to run.
const LOAD_AND_CHECK: Duration = Duration::from_secs(600);
/// How often a running child is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a child is told.
pub(super) struct Run {
    /// The arguments of the program.
    pub(super) words: Vec<String>,
    /// How long it runs, loading and checking left out.
    pub(super) longest: Duration,
}

/// What is taken of a child's report.
#[derive(Deserialize)]
struct Told {
    /// Commits that ended while measured: aborts are those of all that ran then.
    ended: u64,
    commits_per_s: f64,
    cpu_us_per_commit: Option<f64>,
    peak_memory_bytes: Option<u64>,
    aborts: Aborts,
    given_up: u64,
    latency_us: Option<Latency>,
    oldest_running_us: Option<f64>,
    consistent: bool,
    caveats: Vec<String>,
}

#[derive(Deserialize)]
struct Aborts {
    deadlock: u64,
    lock_timeout: u64,
    would_block: u64,
    plan_miss: u64,
    conflict: u64,
    other: u64,
}

#[derive(Deserialize)]
struct Latency {
    p99: f64,
    max: f64,
}

#[derive(Deserialize)]
struct Refused {
    error: Complaint,
}

#[derive(Deserialize)]
struct Complaint {
    message: String,
}

/// Runs a child, whose temporary directory lies in `directory`. What went wrong is told in a sentence.
pub(super) fn run(run: &Run, directory: &Directory) -> Result<Round, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut child = Command::new(program)
        .args(&run.words)
        .env("TMPDIR", directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start another process: {error}"))?;
    // Read beside the wait, so that a full pipe holds nobody up.
    let out = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        match out {
            Some(mut out) => out.read_to_string(&mut text).map(|_| text),
            None => Ok(text),
        }
    });
    let deadline = Instant::now() + run.longest + LOAD_AND_CHECK;
    let ended = wait_until(&mut child, deadline);
    let text = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    ended?;
    understand(&text.map_err(|error| format!("cannot read what the run told: {error}"))?)
}

/// Waits for a child, and ends it when it takes too long.
fn wait_until(child: &mut Child, deadline: Instant) -> Result<(), String> {
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                // It is ended already if these fail.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the run took longer than its time and {LOAD_AND_CHECK:?}"));
            }
            Err(error) => return Err(format!("cannot look after the run: {error}")),
        }
    }
}

/// A child's last line: its report, or why it has none.
fn understand(text: &str) -> Result<Round, String> {
    let last = text.trim_end().lines().last().unwrap_or_default();
    if let Ok(refused) = serde_json::from_str::<Refused>(last) {
        return Err(refused.error.message);
    }
    let told: Told = serde_json::from_str(last)
        .map_err(|error| format!("the run ended without a report ({error}): {last:?}"))?;
    let Aborts { deadlock, lock_timeout, would_block, plan_miss, conflict, other } = told.aborts;
    let aborts = deadlock + lock_timeout + would_block + plan_miss + conflict + other;
    Ok(Round {
        commits_per_s: told.commits_per_s,
        cpu_us_per_commit: told.cpu_us_per_commit,
        abort_percent: 100.0 * aborts as f64 / (told.ended + aborts).max(1) as f64,
        given_up: told.given_up,
        p99_us: told.latency_us.as_ref().map(|latency| latency.p99),
        max_us: told.latency_us.map_or(told.oldest_running_us, |latency| Some(latency.max)),
        peak_memory_bytes: told.peak_memory_bytes,
        consistent: told.consistent,
        caveats: told.caveats,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_a_refusal_and_nothing_are_told_apart() {
        let report = r#"{"commits": 290, "ended": 300, "commits_per_s": 100.0, "cpu_us_per_commit": null, "peak_memory_bytes": 7,
            "aborts": {"deadlock": 60, "lock_timeout": 10, "would_block": 5, "plan_miss": 5, "conflict": 10, "other": 10},
            "given_up": 1, "latency_us": {"p50": 1.0, "p99": 2.0, "max": 3.0}, "consistent": true,
            "caveats": ["no log"], "engine": "x"}"#;
        let round = understand(&format!("noise\n{}\n", report.replace('\n', ""))).unwrap();
        assert_eq!((round.abort_percent, round.max_us, round.consistent), (25.0, Some(3.0), true));
        let latency = r#"{"p50": 1.0, "p99": 2.0, "max": 3.0}"#;
        let none = report.replace('\n', "").replace(latency, r#"null, "oldest_running_us": 7.0"#);
        let none = understand(&none).unwrap();
        assert_eq!((none.p99_us, none.max_us), (None, Some(7.0)));
        let refused = understand(r#"{"error": {"code": "usage", "message": "no such option"}}"#);
        assert_eq!(refused.unwrap_err(), "no such option");
        assert!(understand("").unwrap_err().contains("without a report"));
    }
}
