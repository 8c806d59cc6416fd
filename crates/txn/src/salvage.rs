//! Saving what can be read of a damaged database.
//!
//! What a database could have been recovered to is best; so, in this order:
//! 1. it is opened to be read, with recovery, and pages are taken from the pool;
//! 2. its control file is made anew in memory, from a checkpoint in the log (`salvage/control.rs`) and the roots among
//!    the pages; then 1;
//! 3. what can be read of its log is repeated on its pages, and nobody is rolled back (`salvage/repeated.rs`);
//! 4. its pages are taken as the data file has them. What only the log has is lost then, and transactions are not taken
//!    back.
//!
//! A bitmap that calls a page free is not believed where the page is a leaf in use: a page that leaves a tree says so
//! itself, and those of dropped tables belong to no table.
//!
//! No tree is needed after that, and no inner page: the fences of its leaves partition all keys of a table (BTREE-6),
//! so the leaves that can be read say which records there are, and what lies between them is what was lost. Where two
//! leaves claim a key, as pages of different times may, the one with the newer LSN is right.

mod control;
mod leaves;
mod pages;
mod remains;
mod repeated;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind::PermissionDenied},
    ops::ControlFlow,
    path::Path,
};

use foreshore_base::{PageId, Result, StorageError, TableId, limits::MAX_TABLE_NAME_BYTES};
use foreshore_btree::{leaf_table, long_value};
use foreshore_env::{
    disk::{Disk, OpenMode},
    sync::Arc,
};
use foreshore_pages::{PageWords, SlottedView};

use crate::{
    catalog::{decode_row, dropped_table},
    engine::{CONTROL, DATA, LOCK, LOG},
    options::EngineOptions,
};

pub use leaves::KeyGap;
use leaves::{Leaf, Pieces};
use pages::{Opened, Pages};

/// Damaged pages that are named; the rest is counted.
pub const MAX_PAGES_NAMED: usize = 1000;

/// Is given the key and the value of a record; breaks when it wants no more.
pub type EachRecord<'e> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'e;
/// Is given the key and the value of a record, or no value where that is lost; breaks when it wants no more.
type EachFound<'e> = dyn FnMut(&[u8], Option<&[u8]>) -> ControlFlow<()> + 'e;

/// How the content of a damaged database was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SalvageSource {
    /// It was opened and recovered: what was committed is there, but for damaged pages.
    Recovered,
    /// Its control file was made anew in memory; then it was opened and recovered: what was committed is there, but for
    /// damaged pages.
    Rebuilt,
    /// What could be read of its log was repeated on its pages: what was committed up to there is there, and where it
    /// was written to the data file in time, what came later. Nothing was taken back: what had not been committed may
    /// be there, too.
    Repeated,
    /// Its pages are as the data file had them: of different moments, with what had not been committed, and without
    /// what only the log has.
    Pages,
}

/// A damaged database, opened to save what can be read. Nothing of it changes.
///
/// Takes memory for the fences of all leaves, and for what recovery changes (at most
/// [`READ_ONLY_BYTES`](crate::READ_ONLY_BYTES)).
#[derive(Debug)]
pub struct Salvage {
    pages: Pages,
    source: SalvageSource,
    failure: Option<StorageError>,
    given_up: Option<StorageError>,
    tables: Vec<SalvagedTable>,
    overflow: Pieces,
    damaged: Vec<(PageId, String)>,
    damaged_count: u64,
    /// Leaves in use that their bitmap page calls free.
    called_free: u64,
    /// Whether all leaves of the catalogue can be read.
    catalog_complete: bool,
}

/// A table of which something can be read.
#[derive(Debug)]
pub struct SalvagedTable {
    name: String,
    meta: Option<Vec<u8>>,
    pieces: Pieces,
}

/// How far the opening of a damaged database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// Pages looked at.
    pub done_pages: u64,
    /// Pages to look at.
    pub total_pages: u64,
}

/// What became of the records of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedRows {
    /// Records that were read.
    pub rows: u64,
    /// Keys of records whose long value is not complete.
    pub values_lost: Vec<Vec<u8>>,
}

impl Salvage {
    /// Opens what is in a directory, whatever its state, and looks at every page. `progress` is told how far that is,
    /// and may stop it: then there is `None`.
    ///
    /// # Errors
    /// When somebody has it open, when it has another format, when this process may not read one of its files, or gets
    /// no more files, threads or memory for pages, and when there is neither a data file nor a log, or no page can be
    /// read.
    pub fn open(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        options: &EngineOptions,
        progress: &mut dyn FnMut(SalvageProgress) -> ControlFlow<()>,
    ) -> Result<Option<Salvage>> {
        let options = EngineOptions { read_only: true, create: false, ..options.clone() };
        check_rights(&**disk, directory)?;
        let (disk, data_is_missing) = remains::disk(disk, directory);
        let Opened { pages, source, failure, given_up } = pages::open(&disk, directory, &options)?;
        // What opening says is said of the empty one in its place.
        let missing =
            || StorageError::corrupt_file(directory.join(DATA), "it is missing, and only the log is left");
        let failure = if data_is_missing { Some(missing()) } else { failure };
        let mut salvage = Salvage {
            pages,
            source,
            failure,
            given_up,
            tables: Vec::new(),
            overflow: Pieces::default(),
            damaged: Vec::new(),
            damaged_count: 0,
            called_free: 0,
            catalog_complete: false,
        };
        let Some(leaves) = salvage.look(progress)? else { return Ok(None) };
        salvage.sort(leaves)?;
        Ok(Some(salvage))
    }

    /// How its content was come by.
    pub fn source(&self) -> SalvageSource {
        self.source
    }

    /// Why it could not simply be opened, if it could not.
    pub fn failure(&self) -> Option<&StorageError> {
        self.failure.as_ref()
    }

    /// Why the next better way than that of [`Salvage::source`] did not lead to pages either, if it was tried: of
    /// [`SalvageSource::Repeated`] and [`SalvageSource::Pages`].
    pub fn given_up(&self) -> Option<&StorageError> {
        self.given_up.as_ref()
    }

    /// The tables, by name; those whose name is lost last.
    pub fn tables(&self) -> &[SalvagedTable] {
        &self.tables
    }

    /// Whether every table is among them: all leaves of the catalogue can be read.
    pub fn catalog_is_complete(&self) -> bool {
        self.catalog_complete
    }

    /// Transactions that were prepared and wait for a decision: what they wrote is among the records.
    pub fn undecided(&self) -> u64 {
        self.pages.undecided()
    }

    /// Why the log was not repeated to its end, where that could be told: [`SalvageSource::Repeated`].
    pub fn log_damage(&self) -> Option<&StorageError> {
        self.pages.log_damage()
    }

    /// Pages that the data file calls free, but which are in use, and were read: their bitmap page is damaged.
    pub fn pages_called_free(&self) -> u64 {
        self.called_free
    }

    /// Pages in use that cannot be read, with the reason, at most [`MAX_PAGES_NAMED`]; and how many there are.
    pub fn damaged_pages(&self) -> (&[(PageId, String)], u64) {
        (&self.damaged, self.damaged_count)
    }

    /// Looks at all pages; the leaves by table. `None`: `progress` has stopped it.
    fn look(
        &mut self,
        progress: &mut dyn FnMut(SalvageProgress) -> ControlFlow<()>,
    ) -> Result<Option<BTreeMap<TableId, Vec<Leaf>>>> {
        let mut leaves: BTreeMap<TableId, Vec<Leaf>> = BTreeMap::new();
        let words = PageWords::default();
        let count = self.pages.count();
        let mut is_stopped =
            |done| progress(SalvageProgress { done_pages: done, total_pages: count }).is_break();
        // The header page has been read by whoever opened the file; where nobody could, it does not matter.
        let (mut next, mut told) = (self.pages.next(1), 0);
        while next < count {
            let number = next;
            next = self.pages.next(number + 1);
            if number - told >= 64 {
                if is_stopped(number) {
                    return Ok(None);
                }
                told = number;
            }
            let id = PageId(number as u32);
            let free = self.pages.is_allocated(id) == Some(false);
            match self.pages.read(id, &words) {
                Ok(false) => {}
                Ok(true) => {
                    let view = SlottedView::new(&words);
                    let Some(table) = leaf_table(view) else { continue };
                    match view.inspect() {
                        Ok(()) => leaves.entry(table).or_default().push(Leaf::of(view, id, free)),
                        Err(_) if free => {}
                        Err(detail) => self.note(id, detail),
                    }
                }
                // What is free may be anything, and where nobody knows, what was never written is nothing that was
                // lost.
                Err(_) if free || self.pages.was_never_used(id) => {}
                // A sector that the disk does not give back is lost like one that is damaged.
                Err(error @ (StorageError::Corrupted { .. } | StorageError::Io { .. })) => {
                    self.note(id, error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok((!is_stopped(count)).then_some(leaves))
    }

    fn note(&mut self, page: PageId, detail: String) {
        self.damaged_count += 1;
        if self.damaged.len() < MAX_PAGES_NAMED {
            self.damaged.push((page, detail));
        }
    }

    /// Finds out whose the leaves are.
    fn sort(&mut self, mut leaves: BTreeMap<TableId, Vec<Leaf>>) -> Result<()> {
        let free: BTreeSet<PageId> =
            leaves.values().flatten().filter(|leaf| leaf.free).map(|leaf| leaf.page).collect();
        let mut take = |table: TableId| Pieces::of(leaves.remove(&table).unwrap_or_default());
        let catalog = take(TableId::CATALOG);
        self.catalog_complete = catalog.gaps().is_empty();
        self.overflow = take(TableId::OVERFLOW);
        let (mut known, mut dropped) = (BTreeSet::new(), BTreeSet::new());
        let mut tables = Vec::new();
        self.records(&catalog, &mut |name, value| {
            if let Some(table) = dropped_table(name) {
                dropped.insert(table);
            } else if let (Some((table, _, meta)), Some(name)) =
                (value.and_then(decode_row), table_name(name))
                && known.insert(table)
            {
                tables.push(SalvagedTable { name: name.to_owned(), meta: Some(meta), pieces: take(table) });
            }
            ControlFlow::Continue(())
        })?;
        // Tables whose rows in the catalogue are lost. What lies in free pages only is a table that was dropped.
        let nameless = leaves.into_iter().filter(|(table, leaves)| {
            *table >= TableId::FIRST_USER && !dropped.contains(table) && leaves.iter().any(|leaf| !leaf.free)
        });
        for (table, leaves) in nameless {
            let mut name = format!("lost-table-{table}");
            while tables.iter().any(|other| other.name == name) {
                name.push('+');
            }
            tables.push(SalvagedTable { name, meta: None, pieces: Pieces::of(leaves) });
        }
        let read = tables.iter().map(|table| &table.pieces).chain([&catalog, &self.overflow]);
        let read: BTreeSet<PageId> = read.flat_map(Pieces::iter).map(|piece| piece.page).collect();
        self.called_free = read.intersection(&free).count() as u64;
        self.tables = tables;
        Ok(())
    }

    /// Reads a table's records in the order of their keys. When `each` breaks, this ends early.
    pub fn rows(&self, table: &SalvagedTable, each: &mut EachRecord<'_>) -> Result<SalvagedRows> {
        let mut report = SalvagedRows::default();
        self.records(&table.pieces, &mut |key, value| match value {
            Some(value) => {
                report.rows += 1;
                each(key, value)
            }
            None => {
                report.values_lost.push(key.to_vec());
                ControlFlow::Continue(())
            }
        })?;
        Ok(report)
    }

    /// All live records of these pieces; of one whose long value is lost only the key.
    fn records(&self, pieces: &Pieces, each: &mut EachFound<'_>) -> Result<()> {
        let words = PageWords::default();
        let chunks = PageWords::default();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for piece in pieces.iter() {
            // It could be read before; a disk that refuses it now has lost it meanwhile.
            self.pages.read(piece.page, &words)?;
            let view = SlottedView::new(&words);
            for slot in view.slot_indices() {
                let flags = view.slot(slot).flags();
                view.key_into(slot, &mut key);
                if flags.ghost || !piece.encloses(&key) {
                    continue;
                }
                value.clear();
                view.value_into(slot, &mut value);
                let found = if flags.overflow {
                    long_value(&value, &mut |chunk, into| self.chunk(chunk, &chunks, into))
                } else {
                    Some(std::mem::take(&mut value))
                };
                if each(&key, found.as_deref()).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Appends a chunk of a long value. A ghost will do: an id is never used twice, and whoever refers to it knows
    /// better.
    fn chunk(&self, key: &[u8], words: &PageWords, into: &mut Vec<u8>) -> bool {
        let Some(piece) = self.overflow.find(key) else { return false };
        if !matches!(self.pages.read(piece.page, words), Ok(true)) {
            return false;
        }
        let view = SlottedView::new(words);
        let Ok(slot) = view.find(key) else { return false };
        view.value_into(slot, into);
        true
    }
}

impl SalvagedTable {
    /// Its name; where that is lost, one that says so.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What [`Engine::create_table`](crate::Engine::create_table) was given for it; `None` where that is lost.
    pub fn meta(&self) -> Option<&[u8]> {
        self.meta.as_deref()
    }

    /// Ranges of keys of which nothing is known.
    pub fn lost(&self) -> Vec<KeyGap> {
        self.pieces.gaps()
    }
}

/// The key of a row of the catalogue, if a table can be called so.
fn table_name(key: &[u8]) -> Option<&str> {
    str::from_utf8(key).ok().filter(|name| (1..=MAX_TABLE_NAME_BYTES).contains(&name.len()))
}

/// Refuses files that this process may not read: nothing is damaged then, and what they have would be called lost. What
/// lies in the log's directory under other names is nobody's business.
fn check_rights(disk: &dyn Disk, directory: &Path) -> Result<()> {
    fn permitted<T>(result: io::Result<T>, action: &str, path: &Path) -> Result<Option<T>> {
        match result {
            Err(error) if error.kind() == PermissionDenied => Err(StorageError::io(action, path)(error)),
            result => Ok(result.ok()),
        }
    }
    let log = directory.join(LOG);
    let segments = permitted(disk.list(&log), "list", &log)?.unwrap_or_default();
    let segments = segments.into_iter().filter(|path| path.extension().is_some_and(|end| end == "log"));
    for path in [LOCK, CONTROL, DATA].map(|name| directory.join(name)).into_iter().chain(segments) {
        permitted(disk.open(&path, OpenMode::Read), "open", &path)?;
    }
    Ok(())
}
