//! Text of others, for terminals.

use std::fmt::{self, Write};

/// Text that somebody else has chosen, for a message: what steers a terminal is shown as an escape.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'t>(pub &'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character.is_control() {
            true => write!(f, "{}", character.escape_default()),
            false => f.write_char(character),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        let text = "pays é\0\n\u{1b}[2J\u{9b}\"x\"";
        assert_eq!(Printable(text).to_string(), r#"pays é\u{0}\n\u{1b}[2J\u{9b}"x""#);
    }
}
