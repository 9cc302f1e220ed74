//! The series of each table.

use quintet::TableStats;

use super::exposition::Exposition;
use crate::{
    http::tables::{background_work, disk_reads, evictions},
    state::{Sample, TABLES_MAX},
};

/// A family of one figure of each table: name, help, and the figure.
type TableFigure = (&'static str, &'static str, fn(&TableStats) -> u64);

const GAUGES: [TableFigure; 7] = [
    ("quintet_table_keys", "Keys of a table.", |table| table.keys),
    ("quintet_table_live_bytes", "Live keys and values.", |table| table.live_bytes),
    ("quintet_table_dead_bytes", "Bytes in files that a compaction would release.", |table| {
        table.dead_bytes
    }),
    ("quintet_table_file_bytes", "Files of a table.", |table| table.file_bytes),
    ("quintet_table_memory_bytes", "Memory of a table.", |table| table.memory_bytes),
    (
        "quintet_table_index_bytes",
        "Memory or files of a table that serve lookups and hold no entries.",
        |table| table.index_bytes,
    ),
    ("quintet_table_failed", "1 if a table takes no operations.", |table| {
        u64::from(table.failure.is_some())
    }),
];

const COUNTERS: [TableFigure; 3] = [
    ("quintet_table_written_bytes_total", "Bytes written to the files of a table.", |table| {
        table.written_bytes_total
    }),
    (
        "quintet_table_disk_reads_total",
        "Reads of records, pages or blocks that no cache served.",
        disk_reads,
    ),
    (
        "quintet_table_evictions_total",
        "Chunks, regions, pages or blocks that left memory.",
        evictions,
    ),
];

/// Writes the metrics of the tables.
pub(super) fn write(out: &mut Exposition, sample: &Sample) {
    let store = &sample.store;
    out.gauge("quintet_tables", "Tables of the database.").value(sample.table_count);
    out.gauge("quintet_tables_open", "Tables that are open, with the expiry index.")
        .value(store.open_tables);
    out.gauge("quintet_tables_shown", "Tables with series of their own.").value(store.tables.len());
    out.gauge("quintet_tables_shown_max", "Most tables with series of their own.")
        .value(TABLES_MAX);
    for (name, help, figure) in GAUGES {
        let mut family = out.gauge(name, help);
        for table in &store.tables {
            let engine = table.kind.to_string();
            family.labelled(&[("table", &table.name), ("engine", &engine)], figure(table));
        }
    }
    for (name, help, figure) in COUNTERS {
        let mut family = out.counter(name, help);
        for table in &store.tables {
            let engine = table.kind.to_string();
            family.labelled(&[("table", &table.name), ("engine", &engine)], figure(table));
        }
    }
    let mut family = out.counter(
        "quintet_table_background_work_total",
        "Checkpoints and compactions of a table, and such work that writers did themselves.",
    );
    for table in &store.tables {
        let engine = table.kind.to_string();
        for (work, count) in background_work(table) {
            let labels = [("table", table.name.as_str()), ("engine", &engine), ("work", work)];
            family.labelled(&labels, count);
        }
    }
}
