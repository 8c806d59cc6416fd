//! A control file made anew: what it says stands elsewhere, too. The id is in the header of every segment of the log,
//! the last checkpoint in the log, and the roots of the engine's own tables are the first nodes without fences among
//! their pages.

use std::{iter::successors, path::Path};

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId};
use foreshore_btree::tree_root;
use foreshore_env::{disk::Disk, sync::Arc};
use foreshore_pages::{PageWords, RawPages, SlottedView};
use foreshore_wal::{Log, RecordHeader};

use crate::{
    control::{Control, ControlFile},
    engine::{CONTROL, DATA, LOG},
    options::EngineOptions,
    records::{self, Checkpoint},
};

/// The id of the database, as its control file or its log says.
pub(super) fn database_id(disk: &Arc<dyn Disk>, directory: &Path) -> Option<u64> {
    if let Some(content) = ControlFile::read_slots(&**disk, &directory.join(CONTROL)) {
        return Some(content.database_id);
    }
    Log::survey(&**disk, &directory.join(LOG)).ok()?.map(|(id, _)| id)
}

/// The id, and where redo begins: as a slot of the control file says, or else the newest checkpoint in what can be read
/// of the log. `disk` is an overlay.
pub(super) fn where_redo_begins(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    options: &EngineOptions,
) -> Result<(u64, Lsn)> {
    let path = directory.join(CONTROL);
    if let Some(content) = ControlFile::read_slots(&**disk, &path) {
        return Ok((content.database_id, content.redo));
    }
    let lost = || StorageError::corrupt_file(&path, "no slot of it is sound, and the log has no checkpoint");
    let log_directory = directory.join(LOG);
    let (database_id, from) = Log::survey(&**disk, &log_directory)?.ok_or_else(lost)?;
    let (log, _) = Log::open_damaged(Arc::clone(disk), &log_directory, database_id, from, &options.log)?;
    let last = last_checkpoint(&log, from);
    log.close()?;
    let (_, checkpoint) = last?.ok_or_else(lost)?;
    Ok((database_id, checkpoint.redo))
}

/// Writes a control file to `disk`, which is an overlay. False if there is a sound one, so that something else is
/// wrong, or if log and pages do not say what should be in it.
pub(super) fn rebuild(disk: &Arc<dyn Disk>, directory: &Path, options: &EngineOptions) -> Result<bool> {
    let path = directory.join(CONTROL);
    if ControlFile::open(&**disk, &path).is_ok() {
        return Ok(false);
    }
    if let Some(content) = ControlFile::read_slots(&**disk, &path) {
        // A slot that cannot be read, and a sound one that nobody came to.
        ControlFile::create(&**disk, &path, content)?;
        return Ok(true);
    }
    let log_directory = directory.join(LOG);
    let Some((database_id, from)) = Log::survey(&**disk, &log_directory)? else { return Ok(false) };
    let log = Log::open(Arc::clone(disk), &log_directory, database_id, from, &options.log)?;
    let last = last_checkpoint(&log, from);
    // It is opened anew by whoever opens the database.
    let closed = log.close();
    let Some((header, checkpoint)) = last? else { return Ok(false) };
    closed?;
    let pages = RawPages::open(&**disk, directory.join(DATA), Some(database_id))?;
    let (Some(catalog_root), Some(overflow_root)) =
        (root(&pages, TableId::CATALOG), root(&pages, TableId::OVERFLOW))
    else {
        return Ok(false);
    };
    let content = Control {
        checkpoint: header.lsn,
        redo: checkpoint.redo,
        log_from: checkpoint.analysis.min(from),
        catalog_root,
        overflow_root,
        ..Control::new(database_id)
    };
    ControlFile::create(&**disk, &path, content)?;
    Ok(true)
}

/// The newest checkpoint in the log. It had written its pages before, so it counts whether or not the control file came
/// to know.
fn last_checkpoint(log: &Log, from: Lsn) -> Result<Option<(RecordHeader, Checkpoint)>> {
    let (mut reader, mut payload, mut last) = (log.reader(from), Vec::new(), None);
    while let Some(header) = reader.next(&mut payload)? {
        if header.kind == records::CHECKPOINT {
            last = Some((header, Checkpoint::decode(&header, &payload)?));
        }
    }
    Ok(last)
}

/// The root of a table: the first page that looks like one. The only child of a root looks like one, too, but came
/// later, and neither of these roots ever moves.
fn root(pages: &RawPages, table: TableId) -> Option<PageId> {
    let words = PageWords::default();
    let looks_like_one = |id: &PageId| {
        matches!(pages.read(*id, &words), Ok(true)) && tree_root(SlottedView::new(&words)) == Some(table)
    };
    successors(Some(pages.next_page(0)), |number| Some(pages.next_page(number + 1)))
        .take_while(|number| *number < pages.page_count())
        .map(|number| PageId(number as u32))
        .find(looks_like_one)
}

#[cfg(test)]
mod tests {
    use foreshore_testkit::{CrashMode, FaultyDisk};
    use foreshore_wal::{LogOptions, RecordKind};

    use super::*;
    use crate::{BeginOptions, Durability, Engine};

    /// A root has moved its content to a child.
    const GROW: RecordKind = RecordKind(35);

    /// A power failure between the growth of a tree and what it was for: the only child has no fences, as its root has
    /// none, and recovery changes it after that.
    #[test]
    fn the_only_child_of_a_root_is_not_taken_for_it() {
        let directory = Path::new("db");
        let log = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
        let options = EngineOptions { node_capacity: 4, log, ..EngineOptions::default() };
        let disk = FaultyDisk::new();
        let open = |disk: &FaultyDisk| {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            Engine::open(disk, directory, &options).unwrap()
        };
        let engine = open(&disk);
        let table = engine.create_table("table", &[]).unwrap();
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, b"key", &[1; 60_000]).unwrap();
        txn.commit(Durability::Sync).unwrap();

        let log = &engine.core().log;
        let (mut reader, mut payload) = (log.reader(log.low_water()), Vec::new());
        let mut grown = false;
        let cut = loop {
            let header = reader.next(&mut payload).unwrap().unwrap();
            if grown {
                break header.lsn.0;
            }
            grown = header.kind == GROW && payload.starts_with(&TableId::OVERFLOW.0.to_le_bytes());
        };
        let left = disk.after_crash(CrashMode::DropUnsynced);
        let segments: Vec<_> = left
            .files()
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "log"))
            .collect();
        let mut bytes = left.read_file(&segments[0]).unwrap();
        bytes[(cut % log.segment_bytes()) as usize..].fill(0);
        left.write_file(&segments[0], &bytes).unwrap();

        let recovered = open(&left);
        let (id, right) = (recovered.core().log.id(), recovered.core().catalog.overflow_root());
        recovered.close().unwrap();
        let pages = RawPages::open(&left, directory.join(DATA), Some(id)).unwrap();
        let words = PageWords::default();
        let alike = (0..pages.page_count()).map(|number| PageId(number as u32)).filter_map(|id| {
            let there = pages.read(id, &words).unwrap();
            let table = there.then(|| tree_root(SlottedView::new(&words))).flatten();
            (table == Some(TableId::OVERFLOW)).then(|| (words.lsn(), id))
        });
        let newest = alike.max().unwrap().1;
        assert_ne!(newest, right, "the child was changed later");
        assert_eq!(root(&pages, TableId::OVERFLOW), Some(right));
    }
}
