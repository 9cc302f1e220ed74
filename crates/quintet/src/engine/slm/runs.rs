//! Runs: the files that the index points into, and the list of them in each checkpoint.
//!
//! A [`SortedRun`] is a file of entries in key order ([`crate::lsm::sst`]) with the count of its live
//! entries. [`RunSet`] is the set that readers see. The [`RunManifest`] has every run that has a file. It
//! writes the list of runs with live entries into the index at each checkpoint.
//!
//! The list is the value of the empty key, which no entry can have:
//!
//! | part | meaning |
//! |---|---|
//! | format | 1 byte: 3; 1 and 2 are read too: they end with the runs, keys are as they are, and places of 1 have no hints |
//! | next run | varint: the number of the next run |
//! | count | varint |
//! | runs | by number, each: varints number, file bytes, live entries; 1 byte why it is a candidate for compaction (bits: 1 dead entries, 2 leaves, 4 ranges, 8 it is small) |
//! | keys | 1 byte how the index writes keys: 0 it has none yet, 1 as they are, 2 in the code that follows: [`KeyCode::lengths`] |
//!
//! The value of any other key is an [`IndexValue`], 8 bytes:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 31 | number of the run |
//! | 32 to 54 | number of the block |
//! | 55 to 62 | where in the block the entry begins, in 256ths of `block_bytes`: a hint |
//! | 63 | the value does not expire |
//!
//! Invariants: live counts change with the index, inside the gate, so the list of a checkpoint
//! agrees with the places in it. The list leaves out a run whose entries are all dead and to which
//! no new place will point. Once that checkpoint is durable, its file is removed. No other file is.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::{
    keys::{Coding, IndexKeyCodec},
    mutants,
};
use crate::{
    Error, Result,
    bptree::{Change, Tree, checkpoint::CheckpointParticipant},
    engine::slm::key_code::{KeyCode, SYMBOLS},
    lsm::{
        sst::decoded_block::DecodedBlockCache,
        sst::{Owner, Sst},
    },
    util::{
        codec::{Decoder, low_u8, low_u32, put_bytes, put_varint, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
};

const FORMAT: u8 = 3;
/// Older formats that opening accepts. Their lists do not say how the index stores keys.
const PLAIN_FORMATS: std::ops::RangeInclusive<u8> = 1..=2;
/// Key of the list in the index. No entry can have the empty key.
pub(super) const LIST_KEY: &[u8] = b"";
/// The lowest key that an entry can have.
pub(super) const FIRST_KEY: &[u8] = &[0];

// Reasons why a run is a candidate for compaction: bits of one byte.

/// Too many of the run's entries are dead.
pub(super) const DEAD: u8 = 1;
/// Neighbouring leaves of the index point into too many runs, this one among them.
pub(super) const LEAVES: u8 = 2;
/// A range query read too many runs, this one among them.
pub(super) const RANGES: u8 = 4;
/// The run is small, and the table has too many small runs.
pub(super) const SMALL: u8 = 8;
/// All reasons.
const REASONS: u8 = 15;

/// Address of a block: the number of its run, and its number in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockAddress {
    pub(super) run: u32,
    pub(super) block: u32,
}

impl BlockAddress {
    /// Decodes the address in a value of the index; `None` if the value has a wrong length.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        IndexValue::decode(bytes).map(|index_value| index_value.address)
    }
}

/// Exclusive limit of the blocks of a run, and of its entries: a block number has 23 bits.
pub(super) const BLOCKS_MAX: u32 = 1 << 23;
/// Bits of a block's number.
const BLOCK_BITS: u32 = BLOCKS_MAX.trailing_zeros();
/// Bit of the high word that marks a value without an expiry time.
const NEVER_EXPIRES: u32 = 1 << 31;
/// Logarithm of the number of parts into which a block is divided.
const PART_BITS: u32 = 8;

/// The value of a key in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexValue {
    pub(super) address: BlockAddress,
    /// The value has no expiry time, so the key exists: no read is needed to know that.
    pub(super) never_expires: bool,
    /// The part of the block in which the entry begins. Gets prefetch it, and ranges read the entry
    /// there without a search. Runs that do not record their block size have no parts.
    pub(super) part: u8,
}

/// Returns the part of a block of `block_bytes` that contains byte `offset` of its entries.
pub(super) fn part_of_offset(offset: usize, block_bytes: usize) -> u8 {
    low_u8(to_u64((offset << PART_BITS) / block_bytes).min(u64::from(u8::MAX)))
}

/// Returns the offsets in a block's entries that belong to a part. The last part has no end.
pub(super) fn offsets_of_part(part: u8, block_bytes: usize) -> Range<usize> {
    let first = |part: usize| (part * block_bytes).div_ceil(1 << PART_BITS);
    let part = usize::from(part);
    first(part)..if part < usize::from(u8::MAX) { first(part + 1) } else { usize::MAX }
}

impl IndexValue {
    /// Encodes the value for the index.
    pub(super) fn encode(self) -> [u8; 8] {
        let part = u32::from(self.part) << BLOCK_BITS;
        let block = self.address.block | part | if self.never_expires { NEVER_EXPIRES } else { 0 };
        (u64::from(block) << 32 | u64::from(self.address.run)).to_le_bytes()
    }

    /// Decodes a value of the index; `None` if it has a wrong length.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*bytes.first_chunk::<8>().filter(|_| bytes.len() == 8)?);
        let block = low_u32(word >> 32);
        let address = BlockAddress { run: low_u32(word), block: block % BLOCKS_MAX };
        let part = low_u8(u64::from(block >> BLOCK_BITS));
        Some(Self { address, never_expires: block & NEVER_EXPIRES != 0, part })
    }

    /// As [`IndexValue::decode`], as the callback of a lookup in the index.
    #[inline]
    pub(super) fn from_lookup(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Self> {
        let mut bytes = [0; 8];
        if length == bytes.len() {
            fill(&mut bytes);
            return Self::decode(&bytes);
        }
        None
    }
}

/// A run in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunRecord {
    pub(super) number: u32,
    pub(super) file_bytes: u64,
    pub(super) live: u64,
    pub(super) reasons: u8,
}

/// The list of runs of a checkpoint. See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunList {
    /// Number of the next run.
    pub(super) next: u32,
    /// In ascending order of their numbers.
    pub(super) runs: Vec<RunRecord>,
    /// How the index stores keys.
    pub(super) coding: Coding,
}

impl RunList {
    /// Encodes the list in the current format.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, u64::from(self.next));
        put_varint(&mut out, to_u64(self.runs.len()));
        for run in &self.runs {
            put_varint(&mut out, u64::from(run.number));
            put_varint(&mut out, run.file_bytes);
            put_varint(&mut out, run.live);
            out.push(run.reasons);
        }
        match &self.coding {
            Coding::Open => out.push(0),
            Coding::Plain => out.push(1),
            Coding::Code(code) => {
                out.push(2);
                out.extend_from_slice(code.lengths());
            }
        }
        out
    }

    /// Decodes the list of the index called `label`. Fails with `NewerFormat` or `Corruption`.
    pub(super) fn open(bytes: &[u8], label: &str) -> Result<Self> {
        if let Some(found) = bytes.first().copied().filter(|found| *found > FORMAT) {
            let (file, found, supported) = (label.to_owned(), found.into(), FORMAT.into());
            return Err(Error::NewerFormat { file, found, supported });
        }
        let damaged = || Error::corruption(label, 0, "the list of runs cannot be decoded");
        Self::decode(bytes).ok_or_else(damaged)
    }

    /// Decodes a list; `None` if no version writes these bytes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let format = decoder.u8()?;
        let mut list = Self { next: number(&mut decoder)?, ..Self::default() };
        let mut before = None;
        for _ in 0..decoder.varint()? {
            let number = number(&mut decoder)?;
            let (file_bytes, live) = (decoder.varint()?, decoder.varint()?);
            let reasons = *decoder.take(1)?.first()?;
            let ascends = before.is_none_or(|before| before < number) && number < list.next;
            if !ascends || live == 0 || reasons & !REASONS != 0 {
                return None;
            }
            before = Some(number);
            list.runs.push(RunRecord { number, file_bytes, live, reasons });
        }
        list.coding = match format {
            FORMAT => coding(&mut decoder)?,
            _ if !PLAIN_FORMATS.contains(&format) => return None,
            // Without runs the index is empty.
            _ if list.runs.is_empty() => Coding::Open,
            _ => Coding::Plain,
        };
        let is_decided = list.coding != Coding::Open || list.runs.is_empty();
        (is_decided && decoder.is_empty()).then_some(list)
    }
}

fn coding(decoder: &mut Decoder<'_>) -> Option<Coding> {
    match decoder.u8()? {
        0 => Some(Coding::Open),
        1 => Some(Coding::Plain),
        2 => KeyCode::from_lengths(decoder.take(SYMBOLS)?).map(Arc::new).map(Coding::Code),
        _ => None,
    }
}

fn number(decoder: &mut Decoder<'_>) -> Option<u32> {
    u32::try_from(decoder.varint()?).ok()
}

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
    pub(super) fn open(owner: &Owner, record: &RunRecord) -> Result<Self> {
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

    /// Whether the location cache may hold entries of the run: it records its block size, and most
    /// of its entries are the only one that begins in their part of a block.
    #[inline]
    pub(super) fn is_cacheable(&self) -> bool {
        self.sst.footer.block_bytes > 0 && self.entries_per_block <= (1 << PART_BITS) / 2
    }

    /// Prefetches the slot that says where a block is in the block cache.
    #[inline]
    pub(super) fn prefetch_place(&self, address: BlockAddress) {
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
        crate::util::codec::low_u64(all / u128::from(self.entries().max(1)))
    }

    /// Returns the average bytes of key and value of an entry.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.sst.footer.payload_bytes / self.entries().max(1)
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

/// The mutable state of the manifest.
#[derive(Debug, Default)]
struct ManifestState {
    /// Every run that has a file, by number.
    runs: BTreeMap<u32, Arc<SortedRun>>,
    /// Numbers of the dead runs that the list of the newest checkpoint leaves out. That checkpoint
    /// may not be durable yet.
    omitted_runs: Vec<u32>,
    /// Numbers of the runs that the newest durable list leaves out: their files can be removed.
    removable_runs: Vec<u32>,
    /// The name of a run's file may not be durable yet.
    has_new_names: bool,
}

/// The manifest of a table's runs. It takes part in each checkpoint of the index.
#[derive(Debug)]
pub(super) struct RunManifest {
    owner: Owner,
    entries: Mutex<ManifestState>,
    /// The number of the next run.
    next: AtomicU64,
    /// How the index stores keys. Unset until [`Self::load`].
    keys: OnceLock<Arc<IndexKeyCodec>>,
}

impl RunManifest {
    /// Creates an empty manifest.
    pub(super) fn new(owner: Owner) -> Self {
        let (entries, keys) = Default::default();
        Self { owner, entries, next: AtomicU64::new(1), keys }
    }

    /// Fills the manifest with the runs that opening has found.
    pub(super) fn load(&self, next: u32, runs: &RunSet, keys: &Arc<IndexKeyCodec>) {
        let _ = self.keys.set(Arc::clone(keys));
        self.next.store(u64::from(next).max(1), Ordering::Relaxed);
        lock(&self.entries).runs = runs.iter().map(|run| (run.number, Arc::clone(run))).collect();
    }

    /// Allocates a run number. Fails with `Limit` after 2^32 runs.
    pub(super) fn next_number(&self) -> Result<u32> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let what = "the table has used all 2^32 run numbers; copy it to a new table";
        u32::try_from(number).map_err(|_| Error::Limit { what: what.to_owned() })
    }

    /// Adds a run whose file is complete.
    pub(super) fn add(&self, run: &Arc<SortedRun>) {
        let mut entries = lock(&self.entries);
        entries.runs.insert(run.number, Arc::clone(run));
        entries.has_new_names = true;
    }

    /// Whether the next checkpoint drops a run.
    pub(super) fn has_dead(&self) -> bool {
        lock(&self.entries).runs.values().any(|run| run.is_dead())
    }

    /// Removes the runs that the newest durable list leaves out, and returns their numbers.
    pub(super) fn remove_unlisted(&self) -> Vec<u32> {
        let mut entries = lock(&self.entries);
        let gone = std::mem::take(&mut entries.removable_runs);
        for number in &gone {
            entries.runs.remove(number);
        }
        gone
    }
}

impl CheckpointParticipant for RunManifest {
    fn join(&self, tree: &Tree) -> Result<Change> {
        let mut entries = lock(&self.entries);
        let (mut omitted_runs, mut runs) = (Vec::new(), Vec::new());
        for run in entries.runs.values() {
            let (live, reasons) = (run.live(), run.reasons());
            if live > 0 {
                let file_bytes = run.sst.file_bytes;
                runs.push(RunRecord { number: run.number, file_bytes, live, reasons });
            } else if run.is_dead() {
                omitted_runs.push(run.number);
            }
        }
        let next = u32::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let coding = self.keys.get().map_or(Coding::Open, |keys| keys.coding());
        let coding = mutant!(SlmForgetsKeyCode: mutants::without_code(coding), else coding);
        let list = RunList { next, runs, coding }.encode();
        mutant!(SlmRemovesRunsEarly => mutants::remove_runs(&self.owner, &omitted_runs));
        entries.omitted_runs = omitted_runs;
        let is_empty = entries.runs.is_empty();
        mutant!(SlmCutsWithoutList => if !is_empty { return Ok(Change::default()); });
        tree.put(LIST_KEY, [&list, &[]], None)
    }

    fn settle(&self) -> Result<()> {
        let has_new_names = std::mem::take(&mut lock(&self.entries).has_new_names);
        if mutant!(SlmSkipsDirSync: true, else !has_new_names) {
            return Ok(());
        }
        let synced = self.owner.dir.sync();
        synced.map_err(|error| {
            lock(&self.entries).has_new_names = true;
            Error::io(format!("sync {}", self.owner.label("")), error)
        })
    }

    fn stored(&self) {
        let mut entries = lock(&self.entries);
        let omitted_runs = std::mem::take(&mut entries.omitted_runs);
        for number in omitted_runs {
            if !entries.removable_runs.contains(&number) {
                entries.removable_runs.push(number);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_runs_has_the_documented_layout_and_decodes() {
        let one = |number, live| RunRecord { number, file_bytes: 8192, live, reasons: DEAD };
        let runs = vec![one(3, 1), one(8, 300)];
        let list = RunList { next: 9, runs, coding: Coding::Plain };
        let bytes = list.encode();
        assert_eq!(bytes, [3, 9, 2, 3, 128, 64, 1, 1, 8, 128, 64, 172, 2, 1, 1]);
        assert_eq!(RunList::decode(&bytes), Some(list.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(RunList::decode(&bytes[..cut]), None);
        }
        // Formats before hints and before key codes, and a newer format.
        let of_format = |format| [&[format], &bytes[1..]].concat();
        for format in [1, 2] {
            let mut old = of_format(format);
            assert!(RunList::open(&old, "x").is_err());
            old.pop();
            assert_eq!(RunList::open(&old, "x").unwrap(), list);
            let empty = RunList::open(&[format, 9, 0], "x").unwrap();
            assert_eq!(empty, RunList { next: 9, ..RunList::default() });
        }
        assert!(matches!(RunList::open(&of_format(0), "x"), Err(Error::Corruption { .. })));
        let newer = RunList::open(&of_format(4), "x");
        assert!(matches!(newer, Err(Error::NewerFormat { found: 4, supported: 3, .. })));
        let bad = [
            RunList { next: 8, ..list.clone() },
            RunList { runs: vec![one(8, 1), one(3, 1)], ..list.clone() },
            RunList { runs: vec![one(3, 0)], ..list.clone() },
            // The index has keys, and the list does not say how they are stored.
            RunList { coding: Coding::Open, ..list },
        ];
        assert!(bad.iter().all(|list| RunList::decode(&list.encode()).is_none()));
    }

    #[test]
    fn the_list_of_runs_keeps_the_key_code() {
        let mut lengths = [8; SYMBOLS];
        lengths[..2].copy_from_slice(&[9, 9]);
        let code = Arc::new(KeyCode::from_lengths(&lengths).unwrap());
        let list = RunList { next: 1, runs: Vec::new(), coding: Coding::Code(code) };
        let bytes = list.encode();
        assert_eq!(bytes[..7], [3, 1, 0, 2, 9, 9, 8]);
        assert_eq!(RunList::decode(&bytes), Some(list));
        for cut in 0..bytes.len() {
            assert_eq!(RunList::decode(&bytes[..cut]), None);
        }
        for (at, bad) in [(3, 3), (3, 1), (3, 0), (4, 8), (9, 0), (9, 7), (9, 255)] {
            let mut bytes = bytes.clone();
            bytes[at] = bad;
            assert_eq!(RunList::decode(&bytes), None, "{bad} at {at}");
        }
        let open = RunList { next: 1, ..RunList::default() };
        assert_eq!(open.encode(), [3, 1, 0, 0]);
        assert_eq!(RunList::decode(&[3, 1, 0, 0]), Some(open));
    }

    #[test]
    fn index_values_and_bounds_have_the_documented_layout_and_decode() {
        let address = BlockAddress { run: 7, block: 0x0002_0304 };
        let index_value = |never_expires, part| IndexValue { address, never_expires, part };
        assert_eq!(index_value(false, 0).encode(), [7, 0, 0, 0, 4, 3, 2, 0]);
        assert_eq!(index_value(true, 0).encode(), [7, 0, 0, 0, 4, 3, 2, 128]);
        assert_eq!(index_value(false, 3).encode(), [7, 0, 0, 0, 4, 3, 130, 1]);
        for part in [0, 1, 128, 255] {
            for index_value in [index_value(false, part), index_value(true, part)] {
                assert_eq!(IndexValue::decode(&index_value.encode()), Some(index_value));
                assert_eq!(BlockAddress::decode(&index_value.encode()), Some(address));
            }
        }
        let last = BlockAddress { run: u32::MAX, block: BLOCKS_MAX - 1 };
        let last = IndexValue { address: last, never_expires: true, part: 255 };
        assert_eq!(IndexValue::decode(&last.encode()), Some(last));
        assert_eq!(
            [0, 15, 16, 4087, 1 << 20].map(|at| part_of_offset(at, 4096)),
            [0, 0, 1, 255, 255]
        );
        for block_bytes in [512, 1000, 4096, 5000, 1 << 20] {
            for at in (0..2 * block_bytes).step_by(block_bytes / 500) {
                let bytes = offsets_of_part(part_of_offset(at, block_bytes), block_bytes);
                assert!(bytes.contains(&at), "{at} of {block_bytes}: {bytes:?}");
            }
        }
        assert_eq!(BlockAddress::decode(&[0; 9]), None);
        let bounds = (b"a".to_vec(), b"z".to_vec());
        assert_eq!(decode_bounds(&encode_bounds(b"a", b"z")), Some(bounds));
        assert_eq!(decode_bounds(&encode_bounds(b"z", b"a")), None);
    }
}
