//! A run in a process of its own.

use std::{
    io::Read,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::super::{CampaignArgs, hunt::Told};
use crate::output::CliError;

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

/// A process that runs a seed.
pub(super) struct Run {
    seed: u64,
    process: Child,
    output: JoinHandle<String>,
    errors: JoinHandle<String>,
    began: Instant,
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
        let program = std::env::current_exe().map_err(CliError::io("find this program"))?;
        let mut command = Command::new(program);
        // Backtraces would stand where the message of a panic is looked for.
        command
            .args(request.arguments())
            .arg("--json")
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_LIB_BACKTRACE");
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut process = process.map_err(CliError::io("start a run"))?;
        let (output, errors) = (read(process.stdout.take()), read(process.stderr.take()));
        Ok(Run { seed: request.seed, process, output, errors, began: Instant::now() })
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether it is over, or takes too long.
    pub(super) fn is_over(&mut self) -> Result<bool, CliError> {
        let status = self.process.try_wait().map_err(CliError::io("watch a run"))?;
        Ok(status.is_some() || self.began.elapsed() >= PATIENCE)
    }

    /// Waits for its end, and says what came of it. A run that takes too long is ended.
    pub(super) fn wait(mut self) -> Result<Ended, CliError> {
        while !self.is_over()? {
            thread::sleep(super::LOOK_EVERY);
        }
        let late = self.process.try_wait().map_err(CliError::io("watch a run"))?.is_none();
        if late {
            self.process.kill().map_err(CliError::io("end a run"))?;
        }
        let status = self.process.wait().map_err(CliError::io("end a run"))?;
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
            None => Some(format!("{status}: {last}")),
        };
        Ok(Ended { told, failure })
    }
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
