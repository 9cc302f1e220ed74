//! The data of the console as JSON.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    http::tables::{background_work, memory_components},
    state::{HistogramSummary, Sample, Server, TABLES_MAX, resident_bytes},
    store::DatabaseId,
};

/// Most clients that the console lists.
const CLIENTS_MAX: usize = 200;

/// Bytes as text: what is not printable ASCII or valid UTF-8 is escaped.
pub(super) fn printable(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes.escape_ascii().to_string() };
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // Controls, and the marks that reverse the direction of text.
        let is_hidden = character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(character, '\u{2066}'..='\u{2069}' | '\u{feff}');
        if is_hidden {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The parameter of a query, decoded.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(own, _)| own == name).map(|(_, value)| value.into_owned())
}

/// A number of a query, or `default` without one. Fails if it is not a number up to `max`.
pub(super) fn number(query: &str, name: &str, default: u64, max: u64) -> Result<u64, String> {
    let Some(text) = parameter(query, name) else { return Ok(default) };
    let parsed = text.parse::<u64>().ok().filter(|number| *number <= max);
    parsed.ok_or_else(|| format!("{name} is not a number from 0 to {max}"))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The databases of an open namespace that have keys, and the first.
pub(super) fn databases(server: &Server, namespace: u32) -> Vec<Value> {
    let row = |own: DatabaseId| {
        let tables = server.store.databases.get(own);
        let keys = tables.map_or(0, |tables| tables.count.load(Ordering::Acquire));
        let index = own.index();
        (keys > 0 || index == 0).then(|| json!({ "index": index, "keys": keys }))
    };
    DatabaseId::all_of(namespace).filter_map(row).collect()
}

/// What the head of the page shows.
pub(super) fn overview(server: &Server) -> Value {
    let stats = &server.stats;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let sample = server.observed.sample();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": server.started.elapsed().as_secs(),
        "problem": server.unreadiness(),
        "appendfsync": server.settings.appendfsync().name(),
        "resident_bytes": resident_bytes(),
        "commands_total": stats.commands(),
        "connections_total": load(&stats.connections),
        "rejected_connections_total": load(&stats.rejected_connections),
        "connected_clients": server.clients.count(),
        "max_clients": load(&server.settings.maxclients),
        "hits_total": load(&stats.hits),
        "misses_total": load(&stats.misses),
        "expired_total": load(&stats.expired),
        "checksum_failures_total": stats.errors.corruptions(),
        "errors": stats.errors.replies().filter(|(_, count)| *count > 0)
            .map(|(code, count)| json!({ "code": code, "count": count })).collect::<Vec<_>>(),
        "databases": databases(server, 0),
        "store": sample.as_deref().map(store),
    })
}

fn store(sample: &Sample) -> Value {
    let (store, now) = (&sample.store, Instant::now());
    let memory: Vec<Value> = memory_components(store)
        .into_iter()
        .map(|(component, bytes)| json!({ "component": component, "bytes": bytes }))
        .collect();
    json!({
        "age_ms": micros(now.saturating_duration_since(sample.taken)) / 1000,
        "memory": memory,
        "memory_used_bytes": store.memory_bytes,
        "memory_budget_bytes": store.memory_budget_bytes,
        "file_bytes": store.file_bytes,
        "log_file_bytes": store.log.file_bytes,
        "log_appended_bytes_total": store.log.appended_bytes_total,
        "log_unsynced_bytes": store.log.end.0.saturating_sub(store.log.durable.0),
        "log_unsynced_ms": micros(sample.sync.unsynced_for(now)) / 1000,
        "log_syncs_total": store.log.syncs_total,
        "last_sync_age_ms": micros(now.saturating_duration_since(sample.sync.last)) / 1000,
        "replay_bytes": store.unpersisted_bytes,
        "commits_total": store.commits_total,
        "checkpoint_rounds_total": store.persist_rounds_total,
        "checkpoint_ms_total": store.persist_micros_total / 1000,
        "write_stalls_total": store.write_stalls_total,
        "write_delays_total": store.write_delays_total,
        "background_failure": store.background_failure,
        "open_snapshots": store.open_snapshots,
        "oldest_snapshot_ms": micros(store.oldest_snapshot_age) / 1000,
        "blocked_clients": sample.clients.blocked,
        "query_bytes": sample.clients.query_bytes,
        "reply_bytes": sample.clients.reply_bytes,
        "message_bytes": sample.clients.message_bytes,
    })
}

fn summary(summary: &HistogramSummary) -> Value {
    let mean = micros(summary.sum).checked_div(summary.count).unwrap_or(0);
    let [median, p99, p999] = summary.quantiles.map(micros);
    json!([summary.count, mean, median, p99, p999])
}

/// The intervals after the parameter `after`, in milliseconds since 1970. A summary is an array of
/// count, mean, median, 99th and 99.9th percentile, in microseconds.
pub(super) fn history(server: &Server, query: &str) -> Result<Value, String> {
    let after = number(query, "after", 0, u64::MAX)?;
    let intervals: Vec<Value> = server
        .observed
        .history(after)
        .iter()
        .map(|interval| {
            let commands: serde_json::Map<String, Value> = interval
                .commands
                .iter()
                .filter_map(|(row, own)| {
                    Some((server.registry.spec(*row)?.name.to_owned(), summary(own)))
                })
                .collect();
            json!({
                "time": interval.time,
                "length_ms": micros(interval.length) / 1000,
                "all": summary(&interval.all),
                "commands": commands,
                "received_bytes": interval.network.0,
                "sent_bytes": interval.network.1,
            })
        })
        .collect();
    Ok(json!({ "intervals": intervals }))
}

/// The tables.
pub(super) fn tables(server: &Server) -> Value {
    let Some(sample) = server.observed.sample() else {
        return json!({ "tables": [], "count": 0, "open": 0, "shown_max": TABLES_MAX });
    };
    let tables: Vec<Value> = sample
        .store
        .tables
        .iter()
        .map(|table| {
            let [checkpoints, compactions, by_writer] =
                background_work(table).map(|(_, count)| count);
            json!({
                "table": printable(table.name.as_bytes()),
                "engine": table.kind.to_string(),
                "keys": table.keys,
                "live_bytes": table.live_bytes,
                "dead_bytes": table.dead_bytes,
                "file_bytes": table.file_bytes,
                "memory_bytes": table.memory_bytes,
                "written_bytes_total": table.written_bytes_total,
                "checkpoints_total": checkpoints,
                "compactions_total": compactions,
                "by_writer_total": by_writer,
                "failure": table.failure,
            })
        })
        .collect();
    json!({
        "tables": tables,
        "count": sample.table_count,
        "open": sample.store.open_tables,
        "shown_max": TABLES_MAX,
    })
}

/// The commands that were called, since the start or the last `CONFIG RESETSTAT`.
pub(super) fn commands(server: &Server) -> Value {
    let rows = server.registry.specs().iter().zip(&server.stats.by_command);
    let commands: Vec<Value> = rows
        .filter_map(|(spec, counters)| {
            let counts = counters.latency.counts();
            let failed = counters.failed.load(Ordering::Relaxed);
            let rejected = counters.rejected.load(Ordering::Relaxed);
            (counts.count() + failed + rejected > 0).then(|| {
                json!({
                    "command": spec.name,
                    "summary": summary(&HistogramSummary::of(&counts)),
                    "failed": failed,
                    "rejected": rejected,
                })
            })
        })
        .collect();
    json!({ "commands": commands })
}

/// The slow commands, newest first.
pub(super) fn slow(server: &Server) -> Value {
    let commands: Vec<Value> = server
        .stats
        .slow_commands()
        .iter()
        .map(|slow| {
            let words: Vec<String> = slow.args.iter().map(|word| printable(word)).collect();
            json!({
                "id": slow.id,
                "time": slow.time,
                "micros": slow.micros,
                "words": words,
                "address": slow.address,
                "client": printable(&slow.name),
            })
        })
        .collect();
    json!({ "commands": commands })
}

/// The connected clients, at most 200.
pub(super) fn clients(server: &Server) -> Value {
    let all = server.clients.all();
    let clients: Vec<Value> = all
        .iter()
        .take(CLIENTS_MAX)
        .map(|client| {
            let buffers = client.memory.total();
            let info = client.info();
            json!({
                "id": client.id,
                "address": client.address,
                "name": printable(&info.name),
                "library": printable(&info.library),
                "database": info.database.index(),
                "age_seconds": client.connected.elapsed().as_secs(),
                "idle_seconds": info.active.unwrap_or(client.connected).elapsed().as_secs(),
                "command": info.command,
                "is_blocked": info.is_waiting(),
                "protocol": info.protocol,
                "buffer_bytes": buffers,
            })
        })
        .collect();
    json!({ "clients": clients, "count": all.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_or_not_text_is_escaped() {
        assert_eq!(printable("gr\u{fc}n <b>".as_bytes()), "gr\u{fc}n <b>");
        assert_eq!(printable(b"a\nb\x00"), "a\\nb\\u{0}");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(printable(b"\xff\x00x"), "\\xff\\x00x");
    }

    #[test]
    fn parameters_are_decoded_and_numbers_have_limits() {
        let query = "match=a%2A+b&count=7&bad=x";
        assert_eq!(parameter(query, "match").as_deref(), Some("a* b"));
        assert_eq!(parameter(query, "none"), None);
        assert_eq!(number(query, "count", 1, 7), Ok(7));
        assert_eq!(number(query, "none", 1, 7), Ok(1));
        for (name, max) in [("count", 6), ("bad", 9), ("match", 9)] {
            assert!(number(query, name, 1, max).unwrap_err().contains(name));
        }
    }
}
