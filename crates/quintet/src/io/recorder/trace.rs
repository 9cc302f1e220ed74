//! The events of a trace.

use std::path::PathBuf;

use crate::io::Open;
#[cfg(doc)]
use crate::io::{Dir, Env, File};

/// A recorded change. Numbers name directories, files, mappings and locks; they are assigned in the
/// order of opening and never reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// [`Env::open_dir`] gave `dir`.
    OpenRoot {
        /// The new number.
        dir: u64,
        /// The path asked for.
        path: PathBuf,
    },
    /// [`Dir::open_dir`] gave `dir`.
    OpenDir {
        /// The new number.
        dir: u64,
        /// The directory above.
        parent: u64,
        /// Its name there.
        name: String,
        /// Whether a missing directory is created.
        create: bool,
    },
    /// [`Dir::open`] gave `file`.
    Open {
        /// The new number.
        file: u64,
        /// The directory.
        dir: u64,
        /// The name.
        name: String,
        /// How it was opened.
        how: Open,
    },
    /// The last handle of `file` was dropped.
    Close {
        /// The file.
        file: u64,
    },
    /// [`Dir::rename`].
    Rename {
        /// The directory.
        dir: u64,
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// [`Dir::remove`].
    Remove {
        /// The directory.
        dir: u64,
        /// The name.
        name: String,
    },
    /// [`Dir::remove_dir`].
    RemoveDir {
        /// The directory above.
        dir: u64,
        /// The name.
        name: String,
    },
    /// [`Dir::sync`].
    SyncDir {
        /// The directory.
        dir: u64,
    },
    /// [`Dir::lock`] gave `lock`.
    Lock {
        /// The new number.
        lock: u64,
        /// The directory.
        dir: u64,
        /// The name.
        name: String,
        /// Whether it excludes all other holders.
        exclusive: bool,
    },
    /// The lock's guard was dropped.
    Unlock {
        /// The lock.
        lock: u64,
    },
    /// [`File::write_at`]: the bytes that went, which may be fewer than were given.
    Write {
        /// The file.
        file: u64,
        /// Byte offset in the file.
        offset: u64,
        /// The bytes written.
        bytes: Vec<u8>,
    },
    /// [`File::set_len`].
    SetLen {
        /// The file.
        file: u64,
        /// The new size in bytes.
        size: u64,
    },
    /// [`File::allocate`].
    Allocate {
        /// The file.
        file: u64,
        /// How many bytes from the start have their space.
        size: u64,
    },
    /// [`File::punch_hole`].
    PunchHole {
        /// The file.
        file: u64,
        /// Where the hole starts, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        length: u64,
    },
    /// [`File::sync_data`].
    SyncData {
        /// The file.
        file: u64,
    },
    /// [`File::sync_all`].
    SyncAll {
        /// The file.
        file: u64,
    },
    /// [`File::map`] gave `mapping`.
    Map {
        /// The new number.
        mapping: u64,
        /// The file.
        file: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// Stores into a mapping since the event before: one run of changed words.
    Store {
        /// The mapping.
        mapping: u64,
        /// Index of the first changed word.
        first: u64,
        /// The new words.
        words: Vec<u64>,
    },
    /// The last handle of `mapping` outside the recorder was dropped.
    Unmap {
        /// The mapping.
        mapping: u64,
    },
    /// [`RecordEnv::mark`]: whatever the test wants to find again.
    Mark {
        /// The test's own number.
        value: u64,
    },
}

impl TraceEvent {
    /// Whether a crash after this event may leave a different disk than a crash before it.
    /// (Opening, closing, mapping, unlocking and marks do not change the disk.)
    pub const fn changes_disk(&self) -> bool {
        match self {
            Self::Open { how, .. } => how.create_new,
            Self::OpenDir { create, .. } => *create,
            Self::Close { .. }
            | Self::Map { .. }
            | Self::Unmap { .. }
            | Self::Unlock { .. }
            | Self::Mark { .. } => false,
            _ => true,
        }
    }
}
