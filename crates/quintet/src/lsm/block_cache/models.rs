//! Models of reads concurrent with fills that evict the read frame, explored by loom (all
//! interleavings up to a bound) and by shuttle (many random ones).
//!
//! Run with `just loom` or `just shuttle`.

use std::sync::Arc;

use super::{BlockCache, BlockRef, handle::BlockHandle, pins::Pins, queues::CacheState};
use crate::{
    io::Region,
    util::{
        budget::Budget,
        codec::{to_u64, to_usize},
        mutant::{self, Bug},
        sync::{Arc as ModelArc, AtomicU64, Mutex, Ordering, model_check::Exploration, thread},
    },
};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    Exploration::DEFAULT.explore(model);
}

/// A cache of a few cells of five words, which may be one frame.
fn few_cells(cells: u32) -> BlockCache {
    let count = u64::from(cells);
    let blocks = BlockCache {
        frames: Region::reserve(count * 40).unwrap(),
        uses: Region::reserve(8).unwrap(),
        pins: Pins::new(),
        secret: 0x5e_c4e7,
        cell_words: 5,
        chunk_cells: to_usize(count),
        chunks_max: 1,
        chunks_bound: AtomicU64::new(1),
        frame_cells_max: cells,
        table_id: 1,
        refusals: AtomicU64::new(0),
        budget: Arc::new(Budget::new(1 << 20)),
        state: Mutex::new(CacheState::new(cells)),
        fills_total: AtomicU64::new(0),
        evicted_total: AtomicU64::new(0),
    };
    assert!(blocks.is_on());
    blocks
}

fn both(words: &[AtomicU64]) -> (u64, u64) {
    let load = |index: usize| words.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
    (load(0), load(1))
}

fn payload(block: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn slot(handle: &BlockHandle, id: u64) -> BlockRef<'_> {
    BlockRef { handle, id }
}

/// Block 1 is cached. A reader reads it while block 2 takes its frame and block 1 takes it back.
fn a_reader_beside_fills() {
    let shared = ModelArc::new((few_cells(1), BlockHandle::default(), BlockHandle::default()));
    shared.0.fill(slot(&shared.1, 1), &[&payload(1)]);
    let writer = {
        let shared = ModelArc::clone(&shared);
        thread::spawn(move || {
            let (blocks, first, second) = &*shared;
            blocks.fill(slot(second, 2), &[&payload(2)]);
            blocks.fill(slot(first, 1), &[&payload(1)]);
        })
    };
    for (handle, id) in [(&shared.1, 1), (&shared.2, 2)] {
        if let Some(found) = shared.0.read(slot(handle, id), both) {
            assert_eq!(found, (id, id));
        }
    }
    writer.join().unwrap();
    assert_eq!(shared.0.read(slot(&shared.1, 1), both), Some((1, 1)));
    assert_eq!(shared.0.read(slot(&shared.2, 2), both), None);
    assert_eq!(shared.0.payload_bytes_max(), Some(16));
}

/// Blocks 1 and 2 have a cell each. A reader reads the second while block 3 takes both cells.
fn a_reader_beside_a_larger_fill() {
    let shared = ModelArc::new((few_cells(2), [0; 3].map(|_| BlockHandle::default())));
    for id in [1, 2] {
        shared.0.fill(slot(&shared.1[id - 1], to_u64(id)), &[&payload(to_u64(id))]);
    }
    let writer = {
        let shared = ModelArc::clone(&shared);
        thread::spawn(move || {
            shared.0.fill(slot(&shared.1[2], 3), &[&payload(2), &payload(2)]);
        })
    };
    if let Some(found) = shared.0.read(slot(&shared.1[1], 2), both) {
        assert_eq!(found, (2, 2));
    }
    if let Some(found) = shared.0.read(slot(&shared.1[2], 3), <[AtomicU64]>::len) {
        assert_eq!(found, 7);
    }
    writer.join().unwrap();
    let [first, second, third] = &shared.1;
    assert_eq!(shared.0.read(slot(first, 1), both), None);
    assert_eq!(shared.0.read(slot(second, 2), both), None);
    assert_eq!(shared.0.read(slot(third, 3), both), Some((2, 2)));
}

/// Block 1 is cached. A reader pins it while block 2 needs its frame.
fn a_pinned_frame_beside_a_fill() {
    let shared = ModelArc::new((few_cells(1), BlockHandle::default(), BlockHandle::default()));
    shared.0.fill(slot(&shared.1, 1), &[&payload(1)]);
    let writer = {
        let shared = ModelArc::clone(&shared);
        thread::spawn(move || shared.0.fill(slot(&shared.2, 2), &[&payload(2)]))
    };
    let pinned = shared.0.pin(slot(&shared.1, 1));
    if let Some(pinned) = &pinned {
        assert_eq!(both(pinned.words()), (1, 1));
        // The pinned frame does not change.
        thread::yield_now();
        assert_eq!(both(pinned.words()), (1, 1));
    }
    let was_pinned = pinned.is_some();
    drop(pinned);
    writer.join().unwrap();
    let found = [(&shared.1, 1), (&shared.2, 2)].map(|(handle, id)| {
        let found = shared.0.read(slot(handle, id), both);
        assert!(found.is_none_or(|found| found == (id, id)));
        found.is_some()
    });
    // One of the two blocks has the frame, unless a fill failed because of the pin.
    assert!(found == [true, false] || found == [false, true], "{was_pinned} {found:?}");
}

/// The models, and the mutants that they find; in one test, because no mutant may be active in
/// parallel.
fn models_and_their_bug() {
    explore(a_reader_beside_fills);
    explore(a_reader_beside_a_larger_fill);
    explore(a_pinned_frame_beside_a_fill);
    mutant::finds(Bug::BlockNotValidated, || explore(a_reader_beside_fills));
    mutant::finds(Bug::PinnedFrameEmptied, || explore(a_pinned_frame_beside_a_fill));
}

#[cfg(loom)]
#[test]
fn loom_a_reader_beside_fills() {
    models_and_their_bug();
}

#[cfg(shuttle)]
#[test]
fn shuttle_a_reader_beside_fills() {
    models_and_their_bug();
}
