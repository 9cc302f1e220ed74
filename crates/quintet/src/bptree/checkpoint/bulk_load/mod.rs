//! Sorted loads: whole pages written to the file, and one checkpoint that adds them to the tree.
//!
//! How: [`BulkLoader`] builds nodes in free pages ([`builder`]) and writes them in
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

mod builder;

use self::builder::{BuildTarget, BuiltRoot, TreeBuilder, load_failed};
use crate::{
    Error, Result,
    bptree::{
        checkpoint::{
            checkpointer::Checkpointer,
            paged_tree::PagedTree,
            write_back::{PageWrites, REQUEST_BYTES, WAITING_BYTES_MAX},
        },
        page_allocator::pages_of,
        tree::{CountChange, ROOT},
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
    builder: Option<TreeBuilder>,
    writes: Option<PageWrites>,
    new_root: Option<BuiltRoot>,
    failure: Option<Error>,
    _memory: Reservation,
}

impl BulkLoader {
    /// Begins a load. The tree must not change until its end. Returns the last key too.
    pub(crate) fn begin(paged: &PagedTree) -> Result<(Self, Option<Vec<u8>>)> {
        paged.ensure_file()?;
        let (builder, last) = paged.tree.begin_build()?;
        let writes = PageWrites::new(paged.tree.cache(), &*paged.context.env)?;
        let buffers = WAITING_BYTES_MAX + 2 * to_u64(REQUEST_BYTES);
        let memory = paged.context.budget.reserve_transient(buffers);
        let (builder, writes) = (Some(builder), Some(writes));
        Ok((Self { builder, writes, new_root: None, failure: None, _memory: memory }, last))
    }

    /// Adds an entry; its key must be above all others.
    pub(crate) fn put(&mut self, paged: &PagedTree, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let (Some(builder), Some(writes)) = (&mut self.builder, &mut self.writes) else {
            return Err(load_failed());
        };
        let target = &mut BuildTarget { tree: &paged.tree, writes };
        let outcome = builder.push(target, key, value);
        outcome.map_err(|error| self.fail(paged, error))
    }

    /// Aborts the load. Returns the error of the first write that failed.
    fn fail(&mut self, paged: &PagedTree, error: Error) -> Error {
        self.builder = None;
        let written = self.end_writes(paged);
        let error = written.err().unwrap_or(error);
        self.failure = Some(error.clone());
        error
    }

    /// Waits for the writes in flight.
    fn end_writes(&mut self, paged: &PagedTree) -> Result<()> {
        let Some(writes) = self.writes.take() else { return Ok(()) };
        let (outcome, written) = writes.finish();
        paged.written_bytes_total.fetch_add(written, Ordering::Relaxed);
        paged.written_back_bytes_total.fetch_add(written, Ordering::Relaxed);
        outcome
    }

    /// Writes everything except the root.
    pub(crate) fn finish(&mut self, paged: &PagedTree) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if let (Some(builder), Some(writes)) = (self.builder.take(), &mut self.writes) {
            let target = &mut BuildTarget { tree: &paged.tree, writes };
            let new_root = builder.finish(target).map_err(|error| self.fail(paged, error))?;
            self.end_writes(paged).map_err(|error| self.fail(paged, error))?;
            self.new_root = Some(new_root);
        }
        Ok(())
    }

    /// Makes the load durable and then visible; the files are complete to `lsn`, below which
    /// everything is applied. On an error nothing has changed, except that the file has the load if
    /// it is opened before another checkpoint is stored.
    pub(crate) fn adopt(
        &mut self,
        paged: &PagedTree,
        checkpointer: &mut Checkpointer,
        lsn: Lsn,
    ) -> Result<()> {
        self.finish(paged)?;
        let Some(new_root) = self.new_root.take() else { return Err(load_failed()) };
        paged.adopt(checkpointer, lsn, &new_root)
    }

    /// Frees the pages that were written, unless the load was adopted.
    pub(crate) fn abandon(&mut self, paged: &PagedTree) {
        self.builder = None;
        self.new_root = None;
        let _ = self.end_writes(paged);
        let cache = paged.tree.cache();
        let page_bytes = to_u64(cache.page_bytes());
        paged.tree.allocator().free_reserved(|first, count| {
            // Optional: the pages are free either way.
            if let Ok(file) = cache.file() {
                let _ = file.punch_hole(first * page_bytes, count * page_bytes);
            }
        });
    }
}

impl PagedTree {
    fn adopt(&self, checkpointer: &mut Checkpointer, lsn: Lsn, new_root: &BuiltRoot) -> Result<()> {
        let (cache, tree) = (self.tree.cache(), &self.tree);
        // The load's checkpoint must not contain nodes that the new root does not refer to.
        if cache.dirty_count() > 0 {
            self.store_once(checkpointer, lsn, 0)?;
        }
        let root = cache.write(ROOT)?;
        let before = root.words().copy(0, cache.page_bytes()).ok_or_else(load_failed)?;
        tree.replace_root(&root, &new_root.root);
        root.record_changed_units();
        let loaded = tree.allocator().adopt(&new_root.freed);
        tree.count_nodes(new_root.nodes, false);
        self.gate.add(new_root.change);
        let checkpoint = self.begin_checkpoint(lsn, checkpointer.next_group(), 0);
        mutant!(LoadShownEarly: (), else tree.replace_root(&root, &before));
        drop(root);
        if let Err(error) = self.store_begun(checkpointer, lsn, checkpoint) {
            let CountChange { keys, bytes } = new_root.change;
            self.gate.add(CountChange { keys: -keys, bytes: -bytes });
            tree.count_nodes(new_root.nodes, true);
            tree.allocator().disown(loaded, &new_root.freed);
            // If the failed checkpoint is durable after all, this one replaces it.
            let _ = self.store_once(checkpointer, lsn, 0);
            return Err(error);
        }
        let stale = pages_of(&loaded);
        mutant!(LoadForgetsNothing: (), else stale.for_each(|page| cache.forget(page)));
        // The root changed since the checkpoint, so it was not evicted.
        tree.replace_root(&cache.write(ROOT)?, &new_root.root);
        for (first, count) in &new_root.freed {
            (0..*count).for_each(|step| cache.discard(tree.allocator().page_at(*first, step)));
        }
        Ok(())
    }
}
