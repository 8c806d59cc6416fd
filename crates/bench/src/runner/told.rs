//! What a run comes to: its report.

use std::collections::BTreeMap;

use super::{RunOptions, Sample};
use crate::{
    engine::{Engine, Server},
    report::{Latency, Report},
    workload::{Check, Workload},
};

/// The commits that wrote, for each flush of the log, between two looks at an engine's counters.
pub(super) fn commits_per_flush(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> Option<f64> {
    let grown = |name| Some(after.get(name)? - before.get(name)?);
    let (commits, flushes) = (grown("commits")?, grown("log_flushes")?);
    (flushes > 0).then(|| commits as f64 / flushes as f64)
}

/// What is known beside the sample.
pub(super) struct Checked {
    pub(super) checks: Vec<Check>,
    pub(super) load_seconds: f64,
    pub(super) check_seconds: f64,
}

/// The report of a run; it lacks what has to be asked for before the checks.
pub(super) fn report(
    engine: &dyn Engine,
    workload: &dyn Workload,
    options: &RunOptions,
    sample: &Sample,
    checked: Checked,
) -> Report {
    let seconds = sample.span.elapsed.as_secs_f64();
    let measured = &sample.measured;
    let mut together = measured.latency[0].clone();
    together.reset();
    for histogram in &measured.latency {
        // Equal bounds: the addition cannot fail.
        let _ = together.add(histogram);
    }
    let kinds = workload.kinds().iter().zip(&measured.commits).zip(&measured.latency);
    let by_kind = kinds
        .filter(|((_, commits), _)| **commits > 0)
        .map(|((name, commits), latency)| ((*name).to_owned(), (*commits, Latency::of(latency)).into()))
        .collect();
    let commits: u64 = measured.commits.iter().sum();
    let oldest_running_us = sample.oldest_running.map(|age| age.as_nanos() as f64 / 1000.0);
    let latency_us = (commits > 0).then(|| {
        let ended = Latency::of(&together);
        Latency { max: ended.max.max(oldest_running_us.unwrap_or_default()), ..ended }
    });
    let Checked { checks, load_seconds, check_seconds } = checked;
    Report {
        engine: engine.name().to_owned(),
        workload: workload.name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: options.seed,
        threads: engine.server().map_or(options.threads, Server::threads),
        seconds,
        commits,
        ended: sample.ended,
        commits_per_flush: None,
        cpu_us_per_commit: sample.span.computed_ns(sample.ended).map(|ns| ns / 1e3),
        peak_memory_bytes: None,
        caveats: engine.caveats().into_iter().map(str::to_owned).collect(),
        commits_per_s: if seconds > 0.0 { sample.ended as f64 / seconds } else { 0.0 },
        user_rollbacks: measured.user_rollbacks,
        aborts: measured.attempts.aborts,
        retries: measured.attempts.retries,
        given_up: measured.given_up,
        latency_us,
        oldest_running_us,
        by_kind,
        consistent: checks.iter().all(|check| check.holds),
        checks,
        options: workload.options(),
        counters: engine.counters(),
        load_seconds,
        check_seconds,
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::{thread, time::Duration};

    use super::*;
    use crate::{
        Silent, Tpcb,
        engine::{Attempts, Body, Failure, Outcome},
        engines::BTreeMapEngine,
        run,
        runner::Length,
        tests::until_enough,
    };

    /// An engine that takes so long for a transaction.
    struct Slow(BTreeMapEngine, Duration);

    impl Engine for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
            thread::sleep(self.1);
            self.0.transact(attempts, body)
        }

        fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
            self.0.load(body)
        }

        fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
            self.0.read(attempts, body)
        }
    }

    fn run_slowly(sleep: Duration, measured: Duration) -> Report {
        let workload = Tpcb::new(1, 10, 0).unwrap();
        let length = Length::Time { warm_up: Duration::ZERO, measured };
        let options = RunOptions { threads: 2, length, seed: 5 };
        run(&Slow(BTreeMapEngine::new(4), sleep), &workload, &options, &Silent).unwrap()
    }

    #[test]
    fn what_is_not_over_has_its_age_and_no_latency() {
        let attempt = |measured| run_slowly(4 * measured, measured);
        let old = |report: &Report| report.oldest_running_us.unwrap_or_default() > report.seconds * 0.8e6;
        let report =
            until_enough(Duration::from_millis(40), attempt, |report| report.commits == 0 && old(report));
        assert_eq!((report.commits, report.latency_us), (0, None));
        assert!(old(&report), "{:?} of {} s", report.oldest_running_us, report.seconds);
    }

    #[test]
    fn the_longest_latency_is_that_of_what_runs_on_if_it_is_older() {
        let report = until_enough(
            Duration::from_millis(100),
            |measured| run_slowly(measured / 4, measured),
            |report| report.commits > 0,
        );
        let (longest, running) = (report.latency_us.unwrap().max, report.oldest_running_us.unwrap());
        assert!(longest >= running, "{longest} {running}");
    }
}
