//! What the checks look at: the crates with their sources, manifests and READMEs, read once.

use std::path::Path;
use std::{fs, io};

use crate::source::Source;

/// Where the ratchet of file sizes is kept.
pub(crate) const RATCHET: &str = "crates/xtask/ratchet.txt";

/// The repository's text.
#[derive(Default)]
pub(crate) struct Repository {
    pub(crate) crates: Vec<Crate>,
    /// The content of [`RATCHET`].
    pub(crate) ratchet: String,
    /// Other text: root files, scripts, and pages that are no crate's README.
    pub(crate) documents: Vec<Document>,
}

/// A folder of `crates/`.
#[derive(Default)]
pub(crate) struct Crate {
    /// The folder's name.
    pub(crate) name: String,
    pub(crate) manifest: Document,
    pub(crate) readme: Option<Document>,
    pub(crate) sources: Vec<Source>,
}

/// A file that is no Rust source.
#[derive(Clone, Default)]
pub(crate) struct Document {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Repository {
    /// Reads everything under `root`.
    pub(crate) fn read(root: &Path) -> io::Result<Repository> {
        let mut repository = Repository::default();
        for name in names(root, "crates")? {
            let folder = format!("crates/{name}");
            if !root.join(&folder).join("Cargo.toml").is_file() {
                continue;
            }
            let mut sources = Vec::new();
            for path in rust_files(root, &folder)? {
                let text = fs::read_to_string(root.join(&path))?;
                sources.push(Source::new(path, &text));
            }
            let manifest = Document::read(root, format!("{folder}/Cargo.toml"))?;
            let readme = format!("{folder}/README.md");
            let readme =
                if root.join(&readme).is_file() { Some(Document::read(root, readme)?) } else { None };
            repository.crates.push(Crate { name, manifest, readme, sources });
        }
        for krate in &mut repository.crates {
            crate::source::mark_test_modules(&mut krate.sources);
        }
        repository.ratchet = fs::read_to_string(root.join(RATCHET))?;
        let mut documents: Vec<String> =
            ["README.md", "ARCHITECTURE.md", "Cargo.toml", "clippy.toml", ".ci/run", ".ci/apart"]
                .map(String::from)
                .to_vec();
        for folder in ["scripts", "docs/src"] {
            documents.extend(
                names(root, folder).unwrap_or_default().iter().map(|name| format!("{folder}/{name}")),
            );
        }
        for krate in &repository.crates {
            // Its README is its own.
            let pages = names(root, &format!("crates/{}", krate.name))?;
            let pages = pages.iter().filter(|name| name.ends_with(".md") && *name != "README.md");
            documents.extend(pages.map(|name| format!("crates/{}/{name}", krate.name)));
        }
        for path in documents {
            if root.join(&path).is_file() {
                repository.documents.push(Document::read(root, path)?);
            }
        }
        Ok(repository)
    }

    /// All Rust sources.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.crates.iter().flat_map(|krate| &krate.sources)
    }
}

impl Crate {
    /// Whether others can use it.
    pub(crate) fn is_library(&self) -> bool {
        self.sources.iter().any(|source| source.path == format!("crates/{}/src/lib.rs", self.name))
    }
}

impl Document {
    fn read(root: &Path, path: String) -> io::Result<Document> {
        let text = fs::read_to_string(root.join(&path))?;
        Ok(Document { path, text })
    }
}

/// Sorted names in a folder, hidden ones left out.
fn names(root: &Path, folder: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Paths of the `.rs` files under a folder, build output left out.
fn rust_files(root: &Path, folder: &str) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for name in names(root, folder)? {
        let path = format!("{folder}/{name}");
        if root.join(&path).is_dir() {
            if name != "target" {
                files.extend(rust_files(root, &path)?);
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(files)
}
