//! Opening a table: reads the newest manifest, creates its chunks (none in memory), and loads the
//! index from hints ([`load`]).
//!
//! Opening removes files that no manifest names, after it has read everything that the manifest
//! names. It trusts no number of the manifest that the files cannot have.

mod load;

use std::{collections::BTreeMap, io, sync::Arc};

use self::load::ExtentSource;
use crate::{
    Error, Result,
    contract::{Context, RoomAttempts, TableOptions},
    engine::hashlog::{
        arena::{ChunkArena, EXTENT_HEAD_UNITS},
        chunk::{Chunk, FlushState},
        files::{DataFile, DataFiles, FileRange, TableIdentity, label, number_of as data_number},
        index::SlotTable,
        large_value::{LargeState, LargeValue},
        maintenance::Maintenance,
        manifest::{
            Commit, Extent, HashLogManifest, HintsLocation, ManifestContents, is_unfinished,
            number_of as manifest_number,
        },
        options::HashLogSettings,
        prefetched::PrefetchedEntries,
        table::{HashLog, HashLogCounters},
    },
    io::Queues,
    record_store::read_ahead::ReadAhead,
    util::{
        codec::{Lsn, to_u64},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
    },
};

/// Bound on serials, orders and numbers in a manifest. Below it, increments cannot overflow.
const NUMBER_END: u64 = 1 << 62;
/// Bound on the size of a large value in bytes: above the largest value that a write accepts.
const LARGE_BYTES_MAX: u64 = 1 << 30;

impl HashLog {
    /// Loads a table, or creates one in an empty directory. Returns the LSN that its files are
    /// complete to.
    ///
    /// Fails with `InvalidOption` for an unknown option or value, and with `Corruption` if the
    /// manifest or its files are damaged.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        Self::open_with_mask(options, context, u64::MAX)
    }

    pub(super) fn open_with_mask(
        options: &TableOptions,
        context: Context,
        hash_mask: u64,
    ) -> Result<(Self, Lsn)> {
        let settings = HashLogSettings::parse(options)?;
        let owner = TableIdentity { database_id: context.database_id, table_id: context.table_id };
        let files = DataFiles::new(Arc::clone(&context.dir), owner, settings.file_bytes, 0);
        let no_memory = |error| Error::address_space("a table", error);
        let engine = Self {
            owner,
            settings,
            hash_mask,
            index: SlotTable::new(context.budget.limit() / 8).map_err(no_memory)?,
            arena: ChunkArena::new(settings.chunk_bytes, Arc::clone(&context.budget))
                .map_err(no_memory)?,
            chunks: RwLock::default(),
            larges: RwLock::default(),
            next_large: AtomicU64::new(1),
            dead_larges: Mutex::default(),
            active: AtomicU64::new(0),
            roll: Mutex::default(),
            residency: Mutex::default(),
            maintenance: Mutex::new(Maintenance::new(files)),
            checkpoint_wanted: AtomicBool::new(false),
            opened_complete: AtomicU64::new(0),
            warm_wanted: AtomicBool::new(false),
            collided: AtomicBool::new(false),
            queues: Queues::default(),
            room_attempts: RoomAttempts::default(),
            read_ahead_entries: ReadAhead::default(),
            prefetched: PrefetchedEntries::new(Arc::clone(&context.budget)),
            counters: HashLogCounters::default(),
            context,
        };
        let complete = engine.recover()?;
        engine.charge_index();
        Ok((engine, complete))
    }

    /// Loads the last checkpoint. Returns the LSN that it is complete to. Fails with `Corruption`
    /// if the manifest or a file that it names is damaged.
    fn recover(&self) -> Result<Lsn> {
        let mut maintenance = lock(&self.maintenance);
        let dir = &self.context.dir;
        let doing = |error| Error::io(format!("list {}", dir.path().display()), error);
        let names: Vec<String> =
            dir.list().map_err(doing)?.into_iter().map(|entry| entry.name).collect();
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| manifest_number(name)).collect();
        numbers.sort_unstable();
        mutant!(HashlogLoadsOldManifest => numbers.truncate(1));
        let newest = numbers.last().copied();
        let mut contents = ManifestContents::default();
        if let Some(number) = newest {
            let write = !self.context.read_only;
            let (manifest, found) = HashLogManifest::open(dir, self.owner, number, write)?;
            contents = found;
            maintenance.manifest = Some(manifest);
        }
        // The content is in memory twice: as read, and sorted by chunk.
        let _memory = self.context.budget.reserve_transient(2 * contents.memory_bytes());
        let Commit { next_serial, next_large, next_file, .. } = contents.commit;
        if [next_serial, next_large, next_file].iter().any(|number| *number >= NUMBER_END) {
            let what = "the next numbers in the manifest are out of range";
            return Err(Error::corruption(label(self.owner.table_id, "manifest"), 0, what));
        }
        maintenance.files =
            DataFiles::new(Arc::clone(dir), self.owner, self.settings.file_bytes, next_file);
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

    /// Creates the chunks that the manifest names, none of them in memory. Returns their extents,
    /// from the oldest chunk to the newest.
    fn adopt_chunks(
        &self,
        maintenance: &mut Maintenance,
        contents: &ManifestContents,
    ) -> Result<Vec<ExtentSource>> {
        let mut extents: BTreeMap<(u64, u64), Vec<(Extent, HintsLocation)>> = BTreeMap::new();
        for (extent, hints) in &contents.extents {
            extents.entry((extent.order, extent.serial)).or_default().push((*extent, *hints));
            let needed = maintenance.manifest_needed.saturating_add(extent.manifest_bytes());
            maintenance.manifest_needed = needed;
        }
        let mut sources = Vec::with_capacity(contents.extents.len());
        let mut roll = lock(&self.roll);
        for (rank, ((order, serial), mut extents)) in extents.into_iter().enumerate() {
            extents.sort_by_key(|(extent, _)| extent.start);
            let Some((last, _)) = extents.last().copied() else { continue };
            let file = maintenance.files.open(last.file, !self.context.read_only)?;
            self.refuse_implausible(&file, &extents)?;
            let packed = last.packing_bytes() > 0;
            let file_range = || DataFiles::adopt(&file, last.offset, last.range_bytes);
            let file_range = (!packed).then(file_range);
            self.note_adopted(&last, file_range.as_ref());
            let flush = FlushState {
                start: 0,
                ended: Vec::new(),
                sealed: true,
                file_range: file_range.clone(),
                durable_count: extents.len(),
                extents: extents.iter().map(|(extent, _)| *extent).collect(),
            };
            let chunk = Arc::new(Chunk {
                id: last.chunk,
                serial,
                order,
                created: last.created,
                is_adopted: true,
                packed_extents: RwLock::default(),
                span: AtomicU64::new(last.span),
                written: AtomicBool::new(true),
                retired: AtomicBool::new(false),
                writer_reads: AtomicU64::new(0),
                flush: Mutex::new(flush),
            });
            self.arena.begin(chunk.id, last.end, last.end, true);
            self.counters.cold_chunks.fetch_add(1, Ordering::Relaxed);
            roll.next_id = roll.next_id.max(chunk.id + 1);
            roll.active_order = roll.active_order.max(order.next_multiple_of(2));
            let before = write(&self.chunks).insert(chunk.id, Arc::clone(&chunk));
            if before.is_some() {
                return Err(Error::corruption(
                    &*file.label,
                    last.offset,
                    "the manifest names two chunks with the same id",
                ));
            }
            for (extent, hints) in extents {
                let file_range = if let Some(file_range) = &file_range {
                    file_range.clone()
                } else {
                    let file = maintenance.files.open(extent.file, !self.context.read_only)?;
                    DataFiles::adopt(&file, extent.offset, extent.range_bytes)
                };
                let (chunk, rank) = (Arc::clone(&chunk), to_u64(rank));
                sources.push(ExtentSource { chunk, rank, extent, hints, file_range });
            }
        }
        roll.next_serial = contents.commit.next_serial;
        let chunks = read(&self.chunks);
        roll.free_ids = (0..roll.next_id).rev().filter(|id| !chunks.contains_key(id)).collect();
        Ok(sources)
    }

    /// Gives back what the process that wrote the last extent of a chunk would have appended to:
    /// this one does not. Counts the chunk if it is small.
    fn note_adopted(&self, last: &Extent, file_range: Option<&FileRange>) {
        let is_open = last.sealed & 1 == 0 && !self.context.read_only;
        if let Some(range) = file_range.filter(|_| is_open) {
            mutant!(HashlogKeepsOpenRanges: (), else DataFiles::trim(range, last.end * 8));
        }
        let small = u64::from(self.is_small(last.end));
        self.counters.small_chunks.fetch_add(small, Ordering::Relaxed);
    }

    /// Fails with `Corruption` if an extent does not fit the table or the file.
    fn refuse_implausible(
        &self,
        file: &DataFile,
        extents: &[(Extent, HintsLocation)],
    ) -> Result<()> {
        let packed = extents.iter().any(|(extent, _)| extent.packing_bytes() > 0);
        for (extent, _) in extents {
            let units = extent.end.saturating_sub(extent.start);
            let numbers = [extent.serial, extent.order];
            let plausible = extent.chunk < self.arena.count_max()
                && units >= EXTENT_HEAD_UNITS
                && extent.end <= self.arena.segment_units()
                && extent.entry_count <= units
                && extent.span <= self.arena.segment_units()
                && numbers.iter().all(|number| *number < NUMBER_END)
                && is_within(file, extent.offset, extent.range_bytes)?
                && (packed || extent.end * 8 <= extent.range_bytes)
                && (packed == (extent.packing_bytes() > 0))
                && extent.packing_bytes() <= extent.range_bytes
                && extent.offset.is_multiple_of(crate::io::BLOCK_BYTES)
                && extent.start.is_multiple_of(crate::io::BLOCK_BYTES / 8);
            if !plausible {
                let what = "the manifest names an impossible extent (was `chunk_bytes` changed?)";
                return Err(Error::corruption(&*file.label, extent.offset, what));
            }
        }
        Ok(())
    }

    /// Creates the large values that the manifest names, none of them in memory.
    fn adopt_larges(
        &self,
        maintenance: &mut Maintenance,
        contents: &ManifestContents,
    ) -> Result<()> {
        for record in &contents.larges {
            let file = maintenance.files.open(record.file, !self.context.read_only)?;
            let plausible = record.number < NUMBER_END
                && record.bytes <= LARGE_BYTES_MAX
                && record.offset.is_multiple_of(crate::io::BLOCK_BYTES)
                && is_within(&file, record.offset, record.range_bytes)?;
            if !plausible {
                let what = "the manifest names an impossible large value";
                return Err(Error::corruption(&*file.label, record.offset, what));
            }
            let file_range = DataFiles::adopt(&file, record.offset, record.range_bytes);
            let large = LargeValue {
                number: record.number,
                lsn: record.lsn,
                length: record.bytes,
                state: Mutex::new(LargeState {
                    bytes: None,
                    file_range: Some(file_range),
                    in_file: true,
                }),
                written: AtomicBool::new(true),
            };
            write(&self.larges).insert(record.number, Arc::new(large));
        }
        Ok(())
    }

    /// Removes files that the manifest does not name. A crash leaves them.
    fn remove_strays(
        &self,
        names: &[String],
        manifest: Option<u64>,
        contents: &ManifestContents,
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

    /// Schedules large values that no entry names for the next checkpoint to drop. Their entries
    /// died in a checkpoint that did not drop them.
    fn drop_unreferenced(&self, maintenance: &mut Maintenance, live: &[u64]) {
        let live: std::collections::BTreeSet<u64> = live.iter().copied().collect();
        let dead: Vec<u64> =
            read(&self.larges).keys().copied().filter(|number| !live.contains(number)).collect();
        if !dead.is_empty() && !self.context.read_only {
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            maintenance.dead_larges.extend(dead);
        }
    }
}

/// Returns whether a range is within the file.
fn is_within(file: &DataFile, offset: u64, bytes: u64) -> Result<bool> {
    let length =
        file.file.len().map_err(|error| Error::io(format!("read {}", file.label), error))?;
    Ok(offset.checked_add(bytes).is_some_and(|end| end <= length))
}
