//! Clients: what others see of a connection. `session.rs` has what only its task sees.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

use super::{
    client_tracking::{ClientTracking, TrackingMode},
    memory::{Buffer, ClientMemory, largest_above},
    output::{OutputClass, OutputExcess, OutputLimit},
    settings::Settings,
};
use crate::{
    acl::DEFAULT_USER,
    resp::{Protocol, Reply},
    store::{DEFAULT_NAMESPACE, DatabaseId},
};

/// Bytes that an outbox keeps when its messages have been taken.
const OUTBOX_KEPT_BYTES: usize = 16 << 10;

/// Messages that a client has not been sent.
#[derive(Debug, Default)]
struct Outbox {
    reply: Reply,
    /// Bytes that its task is writing.
    unsent: usize,
    /// Since when its output is above the soft limit.
    soft_since: Option<Instant>,
}

/// What others see of a client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number.
    pub(crate) id: u64,
    /// Its address.
    pub(crate) address: String,
    /// The address of the server that it connected to.
    pub(crate) local_address: String,
    /// Its IP address, unless it came through a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    /// When it connected.
    pub(crate) connected: Instant,
    /// What it tells about itself.
    info: Mutex<ClientInfo>,
    /// Messages that it has not been sent.
    outbox: Mutex<Outbox>,
    /// Wakes its task: a message, an unblock, a kill, or elements that it waits for.
    pub(crate) wake: Arc<Notify>,
    /// Whether it must end.
    pub(crate) is_killed: AtomicBool,
    /// Ends its blocking command: 1 as a timeout, 2 with an error.
    pub(crate) unblock: AtomicU64,
    /// Whether it receives all commands.
    pub(crate) is_monitor: AtomicBool,
    /// Whether it has subscribed to something.
    pub(crate) is_subscriber: AtomicBool,
    /// The id of its namespace, whose events of keys it receives.
    pub(crate) namespace: AtomicU32,
    /// Bytes of its buffers.
    pub(crate) memory: ClientMemory,
    /// Why it was ended because of its output.
    excess: OnceLock<OutputExcess>,
    settings: Arc<Settings>,
}

/// Sums over the clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientTotals {
    /// Clients that wait.
    pub(crate) blocked: usize,
    /// Bytes of memory of requests.
    pub(crate) query_bytes: u64,
    /// Bytes of memory of replies.
    pub(crate) reply_bytes: u64,
    /// Bytes of messages that wait.
    pub(crate) message_bytes: u64,
    /// Bytes of transactions, and of names of watched keys and of subscriptions.
    pub(crate) held_bytes: u64,
    /// Bytes of the client with most.
    pub(crate) largest_bytes: u64,
}

impl ClientTotals {
    /// Bytes of all kinds.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.query_bytes + self.reply_bytes + self.message_bytes + self.held_bytes
    }
}

/// Numbers of the subscriptions of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscriptions {
    /// Channels.
    pub(crate) channels: usize,
    /// Patterns.
    pub(crate) patterns: usize,
    /// Shard channels.
    pub(crate) shard_channels: usize,
}

impl Subscriptions {
    /// Whether there are none.
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// What a client tells about itself, and what it did last.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientInfo {
    /// The name it chose.
    pub(crate) name: Vec<u8>,
    /// The name of its library.
    pub(crate) library: Vec<u8>,
    /// The version of its library.
    pub(crate) library_version: Vec<u8>,
    /// Its user.
    pub(crate) user: String,
    /// Its database.
    pub(crate) database: DatabaseId,
    /// The name of its namespace.
    pub(crate) namespace: String,
    /// How much it has subscribed to.
    pub(crate) subscriptions: Subscriptions,
    /// Commands that `MULTI` has queued.
    pub(crate) queued: Option<usize>,
    /// Whether it waits for keys.
    pub(crate) is_blocked: bool,
    /// Whether a pause of clients holds its request.
    pub(crate) is_held: bool,
    /// Its last command.
    pub(crate) command: String,
    /// When that was.
    pub(crate) active: Option<Instant>,
    /// 2 or 3.
    pub(crate) protocol: u8,
    /// How it learns of changed keys that it caches.
    pub(crate) tracking: Option<ClientTracking>,
}

impl ClientInfo {
    /// Whether it waits, for keys or for the end of a pause.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_blocked || self.is_held
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// What the client tells about itself.
    pub(crate) fn info(&self) -> MutexGuard<'_, ClientInfo> {
        lock(&self.info)
    }

    /// The line of a client in `CLIENT LIST`.
    pub(crate) fn describe(&self) -> String {
        let info = self.info();
        let idle = info.active.map_or_else(|| self.connected.elapsed(), |active| active.elapsed());
        let tracking = info.tracking;
        let redirect = tracking.map_or(-1, |own| i64::try_from(own.redirect).unwrap_or(i64::MAX));
        let mut flags = String::new();
        for (is_set, flag) in [
            (info.is_waiting(), 'b'),
            (!info.subscriptions.is_none(), 'P'),
            (info.queued.is_some(), 'x'),
            (tracking.is_some(), 't'),
            (tracking.is_some_and(|own| own.is_broken), 'R'),
            (tracking.is_some_and(|own| own.mode == TrackingMode::Broadcast), 'B'),
            (self.is_monitor.load(Ordering::Acquire), 'O'),
            (self.memory.is_protected(), 'e'),
        ] {
            if is_set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} psub={} \
             ssub={} multi={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl=0 oll=0 \
             omem={} tot-mem={} events=r cmd={} user={} redir={redirect} resp={} lib-name={} \
             lib-ver={} ns={}",
            self.id,
            self.address,
            self.local_address,
            String::from_utf8_lossy(&info.name),
            self.connected.elapsed().as_secs(),
            idle.as_secs(),
            info.database.index(),
            info.subscriptions.channels,
            info.subscriptions.patterns,
            info.subscriptions.shard_channels,
            info.queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX)),
            self.memory.of(Buffer::Held),
            self.memory.of(Buffer::Reply) + self.memory.of(Buffer::Messages),
            self.memory.total(),
            info.command,
            info.user,
            info.protocol,
            String::from_utf8_lossy(&info.library),
            String::from_utf8_lossy(&info.library_version),
            info.namespace,
        )
    }

    /// The limit of its output.
    pub(crate) fn output_limit(&self) -> OutputLimit {
        let is_subscriber = self.is_subscriber.load(Ordering::Acquire);
        let class = if is_subscriber { OutputClass::Pubsub } else { OutputClass::Normal };
        self.settings.output_limit(class)
    }

    /// Adds a message to what is sent next. Ends a client whose output is above its limit.
    pub(crate) fn push(&self, write: impl FnOnce(&mut Reply)) {
        let mut outbox = lock(&self.outbox);
        if self.is_killed.load(Ordering::Acquire) {
            return;
        }
        outbox.reply.limit = self.output_limit().hard_bytes();
        write(&mut outbox.reply);
        let excess = if outbox.reply.take_overflow() {
            Some(OutputExcess::Hard)
        } else {
            self.check(&mut outbox, Instant::now())
        };
        if let Some(excess) = excess {
            outbox.reply.out = Vec::new();
            self.note_excess(excess);
            self.is_killed.store(true, Ordering::Release);
        }
        self.memory.note(Buffer::Messages, outbox.reply.out.capacity());
        drop(outbox);
        self.wake.notify_one();
    }

    fn check(&self, outbox: &mut Outbox, now: Instant) -> Option<OutputExcess> {
        let bytes = outbox.reply.out.len().saturating_add(outbox.unsent);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.output_limit().check(bytes, &mut outbox.soft_since, now)
    }

    /// Moves the waiting messages to the end of `out`, which is written next.
    pub(crate) fn take_messages(&self, out: &mut Vec<u8>) {
        let mut outbox = lock(&self.outbox);
        if !outbox.reply.out.is_empty() {
            out.append(&mut outbox.reply.out);
            if outbox.reply.out.capacity() > OUTBOX_KEPT_BYTES {
                outbox.reply.out = Vec::new();
            }
            self.memory.note(Buffer::Messages, outbox.reply.out.capacity());
        }
        outbox.unsent = out.len();
    }

    /// Notes how many bytes are still being written. Returns why the client must end, if it must,
    /// and else when it must because of its soft limit, if it takes nothing until then.
    pub(crate) fn check_output(
        &self,
        unsent: usize,
        now: Instant,
    ) -> (Option<OutputExcess>, Option<Instant>) {
        let mut outbox = lock(&self.outbox);
        outbox.unsent = unsent;
        let excess = self.check(&mut outbox, now);
        (excess, self.output_limit().soft_deadline(outbox.soft_since))
    }

    /// Notes why the client ends because of its output. The first reason stays.
    pub(crate) fn note_excess(&self, excess: OutputExcess) {
        // A second reason says nothing new.
        let _ = self.excess.set(excess);
    }

    /// Why the client ends because of its output.
    pub(crate) fn excess(&self) -> Option<OutputExcess> {
        self.excess.get().copied()
    }

    /// Protects the client from being ended for its memory, or ends the protection.
    pub(crate) fn set_protected(&self, is_protected: bool) {
        // No task pushes a message meanwhile.
        let _outbox = lock(&self.outbox);
        self.memory.set_protected(is_protected);
    }

    /// Ends all that counts for the client. It receives no further messages.
    fn retire(&self) {
        let _outbox = lock(&self.outbox);
        self.is_killed.store(true, Ordering::Release);
        self.memory.clear();
    }

    /// Chooses the protocol of messages.
    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        lock(&self.outbox).reply.protocol = protocol;
    }

    /// Ends the client. Returns whether it was not ended before.
    pub(crate) fn kill(&self) -> bool {
        let was_killed = self.is_killed.swap(true, Ordering::AcqRel);
        self.wake.notify_one();
        !was_killed
    }
}

/// The connected clients.
#[derive(Debug)]
pub(crate) struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    monitors: AtomicU64,
    memory: Arc<AtomicU64>,
    settings: Arc<Settings>,
}

impl Clients {
    /// No clients.
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            connected: Mutex::default(),
            last_id: AtomicU64::new(0),
            monitors: AtomicU64::new(0),
            memory: Arc::default(),
            settings,
        }
    }

    /// Adds a client.
    pub(crate) fn add(&self, addresses: (String, String), ip: Option<IpAddr>) -> Arc<Client> {
        let (address, local_address) = addresses;
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local_address,
            ip,
            connected: Instant::now(),
            info: Mutex::new(ClientInfo {
                protocol: 2,
                user: DEFAULT_USER.to_owned(),
                namespace: DEFAULT_NAMESPACE.to_owned(),
                ..ClientInfo::default()
            }),
            outbox: Mutex::default(),
            wake: Arc::default(),
            is_killed: AtomicBool::new(false),
            unblock: AtomicU64::new(0),
            is_monitor: AtomicBool::new(false),
            namespace: AtomicU32::new(0),
            is_subscriber: AtomicBool::new(false),
            memory: ClientMemory::new(self.memory.clone()),
            excess: OnceLock::new(),
            settings: self.settings.clone(),
        });
        lock(&self.connected).insert(client.id, client.clone());
        client
    }

    /// Removes a client.
    pub(crate) fn remove(&self, client: &Client) {
        lock(&self.connected).remove(&client.id);
        client.retire();
        if client.is_monitor.load(Ordering::Acquire) {
            self.monitors.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// All clients by number.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.connected).values().cloned().collect()
    }

    /// A client by its number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        lock(&self.connected).get(&id).cloned()
    }

    /// Sums over the clients.
    pub(crate) fn totals(&self) -> ClientTotals {
        let mut totals = ClientTotals::default();
        for client in self.all() {
            totals.blocked += usize::from(client.info().is_waiting());
            totals.query_bytes += client.memory.of(Buffer::Query);
            totals.reply_bytes += client.memory.of(Buffer::Reply);
            totals.message_bytes += client.memory.of(Buffer::Messages);
            totals.held_bytes += client.memory.of(Buffer::Held);
            totals.largest_bytes = totals.largest_bytes.max(client.memory.total());
        }
        totals
    }

    /// Bytes of the buffers of all clients but the protected ones.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Acquire)
    }

    /// Ends the clients with the most bytes until the others have at most `max`. Protected clients
    /// stay and do not count. Returns those that end because of this call, with their bytes.
    pub(crate) fn end_largest(&self, max: u64) -> Vec<(Arc<Client>, u64)> {
        let mut clients = self.all();
        clients.retain(|client| {
            !client.is_killed.load(Ordering::Acquire) && !client.memory.is_protected()
        });
        let bytes: Vec<u64> = clients.iter().map(|client| client.memory.total()).collect();
        let largest = largest_above(&bytes, max).into_iter();
        let ended = largest.filter_map(|at| Some((clients.get(at)?.clone(), *bytes.get(at)?)));
        ended.filter(|(client, _)| client.kill()).collect()
    }

    /// Wakes the tasks of all clients, which look at their users again.
    pub(crate) fn wake_all(&self) {
        for client in lock(&self.connected).values() {
            client.wake.notify_one();
        }
    }

    /// Number of clients.
    pub(crate) fn count(&self) -> usize {
        lock(&self.connected).len()
    }

    /// Number of clients of an address.
    pub(crate) fn count_of(&self, ip: IpAddr) -> usize {
        lock(&self.connected).values().filter(|client| client.ip == Some(ip)).count()
    }

    /// Makes a client receive all commands.
    pub(crate) fn add_monitor(&self, client: &Client) {
        if !client.is_monitor.swap(true, Ordering::AcqRel) {
            self.monitors.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether a client receives all commands.
    pub(crate) fn has_monitors(&self) -> bool {
        self.monitors.load(Ordering::Acquire) > 0
    }
}
