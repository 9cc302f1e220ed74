//! Failures of a command: the message and the exit code.
//!
//! The benchmarks and the `quintet` command use it. Exit codes are part of the interface: 0
//! success, 1 failure, 2 wrong usage, 3 damage on disk.

use std::{fmt, io};

/// The result of a command, and of the functions of this crate.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A reason why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
    /// Files are damaged, or a store returned a wrong result: exit code 3.
    Damage(String),
    /// The message has been printed already; this is the exit code.
    Reported(u8),
    /// The reader of standard output has closed the pipe: exit code 0, without a message.
    BrokenPipe,
}

impl Failure {
    /// A failure of the action `doing`, or [`Failure::BrokenPipe`] if the reader closed the pipe.
    pub fn io(doing: impl fmt::Display, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Failed(format!("{doing}: {}", system_message(error))),
        }
    }

    /// Returns the exit code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Damage(_) => 3,
            Self::Reported(code) => *code,
        }
    }

    /// Returns the same failure with `place` in front of its message.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        match self {
            Self::Usage(what) => Self::Usage(format!("{place}: {what}")),
            Self::Failed(what) => Self::Failed(format!("{place}: {what}")),
            Self::Damage(what) => Self::Damage(format!("{place}: {what}")),
            quiet => quiet,
        }
    }
}

/// Returns the system's message without Rust's `(os error 2)`.
fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text.get(..end).unwrap_or(&text).to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) | Self::Failed(what) | Self::Damage(what) => {
                // One line, even if a file name or a key has line breaks or control characters.
                for character in what.chars() {
                    match character {
                        '\n' | '\r' => f.write_str(" ")?,
                        c if c.is_control() => write!(f, "{}", c.escape_default())?,
                        c => write!(f, "{c}")?,
                    }
                }
                Ok(())
            }
            Self::Reported(_) | Self::BrokenPipe => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<quintet::Error> for Failure {
    fn from(error: quintet::Error) -> Self {
        match error {
            damage if damage.is_corruption() => Self::Damage(damage.to_string()),
            quintet::Error::InvalidOption { .. } | quintet::Error::UnknownEngine { .. } => {
                Self::Usage(error.to_string())
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

/// For writes to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::io("standard output", &error)
    }
}
