//! Which field of which structure a line of the source accesses: read off the source itself, for reports.
//!
//! The field is the name before the first atomic operation of the line; the structure, the one of the `impl` around it. A
//! guess by the text, which this repository's formatting makes a good one.

/// The sources that this program was built from: path in the repository, and text. Empty if that was no checkout.
static SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// What is done to atomics, cells and condition variables.
const OPERATIONS: [&str; 12] = [
    ".load(",
    ".store(",
    ".swap(",
    ".compare_exchange",
    ".fetch_",
    ".with(",
    ".with_mut(",
    ".lock(",
    ".get_or_init(",
    ".wait(",
    ".wait_until(",
    ".notify_",
];

/// `Structure.field` for a place such as `crates/latch/src/hybrid.rs:120`. `None` when the source is not there, or says nothing of
/// the kind.
pub(super) fn field(place: &str) -> Option<String> {
    let (file, number) = place.rsplit_once(':')?;
    let (_, source) = SOURCES.iter().find(|(path, _)| *path == file)?;
    field_in(source, number.parse().ok()?)
}

fn field_in(source: &str, number: usize) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let line = lines.get(number.checked_sub(1)?)?;
    let operation = OPERATIONS.iter().filter_map(|operation| line.find(operation)).min()?;
    let before = line[..operation].trim();
    // A chain of calls that is broken before the operation.
    let before = if before.is_empty() { lines.get(number.checked_sub(2)?)?.trim() } else { before };
    let field = last_word(without_arguments(before))?;
    let around = lines[..number].iter().rev().find_map(|line| line.strip_prefix("impl"));
    Some(match around.and_then(structure) {
        Some(structure) => format!("{structure}.{field}"),
        None => field.to_owned(),
    })
}

/// `self.slot` for `self.slot(number)`, and the like for an index.
fn without_arguments(text: &str) -> &str {
    match text.chars().last() {
        Some(')') => text.rfind('(').map_or(text, |open| &text[..open]),
        Some(']') => text.rfind('[').map_or(text, |open| &text[..open]),
        _ => text,
    }
}

fn last_word(text: &str) -> Option<&str> {
    let end = text.trim_end_matches('?');
    let begin = end.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map_or(0, |at| at + 1);
    (begin < end.len()).then_some(&end[begin..])
}

/// The structure of an `impl`, from what follows that word: ` Drop for Guard<'_> {`, `<'a> Tree<'a> {`.
fn structure(rest: &str) -> Option<&str> {
    let rest =
        rest.strip_prefix('<').map_or(rest, |rest| rest.split_once("> ").map_or(rest, |(_, rest)| rest));
    let rest = rest.split_once(" for ").map_or(rest, |(_, rest)| rest).trim_start();
    let name =
        rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':').next()?;
    name.rsplit("::").next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_off_the_source() {
        let source = "\
impl<'a> Guard<'a> {
    fn one(&self) {
        self.latch.word.load(Relaxed);
        self.slots[index].pending.store(1, Release);
        self.slot(number)
            .fetch_add(1, Relaxed);
        nothing();
        None => batch.wait(waiting),
    }
}
impl Drop for sim::Other<'_> {
    fn drop(&mut self) {
        self.count.compare_exchange(0, 1, Relaxed, Relaxed);
";
        let found: Vec<_> = (1..=13).map(|line| field_in(source, line)).collect();
        assert_eq!(found[2].as_deref(), Some("Guard.word"));
        assert_eq!(found[3].as_deref(), Some("Guard.pending"));
        assert_eq!(found[5].as_deref(), Some("Guard.slot"));
        assert_eq!(found[6], None);
        assert_eq!(found[7].as_deref(), Some("Guard.batch"));
        assert_eq!(found[12].as_deref(), Some("Other.count"));
        assert!(field("crates/nothing.rs:1").is_none() && field("no place").is_none());
    }
}
