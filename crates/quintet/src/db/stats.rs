//! Figures of an open database.

use std::sync::Arc;

use super::core::{Core, TableState};
use crate::{
    contract::{Engine as _, EngineKind, EngineStats},
    util::{
        codec::Lsn,
        sync::{Ordering, lock},
    },
    wal::LogStats,
};

/// Figures of one table.
#[derive(Clone, Debug)]
pub struct TableStats {
    /// Its path.
    pub name: String,
    /// Its engine.
    pub kind: EngineKind,
    /// Live keys (those expired but not yet swept included).
    pub keys: u64,
    /// Bytes of live keys and values, envelopes included.
    pub live_bytes: u64,
    /// Bytes in files that a compaction would give back.
    pub dead_bytes: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Of `memory_bytes`, what finds keys rather than holds them.
    pub index_bytes: u64,
    /// Bytes written to the table's files since the database was opened.
    pub written_bytes_total: u64,
    /// What the table's files are complete to.
    pub persisted: Lsn,
    /// Why it takes no more operations, if it does not.
    pub failure: Option<String>,
    /// What only this engine counts, by name.
    pub details: Vec<(&'static str, u64)>,
}

/// Figures of a database. `_total` counts since it was opened.
#[derive(Clone, Debug)]
pub struct DatabaseStats {
    /// Of each table, by path.
    pub tables: Vec<TableStats>,
    /// Of the log.
    pub log: LogStats,
    /// Bytes of log that opening would replay.
    pub unpersisted_bytes: u64,
    /// Bytes drawn from the memory budget.
    pub memory_bytes: u64,
    /// The memory budget in bytes.
    pub memory_budget_bytes: u64,
    /// Bytes of the catalog's file.
    pub catalog_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Commits (a batch is one).
    pub commits_total: u64,
    /// Values that will expire, and those that have and are not swept yet. A little more than
    /// there are where values were replaced or removed before their time.
    pub expiries_pending: u64,
    /// Bytes in files of the index that finds them.
    pub expiry_index_bytes: u64,
    /// Expired values that the sweep removed.
    pub expired_swept_total: u64,
    /// Writes that had to help persisting, because the background had fallen behind.
    pub write_stalls_total: u64,
    /// Writes that were delayed so that it would not come to that, each by at most 20 ms.
    pub write_delays_total: u64,
    /// Rounds of persisting.
    pub persist_rounds_total: u64,
    /// The last failure of background work that has not succeeded since.
    pub background_failure: Option<String>,
}

impl Core {
    pub(super) fn table_stats(&self, table: &TableState) -> TableStats {
        let EngineStats {
            keys,
            live_bytes,
            dead_bytes,
            file_bytes,
            memory_bytes,
            index_bytes,
            written_bytes_total,
            details,
        } = table.engine.stats();
        TableStats {
            name: self.name_of(table),
            kind: table.kind,
            keys,
            live_bytes,
            dead_bytes,
            file_bytes,
            memory_bytes,
            index_bytes,
            written_bytes_total,
            persisted: table.persisted(),
            failure: table.failure().map(ToOwned::to_owned),
            details,
        }
    }

    pub(super) fn stats(&self) -> DatabaseStats {
        let visible = |table: &Arc<TableState>| !self.expiries.is_index(table);
        let tables = self.all_tables().into_iter().filter(visible);
        let mut tables: Vec<_> = tables.map(|table| self.table_stats(&table)).collect();
        let index = self.expiries.index().map(|index| index.engine.stats()).unwrap_or_default();
        tables.sort_by(|one, other| one.name.cmp(&other.name));
        let log = self.log.stats();
        let catalog_bytes = self.catalog.file_bytes();
        let table_bytes: u64 = tables.iter().map(|table| table.file_bytes).sum();
        let count = |counter: &crate::util::sync::AtomicU64| counter.load(Ordering::Relaxed);
        DatabaseStats {
            unpersisted_bytes: self.unpersisted_bytes(log.end),
            memory_bytes: self.budget.used(),
            memory_budget_bytes: self.budget.limit(),
            catalog_bytes,
            file_bytes: table_bytes + index.file_bytes + log.file_bytes + catalog_bytes,
            expiries_pending: index.keys,
            expiry_index_bytes: index.file_bytes,
            commits_total: count(&self.counters.commits),
            expired_swept_total: count(&self.counters.expired_swept),
            write_stalls_total: count(&self.counters.write_stalls),
            write_delays_total: count(&self.counters.write_delays),
            persist_rounds_total: count(&self.counters.persist_rounds),
            background_failure: lock(&self.background_failure).clone(),
            tables,
            log,
        }
    }
}
