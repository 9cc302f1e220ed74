//! What only the task of a connection sees: its session.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use zeroize::Zeroize as _;

use super::{
    client_tracking::TrackingMode,
    clients::Client,
    pubsub::Topic,
    settings::AppendFsync,
    work::{Answer, Work},
};
use crate::{
    acl::{Acl, User},
    failure::Done,
    resp::Reply,
    store::{DatabaseId, Databases, KeyName, Namespace},
};

/// A command that `MULTI` has queued.
#[derive(Debug)]
pub(crate) struct Queued {
    /// Its row in the table.
    pub(crate) command: usize,
    /// Its arguments, one behind the other.
    pub(crate) buffer: Vec<u8>,
    /// Where the arguments are.
    pub(crate) ranges: Vec<(usize, usize)>,
    /// Whether an argument may be a password, which is then overwritten.
    pub(crate) is_secret: bool,
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.is_secret {
            self.buffer.zeroize();
        }
    }
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
    /// Whether a pause of clients holds the command, which runs again at its end.
    pub(crate) is_paused: bool,
}

/// What only the task of a connection sees.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Session {
    /// What others see of it.
    pub(crate) client: Arc<Client>,
    /// The database.
    pub(crate) database: DatabaseId,
    /// The row of the last command in the table of commands.
    pub(crate) last_row: usize,
    /// The namespace of the database.
    pub(crate) namespace: Arc<Namespace>,
    /// Whether the user may use that namespace.
    pub(crate) may_stay: bool,
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
    /// Whether replies that were not written have a password, which is then overwritten.
    pub(crate) has_secret_reply: bool,
    /// Whether the connection ends after the reply.
    pub(crate) is_closing: bool,
    /// The commands since `MULTI`.
    pub(crate) queue: Option<Vec<Queued>>,
    /// Bytes of the commands since `MULTI`.
    pub(crate) queued_bytes: usize,
    /// Bytes of the names of watched keys, and of channels and patterns.
    pub(crate) name_bytes: (usize, usize),
    /// Bytes of the prefixes of keys whose changes it learns of.
    pub(crate) prefix_bytes: usize,
    /// Which changed keys it learns of.
    pub(crate) tracking: Option<TrackingMode>,
    /// Whether `CLIENT CACHING` concerns the next command.
    pub(crate) is_caching: bool,
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
    /// Shard channels.
    pub(crate) shard_channels: BTreeSet<Vec<u8>>,
    /// Set by a command that must wait.
    pub(crate) block: Option<Block>,
    /// Whether a pause of clients holds the request, which has not run.
    pub(crate) is_held: bool,
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
    pub(crate) fn new(
        client: Arc<Client>,
        acl: &Acl,
        has_password: bool,
        databases: &Databases,
    ) -> Self {
        let acl_generation = acl.generation();
        let user = acl.default_user();
        let is_authenticated = user.is_open() && !has_password;
        let namespace = databases.default_namespace();
        let mut session = Self {
            client,
            database: DatabaseId::FIRST,
            last_row: 0,
            namespace,
            may_stay: true,
            is_authenticated,
            user,
            acl_generation,
            is_revoked: false,
            work: None,
            answer: None,
            durability: None,
            owes_sync: false,
            has_secret_reply: false,
            is_closing: false,
            queue: None,
            queued_bytes: 0,
            name_bytes: (0, 0),
            prefix_bytes: 0,
            tracking: None,
            is_caching: false,
            is_queue_bad: false,
            is_executing: false,
            watched: Vec::new(),
            is_watch_broken: Arc::default(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            block: None,
            is_held: false,
            deadline: None,
            is_retry: false,
            stream_starts: Vec::new(),
            is_link: false,
            reply_mode: ReplyMode::On,
        };
        if session.enter_first(databases).is_err() {
            let missing = Namespace::missing(session.user.first_namespace());
            session.enter(Arc::new(missing));
        }
        session
    }

    /// The session of the link to a master, which may do everything.
    pub(crate) fn of_link(client: Arc<Client>, acl: &Acl, databases: &Databases) -> Self {
        let user = acl.master_user();
        let new = Self::new(client, acl, false, databases);
        let mut link = Self { user, is_authenticated: true, is_link: true, ..new };
        link.enter(databases.default_namespace());
        link
    }

    /// Selects a database of the namespace.
    pub(crate) fn select(&mut self, index: u8) {
        self.database = DatabaseId::of(self.namespace.id(), index);
        self.client.info().database = self.database;
    }

    /// Enters a namespace, with its first database. Watched keys of another one count as changed.
    pub(crate) fn enter(&mut self, namespace: Arc<Namespace>) {
        if namespace.id() != self.namespace.id() && !self.watched.is_empty() {
            self.is_watch_broken.store(true, Ordering::Release);
        }
        self.client.namespace.store(namespace.id(), Ordering::Release);
        namespace.name().clone_into(&mut self.client.info().namespace);
        self.may_stay = self.user.allows_namespace(namespace.name());
        self.namespace = namespace;
        self.select(0);
    }

    /// Enters the namespace in which connections of the user begin, unless it is in there. Where
    /// it does not exist, commands fail until the connection uses another. Fails with the failure
    /// of the store, and the connection stays where it was.
    pub(crate) fn enter_first(&mut self, databases: &Databases) -> Done {
        let user = self.user.clone();
        let name = user.first_namespace();
        self.may_stay = user.allows_namespace(self.namespace.name());
        if self.namespace.name() == name && !self.namespace.is_dropped() {
            return Ok(());
        }
        let found = databases.enter(name)?;
        self.enter(found.unwrap_or_else(|| Arc::new(Namespace::missing(name))));
        Ok(())
    }

    /// Makes the connection one of `default` again, as a new one.
    pub(crate) fn reset_user(&mut self, acl: &Acl, has_password: bool) {
        self.acl_generation = acl.generation();
        self.user = acl.default_user();
        self.is_authenticated = self.user.is_open() && !has_password;
        self.client.info().user.clone_from(&self.user.name);
    }

    /// Makes the connection one of a user that has logged in, in the first namespace of the user.
    /// Fails as [`Self::enter_first`] does.
    pub(crate) fn log_in(&mut self, acl: &Acl, user: Arc<User>, databases: &Databases) -> Done {
        // The next command reads the user again if it has changed since.
        self.acl_generation = 0;
        self.client.info().user.clone_from(&user.name);
        self.user = user;
        self.is_authenticated = true;
        let entered = self.enter_first(databases);
        self.refresh_user(acl);
        entered
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
        self.may_stay = self.user.allows_namespace(self.namespace.name());
        let is_kept = |names: &BTreeSet<Vec<u8>>, is_pattern| {
            names.iter().all(|name| self.user.allows_channel(name, is_pattern))
        };
        // Events of keys are those of the namespace, and so are changed keys.
        let is_told = self.tracking == Some(TrackingMode::Broadcast);
        let may_receive = self.may_stay || (self.subscription_count() == 0 && !is_told);
        let is_receiver = may_receive
            && is_kept(&self.channels, false)
            && is_kept(&self.shard_channels, false)
            && is_kept(&self.patterns, true);
        let is_monitor = self.client.is_monitor.load(Ordering::Acquire);
        if !is_receiver || (is_monitor && !acl.allows_command(&self.user, "monitor")) {
            self.revoke();
        }
    }

    fn revoke(&mut self) {
        self.is_revoked = true;
        self.is_closing = true;
    }

    /// Bytes of the commands since `MULTI`, and of the names of watched keys, of subscriptions and
    /// of prefixes.
    pub(crate) fn held_bytes(&self) -> usize {
        let queued = if self.queue.is_some() { self.queued_bytes } else { 0 };
        queued + self.name_bytes.0 + self.name_bytes.1 + self.prefix_bytes
    }

    /// Number of channels, shard channels and patterns.
    pub(crate) fn subscription_count(&self) -> usize {
        self.channels.len() + self.shard_channels.len() + self.patterns.len()
    }

    /// What it has subscribed to of one kind.
    pub(crate) fn topics(&mut self, topic: Topic) -> &mut BTreeSet<Vec<u8>> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shard_channels,
        }
    }
}
