//! Ages of transactions: who is spared when somebody has to give way.
//!
//! | bits of an age | field |
//! | --- | --- |
//! | 0..48 | the number with which the transaction began for the first time |
//! | 48..56 | its rank: 127 less its priority |
//!
//! So whoever has the higher priority is older than everybody with a lower one, and all that is decided by ages is decided by
//! priority first: whom a detector chooses, who dies and who is wounded. Any order serves them that is the same for all, and
//! stays the same while a transaction is there.

/// Bits of the number.
const NUMBER_BITS: u32 = 48;

/// The age of a transaction of this priority that began as this number, below 2^48: smaller is older. Without priorities any
/// numbers will do; one manager's transactions have all their ages from here, or none.
#[inline]
pub const fn age(number: u64, priority: i8) -> u64 {
    let rank = (i8::MAX as i16 - priority as i16) as u64;
    rank << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1)
}

/// The part of an age that stands for the priority: the smaller, the more important.
#[inline]
pub(crate) fn rank(age: u64) -> u64 {
    age >> NUMBER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_comes_before_the_number() {
        let last = (1 << NUMBER_BITS) - 1;
        let ascending = [(0, 127), (last, 127), (0, 1), (7, 0), (8, 0), (0, -1), (3, -128), (last, -128)];
        assert!(ascending.map(|(number, priority)| age(number, priority)).is_sorted_by(|a, b| a < b));
        assert!(ascending.iter().all(|(number, priority)| {
            rank(age(*number, *priority)) == (127 - i64::from(*priority)) as u64
        }));
    }
}
