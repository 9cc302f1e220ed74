//! A page with generated parts.

use std::{fs, path::PathBuf};

/// If this variable is set, the tests write the pages instead of comparing them.
const WRITE: &str = "QUINTET_REFERENCE_WRITE";

/// A page of `docs/reference`.
pub(crate) struct Page {
    path: PathBuf,
    committed: String,
    text: String,
}

impl Page {
    /// Reads the page with this file name.
    pub(crate) fn read(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let path = root.join(name);
        let committed = fs::read_to_string(&path).unwrap();
        Self { path, text: committed.clone(), committed }
    }

    /// Returns the committed text.
    pub(crate) fn committed(&self) -> &str {
        &self.committed
    }

    /// Replaces the generated part `name`.
    pub(crate) fn fill(&mut self, name: &str, content: &str) {
        let begin = format!("<!-- generated: {name} -->\n");
        let path = self.path.display();
        let start = self.text.find(&begin).map(|at| at + begin.len());
        let start = start.unwrap_or_else(|| panic!("{path} lacks the line {begin}"));
        let length = self.text[start..].find("<!-- end -->\n");
        let end = start + length.unwrap_or_else(|| panic!("{path}: {name} has no end"));
        self.text.replace_range(start..end, &format!("\n{}\n\n", content.trim()));
    }

    /// Compares the page with the committed one, or writes it.
    pub(crate) fn finish(self) {
        if std::env::var_os(WRITE).is_some() {
            fs::write(&self.path, &self.text).unwrap();
            return;
        }
        let mut lines = self.text.lines().zip(self.committed.lines()).enumerate();
        let differs = lines.find(|(_, (new, old))| new != old);
        assert!(
            self.text == self.committed,
            "{} is not up to date; run `cargo xtask reference`. First difference: {differs:#?}",
            self.path.display()
        );
    }
}
