//! A record: key and stored value of one entry, in one allocation.

use std::sync::Arc;

use crate::{
    contract::Value,
    engine::naive::table::{Keyed, NODE_BYTES},
    util::codec::to_u64,
};

/// Bytes of memory that an entry takes beside its key and value. They are the node (hash, link and
/// record), the reference counts before the shared bytes, and the overhead of two allocations.
const ENTRY_OVERHEAD_BYTES: u64 = NODE_BYTES + to_u64(size_of::<NaiveRecord>()) + 16 + 2 * 16;

/// An entry: its key, then its stored value, in one allocation. Returned values share it.
#[derive(Clone, Debug)]
pub(super) struct NaiveRecord {
    bytes: Arc<[u8]>,
    key_bytes: usize,
}

impl NaiveRecord {
    pub(super) fn new(key: &[u8], head: &[u8], body: &[u8]) -> Self {
        let length = key.len() + head.len() + body.len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
        if let Some(mut rest) = Arc::get_mut(&mut bytes) {
            for piece in [key, head, body] {
                let (target, tail) = rest.split_at_mut(piece.len());
                target.copy_from_slice(piece);
                rest = tail;
            }
        }
        Self { bytes, key_bytes: key.len() }
    }

    pub(super) fn stored(&self) -> &[u8] {
        self.bytes.get(self.key_bytes..).unwrap_or(&[])
    }

    pub(super) fn value(&self) -> Value {
        Value::shared(Arc::clone(&self.bytes)).skip(self.key_bytes)
    }

    /// Bytes of key and stored value.
    pub(super) fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn cost(&self) -> u64 {
        cost(self.bytes.len())
    }
}

impl Keyed for NaiveRecord {
    fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_bytes).unwrap_or(&[])
    }
}

/// Returns the bytes of budget for an entry with `payload_bytes` of key and stored value.
pub(super) fn cost(payload_bytes: usize) -> u64 {
    ENTRY_OVERHEAD_BYTES + to_u64(payload_bytes)
}
