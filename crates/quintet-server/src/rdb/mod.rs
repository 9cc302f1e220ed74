//! Redis's dump format (RDB): values and whole files, read up to version 12 and written as
//! version 10.
//!
//! `DUMP`, `RESTORE`, `quintet import --rdb`, `quintet export --rdb` and replication share it. The
//! module knows bytes and no tables: a reader hands each element of a value to a [`Sink`], and a
//! writer receives lengths and strings. Start reading at `value.rs` (values) and `file.rs` (files).
//!
//! A file: `REDIS` and four digits of the version; records; `0xff`; the checksum of all bytes before
//! it (8 bytes, little-endian; 0 if Redis wrote none). A record is an opcode of `file.rs`, or a
//! type (1 byte), a key and a value. A payload of `DUMP`: type, value, version (2 bytes,
//! little-endian), checksum.
//!
//! Invariants:
//! - A declared length allocates nothing. Buffers grow by [`input::STEP_BYTES`] as bytes arrive.
//! - Each malformed input is [`Failure::Malformed`] with the offset of the byte behind it.
//! - A collection is never held whole, except those that Redis itself keeps in one string.

mod crc64;
mod file;
mod input;
mod lzf;
mod output;
mod packed;
mod payload;
mod stream;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use file::{FileSink, FileWriter, Summary, read_file};
pub(crate) use output::Output;
pub(crate) use packed::{LISTPACK_BYTES_MAX, ListpackWriter};
pub(crate) use payload::{Payload, finish_payload};
pub(crate) use value::{Item, ItemId, Sink, value_type};

use crate::failure::Fail;

/// Newest version of the format that is read: Redis 7.4.
pub(crate) const VERSION_MAX: u32 = 12;
/// Version that is written: Redis 7.0.
pub(crate) const VERSION_WRITTEN: u16 = 10;

/// Why a dump cannot be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The bytes break the format.
    Malformed {
        /// Number of bytes that were read before the error was found.
        offset: u64,
        /// What is wrong.
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
    fn at(self, offset: u64) -> Self {
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
