//! `foreshore bench log`: the ways of inserting into the log, side by side.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use foreshore::{LogInsert, Options};
use foreshore_bench::{LogRow, LogRun, run_log};
use foreshore_env::time::Duration;
use serde::Serialize;

use crate::{
    bench::parse_measured,
    directory::{self, Directory},
    output::{CliError, json_line, line},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LogArgs {
    /// A way of inserting, as the option log_insert has it; may be repeated [default: all].
    #[arg(long = "insert", value_name = "KIND", value_parser = parse_insert)]
    inserts: Vec<LogInsert>,
    /// Bytes of a record, without its header.
    #[arg(long, value_name = "BYTES", default_value_t = 120)]
    size: usize,
    /// Numbers of threads, one after another.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,8,32",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// How long to measure each way with each number of threads.
    #[arg(long, value_name = "S", default_value = "3", value_parser = parse_measured)]
    seconds: Duration,
    /// Append this many records by each thread, once, in place of a time: for counting instructions.
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    iterations: Option<u64>,
    /// A new directory for the log, which is kept [default: memory that forgets, so that no disk is measured].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench log                                       every way of inserting, 1, 2, 8 and 32 threads
  foreshore bench log --insert consolidated --insert mutex --threads 1,8 --size 300
  foreshore bench log --dir /mnt/disk/log --seconds 10      a log on a disk, which is kept";

#[derive(Serialize)]
struct Outcome<'a> {
    workload: &'static str,
    version: &'static str,
    size: usize,
    /// How long each row was measured; null if that was for so many `iterations`.
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iterations: Option<u64>,
    rows: &'a [LogRow],
}

fn parse_insert(text: &str) -> Result<LogInsert, String> {
    let mut options = Options::default();
    options.set("log_insert", text).map_err(|error| error.to_string())?;
    Ok(options.log_insert)
}

/// Runs the subcommand.
pub(super) fn run(args: LogArgs) -> Result<ExitCode, CliError> {
    let directory = match &args.dir {
        Some(path) => Some(Directory::choose(Some(path), "bench")?),
        None => None,
    };
    match &directory {
        Some(directory) => directory.end_when_interrupted(args.json)?,
        None => directory::end_when_interrupted(args.json)?,
    }
    let all = LogInsert::ALL.to_vec();
    let run = LogRun {
        inserts: if args.inserts.is_empty() { all } else { args.inserts },
        size: args.size,
        threads: args.threads.into_iter().map(usize::from).collect(),
        measured: args.seconds,
        iterations: args.iterations,
        directory: directory.map(|directory| directory.path().to_owned()),
    };
    let (size, iterations) = (run.size, run.iterations);
    let (seconds, length) = match iterations {
        None => {
            let seconds = run.measured.as_secs_f64();
            (Some(seconds), format!("{seconds} s each"))
        }
        Some(count) => (None, format!("{count} by each thread")),
    };
    if args.json {
        let rows = run_log(&run, |_| ())?;
        let version = env!("CARGO_PKG_VERSION");
        json_line(&Outcome { workload: "log", version, size, seconds, iterations, rows: &rows })?;
        return Ok(ExitCode::SUCCESS);
    }
    line(format!("records of {size} bytes, {length}"))?;
    line(format!("  {:<18}{:>8}{:>14}{:>10}{:>12}", "insert", "threads", "appends/s", "MB/s", "flushes/s"))?;
    let mut printed = Ok(());
    run_log(&run, |row| {
        let LogRow { insert, threads, appends_per_s, bytes_per_s, flushes_per_s } = row;
        let text = format!(
            "  {insert:<18}{threads:>8}{appends_per_s:>14.0}{:>10.1}{flushes_per_s:>12.0}",
            bytes_per_s / 1e6
        );
        if printed.is_ok() {
            printed = line(text);
        }
    })?;
    printed.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use foreshore_bench::log_insert_name;

    use super::*;

    #[test]
    fn every_way_of_inserting_has_its_name_here() {
        for insert in LogInsert::ALL {
            assert_eq!(parse_insert(&log_insert_name(insert)), Ok(insert));
        }
        assert!(parse_insert("somehow").is_err_and(|error| error.contains("fetch_add")));
    }
}
