//! The slm engine: one level of sorted runs under a persistent B+-tree (SLM-DB).
//!
//! Problem: an LSM tree searches several levels for a key and rewrites an entry at each level. Here
//! a get reads one block, and an entry is rewritten only when its run is compacted.
//!
//! How: memtables ([`crate::lsm::write_buffer`]) are flushed to runs ([`run`]): immutable files of
//! blocks in key order. A B+-tree ([`crate::bptree::checkpoint`]) maps each key to the run and the
//! block of its one live entry ([`index_value`]).
//! - Put ([`crate::lsm::write_buffer`]): admit (memory for the memtable, or help to flush), then
//!   insert into the active memtable. Get ([`read`]): memtables, index, one block. Range
//!   ([`range`]): the index and the memtables, merged.
//! - Background ([`pending_work`]): flush ([`flush`]), update the index ([`index_update`]), pick
//!   runs ([`compaction_picker`]), merge them ([`compact`]), take a checkpoint ([`checkpoint`]).
//!
//! Invariants:
//! - The index has exactly the live keys of the runs. The value of a key is the address of its
//!   newest flushed entry.
//! - Readers see a run before the index points to it. Its file is removed after a durable
//!   checkpoint without it.
//! - Memtables leave the super version after their entries are in the index.
//! - A failed flush or merge keeps its index updates: they are true. Its other entries are dead.
//!
//! Thread rules: gets take no lock. Lock order: `compacting`, `flushing`, the write buffer's,
//! `index_writer`, those of the index, the manifest's, `unremoved_runs`. State: [`table`].

mod check;
mod checkpoint;
mod compact;
mod compaction_picker;
mod flush;
mod index_key;
mod index_update;
mod index_value;
pub(crate) mod key_code;
mod location_cache;
mod merge_input;
mod mutants;
pub(crate) mod options;
mod pending_work;
mod pool;
mod range;
mod read;
mod read_locality;
mod recover;
mod run;
mod run_builder;
mod run_list;
mod run_manifest;
mod stats;
mod table;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::sync::Arc;

pub(crate) use self::{pool::describe_pool, run::describe_run};
use self::{
    range::SlmRangeSource,
    table::{SlmTable, SuperVersion},
};
use crate::{
    Result,
    contract::{
        BulkLoad, Context, Cursor, Engine, EngineStats, Entry, EntryIter, HashOrder, Hint,
        KeyRange, MaintenanceMode, MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine,
        PendingWork, Presence, TableOptions, ValueSink, Visit,
    },
    lsm::range::{RangeEntries, scan_page, visit_range},
    util::{codec::Lsn, report::Report},
};

/// A table of the slm engine. See the module head.
///
/// How we differ from the paper:
/// - Memtables are in memory; the shared log protects them. The log may be in persistent memory
///   (see `Options::emulate_persistent_memory`).
/// - The index is in pages of a file, through a cache. Its keys are whole byte strings, coded
///   ([`index_key`]). A value is 8 bytes in the leaf, not a separate object.
/// - Deletes leave no tombstones in runs or index.
/// - The manifest is a part of the index, so there is no compaction log. A run's live count is
///   exact after a crash.
#[derive(Debug)]
pub struct Slm {
    table: Arc<SlmTable>,
}

impl Slm {
    /// Opens a table, or creates one in an empty directory. Also returns the LSN up to which its
    /// files are complete.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let (table, complete) = SlmTable::open(options, context)?;
        Ok((Self { table: Arc::new(table) }, complete))
    }

    /// Returns the entries of a range. The runs that it reads count for compaction if `is_query`.
    fn entries(&self, range: KeyRange, is_query: bool) -> Result<RangeEntries<SlmRangeSource>> {
        let source = SlmRangeSource::new(&*self.table.view()?, is_query);
        Ok(RangeEntries::new(&self.table, source, range))
    }
}

impl Engine for Slm {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.table.read_value(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        sink.fill(keys.len(), |out| self.table.read_many(keys, out))
    }

    fn exists_hint(&self, key: &[u8]) -> Result<Presence> {
        self.table.exists_hint(key)
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Write { hash, step: 0, .. } = hint {
            self.table.write_buffer.prefetch_insert(hash);
        }
    }

    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        self.table.write_buffer.admit(op, wait, &*self.table)
    }

    fn admitted_bytes(&self, op: &Op<'_>) -> u64 {
        self.table.write_buffer.admitted_bytes(op)
    }

    fn cancel(&self, op: &Op<'_>) {
        self.table.write_buffer.cancel(op);
    }

    fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.table.write_buffer.make_room(op, &*self.table)
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        self.table.write_buffer.insert_replayed(ops, &*self.table)
    }

    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        if let Op::DeleteRange { .. } = op {
            self.table.write_buffer.read_all()?;
        }
        let source = |view: &SuperVersion| SlmRangeSource::new(view, false);
        self.table.write_buffer.apply(lsn, op, &*self.table, source)
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        scan_page(from, limit, |range| self.entries(range, false))
    }

    fn hash_order(&self) -> Option<&dyn HashOrder> {
        None
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        self.table.context.check_writable()?;
        self.table.flush_to(up_to)
    }

    fn note_durable(&self, up_to: Lsn) -> Option<Lsn> {
        self.table.note_durable(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        self.table.context.check_writable()?;
        match mode {
            MaintenanceMode::Step if self.table.read_unread()? => Ok(()),
            MaintenanceMode::Step if self.table.sweep_pool()? => Ok(()),
            MaintenanceMode::Step if self.table.can_write_back() => {
                self.table.paged.empty_journal()
            }
            MaintenanceMode::Step => self.table.compact_step(),
            MaintenanceMode::SpaceStep => self.table.space_step(),
            MaintenanceMode::Full => self.table.compact_all(),
        }
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.table.check_all(report)
    }

    fn memory_use(&self) -> MemoryUse {
        self.table.paged.tree.cache().memory_use()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        self.table.paged.tree.cache().reclaim(bytes)
    }

    fn stats(&self) -> EngineStats {
        self.table.stats()
    }

    fn pending_work(&self) -> PendingWork {
        self.table.pending_work()
    }
}

impl OrderedEngine for Slm {
    fn range(&self, range: KeyRange) -> Result<EntryIter> {
        Ok(Box::new(self.entries(range, true)?))
    }

    fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()> {
        let source = SlmRangeSource::new(&*self.table.view()?, true);
        visit_range(&source, range, &self.table, each)
    }

    fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        self.table.estimate_count(range)
    }

    fn bulk(&self) -> Option<&dyn BulkLoad> {
        None
    }
}
