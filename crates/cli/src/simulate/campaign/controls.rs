//! Does the campaign find what is wrong? Planted faults, one after the other, each until its first seed that fails, and does not fail
//! without the fault.

use std::{ops::Range, process::ExitCode};

use foreshore_env::sabotage::Fault;
use serde::Serialize;

use super::{CampaignArgs, Failure, campaign, progress};
use crate::output::{CliError, json_line, judged, line};

/// Characters that a line of the table has for what was seen.
const SEEN: usize = 110;

/// What became of all of them.
#[derive(Serialize)]
struct Outcome {
    faults: usize,
    found: usize,
    controls: Vec<Control>,
}

/// What became of one.
#[derive(Serialize)]
struct Control {
    fault: String,
    /// The first seed that fails; `None` when none did.
    seed: Option<u64>,
    /// How many ran until then.
    runs: u64,
    /// What was seen.
    seen: Option<String>,
}

pub(super) fn run(args: &CampaignArgs, seeds: &Range<u64>) -> Result<ExitCode, CliError> {
    let bar = progress(Fault::ALL.len() as u64, args.json);
    let mut controls = Vec::new();
    for fault in Fault::ALL {
        let args = CampaignArgs {
            plant: Some(fault.name()),
            stop_after: Some(1),
            only_outcome: true,
            shrink: false,
            ..args.clone()
        };
        let outcome = campaign(&args, seeds.clone(), &progress(0, true))?;
        let first = outcome.failures.into_iter().next();
        let without = match &first {
            Some(failure) => {
                let unplanted = CampaignArgs { plant: None, ..args.clone() };
                campaign(&unplanted, failure.seed..failure.seed + 1, &progress(0, true))?
                    .failures
                    .into_iter()
                    .next()
            }
            None => None,
        };
        let (seed, seen) = match (first, without) {
            (Some(Failure { seed, .. }), Some(Failure { why, .. })) => {
                (None, Some(format!("seed {seed} fails without it, too: {why}")))
            }
            (Some(Failure { seed, why, .. }), None) => (Some(seed), Some(why)),
            (None, _) => (None, None),
        };
        let control = Control { fault: fault.name(), seed, runs: outcome.runs, seen };
        if !args.json {
            let seed = control.seed.map_or("not found".to_owned(), |seed| seed.to_string());
            let seen: String = control
                .seen
                .as_deref()
                .unwrap_or_default()
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(SEEN)
                .collect();
            line(format!("{:<24} {seed:>9}  {seen}", control.fault))?;
        }
        bar.inc(1);
        controls.push(control);
    }
    bar.finish_and_clear();
    let (faults, found) = (controls.len(), controls.iter().filter(|control| control.seed.is_some()).count());
    let printed = if args.json {
        json_line(&Outcome { faults, found, controls })
    } else {
        line(format!("{found} of {faults} planted faults found"))
    };
    judged(printed, found == faults)
}
