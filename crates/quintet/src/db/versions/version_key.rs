//! The key of a version in a segment: all tables share one.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | table | number of the table, big-endian |
//! | 8 | 8 | position | only for an engine that scans by hashes: the key's position, big-endian |
//! | | | key | the key |
//!
//! So the versions of one table are in the order of its ranges and scans.

use crate::{contract::Engine as _, db::tables::state::TableState, util::codec::KeyHash};

const TABLE_BYTES: usize = 8;
const POSITION_BYTES: usize = 8;

/// The encoded key, and the hash for the buckets of a segment.
#[derive(Clone, Debug)]
pub(super) struct VersionKey {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: u64,
}

impl VersionKey {
    pub(super) fn new(hash: &KeyHash, table: &TableState, key: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(TABLE_BYTES + POSITION_BYTES + key.len());
        bytes.extend_from_slice(&table.id.to_be_bytes());
        if let Some(order) = table.engine.hash_order() {
            bytes.extend_from_slice(&order.position(key).to_be_bytes());
        }
        bytes.extend_from_slice(key);
        Self { hash: hash.hash(&bytes), bytes }
    }
}

/// Returns the key of the table in an encoded key.
pub(super) fn key_of<'a>(table: &TableState, bytes: &'a [u8]) -> &'a [u8] {
    let start = match table.engine.hash_order() {
        None => TABLE_BYTES,
        Some(_) => TABLE_BYTES + POSITION_BYTES,
    };
    bytes.get(start..).unwrap_or(&[])
}

/// Returns the first encoded key at or after `start` in the order of a table: a key, or the
/// position of a scan by hashes.
pub(super) fn lower_bound(table: &TableState, start: &[u8]) -> Vec<u8> {
    [&table.id.to_be_bytes(), start].concat()
}

/// Returns the first encoded key of the tables after this one.
pub(super) fn end_of_table(table: &TableState) -> Vec<u8> {
    (table.id + 1).to_be_bytes().to_vec()
}
