//! Models of concurrent changes under a reader: an update in place, a frame that another chunk
//! takes over, both one after the other, and a chunk id that is reused. The planted bugs of these
//! protocols must be found.
//!
//! loom explores every interleaving and every order that the memory model allows, up to a bound;
//! shuttle explores many random interleavings. Run with `just loom` or `just shuttle`. Chunks have
//! eight units here. The reader is [`ChunkArena::entry_at`]; the writers are [`EntryHead::store`],
//! [`EntryHead::update_in_place`], [`ChunkArena::detach`] and [`ChunkArena::attach`].

use super::{
    arena::{ArenaRead, ChunkArena, copy_value},
    entry::{EntryHead, EntryKind},
};
use crate::util::{
    budget::Budget,
    mutant::{Bug, finds},
    sync::{Arc, model_check::Exploration, thread},
};

const KEY: &[u8] = b"k";
/// With the key, two whole words: a torn value has one of each.
const VALUE_BYTES: usize = 15;
const CHUNK_BYTES: u64 = 64;

/// Runs `model` under the checker that this build is for.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    Exploration { schedules: 5_000, ..Exploration::DEFAULT }.explore(model);
}

fn arena() -> Arc<ChunkArena> {
    let budget = std::sync::Arc::new(Budget::new(1 << 20));
    Arc::new(ChunkArena::new(CHUNK_BYTES, budget).unwrap())
}

fn head(lsn: u64) -> EntryHead {
    EntryHead { kind: EntryKind::Put, key_bytes: KEY.len(), value_bytes: VALUE_BYTES, lsn }
}

/// Entries hold their LSN in every byte.
fn value(lsn: u64) -> [u8; VALUE_BYTES] {
    [u8::try_from(lsn).unwrap(); VALUE_BYTES]
}

/// Starts `chunk` with a single entry, in a frame that its previous chunk has released.
fn fill(arena: &ChunkArena, chunk: u64, lsn: u64) {
    let frame = arena.reserve_frame(true).unwrap();
    arena.begin(chunk, 0, 4, false);
    head(lsn).store(arena.frame(frame), KEY, [&value(lsn), &[]]);
    arena.attach(chunk, frame);
}

/// Returns the LSN that a reader of the chunk's entry accepts; `None` if it must repeat the read.
fn read(arena: &ChunkArena, chunk: u64) -> Option<u64> {
    let address = arena.address(chunk, 0);
    match arena.entry_at(address, arena.state_of(address), KEY) {
        ArenaRead::Found(entry) => {
            let mut bytes = [0; VALUE_BYTES];
            copy_value(&entry.head, entry.words, &mut bytes);
            if !arena.is_current(&entry) {
                return None;
            }
            assert_eq!(bytes, value(entry.head.lsn), "a torn value was accepted");
            Some(entry.head.lsn)
        }
        ArenaRead::Changed | ArenaRead::Cold(_) => None,
        ArenaRead::OtherKey => panic!("every entry has this key"),
    }
}

/// Readers of an entry that is updated in place twice see whole values, in their order.
fn updates_in_place() {
    let arena = arena();
    fill(&arena, 0, 1);
    let writer = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            let words = arena.words(0, 0).unwrap();
            head(2).update_in_place(words, 2, [&value(2), &[]]);
        })
    };
    let seen = read(&arena, 0);
    assert!(matches!(seen, None | Some(1 | 2)), "{seen:?}");
    if seen == Some(2) {
        assert_eq!(read(&arena, 0), Some(2), "the value went back");
    }
    writer.join().unwrap();
    assert_eq!(read(&arena, 0), Some(2));
}

/// A chunk leaves its frame, and another gets it: a reader of the first sees its entry or nothing.
fn recycled_frames() {
    let arena = arena();
    fill(&arena, 0, 1);
    let recycler = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            let frame = arena.detach(0).unwrap();
            arena.release_frame(frame);
            fill(&arena, 1, 2);
        })
    };
    let seen = read(&arena, 0);
    assert!(matches!(seen, None | Some(1)), "the entry of another chunk: {seen:?}");
    recycler.join().unwrap();
    assert_eq!((read(&arena, 0), read(&arena, 1)), (None, Some(2)));
}

/// An entry is updated in place, and then another chunk gets its frame. The entry there begins with
/// the first word that the updated one had: a reader accepts no mixture.
fn updates_before_recycling() {
    let arena = arena();
    fill(&arena, 0, 1);
    let writer = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            head(2).update_in_place(arena.words(0, 0).unwrap(), 2, [&value(2), &[]]);
            let frame = arena.detach(0).unwrap();
            arena.release_frame(frame);
            fill(&arena, 1, 3);
        })
    };
    let seen = read(&arena, 0);
    assert!(matches!(seen, None | Some(1 | 2)), "{seen:?}");
    writer.join().unwrap();
    assert_eq!((read(&arena, 0), read(&arena, 1)), (None, Some(3)));
}

/// A chunk goes, and its number and frame are used anew: no reader sees a part of each.
fn reused_numbers() {
    let arena = arena();
    fill(&arena, 0, 1);
    let recycler = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            let frame = arena.detach(0).unwrap();
            arena.release_frame(frame);
            fill(&arena, 0, 2);
        })
    };
    let seen = read(&arena, 0);
    assert!(matches!(seen, None | Some(1 | 2)), "{seen:?}");
    recycler.join().unwrap();
    assert_eq!(read(&arena, 0), Some(2));
}

fn the_protocols_hold_and_their_bugs_are_found() {
    explore(updates_in_place);
    explore(recycled_frames);
    explore(updates_before_recycling);
    explore(reused_numbers);
    finds(Bug::UpdateKeepsVersion, || explore(updates_in_place));
    finds(Bug::ReadForgetsRecycling, || explore(recycled_frames));
    finds(Bug::ReadChecksFrameFirst, || explore(updates_before_recycling));
    finds(Bug::RecycleKeepsGeneration, || explore(reused_numbers));
}

#[cfg(loom)]
#[test]
fn loom_reads_beside_updates_and_recycling() {
    the_protocols_hold_and_their_bugs_are_found();
}

#[cfg(shuttle)]
#[test]
fn shuttle_reads_beside_updates_and_recycling() {
    the_protocols_hold_and_their_bugs_are_found();
}
