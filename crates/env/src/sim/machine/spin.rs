//! Cores that spin, and see the same until a line of memory moves: they sleep meanwhile, and the rounds are charged
//! when they wake, as if they had been run. What others see of it is the same, to the picosecond.

use super::{END_OF_TIME, LineNumber, Machine, Spent, key};

/// A core that looks at one line, again and again.
pub(super) struct Spin {
    line: LineNumber,
    /// Picoseconds from one look to the next.
    period: u64,
    /// How many more rounds it may take, and how many it took.
    left: u64,
    done: u64,
}

impl Machine {
    /// The thread that runs has looked at one word, paused, and would do so up to `rounds` times more; the look took
    /// `took`. Whether all looks will be alike until that line moves: then it is to leave by `Leave::Spin`. Never while
    /// nothing is charged: lines do not move then, whoever changes them.
    pub(in crate::sim) fn spins(&mut self, took: u64, rounds: u64) -> bool {
        if !self.charging {
            return false;
        }
        let Some(line) = self.directory.looked_at(self.here, took) else { return false };
        let period = took + self.costs.pause;
        self.cores[self.here].set_spin(Spin { line, period, left: rounds, done: 0 });
        true
    }

    /// The thread that runs pauses: if it has just looked at a word, what that look took is a part of its spinning, and
    /// no useful computing.
    pub(in crate::sim) fn paused(&mut self) {
        // Unless what was counted until then is forgotten.
        let looked = self.directory.paused(self.here).min(self.spent[Spent::Computing as usize]);
        self.spent[Spent::Computing as usize] -= looked;
        self.tally(Spent::Spinning, looked);
    }

    /// Rounds that passed while the thread, which runs again, saw the same.
    pub(in crate::sim) fn spun(&mut self) -> u64 {
        let thread = self.cores[self.here].running.expect("the thread that asks runs");
        self.spun[thread]
    }

    /// The core that ran sleeps until its line moves, its rounds are over, or its slice is.
    pub(super) fn lie_in_wait(&mut self) {
        let here = self.here;
        let line = self.cores[here].spin.as_ref().expect("a thread that spins has said so").line;
        self.directory.watch(here, line);
        self.look_at_slice(here);
    }

    /// A spinning core, if it spins, wakes no later than its slice ends and its rounds do.
    pub(super) fn look_at_slice(&mut self, here: usize) {
        let core = &self.cores[here];
        let Some(spin) = &core.spin else { return };
        let slice_end = if core.waiting == 0 { END_OF_TIME } else { core.slice_end.max(core.clock) };
        let end = core.clock.saturating_add(spin.period.saturating_mul(spin.left)).min(slice_end);
        self.order.set(here, key(end, here));
    }

    /// The spinning core, if it spins, looks again at the first moment from `now` on that is its time.
    pub(super) fn rouse(&mut self, core: usize, now: u64) {
        let Some(mut spin) = self.cores[core].take_spin() else { return };
        self.directory.unwatch(core, spin.line);
        let rounds = now.saturating_sub(self.cores[core].clock).div_ceil(spin.period).min(spin.left);
        self.pass_rounds(core, &mut spin, rounds);
        let running = self.cores[core].running.expect("a core that spins runs a thread");
        self.spun[running] = spin.done;
        self.order.set(core, key(self.cores[core].clock, core));
    }

    /// The clock of a spinning core comes near to `now`.
    pub(super) fn spun_until(&mut self, core: usize, now: u64) {
        let Some(mut spin) = self.cores[core].take_spin() else { return };
        let rounds = (now.saturating_sub(self.cores[core].clock) / spin.period).min(spin.left);
        self.pass_rounds(core, &mut spin, rounds);
        self.cores[core].set_spin(spin);
    }

    fn pass_rounds(&mut self, core: usize, spin: &mut Spin, rounds: u64) {
        (spin.left, spin.done) = (spin.left - rounds, spin.done + rounds);
        self.cores[core].clock += rounds * spin.period;
        self.directory.looked_again(core, rounds);
        self.tally(Spent::Spinning, rounds * spin.period);
    }

    /// Rouses who watches a line that has moved by `now`; whether there was anybody.
    #[inline]
    pub(super) fn disturb(&mut self, now: u64) -> bool {
        let mut disturbed = false;
        while let Some(watchers) = self.directory.disturbed() {
            disturbed = true;
            for core in watchers {
                // At equal clocks the lower number has gone first, and seen nothing new.
                self.rouse(core, now + u64::from(core < self.here));
            }
        }
        disturbed
    }
}
