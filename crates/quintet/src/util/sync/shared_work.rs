//! Work that one thread does for all threads that need it.
//!
//! Why: behind an ordinary mutex each waiter gets its turn and does the work again, though the
//! first one may have done enough for all. The last of many waits as long as all the others work.
//!
//! How: the first thread works. The others are parked until it has ended, and then look again at
//! what they need.
//!
//! Threads: any. A thread must not begin work that it does already.

use super::{Mutex, Thread, lock, thread};

/// Work that one thread at a time does. Guards no data.
#[derive(Debug, Default)]
pub struct SharedWork(Mutex<WorkState>);

#[derive(Debug, Default)]
struct WorkState {
    is_running: bool,
    /// The number of times that the work has ended.
    ended: u64,
    /// Threads that wait for its end.
    waiters: Vec<Thread>,
}

/// The caller does the work. It ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct RunningWork<'a>(&'a SharedWork);

impl SharedWork {
    /// Begins the work, unless another thread does it. Then it waits for the end of that, and
    /// returns `None`.
    #[cold]
    pub fn begin_or_wait(&self) -> Option<RunningWork<'_>> {
        let ended = {
            let mut state = lock(&self.0);
            if !state.is_running {
                state.is_running = true;
                return Some(RunningWork(self));
            }
            state.waiters.push(thread::current());
            state.ended
        };
        while lock(&self.0).ended == ended {
            thread::park();
        }
        None
    }
}

impl Drop for RunningWork<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.is_running = false;
        state.ended += 1;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters {
            waiter.unpark();
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::sync::{AtomicU64, Ordering, yield_now};

    #[test]
    fn waiters_continue_when_the_work_of_another_thread_has_ended() {
        let work = SharedWork::default();
        let waited = AtomicU64::new(0);
        thread::scope(|scope| {
            let running = work.begin_or_wait().unwrap();
            for _ in 0..8 {
                scope.spawn(|| {
                    // None of them works: the work that they wait for does it for all.
                    assert!(work.begin_or_wait().is_none());
                    waited.fetch_add(1, Ordering::Relaxed);
                });
            }
            while lock(&work.0).waiters.len() < 8 {
                yield_now();
            }
            assert_eq!(waited.load(Ordering::Relaxed), 0);
            drop(running);
        });
        assert_eq!(waited.load(Ordering::Relaxed), 8);
        assert!(work.begin_or_wait().is_some());
    }
}
