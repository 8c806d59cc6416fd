//! Faults that a test has ordered, and who meets them.

use std::{
    collections::HashSet,
    ops::Range,
    path::{Path, PathBuf},
};

use foreshore_env::time::Duration;

use super::{Met, State};

#[derive(Debug, Default)]
pub(super) struct Faults {
    /// The crash comes with this operation.
    pub(super) crash_at: Option<u64>,
    /// Syncs with these numbers fail.
    pub(super) fail_syncs: HashSet<u64>,
    /// The next sync of a file whose name ends so fails.
    pub(super) fail_sync_of: Option<&'static str>,
    /// Writes with these numbers fail.
    pub(super) fail_writes: HashSet<u64>,
    /// Blocks that may still be taken.
    pub(super) free_blocks: Option<u64>,
    /// Reads with these numbers fail.
    pub(super) fail_reads: HashSet<u64>,
    /// Reads give at most this many bytes.
    pub(super) longest_read: Option<usize>,
    /// Reads that touch these places fail.
    pub(super) bad_places: Vec<(PathBuf, Range<u64>)>,
    /// A sync that fails has written some blocks, by this seed and its number.
    pub(super) some_of_failed_syncs: Option<u64>,
    /// How long each sync takes.
    pub(super) sync_delay: Duration,
    /// Syncs wait until this is over.
    pub(super) syncs_held: bool,
    /// So many more files can be opened; `None`: no end.
    pub(super) files_left: Option<u32>,
    /// After so many files one cannot be opened; `None`: that is over.
    pub(super) files_before_refusal: Option<u32>,
    /// Syncs of files in this directory, and below it, do nothing and say that they did.
    pub(super) lying: Option<PathBuf>,
}

impl Faults {
    /// Whether one more file may be opened, which is counted.
    pub(super) fn take_file(&mut self) -> bool {
        if self.files_before_refusal == Some(0) {
            self.files_before_refusal = None;
            return false;
        }
        self.files_before_refusal = self.files_before_refusal.map(|files| files - 1);
        let Some(left) = &mut self.files_left else { return true };
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

impl State {
    /// Whether a sync of this file fails for its name.
    pub(super) fn meets_fault_of_name(&mut self, file: u64, path: &Path) -> bool {
        let fails =
            self.faults.fail_sync_of.is_some_and(|extension| self.names.has_extension(file, extension));
        if fails {
            self.faults.fail_sync_of = None;
            self.note(Met::Sync, path);
        }
        fails
    }
}
