//! A Rust source as the checks see it: code apart from comments, string contents blanked, tests marked.

mod lexer;

/// A source file.
pub(crate) struct Source {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
}

/// A line of a source.
pub(crate) struct Line {
    /// As it stands in the file.
    pub(crate) raw: String,
    /// Without comments and without what stands in strings.
    pub(crate) code: String,
    /// What stands in comments.
    pub(crate) comment: String,
    /// Compiled for tests only.
    pub(crate) is_test: bool,
}

impl Source {
    pub(crate) fn new(path: String, text: &str) -> Source {
        let mut source = Source { path, lines: lexer::lines(text) };
        if has_test_path(&source.path) {
            source.mark_all();
        } else {
            source.mark_test_items();
        }
        source
    }

    /// Lines with their numbers, from 1.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Lines that are not tests.
    pub(crate) fn size(&self) -> usize {
        self.lines.iter().filter(|line| !line.is_test).count()
    }

    /// The text of an item or attribute that begins in line `index` (from 0), up to the first character for which `end`
    /// answers true, at most 40 lines.
    pub(crate) fn code_until(&self, index: usize, begin: usize, end: char) -> String {
        let mut text = String::new();
        for (distance, line) in self.lines[index..].iter().take(40).enumerate() {
            let code = if distance == 0 { &line.code[begin..] } else { &line.code };
            match code.find(end) {
                Some(place) => {
                    text.push_str(&code[..=place]);
                    return text;
                }
                None => text.push_str(code),
            }
            text.push(' ');
        }
        text
    }

    fn mark_all(&mut self) {
        for line in &mut self.lines {
            line.is_test = true;
        }
    }

    /// Marks items under `#[cfg(test)]`, from the attribute to the item's end.
    fn mark_test_items(&mut self) {
        let mut index = 0;
        while index < self.lines.len() {
            if let Some(attribute) = test_attribute(&self.lines[index].code) {
                let end = self.item_end(index, attribute);
                for line in &mut self.lines[index..=end] {
                    line.is_test = true;
                }
                index = end;
            }
            index += 1;
        }
    }

    /// The line in which the item ends whose attribute ends in line `first` before `column`.
    fn item_end(&self, first: usize, column: usize) -> usize {
        let mut depth = 0_usize;
        for (index, line) in self.lines.iter().enumerate().skip(first) {
            let code = if index == first { &line.code[column..] } else { &line.code };
            for character in code.chars() {
                match character {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' => depth = depth.saturating_sub(1),
                    '}' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return index;
                        }
                    }
                    ';' if depth == 0 => return index,
                    _ => {}
                }
            }
        }
        self.lines.len() - 1
    }

    /// Modules that this file declares for tests only, as paths without `.rs`.
    fn test_modules(&self) -> Vec<String> {
        let folder = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let folder = match folder.rsplit_once('/') {
            Some((parent, "lib" | "main")) => parent,
            _ => folder,
        };
        let declared = self.lines.iter().filter(|line| line.is_test).filter_map(|line| {
            let declaration = line.code.trim().strip_suffix(';')?;
            let name = declaration.rsplit_once("mod ")?.1;
            Some(format!("{folder}/{name}"))
        });
        declared.collect()
    }
}

/// Marks the files of modules that are declared under `#[cfg(test)]`.
pub(crate) fn mark_test_modules(sources: &mut [Source]) {
    let modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in sources {
        let path = source.path.strip_suffix(".rs").unwrap_or(&source.path);
        let is_test = |module: &String| {
            path.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if modules.iter().any(is_test) {
            source.mark_all();
        }
    }
}

/// Whether a path says that the file is a test or a benchmark.
fn has_test_path(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
}

/// The column behind an attribute that keeps an item for tests.
fn test_attribute(code: &str) -> Option<usize> {
    let begin = code.find("#[cfg(test)]").or_else(|| code.find("#[cfg(all(test"))?;
    Some(begin + code[begin..].find(']').map_or(code.len() - begin, |end| end + 1))
}

#[cfg(test)]
mod tests;
