//! The one error type of the crate.
//!
//! Every variant's message is written for the person who has to act on it: what, where, what to
//! do. The type lies below all layers, because each of them returns it; `db` re-exports it.

use std::{fmt, io, path::PathBuf, sync::Arc};

/// Most of a key that a message shows.
const SHOWN_BYTES_MAX: usize = 64;

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was refused or failed.
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
    /// There is no database here.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What was looked for and not found.
        what: String,
    },
    /// The operating system refused a file operation.
    Io {
        /// What was being done, with the file: `read log/0000000001.log`.
        doing: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The disk (or the quota) is full. Reads and deletes go on; writes resume when there is
    /// space.
    DiskFull {
        /// What needed the space.
        doing: String,
    },
    /// Bytes on disk are not what was written.
    Corruption {
        /// The file, relative to the database directory.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong, and where it helps, expected and found.
        what: String,
    },
    /// The files were written by a newer release than this one.
    NewerFormat {
        /// The file.
        file: String,
        /// The version that it carries.
        found: u32,
        /// The newest version that this release reads.
        supported: u32,
    },
    /// The log or the catalog could not be synced earlier; this handle takes no more writes. Reads
    /// go on. Close the database, mend the disk, and open it again.
    LogFailed {
        /// The first failure.
        reason: String,
    },
    /// A table could not apply a logged write; the table takes no more operations until it is
    /// reopened. The log still holds the write.
    TableFailed {
        /// The table.
        table: String,
        /// The first failure.
        reason: String,
    },
    /// The write would exceed `memory_budget`.
    OutOfMemory {
        /// What the whole database may hold, in bytes.
        budget: u64,
        /// What the write needs, in bytes.
        needed: u64,
    },
    /// A key, value, batch or name is outside its limits.
    Limit {
        /// What is outside, with its size and the limit.
        what: String,
    },
    /// An option does not exist or its value does not parse.
    InvalidOption {
        /// The option's name.
        name: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// A sorted load was given a key that is not above the one before it, or not above all keys
    /// that the table has.
    OutOfOrder {
        /// The key.
        key: Vec<u8>,
        /// The key that it should be above.
        after: Vec<u8>,
    },
    /// The table is being loaded, and takes no other write until that has ended.
    Loading {
        /// The table.
        table: String,
    },
    /// No table has this name.
    NoSuchTable {
        /// The name asked for.
        name: String,
    },
    /// A table or a directory of tables has this name already.
    TableExists {
        /// The name.
        name: String,
    },
    /// The table was dropped.
    StaleTable {
        /// The name it had.
        name: String,
    },
    /// A key or a value is not of the table's types, or a table does not have the types that a
    /// program opens it with.
    TypeMismatch {
        /// The table.
        table: String,
        /// The types that the catalog has: `string,u64 -> blob`.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A batch was given a table of another database; one behind a mount is in another.
    OtherDatabase {
        /// The table.
        table: String,
    },
    /// A mount cannot be made or used.
    Mount {
        /// The mount's path, or the table's.
        path: String,
        /// Why, and what to do.
        what: String,
    },
    /// The table's engine keeps no order: it has no ranges. Use `scan`, or an ordered engine.
    Unordered {
        /// The table.
        table: String,
        /// Its engine's name.
        engine: &'static str,
    },
    /// This build does not have the engine.
    UnknownEngine {
        /// The engine's name.
        name: String,
        /// The engines that this build has.
        available: String,
    },
    /// The database was opened read-only.
    ReadOnly,
    /// The database was closed.
    Closed,
}

impl Error {
    /// An I/O error with what was being done. A full disk becomes `DiskFull`.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { doing: doing.into() }
            }
            _ => Self::Io { doing: doing.into(), source: Arc::new(source) },
        }
    }

    /// Damage at `offset` of `file`.
    pub fn corruption(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Corruption { file: file.into(), offset, what: what.into() }
    }

    /// Whether the error tells of damaged bytes on disk.
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
                shown(key),
                shown(after)
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

/// A key for a message: not all of a long one.
fn shown(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES_MAX) {
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
