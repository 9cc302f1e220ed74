//! The head of a key: its type, expiry and version, and a string or a small collection.
//!
//! Layout of a head in the table of keys; numbers are little-endian, lengths are LEB128:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | type (bits 0 to 2), expires (bit 3), elements are in the ordered table (bit 4) |
//! | 8, if it expires | expiry in milliseconds since 1970 |
//! | rest, of a string | the value |
//! | length, bytes, of a hash whose fields expire | [expiries of fields](super::field_expiries) |
//! | rest, of another type | [state of the collection](super::elements) |
//!
//! A hash whose fields expire has a separate type code. A server that does not know the code
//! takes the head for damage and refuses the commands on the key, so it never drops an expiry.

use super::{
    elements::{Elements, Kind, put_bytes, take_bytes, take_u64},
    field_expiries::FieldExpiries,
};

const KIND_BITS: u8 = 7;
const EXPIRES: u8 = 8;
const SPILLED: u8 = 16;
/// Bits that a head of this version may have.
const KNOWN_BITS: u8 = KIND_BITS | EXPIRES | SPILLED;
/// Type code of a hash whose fields expire.
const EXPIRING_HASH: u8 = 6;

/// The head of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Expiry in milliseconds since 1970.
    pub(crate) expiry: Option<u64>,
    /// The value, or where its elements are.
    pub(crate) body: Body,
    /// When fields of a hash expire, if some do.
    pub(crate) field_expiries: Option<Box<FieldExpiries>>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// A string.
    Str(Vec<u8>),
    /// Any other type.
    Elements(Elements),
}

impl Head {
    /// The type.
    pub(crate) fn kind(&self) -> Kind {
        match &self.body {
            Body::Str(_) => Kind::String,
            Body::Elements(elements) => elements.kind,
        }
    }

    /// The version, if there are elements in the ordered table.
    pub(crate) fn spilled_version(&self) -> Option<u64> {
        match &self.body {
            Body::Elements(elements) if elements.inline.is_none() => Some(elements.version),
            _ => None,
        }
    }

    /// The versions that have elements in the ordered table: that of the elements, and that of the
    /// expiries of fields.
    pub(super) fn spilled_versions(&self) -> [Option<u64>; 2] {
        let expiries = self.field_expiries.as_ref();
        [self.spilled_version(), expiries.and_then(|expiries| expiries.spilled_version())]
    }

    /// Whether the key is in a list of the ordered table, or has elements there.
    pub(super) fn is_listed(&self) -> bool {
        self.expiry.is_some() || self.field_expiries.is_some() || self.spilled_version().is_some()
    }

    /// Whether the value is a collection without elements.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.body, Body::Elements(elements) if elements.count == 0)
    }

    /// The earliest expiry of a field.
    pub(super) fn first_field_expiry(&self) -> Option<u64> {
        self.field_expiries.as_ref().map(|expiries| expiries.first)
    }

    /// A head without expiries of fields.
    pub(super) fn new(expiry: Option<u64>, body: Body) -> Self {
        Self { expiry, body, field_expiries: None }
    }

    /// Appends the encoded head.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let expires_fields = self.field_expiries.is_some();
        let mut first = if expires_fields { EXPIRING_HASH } else { self.kind().code() };
        if self.expiry.is_some() {
            first |= EXPIRES;
        }
        if self.spilled_version().is_some() {
            first |= SPILLED;
        }
        out.push(first);
        if let Some(expiry) = self.expiry {
            out.extend_from_slice(&expiry.to_le_bytes());
        }
        if let Some(expiries) = &self.field_expiries {
            let mut encoded = Vec::new();
            expiries.encode(&mut encoded);
            put_bytes(out, &encoded);
        }
        match &self.body {
            Body::Str(value) => out.extend_from_slice(value),
            Body::Elements(elements) => elements.encode(out),
        }
    }

    /// Decodes a head. Returns `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut head = Self::decode_to_replace(bytes)?;
        if let Body::Str(value) = &mut head.body {
            value.extend_from_slice(split(bytes)?.3);
        }
        Some(head)
    }

    /// Decodes a head as [`Head::decode`] does. A string is left empty: the caller replaces it.
    pub(super) fn decode_to_replace(bytes: &[u8]) -> Option<Self> {
        let (kind, expiry, is_spilled, mut rest) = split(bytes)?;
        if kind == Kind::String {
            return Some(Self::new(expiry, Body::Str(Vec::new())));
        }
        let mut field_expiries = None;
        if bytes.first().is_some_and(|first| first & KIND_BITS == EXPIRING_HASH) {
            let expiries = FieldExpiries::decode(take_bytes(&mut rest)?)?;
            field_expiries = Some(Box::new(expiries));
        }
        let elements = Elements::decode(kind, is_spilled, rest)?;
        Some(Self { expiry, body: Body::Elements(elements), field_expiries })
    }
}

/// Splits a head in type, expiry, whether its elements are in the ordered table, and the rest.
/// Returns `None` if it is damaged.
pub(crate) fn split(bytes: &[u8]) -> Option<(Kind, Option<u64>, bool, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let kind = match first & KIND_BITS {
        _ if first & !KNOWN_BITS != 0 => return None,
        EXPIRING_HASH => Kind::Hash,
        code => Kind::of_code(code)?,
    };
    let expiry = if first & EXPIRES == 0 { None } else { Some(take_u64(&mut rest)?) };
    Some((kind, expiry, first & SPILLED != 0, rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn heads() -> Vec<Head> {
        let elements = |inline| Elements {
            kind: Kind::Hash,
            version: 7,
            count: 2,
            extra: vec![1; 200],
            inline,
        };
        let inline = vec![(b"a".to_vec(), vec![b'x'; 300]), (b"b".to_vec(), Vec::new())];
        vec![
            Head::new(None, Body::Str(Vec::new())),
            Head::new(Some(99), Body::Str(b"value".to_vec())),
            Head::new(None, Body::Elements(elements(Some(inline.clone())))),
            Head::new(Some(1), Body::Elements(elements(None))),
            Head {
                expiry: Some(1),
                body: Body::Elements(elements(None)),
                field_expiries: Some(Box::new(FieldExpiries {
                    first: 5,
                    elements: Elements { extra: Vec::new(), ..elements(Some(inline)) },
                    pending: BTreeMap::new(),
                    is_changed: false,
                })),
            },
            Head {
                expiry: None,
                body: Body::Elements(elements(None)),
                field_expiries: Some(Box::new(FieldExpiries {
                    first: 6,
                    elements: Elements { extra: Vec::new(), ..elements(None) },
                    pending: BTreeMap::new(),
                    is_changed: false,
                })),
            },
        ]
    }

    #[test]
    fn heads_decode_to_what_was_encoded() {
        for head in heads() {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            assert_eq!(Head::decode(&bytes), Some(head));
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let mut bytes = Vec::new();
        heads()[1].encode(&mut bytes);
        assert_eq!(bytes, b"\x08\x63\0\0\0\0\0\0\0value");
        bytes.clear();
        heads()[3].encode(&mut bytes);
        assert_eq!(
            bytes[..27],
            *b"\x1c\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\xc8\x01"
        );
        bytes.clear();
        heads()[5].encode(&mut bytes);
        assert_eq!(
            bytes[..28],
            *b"\x16\x1a\x06\0\0\0\0\0\0\0\x01\x07\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0"
        );
    }

    #[test]
    fn a_head_of_an_unknown_type_or_bit_is_refused() {
        let mut bytes = Vec::new();
        heads()[2].encode(&mut bytes);
        let known = bytes[0];
        for first in [7, known | 32, known | 64, known | 128] {
            bytes[0] = first;
            assert_eq!(Head::decode(&bytes), None, "{first}");
            assert!(split(&bytes).is_none(), "{first}");
        }
    }

    #[test]
    fn a_head_that_is_cut_short_is_damage_and_no_panic() {
        for head in heads() {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            for length in 0..bytes.len() {
                assert_ne!(Head::decode(&bytes[..length]), Some(head.clone()), "{length}");
            }
        }
    }
}
