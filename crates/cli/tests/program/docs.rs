//! The commands in the book (`docs/`): every block that is marked to be run is run, page by page, in an empty
//! directory.
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
    // Whether the victim is seen to wait, too, is a matter of time.
    let lines: Vec<&str> = told[0].lines().collect();
    let [waits, .., deadlock] = lines[..] else { panic!("{}", told[0]) };
    assert!(waits.contains("waits_for") && deadlock.contains("\"cycle\""), "{}", told[0]);
}

#[test]
fn sizing() {
    // On a busy machine there may be hardly a transaction in so short a time.
    let as_described = (0..20).any(|_| {
        let told = run("sizing.md");
        let (small, large) = told[0].rsplit_once("ycsb").unwrap();
        assert!(!large.contains("evicted"), "{}", told[0]);
        small.contains("evicted")
    });
    assert!(as_described, "nothing was evicted from the small pool");
}

#[test]
fn space_and_loading() {
    let told = run("space.md");
    assert!(told[0].contains("20001 entries"), "{}", told[0]);
    assert!(told[1].contains("is dropped") && told[1].contains("fragmented_bytes"), "{}", told[1]);
    assert!(told[1].contains("pages moved"), "{}", told[1]);
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
    let tested = ["start", "choosing", "deadlocks", "sizing", "space", "backup", "experiments"];
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

/// Every fence is one that a test looks at: commands that are run above, Rust that the tests of the library compile and
/// run, or output.
#[test]
fn no_command_stands_beside_the_tests() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreshore/src/lib.rs");
    let library = fs::read_to_string(library).unwrap();
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&page).unwrap();
        let fences: Vec<&str> =
            text.lines().filter_map(|line| line.trim_start().strip_prefix("```")).collect();
        assert!(fences.len().is_multiple_of(2), "{name}: a fence is open");
        for pair in fences.chunks(2) {
            // Commands of the simulated machine: by `simulate.rs`.
            let run = ["sh run", "sh sim", "rust", "text"];
            assert!(run.contains(&pair[0]), "{name}: {:?} is run by nobody", pair[0]);
            assert_eq!(pair[1], "", "{name}");
        }
        let compiled = library.contains(&format!("docs/src/{name}"));
        assert!(compiled || !fences.contains(&"rust"), "nobody compiles the Rust of {name}");
    }
}

/// What is named in passing: subcommands and options of the program, files of the repository.
#[test]
fn what_is_named_in_passing_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut commands, mut places) = (0, 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let mut fenced = false;
        let prose: Vec<&str> = (text.lines())
            .filter(|line| {
                let fence = line.starts_with("```");
                fenced ^= fence;
                !fence && !fenced
            })
            .collect();
        for span in prose.join("\n").split('`').skip(1).step_by(2) {
            let words: Vec<&str> = span.split_whitespace().collect();
            match words[..] {
                ["foreshore", ref rest @ ..] if !rest.is_empty() => {
                    commands += 1;
                    check_words(&page, rest);
                }
                [place, ..] if place.starts_with("crates/") || place.starts_with("scripts/") => {
                    places += 1;
                    assert!(root.join(place).exists(), "{}: {place} is not there", page.display());
                }
                _ => {}
            }
        }
    }
    assert!(commands > 10 && places > 20, "{commands} commands, {places} places");
}

/// Each word that is not an argument is a subcommand, each option one that the help of the command has.
fn check_words(page: &Path, words: &[&str]) {
    let is_name = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase());
    let mut path: Vec<&str> = Vec::new();
    let help = |path: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreshore"));
        let output = program.args(path).arg("--help").output().unwrap();
        assert!(output.status.success(), "{}: {path:?} is no command", page.display());
        String::from_utf8(output.stdout).unwrap()
    };
    let mut told = help(&path);
    for word in words.iter().take_while(|word| is_name(word)) {
        if !told.contains("Commands:") {
            break;
        }
        path.push(word);
        told = help(&path);
    }
    assert!(!path.is_empty() || words[0].starts_with("--"), "{}: {words:?}", page.display());
    for option in words.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
        assert!(told.contains(option), "{}: {path:?} has no {option}", page.display());
    }
}

/// What stands outside of fences and of code in a line.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    });
    let lines: Vec<&str> = lines.collect();
    lines.join("\n").split('`').step_by(2).collect()
}

/// Where a link may go within a page: its headings, as the book and the usual sites name them.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let headings = text.lines().filter(|line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced && line.starts_with('#')
    });
    let letters = |letter: char| match letter {
        letter if letter.is_alphanumeric() || "_-".contains(letter) => Some(letter.to_ascii_lowercase()),
        letter if letter.is_whitespace() => Some('-'),
        _ => None,
    };
    let name = |heading: &str| heading.trim_start_matches('#').trim().chars().filter_map(letters).collect();
    let mut names: Vec<String> = Vec::new();
    for name in headings.map(name) {
        let name: String = name;
        let same = names.iter().filter(|other| **other == name).count();
        names.push(if same == 0 { name } else { format!("{name}-{same}") });
    }
    names
}

/// What is wrong with the links of a page that lies in `folder`: each goes to a file of the repository, and to a
/// heading that is in it.
fn broken_links(text: &str, own: &Path) -> Vec<String> {
    let prose = prose(text);
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let broken = |link: &str| {
        let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let path = if file.is_empty() { own.to_owned() } else { own.parent().unwrap().join(file) };
        let Some(anchor) = anchor else { return !path.exists() };
        fs::read_to_string(path).map_or(true, |text| !anchors(&text).iter().any(|name| name == anchor))
    };
    links.filter(|link| !link.starts_with("http") && broken(link)).map(str::to_owned).collect()
}

/// Every link within the book and within the READMEs, and every anchor.
#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = pages();
    documents.extend(["README.md", "ARCHITECTURE.md"].map(|name| root.join(name)));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    for folder in crates.filter(|path| path.join("README.md").exists()) {
        let pages = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    assert!(documents.len() > 20, "{documents:?}");
    let mut links = 0;
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        links += prose(&text).matches("](").count();
        let broken = broken_links(&text, &document);
        assert!(broken.is_empty(), "{}: {broken:?} lead nowhere", document.display());
    }
    assert!(links > 10, "{links} links");
}

#[test]
fn a_broken_link_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.md");
    let other = "# One `thing`: and more\n```text\n# Not this\n```\n## Twice\n## Twice\n";
    fs::write(directory.path().join("other.md"), other).unwrap();
    let text = "# Own\n[a](other.md) [b](other.md#one-thing-and-more) [c](#own) [d](other.md#twice-1) [e](https://there)\n\
                `[f](code.md)` [g](none.md) [h](other.md#not-this) [i](#other)\n```text\n[j](fenced.md)\n```\n";
    fs::write(&page, text).unwrap();
    assert_eq!(broken_links(text, &page), ["none.md", "other.md#not-this", "#other"]);
}
