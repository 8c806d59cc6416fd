//! `foreshore experiment run`: runs what is not stored yet, and judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use foreshore_env::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{self, Duration},
};
use foreshore_experiment::{Answer, Experiment, Machine, Run, Scale, Spent, Way, judge};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde_json::Value;

use super::{
    RunArgs, process, simulator, simulator::Simulator, store, store::Store, verdicts, verdicts::Outcome,
};
use crate::{
    COMMIT,
    directory::Directory,
    output::{CliError, TROUBLE, told},
    own,
};

/// The exit status of a program that was interrupted, as shells have it.
const INTERRUPTED: u8 = 130;
/// What is attempted when it fails.
const FIND: &str = "find this program";
/// How often the bar is drawn anew, whether a command has ended or not.
const TICK: Duration = Duration::from_millis(500);

/// A program that runs commands.
#[derive(Clone)]
struct Program {
    path: PathBuf,
    checksum: String,
    /// The commit that it is built from.
    commit: String,
}

/// What all runs share.
struct Runner {
    real: Program,
    /// Or why there is none, in words.
    simulator: Option<Result<Program, String>>,
    store: Store,
    /// Where children have their temporary files.
    directory: Directory,
    /// Set once the program is to end.
    stop: Arc<AtomicBool>,
    machine: Machine,
    bar: ProgressBar,
    /// Whether progress is to be told.
    tells: bool,
}

/// Runs and judges; prints what came of it.
pub(super) fn run(experiments: &[Experiment], scale: Scale, args: &RunArgs) -> Result<ExitCode, CliError> {
    let runner = Runner::open(experiments, args)?;
    let missing = runner.missing(experiments, args.again);
    runner.bar.set_length(missing.len() as u64);
    let failures =
        runner.run_all(&missing, args.jobs.map_or_else(thread::available_parallelism, usize::from))?;
    runner.bar.finish_and_clear();
    let outcomes: Vec<Outcome<'_>> =
        experiments.iter().map(|experiment| runner.judge(experiment, &failures)).collect();
    let mut seen = BTreeSet::new();
    let runs = experiments.iter().flat_map(|experiment| &experiment.runs);
    let answers: Vec<Answer> =
        runs.filter(|run| seen.insert(run.command())).filter_map(|run| runner.stored(run)).collect();
    let spent = Spent::of(&answers);
    let printed = if args.json {
        verdicts::print_json(scale, &outcomes, spent)
    } else {
        let printed = outcomes.iter().try_for_each(verdicts::print);
        printed.and_then(|()| verdicts::print_count(&outcomes, spent))
    };
    // Relaxed: all threads that could tell something are joined.
    let interrupted = runner.stop.load(Ordering::Relaxed);
    let all = outcomes.iter().all(|outcome| outcome.judgement.not_run().is_none());
    let status = match () {
        () if interrupted => ExitCode::from(INTERRUPTED),
        () if all => ExitCode::SUCCESS,
        () => ExitCode::from(TROUBLE),
    };
    told(printed, status)
}

impl Program {
    fn at(path: PathBuf, commit: String) -> Result<Program, CliError> {
        let checksum = store::program(&path)?;
        Ok(Program { path, checksum, commit })
    }
}

impl Runner {
    fn open(experiments: &[Experiment], args: &RunArgs) -> Result<Runner, CliError> {
        let own = own::program().map_err(CliError::io(FIND))?;
        let store = Store::make(&args.out)?;
        let simulates =
            experiments.iter().flat_map(|experiment| &experiment.runs).any(|run| run.way == Way::Simulated);
        // Without it the rest can be run; what cannot says why.
        let simulator = simulates.then(|| {
            let found = simulator::find(args.simulator.as_deref(), !args.json && !args.quiet);
            let program = found.and_then(|Simulator { path, commit }| Program::at(path, commit));
            program.map_err(|error| error.to_string())
        });
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        ctrlc::set_handler(move || told.store(true, Ordering::Relaxed))
            .map_err(|error| CliError::Other(format!("cannot listen for Ctrl-C: {error}")))?;
        let bar = if args.json || args.quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        // The template is a constant; were it wrong, the bar would be plain.
        // What is left can be told once something is done; until then the time that has passed shows that it goes on.
        if let Ok(style) =
            ProgressStyle::with_template("  {bar:30} {pos} of {len} commands, {elapsed}{left}  {wide_msg}")
        {
            bar.set_style(style.with_key("left", |state: &ProgressState, out: &mut dyn fmt::Write| {
                if state.pos() > 0 {
                    // A bar has no way to tell of an error.
                    let _ = write!(out, ", {:#} left", HumanDuration(state.eta()));
                }
            }));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Ok(Runner {
            real: Program::at(own, COMMIT.to_owned())?,
            simulator,
            store,
            directory: Directory::beneath(None, "experiment")?,
            stop,
            machine: store::machine(),
            bar,
            tells: !args.json && !args.quiet,
        })
    }

    fn program(&self, way: Way) -> Result<&Program, String> {
        match (way, &self.simulator) {
            (Way::Real, _) => Ok(&self.real),
            (Way::Simulated, Some(Ok(program))) => Ok(program),
            (Way::Simulated, Some(Err(why))) => Err(why.clone()),
            (Way::Simulated, None) => Err("nothing was to be simulated".to_owned()),
        }
    }

    /// The stored answer, if this program gave it, on this machine unless on a simulated one, and it has the figures
    /// that are taken from it. What is damaged is as good as none: it is asked for again.
    fn stored(&self, run: &Run) -> Option<Answer> {
        let program = self.program(run.way).ok()?;
        let answer = self.store.find(&run.command()).ok()??;
        let is_of_here = run.way == Way::Simulated || answer.machine == self.machine;
        let is_own = answer.program == program.checksum && is_of_here;
        (is_own && run.check(&answer.answer).is_ok()).then_some(answer)
    }

    /// What is to be run, each command once.
    fn missing<'e>(&self, experiments: &'e [Experiment], again: bool) -> Vec<&'e Run> {
        let mut seen = BTreeSet::new();
        let runs = experiments.iter().flat_map(|experiment| &experiment.runs);
        runs.filter(|run| seen.insert(run.command()) && (again || self.stored(run).is_none())).collect()
    }

    /// Runs them: first what needs this machine for itself, one after the other, then what is simulated, `jobs` at a
    /// time. Gives what went wrong, by command.
    fn run_all(&self, runs: &[&Run], jobs: usize) -> Result<BTreeMap<String, String>, CliError> {
        let failures = Mutex::new(BTreeMap::new());
        let trouble = Mutex::new(None);
        for (way, jobs) in [(Way::Real, 1), (Way::Simulated, jobs)] {
            let of_way = || runs.iter().filter(|run| run.way == way);
            let rest = Mutex::new(of_way());
            let work = || {
                loop {
                    let Some(run) = rest.lock().next() else { break };
                    if self.stop.load(Ordering::Relaxed) || trouble.lock().is_some() {
                        break;
                    }
                    match self.run(run) {
                        Ok(Ok(())) => {}
                        Ok(Err(why)) => drop(failures.lock().insert(run.command(), why)),
                        Err(error) => drop(trouble.lock().replace(error)),
                    }
                    self.tell(run);
                }
            };
            thread::scope(|scope| {
                for job in 0..jobs.min(of_way().count()) {
                    match thread::Builder::new().spawn_scoped(scope, work) {
                        Ok(_) => {}
                        Err(error) if job == 0 => {
                            let told = CliError::io("start a thread that runs commands")(error);
                            trouble.lock().replace(told);
                        }
                        // Those that there are do it all.
                        Err(_) => break,
                    }
                }
            });
        }
        match trouble.into_inner() {
            Some(error) => Err(error),
            None => Ok(failures.into_inner()),
        }
    }

    /// Tells that a command is done: by the bar, or where there is no terminal, by a line.
    fn tell(&self, run: &Run) {
        self.bar.inc(1);
        if self.tells && self.bar.is_hidden() {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            // Nobody needs to read it.
            let _ = writeln!(io::stderr().lock(), "  {done} of {all} commands: {}", run.command());
        }
    }

    /// Runs a command, and keeps its answer. The inner error is the command's, the outer one this program's.
    fn run(&self, run: &Run) -> Result<Result<(), String>, CliError> {
        let program = match self.program(run.way) {
            Ok(program) => program,
            Err(why) => return Ok(Err(why)),
        };
        self.bar.set_message(run.command());
        let began_unix_s = time::unix_seconds();
        let path = match run.way {
            // Another may have taken its place.
            Way::Real => own::program().map_err(CliError::io(FIND))?,
            Way::Simulated => program.path.clone(),
        };
        // EXPERIMENT-7, and before it runs, too: hours of another program would be for nothing.
        let is_own = || store::program(&path).is_ok_and(|checksum| checksum == program.checksum);
        let another = || format!("{} is another program by now, or gone; run it again", path.display());
        if !is_own() {
            return Ok(Err(another()));
        }
        let ended = match process::run(
            &path,
            &run.words(),
            run.may_fail,
            self.directory.path(),
            process::LONGEST,
            &self.stop,
        ) {
            Ok(ended) => ended,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = run.check(&ended.answer) {
            return Ok(Err(why));
        }
        if !is_own() {
            return Ok(Err(another()));
        }
        self.store.keep(&Answer {
            command: run.command(),
            program: program.checksum.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: program.commit.clone(),
            machine: self.machine.clone(),
            began_unix_s,
            seconds: ended.seconds,
            computed_seconds: ended.computed_seconds,
            answer: ended.answer,
        })?;
        Ok(Ok(()))
    }

    fn judge<'e>(&self, experiment: &'e Experiment, failures: &BTreeMap<String, String>) -> Outcome<'e> {
        let mut answers: BTreeMap<String, Result<Value, String>> = BTreeMap::new();
        let mut stored = Vec::new();
        for run in &experiment.runs {
            let command = run.command();
            if let Some(why) = failures.get(&command) {
                answers.insert(command, Err(why.clone()));
            } else if let Some(answer) = self.stored(run) {
                answers.insert(command, Ok(answer.answer.clone()));
                stored.push(answer);
            }
        }
        Outcome { experiment, judgement: judge(experiment, &answers), spent: Spent::of(&stored) }
    }
}
