//! Client-side caching (`CLIENT TRACKING`): tells clients which keys that they cache have changed.
//!
//! A client in the default mode learns of keys that it has read. A table has each such key with
//! its readers (`table.rs`). A change removes the key from the table and tells the readers, which
//! are noted again when they read it again. The table is bounded: above its limits a key is removed
//! and its readers get a message, as if it had changed.
//!
//! A client in broadcast mode learns of all changed keys with its prefixes, whatever it has read.
//! It gets one message for each of its prefixes and each commit.
//!
//! Keys of the databases of one namespace are not told apart, as in Redis. Those of different
//! namespaces are.
//!
//! Locks: the state is taken under stripes, and around the information and the outbox of clients.

mod prefixes;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

pub(crate) use prefixes::Overlap;
use prefixes::Prefixes;
use table::{Readers, Table};

use super::{
    client_tracking::{ClientTracking, TrackingMode},
    clients::Client,
    settings::Settings,
};
use crate::{resp::Reply, store::ChangedKeys};

/// The channel of messages to a connection with RESP2.
const CHANNEL: &str = "__redis__:invalidate";

/// Sums for `INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackingTotals {
    /// Clients.
    pub(crate) clients: usize,
    /// Keys in the table.
    pub(crate) keys: usize,
    /// Readers of these keys.
    pub(crate) items: usize,
    /// Prefixes of clients in broadcast mode.
    pub(crate) prefixes: usize,
    /// Memory of the table, estimated.
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct Tracker {
    client: Arc<Client>,
    /// The connection that gets its messages, by number; `None` for its own.
    redirect: Option<(u64, Weak<Client>)>,
    prefixes: BTreeSet<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    trackers: BTreeMap<u64, Tracker>,
    prefixes: Prefixes,
    table: Table,
}

/// All clients that cache, and what they cache.
#[derive(Debug)]
pub(crate) struct Tracking {
    state: Mutex<State>,
    /// Number of clients that cache.
    clients: Arc<AtomicUsize>,
    settings: Arc<Settings>,
}

impl Tracking {
    /// No client caches. `clients` is their number for those who report changes.
    pub(crate) fn new(clients: Arc<AtomicUsize>, settings: Arc<Settings>) -> Self {
        Self { state: Mutex::default(), clients, settings }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to tell a client of changed keys, or changes how. New prefixes are added to its old
    /// ones. A call in broadcast mode without one adds the empty prefix. Returns the bytes of all
    /// its prefixes. Fails if two of them overlap; nothing changes then.
    pub(crate) fn enable(
        &self,
        client: &Arc<Client>,
        tracking: ClientTracking,
        target: Option<&Arc<Client>>,
        prefixes: &[&[u8]],
    ) -> Result<usize, Overlap> {
        let mut state = self.lock();
        let State { trackers, prefixes: all, .. } = &mut *state;
        if let Some(overlap) = trackers.get(&client.id).map_or_else(
            || prefixes::overlap(&BTreeSet::new(), prefixes),
            |own| prefixes::overlap(&own.prefixes, prefixes),
        ) {
            return Err(overlap);
        }
        let is_broadcast = tracking.mode == TrackingMode::Broadcast;
        let tracker = trackers.entry(client.id).or_insert_with(|| {
            self.clients.fetch_add(1, Ordering::AcqRel);
            Tracker { client: client.clone(), redirect: None, prefixes: BTreeSet::new() }
        });
        tracker.redirect = target.map(|target| (target.id, Arc::downgrade(target)));
        let every: &[&[u8]] = &[b""];
        let new = match prefixes {
            _ if !is_broadcast => &[],
            [] => every,
            some => some,
        };
        for prefix in new {
            if tracker.prefixes.insert(prefix.to_vec()) {
                all.add(prefix, client.id);
            }
        }
        client.info().tracking = Some(tracking);
        Ok(tracker.prefixes.iter().map(|prefix| super::name_bytes(prefix)).sum())
    }

    /// Ends to tell a client of changed keys. Its keys stay in the table until they change, unless
    /// it was the last client.
    pub(crate) fn disable(&self, client: &Client) {
        if client.info().tracking.is_none() {
            return;
        }
        let mut state = self.lock();
        client.info().tracking = None;
        let Some(tracker) = state.trackers.remove(&client.id) else { return };
        for prefix in &tracker.prefixes {
            state.prefixes.remove(prefix, client.id);
        }
        self.clients.fetch_sub(1, Ordering::AcqRel);
        if state.trackers.is_empty() {
            state.table = Table::default();
        }
    }

    /// The prefixes of a client, in order.
    pub(crate) fn prefixes_of(&self, client: u64) -> Vec<Vec<u8>> {
        let state = self.lock();
        let tracker = state.trackers.get(&client);
        tracker.map_or_else(Vec::new, |tracker| tracker.prefixes.iter().cloned().collect())
    }

    /// Notes that a client has read keys of a namespace. The caller holds their stripes.
    pub(crate) fn remember<'k>(
        &self,
        client: u64,
        namespace: u32,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        let keys_max = self.settings.tracking_table_max_keys.load(Ordering::Relaxed);
        let bytes_max = self.settings.maxmemory_clients.load(Ordering::Relaxed);
        let mut state = self.lock();
        for key in keys {
            state.table.insert(namespace, key, client);
        }
        while state.table.is_above(keys_max, bytes_max) {
            let Some((key, readers)) = state.table.evict() else { break };
            state.tell_readers(&readers, &key, None);
        }
    }

    /// Tells clients what a commit has changed. The caller holds the stripes of the keys.
    pub(crate) fn invalidate(&self, changed: &ChangedKeys<'_>) {
        let mut state = self.lock();
        for namespace in changed.flushed {
            state.flush(*namespace);
        }
        for (namespace, key) in changed.keys {
            if let Some(readers) = state.table.remove(*namespace, key) {
                state.tell_readers(&readers, key, Some(changed.client));
            }
        }
        state.broadcast(changed);
    }

    /// Sums for `INFO`.
    pub(crate) fn totals(&self) -> TrackingTotals {
        let state = self.lock();
        TrackingTotals {
            clients: state.trackers.len(),
            keys: state.table.keys(),
            items: state.table.items(),
            prefixes: state.prefixes.count(),
            bytes: state.table.bytes(),
        }
    }
}

impl State {
    /// Tells the readers of a key that it has changed, but for the client that has changed it if it
    /// wants that.
    fn tell_readers(&self, readers: &Readers, key: &[u8], by: Option<u64>) {
        for tracker in readers.iter().filter_map(|id| self.trackers.get(id)) {
            let is_told = tracker.client.info().tracking.is_some_and(|own| {
                own.mode != TrackingMode::Broadcast
                    && !(own.is_noloop && by == Some(tracker.client.id))
            });
            if is_told {
                send(tracker, Some(&[key]));
            }
        }
    }

    /// Tells the clients in a namespace, and those that have read its keys, that it has lost keys.
    fn flush(&mut self, namespace: u32) {
        let readers = self.table.clear(namespace);
        for (id, tracker) in &self.trackers {
            let is_inside = tracker.client.namespace.load(Ordering::Acquire) == namespace;
            if is_inside || readers.contains(id) {
                send(tracker, None);
            }
        }
    }

    /// Tells the clients in broadcast mode.
    fn broadcast(&self, changed: &ChangedKeys<'_>) {
        for ((prefix, namespace), keys) in self.prefixes.select(changed.keys) {
            let ids = self.prefixes.clients(prefix);
            for tracker in ids.filter_map(|id| self.trackers.get(id)) {
                let client = &tracker.client;
                let is_inside = client.namespace.load(Ordering::Acquire) == namespace;
                let is_noloop = client.info().tracking.is_some_and(|own| own.is_noloop);
                if is_inside && !(is_noloop && client.id == changed.client) {
                    let keys: Vec<&[u8]> = keys.iter().copied().collect();
                    send(tracker, Some(&keys));
                }
            }
        }
    }
}

/// Tells a client that keys have changed, or that all have (`None`).
fn send(tracker: &Tracker, keys: Option<&[&[u8]]>) {
    let target = match &tracker.redirect {
        None => tracker.client.clone(),
        Some((id, target)) => {
            let target = target.upgrade();
            match target.filter(|target| !target.is_killed.load(Ordering::Acquire)) {
                Some(target) => target,
                None => return note_broken(&tracker.client, *id),
            }
        }
    };
    let is_redirected = tracker.redirect.is_some();
    // With RESP2, messages are those of a channel, which another connection has subscribed to.
    let is_subscriber = is_redirected && target.is_subscriber.load(Ordering::Acquire);
    if target.info().protocol != 3 && !is_subscriber {
        return;
    }
    target.push(|reply: &mut Reply| {
        if reply.is_resp3() {
            reply.push(2);
            reply.text("invalidate");
        } else {
            reply.array(3);
            reply.text("message");
            reply.text(CHANNEL);
        }
        match keys {
            Some(keys) => {
                reply.array(keys.len());
                for key in keys {
                    reply.bulk(key);
                }
            }
            None => reply.null(),
        }
    });
}

/// Notes that the connection that gets the messages of a client has ended, and tells the client.
fn note_broken(client: &Client, id: u64) {
    let mut info = client.info();
    if let Some(tracking) = &mut info.tracking {
        tracking.is_broken = true;
    }
    let is_resp3 = info.protocol == 3;
    drop(info);
    if is_resp3 {
        client.push(|reply: &mut Reply| {
            reply.push(2);
            reply.text("tracking-redir-broken");
            reply.integer(i64::try_from(id).unwrap_or(i64::MAX));
        });
    }
}
