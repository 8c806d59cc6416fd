//! Many lines, and accesses to them one after another.

use foreshore_env::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{VISITS, timed};
use crate::random::Random;

/// Lines that are visited in no order which the processor could foresee.
pub(super) struct Lines {
    lines: Box<[Line]>,
    /// All of them, in the order of their cycle.
    order: Box<[u32]>,
}

#[repr(align(64))]
pub(super) struct Line {
    /// The number of another line.
    next: AtomicU64,
    /// What is loaded and changed.
    pub(super) word: AtomicU64,
}

impl Lines {
    /// What so many KiB of them take, while they are made.
    pub(super) fn bytes(kib: usize) -> usize {
        let count = kib * 1024 / size_of::<Line>();
        count * (size_of::<Line>() + size_of::<u32>() + size_of::<u64>())
    }

    /// So many KiB of them, each of which has been accessed. They stand in one cycle.
    pub(super) fn new(kib: usize) -> Lines {
        let count = kib * 1024 / size_of::<Line>();
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut random = Random::new(1, 0);
        for last in (1..count).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        let mut next = vec![0; count];
        for (&line, &after) in order.iter().zip(order.iter().cycle().skip(1)) {
            next[line as usize] = u64::from(after);
        }
        let line = |next| Line { next: AtomicU64::new(next), word: AtomicU64::new(0) };
        let lines = Lines { lines: next.into_iter().map(line).collect(), order: order.into() };
        lines.follow();
        lines
    }

    /// Accesses to be made: all lines once, if there are many.
    fn visits(&self) -> u64 {
        VISITS.max(self.lines.len() as u64)
    }

    pub(super) fn follow(&self) -> f64 {
        let visits = self.visits();
        timed(|| {
            let mut at = 0;
            for _ in 0..visits {
                at = self.lines[at as usize].next.load(Relaxed);
            }
            std::hint::black_box(at);
            visits
        })
    }

    /// Accesses that do not wait for each other. Which line is next has been drawn before.
    pub(super) fn visit(&self, access: impl Fn(&Line, u64) -> u64) -> f64 {
        let visits = self.visits();
        let visited = self.order.iter().cycle().take(visits as usize);
        timed(|| {
            std::hint::black_box(visited.fold(0, |sum, &line| access(&self.lines[line as usize], sum)));
            visits
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_stand_in_one_cycle() {
        let lines = Lines::new(64);
        let (mut at, mut seen) = (0, vec![false; lines.lines.len()]);
        while !std::mem::replace(&mut seen[at as usize], true) {
            at = lines.lines[at as usize].next.load(Relaxed);
        }
        assert_eq!(at, 0);
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn all_lines_are_visited_equally_often() {
        let lines = Lines::new(64);
        lines.visit(|line, sum| sum + line.word.fetch_add(1, Relaxed));
        let least = lines.visits() / lines.lines.len() as u64;
        for line in &lines.lines {
            assert!((least..=least + 1).contains(&line.word.load(Relaxed)));
        }
    }
}
