//! The commands in the book (`docs/`): every block that is marked to be run is run, page by page, in an empty directory.
#![cfg(not(foreshore_sim))]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn pages() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    let mut pages: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// The blocks of a page with this mark.
fn blocks(page: &str, mark: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if language == mark {
                blocks.push(block.join("\n") + "\n");
            }
        }
    }
    blocks
}

/// Runs the blocks of a page one after the other, in a directory of its own; what they print.
fn run(name: &str) -> Vec<String> {
    let page = pages().into_iter().find(|path| path.ends_with(name)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_foreshore")).parent().unwrap().to_owned();
    let path = env::join_paths(
        [program].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    );
    let blocks = blocks(&fs::read_to_string(page).unwrap(), "sh run");
    assert!(!blocks.is_empty(), "{name} has nothing to run");
    let path = path.unwrap();
    let run = |block: &String| {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", block]).current_dir(directory.path()).env("PATH", &path);
        let output = shell.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}:\n{block}\n{told}");
        String::from_utf8(output.stdout).unwrap()
    };
    blocks.iter().map(run).collect()
}

#[test]
fn ten_minutes_with_real_data() {
    let told = run("start.md");
    assert!(told[1].contains("planets") && told[1].contains("is sound"), "{}", told[1]);
    assert!(told[2].contains("24622"), "{}", told[2]);
    assert!(told[3].contains("not a planet"), "{}", told[3]);
    assert!(told[4].matches("consistent").count() == 2, "{}", told[4]);
}

#[test]
fn choosing() {
    assert!(run("choosing.md")[0].contains("commits/s"));
}

#[test]
fn a_deadlock_report() {
    let told = run("deadlocks.md");
    let lines: Vec<&str> = told[0].lines().collect();
    assert!(lines[0].contains("waits_for") && lines[1].contains("\"cycle\""), "{}", told[0]);
}

#[test]
fn sizing() {
    let told = run("sizing.md");
    let (small, large) = told[0].rsplit_once("ycsb").unwrap();
    assert!(small.contains("evicted") && !large.contains("evicted"), "{}", told[0]);
}

#[test]
fn backup_and_recovery() {
    let told = run("backup.md");
    assert!(told[0].contains("is sound") && told[1].contains("alice"), "{told:?}");
}

#[test]
fn figures_of_the_papers() {
    assert!(run("experiments.md")[0].contains("holds"));
}

/// Every page is in the summary, every page of the summary and every page that is linked is there, and every page with
/// something to run is run above.
#[test]
fn the_summary_is_complete() {
    let tested = ["start", "choosing", "deadlocks", "sizing", "backup", "experiments"];
    let names: Vec<String> =
        pages().iter().map(|page| page.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let summary = pages().into_iter().find(|page| page.ends_with("SUMMARY.md")).unwrap();
    let summary = fs::read_to_string(summary).unwrap();
    for (page, name) in pages().iter().zip(&names) {
        let text = fs::read_to_string(page).unwrap();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in the summary"
        );
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let outside = link.starts_with("http") || link.starts_with('#');
            assert!(
                outside || names.iter().any(|name| name == link.split('#').next().unwrap()),
                "{name}: {link}"
            );
        }
        let runs = !blocks(&text, "sh run").is_empty();
        assert!(!runs || tested.contains(&name.trim_end_matches(".md")), "nobody runs {name}");
    }
}
