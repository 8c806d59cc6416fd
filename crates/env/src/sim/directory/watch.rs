//! Cores that sleep while they spin, until a line moves.

use super::{Directory, LineNumber};
use crate::sim::arena;

impl Directory {
    /// The line that the core looked at, if its last access was one of many alike: a load that hit again, and nothing
    /// else in the time that it took.
    pub(in crate::sim) fn looked_at(&self, core: usize, took: u64) -> Option<LineNumber> {
        let pipeline = &self.pipelines[core];
        if took != pipeline.again || pipeline.shadow > 0 || pipeline.line == u32::MAX {
            return None;
        }
        let line = pipeline.line as LineNumber;
        let core = self.cache_of(core);
        let has = self.table.lines[line].owner == core as u16 || self.table.shares(line, core);
        has.then_some(line)
    }

    /// The core sleeps until this line moves.
    pub(in crate::sim) fn watch(&mut self, core: usize, number: LineNumber) {
        self.table.lines[number].watched = true;
        arena::outside(|| self.watchers.entry(number).or_default().push(core));
    }

    /// The core no longer sleeps for this line.
    pub(in crate::sim) fn unwatch(&mut self, core: usize, number: LineNumber) {
        if let Some(watchers) = self.watchers.get_mut(&number) {
            watchers.retain(|&other| other != core);
            if watchers.is_empty() {
                self.watchers.remove(&number);
                self.table.lines[number].watched = false;
            }
        }
    }

    /// Cores that sleep for a line that has moved since, if there are any: they are to be roused.
    #[inline]
    pub(in crate::sim) fn disturbed(&mut self) -> Option<Vec<usize>> {
        let number = self.moved.pop()?;
        self.table.lines[number].watched = false;
        Some(self.watchers.remove(&number).unwrap_or_default())
    }
}
