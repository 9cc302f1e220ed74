//! Statistics by name and as JSON.

use std::fmt::Write as _;

use quintet::{DatabaseStats, Error, TableStats};

use crate::failure::Failure;

type Statistic = (&'static str, u64);

/// Returns the statistics of a table.
pub fn of_table(stats: &TableStats) -> Vec<Statistic> {
    let mut list = vec![
        ("keys", stats.keys),
        ("live_bytes", stats.live_bytes),
        ("dead_bytes", stats.dead_bytes),
        ("file_bytes", stats.file_bytes),
        ("memory_bytes", stats.memory_bytes),
        ("index_bytes", stats.index_bytes),
        ("reclaimable_bytes", stats.reclaimable_bytes),
        ("written_bytes_total", stats.written_bytes_total),
    ];
    list.extend_from_slice(&stats.details);
    list
}

/// Returns the statistics of a database without those of its tables.
pub fn of_database(stats: &DatabaseStats) -> Vec<Statistic> {
    let age = u64::try_from(stats.oldest_snapshot_age.as_millis()).unwrap_or(u64::MAX);
    vec![
        ("open_tables", stats.open_tables),
        ("log_file_bytes", stats.log.file_bytes),
        ("log_syncs_total", stats.log.syncs_total),
        ("log_synced_commits_total", stats.log.synced_commits_total),
        ("log_appended_bytes_total", stats.log.appended_bytes_total),
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
        ("transactions_total", stats.transactions_total),
        ("transaction_conflicts_total", stats.transaction_conflicts_total),
        ("transaction_deadlocks_total", stats.transaction_deadlocks_total),
        ("open_snapshots", stats.open_snapshots),
        ("oldest_snapshot_age_ms", age),
        ("snapshot_bytes", stats.snapshot_bytes),
        ("snapshot_file_bytes", stats.snapshot_file_bytes),
        ("snapshots_expired_total", stats.snapshots_expired_total),
    ]
}

/// Returns a statistic by name.
pub fn find(list: &[Statistic], name: &str) -> Result<u64, Failure> {
    let found = list.iter().find(|(other, _)| *other == name).map(|(_, number)| *number);
    let what = || "there is no such statistic".to_owned();
    Ok(found.ok_or_else(|| Error::InvalidOption { name: name.to_owned(), what: what() })?)
}

fn members(list: &[Statistic]) -> String {
    let members = list.iter().map(|(name, number)| format!("{}:{number}", quote(name)));
    members.collect::<Vec<_>>().join(",")
}

fn failure(failure: Option<&str>) -> String {
    failure.map_or("null".to_owned(), quote)
}

/// Returns the statistics of a table as a JSON object.
pub fn table_json(stats: &TableStats) -> String {
    let (name, engine) = (quote(&stats.name), quote(stats.kind.name()));
    let (members, failure) = (members(&of_table(stats)), failure(stats.failure.as_deref()));
    format!("{{\"name\":{name},\"engine\":{engine},{members},\"failure\":{failure}}}")
}

/// Returns the statistics of a database as a JSON object.
pub fn database_json(stats: &DatabaseStats) -> String {
    let tables = stats.tables.iter().map(table_json).collect::<Vec<_>>().join(",");
    let members = members(&of_database(stats));
    let failure = failure(stats.background_failure.as_deref());
    format!("{{{members},\"background_failure\":{failure},\"tables\":[{tables}]}}")
}

/// Returns a text as a JSON string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
