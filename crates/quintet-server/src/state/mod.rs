//! What all connections share, and what each connection has.

mod backoff;
mod client_tracking;
mod clients;
mod cursors;
mod histogram;
mod latency;
mod memory;
mod observed;
mod output;
mod pause;
mod pubsub;
mod replica;
mod session;
mod settings;
mod stats;
mod syncer;
mod tracking;
mod work;

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use backoff::Backoff;
use cursors::Cursors;
use pause::ClientPause;
use pubsub::PubSub;
use syncer::Syncer;
use tokio::sync::{Semaphore, watch};
use tracking::Tracking;

pub(crate) use client_tracking::{ClientTracking, TrackingMode};
pub(crate) use clients::{Client, Clients, Subscriptions};
pub(crate) use histogram::{BUCKETS, HistogramCounts, bound};
pub(crate) use latency::{Event, EventSamples, LatencyMonitor, Slow};
pub(crate) use memory::{Buffer, name_bytes};
pub(crate) use observed::{
    ActivityInterval, HistogramSummary, Observed, Sample, SyncState, TABLES_MAX,
};
pub(crate) use output::{OutputExcess, OutputLimits};
pub(crate) use pause::PauseMode;
pub(crate) use pubsub::Topic;
pub(crate) use replica::{LinkState, Master, Replication};
pub(crate) use session::{Block, Queued, ReplyMode, Session};
pub use settings::AppendFsync;
pub(crate) use settings::{QUERY_BYTES, Refusal, SettingChange, Settings};
pub(crate) use stats::{SlowCommand, Stats};
pub(crate) use tracking::Overlap;
pub(crate) use work::{Answer, Work};

use crate::{
    acl::Acl,
    spec::Registry,
    store::{Store, now_millis},
    tls::Tls,
};

/// Most pieces of work at once ([`Work`]).
const WORK_MAX: usize = 2;

/// The state of a server.
#[derive(Debug)]
pub(crate) struct Server {
    /// Keys and values.
    pub(crate) store: Store,
    /// The table of commands.
    pub(crate) registry: Registry,
    /// What can change at run time.
    pub(crate) settings: Arc<Settings>,
    /// Users.
    pub(crate) acl: Arc<Acl>,
    /// Certificates, if there is an address with TLS.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Failed logins by address.
    pub(crate) backoff: Backoff,
    /// Permits of work beside the threads of connections.
    pub(crate) permits: Arc<Semaphore>,
    /// Connected clients.
    pub(crate) clients: Clients,
    /// Channels.
    pub(crate) pubsub: Arc<PubSub>,
    /// Clients that cache.
    pub(crate) tracking: Arc<Tracking>,
    /// What `CLIENT PAUSE` holds.
    pub(crate) pause: ClientPause,
    /// Counters.
    pub(crate) stats: Stats,
    /// What operators see.
    pub(crate) observed: Observed,
    /// What was slow.
    pub(crate) latency: LatencyMonitor,
    /// Positions of scans.
    pub(crate) cursors: Cursors,
    /// Seed and counter of random numbers.
    pub(crate) random: (RandomState, AtomicU64),
    /// Syncs of the log that several connections share.
    pub(crate) syncer: Syncer,
    /// What the server follows.
    pub(crate) replication: Replication,
    /// When the server started.
    pub(crate) started: Instant,
    /// A number of this start in hexadecimal, as exporters expect.
    pub(crate) run_id: String,
    /// The TCP port, or 0.
    pub(crate) port: u16,
    /// Whether the server ends.
    pub(crate) ending: watch::Sender<bool>,
}

impl Server {
    /// The state of a server that starts. Fails if it cannot start a thread.
    pub(crate) fn new(
        store: Store,
        registry: Registry,
        settings: Settings,
        (acl, tls, replication): (Acl, Option<Arc<Tls>>, Replication),
        port: u16,
    ) -> std::io::Result<Self> {
        let syncer = Syncer::start(store.databases.database().clone())?;
        let pubsub = Arc::new(PubSub::default());
        let settings = Arc::new(settings);
        let clients = Clients::new(settings.clone());
        let (receiver, classes) = (pubsub.clone(), settings.notify_classes.clone());
        store.changes.notifications.connect(classes, move |namespace, channel, message| {
            receiver.publish_in(Some(namespace), channel, message);
        });
        let invalidations = &store.changes.invalidations;
        let tracking = Arc::new(Tracking::new(invalidations.clients(), settings.clone()));
        let receiver = tracking.clone();
        invalidations.connect(move |changed| receiver.invalidate(changed));
        Ok(Self {
            store,
            settings,
            acl: Arc::new(acl),
            tls,
            backoff: Backoff::default(),
            permits: Arc::new(Semaphore::new(WORK_MAX)),
            clients,
            pubsub,
            tracking,
            pause: ClientPause::none(),
            stats: Stats::new(registry.specs().len()),
            observed: Observed::default(),
            latency: LatencyMonitor::default(),
            registry,
            cursors: Cursors::default(),
            random: (RandomState::new(), AtomicU64::new(0)),
            syncer,
            replication,
            started: Instant::now(),
            run_id: run_id(),
            port,
            ending: watch::Sender::new(false),
        })
    }

    /// Notes how long something took, if that makes it a latency event.
    pub(crate) fn note_latency(&self, event: Event, duration: Duration) {
        let threshold = self.settings.latency_monitor_threshold.load(Ordering::Relaxed);
        self.latency.note(threshold, event, duration, || now_millis() / 1000);
    }

    /// Ends the clients with the most memory if all clients have more than `maxmemory-clients`.
    /// Each is an event of the log. Costs two loads unless there is too much, and otherwise time in
    /// proportion to the clients.
    pub(crate) fn end_largest_clients(&self) {
        let max = self.settings.maxmemory_clients.load(Ordering::Relaxed);
        if max == 0 || self.clients.memory() <= max {
            return;
        }
        for (client, bytes) in self.clients.end_largest(max) {
            Stats::add(&self.stats.evicted_clients, 1);
            if let Some(left_out) = self.stats.log_limits.ended.admit() {
                tracing::warn!(
                    id = client.id, client = %client.address, bytes, max, left_out,
                    "client ended: the buffers of all clients are above maxmemory-clients"
                );
            }
        }
    }

    /// Why the server is not ready for reads and writes, or `None` if it is.
    pub(crate) fn unreadiness(&self) -> Option<String> {
        if *self.ending.borrow() {
            return Some("the server shuts down".to_owned());
        }
        let failure = self.store.databases.database().write_failure()?;
        Some(format!("writes are refused until the server is started again: {failure}"))
    }

    /// A random number, good enough to choose keys and members.
    pub(crate) fn random(&self) -> u64 {
        self.random.0.hash_one(self.random.1.fetch_add(1, Ordering::Relaxed))
    }

    /// Begins to end the server: no new connections, and each connection ends after its command.
    pub(crate) fn end(&self) {
        self.ending.send_replace(true);
    }
}

/// Resident memory of the process in bytes, or 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    pages.unwrap_or(0) * page
}

/// The most resident memory that the process has had, in bytes, or 0 where the system does not
/// tell.
pub(crate) fn resident_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// 40 hexadecimal digits that differ at each start.
fn run_id() -> String {
    let random = RandomState::new();
    let [first, second, third] = [1_u8, 2, 3].map(|part| random.hash_one(part));
    format!("{first:016x}{second:016x}{:08x}", third >> 32)
}
