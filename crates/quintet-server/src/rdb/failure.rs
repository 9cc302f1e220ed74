//! Why a dump cannot be read, and the versions of the format.

use crate::failure::Fail;

/// Newest version of the format that is read: Redis 7.4. It is written if fields of hashes expire.
pub(crate) const VERSION_MAX: u16 = 12;
/// Version that is written otherwise: Redis 7.0.
pub(crate) const VERSION_WRITTEN: u16 = 10;

/// Why a dump cannot be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The bytes break the format.
    Malformed {
        /// Number of bytes that were read before the error was found.
        offset: u64,
        /// The error.
        what: String,
    },
    /// The source cannot be read.
    Io {
        /// Number of bytes that were read before.
        offset: u64,
        /// The failure of the source.
        error: std::io::Error,
    },
    /// The value breaks the format in a way that only the sink can see. Readers add the offset.
    Content(&'static str),
    /// The store refused a value.
    Refused(Fail),
}

/// The result of reading.
pub(crate) type Parsed<T = ()> = Result<T, Failure>;

impl Failure {
    /// Adds the offset to a failure of a sink.
    pub(super) fn at(self, offset: u64) -> Self {
        match self {
            Self::Content(what) => Self::Malformed { offset, what: what.to_owned() },
            other => other,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed { offset, what } => {
                write!(f, "the dump is malformed at byte {offset}: {what}")
            }
            Self::Io { offset, error } if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                write!(f, "the dump ends too early, at byte {offset}; copy it again")
            }
            Self::Io { offset, error } => write!(f, "cannot read byte {offset}: {error}"),
            Self::Content(what) => write!(f, "the dump is malformed: {what}"),
            Self::Refused(fail) => write!(f, "{}", fail.text()),
        }
    }
}

impl From<Fail> for Failure {
    fn from(fail: Fail) -> Self {
        Self::Refused(fail)
    }
}
