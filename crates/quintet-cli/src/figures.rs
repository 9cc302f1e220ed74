//! `stats`: statistics by name, as text or JSON.

use std::{fmt::Write as _, time::Duration};

use quintet::{Database, Table, TableStats};
use serde_json::{Map, Value};

use crate::failure::Outcome;

/// Named statistics, in the order in which they are printed.
pub type Figures = Vec<(String, Value)>;

/// Returns the statistics of one table.
pub fn of_table(table: &Table) -> Outcome<Figures> {
    Ok(of_table_stats(&table.stats()?))
}

/// Returns statistics of one table by name.
pub fn of_table_stats(stats: &TableStats) -> Figures {
    let mut figures = vec![
        text("table", &stats.name),
        text("engine", stats.kind.name()),
        number("keys", stats.keys),
        number("live_bytes", stats.live_bytes),
        number("dead_bytes", stats.dead_bytes),
        number("file_bytes", stats.file_bytes),
        number("memory_bytes", stats.memory_bytes),
        number("index_bytes", stats.index_bytes),
        number("reclaimable_bytes", stats.reclaimable_bytes),
        number("written_bytes_total", stats.written_bytes_total),
        number("persisted_lsn", stats.persisted.0),
    ];
    figures.extend(stats.failure.iter().map(|failure| text("failure", failure)));
    figures.extend(stats.details.iter().map(|(name, value)| number(name, *value)));
    figures
}

/// Returns the statistics of a whole database: sums over its tables, and what the tables share.
pub fn of_database(database: &Database) -> Figures {
    let stats = database.stats();
    let sum = |figure: fn(&TableStats) -> u64| stats.tables.iter().map(figure).sum::<u64>();
    let mut figures = vec![
        ("tables".to_owned(), stats.tables.len().into()),
        number("keys", sum(|table| table.keys)),
        number("live_bytes", sum(|table| table.live_bytes)),
        number("dead_bytes", sum(|table| table.dead_bytes)),
        number("file_bytes", stats.file_bytes),
        number("catalog_bytes", stats.catalog_bytes),
        number("open_tables", stats.open_tables),
        number("memory_bytes", stats.memory_bytes),
        number("memory_budget_bytes", stats.memory_budget_bytes),
        number("unpersisted_bytes", stats.unpersisted_bytes),
        number("commits_total", stats.commits_total),
        number("transactions_total", stats.transactions_total),
        number("transaction_conflicts_total", stats.transaction_conflicts_total),
        number("transaction_deadlocks_total", stats.transaction_deadlocks_total),
        number("expiries_pending", stats.expiries_pending),
        number("expiry_index_bytes", stats.expiry_index_bytes),
        number("expired_swept_total", stats.expired_swept_total),
        number("write_stalls_total", stats.write_stalls_total),
        number("write_delays_total", stats.write_delays_total),
        number("persist_rounds_total", stats.persist_rounds_total),
        number("persist_micros_total", stats.persist_micros_total),
        number("open_snapshots", stats.open_snapshots),
        number("oldest_snapshot_ms", millis(stats.oldest_snapshot_age)),
        number("oldest_snapshot_lsn", stats.oldest_snapshot_lsn.map_or(0, |lsn| lsn.0)),
        number("snapshot_bytes", stats.snapshot_bytes),
        number("snapshot_file_bytes", stats.snapshot_file_bytes),
        number("snapshots_expired_total", stats.snapshots_expired_total),
        number("log_start_lsn", stats.log.start.0),
        number("log_end_lsn", stats.log.end.0),
        number("log_durable_lsn", stats.log.durable.0),
        number("log_file_bytes", stats.log.file_bytes),
        number("log_syncs_total", stats.log.syncs_total),
        number("log_appended_bytes_total", stats.log.appended_bytes_total),
    ];
    let failure = stats.background_failure.iter();
    figures.extend(failure.map(|failure| text("background_failure", failure)));
    figures
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn text(name: &str, value: &str) -> (String, Value) {
    (name.to_owned(), value.into())
}

fn number(name: &str, value: u64) -> (String, Value) {
    (name.to_owned(), value.into())
}

/// Formats one `name value` line for each statistic, with aligned values.
pub fn as_text(figures: &Figures) -> String {
    let width = figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in figures {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(text, "{name:width$}  {shown}");
    }
    text
}

/// Formats one JSON object.
pub fn as_json(figures: Figures) -> Value {
    Value::Object(figures.into_iter().collect::<Map<_, _>>())
}
