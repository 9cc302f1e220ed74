//! Why a function of a compatible interface fails: a code and a message, printed as the originals
//! print their status.

use std::fmt;

use quintet::Error;

/// The kinds of failures that LevelDB and RocksDB distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A key or a database is missing.
    NotFound,
    /// Bytes on disk differ from what was written, or a table has failed.
    Corruption,
    /// The operation is not supported.
    NotSupported,
    /// An argument, an option or an object is unsuitable.
    InvalidArgument,
    /// The operating system refused an operation, or the directory is locked.
    Io,
    /// A read-only database, or one that was closed, refuses the operation.
    Incomplete,
    /// Another commit changed what a transaction depends on.
    Busy,
    /// A lock was not free in time.
    TimedOut,
    /// Memory is short, or a snapshot has ended. Run the operation again.
    TryAgain,
    /// The snapshot or the transaction has ended.
    Expired,
    /// A merge has operands and no value below them.
    MergeInProgress,
}

impl Code {
    const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound: ",
            Self::Corruption => "Corruption: ",
            Self::NotSupported => "Not implemented: ",
            Self::InvalidArgument => "Invalid argument: ",
            Self::Io => "IO error: ",
            Self::Incomplete => "Result incomplete: ",
            Self::Busy => "Resource busy: ",
            Self::TimedOut => "Operation timed out: ",
            Self::TryAgain => "Operation failed. Try again.: ",
            Self::Expired => "Operation expired: ",
            Self::MergeInProgress => "Merge in progress: ",
        }
    }
}

/// The failure of a function.
#[derive(Clone, Debug)]
pub struct Status {
    code: Code,
    message: String,
}

impl Status {
    /// Builds a status.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Builds an invalid argument.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Builds a corruption.
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(Code::Corruption, message)
    }

    /// Builds an operation that is not supported.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Code::NotSupported, message)
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.code.text(), self.message)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Locked { .. }
            | Error::Io { .. }
            | Error::DiskFull { .. }
            | Error::LogFailed { .. }
            | Error::Closed
            | Error::Forked => Code::Io,
            Error::Corruption { .. } | Error::TableFailed { .. } | Error::MergeRefused { .. } => {
                Code::Corruption
            }
            Error::ReadOnly | Error::Unordered { .. } | Error::NewerFormat { .. } => {
                Code::NotSupported
            }
            Error::NoSuchTable { .. } | Error::StaleTable { .. } | Error::ChangesLost { .. } => {
                Code::NotFound
            }
            Error::Conflict { .. } | Error::Deadlock { .. } | Error::Loading { .. } => Code::Busy,
            Error::LockTimeout { .. } => Code::TimedOut,
            Error::OutOfMemory { .. } => Code::TryAgain,
            Error::SnapshotExpired { .. } => Code::Expired,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}
