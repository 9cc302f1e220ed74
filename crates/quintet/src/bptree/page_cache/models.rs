//! Models of what latches and the stack of free frames promise, under every order of steps that
//! the checkers try.

use super::latch;
use crate::{
    bptree::page_cache::free_list::FreeList,
    util::{
        mutant::{self, Bug},
        sync::{Arc, AtomicU64, Ordering, model_check::Exploration, thread},
    },
};

const EXPLORATION: Exploration =
    Exploration { priority_changes: 3, preemptions_max: None, ..Exploration::DEFAULT };

/// A reader between two equal versions has seen one state of two words.
fn a_reader_sees_one_state() {
    EXPLORATION.explore(|| {
        let page = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let writer = thread::spawn({
            let page = Arc::clone(&page);
            move || {
                latch::lock(&page[0]);
                page[1].store(1, Ordering::Relaxed);
                page[2].store(1, Ordering::Relaxed);
                latch::unlock(&page[0]);
            }
        });
        let version = latch::begin(&page[0]);
        let (one, other) = (page[1].load(Ordering::Relaxed), page[2].load(Ordering::Relaxed));
        if latch::is_unchanged(&page[0], version) {
            assert_eq!(one, other);
        }
        writer.join().unwrap();
    });
}

/// Of two that saw the same version, one takes the latch; what it guards is not changed by two.
fn one_holder_at_a_time() {
    EXPLORATION.explore(|| {
        let page = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let add = |page: &[AtomicU64; 2]| {
            loop {
                let version = latch::begin(&page[0]);
                if latch::try_upgrade(&page[0], version) {
                    break;
                }
                thread::yield_now();
            }
            page[1].store(page[1].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            latch::unlock(&page[0]);
        };
        let other = thread::spawn({
            let page = Arc::clone(&page);
            move || add(&page)
        });
        add(&page);
        other.join().unwrap();
        assert_eq!(page[1].load(Ordering::Relaxed), 2);
        assert_eq!(page[0].load(Ordering::Relaxed), 4);
    });
}

/// Frames that are popped and pushed by two threads are never with both, and none is lost.
fn a_frame_has_one_owner() {
    EXPLORATION.explore(|| {
        let links: Arc<[AtomicU64; 4]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let stack = Arc::new(FreeList::default());
        for frame in 0..2 {
            stack.push(frame, |frame| links.get(usize::try_from(frame).unwrap()));
        }
        let turn = |stack: &FreeList, links: &[AtomicU64; 4]| {
            let word = |frame: u32| links.get(usize::try_from(frame).unwrap());
            if let Some(frame) = stack.pop(word) {
                let owner = &links[2 + usize::try_from(frame).unwrap()];
                assert_eq!(owner.swap(1, Ordering::AcqRel), 0, "two owners");
                owner.store(0, Ordering::Release);
                stack.push(frame, word);
            }
        };
        let other = thread::spawn({
            let (stack, links) = (Arc::clone(&stack), Arc::clone(&links));
            move || turn(&stack, &links)
        });
        turn(&stack, &links);
        other.join().unwrap();
        let word = |frame: u32| links.get(usize::try_from(frame).unwrap());
        let mut frames = [stack.pop(word), stack.pop(word)];
        frames.sort_unstable();
        assert_eq!(frames, [Some(0), Some(1)]);
        assert_eq!(stack.pop(word), None);
    });
}

#[cfg(loom)]
#[test]
fn loom_page_cache() {
    a_reader_sees_one_state();
    one_holder_at_a_time();
    a_frame_has_one_owner();
    mutant::finds(Bug::PageReadNotValidated, a_reader_sees_one_state);
}

#[cfg(shuttle)]
#[test]
fn shuttle_page_cache() {
    a_reader_sees_one_state();
    one_holder_at_a_time();
    a_frame_has_one_owner();
    mutant::finds(Bug::PageReadNotValidated, a_reader_sees_one_state);
}
