//! Tells code, comments and strings apart. Knows as much of Rust's grammar as that takes.

use super::Line;

/// In what the lexer is.
#[derive(Clone, Copy)]
enum State {
    Code,
    /// A block comment, this deep.
    Block(usize),
    /// A string with escapes.
    Text,
    /// A raw string that ends with a quote and so many `#`.
    Raw(usize),
}

/// Splits a source into lines.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut state = State::Code;
    text.lines()
        .map(|raw| {
            let (code, comment);
            (code, comment, state) = split(raw, state);
            Line { raw: raw.to_string(), code, comment, is_test: false }
        })
        .collect()
}

/// A line's code, its comments, and the state at its end.
fn split(raw: &str, mut state: State) -> (String, String, State) {
    let (mut code, mut comment) = (String::new(), String::new());
    let mut rest = raw;
    while let Some(character) = rest.chars().next() {
        let mut length = character.len_utf8();
        match state {
            State::Block(depth) => {
                if rest.starts_with("*/") {
                    length = 2;
                    state = if depth == 1 { State::Code } else { State::Block(depth - 1) };
                } else if rest.starts_with("/*") {
                    length = 2;
                    state = State::Block(depth + 1);
                } else {
                    comment.push(character);
                }
            }
            State::Text => match character {
                '\\' => length += rest[1..].chars().next().map_or(0, char::len_utf8),
                '"' => {
                    code.push('"');
                    state = State::Code;
                }
                _ => {}
            },
            State::Raw(hashes) => {
                if character == '"' && rest[1..].bytes().take_while(|&byte| byte == b'#').count() >= hashes {
                    length += hashes;
                    code.push('"');
                    state = State::Code;
                }
            }
            State::Code => {
                if let Some(remark) = rest.strip_prefix("//") {
                    comment.push_str(remark);
                    break;
                } else if rest.starts_with("/*") {
                    length = 2;
                    state = State::Block(1);
                } else if let Some(hashes) = raw_string(rest, &code) {
                    length = 1 + hashes + 1;
                    code.push('"');
                    state = State::Raw(hashes);
                } else if character == '"' {
                    code.push('"');
                    state = State::Text;
                } else if let Some(literal) = character_literal(rest) {
                    length = literal;
                    code.push_str("' '");
                } else {
                    code.push(character);
                }
            }
        }
        rest = &rest[length..];
    }
    (code, comment, state)
}

/// How many `#` a raw string has that begins here, behind this code.
fn raw_string(rest: &str, code: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
    // `br"…"` and `cr"…"` have a letter before it; any other word that ends with r is a name.
    let word = code.rsplit(|character: char| !character.is_alphanumeric() && character != '_').next();
    let begins = matches!(word, None | Some("" | "b" | "c"));
    (begins && after[hashes..].starts_with('"')).then_some(hashes)
}

/// The length of a character literal that begins here; a lifetime is none.
fn character_literal(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    if let Some(escaped) = inside.strip_prefix('\\') {
        let escape = escaped.chars().next()?.len_utf8();
        return Some(2 + escape + escaped[escape..].find('\'')? + 1);
    }
    let character = inside.chars().next()?.len_utf8();
    inside[character..].starts_with('\'').then_some(1 + character + 1)
}
