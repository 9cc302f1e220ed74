//! Reads: gets from memory and from disk, and scans. Batched gets are in [`super::batch`].
//!
//! A get from memory reads two or three words of the trie and the record, and copies the value. The
//! copy counts only if neither the subtree nor the region changed meanwhile. A get from disk makes
//! one direct read of the blocks around the record and verifies the record's checksum. If the
//! budget has room and the region is read often, it loads the whole region, which then stays in
//! memory.

use super::{
    Trie,
    record::{DiskRecord, ExtentAddr, RecordHead},
    write::{extent_of, fits},
};
use crate::{
    Error, Result,
    contract::{Cursor, Entry, OwnedValue, Value, ValueSink},
    engine::trie::{
        index::RecordVerdict,
        replay_buffer::ReplayBufferAnswer,
        store::regions::{RegionRead, UNIT_BYTES},
    },
    io::{AlignedBuffer, prefetch},
    util::{
        codec::{Decoder, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Ordering, lock},
        words::copy_out,
    },
};

/// Single-record reads from a region before the whole region is loaded, if there is room.
const COLD_READS_MAX: u64 = 8;
/// Times that a scan reads a list without a lock before it locks the subtree.
const SCAN_ATTEMPTS: u32 = 8;

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
    buffer: AlignedBuffer,
    skip: usize,
    life: u64,
    unit: u64,
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

/// Compares the record in `words` with a key, and passes its value to `on_value` if they match.
/// Returns `None` if the words are not a record.
#[inline]
pub(super) fn answer_in(
    words: &[AtomicU64],
    key: &[u8],
    on_value: &mut impl FnMut(&RecordHead, &[AtomicU64]),
) -> Option<KeyMatch> {
    // Where the value begins is known only once the first line has arrived, so the next two are
    // prefetched along with it.
    for line in [8, 16] {
        if let Some(word) = words.get(line) {
            prefetch(word);
        }
    }
    let head = RecordHead::load(words).filter(|head| fits(head, words))?;
    if !head.has_key(words, key) {
        return Some(KeyMatch::OtherKey);
    }
    if head.is_extent {
        return extent_of(&head, words).map(|extent| KeyMatch::Key(RecordValue::InExtent(extent)));
    }
    on_value(&head, words);
    Some(KeyMatch::Key(RecordValue::Delivered))
}

impl Trie {
    /// Looks a key up and passes its value to `sink`. Returns `None` if the key has no record.
    #[inline]
    pub(super) fn read_with<S: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut S,
    ) -> Result<Option<S::Output>> {
        let hash = self.hash(key);
        let mut output = None;
        let mut on_value = |head: &RecordHead, words: &[AtomicU64]| {
            output = Some(sink.of_words(words, (head.value_at(), head.value_bytes)));
        };
        match self.answer(key, hash, &[], &mut on_value)? {
            None => Ok(None),
            Some(RecordValue::Delivered) => Ok(output),
            Some(answer) => {
                let value = self.read_slowly(key, hash, answer)?;
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
        key: &[u8],
        hash: u64,
        others: &[(u64, u64)],
        on_value: &mut impl FnMut(&RecordHead, &[AtomicU64]),
    ) -> Result<Option<RecordValue>> {
        if !self.replay_buffer.is_empty()
            && let Some(answer) = self.buffered_answer(key, hash, on_value)
        {
            return match answer {
                ReplayBufferAnswer::Deleted => Ok(None),
                ReplayBufferAnswer::Record(answer) => Ok(Some(answer)),
            };
        }
        let look = |address| match self
            .regions
            .read_in_memory(address, |words| answer_in(words, key, on_value))
        {
            RegionRead::Found(KeyMatch::Key(answer)) => RecordVerdict::Found(answer),
            RegionRead::Found(KeyMatch::OtherKey) => RecordVerdict::Other,
            RegionRead::Changed => RecordVerdict::Changed,
            RegionRead::Cold(life) if others.contains(&(address, life)) => RecordVerdict::Other,
            RegionRead::Cold(life) => RecordVerdict::Found(RecordValue::OnDisk(address, life)),
        };
        self.index.find(hash, look, |at| self.load_index(at))
    }

    /// As [`Self::answer`], with a copy of the value if it was in memory.
    #[inline]
    fn answer_with_value(
        &self,
        key: &[u8],
        hash: u64,
        others: &[(u64, u64)],
    ) -> Result<(Option<RecordValue>, Option<Value>)> {
        let mut value = None;
        let mut on_value = |head: &RecordHead, words: &[AtomicU64]| {
            value = Some(Value::fill_with(head.value_bytes, |out| head.copy_value(words, out)));
        };
        let answer = self.answer(key, hash, others, &mut on_value)?;
        Ok((answer, value))
    }

    /// Finishes a lookup whose value is not in the record in memory: reads from disk, and looks the
    /// key up again until it has the value. Fails with [`Error::Corruption`] if the same record or
    /// extent fails to verify again.
    #[cold]
    pub(super) fn read_slowly(
        &self,
        key: &[u8],
        hash: u64,
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
                        match self.value_of(&record, key)? {
                            ColdMatch::Value(value) => return Ok(Some(value)),
                            ColdMatch::Other => others.push((address, life)),
                            ColdMatch::Replaced => {}
                        }
                    }
                }
            }
            (answer, value) = self.answer_with_value(key, hash, &others)?;
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
        let writer = self.index.lock(self.hash(key));
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

    fn extent_damage(&self, extent: ExtentAddr) -> Error {
        let what = "the checksum of a large value does not match";
        Error::corruption(self.extents.label(), extent.offset, what)
    }

    /// Reads a value from the extents. Returns `None` if its checksum does not match.
    pub(super) fn read_large(&self, extent: ExtentAddr) -> Result<Option<Value>> {
        let bytes = self.extents.read(extent.offset, extent.bytes, extent.crc)?;
        Ok(bytes.map(Value::shared))
    }

    /// Reads a record from disk: one read, or two if it is larger than its region's span. Returns
    /// `None` if its region was reused or the record is not in the file: the caller looks the key
    /// up again.
    pub(super) fn read_cold(&self, address: u64, life: u64) -> Result<Option<ColdRecord>> {
        let (region, unit) = self.regions.split(address);
        if life == 0 || unit >= self.regions.written(region) {
            return Ok(None);
        }
        self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
        let (buffer, skip) = self.regions.read(region, unit, self.regions.span(region))?;
        self.finish_cold(address, life, buffer, skip)
    }

    /// Verifies the record at `skip` in `buffer`, and reads more if the buffer does not hold all of
    /// it. Returns `None` if the region was reused; fails with [`Error::Corruption`] if it was not
    /// and the checksum does not match.
    pub(super) fn finish_cold(
        &self,
        address: u64,
        life: u64,
        mut buffer: AlignedBuffer,
        mut skip: usize,
    ) -> Result<Option<ColdRecord>> {
        let (region, unit) = self.regions.split(address);
        let head = DiskRecord::head(buffer.as_slice().get(skip..).unwrap_or(&[]));
        let units = head.map_or(0, |head| head.units());
        let whole = unit + units <= self.regions.written(region);
        if skip + to_usize(units * UNIT_BYTES) > buffer.len() && whole {
            (buffer, skip) = self.regions.read(region, unit, units)?;
        }
        let cold = ColdRecord { buffer, skip, life, unit };
        if cold.record().is_some() {
            return Ok(Some(cold));
        }
        if self.regions.life(region) != life {
            return Ok(None);
        }
        Err(self.regions.damage(region, unit, "the checksum of a record does not match"))
    }

    /// Counts a read of a record that is on disk only. Returns whether the whole region should be
    /// loaded: it is read often, and there is room.
    pub(super) fn wants_load(&self, address: u64) -> bool {
        let (region, _) = self.regions.split(address);
        self.has_room_to_load() && self.regions.count_cold(region) >= COLD_READS_MAX
    }

    /// Loads a region if the budget has room for it. Returns whether it is in memory now.
    pub(super) fn load_region(&self, region: u64) -> Result<bool> {
        let _one = lock(&self.loading);
        if self.regions.is_resident(region) {
            return Ok(true);
        }
        let life = self.regions.life(region);
        let Some(frame) = self.regions.reserve_frame(false) else { return Ok(false) };
        let _buffer = self.context.budget.reserve_transient(self.regions.region_bytes());
        match self.fill_frame(region, life, frame) {
            Ok(true) => {
                self.regions.attach_to(region, life, frame);
                Ok(true)
            }
            Ok(false) => {
                self.regions.release_frame(frame);
                Ok(false)
            }
            Err(error) => {
                self.regions.release_frame(frame);
                Err(error)
            }
        }
    }

    /// Reads and verifies all of a region into a frame; `false` if the region was reused meanwhile.
    fn fill_frame(&self, region: u64, life: u64, frame: u64) -> Result<bool> {
        let bytes = self.regions.read_whole(region)?;
        let damage = Self::find_damage(bytes.as_slice(), life);
        if self.regions.life(region) != life || life == 0 {
            return Ok(false);
        }
        if let Some(unit) = damage {
            let what = "the checksum of a record does not match";
            return Err(self.regions.damage(region, unit, what));
        }
        let (chunks, _) = bytes.as_slice().as_chunks::<8>();
        for (word, chunk) in self.regions.frame(frame).iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Returns the first unit in the bytes of a region at which a record fails to verify.
    pub(super) fn find_damage(bytes: &[u8], life: u64) -> Option<u64> {
        mutant!(TrieSkipsRecordChecksum => return None);
        let mut damage = None;
        super::record::walk(bytes, 0, |unit, head| {
            let record = bytes.get(to_usize(unit * UNIT_BYTES)..).unwrap_or(&[]);
            let sound = head.is_some() && DiskRecord::verify(record, life, unit).is_some();
            if !sound {
                damage = damage.or(Some(unit));
            }
        });
        damage
    }

    /// Returns a page of a scan in the order of hashes. A cursor is the path at which the scan
    /// continues.
    pub(super) fn scan_from(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        self.merge_all()?;
        let mut path = if from.is_start() {
            0
        } else {
            let mut rest = Decoder::new(&from.0);
            let path = rest.u64().filter(|path| rest.is_empty() && *path != 0);
            path.ok_or_else(|| Error::Limit {
                what: "the cursor is not one that a scan returned".to_owned(),
            })?
        };
        let mut entries = Vec::new();
        loop {
            match self.scan_list(path, &mut entries)? {
                None => return Ok((entries, Cursor::START)),
                Some(next) => path = next,
            }
            if entries.len() >= limit.max(1) {
                mutant!(TrieScanSkips => path = self.skip_path(path)?);
                return Ok((entries, Cursor(path.to_le_bytes().to_vec())));
            }
        }
    }

    /// Appends the entries at one path and returns the next path.
    fn scan_list(&self, path: u64, entries: &mut Vec<Entry>) -> Result<Option<u64>> {
        let before = entries.len();
        let mut addresses = Vec::new();
        for _ in 0..SCAN_ATTEMPTS {
            let version = self.index.version(path);
            addresses.clear();
            let next = self.index.walk(path, &mut addresses, |at| self.load_index(at))?;
            let whole = self.read_entries(&addresses, entries, false)?;
            if whole && self.index.is_version(path, version) {
                return Ok(next);
            }
            entries.truncate(before);
        }
        let mut retries = 0;
        loop {
            let writer = self.index.lock(path);
            addresses.clear();
            let next = writer.walk(path, &mut addresses)?;
            if self.read_entries(&addresses, entries, true)? {
                return Ok(next);
            }
            entries.truncate(before);
            self.count_retry(addresses.first().copied().unwrap_or(0), &mut retries)?;
        }
    }

    /// Appends the entries at these addresses; `false` if one of them is no longer a record.
    fn read_entries(
        &self,
        addresses: &[u64],
        entries: &mut Vec<Entry>,
        is_locked: bool,
    ) -> Result<bool> {
        for address in addresses {
            let Some((key, value)) = self.read_entry(*address, is_locked)? else {
                return Ok(false);
            };
            entries.push(Entry { key, value });
        }
        Ok(true)
    }

    /// Returns key and value at an address, or `None` if there is no record now. `is_locked` says
    /// that the caller holds the subtree's lock.
    fn read_entry(&self, address: u64, is_locked: bool) -> Result<Option<(Vec<u8>, Value)>> {
        let found = self.regions.read_in_memory(address, |words| {
            let head = RecordHead::load(words).filter(|head| fits(head, words))?;
            let mut key = vec![0; head.key_bytes];
            copy_out(words, super::record::HEAD_BYTES, &mut key);
            let value = Value::fill_with(head.value_bytes, |out| head.copy_value(words, out));
            Some((key, head.is_extent, value))
        });
        let (key, is_extent, value) = match found {
            RegionRead::Found(found) => found,
            RegionRead::Changed => return Ok(None),
            RegionRead::Cold(life) => {
                let Some(cold) = self.read_cold(address, life)? else { return Ok(None) };
                let Some(record) = cold.record() else { return Ok(None) };
                let value = record.value();
                let value = Value::fill_with(value.len(), |out| out.copy_from_slice(value));
                (record.key().to_vec(), record.head.is_extent, value)
            }
        };
        if !is_extent {
            return Ok(Some((key, value)));
        }
        let Some(extent) = ExtentAddr::decode(&value) else { return Ok(None) };
        if let Some(value) = self.read_large(extent)? {
            return Ok(Some((key, value)));
        }
        if is_locked {
            return Err(self.extent_damage(extent));
        }
        // Replaced since, or damaged: a get finds out which.
        Ok(self.read_value(&key)?.map(|value| (key, value)))
    }
}

/// A record read from disk, compared with a key.
pub(super) enum ColdMatch {
    Value(Value),
    Other,
    Replaced,
}
