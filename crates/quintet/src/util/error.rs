//! The error type of the crate.
//!
//! Every layer returns it; `db` re-exports it. Each message names the object, the cause and, where
//! one exists, the remedy.

use std::{fmt, io, path::PathBuf, sync::Arc};

use super::codec::Lsn;

/// The system's error numbers for a lack of file descriptors, of the system and of the process.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Maximum number of bytes of a key in a message. A longer key ends in `...` and its length.
const PRINTED_BYTES_MAX: usize = 64;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation was refused or failed.
///
/// Unless a variant says otherwise, a failed operation has changed nothing. An error can be cloned;
/// the clones share the source of `Io`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The directory is open elsewhere: in another process, or through another handle of this
    /// process. Close it there and retry.
    Locked {
        /// The database directory.
        path: PathBuf,
        /// The process that has it open.
        holder: LockHolder,
    },
    /// The directory is missing or holds no database, and this open does not create one. A
    /// directory with other files never becomes a database.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What was expected and not found, or what is in the way.
        what: String,
    },
    /// The operating system refused a file operation.
    Io {
        /// The operation and the file, for example `read log/0000000000000001.log`.
        doing: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The disk or the quota is full. Reads go on. The log keeps the last quarter of its segment
    /// for deletes. Writes resume when space is available.
    DiskFull {
        /// The operation that needed the space.
        doing: String,
    },
    /// Bytes on disk differ from what was written. The database changes nothing. `quintet check`
    /// lists all damage.
    Corruption {
        /// The file, relative to the database directory.
        file: String,
        /// The byte offset in the file.
        offset: u64,
        /// The defect, with expected and found values where they are known.
        what: String,
    },
    /// A newer release wrote the file. Nothing was changed. Use that release.
    NewerFormat {
        /// The file.
        file: String,
        /// The file's format version.
        found: u32,
        /// The highest version that this release reads.
        supported: u32,
    },
    /// A sync of the log or the catalog failed earlier. Every later write on this handle fails;
    /// reads go on. Close the database, repair the disk, and open it again.
    LogFailed {
        /// The first failure.
        reason: String,
    },
    /// The engine could not apply a write that the log already holds. The table refuses all
    /// operations until the database is reopened, which replays the write.
    TableFailed {
        /// The table.
        table: String,
        /// The first failure.
        reason: String,
    },
    /// The operation needs more memory than `memory_budget` leaves after the caches were reduced.
    /// Nothing was logged.
    OutOfMemory {
        /// The budget of the whole database in bytes.
        budget: u64,
        /// The requested bytes.
        needed: u64,
    },
    /// A key, value, batch, name or expiry is outside its limits.
    Limit {
        /// The object, its size, and the limit.
        what: String,
    },
    /// An option does not exist, or its value is not allowed.
    InvalidOption {
        /// The option's name.
        name: String,
        /// The defect and the allowed values.
        what: String,
    },
    /// A sorted load received a key that is not greater than the previous key, or, if the load
    /// bypasses the log, not greater than every key of the table. The loader accepts further
    /// entries.
    OutOfOrder {
        /// The key.
        key: Vec<u8>,
        /// The key that it must exceed.
        after: Vec<u8>,
    },
    /// A sorted load of this table is in progress. Retry the write after it ends. Reads are not
    /// affected.
    Loading {
        /// The table.
        table: String,
    },
    /// No table has this name. Where directories are allowed, no directory has it either.
    NoSuchTable {
        /// The requested name.
        name: String,
    },
    /// A table, a directory of tables or a mount with this name exists.
    TableExists {
        /// The name.
        name: String,
    },
    /// The snapshot has ended: it held more than `snapshot_limit`, was older than
    /// `snapshot_max_age`, or an earlier value could not be kept. Take a new one.
    SnapshotExpired {
        /// Why it has ended.
        reason: String,
    },
    /// The log does not have the position of a change feed, or not all that has changed since. The
    /// commits there were removed because no table needs them (see `Options::log_retention`), a
    /// sorted load bypassed the log, or the position is behind the end. Begin again: open a feed at
    /// the end, and take a snapshot.
    ChangesLost {
        /// The position of the feed.
        position: Lsn,
        /// The first position that the log still has.
        start: Lsn,
        /// The end of the log.
        end: Lsn,
    },
    /// The table was dropped after this handle was opened.
    StaleTable {
        /// Its last name.
        name: String,
    },
    /// A key or value does not decode as the table's types, or the program opened the table with
    /// other types.
    TypeMismatch {
        /// The table.
        table: String,
        /// The types in the catalog, for example `string,u64 -> blob`.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A value of an application's own type cannot be encoded. Nothing was written.
    NotEncodable {
        /// The name of the type.
        value: &'static str,
        /// Why.
        reason: String,
    },
    /// A batch or a transaction received a table of another database. A table behind a mount
    /// belongs to the mounted database. Use one batch for each database (`Database::mounted`).
    OtherDatabase {
        /// The table.
        table: String,
    },
    /// A mount cannot be created or used.
    Mount {
        /// The path of the mount, or of the table behind it.
        path: String,
        /// The cause and the remedy.
        what: String,
    },
    /// The engine keeps no key order, so the table has no ranges. Use `scan`, or create the table
    /// with `btree`, `slm` or `tph`.
    Unordered {
        /// The table.
        table: String,
        /// The name of its engine.
        engine: &'static str,
    },
    /// The table has a merge operator that is not registered. Register it with
    /// `Options::merge_operator`, or open the table without merges:
    /// `Options::allow_missing_merge_operators`.
    MergeOperatorMissing {
        /// The table.
        table: String,
        /// The name of the operator.
        operator: String,
    },
    /// The merge operator of the table cannot merge the operand into the key's value.
    MergeRefused {
        /// The table.
        table: String,
        /// The key.
        key: Vec<u8>,
        /// The name of the operator.
        operator: String,
        /// Why.
        reason: String,
    },
    /// This build has no engine of that name.
    UnknownEngine {
        /// The requested name.
        name: String,
        /// The engines of this build, separated by commas.
        available: String,
    },
    /// A commit of another writer changed what the transaction has read (with
    /// `Isolation::Snapshot`: what it writes). Nothing was committed. Run the transaction again;
    /// `Database::transaction` does so by itself.
    Conflict {
        /// The table.
        table: String,
        /// The key. For a range or a scan: its first key, or empty. Empty if the table was cleared.
        key: Vec<u8>,
    },
    /// The transaction waits for a lock whose holder waits for this transaction. It was chosen to
    /// give up. Nothing was committed. Run it again; `Database::transaction` does so by itself.
    Deadlock {
        /// The table of the lock.
        table: String,
        /// The key of the lock.
        key: Vec<u8>,
    },
    /// A transaction did not get the lock of a key within `TransactionOptions::lock_timeout`. It
    /// can go on without the lock, or be rolled back.
    LockTimeout {
        /// The table of the lock.
        table: String,
        /// The key of the lock.
        key: Vec<u8>,
    },
    /// The database was opened read-only.
    ReadOnly,
    /// The database was closed.
    Closed,
    /// The handle belongs to the parent of this process: it was inherited through `fork`. Nothing
    /// was read or written, and the parent is not affected. Open the database in the process that
    /// uses it.
    Forked,
}

/// The process that has a database open which cannot be opened a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockHolder {
    /// Another handle of this process.
    ThisProcess,
    /// Another process.
    Process {
        /// Its id.
        id: u32,
        /// The name of its program. `None` if the system does not tell, for example because the
        /// process has ended and a child that it forked holds the lock.
        name: Option<String>,
    },
    /// The system does not tell.
    Unknown,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisProcess => {
                f.write_str("through another handle of this process; share that handle or close it")
            }
            Self::Process { id, name: Some(name) } => {
                write!(f, "in process {id} ({}); close it there first", name.escape_debug())
            }
            Self::Process { id, name: None } => write!(
                f,
                "in process {id} or in a child that it forked; close it there, or end them, first"
            ),
            Self::Unknown => {
                f.write_str("in another process or through another handle; close it there first")
            }
        }
    }
}

impl Error {
    /// Returns whether the system has no file descriptor left for this process, or for any.
    pub(crate) fn is_out_of_files(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.raw_os_error(), Some(ENFILE | EMFILE)))
    }

    /// Builds `Io`, or `DiskFull` if the system reports a full disk or an exceeded quota. `doing`
    /// names the operation and the file.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { doing: doing.into() }
            }
            _ => Self::Io { doing: doing.into(), source: Arc::new(source) },
        }
    }

    /// Builds `Io` for address space that the system refuses. A table reserves several times the
    /// memory that it uses, so a limit of the process is the usual cause.
    pub(crate) fn address_space(part: &str, source: io::Error) -> Self {
        let advice = "raise the limit of the process (ulimit -v), or set a smaller memory budget";
        Self::io(format!("reserve address space for {part}; {advice}"), source)
    }

    /// Builds `Corruption` for byte `offset` of `file`.
    pub fn corruption(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Corruption { file: file.into(), offset, what: what.into() }
    }

    /// Returns whether the error reports damaged bytes on disk.
    pub const fn is_corruption(&self) -> bool {
        matches!(self, Self::Corruption { .. })
    }
}

const DISK_FULL: &str = "no space left on the disk; free some and try again";
const CHANGES_LOST: &str = "is not there (any more); begin again with a feed from the end and a \
                            snapshot, and raise log_retention";
const LOG_FAILED: &str = "the database takes no more writes until it is closed and reopened";
const TABLE_FAILED: &str = "and takes no operations; close and reopen the database";
const OUT_OF_MEMORY: &str = "has free; raise memory_budget or delete data";
const UNORDERED: &str = "which keeps no key order and has no ranges; use scan, or a btree, slm or \
                         tph table";
const NOT_REGISTERED: &str = "which is not registered; register it in the options of the database";
const LOCKED: &str = "is already open";
const OUT_OF_ORDER: &str = "a sorted load takes keys in ascending order, above every key of the \
                            table";
const LOADING: &str = "is being loaded; retry the write after the load";
const OTHER_DATABASE: &str = "belongs to another database; a batch, a snapshot or a transaction is \
                              of one database: use one for each";
const CONFLICT: &str =
    "another commit changed what the transaction depends on; run the transaction again";
const DEADLOCK: &str =
    "deadlock: transactions wait for locks of each other; run this transaction again";
const LOCK_TIMEOUT: &str =
    "the lock was not free within lock_timeout, because another transaction holds it";
const FORKED: &str = "the handle belongs to the parent of this forked process; open the database \
                      in the process that uses it";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path, holder } => write!(f, "{} {LOCKED} {holder}", path.display()),
            Self::NotADatabase { path, what } => {
                write!(f, "{} is not a Quintet database: {what}", path.display())
            }
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::DiskFull { doing } => write!(f, "{doing}: {DISK_FULL}"),
            Self::Corruption { file, offset, what } => {
                write!(f, "{file} is damaged at byte {offset}: {what}")
            }
            Self::NewerFormat { file, found, supported } => write!(
                f,
                "{file} has format version {found}, this release reads up to {supported}; \
                 use a newer release"
            ),
            Self::LogFailed { reason } => {
                write!(f, "an earlier sync of the log failed ({reason}); {LOG_FAILED}")
            }
            Self::TableFailed { table, reason } => {
                write!(f, "table {table} failed ({reason}) {TABLE_FAILED}")
            }
            Self::OutOfMemory { budget, needed } => write!(
                f,
                "the write needs {needed} bytes of memory, more than the budget of {budget} bytes \
                 {OUT_OF_MEMORY}"
            ),
            Self::Limit { what } => f.write_str(what),
            Self::InvalidOption { name, what } => write!(f, "option {name}: {what}"),
            Self::OutOfOrder { key, after } => {
                let (key, after) = (printable(key), printable(after));
                write!(f, "key \"{key}\" is not above \"{after}\": {OUT_OF_ORDER}")
            }
            Self::Loading { table } => write!(f, "table {table} {LOADING}"),
            Self::NoSuchTable { name } => write!(f, "no table named {name:?}"),
            Self::TableExists { name } => write!(f, "{name:?} exists already"),
            Self::SnapshotExpired { reason } => {
                write!(f, "the snapshot has ended: {reason}; take a new one")
            }
            Self::ChangesLost { position, start, end } => {
                write!(f, "position {position}, of a log of {start} to {end}, {CHANGES_LOST}")
            }
            Self::StaleTable { name } => write!(f, "table {name:?} was dropped"),
            Self::OtherDatabase { table } => write!(f, "table {table} {OTHER_DATABASE}"),
            Self::TypeMismatch { table, expected, found } => {
                write!(f, "table {table} has the types {expected}, not {found}")
            }
            Self::Mount { path, what } => write!(f, "mount {path}: {what}"),
            Self::Unordered { table, engine } => {
                write!(f, "table {table} uses the {engine} engine, {UNORDERED}")
            }
            Self::MergeOperatorMissing { table, operator } => {
                write!(f, "table {table} has the merge operator {operator:?}, {NOT_REGISTERED}")
            }
            Self::NotEncodable { value, reason } => {
                write!(f, "a value of the type {value} cannot be stored: {reason}")
            }
            Self::MergeRefused { table, key, operator, reason } => {
                write_key(f, (table, key), &format!("{operator} refuses the operand: {reason}"))
            }
            Self::UnknownEngine { name, available } => {
                write!(f, "this build has no engine named {name:?}; it has: {available}")
            }
            Self::Conflict { table, key } => write_key(f, (table, key), CONFLICT),
            Self::Deadlock { table, key } => write_key(f, (table, key), DEADLOCK),
            Self::LockTimeout { table, key } => write_key(f, (table, key), LOCK_TIMEOUT),
            Self::ReadOnly => f.write_str("the database was opened read-only"),
            Self::Closed => f.write_str("the database is closed"),
            Self::Forked => f.write_str(FORKED),
        }
    }
}

/// Returns the system's message in lower case, without Rust's `(os error 2)`.
pub(crate) fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((message, _)) => message.to_lowercase(),
        None => text,
    }
}

/// Writes a message about a key of a table; about the table if the key is empty.
fn write_key(f: &mut fmt::Formatter<'_>, (table, key): (&str, &[u8]), what: &str) -> fmt::Result {
    if key.is_empty() {
        return write!(f, "table {table}: {what}");
    }
    write!(f, "key \"{}\" of table {table}: {what}", printable(key))
}

/// Formats a key for a message, shortened to [`PRINTED_BYTES_MAX`].
pub(crate) fn printable(key: &[u8]) -> String {
    match key.get(..PRINTED_BYTES_MAX) {
        Some(start) => format!("{}... ({} bytes)", start.escape_ascii(), key.len()),
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
