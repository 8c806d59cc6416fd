//! A control file made anew: what it says stands elsewhere, too. The id is in the header of every segment of the log,
//! checkpoints are in the log, and the roots of the engine's own tables are the first nodes without fences among their
//! pages.
//!
//! *Which checkpoint.* The lost control file named one, and the log does not say which. The newest in the log may be
//! too new:
//! - A backup copies the log to its end, and with it checkpoints that were taken while it copied pages. What it had
//!   copied before them may be older than they are.
//! - After a crash between a checkpoint's record and the control file, recovery begins at the checkpoint before. Pages
//!   that it changes have their images behind that, and get no others. If the next crash tears one of them, redo
//!   from the newer checkpoint does not repair it.
//!
//! So the oldest one is tried first. Redo that begins earlier than it must comes to the same, because it goes by page
//! LSN:
//! - *Pages of the file* have all that came before the checkpoint's redo point, if its sweep was one of this file. The
//!   header page says how far sweeps went (PAGE-12); a checkpoint beyond that is passed over. In a file that is an
//!   older copy it says less, and that is right for its pages. If it cannot be read, nothing is recovered, only
//!   repeated (`salvage/repeated.rs`), and every checkpoint counts.
//! - *What came later* is passed over by redo where a page shows it, also where the page was freed since and belongs to
//!   another table. A page that was torn since has an image behind the earlier redo point, too (PAGE-8).
//! - *Transactions.* The end of whoever was open at an earlier checkpoint, and has ended, is in the log behind it, that
//!   of prepared ones, too; so the same ones are left at the end of the log. These have all their records, because no
//!   checkpoint has released them (TXN-9). Of the log before the start of analysis nothing else is needed.
//! - *Numbers* of transactions, tables and long values are never used twice: what the log says behind a checkpoint
//!   comes on top of what that says.
//! - *Pages that were cut off the file* are why an older checkpoint may fail: PAGE-15 speaks of records behind the
//!   checkpoint before the cut. Redo from an earlier one may meet a page that is gone. If the log has an image of it,
//!   the file grows again, in memory, and the page is freed again. It has none of a page that was changed for the last
//!   time between the beginning of the sweep and its visit (the straddle of PAGE-8). Then opening fails, and the next
//!   checkpoint is tried. The lost control file named none from before the cut.
//!
//! What it costs is that more of the log is read.

use std::{collections::VecDeque, iter::successors, path::Path};

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId};
use foreshore_btree::tree_root;
use foreshore_env::{disk::Disk, sync::Arc};
use foreshore_pages::{PageWords, RawPages, SlottedView};
use foreshore_wal::Log;

use super::pages::sound;
use crate::{
    control::{Control, ControlFile},
    engine::{CONTROL, DATA, LOG},
    options::EngineOptions,
    records::{self, Checkpoint},
};

/// Of the checkpoints that fit, so many are tried, the newest ones. The lost control file can only have named an older
/// one after as many crashes in a row between a checkpoint's record and the control file, or in a backup that has lost
/// its header page, too. Without a limit, what opens from none of them would be recovered in vain once for each.
const MOST_TRIED: usize = 8;

/// The id of the database, as its control file or its log says.
pub(super) fn database_id(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Option<u64>> {
    if let Some(content) = ControlFile::read_slots(&**disk, &directory.join(CONTROL))? {
        return Ok(Some(content.database_id));
    }
    let log = sound(Log::survey(&**disk, &directory.join(LOG)))?;
    Ok(log.flatten().map(|(id, _)| id))
}

/// The id, and where redo may begin, in the order to be tried: as a slot of the control file says, or else checkpoints
/// in what can be read of the log. `disk` is an overlay.
pub(super) fn where_redo_begins(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    options: &EngineOptions,
) -> Result<(u64, Vec<Lsn>)> {
    let path = directory.join(CONTROL);
    if let Some(content) = ControlFile::read_slots(&**disk, &path)? {
        return Ok((content.database_id, vec![content.redo]));
    }
    let log_directory = directory.join(LOG);
    let (database_id, from) = Log::survey(&**disk, &log_directory)?.ok_or_else(|| {
        StorageError::corrupt_file(&path, "no slot of it is sound, and the log has no header")
    })?;
    // A header page that cannot be read says nothing against any.
    let pages = sound(RawPages::open(&**disk, directory.join(DATA), Some(database_id)))?;
    let swept = pages.and_then(|pages| pages.horizon()).unwrap_or(Lsn::MAX);
    let (log, _) = Log::open_damaged(Arc::clone(disk), &log_directory, database_id, from, &options.log)?;
    let found = checkpoints(&log, from, |checkpoint| (from..=swept).contains(&checkpoint.redo));
    log.close()?;
    Ok((database_id, found?.into_iter().map(|(_, checkpoint)| checkpoint.redo).collect()))
}

/// What the control file may have said, in the order to be tried. Nothing if there is a sound one, so that something
/// else is wrong, or if log and pages do not say what should be in it. `disk` is an overlay.
pub(super) fn contents(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    options: &EngineOptions,
) -> Result<Vec<Control>> {
    let path = directory.join(CONTROL);
    if ControlFile::open(&**disk, &path).is_ok() {
        return Ok(Vec::new());
    }
    if let Some(content) = ControlFile::read_slots(&**disk, &path)? {
        // A slot that cannot be read, and a sound one that nobody came to.
        return Ok(vec![content]);
    }
    let log_directory = directory.join(LOG);
    let Some((database_id, from)) = Log::survey(&**disk, &log_directory)? else { return Ok(Vec::new()) };
    let pages = RawPages::open(&**disk, directory.join(DATA), Some(database_id))?;
    let (Some(swept), Some(catalog_root), Some(overflow_root)) =
        (pages.horizon(), root(&pages, TableId::CATALOG), root(&pages, TableId::OVERFLOW))
    else {
        return Ok(Vec::new());
    };
    let log = Log::open(Arc::clone(disk), &log_directory, database_id, from, &options.log)?;
    let found = checkpoints(&log, from, |checkpoint| checkpoint.analysis >= from && checkpoint.redo <= swept);
    // It is opened anew by whoever opens the database.
    log.close()?;
    let content = |(lsn, checkpoint): (Lsn, Checkpoint)| Control {
        checkpoint: lsn,
        redo: checkpoint.redo,
        log_from: from,
        catalog_root,
        overflow_root,
        ..Control::new(database_id)
    };
    Ok(found?.into_iter().map(content).collect())
}

/// The checkpoints in the log that fit, the oldest first, the [`MOST_TRIED`] newest ones.
fn checkpoints(
    log: &Log,
    from: Lsn,
    fits: impl Fn(&Checkpoint) -> bool,
) -> Result<VecDeque<(Lsn, Checkpoint)>> {
    let (mut reader, mut payload, mut found) = (log.reader(from), Vec::new(), VecDeque::new());
    while let Some(header) = reader.next(&mut payload)? {
        if header.kind != records::CHECKPOINT {
            continue;
        }
        let checkpoint = Checkpoint::decode(&header, &payload)?;
        if fits(&checkpoint) {
            found.push_back((header.lsn, checkpoint));
        }
        if found.len() > MOST_TRIED {
            found.pop_front();
        }
    }
    Ok(found)
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
