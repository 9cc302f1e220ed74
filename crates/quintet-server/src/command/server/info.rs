//! The text of `INFO`: sections and names of Redis, because exporters parse them.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use crate::{
    spec::REDIS_VERSION,
    state::{LinkState, Server, Topic, resident_bytes},
    store::{DatabaseId, now_millis},
};

/// A section: its name, and what writes it.
type Section = (&'static str, fn(&Server, &mut String));

/// The sections in order. `commandstats` is not a part of the default.
const SECTIONS: [Section; 11] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Modules", |_, _| {}),
    ("Commandstats", command_stats),
    // Clients ask here whether they have to know a cluster.
    ("Cluster", |_, text| put(text, "cluster_enabled", 0)),
    // `text` writes the databases of the namespace.
    ("Keyspace", |_, _| {}),
];

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The text of sections; all but the statistics of commands if none is named.
pub(super) fn text(server: &Server, namespace: u32, wanted: &[String]) -> String {
    let is_wanted = |name: &str| {
        let name = name.to_ascii_lowercase();
        let is_default = name != "commandstats";
        (wanted.is_empty() && is_default)
            || wanted.iter().any(|section| match section.as_str() {
                "default" => is_default,
                "all" | "everything" => true,
                other => other == name,
            })
    };
    let mut text = String::new();
    for (name, write) in SECTIONS.iter().filter(|(name, _)| is_wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        line(&mut text, &format!("# {name}"));
        write(server, &mut text);
        if *name == "Keyspace" {
            keyspace(server, namespace, &mut text);
        }
    }
    text
}

fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push_str("\r\n");
}

fn put(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // A write to a string cannot fail.
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(server: &Server, text: &mut String) {
    let uptime = server.started.elapsed().as_secs();
    put(text, "redis_version", REDIS_VERSION);
    put(text, "quintet_version", env!("CARGO_PKG_VERSION"));
    put(text, "redis_mode", "standalone");
    put(text, "os", std::env::consts::OS);
    put(text, "arch_bits", usize::BITS);
    put(text, "process_id", std::process::id());
    put(text, "run_id", &server.run_id);
    put(text, "tcp_port", server.port);
    if let Some(tls) = &server.tls {
        put(text, "quintet_tls_certificate_days_left", tls.days_left());
    }
    put(text, "server_time_usec", now_millis() * 1000);
    put(text, "uptime_in_seconds", uptime);
    put(text, "uptime_in_days", uptime / 86_400);
    put(text, "hz", 10);
}

fn clients(server: &Server, text: &mut String) {
    let all = server.clients.all();
    let blocked = all.iter().filter(|client| client.info().is_waiting()).count();
    put(text, "connected_clients", all.len());
    put(text, "maxclients", value(&server.settings.maxclients));
    put(text, "tracking_clients", server.tracking.totals().clients);
    put(text, "blocked_clients", blocked);
    let pause = server.pause.current();
    let left =
        pause.map_or(0, |(_, end)| end.saturating_duration_since(Instant::now()).as_millis());
    put(text, "paused_reason", if pause.is_some() { "client_pause" } else { "none" });
    put(text, "paused_actions", pause.map_or("none", |(mode, _)| mode.name()));
    put(text, "paused_timeout_milliseconds", left);
}

fn memory(server: &Server, text: &mut String) {
    let store = server.store.databases.database().stats();
    let resident = resident_bytes();
    put(text, "used_memory", store.memory_bytes);
    put(text, "used_memory_rss", resident);
    put(text, "maxmemory", store.memory_budget_bytes);
    put(text, "maxmemory_policy", "noeviction");
    put(text, "mem_clients_normal", server.clients.totals().all_bytes());
    put(text, "quintet_tracking_table_bytes", server.tracking.totals().bytes);
    put(text, "quintet_file_bytes", store.file_bytes);
}

fn persistence(server: &Server, text: &mut String) {
    let store = server.store.databases.database().stats();
    put(text, "loading", u8::from(server.replication.is_loading()));
    put(text, "aof_enabled", 1);
    put(
        text,
        "aof_last_write_status",
        if store.background_failure.is_none() { "ok" } else { "err" },
    );
    put(text, "aof_current_size", store.unpersisted_bytes);
    put(text, "rdb_bgsave_in_progress", 0);
    put(text, "rdb_last_bgsave_status", "ok");
    put(text, "quintet_appendfsync", server.settings.appendfsync().name());
    put(text, "quintet_requested_syncs_total", server.syncer.requested());
    put(text, "quintet_unpersisted_bytes", store.unpersisted_bytes);
    put(text, "quintet_commits_total", store.commits_total);
    put(text, "quintet_open_snapshots", store.open_snapshots);
}

fn stats(server: &Server, text: &mut String) {
    let own = &server.stats;
    put(text, "total_connections_received", value(&own.connections));
    put(text, "total_commands_processed", own.commands());
    put(text, "total_net_input_bytes", value(&own.bytes_in));
    put(text, "total_net_output_bytes", value(&own.bytes_out));
    put(text, "rejected_connections", value(&own.rejected_connections));
    put(text, "quintet_failed_tls_handshakes", value(&own.failed_handshakes));
    put(text, "quintet_reloads_total", value(&own.reloads));
    put(text, "expired_keys", value(&own.expired));
    put(text, "expired_subkeys", value(&own.expired_fields));
    put(text, "evicted_keys", 0);
    put(text, "evicted_clients", value(&own.evicted_clients));
    put(text, "client_query_buffer_limit_disconnections", value(&own.query_disconnections));
    put(text, "client_output_buffer_limit_disconnections", value(&own.output_disconnections));
    put(text, "keyspace_hits", value(&own.hits));
    put(text, "keyspace_misses", value(&own.misses));
    put(text, "pubsub_channels", server.pubsub.name_count(Topic::Channel));
    put(text, "pubsub_patterns", server.pubsub.name_count(Topic::Pattern));
    put(text, "pubsubshard_channels", server.pubsub.name_count(Topic::Shard));
    let tracking = server.tracking.totals();
    put(text, "tracking_total_keys", tracking.keys);
    put(text, "tracking_total_items", tracking.items);
    put(text, "tracking_total_prefixes", tracking.prefixes);
}

fn replication(server: &Server, text: &mut String) {
    let Some(master) = server.replication.master() else {
        put(text, "role", "master");
        put(text, "connected_slaves", 0);
        put(text, "master_repl_offset", 0);
        return;
    };
    let status = server.replication.status();
    let seconds = |since: Option<Instant>| {
        since.map_or(-1, |since| i64::try_from(since.elapsed().as_secs()).unwrap_or(i64::MAX))
    };
    let offset = status.position.as_ref().map_or(0, |position| position.offset);
    let is_up = status.state == LinkState::Connected;
    let is_syncing = status.state == LinkState::Sync;
    put(text, "role", "slave");
    put(text, "master_host", &master.host);
    put(text, "master_port", master.port);
    put(text, "master_link_status", if is_up { "up" } else { "down" });
    put(text, "master_last_io_seconds_ago", seconds(status.heard));
    put(text, "master_sync_in_progress", u8::from(is_syncing));
    if is_syncing {
        put(text, "master_sync_read_bytes", status.received);
    }
    put(text, "slave_read_repl_offset", offset);
    put(text, "slave_repl_offset", offset);
    if !is_up {
        put(text, "master_link_down_since_seconds", seconds(status.down));
    }
    put(text, "slave_priority", 100);
    put(text, "slave_read_only", 1);
    put(text, "connected_slaves", 0);
    if let Some(position) = &status.position {
        put(text, "master_replid", &position.id);
    }
    put(text, "master_repl_offset", offset);
    if let Some(error) = &status.error {
        // One line, whatever the master has sent.
        put(text, "quintet_master_error", error.replace(['\r', '\n'], " "));
    }
    put(text, "quintet_is_stopped", u8::from(status.state == LinkState::Stopped));
    put(text, "quintet_full_syncs", status.full_syncs);
    put(text, "quintet_partial_syncs", status.partial_syncs);
    put(text, "quintet_skipped_commands", server.replication.skipped());
}

fn cpu(_: &Server, text: &mut String) {
    // Fields 14 and 15: user and system time of the process in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        |at: usize| fields.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
    for (name, ticks) in [("used_cpu_sys", ticks(12)), ("used_cpu_user", ticks(11))] {
        let ticks = ticks.unwrap_or(0);
        put(text, name, format_args!("{}.{:02}0000", ticks / 100, ticks % 100));
    }
}

fn command_stats(server: &Server, text: &mut String) {
    for (spec, counters) in server.registry.specs().iter().zip(&server.stats.by_command) {
        let times = counters.latency.counts();
        let calls = times.count();
        let (rejected, failed) = (value(&counters.rejected), value(&counters.failed));
        if calls + rejected + failed == 0 {
            continue;
        }
        let micros = times.sum.as_micros();
        let hundredths = micros * 100 / u128::from(calls.max(1));
        put(
            text,
            &format!("cmdstat_{}", spec.name),
            format_args!(
                "calls={calls},usec={micros},usec_per_call={}.{:02},{}",
                hundredths / 100,
                hundredths % 100,
                format_args!("rejected_calls={rejected},failed_calls={failed}")
            ),
        );
    }
}

fn keyspace(server: &Server, namespace: u32, text: &mut String) {
    for own in DatabaseId::all_of(namespace) {
        let Some(tables) = server.store.databases.get(own) else { continue };
        let keys = tables.count.load(Ordering::Acquire);
        if keys > 0 {
            let (expires, hashes) = (tables.expiring(), tables.hashes_with_expiries());
            put(
                text,
                &format!("db{}", own.index()),
                format_args!("keys={keys},expires={expires},avg_ttl=0,subexpiry={hashes}"),
            );
        }
    }
}
