//! How bodies that only read do so.

use super::facade::{ReadMode, TransactOptions};
use crate::{engine::Failure, engines::EngineOptions};

/// The engine's one option beside those of the database. `locks`: as all others, or as the option `read_mode` says;
/// `unlocked`: as `Database::read` does it.
pub(super) const OPTION: &str = "reads";

/// The options for bodies that only read, as the last setting says; `run`: those for the others.
pub(super) fn options(run: &TransactOptions, options: &EngineOptions) -> Result<TransactOptions, Failure> {
    let chosen = options.settings.iter().rfind(|(name, _)| name == OPTION);
    let read_mode = match chosen.map(|(_, value)| value.as_str()) {
        None | Some("locks") => None,
        Some("unlocked") => Some(ReadMode::Hybrid),
        Some(other) => return Err(Failure::fatal(format!("{OPTION} is locks or unlocked, not {other:?}"))),
    };
    Ok(TransactOptions { read_mode, ..run.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts() {
        let read_mode = |values: &[&str]| {
            let settings = values.iter().map(|value| (OPTION.to_owned(), (*value).to_owned())).collect();
            let given = EngineOptions { settings, ..EngineOptions::default() };
            options(&TransactOptions::default(), &given).map(|options| options.read_mode)
        };
        assert_eq!(read_mode(&[]).unwrap(), None);
        assert_eq!(read_mode(&["locks", "unlocked"]).unwrap(), Some(ReadMode::Hybrid));
        assert_eq!(read_mode(&["unlocked", "locks"]).unwrap(), None);
        assert!(read_mode(&["unlocked", "never"]).is_err());
    }
}
