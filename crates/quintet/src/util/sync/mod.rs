//! Synchronisation primitives: those of `std`, or those of a model checker.
//!
//! Ordinary builds use `std`. `--cfg loom` and `--cfg shuttle` (either sets `cfg(model)`) replace
//! atomics, locks and threads by the checker's. Code that a model covers takes them from here and
//! never from `std`. With `--cfg tsan` the locks are those of [`tsan_locks`], which
//! `ThreadSanitizer` can see.
//!
//! Besides: a fair lock ([`fair_mutex`]), work that one thread does for all ([`shared_work`]),
//! cache padding ([`CachePadded`]) and a spinning wait ([`Backoff`]).

pub mod fair_mutex;
#[cfg(all(test, model))]
pub mod model_check;
pub mod shared_work;
#[cfg(tsan)]
pub mod tsan_locks;

#[cfg(not(tsan))]
pub use std::sync::OnceLock;
#[cfg(not(any(model, tsan)))]
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(model))]
pub use std::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::{self, Thread, yield_now},
};
#[cfg(tsan)]
pub use tsan_locks::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::{
        Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::{self, Thread, yield_now},
};

#[cfg(shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::{
        Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::{self, Thread, yield_now},
};

// Only the simulated system waits on conditions.
#[cfg(all(feature = "testing", loom))]
pub use loom::sync::Condvar;
#[cfg(all(feature = "testing", shuttle))]
pub use shuttle::sync::Condvar;
#[cfg(all(feature = "testing", not(any(model, tsan))))]
pub use std::sync::Condvar;
#[cfg(all(feature = "testing", tsan))]
pub use tsan_locks::Condvar;

/// A value that shares no cache line with another: its writers do not slow down readers of its
/// neighbours. Aligned to 128 bytes, two lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Parks the thread for at most `time`. In a model time does not pass: any pause may be over at
/// once.
#[cfg(not(model))]
pub fn park_timeout(time: std::time::Duration) {
    thread::park_timeout(time);
}

/// Yields: in a model any pause may be over at once.
#[cfg(model)]
pub fn park_timeout(_time: std::time::Duration) {
    yield_now();
}

/// Number of waits in which a waiter spins. Then it yields its time slice.
const SPINS: u32 = if cfg!(model) { 1 } else { 128 };
/// Number of waits after which a waiter sleeps: it waits for something slow, often a disk read.
const YIELDS_END: u32 = if cfg!(model) { u32::MAX } else { 256 };
/// Duration of a sleep.
const SLEEP: std::time::Duration = std::time::Duration::from_micros(20);

/// A wait for another thread that takes longer each time: spins, then yields, then sleeps.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// Waits once.
    pub fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..SPINS => spin_loop(),
            SPINS..YIELDS_END => yield_now(),
            _ => park_timeout(SLEEP),
        }
    }

    /// Returns the number of waits.
    pub const fn count(&self) -> u32 {
        self.0
    }
}

/// Locks `mutex`, poisoned or not. A panic of an earlier holder does not spread: the data of our
/// locks is consistent between statements, and a failed operation reports through `Error`.
#[cfg(not(model))]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `mutex`, poisoned or not, unless it is locked already.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Locks `lock` for reading, poisoned or not, unless that would wait.
pub fn try_read<T>(lock: &RwLock<T>) -> Option<RwLockReadGuard<'_, T>> {
    match lock.try_read() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Locks `mutex`, poisoned or not: one of the checker's, or of `std` in code that no model covers.
#[cfg(model)]
pub fn lock<M: Lockable + ?Sized>(mutex: &M) -> M::Guard<'_> {
    mutex.acquire()
}

/// A mutex of the checker or of `std`.
#[cfg(model)]
pub trait Lockable {
    /// The guard that holds the lock.
    type Guard<'a>
    where
        Self: 'a;
    /// Locks, poisoned or not.
    fn acquire(&self) -> Self::Guard<'_>;
}

#[cfg(model)]
impl<T> Lockable for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        self.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(model)]
impl<T> Lockable for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        self.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(model)]
impl<M: Lockable> Lockable for CachePadded<M> {
    type Guard<'a>
        = M::Guard<'a>
    where
        M: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        self.0.acquire()
    }
}

/// Locks `lock` for reading, poisoned or not, as [`lock()`] does.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `lock` for writing, poisoned or not, as [`lock()`] does.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks of the standard library in every build. `io` waits for the operating system, which no
/// model checker schedules.
pub mod system {
    use std::sync::PoisonError;

    #[cfg(tsan)]
    pub use super::tsan_locks::{Condvar, Mutex, MutexGuard};
    #[cfg(not(tsan))]
    pub use std::sync::{Condvar, Mutex, MutexGuard};

    /// Locks `mutex`, poisoned or not, as [`super::lock()`] does.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
