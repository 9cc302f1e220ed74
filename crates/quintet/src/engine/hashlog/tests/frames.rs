//! Goal: fast writers find frames ready, and what is kept ready is within the budget and goes when
//! they rest.

use super::*;

const CHUNK: u64 = 2 << 20;

fn bench(budget: u64) -> Bench {
    let bench = Bench::new(1).set("chunk_bytes", "2097152").set("mutable_chunks", "16");
    bench.with_budget(budget)
}

/// Values that fill a chunk.
const PER_CHUNK: u64 = 16;

/// Fills `chunks` chunks with new records, with a pause before each. The table holds as many
/// records as `filled` chunks take.
fn fill(bench: &Bench, table: &HashLog, filled: u64, chunks: u64, pause: Duration) {
    let value = vec![5; 128 << 10];
    for number in filled * PER_CHUNK..(filled + chunks) * PER_CHUNK {
        bench.env.advance(pause);
        put(table, 1000 + number, &number.to_be_bytes(), &value);
    }
}

#[test]
fn fast_writers_find_frames_ready_and_slow_ones_need_none() {
    let bench = bench(256 << 20);
    let (table, _) = bench.open();
    fill(&bench, &table, 0, 3, Duration::from_millis(20));
    assert_ne!(table.pending_work(), PendingWork::Maintain, "a chunk takes longer than that");
    fill(&bench, &table, 3, 3, Duration::ZERO);
    assert_eq!(table.pending_work(), PendingWork::Maintain);
    let before = (table.arena.frames.memory_bytes(), table.context.budget.used());
    table.maintain(MaintenanceMode::Step).unwrap();
    let after = (table.arena.frames.memory_bytes(), table.context.budget.used());
    assert_eq!((after.0 - before.0, after.1 - before.1), (8 * CHUNK, 8 * CHUNK));
    assert_ne!(table.pending_work(), PendingWork::Maintain);
    fill(&bench, &table, 6, 3, Duration::ZERO);
    assert_eq!(table.arena.frames.memory_bytes(), after.0, "the frames that were ready");
    bench.finish_background(&table, 1 << 20);
    let stats = table.stats();
    let chunks = stats.details.iter().find(|(name, _)| *name == "chunks_in_memory").unwrap().1;
    let held = table.arena.frames.memory_bytes();
    assert!(held <= (chunks + 2) * CHUNK, "{held} bytes for {chunks} chunks at rest");
    assert_eq!(contents(&table).len(), 9 * 16);
}

#[test]
fn nothing_is_made_ready_where_memory_is_short() {
    let bench = bench(16 << 20);
    let (table, _) = bench.open();
    for round in 0..10 {
        fill(&bench, &table, round * 2, 2, Duration::ZERO);
        table.checkpoint(Lsn(1 << 20)).unwrap();
        bench.finish_background(&table, 1 << 20);
        let used = table.context.budget.used();
        assert!(used <= 16 << 20, "{used}");
    }
    assert_eq!(contents(&table).len(), 20 * 16);
}
