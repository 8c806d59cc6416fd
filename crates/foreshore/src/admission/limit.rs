//! How many transactions run at a time: additive increase, multiplicative decrease, by the victims among them; and no
//! more than there are processors, as long as these have no time to spare.

use foreshore_env::time::{Duration, Instant};

/// Runs that are looked at together.
const WINDOW: u32 = 64;
/// One victim in this many runs is tolerated; more are too many.
pub(super) const TOLERANCE: u32 = 20;
/// Fewer victims in a window are chance.
const TOO_MANY: u32 = 4;
/// Windows without too many victims after which a limit that has once failed is tried again, at most. With so many,
/// trying costs less than one victim in a thousand runs.
const LONGEST_REST: u32 = 256;
/// The time after which a limit that has failed is tried again in any case, where runs are long and windows rare: the
/// crowd may want other records now.
const LONGEST_STAY: Duration = Duration::from_secs(2);
/// The time that it takes to see which threads belong to the crowd: a limit stays at least as long.
const SHORTEST_STAY: Duration = Duration::from_millis(100);
/// The time over which the processor time of the crowd's threads is added up.
pub(super) const SPELL: Duration = Duration::from_millis(20);
/// A limit beyond this is none.
const MOST: u32 = 1024;

/// What became of runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    /// How many are over.
    pub(super) ended: u32,
    pub(super) victims: u32,
    /// How long their threads computed from the first to the last; zero where nobody counts that.
    pub(super) computed: Duration,
}

/// How much of the processors' time the crowd uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// The crowd leaves the processors idle, or to others, for three quarters of the time.
    Little,
    /// Something between, or nobody knows yet.
    Some,
    /// The crowd uses three quarters of the processors' time, or more.
    Most,
}

/// A limit and what is known of it.
#[derive(Debug)]
pub(super) struct Limit {
    value: u32,
    /// The limit is never lower.
    least: u32,
    /// The limit rises to this, and beyond only while processors have time to spare.
    enough: u32,
    /// Of this window.
    ended: u32,
    victims: u32,
    began: Instant,
    /// What was computed in this spell, and since when that is.
    computed: Duration,
    spell: Instant,
    /// What the last spell says, until the limit is changed for it.
    share: Share,
    /// Windows since the last change.
    passed: u32,
    /// Windows that must pass before the limit rises.
    rest: u32,
    /// The limit has just risen, and no window has passed since.
    on_trial: bool,
    /// The last change.
    since: Instant,
}

impl Limit {
    /// As many as there are `processors`, and never less than `least`, which is 1 or more.
    pub(super) fn new(processors: u32, least: u32, now: Instant) -> Limit {
        let enough = processors.max(least);
        Limit {
            value: enough,
            least,
            enough,
            ended: 0,
            victims: 0,
            began: now,
            computed: Duration::ZERO,
            spell: now,
            share: Share::Some,
            passed: 0,
            rest: 1,
            on_trial: false,
            since: now,
        }
    }

    pub(super) fn value(&self) -> u32 {
        self.value
    }

    /// Runs are over; `crowded`: others wait. False: there need be no limit any more.
    pub(super) fn note(&mut self, runs: Runs, crowded: bool, now: Instant) -> bool {
        self.ended += runs.ended;
        self.victims += runs.victims;
        self.look_at_processors(runs.computed, now);
        if self.victims >= TOO_MANY && self.victims * TOLERANCE > self.ended {
            if self.on_trial {
                self.rest = (self.rest * 2).min(LONGEST_REST);
            }
            self.change(self.value / 2, now);
        } else if self.ended >= WINDOW {
            if self.on_trial {
                self.rest = 1;
            }
            (self.ended, self.victims, self.on_trial) = (0, 0, false);
            let stayed = now.saturating_duration_since(self.since);
            if !crowded && stayed >= SHORTEST_STAY {
                return false;
            }
            self.passed = self.passed.saturating_add(1);
            let rested = self.passed >= self.rest || stayed >= LONGEST_STAY;
            if rested && (self.value < self.enough || self.share == Share::Little) {
                if self.value >= MOST {
                    return false;
                }
                self.change(self.value + (self.value / 4).max(1), now);
                self.on_trial = true;
            } else if self.value > self.enough && self.share == Share::Most {
                self.change((self.value - (self.value / 4).max(1)).max(self.enough), now);
            }
        }
        true
    }

    /// Threads of the crowd have computed for so long.
    fn look_at_processors(&mut self, computed: Duration, now: Instant) {
        self.computed += computed;
        let spell = now.saturating_duration_since(self.spell);
        if spell >= SPELL {
            let has_settled = now.saturating_duration_since(self.began) >= SHORTEST_STAY;
            let all = spell * self.enough;
            self.share = match self.computed * 4 {
                _ if !has_settled => Share::Some,
                used if used <= all => Share::Little,
                used if used >= all * 3 => Share::Most,
                _ => Share::Some,
            };
            (self.computed, self.spell) = (Duration::ZERO, now);
        }
    }

    fn change(&mut self, value: u32, now: Instant) {
        self.value = value.max(self.least);
        (self.ended, self.victims, self.passed) = (0, 0, 0);
        // One spell, one step: all may have stood still for once, for the log say.
        (self.on_trial, self.since, self.share) = (false, now, Share::Some);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(victim: bool) -> Runs {
        Runs { ended: 1, victims: victim.into(), ..Runs::default() }
    }

    /// Runs so many of which `victims(limit)` in a thousand give way; gives how many did, and the limits that were
    /// seen.
    fn run(limit: &mut Limit, runs: u32, victims: impl Fn(u32) -> u32) -> (u32, Vec<u32>) {
        let (mut dice, mut lost, mut seen) = (7_u32, 0, vec![limit.value()]);
        let mut now = limit.since;
        for _ in 0..runs {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let victim = (dice >> 8) % 1000 < victims(limit.value());
            lost += u32::from(victim);
            now += Duration::from_millis(1);
            if !limit.note(run_of(victim), true, now) {
                *limit = Limit::new(MOST, 1, now);
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
        let after = |runs: u32| start + runs * Duration::from_millis(1);
        let mut limit = Limit::new(1, 1, start);
        assert!((0..50_000).any(|run| !limit.note(run_of(false), true, after(run))));
        // Also one that has failed often, when nobody waits any more; but nobody may wait yet.
        let mut limit = Limit { rest: LONGEST_REST, ..Limit::new(1, 1, start) };
        assert!((0..2 * WINDOW).all(|_| limit.note(run_of(false), false, start)));
        assert!((0..4 * WINDOW).any(|run| !limit.note(run_of(false), false, after(run))));
    }

    #[test]
    fn it_rises_beyond_the_processors_when_they_have_time_to_spare() {
        // Of each millisecond on eight processors.
        let value_after = |computed: Duration| {
            let mut limit = Limit::new(8, 1, Instant::now());
            let mut now = limit.since;
            for _ in 0..1000 {
                now += Duration::from_millis(1);
                assert!(limit.note(Runs { computed, ..run_of(false) }, true, now));
            }
            limit.value()
        };
        assert_eq!(value_after(Duration::from_millis(8)), 8);
        assert_eq!(value_after(Duration::from_millis(3)), 8);
        assert!(value_after(Duration::from_millis(1)) > 16);
        // Where nobody counts that.
        assert!(value_after(Duration::ZERO) > 16);
    }

    /// Where one spell without work sufficed for many steps the limit was gone before the next one was over.
    #[test]
    fn it_comes_back_when_they_were_idle_for_a_moment_only() {
        let mut limit = Limit::new(2, 1, Instant::now());
        let mut now = limit.since + SHORTEST_STAY;
        let mut highest = 0;
        for round in 0..50 {
            // All stand still, and then go on: in turns of a hundred runs.
            now += if round == 10 { 2 * SPELL } else { Duration::ZERO };
            for _ in 0..40 {
                now += Duration::from_millis(1);
                let runs = Runs { ended: 100, computed: Duration::from_millis(2), ..Runs::default() };
                assert!(limit.note(runs, true, now));
                highest = highest.max(limit.value());
            }
        }
        assert_eq!(highest, 3);
        assert_eq!(limit.value(), 2);
    }

    #[test]
    fn slow_runs_are_not_held_back_for_long() {
        let start = Instant::now();
        let mut limit = Limit { rest: LONGEST_REST, ..Limit::new(1, 1, start) };
        (0..WINDOW).for_each(|_| assert!(limit.note(run_of(false), true, start)));
        assert_eq!(limit.value(), 1);
        (0..WINDOW).for_each(|_| assert!(limit.note(run_of(false), true, start + LONGEST_STAY)));
        assert_eq!(limit.value(), 2);
    }
}
