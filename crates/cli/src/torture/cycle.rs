//! A ring of records, as FoundationDB's Cycle test has it: each names its successor, and a transaction swaps the order
//! of two neighbours, which changes three records. Whatever transactions meet, the ring stays one ring; a torn or lost
//! update breaks it. Beside it, records of up to 40 kB come and go, whose bytes tell whether they are whole.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_bench::{
    Check, Engine, EngineTxn, Failure, Loader, Order, Stop, TableIndex, Worker, Workload, visit_all,
};
use foreshore_env::random::Xorshift;

/// Records of the ring.
const NODES: u32 = 2000;
/// Keys under which the long records are.
const BLOBS: u32 = 300;
/// One more than the longest of them in bytes.
const MOST_BLOB_BYTES: u64 = 40_000;

const RING: TableIndex = TableIndex(0);
const BLOB: TableIndex = TableIndex(1);

/// The workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle;

impl Workload for Cycle {
    fn name(&self) -> &'static str {
        "cycle"
    }

    fn tables(&self) -> Vec<String> {
        vec!["ring".to_owned(), "blobs".to_owned()]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["cycle"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([("nodes".to_owned(), NODES.into())])
    }

    fn load_parts(&self) -> u64 {
        1
    }

    fn load_rows(&self) -> u64 {
        u64::from(NODES)
    }

    fn load_part(&self, _part: u64, _seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        for node in 0..NODES {
            loader.row(RING, &key(node), &key((node + 1) % NODES))?;
        }
        loader.flush()
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        let random = Xorshift::new(seed.wrapping_add(thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Box::new(CycleWorker { random, start: 0, blob: (0, None), row: Vec::new() })
    }

    fn check(&self, engine: &dyn Engine, _commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        Ok(vec![check_ring(engine)?, check_blobs(engine)?])
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn number(bytes: &[u8]) -> Result<u32, Failure> {
    match bytes.try_into() {
        Ok(bytes) => Ok(u32::from_be_bytes(bytes)),
        Err(_) => Err(Failure::fatal(format!("{} is not a link", bytes.escape_ascii()))),
    }
}

/// Going from node to node comes back to the first after all of them, not before.
fn check_ring(engine: &dyn Engine) -> Result<Check, Failure> {
    let mut links = BTreeMap::new();
    visit_all(engine, RING, b"", &mut |from, to| {
        links.insert(number(from)?, number(to)?);
        Ok(())
    })?;
    let mut check = Check::new("the ring is one ring of all nodes");
    let (mut node, mut steps) = (0, 0);
    while let Some(next) = links.remove(&node) {
        node = next;
        steps += 1;
    }
    check.expect(steps == NODES && node == 0 && links.is_empty(), || {
        format!("node {node} after {steps} of {NODES} steps, {} nodes left over", links.len())
    });
    Ok(check)
}

fn check_blobs(engine: &dyn Engine) -> Result<Check, Failure> {
    let mut check = Check::new("the long records are whole");
    visit_all(engine, BLOB, b"", &mut |key, row| {
        let whole = blob_seed(row).is_some_and(|seed| blob(seed) == row);
        check.expect(whole, || format!("record {} of {} bytes is not", key.escape_ascii(), row.len()));
        Ok(())
    })?;
    Ok(check)
}

fn blob_seed(row: &[u8]) -> Option<u64> {
    row.first_chunk().map(|seed| u64::from_le_bytes(*seed))
}

/// The long record of a seed: the seed, and bytes that follow from it. Every other one is short.
fn blob(seed: u64) -> Vec<u8> {
    let mut random = Xorshift::new(seed);
    let most = if random.below(2) == 0 { 200 } else { MOST_BLOB_BYTES };
    let length = random.below(most) as usize;
    let mut row = seed.to_le_bytes().to_vec();
    while row.len() < length {
        row.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    row
}

struct CycleWorker {
    random: Xorshift,
    /// Where the swap begins.
    start: u32,
    /// Which long record is written, and with what; `None`: it is removed.
    blob: (u32, Option<u64>),
    row: Vec<u8>,
}

impl CycleWorker {
    fn link(&mut self, txn: &mut dyn EngineTxn, node: u32) -> Result<u32, Failure> {
        if txn.get_for_update(RING, &key(node), &mut self.row)? {
            number(&self.row)
        } else {
            Err(Failure::fatal(format!("the ring has lost node {node}")))
        }
    }
}

impl Worker for CycleWorker {
    fn next(&mut self) -> usize {
        self.start = self.random.below(u64::from(NODES)) as u32;
        let place = self.random.below(u64::from(BLOBS)) as u32;
        let removed = self.random.below(4) == 0;
        self.blob = (place, (!removed).then(|| self.random.next_u64()));
        0
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        // a → b → c → d becomes a → c → b → d.
        let a = self.start;
        let b = self.link(txn, a)?;
        let c = self.link(txn, b)?;
        let d = self.link(txn, c)?;
        for (from, to) in [(a, c), (c, b), (b, d)] {
            txn.put(RING, &key(from), &key(to))?;
        }
        let (place, seed) = self.blob;
        match seed {
            Some(seed) => txn.put(BLOB, &key(place), &blob(seed))?,
            None => _ = txn.delete(BLOB, &key(place))?,
        }
        // A short scan now and then, so that gaps are locked too.
        if place % 16 == 0 {
            let mut seen = 0;
            let low = key(place);
            let range = (Bound::Included(&low[..]), Bound::Unbounded);
            txn.scan(BLOB, range, Order::Ascending, &mut |_, _| {
                seen += 1;
                if seen < 5 { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use foreshore_bench::{Attempts, Silent, engines::BTreeMapEngine, load};

    use super::*;

    fn worked(transactions: u32) -> BTreeMapEngine {
        let engine = BTreeMapEngine::new(2);
        load(&engine, &Cycle, 1, 1, &Silent).unwrap();
        let mut worker = Cycle.worker(0, 1, 1);
        for _ in 0..transactions {
            worker.next();
            engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
        }
        engine
    }

    fn write(engine: &BTreeMapEngine, table: TableIndex, place: u32, row: &[u8]) {
        engine.transact(&mut Attempts::default(), &mut |txn| Ok(txn.put(table, &key(place), row)?)).unwrap();
    }

    fn holds(engine: &BTreeMapEngine) -> [bool; 2] {
        let checks = Cycle.check(engine, None).unwrap();
        [checks[0].holds, checks[1].holds]
    }

    #[test]
    fn the_ring_stays_a_ring_and_damage_is_seen() {
        let engine = worked(1000);
        assert_eq!(holds(&engine), [true, true]);
        let checks = Cycle.check(&engine, None).unwrap();
        assert!(checks[1].examined > 100, "long records were written");

        write(&engine, RING, 0, &key(0));
        assert_eq!(holds(&engine), [false, true], "a ring of one beside the others");

        let engine = worked(1000);
        let mut torn = blob(7);
        assert!(torn.len() > 8);
        *torn.last_mut().unwrap() ^= 1;
        write(&engine, BLOB, 1, &torn);
        assert_eq!(holds(&engine), [true, false]);
    }
}
