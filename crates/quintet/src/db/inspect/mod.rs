//! Decoders of the database's own bytes, for tools and fuzzing. They return the content, or where
//! it is damaged.
//!
//! Nothing here needs an open database or writes anything.

mod file;

use std::fmt::Write as _;

pub use self::file::{Sink, file};

use super::catalog;
use crate::{
    Error, Result,
    contract::Op,
    db::encoding::{envelope::Envelope, operations::Ops},
};

/// The changes in a catalog's bytes, each with the offset of its edit.
pub fn catalog(bytes: &[u8]) -> Result<Vec<(u64, String)>> {
    catalog::describe(bytes)
}

/// The operations in a log record's body, one line each.
pub fn record_body(body: &[u8]) -> Result<Vec<String>> {
    let damage = || Error::corruption("record body", 0, "its operations do not parse");
    Ops::new(body)
        .map(|item| {
            let (table, op) = item.ok_or_else(damage)?;
            Ok(match op {
                Op::Put { key, body, .. } => {
                    let value = stored_value(body)?;
                    format!("table {table} put \"{}\" {value}", key.escape_ascii())
                }
                Op::Delete { key } => format!("table {table} delete \"{}\"", key.escape_ascii()),
                Op::DeleteRange { start, end } => format!(
                    "table {table} delete-range \"{}\" to \"{}\"",
                    start.escape_ascii(),
                    end.escape_ascii()
                ),
            })
        })
        .collect()
}

/// A stored value: its length, expiry and type.
pub fn stored_value(stored: &[u8]) -> Result<String> {
    let damage = || Error::corruption("stored value", 0, "it has no envelope");
    let (envelope, start) = Envelope::decode(stored).ok_or_else(damage)?;
    let mut line = format!("value of {} bytes", stored.len() - start);
    if let Some(expires_at) = envelope.expires_at {
        let _ = write!(line, ", expires at {expires_at} ms");
    }
    if let Some(tag) = envelope.type_tag {
        let _ = write!(line, ", type {tag}");
    }
    Ok(line)
}
