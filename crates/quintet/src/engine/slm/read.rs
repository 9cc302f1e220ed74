//! Gets and batches of gets.
//!
//! A get asks the memtables, then the index. A key that neither has does not exist. A key that the
//! index has costs one block: from the cache, or one read. The location cache
//! ([`crate::engine::slm::location_cache`]) can save the descent of the index. A batch descends the
//! index together and reads all blocks that the cache lacks at once.
//!
//! Invariant: between the lookup in the index and the lookup of the run, a compaction may move the
//! entry and remove the run. The reader then asks the index again ([`SlmTable::read_moved`]).

use std::sync::Arc;

use super::{
    index_key::IndexKey,
    index_value::{BlockAddress, IndexValue},
    key_code::KeyBuffer,
    location_cache::{Claim, ClaimToken},
    run::SortedRun,
    table::{SlmTable, SuperVersion},
};
use crate::{
    Result,
    bptree::finger::Finger,
    contract::{
        OwnedValue, Presence, Value, ValueSink,
        value_sink::{AppendOwned, ValueLocation},
    },
    io::{AlignedBuffer, Completion, Queue, Request},
    lsm::{
        memtable::Answer,
        sst::{Span, block},
    },
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

/// Keys of a batch that descend the index together.
const WINDOW: usize = 32;
/// Maximum number of blocks of a batch in memory at once.
const READS_MAX: usize = 256;

/// A get of a batch that waits for its block.
struct PendingGet<'k> {
    key: &'k [u8],
    hash: u64,
    /// Index of its value in the output.
    slot: usize,
    run: Arc<SortedRun>,
    block: u32,
    span: Span,
}

impl SlmTable {
    /// Returns the index value of a key, or `None` if the index lacks it.
    #[inline]
    pub(super) fn index_value(&self, key: &[u8]) -> Result<Option<IndexValue>> {
        let mut buffer = KeyBuffer::default();
        let Some(key) = self.keys.index_key(key, &mut buffer) else { return Ok(None) };
        if let Some(index) = self.pool_index() {
            return index.get(key);
        }
        let found = self.paged.tree.get(key.0, IndexValue::from_lookup)?;
        found.map(|index_value| self.decoded(key, index_value)).transpose()
    }

    /// Fails with `Corruption` if the key's value in the index did not decode.
    #[inline]
    fn decoded(&self, key: IndexKey<'_>, index_value: Option<IndexValue>) -> Result<IndexValue> {
        index_value.ok_or_else(|| self.undecodable_value(key))
    }

    /// Returns the address of a key's block, or `None` if the index lacks the key.
    #[inline]
    pub(super) fn locate(&self, key: &[u8]) -> Result<Option<BlockAddress>> {
        Ok(self.index_value(key)?.map(|index_value| index_value.address))
    }

    /// As [`Self::locate`]; cheap for a key near the last one that the finger located.
    pub(super) fn locate_near(
        &self,
        finger: &mut Finger,
        key: IndexKey<'_>,
    ) -> Result<Option<BlockAddress>> {
        if let Some(index) = self.pool_index() {
            return Ok(index.get(key)?.map(|index_value| index_value.address));
        }
        let found = self.paged.tree.get_by_finger(finger, key.0, IndexValue::from_lookup)?;
        found.map(|index_value| Ok(self.decoded(key, index_value)?.address)).transpose()
    }

    /// Returns whether a key has a value, as far as memory and index can tell.
    pub(super) fn exists_hint(&self, key: &[u8]) -> Result<Presence> {
        let view = self.view()?;
        let hash = self.hash(key);
        if !matches!(view.in_memory(hash, key, &mut ValueLocation), Answer::Nothing) {
            return Ok(Presence::InValue);
        }
        Ok(match self.index_value(key)? {
            None => Presence::Absent,
            Some(index_value) if index_value.never_expires => Presence::Present,
            Some(_) => Presence::InValue,
        })
    }

    /// Passes the value of a key to the sink; `None` if the key does not exist.
    #[inline]
    pub(super) fn read_value<T: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut T,
    ) -> Result<Option<T::Output>> {
        let view = self.view()?;
        let hash = self.hash(key);
        self.location_cache.prefetch(hash);
        match view.in_memory(hash, key, sink) {
            Answer::Nothing => self.read_stored(&view, (hash, key), sink),
            answer => Ok(answer.value()),
        }
    }

    /// Reads a key that the memtables of the super version lack: by the location cache, then by the
    /// index.
    #[inline]
    pub(super) fn read_stored<T: ValueSink>(
        &self,
        view: &SuperVersion,
        (hash, key): (u64, &[u8]),
        sink: &mut T,
    ) -> Result<Option<T::Output>> {
        let there = |index_value| self.read_at_location(view, index_value, key, sink);
        let lookup = self.location_cache.lookup(hash);
        if let Some(output) = lookup.as_ref().and_then(|lookup| lookup.find(there)) {
            return Ok(Some(output));
        }
        let token = ClaimToken::default();
        let claim = lookup.and_then(|lookup| lookup.claim(&token));
        self.read_indexed(view, (hash, key), claim, sink)
    }

    /// Reads a key through the index, and fills the claimed word of the location cache.
    #[inline]
    pub(super) fn read_indexed<T: ValueSink>(
        &self,
        view: &SuperVersion,
        (hash, key): (u64, &[u8]),
        claim: Option<Claim<'_>>,
        sink: &mut T,
    ) -> Result<Option<T::Output>> {
        let Some(index_value) = self.index_value(key)? else { return Ok(None) };
        let address = index_value.address;
        match view.version.find(address.run) {
            Some(run) => {
                run.prefetch(index_value, &self.cache);
                if let Some(claim) = claim.filter(|_| run.is_cacheable()) {
                    claim.fill(index_value);
                }
                self.read_at((run, address.block), (hash, key), sink).map(Some)
            }
            None => self.read_moved(address, (hash, key), sink),
        }
    }

    /// Reads a key at a cached location. Returns `None` unless its block is cached and the key's
    /// entry is the only one that begins in that part of the block.
    #[inline]
    fn read_at_location<T: ValueSink>(
        &self,
        view: &SuperVersion,
        index_value: IndexValue,
        key: &[u8],
        sink: &mut T,
    ) -> Option<T::Output> {
        let run = view.version.find(index_value.address.run)?;
        let at = run.entry_offsets(index_value)?;
        run.prefetch(index_value, &self.cache);
        self.cache.find_key_at(run.sst.slot(index_value.address.block), at, key, sink)
    }

    /// Reads a key whose run the super version lacks: the run is newer, or a compaction removed it.
    #[cold]
    fn read_moved<T: ValueSink>(
        &self,
        mut address: BlockAddress,
        (hash, key): (u64, &[u8]),
        sink: &mut T,
    ) -> Result<Option<T::Output>> {
        loop {
            let view = self.write_buffer.view.load();
            if let Some(run) = view.version.find(address.run) {
                return self.read_at((run, address.block), (hash, key), sink).map(Some);
            }
            match self.locate(key)? {
                None => return Ok(None),
                Some(now) if now == address => {
                    return Err(self.missing_run(key.escape_ascii(), address));
                }
                Some(now) => address = now,
            }
        }
    }

    /// Reads a key from a block. Fails with `Corruption` if the block lacks it.
    #[inline]
    fn read_at<T: ValueSink>(
        &self,
        (run, number): (&SortedRun, u32),
        (hash, key): (u64, &[u8]),
        sink: &mut T,
    ) -> Result<T::Output> {
        match self.cache.find(run.sst.slot(number), (hash, key), sink) {
            Some(Answer::Value(value)) => Ok(value),
            Some(_) => Err(run.missing_key(number, key)),
            None => self.read_block(run, number, key, sink),
        }
    }

    /// As [`Self::read_at`], from disk; the cache is filled.
    #[cold]
    fn read_block<T: ValueSink>(
        &self,
        run: &SortedRun,
        number: u32,
        key: &[u8],
        sink: &mut T,
    ) -> Result<T::Output> {
        if number >= run.sst.blocks() {
            return Err(run.missing_key(number, key));
        }
        let span = run.sst.span(number..number + 1);
        self.count_read(span);
        let mut buffer = self.buffers.lend(span.whole());
        run.sst.read_into(span, &mut buffer)?;
        let output = self.find_in_block((run, number), (span, &buffer), key, sink);
        self.buffers.keep(buffer);
        output
    }

    /// Counts a disk read.
    pub(super) fn count_read(&self, span: Span) {
        self.counters.reads_total.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes_total.fetch_add(to_u64(span.whole()), Ordering::Relaxed);
    }

    /// Finds a key in a block that was read, and fills the cache with the block.
    fn find_in_block<T: ValueSink>(
        &self,
        (run, number): (&SortedRun, u32),
        (span, buffer): (Span, &AlignedBuffer),
        key: &[u8],
        sink: &mut T,
    ) -> Result<T::Output> {
        let open = run.sst.open_block(buffer, span, (number, number))?;
        let entries = open.entries();
        self.cache.fill(run.sst.slot_to_fill(number, &self.cache), entries);
        let entry = block::find(entries, key).filter(|entry| !entry.tombstone);
        let entry = entry.ok_or_else(|| run.missing_key(number, key))?;
        Ok(sink.of_bytes(entries.get(entry.value).unwrap_or(&[])))
    }

    /// Appends the value of each key, in the order of `keys`.
    pub(super) fn read_many(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        let view = self.view()?;
        let mut pending = Vec::new();
        for window in keys.chunks(WINDOW) {
            self.look_up_window(&view, window, out, &mut pending)?;
        }
        if pending.is_empty() {
            return Ok(());
        }
        self.queues.with(&*self.context.env, |queue| {
            pending.chunks(READS_MAX).try_for_each(|pending| self.read_blocks(pending, queue, out))
        })
    }

    /// Looks some keys up in memtables, index and cache; those that need a read go to `pending`.
    fn look_up_window<'k>(
        &self,
        view: &SuperVersion,
        keys: &[&'k [u8]],
        out: &mut Vec<Option<Value>>,
        pending: &mut Vec<PendingGet<'k>>,
    ) -> Result<()> {
        let mut wanted: Vec<(&'k [u8], u64, usize)> = Vec::with_capacity(keys.len());
        for key in keys {
            let hash = self.hash(key);
            match view.in_memory(hash, key, &mut AppendOwned(out)) {
                Answer::Value(()) => {}
                Answer::Deleted => out.push(None),
                Answer::Nothing => {
                    wanted.push((key, hash, out.len()));
                    out.push(None);
                }
            }
        }
        if !self.keys.is_decided() {
            return Ok(());
        }
        let (mut coded, mut ends) = (Vec::new(), Vec::with_capacity(wanted.len()));
        for (key, ..) in &wanted {
            self.keys.push(key, &mut coded);
            ends.push(coded.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let bounds = starts.zip(ends.iter().copied());
        let stored: Vec<&[u8]> = bounds.map(|(from, to)| &coded[from..to]).collect();
        let mut values = Vec::with_capacity(stored.len());
        if let Some(index) = self.pool_index() {
            for key in &stored {
                values.push(index.get(IndexKey(key))?.map(Some));
            }
        } else {
            self.paged.tree.multi_get(&stored, IndexValue::from_lookup, &mut values)?;
        }
        for index_value in values.iter().flatten().flatten() {
            if let Some(run) = view.version.find(index_value.address.run) {
                run.prefetch(*index_value, &self.cache);
            }
        }
        let wanted = wanted.into_iter().zip(&stored);
        for (((key, hash, slot), coded), index_value) in wanted.zip(values) {
            let Some(index_value) = index_value else { continue };
            let address = self.decoded(IndexKey(coded), index_value)?.address;
            let Some(run) = view.version.find(address.run) else {
                set_value(out, slot, self.read_moved(address, (hash, key), &mut OwnedValue)?);
                continue;
            };
            match self.cache.find(run.sst.slot(address.block), (hash, key), &mut OwnedValue) {
                Some(Answer::Value(value)) => set_value(out, slot, Some(value)),
                None if address.block < run.sst.blocks() => {
                    let span = run.sst.span(address.block..address.block + 1);
                    let (run, block) = (Arc::clone(run), address.block);
                    pending.push(PendingGet { key, hash, slot, run, block, span });
                }
                _ => return Err(run.missing_key(address.block, key)),
            }
        }
        Ok(())
    }

    /// Reads one block for each key, all at once. On failure, returns the first error.
    fn read_blocks(
        &self,
        pending: &[PendingGet<'_>],
        queue: &mut dyn Queue,
        out: &mut [Option<Value>],
    ) -> Result<()> {
        for (token, one) in pending.iter().enumerate() {
            self.count_read(one.span);
            let buffer = self.buffers.lend(one.span.whole());
            let length = buffer.len();
            let (file, offset) = (Arc::clone(one.run.sst.file()), one.span.offset);
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length });
        }
        let (mut done, mut outcome) = (Vec::new(), Ok(()));
        while queue.pending() > 0 {
            queue.wait(1, &mut done);
            for Completion { token, buffer, result } in done.drain(..) {
                let Some(one) = pending.get(to_usize(token)) else { continue };
                let value = match result {
                    Ok(count) if count == buffer.len() => {
                        let read = (one.span, &buffer);
                        self.find_in_block((&one.run, one.block), read, one.key, &mut OwnedValue)
                    }
                    // A single read returns the error.
                    _ => self.read_at((&one.run, one.block), (one.hash, one.key), &mut OwnedValue),
                };
                match value {
                    Ok(value) => set_value(out, one.slot, Some(value)),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
                self.buffers.keep(buffer);
            }
        }
        outcome
    }
}

fn set_value(out: &mut [Option<Value>], slot: usize, value: Option<Value>) {
    if let Some(place) = out.get_mut(slot) {
        *place = value;
    }
}
