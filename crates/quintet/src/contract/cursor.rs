//! Cursors: positions in a scan.
//!
//! A cursor is opaque bytes of the engine. The engines that scan in key order use the same bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | `k` |
//! | rest | the next key to return |

use crate::{Error, Result};

/// First byte of the cursor of a scan in key order.
const KEY_TAG: u8 = b'k';

/// A position in a scan: opaque bytes of the engine. Empty at the start and again at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

impl Cursor {
    /// The position before the first entry, and the one after the last.
    pub const START: Self = Self(Vec::new());

    /// Returns whether this is the start (or, if a scan returned it, the end).
    pub fn is_start(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the cursor of a scan in key order that continues at `key`.
    pub(crate) fn at_key(key: &[u8]) -> Self {
        Self([&[KEY_TAG], key].concat())
    }

    /// Returns the cursor of a scan in key order that continues at the first key above `key`.
    pub(crate) fn after_key(key: &[u8]) -> Self {
        Self([&[KEY_TAG], key, &[0]].concat())
    }

    /// Returns the key at which a scan in key order continues: empty at the start. Fails if no such
    /// scan returned the cursor.
    pub(crate) fn key(&self) -> Result<&[u8]> {
        match self.0.split_first() {
            None => Ok(&[]),
            Some((&KEY_TAG, key)) => Ok(key),
            Some(_) => Err(Self::unknown()),
        }
    }

    /// Returns the error for a cursor that the engine cannot decode.
    pub(crate) fn unknown() -> Error {
        Error::Limit { what: "the cursor is not one that a scan returned".to_owned() }
    }
}
