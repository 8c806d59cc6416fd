//! How far a simulation is, and how long it will take: virtual time is dear, and nobody knows how dear before.

use std::{
    cell::Cell,
    io::{self, Write},
};

use foreshore_env::time::Duration;

use crate::simulate::speed::cpu_seconds;

/// After so many seconds of CPU it is told first; then whenever as many have passed again as there were, and once in so
/// many.
const FIRST: f64 = 5.0;
const EVERY: f64 = 600.0;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// So many rows are loaded, of about so many.
    Loading(u64, u64),
    /// So much of its time has passed, of how much.
    Running(Duration, Duration),
}

/// Lies outside of the simulation, which tells it how far it is.
#[derive(Default)]
pub(super) struct Outlook {
    phase: Cell<Option<Phase>>,
    /// The phase when it was seen first, and the virtual time and the seconds of CPU that had passed by then.
    begun: Cell<Option<(Phase, Duration, f64)>>,
    /// Seconds of CPU at which something is told next.
    next: Cell<f64>,
}

impl Outlook {
    /// So many rows are loaded, of about so many: within the simulation.
    pub(super) fn loads(&self, rows: u64, of: u64) {
        self.phase.set(Some(Phase::Loading(rows, of)));
    }

    /// So much of the time has passed, of how much: within the simulation.
    pub(super) fn runs(&self, elapsed: Duration, of: Duration) {
        self.phase.set(Some(Phase::Running(elapsed, of)));
    }

    /// Tells a person how it goes on, now that so much virtual time has passed: outside of it.
    pub(super) fn look(&self, now: Duration) {
        let Some(phase) = self.phase.get() else { return };
        let cpu = cpu_seconds();
        let begun = self.begun.get().filter(|(first, ..)| {
            matches!(
                (first, phase),
                (Phase::Loading(..), Phase::Loading(..)) | (Phase::Running(..), Phase::Running(..))
            )
        });
        let Some((first, then, cpu_then)) = begun else {
            self.begun.set(Some((phase, now, cpu)));
            self.next.set(cpu + FIRST);
            return;
        };
        if cpu < self.next.get() {
            return;
        }
        let spent = cpu - cpu_then;
        self.next.set(cpu + spent.min(EVERY));
        if let Some(text) = outlook(first, phase, now.saturating_sub(then), spent) {
            // Standard error may be closed; nobody misses it then.
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }
}

/// What is to be told `spent` seconds of CPU and so much virtual time after a phase was seen `first`.
fn outlook(first: Phase, phase: Phase, passed: Duration, spent: f64) -> Option<String> {
    let (what, share) = match (first, phase) {
        (Phase::Loading(first, _), Phase::Loading(rows, of)) => (
            format!("loaded {rows} of {of} rows"),
            rows.saturating_sub(first) as f64 / of.saturating_sub(first) as f64,
        ),
        (Phase::Running(first, _), Phase::Running(_, of)) => {
            let (passed, of) = (passed.as_secs_f64(), of.saturating_sub(first).as_secs_f64());
            (format!("simulated {} of {of} s", digits(passed)), passed / of)
        }
        _ => return None,
    };
    // What is nearly over, and what was not to take time, is not told of.
    if !(share > 0.0 && share < 1.0) {
        return None;
    }
    let left = (1.0 - share) / share * spent;
    let advice =
        if left > 3600.0 { ": virtual time is dear, a hundredth of a second tells much" } else { "" };
    Some(format!("{what} in {spent:.0} s of CPU; about {} left{advice}", length(left)))
}

/// With as many digits as tell something.
fn digits(seconds: f64) -> String {
    format!("{seconds:.*}", (3.0 - seconds.log10().ceil()).clamp(0.0, 9.0) as usize)
}

fn length(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} minutes", seconds / 60.0),
        ..172_800.0 => format!("{:.0} hours", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_at_the_rate_of_before() {
        let seconds = Duration::from_secs_f64;
        let runs = |elapsed, of| Phase::Running(seconds(elapsed), seconds(of));
        let told = |passed, of, spent| outlook(runs(0.0, of), runs(0.0, of), seconds(passed), spent);
        assert_eq!(
            told(0.004, 0.012, 5.0).unwrap(),
            "simulated 0.00400 of 0.012 s in 5 s of CPU; about 10 s left"
        );
        let days = told(0.0123, 3000.0, 10.0).unwrap();
        let begin = "simulated 0.0123 of 3000 s in 10 s of CPU; about 28 days left: virtual time is dear";
        assert!(days.starts_with(begin), "{days}");
        assert_eq!((told(2.5, 2.5, 9.0), told(0.0, 2.5, 9.0), told(1.0, 0.0, 9.0)), (None, None, None));
        let loads = |rows| Phase::Loading(rows, 1000);
        assert_eq!(
            outlook(loads(0), loads(100), Duration::ZERO, 20.0).unwrap(),
            "loaded 100 of 1000 rows in 20 s of CPU; about 3 minutes left"
        );
        assert_eq!(outlook(loads(1000), loads(1000), Duration::ZERO, 20.0), None);
        assert_eq!([100.0, 600.0, 10_000.0].map(length), ["100 s", "10 minutes", "3 hours"]);
    }

    #[test]
    fn a_phase_is_told_by_what_it_has_taken_itself() {
        let outlook = Outlook::default();
        outlook.look(Duration::from_secs(1));
        assert!(outlook.begun.get().is_none());
        outlook.loads(1, 10);
        outlook.look(Duration::from_secs(2));
        outlook.loads(2, 10);
        outlook.look(Duration::from_secs(3));
        assert_eq!(
            outlook.begun.get().map(|begun| (begun.0, begun.1)),
            Some((Phase::Loading(1, 10), Duration::from_secs(2)))
        );
        outlook.runs(Duration::ZERO, Duration::from_secs(9));
        outlook.look(Duration::from_secs(4));
        assert_eq!(outlook.begun.get().map(|begun| begun.1), Some(Duration::from_secs(4)));
    }
}
