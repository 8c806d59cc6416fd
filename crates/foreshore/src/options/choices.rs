//! Options whose value is one of a few, each with a name.

use foreshore_txn::{
    DeadlockPolicy, DigestKind, EarlyLockRelease, FreeSpaceKind, IntentLockKind, KeyRangeModes, LatchMode,
    LockTableKind, LogFullPolicy, LogInsert, ReadMode, TransitKind, TranslationKind, VictimPolicy,
};

use crate::{Durability, Execution, Isolation};

/// A type all of whose values have names.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// The values by name.
    const NAMED: &'static [(&'static str, Self)];

    /// The value of that name.
    fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(named, _)| *named == name).map(|(_, value)| *value)
    }

    /// The name of the value.
    fn name(self) -> String {
        let named = Self::NAMED.iter().find(|(_, value)| *value == self);
        named.map_or("unnamed", |(name, _)| *name).to_owned()
    }

    /// All names, for people.
    fn names() -> String {
        let names: Vec<&str> = Self::NAMED.iter().map(|(name, _)| *name).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }
}

impl Choice for DeadlockPolicy {
    const NAMED: &'static [(&'static str, DeadlockPolicy)] = &[
        ("dreadlocks", DeadlockPolicy::Dreadlocks),
        ("dreadlocks_spin", DeadlockPolicy::DreadlocksSpin),
        ("dreadlocks_sleep", DeadlockPolicy::DreadlocksSleep),
        ("dreadlocks_hybrid", DeadlockPolicy::DreadlocksHybrid),
        ("wait_for_graph", DeadlockPolicy::WaitForGraph),
        ("wait_die", DeadlockPolicy::WaitDie),
        ("wound_wait", DeadlockPolicy::WoundWait),
        ("timeout", DeadlockPolicy::Timeout),
        ("no_wait", DeadlockPolicy::NoWait),
    ];
}

impl Choice for Execution {
    const NAMED: &'static [(&'static str, Execution)] =
        &[("dynamic", Execution::Dynamic), ("planned", Execution::Planned)];

    /// Partitioned execution is another call, not an option.
    fn names() -> String {
        "dynamic or planned; for partitioned execution call Plan::submit or Database::serve (foreshore bench, torture: \
         --execution partitioned)"
            .to_owned()
    }
}

impl Choice for DigestKind {
    const NAMED: &'static [(&'static str, DigestKind)] =
        &[("exact", DigestKind::Exact), ("bloom", DigestKind::Bloom)];
}

impl Choice for VictimPolicy {
    const NAMED: &'static [(&'static str, VictimPolicy)] = &[
        ("youngest", VictimPolicy::Youngest),
        ("shortest_pipeline", VictimPolicy::ShortestPipeline),
        ("longest_pipeline", VictimPolicy::LongestPipeline),
    ];
}

impl Choice for EarlyLockRelease {
    const NAMED: &'static [(&'static str, EarlyLockRelease)] = &[
        ("off", EarlyLockRelease::Off),
        ("shared", EarlyLockRelease::Shared),
        ("shared_and_exclusive", EarlyLockRelease::SharedAndExclusive),
    ];
}

impl Choice for TranslationKind {
    const NAMED: &'static [(&'static str, TranslationKind)] = &[
        ("page_table", TranslationKind::PageTable),
        ("cuckoo", TranslationKind::Cuckoo),
        ("bucketed", TranslationKind::Bucketed),
        ("global_mutex", TranslationKind::GlobalMutex),
    ];
}

impl Choice for LockTableKind {
    const NAMED: &'static [(&'static str, LockTableKind)] = &[
        ("latched", LockTableKind::Latched),
        ("staged", LockTableKind::Staged),
        ("global_mutex", LockTableKind::GlobalMutex),
        ("global_mcs", LockTableKind::GlobalMcs),
        ("always_latched", LockTableKind::AlwaysLatched),
    ];
}

impl Choice for LogInsert {
    const NAMED: &'static [(&'static str, LogInsert)] = &[
        ("fetch_add", LogInsert::FetchAdd),
        ("compare_exchange", LogInsert::CompareExchange),
        ("consolidated", LogInsert::Consolidated),
        ("mutex", LogInsert::Mutex),
    ];
}

impl Choice for LogFullPolicy {
    const NAMED: &'static [(&'static str, LogFullPolicy)] =
        &[("throttle", LogFullPolicy::Throttle), ("end_oldest", LogFullPolicy::EndOldest)];
}

impl Choice for TransitKind {
    const NAMED: &'static [(&'static str, TransitKind)] = &[
        ("in_frame", TransitKind::InFrame),
        ("one_list", TransitKind::OneList),
        ("many_lists", TransitKind::ManyLists),
    ];
}

impl Choice for FreeSpaceKind {
    const NAMED: &'static [(&'static str, FreeSpaceKind)] = &[
        ("cached", FreeSpaceKind::Cached),
        ("uncached", FreeSpaceKind::Uncached),
        ("global_mutex", FreeSpaceKind::GlobalMutex),
        ("global_ttas", FreeSpaceKind::GlobalTtas),
        ("global_mcs", FreeSpaceKind::GlobalMcs),
    ];
}

impl Choice for LatchMode {
    const NAMED: &'static [(&'static str, LatchMode)] = &[
        ("hybrid", LatchMode::Hybrid),
        ("optimistic", LatchMode::Optimistic),
        ("always_shared", LatchMode::AlwaysShared),
        ("always_exclusive", LatchMode::AlwaysExclusive),
    ];
}

impl Choice for ReadMode {
    const NAMED: &'static [(&'static str, ReadMode)] =
        &[("locking", ReadMode::Locking), ("hybrid", ReadMode::Hybrid)];
}

impl Choice for KeyRangeModes {
    const NAMED: &'static [(&'static str, KeyRangeModes)] = &[
        ("orthogonal", KeyRangeModes::Orthogonal),
        ("lomet", KeyRangeModes::Lomet),
        ("next_key", KeyRangeModes::NextKey),
    ];
}

impl Choice for IntentLockKind {
    const NAMED: &'static [(&'static str, IntentLockKind)] = &[
        ("lightweight", IntentLockKind::Lightweight),
        ("private", IntentLockKind::Private),
        ("in_table", IntentLockKind::InTable),
        ("inherited", IntentLockKind::Inherited),
    ];
}

impl Choice for Durability {
    const NAMED: &'static [(&'static str, Durability)] =
        &[("sync", Durability::Sync), ("pipelined", Durability::Pipelined), ("lazy", Durability::Lazy)];
}

impl Choice for Isolation {
    const NAMED: &'static [(&'static str, Isolation)] = &[
        ("serializable", Isolation::Serializable),
        ("repeatable_read", Isolation::RepeatableRead),
        ("read_committed", Isolation::ReadCommitted),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_one_name() {
        for policy in DeadlockPolicy::ALL {
            assert_eq!(DeadlockPolicy::named(&policy.name()), Some(policy));
        }
        assert_eq!(DeadlockPolicy::NAMED.len(), DeadlockPolicy::ALL.len());
        for kind in IntentLockKind::ALL {
            assert_eq!(IntentLockKind::named(&kind.name()), Some(kind));
        }
        for mode in ReadMode::ALL {
            assert_eq!(ReadMode::named(&mode.name()), Some(mode));
        }
        for durability in [Durability::Sync, Durability::Pipelined, Durability::Lazy] {
            assert_eq!(Durability::named(&durability.name()), Some(durability));
        }
        for isolation in [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted] {
            assert_eq!(Isolation::named(&isolation.name()), Some(isolation));
        }
        assert_eq!(DigestKind::names(), "exact or bloom");
        assert_eq!(Durability::names(), "sync, pipelined or lazy");
    }
}
