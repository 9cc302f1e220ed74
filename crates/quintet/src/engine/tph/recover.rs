//! Opening a table: reads the newest manifest and the SSTs that it lists, and removes other files.

use std::{collections::BTreeSet, io, sync::Arc};

use super::{
    compaction_picker,
    index::TableIndex,
    manifest::{self, TphManifest, TphTableRecord, VersionRecord},
    options::{LevelMode, Tiers, TphSettings},
    partition::Partitioning,
    store::{Publisher, TphCounters, TphStore},
    table::{TableSst, TphTable},
    throttle::MergeRates,
    two_tiers::{global, local::LocalIndex},
    version::Version,
};
use crate::{
    Error, Result,
    contract::{Context, TableOptions},
    io::Queues,
    lsm::{
        sst::{Sst, SstKind, SstOwner, decoded_block::DecodedBlockCache},
        write_buffer::WriteBuffer,
    },
    util::{
        codec::Lsn,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// The files of the directory.
#[derive(Debug, Default)]
struct DirListing {
    names: Vec<String>,
    /// Number of the newest manifest.
    manifest: Option<u64>,
}

fn list_files(owner: &SstOwner) -> Result<DirListing> {
    let entries = owner.dir.list();
    let entries = entries.map_err(|error| Error::io(format!("list {}", owner.label("")), error))?;
    let names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| manifest::number_of(name)).collect();
    numbers.sort_unstable();
    Ok(DirListing { names, manifest: numbers.pop() })
}

impl TphStore {
    /// Opens a table, or creates it in an empty directory. Returns the LSN below which its files
    /// have every effect.
    pub(super) fn open(
        options: &TableOptions,
        context: Context,
        hash_mask: u64,
    ) -> Result<(Self, Lsn)> {
        let settings = TphSettings::parse(options, context.budget.limit())?;
        let owner = SstOwner {
            kind: match settings.tiers {
                Tiers::One => SstKind::PIECE,
                Tiers::Two => SstKind::SLOTTED,
            },
            dir: Arc::clone(&context.dir),
            database_id: context.database_id,
            table_id: context.table_id,
        };
        let partitioning = match settings.mode {
            LevelMode::HashRange => Partitioning::Hash(context.hash),
            LevelMode::Sorted | LevelMode::OneLevel | LevelMode::SingleTier => Partitioning::Key,
        };
        let files = list_files(&owner)?;
        let manifest = match files.manifest {
            Some(number) => {
                TphManifest::open(&owner, number, !context.read_only, context.complete.0)?
            }
            None => TphManifest::default(),
        };
        let contents = &manifest.contents;
        let version = load_version(&context, (&owner, settings.tiers), contents)?;
        let complete = Lsn(contents.complete);
        if !context.read_only && complete >= context.complete {
            remove_unlisted(&owner, &files, contents)?;
        }
        let sizes = (settings.cache_bytes, settings.shape.block_bytes);
        let cache = Arc::new(DecodedBlockCache::new(sizes, &context, hash_mask)?);
        let memory = (settings.memtable_bytes, settings.memtables);
        let write_buffer = WriteBuffer::new(&context, memory, u64::MAX, hash_mask, version)?;
        let next_sst = contents.next_sst.max(1);
        let publisher = Publisher { manifest, obsolete: Vec::new() };
        let store = Self {
            settings,
            owner,
            partitioning,
            write_buffer,
            flushing: Mutex::new(()),
            compacting: Mutex::new(()),
            large_merge: Mutex::new(()),
            publisher: Mutex::new(publisher),
            next_sst: AtomicU64::new(next_sst),
            index_bytes_reserved: AtomicU64::new(0),
            wants_compaction: AtomicBool::new(false),
            queues: Queues::default(),
            merge_rates: MergeRates::default(),
            is_merge_flushing: AtomicBool::new(false),
            cache,
            counters: TphCounters::default(),
            context,
        };
        let version = Arc::clone(&store.write_buffer.view.load().version);
        store.reserve_index_memory(&version);
        let wants_compaction = compaction_picker::pick(&store.settings, &version).is_some();
        store.wants_compaction.store(wants_compaction, Ordering::Relaxed);
        Ok((store, complete))
    }
}

/// Opens all tables, in parallel.
fn load_version(
    context: &Context,
    (owner, tiers): (&SstOwner, Tiers),
    contents: &VersionRecord,
) -> Result<Version> {
    let records: Vec<&TphTableRecord> = contents.levels.iter().flatten().collect();
    let opened: Vec<Mutex<Option<Result<Arc<TphTable>>>>> =
        records.iter().map(|_| Mutex::new(None)).collect();
    context.env.parallel(records.len(), &|number| {
        if let (Some(record), Some(slot)) = (records.get(number), opened.get(number)) {
            let table = match tiers {
                Tiers::One => load_table(context, owner, record),
                Tiers::Two => load_slotted_table(context, owner, record),
            };
            *lock(slot) = Some(table.map(Arc::new));
        }
    });
    let mut tables = opened.into_iter();
    let mut levels = Vec::new();
    for level in &contents.levels {
        let mut loaded = Vec::new();
        for slot in tables.by_ref().take(level.len()) {
            let outcome = lock(&slot).take();
            loaded.extend(outcome.transpose()?);
        }
        levels.push(loaded);
    }
    let top = if levels.is_empty() { Vec::new() } else { levels.remove(0) };
    let mut version = Version { level0: top, levels, data_bytes: 0 };
    version.update_data_bytes();
    Ok(version)
}

fn load_table(context: &Context, owner: &SstOwner, record: &TphTableRecord) -> Result<TphTable> {
    let mut ssts = Vec::new();
    for one in &record.ssts {
        let sst = Arc::new(Sst::open(owner, one.number, one.file_bytes)?);
        ssts.push(TableSst::new(sst, (one.live, one.live_bytes), None));
    }
    let lower_bound = record.lower_bound.clone();
    let tombstones = record.tombstones;
    let mut table = TphTable { lower_bound, ssts, tombstones, ..TphTable::default() };
    if let Some(newest) = table.ssts.first() {
        let section = newest.sst.footer.index;
        let _memory = context.budget.reserve_transient(section.bytes);
        let bytes = newest.sst.section(section)?;
        let origin = (&*newest.sst.label, section.offset);
        table.index = Some(TableIndex::decode(&bytes, table.blocks(), origin)?);
    }
    Ok(table)
}

/// Opens a table with two tiers: the local hash of each piece, and the global hash and the samples
/// of the newest one.
fn load_slotted_table(
    context: &Context,
    owner: &SstOwner,
    record: &TphTableRecord,
) -> Result<TphTable> {
    let (lower_bound, tombstones) = (record.lower_bound.clone(), record.tombstones);
    let mut table = TphTable { lower_bound, tombstones, ..TphTable::default() };
    for one in &record.ssts {
        let sst = Arc::new(Sst::open(owner, one.number, one.file_bytes)?);
        let section = sst.footer.fences;
        let _memory = context.budget.reserve_transient(section.bytes);
        let bytes = sst.section(section)?;
        let local = LocalIndex::decode(&bytes, sst.blocks(), (&*sst.label, section.offset))?;
        let live = (one.live, one.live_bytes);
        table.ssts.push(TableSst::new(sst, live, Some(Arc::new(local))));
    }
    if let Some(newest) = table.ssts.first() {
        let section = newest.sst.footer.index;
        let _memory = context.budget.reserve_transient(section.bytes);
        let bytes = newest.sst.section(section)?;
        let counts = (table.ssts.len(), newest.sst.footer.order.bytes);
        let origin = (&*newest.sst.label, section.offset);
        let (index, order, invalid) = global::decode(&bytes, counts, origin)?;
        if order.rows() != table.live() {
            let what = "the key-location array has not as many rows as the table has live entries";
            return Err(newest.sst.damage(newest.sst.footer.order.offset, what));
        }
        (table.index, table.order, table.invalid) = (Some(index), Some(order), invalid);
    }
    Ok(table)
}

/// Removes files that a crash has left and the manifest does not list.
fn remove_unlisted(owner: &SstOwner, files: &DirListing, contents: &VersionRecord) -> Result<()> {
    let tables = contents.levels.iter().flatten();
    let listed: BTreeSet<u64> =
        tables.flat_map(|table| &table.ssts).map(|sst| sst.number).collect();
    for name in &files.names {
        let is_unlisted =
            SstKind::PIECE.number_of(name).is_some_and(|number| !listed.contains(&number))
                || manifest::number_of(name).is_some_and(|number| Some(number) != files.manifest)
                || name == manifest::UNFINISHED;
        if !is_unlisted {
            continue;
        }
        match owner.dir.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("remove {}", owner.label(name)), error));
            }
            _ => {}
        }
    }
    Ok(())
}
