//! A crate uses only crates of lower levels (ARCHITECTURE.md).

use super::Problem;
use crate::repository::{Crate, Document, Repository};

/// What a crate is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Part of the engine, at a level.
    Engine(u8),
    /// For tests of the engine, beside this level.
    TestsOnly(u8),
    /// A program or its library, above the engine, in this order.
    Tool(u8),
}

/// The map. A new crate is a decision, and is entered here and in ARCHITECTURE.md.
const PARTS: [(&str, Part); 16] = [
    ("base", Part::Engine(0)),
    ("env", Part::Engine(0)),
    ("testkit", Part::TestsOnly(0)),
    ("latch", Part::Engine(1)),
    ("lock", Part::Engine(2)),
    ("wal", Part::Engine(2)),
    ("pages", Part::Engine(3)),
    ("btree", Part::Engine(4)),
    ("txn", Part::Engine(5)),
    ("orthrus", Part::Engine(6)),
    ("foreshore", Part::Engine(7)),
    ("bench", Part::Tool(8)),
    ("experiment", Part::Tool(8)),
    ("hostile", Part::Tool(8)),
    ("cli", Part::Tool(9)),
    ("xtask", Part::Tool(0)),
];

/// What a crate of this folder is; `None` if the map does not know it.
pub(super) fn part(name: &str) -> Option<Part> {
    PARTS.iter().find(|(known, _)| *known == name).map(|(_, part)| *part)
}

impl Part {
    fn level(self) -> u8 {
        match self {
            Part::Engine(level) | Part::TestsOnly(level) | Part::Tool(level) => level,
        }
    }

    /// Whether a crate of this part may use another one.
    fn may_use(self, other: Part, for_tests: bool) -> bool {
        match (self, other) {
            (Part::Engine(_), Part::TestsOnly(_)) => for_tests,
            // Beside level 0, which it uses: what tests the lowest crates can use no others.
            (Part::TestsOnly(level), Part::Engine(other)) => other <= level,
            (_, Part::Tool(other)) => matches!(self, Part::Tool(level) if other < level),
            (Part::Tool(level), Part::TestsOnly(other)) => other < level,
            _ => other.level() < self.level(),
        }
    }
}

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    for krate in &repository.crates {
        check_crate(krate, problems);
    }
}

fn check_crate(krate: &Crate, problems: &mut Vec<Problem>) {
    let path = &krate.manifest.path;
    let Some(own) = part(&krate.name) else {
        let advice =
            "is not on the map; give it a level in crates/xtask/src/tidy/levels.rs and in ARCHITECTURE.md";
        problems.push(Problem::new(path, 0, format!("crate `{}` {advice}", krate.name)));
        return;
    };
    for dependency in dependencies(&krate.manifest) {
        let Some(other) = part(&dependency.name) else {
            let advice = "which is not on the map; give it a level in crates/xtask/src/tidy/levels.rs";
            problems.push(Problem::new(
                path,
                dependency.line,
                format!("uses `{}`, {advice}", dependency.name),
            ));
            continue;
        };
        if own.may_use(other, dependency.for_tests) {
            continue;
        }
        let message = if matches!(other, Part::TestsOnly(_)) {
            format!("`{}` is for tests; move it to [dev-dependencies]", dependency.name)
        } else {
            format!(
                "`{}` (level {}) must not use `{}` (level {}): only lower levels; move the code, or the border",
                krate.name,
                own.level(),
                dependency.name,
                other.level()
            )
        };
        problems.push(Problem::new(path, dependency.line, message));
    }
}

/// A dependency on a crate of the workspace.
struct Dependency {
    /// The folder's name.
    name: String,
    line: usize,
    for_tests: bool,
}

/// Entries of all dependency tables, also those under `[target]`.
fn dependencies(manifest: &Document) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut table = None;
    for (index, line) in manifest.text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            // `[dependencies.name]` names the dependency in the header.
            let (header, named) = match header.rsplit_once('.') {
                Some((table, name)) if table.ends_with("dependencies") => (table, Some(name)),
                _ => (header, None),
            };
            table = match header.rsplit('.').next() {
                Some("dependencies" | "build-dependencies") => Some(false),
                Some("dev-dependencies") => Some(true),
                _ => None,
            };
            if let (Some(for_tests), Some(name)) = (table, named.and_then(folder)) {
                found.push(Dependency { name, line: index + 1, for_tests });
                table = None;
            }
        } else if let Some(for_tests) = table
            && let Some(name) = folder(line.split(['.', '=', ' ']).next().unwrap_or(""))
        {
            found.push(Dependency { name, line: index + 1, for_tests });
        }
    }
    found
}

/// The folder of a package of this workspace.
fn folder(package: &str) -> Option<String> {
    let package = package.trim_matches('"');
    let name = package.strip_prefix("foreshore-").or_else(|| (package == "foreshore").then_some(package))?;
    Some(name.to_string())
}
