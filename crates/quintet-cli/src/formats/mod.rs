//! File formats of `import` and `export`.
//!
//! Readers turn a file into rows of key and value, and writers do the reverse. Both hold one row at
//! a time, so memory does not grow with the file.
//!
//! CSV, TSV and JSON lines have two shapes; `mdb_dump` files have pairs only:
//! - **Pairs**: a row is a key and a value, both exact bytes.
//! - **Rows**: a row is a record with named columns. The key is the text of one column. The value
//!   is the whole record as a JSON object with the columns in the order of the file, the key column
//!   included. An export of such values writes the same columns in the same order.
//!
//! Invariants:
//! - A written file reads back to the same keys and values: pairs for all bytes, rows for all UTF-8
//!   text.
//! - A malformed file is an error with its line, never a panic.
//! - A row has at most [`ROW_BYTES_MAX`] bytes, which bounds memory if a quote is never closed.

pub mod delimited;
pub mod dump;
pub mod json_lines;
mod limited;

use std::{fmt, io};

use serde_json::{Map, Value};

pub use limited::{Limited, read_line};

/// Maximum length of a row, in bytes: the largest value in hexadecimal, a key and some margin.
pub const ROW_BYTES_MAX: u64 = 1_100_000_000;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header line (RFC 4180)
    Csv,
    /// Tab-separated values with a header line, quoted as in CSV
    Tsv,
    /// One JSON object per line
    Jsonl,
    /// The text format of LMDB's `mdb_dump` and `mdb_load`
    Dump,
}

impl Format {
    /// Returns the format for the extension of a file name.
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
    /// The line on which it starts, from 1.
    pub line: u64,
}

/// Reads rows.
pub trait ReadRows {
    /// Reads the next row into `row`. Returns false at the end of the file. After an error, the
    /// reader is not usable.
    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError>;
}

/// Writes rows.
pub trait WriteRows {
    /// Writes one row.
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;
    /// Ends the file and flushes it.
    fn finish(&mut self) -> Result<(), WriteError>;
}

/// A reason why reading a file fails.
#[derive(Debug)]
pub enum ReadError {
    /// An I/O error.
    Io(io::Error),
    /// The file is malformed.
    Malformed {
        /// The line, from 1.
        line: u64,
        /// The defect.
        what: String,
    },
}

impl ReadError {
    /// The file is malformed on `line`.
    pub fn at(line: u64, what: impl Into<String>) -> Self {
        Self::Malformed { line, what: what.into() }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A reason why writing a row fails.
#[derive(Debug)]
pub enum WriteError {
    /// An I/O error.
    Io(io::Error),
    /// The format cannot represent the row; the text names the row and the reason.
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
    /// Returns its index in `names`. A name takes precedence over a number.
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

/// Returns the record of a value if the value is a JSON object.
pub fn record(value: &[u8]) -> Option<Map<String, Value>> {
    if value.first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(value).ok()
}

/// Returns the text of a field: a string unchanged, null as the empty text, other values as JSON.
pub fn field_text(field: &Value) -> String {
    match field {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether the entry looks like an imported record: an object with the key in one of its fields.
pub fn is_record_of(key: &[u8], value: &[u8]) -> bool {
    record(value)
        .is_some_and(|object| object.values().any(|field| field_text(field).as_bytes() == key))
}
