//! Switches of the planted bugs: which are on, for a thread and for all, and which were reached.

// Not through `crate::util::sync`: the switch is no part of what the model checkers explore.
use std::{
    cell::Cell,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering},
};

/// Position of a bug in the sets: word and bit.
type Position = (usize, u64);

/// Words of a set of bugs.
const WORDS: usize = 8;

static EVERYWHERE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

thread_local! {
    static HERE: [Cell<u64>; WORDS] = const { [const { Cell::new(0) }; WORDS] };
    static REACHED: [Cell<u64>; WORDS] = const { [const { Cell::new(0) }; WORDS] };
}

/// Bugs whose site was reached on any thread while they were planted everywhere.
static REACHED_EVERYWHERE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

type Set = std::thread::LocalKey<[Cell<u64>; WORDS]>;

#[inline]
fn has(set: &'static Set, (word, bit): Position) -> bool {
    set.with(|set| set[word].get() & bit != 0)
}

fn change(set: &'static Set, (word, bit): Position, member: bool) {
    set.with(|set| {
        let rest = set[word].get() & !bit;
        set[word].set(if member { rest | bit } else { rest });
    });
}

/// Returns whether the bug is planted, and records that its site was reached.
#[inline]
pub(super) fn is_on(position: Position) -> bool {
    let (word, bit) = position;
    let here = has(&HERE, position);
    let everywhere = EVERYWHERE[word].load(Ordering::Relaxed) & bit != 0;
    if here {
        change(&REACHED, position, true);
    }
    if everywhere {
        REACHED_EVERYWHERE[word].fetch_or(bit, Ordering::Relaxed);
    }
    here || everywhere
}

/// Keeps a bug active until dropped.
#[derive(Debug)]
#[must_use = "the bug is active only as long as the guard lives"]
pub struct Planted {
    position: Position,
    everywhere: bool,
    /// Whether an outer guard keeps the bug active when this one goes.
    was_active: bool,
    /// The guard belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Planted {
    /// Makes the bug active on the calling thread.
    pub(super) fn here(position: Position) -> Self {
        let was_active = has(&HERE, position);
        change(&HERE, position, true);
        if !was_active {
            change(&REACHED, position, false);
        }
        Self { position, everywhere: false, was_active, _here: PhantomData }
    }

    /// Makes the bug active on every thread of the process.
    pub(super) fn everywhere(position: Position) -> Self {
        let (word, bit) = position;
        let was_active = EVERYWHERE[word].fetch_or(bit, Ordering::SeqCst) & bit != 0;
        if !was_active {
            REACHED_EVERYWHERE[word].fetch_and(!bit, Ordering::SeqCst);
        }
        Self { position, everywhere: true, was_active, _here: PhantomData }
    }

    /// Whether a site of the bug was reached since it was planted. A bug that no run reaches
    /// shows nothing about the tests: assert this beside the failure.
    pub fn was_reached(&self) -> bool {
        let position @ (word, bit) = self.position;
        if self.everywhere {
            REACHED_EVERYWHERE[word].load(Ordering::SeqCst) & bit != 0
        } else {
            has(&REACHED, position)
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if self.was_active {
            return;
        }
        if self.everywhere {
            let (word, bit) = self.position;
            EVERYWHERE[word].fetch_and(!bit, Ordering::SeqCst);
        } else {
            change(&HERE, self.position, false);
        }
    }
}
