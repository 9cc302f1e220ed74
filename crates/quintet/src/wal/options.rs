//! What the log is opened with, and its statistics.

use crate::util::codec::Lsn;

/// The smallest segment, in bytes. Smaller sizes are raised to it.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// Options of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a segment file in bytes, rounded up to whole blocks. A record that does not fit
    /// gets a larger segment.
    pub segment_bytes: u64,
    /// Opens the log for reading: recovery replays, but writes and removes nothing. `begin` fails
    /// with [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub read_only: bool,
    /// Bytes of log that stay for readers although no table needs them.
    pub retention: u64,
}

/// What the catalog knows about the log when the database is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchor {
    /// Identity of the database.
    pub database_id: [u8; 16],
    /// Start of replay: no table needs a record below it. Segments from here on must exist.
    pub start: Lsn,
    /// The log was durable below this LSN: an invalid record below it is damage, not a torn tail.
    pub durable: Lsn,
    /// The database is being created: segments that exist are left over from an earlier attempt.
    pub created: bool,
    /// Number of the catalog's newest edit, as passed to
    /// [`Log::record_catalog_edit`](super::Log::record_catalog_edit). If the log has recorded a
    /// later edit, the catalog is an older copy.
    pub catalog: u64,
}

/// Statistics of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// First LSN that is still in a file.
    pub start: Lsn,
    /// LSN past the last record.
    pub end: Lsn,
    /// Every record below this LSN is durable.
    pub durable: Lsn,
    /// Bytes in log files, the prepared and the recycled ones included.
    pub file_bytes: u64,
    /// Of these, bytes in files that no table needs and that stay for change feeds.
    pub retained_bytes: u64,
    /// Completed syncs since open.
    pub syncs_total: u64,
    /// Commits that asked for a sync since open.
    pub synced_commits_total: u64,
    /// Bytes appended since open.
    pub appended_bytes_total: u64,
}
