//! What a rule reports.

use std::fmt;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, from the root of the repository.
    pub(crate) path: String,
    /// Line, from 1.
    pub(crate) line: usize,
    /// The violation and its remedy.
    pub(crate) message: String,
    /// Whether it fails the run, or only warns.
    pub(crate) fails: bool,
    /// The rule and the key by which the list of exceptions can allow it.
    pub(super) exception: Option<(&'static str, String)>,
}

impl Finding {
    pub(super) fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        let (path, message) = (path.to_owned(), message.into());
        Self { path, line, message, fails: true, exception: None }
    }

    /// A violation of `rule` that the list of exceptions can allow for `key`.
    pub(super) fn of(
        rule: &'static str,
        key: &str,
        path: &str,
        line: usize,
        message: &str,
    ) -> Self {
        Self { exception: Some((rule, key.to_owned())), ..Self::error(path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.fails { "error" } else { "warning" };
        write!(f, "{}:{}: {kind}: {}", self.path, self.line, self.message)
    }
}
