//! Sorted loads: whole pages written to the file, and one checkpoint that adds them to the tree.
//!
//! How: [`BulkLoader`] builds nodes in free pages ([`crate::bptree::bulk`]) and writes them in
//! batches, bypassing the cache. [`BulkLoader::adopt`] stores a checkpoint whose root refers to
//! them. Why: a put costs a descent, a page change and its journaling; sorted entries above all
//! others need their bytes written once.
//!
//! The checkpoint's image of the root is not the root that readers see. Under the root's latch the
//! new root is put in place, the checkpoint is taken, and the old root is restored. Once the
//! checkpoint is durable, the new root is put in place for good. So no reader sees entries that a
//! crash or a full disk could remove, and the checkpoint has all of the load or, if it never
//! becomes durable, nothing. A crash before that leaves pages that the maps mark as free.
//!
//! Invariants:
//! - Pages of a load are synced before the checkpoint's group is committed.
//! - Stale cached content of a load's pages is dropped after all is written and before the new root
//!   is visible.
//!
//! Threads: one load of a tree at a time. The caller keeps writers out from [`BulkLoader::begin`]
//! until the load is adopted or dropped. Checkpoints go on meanwhile.

use super::PagedTree;
use crate::{
    Error, Result,
    bptree::{
        CountChange, ROOT,
        bulk::{BuildTarget, BuiltRoot, PageSink, TreeBuilder},
        checkpoint::{
            checkpointer::Checkpointer,
            write_back::{PageWrites, REQUEST_BYTES, WAITING_BYTES_MAX},
        },
        page_allocator::pages_of,
    },
    util::{
        budget::Reservation,
        codec::{Lsn, to_u64},
        mutant::mutant,
        sync::Ordering,
    },
};

/// A load in progress.
#[derive(Debug)]
pub(crate) struct BulkLoader {
    bulk: Option<TreeBuilder>,
    requests: Option<PageWrites>,
    built: Option<BuiltRoot>,
    failure: Option<Error>,
    _memory: Reservation,
}

struct ToFile<'r>(&'r mut PageWrites);

impl PageSink for ToFile<'_> {
    fn write(&mut self, offset: u64, page: &[u8]) -> Result<()> {
        self.0.add(offset, page);
        // The end of the load returns the error itself.
        if self.0.has_failed() { Err(stopped()) } else { Ok(()) }
    }
}

fn stopped() -> Error {
    Error::Limit { what: "the load has failed, and takes no more entries".to_owned() }
}

impl BulkLoader {
    /// Begins a load. The tree must not change until its end. Returns the last key too.
    pub(crate) fn begin(paged: &PagedTree) -> Result<(Self, Option<Vec<u8>>)> {
        paged.make_file()?;
        let (bulk, last) = paged.tree.begin_build()?;
        let requests = PageWrites::new(paged.tree.cache(), &*paged.context.env)?;
        let buffers = WAITING_BYTES_MAX + 2 * to_u64(REQUEST_BYTES);
        let memory = paged.context.budget.reserve_transient(buffers);
        let (bulk, requests) = (Some(bulk), Some(requests));
        Ok((Self { bulk, requests, built: None, failure: None, _memory: memory }, last))
    }

    /// Adds an entry; its key must be above all others.
    pub(crate) fn put(&mut self, paged: &PagedTree, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let (Some(bulk), Some(requests)) = (&mut self.bulk, &mut self.requests) else {
            return Err(stopped());
        };
        let target = &mut BuildTarget { tree: &paged.tree, sink: &mut ToFile(requests) };
        let outcome = bulk.push(target, key, value);
        outcome.map_err(|error| self.fail(paged, error))
    }

    /// Aborts the load. Returns the error of the first write that failed.
    fn fail(&mut self, paged: &PagedTree, error: Error) -> Error {
        self.bulk = None;
        let written = self.end_writes(paged);
        let error = written.err().unwrap_or(error);
        self.failure = Some(error.clone());
        error
    }

    /// Waits for the writes in flight.
    fn end_writes(&mut self, paged: &PagedTree) -> Result<()> {
        let Some(requests) = self.requests.take() else { return Ok(()) };
        let (outcome, written) = requests.finish();
        paged.written_bytes_total.fetch_add(written, Ordering::Relaxed);
        paged.placed_bytes_total.fetch_add(written, Ordering::Relaxed);
        outcome
    }

    /// Writes everything except the root.
    pub(crate) fn finish(&mut self, paged: &PagedTree) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if let (Some(bulk), Some(requests)) = (self.bulk.take(), &mut self.requests) {
            let target = &mut BuildTarget { tree: &paged.tree, sink: &mut ToFile(requests) };
            let built = bulk.finish(target).map_err(|error| self.fail(paged, error))?;
            self.end_writes(paged).map_err(|error| self.fail(paged, error))?;
            self.built = Some(built);
        }
        Ok(())
    }

    /// Makes the load durable and then visible; the files are complete to `lsn`, below which
    /// everything is applied. On an error nothing has changed, except that the file has the load if
    /// it is opened before another checkpoint is stored.
    pub(crate) fn adopt(
        &mut self,
        paged: &PagedTree,
        keeper: &mut Checkpointer,
        lsn: Lsn,
    ) -> Result<()> {
        self.finish(paged)?;
        let Some(built) = self.built.take() else { return Err(stopped()) };
        paged.adopt(keeper, lsn, &built)
    }

    /// Frees the pages that were written, unless the load was adopted.
    pub(crate) fn give_up(&mut self, paged: &PagedTree) {
        self.bulk = None;
        self.built = None;
        let _ = self.end_writes(paged);
        let cache = paged.tree.cache();
        let page_bytes = to_u64(cache.page_bytes());
        paged.tree.allocator().release(|first, count| {
            // Optional: the pages are free either way.
            if let Ok(file) = cache.file() {
                let _ = file.punch_hole(first * page_bytes, count * page_bytes);
            }
        });
    }
}

impl PagedTree {
    fn adopt(&self, keeper: &mut Checkpointer, lsn: Lsn, built: &BuiltRoot) -> Result<()> {
        let (cache, tree) = (self.tree.cache(), &self.tree);
        // The load's checkpoint must not contain nodes that the new root does not refer to.
        if cache.dirty_count() > 0 {
            self.store_one(keeper, lsn, 0)?;
        }
        let root = cache.write(ROOT)?;
        let before = root.words().copy(0, cache.page_bytes()).ok_or_else(stopped)?;
        tree.put_root(&root, &built.root);
        root.settle();
        let loaded = tree.allocator().adopt(&built.freed);
        tree.count_nodes(built.nodes, false);
        self.gate.note(built.change);
        let cut = self.take_cut(lsn, keeper.next_group(), 0);
        mutant!(LoadShownEarly: (), else tree.put_root(&root, &before));
        drop(root);
        if let Err(error) = self.store_taken(keeper, lsn, cut) {
            let CountChange { keys, bytes } = built.change;
            self.gate.note(CountChange { keys: -keys, bytes: -bytes });
            tree.count_nodes(built.nodes, true);
            tree.allocator().disown(loaded, &built.freed);
            // If the failed checkpoint is durable after all, this one replaces it.
            let _ = self.store_one(keeper, lsn, 0);
            return Err(error);
        }
        let stale = pages_of(&loaded);
        mutant!(LoadForgetsNothing: (), else stale.for_each(|page| cache.forget(page)));
        // The root changed since the checkpoint, so it was not evicted.
        tree.put_root(&cache.write(ROOT)?, &built.root);
        for (first, count) in &built.freed {
            (0..*count).for_each(|step| cache.discard(tree.allocator().page_at(*first, step)));
        }
        Ok(())
    }
}
