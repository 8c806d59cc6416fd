//! A bar for measurements that are made in rounds.

use indicatif::{ProgressBar, ProgressStyle};

/// How many rounds are done, on standard error.
pub(super) struct RoundsBar(ProgressBar);

impl RoundsBar {
    /// Shows nothing at all unless `shown`.
    pub(super) fn new(shown: bool) -> RoundsBar {
        let bar = if shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
        // The template is a constant; were it wrong, the bar would be plain.
        let template = "  measuring {bar:30} {pos} of {len} rounds, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        RoundsBar(bar)
    }

    /// So many are done, of how many.
    pub(super) fn show(&self, done: usize, of: usize) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
