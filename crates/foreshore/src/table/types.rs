//! Types by their names, as the catalogue has them beside a table's name.

/// What the catalogue stores of a table's types.
pub(crate) fn join(key: &str, value: &str) -> String {
    format!("{key}\n{value}")
}

/// The names of both types.
pub(crate) fn split(meta: &[u8]) -> (String, String) {
    let names = String::from_utf8_lossy(meta);
    let (key, value) = names.split_once('\n').unwrap_or((&names, ""));
    (key.to_owned(), value.to_owned())
}

/// Whether two names of types of keys stand for the same type, as far as one can tell. A table that an earlier version
/// has made says of a tuple only how many fields it has, and of an array of bytes not how many.
pub(crate) fn are_same_keys(one: &str, other: &str) -> bool {
    let is_short_for = |short: &str, name: &str| match fields(name) {
        Some(types) => short == format!("({} fields)", types.len()),
        None => short == "byte array" && name.starts_with("[u8; "),
    };
    one == other || is_short_for(one, other) || is_short_for(other, one)
}

/// The types of a tuple's fields, if this is the name of one.
pub(crate) fn fields(name: &str) -> Option<Vec<&str>> {
    let names = name.strip_prefix('(')?.strip_suffix(')').filter(|names| !names.is_empty())?;
    let mut depth = 0_usize;
    let between = |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    };
    Some(names.split(between).map(str::trim_start).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_outermost_tuple() {
        assert_eq!(fields("(u8, (str, [u8; 3]), bytes)").unwrap(), ["u8", "(str, [u8; 3])", "bytes"]);
        assert_eq!((fields("()"), fields("u8")), (None, None));
    }

    #[test]
    fn tables_of_earlier_versions_are_opened() {
        for (stored, asked, same) in [
            ("(2 fields)", "(u32, (u8, str))", true),
            ("(2 fields)", "(u32, u8, str)", false),
            ("byte array", "[u8; 3]", true),
            ("byte array", "bytes", false),
            ("[u8; 3]", "[u8; 4]", false),
            ("(u32, u64)", "(u64, u32)", false),
            ("u32", "u32", true),
        ] {
            assert_eq!(
                (are_same_keys(stored, asked), are_same_keys(asked, stored)),
                (same, same),
                "{stored}, {asked}"
            );
        }
    }
}
