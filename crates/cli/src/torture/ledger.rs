//! What each thread of the child has committed, written by the transactions themselves.

use std::ops::Bound;

use foreshore_bench::{Attempts, Engine, EngineTxn, Failure, Order, Outcome, TableIndex, Workload};

/// The ledger's table.
pub(crate) const NAME: &str = "torture ledger";

/// One thread's page: how many transactions it has committed, of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// In all.
    pub(crate) commits: u64,
    /// By kind.
    pub(crate) kinds: Vec<u64>,
}

/// The tables of a workload, and the ledger after them.
pub(crate) fn tables(workload: &dyn Workload) -> Vec<String> {
    let mut tables = workload.tables();
    tables.push(NAME.to_owned());
    tables
}

/// The ledger's place among them.
pub(crate) fn table(workload: &dyn Workload) -> TableIndex {
    TableIndex(workload.tables().len() as u16)
}

impl Page {
    pub(crate) fn empty(workload: &dyn Workload) -> Page {
        Page { commits: 0, kinds: vec![0; workload.kinds().len()] }
    }

    pub(crate) fn count(&mut self, kind: usize) {
        self.commits += 1;
        self.kinds[kind] += 1;
    }

    fn encode(&self) -> Vec<u8> {
        [self.commits].iter().chain(&self.kinds).flat_map(|count| count.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8], kinds: usize) -> Option<Page> {
        let mut counts = bytes.chunks_exact(8).map(|chunk| chunk.try_into().map(u64::from_le_bytes));
        let commits = counts.next()?.ok()?;
        let kinds: Vec<u64> =
            (bytes.len() == 8 * (kinds + 1)).then(|| counts.collect::<Result<_, _>>().ok())??;
        (kinds.iter().sum::<u64>() == commits).then_some(Page { commits, kinds })
    }

    /// The key of a thread's page.
    pub(crate) fn key(thread: usize) -> [u8; 4] {
        (thread as u32).to_be_bytes()
    }

    /// Writes a thread's page, as a part of the transaction that it counts.
    pub(crate) fn write(
        &self,
        txn: &mut dyn EngineTxn,
        table: TableIndex,
        thread: usize,
    ) -> Result<(), Failure> {
        txn.put(table, &Page::key(thread), &self.encode())
    }
}

/// All pages; an empty one for a thread that has committed nothing.
pub(crate) fn read(
    engine: &dyn Engine,
    workload: &dyn Workload,
    threads: usize,
) -> Result<Vec<Page>, Failure> {
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let outcome = engine.transact(&mut Attempts::default(), &mut |txn| {
        rows.clear();
        let all = (Bound::Unbounded, Bound::Unbounded);
        txn.scan(table(workload), all, Order::Ascending, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(())
    })?;
    if !matches!(outcome, Outcome::Committed) {
        return Err(Failure::fatal("the ledger could not be read"));
    }
    let mut pages = vec![Page::empty(workload); threads];
    for (key, value) in rows {
        let thread = key.as_slice().try_into().map(u32::from_be_bytes).ok();
        let place = thread.and_then(|thread| pages.get_mut(thread as usize));
        match (place, Page::decode(&value, workload.kinds().len())) {
            (Some(place), Some(page)) => *place = page,
            _ => {
                let (key, value) = (key.escape_ascii(), value.escape_ascii());
                return Err(Failure::fatal(format!(
                    "the ledger has a row that nobody wrote: {key} = {value}"
                )));
            }
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_and_damage_is_seen() {
        let page = Page { commits: 5, kinds: vec![2, 3] };
        assert_eq!(Page::decode(&page.encode(), 2), Some(page.clone()));
        assert_eq!(Page::decode(&page.encode(), 1), None);
        assert_eq!(Page::decode(&page.encode()[1..], 2), None);
        assert_eq!(Page::decode(&[], 0), None);
        let torn = Page { commits: 4, kinds: vec![2, 3] };
        assert_eq!(Page::decode(&torn.encode(), 2), None, "the kinds add up to the whole");
    }
}
