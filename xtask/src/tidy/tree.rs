//! The files that the rules read.

use std::{collections::BTreeMap, fs, io, path::Path};

use super::source::Source;

/// The list of accepted violations, from the root of the repository.
pub(super) const ALLOWED_FILE: &str = "xtask/tidy-allow.txt";

/// The files of the repository by their path from its root, with `/` between components.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Rust sources.
    pub(super) sources: BTreeMap<String, Source>,
    /// Markdown documents and Cargo manifests.
    pub(super) texts: BTreeMap<String, String>,
    /// The list of accepted violations.
    pub(super) allowed: String,
    /// Every file and folder, for links.
    pub(super) names: Vec<String>,
}

/// Folders without sources of the project.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "node_modules"];

impl Tree {
    /// Reads every file below `root`.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        tree.mark_test_files();
        Ok(tree)
    }

    /// Returns a tree of the given files.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, || Ok((*text).to_owned())).unwrap();
        }
        tree.mark_test_files();
        tree
    }

    /// Returns the number of files that the rules read.
    pub(crate) fn file_count(&self) -> usize {
        self.sources.len() + self.texts.len()
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if entry.file_type()?.is_dir() {
                self.names.push(path.clone());
                self.read_folder(&entry.path(), &path)?;
            } else {
                self.add(&path, || fs::read_to_string(entry.path()))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, text: impl FnOnce() -> io::Result<String>) -> io::Result<()> {
        self.names.push(path.to_owned());
        let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
        match extension {
            Some("rs") => {
                self.sources.insert(path.to_owned(), Source::new(path, text()?));
            }
            Some("md" | "toml") => {
                self.texts.insert(path.to_owned(), text()?);
            }
            _ if path == ALLOWED_FILE => self.allowed = text()?,
            _ => {}
        }
        Ok(())
    }

    /// Marks the files of `#[cfg(test)] mod name;` and everything below them as tests.
    fn mark_test_files(&mut self) {
        let mut roots: Vec<(String, String)> = Vec::new();
        for source in self.sources.values() {
            for module in source.declared_modules().filter(|module| module.is_test) {
                let folder = source.child_folder();
                roots.push((
                    format!("{folder}/{}.rs", module.name),
                    format!("{folder}/{}/", module.name),
                ));
            }
        }
        for (path, source) in &mut self.sources {
            if roots.iter().any(|(file, folder)| path == file || path.starts_with(folder.as_str()))
            {
                source.mark_as_test();
            }
        }
    }

    /// Returns the Markdown documents by path.
    pub(super) fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        texts.filter(|(path, _)| is_document(path))
    }

    /// Returns the sources of the library, without tests.
    pub(super) fn library(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.sources
            .values()
            .filter(|source| !source.is_test_file())
            .filter_map(|source| Some((source.path.strip_prefix(LIBRARY)?, source)))
    }
}

/// Whether a path names a Markdown document.
pub(super) fn is_document(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

/// The folder of the library's sources.
pub(super) const LIBRARY: &str = "crates/quintet/src/";
