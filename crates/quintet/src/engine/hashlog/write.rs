//! Writes: puts, deletes, the active chunk, and memory for new entries.
//!
//! A write locks the key's index group, finds the current entry, and replaces it in place or
//! appends a new one. Before the write is logged, [`HashLog::make_room`] makes memory available and
//! [`HashLog::read_ahead`] reads an entry that is not in memory. Applying a logged write needs no
//! disk then, unless the chunk is evicted in between.
//!
//! Locks: one index group a write; `roll` to start a chunk. No group lock is held across a read
//! from disk.

use std::{sync::Arc, time::Duration};

use super::{
    Chunk, FlushState, HashLog, LargeState, LargeValue,
    arena::{ArenaRead, EXTENT_HEAD_UNITS},
    entry::{EntryHead, EntryKind, HEAD_BYTES_MAX, LargeRef, UNIT_BYTES},
    manifest::HINT_HASH_MASK,
};
use crate::{
    Error, Result,
    contract::Op,
    engine::hashlog::index::{GroupGuard, Verdict},
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
    },
};

/// Maximum number of groups that the index grows by after an insert, or shrinks by after a removal.
/// Two keep up with one insert or removal each.
pub(super) const RESIZE_STEPS: u32 = 2;
/// An entry larger than a chunk divided by this stores its value as a large value. It bounds the
/// waste at the end of chunks.
const LARGE_PART: u64 = 4;
/// Number of entries that writers read one by one from a chunk's file before the whole chunk is
/// loaded. This many reads take about as long as the load.
const READS_BEFORE_WARMING: u64 = 8;
/// Writers that fill a chunk in less time are fast: frames are populated ahead of them.
const FILLING_TIME: Duration = Duration::from_millis(100);

/// The current entry of a key.
#[derive(Clone, Copy, Debug)]
struct CurrentEntry {
    address: u64,
    head: EntryHead,
    large: Option<LargeRef>,
    in_memory: bool,
}

/// An entry that a writer read because it is not in memory.
#[derive(Debug)]
pub(super) struct PrefetchedEntry {
    address: u64,
    state: u64,
    /// `None`: it has another key.
    current: Option<CurrentEntry>,
    hash: u64,
}

/// The result of a writer's lookup.
enum WriterLookup {
    Nothing,
    Current(CurrentEntry),
    /// The entry at this address and chunk state must be read first, without the lock.
    Unknown(u64, u64),
}

impl HashLog {
    pub(super) fn put(&self, lsn: Lsn, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let value_bytes = value[0].len() + value[1].len();
        let head =
            EntryHead { kind: EntryKind::Put, key_bytes: key.len(), value_bytes, lsn: lsn.0 };
        let large = to_u64(head.units()) > self.arena.chunk_units() / LARGE_PART;
        if large && value_bytes > 16 {
            return self.put_large(lsn, key, value);
        }
        self.put_entry(head, key, value)
    }

    fn put_large(&self, lsn: Lsn, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let length = value[0].len() + value[1].len();
        let number = self.next_large.fetch_add(1, Ordering::Relaxed);
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            let (front, back) = out.split_at_mut(value[0].len());
            front.copy_from_slice(value[0]);
            back.copy_from_slice(value[1]);
        }
        self.context.budget.reserve_unchecked(to_u64(length));
        self.counters.live_bytes.fetch_add(to_u64(length), Ordering::Relaxed);
        let large = Arc::new(LargeValue {
            number,
            lsn: lsn.0,
            length: to_u64(length),
            state: Mutex::new(LargeState { bytes: Some(bytes), ..LargeState::default() }),
            written: AtomicBool::new(false),
        });
        write(&self.larges).insert(number, large);
        let reference = LargeRef { number, bytes: to_u64(length) }.encode();
        let value_bytes = reference.len();
        let head =
            EntryHead { kind: EntryKind::Large, key_bytes: key.len(), value_bytes, lsn: lsn.0 };
        self.counters.unflushed_units.fetch_add(to_u64(length / UNIT_BYTES), Ordering::Relaxed);
        self.put_entry(head, key, [&reference, &[]])
    }

    fn put_entry(&self, head: EntryHead, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let hash = self.hash(key);
        let mut known = self.take_read_ahead(hash);
        loop {
            let mut writer = self.lock_to_apply(hash);
            match self.find_current(&writer, hash, key, &known) {
                WriterLookup::Unknown(address, state) => {
                    drop(writer);
                    known.extend(self.read_for_write(address, state, key)?);
                }
                WriterLookup::Current(current) if current.head.lsn > head.lsn => {
                    // Replay of an operation that the files already hold.
                    drop(writer);
                    if head.kind == EntryKind::Large {
                        self.discard_large(&value);
                    }
                    return Ok(());
                }
                WriterLookup::Current(current) if self.update_in_place(&current, &head, value) => {
                    return Ok(());
                }
                WriterLookup::Current(current) => {
                    let address = self.append(&head, key, value)?;
                    writer.replace(current.address, address);
                    self.mark_dead(&current);
                    self.counters.live_bytes.fetch_add(size_of(&head), Ordering::Relaxed);
                    return Ok(());
                }
                WriterLookup::Nothing => {
                    let address = self.append(&head, key, value)?;
                    if !writer.insert(address) {
                        return Err(self.out_of_memory(64));
                    }
                    drop(writer);
                    self.counters.live_bytes.fetch_add(size_of(&head), Ordering::Relaxed);
                    self.index.grow(RESIZE_STEPS);
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn delete(&self, lsn: Lsn, key: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        let head = EntryHead {
            kind: EntryKind::Tombstone,
            key_bytes: key.len(),
            value_bytes: 0,
            lsn: lsn.0,
        };
        let mut known = self.take_read_ahead(hash);
        loop {
            let mut writer = self.lock_to_apply(hash);
            match self.find_current(&writer, hash, key, &known) {
                WriterLookup::Unknown(address, state) => {
                    drop(writer);
                    known.extend(self.read_for_write(address, state, key)?);
                }
                WriterLookup::Nothing => return Ok(()),
                WriterLookup::Current(current) if current.head.lsn > head.lsn => return Ok(()),
                WriterLookup::Current(current) => {
                    let address = self.append(&head, key, [&[], &[]])?;
                    writer.remove(current.address);
                    drop(writer);
                    self.index.shrink(RESIZE_STEPS);
                    self.mark_dead(&current);
                    let (chunk, _) = self.arena.split(address);
                    self.arena.add_tombstone(chunk, to_u64(head.units()));
                    self.counters.waste_units.fetch_add(to_u64(head.units()), Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
    }

    /// Locks the group of `hash` and counts the operation. A thread that reads the count and then
    /// waits for writers has waited for all operations in the count.
    fn lock_to_apply(&self, hash: u64) -> GroupGuard<'_> {
        let writer = self.index.lock(hash);
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        writer
    }

    fn find_current(
        &self,
        writer: &GroupGuard<'_>,
        hash: u64,
        key: &[u8],
        known: &[PrefetchedEntry],
    ) -> WriterLookup {
        let found = writer.find(|address| {
            match self.arena.read(address, key, |head, words| (*head, large_of(head, words))) {
                ArenaRead::Found((head, large)) => Some(WriterLookup::Current(CurrentEntry {
                    address,
                    head,
                    large,
                    in_memory: true,
                })),
                ArenaRead::OtherKey => {
                    self.check_collision(address, hash);
                    None
                }
                // Under the group's lock, only eviction changes a chunk.
                ArenaRead::Changed => {
                    Some(WriterLookup::Unknown(address, self.arena.state_of(address)))
                }
                ArenaRead::Cold(state) => {
                    match known
                        .iter()
                        .find(|known| (known.address, known.state) == (address, state))
                    {
                        None => Some(WriterLookup::Unknown(address, state)),
                        Some(PrefetchedEntry { current: Some(current), .. }) => {
                            Some(WriterLookup::Current(*current))
                        }
                        Some(other) => {
                            if (other.hash ^ hash) & HINT_HASH_MASK == 0 {
                                self.set_collided();
                            }
                            None
                        }
                    }
                }
            }
        });
        found.unwrap_or(WriterLookup::Nothing)
    }

    /// Sets `collided` if the key at `address` shares all hash bits of a hint with `hash`.
    #[cold]
    fn check_collision(&self, address: u64, hash: u64) {
        match self.arena.copy(address, self.arena.state_of(address)) {
            ArenaRead::Found((_, key, _)) if (self.hash(&key) ^ hash) & HINT_HASH_MASK == 0 => {
                self.set_collided();
            }
            _ => {}
        }
    }

    fn set_collided(&self) {
        mutant!(HashlogForgetsCollisions => return);
        self.collided.store(true, Ordering::Relaxed);
    }

    /// Reads an entry that is not in memory, or loads its whole chunk. It loads the chunk if there
    /// is memory and more reads are likely: the chunk has entries past the last checkpoint, which
    /// replay needs, or writers have read many of its entries. Returns `None` if the caller must
    /// repeat its lookup.
    fn read_for_write(
        &self,
        address: u64,
        state: u64,
        key: &[u8],
    ) -> Result<Option<PrefetchedEntry>> {
        let (id, _) = self.arena.split(address);
        let likely = self.chunk(id).is_some_and(|chunk| {
            let last = lock(&chunk.flush).extents.iter().map(|extent| extent.last_lsn).max();
            last >= Some(self.opened_complete.load(Ordering::Relaxed))
                || chunk.writer_reads.fetch_add(1, Ordering::Relaxed) >= READS_BEFORE_WARMING
        });
        let warms = likely && self.has_room_to_warm();
        if self.arena.is_resident(id) || warms && self.warm(id)? {
            return Ok(None);
        }
        let Some(cold) = self.read_cold(address, state)? else { return Ok(None) };
        let Some(entry) = cold.entry() else { return Ok(None) };
        let head = entry.head;
        let large = LargeRef::decode(entry.value()).filter(|_| head.kind == EntryKind::Large);
        let current = CurrentEntry { address, head, large, in_memory: false };
        let current = (entry.key() == key).then_some(current);
        Ok(Some(PrefetchedEntry { address, state, current, hash: self.hash(entry.key()) }))
    }

    /// Reads the key's entry before the write is logged, if it is not in memory, so that applying
    /// the write does not depend on the disk. If the chunk is evicted in between, applying reads
    /// it.
    pub(super) fn read_ahead(&self, key: &[u8]) -> Result<()> {
        if self.counters.cold_chunks.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let hash = self.hash(key);
        let mut known: Vec<PrefetchedEntry> = Vec::new();
        loop {
            let unknown =
                self.index.find(hash, |address| match self.arena.read(address, key, |_, _| ()) {
                    ArenaRead::Found(()) => Verdict::Found(None),
                    ArenaRead::OtherKey => Verdict::Other,
                    ArenaRead::Changed => Verdict::Changed,
                    ArenaRead::Cold(state) => {
                        let this = |known: &&PrefetchedEntry| {
                            (known.address, known.state) == (address, state)
                        };
                        match known.iter().find(this) {
                            None => Verdict::Found(Some((address, state))),
                            Some(PrefetchedEntry { current: Some(_), .. }) => Verdict::Found(None),
                            Some(_) => Verdict::Other,
                        }
                    }
                });
            let Some((address, state)) = unknown.flatten() else { break };
            known.extend(self.read_for_write(address, state, key)?);
        }
        if !known.is_empty() {
            lock(&self.read_ahead_entries).entry(hash).or_default().push(known);
            self.counters.read_ahead_count.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Removes and returns the entries that were read ahead for a write of this hash.
    pub(super) fn take_read_ahead(&self, hash: u64) -> Vec<PrefetchedEntry> {
        if self.counters.read_ahead_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut read_ahead = lock(&self.read_ahead_entries);
        let Some(of_hash) = read_ahead.get_mut(&hash) else { return Vec::new() };
        let known = of_hash.pop().unwrap_or_default();
        self.counters.read_ahead_count.fetch_sub(1, Ordering::Relaxed);
        if of_hash.is_empty() {
            read_ahead.remove(&hash);
        }
        known
    }

    /// Updates the entry in place. Returns `false` if its size differs, or it is frozen or not in
    /// memory.
    fn update_in_place(&self, current: &CurrentEntry, head: &EntryHead, value: [&[u8]; 2]) -> bool {
        let (chunk, unit) = self.arena.split(current.address);
        let alike = current.in_memory
            && current.head.kind == EntryKind::Put
            && head.kind == EntryKind::Put
            && current.head.value_bytes == head.value_bytes;
        let frozen = unit < self.arena.frozen(chunk);
        let frozen = mutant!(HashlogUpdatesFrozenEntries: false, else frozen);
        if !alike || frozen {
            return false;
        }
        let Some(words) = self.arena.words(chunk) else { return false };
        let Some(words) = words.get(to_usize(unit)..to_usize(unit) + head.units()) else {
            return false;
        };
        head.update_in_place(words, head.lsn, value);
        self.counters.in_place_total.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts an entry that lost its slot as dead, and drops its large value.
    fn mark_dead(&self, current: &CurrentEntry) {
        let (chunk, unit) = self.arena.split(current.address);
        let units = to_u64(current.head.units());
        self.arena.add_dead(chunk, units);
        self.counters.waste_units.fetch_add(units, Ordering::Relaxed);
        self.counters.live_bytes.fetch_sub(size_of(&current.head), Ordering::Relaxed);
        if let Some(large) = current.large {
            self.counters.live_bytes.fetch_sub(large.bytes, Ordering::Relaxed);
            if unit < self.arena.frozen(chunk) {
                // Files may name it: the checkpoint that holds its replacement drops it.
                lock(&self.dead_larges).push(large.number);
                self.checkpoint_wanted.store(true, Ordering::Relaxed);
            } else {
                self.drop_large(large.number);
            }
        }
    }

    fn discard_large(&self, value: &[&[u8]; 2]) {
        if let Some(large) = LargeRef::decode(value[0]) {
            self.counters.live_bytes.fetch_sub(large.bytes, Ordering::Relaxed);
            self.drop_large(large.number);
        }
    }

    /// Drops a large value that no frozen entry names. It frees the memory now, and a file range
    /// with the next checkpoint.
    fn drop_large(&self, number: u64) {
        let Some(large) = read(&self.larges).get(&number).cloned() else { return };
        let mut state = lock(&large.state);
        if state.file_range.is_some() {
            // A flush has started to write it: the next checkpoint frees its file range.
            lock(&self.dead_larges).push(number);
        } else if let Some(bytes) = state.bytes.take() {
            self.context.budget.release(to_u64(bytes.len()));
            drop(write(&self.larges).remove(&number));
        }
    }

    /// Removes a large value from the table and releases its memory.
    pub(super) fn remove_large(&self, number: u64) -> Option<Arc<LargeValue>> {
        let large = write(&self.larges).remove(&number)?;
        if let Some(bytes) = lock(&large.state).bytes.take() {
            self.context.budget.release(to_u64(bytes.len()));
        }
        Some(large)
    }

    /// Appends an entry to the active chunk, and starts a chunk if it is full. Returns the address.
    /// The caller must hold the key's group.
    fn append(&self, head: &EntryHead, key: &[u8], value: [&[u8]; 2]) -> Result<u64> {
        let units = to_u64(head.units());
        loop {
            let active = self.active.load(Ordering::Acquire);
            if let Some(chunk) = active.checked_sub(1)
                && let Some(unit) = self.arena.reserve(chunk, units)
            {
                let words = self.arena.words(chunk).unwrap_or(&[]);
                let words = words.get(to_usize(unit)..to_usize(unit + units)).unwrap_or(&[]);
                head.store(words, key, value);
                self.counters.units.fetch_add(units, Ordering::Relaxed);
                self.counters.unflushed_units.fetch_add(units, Ordering::Relaxed);
                return Ok(self.arena.address(chunk, unit));
            }
            self.roll_from(active)?;
        }
    }

    /// Seals the active chunk `seen` and starts a new one, unless another thread did.
    pub(super) fn roll_from(&self, seen: u64) -> Result<()> {
        let mut roll = lock(&self.roll);
        if self.active.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        if let Some(old) = seen.checked_sub(1) {
            self.arena.seal(old);
        }
        let frame = self.frame_beyond_limit()?;
        roll.active_order += 2;
        let order = roll.active_order;
        let chunk = self.start_chunk(&mut roll, order, frame)?;
        self.active.store(chunk.id + 1, Ordering::Release);
        let now = self.context.env.monotonic();
        let last = roll.rolled_at.replace(now);
        let fast = last.is_some_and(|last| now.saturating_sub(last) < FILLING_TIME);
        self.arena.set_filling(fast);
        drop(roll);
        self.charge_index();
        let unflushed = self.counters.unflushed_units.load(Ordering::Relaxed);
        if unflushed >= self.mutable_chunks * self.arena.chunk_units()
            || self.waste_exceeds(self.waste_per_cent_max())
            || self.wants_frames()
        {
            self.context.host.wake();
        }
        Ok(())
    }

    /// Returns whether frames are to be populated ahead, and there is memory for them.
    pub(super) fn wants_frames(&self) -> bool {
        self.arena.wants_frames() && self.has_room_to_warm()
    }

    /// Populates frames ahead of fast writers, and releases them if the table is idle.
    pub(super) fn populate_frames(&self) {
        if self.arena.has_populated() && self.is_idle(self.counters.applied.load(Ordering::Relaxed))
        {
            self.arena.release_populated();
        }
        while self.has_room_to_warm() && self.arena.populate_ahead() {}
    }

    /// Returns a frame: from the budget, by eviction, or beyond the limit. The write is
    /// acknowledged, so it cannot be refused.
    ///
    /// Fails with `OutOfMemory` only if the arena's address space is used up.
    pub(super) fn frame_beyond_limit(&self) -> Result<u64> {
        loop {
            if let Some(frame) = self.arena.reserve_frame(false) {
                return Ok(frame);
            }
            if !self.evict_one() {
                let frame = self.arena.reserve_frame(true);
                return frame.ok_or_else(|| self.out_of_memory(self.arena.chunk_bytes()));
            }
        }
    }

    pub(super) fn start_chunk(
        &self,
        roll: &mut super::RollState,
        order: u64,
        frame: u64,
    ) -> Result<Arc<Chunk>> {
        let id = roll.free_ids.pop().unwrap_or_else(|| {
            roll.next_id += 1;
            roll.next_id - 1
        });
        if id >= self.arena.chunks_max() {
            self.arena.release_frame(frame);
            return Err(Error::Limit {
                what: "the table has the maximum number of chunks; use a larger `chunk_bytes`"
                    .to_owned(),
            });
        }
        roll.next_serial += 1;
        let chunk = Arc::new(Chunk {
            id,
            serial: roll.next_serial,
            order,
            created: self.context.env.unix_millis(),
            packed_extents: RwLock::default(),
            span: AtomicU64::new(0),
            written: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            writer_reads: AtomicU64::new(0),
            flush: Mutex::new(FlushState::default()),
        });
        self.arena.begin(id, 0, EXTENT_HEAD_UNITS, false);
        self.arena.attach(id, frame);
        write(&self.chunks).insert(id, Arc::clone(&chunk));
        Ok(chunk)
    }

    fn out_of_memory(&self, needed: u64) -> Error {
        Error::OutOfMemory { budget: self.context.budget.limit(), needed }
    }

    /// Makes memory available for a write before it is logged: compacts if compaction is behind,
    /// evicts chunks that are in files, or flushes chunks. The write may wait for the flush of a
    /// few chunks.
    ///
    /// Fails with `OutOfMemory` if the budget has no memory for the write.
    pub(super) fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.compact_if_behind();
        let (key, value_bytes) = match op {
            Op::Put { key, head, body } => (key, head.len() + body.len()),
            Op::Delete { key } => (key, 0),
            Op::DeleteRange { .. } => return Ok(()),
        };
        let entry = to_u64(HEAD_BYTES_MAX + key.len() + value_bytes);
        let large = entry > self.arena.chunk_bytes() / LARGE_PART;
        let in_chunk = if large { to_u64(key.len()) + 48 } else { entry };
        let fits = self.active.load(Ordering::Acquire).checked_sub(1).is_some_and(|chunk| {
            let (used, sealed) = self.arena.used(chunk);
            !sealed && used + in_chunk.div_ceil(8) <= self.arena.chunk_units()
        });
        let chunk = if fits { 0 } else { self.arena.chunk_bytes() };
        let needed = chunk + if large { entry } else { 0 };
        let budget = &self.context.budget;
        if budget.used() + needed <= budget.limit() || needed == 0 {
            return Ok(());
        }
        self.context.reserve_with_retry(needed, || self.find_room(needed, fits, large))
    }

    /// As [`Self::make_room`], for `needed` bytes. `fits`: the active chunk has room for the entry.
    /// `large`: the entry has a large value.
    fn find_room(&self, needed: u64, fits: bool, large: bool) -> Result<()> {
        let budget = &self.context.budget;
        while budget.used() + needed > budget.limit() {
            if self.evict_one() {
                continue;
            }
            // The active chunk stays open if the entry fits: a chunk sealed after a few entries
            // takes as much memory as a full one.
            self.flush_for_room(!fits)?;
            if !self.evict_one() {
                if fits {
                    self.flush_for_room(true)?;
                }
                if !fits || !self.evict_one() {
                    break;
                }
            }
        }
        // A table needs at least two chunks.
        let in_memory = self.arena.memory_bytes() / self.arena.chunk_bytes();
        budget.reclaim(needed);
        if budget.used() + needed > budget.limit() && (in_memory >= 2 || large) {
            return Err(self.out_of_memory(needed));
        }
        Ok(())
    }

    /// Returns whether a live chunk older than this one exists.
    pub(super) fn has_older(&self, chunk: &Chunk) -> bool {
        let order = (chunk.order, chunk.serial);
        read(&self.chunks).values().any(|other| {
            (other.order, other.serial) < order && !other.retired.load(Ordering::Relaxed)
        })
    }
}

/// Returns the bytes of key and value.
pub(super) fn size_of(head: &EntryHead) -> u64 {
    to_u64(head.key_bytes + head.value_bytes)
}

fn large_of(head: &EntryHead, words: &[AtomicU64]) -> Option<LargeRef> {
    if head.kind != EntryKind::Large {
        return None;
    }
    let mut bytes = [0; 16];
    crate::util::words::copy_out(words, head.value_at(), &mut bytes);
    LargeRef::decode(&bytes)
}
