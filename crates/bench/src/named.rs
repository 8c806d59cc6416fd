//! Choices by name.

use crate::BenchError;

/// One of a few values, each of which has a name by which it is chosen, on the command line for instance.
pub trait Named: Copy + 'static {
    /// What is chosen, as errors call it.
    const WHAT: &'static str;
    /// All of them, in the order in which errors and the help list them.
    const ALL: &'static [Self];

    /// The name by which it is chosen.
    fn name(self) -> &'static str;

    /// The one of this name.
    ///
    /// # Errors
    /// [`BenchError::Unknown`], with all names that there are.
    fn named(name: &str) -> Result<Self, BenchError> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name).ok_or_else(|| BenchError::Unknown {
            what: Self::WHAT,
            name: name.to_owned(),
            known: Self::ALL.iter().map(|choice| choice.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The one of this name, if it can be chosen in this build.
    ///
    /// # Errors
    /// As [`Named::named`], and if it cannot.
    fn chosen(name: &str) -> Result<Self, BenchError> {
        Self::named(name)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Debug};

    use super::*;
    use crate::{DrawnBy, Durability, EngineKind, Execution, HotPosition, Isolation, LatchMix, LockMix, Mix};

    /// Each is found by its name, and the error lists the names in their order.
    fn check<T: Named + PartialEq + Debug>(expected: &str) {
        for &choice in T::ALL {
            assert_eq!(T::named(choice.name()).unwrap(), choice);
        }
        let names: BTreeSet<&str> = T::ALL.iter().map(|choice| choice.name()).collect();
        assert_eq!(names.len(), T::ALL.len(), "{expected}");
        assert_eq!(T::named("nobody").unwrap_err().to_string(), expected);
    }

    #[test]
    fn every_choice_is_found_by_its_name_and_listed() {
        check::<EngineKind>(
            "there is no engine called \"nobody\"; choose one of: foreshore, btreemap, redb, fjall, lmdb, sqlite, rocksdb, bdb",
        );
        check::<Durability>("there is no durability called \"nobody\"; choose one of: sync, pipelined, lazy");
        check::<Isolation>(
            "there is no isolation called \"nobody\"; choose one of: serializable, repeatable-read, read-committed",
        );
        check::<Execution>(
            "there is no execution called \"nobody\"; choose one of: dynamic, planned, reconnaissance, partitioned, \
             partitioned-store",
        );
        check::<DrawnBy>("there is no drawn-by called \"nobody\"; choose one of: clients, engine");
        check::<Mix>(
            "there is no mix called \"nobody\"; choose one of: full, neworder-payment, neworder, payment",
        );
        check::<LockMix>("there is no mix called \"nobody\"; choose one of: s, x, mixed");
        check::<LatchMix>(
            "there is no mix called \"nobody\"; choose one of: read-only, write-only, mixed, contended",
        );
        check::<HotPosition>("there is no position called \"nobody\"; choose one of: first, last, random");
    }
}
