//! Counters and sizes of an open database.

use std::time::Duration;

use crate::{
    contract::{Engine as _, EngineKind, EngineStats},
    db::{catalog::tree::CatalogTree, core::Core, tables::state::TableState},
    util::{
        codec::{Lsn, to_u64},
        sync::{Ordering, lock},
    },
    wal::LogStats,
};

/// Counters and sizes of one table.
#[derive(Clone, Debug)]
pub struct TableStats {
    /// The table's path.
    pub name: String,
    /// The engine.
    pub kind: EngineKind,
    /// Number of keys. Expired keys that the sweep has not removed count.
    pub keys: u64,
    /// Bytes of live keys and values, envelopes included.
    pub live_bytes: u64,
    /// Bytes in files that a compaction would release.
    pub dead_bytes: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// The part of `memory_bytes` that serves lookups and holds no entries.
    pub index_bytes: u64,
    /// The part of `memory_bytes` that other tables can take, some of it after a checkpoint.
    pub reclaimable_bytes: u64,
    /// Bytes written to the table's files since the table was opened.
    pub written_bytes_total: u64,
    /// The LSN that the table's files are complete to.
    pub persisted: Lsn,
    /// Why the table takes no operations, if it failed or cannot be opened.
    pub failure: Option<String>,
    /// Counters of this engine only, by name.
    pub details: Vec<(&'static str, u64)>,
}

/// Counters and sizes of a database. Names that end in `_total` count since the open.
#[derive(Clone, Debug, Default)]
pub struct DatabaseStats {
    /// The tables, by path.
    pub tables: Vec<TableStats>,
    /// Number of tables that were open before this call, with the expiry index.
    pub open_tables: u64,
    /// The log.
    pub log: LogStats,
    /// Bytes of log that opening would replay.
    pub unpersisted_bytes: u64,
    /// Bytes reserved from the memory budget.
    pub memory_bytes: u64,
    /// The memory budget in bytes.
    pub memory_budget_bytes: u64,
    /// Bytes of the catalog's file.
    pub catalog_bytes: u64,
    /// Bytes of disk space that are kept for a full disk
    /// ([`Options::space_reserve`](crate::Options::space_reserve)).
    pub space_reserve_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Number of commits (a batch is one).
    pub commits_total: u64,
    /// Number of entries in the expiry index: values that will expire, or have expired and are not
    /// swept. Slightly too high if values were replaced or removed before their expiry.
    pub expiries_pending: u64,
    /// Bytes in files of the expiry index.
    pub expiry_index_bytes: u64,
    /// Number of expired values that the sweep removed.
    pub expired_swept_total: u64,
    /// Number of writes that waited for a checkpoint round, because the recovery budget was
    /// exceeded.
    pub write_stalls_total: u64,
    /// Number of writes that were delayed near the recovery budget, each by at most 20 ms.
    pub write_delays_total: u64,
    /// Number of checkpoint rounds.
    pub persist_rounds_total: u64,
    /// Duration of these rounds in microseconds, failed ones included.
    pub persist_micros_total: u64,
    /// Number of commits that were transactions.
    pub transactions_total: u64,
    /// Number of transactions that failed with
    /// [`Error::Conflict`](crate::Error::Conflict). An attempt that
    /// [`Database::transaction`](crate::Database::transaction) repeated counts.
    pub transaction_conflicts_total: u64,
    /// Number of transactions that failed with [`Error::Deadlock`](crate::Error::Deadlock).
    pub transaction_deadlocks_total: u64,
    /// Number of open snapshots, those of iterators included.
    pub open_snapshots: u64,
    /// Age of the oldest open snapshot.
    pub oldest_snapshot_age: Duration,
    /// LSN of the oldest open snapshot.
    pub oldest_snapshot_lsn: Option<Lsn>,
    /// Bytes of memory of the earlier values that open snapshots show.
    pub snapshot_bytes: u64,
    /// Bytes of files of the earlier values that open snapshots show.
    pub snapshot_file_bytes: u64,
    /// Number of snapshots that were ended by a limit or a failure.
    pub snapshots_expired_total: u64,
    /// The last failure of background work that has not succeeded since.
    pub background_failure: Option<String>,
}

impl TableStats {
    fn new(
        (name, kind): (String, EngineKind),
        engine: EngineStats,
        persisted: Lsn,
        failure: Option<String>,
    ) -> Self {
        let EngineStats {
            keys,
            live_bytes,
            dead_bytes,
            file_bytes,
            memory_bytes,
            index_bytes,
            written_bytes_total,
            details,
        } = engine;
        Self {
            name,
            kind,
            keys,
            live_bytes,
            dead_bytes,
            file_bytes,
            memory_bytes,
            index_bytes,
            reclaimable_bytes: 0,
            written_bytes_total,
            persisted,
            failure,
            details,
        }
    }
}

impl TableStats {
    /// Returns the numbers that every engine has, by the names that `docs/reference/statistics.md`
    /// explains. `details` has the others.
    pub fn numbers(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("keys", self.keys),
            ("live_bytes", self.live_bytes),
            ("dead_bytes", self.dead_bytes),
            ("file_bytes", self.file_bytes),
            ("memory_bytes", self.memory_bytes),
            ("index_bytes", self.index_bytes),
            ("reclaimable_bytes", self.reclaimable_bytes),
            ("written_bytes_total", self.written_bytes_total),
            ("persisted_lsn", self.persisted.0),
        ]
    }
}

impl DatabaseStats {
    /// Returns the numbers of what the tables share, by name, as [`TableStats::numbers`] does.
    pub fn numbers(&self) -> Vec<(&'static str, u64)> {
        let snapshot_age = u64::try_from(self.oldest_snapshot_age.as_millis()).unwrap_or(u64::MAX);
        vec![
            ("file_bytes", self.file_bytes),
            ("catalog_bytes", self.catalog_bytes),
            ("space_reserve_bytes", self.space_reserve_bytes),
            ("open_tables", self.open_tables),
            ("memory_bytes", self.memory_bytes),
            ("memory_budget_bytes", self.memory_budget_bytes),
            ("unpersisted_bytes", self.unpersisted_bytes),
            ("commits_total", self.commits_total),
            ("transactions_total", self.transactions_total),
            ("transaction_conflicts_total", self.transaction_conflicts_total),
            ("transaction_deadlocks_total", self.transaction_deadlocks_total),
            ("expiries_pending", self.expiries_pending),
            ("expiry_index_bytes", self.expiry_index_bytes),
            ("expired_swept_total", self.expired_swept_total),
            ("write_stalls_total", self.write_stalls_total),
            ("write_delays_total", self.write_delays_total),
            ("persist_rounds_total", self.persist_rounds_total),
            ("persist_micros_total", self.persist_micros_total),
            ("open_snapshots", self.open_snapshots),
            ("oldest_snapshot_ms", snapshot_age),
            ("oldest_snapshot_lsn", self.oldest_snapshot_lsn.map_or(0, |lsn| lsn.0)),
            ("snapshot_bytes", self.snapshot_bytes),
            ("snapshot_file_bytes", self.snapshot_file_bytes),
            ("snapshots_expired_total", self.snapshots_expired_total),
            ("log_start_lsn", self.log.start.0),
            ("log_end_lsn", self.log.end.0),
            ("log_durable_lsn", self.log.durable.0),
            ("log_file_bytes", self.log.file_bytes),
            ("log_retained_bytes", self.log.retained_bytes),
            ("log_syncs_total", self.log.syncs_total),
            ("log_synced_commits_total", self.log.synced_commits_total),
            ("log_appended_bytes_total", self.log.appended_bytes_total),
        ]
    }
}

impl Core {
    pub(crate) fn table_stats(&self, table: &TableState) -> TableStats {
        let failure = table.failure().map(ToOwned::to_owned);
        let name = self.tables.name_of(table);
        let reclaimable_bytes = self.budget.reclaimable_bytes(table.id);
        let name = (name, table.kind);
        let stats = TableStats::new(name, table.engine.stats(), table.persisted(), failure);
        TableStats { reclaimable_bytes, ..stats }
    }

    /// Returns the statistics of a table, and opens it for them. `None`: it was dropped.
    fn stats_of(&self, name: String, id: u64) -> Option<TableStats> {
        match self.open_table(id) {
            Ok(table) => Some(self.table_stats(&*table?)),
            Err(error) => {
                let table = (name, self.tables.kind_of(id)?);
                let (nothing, why) = (EngineStats::default(), Some(error.to_string()));
                Some(TableStats::new(table, nothing, Lsn(0), why))
            }
        }
    }

    pub(crate) fn stats(&self) -> DatabaseStats {
        if self.tables.is_forked() {
            return DatabaseStats::default();
        }
        let open_tables = to_u64(self.tables.open_count());
        let tables = self.tables.catalog.with_tree(CatalogTree::tables).into_iter();
        let tables = tables.filter_map(|(name, id)| self.stats_of(name, id)).collect();
        self.stats_with(tables, open_tables)
    }

    /// Returns the statistics with the first `limit` of the tables that are open. Opens no table.
    pub(crate) fn stats_of_open(&self, limit: usize) -> DatabaseStats {
        if self.tables.is_forked() {
            return DatabaseStats::default();
        }
        let open = self.tables.all();
        let shown = open.iter().filter(|table| table.is_live() && !self.expiry.is_index(table));
        let tables = shown.take(limit).map(|table| self.table_stats(table)).collect();
        self.stats_with(tables, to_u64(open.len()))
    }

    /// Returns why the database takes no writes any more, or `None` while it does.
    pub(crate) fn write_failure(&self) -> Option<String> {
        let failure = self.log.failure().or_else(|| self.tables.catalog.failure());
        failure.map(ToOwned::to_owned)
    }

    fn stats_with(&self, tables: Vec<TableStats>, open_tables: u64) -> DatabaseStats {
        let index = self.expiry.table().map(|index| index.engine.stats()).unwrap_or_default();
        let log = self.log.stats();
        let catalog_bytes = self.tables.catalog.file_bytes();
        let space_reserve_bytes = self.checkpoints.space.bytes();
        let table_bytes: u64 = tables.iter().map(|table| table.file_bytes).sum();
        let snapshots = self.versions.stats();
        let count = |counter: &crate::util::sync::AtomicU64| counter.load(Ordering::Relaxed);
        DatabaseStats {
            unpersisted_bytes: self.checkpoints.replayed_log_bytes(log.end),
            memory_bytes: self.budget.used(),
            memory_budget_bytes: self.budget.limit(),
            catalog_bytes,
            space_reserve_bytes,
            file_bytes: table_bytes
                + index.file_bytes
                + log.file_bytes
                + catalog_bytes
                + space_reserve_bytes,
            expiries_pending: index.keys,
            expiry_index_bytes: index.file_bytes,
            commits_total: count(&self.counters.commits),
            transactions_total: count(&self.counters.transactions),
            transaction_conflicts_total: count(&self.counters.conflicts),
            transaction_deadlocks_total: count(&self.counters.deadlocks),
            expired_swept_total: count(&self.counters.expired_swept),
            write_stalls_total: count(&self.checkpoints.write_stalls),
            write_delays_total: count(&self.checkpoints.write_delays),
            persist_rounds_total: self.checkpoints.rounds.count(),
            persist_micros_total: self.checkpoints.rounds.micros(),
            background_failure: lock(&self.background_failure).clone(),
            open_snapshots: snapshots.open,
            oldest_snapshot_age: snapshots.oldest_age,
            oldest_snapshot_lsn: snapshots.oldest_lsn,
            snapshot_bytes: snapshots.memory_bytes,
            snapshot_file_bytes: snapshots.file_bytes,
            snapshots_expired_total: snapshots.expired_total,
            open_tables,
            tables,
            log,
        }
    }
}
