//! Scans of the index in key order, in both directions, with the entries' values.
//!
//! How: a step copies some values out of the index. The scan prefetches their cached blocks, and
//! reads the missing blocks ahead ([`read_ahead`]). Then it returns the entries one by one, in the
//! memory of their blocks. Steps grow with the length of the scan. They start larger if earlier
//! ranges found neighbours together on disk.
//!
//! If an entry's block is cached and the index value says where the entry begins, the key comes
//! from the entry. Then no key of the index is decoded, hashed or searched. [`IndexScan::key`]
//! decodes the key for callers that need it before the entry.
//!
//! Invariant: a scan holds the files that it reads from. If a file was removed before the scan
//! opened it, or a block has left the cache since, the scan asks the index again for that key.
//!
//! Thread rules: one thread uses a scan. It takes no lock of the table.

#![deny(clippy::indexing_slicing)]

mod read_ahead;

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use self::read_ahead::{ScanReadAhead, WantedBlock};
use super::fragmentation::ScanFragmentation;
use crate::{
    Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    contract::{ValueSink, Visit, value_sink::IntoBuffer},
    engine::slm::{
        index_key::{FIRST_KEY, IndexKey, IndexKeyCodec},
        index_value::{BlockAddress, IndexValue},
        key_code::DecodeState,
        run::{RunSet, SortedRun},
        table::SlmTable,
    },
    lsm::{cursor::merge::Direction, memtable::Answer},
};

/// Entries of the first and of the second step. Every second step doubles the size. Doubling at
/// each step would copy twice as much in all, and most ranges are short.
const FIRST_STEP: usize = 16;
/// Number of doublings: the largest step has 1024 entries.
const DOUBLINGS: u32 = 6;
/// Maximum number of index leaves that a step reads from disk at once.
const LEAVES_AHEAD_MAX: isize = 16;
/// Number of small steps that ranges skip if recent ranges found neighbours together on disk. A
/// range that waits for the disk anyway loses less by reading too much than by waiting again.
const SKIPPED_STEPS: u32 = 4;
/// Number of entries that are prefetched into processor caches ahead of the current one.
const LOOKAHEAD: usize = 16;
/// Values of at least this size are passed to the visitor in the cache's memory, without a copy.
const IN_PLACE_BYTES: usize = 512;

/// An entry that a step has copied out of the index.
#[derive(Clone, Copy, Debug)]
struct ScanItem {
    value: IndexValue,
    /// Index of its run in [`IndexScan::runs`]; `None` if the run was removed before.
    run: Option<u32>,
}

impl ScanItem {
    /// Returns the run of the entry.
    fn run_in(self, runs: &RunSet) -> Option<&Arc<SortedRun>> {
        runs.at(self.run?)
    }
}

/// Returns the key that has `left` keys from itself to the end, among concatenated keys with the
/// end of each.
#[inline]
fn key_at<'k>((keys, ends): (&'k [u8], &[usize]), left: usize) -> Option<&'k [u8]> {
    let index = ends.len().checked_sub(left)?;
    let end = *ends.get(index)?;
    let start = index.checked_sub(1).and_then(|before| ends.get(before)).copied();
    keys.get(start.unwrap_or(0)..end)
}

/// A scan of the index in one direction. See the module head.
#[derive(Debug)]
pub(super) struct IndexScan {
    direction: Direction,
    /// The part of the index that is not copied yet: from `ascent.start` up, or from `ascent.end`
    /// down.
    ascent: ForwardScan,
    /// Number of steps taken.
    steps: u32,
    /// The keys and values of the step, in scan order, as the index stores them.
    index_run: EntryRun,
    /// The decoded values of `index_run`.
    items: Vec<ScanItem>,
    /// Index of the current entry in `items`.
    next: usize,
    /// User keys of the entries up to `restored`, one after the other.
    keys: Vec<u8>,
    /// The end of each key in `keys`.
    key_ends: Vec<usize>,
    /// Entries before this index have their user keys in `keys`, or are passed.
    restored: usize,
    /// Decoder of user keys.
    decode_state: DecodeState,
    /// The last user key that came from an entry.
    last_key: Vec<u8>,
    /// Entries before this index are prefetched into processor caches.
    prefetched: usize,
    /// Blocks of entries before this index are cached or read.
    loaded: usize,
    /// Blocks of entries before this index are cached or requested.
    requested: usize,
    ahead: ScanReadAhead,
    /// The runs at the time after the step was copied.
    runs: Arc<RunSet>,
    /// Counts the runs of a range query; `None` for other scans.
    fragmentation: Option<ScanFragmentation>,
    /// The last value was large: the next one is passed on without a copy.
    expects_large: bool,
}

impl IndexScan {
    /// Creates a scan over the keys from `start` (included) to `end` (excluded).
    pub(super) fn new(
        keys: &IndexKeyCodec,
        direction: Direction,
        (start, end): (&[u8], Option<&[u8]>),
        fragmentation: Option<ScanFragmentation>,
    ) -> Self {
        let bound = |key: &[u8]| {
            let mut bound = Vec::new();
            keys.push(key, &mut bound).then_some(bound)
        };
        let start = bound(start).map(|start| start.max(FIRST_KEY.to_vec()));
        let is_empty = start.is_none();
        let mut ascent = ForwardScan::new(start.unwrap_or_default(), end.and_then(bound));
        // While the coding is not chosen the index is empty, and the scan stays empty.
        ascent.is_over |= is_empty;
        Self {
            direction,
            ascent,
            steps: 0,
            index_run: EntryRun::default(),
            items: Vec::new(),
            next: 0,
            keys: Vec::new(),
            key_ends: Vec::new(),
            restored: 0,
            decode_state: DecodeState::default(),
            last_key: Vec::new(),
            prefetched: 0,
            loaded: 0,
            requested: 0,
            ahead: ScanReadAhead::default(),
            runs: Arc::default(),
            fragmentation,
            expects_large: false,
        }
    }

    /// Passes the current entry to `each` and returns its answer; `None` if the entry was removed.
    /// A large value is passed in the cache's memory, a small one in `buffer`.
    pub(super) fn visit_entry(
        &mut self,
        table: &SlmTable,
        buffer: &mut Vec<u8>,
        each: Visit<'_>,
    ) -> Result<Option<ControlFlow<()>>> {
        if self.next >= self.loaded {
            self.load(table);
        }
        if let Some(flow) = self.visit_at_offset(table, buffer, each)? {
            return Ok(Some(flow));
        }
        self.restore(table)?;
        if self.expects_large
            && let Some(flow) = self.visit_contiguous(table, each)?
        {
            return Ok(Some(flow));
        }
        let found = self.value(table, &mut IntoBuffer(buffer))?;
        self.expects_large = buffer.len() >= IN_PLACE_BYTES;
        let key = self.key().filter(|_| found.is_some());
        key.map(|key| each(key, buffer)).transpose()
    }

    /// As [`Self::visit_entry`], of an entry whose block is cached and whose offset is known;
    /// otherwise `None`.
    fn visit_at_offset(
        &mut self,
        table: &SlmTable,
        buffer: &mut Vec<u8>,
        each: Visit<'_>,
    ) -> Result<Option<ControlFlow<()>>> {
        let Some(item) = self.current() else { return Ok(None) };
        let address = item.value.address;
        if !self.ahead.is_empty() && self.ahead.mark_needed(address, self.next) {
            return Ok(None);
        }
        let Some(run) = item.run_in(&self.runs) else { return Ok(None) };
        let Some(at) = run.entry_offsets(item.value) else { return Ok(None) };
        let slot = run.sst.slot(address.block);
        let flow = if self.expects_large {
            let mut bytes = 0;
            let flow = table.cache.show_at(slot, at, |key, value| {
                debug_assert!(self.is_at(table, key), "{address:?} is not the block of its key");
                bytes = value.len();
                each(key, value)
            });
            if flow.is_some() {
                self.expects_large = bytes >= IN_PLACE_BYTES;
            }
            flow
        } else {
            let found = table.cache.find_at(slot, at, &mut self.last_key, &mut IntoBuffer(buffer));
            self.expects_large = buffer.len() >= IN_PLACE_BYTES;
            debug_assert!(
                found.is_none() || self.is_at(table, &self.last_key),
                "{address:?} is not the block of its key"
            );
            found.map(|()| each(&self.last_key, buffer))
        };
        if flow.is_some()
            && let Some(fragmentation) = &mut self.fragmentation
        {
            fragmentation.record(address.run);
        }
        flow.transpose()
    }

    /// As [`Self::visit_entry`], of a value that is contiguous in memory; otherwise `None`.
    fn visit_contiguous(
        &mut self,
        table: &SlmTable,
        each: Visit<'_>,
    ) -> Result<Option<ControlFlow<()>>> {
        let Some(item) = self.current() else { return Ok(None) };
        let Some(run) = item.run_in(&self.runs) else { return Ok(None) };
        let address = item.value.address;
        let Some(key) = key_at((&self.keys, &self.key_ends), self.restored - self.next) else {
            return Ok(None);
        };
        let mut bytes = 0;
        let pass_on = |value: &[u8]| {
            bytes = value.len();
            each(key, value)
        };
        let flow = if let Some(found) = self.ahead.find(address, key) {
            found.value().map(pass_on)
        } else {
            let slot = run.sst.slot(address.block);
            table
                .cache
                .with_pinned_value(slot, (table.hash(key), key), pass_on)
                .and_then(Answer::value)
        };
        if flow.is_some() {
            self.expects_large = bytes >= IN_PLACE_BYTES;
            if let Some(fragmentation) = &mut self.fragmentation {
                fragmentation.record(address.run);
            }
        }
        flow.transpose()
    }

    /// Ends the scan: returns read buffers, and records the runs of a range query.
    pub(super) fn end(self, table: &SlmTable) {
        self.ahead.end(table);
        if let Some(fragmentation) = self.fragmentation {
            fragmentation.end(table);
        }
    }

    /// Returns the current entry.
    fn current(&self) -> Option<ScanItem> {
        self.items.get(self.next).copied()
    }

    /// Whether this is the key of the current entry.
    fn is_at(&self, table: &SlmTable, key: &[u8]) -> bool {
        let mut index_key = Vec::new();
        table.keys.push(key, &mut index_key) && self.index_key().is_some_and(|at| at.0 == index_key)
    }

    /// Returns the current key as the index stores it.
    pub(super) fn index_key(&self) -> Option<IndexKey<'_>> {
        self.index_run.entry(self.next).map(|(key, _)| IndexKey(key))
    }

    /// Returns the current user key; `None` before [`Self::restore`].
    pub(super) fn key(&self) -> Option<&[u8]> {
        key_at((&self.keys, &self.key_ends), self.restored.checked_sub(self.next)?)
    }

    /// Copies the next step if all entries are passed.
    pub(super) fn refill(&mut self, table: &SlmTable) -> Result<()> {
        while self.next >= self.items.len() && !self.ascent.is_over {
            self.copy_more(table)?;
        }
        Ok(())
    }

    /// Decodes the current user key and those that follow, at most [`LOOKAHEAD`] in all. Callers
    /// may never ask for the rest of a step.
    pub(super) fn restore(&mut self, table: &SlmTable) -> Result<()> {
        if self.next < self.restored || self.next >= self.items.len() {
            return Ok(());
        }
        self.keys.clear();
        self.key_ends.clear();
        let last = self.items.len().min(self.next + LOOKAHEAD);
        for index in self.next..last {
            let index_key = IndexKey(self.index_run.entry(index).map_or(&[][..], |(key, _)| key));
            let restored =
                table.keys.restore_next(index_key, &mut self.decode_state, &mut self.keys);
            restored.ok_or_else(|| table.undecodable_key(index_key))?;
            self.key_ends.push(self.keys.len());
        }
        self.restored = last;
        Ok(())
    }

    /// Advances to the next entry.
    pub(super) fn advance(&mut self, table: &SlmTable) -> Result<()> {
        self.next += 1;
        self.refill(table)
    }

    /// Passes the value of the current key to the sink; `None` if it was removed meanwhile. The
    /// caller has called [`Self::restore`].
    pub(super) fn value<T: ValueSink>(
        &mut self,
        table: &SlmTable,
        sink: &mut T,
    ) -> Result<Option<T::Output>> {
        if self.next >= self.loaded {
            self.load(table);
        }
        let Some(item) = self.current() else { return Ok(None) };
        let address = item.value.address;
        let key = self.restored.checked_sub(self.next);
        let Some(key) = key.and_then(|left| key_at((&self.keys, &self.key_ends), left)) else {
            return Ok(None);
        };
        if let Some(fragmentation) = &mut self.fragmentation {
            fragmentation.record(address.run);
        }
        let hash = table.hash(key);
        // Without its run: it was removed before this scan loaded the runs.
        if let Some(run) = item.run_in(&self.runs) {
            let answer = if let Some(found) = self.ahead.find(address, key) {
                Some(found.value().map(|value| sink.of_bytes(value)))
            } else {
                let slot = run.sst.slot(address.block);
                table.cache.find(slot, (hash, key), sink).map(Answer::value)
            };
            match answer {
                Some(Some(output)) => return Ok(Some(output)),
                Some(None) => return Err(run.missing_key(address.block, key)),
                None => {}
            }
        }
        table.read_indexed(&table.write_buffer.view.load(), (hash, key), None, sink)
    }

    /// Copies the next step out of the index.
    fn copy_more(&mut self, table: &SlmTable) -> Result<()> {
        self.items.clear();
        self.ahead.clear(table);
        (self.next, self.prefetched, self.loaded, self.requested, self.restored) = (0, 0, 0, 0, 0);
        if self.steps == 0 && table.read_locality.is_high() {
            self.steps = SKIPPED_STEPS;
        }
        let step = FIRST_STEP << (self.steps / 2).min(DOUBLINGS);
        let ahead = LEAVES_AHEAD_MAX.min((1 << self.steps.min(DOUBLINGS)) - 1);
        self.steps += 1;
        let tree = &table.paged.tree;
        match (self.direction, table.pool_index()) {
            (Direction::Up, Some(index)) => {
                index.scan_forward(&mut self.ascent, step, &mut self.index_run)?;
            }
            (Direction::Down, Some(index)) => {
                index.scan_reverse(&mut self.ascent, step, &mut self.index_run)?;
            }
            (Direction::Up, None) => {
                tree.scan_forward(&mut self.ascent, (step, ahead), &mut self.index_run)?;
            }
            (Direction::Down, None) => {
                self.index_run.clear();
                let range = (self.ascent.end.as_deref(), Some(&*self.ascent.start));
                let pair = |key, index_value| (key, index_value);
                let found =
                    tree.scan_reverse(range, (step, ahead), IndexValue::from_lookup, pair)?;
                for (key, index_value) in found.entries {
                    let index_value =
                        index_value.ok_or_else(|| table.undecodable_value(IndexKey(&key)))?;
                    self.index_run.push(&key, &index_value.encode());
                }
                match found.next {
                    Some(next) => self.ascent.end = Some(next),
                    None => self.ascent.is_over = true,
                }
            }
        }
        // Loaded after the index was read, so only runs that were removed since are missing.
        self.runs = Arc::clone(&table.write_buffer.view.load().version);
        for (key, value) in
            (0..self.index_run.len()).filter_map(|index| self.index_run.entry(index))
        {
            let index_value = IndexValue::decode(value);
            let index_value = index_value.ok_or_else(|| table.undecodable_value(IndexKey(key)))?;
            let run = self.runs.index_of(index_value.address.run);
            if let Some(run) = run.and_then(|run| self.runs.at(run)) {
                run.prefetch_slot(index_value.address);
            }
            self.items.push(ScanItem { value: index_value, run });
        }
        Ok(())
    }

    /// Prefetches the next entries whose blocks are cached.
    pub(super) fn prefetch_entries(&mut self, table: &SlmTable) {
        let after = self.items.len().min(self.next + 2 * LOOKAHEAD);
        for item in self.items.get(self.prefetched.max(self.next)..after).unwrap_or(&[]) {
            if let Some(run) = item.run_in(&self.runs) {
                run.prefetch(item.value, &table.cache);
            }
        }
        self.prefetched = after;
    }

    /// Loads the blocks of the next entries: prefetches the cached ones, requests the others from
    /// disk, and waits for that of the current entry.
    fn load(&mut self, table: &SlmTable) {
        self.prefetch_entries(table);
        if self.requested <= self.next {
            let last = self.items.len().min(self.next + LOOKAHEAD);
            let is_loaded = |item: &ScanItem| {
                let is_cached =
                    |run: &Arc<SortedRun>| table.cache.has(run.sst.slot(item.value.address.block));
                item.run_in(&self.runs).is_none_or(is_cached)
            };
            if self.items.get(self.next..last).unwrap_or(&[]).iter().all(is_loaded) {
                table.read_locality.record(last - self.next, 0);
                (self.loaded, self.requested) = (last, last);
                return;
            }
        }
        self.request(table);
        if let Some(item) = self.current() {
            self.ahead.wait_for(item.value.address, self.direction, table);
        }
        let rest = self.items.get(self.next..self.requested).unwrap_or(&[]);
        let loaded = rest.iter().take_while(|one| !self.ahead.is_in_flight(one.value.address));
        self.loaded = self.next + loaded.count().max(1);
    }

    /// Requests the uncached blocks of the next entries, if less than half a window is in flight.
    fn request(&mut self, table: &SlmTable) {
        self.ahead.discard_before(self.next, table);
        let budget = table.context.budget.limit();
        let (first, mut bytes) = (self.requested.max(self.next), 0);
        let (mut wanted, mut room) = (BTreeMap::<BlockAddress, WantedBlock<'_>>::new(), None);
        self.requested = first;
        for (index, item) in (first..).zip(self.items.get(first..).unwrap_or(&[])) {
            let address = item.value.address;
            let is_missing = |run: &&Arc<SortedRun>| {
                address.block < run.sst.blocks()
                    && !self.ahead.mark_needed(address, index)
                    && !table.cache.has(run.sst.slot(address.block))
            };
            if let Some(one) = wanted.get_mut(&address) {
                one.last = index;
            } else if let Some(run) = item.run_in(&self.runs).filter(is_missing) {
                let size = run.sst.span(address.block..address.block + 1).bytes;
                let most = *room.get_or_insert_with(|| self.ahead.request_limit(size, budget));
                if most == 0 || (bytes > 0 && bytes + size > most) {
                    break;
                }
                bytes += size;
                wanted.insert(address, WantedBlock { run, first: index, last: index });
            }
            self.requested = index + 1;
        }
        let entries = self.requested - first;
        let reads = self.ahead.request(wanted, self.direction, table);
        if entries > 0 {
            table.read_locality.record(entries, reads);
        }
    }
}
