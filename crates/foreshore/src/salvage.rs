//! Saving what can be read of a damaged database.

use std::{ops::ControlFlow, path::Path};

use foreshore_env::{
    disk::{Disk, RealDisk},
    sync::Arc,
};
use foreshore_txn::SalvagedTable;
pub use foreshore_txn::{KeyGap, MAX_PAGES_NAMED, SalvageProgress, SalvageSource, SalvagedRows};

use crate::{
    error::{Error, Result},
    options::Options,
    table::types,
};

/// Memory for pages while a damaged database is read: each is read a few times at most.
const POOL_BYTES: usize = 32 << 20;

/// A damaged database, opened to save what can be read: `foreshore salvage` as a library. Nothing of it changes.
///
/// If it can be recovered, it is, in memory, and all that is committed is there but for what damaged pages held. If
/// not, what can be read of its log is repeated on its pages, and where there is nothing to repeat they are taken as
/// the file has them ([`SalvageSource`]). The leaves that can be read say which keys there are, whatever became of the
/// pages above them, and which ranges of keys are lost.
///
/// ```
/// # use std::ops::ControlFlow;
/// # use foreshore::{Database, Salvage, TableDefinition};
/// # let home = tempfile::tempdir().unwrap();
/// # let path = home.path().join("bank");
/// # let db = Database::open(&path)?;
/// # db.transact(|tx| tx.put(TableDefinition::<u32, u32>::new("t"), 1, 1).map(drop))?;
/// # db.close()?;
/// # drop(db);
/// let damaged = Salvage::open(&path)?;
/// for table in damaged.tables() {
///     let rows = damaged.rows(&table, |key, value| {
///         println!("{key:?}: {} bytes", value.len());
///         ControlFlow::Continue(())
///     })?;
///     println!("{}: {} records saved, {} ranges of keys lost", table.name, rows.rows, table.lost.len());
/// }
/// # Ok::<(), foreshore::Error>(())
/// ```
#[derive(Debug)]
pub struct Salvage {
    inner: foreshore_txn::Salvage,
    path: std::path::PathBuf,
}

/// A table of a damaged database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageTable {
    /// Its name; `lost-table-…` where that is lost with the catalogue's row.
    pub name: String,
    /// The types of its keys and of its values; `None` where they are lost.
    pub types: Option<(String, String)>,
    /// Ranges of encoded keys of which nothing is known.
    pub lost: Vec<KeyGap>,
    index: usize,
}

impl Salvage {
    /// Opens what is in a directory, whatever its state, and looks at all its pages.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] while a program has it open for writing; [`Error::UpgradeRequired`] for another format;
    /// [`Error::NotADatabase`] without a data file and a log, and where neither the control file nor two sound pages
    /// say which database it is; [`Error::Io`] if the system does not let it be read,
    /// or gives no more files or threads; [`Error::InvalidOption`] if there is no memory for pages.
    pub fn open(directory: impl AsRef<Path>) -> Result<Salvage> {
        Salvage::open_with(directory, |_| ControlFlow::Continue(()))
    }

    /// As [`Salvage::open`]; `progress` is called after every few pages, once what can be recovered is, and may stop
    /// it.
    ///
    /// # Errors
    /// As [`Salvage::open`]; [`Error::SalvageStopped`] if `progress` stops it.
    pub fn open_with(
        directory: impl AsRef<Path>,
        progress: impl FnMut(SalvageProgress) -> ControlFlow<()>,
    ) -> Result<Salvage> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        Salvage::on(&disk, directory.as_ref(), progress)
    }

    /// On another disk; for tests.
    ///
    /// # Errors
    /// As [`Salvage::open_with`].
    #[doc(hidden)]
    pub fn on(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        mut progress: impl FnMut(SalvageProgress) -> ControlFlow<()>,
    ) -> Result<Salvage> {
        let options = Options { pool_bytes: POOL_BYTES, read_ahead: 0, ..Options::default() }.engine();
        let opened = foreshore_txn::Salvage::open(disk, directory, &options, &mut progress);
        let inner =
            opened.map_err(|error| Error::from_storage(error, directory))?.ok_or(Error::SalvageStopped)?;
        Ok(Salvage { inner, path: directory.to_owned() })
    }

    /// How its content was come by.
    pub fn source(&self) -> SalvageSource {
        self.inner.source()
    }

    /// Why it could not simply be opened, and why it was not come by in the next better way than [`Salvage::source`]
    /// says, if that is something else; `None` if it could be opened.
    pub fn failure(&self) -> Option<String> {
        let mut failure = self.inner.failure()?.to_string();
        let given_up = self.inner.given_up().map(ToString::to_string);
        if let Some(given_up) = given_up.filter(|given_up| *given_up != failure) {
            failure = format!("{failure}; and what was tried then failed: {given_up}");
        }
        Some(failure)
    }

    /// Whether every table is among [`Salvage::tables`]: nothing of the catalogue is lost.
    pub fn catalog_is_complete(&self) -> bool {
        self.inner.catalog_is_complete()
    }

    /// Transactions that were prepared and wait for a decision: what they wrote is among the records.
    pub fn undecided(&self) -> u64 {
        self.inner.undecided()
    }

    /// Why the log was not repeated to its end, where that could be told; of [`SalvageSource::Repeated`].
    pub fn log_damage(&self) -> Option<String> {
        self.inner.log_damage().map(ToString::to_string)
    }

    /// Pages that were read although the data file calls them free: they are in use, and what says so is damaged.
    pub fn pages_called_free(&self) -> u64 {
        self.inner.pages_called_free()
    }

    /// Pages in use that cannot be read, each with the reason, at most [`MAX_PAGES_NAMED`]; and how many there are.
    pub fn damaged_pages(&self) -> (Vec<(u64, String)>, u64) {
        let (pages, count) = self.inner.damaged_pages();
        (pages.iter().map(|(page, reason)| (u64::from(page.0), reason.clone())).collect(), count)
    }

    /// The tables; those without a name last.
    pub fn tables(&self) -> Vec<SalvageTable> {
        let describe = |(index, table): (usize, &SalvagedTable)| SalvageTable {
            name: table.name().to_owned(),
            types: table.meta().map(types::split),
            lost: table.lost(),
            index,
        };
        self.inner.tables().iter().enumerate().map(describe).collect()
    }

    /// Reads the records of a table in the order of their keys, encoded; `each` may stop it.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if the table is not of this database; [`Error::Io`] or [`Error::Corrupted`] if a page
    /// that could be read when it was opened cannot be read any more.
    pub fn rows(
        &self,
        table: &SalvageTable,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<SalvagedRows> {
        let found = self.inner.tables().get(table.index);
        match found.filter(|found| found.name() == table.name) {
            Some(table) => {
                let rows = self.inner.rows(table, &mut each);
                rows.map_err(|error| Error::from_storage(error, &self.path))
            }
            None => Err(Error::NoSuchTable { table: table.name.clone() }),
        }
    }
}
