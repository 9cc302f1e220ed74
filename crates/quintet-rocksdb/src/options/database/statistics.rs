//! Counters of the databases that were opened with the same options.
//!
//! How: the options and their copies share a list of the databases, which count by themselves. A
//! text has the sums of those that are open.
//!
//! Locks: `databases` is held while the counters are read.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use quintet::DatabaseStats;

use crate::objects::OpenDatabase;

/// Reads a counter of a database.
type Counter = fn(&DatabaseStats) -> u64;

/// The counters. Those that RocksDB has too have its names.
const COUNTERS: [(&str, Counter); 11] = [
    ("rocksdb.wal.synced", |stats| stats.log.syncs_total),
    ("rocksdb.wal.bytes", |stats| stats.log.appended_bytes_total),
    ("quintet.commits", |stats| stats.commits_total),
    ("quintet.write.stalls", |stats| stats.write_stalls_total),
    ("quintet.write.delays", |stats| stats.write_delays_total),
    ("quintet.checkpoints", |stats| stats.persist_rounds_total),
    ("quintet.checkpoint.micros", |stats| stats.persist_micros_total),
    ("quintet.expired", |stats| stats.expired_swept_total),
    ("quintet.transactions", |stats| stats.transactions_total),
    ("quintet.transaction.conflicts", |stats| stats.transaction_conflicts_total),
    ("quintet.transaction.deadlocks", |stats| stats.transaction_deadlocks_total),
];

/// The databases whose counters are asked for.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    databases: Arc<Mutex<Vec<Weak<dyn OpenDatabase>>>>,
}

impl Statistics {
    /// Adds a database.
    pub fn add(&self, database: Weak<dyn OpenDatabase>) {
        let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        databases.retain(|other| other.strong_count() > 0);
        databases.push(database);
    }

    /// Returns a line for each counter, with the sum of the open databases.
    pub fn text(&self) -> String {
        let databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        let open = databases.iter().filter_map(Weak::upgrade);
        let stats: Vec<_> = open.map(|database| database.stats()).collect();
        COUNTERS.iter().fold(String::new(), |mut text, (name, count)| {
            let sum = stats.iter().map(count).fold(0, u64::saturating_add);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name} COUNT : {sum}");
            text
        })
    }
}
