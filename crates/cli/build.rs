//! Tells the program which commit it is built from, as the environment variable `FORESHORE_COMMIT` of its compilation:
//! the twelve digits of the last commit that changed the sources, and if these have changed since, `+` and a checksum
//! of them; `unknown` outside a checkout. The simulating program has the sources themselves, too, because it names hot
//! lines by what their text says. No path of the machine gets into the program.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the program is made of, as git has it.
const SOURCES: [&str; 6] = [
    ":(glob)crates/*/src/**",
    ":(glob)crates/*/Cargo.toml",
    ":(glob)crates/*/build.rs",
    "Cargo.toml",
    "Cargo.lock",
    ".cargo",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    println!("cargo::rustc-env=FORESHORE_COMMIT={}", commit(&root).unwrap_or_else(|| "unknown".to_owned()));
    if env::var_os("CARGO_CFG_FORESHORE_SIM").is_some() {
        let list = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("sources.rs");
        fs::write(list, sources(&root).unwrap_or_else(|| "&[]".to_owned()))
            .expect("cargo's own directory can be written to");
    }
}

/// An array of the engine's sources: for each file its path in the repository, and its text. `None` outside a checkout.
fn sources(root: &Path) -> Option<String> {
    let root = root.canonicalize().ok()?;
    let is_there =
        |file: &PathBuf| file.extension().is_some_and(|kind| kind == "rs") && root.join(file).exists();
    let files = files(&root)?.into_iter().filter(is_there);
    let entry = |file: PathBuf| format!("({file:?}, include_str!({:?})),", root.join(&file));
    Some(format!("&[{}]", files.map(entry).collect::<String>()))
}

fn commit(root: &Path) -> Option<String> {
    // Not a checkout of something else that this lies in.
    root.join(".git").exists().then_some(())?;
    let commit = git(root, &["log", "-1", "--format=%h", "--abbrev=12", "--"], &SOURCES)?;
    // What moves with each commit, and with each change of what the program is made of.
    let log = git(root, &["rev-parse", "--git-path", "logs/HEAD"], &[])?;
    let files = files(root)?;
    for path in files.iter().map(PathBuf::as_path).chain([Path::new(&log), Path::new("crates")]) {
        if root.join(path).exists() {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
    }
    let changes = git(root, &["status", "--porcelain", "--"], &SOURCES)?;
    Some(if changes.is_empty() { commit } else { format!("{commit}+{:08x}", checksum(root, &files)) })
}

/// What git prints, without the end of its last line; `None` if it is not there or does not like what it is asked.
fn git(root: &Path, words: &[&str], paths: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(words).args(paths).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

/// All files of the sources, those that git does not know yet among them, in order.
fn files(root: &Path) -> Option<Vec<PathBuf>> {
    let known = ["ls-files", "--cached", "--others", "--exclude-standard", "--"];
    let mut files: Vec<PathBuf> = git(root, &known, &SOURCES)?.lines().map(PathBuf::from).collect();
    files.sort();
    files.dedup();
    Some(files)
}

/// FNV-1a of names and contents, folded to 32 bits.
fn checksum(root: &Path, files: &[PathBuf]) -> u32 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        // A file that is gone has no content.
        let content = fs::read(root.join(file)).unwrap_or_default();
        for byte in file.as_os_str().as_encoded_bytes().iter().chain(&content) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    (sum ^ (sum >> 32)) as u32
}
