//! Counters of the server.

mod errors;

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use errors::ErrorCounters;

use super::histogram::Histogram;
use crate::{failure::Fail, logging::LogLimits, resp::Reply};

/// Calls of one command.
#[derive(Debug, Default)]
pub(crate) struct CommandCounters {
    /// Calls that were refused before they ran.
    pub(crate) rejected: AtomicU64,
    /// Calls that failed.
    pub(crate) failed: AtomicU64,
    /// Durations of all calls.
    pub(crate) latency: Histogram,
}

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    /// Its number.
    pub(crate) id: u64,
    /// When it ran, in seconds since 1970.
    pub(crate) time: u64,
    /// Its time in microseconds.
    pub(crate) micros: u64,
    /// Its arguments, shortened.
    pub(crate) args: Vec<Vec<u8>>,
    /// The address of the client.
    pub(crate) address: String,
    /// The name of the client.
    pub(crate) name: Vec<u8>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Connections accepted.
    pub(crate) connections: AtomicU64,
    /// Connections refused.
    pub(crate) rejected_connections: AtomicU64,
    /// TLS handshakes that failed or took too long.
    pub(crate) failed_handshakes: AtomicU64,
    /// Clients that were ended because all clients had too much memory.
    pub(crate) evicted_clients: AtomicU64,
    /// Clients that were ended because of output that they did not read.
    pub(crate) output_disconnections: AtomicU64,
    /// Clients that were ended because of a request that was too long.
    pub(crate) query_disconnections: AtomicU64,
    /// Times that SIGHUP was answered.
    pub(crate) reloads: AtomicU64,
    /// Keys that expired.
    pub(crate) expired: AtomicU64,
    /// Fields of hashes that expired.
    pub(crate) expired_fields: AtomicU64,
    /// Reads that found their key.
    pub(crate) hits: AtomicU64,
    /// Reads that did not.
    pub(crate) misses: AtomicU64,
    /// Bytes read from clients.
    pub(crate) bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub(crate) bytes_out: AtomicU64,
    /// By position in the table of commands.
    pub(crate) by_command: Vec<CommandCounters>,
    /// Errors by kind.
    pub(crate) errors: ErrorCounters,
    /// Limits of what is logged.
    pub(crate) log_limits: LogLimits,
    /// Durations of commits, without syncs.
    pub(crate) commit_latency: Histogram,
    /// Waits of connections for a sync, with `appendfsync always`.
    pub(crate) sync_latency: Histogram,
    slow: Mutex<(u64, VecDeque<SlowCommand>)>,
}

impl Stats {
    /// Counters for a number of commands.
    pub(crate) fn new(commands: usize) -> Self {
        let by_command = (0..commands).map(|_| CommandCounters::default()).collect();
        Self { by_command, ..Self::default() }
    }

    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    }

    /// Counts the reply that begins at `start` if it is an error.
    pub(crate) fn note_reply(&self, reply: &Reply, start: usize) {
        self.errors.note_reply(reply.out.get(start..).unwrap_or(&[]));
    }

    /// Counts and logs a failure of the store.
    pub(crate) fn note_failure(&self, fail: &Fail) {
        let Fail::Store(error) = fail else { return };
        let kind = self.errors.note_storage(error);
        if let Some(left_out) = self.log_limits.storage.admit() {
            tracing::error!(kind, %error, left_out, "storage error");
        }
    }

    /// Logs a failed login: the `count`th of its address.
    pub(crate) fn note_failed_login(&self, user: &str, address: &str, count: u32) {
        if let Some(left_out) = self.log_limits.passwords.admit() {
            tracing::warn!(user, address, count, left_out, "authentication failed");
        }
    }

    /// Number of commands that ran.
    pub(crate) fn commands(&self) -> u64 {
        self.by_command.iter().map(|counters| counters.latency.counts().count()).sum()
    }

    /// Sets all counters to zero, as `CONFIG RESETSTAT` does.
    pub(crate) fn reset(&self) {
        let own = [
            &self.connections,
            &self.rejected_connections,
            &self.failed_handshakes,
            &self.evicted_clients,
            &self.output_disconnections,
            &self.query_disconnections,
            &self.expired,
            &self.expired_fields,
            &self.hits,
            &self.misses,
            &self.bytes_in,
            &self.bytes_out,
        ];
        let by_command =
            self.by_command.iter().flat_map(|counters| [&counters.rejected, &counters.failed]);
        let latencies = self.by_command.iter().map(|counters| &counters.latency);
        latencies.chain([&self.commit_latency, &self.sync_latency]).for_each(Histogram::reset);
        for counter in own.into_iter().chain(by_command) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Adds a slow command and keeps at most `max`.
    pub(crate) fn add_slow(&self, mut slow: SlowCommand, max: u64) {
        let mut list = self.slow();
        slow.id = list.0;
        list.0 += 1;
        list.1.push_front(slow);
        list.1.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    }

    /// The slow commands, newest first.
    pub(crate) fn slow_commands(&self) -> Vec<SlowCommand> {
        self.slow().1.iter().cloned().collect()
    }

    /// Number of slow commands since the start.
    pub(crate) fn slow_count(&self) -> u64 {
        self.slow().0
    }

    /// Forgets the slow commands.
    pub(crate) fn reset_slow(&self) {
        self.slow().1.clear();
    }

    fn slow(&self) -> MutexGuard<'_, (u64, VecDeque<SlowCommand>)> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
