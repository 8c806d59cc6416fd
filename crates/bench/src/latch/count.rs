//! Acquisitions by one thread, for counting instructions.

use foreshore_latch::baseline::{Latch, Visit};

use super::{Guarded, LatchMix};

/// One thread makes so many acquisitions.
pub(super) struct Count {
    pub(super) mix: LatchMix,
    pub(super) iterations: u64,
}

impl Visit for Count {
    type Output = u64;

    fn visit<L: Latch>(self) -> u64 {
        let guarded = Guarded::<L>::default();
        match self.mix {
            LatchMix::ReadOnly => {
                measured_acquisitions(self.iterations, |number| guarded.acquire(LatchMix::ReadOnly, number))
            }
            LatchMix::WriteOnly => {
                measured_acquisitions(self.iterations, |number| guarded.acquire(LatchMix::WriteOnly, number))
            }
            LatchMix::Mixed => {
                measured_acquisitions(self.iterations, |number| guarded.acquire(LatchMix::Mixed, number))
            }
            LatchMix::Contended => {
                measured_acquisitions(self.iterations, |number| guarded.acquire(LatchMix::Contended, number))
            }
        }
    }
}

/// Never inlined, so that the loop is the same whoever calls it.
#[inline(never)]
fn measured_acquisitions(iterations: u64, acquire: impl Fn(u64) -> u64) -> u64 {
    (0..iterations).fold(0, |sum, number| sum.wrapping_add(std::hint::black_box(acquire(number))))
}
