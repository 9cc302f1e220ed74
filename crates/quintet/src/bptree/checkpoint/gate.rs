//! The gate: operations hold it shared, a checkpoint holds it exclusively.
//!
//! How: a few reader-writer locks. An operation takes one, chosen by its key, and a checkpoint
//! takes all. Each stripe also has the counts that its operations change, so that a checkpoint
//! reads exact sums.
//!
//! Invariants: a checkpoint has all that is done inside one [`GatePass`], or nothing.
//!
//! Threads: any thread. No thread waits for the gate while it holds a page that another needs.

use crate::{
    bptree::CountChange,
    util::{
        codec::to_usize,
        mutant::mutant,
        sync::{AtomicU64, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, read, write},
    },
};

/// Number of locks: few, because a checkpoint takes them all; enough that concurrent writers rarely
/// share one.
const STRIPES: usize = if cfg!(model) { 2 } else { 16 };

#[derive(Debug, Default)]
#[repr(align(128))]
struct GateStripe {
    lock: RwLock<()>,
    /// Wrapping differences: only the sum over all stripes is meaningful.
    keys: AtomicU64,
    bytes: AtomicU64,
}

impl GateStripe {
    fn add(&self, change: CountChange) {
        self.keys.fetch_add(change.keys.cast_unsigned(), Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes.cast_unsigned(), Ordering::Relaxed);
    }
}

/// The gate. See the module documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    stripes: Box<[GateStripe]>,
}

/// Returns a hash of a key's last eight bytes.
#[inline]
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    let end = match key.last_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => key.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// An operation inside the gate; leaves it when dropped.
pub(crate) struct GatePass<'g> {
    stripe: &'g GateStripe,
    _held: Option<RwLockReadGuard<'g, ()>>,
}

impl Gate {
    pub(crate) fn new(keys: u64, bytes: u64) -> Self {
        let stripes: Box<[GateStripe]> = (0..STRIPES).map(|_| GateStripe::default()).collect();
        if let Some(first) = stripes.first() {
            first.keys.store(keys, Ordering::Relaxed);
            first.bytes.store(bytes, Ordering::Relaxed);
        }
        Self { stripes }
    }

    /// Enters the gate; `key` selects the stripe. Waits while a checkpoint closes the gate.
    pub(crate) fn enter(&self, key: &[u8]) -> GatePass<'_> {
        let index = to_usize(key_hash(key)) % STRIPES;
        let stripe = self.stripes.get(index).unwrap_or(&self.stripes[0]);
        let held = mutant!(CutWithinOperation: None, else Some(read(&stripe.lock)));
        GatePass { stripe, _held: held }
    }

    /// Waits until no operation is inside, and keeps the gate closed until the guards are dropped.
    pub(crate) fn close(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.stripes.iter().map(|stripe| write(&stripe.lock)).collect()
    }

    /// Whether no operation is inside.
    #[cfg(test)]
    #[cfg(not(model))]
    pub(crate) fn is_empty(&self) -> bool {
        self.stripes.iter().all(|stripe| stripe.lock.try_write().is_ok())
    }

    /// Adds a change to the counts while the gate is closed.
    pub(crate) fn add(&self, change: CountChange) {
        if let Some(stripe) = self.stripes.first() {
            stripe.add(change);
        }
    }

    /// Returns the number of keys and of bytes: exact while the gate is closed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let sum = |count: fn(&GateStripe) -> &AtomicU64| {
            let counts = self.stripes.iter().map(|stripe| count(stripe).load(Ordering::Relaxed));
            counts.fold(0, u64::wrapping_add)
        };
        (sum(|stripe| &stripe.keys), sum(|stripe| &stripe.bytes))
    }
}

impl GatePass<'_> {
    /// Adds the operation's change to the counts.
    pub(crate) fn add(&self, change: CountChange) {
        self.stripe.add(change);
    }
}
