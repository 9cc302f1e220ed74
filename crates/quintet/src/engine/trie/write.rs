//! Writes: puts and deletes, the region that receives appends, and memory for them.
//!
//! A put holds the lock of its key's subtree while it finds the current record and replaces it. It
//! reads no record from disk under that lock: it releases the lock, reads the record, and searches
//! again.

use std::sync::Arc;

use super::{
    current_record::{CurrentRecord, PrefetchedRecord, WriterMatch, find_prefetched},
    record::{EXTENT_ADDR_BYTES, ExtentAddr, LARGE_PART, TrieRecordHead},
    table::Trie,
};
use crate::{
    Result,
    engine::trie::{
        index::Writer,
        store::regions::{RegionRead, UNIT_BYTES},
    },
    util::{
        codec::{crc32c, crc32c_append, to_u64},
        mutant::mutant,
        sync::Ordering,
    },
};

/// Units of the smallest record: its head and a key of one byte.
const FILLER_UNITS_MIN: u64 = 2;

impl Trie {
    /// Stores a value under a key. The operation is in the log already.
    pub(super) fn put(&self, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        match self.prepare_record(key, value) {
            (head, None) => self.put_record(head, key, value),
            (head, Some(extent)) => self.put_record(head, key, [&extent, &[]]),
        }
    }

    /// Returns the head of the record that a key gets. If the value is too large for a region,
    /// stores it in the extents and also returns the extent's address, which the record holds in
    /// its place.
    #[inline]
    pub(super) fn prepare_record(
        &self,
        key: &[u8],
        value: [&[u8]; 2],
    ) -> (TrieRecordHead, Option<[u8; EXTENT_ADDR_BYTES]>) {
        let value_bytes = value[0].len() + value[1].len();
        let head = TrieRecordHead { key_bytes: key.len(), value_bytes, is_extent: false };
        if head.units() <= self.regions.segment_units() / LARGE_PART
            || value_bytes <= EXTENT_ADDR_BYTES
        {
            return (head, None);
        }
        let extent = self.put_large(value_bytes, value).encode();
        (
            TrieRecordHead {
                key_bytes: key.len(),
                value_bytes: EXTENT_ADDR_BYTES,
                is_extent: true,
            },
            Some(extent),
        )
    }

    #[cold]
    fn put_large(&self, value_bytes: usize, value: [&[u8]; 2]) -> ExtentAddr {
        self.counters.appended_units.fetch_add(to_u64(value_bytes) / UNIT_BYTES, Ordering::Relaxed);
        let budget = &self.context.budget;
        let is_short = budget.used() + to_u64(value_bytes) > budget.limit();
        if is_short
            && !self.context.read_only
            && let Ok(offset) = self.extents.put_in_file(value)
        {
            let crc = crc32c_append(crc32c(value[0]), value[1]);
            return ExtentAddr { offset, bytes: to_u64(value_bytes), crc };
        }
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, value_bytes).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            let (front, back) = out.split_at_mut(value[0].len());
            front.copy_from_slice(value[0]);
            back.copy_from_slice(value[1]);
        }
        let crc = crc32c(&bytes);
        ExtentAddr { offset: self.extents.put(bytes), bytes: to_u64(value_bytes), crc }
    }

    fn put_record(&self, head: TrieRecordHead, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let path = self.path(key);
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        let new_bytes = head.stored_bytes(|| ExtentAddr::decode(value[0]));
        let (mut prefetched, mut retries) = (self.take_prefetched(path), 0);
        let mut writer = self.index.lock(path);
        loop {
            match self.find_current(&writer, key, &prefetched)? {
                Some(WriterMatch::Unknown(address, life)) => {
                    drop(writer);
                    self.count_retry(address, &mut retries)?;
                    prefetched.extend(self.read_record(address, life, key)?);
                    writer = self.index.lock(path);
                }
                Some(WriterMatch::Current(current, _))
                    if self.update_in_place(&current, &head, key, value) =>
                {
                    break;
                }
                Some(WriterMatch::Current(current, position)) => {
                    let address = self.append(&head, key, value)?;
                    writer.exchange(position, address);
                    self.count_dead(&current, new_bytes);
                    break;
                }
                None => {
                    let address = self.append(&head, key, value)?;
                    let is_overfull = writer.insert(address)?;
                    self.counters.live_bytes.fetch_add(new_bytes, Ordering::Relaxed);
                    if is_overfull {
                        self.switch_list(writer, path);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes the record of a key, if it has one. The operation is in the log already.
    pub(super) fn delete(&self, key: &[u8]) -> Result<()> {
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        let path = self.path(key);
        let (mut prefetched, mut retries) = (self.take_prefetched(path), 0);
        let mut writer = self.index.lock(path);
        loop {
            match self.find_current(&writer, key, &prefetched)? {
                Some(WriterMatch::Unknown(address, life)) => {
                    drop(writer);
                    self.count_retry(address, &mut retries)?;
                    prefetched.extend(self.read_record(address, life, key)?);
                    writer = self.index.lock(path);
                }
                Some(WriterMatch::Current(current, _)) => {
                    writer.remove(current.address)?;
                    self.count_dead(&current, 0);
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// Compares a record in memory with a key; `None` if it is another key's.
    pub(super) fn match_in_memory(
        &self,
        address: u64,
        key: &[u8],
    ) -> RegionRead<Option<CurrentRecord>> {
        self.regions.read_in_memory(address, |words| {
            let head =
                TrieRecordHead::load(words).filter(|head| head.bytes() / 8 <= words.len())?;
            let extent = head.extent(words);
            let current = CurrentRecord { address, head, extent, in_memory: true };
            Some(head.has_key(words, key).then_some(current))
        })
    }

    /// Finds the current record of a key whose subtree is locked. `prefetched` are records read
    /// from disk. Returns `None` if the key has no record.
    pub(super) fn find_current(
        &self,
        writer: &Writer<'_>,
        key: &[u8],
        prefetched: &[PrefetchedRecord],
    ) -> Result<Option<WriterMatch>> {
        let found = writer.find(|address| {
            match self.match_in_memory(address, key) {
                RegionRead::Found(current) => current.map(Ok),
                // Under the subtree's lock only eviction changes a region.
                RegionRead::Changed => {
                    let life = self.regions.life(self.regions.split(address).0);
                    Some(Err((address, life)))
                }
                RegionRead::Cold(life) => match find_prefetched(prefetched, address, life) {
                    None => Some(Err((address, life))),
                    Some(prefetched) => prefetched.current.map(Ok),
                },
            }
        })?;
        Ok(found.map(|(found, position)| match found {
            Ok(current) => WriterMatch::Current(current, position),
            Err((address, life)) => WriterMatch::Unknown(address, life),
        }))
    }

    /// Overwrites a record in place if the new one fits and no checkpoint has the old one. Returns
    /// whether it did.
    ///
    /// A rest of two units or more becomes a record that the trie does not name, which compaction
    /// frees. A rest of one unit is too small for a record, so the new one does not fit then.
    pub(super) fn update_in_place(
        &self,
        current: &CurrentRecord,
        head: &TrieRecordHead,
        key: &[u8],
        value: [&[u8]; 2],
    ) -> bool {
        let (region, unit) = self.regions.split(current.address);
        let is_plain = current.in_memory && !current.head.is_extent && !head.is_extent;
        let (units, old_units) = (head.units(), current.head.units());
        let fits = units == old_units || units + FILLER_UNITS_MIN <= old_units;
        let frozen = mutant!(TrieUpdatesFrozen: false, else unit < self.regions.frozen(region));
        if !is_plain || !fits || frozen {
            return false;
        }
        let Some(words) = self.regions.words(region, unit) else { return false };
        head.store(words, key, value);
        self.counters.in_place_total.fetch_add(1, Ordering::Relaxed);
        if current.head != *head {
            self.finish_shorter(current, head);
        }
        true
    }

    /// The rest of an update in place by a record of another size.
    fn finish_shorter(&self, current: &CurrentRecord, head: &TrieRecordHead) {
        let (region, unit) = self.regions.split(current.address);
        let change = head.stored_bytes(|| None).wrapping_sub(current.head.stored_bytes(|| None));
        self.counters.live_bytes.fetch_add(change, Ordering::Relaxed);
        self.counters.in_place_shorter_total.fetch_add(1, Ordering::Relaxed);
        let rest = current.head.units() - head.units();
        if rest == 0 {
            return;
        }
        let filler = TrieRecordHead::filler(rest);
        if let Some(words) = self.regions.words(region, unit + head.units()) {
            mutant!(TrieLeavesNoFiller => return self.regions.remove_live(region, rest));
            filler.store(words, &[0], [&[], &[]]);
        }
        self.regions.remove_live(region, rest);
    }

    /// Counts a record as dead that is no longer in the trie, and releases its extent. `new_bytes`
    /// are the bytes of the record that replaces it, or 0.
    pub(super) fn count_dead(&self, current: &CurrentRecord, new_bytes: u64) {
        let (region, _) = self.regions.split(current.address);
        self.regions.remove_live(region, current.head.units());
        let bytes = current.head.stored_bytes(|| current.extent);
        if bytes != new_bytes {
            let change = new_bytes.wrapping_sub(bytes);
            self.counters.live_bytes.fetch_add(change, Ordering::Relaxed);
        }
        if let Some(extent) = current.extent {
            self.extents.release(extent.offset, extent.bytes);
        }
    }

    /// As [`Self::count_dead`] for a record that was copied elsewhere: its extent stays in use.
    pub(super) fn count_moved(&self, address: u64, head: &TrieRecordHead) {
        let (region, _) = self.regions.split(address);
        self.regions.remove_live(region, head.units());
    }
}
