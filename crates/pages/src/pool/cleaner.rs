//! The cleaner: threads that write dirty pages before the clock hand comes to them, so that a thread that needs a frame
//! finds a clean one (Shore-MT §6.2.3). They look at a part of the frames ahead of the hand, and look again when the
//! hand has gone half of that way; while the hand stands still, because the working set fits the pool, they sleep, and
//! checkpoints are all the writing there is. Of a round each takes a few frames at a time; which of them takes which
//! does not matter, for a page that one is writing is nothing to the others (PAGE-5).
//!
//! They also lengthen the data file before that is needed (`space.rs`), and have the system give memory to frames that
//! will be used next for the first time, unless all got it when the pool was made.
//!
//! Whoever finds nothing but dirty pages all the same helps: it takes parts of the round as the cleaner does, but only
//! pages whose records are durable, and empties their frames. Where many threads share few processors, the cleaner has
//! its turn too seldom; did all wait for it, each of its batches would wake all of them, and most for nothing. Where
//! records are not durable yet, they do wait, before each writes a page itself: the cleaner waits for the log once for
//! many pages, and so would everybody for one.

use std::ops::Range;

use foreshore_base::{FrameIndex, Result, StorageError};
use foreshore_env::{
    hint,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};
use foreshore_latch::{Patience, parking::LOOK_INTERVAL};

use super::{BufferPool, FrameRef, PoolOptions, clock::EmptyFrame, frame::Frames, write::Batch};

/// Pages written with one wait for the log.
const BATCH_PAGES: usize = 64;
/// Pages that a thread writes which helps: as many as a transaction of a thousand small changes needs.
const HELP_PAGES: usize = 16;
/// The share of the frames ahead of the hand that one round looks at.
const WINDOW_SHARE: usize = 4;

/// Frames of a round that one thread takes at a time.
const PART_STEPS: u64 = 8;
/// Frames that get their memory at a time: 2 MiB, as the system gives it where it has huge pages.
const MEMORY_PART: usize = 256;
/// How many frames have their memory before they are used.
const MEMORY_AHEAD: usize = 4 * MEMORY_PART;
/// The most threads that clean.
const MAX_CLEANERS: usize = 64;

/// The threads and the bell that wakes them.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    bell: Arc<Bell>,
    /// When the hand has come here, in steps, the cleaner is to look at the frames ahead. Written by the cleaner, read
    /// by whoever moves the hand. Relaxed: a thread that overlooks it meets dirty pages, and rings.
    next_round: AtomicU64,
    /// Where the next part of the round begins, in steps. Set by whoever begins the round, moved on by all who clean.
    /// Relaxed: a part that two look at, or nobody, is cleaned once, or in the next round.
    cursor: AtomicU64,
    /// Taken by the one who joins.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Bell {
    orders: Mutex<Orders>,
    rung: Condvar,
    /// Those who wait for clean pages sleep here.
    progress: Condvar,
    /// A copy of `Orders::clean`, written under the mutex, so that ringing twice costs nothing. Relaxed: a ring that is
    /// missed is repeated by the next thread that meets a dirty page.
    ringing: AtomicBool,
}

/// Guarded by the mutex.
#[derive(Debug, Default)]
struct Orders {
    /// How many threads have not heard yet that a round is wanted.
    clean: usize,
    /// Nobody has begun that round.
    fresh: bool,
    /// The file is to be lengthened, if it still has so many pages.
    grow: Option<u64>,
    /// How many frames, the first ones, have got memory, and how many are to have it.
    populated: usize,
    wanted: usize,
    stop: bool,
    /// Threads that clean.
    working: usize,
    /// Grows with every batch that is written, and with every end of a round.
    steps: u64,
}

/// What a thread of the cleaner is to do.
enum Work {
    /// A part of a round; whether it begins the round.
    Clean(bool),
    /// Lengthen the file, if it still has so many pages.
    Grow(u64),
    /// Have the system give memory to these frames.
    Populate(Range<usize>),
}

/// Tells those who wait that a thread of the cleaner has ended, also by a panic.
struct Farewell(Arc<Bell>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.orders.lock().working -= 1;
        self.0.progress.notify_all();
    }
}

impl Cleaner {
    /// Has the pool get its memory, if all of it is wanted now, and starts the threads.
    pub(super) fn start(pool: &Arc<BufferPool>, options: &PoolOptions) -> Result<()> {
        if options.prefault {
            pool.cleaner.populate(&pool.frames);
        }
        for _ in 0..options.cleaners.min(MAX_CLEANERS) {
            let (bell, weak) = (Arc::clone(&pool.cleaner.bell), Arc::downgrade(pool));
            // Counted here, so that nobody finds the pool without a cleaner that is about to begin.
            bell.orders.lock().working += 1;
            let farewell = Farewell(bell);
            let work = move || {
                let bell = &farewell.0;
                while let Some(work) = bell.wait() {
                    let Some(pool) = weak.upgrade() else { return };
                    match work {
                        Work::Clean(begins) => {
                            // A failure has stopped the database; whoever uses it next is told.
                            _ = pool.clean_ahead(begins);
                            bell.tell_progress();
                        }
                        // Whoever needs the space is told if there is none.
                        Work::Grow(seen) => _ = pool.grow_ahead(seen),
                        Work::Populate(frames) => hint::populate(pool.frames.pages(frames)),
                    }
                }
            };
            let thread = thread::Builder::new()
                .name("foreshore-cleaner".to_owned())
                .spawn(work)
                .map_err(StorageError::io("start the page cleaner of", &pool.path))?;
            pool.cleaner.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Asks for a round.
    pub(super) fn wake(&self) {
        if !self.bell.ringing.load(Ordering::Relaxed) {
            self.bell.ring(&mut self.bell.orders.lock());
        }
    }

    /// Asks for a longer file than one of `seen` pages, before somebody needs it.
    pub(super) fn want_growth(&self, seen: u64) {
        self.bell.orders.lock().grow = Some(seen);
        self.bell.rung.notify_one();
    }

    /// A free frame is taken, of which there are `count` in all. At first they are taken in their order: those behind
    /// it will be next.
    #[inline]
    pub(super) fn takes_frame(&self, index: FrameIndex, count: usize) {
        let index = index.0 as usize;
        if index.is_multiple_of(MEMORY_PART) {
            self.want_memory((index + MEMORY_PART + MEMORY_AHEAD).min(count));
        }
    }

    /// Has the system give memory to all frames now.
    pub(super) fn populate(&self, frames: &Frames) {
        let all = frames.count();
        hint::populate(frames.pages(0..all));
        let mut orders = self.bell.orders.lock();
        (orders.populated, orders.wanted) = (all, all);
    }

    #[cold]
    fn want_memory(&self, frames: usize) {
        let mut orders = self.bell.orders.lock();
        if frames > orders.wanted {
            orders.wanted = frames;
            self.bell.rung.notify_one();
        }
    }

    /// The hand has come to `step`.
    #[inline]
    pub(super) fn hand_is_at(&self, step: u64) {
        if step >= self.next_round.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Asks for a round, and waits until a batch is written or a round has ended, or until `deadline`, or until the
    /// caller's wait is cancelled. Whether something was written; `None`: there is nobody who would do it.
    pub(super) fn await_progress(&self, deadline: Instant, patience: Patience<'_>) -> Option<bool> {
        let mut orders = self.bell.orders.lock();
        let before = orders.steps;
        self.bell.ring(&mut orders);
        while orders.working > 0 && !orders.stop && orders.steps == before {
            let now = Instant::now();
            if now >= deadline || patience.is_cancelled() {
                return Some(false);
            }
            let look =
                if patience.cancelled.is_some() { deadline.min(now + LOOK_INTERVAL) } else { deadline };
            orders = self.bell.progress.wait_until(orders, look);
        }
        (orders.working > 0 && !orders.stop).then_some(true)
    }

    /// Ends the threads and waits for them. Called any number of times.
    pub(super) fn stop(&self) {
        self.bell.orders.lock().stop = true;
        self.bell.rung.notify_all();
        self.bell.progress.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The pool goes with its last user, and for a moment that may be one of these.
            if thread.thread().id() != thread::current().id() {
                // A panic in there was printed when it happened; there is nothing to add.
                _ = thread.join();
            }
        }
    }
}

impl Bell {
    /// Wakes all who clean.
    fn ring(&self, orders: &mut Orders) {
        (orders.clean, orders.fresh) = (orders.working, true);
        self.ringing.store(true, Ordering::Relaxed);
        self.rung.notify_all();
    }

    /// Sleeps until there is work; `None` when the caller is to stop.
    fn wait(&self) -> Option<Work> {
        let mut orders = self.orders.lock();
        while orders.clean == 0 && orders.grow.is_none() && orders.populated == orders.wanted && !orders.stop
        {
            orders = self.rung.wait(orders);
        }
        if orders.stop {
            return None;
        }
        if let Some(seen) = orders.grow.take() {
            return Some(Work::Grow(seen));
        }
        if orders.clean == 0 {
            let next = orders.populated..orders.wanted.min(orders.populated + MEMORY_PART);
            orders.populated = next.end;
            return Some(Work::Populate(next));
        }
        orders.clean -= 1;
        self.ringing.store(false, Ordering::Relaxed);
        Some(Work::Clean(std::mem::take(&mut orders.fresh)))
    }

    fn tell_progress(&self) {
        self.orders.lock().steps += 1;
        self.progress.notify_all();
    }
}

impl BufferPool {
    /// Writes dirty pages ahead of the hand that have not been used since it passed: the parts of a round that no other
    /// thread has taken. The thread that begins the round says where it is.
    fn clean_ahead(&self, begins: bool) -> Result<()> {
        let Cleaner { cursor, next_round, .. } = &self.cleaner;
        let window = self.window();
        let hand = self.hand_position();
        if begins {
            cursor.store(hand, Ordering::Relaxed);
            next_round.store(hand + window / 2, Ordering::Relaxed);
        }
        let mut batch = Batch::new(BATCH_PAGES);
        loop {
            let goes_on = self.collect_parts(hand + window, &mut batch, |_| true);
            self.write_cleaned(&mut batch)?;
            // What the hand has passed meanwhile can wait for its next round.
            cursor.fetch_max(self.hand_position(), Ordering::Relaxed);
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Does a batch of the cleaner's work, as far as it waits for nothing but the file, and empties the frames: for a
    /// thread that needs one, which it gets, while the others are free.
    pub(super) fn help_to_clean(&self) -> Result<Option<EmptyFrame<'_>>> {
        let hand = self.hand_position();
        self.cleaner.cursor.fetch_max(hand, Ordering::Relaxed);
        let mut batch = Batch::new(HELP_PAGES);
        self.collect_parts(hand + self.window(), &mut batch, |place| self.is_logged(place));
        let places = batch.places();
        let written = batch.write(self, Some(Instant::now()))?;
        self.counters.helped_writes.add(written);
        let unused = places.into_iter().filter(|place| !place.frame.is_referenced());
        let mut emptied = unused.filter_map(|place| self.evict(place));
        let own = emptied.next();
        emptied.for_each(drop);
        Ok(own)
    }

    /// Whether what changed a page is in the log for good, as far as one sees without a latch.
    pub(super) fn is_logged(&self, place: FrameRef<'_>) -> bool {
        self.log.is_durable(place.words.lsn())
    }

    /// How many frames ahead of the hand a round looks at.
    fn window(&self) -> u64 {
        (self.frame_count() / WINDOW_SHARE).max(1) as u64
    }

    /// Fills the batch with dirty and unused pages that are such, from the next parts of a round which ends at step
    /// `end`. Whether the round goes on.
    fn collect_parts<'p>(
        &'p self,
        end: u64,
        batch: &mut Batch<'p>,
        is_such: impl Fn(FrameRef<'p>) -> bool,
    ) -> bool {
        let mut dirty = Vec::with_capacity(batch.capacity() + PART_STEPS as usize);
        loop {
            let part = self.cleaner.cursor.fetch_add(PART_STEPS, Ordering::Relaxed);
            for step in part..end.min(part + PART_STEPS) {
                let place = self.frame_of_step(step);
                if place.frame.is_dirty() && !place.frame.is_referenced() && is_such(place) {
                    dirty.push((place.frame.page(), step));
                }
            }
            if part >= end || dirty.len() >= batch.capacity() {
                // Neighbours in the file go with one write.
                dirty.sort_unstable();
                dirty.drain(..).for_each(|(_, step)| batch.try_collect(self.frame_of_step(step)));
                return part < end;
            }
        }
    }

    /// The file, which has `seen` pages, may soon be too short.
    pub(crate) fn want_growth(&self, seen: u64) {
        self.cleaner.want_growth(seen);
    }

    fn write_cleaned(&self, batch: &mut Batch<'_>) -> Result<()> {
        let written = batch.write(self, None)?;
        if written > 0 {
            self.counters.cleaner_writes.add(written);
            self.cleaner.bell.tell_progress();
        }
        Ok(())
    }
}
