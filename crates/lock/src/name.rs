//! Lock names: what a lock is on, as 64 bits.
//!
//! Keys that differ in their last byte only are neighbours, most often: rows that were numbered. Whoever locks one
//! locks the next ones, too, so their places in a table lie near each other, where the processor expects the next
//! access, and not so near that two of them share a cache line. The bits of a name, from the highest on:
//!
//! | bits | what |
//! | --- | --- |
//! | 8 | of all bytes of the key: names in order are spread whatever the keys are |
//! | 32 | of all bytes but the last: where the neighbours' places begin |
//! | 8 | the last byte: where among them |
//! | 16 | of all bytes but the last |

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use foreshore_base::TableId;

/// A key, or the place before every key.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum KeyRef<'a> {
    /// Before every key of the table: names the gap below its first key.
    NegativeInfinity,
    /// A key's bytes.
    Key(&'a [u8]),
}

/// A hash of (table, key). Two keys with the same name share their locks: a false conflict, never a missed one.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct LockName(u64);

impl LockName {
    /// The hash.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Which of 2⁶⁴⁻ˢʰⁱᶠᵗ places of a small table is this name's: no two neighbours' are near each other.
    #[inline]
    pub(crate) fn scattered(self, shift: u32) -> usize {
        (self.0.wrapping_mul(SCATTER) >> shift) as usize
    }

    /// In which of so many equal ranges of names, at least one, it lies: ascending names are in ascending ranges.
    #[inline]
    pub fn partition(self, partitions: usize) -> usize {
        ((u128::from(self.0) * partitions as u128) >> 64) as usize
    }

    /// The name with this hash.
    #[inline]
    pub const fn from_bits(bits: u64) -> LockName {
        LockName(bits)
    }
}

/// Which place of a table is a name's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// 0 with one place: no shift is by all bits.
    shift: u32,
    last: usize,
    /// Places are in the order of names, so that partitions, which are ranges of names, have ranges of places, and
    /// those who look after them no lines in common. Neighbours are in partitions of their own, most often.
    ordered: bool,
}

impl Places {
    /// So many places, a power of two; `partitions`: in so many ranges of names is locked by threads of their own.
    pub(crate) fn new(count: usize, partitions: usize) -> Places {
        let shift = (u64::BITS - count.ilog2()) % u64::BITS;
        Places { shift, last: count - 1, ordered: partitions > 1 }
    }

    /// How many there are.
    pub(crate) fn count(self) -> usize {
        self.last + 1
    }

    /// The place of a name. If there is one partition, those of neighbours are among the same 256, four places from one
    /// to the next.
    #[inline]
    pub(crate) fn of(self, name: LockName) -> usize {
        if self.ordered {
            return (name.0 >> self.shift) as usize & self.last;
        }
        let first = (name.0 << 8 >> self.shift) as usize;
        let among = usize::from(((name.0 >> LAST_AT) as u8).rotate_left(2));
        (first & !0xFF | (first + among) & 0xFF) & self.last
    }
}

/// Stands for the missing bytes of [`KeyRef::NegativeInfinity`]; a key's hash takes another way, so that none is equal
/// to it by construction of its bytes.
const BEFORE_ALL: u64 = 0x6265_666F_7265_2121;

/// Where a name has the last byte of its key.
const LAST_AT: u32 = 16;

/// An odd number near 2⁶⁴ divided by the golden ratio: what is multiplied by it is spread over the upper bits. Table
/// ids are, so that equal keys of two tables have unrelated names.
pub(crate) const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Stands for the bytes of a key that has none.
const EMPTY: u64 = 0x6E6F_7468_696E_6721;

/// The name of a key in a database with this seed.
#[inline]
pub(crate) fn name(seed: u64, table: TableId, key: KeyRef<'_>) -> LockName {
    let table = (u64::from(table.0) + 1).wrapping_mul(SCATTER);
    let mut hasher = FixedState::with_seed(seed ^ table).build_hasher();
    let mut last = 0;
    match key {
        KeyRef::Key([before @ .., end]) => {
            hasher.write(before);
            last = u64::from(*end);
        }
        KeyRef::Key([]) => hasher.write_u64(EMPTY),
        KeyRef::NegativeInfinity => hasher.write_u64(BEFORE_ALL),
    }
    let hash = hasher.finish();
    let of_all = (hash ^ last).wrapping_mul(SCATTER) & 0xFF << 56;
    LockName(of_all | hash & !(0xFF << 56 | 0xFF << LAST_AT) | last << LAST_AT)
}

/// Sets the names of tables apart from those of keys.
const TABLES: u64 = 0x7461_626C_6573_2121;

/// The name of a table as a whole, or of the volume.
#[inline]
pub(crate) fn intent_name(seed: u64, entry: u32) -> LockName {
    let mut hasher = FixedState::with_seed(seed ^ TABLES).build_hasher();
    hasher.write_u64(TABLES);
    hasher.write_u32(entry);
    LockName(hasher.finish())
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_depend_on_seed_table_and_key() {
        let mut names = HashSet::new();
        let keys: Vec<Vec<u8>> =
            (0..500u32).map(|key| key.to_be_bytes()[..(key as usize % 5)].to_vec()).collect();
        let keys: HashSet<Vec<u8>> =
            keys.into_iter().chain((0..500u64).map(|key| key.to_be_bytes().to_vec())).collect();
        for seed in 0..4 {
            for table in 0..8 {
                for key in &keys {
                    assert!(names.insert(name(seed, TableId(table), KeyRef::Key(key))));
                }
                assert!(names.insert(name(seed, TableId(table), KeyRef::NegativeInfinity)));
            }
        }
        assert_eq!(name(3, TableId(4), KeyRef::Key(b"k")), name(3, TableId(4), KeyRef::Key(b"k")));
    }

    /// Names by their order, places in large and small tables: none may be worse than the other, whether keys ascend or
    /// have only their last byte in common.
    #[test]
    fn names_and_places_are_spread() {
        type Place = fn(LockName) -> usize;
        let places: [Place; 5] = [
            |name| name.partition(256),
            |name| Places::new(1 << 8, 1).of(name),
            |name| Places::new(1 << 20, 1).of(name) & 0xFF,
            |name| Places::new(1 << 20, 256).of(name) >> 12,
            |name| name.scattered(56),
        ];
        for keys in [0_u64..65_536, 7 << 40..(7 << 40) + 65_536] {
            for turned in [0, 8] {
                for place in places {
                    let mut counts = [0u32; 256];
                    for key in keys.clone() {
                        let key = key.rotate_left(turned);
                        counts[place(name(7, TableId(16), KeyRef::Key(&key.to_be_bytes())))] += 1;
                    }
                    // 256 on average, with a deviation of 16: ten deviations do not happen.
                    assert!(counts.iter().all(|&count| (96..416).contains(&count)), "{counts:?}");
                }
            }
        }
    }

    /// Once places were chosen by other bits of the name than partitions are, and each partition had names in every
    /// bucket.
    #[test]
    fn partitions_share_no_places_but_where_one_meets_the_next() {
        const PLACES: usize = 1 << 12;
        for partitions in [2, 3, 8, 64, 256] {
            let places = Places::new(PLACES, partitions);
            let mut users = vec![HashSet::new(); PLACES];
            for key in 0..100_000_u64 {
                let name = name(7, TableId(16), KeyRef::Key(&key.to_be_bytes()));
                users[places.of(name)].insert(name.partition(partitions));
            }
            let shared = users.iter().filter(|partitions| partitions.len() > 1).count();
            let borders = if partitions.is_power_of_two() { 0 } else { partitions - 1 };
            assert!(shared <= borders, "{shared} places are shared by {partitions}");
            assert!(users.iter().filter(|partitions| !partitions.is_empty()).count() > PLACES * 9 / 10);
        }
    }

    /// No two of them share a cache line that has two places, or a pair of such lines, and all are within 256 places.
    #[test]
    fn neighbours_are_near_each_other_and_not_too_near() {
        let places = Places::new(1 << 20, 1);
        let place = |key: u64| places.of(name(7, TableId(16), KeyRef::Key(&key.to_be_bytes())));
        let first = place(0x1200);
        let all: HashSet<usize> = (0x1200..0x1300).map(place).collect();
        assert_eq!(all.len(), 256);
        assert!(all.iter().all(|place| place >> 8 == first >> 8));
        for key in 0x1200..0x123F {
            assert_eq!((place(key) + 4) & 0xFF, place(key + 1) & 0xFF);
        }
        assert_ne!(place(0x1300) >> 8, first >> 8);
        // What is locked at once is not crowded together where there are fewer places.
        let few: HashSet<usize> = (0..64_u64)
            .map(|key| name(7, TableId(16), KeyRef::Key(&key.to_be_bytes())).scattered(57))
            .collect();
        assert!(few.len() >= 40, "{}", few.len());
    }
}
