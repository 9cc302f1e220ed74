//! Decoded entries: for rare operations that take a node apart.

use super::{
    entry::{ExtentRef, LongKey},
    layout::REFERENCE_BYTES,
    shape::TreeShape,
};
use crate::util::codec::{low_u32, put_u32, to_u64};

/// What an entry stores beside its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A value.
    Inline(Vec<u8>),
    /// A value in an extent.
    Extent(ExtentRef),
    /// A page.
    Child(u32),
}

/// A decoded entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The key, or of a long key at least the bytes that the page is to hold.
    pub key: Vec<u8>,
    /// The reference to the whole key, if it is long.
    pub long: Option<LongKey>,
    /// The value or the child.
    pub payload: Payload,
}

impl Cell {
    /// Returns the key bytes that a page with this prefix holds.
    pub fn suffix(&self, shape: TreeShape, prefix: usize) -> &[u8] {
        let suffix = self.key.get(prefix..).unwrap_or(&[]);
        match self.long {
            None => suffix,
            Some(_) => suffix.get(..shape.key_inline_max()).unwrap_or(suffix),
        }
    }

    /// Returns the size of the entry in a page with this prefix, without its slot.
    pub fn entry_bytes(&self, shape: TreeShape, prefix: usize) -> usize {
        let payload = match &self.payload {
            Payload::Inline(value) => value.len(),
            Payload::Extent(_) => REFERENCE_BYTES,
            Payload::Child(_) => 0,
        };
        let long = if self.long.is_some() { REFERENCE_BYTES } else { 0 };
        4 + self.suffix(shape, prefix).len() + long + payload
    }

    /// Appends the entry as a page with this prefix stores it.
    pub fn encode(&self, shape: TreeShape, prefix: usize, out: &mut Vec<u8>) {
        let word = match &self.payload {
            Payload::Inline(value) => low_u32(to_u64(value.len())),
            Payload::Extent(extent) => extent.word(),
            Payload::Child(page) => *page,
        };
        put_u32(out, word);
        out.extend_from_slice(self.suffix(shape, prefix));
        if let Some(long) = self.long {
            put_u32(out, long.length);
            put_u32(out, long.page);
        }
        match &self.payload {
            Payload::Inline(value) => out.extend_from_slice(value),
            Payload::Extent(extent) => {
                put_u32(out, extent.page);
                put_u32(out, extent.checksum);
            }
            Payload::Child(_) => {}
        }
    }
}
