//! Randomness for backoff, victim choice and hash seeds. Not for secrets.

use crate::time::Duration;

/// A pause without doublings is at most this long.
const SHORTEST: Duration = Duration::from_micros(50);
/// No pause is longer.
const LONGEST: Duration = Duration::from_millis(10);

/// A seed that differs from run to run, from the operating system; in a simulation, from the simulation's own seed.
pub fn seed() -> u64 {
    crate::world::entropy()
}

/// A small generator (xorshift64*): a few instructions, period 2⁶⁴ − 1.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// A generator whose sequence depends on `seed` alone.
    pub const fn new(seed: u64) -> Xorshift {
        Xorshift(if seed == 0 { 0x9E37_79B9_7F4A_7C15 } else { seed })
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// A pause that lets those who won go on before a loser is in their way again: with each more of the `doublings` it may
/// be twice as long. It is jittered, so that two losers do not meet in step.
pub fn jittered_pause(doublings: u32) -> Duration {
    let most = SHORTEST.saturating_mul(1 << doublings.min(16)).min(LONGEST);
    Duration::from_nanos(Xorshift::new(seed()).below(most.as_nanos() as u64))
}

#[cfg(all(test, unix, not(any(foreshore_loom, foreshore_sim))))]
mod tests {
    use std::{fs, os::unix::process::CommandExt, process::Command};

    use super::seed;

    /// Forks of one thread drew the same seeds, one after the other: of two that made a database each, both had the
    /// same identity, and the file of one passed for that of the other.
    #[test]
    fn forks_of_one_thread_draw_different_seeds() {
        let directory = tempfile::tempdir().unwrap();
        // What this thread draws from, its forks have as well.
        let mut seeds = vec![seed()];
        for name in ["one", "other"] {
            let path = directory.path().join(name);
            let (drawn, mut command) = (path.clone(), Command::new("true"));
            // SAFETY: in the fork it draws a number and writes a file; it takes no lock of another thread.
            unsafe { command.pre_exec(move || fs::write(&drawn, seed().to_le_bytes())) };
            assert!(command.status().unwrap().success());
            seeds.push(u64::from_le_bytes(fs::read(path).unwrap().try_into().unwrap()));
        }
        seeds.sort_unstable();
        assert!(seeds.is_sorted_by(|one, other| one < other), "{seeds:x?}");
    }
}
