//! The directory tree, twice: as it looks and as the platter holds it.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use foreshore_env::random::Xorshift;

use super::CrashMode;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File(u64),
}

type Tree = BTreeMap<PathBuf, Node>;

#[derive(Clone, Debug)]
enum Change {
    Insert(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Change {
    fn apply(&self, tree: &mut Tree) {
        match self {
            Change::Insert(path, node) => _ = tree.insert(path.clone(), *node),
            Change::Remove(path) => _ = tree.remove(path),
            Change::Rename(from, to) => {
                if let Some(node) = tree.remove(from) {
                    tree.insert(to.clone(), node);
                }
            }
        }
    }

    /// Whose sync makes the change durable.
    fn directory(&self) -> &Path {
        match self {
            Change::Insert(path, _) | Change::Remove(path) | Change::Rename(_, path) => parent(path),
        }
    }
}

/// The directory that holds a name; the empty path for a name without one.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none_or(|parent| parent.as_os_str().is_empty() && path.as_os_str().is_empty())
        || path == Path::new(".")
}

/// The directory tree. The roots (`/`, the empty path, `.`) are always there.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    now: Tree,
    platter: Tree,
    /// Not yet durable, oldest first.
    unsynced: Vec<Change>,
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        if is_root(path) { Some(Node::Directory) } else { self.now.get(path).copied() }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    /// Adds a name that is not there.
    pub(super) fn insert(&mut self, path: &Path, node: Node) -> io::Result<()> {
        if self.get(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if self.get(parent(path)) != Some(Node::Directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change(Change::Insert(path.to_owned(), node));
        Ok(())
    }

    /// Removes the name of a file; gives the file.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<u64> {
        match self.get(path) {
            Some(Node::File(file)) => {
                self.change(Change::Remove(path.to_owned()));
                Ok(file)
            }
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Renames a file inside its directory; gives the file that was replaced.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<u64>> {
        if parent(from) != parent(to) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let replaced = match (self.get(from), self.get(to)) {
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
            (Some(Node::Directory), _) | (_, Some(Node::Directory)) => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            (Some(Node::File(_)), None) => None,
            (Some(Node::File(_)), Some(Node::File(file))) => Some(file),
        };
        if from != to {
            self.change(Change::Rename(from.to_owned(), to.to_owned()));
        }
        Ok(replaced)
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync(&mut self, directory: &Path) {
        let directory = if directory == Path::new(".") { Path::new("") } else { directory };
        let platter = &mut self.platter;
        self.unsynced.retain(|change| {
            let covered = change.directory() == directory;
            if covered {
                change.apply(platter);
            }
            !covered
        });
    }

    /// The names in a directory.
    pub(super) fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        match self.get(directory) {
            Some(Node::Directory) => {
                Ok(self.now.keys().filter(|path| parent(path) == directory).cloned().collect())
            }
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.now.values().filter_map(|node| match node {
            Node::File(file) => Some(*file),
            Node::Directory => None,
        })
    }

    /// Whether a file has a name with this extension.
    pub(super) fn has_extension(&self, file: u64, extension: &str) -> bool {
        let mut names = self.now.iter().filter(|(_, node)| **node == Node::File(file));
        names.any(|(path, _)| path.extension().is_some_and(|it| it == extension))
    }

    pub(super) fn paths_of_files(&self) -> Vec<PathBuf> {
        let files = self.now.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// What is there after the power went: of the changes in each directory, a prefix.
    pub(super) fn after_crash(&self, mode: CrashMode, random: &mut Xorshift) -> Names {
        let mut tree = self.platter.clone();
        let mut still_kept: BTreeMap<&Path, u64> = BTreeMap::new();
        for change in &self.unsynced {
            let total = self.unsynced.iter().filter(|it| it.directory() == change.directory()).count() as u64;
            let kept = still_kept.entry(change.directory()).or_insert_with(|| match mode {
                CrashMode::DropUnsynced => 0,
                CrashMode::KeepAll => total,
                CrashMode::SubsetRandom(_) | CrashMode::TornRandom(_) => random.below(total + 1),
            });
            if *kept > 0 {
                *kept -= 1;
                change.apply(&mut tree);
            }
        }
        // What is in a directory that is gone is gone too.
        let mut now = Tree::new();
        for (path, node) in tree {
            let home = parent(&path);
            if is_root(home) || now.get(home) == Some(&Node::Directory) {
                now.insert(path, node);
            }
        }
        Names { platter: now.clone(), now, unsynced: Vec::new() }
    }
}
