//! What is known of a comparison when it is interrupted.

use foreshore_env::sync::{Arc, Mutex};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::{
    directory::await_interruption,
    output::{CliError, json_line, line},
};

/// Shared with whoever ends the program when it is interrupted.
pub(super) struct Standing<R>(Arc<Mutex<Known<R>>>);

/// Guarded by the mutex.
struct Known<R> {
    so_far: Option<R>,
    /// What is told stands above it.
    bar: ProgressBar,
    /// Who measures has it all, or an interruption has told it.
    taken: bool,
}

/// What there is, and why there is no more, as it is told of everything that fails.
#[derive(Serialize)]
struct BrokenOff<'r, R> {
    #[serde(flatten)]
    so_far: &'r R,
    error: serde_json::Value,
}

impl<R> Default for Standing<R> {
    fn default() -> Standing<R> {
        Standing(Arc::new(Mutex::new(Known { so_far: None, bar: ProgressBar::hidden(), taken: false })))
    }
}

impl<R> Clone for Standing<R> {
    fn clone(&self) -> Standing<R> {
        Standing(Arc::clone(&self.0))
    }
}

impl<R: Serialize> Standing<R> {
    /// The bar that an interruption takes away.
    pub(super) fn begin(&self, bar: ProgressBar) {
        self.0.lock().bar = bar;
    }

    /// This is known by now.
    pub(super) fn keep(&self, so_far: R) {
        self.0.lock().so_far = Some(so_far);
    }

    /// This is known by now; `tell` tells people what is new in it, unless an interruption has.
    pub(super) fn tell(
        &self,
        so_far: R,
        tell: impl FnOnce() -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut known = self.0.lock();
        known.so_far = Some(so_far);
        if known.taken { Ok(()) } else { tell() }
    }

    /// Nothing more comes, and an interruption tells nothing of it any more. It does not return if one has begun to.
    pub(super) fn end(&self) {
        await_interruption();
        if std::mem::replace(&mut self.0.lock().taken, true) {
            await_interruption();
        }
    }

    /// Tells of an interruption, and what there is: a program in one object, people as `text` has it.
    pub(super) fn interrupted(&self, error: &CliError, json: bool, text: fn(&R) -> String) {
        let mut guard = self.0.lock();
        let known: &mut Known<R> = &mut guard;
        known.bar.finish_and_clear();
        let taken = std::mem::replace(&mut known.taken, true);
        let Some(so_far) = known.so_far.as_ref().filter(|_| !taken) else {
            error.report(json);
            return;
        };
        error.report(false);
        let why = serde_json::json!({ "code": error.code(), "message": error.to_string() });
        // If nobody can read it, nobody misses it.
        let _ = match text(so_far) {
            _ if json => json_line(&BrokenOff { so_far, error: why }),
            text if text.is_empty() => Ok(()),
            text => line(text.trim_end()),
        };
    }
}
