//! The rules of this repository that neither the compiler nor Clippy knows.
//!
//! What: each rule is a function from a [`Tree`] (every file, in memory) to [`Finding`]s.
//! Why: rules that a program checks are kept; rules that reviewers check are not.
//! Invariants: a rule has a test that plants a violation and sees it found (`tests.rs`); findings
//! name file and line; a file that is not Rust, Markdown or a Cargo manifest is not looked at.

mod allow;
mod api;
mod circles;
mod documents;
mod english;
mod homes;
mod imports;
mod layers;
mod manifests;
mod names;
mod paths;
pub(crate) mod planted_bugs;
mod prose;
mod reach;
mod source;
mod style;
mod unsafe_list;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use source::Source;

/// Something that a rule objects to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, from the root of the repository.
    pub(crate) path: String,
    /// Line, from 1.
    pub(crate) line: usize,
    /// What is wrong, and where to look.
    pub(crate) message: String,
    /// Whether it fails the run, or only warns.
    pub(crate) fails: bool,
    /// The rule and the key by which the list of exceptions can allow it.
    exception: Option<(&'static str, String)>,
}

impl Finding {
    fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        let (path, message) = (path.to_owned(), message.into());
        Self { path, line, message, fails: true, exception: None }
    }

    /// A violation of `rule` that the list of exceptions can allow for `key`.
    fn of(rule: &'static str, key: &str, path: &str, line: usize, message: &str) -> Self {
        Self { exception: Some((rule, key.to_owned())), ..Self::error(path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.fails { "error" } else { "warning" };
        write!(f, "{}:{}: {kind}: {}", self.path, self.line, self.message)
    }
}

/// The files of the repository by their path from its root, with `/` between components.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Rust sources.
    sources: BTreeMap<String, Source>,
    /// Markdown documents and Cargo manifests.
    texts: BTreeMap<String, String>,
    /// The list of accepted violations.
    allowed: String,
    /// Every file and folder, for links.
    names: Vec<String>,
}

/// Folders that hold no sources of ours.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "node_modules"];

impl Tree {
    /// Reads every file below `root`.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        tree.mark_test_files();
        Ok(tree)
    }

    /// A tree from given files.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, || Ok((*text).to_owned())).unwrap();
        }
        tree.mark_test_files();
        tree
    }

    /// How many files the rules looked at.
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
            _ if path == allow::FILE => self.allowed = text()?,
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

    /// Markdown documents by path.
    fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        texts.filter(|(path, _)| is_document(path))
    }

    /// Sources of the library, without those that are tests.
    fn library(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.sources
            .values()
            .filter(|source| !source.is_test_file())
            .filter_map(|source| Some((source.path.strip_prefix(LIBRARY)?, source)))
    }
}

/// Whether a path names a Markdown document.
fn is_document(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

/// Where the library's sources are.
const LIBRARY: &str = "crates/quintet/src/";

/// Runs every rule, and takes what the list of exceptions allows.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = allow::apply(tree, every_finding(tree));
    findings.sort();
    findings
}

/// Runs every rule.
fn every_finding(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let imports = imports::Imports::read(tree);
    layers::check(tree, &imports, &mut findings);
    circles::check(&imports, &mut findings);
    homes::check(tree, &imports, &mut findings);
    style::check(tree, &mut findings);
    names::check(tree, &mut findings);
    api::check(tree, &mut findings);
    english::check(tree, &mut findings);
    unsafe_list::check(tree, &mut findings);
    reach::check(tree, &mut findings);
    documents::check(tree, &mut findings);
    manifests::check(tree, &mut findings);
    planted_bugs::check(tree, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}
