//! Samples the store, the clients and the commands each second.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use quintet::DatabaseStats;

use crate::{
    state::{
        ActivityInterval, HistogramCounts, HistogramSummary, Sample, Server, SyncState, TABLES_MAX,
    },
    store::now_millis,
};

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// What the sampler keeps from one sample to the next.
struct Sampler {
    taken: Instant,
    sync: SyncState,
    commands: Vec<HistogramCounts>,
    network: (u64, u64),
    /// Why writes are refused, and why background work failed.
    failures: (Option<String>, Option<String>),
}

impl Sampler {
    fn new(server: &Server) -> Self {
        let commands = vec![HistogramCounts::default(); server.stats.by_command.len()];
        let now = server.started;
        Self {
            taken: now,
            sync: SyncState::new(now),
            commands,
            network: (0, 0),
            failures: (None, None),
        }
    }

    /// Takes a sample. May wait for locks of engines, so it runs where blocking is allowed.
    fn step(&mut self, server: &Server) {
        let database = server.store.databases.database();
        let store = database.stats_of_open_tables(TABLES_MAX);
        let now = Instant::now();
        self.sync.note(now, &store.log);
        self.log_failures(server, &store);
        let interval = self.end_interval(server, now);
        let sample = Sample {
            taken: now,
            table_count: database.table_count(),
            sync: self.sync,
            clients: server.clients.totals(),
            store,
        };
        server.observed.install(sample, interval);
    }

    /// Logs what has begun to fail since the last sample.
    fn log_failures(&mut self, server: &Server, store: &DatabaseStats) {
        let write = server.store.databases.database().write_failure();
        if let Some(error) = write.as_ref().filter(|_| self.failures.0 != write) {
            tracing::error!(error, "writes are refused until the next start");
        }
        let background = store.background_failure.clone();
        if let Some(error) = background.as_ref().filter(|_| self.failures.1 != background) {
            tracing::error!(error, "background work failed");
        }
        self.failures = (write, background);
    }

    fn end_interval(&mut self, server: &Server, now: Instant) -> ActivityInterval {
        let mut all = HistogramCounts::default();
        let mut commands = Vec::new();
        for (row, (counters, earlier)) in
            server.stats.by_command.iter().zip(&mut self.commands).enumerate()
        {
            let counts = counters.latency.counts();
            let added = counts.since(earlier);
            *earlier = counts;
            if added.count() > 0 {
                all.add(&added);
                commands.push((row, HistogramSummary::of(&added)));
            }
        }
        let network = (
            server.stats.bytes_in.load(Ordering::Relaxed),
            server.stats.bytes_out.load(Ordering::Relaxed),
        );
        let added = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let interval = ActivityInterval {
            time: now_millis(),
            length: now.saturating_duration_since(self.taken),
            commands,
            all: HistogramSummary::of(&all),
            network: (added(network.0, self.network.0), added(network.1, self.network.1)),
        };
        (self.taken, self.network) = (now, network);
        interval
    }
}

/// Takes samples until the server ends.
pub(crate) async fn sample_until_end(server: Arc<Server>) {
    let mut ending = server.ending.subscribe();
    let mut sampler = Sampler::new(&server);
    loop {
        let own = server.clone();
        let step = tokio::task::spawn_blocking(move || {
            sampler.step(&own);
            sampler
        });
        // A panic of an engine ends the sampling; the age of the statistics shows it.
        let Ok(next) = step.await else { break };
        sampler = next;
        tokio::select! {
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
            _ = ending.wait_for(|is_ending| *is_ending) => break,
        }
    }
}
