//! The result of a check. Below all layers, because each of them checks its own files.

/// One problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the database directory.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Description of the problem.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Problems. Empty for a sound database.
    pub findings: Vec<Finding>,
    /// Number of verified bytes of files.
    pub checked_bytes: u64,
    /// Number of verified entries of tables, and of commits in the log.
    pub checked_entries: u64,
    /// Facts that are no problems, for example how evenly the keys of a table are distributed.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns whether the check found no problem.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds a problem at `offset` of `file`.
    pub fn add(&mut self, file: impl Into<String>, offset: u64, what: impl Into<String>) {
        self.findings.push(Finding { file: file.into(), offset, what: what.into() });
    }
}
