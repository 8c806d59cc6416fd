//! What a lock manager knows of the end of its database: a transaction that waits for a lock must not wait for what
//! nobody will give back.

use std::fmt;

use foreshore_base::Result;
use foreshore_env::sync::Arc;

/// Says whether there is still something to be locked. Whoever waits asks it between two naps, so a wait ends within
/// the longest of them (160 ms) after it has failed.
#[derive(Clone)]
pub struct Lifeline(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Lifeline {
    /// `check` fails from some moment on, and for ever then. It is asked under no latch, and must not wait.
    pub fn new(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Lifeline {
        Lifeline(Arc::new(check))
    }

    pub(crate) fn check(&self) -> Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Lifeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lifeline")
    }
}

impl PartialEq for Lifeline {
    fn eq(&self, other: &Lifeline) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Lifeline {}
