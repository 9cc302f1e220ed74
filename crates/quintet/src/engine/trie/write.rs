//! Writes: puts and deletes, the region that receives appends, and memory for them.
//!
//! A put holds the lock of its key's subtree while it finds the current record and replaces it. It
//! reads no record from disk under that lock: it releases the lock, reads the record, and searches
//! again.

use std::sync::Arc;

use super::{
    Trie,
    record::{HEAD_BYTES, Head, PLACE_BYTES, Place, Stored},
};
use crate::{
    Error, Result,
    contract::Op,
    engine::trie::{
        index::{MISLED_MAX, Spot, Verdict, Writer},
        store::regions::{Look, UNIT_BYTES},
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
pub(super) struct Current {
    pub(super) address: u64,
    pub(super) head: Head,
    place: Option<Place>,
    in_memory: bool,
}

/// A record that was read from disk ahead of a write.
#[derive(Debug)]
pub(super) struct Known {
    address: u64,
    life: u64,
    /// The record, or `None` if it is another key's.
    current: Option<Current>,
}

impl Known {
    /// Compares a record from disk with a key.
    pub(super) fn of(address: u64, life: u64, record: &Stored<'_>, key: &[u8]) -> Self {
        let head = record.head;
        let place = Place::decode(record.value()).filter(|_| head.is_extent);
        let current = Current { address, head, place, in_memory: false };
        Self { address, life, current: (record.key() == key).then_some(current) }
    }

    pub(super) fn current(&self) -> Option<Current> {
        self.current
    }
}

/// The result of a writer's search.
pub(super) enum Found {
    /// The key's record, and the position of its word.
    Current(Current, Spot),
    /// A record that has to be read first, without the lock: address and life of its region.
    Unknown(u64, u64),
}

impl Trie {
    /// Stores a value under a key. The operation is in the log already.
    pub(super) fn put(&self, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        match self.form(key, value) {
            (head, None) => self.put_record(head, key, value),
            (head, Some(place)) => self.put_record(head, key, [&place, &[]]),
        }
    }

    /// Returns the head of the record that a key gets. If the value is too large for a region,
    /// stores it in the extents and also returns the extent's address, which the record holds in
    /// its place.
    #[inline]
    pub(super) fn form(&self, key: &[u8], value: [&[u8]; 2]) -> (Head, Option<[u8; PLACE_BYTES]>) {
        let value_bytes = value[0].len() + value[1].len();
        let head = Head { key_bytes: key.len(), value_bytes, is_extent: false };
        if head.units() <= self.regions.region_units() / LARGE_PART || value_bytes <= PLACE_BYTES {
            return (head, None);
        }
        let place = self.put_large(value_bytes, value).encode();
        (Head { key_bytes: key.len(), value_bytes: PLACE_BYTES, is_extent: true }, Some(place))
    }

    #[cold]
    fn put_large(&self, value_bytes: usize, value: [&[u8]; 2]) -> Place {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, value_bytes).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            let (front, back) = out.split_at_mut(value[0].len());
            front.copy_from_slice(value[0]);
            back.copy_from_slice(value[1]);
        }
        let crc = crc32c(&bytes);
        self.counters.fresh_units.fetch_add(to_u64(value_bytes) / UNIT_BYTES, Ordering::Relaxed);
        Place { offset: self.extents.put(bytes), bytes: to_u64(value_bytes), crc }
    }

    fn put_record(&self, head: Head, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let hash = self.hash(key);
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        let new_bytes = stored_bytes(&head, || Place::decode(value[0]));
        let (mut known, mut misled) = (self.take_learned(hash), 0);
        let mut writer = self.index.lock(hash);
        loop {
            match self.find_current(&writer, key, &known)? {
                Some(Found::Unknown(address, life)) => {
                    drop(writer);
                    self.count_misled(address, &mut misled)?;
                    known.extend(self.learn(address, life, key)?);
                    writer = self.index.lock(hash);
                }
                Some(Found::Current(current, _)) if self.exchange(&current, &head, key, value) => {
                    break;
                }
                Some(Found::Current(current, spot)) => {
                    let address = self.append(&head, key, value)?;
                    writer.exchange(spot, address);
                    self.bury(&current, new_bytes);
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
        let (mut known, mut misled) = (self.take_learned(hash), 0);
        let mut writer = self.index.lock(hash);
        loop {
            match self.find_current(&writer, key, &known)? {
                Some(Found::Unknown(address, life)) => {
                    drop(writer);
                    self.count_misled(address, &mut misled)?;
                    known.extend(self.learn(address, life, key)?);
                    writer = self.index.lock(hash);
                }
                Some(Found::Current(current, _)) => {
                    writer.remove(current.address)?;
                    self.bury(&current, 0);
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// Compares a record in memory with a key; `None` if it is another key's.
    pub(super) fn look_for(&self, address: u64, key: &[u8]) -> Look<Option<Current>> {
        self.regions.look(address, |words| {
            let head = Head::load(words).filter(|head| head.bytes() / 8 <= words.len())?;
            let place = place_of(&head, words);
            let current = Current { address, head, place, in_memory: true };
            Some(head.has_key(words, key).then_some(current))
        })
    }

    /// Finds the current record of a key whose subtree is locked. `known` are records read from
    /// disk. Returns `None` if the key has no record.
    pub(super) fn find_current(
        &self,
        writer: &Writer<'_>,
        key: &[u8],
        known: &[Known],
    ) -> Result<Option<Found>> {
        let found = writer.find(|address| {
            match self.look_for(address, key) {
                Look::Found(current) => current.map(Ok),
                // Under the subtree's lock only eviction changes a region.
                Look::Changed => {
                    let life = self.regions.life(self.regions.split(address).0);
                    Some(Err((address, life)))
                }
                Look::Cold(life) => match find_known(known, address, life) {
                    None => Some(Err((address, life))),
                    Some(known) => known.current.map(Ok),
                },
            }
        })?;
        Ok(found.map(|(found, spot)| match found {
            Ok(current) => Found::Current(current, spot),
            Err((address, life)) => Found::Unknown(address, life),
        }))
    }

    /// Counts an address that gave no answer. Fails with [`Error::Corruption`] after [`MISLED_MAX`]
    /// of them.
    pub(super) fn count_misled(&self, address: u64, count: &mut u32) -> Result<()> {
        *count += 1;
        if *count <= MISLED_MAX {
            return Ok(());
        }
        let (region, unit) = self.regions.split(address);
        Err(self.regions.damage(region, unit, "the trie leads to an address without a record"))
    }

    /// Reads a record that is not in memory, or loads its whole region if that is read often and
    /// there is room. Returns `None` in the second case, and if the region was reused.
    pub(super) fn learn(&self, address: u64, life: u64, key: &[u8]) -> Result<Option<Known>> {
        let (region, _) = self.regions.split(address);
        if self.regions.is_resident(region) || self.wants_warming(address) && self.warm(region)? {
            return Ok(None);
        }
        let Some(cold) = self.read_cold(address, life)? else { return Ok(None) };
        let Some(record) = cold.record() else { return Ok(None) };
        Ok(Some(Known::of(address, life, &record, key)))
    }

    /// Overwrites a record in place if the new one has the same sizes and no checkpoint has the old
    /// one. Returns whether it did.
    pub(super) fn exchange(
        &self,
        current: &Current,
        head: &Head,
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
    pub(super) fn bury(&self, current: &Current, new_bytes: u64) {
        let (region, _) = self.regions.split(current.address);
        self.regions.remove_live(region, current.head.units());
        let bytes = stored_bytes(&current.head, || current.place);
        if bytes != new_bytes {
            let change = new_bytes.wrapping_sub(bytes);
            self.counters.live_bytes.fetch_add(change, Ordering::Relaxed);
        }
        if let Some(place) = current.place {
            self.extents.release(place.offset, place.bytes);
        }
    }

    /// As [`Self::bury`] for a record that was copied elsewhere: its extent stays in use.
    pub(super) fn bury_moved(&self, address: u64, head: &Head) {
        let (region, _) = self.regions.split(address);
        self.regions.remove_live(region, head.units());
    }

    /// A current record that is not in memory.
    pub(super) fn current(address: u64, head: Head, place: Option<Place>) -> Current {
        Current { address, head, place, in_memory: false }
    }

    /// Appends a record to the hot region and returns its address. The caller holds the key's
    /// subtree.
    pub(super) fn append(&self, head: &Head, key: &[u8], value: [&[u8]; 2]) -> Result<u64> {
        let units = head.units();
        loop {
            let hot = self.hot.load(Ordering::Acquire);
            if let Some(region) = hot.checked_sub(1)
                && let Some(unit) = self.regions.reserve(region, units)
            {
                let words = self.regions.words(region, unit).unwrap_or(&[]);
                head.store(words, key, value);
                self.regions.add_live(region, units);
                self.counters.fresh_units.fetch_add(units, Ordering::Relaxed);
                return Ok(self.regions.address(region, unit));
            }
            self.roll_from(hot)?;
        }
    }

    /// Begins a new hot region, unless another thread has done so since `seen` was read.
    fn roll_from(&self, seen: u64) -> Result<()> {
        let _roll = lock(&self.roll);
        if self.hot.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let frame = self.frame_anyway()?;
        let Some(region) = self.regions.begin(frame) else {
            self.regions.give_frame(frame);
            let what = "the table has the maximum number of regions: use several tables".to_owned();
            return Err(Error::Limit { what });
        };
        self.hot.store(region + 1, Ordering::Release);
        if let Some(old) = seen.checked_sub(1) {
            self.regions.seal(old);
        }
        self.charge_index();
        self.count_waste();
        if self.wants_cut() || self.waste_exceeds(self.waste_per_cent_max()) {
            self.context.host.wake();
        }
        Ok(())
    }

    /// Before a write is logged: loads the path of its key, and reads its record if that is not in
    /// memory. Applying the write then needs no disk, which may fail. (Both may be evicted in
    /// between; then applying reads them again.)
    pub(super) fn learn_ahead(&self, key: &[u8]) -> Result<()> {
        self.young.end_replay();
        self.merge_key(key)?;
        self.index.load_free_objects(self.has_room_to_warm());
        let hash = self.hash(key);
        let mut known: Vec<Known> = Vec::new();
        let mut misled = 0;
        loop {
            let look = |address| {
                let look = self.regions.look(address, |words| {
                    let head = Head::load(words).filter(|head| fits(head, words))?;
                    Some(head.has_key(words, key))
                });
                match look {
                    Look::Found(true) => Verdict::Found(None),
                    Look::Found(false) => Verdict::Other,
                    Look::Changed => Verdict::Changed,
                    Look::Cold(life) => match find_known(&known, address, life) {
                        None => Verdict::Found(Some((address, life))),
                        Some(Known { current: Some(_), .. }) => Verdict::Found(None),
                        Some(_) => Verdict::Other,
                    },
                }
            };
            let unknown = self.index.find(hash, look, |at| self.load_index(at))?;
            let Some((address, life)) = unknown.flatten() else { break };
            self.count_misled(address, &mut misled)?;
            known.extend(self.learn(address, life, key)?);
        }
        if !known.is_empty() {
            lock(&self.learned).entry(hash).or_default().push(known);
            self.counters.learned.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Removes and returns the records that were read ahead for a write of this hash.
    pub(super) fn take_learned(&self, hash: u64) -> Vec<Known> {
        if self.counters.learned.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut learned = lock(&self.learned);
        let Some(of_hash) = learned.get_mut(&hash) else { return Vec::new() };
        let known = of_hash.pop().unwrap_or_default();
        self.counters.learned.fetch_sub(1, Ordering::Relaxed);
        if of_hash.is_empty() {
            learned.remove(&hash);
        }
        known
    }

    /// Evicts one region; `false` if none can be evicted.
    pub(super) fn evict_one(&self) -> bool {
        let evicted = self.regions.evict_one();
        self.is_cold.store(true, Ordering::Relaxed);
        self.counters.evicted_total.fetch_add(u64::from(evicted), Ordering::Relaxed);
        evicted
    }

    /// As [`Self::make_room`], for an operation that the log already has. During replay no
    /// checkpoint can be made, but appended records can be written and evicted without one.
    pub(super) fn make_room_in_replay(&self, op: &Op<'_>) {
        let needed = self.room_for(op);
        let budget = &self.context.budget;
        let is_short = || needed > 0 && budget.used() + needed > budget.limit();
        while is_short() {
            if !self.evict_one() && !self.evict_index(0) {
                // If the disk fails, the budget is exceeded.
                let flushed = self.flush_for_room();
                if flushed.is_err() || !self.evict_one() {
                    break;
                }
            }
        }
    }

    /// Returns a frame: from the budget, or from an evicted region, or beyond the limit, because
    /// the write is acknowledged.
    fn frame_anyway(&self) -> Result<u64> {
        loop {
            if let Some(frame) = self.regions.take_frame(false) {
                return Ok(frame);
            }
            if !self.evict_one() {
                let frame = self.regions.take_frame(true);
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
    pub(super) fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.find_room(op, self.room_for(op))
    }

    /// As [`Self::make_room`], for the bytes that [`Self::room_for`] returned.
    pub(super) fn find_room(&self, op: &Op<'_>, needed: u64) -> Result<()> {
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
                0 => self.flush_for_room()?,
                // Changes of the trie can be evicted once a checkpoint has them.
                1 => self.flush_all()?,
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
    pub(super) fn room_for(&self, op: &Op<'_>) -> u64 {
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

fn find_known(known: &[Known], address: u64, life: u64) -> Option<&Known> {
    known.iter().find(|known| (known.address, known.life) == (address, life))
}

/// Bytes of key and value, in the record or in an extent.
pub(super) fn stored_bytes(head: &Head, place: impl FnOnce() -> Option<Place>) -> u64 {
    let value = if head.is_extent {
        place().map_or(0, |place| place.bytes)
    } else {
        to_u64(head.value_bytes)
    };
    to_u64(head.key_bytes) + value
}

/// The extent's address in a record that does not hold its value.
pub(super) fn place_of(head: &Head, words: &[crate::util::sync::AtomicU64]) -> Option<Place> {
    if !head.is_extent || head.value_bytes != PLACE_BYTES {
        return None;
    }
    let mut bytes = [0; PLACE_BYTES];
    head.copy_value(words, &mut bytes);
    Place::decode(&bytes)
}

/// Returns whether all of a record is in `words`.
#[inline]
pub(super) fn fits(head: &Head, words: &[crate::util::sync::AtomicU64]) -> bool {
    to_usize(head.units() * UNIT_BYTES / 8) <= words.len()
}
