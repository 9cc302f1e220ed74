//! Fills, reads, eviction and shrinking against a plain map.

use std::{collections::BTreeMap, sync::Arc};

use super::{BlockCache, BlockHandles, CacheAdmission};
use crate::{
    io::BLOCK_BYTES,
    util::{
        budget::Budget,
        codec::{low_u8, low_u32, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicU64, lock},
        words::WORD_BYTES,
    },
};

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    let mut out = vec![0; 64];
    crate::util::words::copy_out(words, 0, &mut out);
    out
}

fn payload(id: u64) -> Vec<u8> {
    (0..64).map(|index| low_u8(id.wrapping_mul(index + 3))).collect()
}

fn blocks(bytes: u64) -> (Arc<BlockCache>, Arc<Budget>) {
    let budget = Arc::new(Budget::new(1 << 20));
    (Arc::new(BlockCache::new((bytes, 1000), 7, (&budget, 1)).unwrap()), budget)
}

fn handles(blocks: &Arc<BlockCache>, count: u32) -> BlockHandles {
    BlockHandles::new(blocks, 0).with_count(count)
}

/// How many of the ids are there, each with its own bytes.
fn count(blocks: &BlockCache, handles: &BlockHandles, ids: impl Iterator<Item = u64>) -> usize {
    ids.filter(|id| {
        let found = blocks.read(handles.get(low_u32(*id)).unwrap(), bytes);
        assert!(found.as_ref().is_none_or(|found| *found == payload(*id)), "{id}");
        found.is_some()
    })
    .count()
}

#[test]
fn blocks_come_back_until_others_take_their_frames() {
    let (blocks, budget) = blocks(256 << 10);
    let handles = handles(&blocks, 5_000);
    let frames = 4 * blocks.chunk_cells;
    for id in 1..5_000 {
        let (head, rest) = (&payload(id)[..10], &payload(id)[10..]);
        blocks.fill(handles.get(low_u32(id)).unwrap(), &[head, rest]);
        assert_eq!(count(&blocks, &handles, id..=id), 1);
    }
    assert_eq!(count(&blocks, &handles, 1..5_000), frames);
    assert_eq!(blocks.totals(), (4_999, to_u64(4_999 - frames)));
    assert_eq!(blocks.memory_bytes(), 256 << 10);
    let large = vec![1; (16 << 10) + 1];
    blocks.fill(handles.get(1).unwrap(), &[&large]);
    assert_eq!(count(&blocks, &handles, 1..=1), 0);
    assert_eq!(blocks.shrink(1), 64 << 10);
    assert!(count(&blocks, &handles, 1..5_000) <= frames * 3 / 4);
    for id in 1..1_000 {
        blocks.fill(handles.get(low_u32(id)).unwrap(), &[&payload(id)]);
    }
    assert!(count(&blocks, &handles, 1..5_000) > frames * 3 / 4);
    drop(handles);
    drop(blocks);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_bound_that_moves_is_kept() {
    let (blocks, budget) = blocks(256 << 10);
    let handles = handles(&blocks, 5_000);
    let fill = || {
        for id in 1..2_000 {
            blocks.fill(handles.get(low_u32(id)).unwrap(), &[&payload(id)]);
        }
        blocks.memory_bytes()
    };
    for (bound, bytes) in
        [(1 << 30, 256 << 10), (200 << 10, 192 << 10), (0, 0), (64 << 10, 64 << 10)]
    {
        blocks.set_most(bound);
        assert!(blocks.memory_bytes() <= bytes, "at once");
        assert_eq!(fill(), bytes);
        assert!(bytes == 0 || count(&blocks, &handles, 1..2_000) > 0);
    }
    blocks.set_most(256 << 10);
    assert_eq!(fill(), 256 << 10);
    drop(handles);
    drop(blocks);
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_is_used_again_outlives_a_scan() {
    let (blocks, _) = blocks(256 << 10);
    let handles = handles(&blocks, 100_000);
    let handle = |id: u64| handles.get(low_u32(id)).unwrap();
    let frames = to_u64(4 * blocks.chunk_cells);
    let hot = 1..frames / 2;
    for id in hot.clone() {
        blocks.fill(handle(id), &[&payload(id)]);
        count(&blocks, &handles, id..=id);
    }
    // Many times the cache, each once.
    for id in frames..21 * frames {
        blocks.fill(handle(id), &[&payload(id)]);
        if id % 64 == 0 {
            count(&blocks, &handles, hot.clone());
        }
    }
    let kept = count(&blocks, &handles, hot.clone());
    assert!(to_u64(kept) > (frames / 2 - 1) * 9 / 10, "{kept} of {}", hot.end);
}

#[test]
fn memory_is_left_to_others() {
    let budget = Arc::new(Budget::new(512 << 10));
    let blocks = Arc::new(BlockCache::new((1 << 30, 1000), 7, (&budget, 1)).unwrap());
    let handles = handles(&blocks, 4_000);
    let used = budget.used();
    budget.reserve(200 << 10).unwrap();
    for id in 1..4_000 {
        blocks.fill(handles.get(low_u32(id)).unwrap(), &[&payload(id)]);
    }
    assert!(budget.used() <= (512 << 10) / 8 * 7);
    assert!(budget.used() > (512 << 10) / 8 * 7 - (64 << 10) - used);
    let none = BlockCache::new((1000, 1000), 7, (&budget, 1)).unwrap();
    assert!(!none.is_on());
    none.fill(handles.get(1).unwrap(), &[b"x"]);
}

#[test]
fn blocks_of_a_file_that_is_gone_leave_their_frames() {
    let (blocks, budget) = blocks(256 << 10);
    let frames = 4 * blocks.chunk_cells;
    let stays = handles(&blocks, 10);
    for id in 1..10 {
        blocks.fill(stays.get(low_u32(id)).unwrap(), &[&payload(id)]);
    }
    // Many files, each written and removed: none evicts anything, and no queue grows.
    for file in 1..200_u64 {
        let mut written = BlockHandles::new(&blocks, file << 32);
        for block in 0..20 {
            let payload = payload(file << 32 | block);
            written.push((block % 5 != 4).then_some(&[&payload[..]]), CacheAdmission::IfFree);
        }
        let written = written.with_count(20);
        for block in 0..20_u64 {
            let id = file << 32 | block;
            let found = blocks.read(written.get(low_u32(block)).unwrap(), bytes);
            assert_eq!(found, (block % 5 != 4).then(|| payload(id)));
        }
    }
    assert_eq!(count(&blocks, &stays, 1..10), 9);
    assert_eq!(blocks.totals(), (9 + 199 * 16, 0));
    let state = lock(&blocks.state);
    let waiting = state.short.len() + state.long.len();
    drop(state);
    assert!(waiting <= 2 * frames + 1, "{waiting} of {frames}");
    // What is full takes no more, and loses nothing.
    let mut written = BlockHandles::new(&blocks, 300 << 32);
    for block in 0..to_u64(frames) {
        written.push(Some(&[&payload(300 << 32 | block)]), CacheAdmission::IfFree);
    }
    assert_eq!(blocks.totals(), (to_u64(199 * 16 + frames), 0));
    assert_eq!(count(&blocks, &stays, 1..10), 9);
    // Unless it is to: what is kept outlives what only waits for its turn.
    let mut wanted = BlockHandles::new(&blocks, 301 << 32);
    for block in 0..to_u64(2 * frames) {
        let room = if block % 32 == 0 { CacheAdmission::Hot } else { CacheAdmission::Normal };
        wanted.push(Some(&[&payload(301 << 32 | block)]), room);
        assert!(blocks.has(wanted.get(low_u32(block)).unwrap()));
    }
    let kept = (0..low_u32(to_u64(2 * frames))).step_by(32);
    assert!(kept.clone().all(|block| blocks.has(wanted.get(block).unwrap())));
    assert_eq!(count(&blocks, &stays, 1..10), 9);
    drop((written, wanted, stays, blocks));
    assert_eq!(budget.used(), 0);
}

#[test]
fn random_fills_and_shrinks_agree_with_a_map() {
    let (blocks, _) = blocks(64 << 10);
    let handles = handles(&blocks, 600);
    let mut random = 7_u64;
    let mut known = BTreeMap::new();
    for _ in 0..60_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let id = random % 599 + 1;
        let handle = handles.get(low_u32(id)).unwrap();
        match random >> 32 & 1023 {
            0 => drop(blocks.shrink(random >> 48)),
            1..400 => blocks.fill(handle, &[&payload(id)]),
            _ => {
                let found = blocks.read(handle, bytes);
                assert!(found.as_ref().is_none_or(|found| *found == payload(id)));
                known.insert(id, found.is_some());
            }
        }
    }
    assert!(known.values().filter(|found| **found).count() > 100);
}

/// A block of a size of its own: what is there of it is all its own.
fn sized(id: u64) -> Vec<u8> {
    let bytes = [60, 900, 1_100, 3_000, 9_000, 16_000][to_usize(id % 6)];
    (0..bytes).map(|at| low_u8((id + 1).wrapping_mul(at / 8 + 3))).collect()
}

fn has_sized(blocks: &BlockCache, handles: &BlockHandles, id: u64) -> bool {
    let expected = sized(id);
    let found = blocks.read(handles.get(low_u32(id)).unwrap(), |words| {
        assert!(words.len() * WORD_BYTES < expected.len() + 128, "the smallest frame");
        let mut out = vec![0; expected.len()];
        crate::util::words::copy_out(words, 0, &mut out);
        out
    });
    assert!(found.as_ref().is_none_or(|found| *found == expected), "{id}");
    found.is_some()
}

#[test]
fn a_block_takes_what_it_needs() {
    for bytes in [60, 600, 1_100, 3_200, 9_000] {
        let (blocks, _) = blocks(256 << 10);
        let handles = handles(&blocks, 3_000);
        // Each twice, so that they wait in the long queue, and round and round.
        for id in (1..3_000).chain(1..3_000) {
            blocks.fill(handles.get(id).unwrap(), &[&vec![1; bytes]]);
        }
        let kept = (1..3_000).filter(|id| blocks.has(handles.get(*id).unwrap())).count();
        let chunk = (64 << 10) / (bytes + 24).next_multiple_of(128);
        assert_eq!(kept, 4 * chunk, "of {bytes} bytes");
    }
}

#[test]
fn what_leaves_makes_room_and_what_is_touched_stays() {
    let (blocks, _) = blocks(256 << 10);
    let handles = handles(&blocks, 5_000);
    let slot = |id: u32| handles.get(id).unwrap();
    let frames = low_u32(to_u64(4 * blocks.chunk_cells));
    let first = |id: u32| payload(id.into()).first_chunk().map(|word| u64::from_le_bytes(*word));
    for id in 1..=frames {
        blocks.fill(slot(id), &[&payload(id.into())]);
        blocks.touch(slot(id / 2));
    }
    assert_eq!((blocks.first_word(slot(7)), blocks.first_word(slot(4_000))), (first(7), None));
    // One that is pinned stays; then it goes.
    let pinned = blocks.pin(slot(9)).unwrap();
    blocks.evict_block(slot(9));
    assert!(blocks.has(slot(9)));
    drop(pinned);
    for id in (9..=frames).step_by(10) {
        blocks.evict_block(slot(id));
        blocks.evict_block(slot(id));
        assert!(!blocks.has(slot(id)) && blocks.first_word(slot(id)).is_none());
        blocks.fill(slot(id + 2_500), &[&payload(u64::from(id) + 2_500)]);
    }
    assert_eq!(blocks.totals().1, 0, "nothing had to give way");
    assert!(blocks.is_used(slot(7)) && !blocks.is_used(slot(frames - 1)));
}

#[test]
fn blocks_of_all_sizes_share_the_memory() {
    let (blocks, budget) = blocks(256 << 10);
    let handles = handles(&blocks, 600);
    let (mut random, mut known, mut found) = (9_u64, BTreeMap::new(), 0);
    let free_cells = |blocks: &BlockCache| {
        let state = lock(&blocks.state);
        let (free, used, whole) = state.cells.counts();
        assert_eq!(free + used, state.chunks * blocks.chunk_cells, "every cell is one of both");
        (free, whole)
    };
    for step in 0..60_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Sizes come and go: small ones alone for a while, then large ones, then all.
        let of_size = match step / 10_000 % 3 {
            0 => random % 2,
            1 => 4 + random % 2,
            _ => random % 6,
        };
        let id = (random >> 8) % 99 * 6 + of_size;
        let handle = handles.get(low_u32(id)).unwrap();
        match random >> 32 & 4095 {
            0 => drop(blocks.shrink(random >> 48)),
            1..1_800 => {
                blocks.fill(handle, &[&sized(id)]);
                assert!(has_sized(&blocks, &handles, id), "what was just put there is there");
            }
            _ => {
                let is_here = has_sized(&blocks, &handles, id);
                found += u32::from(is_here);
                known.insert(id, is_here);
            }
        }
        if step % 1_000 == 0 {
            free_cells(&blocks);
        }
    }
    assert!(found > 5_000, "{found}");
    // Half of the memory and more is used, whatever was asked for last.
    let cells = lock(&blocks.state).chunks * blocks.chunk_cells;
    assert!(free_cells(&blocks).0 < cells / 2);
    drop(handles);
    // All of a chunk is one again.
    assert_eq!(free_cells(&blocks), (cells, blocks.chunk_cells));
    drop(blocks);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_block_that_would_fill_a_small_cache_is_not_kept() {
    let (blocks, _) = blocks(256 << 10);
    let most = (16 << 10) - 24;
    assert_eq!(blocks.payload_bytes_max(), Some(most));
    assert_eq!(
        [1, 104, 105, 1_000, 1_001, most, most + 1].map(|bytes| blocks.cells_for(bytes)),
        [1, 1, 2, 8, 9, 128, 0].map(|cells| Some(cells).filter(|cells| *cells > 0))
    );
    let handles = handles(&blocks, 10);
    blocks.fill(handles.get(1).unwrap(), &[&vec![7; most]]);
    blocks.fill(handles.get(2).unwrap(), &[&vec![7; most + 1]]);
    assert!(blocks.has(handles.get(1).unwrap()));
    assert!(!blocks.has(handles.get(2).unwrap()));
    // Cells of more than a page each, and chunks that end with one, for blocks of up to 1 MiB.
    for block_bytes in [512, 4_096, 16 << 10, 64 << 10, 1 << 20] {
        let budget = Arc::new(Budget::new(1 << 30));
        let blocks = BlockCache::new((1 << 30, block_bytes * 9 / 8), 7, (&budget, 1)).unwrap();
        let cells = blocks.chunk_bytes();
        assert!(cells.is_multiple_of(BLOCK_BYTES));
        let most = blocks.payload_bytes_max().unwrap();
        assert!(most >= block_bytes && most < 2 << 20, "{most}");
        assert!(cells <= 16 << 20, "{cells}");
    }
}

#[test]
fn what_is_shown_in_place_stays() {
    let (blocks, budget) = blocks(256 << 10);
    let handles = handles(&blocks, 5_000);
    let frames = 4 * blocks.chunk_cells;
    let slot = |id: u64| handles.get(low_u32(id)).unwrap();
    // The last of all frames, in the chunk that would go first.
    for id in 1..=to_u64(frames) {
        blocks.fill(slot(id), &[&payload(id)]);
    }
    let of_file = 300 << 32;
    let mut written = BlockHandles::new(&blocks, of_file);
    blocks.shrink(1);
    while blocks.memory_bytes() < 256 << 10 {
        written.push(Some(&[&payload(of_file)]), CacheAdmission::IfFree);
        assert!(blocks.has(written.get(0).unwrap()));
    }
    let pinned = blocks.pin(written.get(0).unwrap()).unwrap();
    assert!(blocks.pin(slot(4_999)).is_none());
    // Through words: a bug that is planted changes them.
    let is_same = || bytes(pinned.words()) == payload(of_file);
    assert_eq!(pinned.bytes(0..64), Some(&payload(of_file)[..]));
    assert!(is_same() && pinned.bytes(0..100_000).is_none());
    let mut filled = 0;
    for id in 1..4_000 {
        blocks.fill(slot(id), &[&payload(id)]);
        assert!(is_same(), "{id}");
        filled += usize::from(blocks.has(slot(id)));
    }
    assert!(filled > 3_900, "{filled}");
    // Its file goes, and everybody wants memory: nothing of it moves.
    drop(written);
    blocks.shrink(u64::MAX);
    assert!(is_same() && blocks.memory_bytes() > 0);
    for id in 1..4_000 {
        blocks.fill(slot(id), &[&payload(id)]);
        assert!(is_same(), "{id}");
    }
    // So many at once, and no more.
    let pins: Vec<_> = (3_900..3_960).filter_map(|id| blocks.pin(slot(id))).collect();
    assert_eq!(pins.len(), 31);
    drop((pins, pinned));
    assert!(blocks.shrink(u64::MAX) > 0);
    assert_eq!(blocks.memory_bytes(), 0);
    drop((handles, blocks));
    assert_eq!(budget.used(), 0);
}

#[test]
fn emptying_what_is_shown_is_found() {
    mutant::finds(Bug::PinnedFrameEmptied, what_is_shown_in_place_stays);
}

#[test]
fn keeping_an_identity_is_found() {
    mutant::finds(Bug::BlockKeepsIdentity, blocks_come_back_until_others_take_their_frames);
}
