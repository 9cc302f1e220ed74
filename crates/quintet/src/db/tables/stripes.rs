//! Striped versioned locks: operations on one key are logged and applied in one order.
//!
//! A fixed array of locks, each with a version, indexed by a hash of table and key. A lock for each
//! key would cost memory for each key; one lock would serialise all writers.
//!
//! A version is odd from before a commit is logged until it is applied, as in a seqlock. A reader
//! that finds the same even version before and after it reads some keys has read the values of one
//! moment, without a lock: transactions do so.
//!
//! Invariants: a version changes only under its lock, and only around a write. A thread that locks
//! several stripes locks them in ascending order, so no two commits wait for each other.
//!
//! Threads: any; plain reads lock no stripe.

use crate::util::{
    codec::{to_u64, to_usize},
    mutant::mutant,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, lock},
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

    /// Returns the number of stripes.
    pub(crate) fn count(&self) -> usize {
        self.stripes.len()
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

    /// Returns the version of a stripe. It is odd while a commit is logged and applied.
    #[inline]
    pub(crate) fn version(&self, index: StripeIndex) -> u64 {
        self.stripes.get(index.0).map_or(0, |stripe| stripe.version.load(Ordering::Acquire))
    }

    /// Waits until the write that is logged and applied under a stripe, if any, is applied. A write
    /// that begins later reads a clock that is no earlier than what the caller has read of it. The
    /// caller is not the writer.
    pub(crate) fn await_write(&self, index: StripeIndex) {
        fence(Ordering::SeqCst);
        if self.version(index) % 2 == 1 {
            drop(self.hold(index));
        }
    }

    /// Returns whether a stripe still has this even version. Then no commit on its keys was logged
    /// or applied since the version was read, as far as the reads since then can tell.
    #[inline]
    pub(crate) fn is_unchanged(&self, index: StripeIndex, version: u64) -> bool {
        fence(Ordering::Acquire);
        version.is_multiple_of(2) && self.version(index) == version
    }
}

impl WriteStripe {
    /// Marks the beginning of a write under the lock.
    #[inline]
    fn begin_write(&self) {
        mutant!(ReadDuringApply => return);
        self.version.store(self.version.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        // A reader that sees a later store of this thread sees the odd version.
        fence(Ordering::Release);
    }

    /// Marks the end of a write under the lock. Does nothing if none has begun.
    #[inline]
    fn end_write(&self) {
        let version = self.version.load(Ordering::Relaxed);
        let version = mutant!(ReadDuringApply: version | 1, else version);
        self.version.store(version + (version & 1), Ordering::Release);
    }
}

impl StripesGuard<'_> {
    /// Marks the beginning of a write under these stripes.
    pub(crate) fn begin_write(&self) {
        self.stripes.iter().for_each(|(stripe, _)| stripe.begin_write());
    }

    /// Marks the end of a write under these stripes, failed or not.
    pub(crate) fn end_write(&self) {
        self.stripes.iter().for_each(|(stripe, _)| stripe.end_write());
    }
}

impl StripeGuard<'_> {
    /// Returns the version of the stripe.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.stripe.as_ref().map_or(0, |(stripe, _)| stripe.version.load(Ordering::Relaxed))
    }

    /// Marks the beginning of a write under this stripe.
    #[inline]
    pub(crate) fn begin_write(&self) {
        if let Some((stripe, _)) = &self.stripe {
            stripe.begin_write();
        }
    }

    /// Marks the end of a write under this stripe, failed or not.
    #[inline]
    pub(crate) fn end_write(&self) {
        if let Some((stripe, _)) = &self.stripe {
            stripe.end_write();
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn versions_change_only_around_a_write() {
        let stripes = Stripes::new(8);
        let index = stripes.index(1, 42);
        drop(stripes.hold(index));
        assert_eq!(stripes.version(index), 0);
        assert!(stripes.is_unchanged(index, 0));
        let held = stripes.hold(index);
        held.end_write();
        assert!(stripes.is_unchanged(index, 0), "no write has begun");
        held.begin_write();
        assert!(!stripes.is_unchanged(index, 0) && !stripes.is_unchanged(index, 1));
        held.end_write();
        drop(held);
        assert!(stripes.is_unchanged(index, 2) && !stripes.is_unchanged(index, 0));
        drop(stripes.hold_every());
    }

    #[test]
    fn several_stripes_are_taken_once_each_and_in_order() {
        let stripes = Stripes::new(4);
        let mut indexes: Vec<_> = (0..100).map(|hash| stripes.index(9, hash)).collect();
        let held = stripes.hold_all_of(&mut indexes);
        held.begin_write();
        held.end_write();
        assert!(indexes.is_sorted());
        assert!(indexes.len() <= 4);
        assert!(indexes.iter().all(|index| stripes.version(*index) == 2));
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
                        let held = stripes.hold_all_of(&mut indexes);
                        held.begin_write();
                        held.end_write();
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!([0, 1].map(|index| stripes.version(StripeIndex(index))), [4, 4]);
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
