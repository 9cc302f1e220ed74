//! Lock table of transactions: an exclusive lock for each key that a transaction reads for update.
//!
//! Problem: optimistic transactions on one hot key invalidate each other. A transaction that locks
//! the key first waits for its turn, and its commit then succeeds.
//!
//! How: shards map a locked key to its holder and a queue of parked waiters. Release hands the lock
//! to the waiter that has waited longest. A wait-for graph with one edge for each waiting
//! transaction finds deadlocks: the transaction whose wait would close a cycle gives up.
//!
//! Invariants:
//! - A lock without waiters has no edge to it. The holder of a lock with waiters changes only under
//!   the graph's lock, so a search sees one moment.
//! - A transaction that a lock is handed to waits for nothing, so a hand-over closes no cycle.
//! - The locks bind transactions among themselves. Commits do not look at them.
//!
//! Locks: a shard, then the graph. A thread waits for a key lock with no other lock held.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

use crate::{
    Result,
    io::{Env, Stopwatch},
    util::{
        codec::to_usize,
        mutant::mutant,
        sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Thread, lock, thread},
    },
};

/// Number of shards: enough that threads that lock different keys rarely meet.
const SHARD_COUNT: u64 = if cfg!(model) { 2 } else { 64 };
/// Longest time that a waiter sleeps before it checks that the database is still open.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// A key that can be locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockKey {
    pub(crate) table_id: u64,
    pub(crate) key: Box<[u8]>,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    /// The transaction holds the lock.
    Granted,
    /// The holder of the lock waits, directly or not, for this transaction.
    Deadlock,
    /// The lock was not free in time.
    TimedOut,
}

/// The lock table.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    shards: Box<[Mutex<HashMap<LockKey, KeyLock>>]>,
    /// The transactions that wait, each with the holder of the lock that it waits for.
    waits: Mutex<HashMap<u64, Arc<AtomicU64>>>,
    owners_total: AtomicU64,
}

/// A lock that is held.
#[derive(Debug)]
struct KeyLock {
    /// Shared with the edges of the waiters.
    holder: Arc<AtomicU64>,
    waiters: VecDeque<Arc<LockWaiter>>,
}

#[derive(Debug)]
struct LockWaiter {
    owner: u64,
    thread: Thread,
    is_granted: AtomicBool,
}

impl Default for KeyLocks {
    fn default() -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::new(HashMap::new())).collect(),
            waits: Mutex::new(HashMap::new()),
            owners_total: AtomicU64::new(0),
        }
    }
}

impl KeyLocks {
    /// Returns the number of a new transaction. No other has it.
    pub(crate) fn new_owner(&self) -> u64 {
        self.owners_total.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks a key with this hash for `owner`, which does not hold it. Waits at most `timeout`.
    /// Fails as soon as `check` does.
    pub(crate) fn lock(
        &self,
        owner: u64,
        (key, hash): (&LockKey, u64),
        (env, timeout): (&dyn Env, Duration),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<LockOutcome> {
        let waiter = {
            let mut shard = lock(self.shard(hash));
            match shard.entry(key.clone()) {
                Entry::Vacant(vacant) => {
                    let holder = Arc::new(AtomicU64::new(owner));
                    vacant.insert(KeyLock { holder, waiters: VecDeque::new() });
                    return Ok(LockOutcome::Granted);
                }
                Entry::Occupied(mut held) => {
                    let held = held.get_mut();
                    if !self.begin_wait(owner, &held.holder) {
                        return Ok(LockOutcome::Deadlock);
                    }
                    let waiter = Arc::new(LockWaiter {
                        owner,
                        thread: thread::current(),
                        is_granted: AtomicBool::new(false),
                    });
                    held.waiters.push_back(Arc::clone(&waiter));
                    waiter
                }
            }
        };
        let watch = Stopwatch::start();
        let outcome = self.await_grant(&waiter, (key, hash), (env, timeout), check);
        watch.stop(|counters, time| {
            counters.lock_waits += 1;
            counters.lock_wait_time += time;
        });
        outcome
    }

    /// Waits until a waiter is granted the lock, or `timeout` is over, or `check` fails.
    fn await_grant(
        &self,
        waiter: &Arc<LockWaiter>,
        (key, hash): (&LockKey, u64),
        (env, timeout): (&dyn Env, Duration),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<LockOutcome> {
        let start = env.monotonic();
        loop {
            if waiter.is_granted.load(Ordering::Acquire) {
                return Ok(LockOutcome::Granted);
            }
            let left = timeout.saturating_sub(env.monotonic().saturating_sub(start));
            let checked = check();
            if left.is_zero() || checked.is_err() {
                return match (self.cancel(waiter, (key, hash)), checked) {
                    (false, Ok(())) => Ok(LockOutcome::Granted),
                    (true, Ok(())) => Ok(LockOutcome::TimedOut),
                    (was_waiting, Err(error)) => {
                        if !was_waiting {
                            self.unlock(waiter.owner, (key, hash));
                        }
                        Err(error)
                    }
                };
            }
            env.pause(left.min(WAIT_STEP));
        }
    }

    /// Adds the edge of a transaction that begins to wait. Returns `false`, and adds nothing, if it
    /// would close a cycle.
    fn begin_wait(&self, owner: u64, holder: &Arc<AtomicU64>) -> bool {
        let mut waits = lock(&self.waits);
        let mut next = holder.load(Ordering::Relaxed);
        loop {
            if next == owner {
                mutant!(DeadlockNotDetected => break);
                return false;
            }
            match waits.get(&next) {
                Some(holder) => next = holder.load(Ordering::Relaxed),
                None => break,
            }
        }
        waits.insert(owner, Arc::clone(holder));
        true
    }

    /// Ends a wait. Returns `false` if the lock was granted meanwhile.
    fn cancel(&self, waiter: &Arc<LockWaiter>, (key, hash): (&LockKey, u64)) -> bool {
        let mut shard = lock(self.shard(hash));
        if waiter.is_granted.load(Ordering::Acquire) {
            return false;
        }
        if let Some(held) = shard.get_mut(key) {
            held.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        lock(&self.waits).remove(&waiter.owner);
        true
    }

    /// Releases a lock of `owner`. The next waiter gets it.
    pub(crate) fn unlock(&self, owner: u64, (key, hash): (&LockKey, u64)) {
        let mut shard = lock(self.shard(hash));
        let Some(held) = shard.get_mut(key) else { return };
        debug_assert_eq!(held.holder.load(Ordering::Relaxed), owner);
        let next = mutant!(LockGoesToLastWaiter: held.waiters.pop_back(), else
            held.waiters.pop_front());
        let Some(next) = next else {
            shard.remove(key);
            return;
        };
        {
            let mut waits = lock(&self.waits);
            waits.remove(&next.owner);
            held.holder.store(next.owner, Ordering::Relaxed);
        }
        // Under the shard's lock: a waiter that gives up meanwhile would leave the lock held.
        next.is_granted.store(true, Ordering::Release);
        drop(shard);
        next.thread.unpark();
    }

    /// Returns the number of locked keys.
    #[cfg(test)]
    pub(crate) fn locked_count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
    fn shard(&self, hash: u64) -> &Mutex<HashMap<LockKey, KeyLock>> {
        &self.shards[to_usize(hash % SHARD_COUNT)]
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::{
        Error,
        io::os::OsEnv,
        util::mutant::{Bug, finds},
    };

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(30);

    fn key(name: &str) -> (LockKey, u64) {
        let hash = name.bytes().map(u64::from).sum();
        (LockKey { table_id: 1, key: name.as_bytes().into() }, hash)
    }

    fn request(locks: &KeyLocks, owner: u64, name: &str, timeout: Duration) -> LockOutcome {
        let (key, hash) = key(name);
        locks.lock(owner, (&key, hash), (&OsEnv::new(), timeout), &|| Ok(())).unwrap()
    }

    fn unlock(locks: &KeyLocks, owner: u64, name: &str) {
        let (key, hash) = key(name);
        locks.unlock(owner, (&key, hash));
    }

    fn waiting(locks: &KeyLocks) -> usize {
        lock(&locks.waits).len()
    }

    fn waiters_get_the_lock_in_their_order() {
        let (locks, order) = (KeyLocks::default(), Mutex::new(Vec::new()));
        assert_eq!(request(&locks, 0, "k", LONG), LockOutcome::Granted);
        thread::scope(|scope| {
            let (locks, order) = (&locks, &order);
            for owner in 1..=3 {
                scope.spawn(move || {
                    assert_eq!(request(locks, owner, "k", LONG), LockOutcome::Granted);
                    lock(order).push(owner);
                    unlock(locks, owner, "k");
                });
                while waiting(locks) < to_usize(owner) {
                    crate::util::sync::yield_now();
                }
            }
            unlock(locks, 0, "k");
        });
        assert_eq!(*lock(&order), [1, 2, 3]);
        assert_eq!((locks.locked_count(), waiting(&locks)), (0, 0));
    }

    #[test]
    fn a_lock_is_handed_over_in_order_of_arrival() {
        waiters_get_the_lock_in_their_order();
        finds(Bug::LockGoesToLastWaiter, waiters_get_the_lock_in_their_order);
    }

    #[test]
    fn a_wait_ends_with_the_timeout_or_with_a_failed_check() {
        let locks = KeyLocks::default();
        assert_eq!(request(&locks, 0, "k", LONG), LockOutcome::Granted);
        assert_eq!(request(&locks, 1, "k", SHORT), LockOutcome::TimedOut);
        assert_eq!(request(&locks, 1, "k", Duration::ZERO), LockOutcome::TimedOut);
        let (key, hash) = key("k");
        let closed = locks.lock(1, (&key, hash), (&OsEnv::new(), LONG), &|| Err(Error::Closed));
        assert!(matches!(closed, Err(Error::Closed)));
        assert_eq!((locks.locked_count(), waiting(&locks)), (1, 0));
        unlock(&locks, 0, "k");
        assert_eq!(request(&locks, 1, "k", SHORT), LockOutcome::Granted);
    }

    /// Three owners hold a key each and ask for the next one's. The last request, which closes the
    /// cycle, is made by this thread.
    fn the_request_that_closes_a_cycle_gives_up() {
        let locks = KeyLocks::default();
        let names = ["a", "b", "c"];
        for (owner, name) in (0..).zip(names) {
            assert_eq!(request(&locks, owner, name, LONG), LockOutcome::Granted);
        }
        thread::scope(|scope| {
            let locks = &locks;
            for owner in [0, 1] {
                scope.spawn(move || {
                    let number = to_usize(owner);
                    assert_eq!(
                        request(locks, owner, names[number + 1], LONG),
                        LockOutcome::Granted
                    );
                    unlock(locks, owner, names[number + 1]);
                    unlock(locks, owner, names[number]);
                });
                while waiting(locks) < to_usize(owner) + 1 {
                    crate::util::sync::yield_now();
                }
            }
            let outcome = request(locks, 2, "a", SHORT);
            unlock(locks, 2, "c");
            assert_eq!(outcome, LockOutcome::Deadlock);
        });
        assert_eq!((locks.locked_count(), waiting(&locks)), (0, 0));
    }

    #[test]
    fn a_deadlock_has_one_victim() {
        the_request_that_closes_a_cycle_gives_up();
        finds(Bug::DeadlockNotDetected, the_request_that_closes_a_cycle_gives_up);
    }

    #[test]
    fn one_thread_at_a_time_holds_a_lock() {
        let (locks, count) = (KeyLocks::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            for owner in 0..4 {
                let (locks, count) = (&locks, &count);
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        assert_eq!(request(locks, owner, "k", LONG), LockOutcome::Granted);
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                        unlock(locks, owner, "k");
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 4_000);
        assert_eq!((locks.locked_count(), waiting(&locks)), (0, 0));
    }
}
