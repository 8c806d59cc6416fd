//! `foreshore bench compare`: engines side by side. Each run is a process of its own, so that its memory is its own;
//! the engines take turns in every round, so that what else the machine does meets all of them, and in another order in
//! each, and each run finds memory that the machine has.

mod child;
mod leash;
mod memory;
#[cfg(feature = "plot")]
mod plot;
mod result;
mod table;
mod workloads;

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode};

use clap::Args;
use foreshore_bench::{Durability, EngineKind, EngineOptions, Named, engines, turns};
use foreshore_env::{thread, time::Duration};
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    child::Run,
    leash::Leash,
    result::{Comparison, EngineResult, Runs},
    workloads::Preset,
};
use crate::{
    COMMIT,
    bench::{
        any_name, names, parse_measured, parse_seconds, parse_setting as parse_pair, standing::Standing,
    },
    directory::Directory,
    output::{CHECK_FAILED, CliError, TROUBLE, counted, json_line, line, told},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// The workloads.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values = Preset::NAMES,
          value_parser = Preset::parser())]
    workloads: Vec<Preset>,
    /// The engines; the ratios are those of the first one to each [default: foreshore and all rivals of this build].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = any_name::<EngineKind>())]
    engines: Vec<EngineKind>,
    /// Numbers of threads, one after another.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 8, 32, 128],
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// How often each combination runs; the median counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How long each run is measured.
    #[arg(long, value_name = "S", default_value = "3", value_parser = parse_measured)]
    seconds: Duration,
    /// How long each run lasts before it is measured.
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_seconds)]
    warm_up: Duration,
    /// What a commit waits for: the disk, or nothing.
    #[arg(long, default_value = "lazy", value_parser = names::<Durability>(&["sync", "lazy"]))]
    durability: Durability,
    /// Memory for the cache of every engine that has one.
    #[arg(long, value_name = "BYTES", default_value = "1GiB")]
    cache: String,
    /// An option of an engine: `--set fjall.transactions=single_writer`. May be repeated.
    #[arg(long = "set", value_name = "ENGINE.OPTION=VALUE", value_parser = parse_setting)]
    settings: Vec<(EngineKind, String)>,
    /// A hundredth of the records: to see whether all goes well, not how fast.
    #[arg(long)]
    small: bool,
    /// Where the databases are made, and removed again [default: the system's temporary directory].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The seed of all random inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw throughput by threads, a picture for each workload, into this SVG file; in builds with the feature rivals.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench compare --small --rounds 1 --seconds 0.2 --threads 1,8     whether all goes well
  foreshore bench compare --workloads tpcb,tpcc --engines foreshore,lmdb --dir /dev/shm
  foreshore bench compare --durability sync --workloads tpcb --threads 1,2,128 --json | tail -1 > tpcb.json
  foreshore bench compare --plot compare.svg
  foreshore bench compare --workloads tpcb,rmw,insert,scan --engines foreshore,rocksdb,bdb --threads 1,2,8

Rivals, and --plot, are in builds with their features (cargo run --release --features rivals -- bench compare).
RocksDB and Berkeley DB are Debian's: apt install librocksdb-dev libdb5.3-dev, and --features rivals,debian-rivals

Exit status: 0 all runs ended well, 1 a check failed, 2 wrong usage or a run failed, 130 it was interrupted. What
was measured until then is printed all the same, of the combination that was under way all rounds that are over: with
--json there is \"partial\":true then, beside the error.";

fn parse_setting(text: &str) -> Result<(EngineKind, String), String> {
    let wrong = || "give engine.option=value, such as fjall.transactions=single_writer".to_owned();
    let (engine, setting) = text.split_once('.').ok_or_else(wrong)?;
    let (option, _) = setting.split_once('=').ok_or_else(wrong)?;
    if option.is_empty() {
        return Err(wrong());
    }
    Ok((EngineKind::chosen(engine).map_err(|error| error.to_string())?, setting.to_owned()))
}

/// Runs the subcommand.
pub(super) fn run(args: &CompareArgs) -> Result<ExitCode, CliError> {
    if args.plot.is_some() && !cfg!(feature = "plot") {
        return Err(CliError::usage(
            "this build cannot plot",
            "leave out --plot, or build with: cargo run --release --features rivals --",
        ));
    }
    #[cfg(feature = "plot")]
    if let Some(path) = &args.plot {
        // Not after hours of measuring.
        plot::try_path(path)?;
    }
    let comparison = measure(args)?;
    #[cfg(feature = "plot")]
    let plotted = args.plot.as_ref().map_or(Ok(()), |path| plot::write(path, &comparison));
    #[cfg(not(feature = "plot"))]
    let plotted = Ok(());
    let notes = table::notes(&comparison);
    let printed = match args.json {
        true => json_line(&comparison),
        false if notes.is_empty() => Ok(()),
        false => line(notes),
    };
    let status = match () {
        () if comparison.results.iter().any(|result| result.consistent == Some(false)) => {
            ExitCode::from(CHECK_FAILED)
        }
        () if comparison.results.iter().any(|result| result.failure.is_some()) => ExitCode::from(TROUBLE),
        () => ExitCode::SUCCESS,
    };
    told(plotted.and(printed), status)
}

/// Measures everything, and prints what is known as soon as it is.
fn measure(args: &CompareArgs) -> Result<Comparison, CliError> {
    let engines: Vec<EngineKind> = match args.engines.is_empty() {
        true => EngineKind::built().filter(|kind| *kind != EngineKind::BTreeMap).collect(),
        false => args.engines.clone(),
    };
    let directory = Directory::beneath(args.dir.as_deref(), "compare")?;
    let (standing, leash, mut comparison) =
        (Standing::default(), Leash::default(), nothing_yet(args, &engines));
    standing.keep(comparison.clone());
    let (held, broken_off, json) = (leash.clone(), standing.clone(), args.json);
    let tell = move |error: &CliError| broken_off.interrupted(error, json, table::broken_off);
    directory.end_when_interrupted_after(move || held.end(), tell)?;
    engines.iter().try_for_each(|engine| try_engine(args, *engine, &directory))?;
    let bar = progress(args, engines.len());
    standing.begin(bar.clone());
    let say = |text: String| if json { Ok(()) } else { bar.suspend(|| line(text.trim_end())) };
    say(table::head(&comparison))?;
    let race = Race { args, engines: &engines, directory: &directory, leash: &leash, bar: &bar };
    let combinations =
        args.workloads.iter().flat_map(|preset| args.threads.iter().map(move |threads| (preset, *threads)));
    for (preset, threads) in combinations {
        race.run(preset, threads, |results| {
            comparison.results.truncate(comparison.told);
            comparison.results.extend(results);
            standing.keep(comparison.clone());
        });
        let newest = table::newest(&comparison);
        comparison.told = comparison.results.len();
        if let Err(error) = standing.tell(comparison.clone(), || say(newest)) {
            if comparison.results.iter().all(|it| it.consistent != Some(false) && it.failure.is_none()) {
                return Err(error);
            }
            // What was found counts, whoever can be told.
            error.report(false);
            break;
        }
    }
    bar.finish_and_clear();
    standing.end();
    Ok(Comparison { partial: false, ..comparison })
}

/// The engines, as they take turns.
struct Race<'r> {
    args: &'r CompareArgs,
    engines: &'r [EngineKind],
    directory: &'r Directory,
    leash: &'r Leash,
    bar: &'r ProgressBar,
}

impl Race<'_> {
    /// All rounds of a workload and a number of threads; after each `keep` gets the results so far.
    fn run(&self, preset: &Preset, threads: u16, mut keep: impl FnMut(Vec<EngineResult>)) {
        let Race { args, engines, directory, leash, bar } = *self;
        let none = |engine: &EngineKind| Runs { engine: engine.name(), rounds: Vec::new(), failure: None };
        let mut runs: Vec<Runs> = engines.iter().map(none).collect();
        for round in 0..args.rounds {
            for place in turns(engines.len(), usize::from(round)) {
                let (engine, runs) = (engines[place], &mut runs[place]);
                bar.set_message(format!(
                    "{}, {}, {}",
                    preset.name,
                    counted(threads, "thread", "threads"),
                    engine.name()
                ));
                if runs.failure.is_none() {
                    if !args.small {
                        memory::touch(&args.cache);
                    }
                    match child::run(&arguments(args, preset, engine, threads), directory, leash) {
                        Ok(round) => runs.rounds.push(round),
                        Err(failure) => runs.failure = Some(failure),
                    }
                }
                bar.inc(1);
            }
            keep(result::of(preset.name, threads, &runs));
        }
    }
}

/// What shapes the results, before there are any.
fn nothing_yet(args: &CompareArgs, engines: &[EngineKind]) -> Comparison {
    Comparison {
        experiment: "compare",
        version: env!("CARGO_PKG_VERSION"),
        commit: COMMIT,
        processors: thread::available_parallelism(),
        seconds: args.seconds.as_secs_f64(),
        warm_up_seconds: args.warm_up.as_secs_f64(),
        rounds: args.rounds,
        seed: args.seed,
        durability: args.durability.name(),
        cache: args.cache.clone(),
        settings: engines.iter().map(|engine| (engine.name(), settings(args, *engine))).collect(),
        workloads: args
            .workloads
            .iter()
            .map(|preset| (preset.name, preset.arguments(args.small).join(" ")))
            .collect::<BTreeMap<_, _>>(),
        partial: true,
        told: 0,
        results: Vec::new(),
    }
}

/// Opens an engine as its runs will, without tables: not after hours of measuring others is what it refuses to be told.
fn try_engine(args: &CompareArgs, engine: EngineKind, directory: &Directory) -> Result<(), CliError> {
    let settings = settings(args, engine);
    let pairs: Result<_, _> = settings.iter().map(|setting| parse_pair(setting)).collect();
    let options = EngineOptions {
        directory: directory.path().join(engine.name()),
        durability: args.durability,
        settings: pairs.map_err(|error| CliError::usage(error, "give engine.option=value"))?,
        ..EngineOptions::default()
    };
    let tried = engines::open(engine, &[], &options).and_then(|opened| Ok(opened.close()?));
    // What is left of it goes with the directory around it.
    let _ = fs::remove_dir_all(&options.directory);
    tried.map_err(|error| match CliError::from(error) {
        error if error.code() == "usage" => CliError::usage(
            format!("{} cannot be measured like this: {error}", engine.name()),
            format!(
                "correct --cache, --durability or what --set says of it; it is given {}",
                settings.join(", ")
            ),
        ),
        error => error,
    })
}

/// What an engine is told by `--set`; the last of a name counts.
fn settings(args: &CompareArgs, engine: EngineKind) -> Vec<String> {
    let mut settings = match engine {
        // What only reads is answered from snapshots by those who have them.
        EngineKind::Foreshore => vec![format!("pool_bytes={}", args.cache), "reads=unlocked".to_owned()],
        EngineKind::BTreeMap => Vec::new(),
        _ => vec![format!("cache_bytes={}", args.cache)],
    };
    let own = args.settings.iter().filter(|(of, _)| *of == engine);
    settings.extend(own.map(|(_, setting)| setting.clone()));
    settings
}

/// What a child is told.
fn arguments(args: &CompareArgs, preset: &Preset, engine: EngineKind, threads: u16) -> Run {
    let mut words: Vec<String> = vec!["bench".to_owned()];
    words.extend(preset.arguments(args.small));
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--engine", engine.name().to_owned());
    option("--threads", threads.to_string());
    option("--seconds", args.seconds.as_secs_f64().to_string());
    option("--warm-up", args.warm_up.as_secs_f64().to_string());
    option("--durability", args.durability.name().to_owned());
    option("--seed", args.seed.to_string());
    for setting in settings(args, engine) {
        option("--set", setting);
    }
    words.push("--json".to_owned());
    Run { words, longest: args.warm_up + args.seconds }
}

fn progress(args: &CompareArgs, engines: usize) -> ProgressBar {
    if args.json || args.quiet {
        return ProgressBar::hidden();
    }
    let runs = args.workloads.len() * args.threads.len() * usize::from(args.rounds) * engines;
    let bar = ProgressBar::new(runs as u64);
    let template = "  {bar:30} {pos} of {len} runs, {eta} left: {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
