//! Opens a table: the index, the list of runs in it, and the runs. Removes files that the list does
//! not name.

use std::{collections::BTreeSet, io, sync::Arc};

use super::{
    Counters, Inner,
    keys::Keys,
    options::SlmSettings,
    runs::{LIST_KEY, Ledger, Place, Run, RunList, Runs},
};
use crate::{
    Error, Result,
    bptree::checkpoint::{self, PagedTree},
    contract::{Context, TableOptions},
    engine::slm::{index_scan::Together, location_cache::Shortcuts},
    io::Queues,
    lsm::{
        rate_limiter::{IdleDetector, RateLimiter},
        read_buffers::Buffers,
        sst::decoded_block::DecodedBlockCache,
        sst::{Kind, Owner},
        write_buffer::WriteBuffer,
    },
    util::{
        codec::Lsn,
        sync::{AtomicBool, AtomicU64, Mutex, lock},
    },
};

/// Memtables are frozen at this size: inserts find their places in the processor's caches.
const LIST_BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// Shortcuts take one byte of so many of the cache's at most: what fits in the processor's caches
/// is worth more than more of them.
const SHORTCUTS_SHARE: u64 = 1024;

impl Inner {
    pub(super) fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let budget = context.budget.limit();
        let settings = SlmSettings::parse(options, budget)?;
        let index =
            checkpoint::TreeSettings::new(options, &context, ("index_cache_bytes", budget / 2))?;
        // A page of it leads to hundreds of entries, a block has a few.
        let index = index.may_reclaim_blocks().with_value_bytes(size_of::<Place>());
        let owner = Owner {
            kind: Kind::RUN,
            dir: Arc::clone(&context.dir),
            database_id: context.database_id,
            table_id: context.table_id,
        };
        let ledger = Arc::new(Ledger::new(owner.clone()));
        let beside = Arc::clone(&ledger) as Arc<dyn checkpoint::CheckpointParticipant>;
        let (paged, complete) = PagedTree::open(&index, context.clone(), Some(beside))?;
        let list = load_list(&paged, complete)?;
        let keys = Arc::new(Keys::new(list.coding.clone()));
        let runs = load_runs(&context, &owner, &list)?;
        ledger.load(list.next, &runs, &keys);
        if !context.read_only && complete >= context.complete {
            remove_strays(&owner, &list)?;
        }
        let sizes = (settings.cache_bytes, settings.shape.block_bytes);
        let cache = Arc::new(DecodedBlockCache::new(sizes, &context, u64::MAX)?);
        let charged = runs.iter().map(|run| run.memory_bytes()).sum();
        context.budget.reserve_unchecked(charged);
        let memory = (settings.memtable_bytes, settings.memtables);
        let front = WriteBuffer::new(&context, memory, LIST_BYTES_MAX, runs)?;
        let shortcuts = Shortcuts::new(settings.cache_bytes.min(budget) / SHORTCUTS_SHARE)
            .map_err(|error| Error::io("reserve address space for shortcuts", error))?;
        // Not lent: nobody is to wait until it comes back.
        context.budget.reserve_unchecked(shortcuts.memory_bytes());
        let buffers = Buffers::new(&context.budget);
        let inner = Self {
            settings,
            owner,
            paged,
            keys,
            ledger,
            front,
            flushing: Mutex::new(()),
            compacting: Mutex::default(),
            entering: Mutex::new(()),
            obsolete: Mutex::default(),
            scan_from: Mutex::default(),
            runs_charged: AtomicU64::new(charged),
            // There may have been more to do.
            compaction_wanted: AtomicBool::new(!list.runs.is_empty()),
            rest: IdleDetector::default(),
            together: Together::default(),
            queues: Queues::default(),
            buffers,
            merge_pace: RateLimiter::default(),
            cache,
            shortcuts,
            counters: Counters::default(),
            context,
        };
        inner.make_space();
        Ok((inner, complete))
    }
}

/// The list of runs that the index has.
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

/// Opens all runs, side by side.
fn load_runs(context: &Context, owner: &Owner, list: &RunList) -> Result<Runs> {
    let records = &list.runs;
    let opened: Vec<Mutex<Option<Result<Run>>>> =
        records.iter().map(|_| Mutex::new(None)).collect();
    context.env.parallel(records.len(), &|number| {
        if let (Some(record), Some(slot)) = (records.get(number), opened.get(number)) {
            *lock(slot) = Some(Run::open(owner, record));
        }
    });
    let mut runs = Vec::new();
    for slot in opened {
        let outcome = lock(&slot).take();
        runs.extend(outcome.transpose()?.map(Arc::new));
    }
    Ok(Runs::new(runs))
}

/// Removes files that the list does not name: left by a crash.
fn remove_strays(owner: &Owner, list: &RunList) -> Result<()> {
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
