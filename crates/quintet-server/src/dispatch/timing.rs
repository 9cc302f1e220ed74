//! Counts of calls and their durations, and the slow commands.
//!
//! Threads that count each call in the shared counters pass these cache lines to and fro. So the
//! calls of one command that follow one another in a pipeline are counted together, before another
//! command runs and at the end of what was read.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use crate::{
    resp::Args,
    spec::flag,
    state::{Event, HistogramCounts, Server, Session, SlowCommand, Stats},
    store::now_millis,
};

/// Arguments of a slow command that are kept, and bytes of each.
const SLOW_ARGS_MAX: usize = 32;
const SLOW_BYTES_MAX: usize = 128;

/// Calls of one command that the counters of the server lack. Dropping it adds them.
#[derive(Debug)]
pub(super) struct Tally<'s> {
    server: &'s Server,
    /// The end of the last call.
    pub(super) clock: Instant,
    /// The row of the command.
    row: usize,
    times: HistogramCounts,
    hits: usize,
    misses: usize,
}

impl<'s> Tally<'s> {
    /// An empty tally.
    pub(super) fn new(server: &'s Server) -> Self {
        let times = HistogramCounts::default();
        Self { server, clock: Instant::now(), row: 0, times, hits: 0, misses: 0 }
    }

    /// Begins a call of the command at `row`. Calls of another command are added to the counters,
    /// so that this one finds them there.
    pub(super) fn begin(&mut self, row: usize) {
        if row != self.row {
            self.add();
            self.row = row;
        }
    }

    /// Ends a call: counts it with its reads that found their key and those that did not, and keeps
    /// it if it was slow.
    pub(super) fn end(
        &mut self,
        session: &Session,
        row: usize,
        args: Args<'_>,
        (hits, misses): (usize, usize),
    ) {
        let now = Instant::now();
        let elapsed = now.duration_since(self.clock);
        self.clock = now;
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        // `EXEC` has run other commands.
        self.begin(row);
        self.times.record(elapsed);
        self.hits += hits;
        self.misses += misses;
        let server = self.server;
        let is_fast = server.registry.spec(row).is_some_and(|spec| spec.has(flag::FAST));
        server.note_latency(if is_fast { Event::FastCommand } else { Event::Command }, elapsed);
        let limit = server.settings.slowlog_log_slower_than.load(Ordering::Relaxed);
        if micros < limit || elapsed < Duration::from_micros(1) {
            return;
        }
        note_slow(server, session, (row, micros), args);
    }

    /// Notes that the time up to now belongs to no call. Returns it.
    pub(super) fn pass(&mut self) -> Duration {
        let now = Instant::now();
        let passed = now.duration_since(self.clock);
        self.clock = now;
        passed
    }

    /// Adds the calls to the counters of the server.
    fn add(&mut self) {
        let stats = &self.server.stats;
        for (counter, count) in [(&stats.hits, &mut self.hits), (&stats.misses, &mut self.misses)] {
            match std::mem::take(count) {
                0 => {}
                count => Stats::add(counter, count),
            }
        }
        let times = std::mem::take(&mut self.times);
        if let Some(counters) = stats.by_command.get(self.row) {
            counters.latency.add(&times);
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.add();
    }
}

/// Keeps a slow command, and logs it.
fn note_slow(server: &Server, session: &Session, (row, micros): (usize, u64), args: Args<'_>) {
    let mut words: Vec<Vec<u8>> = args.from(0).take(SLOW_ARGS_MAX).map(shorten_slow).collect();
    let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    if [b"auth".as_slice(), b"hello", b"config", b"acl"].contains(&name.as_slice()) {
        words.truncate(1);
        words.push(b"(redacted)".to_vec());
    }
    if let Some(left_out) = server.stats.log_limits.slow.admit() {
        let command = server.registry.spec(row).map_or("", |spec| spec.name);
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
