//! Where the names of keys lie, as a caller wants it: keys that are locked together in one part of the lock table.
//!
//! Ren, Faleiro, Abadi 2016, §3.3, leave it to the application which thread looks after the locks of which records.
//! Here a partition is a range of names: a partitioner moves the name of a key, a hash, into the range of its
//! partition. So the order of names is the order of partitions, for everybody, and nothing else has to know of
//! partitioners.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use foreshore_base::TableId;
use foreshore_env::sync::Arc;

use crate::error::LockError;
use crate::name::{KeyRef, LockName};

/// The partition of a key.
type PartitionOf = dyn Fn(&[u8]) -> usize + Send + Sync;

/// Says in which partition a key lies.
#[derive(Clone)]
pub struct Partitioner {
    partitions: usize,
    partition: Arc<PartitionOf>,
}

impl Partitioner {
    /// So many partitions, at least 1; what `partition` says is taken modulo their number. It has to say the same of a
    /// key each time, and must not wait: it is asked under latches. If it panics, the key has no name, and whoever
    /// wants a lock on it is told so ([`LockError::Partitioner`]).
    pub fn new(partitions: usize, partition: impl Fn(&[u8]) -> usize + Send + Sync + 'static) -> Partitioner {
        Partitioner { partitions: partitions.max(1), partition: Arc::new(partition) }
    }

    /// The name of a key. The tables that the database keeps for itself, and what lies below all keys of a table, stay
    /// where their hash is.
    #[inline]
    pub(crate) fn place(
        &self,
        name: LockName,
        table: TableId,
        key: KeyRef<'_>,
    ) -> Result<LockName, LockError> {
        match key {
            KeyRef::Key(key) if table >= TableId::FIRST_USER => {
                // LOCK-19: its panic must not pass through whoever asks, under latches and in the middle of changes.
                let said = catch_unwind(AssertUnwindSafe(|| (self.partition)(key)));
                let partition = said.map_err(|panic| LockError::Partitioner(text_of(panic)))?;
                Ok(in_range(name, partition % self.partitions, self.partitions))
            }
            _ => Ok(name),
        }
    }
}

/// What a panic has said. The panic is forgotten: its own destructor may be the next.
#[cold]
fn text_of(panic: Box<dyn Any + Send>) -> Box<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text =
        text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text").into();
    std::mem::forget(panic);
    text
}

/// The name in the range of a partition that it is in its range of all.
fn in_range(name: LockName, partition: usize, partitions: usize) -> LockName {
    let first = |partition: usize| ((partition as u128) << 64).div_ceil(partitions as u128);
    let width = first(partition + 1) - first(partition);
    let offset = (u128::from(name.bits()) * width) >> 64;
    LockName::from_bits((first(partition) + offset) as u64)
}

impl fmt::Debug for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitioner").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

impl PartialEq for Partitioner {
    fn eq(&self, other: &Partitioner) -> bool {
        Arc::ptr_eq(&self.partition, &other.partition)
    }
}

impl Eq for Partitioner {}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_lie_in_the_ranges_of_their_partitions_and_stay_apart() {
        for partitions in [1, 2, 3, 5, 7, 64, 255, 256] {
            for partition in 0..partitions {
                let mut last = None;
                for bits in [0, 1 << 20, u64::MAX / 3, u64::MAX / 2, u64::MAX - (1 << 20), u64::MAX] {
                    let name = in_range(LockName::from_bits(bits), partition, partitions);
                    assert_eq!(name.partition(partitions), partition, "{bits} of {partitions}");
                    assert!(last < Some(name.bits()), "names keep their order");
                    last = Some(name.bits());
                }
            }
        }
    }

    #[test]
    fn keys_of_users_are_placed_and_nothing_else() {
        let partitioner = Partitioner::new(4, |key| usize::from(key[0]) + 4);
        let name = LockName::from_bits(u64::MAX / 7);
        for first in 0..4 {
            let placed = partitioner.place(name, TableId::FIRST_USER, KeyRef::Key(&[first])).unwrap();
            assert_eq!(placed.partition(4), usize::from(first));
        }
        assert_eq!(partitioner.place(name, TableId::CATALOG, KeyRef::Key(&[3])).unwrap(), name);
        assert_eq!(partitioner.place(name, TableId::FIRST_USER, KeyRef::NegativeInfinity).unwrap(), name);
    }

    /// LOCK-19.
    #[test]
    fn a_panic_leaves_its_key_without_a_name_and_says_why() {
        let partitioner = Partitioner::new(4, |key| match key[0] {
            0 => panic!("a fixed text"),
            1 => panic!("a text about {key:?}"),
            2 => std::panic::panic_any(7),
            _ => 3,
        });
        let name = LockName::from_bits(u64::MAX / 7);
        let place = |first| partitioner.place(name, TableId::FIRST_USER, KeyRef::Key(&[first]));
        for (first, said) in [(0, "a fixed text"), (1, "a text about [1]"), (2, "no text")] {
            match place(first).unwrap_err() {
                LockError::Partitioner(text) => assert_eq!(&*text, said),
                other => panic!("{other}"),
            }
        }
        assert_eq!(place(3).unwrap().partition(4), 3);
    }
}
