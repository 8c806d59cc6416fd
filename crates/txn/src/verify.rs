//! Checking a whole database: every tree, every page, the log.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{
    Lsn, PageId, PageSet, Result, StorageError, TableId, TxnId, limits::OVERFLOW_CHUNK_BYTES,
};
use foreshore_btree::{
    BTree, Direction, Isolation, LockKind, NoLocks, VerifyReport as TreeReport, long_value_digest,
};
use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_lock::IntentMode;
use foreshore_pages::PageWords;

use crate::{
    catalog::without_locks, core::Core, engine::Engine, error::TxnError, insist::insist, options::Durability,
    records, transaction::Waiting,
};

/// How long a check waits until nobody is writing. A transaction of the caller's own would let it wait for ever.
pub const VERIFY_WAIT: Duration = Duration::from_secs(60);
/// Most problems that a report keeps; the rest is counted.
pub const MAX_PROBLEMS: usize = 1000;

/// Bytes of the key of a long value's chunk: an id, and an index.
const LONG_VALUE_KEY_BYTES: usize = 12;

/// What a check of a database has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// What is wrong, in sentences. Empty for a sound database.
    pub problems: Vec<String>,
    /// Problems beyond [`MAX_PROBLEMS`].
    pub problems_dropped: u64,
    /// User tables.
    pub tables: u64,
    /// What was counted in all trees, the engine's own among them.
    pub trees: TreeReport,
    /// Records in the log.
    pub log_records: u64,
    /// Pages in use that were not come to, because they are damaged or lie behind such a page.
    pub pages_unreachable: u64,
    /// Somebody held locks when the check was over. If no transaction is open, nobody should.
    pub locks_held: bool,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, problem: String) {
        // A bitmap page is asked for each of its pages.
        if self.problems.contains(&problem) {
            return;
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.problems_dropped += 1;
        }
    }

    /// Damage is a finding; any other error ends the check.
    fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ StorageError::Corrupted { .. }) => {
                self.problem(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Checks the database while nobody writes: an S lock on the volume sees to that. Readers, which are let in, leave to
/// others what they would tidy on their way.
pub(crate) fn verify(engine: &Arc<Engine>, wait: Duration) -> Result<VerifyReport, TxnError> {
    if engine.core().prepared.len() > 0 {
        return Err(TxnError::Busy {
            reason: "prepared transactions wait for a decision, and the check would wait for them",
        });
    }
    let core = engine.core();
    let waiting = Waiting { deadline: Instant::now().checked_add(wait), ..Waiting::default() };
    let txn = insist("verify", &waiting, |begin| {
        let mut txn = engine.begin(begin)?;
        txn.session.waiting = waiting.clone();
        txn.session.intent(TableId::VOLUME, IntentMode::S)?;
        Ok(txn)
    })?;
    let (mut report, mut images) = (VerifyReport::default(), Images::new());
    let untidied = core.trees.without_tidying();
    check_trees(core, &mut images, &mut report)?;
    drop(untidied);
    {
        let _end = core.file_end.copy(&core.life)?;
        report.note(core.pool.check_file_end())?;
    }
    check_log(core, images, &mut report)?;
    txn.commit(Durability::Lazy)?;
    report.locks_held = !core.locks.is_empty();
    Ok(report)
}

/// Pages by the record that holds them whole, as they say themselves.
type Images = BTreeMap<Lsn, PageId>;

fn check_trees(core: &Core, images: &mut Images, report: &mut VerifyReport) -> Result<()> {
    let (mut met, mut damaged) = (PageSet::default(), false);
    let tables = core.catalog.all();
    report.tables = tables.len() as u64;
    let long_values = core.long_values();
    let own = [("catalogue", core.catalog.tree()), ("overflow", &long_values)];
    let users = tables.iter().map(|table| (table.name(), table.tree()));
    for (name, tree) in own.into_iter().chain(users) {
        let (mut damage, mut counted) = (Vec::new(), report.trees);
        let mut visit =
            |page, words: &PageWords| check_page(core, name, (page, words), &mut met, images, report);
        tree.examine(&mut counted, &mut visit, &mut |error| damage.push(error))?;
        report.trees = counted;
        damaged |= !damage.is_empty();
        for error in damage {
            report.problem(format!("table {name}: {error}"));
        }
    }
    let mut dropped_values = 0;
    for (table, dropped) in core.catalog.dropped() {
        let mut visit =
            |page, words: &PageWords| check_page(core, "(dropped)", (page, words), &mut met, images, report);
        let remains = BTree::open(&core.trees, table, dropped.root).remains(&mut visit);
        match report.note(remains)? {
            Some(remains) => dropped_values += remains.long_values,
            None => damaged = true,
        }
        if let Some(failure) = dropped.failure {
            report.problem(format!(
                "the pages of the dropped table {:?} ({table}) cannot be freed: {failure}",
                dropped.name
            ));
        }
    }
    if !damaged {
        check_long_values(&long_values, dropped_values, report)?;
    }
    check_free_space(core, &met, damaged, report)
}

/// The chunks of each long value are without gap, and full but for the last one; there are as many long values as
/// records that refer to one, and of the ids and lengths that these say. The long values of a dropped table may be
/// deleted before the records that refer to them, the last chunks first.
fn check_long_values(overflow: &BTree, dropped: u64, report: &mut VerifyReport) -> Result<()> {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = overflow.cursor(whole, Direction::Ascending, LockKind::Shared, Isolation::Serializable);
    // Nobody writes, and nobody else knows of this table.
    let mut session = NoLocks::new(TxnId::SYSTEM);
    let (mut key, mut chunk) = (Vec::new(), Vec::new());
    let (mut values, mut expected) = (0, None);
    // Of the one at hand its id and length so far, and of those before it.
    let (mut length, mut digests) = (0, 0_u64);
    let end = |(id, _), length| long_value_digest(id, length);
    loop {
        let next = cursor.next(&mut session, &mut key, &mut chunk).map_err(without_locks);
        // Damage in a tree has been noted, and the count says nothing then.
        let Some(found) = report.note(next)? else { return Ok(()) };
        if !found {
            break;
        }
        let id = key.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
        let index = key.last_chunk().map_or(0, |index| u32::from_be_bytes(*index));
        values += u64::from(index == 0);
        if key.len() != LONG_VALUE_KEY_BYTES || !(1..=OVERFLOW_CHUNK_BYTES).contains(&chunk.len()) {
            report.problem(format!(
                "chunk {index} of the long value {id} has a key of {} bytes, and {} bytes",
                key.len(),
                chunk.len()
            ));
        }
        let before = u64::from(index) * OVERFLOW_CHUNK_BYTES as u64;
        if index != 0 && (expected != Some((id, index)) || length != before) {
            report.problem(format!(
                "chunk {index} of the long value {id} does not follow on the one before it"
            ));
        }
        if index == 0 {
            digests = digests.wrapping_add(expected.map_or(0, |before| end(before, length)));
            length = 0;
        }
        length += chunk.len() as u64;
        expected = Some((id, index.saturating_add(1)));
    }
    digests = digests.wrapping_add(expected.map_or(0, |last| end(last, length)));
    let referred = report.trees.long_values;
    if !(referred..=referred + dropped).contains(&values) {
        report.problem(format!("there are {values} long values, and {referred} records that refer to one"));
    } else if dropped == 0 && digests != report.trees.long_value_digests {
        report.problem(
            "records refer to other long values, or longer or shorter ones, than there are".to_owned(),
        );
    }
    Ok(())
}

/// One page of a tree: in one tree once, marked as in use, and no newer than the log, nor its image newer than itself.
fn check_page(
    core: &Core,
    name: &str,
    (page, words): (PageId, &PageWords),
    met: &mut PageSet,
    images: &mut Images,
    report: &mut VerifyReport,
) -> Result<()> {
    if !met.insert(page) {
        report.problem(format!("page {page} of table {name} is in another table, too, or twice in this one"));
    }
    let allocated = core.pool.is_allocated(page);
    if report.note(allocated)? == Some(false) {
        report.problem(format!("page {page} of table {name} is marked as free"));
    }
    let (lsn, image) = (words.lsn(), words.image_lsn());
    if lsn >= core.log.tail() {
        report.problem(format!("page {page} of table {name} has LSN {lsn}, behind the end of the log"));
    } else if image > lsn {
        report.problem(format!(
            "page {page} of table {name} has LSN {lsn}, and an image that is newer, {image}"
        ));
    }
    if image >= core.log.low_water() {
        images.insert(image, page);
    }
    Ok(())
}

/// Every page that is in use belongs to a table. Behind a damaged page are others that the walk did not come to: they
/// are one problem, not one each.
fn check_free_space(core: &Core, met: &PageSet, damaged: bool, report: &mut VerifyReport) -> Result<()> {
    let mut leaked = Vec::new();
    let visited = core.pool.visit_allocated(&mut |page| {
        if !met.contains(page) {
            leaked.push(page);
        }
    });
    report.note(visited)?;
    if damaged {
        report.pages_unreachable = leaked.len() as u64;
        if let [first, ..] = leaked[..] {
            report.problem(format!(
                "{} pages are marked as in use and were not come to, the damaged ones and what lies behind them; the first is {first}",
                leaked.len()
            ));
        }
        return Ok(());
    }
    for page in leaked {
        report.problem(format!("page {page} is marked as in use, but no table has it"));
    }
    Ok(())
}

/// Reads the whole log that is kept: each record is sound, the records of a transaction form a chain, and images of
/// pages are there. (Who believes in one that is not there does not log the page before its next change, and a torn one
/// could not be repaired.)
fn check_log(core: &Core, mut images: Images, report: &mut VerifyReport) -> Result<()> {
    // A checkpoint would take away what is being read.
    let _no_checkpoint = core.control.lock();
    let mut newest: BTreeMap<TxnId, Lsn> = BTreeMap::new();
    // A checkpoint may have released others meanwhile.
    images = images.split_off(&core.log.low_water());
    let mut reader = core.log.reader(core.log.low_water());
    let mut payload = Vec::new();
    loop {
        let Some(next) = report.note(reader.next(&mut payload))? else { return Ok(()) };
        let Some(header) = next else { break };
        report.log_records += 1;
        images.remove(&header.lsn);
        if header.prev >= header.lsn {
            report.problem(format!("the log's record {} refers forward, to {}", header.lsn, header.prev));
        }
        if header.txn != TxnId::SYSTEM {
            let ended = header.kind == records::COMMIT || header.kind == records::END;
            let before =
                if ended { newest.remove(&header.txn) } else { newest.insert(header.txn, header.lsn) };
            if before.is_some_and(|before| before != header.prev) {
                report.problem(format!(
                    "the log's record {} of transaction {} does not refer to the one before it",
                    header.lsn, header.txn
                ));
            }
        }
    }
    for (image, page) in images {
        report.problem(format!(
            "page {page} names the record {image} as its image, and the log has none there"
        ));
    }
    Ok(())
}
