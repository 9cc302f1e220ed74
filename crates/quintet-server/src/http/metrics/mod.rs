//! The metrics of the server as Prometheus reads them.
//!
//! Units are seconds and bytes. Labels have bounded values: commands of the table, fixed kinds, 16
//! databases, and at most [`TABLES_MAX`](crate::state::TABLES_MAX) tables. A scrape reads atomics
//! and the last sample: it takes no lock of an engine and reads no file but `/proc/self/statm`.

mod exposition;
mod table_series;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

pub(super) use exposition::{CONTENT_TYPE, Exposition};
use exposition::{Family, Labels};

use super::tables::memory_components;
use crate::{
    state::{BUCKETS, HistogramCounts, Sample, Server, bound, resident_bytes},
    store::DatabaseId,
};

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Writes all metrics.
pub(super) fn write(out: &mut Exposition, server: &Server) {
    process(out, server);
    commands(out, server);
    errors(out, server);
    clients(out, server);
    keys(out, server);
    namespaces(out, server);
    if let Some(sample) = server.observed.sample() {
        let now = Instant::now();
        client_buffers(out, &sample);
        log(out, &sample, now);
        memory(out, &sample);
        snapshots(out, &sample);
        background(out, &sample);
        table_series::write(out, &sample);
        let age = now.saturating_duration_since(sample.taken).as_secs_f64();
        out.gauge(
            "quintet_statistics_age_seconds",
            "Age of the statistics of the store. They are read each second.",
        )
        .value(age);
    }
}

fn process(out: &mut Exposition, server: &Server) {
    out.gauge("quintet_build_info", "The version of the server; always 1.")
        .labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.gauge("quintet_uptime_seconds", "Time since the start.")
        .value(server.started.elapsed().as_secs_f64());
    out.gauge("process_resident_memory_bytes", "Resident memory of the process.")
        .value(resident_bytes());
    let failure = server.store.databases.database().write_failure();
    out.gauge(
        "quintet_poisoned",
        "1 if a failed sync has stopped all writes until the server is started again.",
    )
    .value(u8::from(failure.is_some()));
    out.gauge("quintet_ready", "1 if the server takes reads and writes.")
        .value(u8::from(server.unreadiness().is_none()));
}

fn commands(out: &mut Exposition, server: &Server) {
    out.counter("quintet_commands_total", "Commands that ran.").value(server.stats.commands());
    let rows = || server.registry.specs().iter().zip(&server.stats.by_command);
    let mut family = out.histogram(
        "quintet_command_duration_seconds",
        "Duration of commands, without their commit.",
    );
    for (spec, counters) in rows() {
        let counts = counters.latency.counts();
        if counts.count() > 0 {
            histogram(&mut family, &[("command", spec.name)], &counts);
        }
    }
    for (name, help, counts) in [
        (
            "quintet_commit_duration_seconds",
            "Duration of commits, without the wait for their sync.",
            server.stats.commit_latency.counts(),
        ),
        (
            "quintet_sync_wait_seconds",
            "Waits for a sync before the reply, with appendfsync always.",
            server.stats.sync_latency.counts(),
        ),
    ] {
        histogram(&mut out.histogram(name, help), &[], &counts);
    }
    let mut family = out.counter(
        "quintet_command_failures_total",
        "Commands that were rejected before they ran, or failed.",
    );
    for (spec, counters) in rows() {
        for (reason, count) in
            [("rejected", value(&counters.rejected)), ("failed", value(&counters.failed))]
        {
            if count > 0 {
                family.labelled(&[("command", spec.name), ("reason", reason)], count);
            }
        }
    }
    out.counter("quintet_slow_commands_total", "Commands that were added to SLOWLOG.")
        .value(server.stats.slow_count());
}

fn histogram(family: &mut Family<'_>, labels: Labels<'_>, counts: &HistogramCounts) {
    for (bound, count) in cumulative(counts) {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |b| b.as_secs_f64().to_string());
        let labels = [labels, &[("le", &bound)]].concat();
        family.suffixed("_bucket", &labels, count);
    }
    family.suffixed("_sum", labels, counts.sum.as_secs_f64());
    family.suffixed("_count", labels, counts.count());
}

/// Cumulative counts at each second bound, and of all durations.
fn cumulative(counts: &HistogramCounts) -> impl Iterator<Item = (Option<Duration>, u64)> {
    let mut below = 0;
    counts.buckets.into_iter().enumerate().filter_map(move |(bucket, count)| {
        below += count;
        let is_shown = bucket % 2 == 0 || bucket + 1 == BUCKETS;
        is_shown.then(|| (bound(bucket), below))
    })
}

fn errors(out: &mut Exposition, server: &Server) {
    let errors = &server.stats.errors;
    let mut family = out.counter("quintet_errors_total", "Error replies by their code.");
    for (code, count) in errors.replies() {
        family.labelled(&[("code", code)], count);
    }
    let mut family = out.counter(
        "quintet_storage_errors_total",
        "Failures of the store that commands or background work of the server met.",
    );
    for (kind, count) in errors.storage() {
        family.labelled(&[("kind", kind)], count);
    }
    out.counter(
        "quintet_checksum_failures_total",
        "Failures of the store because of damage: a wrong checksum or impossible bytes.",
    )
    .value(errors.corruptions());
}

fn clients(out: &mut Exposition, server: &Server) {
    let stats = &server.stats;
    for (name, help, count) in [
        ("quintet_connections_total", "Connections that were accepted.", &stats.connections),
        (
            "quintet_rejected_connections_total",
            "Connections that were refused because of a limit of clients.",
            &stats.rejected_connections,
        ),
        (
            "quintet_evicted_clients_total",
            "Connections that were ended because of maxmemory-clients.",
            &stats.evicted_clients,
        ),
        (
            "quintet_output_disconnections_total",
            "Connections that were ended because of client-output-buffer-limit.",
            &stats.output_disconnections,
        ),
        (
            "quintet_query_disconnections_total",
            "Connections that were ended because of client-query-buffer-limit.",
            &stats.query_disconnections,
        ),
        ("quintet_network_receive_bytes_total", "Bytes read from clients.", &stats.bytes_in),
        ("quintet_network_transmit_bytes_total", "Bytes written to clients.", &stats.bytes_out),
    ] {
        out.counter(name, help).value(value(count));
    }
    out.gauge("quintet_connected_clients", "Connections that are open.")
        .value(server.clients.count());
    out.gauge("quintet_max_clients", "The setting maxclients.")
        .value(value(&server.settings.maxclients));
}

fn client_buffers(out: &mut Exposition, sample: &Sample) {
    let clients = &sample.clients;
    out.gauge("quintet_blocked_clients", "Clients that wait in a blocking command.")
        .value(clients.blocked);
    let mut family =
        out.gauge("quintet_client_buffer_bytes", "Memory of the buffers of all clients.");
    for (buffer, bytes) in [
        ("query", clients.query_bytes),
        ("reply", clients.reply_bytes),
        ("messages", clients.message_bytes),
        ("held", clients.held_bytes),
    ] {
        family.labelled(&[("buffer", buffer)], bytes);
    }
    out.gauge("quintet_client_buffer_max_bytes", "Memory of the buffers of the largest client.")
        .value(clients.largest_bytes);
}

fn keys(out: &mut Exposition, server: &Server) {
    let mut family = out.counter("quintet_key_lookups_total", "Reads of keys by their result.");
    family.labelled(&[("result", "hit")], value(&server.stats.hits));
    family.labelled(&[("result", "miss")], value(&server.stats.misses));
    out.counter("quintet_expired_keys_total", "Keys that expired and were removed.")
        .value(value(&server.stats.expired));
    let mut family = out.gauge("quintet_database_keys", "Keys of a database that has any.");
    for own in DatabaseId::all_of(0) {
        let Some(tables) = server.store.databases.get(own) else { continue };
        let keys = tables.count.load(Ordering::Acquire);
        if keys > 0 {
            family.labelled(&[("database", &own.index().to_string())], keys);
        }
    }
}

fn namespaces(out: &mut Exposition, server: &Server) {
    let databases = &server.store.databases;
    let (count, used) = databases.namespace_counts();
    out.gauge("quintet_namespaces", "Namespaces beside default.").value(count);
    out.gauge("quintet_namespaces_used", "Namespaces beside default that connections are in.")
        .value(used);
    let loaded = databases.loaded_namespaces();
    let keys: u64 = loaded.into_iter().skip(1).map(|own| databases.key_count(own)).sum();
    out.gauge(
        "quintet_namespaces_keys",
        "Keys of all namespaces beside default whose tables are open.",
    )
    .value(keys);
}

fn log(out: &mut Exposition, sample: &Sample, now: Instant) {
    let (log, store) = (&sample.store.log, &sample.store);
    out.counter("quintet_log_appended_bytes_total", "Bytes appended to the log.")
        .value(log.appended_bytes_total);
    out.counter("quintet_log_syncs_total", "Syncs of the log that succeeded.")
        .value(log.syncs_total);
    for (name, help, value) in [
        ("quintet_log_appended_lsn_bytes", "LSN past the last record of the log.", log.end.0),
        ("quintet_log_durable_lsn_bytes", "LSN below which all is durable.", log.durable.0),
        ("quintet_log_file_bytes", "Log files, with prepared and recycled ones.", log.file_bytes),
        (
            "quintet_log_retained_bytes",
            "Log files that only change feeds need.",
            log.retained_bytes,
        ),
        (
            "quintet_log_replay_bytes",
            "Log that the next start would replay if the server ended now.",
            store.unpersisted_bytes,
        ),
    ] {
        out.gauge(name, help).value(value);
    }
    out.gauge(
        "quintet_log_last_sync_age_seconds",
        "Time since a successful sync of the log was seen. It grows while nothing is written.",
    )
    .value(now.saturating_duration_since(sample.sync.last).as_secs_f64());
    out.gauge(
        "quintet_log_unsynced_seconds",
        "Time that the log has had bytes which are not durable; 0 if all is durable.",
    )
    .value(sample.sync.unsynced_for(now).as_secs_f64());
}

fn memory(out: &mut Exposition, sample: &Sample) {
    let store = &sample.store;
    out.gauge("quintet_memory_budget_bytes", "The setting memory-budget.")
        .value(store.memory_budget_bytes);
    out.gauge("quintet_memory_used_bytes", "Memory reserved from the budget.")
        .value(store.memory_bytes);
    let mut family = out.gauge("quintet_memory_component_bytes", "Parts of the reserved memory.");
    for (component, bytes) in memory_components(store) {
        family.labelled(&[("component", component)], bytes);
    }
}

fn snapshots(out: &mut Exposition, sample: &Sample) {
    let store = &sample.store;
    out.gauge("quintet_open_snapshots", "Open snapshots, those of scans included.")
        .value(store.open_snapshots);
    out.gauge("quintet_oldest_snapshot_age_seconds", "Age of the oldest open snapshot, or 0.")
        .value(store.oldest_snapshot_age.as_secs_f64());
    let mut family =
        out.gauge("quintet_snapshot_bytes", "Earlier values that open snapshots show.");
    family.labelled(&[("place", "memory")], store.snapshot_bytes);
    family.labelled(&[("place", "disk")], store.snapshot_file_bytes);
    out.counter("quintet_snapshots_expired_total", "Snapshots that a limit or a failure ended.")
        .value(store.snapshots_expired_total);
}

fn background(out: &mut Exposition, sample: &Sample) {
    let store = &sample.store;
    for (name, help, count) in [
        ("quintet_commits_total", "Commits of the store.", store.commits_total),
        ("quintet_checkpoint_rounds_total", "Checkpoint rounds.", store.persist_rounds_total),
        (
            "quintet_write_stalls_total",
            "Writes that waited for a checkpoint round.",
            store.write_stalls_total,
        ),
        (
            "quintet_write_delays_total",
            "Writes that were delayed near the recovery budget.",
            store.write_delays_total,
        ),
    ] {
        out.counter(name, help).value(count);
    }
    out.gauge("quintet_space_reserve_bytes", "Disk space that is kept for a full disk.")
        .value(store.space_reserve_bytes);
    out.counter("quintet_checkpoint_seconds_total", "Time of the checkpoint rounds.")
        .value(Duration::from_micros(store.persist_micros_total).as_secs_f64());
    out.gauge(
        "quintet_background_failed",
        "1 if background work failed and has not succeeded since.",
    )
    .value(u8::from(store.background_failure.is_some()));
}
