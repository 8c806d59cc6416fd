//! The parent: starts the child, kills it, opens the database again, and compares.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStdout, Command, Stdio},
};

use foreshore_bench::{BenchError, Engine, Named, Silent, engines::ForeshoreEngine};
use foreshore_env::{
    random::Xorshift,
    thread,
    time::{Duration, Instant},
};
use serde::Serialize;
use signal_hook::consts::SIGKILL;

use super::{
    Campaign, draw_settings,
    examine::{Findings, examine},
    is_full,
    ledger::{self, Page},
    no_room, remark,
    worker::{self, ONLY_OPEN, join_settings},
};
use crate::{
    directory::await_interruption,
    output::{CliError, counted},
    own,
};

/// A child is killed between these times after its start.
const SHORTEST_LIFE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_LIFE: Duration = Duration::from_secs(3);
/// The same for a child that recovers: a start takes some milliseconds, recovery itself about a hundred.
const SHORTEST_RECOVERY: Duration = Duration::from_millis(3);
const LONGEST_RECOVERY: Duration = Duration::from_millis(300);
/// A child that dies at a write does so at one of this many first ones.
const MOST_WRITES: u64 = 4000;
/// How often a child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A child that is ready and commits nothing for this long hangs.
const LONGEST_IDLE: Duration = Duration::from_secs(2);
/// One crash in this many is followed by another during the recovery from it.
const RECOVERY_KILLED: u64 = 3;

/// How the game is played.
pub(super) struct Referee<'r> {
    pub(super) campaign: &'r Campaign<'r>,
    /// The campaign's, or the share that kills have of it.
    pub(super) length: Duration,
    /// A child that is not to die at a write is killed after this time at the latest.
    pub(super) longest_life: Duration,
    /// Whether one child in two dies at one of its own writes.
    pub(super) at_writes: bool,
    pub(super) planted_panic: bool,
    /// The commands that cut the power before a kill and bring the file system back after it.
    pub(super) power_cut: Option<(&'r str, &'r str)>,
}

/// How it ended.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Score {
    /// Times that the database was opened after a kill and compared.
    pub(crate) cycles: u64,
    /// Children killed.
    pub(crate) kills: u64,
    /// Of these, while they opened the database after an earlier kill.
    pub(crate) kills_in_recovery: u64,
    /// Of these, after the power was cut.
    pub(crate) power_cuts: u64,
    /// Of these, by themselves, when they came to one of their writes.
    pub(crate) kills_at_writes: u64,
    #[serde(flatten)]
    pub(crate) found: Findings,
    /// The longest that a thread of a child committed nothing, in seconds, as far as its watchdog has seen.
    pub(crate) longest_silence: f64,
    /// How long it took.
    pub(crate) seconds: f64,
}

impl Score {
    pub(crate) fn passed(&self) -> bool {
        self.found.is_empty()
    }
}

/// What a child told before it was killed.
#[derive(Debug)]
struct Told {
    /// When it was dead.
    end: Instant,
    /// When it had opened the database.
    ready: Option<Instant>,
    /// The last number of each thread; `None` when it told nothing.
    commits: Vec<Option<u64>>,
    /// How many commits were told of.
    acknowledged: u64,
    /// The longest that one of its threads committed nothing.
    silence: Duration,
    /// A line that no child writes.
    strange: Option<String>,
}

impl Referee<'_> {
    /// Loads the database, then plays until the time is over or something is wrong, once at least.
    pub(crate) fn run(&self) -> Result<Score, CliError> {
        let Campaign { workload, threads, seed, quiet, directory, .. } = *self.campaign;
        let mut random = Xorshift::new(seed);
        let mut score = Score::default();
        self.prepare()?;
        let begin = Instant::now();
        let mut before = vec![Page::empty(workload); threads];
        while score.cycles == 0 || (begin.elapsed() < self.length && score.passed()) {
            let told = self.one_life(&mut random, &mut score)?;
            if random.below(RECOVERY_KILLED) == 0 {
                self.killed_recovery(&mut random, &mut score)?;
            }
            score.cycles += 1;
            before = self.compare(&told, &before, &random, &mut score)?;
            let (cycles, Findings { commits_checked, losses, .. }) = (score.cycles, &score.found);
            if cycles.is_multiple_of(10) {
                let commits = counted(commits_checked, "commit", "commits");
                let losses = counted(losses, "loss", "losses");
                remark(quiet, &format!("{cycles} cycles, {commits} checked, {losses}"));
            }
        }
        score.seconds = begin.elapsed().as_secs_f64();
        if !score.passed() {
            // It holds the evidence.
            directory.keep();
        }
        Ok(score)
    }

    /// Makes and loads the database, in peace.
    fn prepare(&self) -> Result<(), CliError> {
        let Campaign { workload, set, seed, .. } = *self.campaign;
        let engine = self.open(set)?;
        foreshore_bench::load(&engine, workload, 1, seed, &Silent)?;
        Ok(engine.close().map_err(BenchError::from)?)
    }

    fn open(&self, settings: &[(String, String)]) -> Result<ForeshoreEngine, CliError> {
        let Campaign { workload, execution, directory, .. } = *self.campaign;
        let options = worker::options(directory.path(), settings, execution);
        Ok(ForeshoreEngine::open(&ledger::tables(workload), &options)?)
    }

    /// One child, from its start until it was killed and all that it told was read.
    fn one_life(&self, random: &mut Xorshift, score: &mut Score) -> Result<Told, CliError> {
        let life = draw_life(random, (SHORTEST_LIFE.min(self.longest_life), self.longest_life));
        let seed = random.next_u64().to_string();
        let told = self.live_and_die(&seed, life, random, score)?;
        let worked = told.ready.map_or(Duration::ZERO, |ready| told.end.saturating_duration_since(ready));
        if worked >= LONGEST_IDLE && told.acknowledged == 0 {
            score.found.problem(format!(
                "a child that was ready committed nothing in {:.1} s",
                worked.as_secs_f64()
            ));
        }
        Ok(told)
    }

    /// A child that is killed while it recovers from the last kill, or soon after; counted if it was not ready yet.
    fn killed_recovery(&self, random: &mut Xorshift, score: &mut Score) -> Result<(), CliError> {
        let life = draw_life(random, (SHORTEST_RECOVERY, LONGEST_RECOVERY));
        let told = self.live_and_die(ONLY_OPEN, life, random, score)?;
        score.kills_in_recovery += u64::from(told.ready.is_none());
        Ok(())
    }

    /// Starts a child, kills it, and gives what it told.
    fn live_and_die(
        &self,
        seed: &str,
        life: Duration,
        random: &mut Xorshift,
        score: &mut Score,
    ) -> Result<Told, CliError> {
        // One child in two, the first among them, dies at a write if it comes that far.
        let at_a_write = self.at_writes && score.cycles.is_multiple_of(2);
        let fatal_write = if at_a_write { 1 + random.below(MOST_WRITES) } else { 0 };
        let life = if at_a_write { LONGEST_LIFE } else { life };
        let mut child = self.spawn(seed, fatal_write, random)?;
        let out = child.stdout.take();
        let threads = self.campaign.threads;
        // The child ends where this does not go on: its pipe is closed.
        let reader = thread::Builder::new().spawn(move || listen(out, threads));
        let reader = reader.map_err(CliError::io("start the thread that listens to a child"))?;
        let end = Instant::now() + life;
        let is_alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        while is_alive(&mut child) && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            thread::sleep(left.min(LOOK_EVERY));
        }
        self.kill(&mut child, score)?;
        let end = Instant::now();
        // The pipe ends with the process, so this ends too.
        let told = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        score.longest_silence = score.longest_silence.max(told.silence.as_secs_f64());
        if let Some(text) = &told.strange {
            score.found.problem(format!("the child said {text:?}"));
        }
        Ok(Told { end, ..told })
    }

    /// Starts a child; `seed` may be [`ONLY_OPEN`].
    fn spawn(&self, seed: &str, fatal_write: u64, random: &mut Xorshift) -> Result<Child, CliError> {
        // It would make the database anew.
        await_interruption();
        let Campaign { workload, threads, execution, directory, planted_loss, .. } = *self.campaign;
        let mut settings = self.settings(random);
        if planted_loss {
            settings.push(worker::PLANTED_LOSS.map(str::to_owned).into());
        }
        let seed = if self.planted_panic { worker::PLANTED_PANIC } else { seed };
        let settings = join_settings(&settings);
        let program = own::program().map_err(CliError::io("find this program's own file"))?;
        let mut command = Command::new(program);
        own::leash(&mut command)
            .args(["torture", "--workload", workload.name(), "--threads", &threads.to_string()])
            .args(["--execution", execution.name()])
            .arg("--dir")
            .arg(directory.path())
            .args(["--child", seed, &settings, &fatal_write.to_string()])
            // A terminal interrupts its whole group: the child would die of that, and nobody is to take it for a fault.
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(CliError::io("start a child"))
    }

    /// Kills a child, and cuts the power before. One that had died by itself is a problem; without power it may.
    fn kill(&self, child: &mut Child, score: &mut Score) -> Result<(), CliError> {
        let ended = child.try_wait().map_err(CliError::io("watch a child"))?;
        if let Some(status) = ended {
            if self.at_writes && status.signal() == Some(SIGKILL) {
                score.kills += 1;
                score.kills_at_writes += 1;
                return Ok(());
            }
            if status.code() == Some(worker::NO_ROOM) {
                return Err(no_room(self.campaign.directory.path(), "a child said so, above"));
            }
            score.found.problem(format!("a child died by itself: {status}; its last words are above"));
            return Ok(());
        }
        if let Some((cut, _)) = self.power_cut {
            shell(cut, Some(child.id()))?;
            score.power_cuts += 1;
        }
        child.kill().map_err(CliError::io("kill a child"))?;
        child.wait().map_err(CliError::io("wait for a child"))?;
        score.kills += 1;
        self.power_cut.map_or(Ok(()), |(_, after)| shell(after, None))
    }

    /// Opens the database and compares it with what was told. Gives the ledger as it is.
    fn compare(
        &self,
        told: &Told,
        before: &[Page],
        random: &Xorshift,
        score: &mut Score,
    ) -> Result<Vec<Page>, CliError> {
        await_interruption();
        let Campaign { workload, directory, .. } = *self.campaign;
        let engine = match self.open(&self.settings(&mut random.clone())) {
            Ok(engine) => engine,
            Err(error) => {
                if is_full(&error) {
                    return Err(no_room(directory.path(), &error.to_string()));
                }
                score.found.problem(format!("the database does not open any more: {error}"));
                return Ok(before.to_vec());
            }
        };
        score.found.commits_checked += told.acknowledged;
        let commits = told.commits.iter().zip(before);
        let promised: Vec<u64> = commits.map(|(told, page)| told.unwrap_or(page.commits)).collect();
        let after = examine(&engine, workload, &promised, &mut score.found);
        Ok(after.unwrap_or_else(|| before.to_vec()))
    }

    /// Other ones each time, and those that were asked for.
    fn settings(&self, random: &mut Xorshift) -> Vec<(String, String)> {
        let mut settings = draw_settings(random, self.campaign.threads);
        settings.extend_from_slice(self.campaign.set);
        settings
    }
}

/// Runs a command that must succeed, and tells it of a worker.
fn shell(command: &str, worker: Option<u32>) -> Result<(), CliError> {
    let mut process = Command::new("sh");
    process.envs(worker.map(|id| ("FORESHORE_WORKER", id.to_string())));
    // What it starts of this program has another input.
    process.env_remove(own::LEASHED);
    process.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = process.status().map_err(CliError::io("start a shell"))?;
    if status.success() { Ok(()) } else { Err(CliError::Other(format!("`{command}` failed: {status}"))) }
}

/// A time between the shortest and the longest; short ones as likely as long ones.
fn draw_life(random: &mut Xorshift, (shortest, longest): (Duration, Duration)) -> Duration {
    let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
    let ratio = longest.as_secs_f64() / shortest.as_secs_f64();
    shortest.mul_f64(ratio.powf(share))
}

/// Reads all that a child tells, until the pipe ends.
fn listen(out: Option<ChildStdout>, threads: usize) -> Told {
    let mut told = Told::nothing(threads);
    let Some(out) = out else { return told };
    for line in BufReader::new(out.take(u64::MAX)).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line);
        told.hear(&line);
    }
    told
}

impl Told {
    fn nothing(threads: usize) -> Told {
        Told {
            end: Instant::now(),
            ready: None,
            commits: vec![None; threads],
            acknowledged: 0,
            silence: Duration::ZERO,
            strange: None,
        }
    }

    fn hear(&mut self, line: &str) {
        if line == "ready" {
            self.ready = Some(Instant::now());
            return;
        }
        if let Some(Ok(ms)) = line.strip_prefix("silent ").map(str::parse) {
            self.silence = self.silence.max(Duration::from_millis(ms));
            return;
        }
        let pair = line.split_once(' ').and_then(|(thread, commits)| {
            Some((thread.parse::<usize>().ok()?, commits.parse::<u64>().ok()?))
        });
        match pair.and_then(|(thread, commits)| Some((self.commits.get_mut(thread)?, commits))) {
            Some((last, commits)) => {
                *last = Some(commits);
                self.acknowledged += 1;
            }
            None => self.strange = Some(line.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Told {
        let mut told = Told::nothing(2);
        lines.iter().for_each(|line| told.hear(line));
        told
    }

    #[test]
    fn what_a_child_says_last_counts() {
        let told = told(&["ready", "0 4", "silent 700", "0 5", "silent 30"]);
        assert_eq!(told.silence, Duration::from_millis(700));
        assert!(told.ready.is_some() && told.strange.is_none());
        assert_eq!((told.commits, told.acknowledged), (vec![Some(5), None], 2));
    }

    #[test]
    fn what_no_child_says_is_noticed() {
        for line in ["", "silent", "silent x", "2 1", "0", "0 x", "redy"] {
            assert_eq!(told(&[line]).strange.as_deref(), Some(line));
        }
    }

    #[test]
    fn lives_are_as_long_as_promised() {
        let mut random = Xorshift::new(1);
        let lives: Vec<_> =
            (0..1000).map(|_| draw_life(&mut random, (SHORTEST_LIFE, LONGEST_LIFE))).collect();
        assert!(lives.iter().all(|life| (SHORTEST_LIFE..=LONGEST_LIFE).contains(life)));
        let short = lives.iter().filter(|life| **life < Duration::from_millis(387)).count();
        assert!((400..600).contains(&short), "half of them are below the geometric mean: {short}");
    }
}
