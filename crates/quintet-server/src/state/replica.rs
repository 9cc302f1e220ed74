//! The state of a replica: whom it follows, how far it is, and which commands it refuses.
//!
//! `REPLICAOF` changes it, the task of replication follows it, and the dispatcher asks it.
//!
//! Locks: `applying` is taken before stripes. No thread waits for it while it holds stripes.

use std::{
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::watch;

use crate::{
    failure::{Done, Fail},
    spec::{Keys, Spec, flag},
    store::{DatabaseId, Position, Store},
};

/// A server that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Master {
    /// Its name or address.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
}

impl std::fmt::Display for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Master {
    fn encode(&self) -> Vec<u8> {
        [self.port.to_le_bytes().as_slice(), self.host.as_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (port, host) = bytes.split_first_chunk()?;
        let host = String::from_utf8(host.to_vec()).ok()?;
        Some(Self { host, port: u16::from_le_bytes(*port) })
    }
}

/// What the task does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// It waits before it connects.
    #[default]
    Connect,
    /// It connects.
    Connecting,
    /// It receives or loads a dump.
    Sync,
    /// It applies commands.
    Connected,
    /// It has failed and does not try again.
    Stopped,
}

impl LinkState {
    /// The name in `ROLE`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect | Self::Stopped => "connect",
            Self::Connecting => "connecting",
            Self::Sync => "sync",
            Self::Connected => "connected",
        }
    }
}

/// The status of the link.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkStatus {
    /// What the task does.
    pub(crate) state: LinkState,
    /// Why the link is down.
    pub(crate) error: Option<String>,
    /// Where the replica is, once it has data of the master.
    pub(crate) position: Option<Position>,
    /// When the master was last heard.
    pub(crate) heard: Option<Instant>,
    /// Since when the link is down.
    pub(crate) down: Option<Instant>,
    /// Bytes of a dump that have been received.
    pub(crate) received: u64,
    /// Full synchronizations since the start.
    pub(crate) full_syncs: u64,
    /// Partial resynchronizations since the start.
    pub(crate) partial_syncs: u64,
}

/// The number of a decision, and the server that is followed from then on.
type Target = (u64, Option<Master>);

/// The state of replication.
#[derive(Debug)]
pub(crate) struct Replication {
    /// The directory of the database, where a dump is received.
    pub(crate) dir: PathBuf,
    is_replica: AtomicBool,
    /// Whether keys are a part of a dump.
    pub(crate) is_loading: AtomicBool,
    /// The number of the last decision of what to follow.
    epoch: AtomicU64,
    /// The decision of what to follow.
    pub(crate) target: watch::Sender<Target>,
    status: Mutex<LinkStatus>,
    /// Commands that change no keys and were skipped.
    pub(crate) skipped: AtomicU64,
    /// Held while commands of the master are applied.
    applying: Mutex<()>,
    /// Held while a dump is loaded.
    load: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replication {
    /// The state at a start: what the store says. Removes the keys of a dump that was not loaded to
    /// its end.
    pub(crate) fn open(store: &Store, dir: PathBuf) -> Done<Self> {
        let databases = &store.databases;
        let master = databases.master()?.and_then(|bytes| Master::decode(&bytes));
        if databases.loading()?.is_some() {
            for database in DatabaseId::all_of(0) {
                databases.clear(database)?;
            }
            databases.end_loading(None)?;
        }
        let position = databases.position()?.and_then(|bytes| Position::decode(&bytes));
        let down = master.is_some().then(Instant::now);
        Ok(Self {
            dir,
            is_replica: AtomicBool::new(master.is_some()),
            is_loading: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            target: watch::Sender::new((0, master)),
            status: Mutex::new(LinkStatus { position, down, ..LinkStatus::default() }),
            skipped: AtomicU64::new(0),
            applying: Mutex::new(()),
            load: Mutex::new(()),
        })
    }

    /// The server that is followed.
    pub(crate) fn master(&self) -> Option<Master> {
        self.target.borrow().1.clone()
    }

    /// The status of the link.
    pub(crate) fn status(&self) -> LinkStatus {
        lock(&self.status).clone()
    }

    /// Commands that change no keys and were skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Changes the status of the link.
    pub(crate) fn note(&self, change: impl FnOnce(&mut LinkStatus)) {
        change(&mut lock(&self.status));
    }

    /// Whether the server follows another one.
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Acquire)
    }

    /// Whether the link has failed and does not try again.
    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.status).state == LinkState::Stopped
    }

    /// Waits until no commands of a master are applied, and keeps it so.
    pub(crate) fn lock_applying(&self) -> MutexGuard<'_, ()> {
        lock(&self.applying)
    }

    /// Waits until no dump is loaded, and keeps it so.
    pub(crate) fn lock_load(&self) -> MutexGuard<'_, ()> {
        lock(&self.load)
    }

    /// Whether keys are a part of a dump.
    pub(crate) fn is_loading(&self) -> bool {
        self.is_loading.load(Ordering::Acquire)
    }

    /// Whether a decision of what to follow is the last.
    pub(crate) fn is_current(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Acquire) == epoch
    }

    /// Follows a server from now on, or none. It survives a restart. When it returns, no command of
    /// a former master is applied any more. The caller must hold no stripe.
    pub(crate) fn set_master(&self, store: &Store, master: Option<Master>) -> Done {
        let _applying = lock(&self.applying);
        store.databases.set_master(master.as_ref().map(Master::encode))?;
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        self.is_replica.store(master.is_some(), Ordering::Release);
        self.note(|status| {
            let position = if master.is_some() { status.position.take() } else { None };
            let (full_syncs, partial_syncs) = (status.full_syncs, status.partial_syncs);
            let down = master.is_some().then(Instant::now);
            *status =
                LinkStatus { position, down, full_syncs, partial_syncs, ..LinkStatus::default() };
        });
        self.target.send_replace((epoch, master));
        Ok(())
    }

    /// Why a client may not run a command now.
    pub(crate) fn refusal(&self, spec: &Spec, is_link: bool) -> Option<Fail> {
        let touches_keys = spec.keys != Keys::None
            || spec.has(flag::READ | flag::WRITE | flag::KEYSPACE | flag::LOCK_ALL);
        if is_link || !touches_keys {
            return None;
        }
        if self.is_loading() {
            return Some(Fail::new("LOADING Redis is loading the dataset in memory"));
        }
        if self.is_replica() && spec.has(flag::WRITE) {
            return Some(Fail::new("READONLY You can't write against a read only replica."));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_decode_to_what_was_encoded() {
        let master = Master { host: "::1".to_owned(), port: 6379 };
        assert_eq!(master.to_string(), "[::1]:6379");
        assert_eq!(Master::decode(&master.encode()), Some(master));
        assert_eq!(Master::decode(&[1]), None);
    }
}
