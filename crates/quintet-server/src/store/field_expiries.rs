//! Expiries of the fields of a hash, as its head has them.
//!
//! A hash whose fields do not expire has none of this and costs nothing. Another one has a second
//! collection with a version of its own, which begins in the head and moves to the ordered table
//! as all collections do. `unit/field_expiry_index.rs` has its content.
//!
//! Layout in the head: the earliest expiry (8 bytes, little-endian), 1 if the collection is in the
//! ordered table (1 byte), and its [state](super::elements).

use super::elements::{Elements, Kind, Pending};

/// The expiries of the fields of one hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldExpiries {
    /// The earliest.
    pub(super) first: u64,
    /// The collection. It counts the fields that expire.
    pub(super) elements: Elements,
    /// What a unit has changed of it in the ordered table.
    pub(super) pending: Pending,
    /// Whether a unit has changed it.
    pub(super) is_changed: bool,
}

impl FieldExpiries {
    /// Expiries of no field.
    pub(super) fn new(version: u64) -> Self {
        let elements = Elements {
            kind: Kind::Hash,
            version,
            count: 0,
            extra: Vec::new(),
            inline: Some(Vec::new()),
        };
        Self { first: u64::MAX, elements, pending: Pending::new(), is_changed: false }
    }

    /// The version, if there are elements in the ordered table.
    pub(super) fn spilled_version(&self) -> Option<u64> {
        self.elements.inline.is_none().then_some(self.elements.version)
    }

    /// Appends the encoded expiries.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first.to_le_bytes());
        out.push(u8::from(self.elements.inline.is_none()));
        self.elements.encode(out);
    }

    /// Decodes expiries. Returns `None` if they are damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk()?;
        let (is_spilled, rest) = rest.split_first()?;
        let elements = Elements::decode(Kind::Hash, *is_spilled != 0, rest)?;
        let first = u64::from_le_bytes(*first);
        Some(Self { first, elements, pending: Pending::new(), is_changed: false })
    }
}
