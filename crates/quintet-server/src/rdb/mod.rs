//! Redis's dump format (RDB): values and whole files, read up to version 12. They are written as
//! version 10, and as version 12 if fields of hashes expire.
//!
//! `DUMP`, `RESTORE`, `quintet import --rdb`, `quintet export --rdb` and replication share it. The
//! module knows bytes and no tables: a reader hands each element of a value to a [`Sink`], and a
//! writer receives lengths and strings. Start reading at `value.rs` (values) and `file.rs` (files).
//!
//! A file: `REDIS` and four digits of the version; records; `0xff`; the checksum of all bytes
//! before it (8 bytes, little-endian; 0 if Redis wrote none). A record is an opcode of `file.rs`,
//! or a type (1 byte), a key and a value. A payload of `DUMP`: type, value, version (2 bytes,
//! little-endian), checksum.
//!
//! Invariants:
//! - A declared length allocates nothing. Buffers grow by [`input::STEP_BYTES`] as bytes arrive.
//! - Each malformed input is `Failure::Malformed` with the offset of the byte behind it.
//! - A collection is never held whole, except those that Redis itself keeps in one string.

mod crc64;
mod failure;
mod file;
mod input;
mod item;
mod output;
mod packed;
mod payload;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use failure::{Failure, Parsed, VERSION_MAX, VERSION_WRITTEN};
pub(crate) use file::{FileSink, FileWriter, Summary, read_file};
pub(crate) use item::{Item, ItemId, Sink, value_type};
pub(crate) use output::Output;
pub(crate) use packed::{LISTPACK_BYTES_MAX, ListpackWriter};
pub(crate) use payload::{Payload, finish_payload};
