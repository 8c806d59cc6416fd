//! Who is told how far a run is.

use foreshore_env::time::Duration;

use crate::ComparisonReport;

/// Who wants to know how far a run is. Called by the thread that called [`run`](crate::run), about ten times a second.
pub trait Observer {
    /// So many rows are loaded, of about so many.
    fn loading(&self, rows: u64, of: u64);

    /// The run is so old, will last so long, and has committed so many transactions. A run of a number of iterations
    /// says so once, when its warm-up is over, and gives no times.
    fn running(&self, elapsed: Duration, of: Duration, commits: u64);

    /// The measured time is over, or the iterations are: threads end what they have begun.
    fn measured(&self) {}

    /// All variants of a comparison have had another round with a number of threads; `so_far` makes the report of all
    /// rounds until now.
    fn compared(&self, _so_far: &dyn Fn() -> ComparisonReport) {}

    /// The checks have begun.
    fn checking(&self);
}

/// An observer that does not care.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn loading(&self, _rows: u64, _of: u64) {}
    fn running(&self, _elapsed: Duration, _of: Duration, _commits: u64) {}
    fn checking(&self) {}
}
