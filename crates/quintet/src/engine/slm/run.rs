//! Sorted runs: the files that the index points into, and the set of them that readers see.
//!
//! A [`SortedRun`] is a file of entries in key order ([`crate::lsm::sst`]) with the count of its
//! live entries. The index section of the file has the first and the last key, each with its
//! length.
//!
//! Invariant: live counts change together with the index, inside the gate of the checkpoints. So
//! the counts of a checkpoint's list agree with the index values in it.
//!
//! Thread rules: counts and reasons are atomic. A [`RunSet`] never changes.

#![deny(clippy::indexing_slicing)]

use std::{ops::Range, sync::Arc};

use super::{
    index_value::{BlockAddress, IndexValue, PART_BITS, offsets_of_part},
    run_list::RunRecord,
};
use crate::{
    Error, Result,
    io::{Dir, File},
    lsm::sst::{Sst, SstKind, SstOwner, decoded_block::DecodedBlockCache, describe},
    util::{
        codec::{Decoder, low_u64, put_bytes, to_u64, to_usize},
        format::{LineSink, brief},
        mutant::mutant,
        sync::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

/// A sorted run: a file of entries in key order, and which share of them is live.
#[derive(Debug)]
pub(super) struct SortedRun {
    pub(super) number: u32,
    pub(super) sst: Arc<Sst>,
    /// Average number of entries in a block.
    entries_per_block: usize,
    /// The first key.
    pub(super) low: Vec<u8>,
    /// The last key.
    pub(super) high: Vec<u8>,
    /// Entries that the index points to.
    live: AtomicU64,
    /// Why the run is a candidate for compaction; 0 if it is none.
    reasons: AtomicU8,
    /// The flush or merge that wrote the run has applied all its index updates. From then on the
    /// live count only falls.
    sealed: AtomicBool,
}

impl SortedRun {
    /// Creates a run of a file to which the index does not point yet.
    pub(super) fn new(number: u32, sst: Sst, (low, high): (Vec<u8>, Vec<u8>)) -> Self {
        let blocks = u64::from(sst.blocks()).max(1);
        Self {
            number,
            entries_per_block: to_usize(sst.footer.entries / blocks),
            sst: Arc::new(sst),
            low,
            high,
            live: AtomicU64::new(0),
            reasons: AtomicU8::new(0),
            sealed: AtomicBool::new(false),
        }
    }

    /// Opens a run of the list. Fails with `Corruption` if its file disagrees with the list.
    pub(super) fn open(owner: &SstOwner, record: &RunRecord) -> Result<Self> {
        let sst = Sst::open(owner, u64::from(record.number), record.file_bytes)?;
        let section = sst.footer.index;
        let bytes = sst.section(section)?;
        let damage = |what: &str| sst.damage(section.offset, what);
        let bounds =
            decode_bounds(&bytes).ok_or_else(|| damage("the key bounds cannot be decoded"))?;
        if record.live > sst.footer.entries {
            return Err(damage("the list of runs counts more live entries than the file has"));
        }
        let run = Self::new(record.number, sst, bounds);
        run.live.store(record.live, Ordering::Relaxed);
        run.reasons.store(record.reasons, Ordering::Relaxed);
        run.seal();
        Ok(run)
    }

    /// Marks that no further index update will point to the run.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// Returns the offsets in the block's entries among which an entry begins; `None` if the run
    /// does not record its block size.
    #[inline]
    pub(super) fn entry_offsets(&self, index_value: IndexValue) -> Option<Range<usize>> {
        let block_bytes = to_usize(self.sst.footer.block_bytes);
        (block_bytes > 0).then(|| offsets_of_part(index_value.part, block_bytes))
    }

    /// Whether the location cache may hold entries of the run. The run must record its block size,
    /// and most of its entries must be the only one that begins in their part of a block.
    #[inline]
    pub(super) fn is_cacheable(&self) -> bool {
        self.sst.footer.block_bytes > 0 && self.entries_per_block <= (1 << PART_BITS) / 2
    }

    /// Prefetches the slot that says where a block is in the block cache.
    #[inline]
    pub(super) fn prefetch_slot(&self, address: BlockAddress) {
        if let Some(slot) = self.sst.slot(address.block) {
            slot.prefetch();
        }
    }

    /// Prefetches an entry if its block is cached.
    #[inline]
    pub(super) fn prefetch(&self, index_value: IndexValue, cache: &DecodedBlockCache) {
        let at = offsets_of_part(index_value.part, cache.block_bytes).start;
        cache
            .prefetch_entry(self.sst.slot(index_value.address.block), (self.entries_per_block, at));
    }

    /// Returns the number of entries to which the index points.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Sets the number of entries to which the index points.
    pub(super) fn set_live(&self, live: u64) {
        self.live.store(live, Ordering::Relaxed);
    }

    /// Counts an entry to which the index points now.
    pub(super) fn add_live(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts an entry to which the index no longer points.
    pub(super) fn remove_live(&self) {
        mutant!(SlmMiscountsLive => return);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of entries in the file.
    pub(super) fn entries(&self) -> u64 {
        self.sst.footer.entries
    }

    /// Whether the index does not point to the run and no later update will.
    pub(super) fn is_dead(&self) -> bool {
        self.sealed.load(Ordering::Relaxed) && self.live() == 0
    }

    /// Returns why the run is a candidate for compaction; 0 if it is none.
    pub(super) fn reasons(&self) -> u8 {
        self.reasons.load(Ordering::Relaxed)
    }

    /// Makes the run a candidate. Returns whether it was none before.
    pub(super) fn mark_candidate(&self, reason: u8) -> bool {
        self.reasons.fetch_or(reason, Ordering::Relaxed) == 0
    }

    /// Makes the run no candidate.
    pub(super) fn unmark_candidate(&self) {
        self.reasons.store(0, Ordering::Relaxed);
    }

    /// Estimates the bytes of keys and values of live entries.
    pub(super) fn live_bytes(&self) -> u64 {
        let all = u128::from(self.sst.footer.payload_bytes) * u128::from(self.live());
        low_u64(all / u128::from(self.entries().max(1)))
    }

    /// Returns the average bytes of key and value of an entry.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.sst.footer.payload_bytes / self.entries().max(1)
    }

    /// Returns the error of an index value that points to a block without the key.
    #[cold]
    pub(super) fn missing_key(&self, block: u32, key: &[u8]) -> Error {
        let key = key.escape_ascii();
        self.sst.damage(0, format!("block {block} lacks key {key}, to which the index points"))
    }

    /// Returns the bytes of memory that the run takes, without its cached blocks.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.sst.memory_bytes() + to_u64(self.low.len() + self.high.len())
    }
}

/// Encodes the first and the last key of a run for the index section of its file.
pub(super) fn encode_bounds(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, low);
    put_bytes(&mut out, high);
    out
}

/// Decodes the first and the last key of a run; `None` if these bytes are damaged.
pub(super) fn decode_bounds(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut decoder = Decoder::new(bytes);
    let bounds = (decoder.bytes()?.to_vec(), decoder.bytes()?.to_vec());
    (decoder.is_empty() && bounds.0 <= bounds.1).then_some(bounds)
}

/// The set of runs that readers see, in ascending order of their numbers. It is immutable.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSet {
    all: Vec<Arc<SortedRun>>,
    /// The numbers of `all`, side by side: a binary search touches few cache lines.
    numbers: Vec<u32>,
}

impl RunSet {
    /// Creates a set of runs in any order.
    pub(super) fn new(mut all: Vec<Arc<SortedRun>>) -> Self {
        all.sort_by_key(|run| run.number);
        let numbers = all.iter().map(|run| run.number).collect();
        Self { all, numbers }
    }

    /// Returns the run with a number.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&Arc<SortedRun>> {
        self.at(self.index_of(number)?)
    }

    /// Returns the index of the run with a number, for [`Self::at`].
    #[inline]
    pub(super) fn index_of(&self, number: u32) -> Option<u32> {
        self.numbers.binary_search(&number).ok().and_then(|index| u32::try_from(index).ok())
    }

    /// Returns the run at an index.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&Arc<SortedRun>> {
        self.all.get(to_usize(u64::from(index)))
    }

    /// Iterates over the runs in ascending order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<SortedRun>> {
        self.all.iter()
    }

    /// Returns the number of runs.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns this set and one more run.
    pub(super) fn with(&self, run: &Arc<SortedRun>) -> Self {
        Self::new(self.all.iter().chain([run]).cloned().collect())
    }

    /// Returns this set without the runs of these numbers.
    pub(super) fn without(&self, gone: &[u32]) -> Self {
        Self::new(self.all.iter().filter(|run| !gone.contains(&run.number)).cloned().collect())
    }
}

/// Passes a description of a run's file to `say`, line by line. Fails with `Corruption` if the file
/// is damaged.
pub(crate) fn describe_run(
    dir: &Arc<dyn Dir>,
    file: &dyn File,
    label: &str,
    say: &mut LineSink<'_>,
) -> Result<()> {
    describe::sst((dir, file, label), (SstKind::RUN, "slm run"), say, |sst, say| {
        let section = sst.footer.index;
        let bounds = decode_bounds(&sst.section(section)?);
        let (low, high) =
            bounds.ok_or_else(|| sst.damage(section.offset, "the key bounds cannot be decoded"))?;
        say(&format!("  first key    {}", brief(&low)));
        say(&format!("  last key     {}", brief(&high)));
        Ok(())
    })
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn bounds_decode_if_they_are_in_order() {
        let bounds = (b"a".to_vec(), b"z".to_vec());
        assert_eq!(decode_bounds(&encode_bounds(b"a", b"z")), Some(bounds));
        assert_eq!(decode_bounds(&encode_bounds(b"z", b"a")), None);
    }
}
