//! Types of keys and values: their tags, their bytes, and their text.
//!
//! [`TableTypes`] has the types of a table. The catalog stores them, and every write is checked
//! against them. [`keys`] encodes keys so that their bytes have the order of their values, and
//! [`values`] encodes values. [`text`] converts both for tools. Programs and the command line use
//! the same bytes.
//!
//! Source: ckvs has stores with typed keys and values (its README, "Supported types"). There a key
//! is a single value. Here every engine has types, every write is checked, and a key may be
//! composite.

mod keys;
#[cfg(any(feature = "json", feature = "postcard"))]
mod serde_values;
mod tag;
mod text;
mod values;

use std::fmt;

pub use keys::{KeyPart, KeyPrefix, KeyRef, TypedKey};
#[cfg(feature = "json")]
pub use serde_values::Json;
#[cfg(feature = "postcard")]
pub use serde_values::Postcard;
pub use tag::TypeTag;
pub use values::{TypedValue, ValueRef};

use crate::{Error, Result};

/// Maximum number of parts of a composite key.
pub const KEY_PARTS_MAX: usize = 4;

/// The types of a table's keys and values. They are fixed when the table is created, and every
/// write is checked against them.
///
/// A key is one value, or up to [`KEY_PARTS_MAX`] of them in order of weight. Prints as
/// `string,u64 -> blob`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableTypes {
    key: Vec<TypeTag>,
    value: TypeTag,
}

impl TableTypes {
    /// Returns the types of a key (in order) and of a value.
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

    /// Returns the types of a program's key and value types.
    pub fn of<K: TypedKey, V: TypedValue>() -> Self {
        Self { key: K::TAGS.to_vec(), value: V::TAG }
    }

    /// Returns the types of an untyped table: any bytes.
    pub fn bytes() -> Self {
        Self { key: vec![TypeTag::Blob], value: TypeTag::Blob }
    }

    /// Returns the types of the key's parts.
    pub fn key(&self) -> &[TypeTag] {
        &self.key
    }

    /// Returns the type of the value.
    pub fn value(&self) -> TypeTag {
        self.value
    }

    /// Returns the key types by name: `string,u64`.
    pub fn key_names(&self) -> String {
        self.key.iter().map(|tag| tag.name()).collect::<Vec<_>>().join(",")
    }

    /// Returns whether `bytes` are a key of these types.
    pub fn is_key(&self, bytes: &[u8]) -> bool {
        keys::is_valid(&self.key, bytes)
    }

    /// Returns whether `bytes` are a value of this type.
    pub fn is_value(&self, bytes: &[u8]) -> bool {
        values::is_valid(self.value, bytes)
    }

    /// Parses a key: a number or text as it is, a blob as hexadecimal digits, a composite key as a
    /// JSON array. Returns its bytes.
    ///
    /// Fails with [`Error::InvalidOption`] if the text does not parse.
    pub fn key_from_text(&self, text: &str) -> Result<Vec<u8>> {
        text::key_from(&self.key, text)
    }

    /// Returns the text of a key, which [`TableTypes::key_from_text`] parses. `None` if `bytes` are
    /// no key of these types.
    pub fn key_to_text(&self, bytes: &[u8]) -> Option<String> {
        text::key_to(&self.key, bytes)
    }

    /// Parses a value (a blob as hexadecimal digits). Returns its bytes.
    ///
    /// Fails with [`Error::InvalidOption`] if the text does not parse.
    pub fn value_from_text(&self, text: &str) -> Result<Vec<u8>> {
        text::value_from(self.value, text)
    }

    /// Returns the text of a value, which [`TableTypes::value_from_text`] parses. `None` if `bytes`
    /// are no value of this type.
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
    fn keys_and_values_are_checked_and_converted() {
        let types = TableTypes::new([TypeTag::String, TypeTag::U64], TypeTag::I64).unwrap();
        assert_eq!(types.key_names(), "string,u64");
        let value = types.value_from_text("-5").unwrap();
        assert!(types.is_value(&value) && !types.is_value(b"short"));
        assert_eq!(types.value_to_text(&value).as_deref(), Some("-5"));
        assert_eq!(types.value_to_text(b"short"), None);
        assert!(types.value_from_text("five").is_err());
        let key = types.key_from_text("[\"a\", 7]").unwrap();
        assert!(types.is_key(&key));
        assert_eq!(types.key_to_text(&key).as_deref(), Some("[\"a\",7]"));
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
