//! `foreshore torture --faults`: the same game on a disk that fails in one way.
//!
//! The disk is one in memory (`foreshore-testkit`), which fails when it is told to, and knows what a power failure
//! leaves; so it runs anywhere, and a round takes a fraction of a second. Only the class `kill` has processes and real
//! files.
//!
//! Whatever fails, each round ends with a crash, and with the examination of what is there then (`examine.rs`).

mod round;

use std::{collections::BTreeMap, path::Path, str::FromStr};

use foreshore_env::time::Instant;
use foreshore_testkit::{FaultyDisk, Met};
use serde::Serialize;

use super::{
    Campaign, NO_COMMIT,
    examine::Findings,
    nothing_checked,
    referee::{LONGEST_LIFE, Referee, Score},
    remark,
};
use crate::{
    file,
    output::{CliError, counted, line},
};

/// In which way the disk, or the process, fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultClass {
    /// There is no more space, and later there is some again.
    DiskFull,
    /// Reads and writes fail.
    Eio,
    /// Reads give less than was asked for, writes end in the middle.
    Short,
    /// A sync fails, and what it should have made durable is gone.
    Fsync,
    /// The process dies, at any moment or at one of its writes.
    Kill,
    /// The power fails: what was not synced is there, or not, or in part.
    Power,
}

impl FaultClass {
    pub(crate) const ALL: [FaultClass; 6] = [
        FaultClass::DiskFull,
        FaultClass::Eio,
        FaultClass::Short,
        FaultClass::Fsync,
        FaultClass::Kill,
        FaultClass::Power,
    ];
    /// What the command line takes.
    pub(crate) const NAMES: [&str; 7] = ["all", "disk-full", "eio", "short", "fsync", "kill", "power"];

    fn name(self) -> &'static str {
        FaultClass::NAMES[1 + self as usize]
    }

    /// Whether what a disk has met is a fault of this class. (Others come beside it: any class crashes recoveries.)
    fn has(self, met: Met) -> bool {
        match self {
            FaultClass::DiskFull => met == Met::Full,
            FaultClass::Eio => matches!(met, Met::Read | Met::Write),
            FaultClass::Short => matches!(met, Met::ShortRead | Met::Write),
            FaultClass::Fsync => met == Met::Sync,
            FaultClass::Power => met == Met::Power,
            // It has no disk in memory.
            FaultClass::Kill => false,
        }
    }
}

/// One class, or all of them.
#[derive(Clone, Debug)]
pub(crate) struct FaultClasses(Vec<FaultClass>);

impl FromStr for FaultClasses {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultClasses, String> {
        let one = FaultClass::ALL.into_iter().find(|class| class.name() == text);
        match one {
            Some(class) => Ok(FaultClasses(vec![class])),
            None if text == "all" => Ok(FaultClasses(FaultClass::ALL.to_vec())),
            None => Err(format!("give {}", FaultClass::NAMES.join(", "))),
        }
    }
}

/// What one class came to.
#[derive(Debug, Serialize)]
pub(crate) struct ClassReport {
    faults: &'static str,
    #[serde(skip)]
    class: FaultClass,
    /// Of its own faults, how many were met.
    own_met: u64,
    /// Times that a database was opened after a failure, and examined.
    rounds: u64,
    /// What was met, and where: how often.
    met: BTreeMap<String, u64>,
    /// Transactions that were refused with a typed error while the database went on.
    refused: u64,
    /// Openings that a fault made fail; the next one worked.
    openings_failed: u64,
    /// Crashes during a recovery.
    crashed_recoveries: u64,
    /// Times that work went on without an opening, when the disk had space again.
    resumed: u64,
    /// The longest that a thread neither committed nor was told why not, in seconds.
    longest_silence: f64,
    #[serde(flatten)]
    found: Findings,
    seconds: f64,
}

impl ClassReport {
    fn of(class: FaultClass) -> ClassReport {
        ClassReport {
            faults: class.name(),
            class,
            own_met: 0,
            rounds: 0,
            met: BTreeMap::new(),
            refused: 0,
            openings_failed: 0,
            crashed_recoveries: 0,
            resumed: 0,
            longest_silence: 0.0,
            found: Findings::default(),
            seconds: 0.0,
        }
    }

    fn of_kills(score: Score) -> ClassReport {
        let Score {
            cycles, kills, kills_in_recovery, kills_at_writes, found, longest_silence, seconds, ..
        } = score;
        let met = [
            ("kill at a write", kills_at_writes),
            ("kill during recovery", kills_in_recovery),
            ("kill at any other moment", kills.saturating_sub(kills_at_writes + kills_in_recovery)),
        ];
        let met = met.into_iter().map(|(what, count)| (what.to_owned(), count)).collect();
        ClassReport {
            own_met: kills,
            rounds: cycles,
            met,
            found,
            longest_silence,
            seconds,
            ..ClassReport::of(FaultClass::Kill)
        }
    }

    /// Counts what a disk has met.
    fn add(&mut self, met: Vec<(Met, std::path::PathBuf, u64)>) {
        for (met, path, count) in met {
            let what = match met {
                Met::Full => "no space",
                Met::Write => "write failed",
                Met::Read => "read failed",
                Met::ShortRead => "short read",
                Met::Sync => "sync failed",
                Met::Power => "power failed",
            };
            *self.met.entry(format!("{what}: {}", place(&path))).or_default() += count;
            self.own_met += if self.class.has(met) { count } else { 0 };
        }
    }

    /// Why it has shown nothing, if nothing was wrong for that reason.
    fn idle(&self) -> Option<&'static str> {
        match () {
            () if self.found.has_checked_nothing() => Some(NO_COMMIT),
            () if self.own_met == 0 && self.passed() => Some("no such fault was met"),
            () => None,
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.found.is_empty()
    }

    fn print(&self) -> Result<(), CliError> {
        let ClassReport { faults, rounds, refused, resumed, longest_silence, found, .. } = self;
        for problem in &found.problems {
            line(format!("{faults}: {problem}"))?;
        }
        line(format!(
            "{faults}: {}, {} checked, {}, {}",
            counted(rounds, "round", "rounds"),
            counted(found.commits_checked, "commit", "commits"),
            counted(found.losses, "loss", "losses"),
            counted(found.problems.len(), "problem", "problems")
        ))?;
        let met: Vec<_> = self.met.iter().map(|(what, count)| format!("{what} {count}")).collect();
        line(format!("  met: {}", met.join(", ")))?;
        if *refused + *resumed > 0 {
            line(format!("  {refused} transactions refused, work went on by itself {resumed} times"))?;
        }
        if self.openings_failed + self.crashed_recoveries > 0 {
            line(format!(
                "  {} openings failed, {} recoveries crashed",
                self.openings_failed, self.crashed_recoveries
            ))?;
        }
        if *longest_silence > 0.0 {
            line(format!("  longest silence of a thread {longest_silence:.2} s"))?;
        }
        Ok(())
    }
}

/// Which file, without its number.
fn place(path: &Path) -> &'static str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = |path: Option<&Path>, name: &str| path.is_some_and(|path| path.ends_with(name));
    match name {
        "data" => "data file",
        "control" | "control.new" => "control file",
        _ if named(Some(path), "log") || named(path.parent(), "log") => "log",
        _ => "directory",
    }
}

/// Writes what is in a directory of a disk in memory to a real one: what was found there would end with the program.
fn write_down(disk: &FaultyDisk, from: &Path, to: &Path) -> Result<(), CliError> {
    for path in disk.files() {
        let within = path.strip_prefix(from).map_err(|error| CliError::Other(error.to_string()))?;
        let target = to.join(within);
        file::make_directory(target.parent().unwrap_or(to))?;
        let bytes = disk.read_file(&path);
        file::write(&target, bytes.map_err(CliError::io(format!("read {}", path.display())))?)?;
    }
    Ok(())
}

impl Campaign<'_> {
    /// Lets one class after another come, each for its share of the time; stops at the first that finds something.
    pub(crate) fn run(&self, FaultClasses(classes): &FaultClasses) -> Result<Vec<ClassReport>, CliError> {
        let share = self.length / classes.len() as u32;
        let mut reports: Vec<ClassReport> = Vec::new();
        for class in classes {
            remark(self.quiet, &format!("{} for {:.1} s", class.name(), share.as_secs_f64()));
            let begun = Instant::now();
            let mut report = match class {
                FaultClass::Kill => {
                    let referee = Referee {
                        campaign: self,
                        length: share,
                        longest_life: LONGEST_LIFE,
                        at_writes: true,
                        planted_panic: false,
                        power_cut: None,
                    };
                    ClassReport::of_kills(referee.run()?)
                }
                _ => self.on_a_faulty_disk(*class, share)?,
            };
            report.seconds = begun.elapsed().as_secs_f64();
            reports.push(report);
            if !reports.iter().all(ClassReport::passed) {
                return Ok(reports);
            }
        }
        match reports.iter().find_map(|report| Some((report, report.idle()?))) {
            Some((idle, why)) => {
                Err(nothing_checked(idle.class.name(), idle.rounds, why, "give it more --seconds"))
            }
            None => Ok(reports),
        }
    }
}

/// Tells a person what came of it.
pub(crate) fn print(reports: &[ClassReport]) -> Result<(), CliError> {
    reports.iter().try_for_each(ClassReport::print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_names() {
        for class in FaultClass::ALL {
            let FaultClasses(parsed) = class.name().parse().unwrap();
            assert_eq!(parsed, [class]);
        }
        assert_eq!("all".parse::<FaultClasses>().unwrap().0, FaultClass::ALL);
        assert!("some".parse::<FaultClasses>().unwrap_err().contains("disk-full"));
    }

    #[test]
    fn a_class_that_met_no_fault_of_its_own_has_checked_nothing() {
        let all = [Met::Full, Met::Write, Met::Read, Met::ShortRead, Met::Sync, Met::Power];
        for class in FaultClass::ALL.into_iter().filter(|class| *class != FaultClass::Kill) {
            let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|met| class.has(*met));
            assert!(!own.is_empty());
            let mut report = ClassReport::of(class);
            report.found.commits_checked = 1;
            report.add(others.into_iter().map(|met| (met, "/t/data".into(), 3)).collect());
            assert!(report.idle().is_some_and(|why| why.contains("fault")), "{report:?}");
            for met in own {
                let mut hurt = ClassReport::of(class);
                hurt.add(vec![(met, "/t/data".into(), 1)]);
                assert!(hurt.own_met == 1 && hurt.idle() == Some(NO_COMMIT), "{hurt:?}");
                hurt.found.commits_checked = 1;
                assert_eq!(hurt.idle(), None, "{hurt:?}");
            }
            report.found.losses = 1;
            assert_eq!(report.idle(), None, "what is found counts, whatever was met");
        }
        let mut unhurt = ClassReport::of_kills(Score::default());
        unhurt.found.commits_checked = 1;
        assert!(unhurt.idle().is_some());
    }

    #[test]
    fn places_are_told_without_numbers() {
        for (path, told) in [
            ("/t/data", "data file"),
            ("/t/control", "control file"),
            ("/t/log/spare-3", "log"),
            ("/t/log", "log"),
            ("/t", "directory"),
        ] {
            assert_eq!(place(Path::new(path)), told, "{path}");
        }
    }
}
