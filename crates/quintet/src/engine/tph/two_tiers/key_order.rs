//! The key order of a table: samples of the key-location array in memory, and reads of the array.
//!
//! The array ([`crate::lsm::sst::order_section`]) is on disk. Of every 64th row, the shortest
//! prefix of its key that is above all keys before it is in memory (the paper's sample, section
//! 3.3). A seek finds the sample and then searches among 64 rows.
//!
//! Layout of the samples: number of rows (8 bytes), and for each sample: varint length, bytes.

#![deny(clippy::indexing_slicing)]

use std::{ops::Range, sync::Arc};

use crate::{
    Result,
    lsm::sst::{
        Sst,
        order_section::{CHUNK_BYTES, CHUNK_ROWS, EntryLocation, stored_bytes},
    },
    util::{
        codec::{Decoder, low_u32, put_bytes, put_u64, shared_len, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Number of rows between two samples.
pub(crate) const SAMPLE_ROWS: u64 = 64;
/// Number of chunks that a merge reads at once: 128 KiB.
const CHUNKS_AT_ONCE: u64 = 32;
/// Memory of a [`RowReader`]: chunks that are read, and their rows.
pub(crate) const ROWS_BYTES: u64 = CHUNKS_AT_ONCE * (CHUNK_BYTES + CHUNK_ROWS * ROW_MEMORY);
const ROW_MEMORY: u64 = to_u64(size_of::<EntryLocation>());

const _: () =
    assert!(CHUNK_ROWS.is_multiple_of(SAMPLE_ROWS), "the rows of a sample are one chunk's");

/// The samples of a table. See the module head.
#[derive(Debug, Default)]
pub(crate) struct KeyOrder {
    rows: u64,
    /// Where each sample ends in `keys`.
    ends: Vec<u32>,
    keys: Vec<u8>,
}

impl KeyOrder {
    /// Adds the next row of the table. `before` is the key of the row before it.
    pub(crate) fn push(&mut self, before: Option<&[u8]>, key: &[u8]) {
        if self.rows.is_multiple_of(SAMPLE_ROWS) {
            let prefix = before.map_or(0, |before| {
                let shared = shared_len(before, key);
                mutant!(TphShortensSamples: shared, else shared + 1)
            });
            self.push_sample(key.get(..prefix).unwrap_or(key));
        }
        self.rows += 1;
    }

    fn push_sample(&mut self, sample: &[u8]) {
        self.keys.extend_from_slice(sample);
        self.ends.push(low_u32(to_u64(self.keys.len())));
    }

    /// Releases memory that further samples would use.
    pub(crate) fn shrink(&mut self) {
        self.ends.shrink_to_fit();
        self.keys.shrink_to_fit();
    }

    /// Returns whether the samples are too large for their offsets.
    pub(crate) fn is_too_large(&self) -> bool {
        u32::try_from(self.keys.len()).is_err()
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    fn sample(&self, number: usize) -> &[u8] {
        let end = |number: usize| self.ends.get(number).map_or(0, |end| to_usize(u64::from(*end)));
        let start = number.checked_sub(1).map_or(0, end);
        self.keys.get(start..end(number)).unwrap_or(&[])
    }

    /// Returns the rows among which the first one not below a key is, or the end of which it is.
    pub(crate) fn seek(&self, key: &[u8]) -> Range<u64> {
        let (mut low, mut high) = (1, self.ends.len().max(1));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.sample(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let start = to_u64(low - 1) * SAMPLE_ROWS;
        start.min(self.rows)..(start + SAMPLE_ROWS).min(self.rows)
    }

    /// Returns the bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        to_u64(self.keys.capacity() + self.ends.capacity() * size_of::<u32>())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.keys.len() + 2 * self.ends.len());
        put_u64(&mut out, self.rows);
        (0..self.ends.len()).for_each(|number| put_bytes(&mut out, self.sample(number)));
        out
    }

    /// Decodes the samples of an array of `array_bytes`; `None` if they do not parse.
    pub(crate) fn decode(bytes: &[u8], array_bytes: u64) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let rows = decoder.u64().filter(|rows| *rows <= array_bytes)?;
        if stored_bytes(rows) != array_bytes {
            return None;
        }
        let mut order = Self { rows, ..Self::default() };
        let mut last = None;
        for _ in 0..rows.div_ceil(SAMPLE_ROWS) {
            let sample = decoder.bytes()?;
            if last.map_or(!sample.is_empty(), |last| sample <= last) {
                return None;
            }
            last = Some(sample);
            order.push_sample(sample);
        }
        order.shrink();
        decoder.is_empty().then_some(order)
    }
}

/// Reads the rows of a table's array in order, for a merge.
#[derive(Debug)]
pub(crate) struct RowReader {
    /// The newest piece.
    piece: Option<Arc<Sst>>,
    next_chunk: u64,
    rows: Vec<EntryLocation>,
    position: usize,
    /// Number of rows that were returned.
    passed: u64,
}

impl RowReader {
    pub(crate) fn new(newest: Option<&Arc<Sst>>) -> Self {
        Self { piece: newest.cloned(), next_chunk: 0, rows: Vec::new(), position: 0, passed: 0 }
    }

    /// Returns the next row; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<EntryLocation>> {
        if self.position == self.rows.len()
            && let Some(piece) = &self.piece
        {
            self.rows.clear();
            self.position = 0;
            let end = self.next_chunk + CHUNKS_AT_ONCE;
            piece.order_chunks(self.next_chunk..end, &mut self.rows)?;
            self.next_chunk = end;
        }
        let row = self.rows.get(self.position).copied();
        self.position += usize::from(row.is_some());
        self.passed += u64::from(row.is_some());
        Ok(row)
    }

    /// Returns the number of rows that were returned.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_seek_comes_by_the_row_of_each_key() {
        for count in [0_usize, 1, 63, 64, 65, 1_000] {
            let keys: Vec<Vec<u8>> =
                (0..count).map(|n| format!("user{:07}", n * 31).into_bytes()).collect();
            let mut order = KeyOrder::default();
            let mut before = None;
            for key in &keys {
                order.push(before, key);
                before = Some(key.as_slice());
            }
            let bytes = order.encode();
            let array = stored_bytes(to_u64(count));
            let order = KeyOrder::decode(&bytes, array).unwrap();
            assert_eq!((order.encode(), order.rows()), (bytes.clone(), to_u64(count)));
            let others = keys.iter().map(|key| [key, &b"x"[..]].concat());
            for key in keys.iter().cloned().chain(others).chain([Vec::new(), b"z".to_vec()]) {
                let first = to_u64(keys.partition_point(|one| *one < key));
                let found = order.seek(&key);
                assert!((found.start..=found.end).contains(&first), "{found:?}, {first}");
                assert!(found.end - found.start <= SAMPLE_ROWS);
            }
            assert!(KeyOrder::decode(&bytes, array + 8).is_none());
            for cut in 0..bytes.len() {
                assert!(KeyOrder::decode(&bytes[..cut], array).is_none());
            }
            assert!(KeyOrder::decode(&[&bytes[..], &[0]].concat(), array).is_none());
        }
    }
}
