//! Keys and values of column families with timestamps.
//!
//! RocksDB stores the versions of a key under the key and the timestamp, the newest first. A table
//! is ordered by bytes, so the stored form of a version is:
//!
//! | bytes | content |
//! |---|---|
//! | | the key, with `00 FF` for each zero byte |
//! | 2 | `00 00`: the end of the key |
//! | 8 | the complement of the timestamp, big-endian |
//!
//! The stored value is the value and a byte: 1. That of a delete is a byte alone: 0.
//!
//! Invariants: no key's stored form begins with that of another key, and stored forms have the
//! order of the keys. The versions of a key are adjacent, the newest first.

use crate::status::Status;

/// Size of a timestamp in bytes.
pub const TIMESTAMP_BYTES: usize = 8;
/// What stands for a zero byte of a key.
const ZERO: [u8; 2] = [0, 0xFF];
/// The end of a key.
const END: [u8; 2] = [0, 0];
/// The last byte of a stored value.
const PUT: u8 = 1;
/// The stored value of a delete.
const DELETE: u8 = 0;

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The key.
    pub key: Vec<u8>,
    /// The timestamp.
    pub timestamp: u64,
}

/// The byte order of a program's timestamps. Its comparator decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampOrder {
    /// Little-endian, as RocksDB's own comparators have them.
    Little,
    /// Big-endian.
    Big,
}

impl TimestampOrder {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Little, Self::Big];

    /// Returns the number that the program's bytes are.
    pub fn number(self, bytes: &[u8]) -> Result<u64, Status> {
        let array = bytes.try_into().map_err(|_| {
            let given = bytes.len();
            Status::invalid(format!(
                "Timestamp sizes mismatch: expect {TIMESTAMP_BYTES}, {given} given"
            ))
        })?;
        Ok(match self {
            Self::Little => u64::from_le_bytes(array),
            Self::Big => u64::from_be_bytes(array),
        })
    }

    /// Returns the program's bytes of a number.
    pub const fn bytes(self, number: u64) -> [u8; TIMESTAMP_BYTES] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    /// Splits the key of a record of a batch: the timestamp is its end.
    pub fn split(self, joined: &[u8]) -> Result<(&[u8], u64), Status> {
        let at = joined.len().checked_sub(TIMESTAMP_BYTES);
        let parts = at.and_then(|at| joined.split_at_checked(at));
        let (key, bytes) = parts.ok_or_else(without_timestamp)?;
        Ok((key, self.number(bytes)?))
    }

    /// Returns the key and the timestamp of a version as RocksDB joins them.
    pub fn joined(self, version: &Version) -> Vec<u8> {
        [version.key.as_slice(), &self.bytes(version.timestamp)].concat()
    }
}

/// Returns the failure of a batch with a record without a timestamp.
pub fn without_timestamp() -> Status {
    Status::invalid("write batch must have timestamp(s) set")
}

/// Returns the start of the stored forms of a key's versions. No other key's begins with it.
pub fn start(key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(key.len() + END.len() + TIMESTAMP_BYTES);
    for byte in key {
        match byte {
            0 => stored.extend_from_slice(&ZERO),
            byte => stored.push(*byte),
        }
    }
    stored.extend_from_slice(&END);
    stored
}

/// Returns the stored form of a version. Older versions of the key follow it.
pub fn stored(key: &[u8], timestamp: u64) -> Vec<u8> {
    let mut stored = start(key);
    stored.extend_from_slice(&(!timestamp).to_be_bytes());
    stored
}

/// Returns the least bytes above the stored forms of a key's versions.
pub fn end(key: &[u8]) -> Vec<u8> {
    let mut end = stored(key, 0);
    end.push(0);
    end
}

/// Returns the version of a stored form.
pub fn version(stored: &[u8]) -> Result<Version, Status> {
    parse(stored).ok_or_else(|| Status::corruption("a key has no timestamp"))
}

fn parse(stored: &[u8]) -> Option<Version> {
    let (escaped, timestamp) = stored.split_last_chunk()?;
    let escaped = escaped.strip_suffix(&END)?;
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        key.push(*byte);
        if *byte == 0 && bytes.next() != Some(&ZERO[1]) {
            return None;
        }
    }
    Some(Version { key, timestamp: !u64::from_be_bytes(*timestamp) })
}

/// Returns the stored form of a value. `None`: the version is a delete.
pub fn stored_value(value: Option<&[u8]>) -> Vec<u8> {
    value.map_or_else(|| vec![DELETE], |value| [value, &[PUT]].concat())
}

/// Returns the value of a stored form. `None`: the version is a delete.
pub fn value(stored: &[u8]) -> Result<Option<&[u8]>, Status> {
    match stored.split_last() {
        Some((&PUT, value)) => Ok(Some(value)),
        Some((&DELETE, [])) => Ok(None),
        _ => Err(Status::corruption("a value of a version is malformed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_order_of_keys_and_descending_timestamps() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for length in 1..4_u32 {
            for number in 0..5_usize.pow(length) {
                let byte = |place| [0, 1, 7, 0xFE, 0xFF][number / 5_usize.pow(place) % 5];
                keys.push((0..length).map(byte).collect());
            }
        }
        keys.sort();
        let mut last = Vec::new();
        for key in &keys {
            assert!(start(key) > last, "{key:?}");
            for timestamp in [u64::MAX, 1 << 40, 256, 255, 1, 0] {
                let stored = stored(key, timestamp);
                assert!(stored > last && stored.starts_with(&start(key)), "{key:?} {timestamp}");
                assert!(stored < end(key));
                let parsed = version(&stored).expect("a version");
                assert_eq!(parsed, Version { key: key.clone(), timestamp });
                last = stored;
            }
            last = end(key);
        }
    }

    #[test]
    fn malformed_forms_are_failures() {
        for bytes in [&b""[..], b"short", b"\x00\x01\x00\x0012345678", b"a\x00\xFF12345678"] {
            version(bytes).expect_err("no version");
        }
        let put = stored_value(Some(b"v"));
        assert_eq!(value(&put).expect("a value"), Some(&b"v"[..]));
        assert_eq!(value(&stored_value(None)).expect("a delete"), None);
        value(b"").expect_err("no value");
        value(b"v\x00").expect_err("no value");
        for order in TimestampOrder::ALL {
            order.split(b"short").expect_err("no timestamp");
            order.number(b"short").expect_err("no timestamp");
        }
    }

    #[test]
    fn timestamps_are_numbers_in_either_byte_order() {
        let orders = [
            (TimestampOrder::Little, [5, 0, 0, 0, 0, 0, 0, 0]),
            (TimestampOrder::Big, [0, 0, 0, 0, 0, 0, 0, 5]),
        ];
        for (order, bytes) in orders {
            assert_eq!(order.bytes(5), bytes);
            assert_eq!(order.number(&bytes).expect("a timestamp"), 5);
            let joined = order.joined(&Version { key: b"key".to_vec(), timestamp: 5 });
            assert_eq!(joined, [&b"key"[..], &bytes].concat());
            assert_eq!(order.split(&joined).expect("a key"), (&b"key"[..], 5));
        }
    }
}
