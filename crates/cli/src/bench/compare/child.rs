//! One run in a process of its own.

use std::{
    io::{self, Read},
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use foreshore_env::{
    thread,
    time::{Duration, Instant},
};
use serde::Deserialize;

use super::{leash::Leash, result::Round};
use crate::{
    directory::{Directory, await_interruption},
    output::{CHECK_FAILED, refusal},
    own,
};

/// Time that a run may take for loading and checking, beside the time that it is told to run.
const LOAD_AND_CHECK: Duration = Duration::from_secs(600);
/// How often a running child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long it may take until this program has heard of an interruption that has ended its child.
const HEARING: Duration = Duration::from_millis(100);
/// How many of the last lines of a child's complaints are shown at most, and from how many bytes.
const LAST_LINES: usize = 6;
const LAST_BYTES: usize = 4096;

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

/// Runs a child, whose temporary directory lies in `directory`. It does not return once an interruption has begun to
/// end the program: that is no failure of the child.
pub(super) fn run(run: &Run, directory: &Directory, leash: &Leash) -> Result<Round, Failed> {
    let program = own::program().map_err(|error| format!("cannot find this program: {error}"))?;
    let round = run_program(&program, run, directory.path(), leash);
    if round.is_err() {
        // A terminal interrupts the child, too, which may have ended before this program knows why.
        thread::sleep(HEARING);
    }
    await_interruption();
    round
}

fn run_program(program: &Path, run: &Run, directory: &Path, leash: &Leash) -> Result<Round, Failed> {
    // Backtraces would take the place of what a panic says.
    let mut command = Command::new(program);
    own::leash(&mut command)
        .args(&run.words)
        .env("TMPDIR", directory)
        .env_remove("RUST_BACKTRACE")
        .env_remove("RUST_LIB_BACKTRACE")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (out, errors) = leash
        .start(&mut command, |child| (child.stdout.take(), child.stderr.take()))
        .map_err(|error| format!("cannot start another process: {error}"))?;
    // Both are read beside the wait, so that a full pipe holds nobody up.
    let listen = move || errors.map(last_of).unwrap_or_default();
    let read = move || {
        let mut text = String::new();
        match out {
            Some(mut out) => out.read_to_string(&mut text).map(|_| text),
            None => Ok(text),
        }
    };
    let complaints = thread::Builder::new().spawn(listen);
    let both = complaints.and_then(|complaints| Ok((complaints, thread::Builder::new().spawn(read)?)));
    let (complaints, reader) = both.map_err(|error| {
        // Nobody reads what it tells.
        leash.kill();
        format!("cannot start a thread that reads what a run tells: {error}")
    })?;
    let deadline = Instant::now() + run.longest + LOAD_AND_CHECK;
    let ended = wait_until(leash, deadline);
    let text = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let complaints = complaints.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let understood = ended.and_then(|status| {
        understand(&text.map_err(|error| format!("cannot read what the run told: {error}"))?, status)
    });
    understood.map_err(|why| match why {
        Why::Refused(failed) => failed,
        Why::Broken(message) if complaints.is_empty() => message.into(),
        Why::Broken(message) => format!("{message}; its last words: {complaints}").into(),
    })
}

/// A run without figures.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// What went wrong, in a sentence.
    pub(super) why: String,
    /// Whether the run met damage, or data that no run can have left.
    pub(super) is_loss: bool,
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed { why, is_loss: false }
    }
}

/// Why there is no round.
#[derive(Debug)]
enum Why {
    /// The run said so itself.
    Refused(Failed),
    /// It did not come to its end, or not well.
    Broken(String),
}

impl From<String> for Why {
    fn from(message: String) -> Why {
        Why::Broken(message)
    }
}

/// The last lines that come through a pipe, which is read to its end.
fn last_of(mut pipe: impl Read) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; LAST_BYTES]);
    loop {
        match pipe.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => kept.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What cannot be read is not told.
            Err(_) => break,
        }
        kept.drain(..kept.len().saturating_sub(LAST_BYTES));
    }
    let text = String::from_utf8_lossy(&kept);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
}

/// Waits for a child, and ends it when it takes too long.
fn wait_until(leash: &Leash, deadline: Instant) -> Result<ExitStatus, Why> {
    loop {
        match leash.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                leash.kill();
                return Err(format!("the run took longer than its time and {LOAD_AND_CHECK:?}").into());
            }
            Err(error) => return Err(format!("cannot watch the run: {error}").into()),
        }
    }
}

/// A child's last line: its report, or why it has none. What it reported does not count unless it ended as one that
/// reports so.
fn understand(text: &str, status: ExitStatus) -> Result<Round, Why> {
    let last = text.trim_end().lines().last().unwrap_or_default();
    if let Some((_, why)) = refusal(last) {
        let is_loss = status.code() == Some(i32::from(CHECK_FAILED));
        return Err(Why::Refused(Failed { why, is_loss }));
    }
    let told: Told = serde_json::from_str(last)
        .map_err(|error| format!("the run ended without a report ({status}; {error}): {last:?}"))?;
    let usual = if told.consistent { 0 } else { CHECK_FAILED };
    if status.code() != Some(i32::from(usual)) {
        return Err(format!("the run reported, but did not end well ({status})").into());
    }
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
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const OK: i32 = 0;

    /// As the system has it: the number of a signal, or what a program ends with, times 256.
    fn understand(text: &str, status: i32) -> Result<Round, Why> {
        super::understand(text, ExitStatus::from_raw(status))
    }

    fn shell(script: &str, longest: Duration) -> Result<Round, Failed> {
        let run = Run { words: vec!["-c".to_owned(), script.to_owned()], longest };
        run_program(Path::new("/bin/sh"), &run, Path::new("/"), &Leash::default())
    }

    #[test]
    fn a_child_that_dies_is_told_by_its_status_and_its_last_words() {
        let script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i + 1)); done; \
                      echo thread panicked at somewhere >&2; echo half a report; exit 101";
        let failure = shell(script, Duration::from_secs(60)).unwrap_err().why;
        for part in ["without a report", "exit status: 101", "half a report", "panicked at", "line 2999"] {
            assert!(failure.contains(part), "{part}: {failure}");
        }
        assert!(failure.len() < 500 && !failure.contains("line 2994"), "{failure}");
        let failure = shell("kill -SEGV $$", Duration::from_secs(60)).unwrap_err().why;
        assert!(failure.contains("signal: 11") && !failure.contains("last words"), "{failure}");
        let refused = r#"echo noise >&2; echo '{"error": {"message": "no such option"}}'; exit 2"#;
        let refused = shell(refused, Duration::from_secs(60)).unwrap_err();
        assert_eq!((&*refused.why, refused.is_loss), ("no such option", false));
        let lost = r#"echo '{"error": {"code": "inconsistent", "message": "stock has lost row 7"}}'; exit 1"#;
        let lost = shell(lost, Duration::from_secs(60)).unwrap_err();
        assert_eq!((&*lost.why, lost.is_loss), ("stock has lost row 7", true));
    }

    #[test]
    fn last_words_are_few() {
        assert_eq!(last_of(&b""[..]), "");
        assert_eq!(last_of(&b"one\n\n two \n"[..]), "one | two");
        let much = "long ".repeat(100_000);
        assert!(last_of(much.as_bytes()).len() <= LAST_BYTES);
    }

    #[test]
    fn a_report_a_refusal_and_nothing_are_told_apart() {
        let report = r#"{"commits": 290, "ended": 300, "commits_per_s": 100.0, "cpu_us_per_commit": null, "peak_memory_bytes": 7,
            "aborts": {"deadlock": 60, "lock_timeout": 10, "would_block": 5, "plan_miss": 5, "conflict": 10, "other": 10},
            "given_up": 1, "latency_us": {"p50": 1.0, "p99": 2.0, "max": 3.0}, "consistent": true,
            "caveats": ["no log"], "engine": "x"}"#;
        let report = report.replace('\n', "");
        let round = understand(&format!("noise\n{report}\n"), OK).unwrap();
        assert_eq!((round.abort_percent, round.max_us, round.consistent), (25.0, Some(3.0), true));
        let latency = r#"{"p50": 1.0, "p99": 2.0, "max": 3.0}"#;
        let none = report.replace(latency, r#"null, "oldest_running_us": 7.0"#);
        let none = understand(&none, OK).unwrap();
        assert_eq!((none.p99_us, none.max_us), (None, Some(7.0)));
        let refused = understand(r#"{"error": {"code": "usage", "message": "no such option"}}"#, 2 << 8);
        assert!(
            matches!(refused, Err(Why::Refused(failed)) if failed.why == "no such option" && !failed.is_loss)
        );
        let nothing = understand("", OK);
        assert!(matches!(nothing, Err(Why::Broken(message)) if message.contains("without a report")));

        let inconsistent = report.replace("\"consistent\": true", "\"consistent\": false");
        assert!(understand(&inconsistent, 1 << 8).is_ok_and(|round| !round.consistent));
        // It told that all is well, or that it is not, and then something else went wrong.
        for (report, status) in [(&report, 11), (&report, 101 << 8), (&report, 1 << 8), (&inconsistent, OK)] {
            let broken = understand(report, status);
            assert!(matches!(broken, Err(Why::Broken(message)) if message.contains("did not end well")));
        }
    }
}
