//! Figures of tables, for metrics and for the console.

use quintet::{DatabaseStats, TableStats};

/// Names of the figures of engines that count reads which no memory served.
const DISK_READS: [&str; 3] = ["cold_reads_total", "cache_misses_total", "reads_total"];
/// Names of the figures of engines that count what their caches evicted.
const EVICTIONS: [&str; 5] = [
    "chunks_evicted_total",
    "cache_evictions_total",
    "cache_evicted_total",
    "regions_evicted_total",
    "index_regions_evicted_total",
];
/// Names of the figures of engines that count their checkpoints.
const CHECKPOINTS: [&str; 4] =
    ["checkpoints_total", "cuts_total", "flushes_total", "snapshots_total"];
/// Names of the figures of engines that count compactions and merges.
const COMPACTIONS: [&str; 2] = ["compactions_total", "merges_total"];
/// Names of the figures of engines that count background work which writers did themselves.
const WRITER_HELPS: [&str; 2] = ["writer_helps_total", "compactions_by_writers_total"];

/// Sum of the figures of a table that have one of the names.
fn detail(table: &TableStats, names: &[&str]) -> u64 {
    let found = table.details.iter().filter(|(name, _)| names.contains(name));
    found.map(|(_, value)| *value).sum()
}

/// Background work of a table since it was opened, by what it was.
pub(super) fn background_work(table: &TableStats) -> [(&'static str, u64); 3] {
    [
        ("checkpoint", detail(table, &CHECKPOINTS)),
        ("compaction", detail(table, &COMPACTIONS)),
        ("by_writer", detail(table, &WRITER_HELPS)),
    ]
}

/// Parts of the reserved memory. `other` is what tables that are not shown and buffers take.
pub(super) fn memory_components(store: &DatabaseStats) -> [(&'static str, u64); 4] {
    let index: u64 =
        store.tables.iter().map(|table| table.index_bytes.min(table.memory_bytes)).sum();
    let tables: u64 = store.tables.iter().map(|table| table.memory_bytes).sum();
    let known = tables + store.snapshot_bytes;
    [
        ("table_index", index),
        ("table_data", tables - index),
        ("snapshots", store.snapshot_bytes),
        ("other", store.memory_bytes.saturating_sub(known)),
    ]
}

/// Reads of records, pages or blocks of a table that no cache served.
pub(super) fn disk_reads(table: &TableStats) -> u64 {
    detail(table, &DISK_READS)
}

/// Chunks, regions, pages or blocks of a table that left memory.
pub(super) fn evictions(table: &TableStats) -> u64 {
    detail(table, &EVICTIONS)
}
