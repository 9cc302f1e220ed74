//! The engine's handle, and its implementation of the engine contract.

use std::sync::Arc;

use super::{range::TphRangeSource, store::TphStore};
use crate::{
    Result,
    contract::{
        BulkLoad, Context, Cursor, Engine, EngineStats, Entry, EntryIter, HashOrder, Hint,
        KeyRange, MaintenanceMode, MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine,
        PendingWork, Presence, TableOptions, ValueSink, Visit,
    },
    lsm::range::{RangeEntries, scan_page, visit_range},
    util::{codec::Lsn, report::Report, sync::Ordering},
};

/// A table of the tph engine. See the documentation of [`crate::engine::tph`].
#[derive(Debug)]
pub struct Tph {
    pub(super) store: Arc<TphStore>,
}

impl Tph {
    /// Opens a table, or creates it in an empty directory. Returns the LSN below which its files
    /// have every effect.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let (store, complete) = TphStore::open(options, context, u64::MAX)?;
        Ok((Self { store: Arc::new(store) }, complete))
    }

    /// Returns the entries of a range.
    fn entries(&self, range: KeyRange) -> RangeEntries<TphRangeSource> {
        let source = TphRangeSource::new(&self.store.write_buffer.view.load());
        RangeEntries::new(&self.store, source, range)
    }
}

impl Engine for Tph {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.store.read_value(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        sink.fill(keys.len(), |out| self.store.read_many(keys, out))
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Write { hash, step: 0, .. } = hint {
            self.store.write_buffer.prefetch_insert(hash);
        }
    }

    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        self.store.write_buffer.admit(op, wait, &*self.store)
    }

    fn admitted_bytes(&self, op: &Op<'_>) -> u64 {
        self.store.write_buffer.admitted_bytes(op)
    }

    fn cancel(&self, op: &Op<'_>) {
        self.store.write_buffer.cancel(op);
    }

    fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.store.write_buffer.make_room(op, &*self.store)
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        self.store.write_buffer.insert_replayed(ops, &*self.store)
    }

    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        self.store.write_buffer.apply(lsn, op, &*self.store, TphRangeSource::new)
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        scan_page(from, limit, |range| Ok(self.entries(range)))
    }

    fn hash_order(&self) -> Option<&dyn HashOrder> {
        None
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        self.store.context.check_writable()?;
        self.store.flush_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        self.store.context.check_writable()?;
        match mode {
            MaintenanceMode::Step => self.store.compact_step().map(drop),
            MaintenanceMode::SpaceStep => self.store.space_step(),
            MaintenanceMode::Full => self.store.compact_all(),
        }
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.store.check_all(report)
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn reclaim(&self, _bytes: u64) -> u64 {
        0
    }

    fn stats(&self) -> EngineStats {
        self.store.stats()
    }

    fn pending_work(&self) -> PendingWork {
        let store = &self.store;
        let super_version = store.write_buffer.view.load();
        if store.context.read_only {
            PendingWork::None
        } else if store.write_buffer.is_flush_due(&super_version) {
            PendingWork::Checkpoint
        } else if store.wants_compaction.load(Ordering::Relaxed) {
            PendingWork::Maintain
        } else if super_version.is_unwritten() {
            PendingWork::None
        } else if store.write_buffer.is_at_rest(&super_version.active) {
            // An idle table flushes its memtables, so that gets do not search them.
            PendingWork::Checkpoint
        } else {
            PendingWork::Later
        }
    }
}

impl OrderedEngine for Tph {
    fn range(&self, range: KeyRange) -> Result<EntryIter> {
        Ok(Box::new(self.entries(range)))
    }

    fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()> {
        let source = TphRangeSource::new(&self.store.write_buffer.view.load());
        visit_range(&source, range, &self.store, each)
    }

    fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        Ok(self.store.estimate_count(range))
    }

    fn bulk(&self) -> Option<&dyn BulkLoad> {
        None
    }
}
