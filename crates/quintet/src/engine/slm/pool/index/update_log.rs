//! The log of index updates: makes a batch of updates and the live counts one step.
//!
//! Problem: a change of the index and the change of two live counts are several words. A crash
//! between them would leave counts that are wrong for ever, and a merge that trusts them would
//! remove a run with live entries.
//! How: before a batch, its updates and the counts after it are written here and become valid by
//! one word. An opening that finds it valid repeats the whole batch: every step of it sets a value
//! and does not depend on the previous one. SLM-DB logs the keys whose location moved (section
//! 3.5), which repairs the counts only.
//!
//! | offset | meaning |
//! |---|---|
//! | 0 | 0: no batch; otherwise bits 0 to 31: bytes of the batch; 32 to 63: its CRC32C |
//! | 8 .. | varint: number of updates; each: bytes of the key, 1 byte (0 removes it, 1 sets it), 8 bytes of the value if it is set |
//! | | varint: number of runs; each: varints number and live entries |

use std::collections::BTreeMap;

use crate::{
    Result,
    engine::slm::pool::roots::UPDATES,
    pmem::{Marks, Pool, is_link, link, target},
    util::{
        codec::{
            Decoder, crc32c, low_u32, put_bytes, put_u64, put_varint, to_u64, to_usize, widen,
        },
        words::copy_out,
    },
};

/// Bytes of the object at first. Larger batches get a larger one.
const FIRST_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 64 << 10 };

/// A batch of index updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::slm) struct UpdateBatch {
    /// The keys as the index stores them, and their values; `None` removes the key.
    pub(in crate::engine::slm) updates: Vec<(Vec<u8>, Option<u64>)>,
    /// The live entries of the runs that the batch concerns, after it.
    pub(in crate::engine::slm) counts: BTreeMap<u32, u64>,
}

impl UpdateBatch {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, to_u64(self.updates.len()));
        for (key, value) in &self.updates {
            put_bytes(&mut out, key);
            out.push(u8::from(value.is_some()));
            if let Some(value) = value {
                put_u64(&mut out, *value);
            }
        }
        put_varint(&mut out, to_u64(self.counts.len()));
        for (run, live) in &self.counts {
            put_varint(&mut out, u64::from(*run));
            put_varint(&mut out, *live);
        }
        out
    }

    /// Decodes a batch; `None` if no version writes these bytes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut decoder, mut batch) = (Decoder::new(bytes), Self::default());
        for _ in 0..decoder.varint()? {
            let key = decoder.bytes()?.to_vec();
            let value = match decoder.u8()? {
                0 => None,
                1 => Some(decoder.u64()?),
                _ => return None,
            };
            if key.is_empty() {
                return None;
            }
            batch.updates.push((key, value));
        }
        for _ in 0..decoder.varint()? {
            let run = u32::try_from(decoder.varint()?).ok()?;
            batch.counts.insert(run, decoder.varint()?);
        }
        decoder.is_empty().then_some(batch)
    }
}

/// The log in the pool.
#[derive(Debug)]
pub(super) struct UpdateLog {
    at: u64,
    bytes: u64,
}

impl UpdateLog {
    /// Creates an empty log and publishes it.
    pub(super) fn create(pool: &Pool) -> Result<Self> {
        Self::with_bytes(pool, FIRST_BYTES)
    }

    fn with_bytes(pool: &Pool, bytes: u64) -> Result<Self> {
        let at = pool.alloc(bytes)?;
        pool.store(at, 0);
        pool.flush(at, 8);
        pool.publish(Pool::root_at(UPDATES), link(at));
        Ok(Self { at, bytes })
    }

    /// Opens the log. Returns the batch that a crash interrupted. Fails with `Corruption`.
    pub(super) fn open(pool: &Pool) -> Result<(Self, Option<UpdateBatch>)> {
        let word = pool.root(UPDATES);
        let at = target(word);
        let damage = || pool.damage(at, "the log of index updates is damaged");
        if !is_link(word) || word == 0 || !pool.is_object(at) {
            return Err(damage());
        }
        // A later batch that needs more than the smallest object gets a new one.
        let bytes = pool.run_of(at).map_or(FIRST_BYTES, |(start, bytes)| start + bytes - at);
        let log = Self { at, bytes };
        let head = pool.load(at);
        if head == 0 {
            return Ok((log, None));
        }
        let words = pool.words(at + 8);
        let length = to_usize(u64::from(low_u32(head)));
        if length > words.len() * 8 {
            return Err(damage());
        }
        let mut encoded = vec![0; length];
        copy_out(words, 0, &mut encoded);
        if widen(crc32c(&encoded)) != head >> 32 {
            return Err(damage());
        }
        UpdateBatch::decode(&encoded).map(|batch| (log, Some(batch))).ok_or_else(damage)
    }

    /// Makes a batch valid: from here on a crash does not prevent it. Fails with `DiskFull` if the
    /// pool is full.
    pub(super) fn begin(&mut self, pool: &Pool, batch: &UpdateBatch) -> Result<()> {
        let encoded = batch.encode();
        let needed = 8 + to_u64(encoded.len().next_multiple_of(8));
        if needed > self.bytes {
            let larger = Self::with_bytes(pool, needed.next_power_of_two())?;
            let before = std::mem::replace(self, larger);
            pool.free(before.at)?;
        }
        pool.store_bytes(self.at + 8, &[&encoded]);
        pool.flush(self.at + 8, needed - 8);
        pool.publish(self.at, to_u64(encoded.len()) | widen(crc32c(&encoded)) << 32);
        Ok(())
    }

    /// Ends the batch: all of it is persistent.
    pub(super) fn end(&self, pool: &Pool) {
        pool.replace(self.at, 0);
    }

    /// Marks the log for a sweep.
    pub(super) fn mark(&self, pool: &Pool, marks: &mut Marks<'_>) -> Result<()> {
        if marks.add(self.at) {
            return Ok(());
        }
        Err(pool.damage(self.at, "the log of index updates is no object of the pool"))
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_documented_layout_and_decode() {
        let updates = vec![(b"ab".to_vec(), Some(7)), (b"c".to_vec(), None)];
        let batch = UpdateBatch { updates, counts: [(1, 300), (9, 0)].into() };
        let bytes = batch.encode();
        assert_eq!(
            bytes,
            [2, 2, b'a', b'b', 1, 7, 0, 0, 0, 0, 0, 0, 0, 1, b'c', 0, 2, 1, 172, 2, 9, 0]
        );
        assert_eq!(UpdateBatch::decode(&bytes), Some(batch));
        for cut in 0..bytes.len() {
            assert_eq!(UpdateBatch::decode(&bytes[..cut]), None);
        }
        // An empty key, and an unknown kind of update.
        assert_eq!(UpdateBatch::decode(&[1, 0, 0, 0]), None);
        assert_eq!(UpdateBatch::decode(&[1, 1, b'a', 2, 0]), None);
    }
}
