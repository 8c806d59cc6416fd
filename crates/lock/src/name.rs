//! Lock names: what a lock is on, as 64 bits.

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
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct LockName(u64);

impl LockName {
    /// The hash. All of its bits are equally good.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Which of 2⁶⁴⁻ˢʰⁱᶠᵗ places is this name's: its upper bits.
    #[inline]
    pub(crate) fn place(self, shift: u32) -> usize {
        // With one place the shift is 64, which `checked_shr` refuses.
        self.0.checked_shr(shift).unwrap_or(0) as usize
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

/// Stands for the missing bytes of [`KeyRef::NegativeInfinity`]; a key's hash takes another way, so that none is equal
/// to it by construction of its bytes.
const BEFORE_ALL: u64 = 0x6265_666F_7265_2121;

/// Spreads table ids over the seeds, so that equal keys of two tables have unrelated names.
const TABLE_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The name of a key in a database with this seed.
#[inline]
pub(crate) fn name(seed: u64, table: TableId, key: KeyRef<'_>) -> LockName {
    let table = (u64::from(table.0) + 1).wrapping_mul(TABLE_FACTOR);
    let mut hasher = FixedState::with_seed(seed ^ table).build_hasher();
    match key {
        KeyRef::Key(bytes) => hasher.write(bytes),
        KeyRef::NegativeInfinity => hasher.write_u64(BEFORE_ALL),
    }
    LockName(hasher.finish())
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

    /// Buckets take the upper bits, private tables the lower ones: neither may be worse than the other.
    #[test]
    fn ascending_keys_spread_over_both_ends_of_the_name() {
        for shift in [0, 56] {
            let mut counts = [0u32; 256];
            for key in 0..65_536u64 {
                let name = name(7, TableId(16), KeyRef::Key(&key.to_be_bytes()));
                counts[(name.bits() >> shift) as usize & 255] += 1;
            }
            // 256 on average, with a deviation of 16: ten deviations do not happen.
            assert!(counts.iter().all(|&count| (96..416).contains(&count)), "{counts:?}");
        }
    }
}
