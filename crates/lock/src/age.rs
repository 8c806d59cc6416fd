//! Ages of transactions: who is spared when somebody has to give way.
//!
//! | bits of an age | field |
//! | --- | --- |
//! | 0..48 | the number with which the transaction began for the first time |
//! | 48..56 | its rank: 127 less its priority |
//!
//! So whoever has the higher priority is older than everybody with a lower one, and all that is decided by ages is
//! decided by priority first: whom a detector chooses, who dies and who is wounded. Any order serves them that is the
//! same for all, and stays the same while a transaction is there.

/// Bits of the number.
const NUMBER_BITS: u32 = 48;

/// How old a transaction is: smaller is older, and the older of two is spared. Priority comes before the time of its
/// beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(u64);

impl Age {
    /// Younger than everybody.
    pub(crate) const YOUNGEST: Age = Age(u64::MAX);

    /// The age of a transaction of this priority that began as this number, below 2^48.
    #[inline]
    pub const fn new(number: u64, priority: i8) -> Age {
        let rank = (i8::MAX as i16 - priority as i16) as u64;
        Age(rank << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1))
    }

    /// The priority: the higher, the more important.
    #[inline]
    pub const fn priority(self) -> i8 {
        (i8::MAX as i16 - (self.0 >> NUMBER_BITS) as i16) as i8
    }

    /// For the word of a slot.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// What was in the word of a slot.
    pub(crate) const fn from_bits(bits: u64) -> Age {
        Age(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_comes_before_the_number() {
        let last = (1 << NUMBER_BITS) - 1;
        let ascending = [(0, 127), (last, 127), (0, 1), (7, 0), (8, 0), (0, -1), (3, -128), (last, -128)];
        let ages = ascending.map(|(number, priority)| Age::new(number, priority));
        assert!(ages.is_sorted_by(|a, b| a < b));
        assert_eq!(ages.map(Age::priority), ascending.map(|(_, priority)| priority));
        assert_eq!(ages.map(|age| Age::from_bits(age.bits())), ages);
        assert!(ages.iter().all(|age| *age < Age::YOUNGEST));
    }
}
