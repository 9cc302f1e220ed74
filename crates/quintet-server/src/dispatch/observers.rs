//! What operators see of a command: its time, `SLOWLOG`, and `MONITOR`.

use std::{
    fmt::Write as _,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use crate::{
    resp::Args,
    spec::flag,
    state::{Event, Server, Session, SlowCommand},
    store::now_millis,
};

/// Arguments of a slow command that are kept, and bytes of each.
const SLOW_ARGS_MAX: usize = 32;
const SLOW_BYTES_MAX: usize = 128;

/// Counts the time of a command since `clock`, which is set to its end. Keeps it if it was slow.
pub(super) fn note_time(
    server: &Server,
    clock: &mut Instant,
    session: &Session,
    at: usize,
    args: Args<'_>,
) {
    let now = Instant::now();
    let elapsed = now.duration_since(*clock);
    *clock = now;
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    if let Some(counters) = server.stats.by_command.get(at) {
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters.micros.fetch_add(micros, Ordering::Relaxed);
        counters.latency.record(elapsed);
    }
    let is_fast = server.registry.spec(at).is_some_and(|spec| spec.has(flag::FAST));
    server.note_latency(if is_fast { Event::FastCommand } else { Event::Command }, elapsed);
    let limit = server.settings.slowlog_log_slower_than.load(Ordering::Relaxed);
    if micros < limit || elapsed < Duration::from_micros(1) {
        return;
    }
    let mut words: Vec<Vec<u8>> = args.from(0).take(SLOW_ARGS_MAX).map(shorten_slow).collect();
    let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    if [b"auth".as_slice(), b"hello", b"config", b"acl"].contains(&name.as_slice()) {
        words.truncate(1);
        words.push(b"(redacted)".to_vec());
    }
    if let Some(left_out) = server.stats.log_limits.slow.admit() {
        let command = server.registry.spec(at).map_or("", |spec| spec.name);
        let bytes: usize = args.from(0).map(<[u8]>::len).sum();
        let (arguments, client) = (args.len(), &session.client.address);
        tracing::warn!(command, micros, arguments, bytes, %client, left_out, "slow command");
    }
    let slow = SlowCommand {
        id: 0,
        time: now_millis() / 1000,
        micros,
        args: words,
        address: session.client.address.clone(),
        name: session.client.info().name.clone(),
    };
    server.stats.add_slow(slow, server.settings.slowlog_max_len.load(Ordering::Relaxed));
}

fn shorten_slow(word: &[u8]) -> Vec<u8> {
    match word.get(..SLOW_BYTES_MAX) {
        Some(start) if word.len() > SLOW_BYTES_MAX => {
            let rest = word.len() - SLOW_BYTES_MAX;
            [start, format!("... ({rest} more bytes)").as_bytes()].concat()
        }
        _ => word.to_vec(),
    }
}

/// Sends a command to the clients that have asked for all.
pub(super) fn monitor(server: &Server, session: &Session, args: Args<'_>) {
    let is_secret = ["auth", "hello", "config", "acl"].iter().any(|name| args.is(0, name));
    let now = now_millis();
    let mut line = format!(
        "{}.{:03}000 [{} {}]",
        now / 1000,
        now % 1000,
        session.database.index(),
        session.client.address
    );
    for word in args.from(0).take(if is_secret { 1 } else { usize::MAX }) {
        // A write to a string cannot fail.
        let _ = write!(line, " \"{}\"", word.escape_ascii());
    }
    for client in server.clients.all() {
        if client.is_monitor.load(Ordering::Acquire) {
            client.push(|reply| reply.simple(&line));
        }
    }
}
