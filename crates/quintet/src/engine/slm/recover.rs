//! Opens a table: the index, the list of runs in it, and the runs. Removes files that the list does
//! not name.

use std::{collections::BTreeSet, io, sync::Arc};

use super::{
    index_key::{IndexKeyCodec, LIST_KEY},
    index_value::BlockAddress,
    location_cache::LocationCache,
    options::{self, SlmSettings},
    pool::SlmPool,
    read_locality::ReadLocality,
    run::{RunSet, SortedRun},
    run_list::RunList,
    run_manifest::RunManifest,
    table::{SlmCounters, SlmTable},
};
use crate::{
    Error, Result,
    bptree::checkpoint::{self, PagedTree},
    contract::{Context, TableOptions},
    io::Queues,
    lsm::{
        rate_limiter::{IdleDetector, RateLimiter},
        read_buffers::ReadBuffers,
        sst::decoded_block::DecodedBlockCache,
        sst::{SstKind, SstOwner},
        write_buffer::WriteBuffer,
    },
    util::{
        codec::Lsn,
        sync::{AtomicBool, AtomicU64, Mutex, lock},
    },
};

/// Size in bytes at which a memtable list is frozen. Inserts into a small list find most of its
/// nodes in the processor's caches.
const MEMTABLE_LIST_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// The location cache takes at most this fraction of the block cache's bytes: a 1024th. A table
/// that fits in the processor's caches saves more time than a larger one.
const LOCATION_CACHE_SHARE: u64 = 1024;

impl SlmTable {
    /// Opens a table, or creates one in an empty directory. Also returns the LSN up to which its
    /// files are complete.
    pub(super) fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let budget = context.budget.limit();
        let (settings, index) = options::parse(options, budget)?;
        let index = checkpoint::TreeSettings::new(&index, &context);
        // The index keeps its pages before blocks: a page leads to hundreds of entries, a block has
        // a few.
        let index = index.may_reclaim_blocks().with_value_bytes(size_of::<BlockAddress>());
        let owner = SstOwner {
            kind: SstKind::RUN,
            dir: Arc::clone(&context.dir),
            database_id: context.database_id,
            table_id: context.table_id,
        };
        let mut pool = open_pool(&settings, &context)?;
        let manifest = Arc::new(RunManifest::new(owner.clone()));
        let participant = Arc::clone(&manifest) as Arc<dyn checkpoint::CheckpointParticipant>;
        let has_pages = pool.as_ref().is_none_or(SlmPool::has_pages);
        // Without a checkpoint the tree of pages has no files: the pool has what is complete.
        let known = if has_pages { context.complete } else { Lsn(0) };
        let page_context = Context { complete: known, ..context.clone() };
        let (paged, complete) = PagedTree::open(&index, page_context, Some(participant))?;
        let index = pool.as_ref().and_then(|pool| pool.index.as_ref());
        let list = match index {
            Some(index) => index.opened_list().clone(),
            None => load_list(&paged, complete)?,
        };
        let complete = pool.as_ref().map_or(complete, SlmPool::complete);
        let keys = Arc::new(IndexKeyCodec::new(list.coding.clone()));
        let runs = load_runs(&context, &owner, &list)?;
        manifest.load(list.next, &runs, &keys);
        if !context.read_only && complete >= context.complete {
            remove_strays(&owner, &list)?;
        }
        let sizes = (settings.cache_bytes, settings.shape.block_bytes);
        let cache = Arc::new(DecodedBlockCache::new(sizes, &context, u64::MAX)?);
        let run_memory = runs.iter().map(|run| run.memory_bytes()).sum();
        context.budget.reserve_unchecked(run_memory);
        let memory = (settings.memtable_bytes, settings.memtables);
        let mut write_buffer =
            WriteBuffer::new(&context, memory, MEMTABLE_LIST_BYTES, u64::MAX, runs)?;
        if let Some(pool) = pool.as_mut().filter(|_| settings.pool.has_memtables) {
            let memtables = pool.open_memtables(write_buffer.list_bytes_max())?;
            write_buffer.attach_pool(&memtables, complete, context.read_only)?;
        }
        let location_cache = new_location_cache(&settings, &context)?;
        let buffers = ReadBuffers::new(&context.budget, context.table_id);
        let table = Self {
            settings,
            owner,
            paged,
            keys,
            manifest,
            write_buffer,
            pool,
            flushing: Mutex::new(()),
            compacting: Mutex::default(),
            index_writer: Mutex::new(()),
            unremoved_runs: Mutex::default(),
            leaf_scan_start: Mutex::default(),
            run_memory_bytes: AtomicU64::new(run_memory),
            // Candidates from before the last close may wait for a merge.
            compaction_wanted: AtomicBool::new(!list.runs.is_empty()),
            idle: IdleDetector::default(),
            read_locality: ReadLocality::default(),
            queues: Queues::default(),
            buffers,
            merge_limiter: RateLimiter::default(),
            cache,
            location_cache,
            counters: SlmCounters::default(),
            context,
        };
        table.divide_memory();
        Ok((table, complete))
    }
}

/// Creates the location cache and reserves its memory.
fn new_location_cache(settings: &SlmSettings, context: &Context) -> Result<LocationCache> {
    let bytes = settings.cache_bytes.min(context.budget.limit()) / LOCATION_CACHE_SHARE;
    let cache = LocationCache::new(bytes)
        .map_err(|error| Error::address_space("the location cache", error))?;
    // Not transient: the memory stays reserved until the table is closed, so no writer may wait for
    // it.
    context.budget.reserve_unchecked(cache.memory_bytes());
    Ok(cache)
}

/// Opens the pool of persistent memory, if the table uses one.
fn open_pool(settings: &SlmSettings, context: &Context) -> Result<Option<SlmPool>> {
    let pool = settings.pool.is_used().then(|| SlmPool::open(&settings.pool, context));
    pool.transpose()
}

/// Reads the list of runs from the index. Fails with `Corruption` if a checkpointed index has none.
fn load_list(paged: &PagedTree, complete: Lsn) -> Result<RunList> {
    let label = paged.tree.cache().label();
    let copy = |length: usize, fill: &mut dyn FnMut(&mut [u8])| {
        let mut bytes = vec![0; length];
        fill(&mut bytes);
        bytes
    };
    match paged.tree.get(LIST_KEY, copy)? {
        Some(bytes) => RunList::open(&bytes, label),
        None if complete == Lsn(0) => Ok(RunList::default()),
        None => Err(Error::corruption(label, 0, "the index has no list of runs")),
    }
}

/// Opens all runs in parallel.
fn load_runs(context: &Context, owner: &SstOwner, list: &RunList) -> Result<RunSet> {
    let records = &list.runs;
    let opened: Vec<Mutex<Option<Result<SortedRun>>>> =
        records.iter().map(|_| Mutex::new(None)).collect();
    context.env.parallel(records.len(), &|number| {
        if let (Some(record), Some(slot)) = (records.get(number), opened.get(number)) {
            *lock(slot) = Some(SortedRun::open(owner, record));
        }
    });
    let mut runs = Vec::new();
    for slot in opened {
        let outcome = lock(&slot).take();
        runs.extend(outcome.transpose()?.map(Arc::new));
    }
    Ok(RunSet::new(runs))
}

/// Removes the run files that a crash has left: those that the list does not name.
fn remove_strays(owner: &SstOwner, list: &RunList) -> Result<()> {
    let io = |what: &str, error| Error::io(format!("{what} {}", owner.label("")), error);
    let used: BTreeSet<u64> = list.runs.iter().map(|run| u64::from(run.number)).collect();
    let entries = owner.dir.list().map_err(|error| io("list", error))?;
    for name in entries.into_iter().map(|entry| entry.name) {
        if owner.kind.number_of(&name).is_none_or(|number| used.contains(&number)) {
            continue;
        }
        match owner.dir.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("remove {}", owner.label(&name)), error));
            }
            _ => {}
        }
    }
    Ok(())
}
