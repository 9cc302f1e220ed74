//! One number that bounds what a database keeps in memory.
//!
//! What: a shared account from which engines, caches and the log draw before they allocate.
//! Why: an embedder gives the store one figure; nobody inside may exceed it, recovery and
//! compaction included.
//! Invariants: `used` is at most `limit`, except for [`Budget::take_anyway`] and
//! [`Budget::charge_anyway`], which replay of already acknowledged writes may use (refusing those
//! would lose data) and the work that gives memory back.
//! Thread rules: any thread; one atomic. Who draws with [`Budget::take`] holds no lock that a
//! [`Spare`] takes to give memory back.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use crate::{
    Error, Result,
    util::sync::{AtomicU64, Mutex, Ordering, lock},
};

/// So often a draw has others give back before it is refused.
const RELIEFS_MAX: u32 = 16;

/// Memory that its holder can do without: what is in it can be had again.
pub trait Spare: fmt::Debug + Send + Sync {
    /// Bytes that are drawn for it.
    fn held(&self) -> u64;
    /// Gives back at least `bytes`, or all there is; how much.
    fn give_back(&self, bytes: u64) -> u64;
}

/// The account. Bytes are estimates that include allocator overhead.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    /// What of it work has that is under way.
    lent: AtomicU64,
    spares: Mutex<Vec<Weak<dyn Spare>>>,
    /// The most that was used at once.
    #[cfg(feature = "testing")]
    peak: AtomicU64,
}

impl Budget {
    /// An account of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            spares: Mutex::new(Vec::new()),
            #[cfg(feature = "testing")]
            peak: AtomicU64::new(0),
        }
    }

    /// What may be used in all, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What is used now, in bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Has `spare` give back what others need ([`Budget::take`]).
    pub fn add_spare(&self, spare: Weak<dyn Spare>) {
        let mut spares = lock(&self.spares);
        spares.retain(|one| one.strong_count() > 0);
        spares.push(spare);
    }

    /// Draws `bytes` that have to be had: where there is not enough, who holds most that can be
    /// had again gives way, whichever table it belongs to. Refuses with [`Error::OutOfMemory`].
    pub fn take(&self, bytes: u64) -> Result<()> {
        #[cfg(feature = "testing")]
        if refusal::refuses(bytes) {
            return Err(self.out_of_memory(bytes));
        }
        if self.draw(bytes) { Ok(()) } else { self.take_from_others(bytes) }
    }

    #[cold]
    fn take_from_others(&self, bytes: u64) -> Result<()> {
        // What was given back for this draw, another thread's may have taken.
        let mut attempts = 0..RELIEFS_MAX;
        while bytes <= self.limit && attempts.next().is_some() && self.relieve(bytes) {
            if self.draw(bytes) {
                return Ok(());
            }
        }
        Err(self.out_of_memory(bytes))
    }

    /// Where so many bytes cannot be drawn, has who holds most that can be had again give back
    /// what is missing; whether another draw may succeed.
    pub fn relieve(&self, bytes: u64) -> bool {
        let missing = self.used().saturating_add(bytes).saturating_sub(self.limit);
        let spares: Vec<_> = lock(&self.spares).iter().filter_map(Weak::upgrade).collect();
        let most = spares.iter().max_by_key(|spare| spare.held());
        missing == 0 || most.is_some_and(|most| most.give_back(missing) > 0)
    }

    /// Draws `bytes` that nobody has, or refuses with [`Error::OutOfMemory`]: for who can do
    /// without.
    pub fn take_free(&self, bytes: u64) -> Result<()> {
        #[cfg(feature = "testing")]
        if refusal::refuses(bytes) {
            return Err(self.out_of_memory(bytes));
        }
        if self.draw(bytes) { Ok(()) } else { Err(self.out_of_memory(bytes)) }
    }

    /// Draws `bytes` if they are free; whether.
    #[inline]
    fn draw(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let drawn = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        #[cfg(feature = "testing")]
        if drawn {
            self.note_peak();
        }
        drawn
    }

    #[cold]
    fn out_of_memory(&self, needed: u64) -> Error {
        Error::OutOfMemory { budget: self.limit, needed }
    }

    /// Draws `bytes` even past the limit: for what is acknowledged already.
    pub fn take_anyway(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        #[cfg(feature = "testing")]
        self.note_peak();
    }

    /// Draws `bytes` even past the limit until the [`Charge`] is dropped: for the buffers of work
    /// that has to be done, which are bounded, and which give memory back in the end.
    pub fn charge_anyway(self: &Arc<Self>, bytes: u64) -> Charge {
        self.take_anyway(bytes);
        self.lent.fetch_add(bytes, Ordering::Relaxed);
        Charge { budget: Arc::clone(self), bytes }
    }

    /// Bytes that [`Charge`]s have now: they come back when their work is done.
    pub fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    #[cfg(feature = "testing")]
    fn note_peak(&self) {
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// The most that was used at once, in bytes.
    #[cfg(feature = "testing")]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Gives `bytes` back.
    pub fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "gave back {bytes} of {before}");
    }
}

/// Bytes that are drawn from a budget for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.lent.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.give(self.bytes);
    }
}

/// Memory that runs out on purpose.
///
/// Stable Rust aborts the process when an ordinary allocation fails, so a test cannot fail one and
/// look at what follows. What the store does about memory it does here, before it allocates:
/// everything large is drawn from a [`Budget`] first, and a draw can be refused. That covers "the
/// k-th allocation above 64 KiB fails" for all accounted memory; what is not accounted is small
/// and bounded.
///
/// The count is the calling thread's own, so that tests in parallel do not disturb each other.
#[cfg(feature = "testing")]
pub mod refusal {
    use std::cell::Cell;

    thread_local! {
        static PLAN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        static DRAWS: Cell<u64> = const { Cell::new(0) };
    }

    /// What counts as a large allocation unless a test says otherwise, in bytes.
    pub const LARGE_BYTES: u64 = 64 * 1024;

    /// Refuses the `number`th draw from now (the first is 1) of more than `above_bytes` that this
    /// thread makes, once. With 0, no draw is refused. Starts the count anew.
    pub fn refuse(number: u64, above_bytes: u64) {
        PLAN.set((number, above_bytes));
        DRAWS.set(0);
    }

    /// Draws above the bound since [`refuse`].
    pub fn draws() -> u64 {
        DRAWS.get()
    }

    pub(super) fn refuses(bytes: u64) -> bool {
        let (number, above_bytes) = PLAN.get();
        if bytes <= above_bytes {
            return false;
        }
        DRAWS.set(DRAWS.get() + 1);
        DRAWS.get() == number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_draw_takes_nothing_and_the_next_one_goes_through() {
        let budget = Budget::new(1 << 20);
        refusal::refuse(2, refusal::LARGE_BYTES);
        budget.take(100).unwrap();
        budget.take(100_000).unwrap();
        assert!(matches!(budget.take(100_000), Err(Error::OutOfMemory { .. })));
        assert_eq!(budget.used(), 100_100);
        budget.take(100_000).unwrap();
        assert_eq!(refusal::draws(), 3);
        refusal::refuse(0, refusal::LARGE_BYTES);
    }

    #[test]
    fn the_limit_is_never_passed_but_by_replay() {
        let budget = Budget::new(100);
        budget.take(60).unwrap();
        assert!(matches!(budget.take(41), Err(Error::OutOfMemory { budget: 100, needed: 41 })));
        assert!(budget.take(u64::MAX).is_err());
        budget.take_anyway(60);
        assert_eq!(budget.used(), 120);
        budget.give(120);
        budget.take(100).unwrap();
    }

    #[derive(Debug)]
    struct Cache(Arc<Budget>, AtomicU64);

    impl Spare for Cache {
        fn held(&self) -> u64 {
            self.1.load(Ordering::Relaxed)
        }

        fn give_back(&self, bytes: u64) -> u64 {
            let given = bytes.min(self.held());
            self.1.fetch_sub(given, Ordering::Relaxed);
            self.0.give(given);
            given
        }
    }

    #[test]
    fn who_holds_most_that_can_be_had_again_gives_way() {
        let budget = Arc::new(Budget::new(100));
        let caches = [30, 60].map(|bytes| {
            budget.take_free(bytes).unwrap();
            let cache = Arc::new(Cache(Arc::clone(&budget), AtomicU64::new(bytes)));
            let spare: Weak<dyn Spare> = Arc::downgrade(&cache) as Weak<dyn Spare>;
            budget.add_spare(spare);
            cache
        });
        assert!(budget.take_free(20).is_err());
        budget.take(20).unwrap();
        assert_eq!((caches[0].held(), caches[1].held(), budget.used()), (30, 50, 100));
        assert!(budget.take(101).is_err());
        assert_eq!((caches[0].held(), caches[1].held()), (30, 50), "in vain");
        let [small, large] = caches;
        budget.give(large.held());
        drop(large);
        budget.take(70).unwrap();
        assert_eq!((small.held(), budget.used()), (10, 100));
    }

    #[test]
    fn a_charge_is_given_back_when_it_is_dropped() {
        let budget = Arc::new(Budget::new(100));
        let charge = budget.charge_anyway(130);
        assert_eq!(budget.used(), 130);
        drop(charge);
        assert_eq!((budget.used(), budget.peak()), (0, 130));
    }
}
