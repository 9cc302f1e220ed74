//! Striped versioned locks: operations on one key are logged and applied in one order.
//!
//! A fixed array of locks, each with a version, indexed by a hash of table and key. A lock for each
//! key would cost memory for each key; one lock would serialise all writers.
//!
//! Invariants: a version changes only under its lock, and only after a write. A thread that locks
//! several stripes locks them in ascending order, so no two commits wait for each other.
//!
//! Threads: any; plain reads lock no stripe.

use crate::util::{
    codec::{to_u64, to_usize},
    mutant::mutant,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// Number of stripes. Enough that 64 writers rarely meet, few enough to lock all for a range.
#[cfg(not(model))]
const STRIPE_COUNT: usize = 512;
#[cfg(model)]
const STRIPE_COUNT: usize = 4;

/// One lock, on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct WriteStripe {
    lock: Mutex<()>,
    version: AtomicU64,
}

/// The array.
#[derive(Debug)]
pub(crate) struct Stripes {
    stripes: Box<[WriteStripe]>,
}

/// The index of a key's stripe in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StripeIndex(usize);

/// Guard of locked stripes. Dropping it unlocks them.
#[derive(Debug)]
pub(crate) struct StripesGuard<'a> {
    stripes: Vec<LockedStripe<'a>>,
}

/// Guard of one locked stripe. Dropping it unlocks the stripe. A type of its own, because a put
/// has no need to drop a list.
#[derive(Debug)]
pub(crate) struct StripeGuard<'a> {
    /// `None` only with a planted bug.
    stripe: Option<LockedStripe<'a>>,
}

type LockedStripe<'a> = (&'a WriteStripe, MutexGuard<'a, ()>);

impl Default for Stripes {
    fn default() -> Self {
        Self::new(STRIPE_COUNT)
    }
}

impl Stripes {
    /// Creates `count` stripes, a power of two.
    pub(crate) fn new(count: usize) -> Self {
        let stripe = || WriteStripe { lock: Mutex::new(()), version: AtomicU64::new(0) };
        Self { stripes: (0..count).map(|_| stripe()).collect() }
    }

    /// Returns the stripe of a key, from its hash.
    #[inline]
    pub(crate) fn index(&self, table_id: u64, key_hash: u64) -> StripeIndex {
        // Engines use both ends of the hash, so it is mixed again, with the table.
        let mixed = (key_hash ^ table_id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        StripeIndex(to_usize(mixed % to_u64(self.stripes.len())))
    }

    /// Locks one stripe.
    #[inline]
    pub(crate) fn hold(&self, index: StripeIndex) -> StripeGuard<'_> {
        StripeGuard { stripe: self.lock_at(index.0) }
    }

    /// Locks several stripes in order. Sorts `indexes`.
    pub(crate) fn hold_all_of(&self, indexes: &mut Vec<StripeIndex>) -> StripesGuard<'_> {
        indexes.sort_unstable();
        indexes.dedup();
        StripesGuard { stripes: indexes.iter().filter_map(|index| self.lock_at(index.0)).collect() }
    }

    /// Locks every stripe, so that nothing commits meanwhile.
    pub(crate) fn hold_every(&self) -> StripesGuard<'_> {
        StripesGuard {
            stripes: (0..self.stripes.len()).filter_map(|index| self.lock_at(index)).collect(),
        }
    }

    fn lock_at(&self, index: usize) -> Option<LockedStripe<'_>> {
        mutant!(StripesNotLocked => return None);
        let stripe = self.stripes.get(index)?;
        Some((stripe, lock(&stripe.lock)))
    }

    /// Returns the version of a stripe. If it equals the version under the lock later, no write was
    /// applied between.
    #[inline]
    pub(crate) fn version(&self, index: StripeIndex) -> u64 {
        self.stripes.get(index.0).map_or(0, |stripe| stripe.version.load(Ordering::Acquire))
    }
}

impl StripesGuard<'_> {
    /// Records a write under these stripes.
    pub(crate) fn bump(&self) {
        for (stripe, _) in &self.stripes {
            stripe.version.fetch_add(1, Ordering::Release);
        }
    }
}

impl StripeGuard<'_> {
    /// Returns the version of the stripe.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.stripe.as_ref().map_or(0, |(stripe, _)| stripe.version.load(Ordering::Relaxed))
    }

    /// Records a write under this stripe.
    #[inline]
    pub(crate) fn bump(&self) {
        if let Some((stripe, _)) = &self.stripe {
            stripe.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn versions_change_only_with_a_bump() {
        let stripes = Stripes::new(8);
        let index = stripes.index(1, 42);
        drop(stripes.hold(index));
        assert_eq!(stripes.version(index), 0);
        let held = stripes.hold(index);
        held.bump();
        assert_eq!(held.version(), 1);
        drop(held);
        assert_eq!(stripes.version(index), 1);
        drop(stripes.hold_every());
    }

    #[test]
    fn several_stripes_are_taken_once_each_and_in_order() {
        let stripes = Stripes::new(4);
        let mut indexes: Vec<_> = (0..100).map(|hash| stripes.index(9, hash)).collect();
        let held = stripes.hold_all_of(&mut indexes);
        held.bump();
        assert!(indexes.is_sorted());
        assert!(indexes.len() <= 4);
        assert!(indexes.iter().all(|index| stripes.version(*index) == 1));
    }
}

#[cfg(all(test, model))]
mod models {
    use super::*;
    #[cfg(loom)]
    use crate::util::mutant::{Bug, finds};
    use crate::util::sync::{Arc, model_check::Exploration, thread};

    const EXPLORATION: Exploration =
        Exploration { priority_changes: 3, preemptions_max: None, ..Exploration::DEFAULT };

    fn opposite_orders_do_not_deadlock_and_versions_count() {
        EXPLORATION.explore(|| {
            let stripes = Arc::new(Stripes::new(2));
            let threads: Vec<_> = [[0, 1], [1, 0]]
                .into_iter()
                .map(|order| {
                    let stripes = Arc::clone(&stripes);
                    thread::spawn(move || {
                        let mut indexes: Vec<_> = order.map(StripeIndex).to_vec();
                        stripes.hold_all_of(&mut indexes).bump();
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!([0, 1].map(|index| stripes.version(StripeIndex(index))), [2, 2]);
        });
    }

    /// Two threads never hold one stripe at the same time.
    fn a_stripe_has_one_holder() {
        EXPLORATION.explore(|| {
            let guarded = Arc::new((Stripes::new(2), AtomicU64::new(0)));
            let add = |(stripes, count): &(Stripes, AtomicU64)| {
                let _held = stripes.hold(StripeIndex(1));
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            };
            let other = thread::spawn({
                let guarded = Arc::clone(&guarded);
                move || add(&guarded)
            });
            add(&guarded);
            other.join().unwrap();
            assert_eq!(guarded.1.load(Ordering::Relaxed), 2);
        });
    }

    #[cfg(loom)]
    #[test]
    fn loom_stripes() {
        opposite_orders_do_not_deadlock_and_versions_count();
        a_stripe_has_one_holder();
    }

    #[cfg(loom)]
    #[test]
    fn loom_finds_stripes_not_locked() {
        finds(Bug::StripesNotLocked, a_stripe_has_one_holder);
    }

    #[cfg(shuttle)]
    #[test]
    fn shuttle_stripes() {
        opposite_orders_do_not_deadlock_and_versions_count();
        a_stripe_has_one_holder();
    }
}
