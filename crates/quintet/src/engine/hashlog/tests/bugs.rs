//! Each deliberate bug of this engine makes a test fail.

use super::{
    crashes::{
        a_crash_around_a_rewrite_of_the_manifest_loses_nothing,
        a_crash_at_any_event_leaves_the_last_checkpoint,
    },
    packed::flipped_bytes_of_packed_chunks_are_noticed,
    *,
};
use crate::{
    engine::hashlog::{arena::ArenaRead, entry::EntryHead},
    io::sim::Damage,
    util::mutant::{Bug, finds},
};

#[test]
fn a_checkpoint_syncs_the_log_first() {
    checkpoints_sync_the_log();
}

fn checkpoints_sync_the_log() {
    test_bench::sync_log_before_checkpoint(&Bench::new(1));
}

/// A reader that is overtaken by the recycling of its chunk's memory takes nothing from it.
#[test]
fn a_reader_notices_that_its_chunk_is_recycled() {
    recycling_is_noticed();
}

fn recycling_is_noticed() {
    let arena = ChunkArena::new(16 << 10, Arc::new(Budget::new(1 << 20))).unwrap();
    let frame = arena.reserve_frame(false).unwrap();
    arena.begin(0, 0, 16, false);
    arena.attach(0, frame);
    let head = EntryHead { kind: entry::EntryKind::Put, key_bytes: 3, value_bytes: 8, lsn: 1 };
    head.store(&arena.words(0, 0).unwrap()[16..], b"key", [b"original", b""]);
    let address = arena.address(0, 16);
    let ArenaRead::Found(entry) = arena.entry_at(address, arena.state_of(address), b"key") else {
        panic!("the entry is in memory");
    };
    // The chunk leaves memory before the value is copied, and another takes its frame. Its entry
    // happens to begin with the same word.
    let frame = arena.detach(0).unwrap();
    head.store(&arena.frame(frame)[16..], b"yek", [b"stranger", b""]);
    let mut value = [0; 8];
    arena::copy_value(&entry.head, entry.words, &mut value);
    assert!(!arena.is_current(&entry) || value == *b"original", "foreign bytes");
}

/// One flipped bit in a value, then the chunk goes to memory: the value is right or refused.
#[test]
fn a_damaged_chunk_is_not_loaded_into_memory() {
    damaged_chunks_stay_out_of_memory();
}

fn damaged_chunks_stay_out_of_memory() {
    let bench = Bench::new(9);
    let (table, _) = bench.open();
    for lsn in 1..=300_u64 {
        put(&table, lsn, format!("key{lsn}").as_bytes(), &[5; 100]);
    }
    table.checkpoint(Lsn(301)).unwrap();
    drop(table);
    let path = "table/data-00000000";
    let content = bench.env.contents(path).unwrap();
    let at = content.windows(7).position(|window| window == b"key107\x05").unwrap() + 50;
    bench.env.damage(path, &Damage::FlipBit { offset: to_u64(at), bit: 3 }).unwrap();
    let (table, _) = bench.open();
    assert!(table.get(b"key107").unwrap_err().is_corruption());
    assert!(table.get(b"key108").unwrap().is_some());
    for _ in 0..3 {
        let _ = table.maintain(MaintenanceMode::Step);
    }
    match table.get(b"key107") {
        Ok(value) => assert_eq!(value.unwrap(), [5; 100]),
        Err(error) => assert!(error.is_corruption()),
    }
}

#[test]
fn hashlog_skips_log_sync() {
    finds(Bug::HashlogSkipsLogSync, checkpoints_sync_the_log);
}

#[test]
fn hashlog_skips_data_sync() {
    finds(Bug::HashlogSkipsDataSync, a_crash_at_any_event_leaves_the_last_checkpoint);
}

#[test]
fn hashlog_skips_manifest_sync() {
    finds(Bug::HashlogSkipsManifestSync, a_crash_at_any_event_leaves_the_last_checkpoint);
}

#[test]
fn hashlog_drops_tombstones_early() {
    finds(Bug::HashlogDropsTombstonesEarly, behaves_like_a_map);
}

#[test]
fn segment_keeps_state_on_detach() {
    finds(Bug::SegmentKeepsStateOnDetach, recycling_is_noticed);
}

#[test]
fn hashlog_updates_frozen_entries() {
    finds(Bug::HashlogUpdatesFrozenEntries, a_hot_key_is_updated_in_place);
}

#[test]
fn hashlog_loads_old_manifest() {
    finds(Bug::HashlogLoadsOldManifest, a_crash_around_a_rewrite_of_the_manifest_loses_nothing);
}

#[test]
fn hashlog_skips_entry_checksum() {
    finds(Bug::HashlogSkipsEntryChecksum, flipped_bytes_of_packed_chunks_are_noticed);
}

#[test]
fn hashlog_skips_extent_checksum() {
    finds(Bug::HashlogSkipsExtentChecksum, damaged_chunks_stay_out_of_memory);
}

#[test]
fn hashlog_miscounts_copies() {
    finds(Bug::HashlogMiscountsCopies, behaves_like_a_map);
}

#[test]
fn hashlog_loses_moved_entries() {
    finds(Bug::HashlogLosesMovedEntries, a_crash_at_any_event_leaves_the_last_checkpoint);
}

#[test]
fn hashlog_frees_before_publishing() {
    finds(Bug::HashlogFreesBeforePublishing, a_crash_at_any_event_leaves_the_last_checkpoint);
}

#[test]
fn hashlog_forgets_collisions() {
    finds(Bug::HashlogForgetsCollisions, behaves_like_a_map_where_hashes_are_equal);
}

#[test]
fn hashlog_ranks_copies_highest() {
    finds(Bug::HashlogRanksCopiesHighest, behaves_like_a_map);
}
