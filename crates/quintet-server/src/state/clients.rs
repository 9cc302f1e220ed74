//! Clients: what others see of a connection, and what only its task sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

use super::{
    memory::{Buffer, ClientMemory, largest_above},
    output::{OutputClass, OutputExcess, OutputLimit},
    settings::{AppendFsync, Settings},
    work::{Answer, Work},
};
use crate::{
    acl::{Acl, DEFAULT_USER, User},
    resp::{Protocol, Reply},
    store::KeyName,
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
    /// Whether it has subscribed to channels or patterns.
    pub(crate) is_subscriber: AtomicBool,
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
    pub(crate) database: u8,
    /// Channels and patterns.
    pub(crate) subscriptions: (usize, usize),
    /// Commands that `MULTI` has queued.
    pub(crate) queued: Option<usize>,
    /// Whether it waits.
    pub(crate) is_blocked: bool,
    /// Its last command.
    pub(crate) command: String,
    /// When that was.
    pub(crate) active: Option<Instant>,
    /// 2 or 3.
    pub(crate) protocol: u8,
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
        let mut flags = String::new();
        for (is_set, flag) in [
            (info.is_blocked, 'b'),
            (info.subscriptions != (0, 0), 'P'),
            (info.queued.is_some(), 'x'),
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
             ssub=0 multi={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl=0 oll=0 \
             omem={} tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            String::from_utf8_lossy(&info.name),
            self.connected.elapsed().as_secs(),
            idle.as_secs(),
            info.database,
            info.subscriptions.0,
            info.subscriptions.1,
            info.queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX)),
            self.memory.of(Buffer::Held),
            self.memory.of(Buffer::Reply) + self.memory.of(Buffer::Messages),
            self.memory.total(),
            info.command,
            info.user,
            info.protocol,
            String::from_utf8_lossy(&info.library),
            String::from_utf8_lossy(&info.library_version),
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
                ..ClientInfo::default()
            }),
            outbox: Mutex::default(),
            wake: Arc::default(),
            is_killed: AtomicBool::new(false),
            unblock: AtomicU64::new(0),
            is_monitor: AtomicBool::new(false),
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

    /// Sums over the clients.
    pub(crate) fn totals(&self) -> ClientTotals {
        let mut totals = ClientTotals::default();
        for client in self.all() {
            totals.blocked += usize::from(client.info().is_blocked);
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

/// A command that `MULTI` has queued.
#[derive(Debug)]
pub(crate) struct Queued {
    /// Its row in the table.
    pub(crate) command: usize,
    /// Its arguments, one behind the other.
    pub(crate) buffer: Vec<u8>,
    /// Where the arguments are.
    pub(crate) ranges: Vec<(usize, usize)>,
}

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Block {
    /// Until when; `None` for ever.
    pub(crate) until: Option<Instant>,
    /// The keys that it waits for.
    pub(crate) keys: Vec<KeyName>,
    /// Writes the reply of the timeout.
    pub(crate) on_timeout: fn(&mut Reply),
}

/// What only the task of a connection sees.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Session {
    /// What others see of it.
    pub(crate) client: Arc<Client>,
    /// The database.
    pub(crate) database: u8,
    /// Whether the client has given its password, if one is needed.
    pub(crate) is_authenticated: bool,
    /// The user, with its rules at [`Self::acl_generation`].
    pub(crate) user: Arc<User>,
    /// Whether the user is gone, or may not receive any more what it receives.
    pub(crate) is_revoked: bool,
    /// The generation of the users that was read last.
    pub(crate) acl_generation: u64,
    /// Work that the running command waits for.
    pub(crate) work: Option<Work>,
    /// The answer of that work, when the command runs again.
    pub(crate) answer: Option<Answer>,
    /// When writes of the connection are on disk; `None` for the setting of the server.
    pub(crate) durability: Option<AppendFsync>,
    /// Whether earlier commands of the pipeline must be on disk before their replies.
    pub(crate) owes_sync: bool,
    /// Whether the connection ends after the reply.
    pub(crate) is_closing: bool,
    /// The commands since `MULTI`.
    pub(crate) queue: Option<Vec<Queued>>,
    /// Bytes of the commands since `MULTI`.
    pub(crate) queued_bytes: usize,
    /// Bytes of the names of watched keys, and of channels and patterns.
    pub(crate) name_bytes: (usize, usize),
    /// Whether a command since `MULTI` was refused.
    pub(crate) is_queue_bad: bool,
    /// Whether `EXEC` runs.
    pub(crate) is_executing: bool,
    /// Watched keys, each with whether it existed.
    pub(crate) watched: Vec<(KeyName, bool)>,
    /// Whether a watched key has changed.
    pub(crate) is_watch_broken: Arc<AtomicBool>,
    /// Channels.
    pub(crate) channels: BTreeSet<Vec<u8>>,
    /// Patterns.
    pub(crate) patterns: BTreeSet<Vec<u8>>,
    /// Set by a command that must wait.
    pub(crate) block: Option<Block>,
    /// When the waiting command must end, from its first run.
    pub(crate) deadline: Option<Instant>,
    /// Whether the running command has waited.
    pub(crate) is_retry: bool,
    /// Where the running `XREAD` began to read its streams.
    pub(crate) stream_starts: Vec<(u64, u64)>,
    /// Whether it applies the commands of a master.
    pub(crate) is_link: bool,
    /// Replies are switched off, or the next one.
    pub(crate) reply_mode: ReplyMode,
}

/// `CLIENT REPLY`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// Replies are sent.
    #[default]
    On,
    /// No replies are sent.
    Off,
    /// The next reply is not sent.
    Skip,
    /// This reply is not sent.
    Skipping,
}

impl Session {
    /// The session of a new connection.
    pub(crate) fn new(client: Arc<Client>, acl: &Acl, has_password: bool) -> Self {
        let acl_generation = acl.generation();
        let user = acl.default_user();
        let is_authenticated = user.is_open() && !has_password;
        Self {
            client,
            database: 0,
            is_authenticated,
            user,
            acl_generation,
            is_revoked: false,
            work: None,
            answer: None,
            durability: None,
            owes_sync: false,
            is_closing: false,
            queue: None,
            queued_bytes: 0,
            name_bytes: (0, 0),
            is_queue_bad: false,
            is_executing: false,
            watched: Vec::new(),
            is_watch_broken: Arc::default(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            block: None,
            deadline: None,
            is_retry: false,
            stream_starts: Vec::new(),
            is_link: false,
            reply_mode: ReplyMode::On,
        }
    }

    /// The session of the link to a master, which may do everything.
    pub(crate) fn of_link(client: Arc<Client>, acl: &Acl) -> Self {
        let user = acl.master_user();
        Self { user, is_authenticated: true, is_link: true, ..Self::new(client, acl, false) }
    }

    /// Makes the connection one of `default` again, as a new one.
    pub(crate) fn reset_user(&mut self, acl: &Acl, has_password: bool) {
        self.acl_generation = acl.generation();
        self.user = acl.default_user();
        self.is_authenticated = self.user.is_open() && !has_password;
        self.client.info().user.clone_from(&self.user.name);
    }

    /// Makes the connection one of a user that has logged in.
    pub(crate) fn log_in(&mut self, acl: &Acl, user: Arc<User>) {
        // The next command reads the user again if it has changed since.
        self.acl_generation = 0;
        self.client.info().user.clone_from(&user.name);
        self.user = user;
        self.is_authenticated = true;
        self.refresh_user(acl);
    }

    /// Reads the rules of the user again if users have changed. Ends the connection if its user is
    /// gone, and if it receives what its user may not receive any more.
    pub(crate) fn refresh_user(&mut self, acl: &Acl) {
        let generation = acl.generation();
        if self.acl_generation == generation || self.is_link {
            return;
        }
        self.acl_generation = generation;
        let Some(user) = acl.user(&self.user.name) else {
            self.revoke();
            return;
        };
        self.user = user;
        let is_kept = |names: &BTreeSet<Vec<u8>>, is_pattern| {
            names.iter().all(|name| self.user.allows_channel(name, is_pattern))
        };
        let is_receiver = is_kept(&self.channels, false) && is_kept(&self.patterns, true);
        let is_monitor = self.client.is_monitor.load(Ordering::Acquire);
        if !is_receiver || (is_monitor && !acl.allows_command(&self.user, "monitor")) {
            self.revoke();
        }
    }

    fn revoke(&mut self) {
        self.is_revoked = true;
        self.is_closing = true;
    }

    /// Bytes of the commands since `MULTI`, and of the names of watched keys and of subscriptions.
    pub(crate) fn held_bytes(&self) -> usize {
        let queued = if self.queue.is_some() { self.queued_bytes } else { 0 };
        queued + self.name_bytes.0 + self.name_bytes.1
    }

    /// Number of channels and patterns.
    pub(crate) fn subscription_count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}
