//! Types of keys and values: what they are, their bytes, and their text.
//!
//! What: the type tags of the store, the types of a table ([`TableTypes`]), the encodings of keys
//! that keep their order ([`keys`]) and of values ([`values`]), both as Rust types and as text
//! for tools ([`text`]).
//! Why here: a table's types are kept in the catalog and checked on every write, and programs and
//! the command line read the same bytes.
//!
//! From: ckvs, whose stores have typed keys and values (its README, "Supported types"). Ours
//! belong to every engine, are checked on every write and may be composite; its keys are single
//! values.

mod keys;
mod text;
mod values;

use std::fmt;

pub use keys::{KeyPart, KeyPrefix, KeyRef, TypedKey};
pub use values::{TypedValue, ValueRef};

use crate::{Error, Result};

/// What the user says a key or a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TypeTag {
    /// An unsigned 32-bit integer.
    U32,
    /// An unsigned 64-bit integer.
    U64,
    /// A signed 64-bit integer.
    I64,
    /// A 32-bit float.
    F32,
    /// A 64-bit float.
    F64,
    /// UTF-8 text.
    String,
    /// Any bytes.
    Blob,
}

impl TypeTag {
    /// Every tag with its byte on disk and its name.
    pub(crate) const ALL: [(Self, u8, &'static str); 7] = [
        (Self::U32, 1, "u32"),
        (Self::U64, 2, "u64"),
        (Self::I64, 3, "i64"),
        (Self::F32, 4, "f32"),
        (Self::F64, 5, "f64"),
        (Self::String, 6, "string"),
        (Self::Blob, 7, "blob"),
    ];

    pub(crate) fn to_byte(self) -> u8 {
        Self::ALL.iter().find(|(tag, ..)| *tag == self).map_or(0, |(_, byte, _)| *byte)
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, other, _)| *other == byte).map(|(tag, ..)| *tag)
    }

    /// The name: `u64`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(tag, ..)| *tag == self).map_or("", |(.., name)| name)
    }
}

impl fmt::Display for TypeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for TypeTag {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().find(|(.., name)| *name == text).map(|(tag, ..)| *tag).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(.., name)| *name).collect();
            Error::InvalidOption {
                name: "type".to_owned(),
                what: format!("{text:?} is not one of: {}", names.join(", ")),
            }
        })
    }
}

/// How many values a composite key has at most.
pub const KEY_PARTS_MAX: usize = 4;

/// The types of a table's keys and values: fixed when the table is made, checked on every write.
///
/// A key is one value, or up to [`KEY_PARTS_MAX`] of them in order of weight. Prints as
/// `string,u64 -> blob`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableTypes {
    key: Vec<TypeTag>,
    value: TypeTag,
}

impl TableTypes {
    /// A key of these types in this order, and a value of this type.
    ///
    /// Fails with [`Error::InvalidOption`] for no part or more than [`KEY_PARTS_MAX`].
    pub fn new(key: impl Into<Vec<TypeTag>>, value: TypeTag) -> Result<Self> {
        let key = key.into();
        if (1..=KEY_PARTS_MAX).contains(&key.len()) {
            return Ok(Self { key, value });
        }
        Err(Error::InvalidOption {
            name: "key type".to_owned(),
            what: format!("a key has 1 to {KEY_PARTS_MAX} parts, not {}", key.len()),
        })
    }

    /// The types that a program's own types stand for.
    pub fn of<K: TypedKey, V: TypedValue>() -> Self {
        Self { key: K::TAGS.to_vec(), value: V::TAG }
    }

    /// What an untyped table holds: any bytes.
    pub fn bytes() -> Self {
        Self { key: vec![TypeTag::Blob], value: TypeTag::Blob }
    }

    /// The parts of a key.
    pub fn key(&self) -> &[TypeTag] {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> TypeTag {
        self.value
    }

    /// The key types by name: `string,u64`.
    pub fn key_names(&self) -> String {
        self.key.iter().map(|tag| tag.name()).collect::<Vec<_>>().join(",")
    }

    /// Whether these bytes are a key of this type.
    pub fn is_key(&self, bytes: &[u8]) -> bool {
        keys::is_valid(&self.key, bytes)
    }

    /// Whether these bytes are a value of this type.
    pub fn is_value(&self, bytes: &[u8]) -> bool {
        values::is_valid(self.value, bytes)
    }

    /// The bytes of a key that is written as text: a number or text as it is (a blob as
    /// hexadecimal digits); a composite key as a JSON array.
    ///
    /// Fails with [`Error::InvalidOption`].
    pub fn key_from_text(&self, text: &str) -> Result<Vec<u8>> {
        text::key_from(&self.key, text)
    }

    /// The text of a key: reverses [`TableTypes::key_from_text`]. `None`: the bytes are not a key
    /// of this type.
    pub fn key_to_text(&self, bytes: &[u8]) -> Option<String> {
        text::key_to(&self.key, bytes)
    }

    /// The bytes of a value that is written as text (a blob as hexadecimal digits).
    ///
    /// Fails with [`Error::InvalidOption`].
    pub fn value_from_text(&self, text: &str) -> Result<Vec<u8>> {
        text::value_from(self.value, text)
    }

    /// The text of a value: reverses [`TableTypes::value_from_text`]. `None`: the bytes are not a
    /// value of this type.
    pub fn value_to_text(&self, bytes: &[u8]) -> Option<String> {
        text::value_to(self.value, bytes)
    }
}

impl fmt::Display for TableTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.key_names(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_to_four_parts() {
        assert!(TableTypes::new([], TypeTag::Blob).is_err());
        assert!(TableTypes::new([TypeTag::U32; KEY_PARTS_MAX], TypeTag::Blob).is_ok());
        assert!(TableTypes::new([TypeTag::U32; KEY_PARTS_MAX + 1], TypeTag::Blob).is_err());
    }

    #[test]
    fn types_print_as_they_are_written() {
        let types = TableTypes::of::<(String, u64), Vec<u8>>();
        assert_eq!(types.to_string(), "string,u64 -> blob");
        for (tag, _, name) in TypeTag::ALL {
            assert_eq!(name.parse::<TypeTag>().unwrap(), tag);
            assert_eq!(TypeTag::from_byte(tag.to_byte()), Some(tag));
        }
        assert!("u16".parse::<TypeTag>().is_err());
    }
}
