//! Loading the index from hints, in parallel.
//!
//! The hints of all extents are partitioned by hash into shares of the index, in parallel over
//! groups of extents. Then the newest entry of each hash is stored in the lines of its share, in
//! parallel over shares. A share fits in the caches. If memory is short, several passes read the
//! hints, each for a part of the hashes.
//!
//! Invariant: sources are in the order of their age, a group is a contiguous part of them, and both
//! steps keep the order. So of the entries of one hash, the last is the newest.
//!
//! Threads: those of [`crate::io::Env::parallel`], while no other thread uses the table.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::engine::hashlog::{
    arena::EXTENT_HEAD_UNITS,
    chunk::Chunk,
    cold_entry::ColdEntry,
    entry::{EntryKind, LargeRef, StoredEntry, UNIT_BYTES},
    files::FileRange,
    index::{AddOutcome, IndexLoader, SLOTS},
    manifest::{Extent, HashLogManifest, HintReader, HintsLocation, IndexHint, encode_hints},
    pack::{BlockDirectory, PackedExtent},
    table::HashLog,
};
use crate::{
    Error, Result,
    io::Region,
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock, read},
    },
};

/// Entries of a share. They and their index lines fit in a second-level cache.
const SHARE_ENTRIES: u64 = 1 << 14;
/// Maximum number of shares, as a power of two.
const SHARE_BITS_MAX: u32 = 12;
/// Bytes of memory for a partitioned entry, with the spare room of the shares.
const PARTITIONED_BYTES: u64 = 20;
/// Minimum bytes of memory of a pass. Less is not worth another pass over the hints.
const PASS_BYTES_MIN: u64 = 1 << 20;
/// Number of groups of extents that are partitioned in parallel.
const GROUPS: usize = 8;
/// Number of entries ahead whose index lines are prefetched.
const PREFETCH_DISTANCE: usize = 16;
/// Bytes of partitioned entries above which they are in huge pages.
const HUGE_ABOVE_BYTES: u64 = 4 << 20;

/// A partitioned entry: its hash, then from the highest bit: rank of the chunk (20), unit (21),
/// units of the entry (20), wide (1), kind (2). Of two entries of the same hash, the greater is the
/// newer.
type PartitionedEntry = (u64, u64);

const KIND_BITS: u32 = 2;
const WIDE_SHIFT: u32 = KIND_BITS;
const UNITS_SHIFT: u32 = 3;
const UNIT_SHIFT: u32 = UNITS_SHIFT + 20;
const RANK_SHIFT: u32 = UNIT_SHIFT + 21;
/// Words of a [`PartitionedEntry`].
const ENTRY_WORDS: usize = 2;

const PUT: u64 = 0;
const TOMBSTONE: u64 = 1;
const LARGE: u64 = 2;

/// An extent to load.
pub(super) struct ExtentSource {
    pub(super) chunk: Arc<Chunk>,
    /// Position of the chunk in the order of age.
    pub(super) rank: u64,
    pub(super) extent: Extent,
    pub(super) hints: HintsLocation,
    /// File range of the chunk, or of the extent if it is packed.
    pub(super) file_range: FileRange,
}

/// One pass: the entries of its part of the hashes, partitioned by share.
struct LoadPass<'a> {
    loader: IndexLoader<'a>,
    pass: u64,
    passes: u64,
    /// Space for the entries: by group, then by share.
    words: Region,
    groups: Vec<Mutex<ExtentGroup>>,
    /// Buffers of finished shares, for reuse.
    memory: Mutex<Vec<LineMemory>>,
}

/// The buffer of [`IndexLoader::share_loader`].
type LineMemory = Vec<[u32; SLOTS]>;

/// The partitioned entries of a group of extents.
struct ExtentGroup {
    /// Index of its first word.
    first: usize,
    /// Capacity of a share, in entries.
    room: usize,
    /// Number of entries of each share.
    counts: Vec<usize>,
    /// Entries beyond the capacity of their share.
    overflow: BTreeMap<usize, Vec<PartitionedEntry>>,
}

impl<'a> LoadPass<'a> {
    fn new(
        loader: IndexLoader<'a>,
        (pass, passes): (u64, u64),
        sources: &[&[ExtentSource]],
    ) -> std::io::Result<Self> {
        let shares = 1_usize << loader.share_bits();
        let mut first = 0;
        let mut groups = Vec::with_capacity(sources.len());
        for group in sources {
            let count: u64 = group.iter().map(|source| source.extent.entry_count).sum();
            let share = (count / passes) >> loader.share_bits();
            // The average plus three standard deviations.
            let room = to_usize(share + 3 * share.isqrt() + 16);
            let counts = vec![0; shares];
            groups.push(Mutex::new(ExtentGroup { first, room, counts, overflow: BTreeMap::new() }));
            first += shares * room * ENTRY_WORDS;
        }
        let bytes = to_u64(first) * 8;
        let words = Region::reserve(bytes)?;
        if bytes > HUGE_ABOVE_BYTES {
            words.advise_huge(0..bytes);
        }
        Ok(Self { loader, pass, passes, words, groups, memory: Mutex::default() })
    }

    fn is_in_pass(&self, hash: u64) -> bool {
        self.passes == 1 || (hash >> 40) % self.passes == self.pass
    }

    #[inline]
    fn partition(&self, group: &mut ExtentGroup, (hash, packed): PartitionedEntry) {
        let share = self.loader.share(hash);
        let Some(count) = group.counts.get_mut(share) else { return };
        let at = group.first + (share * group.room + *count) * ENTRY_WORDS;
        if *count < group.room
            && let Some([first, second]) = self.words.words().get(at..at + ENTRY_WORDS)
        {
            first.store(hash, Ordering::Relaxed);
            second.store(packed, Ordering::Relaxed);
            *count += 1;
        } else {
            group.overflow.entry(share).or_default().push((hash, packed));
        }
    }

    /// Returns the entries of a share, by group.
    fn runs(&self, share: usize) -> Vec<ShareRun> {
        let run = |group: &Mutex<ExtentGroup>| {
            let mut group = lock(group);
            let count = group.counts.get(share).copied().unwrap_or(0);
            let first = group.first + share * group.room * ENTRY_WORDS;
            let overflow = group.overflow.remove(&share).unwrap_or_default();
            ShareRun { first, end: first + count * ENTRY_WORDS, overflow }
        };
        self.groups.iter().map(run).collect()
    }

    /// Returns the entries of a share, the newest first.
    fn newest_first<'b>(
        &'b self,
        runs: &'b [ShareRun],
    ) -> impl Iterator<Item = PartitionedEntry> + 'b {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        runs.iter().rev().flat_map(move |run| {
            let words = self.words.words().get(run.first..run.end).unwrap_or(&[]);
            let dealt = words.as_chunks().0.iter().rev().map(move |[a, b]| (load(a), load(b)));
            run.overflow.iter().rev().copied().chain(dealt)
        })
    }
}

/// The entries of a share in one group.
struct ShareRun {
    /// First word in the region.
    first: usize,
    end: usize,
    overflow: Vec<PartitionedEntry>,
}

/// Totals and results of all passes.
#[derive(Default)]
struct LoadTotals {
    keys: AtomicU64,
    live_bytes: AtomicU64,
    waste_units: AtomicU64,
    /// Numbers of large values, by partitioned entry.
    larges: Mutex<BTreeMap<PartitionedEntry, u64>>,
    live_larges: Mutex<Vec<u64>>,
    /// The first error.
    failed: Mutex<Option<Error>>,
    /// The index has no memory left.
    full: AtomicBool,
}

impl LoadTotals {
    fn record_outcome(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            lock(&self.failed).get_or_insert(error);
        }
    }
}

/// Totals of one share.
#[derive(Default)]
struct ShareTotals {
    keys: u64,
    live_bytes: u64,
    waste_units: u64,
}

impl HashLog {
    /// Loads the index. Returns the numbers of the live large values. Fails with `OutOfMemory` if
    /// the index does not fit in its address space.
    pub(super) fn load_index(
        &self,
        manifest: &HashLogManifest,
        sources: &[ExtentSource],
    ) -> Result<Vec<u64>> {
        let total: u64 = sources.iter().map(|source| source.extent.entry_count).sum();
        self.index.presize(total);
        let bits = (total / SHARE_ENTRIES).next_power_of_two().trailing_zeros();
        let index = self.index.loader(bits.min(SHARE_BITS_MAX));
        self.charge_index();
        let budget = &self.context.budget;
        let free = budget.limit().saturating_sub(budget.used());
        let memory = (budget.limit() / 3).min(free / 2).max(PASS_BYTES_MIN);
        let passes = (total * PARTITIONED_BYTES).div_ceil(memory).max(1);
        let _memory = budget.reserve_transient((total * PARTITIONED_BYTES).div_ceil(passes));
        let totals = LoadTotals::default();
        let groups: Vec<&[ExtentSource]> =
            sources.chunks(sources.len().div_ceil(GROUPS).max(1)).collect();
        let chunks = chunk_ids_by_rank(sources);
        for pass in 0..passes {
            let load_pass = LoadPass::new(index, (pass, passes), &groups)
                .map_err(|error| Error::io("reserve memory to load the index", error))?;
            self.run_pass(manifest, (&groups, &chunks), &totals, &load_pass)?;
        }
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.index.add_len(load(&totals.keys));
        let live = std::mem::take(&mut *lock(&totals.live_larges));
        let larges = read(&self.larges);
        let large_bytes: u64 =
            live.iter().filter_map(|number| larges.get(number)).map(|large| large.length).sum();
        let counters = &self.counters;
        counters.live_bytes.store(load(&totals.live_bytes) + large_bytes, Ordering::Relaxed);
        counters.waste_units.store(load(&totals.waste_units), Ordering::Relaxed);
        let heads = to_u64(sources.len()) * EXTENT_HEAD_UNITS;
        let units: u64 = sources.iter().map(|source| source.extent.end - source.extent.start).sum();
        counters.units.store(units - heads, Ordering::Relaxed);
        Ok(live)
    }

    fn run_pass(
        &self,
        manifest: &HashLogManifest,
        (groups, chunks): (&[&[ExtentSource]], &[u64]),
        totals: &LoadTotals,
        load_pass: &LoadPass<'_>,
    ) -> Result<()> {
        let env = &self.context.env;
        env.parallel(groups.len(), &|task| {
            if let (Some(sources), Some(group)) = (groups.get(task), load_pass.groups.get(task)) {
                let mut group = lock(group);
                for source in *sources {
                    totals.record_outcome(
                        self.partition_extent(manifest, source, totals, load_pass, &mut group),
                    );
                }
            }
        });
        if lock(&totals.failed).is_none() {
            env.parallel(1 << load_pass.loader.share_bits(), &|share| {
                totals.record_outcome(self.load_share(chunks, totals, load_pass, share));
            });
        }
        match lock(&totals.failed).take() {
            Some(error) => Err(error),
            None if totals.full.load(Ordering::Relaxed) => Err(Error::OutOfMemory {
                budget: self.context.budget.limit(),
                needed: self.index.bytes(),
            }),
            None => Ok(()),
        }
    }

    /// Partitions the entries of an extent, from its hints or, if those are damaged, from its
    /// data.
    fn partition_extent(
        &self,
        manifest: &HashLogManifest,
        source: &ExtentSource,
        totals: &LoadTotals,
        load_pass: &LoadPass<'_>,
        group: &mut ExtentGroup,
    ) -> Result<()> {
        let _memory = self.context.budget.reserve_transient(source.hints.bytes);
        let bytes = manifest.hints(&source.hints)?;
        let bytes = bytes.filter(|bytes| {
            let (directory, hints) = directory_and_hints(bytes, &source.extent);
            hints_fit(hints, &source.extent) && adopt_packed_extent(source, directory)
        });
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => self.hints_of_data(source)?,
        };
        let hints = directory_and_hints(&bytes, &source.extent).1;
        let mut unit = source.extent.start + EXTENT_HEAD_UNITS;
        for hint in HintReader::new(hints) {
            let units = units_of(&hint);
            if load_pass.is_in_pass(hint.hash) {
                let packed = source.rank << RANK_SHIFT
                    | unit << UNIT_SHIFT
                    | units << UNITS_SHIFT
                    | hint.wide << WIDE_SHIFT
                    | hint.kind;
                load_pass.partition(group, (hint.hash, packed));
                if hint.kind == LARGE {
                    lock(&totals.larges).insert((hint.hash, packed), hint.large);
                }
            }
            unit += units;
        }
        Ok(())
    }

    /// Recreates directory and hints from the extent's data. Fails with `Corruption` if the data is
    /// damaged.
    fn hints_of_data(&self, source: &ExtentSource) -> Result<Vec<u8>> {
        let ExtentSource { extent, file_range, .. } = source;
        let size = to_usize((extent.end - extent.start) * 8);
        let _memory = self.context.budget.reserve_transient(2 * to_u64(size));
        let (image, mut out) = if extent.packing_bytes() > 0 {
            let (image, directory) = self.read_packed(file_range, extent)?;
            adopt_packed_extent(source, &directory);
            (image, directory)
        } else {
            let (image, _) = file_range.read(extent.start * 8, size)?;
            self.verify_extent(file_range, extent, image.as_slice())?;
            (image, Vec::new())
        };
        let mut hints = Vec::new();
        let mut unit = extent.start + EXTENT_HEAD_UNITS;
        while unit < extent.end {
            let at = to_usize(unit - extent.start) * UNIT_BYTES;
            let bytes = image.as_slice().get(at..).unwrap_or(&[]);
            let damage = || source.chunk.damage(unit, "the entry's checksum does not match");
            let entry = StoredEntry::verify(bytes, source.chunk.serial, to_usize(unit))
                .ok_or_else(damage)?;
            let (kind, large) = match entry.head.kind {
                EntryKind::Put => (PUT, 0),
                EntryKind::Tombstone => (TOMBSTONE, 0),
                EntryKind::Large => {
                    (LARGE, LargeRef::decode(entry.value()).map_or(0, |large| large.number))
                }
            };
            let payload = to_u64(entry.head.key_bytes + entry.head.value_bytes);
            let wide = u64::from(entry.head.key_at() == 24);
            let hash = self.hash(entry.key());
            hints.push(IndexHint { hash, payload, wide, kind, large });
            unit += to_u64(entry.head.units());
        }
        encode_hints(&mut out, &hints);
        Ok(out)
    }

    /// Loads one share: adds the newest entry of each hash to the index.
    fn load_share(
        &self,
        chunks: &[u64],
        totals: &LoadTotals,
        load_pass: &LoadPass<'_>,
        share: usize,
    ) -> Result<()> {
        let runs = load_pass.runs(share);
        let mut share_totals = ShareTotals::default();
        if self.collided.load(Ordering::Relaxed) {
            let entries = load_pass.newest_first(&runs).collect();
            self.load_collided(chunks, totals, load_pass.loader, entries, &mut share_totals)?;
        } else {
            self.load_newest(chunks, totals, load_pass, (share, &runs), &mut share_totals);
        }
        totals.keys.fetch_add(share_totals.keys, Ordering::Relaxed);
        totals.live_bytes.fetch_add(share_totals.live_bytes, Ordering::Relaxed);
        totals.waste_units.fetch_add(share_totals.waste_units, Ordering::Relaxed);
        Ok(())
    }

    /// Adds the newest entry of each hash.
    fn load_newest(
        &self,
        chunks: &[u64],
        totals: &LoadTotals,
        load_pass: &LoadPass<'_>,
        (share, runs): (usize, &[ShareRun]),
        share_totals: &mut ShareTotals,
    ) {
        let memory = lock(&load_pass.memory).pop().unwrap_or_default();
        let mut into = load_pass.loader.share_loader(share, load_pass.pass == 0, memory);
        let mut removed = BTreeSet::new();
        let mut add = |entry: PartitionedEntry| {
            let (hash, packed) = entry;
            let Some(address) = self.address_of(chunks, packed) else { return };
            let is_newest = if !removed.is_empty() && removed.contains(&hash) {
                false
            } else if packed & 3 == TOMBSTONE {
                let is_newest = !into.has(hash);
                if is_newest {
                    removed.insert(hash);
                }
                is_newest
            } else {
                let added = into.add(hash, address);
                if added == AddOutcome::Full {
                    totals.full.store(true, Ordering::Relaxed);
                }
                added != AddOutcome::Older
            };
            self.count_entry(address, totals, entry, is_newest, share_totals);
        };
        let mut ahead = [(0, 0); PREFETCH_DISTANCE];
        let mut count = 0;
        load_pass.newest_first(runs).for_each(|entry| {
            load_pass.loader.prefetch(entry.0);
            if let Some(slot) = ahead.get_mut(count % PREFETCH_DISTANCE) {
                let due = std::mem::replace(slot, entry);
                if count >= PREFETCH_DISTANCE {
                    add(due);
                }
            }
            count += 1;
        });
        for index in count.saturating_sub(PREFETCH_DISTANCE)..count {
            ahead.get(index % PREFETCH_DISTANCE).copied().into_iter().for_each(&mut add);
        }
        lock(&load_pass.memory).push(into.into_memory());
    }

    /// Adds the newest entry of each key, if keys share hashes.
    fn load_collided(
        &self,
        chunks: &[u64],
        totals: &LoadTotals,
        index: IndexLoader<'_>,
        mut entries: Vec<PartitionedEntry>,
        share_totals: &mut ShareTotals,
    ) -> Result<()> {
        entries.sort_unstable();
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let newest = self.newest_by_key(chunks, same)?;
            for entry in same {
                let (hash, packed) = *entry;
                let Some(address) = self.address_of(chunks, packed) else { continue };
                let is_newest = newest.contains(entry);
                if is_newest && packed & 3 != TOMBSTONE && !index.load(hash, address) {
                    totals.full.store(true, Ordering::Relaxed);
                }
                self.count_entry(address, totals, *entry, is_newest, share_totals);
            }
        }
        Ok(())
    }

    #[inline]
    fn address_of(&self, chunks: &[u64], packed: u64) -> Option<u64> {
        let chunk = chunks.get(to_usize(packed >> RANK_SHIFT)).copied()?;
        Some(self.arena.address(chunk, packed >> UNIT_SHIFT & 0x1f_ffff))
    }

    #[inline]
    fn count_entry(
        &self,
        address: u64,
        totals: &LoadTotals,
        (hash, packed): PartitionedEntry,
        is_newest: bool,
        share_totals: &mut ShareTotals,
    ) {
        let units = packed >> UNITS_SHIFT & 0xf_ffff;
        let kind = packed & 3;
        if !is_newest {
            self.arena.add_dead(self.arena.split(address).0, units);
            share_totals.waste_units += units;
            return;
        }
        if kind == TOMBSTONE {
            self.arena.add_tombstone(self.arena.split(address).0, units);
            share_totals.waste_units += units;
            return;
        }
        share_totals.keys += 1;
        // Exact up to the rounding to units.
        share_totals.live_bytes += units * 8 - 16 - (packed >> WIDE_SHIFT & 1) * 8;
        if kind == LARGE
            && let Some(number) = lock(&totals.larges).get(&(hash, packed))
        {
            lock(&totals.live_larges).push(*number);
        }
    }

    /// Returns the newest entry of each key among entries of one hash. Reads keys from the disk if
    /// there are several entries.
    fn newest_by_key(
        &self,
        chunks: &[u64],
        group: &[PartitionedEntry],
    ) -> Result<BTreeSet<PartitionedEntry>> {
        if group.len() == 1 {
            return Ok(group.iter().copied().collect());
        }
        let mut newest = BTreeMap::new();
        for (hash, packed) in group {
            let Some(address) = self.address_of(chunks, *packed) else { continue };
            let state = self.arena.state_of(address);
            let cold = self.read_cold(address, state)?;
            let key = cold.as_ref().and_then(ColdEntry::entry).map(|entry| entry.key().to_vec());
            newest.insert(key, (*hash, *packed));
        }
        Ok(newest.into_values().collect())
    }
}

/// Splits the bytes of an extent's hints into its directory of blocks and the hints.
fn directory_and_hints<'a>(bytes: &'a [u8], extent: &Extent) -> (&'a [u8], &'a [u8]) {
    bytes.split_at_checked(to_usize(extent.packing_bytes())).unwrap_or((&[], &[]))
}

/// Adds a packed extent to its chunk. Returns `false` if its directory is not valid.
fn adopt_packed_extent(source: &ExtentSource, directory: &[u8]) -> bool {
    let ExtentSource { chunk, extent, file_range, .. } = source;
    let (start, end) = (extent.start, extent.end);
    if extent.packing_bytes() == 0 {
        return true;
    }
    let Some(blocks) = BlockDirectory::decode(directory, start, end, file_range.bytes) else {
        return false;
    };
    chunk.add_packed_extent(PackedExtent { start, end, file_range: file_range.clone(), blocks });
    true
}

/// Returns the ids of the chunks by rank.
fn chunk_ids_by_rank(sources: &[ExtentSource]) -> Vec<u64> {
    let mut chunks = Vec::new();
    for source in sources {
        if to_u64(chunks.len()) == source.rank {
            chunks.push(source.chunk.id);
        }
    }
    chunks
}

fn units_of(hint: &IndexHint) -> u64 {
    (16 + 8 * hint.wide + hint.payload).div_ceil(8)
}

/// Returns whether hints have as many entries as their extent, and fill it exactly.
fn hints_fit(bytes: &[u8], extent: &Extent) -> bool {
    let mut hints = HintReader::new(bytes);
    let from = extent.start + EXTENT_HEAD_UNITS;
    if let Some((hint, count)) = hints.uniform() {
        let units = count.checked_mul(units_of(&hint)).and_then(|units| units.checked_add(from));
        return count == extent.entry_count && units == Some(extent.end) && is_plausible(&hint);
    }
    let (mut count, mut unit) = (0, from);
    for hint in hints.by_ref() {
        count += 1;
        unit = unit.saturating_add(units_of(&hint));
        if !is_plausible(&hint) {
            return false;
        }
    }
    hints.is_empty() && count == extent.entry_count && unit == extent.end
}

fn is_plausible(hint: &IndexHint) -> bool {
    hint.payload >> 24 == 0 && hint.kind <= LARGE
}
