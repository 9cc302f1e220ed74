//! The error type of the crate.
//!
//! Every message is for the person who has to act on it: what failed, where, and what to do. The
//! type is below all layers, because each of them returns it.

use std::{fmt, io, path::PathBuf, sync::Arc};

/// Most bytes of a key that a message prints.
const PRINTED_BYTES_MAX: usize = 64;

/// Result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why an operation failed.
///
/// Unless a variant says otherwise, a failed operation has changed nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another process (or another handle of this one) has the directory open.
    Locked {
        /// The database directory.
        path: PathBuf,
    },
    /// The directory has no database.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The operating system refused a file operation.
    Io {
        /// The operation and the file: `read log/0000000001.log`.
        doing: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The disk or the quota is full. Reads and deletes continue; writes resume when there is
    /// space.
    DiskFull {
        /// The operation that needed the space.
        doing: String,
    },
    /// Bytes on disk are not those that were written.
    Corruption {
        /// The file, relative to the database directory.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// What is wrong, if it helps with the expected and the found value.
        what: String,
    },
    /// A newer release wrote the file.
    NewerFormat {
        /// The file.
        file: String,
        /// The format version of the file.
        found: u32,
        /// The newest format version that this release reads.
        supported: u32,
    },
    /// A sync of the log or the catalog failed earlier. This handle takes no more writes. Reads
    /// continue. Close the database, repair the disk, and open it again.
    LogFailed {
        /// The first failure.
        reason: String,
    },
    /// A table could not apply a logged write. It takes no more operations until the database is
    /// reopened. The log still holds the write.
    TableFailed {
        /// The table.
        table: String,
        /// The first failure.
        reason: String,
    },
    /// The write would exceed `memory_budget`.
    OutOfMemory {
        /// The budget of the whole database in bytes.
        budget: u64,
        /// The bytes that the write needs.
        needed: u64,
    },
    /// A key, value, batch or name is outside its limits.
    Limit {
        /// What is outside its limits, with its size and the limit.
        what: String,
    },
    /// An option does not exist, or its value does not parse.
    InvalidOption {
        /// The option's name.
        name: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// A key of a sorted load is not above the one before it, or not above all keys of the table.
    OutOfOrder {
        /// The key.
        key: Vec<u8>,
        /// The key that it should be above.
        after: Vec<u8>,
    },
    /// The table is being loaded and takes no other write until the load has ended.
    Loading {
        /// The table.
        table: String,
    },
    /// No table has this name.
    NoSuchTable {
        /// The requested name.
        name: String,
    },
    /// A table or a directory of tables with this name exists.
    TableExists {
        /// The name.
        name: String,
    },
    /// The table was dropped.
    StaleTable {
        /// The name it had.
        name: String,
    },
    /// A key or a value does not have the table's type, or a table does not have the types that a
    /// program opens it with.
    TypeMismatch {
        /// The table.
        table: String,
        /// The types in the catalog: `string,u64 -> blob`.
        expected: String,
        /// The types that were given.
        found: String,
    },
    /// A batch has a table of another database. A table behind a mount is in another one.
    OtherDatabase {
        /// The table.
        table: String,
    },
    /// A mount cannot be created or used.
    Mount {
        /// The mount's path, or the table's.
        path: String,
        /// The reason, and what to do.
        what: String,
    },
    /// The table's engine has no key order and no ranges. Use `scan`, or an ordered engine.
    Unordered {
        /// The table.
        table: String,
        /// Its engine's name.
        engine: &'static str,
    },
    /// This build has no engine with this name.
    UnknownEngine {
        /// The engine's name.
        name: String,
        /// The engines of this build.
        available: String,
    },
    /// The database was opened read-only.
    ReadOnly,
    /// The database was closed.
    Closed,
}

impl Error {
    /// Returns an I/O error during the operation `doing`. A full disk or quota becomes `DiskFull`.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { doing: doing.into() }
            }
            _ => Self::Io { doing: doing.into(), source: Arc::new(source) },
        }
    }

    /// Returns a `Corruption` at `offset` of `file`.
    pub fn corruption(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Corruption { file: file.into(), offset, what: what.into() }
    }

    /// Returns whether the error reports damaged bytes on disk.
    pub const fn is_corruption(&self) -> bool {
        matches!(self, Self::Corruption { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path } => {
                write!(f, "{} is open in another process; close it there first", path.display())
            }
            Self::NotADatabase { path, what } => {
                write!(f, "{} is not a Quintet database: {what}", path.display())
            }
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::DiskFull { doing } => {
                write!(f, "{doing}: no space left on the disk; free some and try again")
            }
            Self::Corruption { file, offset, what } => {
                write!(f, "{file} is damaged at byte {offset}: {what}")
            }
            Self::NewerFormat { file, found, supported } => write!(
                f,
                "{file} has format version {found}, this release reads up to {supported}; \
                 use a newer release"
            ),
            Self::LogFailed { reason } => write!(
                f,
                "the log failed earlier ({reason}); no more writes are taken: \
                 close and reopen the database"
            ),
            Self::TableFailed { table, reason } => {
                write!(f, "table {table} stopped ({reason}); close and reopen the database")
            }
            Self::OutOfMemory { budget, needed } => write!(
                f,
                "the write needs {needed} more bytes of memory than the budget of {budget} \
                 leaves; raise memory_budget or delete data"
            ),
            Self::Limit { what } => f.write_str(what),
            Self::InvalidOption { name, what } => write!(f, "option {name}: {what}"),
            Self::OutOfOrder { key, after } => write!(
                f,
                "key \"{}\" is not above \"{}\": a sorted load takes keys in ascending order, \
                 above all that the table has",
                printable(key),
                printable(after)
            ),
            Self::Loading { table } => {
                write!(f, "table {table} is being loaded; it takes no other write until then")
            }
            Self::NoSuchTable { name } => write!(f, "no table named {name:?}"),
            Self::TableExists { name } => write!(f, "{name:?} exists already"),
            Self::StaleTable { name } => write!(f, "table {name:?} was dropped"),
            Self::OtherDatabase { table } => write!(
                f,
                "table {table} is in another database than the batch, which is atomic within one; \
                 make one batch for each"
            ),
            Self::TypeMismatch { table, expected, found } => {
                write!(f, "table {table} has the types {expected}, not {found}")
            }
            Self::Mount { path, what } => write!(f, "mount {path}: {what}"),
            Self::Unordered { table, engine } => write!(
                f,
                "table {table} uses the {engine} engine, which keeps no order and has no ranges; \
                 use scan, or a table of an ordered engine: btree, slm or tph"
            ),
            Self::UnknownEngine { name, available } => {
                write!(f, "this build has no engine named {name:?}; it has: {available}")
            }
            Self::ReadOnly => f.write_str("the database was opened read-only"),
            Self::Closed => f.write_str("the database is closed"),
        }
    }
}

/// Returns a key for a message; of a long one only the first bytes and the length.
fn printable(key: &[u8]) -> String {
    match key.get(..PRINTED_BYTES_MAX) {
        Some(front) => format!("{}... ({} bytes)", front.escape_ascii(), key.len()),
        None => key.escape_ascii().to_string(),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
