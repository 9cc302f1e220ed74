//! The type of a key part or a value.

use std::fmt;

use crate::{Error, Result};

/// Type of a key part or a value.
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

    /// Returns the name: `u64`.
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
                what: format!("{text:?} is not a type; the types are: {}", names.join(", ")),
            }
        })
    }
}
