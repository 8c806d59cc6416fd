//! How bodies that only read do so.

use super::facade::{ReadMode, TransactOptions};
use crate::{engine::Failure, engines::EngineOptions};

/// The engine's one option beside those of the database. `locks`: as all others, or as the option `read_mode` says; `unlocked`: as
/// `Database::read` does it.
pub(super) const OPTION: &str = "reads";

/// The options for bodies that only read; `run`: those for the others.
pub(super) fn options(run: &TransactOptions, options: &EngineOptions) -> Result<TransactOptions, Failure> {
    let chosen = options.settings.iter().find(|(name, _)| name == OPTION).map(|(_, value)| value.as_str());
    let read_mode = match chosen {
        None | Some("locks") => None,
        Some("unlocked") => Some(ReadMode::Hybrid),
        Some(other) => return Err(Failure::fatal(format!("{OPTION} is locks or unlocked, not {other:?}"))),
    };
    Ok(TransactOptions { read_mode, ..run.clone() })
}
