//! The memory budget: one limit for everything that a database keeps in memory.
//!
//! An embedder gives the store one number. Engines, caches and the log reserve memory here before
//! they allocate it, so that the database as a whole stays below that number, also during recovery
//! and compaction.
//!
//! Three kinds of memory are told apart:
//! - ordinary reservations, held for as long as the data structure lives;
//! - *transient* reservations ([`Reservation`]): buffers of a running flush, merge or load, which
//!   are released when that work ends, so that a writer may wait for them;
//! - *reclaimable* memory ([`Reclaimable`]): what the files hold as well. A reservation that does
//!   not fit makes the member release memory that the [`arbiter`] chooses.
//!
//! Invariants: `used` is at most `limit`, except through [`Budget::reserve_unchecked`] and
//! [`Budget::reserve_transient`]. These two are for replay of acknowledged writes, which cannot be
//! refused without data loss, and for work that releases memory when it ends.
//!
//! Locks: none is held while memory is reserved; `used` is one atomic. A caller of
//! [`Budget::reserve`] must not hold a lock that an implementation of [`Reclaimable`] takes.

mod arbiter;
mod reclaimable;

use std::sync::{Arc, Weak};

use self::arbiter::{Arbiter, MemoryKind};
pub use self::reclaimable::{Reclaimable, USES_OF_A_READ};
use crate::{
    Error, Result,
    util::sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Maximum number of times that one reservation makes a member release memory before it fails.
/// Another thread may take the memory that was reclaimed for this one.
const RECLAIMS_MAX: u32 = 64;
/// The part of the budget that a table keeps, however idle it is.
const FLOOR_PART: u64 = 64;
/// A table releases at least this many bytes for another, or this part of the budget if that is
/// less. Requests would be too frequent otherwise.
const RECLAIM_BYTES_MIN: u64 = 1 << 20;
const RECLAIM_PART: u64 = 128;

/// The account of a database's memory. Amounts are in bytes and include allocator overhead, so they
/// are estimates.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    /// The part of `used` that [`Reservation`]s hold.
    transient: AtomicU64,
    arbiter: Mutex<Arbiter>,
    members: AtomicU64,
    /// The highest value of `used` so far.
    #[cfg(feature = "testing")]
    peak: AtomicU64,
}

impl Budget {
    /// Creates an account with a limit of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            transient: AtomicU64::new(0),
            arbiter: Mutex::default(),
            members: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            peak: AtomicU64::new(0),
        }
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns how many bytes are reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Registers memory that the budget may reclaim. It is forgotten when it is dropped.
    pub fn register_reclaimable(&self, memory: Weak<dyn Reclaimable>) {
        let members = lock(&self.arbiter).add(memory);
        self.members.store(members, Ordering::Relaxed);
    }

    /// Returns how many bytes of a table others can take, some of them after a checkpoint.
    pub fn reclaimable_bytes(&self, table: u64) -> u64 {
        lock(&self.arbiter).reclaimable_bytes(table)
    }

    /// Returns the bytes that a table keeps, however idle it is. All tables together keep half of
    /// the budget at most.
    pub fn table_floor(&self) -> u64 {
        self.limit / FLOOR_PART.max(2 * self.members.load(Ordering::Relaxed))
    }

    /// Reserves `bytes`. If they do not fit, the member that the arbiter chooses releases memory,
    /// whichever table it belongs to. Fails with [`Error::OutOfMemory`] if that does not make
    /// enough room.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        #[cfg(feature = "testing")]
        if refusal::refuses(bytes) {
            return Err(self.out_of_memory(bytes));
        }
        if self.reserve_if_free(bytes) { Ok(()) } else { self.reserve_after_reclaim(bytes) }
    }

    #[cold]
    fn reserve_after_reclaim(&self, bytes: u64) -> Result<()> {
        let mut attempts = 0..RECLAIMS_MAX;
        while bytes <= self.limit && attempts.next().is_some() && self.reclaim(bytes) {
            if self.reserve_if_free(bytes) {
                return Ok(());
            }
        }
        Err(self.out_of_memory(bytes))
    }

    /// Makes a member release what is missing for a reservation of `bytes`. Returns whether another
    /// attempt may succeed: nothing was missing, or the member released something.
    pub fn reclaim(&self, bytes: u64) -> bool {
        let missing = self.used().saturating_add(bytes).saturating_sub(self.limit);
        missing == 0 || self.reclaim_chosen(None, missing)
    }

    /// Makes another table release memory for `table`, at least `bytes` of it if it can. Returns
    /// `false` if none released any. That is so if `table` has the most releasable memory for each
    /// recent use itself. It then evicts its own memory.
    pub fn reclaim_from_others(&self, table: u64, bytes: u64) -> bool {
        let bytes = bytes.max(RECLAIM_BYTES_MIN.min(self.limit / RECLAIM_PART));
        self.reclaim_chosen(Some(table), bytes)
    }

    fn reclaim_chosen(&self, requester: Option<u64>, bytes: u64) -> bool {
        [MemoryKind::Any, MemoryKind::Written].into_iter().any(|kind| {
            let chosen = lock(&self.arbiter).choose(requester, kind);
            chosen.is_some_and(|memory| memory.reclaim(bytes) > 0)
        })
    }

    /// Reserves `bytes` without reclaiming any: for memory that the caller can do without. Fails
    /// with [`Error::OutOfMemory`] if they are not free.
    pub fn try_reserve(&self, bytes: u64) -> Result<()> {
        #[cfg(feature = "testing")]
        if refusal::refuses(bytes) {
            return Err(self.out_of_memory(bytes));
        }
        if self.reserve_if_free(bytes) { Ok(()) } else { Err(self.out_of_memory(bytes)) }
    }

    #[inline]
    fn reserve_if_free(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        #[cfg(feature = "testing")]
        if reserved {
            self.record_peak();
        }
        reserved
    }

    #[cold]
    fn out_of_memory(&self, needed: u64) -> Error {
        Error::OutOfMemory { budget: self.limit, needed }
    }

    /// Reserves `bytes` even past the limit: for writes that were acknowledged already.
    pub fn reserve_unchecked(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        #[cfg(feature = "testing")]
        self.record_peak();
    }

    /// Reserves `bytes`, even past the limit, until the [`Reservation`] is dropped: for the bounded
    /// buffers of work that must be done and that releases memory when it ends.
    pub fn reserve_transient(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.reserve_unchecked(bytes);
        self.transient.fetch_add(bytes, Ordering::Relaxed);
        Reservation { budget: Arc::clone(self), bytes }
    }

    /// Returns how many bytes [`Reservation`]s hold. They are released when the work that made them
    /// ends, so a writer that lacks memory may wait for them.
    pub fn transient_bytes(&self) -> u64 {
        self.transient.load(Ordering::Relaxed)
    }

    /// Returns whether memory will be released: work that holds transient memory ends, or tables
    /// can release memory after the checkpoint that a request for it starts.
    pub fn is_release_pending(&self) -> bool {
        self.transient_bytes() > 0 || lock(&self.arbiter).has_unwritten()
    }

    #[cfg(feature = "testing")]
    fn record_peak(&self) {
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// Returns the highest number of bytes that were reserved at once.
    #[cfg(feature = "testing")]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Releases `bytes`.
    pub fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before}");
    }
}

/// A transient reservation: it is released when this value is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.transient.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.release(self.bytes);
    }
}

/// Fault injection: fails chosen reservations.
///
/// Stable Rust aborts the process when an ordinary allocation fails, so a test cannot observe what
/// follows. The store reserves everything large from a [`Budget`] before it allocates, and a
/// reservation can be failed. Memory that is not accounted is small and bounded.
///
/// The counter is thread-local, so tests that run in parallel do not disturb each other.
#[cfg(feature = "testing")]
pub mod refusal {
    use std::cell::Cell;

    thread_local! {
        static PLAN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    /// Size in bytes above which a reservation counts, unless a test chooses another size.
    pub const LARGE_BYTES: u64 = 64 * 1024;

    /// Fails, once, the `number`th reservation of more than `above_bytes` that this thread makes
    /// from
    /// now on (the first is 1). With 0, none fails. Resets the counter.
    pub fn refuse(number: u64, above_bytes: u64) {
        PLAN.set((number, above_bytes));
        COUNT.set(0);
    }

    /// Returns how many reservations above the size were made since [`refuse`].
    pub fn count() -> u64 {
        COUNT.get()
    }

    pub(super) fn refuses(bytes: u64) -> bool {
        let (number, above_bytes) = PLAN.get();
        if bytes <= above_bytes {
            return false;
        }
        COUNT.set(COUNT.get() + 1);
        COUNT.get() == number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reservation_reserves_nothing_and_the_next_one_succeeds() {
        let budget = Budget::new(1 << 20);
        refusal::refuse(2, refusal::LARGE_BYTES);
        budget.reserve(100).unwrap();
        budget.reserve(100_000).unwrap();
        assert!(matches!(budget.reserve(100_000), Err(Error::OutOfMemory { .. })));
        assert_eq!(budget.used(), 100_100);
        budget.reserve(100_000).unwrap();
        assert_eq!(refusal::count(), 3);
        refusal::refuse(0, refusal::LARGE_BYTES);
    }

    #[test]
    fn only_unchecked_reservations_exceed_the_limit() {
        let budget = Budget::new(100);
        budget.reserve(60).unwrap();
        assert!(matches!(budget.reserve(41), Err(Error::OutOfMemory { budget: 100, needed: 41 })));
        assert!(budget.reserve(u64::MAX).is_err());
        budget.reserve_unchecked(60);
        assert_eq!(budget.used(), 120);
        budget.release(120);
        budget.reserve(100).unwrap();
    }

    #[derive(Debug)]
    struct Cache(Arc<Budget>, AtomicU64);

    impl Reclaimable for Cache {
        fn table_id(&self) -> u64 {
            1
        }

        fn reclaimable_bytes(&self) -> u64 {
            self.1.load(Ordering::Relaxed)
        }

        fn reclaim(&self, bytes: u64) -> u64 {
            let released = bytes.min(self.reclaimable_bytes());
            self.1.fetch_sub(released, Ordering::Relaxed);
            self.0.release(released);
            released
        }
    }

    #[test]
    fn the_largest_unused_cache_shrinks() {
        let budget = Arc::new(Budget::new(100));
        let caches = [30, 60].map(|bytes| {
            budget.try_reserve(bytes).unwrap();
            let cache = Arc::new(Cache(Arc::clone(&budget), AtomicU64::new(bytes)));
            let registered: Weak<dyn Reclaimable> = Arc::downgrade(&cache) as Weak<dyn Reclaimable>;
            budget.register_reclaimable(registered);
            cache
        });
        assert!(budget.try_reserve(20).is_err());
        budget.reserve(20).unwrap();
        assert_eq!(
            (caches[0].reclaimable_bytes(), caches[1].reclaimable_bytes(), budget.used()),
            (30, 50, 100)
        );
        assert!(budget.reserve(101).is_err());
        assert_eq!(
            (caches[0].reclaimable_bytes(), caches[1].reclaimable_bytes()),
            (30, 50),
            "in vain"
        );
        let [small, large] = caches;
        budget.release(large.reclaimable_bytes());
        drop(large);
        budget.reserve(70).unwrap();
        assert_eq!((small.reclaimable_bytes(), budget.used()), (10, 100));
    }

    #[test]
    fn a_transient_reservation_is_released_when_it_is_dropped() {
        let budget = Arc::new(Budget::new(100));
        let reservation = budget.reserve_transient(130);
        assert_eq!(budget.used(), 130);
        drop(reservation);
        assert_eq!((budget.used(), budget.peak()), (0, 130));
    }
}
