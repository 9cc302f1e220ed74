//! The state of a collection: its type, version and number of elements, and a small one's elements.
//!
//! A head has one state for its value, and one for the expiries of the fields of a hash. Layout;
//! numbers are little-endian, lengths are LEB128:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | version |
//! | 8 | number of elements |
//! | length, bytes | state of the type: first index of a list, ids of a stream |
//! | for each element, if they are here | length, name, length, value |

use std::collections::BTreeMap;

/// Elements that a unit has changed: the new value, or `None` if it has removed the element.
pub(super) type Pending = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Bytes.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A set ordered by scores.
    SortedSet,
    /// A map of fields.
    Hash,
    /// An append-only log with consumer groups.
    Stream,
}

impl Kind {
    /// The name that `TYPE` replies.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Self::String => 0,
            Self::List => 1,
            Self::Set => 2,
            Self::SortedSet => 3,
            Self::Hash => 4,
            Self::Stream => 5,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::String,
            1 => Self::List,
            2 => Self::Set,
            3 => Self::SortedSet,
            4 => Self::Hash,
            5 => Self::Stream,
            _ => return None,
        })
    }
}

/// Names and values of a collection that is in the head, ordered by name.
pub(crate) type Inline = Vec<(Vec<u8>, Vec<u8>)>;

/// The state of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    /// The type.
    pub(crate) kind: Kind,
    /// The prefix of its elements in the ordered table. No other collection has it.
    pub(crate) version: u64,
    /// Number of elements as the client counts them.
    pub(crate) count: u64,
    /// State of the type.
    pub(crate) extra: Vec<u8>,
    /// The elements, unless they are in the ordered table.
    pub(crate) inline: Option<Inline>,
}

impl Elements {
    /// Decodes the state of a collection. Returns `None` if it is damaged.
    pub(super) fn decode(kind: Kind, is_spilled: bool, mut rest: &[u8]) -> Option<Self> {
        let version = take_u64(&mut rest)?;
        let count = take_u64(&mut rest)?;
        let extra = take_bytes(&mut rest)?.to_vec();
        let mut inline = (!is_spilled).then(Vec::new);
        if let Some(inline) = &mut inline {
            while !rest.is_empty() {
                let name = take_bytes(&mut rest)?.to_vec();
                inline.push((name, take_bytes(&mut rest)?.to_vec()));
            }
        }
        Some(Self { kind, version, count, extra, inline })
    }

    /// Appends the encoded state.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        put_bytes(out, &self.extra);
        for (name, value) in self.inline.iter().flatten() {
            put_bytes(out, name);
            put_bytes(out, value);
        }
    }
}

/// Takes eight bytes as a number. Returns `None` if there are fewer.
pub(super) fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

/// Appends a length and bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    loop {
        let low = u8::try_from(length & 0x7f).unwrap_or(0);
        length >>= 7;
        if length == 0 {
            out.push(low);
            break;
        }
        out.push(low | 0x80);
    }
    out.extend_from_slice(bytes);
}

/// Takes a length and bytes. Returns `None` if they are damaged.
pub(crate) fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let mut length = 0_usize;
    for shift in (0..35).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            return Some(bytes);
        }
    }
    None
}
