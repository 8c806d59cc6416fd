//! Which lines are hot, and what lies in them.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Directory, LINE_SHIFT};

/// Elements that have a name.
pub(super) struct Named {
    bytes: usize,
    each: usize,
    name: &'static str,
}

impl Directory {
    /// Elements of so many bytes lie there. What was known of the place is forgotten.
    pub(in crate::sim) fn name(&mut self, place: usize, bytes: usize, each: usize, name: &'static str) {
        self.named.insert(place, Named { bytes, each: each.max(1), name });
    }

    /// What lies in a line, as far as is known: the element with which it begins, or the first that begins in it.
    fn content(&self, begin: usize) -> Option<String> {
        let end = begin + (1 << LINE_SHIFT);
        let (place, named) = self.named.range(..end).next_back()?;
        let offset = begin.saturating_sub(*place);
        if offset >= named.bytes {
            return None;
        }
        let one = named.bytes <= named.each;
        Some(if one { named.name.to_owned() } else { format!("{} {}", named.name, offset / named.each) })
    }

    /// The lines that cores waited for most, of those that moved: how often, picoseconds waited, and the places in the
    /// source where they moved, by count.
    pub(in crate::sim) fn hottest(&self, most: usize) -> Vec<HotLine> {
        let lines = &self.table.lines;
        let mut numbers: Vec<usize> = (0..lines.len()).filter(|&number| lines[number].moves > 0).collect();
        numbers.sort_unstable_by_key(|&number| (Reverse(lines[number].waited), number));
        numbers.truncate(most);
        numbers
            .into_iter()
            .map(|number| {
                let line = &lines[number];
                let mut places: BTreeMap<String, u64> = BTreeMap::new();
                for (at, count) in self.table.places(number) {
                    *places.entry(format!("{}:{}", at.file(), at.line())).or_default() += count;
                }
                let mut places: Vec<(String, u64)> = places.into_iter().collect();
                places.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                let name = self.content(self.table.address(number));
                HotLine { name, moves: u64::from(line.moves), waited: line.waited, places }
            })
            .collect()
    }
}

/// A line of memory that cores waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotLine {
    /// What lies there, if somebody has said so (`hint::name`).
    pub name: Option<String>,
    /// How often it came from memory or from another core.
    pub moves: u64,
    /// Picoseconds that cores waited for it: for its way to them, and where an atomic change or a fence waits for a
    /// core's stores, for the one whose line comes last.
    pub waited: u64,
    /// Where in the source it was accessed when it moved, and how often: the most frequent first.
    pub places: Vec<(String, u64)>,
}
