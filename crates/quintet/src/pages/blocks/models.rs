//! Models of readers beside fills that take their frame away, explored by loom (every interleaving
//! up to a bound) and by shuttle (many random ones).
//!
//! Run with `just loom` or `just shuttle`.

use super::*;
use crate::sync::{Arc as ModelArc, thread};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }
    #[cfg(shuttle)]
    shuttle::check_pct(model, 2_000, 4);
}

/// One frame, of eight words.
fn one_frame() -> Blocks {
    let blocks = Blocks {
        region: Region::reserve(64).unwrap(),
        frame_words: 8,
        chunk_frames: 1,
        chunk_words: 8,
        chunks_max: 1,
        budget: Arc::new(Budget::new(1 << 20)),
        admin: Mutex::new(Admin::default()),
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

fn slot(place: &Place, id: u64) -> Slot<'_> {
    Slot { place, id }
}

/// Block 1 is there; a reader asks for it while block 2 takes its frame, and block 1 takes it back.
fn a_reader_beside_fills() {
    let shared = ModelArc::new((one_frame(), Place::default(), Place::default()));
    shared.0.fill(slot(&shared.1, 1), &[&payload(1)]);
    let writer = {
        let shared = ModelArc::clone(&shared);
        thread::spawn(move || {
            let (blocks, first, second) = &*shared;
            blocks.fill(slot(second, 2), &[&payload(2)]);
            blocks.fill(slot(first, 1), &[&payload(1)]);
        })
    };
    for (place, id) in [(&shared.1, 1), (&shared.2, 2)] {
        if let Some(found) = shared.0.read(slot(place, id), both) {
            assert_eq!(found, (id, id));
        }
    }
    writer.join().unwrap();
    assert_eq!(shared.0.read(slot(&shared.1, 1), both), Some((1, 1)));
    assert_eq!(shared.0.read(slot(&shared.2, 2), both), None);
    assert_eq!(shared.0.payload_bytes(), 40);
}

/// The model, and the bug that it has to find; in one test, so that the bug is not there beside it.
fn model_and_its_bug() {
    explore(a_reader_beside_fills);
    seeded::finds(Bug::BlockNotValidated, || explore(a_reader_beside_fills));
}

#[cfg(loom)]
#[test]
fn loom_a_reader_beside_fills() {
    model_and_its_bug();
}

#[cfg(shuttle)]
#[test]
fn shuttle_a_reader_beside_fills() {
    model_and_its_bug();
}
