//! Writes: puts and deletes, the region that receives appends, and memory for them.
//!
//! A put holds the lock of its key's subtree while it finds the current record and replaces it. It
//! reads no record from disk under that lock: it releases the lock, reads the record, and searches
//! again.

use std::sync::Arc;

use super::{
    Trie,
    record::{DiskRecord, EXTENT_ADDR_BYTES, ExtentAddr, HEAD_BYTES, RecordHead},
};
use crate::{
    Error, Result,
    contract::Op,
    engine::trie::{
        index::{RETRIES_MAX, RecordVerdict, WordPosition, Writer},
        store::regions::{RegionRead, UNIT_BYTES},
    },
    util::{
        codec::{crc32c, to_u64, to_usize},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Records of more than this part of a region keep their value in an extent. This bounds the space
/// that is wasted at the ends of regions.
const LARGE_PART: u64 = 4;

/// The current record of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentRecord {
    pub(super) address: u64,
    pub(super) head: RecordHead,
    extent: Option<ExtentAddr>,
    in_memory: bool,
}

/// A record that was read from disk ahead of a write.
#[derive(Debug)]
pub(super) struct PrefetchedRecord {
    address: u64,
    life: u64,
    /// The record, or `None` if it is another key's.
    current: Option<CurrentRecord>,
}

impl PrefetchedRecord {
    /// Compares a record from disk with a key.
    pub(super) fn of(address: u64, life: u64, record: &DiskRecord<'_>, key: &[u8]) -> Self {
        let head = record.head;
        let extent = ExtentAddr::decode(record.value()).filter(|_| head.is_extent);
        let current = CurrentRecord { address, head, extent, in_memory: false };
        Self { address, life, current: (record.key() == key).then_some(current) }
    }

    pub(super) fn current(&self) -> Option<CurrentRecord> {
        self.current
    }
}

/// The result of a writer's search.
pub(super) enum WriterMatch {
    /// The key's record, and the position of its word.
    Current(CurrentRecord, WordPosition),
    /// A record that has to be read first, without the lock: address and life of its region.
    Unknown(u64, u64),
}

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
    ) -> (RecordHead, Option<[u8; EXTENT_ADDR_BYTES]>) {
        let value_bytes = value[0].len() + value[1].len();
        let head = RecordHead { key_bytes: key.len(), value_bytes, is_extent: false };
        if head.units() <= self.regions.region_units() / LARGE_PART
            || value_bytes <= EXTENT_ADDR_BYTES
        {
            return (head, None);
        }
        let extent = self.put_large(value_bytes, value).encode();
        (
            RecordHead { key_bytes: key.len(), value_bytes: EXTENT_ADDR_BYTES, is_extent: true },
            Some(extent),
        )
    }

    #[cold]
    fn put_large(&self, value_bytes: usize, value: [&[u8]; 2]) -> ExtentAddr {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, value_bytes).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            let (front, back) = out.split_at_mut(value[0].len());
            front.copy_from_slice(value[0]);
            back.copy_from_slice(value[1]);
        }
        let crc = crc32c(&bytes);
        self.counters.appended_units.fetch_add(to_u64(value_bytes) / UNIT_BYTES, Ordering::Relaxed);
        ExtentAddr { offset: self.extents.put(bytes), bytes: to_u64(value_bytes), crc }
    }

    fn put_record(&self, head: RecordHead, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let hash = self.hash(key);
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        let new_bytes = stored_bytes(&head, || ExtentAddr::decode(value[0]));
        let (mut prefetched, mut retries) = (self.remove_prefetched(hash), 0);
        let mut writer = self.index.lock(hash);
        loop {
            match self.find_current(&writer, key, &prefetched)? {
                Some(WriterMatch::Unknown(address, life)) => {
                    drop(writer);
                    self.count_retry(address, &mut retries)?;
                    prefetched.extend(self.read_record(address, life, key)?);
                    writer = self.index.lock(hash);
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
                    writer.insert(address)?;
                    self.counters.live_bytes.fetch_add(new_bytes, Ordering::Relaxed);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes the record of a key, if it has one. The operation is in the log already.
    pub(super) fn delete(&self, key: &[u8]) -> Result<()> {
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        let hash = self.hash(key);
        let (mut prefetched, mut retries) = (self.remove_prefetched(hash), 0);
        let mut writer = self.index.lock(hash);
        loop {
            match self.find_current(&writer, key, &prefetched)? {
                Some(WriterMatch::Unknown(address, life)) => {
                    drop(writer);
                    self.count_retry(address, &mut retries)?;
                    prefetched.extend(self.read_record(address, life, key)?);
                    writer = self.index.lock(hash);
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
            let head = RecordHead::load(words).filter(|head| head.bytes() / 8 <= words.len())?;
            let extent = extent_of(&head, words);
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

    /// Counts an address that gave no answer. Fails with [`Error::Corruption`] after
    /// [`RETRIES_MAX`] of them.
    pub(super) fn count_retry(&self, address: u64, count: &mut u32) -> Result<()> {
        *count += 1;
        if *count <= RETRIES_MAX {
            return Ok(());
        }
        let (region, unit) = self.regions.split(address);
        Err(self.regions.damage(region, unit, "the trie leads to an address without a record"))
    }

    /// Reads a record that is not in memory, or loads its whole region if that is read often and
    /// there is room. Returns `None` in the second case, and if the region was reused.
    pub(super) fn read_record(
        &self,
        address: u64,
        life: u64,
        key: &[u8],
    ) -> Result<Option<PrefetchedRecord>> {
        let (region, _) = self.regions.split(address);
        if self.regions.is_resident(region)
            || self.wants_load(address) && self.load_region(region)?
        {
            return Ok(None);
        }
        let Some(cold) = self.read_cold(address, life)? else { return Ok(None) };
        let Some(record) = cold.record() else { return Ok(None) };
        Ok(Some(PrefetchedRecord::of(address, life, &record, key)))
    }

    /// Overwrites a record in place if the new one has the same sizes and no checkpoint has the old
    /// one. Returns whether it did.
    pub(super) fn update_in_place(
        &self,
        current: &CurrentRecord,
        head: &RecordHead,
        key: &[u8],
        value: [&[u8]; 2],
    ) -> bool {
        let (region, unit) = self.regions.split(current.address);
        let alike = current.in_memory && current.head == *head && !head.is_extent;
        let frozen = mutant!(TrieUpdatesFrozen: false, else unit < self.regions.frozen(region));
        if !alike || frozen {
            return false;
        }
        let Some(words) = self.regions.words(region, unit) else { return false };
        head.store(words, key, value);
        self.counters.in_place_total.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts a record as dead that is no longer in the trie, and releases its extent. `new_bytes`
    /// are the bytes of the record that replaces it, or 0.
    pub(super) fn count_dead(&self, current: &CurrentRecord, new_bytes: u64) {
        let (region, _) = self.regions.split(current.address);
        self.regions.remove_live(region, current.head.units());
        let bytes = stored_bytes(&current.head, || current.extent);
        if bytes != new_bytes {
            let change = new_bytes.wrapping_sub(bytes);
            self.counters.live_bytes.fetch_add(change, Ordering::Relaxed);
        }
        if let Some(extent) = current.extent {
            self.extents.release(extent.offset, extent.bytes);
        }
    }

    /// As [`Self::count_dead`] for a record that was copied elsewhere: its extent stays in use.
    pub(super) fn count_moved(&self, address: u64, head: &RecordHead) {
        let (region, _) = self.regions.split(address);
        self.regions.remove_live(region, head.units());
    }

    /// A current record that is not in memory.
    pub(super) fn current(
        address: u64,
        head: RecordHead,
        extent: Option<ExtentAddr>,
    ) -> CurrentRecord {
        CurrentRecord { address, head, extent, in_memory: false }
    }

    /// Appends a record to the hot region and returns its address. The caller holds the key's
    /// subtree.
    pub(super) fn append(&self, head: &RecordHead, key: &[u8], value: [&[u8]; 2]) -> Result<u64> {
        let units = head.units();
        loop {
            let hot = self.hot.load(Ordering::Acquire);
            if let Some(region) = hot.checked_sub(1)
                && let Some(unit) = self.regions.reserve(region, units)
            {
                let words = self.regions.words(region, unit).unwrap_or(&[]);
                head.store(words, key, value);
                self.regions.add_live(region, units);
                self.counters.appended_units.fetch_add(units, Ordering::Relaxed);
                return Ok(self.regions.address(region, unit));
            }
            self.begin_hot_region(hot)?;
        }
    }

    /// Begins a new hot region, unless another thread has done so since `seen` was read.
    fn begin_hot_region(&self, seen: u64) -> Result<()> {
        let _roll = lock(&self.roll);
        if self.hot.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let frame = self.reserve_frame_unchecked()?;
        let Some(region) = self.regions.begin_life(frame) else {
            self.regions.release_frame(frame);
            let what = "the table has the maximum number of regions: use several tables".to_owned();
            return Err(Error::Limit { what });
        };
        self.hot.store(region + 1, Ordering::Release);
        if let Some(old) = seen.checked_sub(1) {
            self.regions.seal(old);
        }
        self.charge_index();
        self.count_waste();
        if self.wants_checkpoint() || self.waste_exceeds(self.waste_per_cent_max()) {
            self.context.host.wake();
        }
        Ok(())
    }

    /// Before a write is logged: loads the path of its key, and reads its record if that is not in
    /// memory. Applying the write then needs no disk, which may fail. (Both may be evicted in
    /// between; then applying reads them again.)
    pub(super) fn prefetch_record(&self, key: &[u8]) -> Result<()> {
        self.replay_buffer.end_replay();
        self.merge_key(key)?;
        self.index.load_free_objects(self.has_room_to_load());
        let hash = self.hash(key);
        let mut prefetched: Vec<PrefetchedRecord> = Vec::new();
        let mut retries = 0;
        loop {
            let look = |address| {
                let look = self.regions.read_in_memory(address, |words| {
                    let head = RecordHead::load(words).filter(|head| fits(head, words))?;
                    Some(head.has_key(words, key))
                });
                match look {
                    RegionRead::Found(true) => RecordVerdict::Found(None),
                    RegionRead::Found(false) => RecordVerdict::Other,
                    RegionRead::Changed => RecordVerdict::Changed,
                    RegionRead::Cold(life) => match find_prefetched(&prefetched, address, life) {
                        None => RecordVerdict::Found(Some((address, life))),
                        Some(PrefetchedRecord { current: Some(_), .. }) => {
                            RecordVerdict::Found(None)
                        }
                        Some(_) => RecordVerdict::Other,
                    },
                }
            };
            let unknown = self.index.find(hash, look, |at| self.load_index(at))?;
            let Some((address, life)) = unknown.flatten() else { break };
            self.count_retry(address, &mut retries)?;
            prefetched.extend(self.read_record(address, life, key)?);
        }
        if !prefetched.is_empty() {
            lock(&self.prefetched).entry(hash).or_default().push(prefetched);
            self.counters.prefetched.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Removes and returns the records that were read ahead for a write of this hash.
    pub(super) fn remove_prefetched(&self, hash: u64) -> Vec<PrefetchedRecord> {
        if self.counters.prefetched.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut prefetched = lock(&self.prefetched);
        let Some(of_hash) = prefetched.get_mut(&hash) else { return Vec::new() };
        let records = of_hash.pop().unwrap_or_default();
        self.counters.prefetched.fetch_sub(1, Ordering::Relaxed);
        if of_hash.is_empty() {
            prefetched.remove(&hash);
        }
        records
    }

    /// Evicts one region; `false` if none can be evicted.
    pub(super) fn evict_one(&self) -> bool {
        let evicted = self.regions.evict_one();
        self.is_cold.store(true, Ordering::Relaxed);
        self.counters.evicted_total.fetch_add(u64::from(evicted), Ordering::Relaxed);
        evicted
    }

    /// As [`Self::ensure_room`], for an operation that the log already has. During replay no
    /// checkpoint can be made, but appended records can be written and evicted without one.
    pub(super) fn ensure_room_in_replay(&self, op: &Op<'_>) {
        let needed = self.bytes_needed(op);
        let budget = &self.context.budget;
        let is_short = || needed > 0 && budget.used() + needed > budget.limit();
        while is_short() {
            if !self.evict_one() && !self.evict_index(0) {
                // If the disk fails, the budget is exceeded.
                let flushed = self.flush_appended();
                if flushed.is_err() || !self.evict_one() {
                    break;
                }
            }
        }
    }

    /// Returns a frame: from the budget, or from an evicted region, or beyond the limit, because
    /// the write is acknowledged.
    fn reserve_frame_unchecked(&self) -> Result<u64> {
        loop {
            if let Some(frame) = self.regions.reserve_frame(false) {
                return Ok(frame);
            }
            if !self.evict_one() {
                let frame = self.regions.reserve_frame(true);
                return frame.ok_or_else(|| self.out_of_memory(self.regions.region_bytes()));
            }
        }
    }

    fn out_of_memory(&self, needed: u64) -> Error {
        Error::OutOfMemory { budget: self.context.budget.limit(), needed }
    }

    /// Before a write is logged: makes sure that there is memory for it. Evicts what is in files,
    /// or writes what is not yet. The writer waits for the write of a few regions at most. Fails
    /// with [`Error::OutOfMemory`].
    pub(super) fn ensure_room(&self, op: &Op<'_>) -> Result<()> {
        self.ensure_room_for(op, self.bytes_needed(op))
    }

    /// As [`Self::ensure_room`], for the bytes that [`Self::bytes_needed`] returned.
    pub(super) fn ensure_room_for(&self, op: &Op<'_>, needed: u64) -> Result<()> {
        let budget = &self.context.budget;
        if needed == 0 || budget.used() + needed <= budget.limit() {
            return Ok(());
        }
        let is_delete = matches!(op, Op::Delete { .. });
        let mut flushed = 0;
        while budget.used() + needed > budget.limit() {
            if self.evict_one() || self.evict_index(0) {
                continue;
            }
            if is_delete {
                return Ok(());
            }
            match flushed {
                0 => self.flush_appended()?,
                // Changes of the trie can be evicted once a checkpoint has them.
                1 => self.checkpoint_for_memory()?,
                _ => break,
            }
            flushed += 1;
        }
        // A table needs two regions to work.
        let in_memory = self.regions.memory_bytes() / self.regions.region_bytes();
        let is_large = !needed.is_multiple_of(self.regions.region_bytes());
        budget.reclaim(needed);
        if budget.used() + needed > budget.limit() && (in_memory >= 2 || is_large) {
            return Err(self.out_of_memory(needed));
        }
        Ok(())
    }

    /// Bytes that an operation will reserve: a region if it does not fit in the hot one, and the
    /// bytes of a large value.
    pub(super) fn bytes_needed(&self, op: &Op<'_>) -> u64 {
        let (key, value_bytes) = match op {
            Op::Put { key, head, body } => (key, head.len() + body.len()),
            Op::Delete { key } => (key, 0),
            Op::DeleteRange { .. } => return 0,
        };
        let record = to_u64(HEAD_BYTES + key.len() + value_bytes);
        let large = record > self.regions.region_bytes() / LARGE_PART;
        let in_region = if large { to_u64(key.len() + 64) } else { record };
        let fits = self.hot.load(Ordering::Acquire).checked_sub(1).is_some_and(|region| {
            let (used, sealed) = self.regions.used(region);
            !sealed && used + in_region.div_ceil(UNIT_BYTES) <= self.regions.region_units()
        });
        let region = if fits { 0 } else { self.regions.region_bytes() };
        region + if large { record } else { 0 }
    }
}

fn find_prefetched(
    prefetched: &[PrefetchedRecord],
    address: u64,
    life: u64,
) -> Option<&PrefetchedRecord> {
    prefetched.iter().find(|prefetched| (prefetched.address, prefetched.life) == (address, life))
}

/// Bytes of key and value, in the record or in an extent.
pub(super) fn stored_bytes(head: &RecordHead, extent: impl FnOnce() -> Option<ExtentAddr>) -> u64 {
    let value = if head.is_extent {
        extent().map_or(0, |extent| extent.bytes)
    } else {
        to_u64(head.value_bytes)
    };
    to_u64(head.key_bytes) + value
}

/// The extent's address in a record that does not hold its value.
pub(super) fn extent_of(
    head: &RecordHead,
    words: &[crate::util::sync::AtomicU64],
) -> Option<ExtentAddr> {
    if !head.is_extent || head.value_bytes != EXTENT_ADDR_BYTES {
        return None;
    }
    let mut bytes = [0; EXTENT_ADDR_BYTES];
    head.copy_value(words, &mut bytes);
    ExtentAddr::decode(&bytes)
}

/// Returns whether all of a record is in `words`.
#[inline]
pub(super) fn fits(head: &RecordHead, words: &[crate::util::sync::AtomicU64]) -> bool {
    to_usize(head.units() * UNIT_BYTES / 8) <= words.len()
}
