//! The list of runs in the pool, with their live counts.
//!
//! The list is replaced as a whole when a run is added or removed. The live counts change in place,
//! one word each; [`super::update_log`] makes that atomic with the changes of the index.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | bits 0 to 31: bytes of the encoded list; 32 to 63: its CRC32C |
//! | 1 | number of runs |
//! | 2 .. | live entries of each run, in the order of the list |
//! | behind them | the list in the encoding of [`RunList`], with 1 for each live count |

use std::collections::BTreeMap;

use crate::{
    Result,
    engine::slm::{pool::roots::RUNS, run_list::RunList},
    pmem::{Marks, Pool, is_link, link, target},
    util::{
        codec::{crc32c, low_u32, to_u64, to_usize, widen},
        words::copy_out,
    },
};

/// Offset of the first live count.
const COUNTS: u64 = 16;

/// Where the current list and its live counts are.
#[derive(Debug, Default)]
pub(super) struct RunRecords {
    /// Offset of the list; 0: none yet.
    at: u64,
    /// For each run the offset of its live count.
    counts: BTreeMap<u32, u64>,
}

impl RunRecords {
    /// Reads the list. Fails with `Corruption` if it is damaged.
    pub(super) fn open(pool: &Pool) -> Result<(Self, RunList)> {
        let word = pool.root(RUNS);
        let at = target(word);
        let damage = || pool.damage(at, "the list of runs is damaged");
        let head = pool.load(at);
        let (bytes, runs) = (u64::from(low_u32(head)), pool.load(at + 8));
        let words = to_u64(pool.words(at).len());
        let is_within =
            pool.is_object(at) && runs < words && COUNTS / 8 + runs + bytes.div_ceil(8) <= words;
        if !is_link(word) || word == 0 || !is_within {
            return Err(damage());
        }
        let mut encoded = vec![0; to_usize(bytes)];
        copy_out(pool.words(at + COUNTS + runs * 8), 0, &mut encoded);
        if widen(crc32c(&encoded)) != head >> 32 {
            return Err(damage());
        }
        let mut list = RunList::open(&encoded, pool.label())?;
        if to_u64(list.runs.len()) != runs {
            return Err(damage());
        }
        let mut counts = BTreeMap::new();
        for (place, run) in (at + COUNTS..).step_by(8).zip(&mut list.runs) {
            run.live = pool.load(place);
            counts.insert(run.number, place);
        }
        Ok((Self { at, counts }, list))
    }

    /// Replaces the list persistently. Fails with `DiskFull` if the pool is full; nothing has
    /// changed then.
    pub(super) fn replace(&mut self, pool: &Pool, mut list: RunList) -> Result<()> {
        let counts: Vec<u64> = list.runs.iter_mut().map(|run| run.live).collect();
        list.runs.iter_mut().for_each(|run| run.live = 1);
        let encoded = list.encode();
        let runs = to_u64(counts.len());
        let bytes = COUNTS + runs * 8 + to_u64(encoded.len().next_multiple_of(8));
        let at = pool.alloc(bytes)?;
        pool.store(at, to_u64(encoded.len()) | widen(crc32c(&encoded)) << 32);
        pool.store(at + 8, runs);
        let mut places = BTreeMap::new();
        for ((place, run), count) in (at + COUNTS..).step_by(8).zip(&list.runs).zip(&counts) {
            pool.store(place, *count);
            places.insert(run.number, place);
        }
        pool.store_bytes(at + COUNTS + runs * 8, &[&encoded]);
        pool.flush(at, bytes);
        pool.publish(Pool::root_at(RUNS), link(at));
        let before = std::mem::replace(self, Self { at, counts: places });
        if before.at != 0 {
            pool.free(before.at)?;
        }
        Ok(())
    }

    /// Returns the sum of all live counts.
    pub(super) fn live(&self, pool: &Pool) -> u64 {
        self.counts.values().map(|place| pool.load(*place)).sum()
    }

    /// Sets the live counts of these runs persistently.
    pub(super) fn set_counts(&self, pool: &Pool, counts: &BTreeMap<u32, u64>) {
        for (run, count) in counts {
            if let Some(place) = self.counts.get(run) {
                pool.store(*place, *count);
                pool.flush(*place, 8);
            }
        }
        pool.fence();
    }

    /// Marks the list for a sweep.
    pub(super) fn mark(&self, pool: &Pool, marks: &mut Marks<'_>) -> Result<()> {
        if marks.add(self.at) {
            return Ok(());
        }
        Err(pool.damage(self.at, "the list of runs is no object of the pool"))
    }
}
