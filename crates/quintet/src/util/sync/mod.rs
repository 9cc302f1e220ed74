//! The synchronisation primitives that the rest of the crate uses, so that a model checker can
//! stand in for them.
//!
//! Ordinary builds use `std`; `--cfg loom` and `--cfg shuttle` exchange atomics, locks and threads
//! for the checkers' own. Nothing outside this module names `std::sync::atomic`, `Mutex`, `RwLock`
//! or `Condvar` in code that a model covers (`wal`, `db::stripes`). With `--cfg tsan` the locks
//! are [`announced`]: the thread sanitizer sees them change hands.

#[cfg(tsan)]
pub mod announced;
#[cfg(all(test, any(loom, shuttle)))]
pub mod models;
pub mod turns;

#[cfg(tsan)]
pub use announced::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(tsan))]
pub use std::sync::OnceLock;
#[cfg(not(any(loom, shuttle, tsan)))]
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::{self, Thread, yield_now},
};

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

// The simulated system alone waits on conditions.
#[cfg(all(feature = "testing", tsan))]
pub use announced::Condvar;
#[cfg(all(feature = "testing", loom))]
pub use loom::sync::Condvar;
#[cfg(all(feature = "testing", shuttle))]
pub use shuttle::sync::Condvar;
#[cfg(all(feature = "testing", not(any(loom, shuttle, tsan))))]
pub use std::sync::Condvar;

/// A value on cache lines of its own: who reads its neighbours need not wait until these lines come
/// from the processor of whoever writes it.
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

/// Parks the thread for at most `time`.
#[cfg(not(any(loom, shuttle)))]
pub fn park_timeout(time: std::time::Duration) {
    thread::park_timeout(time);
}

/// In a model time does not pass: any pause may be over at once.
#[cfg(any(loom, shuttle))]
pub fn park_timeout(_time: std::time::Duration) {
    yield_now();
}

/// Spins before a waiter gives its time slice away.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 128 };
/// Turns after which a waiter sleeps between looks: what it waits for takes long, often a read of
/// the disk.
const TURNS: u32 = if cfg!(any(loom, shuttle)) { u32::MAX } else { 256 };
const NAP: std::time::Duration = std::time::Duration::from_micros(20);

/// Waits a little longer each time.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// Waits once.
    pub fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..SPINS => spin_loop(),
            SPINS..TURNS => yield_now(),
            _ => park_timeout(NAP),
        }
    }

    /// How often it waited.
    pub const fn count(&self) -> u32 {
        self.0
    }
}

#[cfg(not(any(loom, shuttle)))]
/// Locks `mutex`. A panic elsewhere while it was held does not spread: what our locks guard is
/// consistent between statements, and a failed operation reports through `Error`.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// As above, for the checkers' mutexes and for those of `std` in code that no model covers.
#[cfg(any(loom, shuttle))]
pub fn lock<M: Lockable + ?Sized>(mutex: &M) -> M::Guard<'_> {
    mutex.acquire()
}

/// A mutex of any kind.
#[cfg(any(loom, shuttle))]
pub trait Lockable {
    /// What holds it.
    type Guard<'a>
    where
        Self: 'a;
    /// Locks it, poisoned or not.
    fn acquire(&self) -> Self::Guard<'_>;
}

#[cfg(any(loom, shuttle))]
impl<T> Lockable for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        self.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(any(loom, shuttle))]
impl<T> Lockable for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        self.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(any(loom, shuttle))]
impl<M: Lockable> Lockable for CachePadded<M> {
    type Guard<'a>
        = M::Guard<'a>
    where
        M: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        self.0.acquire()
    }
}

/// Locks `lock` for reading; a poisoned lock is used as it is, as in [`lock`].
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `lock` for writing; a poisoned lock is used as it is, as in [`lock`].
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks of the standard library under every configuration: what `disk` waits for is the system,
/// which no model checker schedules.
pub mod system {
    use std::sync::PoisonError;

    #[cfg(tsan)]
    pub use super::announced::{Condvar, Mutex, MutexGuard};
    #[cfg(not(tsan))]
    pub use std::sync::{Condvar, Mutex, MutexGuard};

    /// As [`super::lock`].
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
