//! The process that owns a handle. Detects that a handle was inherited through `fork`.
//!
//! Problem: a forked child has copies of the parent's handles and shares its files. A write of the
//! child overwrites writes of the parent. The child has no background threads, and a lock that
//! another thread held at the fork stays locked in it.
//! How: a process has a *generation*. A handler that [`register`] gives to `pthread_atfork` raises
//! it in each forked child. A handle keeps the generation in which it was created. A different one
//! means that the handle was inherited. [`ProcessState`] stores the generation in the word of a
//! state, so that one comparison checks both. [`ProcessArc`] never drops inherited data.
//!
//! Invariants:
//! - The generation changes only in a child, before `fork` returns there.
//! - Nothing here takes a lock, so every check works in a child.
//! - The low [`STATE_BITS`] bits of a generation are zero.
//!
//! Limits: `_Fork` of the C library and a direct `clone` system call run no handlers. The child of
//! such a call must not use the database before it executes another program.
//!
//! Threads: any.
#![expect(unsafe_code, reason = "pthread_atfork of the C library; listed in UNSAFE.md")]

use std::{
    fmt, io,
    ops::Deref,
    sync::{
        Arc,
        // Not the model checkers' atomics: these are statics. No model forks.
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Number of low bits of a word that hold a state; the generation has the others.
const STATE_BITS: u32 = 8;

/// The generation of this process.
static GENERATION: AtomicU32 = AtomicU32::new(1 << STATE_BITS);
static REGISTERED: AtomicBool = AtomicBool::new(false);

type Handler = Option<extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> i32;
}

/// Runs in a forked child before `fork` returns. It may call only async-signal-safe functions.
extern "C" fn begin_generation() {
    GENERATION.fetch_add(1 << STATE_BITS, Ordering::Relaxed);
}

/// Registers the handler of `fork`, once for the process. The caller registers before it creates
/// the first [`ProcessState`] or [`ProcessArc`].
///
/// Fails if the system has no memory for the registration.
pub(crate) fn register() -> io::Result<()> {
    if REGISTERED.load(Ordering::Acquire) {
        return Ok(());
    }
    // Two threads may both register. A child then skips one generation, which changes nothing.
    // SAFETY: the handler is a function of this program, takes no lock and allocates nothing.
    let code = unsafe { pthread_atfork(None, None, Some(begin_generation)) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    REGISTERED.store(true, Ordering::Release);
    Ok(())
}

/// Returns the generation of this process.
#[inline]
fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The generation in which a handle was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerProcess(u32);

impl OwnerProcess {
    /// Returns this process.
    pub(crate) fn this_process() -> Self {
        Self(generation())
    }

    /// Returns whether the handle was inherited through `fork`.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        self.0 != generation()
    }
}

/// An atomic state that is valid in the process that created it.
pub(crate) struct ProcessState {
    /// The owner's generation, and the state in the low bits.
    word: AtomicU32,
    owner: OwnerProcess,
}

impl ProcessState {
    /// Creates a state of this process.
    pub(crate) fn new(state: u8) -> Self {
        let owner = OwnerProcess::this_process();
        Self { word: AtomicU32::new(owner.0 | u32::from(state)), owner }
    }

    /// Returns the state; `None` in a forked child.
    #[inline]
    pub(crate) fn get(&self) -> Option<u8> {
        // The generations cancel out if they are equal.
        u8::try_from(self.word.load(Ordering::Acquire) ^ generation()).ok()
    }

    /// Returns whether a forked child has inherited the state.
    pub(crate) fn is_forked(&self) -> bool {
        self.owner.is_forked()
    }

    /// Raises the state to at least `state`. Returns whether it was lower.
    pub(crate) fn raise(&self, state: u8) -> bool {
        let word = self.owner.0 | u32::from(state);
        self.word.fetch_max(word, Ordering::AcqRel) < word
    }

    /// Changes the state to `to`. Returns `false`, and changes nothing, if it was not `from`.
    pub(crate) fn exchange(&self, from: u8, to: u8) -> bool {
        let (from, to) = (self.owner.0 | u32::from(from), self.owner.0 | u32::from(to));
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl fmt::Debug for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessState").field(&self.get()).finish()
    }
}

/// An `Arc` whose data is dropped only in the process that created it. In a forked child the data
/// stays allocated: its drop would wait for threads that the child does not have.
pub(crate) struct ProcessArc<T> {
    data: Arc<T>,
    owner: OwnerProcess,
}

impl<T> ProcessArc<T> {
    /// Wraps data of this process.
    pub(crate) fn new(data: Arc<T>) -> Self {
        Self { data, owner: OwnerProcess::this_process() }
    }
}

impl<T> Clone for ProcessArc<T> {
    fn clone(&self) -> Self {
        Self { data: Arc::clone(&self.data), owner: self.owner }
    }
}

impl<T> Deref for ProcessArc<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.data
    }
}

impl<T> Drop for ProcessArc<T> {
    fn drop(&mut self) {
        if self.owner.is_forked() {
            // The count never reaches zero.
            std::mem::forget(Arc::clone(&self.data));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_raised_and_exchanged() {
        let state = ProcessState::new(0);
        assert_eq!(state.get(), Some(0));
        assert!(state.exchange(0, 1) && !state.exchange(0, 1));
        assert!(state.raise(4) && !state.raise(3));
        assert_eq!(state.get(), Some(4));
        assert!(!state.is_forked());
    }
}
