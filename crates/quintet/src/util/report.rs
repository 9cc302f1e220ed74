//! What a check found.
//!
//! Below all layers, because each of them checks its own files.

/// What a check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the database directory.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong; empty for a sound database.
    pub findings: Vec<Finding>,
    /// Bytes of files verified.
    pub checked_bytes: u64,
    /// Entries verified.
    pub checked_entries: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Notes a finding.
    pub fn add(&mut self, file: impl Into<String>, offset: u64, what: impl Into<String>) {
        self.findings.push(Finding { file: file.into(), offset, what: what.into() });
    }
}
