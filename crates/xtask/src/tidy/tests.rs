//! Each check on small repositories: what it must find, and what it must leave alone.

use super::check;
use crate::repository::{Crate, Document, Repository};
use crate::source::{Source, mark_test_modules};

/// A repository of these files. Manifests, READMEs and `lib.rs` that are not given are in order.
pub(super) fn repository(files: &[(&str, &str)]) -> Repository {
    let mut repository = Repository::default();
    for (path, text) in files {
        let (path, text) = (path.to_string(), text.to_string());
        let place = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
        let Some((name, file)) = place.filter(|(_, file)| *file == "README.md" || !file.ends_with(".md"))
        else {
            repository.documents.push(Document { path, text });
            continue;
        };
        let name = name.to_string();
        let krate = match repository.crates.iter_mut().position(|krate| krate.name == name) {
            Some(place) => &mut repository.crates[place],
            None => {
                let manifest = Document { path: format!("crates/{name}/Cargo.toml"), ..Document::default() };
                repository.crates.push(Crate { name, manifest, ..Crate::default() });
                repository.crates.last_mut().unwrap()
            }
        };
        match file {
            "Cargo.toml" => krate.manifest = Document { path, text },
            "README.md" => krate.readme = Some(Document { path, text }),
            _ => krate.sources.push(Source::new(path, &text)),
        }
    }
    for krate in &mut repository.crates {
        mark_test_modules(&mut krate.sources);
    }
    repository
}

fn problems(files: &[(&str, &str)]) -> Vec<String> {
    check(&repository(files)).iter().map(ToString::to_string).collect()
}

/// Exactly one problem, at this place, with these words.
#[track_caller]
fn one(files: &[(&str, &str)], place: &str, words: &str) {
    let problems = problems(files);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(problems[0].starts_with(&format!("{place}: ")), "{problems:#?}");
    assert!(problems[0].contains(words), "{problems:#?}");
}

#[track_caller]
fn none(files: &[(&str, &str)]) {
    assert_eq!(problems(files), [""; 0]);
}

#[test]
fn pages() {
    let long = "ä".repeat(120);
    none(&[
        ("README.md", &long),
        ("docs/src/a.md", &format!("a\n\n| {long} |\n\n```sh\n{long} |\n| b\n```\nc")),
    ]);
    one(&[("docs/src/a.md", &format!("a\n- {long}"))], "docs/src/a.md:2", "columns");
    one(&[("crates/lock/MEASURED.md", "a\n\n| b |\nc")], "crates/lock/MEASURED.md:4", "empty line");
    one(&[("crates/lock/README.md", "a\n| b |\n\nc")], "crates/lock/README.md:2", "empty line");
    none(&[("scripts/a", &format!("{long} a"))]);
}

#[test]
fn widths() {
    let long = "ä ".repeat(59);
    none(&[
        ("crates/lock/src/a.rs", &format!("//{long}\n/// | {long} |\n/// {}\n", "a".repeat(130))),
        ("crates/lock/src/b.rs", &format!("const A: &str = \"{long}\n{long}{long}\n\";\n")),
        ("scripts/a", &format!("#{long}a\n{long}{long}a")),
    ]);
    one(&[("crates/lock/src/a.rs", &format!("\n// {long}a"))], "crates/lock/src/a.rs:2", "columns");
    one(&[("crates/lock/src/a.rs", &format!("fn f() {{}} // {long}"))], "crates/lock/src/a.rs:1", "columns");
    let code = format!("const A: &[u8] = &[{}];", "1, ".repeat(40));
    one(&[("crates/lock/src/a.rs", &code)], "crates/lock/src/a.rs:1", "columns");
    none(&[("crates/lock/src/a.rs", &format!("#[rustfmt::skip]\n{code}"))]);
    one(&[("scripts/a", &format!("a\n # {long}abc"))], "scripts/a:2", "columns");
    for path in ["scripts/a", ".ci/run", "docs/src/a.md", "crates/lock/README.md"] {
        one(&[(path, "a\nb \nc")], &format!("{path}:2"), "white space");
    }
}

#[test]
fn levels() {
    let manifest = "[dependencies]\nforeshore-base.workspace = true\nserde = \"1\"\n";
    none(&[("crates/latch/Cargo.toml", manifest)]);
    let manifest =
        "[package]\nname = \"foreshore-lock\"\n\n[dependencies]\nforeshore-pages = { workspace = true }\n";
    one(
        &[("crates/lock/Cargo.toml", manifest)],
        "crates/lock/Cargo.toml:5",
        "`lock` (level 2) must not use `pages` (level 3)",
    );
    let manifest = "[dependencies]\nforeshore-wal.workspace = true\n";
    one(&[("crates/lock/Cargo.toml", manifest)], "crates/lock/Cargo.toml:2", "only lower levels");
    let manifest = "[target.\"cfg(unix)\".dependencies]\nforeshore.workspace = true\n";
    one(&[("crates/txn/Cargo.toml", manifest)], "crates/txn/Cargo.toml:2", "must not use `foreshore`");
    let manifest = "[dependencies.foreshore-env]\nworkspace = true\n";
    one(&[("crates/base/Cargo.toml", manifest)], "crates/base/Cargo.toml:1", "must not use `env`");
    let manifest = "[dependencies]\nforeshore-strange = \"1\"\n";
    one(&[("crates/lock/Cargo.toml", manifest)], "crates/lock/Cargo.toml:2", "not on the map");
    one(&[("crates/strange/Cargo.toml", "")], "crates/strange/Cargo.toml", "not on the map");
}

#[test]
fn levels_of_tools() {
    none(&[("crates/wal/Cargo.toml", "[dev-dependencies]\nforeshore-testkit.workspace = true\n")]);
    let manifest = "[dependencies]\nforeshore-testkit.workspace = true\n";
    one(&[("crates/wal/Cargo.toml", manifest)], "crates/wal/Cargo.toml:2", "move it to [dev-dependencies]");
    none(&[("crates/testkit/Cargo.toml", "[dependencies]\nforeshore-env.workspace = true\n")]);
    let manifest = "[dependencies]\nforeshore-wal.workspace = true\n";
    one(&[("crates/testkit/Cargo.toml", manifest)], "crates/testkit/Cargo.toml:2", "must not use `wal`");
    let both = "[dependencies]\nforeshore.workspace = true\nforeshore-bench.workspace = true\n";
    none(&[("crates/cli/Cargo.toml", both)]);
    let manifest = "[dependencies]\nforeshore-cli.workspace = true\n";
    one(&[("crates/bench/Cargo.toml", manifest)], "crates/bench/Cargo.toml:2", "must not use `cli`");
    one(
        &[("crates/btree/Cargo.toml", "[dev-dependencies]\nforeshore-bench = \"1\"\n")],
        "crates/btree/Cargo.toml:2",
        "bench",
    );
}

#[test]
fn sizes() {
    let lines = |count| "fn f() {}\n".repeat(count);
    const PATH: &str = "crates/lock/src/a.rs";
    none(&[(PATH, &lines(400))]);
    one(&[(PATH, &lines(401))], PATH, "add `crates/lock/src/a.rs 401` to crates/xtask/ratchet.txt");
    one(&[(PATH, &lines(801))], PATH, "more than 800");
    none(&[(PATH, &(lines(300) + "#[cfg(test)]\nmod tests {\n" + &lines(700) + "}\n"))]);
    none(&[("crates/lock/tests/a.rs", &lines(2000))]);

    let with_ratchet = |count, ratchet: &str| {
        let mut repository = repository(&[(PATH, &lines(count))]);
        repository.ratchet = ratchet.to_string();
        check(&repository).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(with_ratchet(500, "# comment\ncrates/lock/src/a.rs 500\n").is_empty());
    assert!(with_ratchet(501, "crates/lock/src/a.rs 500\n")[0].contains("has grown from 500 to 501"));
    assert!(with_ratchet(499, "\ncrates/lock/src/a.rs 500\n")[0].starts_with("crates/xtask/ratchet.txt:2: "));
    assert!(with_ratchet(801, "crates/lock/src/a.rs 900\n")[0].contains("more than 800"));
    assert!(with_ratchet(1, "crates/lock/src/b.rs 500\n")[0].contains("is gone"));
    assert!(with_ratchet(1, "crates/lock/src/b.rs\n")[0].contains("not understood"));
}

#[test]
fn the_door() {
    const PATH: &str = "crates/lock/src/a.rs";
    for code in [
        "use std::sync::Arc;",
        "use std::{fmt, sync::atomic::Ordering};",
        "use std::{\n    fmt,\n    time::Duration,\n};",
        "pub use std::time::Duration as D;",
        "fn f() { std::thread::spawn(g); }",
        "fn f() { std::hint::spin_loop(); }",
        "use std::fs;",
        "type A = core::sync::atomic::AtomicU8;",
        "thread_local! { static A: u8 = 1; }",
    ] {
        let instead = "lies behind the door";
        one(&[(PATH, code)], &format!("{PATH}:1"), instead);
        none(&[
            ("crates/env/src/a.rs", code),
            ("crates/bench/src/a.rs", code),
            ("crates/lock/tests/a.rs", code),
        ]);
        none(&[(PATH, &format!("#[cfg(test)]\nmod tests {{\n    {code}\n}}\n"))]);
    }
    none(&[(
        PATH,
        "// std::sync::Arc\nconst A: &str = \"std::fs\";\nuse std::{fmt, io::{self, Read}, path::Path};\n",
    )]);
    none(&[(PATH, "use foreshore_env::{sync::Arc, thread_local};\nthread_local! { static A: u8 = 1; }\n")]);
}

#[test]
fn words() {
    const PATH: &str = "crates/lock/src/a.rs";
    one(&[(PATH, "fn f() {}\n// TODO: later\n")], "crates/lock/src/a.rs:2", "TODO");
    one(&[(PATH, "/* a\n FIXME */\n")], "crates/lock/src/a.rs:2", "FIXME");
    one(&[("crates/lock/README.md", "a\nHACK")], "crates/lock/README.md:2", "HACK");
    one(&[("scripts/run", "# XXX\n")], "scripts/run:1", "XXX");
    none(&[(PATH, "// TODOS, a HACKER\nconst A: &str = \"TODO\";\n")]);
}

#[test]
fn places() {
    one(&[("crates/lock/src/a/mod.rs", "")], "crates/lock/src/a/mod.rs", "beside the folder");
    none(&[("crates/lock/tests/common/mod.rs", "")]);
    one(&[("crates/lock/src/lib.rs", "")], "crates/lock/README.md", "missing");
    none(&[("crates/lock/src/lib.rs", ""), ("crates/lock/README.md", "")]);
    none(&[("crates/cli/src/main.rs", "")]);
}

#[test]
fn ignored_tests() {
    const PATH: &str = "crates/lock/tests/a.rs";
    one(&[(PATH, "#[test]\n#[ignore]\nfn f() {}\n")], "crates/lock/tests/a.rs:2", "name the command");
    one(
        &[(PATH, "// cargo test\n\nfn g() {}\n#[test]\n#[ignore = \"slow\"]\nfn f() {}\n")],
        "crates/lock/tests/a.rs:5",
        "command",
    );
    none(&[(PATH, "// Long. cargo test -p x -- --ignored\n#[test]\n#[ignore]\nfn f() {}\n")]);
    none(&[(PATH, "#[ignore = \"long: cargo test -- --ignored f\"]\n#[test]\nfn f() {}\n")]);
    none(&[(PATH, "// not #[ignore]\nconst A: &str = \"#[ignore]\";\n")]);
}

#[test]
fn allowances() {
    const PATH: &str = "crates/lock/src/a.rs";
    one(&[(PATH, "\n#[allow(dead_code)]\nfn f() {}\n")], "crates/lock/src/a.rs:2", "reason");
    one(&[(PATH, "#![expect(dead_code)]\n")], "crates/lock/src/a.rs:1", "#[expect]");
    none(&[(PATH, "#[allow(\n    dead_code,\n    reason = \"because\"\n)]\nfn f() {}\n")]);
    none(&[("crates/env/src/a.rs", "#![allow(dead_code)]\n")]);
}

#[test]
fn rules() {
    const PATH: &str = "crates/lock/src/a.rs";
    const README: (&str, &str) =
        ("crates/lock/README.md", "text\n- **LOCK-1** One.\n- LOCK-2: two, see LOCK-1.\n");
    none(&[README, (PATH, "// LOCK-1 and LOCK-2, UTF-8\n")]);
    one(
        &[README, (PATH, "fn f() {}\n// LOCK-3\n")],
        "crates/lock/src/a.rs:2",
        "LOCK-3 is not a rule of crates/lock/README.md",
    );
    none(&[README, ("crates/wal/src/a.rs", "// WAL-1\n")]);
    one(
        &[README, ("crates/wal/src/a.rs", "// WAL-1\n"), ("crates/wal/README.md", "")],
        "crates/wal/src/a.rs:1",
        "crates/wal/README.md",
    );
    one(&[README, ("crates/wal/README.md", "See LOCK-9.\n")], "crates/wal/README.md:1", "LOCK-9");
    none(&[README, ("ARCHITECTURE.md", "See LOCK-2.\n")]);
    let twice = ("crates/lock/README.md", "- LOCK-1: one\n- LOCK-1: again\n");
    one(&[twice], "crates/lock/README.md:2", "in line 1 already");
}
