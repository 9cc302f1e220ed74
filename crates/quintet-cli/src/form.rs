//! Converts the keys and values of a table to text and back.
//!
//! `put t 7 0.5` on a table of numbers must write numbers, and `scan` must print them. The types
//! are those of the table; for a table without types, the user may give them. Numbers and composite
//! keys are converted; strings and blobs are not.
//!
//! Invariant: [`Form::key`] reads what [`Form::show_key`] prints.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

use clap::Args;
use quintet::{Error, Table, TableOptions, TableTypes, TypeTag};
use serde_json::{Map, Value};

use crate::{
    bytes::{escape, hex, parse_hex, put_json, quote},
    failure::{Failure, Outcome},
};

/// The types of keys and values on the command line.
#[derive(Clone, Debug, Default, Args)]
pub struct Typing {
    /// Type of the keys: u32, u64, i64, f32, f64, string, blob, or up to four of them, separated by
    /// commas
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = parse_type)]
    pub key_type: Option<Vec<TypeTag>>,
    /// Type of the values: u32, u64, i64, f32, f64, string or blob
    #[arg(long, value_name = "TYPE", value_parser = parse_type)]
    pub value_type: Option<TypeTag>,
}

/// Parses the name of a type.
pub fn parse_type(text: &str) -> Result<TypeTag, String> {
    text.parse::<TypeTag>().map_err(|error| match error {
        Error::InvalidOption { what, .. } => what,
        other => other.to_string(),
    })
}

impl Typing {
    /// Returns the types if the user gave any. A type that was not given is blob.
    pub fn types(&self) -> Outcome<Option<TableTypes>> {
        if self.key_type.is_none() && self.value_type.is_none() {
            return Ok(None);
        }
        let key = self.key_type.clone().unwrap_or_else(|| vec![TypeTag::Blob]);
        let value = self.value_type.unwrap_or(TypeTag::Blob);
        Ok(Some(TableTypes::new(key, value)?))
    }

    /// Adds the types to the options of a new table.
    pub fn apply(&self, options: TableOptions) -> Outcome<TableOptions> {
        Ok(match self.types()? {
            Some(types) => options.types(types),
            None => options,
        })
    }
}

/// The text form of the keys and values of one table.
#[derive(Clone, Debug)]
pub struct Form {
    types: TableTypes,
    is_hex: bool,
}

impl Form {
    /// Returns the form for `table`. Fails if the user gives types that differ from those of the
    /// table. With `is_hex`, keys and values are bytes in hexadecimal.
    pub fn of(table: &Table, given: &Typing, is_hex: bool) -> Outcome<Self> {
        let given = given.types()?;
        let types = match (table.types(), given) {
            (Some(types), Some(given)) if types != given => {
                return Err(Error::TypeMismatch {
                    table: table.name(),
                    expected: types.to_string(),
                    found: given.to_string(),
                }
                .into());
            }
            (Some(types), _) | (None, Some(types)) => types,
            (None, None) => TableTypes::bytes(),
        };
        Ok(Self { types, is_hex })
    }

    /// Whether keys are strings or blobs, which need no conversion.
    fn has_plain_keys(&self) -> bool {
        matches!(self.types.key(), [TypeTag::String | TypeTag::Blob])
    }

    fn has_plain_values(&self) -> bool {
        matches!(self.types.value(), TypeTag::String | TypeTag::Blob)
    }

    /// Returns the bytes of a key from its text.
    pub fn key(&self, text: &[u8]) -> Outcome<Vec<u8>> {
        if self.is_hex {
            return from_hex(text);
        }
        if self.has_plain_keys() {
            return Ok(text.to_vec());
        }
        self.types.key_from_text(&utf8(text)?).map_err(|error| mistyped("key", error))
    }

    /// Returns the bytes of a value from its text.
    pub fn value(&self, text: &[u8]) -> Outcome<Vec<u8>> {
        if self.is_hex {
            return from_hex(text);
        }
        if self.has_plain_values() {
            return Ok(text.to_vec());
        }
        self.types.value_from_text(&utf8(text)?).map_err(|error| mistyped("value", error))
    }

    /// As [`Form::key`], for an argument.
    pub fn key_argument(&self, text: &OsStr) -> Outcome<Vec<u8>> {
        self.key(text.as_bytes())
    }

    /// As [`Form::key`], for an optional argument.
    pub fn some_key(&self, text: Option<&OsString>) -> Outcome<Option<Vec<u8>>> {
        text.map(|text| self.key(text.as_bytes())).transpose()
    }

    /// Returns the common first bytes of all keys that start with `text`. Fails for keys of
    /// numbers.
    pub fn prefix(&self, text: Option<&OsString>) -> Outcome<Option<Vec<u8>>> {
        if text.is_some() && !self.is_hex && !self.has_plain_keys() {
            let what = format!("keys of {} have no prefix in text", self.types.key_names());
            return Err(Failure::Usage(format!("{what}; use --hex, or --from and --to")));
        }
        self.some_key(text)
    }

    /// Returns the text of a key before escaping, or `None` if the bytes are the text.
    fn key_text(&self, key: &[u8]) -> Option<String> {
        if self.is_hex || self.has_plain_keys() { None } else { self.types.key_to_text(key) }
    }

    fn value_text(&self, value: &[u8]) -> Option<String> {
        if self.is_hex || self.has_plain_values() { None } else { self.types.value_to_text(value) }
    }

    /// Formats a key on one line.
    pub fn show_key(&self, key: &[u8]) -> String {
        if self.is_hex { hex(key) } else { self.key_text(key).unwrap_or_else(|| escape(key)) }
    }

    /// Formats a value on one line.
    pub fn show_value(&self, value: &[u8]) -> String {
        if self.is_hex {
            hex(value)
        } else {
            self.value_text(value).unwrap_or_else(|| escape(value))
        }
    }

    /// Formats a key for a message: strings and blobs in quotes.
    pub fn quote_key(&self, key: &[u8]) -> String {
        self.key_text(key).unwrap_or_else(|| quote(key))
    }

    /// Formats a value for an answer: strings and blobs in quotes.
    pub fn quote_value(&self, value: &[u8]) -> String {
        self.value_text(value).unwrap_or_else(|| quote(value))
    }

    /// Formats a key for a file; [`Form::key`] reverses it.
    pub fn file_key<'a>(&self, key: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        self.key_text(key).map_or(key.into(), |text| text.into_bytes().into())
    }

    /// Formats a value for a file; [`Form::value`] reverses it.
    pub fn file_value<'a>(&self, value: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        self.value_text(value).map_or(value.into(), |text| text.into_bytes().into())
    }

    /// Formats an entry as a JSON object: numbers as numbers, composite keys as arrays.
    pub fn json(&self, key: &[u8], value: Option<&[u8]>) -> Value {
        let mut object = Map::new();
        put(&mut object, "key", key, self.key_text(key));
        if let Some(value) = value {
            put(&mut object, "value", value, self.value_text(value));
        }
        Value::Object(object)
    }
}

fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8], text: Option<String>) {
    match text {
        // JSON has no NaN and no infinities: they are strings.
        Some(text) => {
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            object.insert(name.to_owned(), value);
        }
        None => put_json(object, name, bytes),
    }
}

/// Converts the error of a text that is no key or no value of the table's types.
fn mistyped(role: &str, error: Error) -> Failure {
    match error {
        Error::InvalidOption { what, .. } => Failure::Usage(format!("{role}: {what}")),
        other => other.into(),
    }
}

fn from_hex(text: &[u8]) -> Outcome<Vec<u8>> {
    parse_hex(text).ok_or_else(|| {
        Failure::Usage(format!("{} is not pairs of hexadecimal digits", quote(text)))
    })
}

fn utf8(text: &[u8]) -> Outcome<String> {
    String::from_utf8(text.to_vec())
        .map_err(|_| Failure::Usage(format!("{} is not text", quote(text))))
}
