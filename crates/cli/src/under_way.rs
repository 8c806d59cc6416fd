//! A line on a terminal about work that takes long.

use std::{
    fmt, fs,
    io::{self, IsTerminal},
    os::fd::AsFd,
};

use foreshore::Database;
use foreshore_env::{thread, time::Duration};
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

use crate::output::printable;

/// How often it is written anew.
const TICK: Duration = Duration::from_millis(200);

/// Shown until it is dropped, if standard error is a terminal.
pub(crate) struct UnderWay(ProgressBar);

impl UnderWay {
    /// Shows for how long a database is read, and how many of its pages were until now. Nothing unless `shown`.
    pub(crate) fn reading(db: &Database, shown: bool) -> UnderWay {
        let db = db.clone();
        let pages_read = move || {
            let stats = db.stats();
            let read = |(name, _): &(&str, u64)| ["pool_loads", "pool_read_ahead"].contains(name);
            let pages: u64 = stats.entries().filter(read).map(|(_, pages)| pages).sum();
            format!(", {} pages read", HumanCount(pages))
        };
        UnderWay::show(shown, pages_read)
    }

    /// Shows for how long something has been done, and how far it is. Nothing unless `shown`.
    pub(crate) fn show(shown: bool, so_far: impl Fn() -> String + Clone + Send + Sync + 'static) -> UnderWay {
        if !shown || !io::stderr().is_terminal() {
            return UnderWay(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner();
        let so_far = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            // A bar has no way to tell of an error.
            let _ = out.write_str(&so_far());
        };
        // A constant of this file; were it wrong, the bar would be plain.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {elapsed}{so_far}") {
            bar.set_style(style.with_key("so_far", so_far));
        }
        let ticking = bar.clone();
        let tick = move || {
            thread::sleep(TICK);
            while !ticking.is_finished() {
                ticking.tick();
                thread::sleep(TICK);
            }
        };
        // Not the bar's own thread, which panics where the system starts no more: then nothing is shown.
        let _ = thread::Builder::new().spawn(tick);
        UnderWay(bar)
    }

    /// What is done from now on.
    pub(crate) fn tell(&self, what: &str) {
        if self.0.is_hidden() {
            return;
        }
        self.0.set_message(printable(what).into_owned());
    }
}

/// Whether standard output goes into a file. On a terminal, or to a reader that may have one, such as `less`, a line of
/// this kind would be in the way.
pub(crate) fn stdout_is_a_file() -> bool {
    #[allow(clippy::disallowed_types, reason = "standard output, of which nothing is read or written here")]
    let out = io::stdout().as_fd().try_clone_to_owned().map(fs::File::from);
    out.and_then(|out| out.metadata()).is_ok_and(|out| out.is_file())
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
