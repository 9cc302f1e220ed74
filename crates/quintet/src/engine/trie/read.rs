//! Reads: gets from memory and from disk, and scans. Batched gets are in [`super::batch`].
//!
//! A get from memory reads two or three words of the trie and the record, and copies the value. The
//! copy counts only if neither the subtree nor the region changed meanwhile. A get from disk makes
//! one direct read of the blocks around the record and verifies the record's checksum. If the
//! budget has room and the region is read often, it loads the whole region, which then stays in
//! memory.

use super::{
    lookup::{ColdMatch, KeyMatch, RecordValue, ReplayBufferAnswer, answer_in},
    record::{DiskRecord, ExtentAddr, TrieRecordHead},
    table::Trie,
};
use crate::{
    Result,
    contract::{OwnedValue, Value, ValueSink},
    engine::trie::index::{KeyPath, RecordVerdict},
    util::sync::AtomicU64,
};

impl Trie {
    /// Looks a key up and passes its value to `sink`. Returns `None` if the key has no record.
    #[inline]
    pub(super) fn read_with<S: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut S,
    ) -> Result<Option<S::Output>> {
        let path = self.path(key);
        let mut output = None;
        let mut on_value = |head: &TrieRecordHead, words: &[AtomicU64]| {
            output = Some(sink.of_words(words, (head.value_at(), head.value_bytes)));
        };
        let answer = self.answer(path, &[], &mut on_value)?;
        if self.settings.counts_gets {
            self.count_get(matches!(answer, Some(RecordValue::Delivered)));
        }
        match answer {
            None => Ok(None),
            Some(RecordValue::Delivered) => Ok(output),
            Some(answer) => {
                let value = self.read_slowly(path, answer)?;
                Ok(value.map(|value| sink.of_value(value)))
            }
        }
    }

    /// Looks a key up and returns its value.
    pub(super) fn read_value(&self, key: &[u8]) -> Result<Option<Value>> {
        self.read_with(key, &mut OwnedValue)
    }

    /// Looks a key up in memory. Records in `others` (address, life) are known to be other keys'.
    /// `on_value` receives the value; more than once if it changed meanwhile, and the last call
    /// counts.
    #[inline]
    pub(super) fn answer(
        &self,
        path: KeyPath<'_>,
        others: &[(u64, u64)],
        on_value: &mut impl FnMut(&TrieRecordHead, &[AtomicU64]),
    ) -> Result<Option<RecordValue>> {
        if !self.replay_buffer.is_empty()
            && let Some(answer) = self.buffered_answer(path, on_value)
        {
            return match answer {
                ReplayBufferAnswer::Deleted => Ok(None),
                ReplayBufferAnswer::Record(answer) => Ok(Some(answer)),
            };
        }
        let look = |address| {
            let record = match self.regions.record_at(address) {
                Ok(record) => record,
                Err(life) if others.contains(&(address, life)) => return RecordVerdict::Other,
                Err(life) => return RecordVerdict::Found(RecordValue::OnDisk(address, life)),
            };
            match answer_in(record.words, path.key, on_value) {
                Some(found) if self.regions.is_unchanged(&record) => match found {
                    KeyMatch::Key(answer) => RecordVerdict::Found(answer),
                    KeyMatch::OtherKey => RecordVerdict::Other,
                },
                _ => RecordVerdict::Changed,
            }
        };
        self.index.find(path, look, |at| self.load_index(at))
    }

    /// As [`Self::answer`], with a copy of the value if it was in memory.
    #[inline]
    fn answer_with_value(
        &self,
        path: KeyPath<'_>,
        others: &[(u64, u64)],
    ) -> Result<(Option<RecordValue>, Option<Value>)> {
        let mut value = None;
        let mut on_value = |head: &TrieRecordHead, words: &[AtomicU64]| {
            value = Some(Value::fill_with(head.value_bytes, |out| head.copy_value(words, out)));
        };
        let answer = self.answer(path, others, &mut on_value)?;
        Ok((answer, value))
    }

    /// Finishes a lookup whose value is not in the record in memory: reads from disk, and looks the
    /// key up again until it has the value. Fails with [`Error::Corruption`] if the same record or
    /// extent fails to verify again.
    #[cold]
    pub(super) fn read_slowly(
        &self,
        path: KeyPath<'_>,
        first: RecordValue,
    ) -> Result<Option<Value>> {
        let mut others = Vec::new();
        let (mut answer, mut value) = (Some(first), None);
        let (mut damaged, mut retries) = (None, 0);
        loop {
            match answer {
                None => return Ok(None),
                Some(RecordValue::Delivered) => return Ok(value),
                Some(RecordValue::InExtent(extent)) => {
                    if let Some(value) = self.read_large(extent)? {
                        return Ok(Some(value));
                    }
                    // Replaced since, or damaged: in the second case the next lookup finds it
                    // again.
                    if damaged.replace(extent) == Some(extent) {
                        return Err(self.extent_damage(extent));
                    }
                }
                Some(RecordValue::OnDisk(address, life)) => {
                    self.count_retry(address, &mut retries)?;
                    let (region, _) = self.regions.split(address);
                    let is_loaded = self.wants_load(address) && self.load_region(region)?;
                    if !is_loaded
                        && let Some(cold) = self.read_cold(address, life)?
                        && let Some(record) = cold.record()
                    {
                        match self.value_of(&record, path.key)? {
                            ColdMatch::Value(value) => return Ok(Some(value)),
                            ColdMatch::Other => others.push((address, life)),
                            ColdMatch::Replaced => {}
                        }
                    }
                }
            }
            (answer, value) = self.answer_with_value(path, &others)?;
        }
    }

    /// Compares a record from disk with a key, and returns its value if they match.
    pub(super) fn value_of(&self, record: &DiskRecord<'_>, key: &[u8]) -> Result<ColdMatch> {
        if record.key() != key {
            return Ok(ColdMatch::Other);
        }
        if !record.head.is_extent {
            let value = record.value();
            let value = Value::fill_with(value.len(), |out| out.copy_from_slice(value));
            return Ok(ColdMatch::Value(value));
        }
        let Some(extent) = ExtentAddr::decode(record.value()) else {
            return Ok(ColdMatch::Replaced);
        };
        match self.read_large(extent)? {
            Some(value) => Ok(ColdMatch::Value(value)),
            // The record may have been replaced as well; if not, the extent is damaged.
            None if self.has_extent(key, extent)? => Err(self.extent_damage(extent)),
            None => Ok(ColdMatch::Replaced),
        }
    }

    /// Returns whether the key's record is in the file and names this extent now.
    fn has_extent(&self, key: &[u8], extent: ExtentAddr) -> Result<bool> {
        let writer = self.index.lock(self.path(key));
        let found = writer.find(|address| {
            let (region, unit) = self.regions.split(address);
            let life = self.regions.life(region);
            let cold = self.read_cold(address, life).ok()??;
            let record = cold.record()?;
            let names = ExtentAddr::decode(record.value()) == Some(extent) && record.key() == key;
            (names && unit < self.regions.written(region)).then_some(())
        });
        Ok(found?.is_some())
    }
}
