//! Partitions: which table of a level a key belongs to.
//!
//! Each level from 1 on divides the *partition keys* among its tables. In a level of key ranges,
//! the partition key is the key. In a level of hash ranges, it is the high half of the key's hash,
//! 4 bytes, big-endian.

use std::ops::Range;

use crate::util::codec::{KeyHash, low_u32};

/// The partition key of a level's tables: the key, or its hash.
#[derive(Clone, Copy, Debug)]
pub(super) enum Partitioning {
    Key,
    Hash(KeyHash),
}

impl Partitioning {
    /// Calls `find` with the partition key of a key.
    #[inline]
    pub(super) fn with<T>(self, key: &[u8], find: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Key => find(key),
            Self::Hash(hash) => find(&low_u32(hash.hash(key) >> 32).to_be_bytes()),
        }
    }
}

/// The partition keys of one table.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) partitioning: Partitioning,
    pub(super) range: Range<Vec<u8>>,
    /// The table is the last of its level: the range has no end.
    pub(super) is_last: bool,
}

impl Partition {
    /// Returns whether a key belongs to the table.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.partitioning.with(key, |partition_key| {
            partition_key >= self.range.start.as_slice()
                && (self.is_last || partition_key < self.range.end.as_slice())
        })
    }

    /// Returns whether neither this key nor any larger one belongs to the table.
    pub(super) fn is_past(&self, key: &[u8]) -> bool {
        matches!(self.partitioning, Partitioning::Key)
            && !self.is_last
            && key >= self.range.end.as_slice()
    }

    /// Returns whether a key can belong to both tables.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let begins_before_end =
            |one: &Self, two: &Self| two.is_last || one.range.start < two.range.end;
        begins_before_end(self, other) && begins_before_end(other, self)
    }

    /// Returns a key that is not above any key of the table, or `None` if there is no such bound.
    pub(super) fn first_key(&self) -> Option<Vec<u8>> {
        matches!(self.partitioning, Partitioning::Key).then(|| self.range.start.clone())
    }
}
