//! Locks for `ThreadSanitizer`, built only with `--cfg tsan`.
//!
//! Why: `std` is compiled without the sanitizer's instrumentation. A contended lock, or one whose
//! condition is waited for, changes hands inside `std`. The sanitizer then sees two threads that
//! access the same data without synchronisation, and reports a false race.
//!
//! How: each lock of `std` gets an atomic word. The holder writes it (release) before it unlocks
//! and reads it (acquire) after it locks. That repeats the lock's happens-before edge in
//! instrumented code.
//!
//! Invariants: a thread writes and reads the word only while it holds the lock, so the word orders
//! nothing that the lock does not order. It cannot hide a race. The sanitizer does not model
//! fences; what `std` orders by a fence alone (the last drop of an `Arc`) is in
//! `.ci/tsan.suppressions`.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// The synchronisation word of one lock.
#[derive(Debug, Default)]
struct SyncWord(AtomicU32);

impl SyncWord {
    /// Reads the word. The caller has just locked.
    fn acquire(&self) -> ReleaseOnDrop<'_> {
        self.0.load(Ordering::Acquire);
        ReleaseOnDrop(self)
    }
}

/// Writes the word when it is dropped. A guard's first field, so it is dropped before the unlock.
#[derive(Debug)]
struct ReleaseOnDrop<'a>(&'a SyncWord);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        // Not a store: two readers of a lock must both be ordered before the next writer.
        self.0.0.fetch_add(1, Ordering::Release);
    }
}

/// As [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T> {
    word: SyncWord,
    inner: std::sync::Mutex<T>,
}

/// As [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    release: ReleaseOnDrop<'a>,
    inner: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// As `std`'s `new`.
    pub const fn new(value: T) -> Self {
        Self { word: SyncWord(AtomicU32::new(0)), inner: std::sync::Mutex::new(value) }
    }

    /// As `std`'s `lock`.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        mapped(self.inner.lock(), |inner| MutexGuard { release: self.word.acquire(), inner })
    }

    /// As `std`'s `try_lock`.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = |inner| MutexGuard { release: self.word.acquire(), inner };
        match self.inner.try_lock() {
            Ok(inner) => Ok(guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(guard(poisoned.into_inner()))))
            }
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// As [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// As `std`'s `new`.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// As `std`'s `wait`.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let word = guard.release.0;
        drop(guard.release);
        mapped(self.0.wait(guard.inner), |inner| MutexGuard { release: word.acquire(), inner })
    }

    /// As `std`'s `wait_timeout`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let word = guard.release.0;
        drop(guard.release);
        mapped(self.0.wait_timeout(guard.inner, time), |(inner, result)| {
            (MutexGuard { release: word.acquire(), inner }, result)
        })
    }

    /// As `std`'s `notify_one`.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// As `std`'s `notify_all`.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As [`std::sync::RwLock`].
#[derive(Debug, Default)]
pub struct RwLock<T> {
    word: SyncWord,
    inner: std::sync::RwLock<T>,
}

/// As [`std::sync::RwLockReadGuard`].
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    _release: ReleaseOnDrop<'a>,
    inner: std::sync::RwLockReadGuard<'a, T>,
}

/// As [`std::sync::RwLockWriteGuard`].
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    _release: ReleaseOnDrop<'a>,
    inner: std::sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// As `std`'s `new`.
    pub const fn new(value: T) -> Self {
        Self { word: SyncWord(AtomicU32::new(0)), inner: std::sync::RwLock::new(value) }
    }

    /// As `std`'s `read`.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        mapped(self.inner.read(), |inner| RwLockReadGuard { _release: self.word.acquire(), inner })
    }

    /// As `std`'s `try_read`.
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let guard = |inner| RwLockReadGuard { _release: self.word.acquire(), inner };
        match self.inner.try_read() {
            Ok(inner) => Ok(guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(guard(poisoned.into_inner()))))
            }
        }
    }

    /// As `std`'s `write`.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        mapped(self.inner.write(), |inner| RwLockWriteGuard {
            _release: self.word.acquire(),
            inner,
        })
    }

    /// As `std`'s `try_write`.
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let guard = |inner| RwLockWriteGuard { _release: self.word.acquire(), inner };
        match self.inner.try_write() {
            Ok(inner) => Ok(guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(guard(poisoned.into_inner()))))
            }
        }
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// As [`std::sync::OnceLock`], with the value in a box that is filled before the cell is set.
#[derive(Debug, Default)]
pub struct OnceLock<T> {
    word: SyncWord,
    inner: std::sync::OnceLock<Box<T>>,
}

impl<T> OnceLock<T> {
    /// As `std`'s `new`.
    pub const fn new() -> Self {
        Self { word: SyncWord(AtomicU32::new(0)), inner: std::sync::OnceLock::new() }
    }

    /// As `std`'s `get`.
    pub fn get(&self) -> Option<&T> {
        let value = self.inner.get()?;
        drop(self.word.acquire());
        Some(value)
    }

    /// As `std`'s `set`.
    pub fn set(&self, value: T) -> Result<(), T> {
        let value = Box::new(value);
        drop(self.word.acquire());
        self.inner.set(value).map_err(|value| *value)
    }

    /// As `std`'s `get_or_init`.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let value = self.inner.get_or_init(|| {
            let value = Box::new(init());
            drop(self.word.acquire());
            value
        });
        drop(self.word.acquire());
        value
    }

    /// As `std`'s `into_inner`.
    pub fn into_inner(self) -> Option<T> {
        drop(self.word.acquire());
        self.inner.into_inner().map(|value| *value)
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let cell = Self::new();
        let _ = cell.set(value);
        cell
    }
}

fn mapped<G, H>(result: LockResult<G>, wrap: impl FnOnce(G) -> H) -> LockResult<H> {
    match result {
        Ok(guard) => Ok(wrap(guard)),
        Err(poisoned) => Err(PoisonError::new(wrap(poisoned.into_inner()))),
    }
}
