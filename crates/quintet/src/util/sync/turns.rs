//! A lock that goes to whoever has waited longest.
//!
//! Why: an ordinary mutex goes to whoever is there when it is free. A thread that gives it back and
//! takes it again at once has it before any other has woken up, time after time: others starve.
//!
//! Thread rules: any thread. Not to be taken twice by one.

use std::collections::VecDeque;

use super::{Arc, AtomicBool, Mutex, Ordering, Thread, lock, thread};

/// The lock.
#[derive(Debug, Default)]
pub struct FairMutex(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// Who has waited longest comes first.
    waiting: VecDeque<Arc<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    is_next: AtomicBool,
}

/// Holds the lock.
#[derive(Debug)]
#[must_use]
pub struct Turn<'a>(&'a FairMutex);

impl FairMutex {
    /// Waits until all who came before have had their turn.
    #[cold]
    pub fn wait(&self) -> Turn<'_> {
        let waiter = {
            let mut state = lock(&self.0);
            if !state.is_taken {
                state.is_taken = true;
                return Turn(self);
            }
            let waiter = Waiter { thread: thread::current(), is_next: AtomicBool::new(false) };
            let waiter = Arc::new(waiter);
            state.waiting.push_back(Arc::clone(&waiter));
            waiter
        };
        while !waiter.is_next.load(Ordering::Acquire) {
            thread::park();
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        // Where somebody waits it stays taken: nobody comes in between.
        let Some(waiter) = state.waiting.pop_front() else {
            state.is_taken = false;
            return;
        };
        drop(state);
        waiter.is_next.store(true, Ordering::Release);
        waiter.thread.unpark();
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::util::sync::yield_now;

    #[test]
    fn who_takes_it_again_at_once_waits_for_those_before() {
        for _ in 0..200 {
            let (turns, order) = (FairMutex::default(), Mutex::new(Vec::new()));
            let first = turns.wait();
            thread::scope(|scope| {
                let (turns, order) = (&turns, &order);
                for number in 1..=3 {
                    let come = move || {
                        let _turn = turns.wait();
                        lock(order).push(number);
                    };
                    scope.spawn(come);
                    while lock(&turns.0).waiting.len() < number {
                        yield_now();
                    }
                }
                drop(first);
                let _again = turns.wait();
                lock(order).push(4);
            });
            assert_eq!(*lock(&order), [1, 2, 3, 4]);
            assert!(!lock(&turns.0).is_taken);
        }
    }

    #[test]
    fn threads_have_it_alone() {
        let (turns, count) = (FairMutex::default(), crate::util::sync::AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let _turn = turns.wait();
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 8_000);
    }
}
