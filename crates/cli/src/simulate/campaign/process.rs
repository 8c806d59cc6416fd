//! A run in a process of its own.

use std::{
    io::Read,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};

use super::super::{CampaignArgs, hunt::Told};
use crate::{
    output::{CliError, TROUBLE},
    own,
};

/// How long a run may take, in the time of people: many times what it takes, also where more run than there are
/// processors.
const PATIENCE: Duration = Duration::from_secs(900);
/// Lines that a program which died leaves to be shown.
const LAST_LINES: usize = 6;
/// What is said of a run that takes longer, and of one that takes more steps than a simulation may.
const LATE: &str = "not over after";
const LIMIT_REACHED: &str = "the simulation reached its limit";

/// Which run.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) seed: u64,
    pub(super) without_locking: bool,
    pub(super) plant: Option<String>,
    pub(super) most_threads: Option<u64>,
    pub(super) most_transactions: Option<u64>,
    pub(super) turns: Option<PathBuf>,
    pub(super) keep_turns: Option<PathBuf>,
}

impl Request {
    /// This seed of a campaign.
    pub(super) fn new(seed: u64, args: &CampaignArgs) -> Request {
        Request {
            seed,
            without_locking: args.without_locking,
            plant: args.plant.clone(),
            most_threads: args.most_threads,
            most_transactions: args.most_transactions,
            turns: args.turns.clone(),
            keep_turns: None,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["simulate".to_owned(), "--seeds".to_owned(), self.seed.to_string()];
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                arguments.extend([name.to_owned(), value]);
            }
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        option("--most-threads", self.most_threads.map(|most| most.to_string()));
        option("--most-transactions", self.most_transactions.map(|most| most.to_string()));
        option("--plant", self.plant.clone());
        option("--turns", path(&self.turns));
        option("--keep-turns", path(&self.keep_turns));
        if self.without_locking {
            arguments.push("--without-locking".to_owned());
        }
        arguments
    }

    /// What a person types for it.
    pub(super) fn command_line(&self) -> String {
        format!("cargo sim {}", self.arguments().join(" "))
    }
}

/// A process that runs a seed. It is ended with this.
pub(super) struct Run {
    seed: u64,
    process: Leashed,
    output: JoinHandle<String>,
    errors: JoinHandle<String>,
    began: Instant,
}

/// A process that does not outlive whoever waits for it.
struct Leashed(Child);

impl Drop for Leashed {
    fn drop(&mut self) {
        // One that is over cannot be ended, and has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What came of it.
pub(super) struct Ended {
    /// What the program told before it ended, if it could.
    pub(super) told: Option<Told>,
    /// What is wrong.
    pub(super) failure: Option<String>,
}

impl Ended {
    /// Whether the run was over before it reached a limit.
    pub(super) fn comes_to_an_end(&self) -> bool {
        !self.failure.as_ref().is_some_and(|why| why.starts_with(LATE) || why.contains(LIMIT_REACHED))
    }
}

impl Run {
    pub(super) fn start(request: &Request) -> Result<Run, CliError> {
        let program = own::program().map_err(CliError::io("find this program"))?;
        let mut command = Command::new(program);
        // Backtraces would stand where the message of a panic is looked for.
        command
            .args(request.arguments())
            .arg("--json")
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_LIB_BACKTRACE");
        own::leash(&mut command);
        Run::of(request.seed, command)
    }

    fn of(seed: u64, mut command: Command) -> Result<Run, CliError> {
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut process = process.map_err(CliError::io("start a run"))?;
        let (output, errors) = (read(process.stdout.take()), read(process.stderr.take()));
        Ok(Run { seed, process: Leashed(process), output, errors, began: Instant::now() })
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether it is over, or takes too long.
    pub(super) fn is_over(&mut self) -> Result<bool, CliError> {
        let status = self.process.0.try_wait().map_err(CliError::io("watch a run"))?;
        Ok(status.is_some() || self.began.elapsed() >= PATIENCE)
    }

    /// Waits for its end, and says what came of it. A run that takes too long is ended. One that could not run is an
    /// error: it says nothing of its seed.
    pub(super) fn wait(mut self) -> Result<Ended, CliError> {
        while !self.is_over()? {
            thread::sleep(super::LOOK_EVERY);
        }
        let late = self.process.0.try_wait().map_err(CliError::io("watch a run"))?.is_none();
        if late {
            self.process.0.kill().map_err(CliError::io("end a run"))?;
        }
        let status = self.process.0.wait().map_err(CliError::io("end a run"))?;
        if late {
            let failure = format!("{LATE} {} s", PATIENCE.as_secs());
            return Ok(Ended { told: None, failure: Some(failure) });
        }
        // What cannot be read is not shown; that the run failed is.
        let (out, errors) = (self.output.join().unwrap_or_default(), self.errors.join().unwrap_or_default());
        let told: Option<Told> = serde_json::from_str(out.trim()).ok();
        let lines: Vec<&str> = errors.trim().lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
        let failure = match &told {
            Some(told) => told
                .failure
                .as_ref()
                .map(|why| if last.is_empty() { why.clone() } else { format!("{why}\n  {last}") }),
            None if could_not_run(status) => {
                let text = format!("the run of seed {} could not run: {status}: {last}", self.seed);
                return Err(CliError::Other(text));
            }
            None => Some(format!("{status}: {last}")),
        };
        Ok(Ended { told, failure })
    }
}

/// Whether a run that has told nothing could not do its work, as it said itself, or was killed from outside, as the
/// system does where memory is short. An engine that panics or aborts ends in other ways.
fn could_not_run(status: ExitStatus) -> bool {
    let from_outside = [SIGHUP, SIGINT, SIGKILL, SIGTERM];
    status.code() == Some(i32::from(TROUBLE))
        || status.signal().is_some_and(|signal| from_outside.contains(&signal))
}

/// Reads along, so that whoever writes much is not kept waiting: what came until there was no more.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came of a run that is this script.
    fn ended(script: &str) -> Result<Ended, CliError> {
        shell(script).wait()
    }

    fn shell(script: &str) -> Run {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Run::of(7, command).unwrap()
    }

    /// Both were failures of their seeds, and a fault that was planted counted as found.
    #[test]
    fn who_could_not_run_has_not_failed() {
        for script in ["echo no memory >&2; exit 2", "echo no memory >&2; kill -KILL $$"] {
            let error = ended(script).err().unwrap().to_string();
            assert!(error.contains("seed 7") && error.ends_with("no memory"), "{error}");
        }
        // A panic, an abort and a wild access of the engine.
        for script in ["exit 101", "kill -ABRT $$", "kill -SEGV $$"] {
            assert!(
                ended(&format!("echo broken >&2; {script}")).unwrap().failure.unwrap().ends_with("broken")
            );
        }
    }

    /// A campaign that ended with an error left the runs beside behind.
    #[test]
    fn who_is_not_waited_for_is_ended() {
        let run = shell("exec sleep 600");
        let process = PathBuf::from(format!("/proc/{}", run.process.0.id()));
        assert!(process.exists() || !cfg!(target_os = "linux"));
        drop(run);
        assert!(!process.exists());
    }
}
