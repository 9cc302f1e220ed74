//! Failures of a benchmark: the message and the exit code.

use std::{fmt, io};

/// Result of the functions of this crate.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Reason why a benchmark, or one run of it, ended early.
#[derive(Debug)]
pub enum Failure {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// An operation failed: exit code 1.
    Failed(String),
    /// A store returned a wrong result or reported corruption: exit code 3.
    Damage(String),
    /// The reader of standard output closed it: exit code 0.
    BrokenPipe,
}

impl Failure {
    /// Returns the failure of a system call while `doing` something.
    pub fn io(doing: impl fmt::Display, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::BrokenPipe
        } else {
            Self::Failed(format!("{doing}: {error}"))
        }
    }

    /// Returns the exit code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Damage(_) => 3,
        }
    }

    /// Returns the same failure with `place` before its message.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        match self {
            Self::Usage(what) => Self::Usage(format!("{place}: {what}")),
            Self::Failed(what) => Self::Failed(format!("{place}: {what}")),
            Self::Damage(what) => Self::Damage(format!("{place}: {what}")),
            Self::BrokenPipe => Self::BrokenPipe,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) | Self::Failed(what) | Self::Damage(what) => f.write_str(what),
            Self::BrokenPipe => f.write_str("the reader of the output closed it"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<quintet::Error> for Failure {
    fn from(error: quintet::Error) -> Self {
        match error {
            damage if damage.is_corruption() => Self::Damage(damage.to_string()),
            quintet::Error::InvalidOption { .. }
            | quintet::Error::UnknownEngine { .. }
            | quintet::Error::Unordered { .. } => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Converts the error of a write to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::io("standard output", &error)
    }
}
