//! Which field of which structure a line of the source accesses: read off the source itself, for reports.
//!
//! The field is what stands before the first atomic operation of the line, with the way to it: `latch.word`, if it is
//! reached through another field. The structure is that of the `impl` around the line, if the way begins with `self`;
//! what is reached through a variable has the variable's name, for nobody knows its type here. A guess by the text,
//! which this repository's formatting makes a good one.

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

/// `Structure.field`, or `variable.field`, for a place such as `crates/latch/src/hybrid.rs:120`. `None` when the source
/// is not there, or says nothing of the kind.
pub(super) fn field(place: &str) -> Option<String> {
    let (file, number) = place.rsplit_once(':')?;
    let (_, source) = SOURCES.iter().find(|(path, _)| *path == file)?;
    field_in(source, number.parse().ok()?)
}

fn field_in(source: &str, number: usize) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let line = lines.get(number.checked_sub(1)?)?;
    let operation = OPERATIONS.iter().filter_map(|operation| line.find(operation)).min()?;
    let mut way = line[..operation].trim().to_owned();
    // A chain of calls that is broken before the operation, or earlier.
    let mut before = lines[..number - 1].iter().rev();
    while way.is_empty() || way.starts_with('.') {
        way.insert_str(0, before.next()?.trim());
    }
    let mut names = names(&way);
    if names.first() == Some(&"self") {
        names.remove(0);
        if let Some(structure) = structure_around(&lines[..number]) {
            names.insert(0, structure);
        }
    }
    (!names.is_empty()).then(|| names.join("."))
}

/// The names by which a text comes to its end: `self`, `slots` and `pending` of `let x = &self.slots[index].pending`.
fn names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        rest = without_arguments(rest.trim_end_matches('?'));
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let other = rest.char_indices().rev().find(|&(_, letter)| !is_name(letter));
        let begin = other.map_or(0, |(at, letter)| at + letter.len_utf8());
        if begin < rest.len() {
            names.insert(0, &rest[begin..]);
        }
        match rest[..begin].strip_suffix('.') {
            Some(before) if begin < rest.len() => rest = before,
            _ => return names,
        }
    }
}

/// `self.slot` for `self.slot(number)`, and the like for an index.
fn without_arguments(text: &str) -> &str {
    let mut rest = text;
    while let Some(last) = rest.chars().last().filter(|last| [')', ']'].contains(last)) {
        let (open, mut depth) = (if last == ')' { '(' } else { '[' }, 0);
        let begin = rest.char_indices().rev().find(|&(_, letter)| {
            depth += i32::from(letter == last) - i32::from(letter == open);
            depth == 0
        });
        match begin {
            Some((begin, _)) if begin > 0 => rest = &rest[..begin],
            _ => return "",
        }
    }
    rest
}

/// The structure of the `impl` in which the last of these lines lies, if it lies in one: by how far lines are set in. A
/// line that is set in less than all behind it opens what they are in, but for the last lines of a heading that has
/// several.
fn structure_around<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let set_in = |line: &str| line.len() - line.trim_start().len();
    let mut within = set_in(lines.last()?);
    for line in lines.iter().rev().filter(|line| !line.trim().is_empty()) {
        let text = line.trim_start();
        if set_in(line) >= within {
            continue;
        }
        if let Some(rest) = text.strip_prefix("impl") {
            return structure(rest);
        }
        let goes_on = ["{", "where", ")", ">", "//"].iter().any(|begin| text.starts_with(begin));
        within = set_in(line) + usize::from(goes_on);
        if within == 0 {
            return None;
        }
    }
    None
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
        assert_eq!(found[2].as_deref(), Some("Guard.latch.word"));
        assert_eq!(found[3].as_deref(), Some("Guard.slots.pending"));
        assert_eq!(found[5].as_deref(), Some("Guard.slot"));
        assert_eq!(found[6], None);
        assert_eq!(found[7].as_deref(), Some("batch"));
        assert_eq!(found[12].as_deref(), Some("Other.count"));
        assert!(field("crates/nothing.rs:1").is_none() && field("no place").is_none());
    }

    /// Whoever stood behind an `impl` had the name of its structure, and what was reached through a field was the
    /// structure's own.
    #[test]
    fn nobody_has_a_stranger_s_name() {
        let source = "\
impl<T> Farewell<T>
where
    T: Sized,
{
    fn one(
        &self,
    ) -> u64 {
        while self
            .latch
            .word
            .load(Relaxed) == self.kinds[self.number(1)].0.load(Relaxed)
        {
            LAST.fetch_add(1, Relaxed);
        }
    }
}

fn free(core: &Core) {
    if true {
        core.pen.load(Relaxed);
    }
}

trait Latch {
    fn held(&self) -> bool {
        self.word().load(Relaxed)
    }
}

mod inner {
    impl From<u64> for Inner {
        fn two(&self) {
            (*self.words[0]).store(0, Relaxed);
            self.words[(1 + 2) * 3].first?.store(0, Relaxed);
        }
    }

    fn also_free(state: &State) {
        state.of(number(7)).count.load(Relaxed);
    }
}
";
        let of = |text: &str| {
            let line = source.lines().position(|line| line.contains(text)).unwrap();
            field_in(source, line + 1).unwrap_or_default()
        };
        assert_eq!(of(".load(Relaxed) =="), "Farewell.latch.word");
        assert_eq!(of("LAST."), "LAST");
        assert_eq!(of("core.pen"), "core.pen");
        assert_eq!(of("self.word()"), "word");
        assert_eq!(of("(*self"), "");
        assert_eq!(of(".first"), "Inner.words.first");
        assert_eq!(of("state.of"), "state.of.count");
    }
}
