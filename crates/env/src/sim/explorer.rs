//! The explorer: no costs, but schedules that a machine would rarely show.
//!
//! Every access to shared memory takes one step of virtual time. After a random number of steps, and whenever a thread
//! sleeps or spins, another one may be chosen. Three ways to choose:
//!
//! - *random*: each thread that can run is as likely as any other; how many steps a turn lasts differs from seed to
//!   seed;
//! - *PCT* (Burckhardt, Kothari, Musuvathi, Nagarakatte, ASPLOS 2010): threads have random priorities, the highest
//!   runs, and at a few random steps the one that runs becomes the lowest: a bug that needs few such orders is met with
//!   a known probability. A thread that yields or spins becomes the lowest too, or it would wait for ever. Runs are
//!   longer than PCT's: when the last of these steps is past, as many are drawn anew;
//! - *replayed*: the turns of an earlier run, one after the other; what lies beyond them runs in order of thread
//!   numbers.
//!
//! Now and then time leaps, so that deadlines pass while the threads that they belong to are in the middle of
//! something; and whatever may happen for no reason does, once in a while: a weak exchange fails, a wait for a word
//! ends.

use super::{
    kernel::{END_OF_TIME, Leave, ThreadNumber},
    scheduler::Costs,
};
use crate::random::Xorshift;

/// Picoseconds of one access to memory.
const STEP: u64 = 20_000;
/// How many turns there are for one in which time leaps.
const TURNS_PER_LEAP: u64 = 2000;
/// The longest leap, in picoseconds: 30 ms.
const LONGEST_LEAP: u64 = 30_000_000_000;
/// How many times there are for one at which something happens for no reason.
const TIMES_PER_WHIM: u64 = 64;
/// Steps after which a run is given up: threads that spin for each other would never be done.
const MOST_STEPS: u64 = 200_000_000;
/// What `available_parallelism` says.
const PROCESSORS: usize = 4;

/// How the explorer chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Any thread that can run, for a random time.
    Random,
    /// By priorities that change at this many random moments among so many steps, and then again.
    Priorities {
        /// How many changes.
        changes: u32,
        /// Where they lie.
        within_steps: u64,
    },
    /// The turns of an earlier run.
    Replayed(Vec<Turn>),
}

/// One turn: who ran, and how long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The thread's number.
    pub thread: u32,
    /// Picoseconds until it had to leave.
    pub lasts: u64,
    /// By how many picoseconds time leapt before.
    pub leap: u64,
}

/// How the turns of the random schedule last.
enum Choice {
    Random {
        /// A turn lasts up to this many steps.
        longest: u64,
    },
    Priorities {
        /// By thread number; higher runs first.
        priorities: Vec<u64>,
        /// Steps at which the priority of the thread that runs falls, descending.
        changes: Vec<u64>,
        /// How many of them are drawn at a time, and among how many steps.
        drawn: (u32, u64),
        /// The next lowest priority: counts down.
        lowest: u64,
    },
    Replayed {
        turns: std::vec::IntoIter<Turn>,
    },
}

pub(super) struct Explorer {
    pub(super) costs: Costs,
    choice: Choice,
    random: Xorshift,
    /// What happens for no reason, in replayed runs as in others.
    whims: Xorshift,
    /// Threads that can run, without the one that runs.
    ready: Vec<ThreadNumber>,
    clock: u64,
    /// Clock at which the turn ends.
    turn_end: u64,
    /// Steps of virtual time taken in turns that are over.
    steps: u64,
    /// Who ran last, and whether it gave way of itself.
    last: Option<(ThreadNumber, bool)>,
    began: u64,
    /// All turns so far.
    trace: Vec<Turn>,
}

impl Explorer {
    pub(super) fn new(schedule: Schedule, seed: u64) -> Explorer {
        let mut random = Xorshift::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xE0);
        let choice = match schedule {
            Schedule::Random => Choice::Random { longest: 1 << random.below(10) },
            Schedule::Priorities { changes, within_steps } => {
                let drawn = (changes, within_steps);
                let changes = draw_changes(&mut random, drawn, 0);
                Choice::Priorities { priorities: Vec::new(), changes, drawn, lowest: u64::from(u32::MAX) }
            }
            Schedule::Replayed(turns) => Choice::Replayed { turns: turns.into_iter() },
        };
        let costs =
            Costs { pause: STEP, clock_read: 0, system_call: STEP, yielding: STEP, ..Costs::default() };
        Explorer {
            costs,
            choice,
            random,
            whims: Xorshift::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x3A1),
            ready: Vec::new(),
            clock: 0,
            turn_end: 0,
            steps: 0,
            last: None,
            began: 0,
            trace: Vec::new(),
        }
    }

    pub(super) fn processors(&self) -> usize {
        PROCESSORS
    }

    /// Whether the run took as many steps as it may.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps > MOST_STEPS
    }

    /// Whether what may happen for no reason does now.
    pub(super) fn has_whim(&mut self) -> bool {
        self.whims.below(TIMES_PER_WHIM) == 0
    }

    pub(super) fn into_trace(self) -> Vec<Turn> {
        self.trace
    }

    #[inline]
    pub(super) fn access(&mut self, clock: &mut u64) {
        *clock += STEP;
    }

    pub(super) fn ready(&mut self, thread: ThreadNumber, now: u64) {
        self.ready.push(thread);
        if let Choice::Priorities { priorities, .. } = &mut self.choice {
            while priorities.len() <= thread {
                priorities.push((1 << 32) + self.random.next_u64() / 2);
            }
        }
        if matches!(self.choice, Choice::Priorities { .. }) {
            // A thread that has become ready may stand above the one that runs.
            self.turn_end = self.turn_end.min(now);
        }
        // A sleeper wakes no earlier than its timer, when nobody ran meanwhile.
        self.clock = self.clock.max(now.min(END_OF_TIME));
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        (!self.ready.is_empty()).then_some(self.clock)
    }

    pub(super) fn horizon(&self) -> u64 {
        self.turn_end
    }

    pub(super) fn left(&mut self, thread: ThreadNumber, clock: u64, leave: Leave) {
        self.clock = clock;
        self.steps += (clock - self.began) / STEP;
        self.last = Some((thread, leave == Leave::Yield));
        // A thread that left of itself does so again, and must not be made to leave at the same clock a moment before.
        if leave == Leave::Turn
            && let Some(turn) = self.trace.last_mut()
        {
            // The longest time that makes it leave where it left.
            turn.lasts = (clock - self.began).saturating_sub(1);
        }
        if matches!(leave, Leave::Turn | Leave::Yield) {
            self.ready.push(thread);
        }
        if let Choice::Priorities { priorities, changes, drawn, lowest } = &mut self.choice
            && (leave == Leave::Yield || changes.last().is_some_and(|&change| change <= self.steps))
        {
            while changes.last().is_some_and(|&change| change <= self.steps) {
                changes.pop();
            }
            if changes.is_empty() {
                *changes = draw_changes(&mut self.random, *drawn, self.steps + 1);
            }
            *lowest -= 1;
            priorities[thread] = *lowest;
        }
    }

    /// The caller has seen that somebody can run.
    pub(super) fn next(&mut self, timer: Option<u64>) -> (ThreadNumber, u64) {
        let leap =
            if self.random.below(TURNS_PER_LEAP) == 0 && !matches!(self.choice, Choice::Replayed { .. }) {
                self.random.below(LONGEST_LEAP)
            } else {
                0
            };
        let turn = match &mut self.choice {
            Choice::Random { longest } => {
                let yielded = self.last.filter(|(_, yielded)| *yielded).map(|(thread, _)| thread);
                let mut place = self.random.below(self.ready.len() as u64) as usize;
                if Some(self.ready[place]) == yielded {
                    place = self.random.below(self.ready.len() as u64) as usize;
                }
                let lasts = (1 + self.random.below(*longest)) * STEP;
                Turn { thread: self.ready[place] as u32, lasts, leap }
            }
            Choice::Priorities { priorities, changes, .. } => {
                let highest = self.ready.iter().copied().max_by_key(|&thread| priorities[thread]);
                let until =
                    changes.last().map_or(u64::from(u32::MAX), |change| change - self.steps.min(*change));
                let lasts = until.clamp(1, 100_000) * STEP;
                Turn { thread: highest.unwrap_or(self.ready[0]) as u32, lasts, leap }
            }
            Choice::Replayed { turns } => turns.next().unwrap_or_else(|| Turn {
                thread: next_in_turn(&self.ready, self.last) as u32,
                lasts: 100 * STEP,
                leap: 0,
            }),
        };
        let place = self.ready.iter().position(|&thread| thread == turn.thread as usize).unwrap_or(0);
        let thread = self.ready.swap_remove(place);
        // The leap ends where a sleeper wakes: it may run then.
        let leapt = self.clock.saturating_add(turn.leap);
        self.clock = timer.map_or(leapt, |timer| leapt.min(timer.max(self.clock))).min(END_OF_TIME);
        self.began = self.clock;
        self.turn_end = self.clock.saturating_add(turn.lasts);
        self.trace.push(Turn { thread: thread as u32, ..turn });
        (thread, self.clock)
    }
}

/// The thread that runs behind the last turn of a schedule: the thread that ran last, as long as it can; then the
/// others in turn, so that of threads that wait for each other, and yield, none starves.
fn next_in_turn(ready: &[ThreadNumber], last: Option<(ThreadNumber, bool)>) -> ThreadNumber {
    let (last, yielded) = last.unwrap_or((0, true));
    let first = last + usize::from(yielded);
    let behind = ready.iter().copied().filter(|&thread| thread >= first).min();
    behind.or_else(|| ready.iter().copied().min()).unwrap_or(0)
}

/// Steps at which priorities fall, so many among the next ones from `first` on; descending.
fn draw_changes(random: &mut Xorshift, (count, within_steps): (u32, u64), first: u64) -> Vec<u64> {
    let mut changes: Vec<u64> = (0..count).map(|_| first + random.below(within_steps)).collect();
    changes.sort_unstable_by(|a, b| b.cmp(a));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two that spin for each other, behind a schedule's end: the first spun for ever.
    #[test]
    fn nobody_starves_behind_the_last_turn() {
        let mut explorer = Explorer::new(Schedule::Replayed(Vec::new()), 7);
        (0..3).for_each(|thread| explorer.ready(thread, 0));
        let mut ran = [0; 3];
        for _ in 0..30 {
            let (thread, clock) = explorer.next(None);
            ran[thread] += 1;
            explorer.left(thread, clock + 10 * STEP, Leave::Yield);
        }
        assert_eq!(ran, [10; 3]);
        // A thread that does not yield goes on.
        let (thread, clock) = explorer.next(None);
        explorer.left(thread, clock + 10 * STEP, Leave::Turn);
        assert_eq!(explorer.next(None).0, thread);
    }

    /// A schedule is what a file says. A turn that lasts for ever, or a leap beyond the end of time, took time back.
    #[test]
    fn turns_that_are_too_long_take_no_time_back() {
        let turn = Turn { thread: 0, lasts: u64::MAX, leap: u64::MAX };
        let mut explorer = Explorer::new(Schedule::Replayed(vec![turn]), 7);
        explorer.ready(0, 3 * STEP);
        assert_eq!(explorer.next(None), (0, END_OF_TIME));
        assert!(explorer.horizon() >= END_OF_TIME);
    }

    /// All changes lay among the first steps, and the later lives of a run had none.
    #[test]
    fn priorities_fall_all_along() {
        let schedule = Schedule::Priorities { changes: 3, within_steps: 1000 };
        let mut explorer = Explorer::new(schedule, 7);
        (0..2).for_each(|thread| explorer.ready(thread, 0));
        let mut switches = [0; 10];
        let mut last = None;
        while explorer.steps < 10_000 {
            let (thread, clock) = explorer.next(None);
            if last.replace(thread) != Some(thread) {
                switches[explorer.steps as usize / 1000] += 1;
            }
            explorer.left(thread, clock + 10 * STEP, Leave::Turn);
        }
        assert!(switches.iter().filter(|&&switches| switches > 0).count() >= 8, "{switches:?}");
    }
}
