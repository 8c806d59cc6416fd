//! Seeded inputs: uniform, NURand (TPC-C 2.1.6), scrambled Zipf (YCSB), hot set, and random text.

use foreshore_env::random::Xorshift;
// Not `f64::powf`: the system's library takes another way on another processor, with another last bit, and then another
// record would be drawn from the same seed.
use libm::pow;

/// A stream of random numbers that depends on (seed, stream) alone.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xorshift);

impl Random {
    /// The stream with this number of this seed; neighbouring numbers give unrelated streams.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        Random(Xorshift::new(mix(seed ^ mix(stream.wrapping_add(0x9E37_79B9_7F4A_7C15)))))
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number in `low..=high`.
    #[inline]
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(u64::from(high.saturating_sub(low)) + 1) as u32
    }

    /// True `percent` times in a hundred.
    #[inline]
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.0.below(100) < u64::from(percent)
    }

    /// A number in `[0, 1)`.
    #[inline]
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Any 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// TPC-C's NURand(A, x, y) with the run's constant C.
    #[inline]
    pub(crate) fn nurand(&mut self, a: u32, c: u32, low: u32, high: u32) -> u32 {
        let spread = high - low + 1;
        ((self.between(0, a) | self.between(low, high)) + c) % spread + low
    }

    /// Appends `low..=high` letters and digits.
    pub(crate) fn letters(&mut self, low: u32, high: u32, out: &mut Vec<u8>) {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
        let mut left = self.between(low, high);
        while left > 0 {
            let mut bits = self.0.next_u64();
            for _ in 0..left.min(10) {
                out.push(LETTERS[(bits & 63) as usize]);
                bits >>= 6;
            }
            left -= left.min(10);
        }
    }

    /// Appends `count` digits.
    pub(crate) fn digits(&mut self, count: u32, out: &mut Vec<u8>) {
        for _ in 0..count {
            out.push(b'0' + self.below(10) as u8);
        }
    }

    /// A random order of `1..=count`.
    pub(crate) fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (1..=count).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

/// A bijection of 64-bit words in which every input bit reaches every output bit (SplitMix64's finalizer).
#[inline]
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// How records are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Zipf with this exponent in `(0, 1)`, the popular records scattered over the key space as YCSB does.
    Zipf(f64),
    /// `share` percent of the accesses go to the first `records` records, evenly; the others to the rest.
    HotSet {
        /// Records in the hot set.
        records: u64,
        /// Percent of accesses that go there.
        share: u32,
    },
}

/// Draws record numbers in `0..records`.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    records: u64,
    kind: ChooserKind,
}

#[derive(Clone, Debug)]
enum ChooserKind {
    Uniform,
    /// Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, as in YCSB.
    Zipf {
        alpha: f64,
        /// The weights of all records, summed, and those of the first two.
        zeta: f64,
        zeta_two: f64,
        eta: f64,
    },
    HotSet {
        hot: u64,
        share: u32,
    },
}

impl Chooser {
    /// Prepares a distribution over `records` records. Zipf sums a series over all of them, once.
    pub(crate) fn new(records: u64, distribution: Distribution) -> Chooser {
        let kind = match distribution {
            Distribution::Uniform => ChooserKind::Uniform,
            Distribution::Zipf(theta) => {
                let zeta: f64 = (1..=records).map(|rank| pow(rank as f64, -theta)).sum();
                let zeta_two = 1.0 + pow(0.5, theta);
                let eta = (1.0 - pow(2.0 / records as f64, 1.0 - theta)) / (1.0 - zeta_two / zeta);
                ChooserKind::Zipf { alpha: 1.0 / (1.0 - theta), zeta, zeta_two, eta }
            }
            Distribution::HotSet { records: hot, share } => {
                ChooserKind::HotSet { hot: hot.clamp(1, records.max(1)), share }
            }
        };
        Chooser { records, kind }
    }

    /// The next record.
    #[inline]
    pub(crate) fn choose(&self, random: &mut Random) -> u64 {
        match self.kind {
            ChooserKind::Uniform => random.below(self.records),
            ChooserKind::Zipf { .. } => mix(self.rank(random)) % self.records,
            ChooserKind::HotSet { hot, share } => {
                if hot == self.records || random.percent(share) {
                    random.below(hot)
                } else {
                    hot + random.below(self.records - hot)
                }
            }
        }
    }

    /// A Zipf-distributed rank, 0 the most popular.
    fn rank(&self, random: &mut Random) -> u64 {
        let ChooserKind::Zipf { alpha, zeta, zeta_two, eta } = self.kind else { return 0 };
        let uniform = random.fraction();
        let scaled = uniform * zeta;
        if scaled < 1.0 || self.records < 2 {
            return 0;
        }
        if scaled < zeta_two {
            return 1;
        }
        let rank = self.records as f64 * pow(eta * uniform - eta + 1.0, alpha);
        (rank as u64).min(self.records - 1)
    }
}

/// Draws ranks `0..n` by Zipf's law with any exponent, 0 the most popular; exactly, by looking a random number up in
/// the sums of all weights.
#[derive(Clone, Debug)]
pub(crate) struct ZipfRanks {
    /// The weights of all ranks up to each one, summed.
    sums: Vec<f64>,
}

impl ZipfRanks {
    /// Ranks `0..n` with weights `1 / (rank + 1)^exponent`.
    pub(crate) fn new(n: u32, exponent: f64) -> ZipfRanks {
        let mut sum = 0.0;
        let weight = |rank: u32| pow(f64::from(rank), -exponent);
        let sums = (1..=n).map(|rank| {
            sum += weight(rank);
            sum
        });
        ZipfRanks { sums: sums.collect() }
    }

    /// The next rank; 0 if there are none.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        let target = random.fraction() * self.sums.last().copied().unwrap_or_default();
        let rank = self.sums.partition_point(|&sum| sum <= target);
        rank.min(self.sums.len().saturating_sub(1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nurand_stays_in_range_and_prefers_what_the_constant_says() {
        let mut random = Random::new(1, 0);
        let mut counts = vec![0_u32; 3001];
        for _ in 0..300_000 {
            let drawn = random.nurand(1023, 259, 1, 3000);
            assert!((1..=3000).contains(&drawn));
            counts[drawn as usize] += 1;
        }
        assert!(counts[1..].iter().filter(|&&count| count > 0).count() > 2900, "every customer is reached");
        // The bitwise or with a uniform 10-bit number favours values with many low bits set: 2047 = 0b111_1111_1111
        // is hit whenever the second draw lies in 1024..2048 and the two cover all bits.
        let hot = counts[2047 + 259 + 1];
        assert!(
            f64::from(hot) > 5.0 * 100.0,
            "expected a hot customer, drawn {hot} times where the mean is 100"
        );
        // Against the distribution computed by enumeration.
        let mut exact = vec![0_u64; 3001];
        for a in 0..=1023_u32 {
            for b in 1..=3000_u32 {
                exact[(((a | b) + 259) % 3000 + 1) as usize] += 1;
            }
        }
        let pairs = 1024.0 * 3000.0;
        let chi: f64 = (1..=3000)
            .filter(|&id| exact[id] > 30)
            .map(|id| {
                let expected = exact[id] as f64 / pairs * 300_000.0;
                (f64::from(counts[id]) - expected).powi(2) / expected
            })
            .sum();
        let cells = (1..=3000).filter(|&id| exact[id] > 30).count() as f64;
        assert!(chi < cells + 6.0 * (2.0 * cells).sqrt(), "chi-square {chi} over {cells} cells");
    }

    #[test]
    fn zipf_has_the_shape_it_promises() {
        let chooser = Chooser::new(1000, Distribution::Zipf(0.99));
        let mut random = Random::new(7, 0);
        let mut counts = vec![0_u32; 1000];
        let draws = 200_000;
        for _ in 0..draws {
            counts[chooser.rank(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [0_usize, 1] {
            let expected = f64::from(draws) / zeta / ((rank + 1) as f64).powf(0.99);
            let got = f64::from(counts[rank]);
            assert!(
                (got - expected).abs() < 0.05 * expected,
                "rank {rank}: {got} drawn, {expected} expected"
            );
        }
        let head: u32 = counts[..100].iter().sum();
        let expected: f64 = (1..=100).map(|rank| f64::from(rank).powf(-0.99)).sum::<f64>() / zeta;
        assert!((f64::from(head) / f64::from(draws) - expected).abs() < 0.05);
        for _ in 0..1000 {
            assert!(chooser.choose(&mut random) < 1000);
        }
    }

    /// The same seed draws the same records on every machine.
    #[test]
    fn zipf_draws_the_same_to_the_last_bit() {
        let drawn = |draw: &dyn Fn(&mut Random) -> u64| {
            let mut random = Random::new(11, 3);
            (0..10_000).fold(0, |sum, _| mix(sum ^ draw(&mut random)))
        };
        let chosen = [(1_000_000, 0.99), (1000, 0.5), (7, 0.9)].map(|(records, theta)| {
            let chooser = Chooser::new(records, Distribution::Zipf(theta));
            drawn(&|random| chooser.choose(random))
        });
        assert_eq!(
            chosen,
            [0xA358_4F70_A5FE_1231, 0x0614_F865_9E14_A7F4, 0x8CB3_B3E4_6791_FECB],
            "{chosen:#x?}"
        );
        let ranks = [0.5, 1.0, 2.0].map(|exponent| {
            let ranks = ZipfRanks::new(20, exponent);
            drawn(&|random| u64::from(ranks.draw(random)))
        });
        assert_eq!(
            ranks,
            [0xE5B6_71D3_B317_E407, 0xE5DF_FB5E_F837_7F96, 0x942D_6487_ABF4_C0A1],
            "{ranks:#x?}"
        );
        // The weights themselves, of which a last bit may not show in ten thousand draws.
        let bits = (1..=10_000).fold(0, |sum, rank| mix(sum ^ pow(f64::from(rank), -0.99).to_bits()));
        assert_eq!(bits, 0x4DD4_6AC9_1535_328C, "{bits:#x}");
    }

    #[test]
    fn zipf_of_any_exponent_has_the_shape_it_promises() {
        let mut random = Random::new(9, 0);
        for exponent in [0.0, 0.5, 1.0, 2.0] {
            let ranks = ZipfRanks::new(200, exponent);
            let zeta: f64 = (1..=200).map(|rank| f64::from(rank).powf(-exponent)).sum();
            let mut counts = [0_u32; 200];
            for _ in 0..200_000 {
                counts[ranks.draw(&mut random) as usize] += 1;
            }
            for rank in [0_u8, 1, 9] {
                let expected = 200_000.0 / zeta / f64::from(rank + 1).powf(exponent);
                let got = f64::from(counts[usize::from(rank)]);
                assert!(
                    (got - expected).abs() < 6.0 * expected.sqrt() + 1.0,
                    "{exponent}, {rank}: {got}, {expected}"
                );
            }
        }
        assert_eq!(ZipfRanks::new(0, 1.0).draw(&mut random), 0);
    }

    #[test]
    fn the_hot_set_gets_its_share() {
        let chooser = Chooser::new(10_000, Distribution::HotSet { records: 64, share: 90 });
        let mut random = Random::new(3, 1);
        let hot = (0..100_000).filter(|_| chooser.choose(&mut random) < 64).count();
        assert!((89_000..91_000).contains(&hot), "{hot}");
        for records in [1, 2, 64] {
            let chooser = Chooser::new(records, Distribution::HotSet { records: 64, share: 90 });
            assert!((0..100).all(|_| chooser.choose(&mut random) < records));
            let chooser = Chooser::new(records, Distribution::Zipf(0.9));
            assert!((0..100).all(|_| chooser.choose(&mut random) < records));
        }
    }

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..8).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn a_permutation_has_everybody_once() {
        let mut order = Random::new(5, 5).permutation(3000);
        assert_ne!(order[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        order.sort_unstable();
        assert!(order.iter().copied().eq(1..=3000));
    }
}
