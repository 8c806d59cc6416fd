//! How long somebody is ready to wait.

use foreshore_env::sync::atomic::{AtomicBool, Ordering::Acquire};
use foreshore_env::time::Instant;

/// How long somebody is ready to wait: until a deadline, and as long as nobody has cancelled. By default without end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience<'a> {
    /// Until when, at the latest.
    pub deadline: Option<Instant>,
    /// Set by whoever cancels, from any thread; seen within 20 ms.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Patience<'_> {
    /// Without end.
    pub const ENDLESS: Patience<'static> = Patience { deadline: None, cancelled: None };

    /// Whether somebody has cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        // Acquire: partner is the Release of whoever cancels.
        self.cancelled.is_some_and(|cancelled| cancelled.load(Acquire))
    }
}
