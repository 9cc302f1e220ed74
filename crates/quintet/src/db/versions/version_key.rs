//! The key of a version in a segment: all tables share one.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | length | bytes of the table's number |
//! | 1 | 1 to 8 | table | number of the table, big-endian |
//! | | 4 | position | only for an engine that scans by hashes: the high half of the key's position, big-endian |
//! | | | key | the key |
//!
//! So the versions of one table are in the order of its ranges and scans. What follows the table's
//! number is the *place* of a key.

use crate::{
    contract::Engine as _,
    db::tables::state::TableState,
    util::codec::{low_u8, low_u32, to_u64, to_usize},
};

/// Bytes of a position before a key.
pub(crate) const POSITION_BYTES: usize = 4;

/// The encoded key, and the hash for the buckets of a segment.
#[derive(Clone, Debug)]
pub(super) struct VersionKey {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: u64,
}

impl VersionKey {
    /// Encodes a key, whose hash in the table is `hash`.
    pub(super) fn new(table: &TableState, key: &[u8], hash: u64) -> Self {
        let mut bytes = Vec::with_capacity(1 + 8 + POSITION_BYTES + key.len());
        push_table(table.id, &mut bytes);
        if let Some(order) = table.engine.hash_order() {
            bytes.extend_from_slice(&high_half(order.position(key, hash)));
        }
        bytes.extend_from_slice(key);
        // Buckets use both ends of a hash, and a segment keeps only the high half.
        let mixed = (hash ^ table.id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { bytes, hash: hash_of_half(half_of_hash(mixed)) }
    }
}

/// Returns the hash of an encoded key from its high half.
pub(super) fn hash_of_half(half: u32) -> u64 {
    let half = u64::from(half);
    half << 32 | half
}

/// Returns the high half of the hash of an encoded key.
pub(super) fn half_of_hash(hash: u64) -> u32 {
    low_u32(hash >> 32)
}

/// Returns the bytes of a position that come before a key.
pub(crate) fn high_half(position: u64) -> [u8; POSITION_BYTES] {
    let [a, b, c, d, ..] = position.to_be_bytes();
    [a, b, c, d]
}

/// Appends the number of a table.
fn push_table(id: u64, bytes: &mut Vec<u8>) {
    let number = id.to_be_bytes();
    let zeros = to_usize(u64::from(id.leading_zeros() / 8)).min(number.len() - 1);
    let number = number.get(zeros..).unwrap_or(&[]);
    bytes.push(low_u8(to_u64(number.len())));
    bytes.extend_from_slice(number);
}

/// Returns the place of a key: an encoded key without the table.
pub(super) fn place_of(bytes: &[u8]) -> &[u8] {
    let length = bytes.first().map_or(0, |length| usize::from(*length));
    bytes.get(1 + length..).unwrap_or(&[])
}

/// Returns the key at a place of the table.
pub(super) fn key_at<'a>(table: &TableState, place: &'a [u8]) -> &'a [u8] {
    let start = if table.engine.hash_order().is_some() { POSITION_BYTES } else { 0 };
    place.get(start..).unwrap_or(&[])
}

/// Returns the first encoded key at or after a place of a table.
pub(super) fn lower_bound(table: &TableState, place: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + 8 + place.len());
    push_table(table.id, &mut bytes);
    bytes.extend_from_slice(place);
    bytes
}

/// Returns the first encoded key of the tables after this one.
pub(super) fn end_of_table(table: &TableState) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_table(table.id + 1, &mut bytes);
    bytes
}
