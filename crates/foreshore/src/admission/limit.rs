//! How many transactions run at a time: additive increase, multiplicative decrease, by the victims among them.

use foreshore_env::time::{Duration, Instant};

/// Runs that are looked at together.
const WINDOW: u32 = 64;
/// Victims of a window that are too many: more than one in twenty.
const TOO_MANY: u32 = 4;
/// Windows without too many victims after which a limit that has once failed is tried again, at most. That many let through
/// less than one victim in a thousand runs for trying.
const LONGEST_REST: u32 = 256;
/// And after so much time in any case, where runs are long: the crowd may want other records now.
const LONGEST_STAY: Duration = Duration::from_secs(2);
/// A limit beyond this is none.
const MOST: u32 = 1024;

/// A limit and what is known of it.
#[derive(Debug)]
pub(super) struct Limit {
    value: u32,
    /// It is never lower.
    least: u32,
    /// Runs of this window that are over.
    ends: u32,
    victims: u32,
    /// Windows since the last change.
    passed: u32,
    /// Windows that must pass before the limit rises.
    rest: u32,
    /// It has just risen, and no window has passed since.
    on_trial: bool,
    /// The last change.
    since: Instant,
}

impl Limit {
    /// `least`: 1 or more.
    pub(super) fn new(value: u32, least: u32, now: Instant) -> Limit {
        let value = value.max(least);
        Limit { value, least, ends: 0, victims: 0, passed: 0, rest: 1, on_trial: false, since: now }
    }

    pub(super) fn value(&self) -> u32 {
        self.value
    }

    /// A run is over; `crowded`: others wait. False: there need be no limit any more.
    pub(super) fn note(&mut self, victim: bool, crowded: bool, now: Instant) -> bool {
        self.ends += 1;
        self.victims += u32::from(victim);
        if self.victims >= TOO_MANY {
            if self.on_trial {
                self.rest = (self.rest * 2).min(LONGEST_REST);
            }
            *self = Limit { rest: self.rest, ..Limit::new(self.value / 2, self.least, now) };
        } else if self.ends == WINDOW {
            if self.on_trial {
                self.rest = 1;
            }
            (self.ends, self.victims, self.on_trial) = (0, 0, false);
            if !crowded {
                return false;
            }
            self.passed += 1;
            if self.passed >= self.rest || now.saturating_duration_since(self.since) >= LONGEST_STAY {
                if self.value >= MOST {
                    return false;
                }
                *self = Limit {
                    rest: self.rest,
                    on_trial: true,
                    ..Limit::new(self.value + (self.value / 4).max(1), self.least, now)
                };
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs so many of which `victims(limit)` in a thousand give way; gives how many did, and the limits that were seen.
    fn run(limit: &mut Limit, runs: u32, victims: impl Fn(u32) -> u32) -> (u32, Vec<u32>) {
        let (mut dice, mut lost, mut seen) = (7_u32, 0, vec![limit.value()]);
        let start = limit.since;
        for _ in 0..runs {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let victim = (dice >> 8) % 1000 < victims(limit.value());
            lost += u32::from(victim);
            if !limit.note(victim, true, start) {
                *limit = Limit::new(MOST, 1, Instant::now());
            }
            seen.push(limit.value());
        }
        (lost, seen)
    }

    #[test]
    fn what_does_not_bear_two_settles_at_one() {
        let mut limit = Limit::new(16, 1, Instant::now());
        run(&mut limit, 1000, |limit| if limit > 1 { 500 } else { 0 });
        let (lost, seen) = run(&mut limit, 100_000, |limit| if limit > 1 { 500 } else { 0 });
        assert!(lost * 100 < 100_000, "{lost} of 100,000");
        assert!(seen.iter().filter(|limit| **limit == 1).count() > 95_000);
        assert!(seen.iter().all(|limit| *limit <= 2));
    }

    #[test]
    fn it_finds_the_most_that_are_not_in_each_others_way() {
        let mut limit = Limit::new(1, 1, Instant::now());
        run(&mut limit, 50_000, |limit| if limit > 40 { 300 } else { 10 });
        let (lost, seen) = run(&mut limit, 200_000, |limit| if limit > 40 { 300 } else { 10 });
        assert!(lost * 20 < 200_000, "{lost} of 200,000");
        let mean = seen.iter().map(|limit| u64::from(*limit)).sum::<u64>() / seen.len() as u64;
        assert!((15..=40).contains(&mean), "{mean}");
    }

    #[test]
    fn it_is_never_lower_than_was_said() {
        let mut limit = Limit::new(16, 6, Instant::now());
        let (_, seen) = run(&mut limit, 10_000, |_| 900);
        assert_eq!(seen.iter().min(), Some(&6));
        assert_eq!(Limit::new(2, 6, Instant::now()).value(), 6);
    }

    #[test]
    fn it_goes_when_it_is_of_no_use() {
        let start = Instant::now();
        let mut limit = Limit::new(1, 1, Instant::now());
        assert!((0..50_000).any(|_| !limit.note(false, true, start)));
        // Also one that has failed often.
        let mut limit = Limit { rest: LONGEST_REST, ..Limit::new(1, 1, Instant::now()) };
        assert!((0..=WINDOW).any(|_| !limit.note(false, false, start)));
    }

    #[test]
    fn slow_runs_are_not_held_back_for_long() {
        let start = Instant::now();
        let mut limit = Limit { rest: LONGEST_REST, ..Limit::new(1, 1, start) };
        (0..WINDOW).for_each(|_| assert!(limit.note(false, true, start)));
        assert_eq!(limit.value(), 1);
        (0..WINDOW).for_each(|_| assert!(limit.note(false, true, start + LONGEST_STAY)));
        assert_eq!(limit.value(), 2);
    }
}
