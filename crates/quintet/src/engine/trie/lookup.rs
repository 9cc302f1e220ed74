//! Results of a lookup, and the comparison of a record with a key.

use super::record::{DiskRecord, ExtentAddr, TrieRecordHead};
use crate::{
    contract::Value,
    io::{AlignedBuffer, prefetch},
    util::sync::AtomicU64,
};

/// The result of a lookup for a key that has a record.
#[derive(Debug)]
pub(super) enum RecordValue {
    /// The value was passed to the reader.
    Delivered,
    /// The value is in this extent.
    InExtent(ExtentAddr),
    /// The record is not in memory: its address, and the life of its region.
    OnDisk(u64, u64),
}

/// A record read from disk.
#[derive(Debug)]
pub(super) struct ColdRecord {
    pub(super) buffer: AlignedBuffer,
    pub(super) skip: usize,
    pub(super) life: u64,
    pub(super) unit: u64,
}

impl ColdRecord {
    fn bytes(&self) -> &[u8] {
        self.buffer.as_slice().get(self.skip..).unwrap_or(&[])
    }

    /// The record, if its checksum matches.
    pub(super) fn record(&self) -> Option<DiskRecord<'_>> {
        DiskRecord::verify(self.bytes(), self.life, self.unit)
    }
}

/// Whether a record in memory is the one of a key.
pub(super) enum KeyMatch {
    Key(RecordValue),
    OtherKey,
}

impl KeyMatch {
    /// The answer, if the record is the key's.
    pub(super) fn answer(self) -> Option<RecordValue> {
        match self {
            Self::Key(answer) => Some(answer),
            Self::OtherKey => None,
        }
    }
}

/// A record read from disk, compared with a key.
pub(super) enum ColdMatch {
    Value(Value),
    Other,
    Replaced,
}

/// Compares the record in `words` with a key, and passes its value to `on_value` if they match.
/// Returns `None` if the words are not a record.
#[inline]
pub(super) fn answer_in(
    words: &[AtomicU64],
    key: &[u8],
    on_value: &mut impl FnMut(&TrieRecordHead, &[AtomicU64]),
) -> Option<KeyMatch> {
    // Where the value begins is known only once the first line has arrived, so the next two are
    // prefetched along with it.
    for line in [8, 16] {
        if let Some(word) = words.get(line) {
            prefetch(word);
        }
    }
    let head = TrieRecordHead::load(words).filter(|head| head.fits(words))?;
    if !head.has_key(words, key) {
        return Some(KeyMatch::OtherKey);
    }
    if head.is_extent {
        return head.extent(words).map(|extent| KeyMatch::Key(RecordValue::InExtent(extent)));
    }
    on_value(&head, words);
    Some(KeyMatch::Key(RecordValue::Delivered))
}

/// What an entry says about its key.
pub(super) enum ReplayBufferAnswer {
    Deleted,
    Record(RecordValue),
}
