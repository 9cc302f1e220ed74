//! The gate: operations pass in parallel, a cut waits until none is inside.
//!
//! What: a few reader-writer locks, of which an operation takes one by its key and a cut all; and
//! beside each the figures that operations change, so that a cut finds them exact.
//! Invariants: what is done inside one [`Pass`] is in a cut whole or not at all.
//! Thread rules: nobody waits for a page that another may hold while it waits for the gate.

use crate::{
    bptree::Change,
    util::{
        codec::to_usize,
        mutant::{self, Bug},
        sync::{AtomicU64, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, read, write},
    },
};

/// Few, because a cut takes them all; enough for writers of one machine to meet rarely.
const STRIPES: usize = if cfg!(model) { 2 } else { 16 };

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    lock: RwLock<()>,
    /// Differences, which wrap: only the sum over all stripes means something.
    keys: AtomicU64,
    bytes: AtomicU64,
}

impl Stripe {
    fn note(&self, change: Change) {
        self.keys.fetch_add(change.keys.cast_unsigned(), Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes.cast_unsigned(), Ordering::Relaxed);
    }
}

/// The gate. See the module head.
#[derive(Debug)]
pub(crate) struct Gate {
    stripes: Box<[Stripe]>,
}

/// Spreads keys by their ends.
#[inline]
pub(crate) fn mixed(key: &[u8]) -> u64 {
    let end = match key.last_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => key.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// An operation inside the gate.
pub(crate) struct Pass<'g> {
    stripe: &'g Stripe,
    _held: Option<RwLockReadGuard<'g, ()>>,
}

impl Gate {
    pub(crate) fn new(keys: u64, bytes: u64) -> Self {
        let stripes: Box<[Stripe]> = (0..STRIPES).map(|_| Stripe::default()).collect();
        if let Some(first) = stripes.first() {
            first.keys.store(keys, Ordering::Relaxed);
            first.bytes.store(bytes, Ordering::Relaxed);
        }
        Self { stripes }
    }

    /// Goes in; which way is chosen by `key`.
    pub(crate) fn enter(&self, key: &[u8]) -> Pass<'_> {
        let index = to_usize(mixed(key)) % STRIPES;
        let stripe = self.stripes.get(index).unwrap_or(&self.stripes[0]);
        let held = (!mutant::active(Bug::CutWithinOperation)).then(|| read(&stripe.lock));
        Pass { stripe, _held: held }
    }

    /// Waits until nobody is inside, and keeps it so.
    pub(crate) fn close(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.stripes.iter().map(|stripe| write(&stripe.lock)).collect()
    }

    /// Whether nobody is inside.
    #[cfg(test)]
    #[cfg(not(model))]
    pub(crate) fn is_empty(&self) -> bool {
        self.stripes.iter().all(|stripe| stripe.lock.try_write().is_ok())
    }

    /// Notes what was changed while the gate is closed.
    pub(crate) fn note(&self, change: Change) {
        if let Some(stripe) = self.stripes.first() {
            stripe.note(change);
        }
    }

    /// Keys and bytes: exact while the gate is closed.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let sum = |figure: fn(&Stripe) -> &AtomicU64| {
            let figures = self.stripes.iter().map(|stripe| figure(stripe).load(Ordering::Relaxed));
            figures.fold(0, u64::wrapping_add)
        };
        (sum(|stripe| &stripe.keys), sum(|stripe| &stripe.bytes))
    }
}

impl Pass<'_> {
    /// Notes what the operation changed.
    pub(crate) fn note(&self, change: Change) {
        self.stripe.note(change);
    }
}
