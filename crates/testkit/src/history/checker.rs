//! The replay.

use std::{collections::BTreeMap, fmt::Debug, ops::Bound};

use super::{Anomaly, Entry, Op, Position, State};

/// Runs all entries in order of their positions.
pub(super) fn replay(entries: &[Entry], mut state: State) -> Result<State, Anomaly> {
    let mut placed: BTreeMap<u64, &Entry> = BTreeMap::new();
    let mut readers: Vec<Reader<'_>> = Vec::new();
    for entry in entries {
        match entry.position {
            Position::At(place) => {
                if let Some(other) = placed.insert(place, entry) {
                    return Err(anomaly(
                        entry,
                        0,
                        &entry.position,
                        &format!("this place to {}", other.label),
                    ));
                }
            }
            Position::Between { after, before } => {
                readers.push(Reader { entry, after, before, refusal: None });
            }
        }
    }
    readers.sort_by_key(|reader| reader.after);
    let mut readers = readers.into_iter().peekable();
    let mut open: Vec<Reader<'_>> = Vec::new();
    let mut places = placed.into_iter().peekable();
    // The state that holds now holds from the last place that ran up to just before the next one.
    let mut from = 0;
    loop {
        let until = places.peek().map_or(u64::MAX, |(place, _)| place.saturating_sub(1));
        while let Some(reader) = readers.next_if(|reader| reader.after <= until) {
            open.push(reader);
        }
        look(&mut open, &mut state, from, until)?;
        let Some((place, entry)) = places.next() else { break };
        run(entry, &mut state, true)?;
        from = place;
    }
    Ok(state)
}

/// A reader that has not yet met a state that explains it.
struct Reader<'a> {
    entry: &'a Entry,
    after: u64,
    before: u64,
    refusal: Option<Anomaly>,
}

/// Tries all open readers on the state that holds in `from..=until`.
fn look(open: &mut Vec<Reader<'_>>, state: &mut State, from: u64, until: u64) -> Result<(), Anomaly> {
    let mut waiting = Vec::with_capacity(open.len());
    for mut reader in open.drain(..) {
        if reader.before >= from {
            match run(reader.entry, state, false) {
                Ok(()) => continue,
                Err(refusal) => reader.refusal = Some(refusal),
            }
        }
        if reader.before > until {
            waiting.push(reader);
        } else {
            return Err(reader.refusal.unwrap_or_else(|| {
                anomaly(reader.entry, 0, &reader.entry.position, "no state for an empty interval")
            }));
        }
    }
    *open = waiting;
    Ok(())
}

/// Runs one transaction; its changes stay if `keep`.
fn run(entry: &Entry, state: &mut State, keep: bool) -> Result<(), Anomaly> {
    let mut run = Run { entry, state, undo: Vec::new(), savepoints: Vec::new() };
    let result = entry.ops.iter().enumerate().try_for_each(|(index, op)| run.step(index, op));
    if !keep || result.is_err() {
        run.undo_to(0);
    }
    result
}

/// A table and key, and the value that stood there.
type Change = ((u32, Vec<u8>), Option<Vec<u8>>);

/// A transaction in the middle of its replay.
struct Run<'a> {
    entry: &'a Entry,
    state: &'a mut State,
    /// What each change replaced, oldest first.
    undo: Vec<Change>,
    /// Lengths of `undo`; `None` for those that are gone.
    savepoints: Vec<Option<usize>>,
}

impl Run<'_> {
    fn step(&mut self, index: usize, op: &Op) -> Result<(), Anomaly> {
        match op {
            Op::Get { table, key, result } => {
                let expected = self.state.get(&(*table, key.clone())).cloned();
                self.expect(index, op, result, &expected)
            }
            Op::Contains { table, key, present } => {
                self.expect(index, op, present, &self.contains(*table, key))
            }
            Op::Scan { table, low, high, descending, complete, result } => {
                let most = if *complete { usize::MAX } else { result.len() };
                let expected = self.first_of_scan(*table, (low, high), *descending, most);
                self.expect(index, op, result, &expected)
            }
            Op::Keys { table, low, high, descending, complete, result } => {
                let most = if *complete { usize::MAX } else { result.len() };
                let expected = self.first_of_scan(*table, (low, high), *descending, most);
                let expected = expected.into_iter().map(|(key, _)| key).collect();
                self.expect(index, op, result, &expected)
            }
            Op::Skip { table, low, high, descending, complete, result } => {
                let mut there = self.scan(*table, low, high);
                if *descending {
                    there.reverse();
                }
                let last = there.iter().rposition(|entry| result.contains(entry));
                if !*complete {
                    there.truncate(last.map_or(0, |last| last + 1));
                }
                // Who else had locked what is a matter of time; its own is in nobody's way.
                there.retain(|entry| result.contains(entry) || self.has_written(*table, &entry.0));
                self.expect(index, op, result, &there)
            }
            Op::Insert { table, key, value, inserted } => {
                let absent = !self.contains(*table, key);
                self.expect(index, op, inserted, &absent)?;
                if absent {
                    self.set(*table, key, Some(value));
                }
                Ok(())
            }
            Op::Put { table, key, value, existed } => {
                let present = self.contains(*table, key);
                self.expect(index, op, existed, &present)?;
                self.set(*table, key, Some(value));
                Ok(())
            }
            Op::Update { table, key, value, updated } => {
                let present = self.contains(*table, key);
                self.expect(index, op, updated, &present)?;
                if present {
                    self.set(*table, key, Some(value));
                }
                Ok(())
            }
            Op::Delete { table, key, existed } => {
                let present = self.contains(*table, key);
                self.expect(index, op, existed, &present)?;
                self.set(*table, key, None);
                Ok(())
            }
            Op::RemoveRange { table, low, high, most, removed } => {
                let mut there = self.scan(*table, low, high);
                there.truncate(usize::try_from(*most).unwrap_or(usize::MAX));
                self.expect(index, op, removed, &(there.len() as u64))?;
                there.iter().for_each(|(key, _)| self.set(*table, key, None));
                Ok(())
            }
            Op::Savepoint => {
                self.savepoints.push(Some(self.undo.len()));
                Ok(())
            }
            Op::RollbackTo(savepoint) => match self.savepoints.get(*savepoint) {
                Some(&Some(length)) => {
                    self.undo_to(length);
                    self.savepoints[savepoint + 1..].fill(None);
                    Ok(())
                }
                _ => Err(anomaly(self.entry, index, op, "no such savepoint")),
            },
            Op::Release(savepoint) => match self.savepoints.get(*savepoint) {
                Some(Some(_)) => {
                    self.savepoints[*savepoint..].fill(None);
                    Ok(())
                }
                _ => Err(anomaly(self.entry, index, op, "no such savepoint")),
            },
        }
    }

    fn contains(&self, table: u32, key: &[u8]) -> bool {
        self.state.contains_key(&(table, key.to_vec()))
    }

    fn has_written(&self, table: u32, key: &[u8]) -> bool {
        self.undo.iter().any(|((of, written), _)| *of == table && written == key)
    }

    fn first_of_scan(
        &self,
        table: u32,
        (low, high): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
        descending: bool,
        most: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut entries = self.scan(table, low, high);
        if descending {
            entries.reverse();
        }
        entries.truncate(most);
        entries
    }

    fn scan(&self, table: u32, low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let starts = |key: &Vec<u8>| match low {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        };
        let goes_on = |key: &Vec<u8>| match high {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        };
        let from = match low {
            Bound::Included(low) | Bound::Excluded(low) => low.clone(),
            Bound::Unbounded => Vec::new(),
        };
        self.state
            .range((table, from)..)
            .take_while(|((of, key), _)| *of == table && goes_on(key))
            .filter(|((_, key), _)| starts(key))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }

    fn set(&mut self, table: u32, key: &[u8], value: Option<&Vec<u8>>) {
        let name = (table, key.to_vec());
        let before = match value {
            Some(value) => self.state.insert(name.clone(), value.clone()),
            None => self.state.remove(&name),
        };
        self.undo.push((name, before));
    }

    fn undo_to(&mut self, length: usize) {
        for (name, before) in self.undo.drain(length..).rev() {
            match before {
                Some(value) => _ = self.state.insert(name, value),
                None => _ = self.state.remove(&name),
            }
        }
    }

    fn expect<T: PartialEq + Debug>(
        &self,
        index: usize,
        op: &Op,
        found: &T,
        expected: &T,
    ) -> Result<(), Anomaly> {
        if found == expected { Ok(()) } else { Err(anomaly(self.entry, index, op, &format!("{expected:?}"))) }
    }
}

#[cold]
fn anomaly(entry: &Entry, index: usize, op: &dyn Debug, expected: &str) -> Anomaly {
    Anomaly {
        label: entry.label.clone(),
        position: entry.position,
        index,
        op: shortened(format!("{op:?}")),
        expected: shortened(expected.to_owned()),
    }
}

/// Long values say no more than how they begin.
fn shortened(mut text: String) -> String {
    /// Characters.
    const MOST: usize = 400;
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
