//! A fair lock: the thread that has waited longest gets it next.
//!
//! Why: an ordinary mutex goes to the thread that is running when it is free. A thread that
//! releases it and locks it again at once gets it before any waiter has woken up, and the others
//! starve.
//!
//! How: a queue of parked waiters behind a short lock. Release hands the lock to the first waiter.
//!
//! Threads: any. A thread must not lock it twice.

use std::collections::VecDeque;

use super::{Arc, AtomicBool, Mutex, Ordering, Thread, lock, thread};

/// A fair lock that guards no data.
#[derive(Debug, Default)]
pub struct FairMutex(Mutex<FairQueue>);

#[derive(Debug, Default)]
struct FairQueue {
    is_locked: bool,
    /// Parked waiters, the longest first.
    waiters: VecDeque<Arc<FairWaiter>>,
}

#[derive(Debug)]
struct FairWaiter {
    thread: Thread,
    /// The lock was handed to this waiter.
    is_next: AtomicBool,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct FairMutexGuard<'a>(&'a FairMutex);

impl FairMutex {
    /// Locks, after all threads that began to wait earlier.
    #[cold]
    pub fn lock(&self) -> FairMutexGuard<'_> {
        let waiter = {
            let mut queue = lock(&self.0);
            if !queue.is_locked {
                queue.is_locked = true;
                return FairMutexGuard(self);
            }
            let waiter = FairWaiter { thread: thread::current(), is_next: AtomicBool::new(false) };
            let waiter = Arc::new(waiter);
            queue.waiters.push_back(Arc::clone(&waiter));
            waiter
        };
        while !waiter.is_next.load(Ordering::Acquire) {
            thread::park();
        }
        FairMutexGuard(self)
    }
}

impl Drop for FairMutexGuard<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.0);
        // With a waiter the lock stays locked, so that no other thread gets it first.
        let Some(waiter) = queue.waiters.pop_front() else {
            queue.is_locked = false;
            return;
        };
        drop(queue);
        waiter.is_next.store(true, Ordering::Release);
        waiter.thread.unpark();
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::sync::yield_now;

    #[test]
    fn a_thread_that_locks_again_at_once_waits_for_earlier_waiters() {
        for _ in 0..200 {
            let (mutex, order) = (FairMutex::default(), Mutex::new(Vec::new()));
            let first = mutex.lock();
            thread::scope(|scope| {
                let (mutex, order) = (&mutex, &order);
                for number in 1..=3 {
                    let enter = move || {
                        let _guard = mutex.lock();
                        lock(order).push(number);
                    };
                    scope.spawn(enter);
                    while lock(&mutex.0).waiters.len() < number {
                        yield_now();
                    }
                }
                drop(first);
                let _again = mutex.lock();
                lock(order).push(4);
            });
            assert_eq!(*lock(&order), [1, 2, 3, 4]);
            assert!(!lock(&mutex.0).is_locked);
        }
    }

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let (mutex, count) = (FairMutex::default(), crate::util::sync::AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let _guard = mutex.lock();
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 8_000);
    }
}
