//! The state of one open table: its engine, its status, and how far its files are complete.
//!
//! Invariant: `applied_end` covers every operation of the table before the log ticket of that
//! operation is dropped. So a table that has applied nothing past its persisted LSN is complete to
//! every LSN up to [`Log::applied`](crate::wal::Log::applied).

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind, Load, Op, PendingWork},
    db::merge::TableMerge,
    engine::AnyEngine,
    io::process::{ProcessArc, ProcessState},
    util::{
        budget::Reclaimable,
        codec::{KeyHash, Lsn},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, OnceLock, Ordering},
        types::TableTypes,
    },
};

/// Which operations a table takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableStatus {
    Open,
    /// A sorted load is in progress: no other writes.
    Loading,
    Failed,
    Dropped,
    Closed,
    /// The table belongs to the parent of this forked process. Never stored.
    Forked,
}

impl TableStatus {
    const fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Loading => 1,
            Self::Failed => 2,
            Self::Dropped => 3,
            Self::Closed => 4,
            Self::Forked => 5,
        }
    }
}

/// Maximum number of operations that are sorted together: bounds the memory of the list.
pub(crate) const BY_PLACE_OPS_MAX: usize = 1 << 16;

/// Sorts operations by table and key, or by the key's hash if the engine has no order. So
/// operations on one page, or on one part of an index, follow each other. Operations on one key
/// keep their order.
pub(crate) fn sort_by_place<'a, T>(ops: &mut [T], parts: impl Fn(&T) -> (&'a TableState, Op<'a>)) {
    mutant!(SortReordersKeys => ops.reverse());
    ops.sort_by_cached_key(|item| {
        let (table, op) = parts(item);
        let key = match op {
            Op::Put { key, .. } | Op::Delete { key } => key,
            Op::DeleteRange { start, .. } => start,
        };
        let hash = if table.kind.is_ordered() { 0 } else { table.hash.hash(key) };
        (table.id, hash, key)
    });
}

impl Reclaimable for TableState {
    fn table_id(&self) -> u64 {
        self.id
    }

    fn reclaimable_bytes(&self) -> u64 {
        self.engine.memory_use().reclaimable_bytes
    }

    fn unwritten_bytes(&self) -> u64 {
        self.engine.memory_use().unwritten_bytes
    }

    fn uses_total(&self) -> u64 {
        self.engine.memory_use().uses_total
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        self.engine.reclaim(bytes)
    }
}

/// One open table.
#[derive(Debug)]
pub(crate) struct TableState {
    pub(crate) id: u64,
    pub(crate) kind: EngineKind,
    pub(crate) hash: KeyHash,
    pub(crate) engine: AnyEngine,
    status: ProcessState,
    /// Why the table failed; set before the status changes.
    failure: OnceLock<String>,
    /// The last name, once the table is dropped.
    pub(crate) dropped_name: OnceLock<String>,
    /// Past the last applied operation. On its own cache line, because every write stores it while
    /// gets read the fields around it.
    applied_end: CachePadded<AtomicU64>,
    /// The LSN that the files are complete to.
    persisted: AtomicU64,
    /// The highest LSN at which a version in the version store was replaced. Of a table that is
    /// opened again, at least that.
    last_version: AtomicU64,
    /// Number of versions that were added to the version store.
    versions_total: AtomicU64,
    /// When it was dropped, in the numbers of snapshots. 0: it is not.
    dropped_at: AtomicU64,
    /// When a clear created it, in the numbers of snapshots. 0: no clear did.
    created_at: AtomicU64,
    /// The table that took its place when it was cleared, or a later one.
    successor: ArcSwapOption<Self>,
    /// The tables that were cleared before it, from the oldest to the newest.
    predecessors: OnceLock<Vec<Weak<Self>>>,
    /// Whether the table may have entries in the expiry index.
    pub(crate) may_expire: AtomicBool,
    /// When a handle was last given out, on the registry's counter of handles.
    pub(super) last_opened: AtomicU64,
    /// The types of keys and values; unset: any bytes.
    types: OnceLock<TableTypes>,
    /// The merge operator, if the table has one.
    pub(crate) merge: Option<TableMerge>,
    /// The last checkpoint or step of compaction met a full disk.
    lacks_space: AtomicBool,
    /// The sorted load while the table is [`TableStatus::Loading`].
    pub(crate) load: Mutex<Option<Box<dyn Load>>>,
    /// Held while the engine checkpoints, compacts or checks, and while the table's files are
    /// removed.
    pub(crate) maintenance: Mutex<()>,
}

impl TableState {
    pub(crate) fn new(
        id: u64,
        kind: EngineKind,
        hash: KeyHash,
        engine: AnyEngine,
        persisted: Lsn,
        (types, merge): (Option<TableTypes>, Option<TableMerge>),
    ) -> Self {
        Self {
            id,
            kind,
            hash,
            engine,
            status: ProcessState::new(TableStatus::Open.code()),
            failure: OnceLock::new(),
            dropped_name: OnceLock::new(),
            applied_end: CachePadded(AtomicU64::new(0)),
            persisted: AtomicU64::new(persisted.0),
            last_version: AtomicU64::new(persisted.0),
            versions_total: AtomicU64::new(0),
            dropped_at: AtomicU64::new(0),
            created_at: AtomicU64::new(0),
            successor: ArcSwapOption::empty(),
            predecessors: OnceLock::new(),
            may_expire: AtomicBool::new(false),
            last_opened: AtomicU64::new(0),
            types: types.map_or_else(OnceLock::new, OnceLock::from),
            merge,
            lacks_space: AtomicBool::new(false),
            load: Mutex::new(None),
            maintenance: Mutex::new(()),
        }
    }

    #[inline]
    pub(crate) fn status(&self) -> TableStatus {
        match self.status.get() {
            Some(0) => TableStatus::Open,
            Some(1) => TableStatus::Loading,
            Some(2) => TableStatus::Failed,
            Some(3) => TableStatus::Dropped,
            Some(_) => TableStatus::Closed,
            None => TableStatus::Forked,
        }
    }

    /// Returns whether the table takes reads and joins checkpoints.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.status(), TableStatus::Open | TableStatus::Loading)
    }

    /// Moves the status forward. Only a load moves it back, see [`TableState::exchange_status`].
    pub(crate) fn advance_status(&self, status: TableStatus) {
        self.status.raise(status.code());
    }

    /// Changes the status between open and loading. Returns `false`, and changes nothing, if it was
    /// not `from`.
    pub(crate) fn exchange_status(&self, from: TableStatus, to: TableStatus) -> bool {
        self.status.exchange(from.code(), to.code())
    }

    /// Stops the table: a logged operation could not be applied.
    pub(crate) fn fail(&self, reason: &Error) {
        let _ = self.failure.set(reason.to_string());
        self.advance_status(TableStatus::Failed);
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) fn types(&self) -> Option<&TableTypes> {
        self.types.get()
    }

    /// Fixes the types for later writes. Returns the types in effect, which differ if they were
    /// fixed before.
    pub(crate) fn fix_types(&self, types: &TableTypes) -> &TableTypes {
        self.types.get_or_init(|| types.clone())
    }

    /// Returns an LSN at or above which no version of the table was replaced, except that the
    /// answer itself may be one. It covers every write whose effect the caller has seen.
    #[inline]
    pub(crate) fn last_version(&self) -> Lsn {
        Lsn(self.last_version.load(Ordering::Acquire))
    }

    /// Returns how many versions of the table were added to the version store. It covers those of
    /// every write whose effect the caller has seen.
    pub(crate) fn versions_total(&self) -> u64 {
        self.versions_total.load(Ordering::Acquire)
    }

    /// Records that the version store has a version that was replaced at `lsn`.
    pub(crate) fn note_version(&self, lsn: Lsn) {
        self.last_version.fetch_max(lsn.0, Ordering::AcqRel);
        self.versions_total.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns when the table was dropped, in the numbers of snapshots. 0: it is not.
    pub(crate) fn dropped_at(&self) -> u64 {
        self.dropped_at.load(Ordering::Acquire)
    }

    /// Marks the table as dropped. Snapshots with a lower number still read it.
    pub(crate) fn mark_dropped(&self, number: u64) {
        self.dropped_at.store(number, Ordering::Release);
        self.advance_status(TableStatus::Dropped);
    }

    /// Returns when a clear created the table, in the numbers of snapshots. 0: no clear did.
    pub(crate) fn created_at(&self) -> u64 {
        self.created_at.load(Ordering::Acquire)
    }

    /// Marks the table as cleared: dropped, with an empty `successor`. Snapshots with a lower
    /// number still read it.
    pub(super) fn mark_cleared(self: &Arc<Self>, successor: &Arc<Self>, number: u64) {
        let earlier = self.predecessors.get().into_iter().flatten();
        let used = earlier.filter(|table| table.strong_count() > 0).cloned();
        let _ = successor.predecessors.set(used.chain([Arc::downgrade(self)]).collect());
        successor.created_at.store(number, Ordering::Release);
        self.successor.store(Some(Arc::clone(successor)));
        self.mark_dropped(number);
    }

    /// Lets all tables that were cleared before this one lead to it directly. So a handle keeps
    /// none of the tables between.
    pub(super) fn follow_predecessors(self: &Arc<Self>) {
        for table in self.predecessors.get().into_iter().flatten().filter_map(Weak::upgrade) {
            table.successor.store(Some(Arc::clone(self)));
        }
    }

    /// Returns the table that took its place when it was cleared, and that was not cleared since.
    #[cold]
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        // In a forked child the parent's tables are not followed.
        let mut last = self.next()?;
        while let Some(next) = last.next() {
            last = next;
        }
        Some(last)
    }

    /// Returns the table, or its successor if it was cleared.
    pub(crate) fn current(table: &ProcessArc<Self>) -> ProcessArc<Self> {
        table.successor().map_or_else(|| table.clone(), ProcessArc::new)
    }

    /// Returns the table at the moment of a snapshot, if it was cleared before or after. `precedes`
    /// returns whether the snapshot was taken before a moment.
    #[cold]
    pub(crate) fn at_moment(self: &Arc<Self>, precedes: impl Fn(u64) -> bool) -> Arc<Self> {
        let mut state = Arc::clone(self);
        while state.dropped_at() > 0 && !precedes(state.dropped_at()) {
            let Some(next) = state.next() else { break };
            state = next;
        }
        mutant!(ClearChangesOldSnapshots => return state);
        // Tables that no open snapshot reads may be gone. Without a predecessor the snapshot has
        // ended, which the end of its read finds.
        while precedes(state.created_at())
            && let Some(before) = state.predecessor()
        {
            state = before;
        }
        state
    }

    /// Returns the newest table that was cleared before it and is still there.
    pub(super) fn predecessor(&self) -> Option<Arc<Self>> {
        self.predecessors.get()?.iter().rev().find_map(Weak::upgrade)
    }

    /// Returns the table that took its place when it was cleared, or a later one, whatever happened
    /// to that since.
    pub(super) fn next(&self) -> Option<Arc<Self>> {
        if self.status() == TableStatus::Dropped { self.successor.load_full() } else { None }
    }

    pub(crate) fn record_applied(&self, end: Lsn) {
        self.applied_end.fetch_max(end.0, Ordering::AcqRel);
    }

    pub(crate) fn record_persisted(&self, lsn: Lsn) {
        self.persisted.fetch_max(lsn.0, Ordering::AcqRel);
    }

    pub(crate) fn persisted(&self) -> Lsn {
        Lsn(self.persisted.load(Ordering::Acquire))
    }

    /// Returns the first LSN that the table needs the log for, at most `up_to`.
    pub(crate) fn needed_from(&self, up_to: Lsn) -> Lsn {
        if self.is_dirty() { self.persisted().min(up_to) } else { up_to }
    }

    /// Notes whether work of the table met a full disk, from its outcome. Returns the outcome.
    pub(crate) fn note_space<T>(&self, outcome: Result<T>) -> Result<T> {
        let is_full = matches!(outcome, Err(Error::DiskFull { .. }));
        self.lacks_space.store(is_full, Ordering::Relaxed);
        outcome
    }

    /// Returns whether the last work of the table met a full disk.
    pub(crate) fn lacks_space(&self) -> bool {
        self.lacks_space.load(Ordering::Relaxed)
    }

    /// Checkpoints the table, if it needs that. Returns the LSN that its files are complete to, if
    /// it has advanced. The caller holds `maintenance`.
    pub(crate) fn checkpoint(&self, up_to: Lsn) -> Result<Option<Lsn>> {
        if !self.needs_checkpoint() {
            return Ok(None);
        }
        let before = self.persisted();
        let lsn = self.engine.checkpoint(up_to)?;
        self.record_persisted(lsn);
        Ok((lsn > before).then_some(lsn))
    }

    /// Returns whether the files lack an applied operation, or the engine has unwritten state.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.is_dirty() || self.engine.pending_work() == PendingWork::Checkpoint
    }

    /// Returns whether the files lack an applied operation.
    pub(crate) fn is_dirty(&self) -> bool {
        self.applied_end.load(Ordering::Acquire) > self.persisted.load(Ordering::Acquire)
    }
}
