//! What the reports for people have in common.

use std::fmt::{self, Write};

use foreshore_bench::Check;

/// What `write` writes.
pub(crate) fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out);
    out
}

/// A line for each check that fails, `of` before its name.
pub(super) fn write_failures(out: &mut String, of: &str, checks: &[Check]) -> fmt::Result {
    for check in checks.iter().filter(|check| !check.holds) {
        let failure = check.first_failure.as_deref().unwrap_or_default();
        writeln!(out, "FAILS  {of}{}: {} times; {failure}", check.name, check.failures)?;
    }
    Ok(())
}

/// The last line of what was broken off.
pub(super) const UNCHECKED: &str = "broken off: nothing was checked";

/// The last line: whether all `checks` hold.
pub(super) fn write_verdict(out: &mut String, checks: usize, consistent: bool) -> fmt::Result {
    match consistent {
        true => writeln!(out, "consistent: all {checks} checks hold"),
        false => writeln!(out, "INCONSISTENT"),
    }
}
