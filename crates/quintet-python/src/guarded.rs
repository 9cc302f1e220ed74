//! A mutex for objects that several threads of Python share.
//!
//! Problem: two things can block a thread for ever. A thread that is attached to the interpreter
//! must not wait for a lock whose holder waits to attach. A lock that another thread of the parent
//! held is never released in a forked child.
//! How: a lock detaches the thread while it waits, and fails in a child.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};

use pyo3::{prelude::*, sync::MutexExt};

use crate::errors::{forked, poisoned};

/// The number of forks that led to this process since the module was loaded.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts a fork. Python calls it in the child (`os.register_at_fork`).
pub(crate) fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A value behind a mutex, for the process that created it.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    value: Mutex<T>,
    forks: u32,
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Locks the value. Raises `ForkedError` in a forked child.
    pub(crate) fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, T>> {
        if FORKS.load(Ordering::Relaxed) != self.forks {
            return Err(forked(py));
        }
        self.value.lock_py_attached(py).map_err(|_| poisoned())
    }
}
