//! Changed keys for clients that cache what they have read. A commit reports them under the stripes
//! of the keys, where it tells who watches them (`events.rs`).
//!
//! Invariant: a read of a client that caches is noted under the stripe of its key. So a change of
//! the key is either seen by the read, or reported after it.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What a commit has changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedKeys<'k> {
    /// The client that has changed it, or 0 for none.
    pub(crate) client: u64,
    /// Namespaces in which a database lost all its keys, before the changes of `keys`.
    pub(crate) flushed: &'k [u32],
    /// Keys, each with the id of its namespace.
    pub(crate) keys: &'k [(u32, &'k [u8])],
}

type Receive = Box<dyn Fn(&ChangedKeys<'_>) + Send + Sync>;

/// Where changed keys are reported.
#[derive(Default)]
pub(crate) struct Invalidations {
    /// Number of clients that cache.
    clients: Arc<AtomicUsize>,
    receiver: OnceLock<Receive>,
}

impl fmt::Debug for Invalidations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invalidations").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl Invalidations {
    /// Connects changed keys to their receiver.
    pub(crate) fn connect(&self, receive: impl Fn(&ChangedKeys<'_>) + Send + Sync + 'static) {
        // A store has one receiver for its life.
        let _ = self.receiver.set(Box::new(receive));
    }

    /// The number of clients that cache, which the receiver keeps.
    pub(crate) fn clients(&self) -> Arc<AtomicUsize> {
        self.clients.clone()
    }

    /// Whether a client caches. One load.
    pub(super) fn is_wanted(&self) -> bool {
        self.clients.load(Ordering::Acquire) > 0
    }

    /// Reports what a commit has changed. The caller holds the stripes of the keys.
    pub(super) fn report(&self, changed: &ChangedKeys<'_>) {
        if let Some(receive) = self.receiver.get() {
            receive(changed);
        }
    }

    /// Reports that a namespace has lost its keys. The caller holds all stripes, or no client can
    /// read the keys.
    pub(crate) fn report_flush(&self, namespace: u32) {
        if self.is_wanted() {
            self.report(&ChangedKeys { client: 0, flushed: &[namespace], keys: &[] });
        }
    }
}
