//! Reads: gets from memory and from disk, multi-gets, scans.
//!
//! A get from memory hashes the key, reads one index line, and copies the value. It keeps the copy
//! only if neither the entry nor its chunk changed meanwhile. [`super::cold`] reads entries from
//! the disk.
//!
//! Locks: none while entries are in memory. [`HashLog::scan_from`] locks one index group at a time.

use super::{
    arena::{ArenaRead, copy_value},
    cold_entry::{ColdEntry, ColdRead},
    entry::{EntryHead, EntryKind, LargeRef, StoredEntry},
    files::label,
    index::SlotTable,
    table::HashLog,
};
use crate::{
    Error, Result,
    contract::{Cursor, Entry, FoundValue, HashOrder, OwnedValue, Value, ValueSink},
    io::Completion,
    record_store::segments::{NO_FRAME, frame_in},
    util::{
        codec::Decoder,
        sync::{AtomicU64, Backoff, Ordering},
        words::copy_out,
    },
};

/// Keys of a multi-get whose cache misses overlap.
const BATCH: usize = 32;

/// An entry that needs a longer read is not prefetched.
const PREFETCH_BYTES_MAX: usize = 32 << 10;

/// Maximum number of times that one read is repeated because its entry changed. Beyond it, no
/// writer is the cause: the entry names a large value that does not exist, so the table is damaged.
const ATTEMPTS_MAX: u32 = 1_000;
const MISLED: &str = "an index slot points at an entry without a value";

/// The result of a lookup in memory.
#[derive(Debug)]
enum MemoryLookup {
    /// The value was passed to the reader.
    Passed,
    Large(LargeRef),
    /// The entry is not in memory: its address, and word 0 of its chunk.
    Cold(u64, u64),
}

/// Receives the results of a multi-get, each with the position of its key.
type MultiGetResults<'a> = dyn FnMut(usize, Option<FoundValue<'_>>) -> Result<()> + 'a;

/// The result of a lookup in an entry read from the disk.
#[derive(Debug)]
enum ColdLookup {
    Value(Value),
    OtherKey,
    /// The chunk changed, or the value moved: repeat the lookup.
    Changed,
}

impl HashLog {
    #[inline]
    pub(super) fn read_with<S: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut S,
    ) -> Result<Option<S::Output>> {
        let hash = self.hash(key);
        let mut output = None;
        let mut take = |head: &EntryHead, words: &[AtomicU64]| {
            output = Some(sink.of_words(words, (head.value_at(), head.value_bytes)));
        };
        match self.answer(key, hash, &[], &mut take) {
            None => Ok(None),
            Some(MemoryLookup::Passed) => Ok(output),
            Some(answer) => {
                let value = self.read_slowly(key, hash, answer)?;
                Ok(value.map(|value| sink.of_value(value)))
            }
        }
    }

    pub(super) fn read_value(&self, key: &[u8]) -> Result<Option<Value>> {
        self.read_with(key, &mut OwnedValue)
    }

    /// Looks the key up in memory. Entries in `others` are known to have other keys. `take` gets
    /// the value. It is called again if the value changed meanwhile; the last call counts.
    #[inline]
    fn answer(
        &self,
        key: &[u8],
        hash: u64,
        others: &[(u64, u64)],
        take: &mut impl FnMut(&EntryHead, &[AtomicU64]),
    ) -> Option<MemoryLookup> {
        let mut candidates = self.index.candidates(hash);
        while let Some(address) = candidates.next() {
            let answer = match self.arena.entry_at(address, self.arena.state_of(address), key) {
                ArenaRead::Found(entry) => {
                    let answer = answer_of(&entry.head, entry.words, take);
                    let is_current = self.arena.is_current(&entry);
                    // No slot points at an entry without a value, unless the manifest is wrong.
                    if is_current && answer.is_none() {
                        continue;
                    }
                    answer.filter(|_| is_current)
                }
                ArenaRead::OtherKey => continue,
                ArenaRead::Changed => None,
                ArenaRead::Cold(state) if others.contains(&(address, state)) => continue,
                ArenaRead::Cold(state) => Some(MemoryLookup::Cold(address, state)),
            };
            if answer.is_some() && candidates.is_current() {
                return answer;
            }
            candidates.restart();
        }
        None
    }

    #[cold]
    fn read_slowly(&self, key: &[u8], hash: u64, first: MemoryLookup) -> Result<Option<Value>> {
        self.resolve(key, hash, (Some(first), None), Vec::new())
    }

    /// Resolves an answer to a value: reads the entry or the large value that it names. Entries in
    /// `others` have other keys.
    fn resolve(
        &self,
        key: &[u8],
        hash: u64,
        first: (Option<MemoryLookup>, Option<Value>),
        mut others: Vec<(u64, u64)>,
    ) -> Result<Option<Value>> {
        let (mut answer, mut value) = first;
        let mut patience = Backoff::default();
        while patience.count() < ATTEMPTS_MAX {
            match answer {
                None => return Ok(None),
                Some(MemoryLookup::Passed) => return Ok(value),
                Some(MemoryLookup::Large(large)) => {
                    if let Some(value) = self.read_large(large)? {
                        return Ok(Some(value));
                    }
                    // It was dropped meanwhile, so the key has another entry now.
                }
                Some(MemoryLookup::Cold(address, state)) => {
                    let cold = self.read_cold(address, state)?;
                    match self.value_in(key, cold.as_ref())? {
                        ColdLookup::Value(value) => return Ok(Some(value)),
                        ColdLookup::OtherKey => others.push((address, state)),
                        ColdLookup::Changed => {}
                    }
                }
            }
            patience.wait();
            (answer, value) = self.answer_with_value(key, hash, &others);
        }
        let label = label(self.owner.table_id, "");
        Err(Error::corruption(label, 0, MISLED))
    }

    fn answer_with_value(
        &self,
        key: &[u8],
        hash: u64,
        others: &[(u64, u64)],
    ) -> (Option<MemoryLookup>, Option<Value>) {
        let mut value = None;
        let answer = self.answer(key, hash, others, &mut |head, words| {
            value = Some(Value::fill_with(head.value_bytes, |out| copy_value(head, words, out)));
        });
        (answer, value)
    }

    /// Returns the value that an entry from the disk has for `key`.
    fn value_in(&self, key: &[u8], cold: Option<&ColdEntry>) -> Result<ColdLookup> {
        let Some(entry) = cold.and_then(ColdEntry::entry) else { return Ok(ColdLookup::Changed) };
        if entry.key() != key {
            self.counters.false_reads_total.fetch_add(1, Ordering::Relaxed);
            return Ok(ColdLookup::OtherKey);
        }
        if entry.head.kind != EntryKind::Large {
            return Ok(ColdLookup::Value(value_of(&entry)));
        }
        let large = LargeRef::decode(entry.value());
        let value = large.map_or(Ok(None), |large| self.read_large(large))?;
        Ok(value.map_or(ColdLookup::Changed, ColdLookup::Value))
    }

    /// Returns whether the key has an entry. Reads the disk as often as needed: a copied tombstone
    /// would outrank an entry that was missed.
    pub(super) fn has_entry(&self, hash: u64, key: &[u8]) -> Result<bool> {
        let mut others = Vec::new();
        loop {
            match self.answer(key, hash, &others, &mut |_, _| {}) {
                None => return Ok(false),
                Some(MemoryLookup::Passed | MemoryLookup::Large(_)) => return Ok(true),
                Some(MemoryLookup::Cold(address, state)) => {
                    if let Some(cold) = self.read_cold(address, state)?
                        && let Some(entry) = cold.entry()
                    {
                        if entry.key() == key {
                            return Ok(true);
                        }
                        others.push((address, state));
                    }
                }
            }
        }
    }

    /// Looks many keys up. Prefetches the index lines of a batch, then the entries, then reads
    /// them; entries on disk are read together at the end.
    pub(super) fn read_many(&self, keys: &[&[u8]], each: &mut MultiGetResults<'_>) -> Result<()> {
        let mut cold = Vec::new();
        let mut scratch = Vec::new();
        for (number, batch) in keys.chunks(BATCH).enumerate() {
            let (mut hashes, mut seen) = ([0; BATCH], [None; BATCH]);
            self.prefetch_entries(batch, &mut hashes, &mut seen);
            for (index, ((key, hash), seen)) in batch.iter().zip(hashes).zip(seen).enumerate() {
                let index = number * BATCH + index;
                match self.answer_at(key, hash, seen, &mut scratch) {
                    None => each(index, None)?,
                    Some(MemoryLookup::Passed) => each(index, Some(FoundValue::Bytes(&scratch)))?,
                    Some(MemoryLookup::Cold(address, state)) => cold.push((index, address, state)),
                    Some(answer) => {
                        let value = self.read_slowly(key, hash, answer)?;
                        each(index, value.map(FoundValue::Value))?;
                    }
                }
            }
        }
        if cold.is_empty() { Ok(()) } else { self.read_many_cold(keys, &cold, each) }
    }

    /// Prefetches the entries of a batch of keys: their index lines first. Sets for each key its
    /// hash and what [`Self::prefetch_entry`] returns.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call costs 20 of 1,030 instructions of a key")]
    fn prefetch_entries(
        &self,
        batch: &[&[u8]],
        hashes: &mut [u64; BATCH],
        seen: &mut [Option<(u64, u64)>; BATCH],
    ) {
        for (hash, key) in hashes.iter_mut().zip(batch) {
            *hash = self.hash(key);
            self.index.prefetch(*hash);
        }
        for ((seen, hash), _) in seen.iter_mut().zip(hashes).zip(batch) {
            *seen = self.prefetch_entry(*hash);
        }
    }

    /// Prefetches for gets of `keys`: index lines and entries into the processor's caches, and what
    /// is not in memory from the disk, with concurrent requests. Leaves errors to the gets.
    pub(super) fn prefetch_gets(&self, keys: &[&[u8]]) {
        for keys in keys.chunks(BATCH) {
            let mut seen = [None; BATCH];
            self.prefetch_entries(keys, &mut [0; BATCH], &mut seen);
            if self.counters.cold_chunks.load(Ordering::Relaxed) > 0 {
                self.prefetch_cold(&seen);
            }
        }
    }

    fn prefetch_cold(&self, seen: &[Option<(u64, u64)>]) {
        // If the entry has moved since, a chunk in memory may count as one that is not. Its state
        // differs then, so no read is planned.
        let is_cold = |(_, state): &(u64, u64)| frame_in(*state).is_none();
        let mut cold: Vec<(u64, u64)> = seen.iter().copied().flatten().filter(is_cold).collect();
        cold.sort_unstable();
        cold.dedup();
        self.prefetched.retain_missing(&mut cold);
        let planned = cold.into_iter().filter_map(|place| {
            let read = self.cold_read(place.0, place.1)?;
            (read.bytes <= PREFETCH_BYTES_MAX).then_some((place, read))
        });
        let mut planned: Vec<((u64, u64), ColdRead)> = planned.collect();
        let longest = planned.iter().map(|(_, read)| read.span().2).max().unwrap_or_default();
        planned.truncate(self.prefetched.room(longest));
        // One alone is read as soon by its get.
        if planned.len() < 2 {
            return;
        }
        self.ask_for_warming();
        let Ok(completions) = self.transfer_cold(planned.iter().map(|(_, read)| read)) else {
            return;
        };
        for ((place, read), completion) in planned.iter().zip(completions) {
            let (_, skip, span) = read.span();
            if completion.result.is_ok_and(|count| count >= span)
                && let Ok(Some(entry)) =
                    self.finish_cold(place.0, place.1, read, completion.buffer, skip)
            {
                self.prefetched.add(*place, entry);
            }
        }
    }

    /// Prefetches the first entry that may be that of a hash's key. Returns its address and the
    /// state of its chunk, or [`NO_FRAME`] if the entry moved meanwhile. `None`: no entry is the
    /// key's.
    #[inline]
    fn prefetch_entry(&self, hash: u64) -> Option<(u64, u64)> {
        let mut candidates = self.index.candidates(hash);
        let address = candidates.next()?;
        let state = self.arena.prefetch(address);
        Some((address, if candidates.is_current() { state } else { NO_FRAME }))
    }

    /// Looks a key up at the address and chunk state that an earlier search of the index found, or
    /// anew if the state is [`NO_FRAME`]. The address was the key's since the batch began, if the
    /// entry has this key. Writes the value to `out`.
    #[inline]
    fn answer_at(
        &self,
        key: &[u8],
        hash: u64,
        seen: Option<(u64, u64)>,
        out: &mut Vec<u8>,
    ) -> Option<MemoryLookup> {
        let (address, state) = seen?;
        let mut take = |head: &EntryHead, words: &[AtomicU64]| {
            out.resize(head.value_bytes, 0);
            copy_value(head, words, out);
        };
        if let ArenaRead::Found(entry) = self.arena.entry_at(address, state, key)
            && let Some(answer) = answer_of(&entry.head, entry.words, &mut take)
            && self.arena.is_current(&entry)
        {
            return Some(answer);
        }
        self.answer(key, hash, &[], &mut take)
    }

    /// Reads many entries from the disk with concurrent requests.
    fn read_many_cold(
        &self,
        keys: &[&[u8]],
        cold: &[(usize, u64, u64)],
        each: &mut MultiGetResults<'_>,
    ) -> Result<()> {
        self.ask_for_warming();
        let reads = cold.iter().map(|(_, address, state)| self.cold_read(*address, *state));
        let reads: Vec<Option<ColdRead>> = reads.collect();
        let mut done = self.transfer_cold(reads.iter().flatten())?.into_iter();
        for ((index, address, state), read) in cold.iter().zip(&reads) {
            let Some(key) = keys.get(*index) else { continue };
            let value = match read.as_ref().and_then(|read| Some((read, done.next()?))) {
                Some((read, completion)) => {
                    self.complete_cold(key, *address, *state, read, completion)?
                }
                None => self.read_value(key)?,
            };
            each(*index, value.map(FoundValue::Value))?;
        }
        Ok(())
    }

    fn complete_cold(
        &self,
        key: &[u8],
        address: u64,
        state: u64,
        request: &ColdRead,
        completion: Completion,
    ) -> Result<Option<Value>> {
        let (offset, skip, span) = request.span();
        let count =
            completion.result.map_err(|error| request.file_range.read_error(offset, error))?;
        if count < span {
            return self.read_value(key);
        }
        let cold = self.finish_cold(address, state, request, completion.buffer, skip)?;
        match self.value_in(key, cold.as_ref())? {
            ColdLookup::Value(value) => Ok(Some(value)),
            ColdLookup::OtherKey => {
                let (hash, others) = (self.hash(key), vec![(address, state)]);
                self.resolve(key, hash, self.answer_with_value(key, hash, &others), others)
            }
            ColdLookup::Changed => self.read_value(key),
        }
    }

    /// Appends the addresses of an index group to `each`, with the state of each chunk.
    /// [`HashLog::read_entry`] reads only from the generation in that state. Returns the next
    /// group's cursor.
    pub(super) fn walk(&self, cursor: u64, each: &mut Vec<(u64, u64)>) -> Option<u64> {
        self.index.walk(cursor, |address| each.push((address, self.arena.state_of(address))))
    }

    /// Returns key and value of the entry at `address`; `None` if it was dropped or its chunk has
    /// another generation.
    pub(super) fn read_entry(&self, address: u64, state: u64) -> Result<Option<Entry>> {
        let (id, _) = self.arena.split(address);
        let (head, key, value) = match self.arena.copy(address, state) {
            ArenaRead::Found(found) => found,
            ArenaRead::Changed | ArenaRead::OtherKey => return Ok(None),
            ArenaRead::Cold(state) => {
                debug_assert!(id < self.arena.count_max());
                let Some(cold) = self.read_cold(address, state)? else { return Ok(None) };
                let Some(entry) = cold.entry() else { return Ok(None) };
                (entry.head, entry.key().to_vec(), entry.value().to_vec())
            }
        };
        let value = match head.kind {
            EntryKind::Put => Some(Value::from(value)),
            EntryKind::Tombstone => return Err(self.misled(id)),
            EntryKind::Large => match LargeRef::decode(&value) {
                Some(large) => self.read_large(large)?,
                None => None,
            },
        };
        Ok(value.map(|value| Entry { key, value }))
    }

    /// Returns the error for a manifest or an entry that is wrong although its checksums match.
    #[cold]
    fn misled(&self, chunk: u64) -> Error {
        let chunk = self.chunk(chunk);
        let file_range = chunk.as_ref().and_then(|chunk| chunk.file_range());
        let label = label(self.owner.table_id, "");
        file_range.map_or_else(
            || Error::corruption(label, 0, MISLED),
            |file_range| file_range.damage(0, MISLED),
        )
    }

    pub(super) fn scan_from(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        let mut cursor = decode_cursor(from)?;
        let mut entries = Vec::new();
        let mut addresses = Vec::new();
        let mut patience = Backoff::default();
        while entries.len() < limit.max(1) {
            addresses.clear();
            let next = self.walk(cursor, &mut addresses);
            let before = entries.len();
            let mut whole = true;
            for (address, state) in &addresses {
                match self.read_entry(*address, *state)? {
                    Some(entry) => entries.push(entry),
                    None => whole = false,
                }
            }
            if !whole {
                // An entry moved between the walk and the read: repeat the group.
                entries.truncate(before);
                if let (Some((address, _)), true) =
                    (addresses.first(), patience.count() > ATTEMPTS_MAX)
                {
                    return Err(self.misled(self.arena.split(*address).0));
                }
                // The thread that moves it may need this processor.
                patience.wait();
                continue;
            }
            match next {
                None => return Ok((entries, Cursor::START)),
                Some(next) => (cursor, patience) = (next, Backoff::default()),
            }
        }
        Ok((entries, Cursor(cursor.to_le_bytes().to_vec())))
    }
}

impl HashOrder for HashLog {
    fn position(&self, _key: &[u8], hash: u64) -> u64 {
        SlotTable::cursor_of(hash & self.hash_mask).reverse_bits()
    }

    fn cursor_position(&self, cursor: &Cursor) -> Result<u64> {
        decode_cursor(cursor).map(u64::reverse_bits)
    }
}

fn decode_cursor(cursor: &Cursor) -> Result<u64> {
    if cursor.is_start() {
        return Ok(0);
    }
    let mut decoder = Decoder::new(&cursor.0);
    decoder.u64().filter(|_| decoder.is_empty()).ok_or_else(Cursor::unknown)
}

#[inline]
fn answer_of(
    head: &EntryHead,
    words: &[AtomicU64],
    take: &mut impl FnMut(&EntryHead, &[AtomicU64]),
) -> Option<MemoryLookup> {
    match head.kind {
        EntryKind::Put => {
            take(head, words);
            Some(MemoryLookup::Passed)
        }
        EntryKind::Large => {
            let mut bytes = [0; 16];
            copy_out(words, head.value_at(), &mut bytes);
            LargeRef::decode(&bytes).map(MemoryLookup::Large)
        }
        EntryKind::Tombstone => None,
    }
}

fn value_of(entry: &StoredEntry<'_>) -> Value {
    let bytes = entry.value();
    Value::fill_with(bytes.len(), |out| out.copy_from_slice(bytes))
}
