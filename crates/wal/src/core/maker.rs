//! The maker of spares: a thread that takes space on the disk ahead of need (WAL-13), and prepares the next segment
//! when half of one is written, so that neither the flusher, and with it all who wait for a commit, nor anybody else
//! does.

use foreshore_env::time::{Duration, Instant};

use super::{Core, Farewell};

/// How often a full disk is asked for space, and whether a file can be made again.
const SPACE_RETRY: Duration = Duration::from_millis(100);
/// What the log is poisoned with when the maker dies.
pub(super) const DIED: &str = "the maker of spare segments of the log died";

/// The thread's life.
pub(crate) fn run_maker(core: &Core) {
    let _farewell = Farewell { core, died: DIED };
    let mut not_before = None;
    while core.space_is_wanted(not_before) {
        if let Err(error) = core.reserve().and_then(|()| core.prepare_next()) {
            // Nobody knows what the directory has (WAL-8).
            return core.poison(&error.to_string());
        }
        not_before = core.is_disk_full().then(|| Instant::now() + SPACE_RETRY);
    }
}
