//! Hot records by number: exactly so many in each transaction, before the others, after them or anywhere.

use super::YcsbOptions;
use crate::{
    named::Named,
    random::{Distribution, Random},
};

/// How many of a transaction's records are hot, and when it comes to them (Ren et al. 2016, §4.1 and appendix B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotRecords {
    /// How many; all different.
    pub count: u32,
    /// When.
    pub position: HotPosition,
}

/// When a transaction comes to its hot records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotPosition {
    /// Before the others.
    First,
    /// After them.
    Last,
    /// As it comes.
    Random,
}

impl Named for HotPosition {
    const WHAT: &'static str = "position";
    const ALL: &'static [HotPosition] = &[HotPosition::First, HotPosition::Last, HotPosition::Random];

    fn name(self) -> &'static str {
        match self {
            HotPosition::First => "first",
            HotPosition::Last => "last",
            HotPosition::Random => "random",
        }
    }
}

/// Which of the records of a transaction are hot, one after the other.
pub(super) struct HotTurns {
    /// Hot ones and all that are still to come.
    hot: u64,
    all: u64,
    position: HotPosition,
    /// Records of the hot set, and of all.
    set: u64,
    records: u64,
}

impl HotTurns {
    pub(super) fn of(options: &YcsbOptions) -> Option<HotTurns> {
        let (Some(hot), Distribution::HotSet { records: set, .. }) = (options.hot, options.distribution)
        else {
            return None;
        };
        let (hot, position) = (u64::from(hot.count), hot.position);
        Some(HotTurns { hot, all: options.operations.into(), position, set, records: options.records })
    }

    /// The next record, of this one of so many partitions; `before` are those that the transaction has already.
    pub(super) fn choose(
        &mut self,
        (partition, partitions): (u64, u64),
        before: &[(u64, bool)],
        random: &mut Random,
    ) -> u64 {
        let hot = match self.position {
            HotPosition::First => self.hot > 0,
            HotPosition::Last => self.all <= self.hot,
            // Every order is as likely as any other.
            HotPosition::Random => random.below(self.all) < self.hot,
        };
        self.all -= 1;
        // The records of a partition are every so-many-th one: how many of the first `end` of all are its own.
        let own = |end: u64| (end - partition).div_ceil(partitions);
        let (set, all) = (own(self.set), own(self.records));
        if !hot {
            return partition + partitions * (set + random.below(all - set));
        }
        self.hot -= 1;
        // Each partition has as many as are drawn, so one that is not there yet is found soon.
        let mut number = random.below(set);
        while before.iter().any(|(there, _)| *there == partition + partitions * number) {
            number = (number + 1) % set;
        }
        partition + partitions * number
    }
}
