//! The file formats of `import` and `export`.
//!
//! What: readers that turn a file into (key, value) rows and writers that do the reverse, one row
//! at a time, so that memory does not grow with the file.
//!
//! Two shapes, in CSV, TSV and JSON lines alike:
//! - **Pairs**: a row is a key and a value, both exact bytes.
//! - **Rows**: a row is a record with named columns. Its key is the text of one column; its value
//!   is the whole record (key column included) as a JSON object with the columns in the file's
//!   order, so that each value explains itself and an export gives back the same columns in the
//!   same order.
//!
//! `mdb_dump` files hold pairs only.
//!
//! Invariants: reading what was written gives the same keys and values (pairs: for all bytes;
//! rows: for all UTF-8 text); a malformed file is an error with its line, never a panic; one row
//! is at most [`ROW_BYTES_MAX`] long, so a quote that is never closed does not swallow memory.

pub mod delimited;
pub mod dump;
pub mod json_lines;
mod limited;

use std::{fmt, io};

use serde_json::{Map, Value};

pub use limited::{Limited, read_line};

/// The longest row that is read, in bytes: the largest value in hexadecimal, a key, and some.
pub const ROW_BYTES_MAX: u64 = 1_100_000_000;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header line (RFC 4180)
    Csv,
    /// Tab-separated values with a header line, quoted as CSV is
    Tsv,
    /// One JSON object a line
    Jsonl,
    /// The text format of LMDB's `mdb_dump` and `mdb_load`
    Dump,
}

impl Format {
    /// The format that a file name suggests.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "dump" | "mdb" | "lmdb" => Some(Self::Dump),
            _ => None,
        }
    }
}

/// One row of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The line that it starts on, from 1.
    pub line: u64,
}

/// Reads rows.
pub trait ReadRows {
    /// Reads the next row into `row`; false at the end. After an error, nothing more can be read.
    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError>;
}

/// Writes rows.
pub trait WriteRows {
    /// Writes one row.
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;
    /// Ends the file and flushes it.
    fn finish(&mut self) -> Result<(), WriteError>;
}

/// Why a file cannot be read on.
#[derive(Debug)]
pub enum ReadError {
    /// The system refused.
    Io(io::Error),
    /// The file is not what it should be.
    Malformed {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
}

impl ReadError {
    /// Something is wrong on `line`.
    pub fn at(line: u64, what: impl Into<String>) -> Self {
        Self::Malformed { line, what: what.into() }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a row cannot be written.
#[derive(Debug)]
pub enum WriteError {
    /// The system refused.
    Io(io::Error),
    /// The row does not fit the format; the text says which and why.
    Unfit(String),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A column: by its name in the header, or by its number from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column(pub String);

impl Column {
    /// Its index among `names`. A name wins over a number.
    pub fn find(&self, names: &[String]) -> Option<usize> {
        names.iter().position(|name| *name == self.0).or_else(|| {
            let number: usize = self.0.parse().ok()?;
            number.checked_sub(1).filter(|index| *index < names.len())
        })
    }
}

impl From<&str> for Column {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The record that a value holds, where it is one: a JSON object.
pub fn record(value: &[u8]) -> Option<Map<String, Value>> {
    if value.first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(value).ok()
}

/// The text of one field: strings as they are, null as nothing, anything else as JSON.
pub fn field_text(field: &Value) -> String {
    match field {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether the entry looks like an imported record: an object one of whose fields is the key.
pub fn is_record_of(key: &[u8], value: &[u8]) -> bool {
    record(value)
        .is_some_and(|object| object.values().any(|field| field_text(field).as_bytes() == key))
}
