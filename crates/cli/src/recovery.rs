//! Opening a database that may have to be recovered first, with a bar if that takes long.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
};

use foreshore::{Builder, Database, RecoveryPhase, RecoveryProgress};
use foreshore_env::{
    sync::Mutex,
    time::{Duration, Instant},
};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::output::counted;

/// A recovery that takes longer than this is shown.
const PATIENCE: Duration = Duration::from_millis(500);

/// Opens a database. What its recovery does is shown on standard error: as a bar on a terminal, elsewhere as a line for
/// each phase.
pub(crate) fn open(builder: Builder, directory: &Path) -> foreshore::Result<Database> {
    let terminal = io::stderr().is_terminal();
    let shown = Mutex::new(Shown { begun: Instant::now(), phase: None, bar: ProgressBar::hidden() });
    let builder = builder.on_recovery(move |progress| {
        let mut shown = shown.lock();
        let elapsed = shown.begun.elapsed();
        if let Some(told) = shown.tell(progress, elapsed) {
            if terminal {
                shown.show(told, progress);
            } else {
                // Standard error may be closed; nobody misses this then.
                let _ = writeln!(io::stderr().lock(), "{told} …");
            }
        }
        shown.bar.set_position(progress.done);
        if progress.done == progress.total {
            shown.bar.finish_and_clear();
        }
    });
    builder.open(directory)
}

struct Shown {
    begun: Instant,
    /// What is shown.
    phase: Option<RecoveryPhase>,
    bar: ProgressBar,
}

impl Shown {
    /// What to begin to show, if it is time to.
    fn tell(&mut self, progress: RecoveryProgress, elapsed: Duration) -> Option<String> {
        let RecoveryProgress { phase, done, total, .. } = progress;
        if elapsed < PATIENCE || done == total || self.phase.replace(phase) == Some(phase) {
            return None;
        }
        Some(match phase {
            RecoveryPhase::Redo => format!("recovering from {} of log", HumanBytes(total)),
            RecoveryPhase::Undo => {
                format!("undoing {} that did not commit", counted(total, "transaction", "transactions"))
            }
            _ => "recovering".to_owned(),
        })
    }

    fn show(&mut self, told: String, progress: RecoveryProgress) {
        self.bar = ProgressBar::new(progress.total);
        // A constant of this file; were it wrong, the bar would be plain.
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {percent} %, {eta} left") {
            self.bar.set_style(style);
        }
        self.bar.set_message(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_shown_and_each_phase_once() {
        let directory = tempfile::tempdir().unwrap();
        // What recovery says is of a type that only it makes.
        let said = foreshore_env::sync::Arc::new(Mutex::new(Vec::new()));
        let note = foreshore_env::sync::Arc::clone(&said);
        let db = Database::open(directory.path()).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(foreshore::TableDefinition::<u32, u32>::new("t"), 1, 1).unwrap();
        // So it is not closed in good order.
        db.close().unwrap();
        drop((tx, db));
        let builder = Database::builder().on_recovery(move |progress| note.lock().push(progress));
        builder.open(directory.path()).unwrap();
        let progress = said.lock()[0];
        assert!(progress.phase == RecoveryPhase::Redo && progress.done < progress.total, "{progress:?}");

        let mut shown = Shown { begun: Instant::now(), phase: None, bar: ProgressBar::hidden() };
        assert_eq!(shown.tell(progress, PATIENCE / 2), None);
        let told = shown.tell(progress, PATIENCE).unwrap();
        assert!(told.starts_with("recovering from ") && told.ends_with(" of log"), "{told}");
        assert_eq!(shown.tell(progress, PATIENCE * 2), None, "once");
    }
}
