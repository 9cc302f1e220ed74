//! Opening: the newest manifest, the SSTs that it names, and away with what it does not.

use std::{collections::BTreeSet, io, sync::Arc};

use super::{
    Counters, Inner, Version,
    index::Index,
    manifest::{self, Contents, Manifest, TableRecord},
    options::{Mode, TphSettings},
    publish::Publisher,
    table::{Route, SstUse, Table},
};
use crate::{
    Error, Result,
    contract::{Context, TableOptions},
    io::Queues,
    lsm::{
        sst::decoded_block::DecodedBlockCache,
        sst::{Sst, SstKind, SstOwner},
        write_buffer::WriteBuffer,
    },
    util::{
        codec::Lsn,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// What is in the directory.
#[derive(Debug, Default)]
struct Found {
    names: Vec<String>,
    manifest: Option<u64>,
}

fn look(owner: &SstOwner) -> Result<Found> {
    let entries = owner.dir.list();
    let entries = entries.map_err(|error| Error::io(format!("list {}", owner.label("")), error))?;
    let names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| manifest::number_of(name)).collect();
    numbers.sort_unstable();
    Ok(Found { names, manifest: numbers.pop() })
}

impl Inner {
    pub(super) fn open(
        options: &TableOptions,
        context: Context,
        hash_mask: u64,
    ) -> Result<(Self, Lsn)> {
        let settings = TphSettings::parse(options, context.budget.limit())?;
        let owner = SstOwner {
            kind: SstKind::PIECE,
            dir: Arc::clone(&context.dir),
            database_id: context.database_id,
            table_id: context.table_id,
        };
        let route = match settings.mode {
            Mode::HashRange => Route::Hash(context.hash),
            Mode::Sorted | Mode::OneLevel | Mode::SingleTier => Route::Key,
        };
        let found = look(&owner)?;
        let manifest = match found.manifest {
            Some(number) => Manifest::open(&owner, number, !context.read_only, context.complete.0)?,
            None => Manifest::default(),
        };
        let contents = &manifest.contents;
        let version = load(&context, &owner, contents)?;
        let complete = Lsn(contents.complete);
        if !context.read_only && complete >= context.complete {
            remove_strays(&owner, &found, contents)?;
        }
        let sizes = (settings.cache_bytes, settings.shape.block_bytes);
        let cache = Arc::new(DecodedBlockCache::new(sizes, &context, hash_mask)?);
        let memory = (settings.memtable_bytes, settings.memtables);
        let front = WriteBuffer::new(&context, memory, u64::MAX, version)?;
        let next_sst = contents.next_sst.max(1);
        let publisher = Publisher { manifest, obsolete: Vec::new() };
        let inner = Self {
            settings,
            owner,
            route,
            hash_mask,
            front,
            flushing: Mutex::new(()),
            compacting: Mutex::new(()),
            large_merge: Mutex::new(()),
            publisher: Mutex::new(publisher),
            next_sst: AtomicU64::new(next_sst),
            index_charged: AtomicU64::new(0),
            compaction_wanted: AtomicBool::new(false),
            queues: Queues::default(),
            rates: super::pace::Rates::default(),
            flush_within: AtomicBool::new(false),
            cache,
            counters: Counters::default(),
            context,
        };
        let version = Arc::clone(&inner.front.view.load().version);
        inner.charge_index(&version);
        inner.compaction_wanted.store(inner.wants_compaction(&version), Ordering::Relaxed);
        Ok((inner, complete))
    }
}

/// Opens all tables, side by side.
fn load(context: &Context, owner: &SstOwner, contents: &Contents) -> Result<Version> {
    let records: Vec<&TableRecord> = contents.levels.iter().flatten().collect();
    let opened: Vec<Mutex<Option<Result<Arc<Table>>>>> =
        records.iter().map(|_| Mutex::new(None)).collect();
    context.env.parallel(records.len(), &|number| {
        if let (Some(record), Some(slot)) = (records.get(number), opened.get(number)) {
            *lock(slot) = Some(load_table(context, owner, record).map(Arc::new));
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
    version.count();
    Ok(version)
}

fn load_table(context: &Context, owner: &SstOwner, record: &TableRecord) -> Result<Table> {
    let mut uses = Vec::new();
    for one in &record.ssts {
        let sst = Arc::new(Sst::open(owner, one.number, one.file_bytes)?);
        uses.push(SstUse::new(sst, (one.live, one.live_bytes)));
    }
    let low = record.low.clone();
    let mut table = Table { low, uses, tombstones: record.tombstones, index: None };
    if let Some(newest) = table.uses.first() {
        let section = newest.sst.footer.index;
        let _memory = context.budget.reserve_transient(section.bytes);
        let bytes = newest.sst.section(section)?;
        let place = (&*newest.sst.label, section.offset);
        table.index = Some(Index::decode(&bytes, table.blocks(), place)?);
    }
    Ok(table)
}

/// Removes files that the manifest does not name: left by a crash.
fn remove_strays(owner: &SstOwner, found: &Found, contents: &Contents) -> Result<()> {
    let tables = contents.levels.iter().flatten();
    let used: BTreeSet<u64> = tables.flat_map(|table| &table.ssts).map(|sst| sst.number).collect();
    for name in &found.names {
        let is_stray = SstKind::PIECE.number_of(name).is_some_and(|number| !used.contains(&number))
            || manifest::number_of(name).is_some_and(|number| Some(number) != found.manifest)
            || name == manifest::UNFINISHED;
        if !is_stray {
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
