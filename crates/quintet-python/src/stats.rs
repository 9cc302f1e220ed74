//! Statistics as dictionaries.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use quintet::{DatabaseStats, TableStats};

/// Returns the counters and sizes of a table by name.
pub(crate) fn table<'py>(py: Python<'py>, stats: &TableStats) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("name", &stats.name)?;
    all.set_item("engine", stats.kind.to_string())?;
    for (name, value) in [
        ("keys", stats.keys),
        ("live_bytes", stats.live_bytes),
        ("dead_bytes", stats.dead_bytes),
        ("file_bytes", stats.file_bytes),
        ("memory_bytes", stats.memory_bytes),
        ("index_bytes", stats.index_bytes),
        ("reclaimable_bytes", stats.reclaimable_bytes),
        ("written_bytes_total", stats.written_bytes_total),
        ("persisted", stats.persisted.0),
    ] {
        all.set_item(name, value)?;
    }
    all.set_item("failure", &stats.failure)?;
    let details = PyDict::new(py);
    for (name, value) in &stats.details {
        details.set_item(name, value)?;
    }
    all.set_item("details", details)?;
    Ok(all)
}

/// Returns the counters and sizes of a database by name.
pub(crate) fn database<'py>(
    py: Python<'py>,
    stats: &DatabaseStats,
) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let log = PyDict::new(py);
    for (name, value) in [
        ("start", stats.log.start.0),
        ("end", stats.log.end.0),
        ("durable", stats.log.durable.0),
        ("file_bytes", stats.log.file_bytes),
        ("syncs_total", stats.log.syncs_total),
        ("synced_commits_total", stats.log.synced_commits_total),
        ("appended_bytes_total", stats.log.appended_bytes_total),
    ] {
        log.set_item(name, value)?;
    }
    for (name, value) in [
        ("open_tables", stats.open_tables),
        ("unpersisted_bytes", stats.unpersisted_bytes),
        ("memory_bytes", stats.memory_bytes),
        ("memory_budget_bytes", stats.memory_budget_bytes),
        ("catalog_bytes", stats.catalog_bytes),
        ("file_bytes", stats.file_bytes),
        ("commits_total", stats.commits_total),
        ("expiries_pending", stats.expiries_pending),
        ("expiry_index_bytes", stats.expiry_index_bytes),
        ("expired_swept_total", stats.expired_swept_total),
        ("write_stalls_total", stats.write_stalls_total),
        ("write_delays_total", stats.write_delays_total),
        ("persist_rounds_total", stats.persist_rounds_total),
        ("persist_micros_total", stats.persist_micros_total),
        ("transactions_total", stats.transactions_total),
        ("transaction_conflicts_total", stats.transaction_conflicts_total),
        ("transaction_deadlocks_total", stats.transaction_deadlocks_total),
        ("open_snapshots", stats.open_snapshots),
        ("snapshot_bytes", stats.snapshot_bytes),
        ("snapshot_file_bytes", stats.snapshot_file_bytes),
        ("snapshots_expired_total", stats.snapshots_expired_total),
    ] {
        all.set_item(name, value)?;
    }
    all.set_item("oldest_snapshot_age", stats.oldest_snapshot_age.as_secs_f64())?;
    all.set_item("oldest_snapshot_lsn", stats.oldest_snapshot_lsn.map(|lsn| lsn.0))?;
    all.set_item("background_failure", &stats.background_failure)?;
    all.set_item("log", log)?;
    let tables = stats.tables.iter().map(|stats| table(py, stats)).collect::<PyResult<Vec<_>>>()?;
    all.set_item("tables", PyList::new(py, tables)?)?;
    Ok(all)
}
