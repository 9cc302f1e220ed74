//! Values and entries that are to be put.

use crate::bptree::{
    node::{ExtentRef, Payload, StoredValue},
    tree::{CountChange, signed},
};

/// A value to be put: in two pieces, or already in an extent.
#[derive(Clone, Copy, Debug)]
pub(in crate::bptree) enum NewValue<'v> {
    Inline([&'v [u8]; 2]),
    Extent(ExtentRef),
}

impl NewValue<'_> {
    pub(in crate::bptree) fn length(&self) -> usize {
        match self {
            Self::Inline([head, body]) => head.len() + body.len(),
            Self::Extent(extent) => StoredValue::Extent(*extent).length(),
        }
    }

    /// Whether the value is inline and has this length.
    pub(super) fn is_inline(&self, length: usize) -> bool {
        matches!(self, Self::Inline(_)) && self.length() == length
    }

    pub(in crate::bptree) fn payload(&self) -> Payload {
        match self {
            Self::Inline(pieces) => Payload::Inline(pieces.concat()),
            Self::Extent(extent) => Payload::Extent(*extent),
        }
    }
}

/// Returns what a new entry adds to the counts.
pub(in crate::bptree) fn added(key: &[u8], stored: &NewValue<'_>) -> CountChange {
    CountChange { keys: 1, bytes: signed(key.len() + stored.length()) }
}

/// An encoded entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry<'e> {
    /// The key bytes that the node holds, after the prefix.
    pub(super) suffix: &'e [u8],
    /// Whether the key is long.
    pub(super) long: bool,
    /// The entry.
    pub(super) pieces: [&'e [u8]; 4],
}

impl RawEntry<'_> {
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}
