//! Transactions of the engine's own: a table that is made or dropped, a check, a slice of a compaction. Where somebody
//! has to give way, nobody but the engine can run them again.

use foreshore_env::{
    random::jittered_pause,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::LockError;

use crate::{error::TxnError, options::BeginOptions, transaction::Waiting};

/// Runs `attempt`, in which a transaction begins as it is told, again for as long as that is a deadlock's victim, or
/// gives way by the policy against deadlocks. All attempts have one age, so that the others are the younger ones in the
/// end. None begins later behind the first than one wait for a lock may last: then the last refusal is a
/// [`LockError::Timeout`].
pub(crate) fn insist<R>(
    label: &str,
    waiting: &Waiting,
    mut attempt: impl FnMut(BeginOptions) -> Result<R, TxnError>,
) -> Result<R, TxnError> {
    let began = Instant::now();
    let deadline = waiting.policy().deadline_from(began);
    let mut begin = BeginOptions { label: Some(Arc::from(label)), ..BeginOptions::default() };
    let mut victims = 0_u32;
    loop {
        let report = match attempt(begin.clone()) {
            Err(TxnError::Lock(LockError::Deadlock(report))) => report,
            ended => return ended,
        };
        begin.age.get_or_insert(report.victim.0);
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let left = deadline.map_or(Duration::MAX, left);
        if left.is_zero() {
            let waited = began.elapsed();
            let timeout = waiting.timeout.filter(|timeout| *timeout <= waited);
            return Err(LockError::Timeout(report.refusal(waited, timeout)).into());
        }
        thread::sleep(jittered_pause(victims).min(left));
        victims = victims.saturating_add(1);
    }
}
