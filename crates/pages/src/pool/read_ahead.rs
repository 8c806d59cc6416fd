//! Read-ahead: threads that bring in the pages that scans, and reads of many keys, are about to come to.
//!
//! A thread that needs pages soon names them and goes on. A reader gives each a frame and enters it in the translation,
//! latched exclusively like any page that arrives: a thread that wants it meanwhile waits for that latch, and finds it.
//! Neighbours in the file are read in one call, others by other readers at the same time. What cannot be read gives its
//! frame back and is forgotten: a thread that needs the page reads it, and is told what is wrong.
//!
//! Nobody's page suffers for it: a reader takes free frames, and those of clean pages that were not used since CLOCK's
//! hand passed; and a page that was read in vain has never been used, so it is the next to go.

use std::collections::VecDeque;

use foreshore_base::{PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
};

use super::{BufferPool, ExclusivePage, transit::Permit};

/// Pages read in one call, at most.
const RUN_PAGES: usize = 16;
/// The share of the frames that one scan may have filled ahead of it.
const POOL_SHARE: usize = 8;
/// Scans whose pages may wait to be read; what more of them name is dropped.
const SCANS: usize = 4;
/// Pages of a scan's window for each reader, and most readers.
const READER_SHARE: usize = 8;
const MOST_READERS: usize = 4;

/// The readers, and what they are to read.
#[derive(Debug)]
pub(super) struct Readers {
    /// Pages that a scan may name at once; 0: there are no readers.
    window: usize,
    desk: Arc<Desk>,
    /// Taken by the one who joins.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<Orders>,
    rung: Condvar,
}

/// Guarded by the mutex, which is held for a look or an insertion.
#[derive(Debug, Default)]
struct Orders {
    /// In the order in which they were named; each page once.
    pages: VecDeque<PageId>,
    /// Readers that have pages in hand.
    busy: usize,
    stop: bool,
}

/// A page that is being read. Nobody else has its latch.
struct Arriving<'p> {
    page: ExclusivePage<'p>,
    /// Held until the page is there.
    _permit: Permit<'p>,
}

impl Readers {
    pub(super) fn new(wanted: usize, frames: usize) -> Readers {
        let window = wanted.min(frames / POOL_SHARE);
        Readers { window, desk: Arc::default(), threads: Mutex::default() }
    }

    pub(super) fn start(pool: &Arc<BufferPool>) -> Result<()> {
        for _ in 0..pool.readers.window.div_ceil(READER_SHARE).min(MOST_READERS) {
            let (desk, weak) = (Arc::clone(&pool.readers.desk), Arc::downgrade(pool));
            let work = move || {
                while let Some(run) = desk.wait() {
                    let Some(pool) = weak.upgrade() else { return };
                    pool.bring(&run);
                    desk.done();
                }
            };
            let thread = thread::Builder::new()
                .name("foreshore-reader".to_owned())
                .spawn(work)
                .map_err(StorageError::io("start a reader of", &pool.path))?;
            pool.readers.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Whether nothing is being read, nor waits to be.
    pub(super) fn are_idle(&self) -> bool {
        let orders = self.desk.orders.lock();
        orders.stop || (orders.pages.is_empty() && orders.busy == 0)
    }

    /// Ends the threads and waits for them. Called any number of times.
    pub(super) fn stop(&self) {
        self.desk.orders.lock().stop = true;
        self.desk.rung.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The pool goes with its last user, and for a moment that may be a reader.
            if thread.thread().id() != thread::current().id() {
                // A panic in there was printed when it happened; there is nothing to add.
                _ = thread.join();
            }
        }
    }
}

impl Desk {
    /// Sleeps until there is work, and gives pages that follow one another; `None` when it is to stop.
    fn wait(&self) -> Option<Vec<PageId>> {
        let mut orders = self.orders.lock();
        while orders.pages.is_empty() && !orders.stop {
            orders = self.rung.wait(orders);
        }
        if orders.stop {
            return None;
        }
        let mut run: Vec<PageId> = orders.pages.pop_front().into_iter().collect();
        while let (Some(last), Some(next)) = (run.last(), orders.pages.front())
            && last.0.checked_add(1) == Some(next.0)
            && run.len() < RUN_PAGES
        {
            run.extend(orders.pages.pop_front());
        }
        if !orders.pages.is_empty() {
            // Elsewhere in the file: for another reader, at the same time.
            self.rung.notify_one();
        }
        orders.busy += 1;
        Some(run)
    }

    fn done(&self) {
        self.orders.lock().busy -= 1;
    }
}

impl BufferPool {
    /// Pages that a scan may name at once in [`BufferPool::read_ahead`]; 0: nothing is read ahead.
    #[inline]
    pub fn read_ahead_window(&self) -> usize {
        self.readers.window
    }

    /// Has these pages brought in, in the background, those that are not there yet. A hint: nothing waits for it, and
    /// whatever comes between is no error.
    pub fn read_ahead(&self, pages: &[PageId]) {
        let wanted = |page: &&PageId| page.is_some() && self.resident(**page).is_none();
        let mut missing = pages.iter().filter(wanted).take(self.readers.window).peekable();
        if missing.peek().is_none() {
            return;
        }
        let mut orders = self.readers.desk.orders.lock();
        for page in missing {
            if orders.pages.len() < SCANS * self.readers.window && !orders.pages.contains(page) {
                orders.pages.push_back(*page);
            }
        }
        drop(orders);
        self.readers.desk.rung.notify_one();
    }

    /// Brings in pages that follow one another.
    fn bring(&self, run: &[PageId]) {
        let mut arriving = Vec::with_capacity(run.len());
        for id in run {
            match self.expect(*id) {
                Some(page) => arriving.push(page),
                // The run has a hole.
                None => self.read_arriving(&mut arriving),
            }
        }
        self.read_arriving(&mut arriving);
    }

    /// A frame for the page, unless it is there, on its way, or no longer a page of the file.
    fn expect(&self, id: PageId) -> Option<Arriving<'_>> {
        if u64::from(id.0) >= self.page_count() || self.resident(id).is_some() {
            return None;
        }
        let permit = self.transit.try_enter(id)?;
        let page = self.claim_cold()?.place_unused(id)?;
        Some(Arriving { page, _permit: permit })
    }

    fn read_arriving(&self, arriving: &mut Vec<Arriving<'_>>) {
        let Some(first) = arriving.first() else { return };
        let offset = u64::from(first.page.id().0) * PAGE_BYTES as u64;
        let mut bytes = vec![0; arriving.len() * PAGE_BYTES];
        let read = self.file.read_exact_at(&mut bytes, offset);
        for (arrived, bytes) in arriving.drain(..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
            let sound = read.is_ok() && self.seal.check(bytes, arrived.page.id(), self.log.tail()).is_ok();
            if sound {
                arrived.page.words().load_from(bytes);
                self.counters.read_ahead.add(1);
            } else {
                arrived.page.evacuate();
                self.counters.read_ahead_failures.add(1);
            }
        }
    }
}
