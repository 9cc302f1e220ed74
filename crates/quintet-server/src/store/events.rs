//! Clients that watch keys, and clients that wait for elements of keys. A commit notifies them.
//!
//! `invalidations.rs` and `notifications.rs` have other receivers of changes.
//!
//! Locks: `watched` and `waiting` are taken under stripes and never around them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use super::{database_id::DatabaseId, invalidations::Invalidations, notifications::Notifications};

/// A database and a key.
pub(crate) type KeyName = (DatabaseId, Vec<u8>);

/// Clients that wait for a key, the first one first.
type WaitQueue = Vec<(u64, Arc<Notify>)>;

/// Clients that a commit notifies.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    watched: Mutex<HashMap<KeyName, Vec<Arc<AtomicBool>>>>,
    watched_count: AtomicUsize,
    waiting: Mutex<HashMap<KeyName, WaitQueue>>,
    waiting_count: AtomicUsize,
    /// Changed keys for clients that cache.
    pub(crate) invalidations: Invalidations,
    /// Events of keys.
    pub(crate) notifications: Notifications,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Changes {
    /// Sets `flag` when the key changes. The caller must hold the key's stripe.
    pub(crate) fn watch(&self, name: KeyName, flag: &Arc<AtomicBool>) {
        let mut watched = lock(&self.watched);
        watched.entry(name).or_default().push(flag.clone());
        self.watched_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the watch of keys.
    pub(crate) fn unwatch(&self, names: &[KeyName], flag: &Arc<AtomicBool>) {
        let mut watched = lock(&self.watched);
        for name in names {
            let Some(flags) = watched.get_mut(name) else { continue };
            if let Some(at) = flags.iter().position(|other| Arc::ptr_eq(other, flag)) {
                flags.swap_remove(at);
                self.watched_count.fetch_sub(1, Ordering::AcqRel);
            }
            if flags.is_empty() {
                watched.remove(name);
            }
        }
    }

    /// Registers a client that waits for elements of keys, behind those that wait already. The
    /// caller must hold the stripes of the keys.
    pub(crate) fn wait(&self, names: &[KeyName], client: u64, wake: &Arc<Notify>) {
        let mut waiting = lock(&self.waiting);
        for name in names {
            let queue = waiting.entry(name.clone()).or_default();
            if !queue.iter().any(|(other, _)| *other == client) {
                queue.push((client, wake.clone()));
                self.waiting_count.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Removes a client that waits. Wakes the next one, which may take what is left.
    pub(crate) fn end_wait(&self, names: &[KeyName], client: u64) {
        let mut waiting = lock(&self.waiting);
        for name in names {
            let Some(queue) = waiting.get_mut(name) else { continue };
            if let Some(at) = queue.iter().position(|(other, _)| *other == client) {
                queue.remove(at);
                self.waiting_count.fetch_sub(1, Ordering::AcqRel);
            }
            match queue.first() {
                Some((_, wake)) => wake.notify_one(),
                None => drop(waiting.remove(name)),
            }
        }
    }

    /// Wakes the clients behind one that a change has not served.
    pub(crate) fn pass_on(&self, names: &[KeyName], client: u64) {
        let waiting = lock(&self.waiting);
        for queue in names.iter().filter_map(|name| waiting.get(name)) {
            let behind = queue.iter().skip_while(|(other, _)| *other != client).nth(1);
            if let Some((_, wake)) = behind {
                wake.notify_one();
            }
        }
    }

    /// Number of clients that wait, once for each key.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting_count.load(Ordering::Acquire)
    }

    /// Tells about a changed key. The caller holds its stripe.
    pub(crate) fn changed(&self, database: DatabaseId, key: &[u8]) {
        if self.watched_count.load(Ordering::Acquire) > 0 {
            let watched = lock(&self.watched);
            for flag in watched.get(&(database, key.to_vec())).into_iter().flatten() {
                flag.store(true, Ordering::Release);
            }
        }
        if self.waiting_count() > 0 {
            let waiting = lock(&self.waiting);
            let queue = waiting.get(&(database, key.to_vec()));
            // The first one wakes the next when it has been served, or if it cannot be served.
            if let Some((_, wake)) = queue.and_then(|queue| queue.first()) {
                wake.notify_one();
            }
        }
    }

    /// The names of the watched keys of databases.
    pub(super) fn watched_names(&self, databases: &[DatabaseId]) -> Vec<KeyName> {
        if self.watched_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let watched = lock(&self.watched);
        watched.keys().filter(|(own, _)| databases.contains(own)).cloned().collect()
    }

    /// Wakes the first client of each key of a database whose keys have been exchanged or removed.
    pub(super) fn wake_all(&self, database: DatabaseId) {
        if self.waiting_count() == 0 {
            return;
        }
        for (_, queue) in lock(&self.waiting).iter().filter(|((own, _), _)| *own == database) {
            // It wakes the next when it has been served, or if it cannot be served.
            if let Some((_, wake)) = queue.first() {
                wake.notify_one();
            }
        }
    }

    /// Tells about a database whose keys have all changed.
    pub(crate) fn changed_all(&self, database: DatabaseId) {
        for (_, flags) in lock(&self.watched).iter().filter(|((index, _), _)| *index == database) {
            for flag in flags {
                flag.store(true, Ordering::Release);
            }
        }
        for (_, queue) in lock(&self.waiting).iter().filter(|((index, _), _)| *index == database) {
            for (_, wake) in queue {
                wake.notify_one();
            }
        }
    }
}
