//! Locks for somebody who does not sleep: a thread that works for many transactions asks in their names, and looks
//! again when it comes by. And giving locks back in parts, by whoever looks after that part of the table.
//!
//! While it is not granted, such a request is a wait like others (LOCK-4, LOCK-6): it is in its queue, deadlocks
//! through it are found, by others and by the looks of this one.

use foreshore_base::{Lsn, TableId};
use foreshore_env::sync::atomic::Ordering::Relaxed;
use foreshore_env::time::{Duration, Instant, earlier};

use super::{Attempt, LockOwner, OwnerState, Wish, coarse::Coarse, held::HeldLock, wish::Begun};
use crate::deadlock::{KeyBytes, Pause};
use crate::error::LockError;
use crate::mode::KeyMode;
use crate::name::{KeyRef, LockName};
use crate::slot::WaitWord;
use crate::wait::{Looks, Stopped, WaitPolicy};

/// How long a cancellation is not seen at most, which wakes nobody who looks after others.
const CANCELLATION: Duration = Duration::from_millis(1);

/// What was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    wish: Wish,
    word: WaitWord,
    began: Instant,
    looks: Looks,
    /// When it was looked last whether it has ended.
    seen: Option<Instant>,
    /// If it is a lock on a table.
    coarse: Option<Coarse>,
    table: TableId,
    /// If notes are kept.
    key: Option<Vec<u8>>,
}

impl LockOwner {
    /// As [`LockOwner::acquire`], but comes back when it would wait: `false`, and the wait goes on. Nothing else may be
    /// asked for until [`LockOwner::look`] has said that it has ended. Dropping the owner ends it too.
    pub fn ask(
        &mut self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
        wait: &WaitPolicy<'_>,
    ) -> Result<bool, LockError> {
        debug_assert!(self.asked.is_none(), "one wait at a time");
        let name = self.manager.name(table, key)?;
        let mode = self.manager.key_ranges.widen(mode);
        let request = match self.attempt(table, key, name, mode)? {
            Attempt::Done => return Ok(true),
            Attempt::Blocked(request) => request,
        };
        let Some(wish) = self.wish(name, mode, request)? else { return Ok(true) };
        self.state_mut().waited = true;
        self.begin_asking(wish, None, table, Some(key), wait)
    }

    /// Enters the queue for what was not free; whether it was all the same. `key`: unless it is a lock on a table,
    /// `coarse`.
    pub(super) fn begin_asking(
        &mut self,
        wish: Wish,
        coarse: Option<Coarse>,
        table: TableId,
        key: Option<KeyRef<'_>>,
        wait: &WaitPolicy<'_>,
    ) -> Result<bool, LockError> {
        debug_assert!(self.asked.is_none(), "one wait at a time");
        let began = Instant::now();
        self.manager.slots.wait_of(self.slot).announce(true);
        let outcome = match wish.begin(&self.manager, self.slot, table, key.and_then(KeyBytes::of), wait) {
            Ok(Begun::Waiting(word)) => {
                let key = match key {
                    Some(KeyRef::Key(key)) if self.manager.notes.is_some() => Some(key.to_vec()),
                    _ => None,
                };
                self.asked = Some(Box::new(Asked {
                    wish,
                    word,
                    began,
                    looks: Looks::default(),
                    seen: None,
                    coarse,
                    table,
                    key,
                }));
                return Ok(false);
            }
            Ok(Begun::Granted(tag)) => Ok(tag),
            Err(error) => Err(error),
        };
        self.settle_asked(wish, coarse, table, key, outcome).map(|()| true)
    }

    fn settle_asked(
        &mut self,
        wish: Wish,
        coarse: Option<Coarse>,
        table: TableId,
        key: Option<KeyRef<'_>>,
        outcome: Result<Lsn, LockError>,
    ) -> Result<(), LockError> {
        if let Some(coarse) = coarse {
            return self.settle_intent(coarse, wish, outcome);
        }
        self.settle(wish, outcome)?;
        self.note(wish, table, key.unwrap_or(KeyRef::NegativeInfinity));
        Ok(())
    }

    /// Whether what was asked for is granted. After an error, too, the wait has ended.
    pub fn look(&mut self, wait: &WaitPolicy<'_>) -> Result<bool, LockError> {
        let Some(asked) = &mut self.asked else { return Ok(true) };
        let (manager, slot) = (&self.manager, self.slot);
        let deadline = wait.deadline_from(asked.began);
        let Some(stopped) = manager.has_stopped(slot, asked.word, deadline, wait.cancel) else {
            let now = Instant::now();
            asked.seen = Some(now);
            if asked.looks.are_due(now) {
                let again = asked.looks.have_begun();
                let pause = manager.detector.look(manager, slot, asked.word, asked.began, again);
                // Who asks has others to look after.
                asked.looks.note(now, if pause == Pause::Spin { Pause::Nap } else { pause });
            }
            return Ok(false);
        };
        self.end_asking(stopped, wait.timeout).map(|()| true)
    }

    /// When [`LockOwner::look`] is due at the latest, unless what was asked for is answered before; `None` if nothing
    /// was asked for, or it was granted.
    pub fn look_by(&self, wait: &WaitPolicy<'_>) -> Option<Instant> {
        let asked = self.asked.as_ref()?;
        let Some(seen) = asked.seen else { return Some(asked.began) };
        let nap = asked.looks.nap(seen);
        let next = seen + if wait.cancel.is_some() { nap.min(CANCELLATION) } else { nap };
        Some(earlier(next, wait.deadline_from(asked.began)))
    }

    fn end_asking(&mut self, stopped: Stopped, timeout: Option<Duration>) -> Result<(), LockError> {
        let Some(asked) = self.asked.take() else { return Ok(()) };
        let Asked { wish, began, coarse, table, key, .. } = *asked;
        self.manager.has_waited(self.slot, began);
        let outcome = wish.end(&self.manager, self.slot, stopped, timeout);
        self.settle_asked(wish, coarse, table, key.as_deref().map(KeyRef::Key), outcome)
    }

    /// Ends the wait, if there is one: what was asked for is held or not.
    pub(super) fn stop_asking(&mut self) {
        // Whoever stops does not ask how it ended.
        let _ = self.end_asking(Stopped::Cancelled, None);
    }

    /// Of a transaction that has ended: gives back the locks on keys that `which` chooses, leaving `tag` as
    /// [`LockOwner::release_all`] does. The others follow; no lock is asked for in between (LOCK-10).
    pub fn release_some(&mut self, which: impl Fn(LockName) -> bool, tag: Option<Lsn>) {
        self.release_chosen(0, |lock| which(lock.name), tag, |_| {});
    }

    /// Of a transaction that has ended: gives back the locks on keys that it acquired after the first `count`, leaving
    /// `tag` as [`LockOwner::release_all`] does. `passed` is told the names of those that somebody has waited for.
    pub fn release_later(&mut self, count: usize, tag: Option<Lsn>, passed: impl FnMut(LockName)) {
        if self.lock_count() > count {
            self.release_chosen(count, |_| true, tag, passed);
        }
    }

    /// Gives back the locks on keys that `which` chooses, of those from place `from` on.
    pub(super) fn release_chosen(
        &mut self,
        from: usize,
        which: impl Fn(&HeldLock) -> bool,
        tag: Option<Lsn>,
        mut passed: impl FnMut(LockName),
    ) {
        let (manager, slot, OwnerState { held, free, .. }) = self.parts();
        let reuses = manager.table.reuses_requests();
        let before = held.len();
        held.take_out(from, which, |lock| {
            let awaited = manager.table.release(&manager.slots, lock.name, lock.request, tag);
            lock.ended(awaited);
            if awaited {
                passed(lock.name);
            }
            if reuses {
                free.give_released(lock.request);
            }
        });
        let released = (before - held.len()) as u64;
        let published = manager.slots.get(slot);
        published.released.store(published.released.load(Relaxed) + released, Relaxed);
        if held.len() == 0
            && let Some(notes) = &manager.notes
        {
            notes.forget(slot);
        }
    }
}
