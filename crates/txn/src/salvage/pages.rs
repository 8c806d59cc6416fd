//! Where the pages of a damaged database come from: the ways of the [module above](super), in their order.

use std::{
    io::ErrorKind::{NotFound, WouldBlock},
    path::{Path, PathBuf},
};

use foreshore_base::{PageId, Result, StorageError};
use foreshore_env::{
    disk::{Disk, Overlay, is_out_of_files},
    sync::Arc,
};
use foreshore_pages::{BufferPool, PageBuffer, PageWords, RawPages};

use super::{SalvageSource, control, repeated::Repeated};
use crate::{
    control::ControlFile,
    engine::{CONTROL, DATA, Engine, LOCK},
    options::EngineOptions,
};

/// How far opening came.
pub(super) struct Opened {
    pub(super) pages: Pages,
    pub(super) source: SalvageSource,
    /// Why it did not come further.
    pub(super) failure: Option<StorageError>,
    /// Why the next better way than that of `source` did not lead to pages, if it was tried.
    pub(super) given_up: Option<StorageError>,
}

/// The pages of a database.
#[derive(Debug)]
pub(super) struct Pages {
    recovered: Recovered,
    /// The data file itself, if its pages can be told from others: for what lies behind the end that the pool believes
    /// in.
    raw: Option<RawPages>,
}

/// What stands before the file.
#[derive(Debug)]
enum Recovered {
    Engine(Arc<Engine>),
    Repeated(Box<Repeated>),
    /// Nothing. With the lock that keeps writers out, if there was one to take.
    Nothing {
        _lock: Option<Lock>,
    },
}

/// A lock on the lock file.
pub(super) struct Lock(Box<dyn Send + Sync>);

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let _held: &(dyn Send + Sync) = &*self.0;
        f.write_str("Lock")
    }
}

/// Opens a database in the best way that leads to pages.
pub(super) fn open(disk: &Arc<dyn Disk>, directory: &Path, options: &EngineOptions) -> Result<Opened> {
    let (recovered, source, failure, given_up) = match Engine::open(Arc::clone(disk), directory, options) {
        Ok(engine) => (Recovered::Engine(engine), SalvageSource::Recovered, None, None),
        Err(error @ (StorageError::AlreadyOpen { .. } | StorageError::UpgradeRequired { .. })) => {
            return Err(error);
        }
        Err(error) => {
            let failure = unless_out_of_means(error)?;
            let (recovered, source, given_up) = recover(disk, directory, options)?;
            (recovered, source, Some(failure), given_up)
        }
    };
    let id = match &recovered {
        Recovered::Engine(engine) => Some(engine.core().log.id()),
        _ => control::database_id(disk, directory)?,
    };
    let path: PathBuf = directory.join(DATA);
    let raw = RawPages::open(&**disk, path, id);
    let raw = match (raw, &recovered) {
        (Ok(raw), _) => Some(raw),
        (Err(error), Recovered::Engine(_) | Recovered::Repeated(_)) => sound(Err(error))?,
        (Err(error), Recovered::Nothing { .. }) => {
            let detail = match (error, &failure) {
                // Without a data file, the error that opening ended with says it best.
                (StorageError::Io { source, .. }, Some(failure)) if source.kind() == NotFound => {
                    match failure {
                        StorageError::NotADatabase { detail, .. } => detail.clone(),
                        StorageError::Io { source, .. } => source.to_string(),
                        failure => failure.to_string(),
                    }
                }
                // A link, a pipe, a directory; or nobody may read it.
                (error @ StorageError::Io { .. }, _) => return Err(error),
                (error, _) => error.to_string(),
            };
            return Err(StorageError::NotADatabase { path: directory.to_owned(), detail });
        }
    };
    Ok(Opened { pages: Pages { recovered, raw }, source, failure, given_up })
}

/// What is left for a database that does not open; with the last error of the ways that were tried before.
fn recover(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    options: &EngineOptions,
) -> Result<(Recovered, SalvageSource, Option<StorageError>)> {
    // Each try begins with the files as they are.
    let overlay = || -> Arc<dyn Disk> { Arc::new(Overlay::new(Arc::clone(disk), options.read_only_bytes)) };
    let mut given_up = None;
    let contents = control::contents(&overlay(), directory, options);
    for content in contents.or_else(|error| note(&mut given_up, error))? {
        let rebuilt = overlay();
        let opened = ControlFile::create(&*rebuilt, &directory.join(CONTROL), content)
            .and_then(|_| Engine::open(rebuilt, directory, options));
        match opened {
            Ok(engine) => return Ok((Recovered::Engine(engine), SalvageSource::Rebuilt, None)),
            Err(error) => note(&mut given_up, error)?,
        }
    }
    let lock = lock(disk, directory)?;
    let places = control::where_redo_begins(&overlay(), directory, options);
    let (database_id, places) = places.or_else(|error| note(&mut given_up, error))?;
    let mut failed = None;
    for redo in places {
        match Repeated::open(&overlay(), directory, options, database_id, redo) {
            Ok(repeated) => {
                let repeated = Box::new(repeated.locked(lock));
                return Ok((Recovered::Repeated(repeated), SalvageSource::Repeated, given_up));
            }
            Err(error) => note(&mut failed, error)?,
        }
    }
    Ok((Recovered::Nothing { _lock: lock }, SalvageSource::Pages, failed.or(given_up)))
}

/// Keeps the error of a way that leads nowhere, and goes on with nothing.
fn note<T: Default>(given_up: &mut Option<StorageError>, error: StorageError) -> Result<T> {
    *given_up = Some(unless_out_of_means(error)?);
    Ok(T::default())
}

/// What was read, or nothing where the file is not as it should be.
pub(super) fn sound<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => unless_out_of_means(error).map(|_| None),
    }
}

/// Passes on an error that says something of the files. Where this process gets no more files, threads or memory for
/// pages, nothing is damaged, and a way that needs less of them would call lost what only the log has.
fn unless_out_of_means(error: StorageError) -> Result<StorageError> {
    match error {
        StorageError::OutOfMemory { .. } => Err(error),
        StorageError::Io { ref source, .. } if is_out_of_files(source) || source.kind() == WouldBlock => {
            Err(error)
        }
        error => Ok(error),
    }
}

fn lock(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Option<Lock>> {
    let shared = |name: &str| disk.lock_shared(&directory.join(name));
    // What is not there, or is no file, nobody holds.
    match shared(LOCK).or_else(|_| shared(CONTROL)) {
        Ok(Some(lock)) => Ok(Some(Lock(lock))),
        Ok(None) => Err(StorageError::AlreadyOpen { path: directory.to_owned() }),
        Err(error) if is_out_of_files(&error) => Err(StorageError::io("lock", directory)(error)),
        Err(_) => Ok(None),
    }
}

impl Pages {
    fn pool(&self) -> Option<&BufferPool> {
        match &self.recovered {
            Recovered::Engine(engine) => Some(&engine.core().pool),
            Recovered::Repeated(repeated) => Some(&repeated.pool),
            Recovered::Nothing { .. } => None,
        }
    }

    /// The pool, if it has this page. It does not have those behind the last whole extent of a file that was cut.
    fn pool_of(&self, id: PageId) -> Option<&BufferPool> {
        self.pool().filter(|pool| u64::from(id.0) < pool.page_count())
    }

    pub(super) fn count(&self) -> u64 {
        let pool = self.pool().map_or(0, BufferPool::page_count);
        pool.max(self.raw.as_ref().map_or(0, RawPages::page_count))
    }

    /// The first page from `number` on of which there may be something; what comes before is nobody's and in a hole of
    /// the file.
    pub(super) fn next(&self, number: u64) -> u64 {
        match (self.pool().filter(|pool| number < pool.page_count()), &self.raw) {
            (Some(pool), _) => pool.next_page(number),
            (None, Some(raw)) => raw.next_page(number),
            (None, None) => number,
        }
    }

    /// Copies a page; false if there is nothing in it.
    pub(super) fn read(&self, id: PageId, into: &PageWords) -> Result<bool> {
        if let Some(pool) = self.pool_of(id) {
            let mut copy = PageBuffer::boxed();
            pool.shared(id)?.words().store_to(&mut copy.0);
            into.load_from(&copy.0);
            return Ok(true);
        }
        self.raw.as_ref().map_or(Ok(false), |raw| raw.read(id, into))
    }

    /// What its bitmap page says of a page; `None` if that cannot be read.
    pub(super) fn is_allocated(&self, id: PageId) -> Option<bool> {
        match (self.pool_of(id), &self.raw) {
            (Some(pool), _) => pool.is_allocated(id).ok(),
            (None, Some(raw)) => raw.is_allocated(id),
            (None, None) => None,
        }
    }

    /// Whether the file has nothing but zeros for a page of which no bitmap page says that it is in use.
    pub(super) fn was_never_used(&self, id: PageId) -> bool {
        let zeros = |raw: &RawPages| matches!(raw.read(id, &PageWords::default()), Ok(false));
        self.is_allocated(id) != Some(true) && self.raw.as_ref().is_some_and(zeros)
    }

    pub(super) fn undecided(&self) -> u64 {
        match &self.recovered {
            Recovered::Engine(engine) => engine.stats().recovery.prepared,
            Recovered::Repeated(_) | Recovered::Nothing { .. } => 0,
        }
    }

    pub(super) fn log_damage(&self) -> Option<&StorageError> {
        match &self.recovered {
            Recovered::Repeated(repeated) => repeated.log_damage.as_ref(),
            Recovered::Engine(_) | Recovered::Nothing { .. } => None,
        }
    }
}
