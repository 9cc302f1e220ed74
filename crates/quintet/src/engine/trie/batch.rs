//! Batched gets: lookups in memory are interleaved, reads from disk are issued together.
//!
//! Problem: a lookup has two or three dependent cache misses. Interleaved, the misses of 32 lookups
//! overlap.
//!
//! How: for a batch, compute all hashes and prefetch the words at the lowest nodes; then step each
//! lookup and prefetch its list; step again and prefetch its record; then copy the values. A key
//! whose subtree or region changed meanwhile is looked up again on its own ([`super::read`]).
//! Records on disk are read through the queue, several at once.

use std::sync::Arc;

use super::{
    Trie,
    read::{Answer, Cold, ColdRecord, Seen, answer_in},
    record::Head,
};
use crate::{
    Error, Result,
    contract::FoundValue,
    engine::trie::{
        index::{Ahead, Step},
        store::regions::{BLOCK_UNITS, Look, UNIT_BYTES},
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
            let mut ways = [Ahead::default(); BATCH];
            let ways = ways.get_mut(..batch.len()).unwrap_or(&mut []);
            self.take_steps(batch, ways);
            for (index, (key, way)) in (number * BATCH..).zip(batch.iter().zip(ways)) {
                match self.answer_met(key, way, &mut scratch)? {
                    None => each(index, None)?,
                    Some(Answer::Taken) => each(index, Some(FoundValue::Bytes(&scratch)))?,
                    Some(Answer::Cold(address, life)) if !self.wants_warming(address) => {
                        cold.push((index, address, life));
                    }
                    Some(answer) => {
                        let value = self.read_slowly(key, way.hash(), answer)?;
                        each(index, value.map(FoundValue::Value))?;
                    }
                }
            }
        }
        self.read_cold_records(&cold, |(index, ..), record| {
            let Some(key) = keys.get(index) else { return Ok(()) };
            let record = record.as_ref().and_then(ColdRecord::record);
            let value = match record.map(|record| self.value_of(&record, key)).transpose()? {
                Some(Cold::Value(value)) => Some(value),
                _ => self.read_value(key)?,
            };
            each(index, value.map(FoundValue::Value))
        })
    }

    /// Steps the lookups of a batch in turn until all have ended, and prefetches the records that
    /// they met.
    fn take_steps(&self, keys: &[&[u8]], ways: &mut [Ahead]) {
        for (way, key) in ways.iter_mut().zip(keys) {
            *way = self.index.set_out(self.hash(key));
            // In a small table the first steps end the lookup.
            way.met().into_iter().for_each(|address| self.regions.prefetch(address));
        }
        let mut is_done = false;
        while !is_done {
            is_done = true;
            for way in &mut *ways {
                match self.index.step(way) {
                    Step::Asked => is_done = false,
                    Step::Met(address) => self.regions.prefetch(address),
                    Step::Ended => {}
                }
            }
        }
    }

    /// Returns the answer of the record that a lookup met, and copies its value to `out`. Looks the
    /// key up again if the lookup is no longer valid.
    #[inline]
    fn answer_met(&self, key: &[u8], way: &Ahead, out: &mut Vec<u8>) -> Result<Option<Answer>> {
        let mut take = |head: &Head, words: &[AtomicU64]| {
            out.resize(head.value_bytes, 0);
            head.copy_value(words, out);
        };
        if !self.young.is_empty() {
            return self.answer(key, way.hash(), &[], &mut take);
        }
        if let Some(address) = way.met() {
            let look = self.regions.look(address, |words| answer_in(words, key, &mut take));
            if let Look::Found(Seen::Key(answer)) = look
                && self.index.is_current(way)
            {
                return Ok(Some(answer));
            }
        } else if way.is_missing() && self.index.is_current(way) {
            return Ok(None);
        }
        self.answer(key, way.hash(), &[], &mut take)
    }

    /// Reads records (number, address, life of the region) from disk, several at once, and passes
    /// each to `take` as it arrives. The record is `None` as for [`Self::read_cold`].
    pub(super) fn read_cold_records(
        &self,
        cold: &[(usize, u64, u64)],
        mut take: impl FnMut((usize, u64, u64), Option<ColdRecord>) -> Result<()>,
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
                    self.arrive(queue, cold, &mut done, &mut take)?;
                }
            }
            while queue.pending() > 0 {
                self.arrive(queue, cold, &mut done, &mut take)?;
            }
            Ok(())
        })
    }

    /// The read request of one record.
    fn request(&self, address: u64, file: &Arc<dyn File>) -> Request {
        let (region, unit) = self.regions.split(address);
        let end = (unit + self.regions.span(region)).min(self.regions.region_units());
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

    /// Waits for at least one read, and passes the finished records to `take`.
    fn arrive(
        &self,
        queue: &mut dyn Queue,
        cold: &[(usize, u64, u64)],
        done: &mut Vec<Completion>,
        take: &mut impl FnMut((usize, u64, u64), Option<ColdRecord>) -> Result<()>,
    ) -> Result<()> {
        queue.wait(1, done);
        for completion in done.drain(..) {
            let Some(asked) = cold.get(to_usize(completion.token)) else { continue };
            completion
                .result
                .map_err(|error| Error::io(format!("read {}", self.regions.label()), error))?;
            let (_, address, life) = *asked;
            let (_, unit) = self.regions.split(address);
            let skip = to_usize((unit & (BLOCK_UNITS - 1)) * UNIT_BYTES);
            let record = self.finish_cold(address, life, completion.buffer, skip)?;
            take(*asked, record)?;
        }
        Ok(())
    }
}
