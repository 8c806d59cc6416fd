//! Questions about a lock that take nothing.

use foreshore_base::TableId;

use super::{LockOwner, held::HeldLock};
use crate::error::LockError;
use crate::mode::KeyMode;
use crate::name::{KeyRef, LockName};

impl LockOwner {
    /// Whether [`LockOwner::try_acquire`] would answer `true` at this moment. Takes nothing. (Under
    /// [`crate::KeyRangeModes::Lomet`] a check of a gap alone is for an insert, and finds fewer in its way.) Of a key
    /// without a name it is false: whoever asks for the lock then is told why.
    pub fn check(&self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> bool {
        let Ok(name) = self.manager.name(table, key) else { return false };
        self.check_beside(name, self.state().held.of(name), mode)
    }

    /// What it holds on a key, and whether that covers `mode` or [`LockOwner::check`] answers `true`.
    ///
    /// # Errors
    /// [`LockError::Partitioner`] only.
    #[inline]
    pub fn held_and_check(
        &self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(KeyMode, bool), LockError> {
        let name = self.manager.name(table, key)?;
        let held = self.state().held.of(name);
        let has = held.map_or(KeyMode::N, |lock| lock.mode);
        Ok((has, has.covers(mode) || self.check_beside(name, held, mode)))
    }

    /// As [`LockOwner::holds`] for the lock that was the `place`th when it came, as [`LockOwner::held_and_check_at`]
    /// has it.
    #[inline]
    pub fn holds_at(&self, place: usize, mode: KeyMode) -> bool {
        self.state().held.get(place).mode.covers(self.manager.key_ranges.widen(mode))
    }

    /// As [`LockOwner::held_and_check`] for the lock that was the `place`th when it came, counted from 0: by
    /// [`LockOwner::lock_count`] before that. Without a name, and for as long as no lock was given back.
    #[inline]
    pub fn held_and_check_at(&self, place: usize, mode: KeyMode) -> (KeyMode, bool) {
        let held = self.state().held.get(place);
        (held.mode, held.mode.covers(mode) || self.check_beside(held.name, Some(held), mode))
    }

    #[inline]
    fn check_beside(&self, name: LockName, held: Option<HeldLock>, mode: KeyMode) -> bool {
        let mode = self.manager.key_ranges.widen_check(mode);
        let table = &self.manager.table;
        match held {
            Some(held) => {
                held.mode.covers(mode)
                    || table.is_alone(name, held.request)
                    || table.check(name, self.slot, mode, true)
            }
            None => table.check(name, self.slot, mode, false),
        }
    }
}
