//! Batches of gets: in memory they take their steps in turn, from the disk they are read at once.
//!
//! A batch in memory: all hashes, and the words at the lowest nodes are on their way; a step of
//! each lookup, and the lists are; another, and the records are; then the values are copied out. A
//! key whose subtree or region changed meanwhile is looked up anew, alone.

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

/// Keys of a batch in flight together: as many as hide the memory behind each other's misses.
const BATCH: usize = 32;

/// Where the answers of a batch go: each with the position of its key.
type Answers<'a> = dyn FnMut(usize, Option<FoundValue<'_>>) -> Result<()> + 'a;

impl Trie {
    /// Looks all keys up; `each` is called once for each, in any order.
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

    /// Takes the lookups of a batch to their ends, in turn; the records that they meet are on their
    /// way afterwards.
    fn take_steps(&self, keys: &[&[u8]], ways: &mut [Ahead]) {
        for (way, key) in ways.iter_mut().zip(keys) {
            *way = self.index.set_out(self.hash(key));
            // Nothing is below the uppermost nodes while a table is small.
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

    /// What the record says that a lookup has met; the value goes to `out`.
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

    /// Reads many records from the disk at once, and shows each to `take` as it arrives: number,
    /// address, life of its region; `None` as for [`Self::read_cold`].
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
                // No more buffers than the device has use for.
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

    /// The read of one record.
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

    /// Waits for some of the reads, and shows what they found.
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
