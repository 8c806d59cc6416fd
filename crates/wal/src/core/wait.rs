//! Waiting: for a flush, for room in the ring, and the flusher, the writer and the maker of spares for work.
//!
//! Group commit: the flusher works in batches. A thread that waits for a record of the running batch sleeps until that
//! ends, one that waits for a later record until the next ends, on two condition variables in turn. So a batch wakes
//! those that it has satisfied and nobody else (unless it ended early, because somebody was in the middle of an
//! append). Before it begins, those that the last one satisfied may come back with more: see `gather.rs`. A thread that
//! finds the flusher asleep makes the batch durable itself: see `lead.rs`.

use foreshore_base::{Lsn, Result};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::atomic::Ordering,
    time::Instant,
};

use super::{CLOSED, Core, POISONED, gather::Gathering, lead::Turn};
use crate::segment::no_record;

/// Room in a crowded ring for which one thread is woken. A crowd that is woken for a piece has filled that at once, and
/// most of it sleeps again without having appended anything.
const BYTES_FOR_EACH: u64 = 256 << 10;

/// Guarded by the mutex of [`Core::waiting`].
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Somebody wants everything below this durable.
    pub(super) requested: u64,
    /// The number of the batch being flushed, or of the last one.
    pub(super) batch: u64,
    /// The batch being flushed reaches at most to here; 0 between batches.
    pub(super) batch_end: u64,
    /// Who waits for batches, and whom the flusher waits for.
    pub(super) gathering: Gathering,
    /// Spares are to be made.
    space_wanted: bool,
    /// A batch is to be made durable, though nobody waits for it: a segment has ended.
    pub(super) batch_wanted: bool,
    /// The flusher sleeps and must be woken.
    pub(super) flusher_sleeps: bool,
    /// When it wakes by itself.
    pub(super) timer: Timer,
    /// Somebody who waits is the flusher meanwhile.
    pub(super) is_led: bool,
    /// The flusher waits until that is over.
    pub(super) is_held_up: bool,
    pub(super) stop: Stop,
    /// The flusher has ended: nothing more will become durable.
    pub(super) flusher_gone: bool,
}

impl Waiting {
    /// Nobody waits yet.
    pub(super) fn new(timer: Timer) -> Waiting {
        Waiting { timer, ..Waiting::default() }
    }

    /// Whether this batch is over.
    fn has_ended(&self, batch: u64) -> bool {
        self.batch > batch || (self.batch == batch && self.batch_end == 0)
    }
}

/// What the flusher shall do at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing: go on.
    #[default]
    No,
    /// Make all durable, then end.
    Flushed,
    /// End at once.
    Now,
}

/// When the flusher does what nobody asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer {
    /// Flushes what was appended meanwhile.
    pub(super) flush: Option<Instant>,
    /// Puts a mark under a log that has been quiet since its last batch.
    pub(super) mark: Option<Instant>,
}

impl Core {
    /// Returns when the record that starts at `lsn` is durable, or, with `false`, when the deadline has passed.
    pub(crate) fn flush(&self, lsn: Lsn, deadline: Option<Instant>) -> Result<bool> {
        if self.durable() > lsn.0 {
            return Ok(true);
        }
        if lsn.0 >= self.tail() {
            return Err(no_record(lsn, Lsn(self.low_water()), Lsn(self.tail())));
        }
        let mut waiting = self.waiting.lock();
        let mut gatherer = None;
        loop {
            if self.durable() > lsn.0 {
                return Ok(true);
            }
            if waiting.flusher_gone || self.gate.load(Ordering::Acquire) == POISONED {
                drop(waiting);
                return Err(self.refusal());
            }
            waiting.requested = waiting.requested.max(lsn.0 + 1);
            let number = if lsn.0 < waiting.batch_end { waiting.batch } else { waiting.batch + 1 };
            waiting.gathering.arrive(number);
            let batch = &self.batches[(number % 2) as usize];
            // A thread that has a deadline does not lead: a sync has none.
            let turn = if deadline.is_none() { waiting.turn(&mut gatherer) } else { Turn::Wait };
            waiting = match turn {
                Turn::Lead => self.lead(waiting),
                Turn::LeadAt(due) => batch.wait_until(waiting, due),
                Turn::Wait => {
                    self.ask_flusher(&mut waiting);
                    match deadline {
                        Some(deadline) => batch.wait_until(waiting, deadline),
                        None => batch.wait(waiting),
                    }
                }
            };
            if !waiting.has_ended(number) {
                waiting.gathering.leave(number);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(self.durable() > lsn.0);
            }
        }
    }

    /// Asks the flusher, without waiting.
    pub(crate) fn request_flush(&self, lsn: Lsn) {
        if self.durable() > lsn.0 || lsn.0 >= self.tail() {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.requested <= lsn.0 {
            waiting.requested = lsn.0 + 1;
            self.ask_flusher(&mut waiting);
        }
    }

    /// Wakes the flusher for a flush, unless others are waited for before it begins, or the leader will see what is
    /// asked for.
    fn ask_flusher(&self, waiting: &mut Waiting) {
        let next = waiting.batch + 1;
        if !waiting.is_led && !waiting.gathering.lacks_some(next) {
            self.wake_flusher(waiting);
        }
    }

    pub(super) fn wake_flusher(&self, waiting: &mut Waiting) {
        if waiting.flusher_sleeps {
            waiting.flusher_sleeps = false;
            self.work.notify_one();
        }
    }

    /// Lets nobody append any more, and tells the flusher to end.
    pub(crate) fn shut(&self, stop: Stop) {
        let mut waiting = self.waiting.lock();
        self.gate.fetch_max(CLOSED, Ordering::AcqRel);
        if waiting.stop != Stop::Now {
            waiting.stop = stop;
        }
        self.wake_all(&mut waiting);
    }

    pub(super) fn wake_all(&self, waiting: &mut Waiting) {
        self.wake_flusher(waiting);
        self.writing.notify_all();
        self.space.notify_all();
        self.making.notify_all();
        self.batches[0].notify_all();
        self.batches[1].notify_all();
    }
}

/// The side of the maker of spares.
impl Core {
    /// Asks for spares.
    #[cold]
    pub(super) fn want_space(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.space_wanted {
            waiting.space_wanted = true;
            self.making.notify_one();
        }
    }

    /// Sleeps until spares are asked for, and until `not_before` at least; false: there will be no more.
    pub(super) fn space_is_wanted(&self, not_before: Option<Instant>) -> bool {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.stop != Stop::No || self.gate.load(Ordering::Acquire) == POISONED {
                return false;
            }
            waiting = match not_before {
                _ if !waiting.space_wanted => self.making.wait(waiting),
                Some(due) if Instant::now() < due => self.making.wait_until(waiting, due),
                _ => {
                    waiting.space_wanted = false;
                    return true;
                }
            };
        }
    }
}

/// The writer's side.
impl Core {
    /// Whether the ring is more than half full.
    fn is_crowded(&self) -> bool {
        self.ring.taken(self.tail()) > self.ring.bytes() / 2
    }

    /// Wakes the writer.
    #[cold]
    pub(super) fn want_write(&self) {
        if !self.write_wanted.swap(true, Ordering::Relaxed) {
            // Under the mutex: it sees the wish, or sleeps already.
            let _waiting = self.waiting.lock();
            self.writing.notify_one();
        }
    }

    /// Sleeps until the ring is to be emptied; false: it is not any more.
    pub(super) fn writing_is_wanted(&self) -> bool {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.stop != Stop::No || self.gate.load(Ordering::Acquire) == POISONED {
                return false;
            }
            if self.write_wanted.swap(false, Ordering::Relaxed) {
                return true;
            }
            waiting = self.writing.wait(waiting);
        }
    }

    /// Asks the flusher for a batch.
    pub(super) fn want_batch(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.batch_wanted {
            waiting.batch_wanted = true;
            self.wake_flusher(&mut waiting);
        }
    }
}

/// The flusher's side.
impl Core {
    /// Ends the long sleep of the flusher.
    #[cold]
    pub(super) fn wake_dozing(&self) {
        if self.doze.end() {
            self.wake_flusher(&mut self.waiting.lock());
        }
    }

    /// Begins a batch; gives how far it reaches at most.
    pub(super) fn begin_batch(&self) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.batch += 1;
        waiting.batch_end = self.tail();
        let batch = waiting.batch;
        waiting.gathering.end(batch);
        waiting.batch_end
    }

    /// Ends a batch that was begun then, and made all below `durable` durable, with a mark that says so at its end or
    /// without.
    pub(super) fn end_batch(&self, durable: u64, begun: Instant, is_sealed: bool) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        // What was appended since the batch began waits for its flush from then on.
        waiting.timer.flush = Some(begun + self.flush_interval);
        waiting.timer.mark = (!is_sealed).then(|| now + self.flush_interval);
        // Pairs with the acquire in `durable`: a thread that sees the log durable sees that it was synced.
        self.durable.store(durable, Ordering::Release);
        waiting.batch_end = 0;
        let batch = waiting.batch;
        waiting.gathering.batch_ended(batch, now.duration_since(begun));
        // The writer may have come as far as it is allowed to.
        if self.is_crowded() {
            self.write_wanted.store(true, Ordering::Relaxed);
            self.writing.notify_one();
        }
        // They find the mutex free.
        drop(waiting);
        if !planted(Fault::FlushWakeUpLost) {
            self.batches[(batch % 2) as usize].notify_all();
        }
    }

    /// Room was made in the ring: of those who wait for it as many are woken as will take that much at once; all when
    /// it is no longer crowded, which it is in the end, because the writer goes on until then.
    pub(super) fn room_was_made(&self, bytes: u64) {
        let _waiting = self.waiting.lock();
        if !self.is_crowded() {
            return self.space.notify_all();
        }
        for _ in 0..self.awaiting_room().min(1 + (bytes / BYTES_FOR_EACH) as usize) {
            self.space.notify_one();
        }
    }

    /// The writer has come as far as it could: it goes on if somebody waits for room in a ring that is still crowded.
    /// Those who were woken may append nothing, and so would not ask for it.
    pub(super) fn has_written(&self) {
        let _waiting = self.waiting.lock();
        if self.awaiting_room() > 0 && self.is_crowded() {
            self.still_crowded();
        }
    }

    /// Space was made on the disk.
    pub(super) fn space_was_made(&self) {
        let _waiting = self.waiting.lock();
        self.space.notify_all();
    }

    /// The writer is to come again, though nobody asks for it.
    pub(super) fn still_crowded(&self) {
        self.write_wanted.store(true, Ordering::Relaxed);
    }

    /// The flusher ends.
    pub(super) fn flusher_ends(&self) {
        let mut waiting = self.waiting.lock();
        waiting.flusher_gone = true;
        self.wake_all(&mut waiting);
    }
}
