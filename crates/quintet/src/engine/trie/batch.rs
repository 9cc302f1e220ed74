//! Batched gets: lookups in memory are interleaved, reads from disk are issued together.
//!
//! Problem: a lookup has two or three dependent cache misses. Interleaved, the misses of 32 lookups
//! overlap.
//!
//! 1. Compute all hashes of a batch, and prefetch the words at the lowest nodes.
//! 2. Step each lookup and prefetch its list. Step again and prefetch its record.
//! 3. Copy the values. If the subtree or the region of a key changed meanwhile, a single get
//!    ([`super::read`]) reads it again.
//! 4. Read the records on disk through the queue, several at once.

use std::sync::Arc;

use super::{
    lookup::{ColdMatch, ColdRecord, KeyMatch, RecordValue, answer_in},
    record::TrieRecordHead,
    table::Trie,
};
use crate::{
    Error, Result,
    contract::FoundValue,
    engine::trie::{
        index::{LookupStep, SteppedLookup},
        store::regions::{BLOCK_UNITS, UNIT_BYTES},
    },
    io::{AlignedBuffer, Completion, File, QUEUE_DEPTH, Queue, Request},
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicU64, Ordering},
    },
};

/// Keys looked up together: enough to hide each other's cache misses.
const BATCH: usize = 32;

/// Receives the answers of a batch, each with the index of its key.
type Answers<'a> = dyn FnMut(usize, Option<FoundValue<'_>>) -> Result<()> + 'a;

impl Trie {
    /// Looks all keys up and calls `each` once for every key, in any order. Fails on the first
    /// error of a read or of `each`.
    pub(super) fn read_many(&self, keys: &[&[u8]], each: &mut Answers<'_>) -> Result<()> {
        let (mut cold, mut scratch) = (Vec::new(), Vec::new());
        for (number, batch) in keys.chunks(BATCH).enumerate() {
            let mut lookups = [SteppedLookup::default(); BATCH];
            let lookups = lookups.get_mut(..batch.len()).unwrap_or(&mut []);
            self.step_lookups(batch, lookups);
            for (index, (key, lookup)) in (number * BATCH..).zip(batch.iter().zip(lookups)) {
                let answer = self.finish_lookup(key, lookup, &mut scratch)?;
                if self.settings.counts_gets {
                    self.count_get(matches!(answer, Some(RecordValue::Delivered)));
                }
                match answer {
                    None => each(index, None)?,
                    Some(RecordValue::Delivered) => each(index, Some(FoundValue::Bytes(&scratch)))?,
                    Some(RecordValue::OnDisk(address, life)) if !self.wants_load(address) => {
                        cold.push((index, address, life));
                    }
                    Some(answer) => {
                        let value = self.read_slowly(lookup.path(key), answer)?;
                        each(index, value.map(FoundValue::Value))?;
                    }
                }
            }
        }
        self.read_cold_records(&cold, |(index, ..), record| {
            let Some(key) = keys.get(index) else { return Ok(()) };
            let record = record.as_ref().and_then(ColdRecord::record);
            let value = match record.map(|record| self.value_of(&record, key)).transpose()? {
                Some(ColdMatch::Value(value)) => Some(value),
                _ => self.read_value(key)?,
            };
            each(index, value.map(FoundValue::Value))
        })
    }

    /// Prefetches the records of keys that will be read soon.
    pub(super) fn prefetch_records(&self, keys: &[&[u8]]) {
        for batch in keys.chunks(BATCH) {
            let mut lookups = [SteppedLookup::default(); BATCH];
            self.step_lookups(batch, lookups.get_mut(..batch.len()).unwrap_or(&mut []));
        }
    }

    /// Steps the lookups of a batch in turn until all have ended, and prefetches the records that
    /// they met.
    fn step_lookups(&self, keys: &[&[u8]], lookups: &mut [SteppedLookup]) {
        for (lookup, key) in lookups.iter_mut().zip(keys) {
            *lookup = self.index.begin_lookup(self.path(key).hash);
            // In a small table the first steps end the lookup.
            if let Some(address) = lookup.candidate() {
                self.regions.prefetch(address);
            }
        }
        let mut is_done = false;
        while !is_done {
            is_done = true;
            for (lookup, key) in lookups.iter_mut().zip(keys) {
                match self.index.step(lookup) {
                    LookupStep::Pending => is_done = false,
                    LookupStep::Switched => {
                        self.index.follow_keyed(lookup, key);
                        is_done = false;
                    }
                    LookupStep::Candidate(address) => {
                        self.regions.prefetch(address);
                    }
                    LookupStep::Ended => {}
                }
            }
        }
    }

    /// Returns the answer of the record that a lookup met, and copies its value to `out`. Looks the
    /// key up again if the lookup is no longer valid.
    #[inline]
    fn finish_lookup(
        &self,
        key: &[u8],
        lookup: &SteppedLookup,
        out: &mut Vec<u8>,
    ) -> Result<Option<RecordValue>> {
        let mut on_record = |head: &TrieRecordHead, words: &[AtomicU64]| {
            out.resize(head.value_bytes, 0);
            head.copy_value(words, out);
        };
        if !self.replay_buffer.is_empty() {
            return self.answer(lookup.path(key), &[], &mut on_record);
        }
        if let Some(address) = lookup.candidate() {
            if let Ok(record) = self.regions.record_at(address)
                && let Some(KeyMatch::Key(answer)) = answer_in(record.words, key, &mut on_record)
                && self.regions.is_unchanged(&record)
                && self.index.is_current(lookup)
            {
                return Ok(Some(answer));
            }
        } else if lookup.is_missing() && self.index.is_current(lookup) {
            return Ok(None);
        }
        self.answer(lookup.path(key), &[], &mut on_record)
    }

    /// Reads records (number, address, life of the region) from disk, several at once, and passes
    /// each to `on_record` as it arrives. The record is `None` as for [`Self::read_cold`].
    pub(super) fn read_cold_records(
        &self,
        cold: &[(usize, u64, u64)],
        mut on_record: impl FnMut((usize, u64, u64), Option<ColdRecord>) -> Result<()>,
    ) -> Result<()> {
        if cold.is_empty() {
            return Ok(());
        }
        let file = self.regions.file()?;
        self.counters.cold_reads_total.fetch_add(to_u64(cold.len()), Ordering::Relaxed);
        self.queues.with(&*self.context.env, |queue| {
            let mut done = Vec::with_capacity(QUEUE_DEPTH);
            for (token, (_, address, _)) in cold.iter().enumerate() {
                queue.submit(to_u64(token), self.request(*address, &file));
                // Bounds the buffers: the device has no use for a longer queue.
                if queue.pending() >= QUEUE_DEPTH {
                    self.wait_for_reads(queue, cold, &mut done, &mut on_record)?;
                }
            }
            while queue.pending() > 0 {
                self.wait_for_reads(queue, cold, &mut done, &mut on_record)?;
            }
            Ok(())
        })
    }

    /// The read request of one record.
    fn request(&self, address: u64, file: &Arc<dyn File>) -> Request {
        let (region, unit) = self.regions.split(address);
        let end = (unit + self.regions.span(region)).min(self.regions.segment_units());
        let from = unit & !(BLOCK_UNITS - 1);
        let length = to_usize((end - from).next_multiple_of(BLOCK_UNITS) * UNIT_BYTES);
        let offset = self.regions.offset(region, from);
        Request::Read {
            file: Arc::clone(file),
            offset,
            buffer: AlignedBuffer::zeroed(length),
            length,
        }
    }

    /// Waits for at least one read, and passes the finished records to `on_record`.
    fn wait_for_reads(
        &self,
        queue: &mut dyn Queue,
        cold: &[(usize, u64, u64)],
        done: &mut Vec<Completion>,
        on_record: &mut impl FnMut((usize, u64, u64), Option<ColdRecord>) -> Result<()>,
    ) -> Result<()> {
        queue.wait(1, done);
        for completion in done.drain(..) {
            let Some(request) = cold.get(to_usize(completion.token)) else { continue };
            completion
                .result
                .map_err(|error| Error::io(format!("read {}", self.regions.label()), error))?;
            let (_, address, life) = *request;
            let (_, unit) = self.regions.split(address);
            let skip = to_usize((unit & (BLOCK_UNITS - 1)) * UNIT_BYTES);
            let record = self.finish_cold(address, life, completion.buffer, skip)?;
            on_record(*request, record)?;
        }
        Ok(())
    }
}
