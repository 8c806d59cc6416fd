//! Does the campaign find what is wrong? Planted faults, one after the other, each until its first seed that fails, and
//! does not fail without the fault; or first of all at a seed that is known to have shown it.

use std::{collections::BTreeMap, ops::Range, path::Path, process::ExitCode};

use foreshore_env::sabotage::Fault;
use serde::Serialize;

use super::{CampaignArgs, Failure, campaign, fault_named, progress};
use crate::output::{CliError, json_line, judged, line};

/// Characters that a line of the table has for what was seen.
const SEEN: usize = 110;

/// What became of all of them.
#[derive(Serialize)]
struct Outcome {
    faults: usize,
    found: usize,
    controls: Vec<Control>,
    /// Seeds that fail without any fault, and how: they find no fault, but something.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    without: BTreeMap<u64, String>,
}

/// What became of one.
#[derive(Debug, Serialize)]
struct Control {
    fault: String,
    /// The known seed, or the first one, that fails with the fault and not without it; `None` when none did.
    seed: Option<u64>,
    /// How many ran until then.
    runs: u64,
    /// What was seen.
    seen: Option<String>,
}

/// Runs of the same seeds without a fault, each once: how they fail, if they do.
struct Unplanted<R> {
    run: R,
    known: BTreeMap<u64, Option<String>>,
}

impl<R: FnMut(u64) -> Result<Option<String>, CliError>> Unplanted<R> {
    fn new(run: R) -> Unplanted<R> {
        Unplanted { run, known: BTreeMap::new() }
    }

    fn fails(&mut self, seed: u64) -> Result<bool, CliError> {
        if !self.known.contains_key(&seed) {
            self.known.insert(seed, (self.run)(seed)?);
        }
        Ok(self.known[&seed].is_some())
    }

    fn failures(self) -> BTreeMap<u64, String> {
        self.known.into_iter().filter_map(|(seed, failure)| Some((seed, failure?))).collect()
    }
}

/// Looks for a fault, at the `known` seed and then at all. `planted` runs seeds with it up to the first that fails; one
/// that fails without it, too, shows nothing, and the search goes on behind it.
fn search<R: FnMut(u64) -> Result<Option<String>, CliError>>(
    fault: String,
    seeds: &Range<u64>,
    known: Option<u64>,
    mut planted: impl FnMut(Range<u64>) -> Result<(u64, Option<Failure>), CliError>,
    unplanted: &mut Unplanted<R>,
) -> Result<Control, CliError> {
    let mut control = Control { fault, seed: None, runs: 0, seen: None };
    let known = known.filter(|seed| seeds.contains(seed)).map(|seed| seed..seed + 1);
    for mut left in known.into_iter().chain([seeds.clone()]) {
        while !left.is_empty() {
            let (runs, first) = planted(left.clone())?;
            control.runs += runs;
            let Some(Failure { seed, why, .. }) = first else { break };
            if !unplanted.fails(seed)? {
                (control.seed, control.seen) = (Some(seed), Some(why));
                return Ok(control);
            }
            left.start = seed + 1;
        }
    }
    Ok(control)
}

/// The seeds at which faults have been found: of each line that begins with a fault and a number these. Lines that do
/// not, as of one that was not found, tell nothing.
fn known_seeds(text: &str) -> Result<BTreeMap<String, u64>, CliError> {
    let mut known = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        // A seed that fails without any fault is told of, too.
        let fault = words.next().filter(|word| !["seed", "#"].contains(word));
        if let (Some(fault), Some(Ok(seed))) = (fault, words.next().map(str::parse)) {
            known.insert(fault_named(fault)?.name(), seed);
        }
    }
    Ok(known)
}

fn read_known(path: &Path) -> Result<BTreeMap<String, u64>, CliError> {
    let text = std::fs::read_to_string(path);
    known_seeds(&text.map_err(CliError::io(format!("read what is known in {}", path.display())))?)
}

pub(super) fn run(args: &CampaignArgs, seeds: &Range<u64>) -> Result<ExitCode, CliError> {
    let known = args.known.as_deref().map(read_known).transpose()?.unwrap_or_default();
    let bar = progress(Fault::ALL.len() as u64, args.json);
    let first = |plant: Option<String>, seeds: Range<u64>| -> Result<(u64, Option<Failure>), CliError> {
        let args =
            CampaignArgs { plant, stop_after: Some(1), only_outcome: true, shrink: false, ..args.clone() };
        let outcome = campaign(&args, seeds, &progress(0, true))?;
        Ok((outcome.runs, outcome.failures.into_iter().next()))
    };
    let alone = |seed: u64| Ok(first(None, seed..seed + 1)?.1.map(|failure| failure.why));
    let mut unplanted = Unplanted::new(alone);
    let mut controls = Vec::new();
    for fault in Fault::ALL {
        let planted = |seeds| first(Some(fault.name()), seeds);
        let control =
            search(fault.name(), seeds, known.get(&fault.name()).copied(), planted, &mut unplanted)?;
        if !args.json {
            let seed = control.seed.map_or("not found".to_owned(), |seed| seed.to_string());
            line(format!("{:<24} {seed:>9}  {}", control.fault, shortened(control.seen.as_deref())))?;
        }
        bar.inc(1);
        controls.push(control);
    }
    bar.finish_and_clear();
    let (faults, found) = (controls.len(), controls.iter().filter(|control| control.seed.is_some()).count());
    let without = unplanted.failures();
    let is_well = found == faults && without.is_empty();
    let printed = if args.json {
        json_line(&Outcome { faults, found, controls, without })
    } else {
        let also = without.iter().try_for_each(|(seed, why)| {
            line(format!("seed {seed} FAILED without a fault: {}", shortened(Some(why))))
        });
        also.and_then(|()| line(format!("{found} of {faults} planted faults found")))
    };
    judged(printed, is_well)
}

/// As much of what was seen as a line has room for.
fn shortened(seen: Option<&str>) -> String {
    seen.unwrap_or_default().lines().next().unwrap_or_default().chars().take(SEEN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(seed: u64) -> Failure {
        Failure { seed, why: format!("{seed} is wrong"), again: String::new(), shrunk: None }
    }

    /// A campaign of which these seeds fail.
    fn failing(wrong: &[u64]) -> impl Fn(Range<u64>) -> Result<(u64, Option<Failure>), CliError> {
        move |seeds: Range<u64>| match wrong.iter().find(|seed| seeds.contains(seed)) {
            Some(&seed) => Ok((seed - seeds.start + 1, Some(failure(seed)))),
            None => Ok((seeds.end - seeds.start, None)),
        }
    }

    #[test]
    fn the_search_goes_on_behind_seeds_that_fail_anyway() {
        let mut runs = Vec::new();
        let alone = |seed: u64| {
            runs.push(seed);
            Ok([3, 5].contains(&seed).then(|| format!("{seed} fails anyway")))
        };
        let mut unplanted = Unplanted::new(alone);
        let mut look = |wrong: &[u64]| {
            let control = search("It".to_owned(), &(2..10), None, failing(wrong), &mut unplanted).unwrap();
            (control.seed, control.runs, control.seen)
        };
        assert_eq!(look(&[7]), (Some(7), 6, Some("7 is wrong".to_owned())));
        assert_eq!(look(&[3, 5, 7]), (Some(7), 6, Some("7 is wrong".to_owned())));
        assert_eq!(look(&[3, 4, 5]), (Some(4), 3, Some("4 is wrong".to_owned())));
        assert_eq!(look(&[5]), (None, 8, None));
        assert_eq!(look(&[]), (None, 8, None));
        // The last seed of all.
        assert_eq!(look(&[5, 9]), (Some(9), 8, Some("9 is wrong".to_owned())));
        assert_eq!(unplanted.failures().into_keys().collect::<Vec<_>>(), [3, 5]);
        assert_eq!(runs, [7, 3, 5, 4, 9], "each once");
    }

    #[test]
    fn what_is_known_is_looked_at_first() {
        let mut unplanted = Unplanted::new(|seed: u64| Ok((seed == 5).then(|| "it fails anyway".to_owned())));
        let mut look = |known: u64, wrong: &[u64]| {
            let known = Some(known);
            let control = search("It".to_owned(), &(2..10), known, failing(wrong), &mut unplanted).unwrap();
            (control.seed, control.runs)
        };
        assert_eq!(look(7, &[3, 7]), (Some(7), 1));
        assert_eq!(look(8, &[3, 7]), (Some(3), 3), "there no longer");
        assert_eq!(look(5, &[5, 7]), (Some(7), 7), "that fails anyway");
        assert_eq!(look(20, &[7]), (Some(7), 6), "not among the seeds");
        assert_eq!(look(9, &[]), (None, 9));
    }

    #[test]
    fn the_table_that_is_printed_tells_what_is_known() {
        let known = |text| known_seeds(text).map(|known| known.into_iter().collect::<Vec<_>>());
        let text = "\
            LogUnsynced                      0  opening or using it finds damage\n\
            TagForgotten             not found  \n\
            # ReadUnlocked 3\n\
            # 44 of them\n\
            seed 17 FAILED without a fault: it fails\n\
            ReadUnlocked 17\n\
            43 of 44 planted faults found\n";
        let seeds = vec![("LogUnsynced".to_owned(), 0), ("ReadUnlocked".to_owned(), 17)];
        assert_eq!(known(text).unwrap(), seeds);
        assert_eq!(known("").unwrap(), []);
        known("Forgotten 3").unwrap_err();
    }
}
