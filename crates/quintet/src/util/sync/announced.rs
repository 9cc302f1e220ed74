//! Locks for the thread sanitizer, built only with `--cfg tsan`.
//!
//! What: the locks of `std`, each with an atomic word that is written before the lock is given
//! back and read after it was taken.
//! Why: `std` comes compiled, without the sanitizer's instrumentation. Where a lock is contended,
//! or its condition waited for, it changes hands inside `std`, and the sanitizer sees two threads
//! at the same data with nothing between them. The word says again, in code that the sanitizer
//! sees, what the lock has ensured already: whoever takes it comes after whoever gave it back.
//!
//! Invariants: the word is written while the lock is held and read while it is held, so it orders
//! nothing that the lock does not order: it cannot hide a race. The sanitizer has no fences; what
//! `std` orders by one alone (the last drop of an `Arc`) is in `.ci/tsan.suppressions`.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// The word of one lock.
#[derive(Debug, Default)]
struct Word(AtomicU32);

impl Word {
    /// After the lock was taken.
    fn taken(&self) -> Notice<'_> {
        self.0.load(Ordering::Acquire);
        Notice(self)
    }
}

/// Writes the word when it is dropped: a guard's first field, so before the lock is given back.
#[derive(Debug)]
struct Notice<'a>(&'a Word);

impl Drop for Notice<'_> {
    fn drop(&mut self) {
        // Not a store: two readers of a lock leave both their notices.
        self.0.0.fetch_add(1, Ordering::Release);
    }
}

/// As `std`'s.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    word: Word,
    inner: std::sync::Mutex<T>,
}

/// As `std`'s.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    notice: Notice<'a>,
    inner: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// As `std`'s.
    pub const fn new(value: T) -> Self {
        Self { word: Word(AtomicU32::new(0)), inner: std::sync::Mutex::new(value) }
    }

    /// As `std`'s.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        mapped(self.inner.lock(), |inner| MutexGuard { notice: self.word.taken(), inner })
    }

    /// As `std`'s.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = |inner| MutexGuard { notice: self.word.taken(), inner };
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

/// As `std`'s.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// As `std`'s.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// As `std`'s.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let word = guard.notice.0;
        drop(guard.notice);
        mapped(self.0.wait(guard.inner), |inner| MutexGuard { notice: word.taken(), inner })
    }

    /// As `std`'s.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let word = guard.notice.0;
        drop(guard.notice);
        mapped(self.0.wait_timeout(guard.inner, time), |(inner, result)| {
            (MutexGuard { notice: word.taken(), inner }, result)
        })
    }

    /// As `std`'s.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// As `std`'s.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `std`'s.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    word: Word,
    inner: std::sync::RwLock<T>,
}

/// As `std`'s.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    _notice: Notice<'a>,
    inner: std::sync::RwLockReadGuard<'a, T>,
}

/// As `std`'s.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    _notice: Notice<'a>,
    inner: std::sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// As `std`'s.
    pub const fn new(value: T) -> Self {
        Self { word: Word(AtomicU32::new(0)), inner: std::sync::RwLock::new(value) }
    }

    /// As `std`'s.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        mapped(self.inner.read(), |inner| RwLockReadGuard { _notice: self.word.taken(), inner })
    }

    /// As `std`'s.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        mapped(self.inner.write(), |inner| RwLockWriteGuard { _notice: self.word.taken(), inner })
    }

    /// As `std`'s.
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let guard = |inner| RwLockWriteGuard { _notice: self.word.taken(), inner };
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

/// As `std`'s, with the value in a box that is filled before the cell is set.
#[derive(Debug, Default)]
pub struct OnceLock<T> {
    word: Word,
    inner: std::sync::OnceLock<Box<T>>,
}

impl<T> OnceLock<T> {
    /// As `std`'s.
    pub const fn new() -> Self {
        Self { word: Word(AtomicU32::new(0)), inner: std::sync::OnceLock::new() }
    }

    /// As `std`'s.
    pub fn get(&self) -> Option<&T> {
        let value = self.inner.get()?;
        drop(self.word.taken());
        Some(value)
    }

    /// As `std`'s.
    pub fn set(&self, value: T) -> Result<(), T> {
        let value = Box::new(value);
        drop(self.word.taken());
        self.inner.set(value).map_err(|value| *value)
    }

    /// As `std`'s.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let value = self.inner.get_or_init(|| {
            let value = Box::new(init());
            drop(self.word.taken());
            value
        });
        drop(self.word.taken());
        value
    }

    /// As `std`'s.
    pub fn into_inner(self) -> Option<T> {
        drop(self.word.taken());
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
