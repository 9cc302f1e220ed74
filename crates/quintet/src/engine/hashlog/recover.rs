//! Opening: manifest -> chunks -> hints -> index.
//!
//! The hints of all extents are dealt out by hash, in parallel over extents; then each share is
//! sorted and the newest entry of each hash put into the index, in parallel over shares. Shares
//! follow the order of the index's lines, so that each is loaded within the caches. Where memory
//! is short, the hints are read several times for a part of the hashes each.

use std::{collections::BTreeMap, io, sync::Arc};

use super::{
    Chunk, Flush, HashLog, Large, LargeState,
    arena::EXTENT_HEAD_UNITS,
    entry::{Kind, LargeRef, Stored, UNIT_BYTES},
    files::{DataFile, DataFiles, Place, label, number_of as data_number},
    maintain::Maintenance,
    manifest::{
        Commit, Contents, Extent, Hint, HintReader, Hints, Manifest, encode_hints, is_unfinished,
        number_of as manifest_number,
    },
    pack::{Blocks, Piece},
    read::ColdEntry,
};
use crate::{
    Error, Result,
    codec::{Lsn, to_u64, to_usize},
    seeded::{self, Bug},
    sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
};

/// No serial, order or file number gets as far: counting on cannot overflow.
const NUMBER_END: u64 = 1 << 62;
/// Above the largest value with its key and its heads; packed, it takes less in its place.
const LARGE_BYTES_MAX: u64 = 1 << 30;
/// Entries of a share: they and the index lines that they go to fit in a second-level cache.
const SHARE_ENTRIES: u64 = 1 << 14;
const SHARE_BITS_MAX: u32 = 12;
/// Bytes that an entry takes while it is dealt out: itself, and what growing vectors waste.
const DEALT_BYTES: u64 = 28;
/// Less is not worth another pass over the hints.
const DEALT_BYTES_MIN: u64 = 1 << 20;
/// Groups of extents that are read at once.
const TASKS: usize = 8;

/// Hash, then from the highest bit: rank of the chunk (20), unit (21), units of the entry (20),
/// wide (1), kind (2). Of two of the same hash, the greater is the newer.
type Dealt = (u64, u64);

const KIND_BITS: u32 = 2;
const WIDE_SHIFT: u32 = KIND_BITS;
const UNITS_SHIFT: u32 = 3;
const UNIT_SHIFT: u32 = UNITS_SHIFT + 20;
const RANK_SHIFT: u32 = UNIT_SHIFT + 21;

/// An extent to load.
struct Source {
    chunk: Arc<Chunk>,
    rank: u64,
    extent: Extent,
    hints: Hints,
    /// Its chunk's, or its own where it is packed.
    place: Place,
}

/// One way of dealing: `passes` rounds, each into `1 << bits` shares.
#[derive(Clone, Copy)]
struct Deal {
    pass: u64,
    passes: u64,
    bits: u32,
    shift: u32,
}

impl Deal {
    /// About how many entries of `group` fall into one share: room for them at once keeps vectors
    /// from growing by copies.
    fn expected(&self, group: &[Source]) -> usize {
        let count: u64 = group.iter().map(|source| source.extent.entry_count).sum();
        let share = (count / self.passes) >> self.bits;
        to_usize(share + share / 16 + 16)
    }

    fn share(&self, hash: u64) -> Option<usize> {
        let mine = self.passes == 1 || (hash >> 40) % self.passes == self.pass;
        mine.then(|| to_usize(hash >> self.shift & ((1 << self.bits) - 1)))
    }
}

/// What loading has come to.
#[derive(Default)]
struct Loaded {
    keys: AtomicU64,
    live_bytes: AtomicU64,
    waste_units: AtomicU64,
    /// Large values by hash and packed place.
    larges: Mutex<BTreeMap<Dealt, u64>>,
    live_larges: Mutex<Vec<u64>>,
    failed: Mutex<Option<Error>>,
    full: AtomicBool,
}

impl Loaded {
    fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            lock(&self.failed).get_or_insert(error);
        }
    }
}

impl HashLog {
    /// Loads what the last publication left; the LSN that it is complete to.
    pub(super) fn recover(&self) -> Result<Lsn> {
        let mut maintenance = lock(&self.maintenance);
        let dir = &self.context.dir;
        let doing = |error| Error::io(format!("list {}", dir.path().display()), error);
        let names: Vec<String> =
            dir.list().map_err(doing)?.into_iter().map(|entry| entry.name).collect();
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| manifest_number(name)).collect();
        numbers.sort_unstable();
        if seeded::active(Bug::HashlogLoadsOldManifest) {
            numbers.truncate(1);
        }
        let newest = numbers.last().copied();
        let mut contents = Contents::default();
        if let Some(number) = newest {
            let write = !self.context.read_only;
            let (manifest, found) = Manifest::open(dir, self.owner, number, write)?;
            contents = found;
            maintenance.manifest = Some(manifest);
        }
        // Read, and sorted by chunk.
        let _memory = self.context.budget.charge_anyway(2 * contents.memory_bytes());
        let Commit { next_serial, next_large, next_file, .. } = contents.commit;
        if [next_serial, next_large, next_file].iter().any(|number| *number >= NUMBER_END) {
            let what = "the manifest's next numbers cannot be";
            return Err(Error::corruption(label(self.owner.table_id, "manifest"), 0, what));
        }
        maintenance.files = DataFiles::new(Arc::clone(dir), self.owner, next_file);
        let sources = self.adopt_chunks(&mut maintenance, &contents)?;
        self.adopt_larges(&mut maintenance, &contents)?;
        let whole = Lsn(contents.commit.complete) >= self.context.complete;
        if !self.context.read_only && whole {
            self.remove_strays(&names, newest, &contents)?;
        }
        maintenance.complete = contents.commit.complete;
        self.opened_complete.store(contents.commit.complete, Ordering::Relaxed);
        self.collided.store(contents.commit.collided != 0, Ordering::Relaxed);
        self.next_large.store(contents.commit.next_large.max(1), Ordering::Relaxed);
        if let Some(manifest) = &maintenance.manifest {
            let live_larges = self.load_index(manifest, &sources)?;
            self.drop_unreferenced(&mut maintenance, &live_larges);
        }
        self.count_bytes(&maintenance);
        Ok(Lsn(maintenance.complete))
    }

    /// Makes the chunks that the manifest names, none of them in memory.
    fn adopt_chunks(
        &self,
        maintenance: &mut Maintenance,
        contents: &Contents,
    ) -> Result<Vec<Source>> {
        let mut extents: BTreeMap<(u64, u64), Vec<(Extent, Hints)>> = BTreeMap::new();
        for (extent, hints) in &contents.extents {
            extents.entry((extent.order, extent.serial)).or_default().push((*extent, *hints));
            maintenance.manifest_needed += extent.manifest_bytes();
        }
        let mut sources = Vec::with_capacity(contents.extents.len());
        let mut roll = lock(&self.roll);
        for (rank, ((order, serial), extents)) in extents.into_iter().enumerate() {
            let Some((last, _)) = extents.last().copied() else { continue };
            let file = maintenance.files.open(last.file, !self.context.read_only)?;
            self.refuse_implausible(&file, &extents)?;
            let packed = last.packing_bytes() > 0;
            let place = || DataFiles::adopt(&file, last.offset, last.place_bytes);
            let place = (!packed).then(place);
            let flush = Flush {
                start: 0,
                ended: Vec::new(),
                sealed: true,
                place: place.clone(),
                durable_count: extents.len(),
                extents: extents.iter().map(|(extent, _)| *extent).collect(),
            };
            let chunk = Arc::new(Chunk {
                id: last.chunk,
                serial,
                order,
                created: last.created,
                pieces: RwLock::default(),
                span: AtomicU64::new(last.span),
                written: AtomicBool::new(true),
                retired: AtomicBool::new(false),
                flush: Mutex::new(flush),
            });
            self.arena.begin(chunk.id, last.end, last.end, true);
            self.counters.cold_chunks.fetch_add(1, Ordering::Relaxed);
            roll.next_id = roll.next_id.max(chunk.id + 1);
            roll.hot_order = roll.hot_order.max(order.next_multiple_of(2));
            let before = write(&self.chunks).insert(chunk.id, Arc::clone(&chunk));
            if before.is_some() {
                return Err(Error::corruption(
                    &*file.label,
                    last.offset,
                    "the manifest names two chunks of one number",
                ));
            }
            for (extent, hints) in extents {
                let place = if let Some(place) = &place {
                    place.clone()
                } else {
                    let file = maintenance.files.open(extent.file, !self.context.read_only)?;
                    DataFiles::adopt(&file, extent.offset, extent.place_bytes)
                };
                let (chunk, rank) = (Arc::clone(&chunk), to_u64(rank));
                sources.push(Source { chunk, rank, extent, hints, place });
            }
        }
        roll.next_serial = contents.commit.next_serial;
        let chunks = read(&self.chunks);
        roll.free_ids = (0..roll.next_id).rev().filter(|id| !chunks.contains_key(id)).collect();
        Ok(sources)
    }

    fn refuse_implausible(&self, file: &DataFile, extents: &[(Extent, Hints)]) -> Result<()> {
        let packed = extents.iter().any(|(extent, _)| extent.packing_bytes() > 0);
        for (extent, _) in extents {
            let units = extent.end.saturating_sub(extent.start);
            let numbers = [extent.serial, extent.order];
            let plausible = extent.chunk < self.arena.chunks_max()
                && units >= EXTENT_HEAD_UNITS
                && extent.end <= self.arena.chunk_units()
                && extent.entry_count <= units
                && extent.span <= self.arena.chunk_units()
                && numbers.iter().all(|number| *number < NUMBER_END)
                && is_within(file, extent.offset, extent.place_bytes)?
                && (packed || extent.end * 8 <= extent.place_bytes)
                && (packed == (extent.packing_bytes() > 0))
                && extent.packing_bytes() <= extent.place_bytes
                && extent.offset.is_multiple_of(crate::disk::BLOCK_BYTES)
                && extent.start.is_multiple_of(crate::disk::BLOCK_BYTES / 8);
            if !plausible {
                let what =
                    "the manifest names an extent that cannot be (was `chunk_bytes` changed?)";
                return Err(Error::corruption(&*file.label, extent.offset, what));
            }
        }
        Ok(())
    }

    fn adopt_larges(&self, maintenance: &mut Maintenance, contents: &Contents) -> Result<()> {
        for record in &contents.larges {
            let file = maintenance.files.open(record.file, !self.context.read_only)?;
            let plausible = record.number < NUMBER_END
                && record.bytes <= LARGE_BYTES_MAX
                && record.offset.is_multiple_of(crate::disk::BLOCK_BYTES)
                && is_within(&file, record.offset, record.place_bytes)?;
            if !plausible {
                let what = "the manifest names a large value that cannot be";
                return Err(Error::corruption(&*file.label, record.offset, what));
            }
            let place = DataFiles::adopt(&file, record.offset, record.place_bytes);
            let large = Large {
                number: record.number,
                lsn: record.lsn,
                length: record.bytes,
                state: Mutex::new(LargeState { bytes: None, place: Some(place), in_file: true }),
                written: AtomicBool::new(true),
            };
            write(&self.larges).insert(record.number, Arc::new(large));
        }
        Ok(())
    }

    /// Removes files that no manifest names: left by a crash.
    fn remove_strays(
        &self,
        names: &[String],
        manifest: Option<u64>,
        contents: &Contents,
    ) -> Result<()> {
        let in_use: std::collections::BTreeSet<u64> = (contents.extents.iter())
            .map(|(extent, _)| extent.file)
            .chain(contents.larges.iter().map(|large| large.file))
            .collect();
        for name in names {
            let stray = data_number(name).is_some_and(|number| !in_use.contains(&number))
                || manifest_number(name).is_some_and(|number| Some(number) != manifest)
                || is_unfinished(name);
            if !stray {
                continue;
            }
            match self.context.dir.remove(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("remove {name}"), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Frees large values that no entry names: their entries died in a publication that did not
    /// drop them.
    fn drop_unreferenced(&self, maintenance: &mut Maintenance, live: &[u64]) {
        let live: std::collections::BTreeSet<u64> = live.iter().copied().collect();
        let dead: Vec<u64> =
            read(&self.larges).keys().copied().filter(|number| !live.contains(number)).collect();
        if !dead.is_empty() && !self.context.read_only {
            self.publish_wanted.store(true, Ordering::Relaxed);
            maintenance.dead_larges.extend(dead);
        }
    }

    /// Fills the index; the numbers of the large values in use.
    fn load_index(&self, manifest: &Manifest, sources: &[Source]) -> Result<Vec<u64>> {
        let total: u64 = sources.iter().map(|source| source.extent.entry_count).sum();
        self.index.presize(total);
        let bits = (total / SHARE_ENTRIES).next_power_of_two().trailing_zeros();
        let bits = bits.min(SHARE_BITS_MAX).min(self.index.group_bits());
        self.charge_index();
        let budget = &self.context.budget;
        let free = budget.limit().saturating_sub(budget.used());
        let memory = (budget.limit() / 3).min(free / 2).max(DEALT_BYTES_MIN);
        let passes = (total * DEALT_BYTES).div_ceil(memory).max(1);
        let _memory = budget.charge_anyway((total * DEALT_BYTES).div_ceil(passes));
        let loaded = Loaded::default();
        for pass in 0..passes {
            let shift = self.index.group_bits() - bits;
            let deal = Deal { pass, passes, bits, shift };
            self.load_pass(manifest, sources, &loaded, deal)?;
        }
        self.index.add_len(loaded.keys.load(Ordering::Relaxed));
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let live = std::mem::take(&mut *lock(&loaded.live_larges));
        let larges = read(&self.larges);
        let large_bytes: u64 =
            live.iter().filter_map(|number| larges.get(number)).map(|large| large.length).sum();
        let counters = &self.counters;
        counters.live_bytes.store(load(&loaded.live_bytes) + large_bytes, Ordering::Relaxed);
        counters.waste_units.store(load(&loaded.waste_units), Ordering::Relaxed);
        let heads = to_u64(sources.len()) * EXTENT_HEAD_UNITS;
        let units: u64 = sources.iter().map(|source| source.extent.end - source.extent.start).sum();
        counters.units.store(units - heads, Ordering::Relaxed);
        Ok(live)
    }

    fn load_pass(
        &self,
        manifest: &Manifest,
        sources: &[Source],
        loaded: &Loaded,
        deal: Deal,
    ) -> Result<()> {
        let size = sources.len().div_ceil(TASKS).max(1);
        let groups: Vec<&[Source]> = sources.chunks(size).collect();
        let chunks = by_rank(sources);
        let dealt: Vec<Mutex<Vec<Vec<Dealt>>>> = groups
            .iter()
            .map(|group| {
                let share = deal.expected(group);
                Mutex::new((0..1 << deal.bits).map(|_| Vec::with_capacity(share)).collect())
            })
            .collect();
        let env = &self.context.env;
        env.parallel(groups.len(), &|task| {
            if let (Some(group), Some(shares)) = (groups.get(task), dealt.get(task)) {
                let mut shares = lock(shares);
                for source in *group {
                    loaded.note(self.deal_extent(manifest, source, loaded, deal, &mut shares));
                }
            }
        });
        if lock(&loaded.failed).is_none() {
            env.parallel(1 << deal.bits, &|share| {
                let part = |group: &Mutex<Vec<Vec<Dealt>>>| {
                    lock(group).get_mut(share).map(std::mem::take).unwrap_or_default()
                };
                let parts: Vec<Vec<Dealt>> = dealt.iter().map(part).collect();
                let mut entries = parts.concat();
                drop(parts);
                loaded.note(self.load_share(&chunks, loaded, &mut entries));
            });
        }
        match lock(&loaded.failed).take() {
            Some(error) => Err(error),
            None if loaded.full.load(Ordering::Relaxed) => Err(Error::OutOfMemory {
                budget: self.context.budget.limit(),
                needed: self.index.bytes(),
            }),
            None => Ok(()),
        }
    }

    fn deal_extent(
        &self,
        manifest: &Manifest,
        source: &Source,
        loaded: &Loaded,
        deal: Deal,
        shares: &mut [Vec<Dealt>],
    ) -> Result<()> {
        let _memory = self.context.budget.charge_anyway(source.hints.bytes);
        let bytes = manifest.hints(&source.hints)?;
        let bytes = bytes.filter(|bytes| {
            let (directory, hints) = directory_and_hints(bytes, &source.extent);
            hints_fit(hints, &source.extent) && adopt_piece(source, directory)
        });
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => self.hints_of_data(source)?,
        };
        let hints = directory_and_hints(&bytes, &source.extent).1;
        let mut unit = source.extent.start + EXTENT_HEAD_UNITS;
        for hint in HintReader::new(hints) {
            let units = units_of(&hint);
            if let Some(share) = deal.share(hint.hash).and_then(|share| shares.get_mut(share)) {
                let packed = source.rank << RANK_SHIFT
                    | unit << UNIT_SHIFT
                    | units << UNITS_SHIFT
                    | hint.wide << WIDE_SHIFT
                    | hint.kind;
                share.push((hint.hash, packed));
                if hint.kind == 2 {
                    lock(&loaded.larges).insert((hint.hash, packed), hint.large);
                }
            }
            unit += units;
        }
        Ok(())
    }

    /// Directory and hints made anew from the extent's bytes.
    fn hints_of_data(&self, source: &Source) -> Result<Vec<u8>> {
        let Source { extent, place, .. } = source;
        let size = to_usize((extent.end - extent.start) * 8);
        let _memory = self.context.budget.charge_anyway(2 * to_u64(size));
        let (image, mut out) = if extent.packing_bytes() > 0 {
            let (image, directory) = self.read_packed(place, extent)?;
            adopt_piece(source, &directory);
            (image, directory)
        } else {
            let (image, _) = place.read(extent.start * 8, size)?;
            self.verify_extent(place, extent, image.as_slice())?;
            (image, Vec::new())
        };
        let mut hints = Vec::new();
        let mut unit = extent.start + EXTENT_HEAD_UNITS;
        while unit < extent.end {
            let at = to_usize(unit - extent.start) * UNIT_BYTES;
            let bytes = image.as_slice().get(at..).unwrap_or(&[]);
            let damage = || source.chunk.damage(unit, "the entry's checksum does not match");
            let entry =
                Stored::verify(bytes, source.chunk.serial, to_usize(unit)).ok_or_else(damage)?;
            let (kind, large) = match entry.head.kind {
                Kind::Put => (0, 0),
                Kind::Tombstone => (1, 0),
                Kind::Large => (2, LargeRef::decode(entry.value()).map_or(0, |large| large.number)),
            };
            let payload = to_u64(entry.head.key_bytes + entry.head.value_bytes);
            let wide = u64::from(entry.head.key_at() == 24);
            let hash = self.hash(entry.key());
            hints.push(Hint { hash, payload, wide, kind, large });
            unit += to_u64(entry.head.units());
        }
        encode_hints(&mut out, &hints);
        Ok(out)
    }

    fn load_share(
        &self,
        chunks: &[Arc<Chunk>],
        loaded: &Loaded,
        entries: &mut [Dealt],
    ) -> Result<()> {
        entries.sort_unstable();
        let (mut keys, mut live_bytes, mut waste) = (0, 0, 0);
        for group in entries.chunk_by(|a, b| a.0 == b.0) {
            let newest = if group.len() > 1 && self.collided.load(Ordering::Relaxed) {
                self.newest_by_key(chunks, group)?
            } else {
                group.last().copied().into_iter().collect()
            };
            for (hash, packed) in group {
                let Some(chunk) = chunks.get(to_usize(packed >> RANK_SHIFT)) else { continue };
                let units = packed >> UNITS_SHIFT & 0xf_ffff;
                if !newest.contains(&(*hash, *packed)) {
                    self.arena.add_dead(chunk.id, units);
                    waste += units;
                    continue;
                }
                let kind = packed & 3;
                if kind == 1 {
                    self.arena.add_tombstone(chunk.id, units);
                    waste += units;
                    continue;
                }
                let unit = packed >> UNIT_SHIFT & 0x1f_ffff;
                if !self.index.load(*hash, self.arena.address(chunk.id, unit)) {
                    loaded.full.store(true, Ordering::Relaxed);
                }
                keys += 1;
                // Known to the unit: what rounding adds is less than what sizes of entries vary.
                live_bytes += units * 8 - 16 - (packed >> WIDE_SHIFT & 1) * 8;
                if kind == 2
                    && let Some(number) = lock(&loaded.larges).get(&(*hash, *packed))
                {
                    lock(&loaded.live_larges).push(*number);
                }
            }
        }
        loaded.keys.fetch_add(keys, Ordering::Relaxed);
        loaded.live_bytes.fetch_add(live_bytes, Ordering::Relaxed);
        loaded.waste_units.fetch_add(waste, Ordering::Relaxed);
        Ok(())
    }

    /// The newest entry of each key among entries of one hash.
    fn newest_by_key(&self, chunks: &[Arc<Chunk>], group: &[Dealt]) -> Result<Vec<Dealt>> {
        let mut newest = BTreeMap::new();
        for (hash, packed) in group {
            let Some(chunk) = chunks.get(to_usize(packed >> RANK_SHIFT)) else { continue };
            let unit = packed >> UNIT_SHIFT & 0x1f_ffff;
            let address = self.arena.address(chunk.id, unit);
            let state = self.arena.state(chunk.id);
            let cold = self.read_cold(address, state)?;
            let key = cold.as_ref().and_then(ColdEntry::entry).map(|entry| entry.key().to_vec());
            newest.insert(key, (*hash, *packed));
        }
        Ok(newest.into_values().collect())
    }
}

/// Whether a range lies within a file: no length is trusted that the file does not have.
fn is_within(file: &DataFile, offset: u64, bytes: u64) -> Result<bool> {
    let length =
        file.file.len().map_err(|error| Error::io(format!("read {}", file.label), error))?;
    Ok(offset.checked_add(bytes).is_some_and(|end| end <= length))
}

/// The directory of a packed extent's blocks, and the hints behind it.
fn directory_and_hints<'a>(bytes: &'a [u8], extent: &Extent) -> (&'a [u8], &'a [u8]) {
    bytes.split_at_checked(to_usize(extent.packing_bytes())).unwrap_or((&[], &[]))
}

/// Makes a packed extent known to its chunk; whether its directory is sound.
fn adopt_piece(source: &Source, directory: &[u8]) -> bool {
    let Source { chunk, extent, place, .. } = source;
    let (start, end) = (extent.start, extent.end);
    if extent.packing_bytes() == 0 {
        return true;
    }
    let Some(blocks) = Blocks::decode(directory, start, end, place.bytes) else { return false };
    chunk.add_piece(Piece { start, end, place: place.clone(), blocks });
    true
}

/// The chunks, at the index of their rank.
fn by_rank(sources: &[Source]) -> Vec<Arc<Chunk>> {
    let mut chunks: Vec<Arc<Chunk>> = Vec::new();
    for source in sources {
        if to_u64(chunks.len()) == source.rank {
            chunks.push(Arc::clone(&source.chunk));
        }
    }
    chunks
}

fn units_of(hint: &Hint) -> u64 {
    (16 + 8 * hint.wide + hint.payload).div_ceil(8)
}

/// Whether hints say as many entries as their extent has, and fill it.
fn hints_fit(bytes: &[u8], extent: &Extent) -> bool {
    let mut hints = HintReader::new(bytes);
    let (mut count, mut unit) = (0, extent.start + EXTENT_HEAD_UNITS);
    for hint in hints.by_ref() {
        count += 1;
        unit = unit.saturating_add(units_of(&hint));
        if hint.payload >> 24 != 0 || hint.kind > 2 {
            return false;
        }
    }
    hints.is_empty() && count == extent.entry_count && unit == extent.end
}
