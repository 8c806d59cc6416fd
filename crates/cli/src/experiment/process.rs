//! One command in a process of its own.

use std::{
    fs,
    io::{self, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use foreshore_env::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use serde_json::Value;

use super::store;
use crate::own;

/// How often a running child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Bytes that are read of what a command prints: less than a stored answer may have, which is spaced out. A process
/// that prints more finds the pipe closed.
const LARGEST: u64 = store::LARGEST / 8;
/// The longest that a command may take.
pub(super) const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// What a process ended with.
pub(super) struct Ended {
    /// Its last line, as JSON.
    pub(super) answer: Value,
    /// How long it took.
    pub(super) seconds: f64,
    /// How long processors computed for it, if the system tells.
    pub(super) computed_seconds: Option<f64>,
}

/// Runs a program with its temporary files in `directory`, until it ends, has taken the `longest` time, or `stop` is
/// set. `may_fail`: a check of it that fails is a figure. Why it has no answer is told in a sentence.
pub(super) fn run(
    program: &Path,
    words: &[&str],
    may_fail: bool,
    directory: &Path,
    longest: Duration,
    stop: &AtomicBool,
) -> Result<Ended, String> {
    let begun = Instant::now();
    let mut command = Command::new(program);
    let mut child = own::leash(&mut command)
        .args(words)
        .env("TMPDIR", directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    // Read beside the wait, so that a full pipe holds nobody up.
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let readers = reader(out).and_then(|out| Ok((out, reader(err)?)));
    let (out, err) = readers.map_err(|error| {
        // Nobody reads what it tells. It has ended already if these fail.
        let _ = child.kill();
        let _ = child.wait();
        format!("cannot start a thread that reads what it tells: {error}")
    })?;
    let mut computed_seconds = None;
    // Of one that was ended nothing is read to its end: what it has started may have its pipes for a moment longer
    // (`simulate bench` starts itself for some machines; `again.rs`).
    let status = wait(&mut child, longest, stop, &mut computed_seconds)?;
    let join = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    let (out, err) = (join(out), join(err));
    let last = out.trim_end().lines().last().unwrap_or_default();
    let answer: Option<Value> = serde_json::from_str(last).ok();
    let refusal = answer.as_ref().and_then(|answer| answer.pointer("/error/message")).and_then(Value::as_str);
    match (answer.as_ref(), refusal) {
        (_, Some(message)) => Err(message.to_owned()),
        (Some(_), None) if status == Some(0) || (may_fail && status == Some(1)) => {
            let seconds = begun.elapsed().as_secs_f64();
            Ok(Ended { answer: answer.unwrap_or_default(), seconds, computed_seconds })
        }
        (Some(_), None) => Err("a check of the data failed; the figures are worth nothing".to_owned()),
        (None, None) => {
            let told = err.trim_end().lines().last().unwrap_or("nothing on standard error");
            Err(format!("it ended without an answer: {told}"))
        }
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> io::Result<thread::JoinHandle<String>> {
    thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error is all there is.
            let _ = pipe.take(LARGEST).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How long a process that was not waited for yet has computed, and those that it has started and waited for, as
/// `simulate bench elr` does each run: user and system time of both, in hundredths of a second (`proc(5)`: the
/// fourteenth to seventeenth field of `stat`, the second of which, in brackets, may have spaces in it).
fn computed(child: &Child) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()? + ticks()? + ticks()?) as f64 / 100.0)
}

/// The exit status; `None` if a signal ended it. `computed_seconds`: what it had computed just before it ended.
fn wait(
    child: &mut Child,
    longest: Duration,
    stop: &AtomicBool,
    computed_seconds: &mut Option<f64>,
) -> Result<Option<i32>, String> {
    let deadline = Instant::now() + longest;
    let why = loop {
        *computed_seconds = computed(child).or(*computed_seconds);
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code()),
            // Relaxed: nothing else is read because of it.
            Ok(None) if stop.load(Ordering::Relaxed) => break "it was interrupted".to_owned(),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Ok(None) => break format!("it took longer than {longest:?}"),
            Err(error) => break format!("it could not be watched: {error}"),
        }
    };
    // It has ended already if these fail.
    let _ = child.kill();
    let _ = child.wait();
    Err(why)
}

#[cfg(all(test, not(foreshore_sim)))]
mod tests {
    use super::*;

    fn shell(script: &str, stop: bool) -> Result<Ended, String> {
        run(Path::new("/bin/sh"), &["-c", script], false, Path::new("/tmp"), LONGEST, &AtomicBool::new(stop))
    }

    #[test]
    fn answers_refusals_and_failures_are_told_apart() {
        let ended = shell("echo noise; echo '{\"a\": 1}'", false);
        assert_eq!(ended.ok().map(|ended| ended.answer), Some(serde_json::json!({"a": 1})));
        let refused = r#"echo '{"error": {"code": "usage", "message": "no such thing"}}'; exit 2"#;
        assert_eq!(shell(refused, false).err().as_deref(), Some("no such thing"));
        assert!(shell("echo '{}'; exit 1", false).err().unwrap().contains("check"));
        assert!(shell("echo gone >&2; exit 3", false).err().unwrap().contains("gone"));
        let may_fail = |script: &str| {
            let ended = run(
                Path::new("/bin/sh"),
                &["-c", script],
                true,
                Path::new("/tmp"),
                LONGEST,
                &AtomicBool::new(false),
            );
            ended.is_ok()
        };
        assert!(may_fail("echo '{}'; exit 1") && !may_fail("echo '{}'; exit 2"));
        let nowhere =
            run(Path::new("/no/such"), &[], false, Path::new("/tmp"), LONGEST, &AtomicBool::new(false));
        assert!(nowhere.is_err());
    }

    #[test]
    fn what_it_computed_is_told() {
        let ended =
            shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo '{}'", false).ok().unwrap();
        let computed = ended.computed_seconds;
        // Two ticks more at most: ours are rounded, and those of two processors are not the clock's.
        assert!(
            computed.is_none_or(|seconds| 0.0 < seconds && seconds <= ended.seconds + 0.05),
            "{computed:?}"
        );
        assert!(!cfg!(target_os = "linux") || computed.is_some());
    }

    /// Experiments all of whose runs have processes of their own had taken no time at all.
    #[test]
    fn what_it_has_started_computed_for_it_too() {
        let script = "sh -c 'i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done'; echo '{}'";
        let computed = shell(script, false).ok().unwrap().computed_seconds;
        assert!(
            !cfg!(target_os = "linux") || computed.is_some_and(|seconds| seconds >= 0.05),
            "{computed:?}"
        );
    }

    #[test]
    fn what_runs_is_ended_when_all_is_to_end() {
        let begun = Instant::now();
        assert_eq!(shell("exec sleep 60", true).err().as_deref(), Some("it was interrupted"));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_has_been_ended_leaves_nobody_to_wait_for() {
        let begun = Instant::now();
        // What it has started, as a run on another machine is, has its pipes.
        let (words, longest) = (["-c", "sleep 40 & wait"], Duration::from_secs(1));
        let sh = Path::new("/bin/sh");
        let ended = run(sh, &words, false, Path::new("/tmp"), longest, &AtomicBool::new(false));
        assert!(ended.err().unwrap().contains("took longer"));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
