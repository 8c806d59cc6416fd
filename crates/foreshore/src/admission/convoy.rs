//! Whether threads that wait for locks, or for room in the log, form a convoy.

use foreshore_env::time::{Duration, Instant};

use super::limit::SPELL;

/// Threads that wait, to a processor, that make a convoy.
pub(super) const CONVOY: u32 = 2;
/// After a limit has gone a convoy makes a new one only after so long.
const LULL: Duration = Duration::from_secs(2);

/// How long transactions have waited for locks and for room in the log, all together, and this process has computed, by
/// then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) at: Instant,
    pub(super) waited: Duration,
    pub(super) computed: Duration,
}

/// Looks out for convoys.
#[derive(Debug)]
pub(super) struct Watch {
    /// As it was when it last looked.
    pub(super) pace: Pace,
    /// Until when the watch does not look again.
    pub(super) rests_until: Instant,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Watch {
        Watch { pace: Pace { at: now, waited: Duration::ZERO, computed: Duration::ZERO }, rests_until: now }
    }

    /// The limit has gone: looks no more for [`LULL`].
    pub(super) fn rest(&mut self, now: Instant) {
        self.rests_until = now + LULL;
    }

    /// Whether more than [`CONVOY`] threads for each processor have waited since it last looked, and half of the
    /// processors' time was used. `pace`: as it is now, if it comes to that; `None` where nobody counts it.
    pub(super) fn sees_convoy(
        &mut self,
        processors: u32,
        now: Instant,
        pace: impl FnOnce(Instant) -> Option<Pace>,
    ) -> bool {
        let spell = now.saturating_duration_since(self.pace.at);
        if spell < SPELL || now < self.rests_until {
            return false;
        }
        let Some(pace) = pace(now) else { return false };
        let before = std::mem::replace(&mut self.pace, pace);
        let waited = pace.waited.saturating_sub(before.waited);
        let computed = pace.computed.saturating_sub(before.computed);
        // What waiting and computing were like on average over a longer time says little of now.
        spell < 10 * SPELL && waited >= spell * CONVOY * processors && computed * 2 >= spell * processors
    }
}
