//! Goal: fast writers find frames ready, and what is kept ready is within the budget and goes when
//! they rest.

use super::*;

const CHUNK: u64 = 2 << 20;

fn bench(budget: u64) -> Bench {
    let bench = Bench::new(1).set("chunk_bytes", "2097152").set("mutable_chunks", "16");
    Bench { budget, ..bench }
}

/// Fills `chunks` chunks, with a pause before each value.
fn fill(bench: &Bench, table: &HashLog, chunks: u64, pause: Duration) {
    let value = vec![5; 128 << 10];
    for number in 0..chunks * 16 {
        bench.env.advance(pause);
        put(table, 1000 + number, &number.to_be_bytes(), &value);
    }
}

#[test]
fn fast_writers_find_frames_ready_and_slow_ones_need_none() {
    let bench = bench(256 << 20);
    let (table, _) = bench.open();
    fill(&bench, &table, 3, Duration::from_millis(20));
    assert_ne!(table.due(), Due::Compact, "a chunk takes longer than that");
    fill(&bench, &table, 3, Duration::ZERO);
    assert_eq!(table.due(), Due::Compact);
    let before = table.context.budget.used();
    table.compact().unwrap();
    let ready = table.context.budget.used() - before;
    assert_eq!(ready, 8 * CHUNK);
    assert_eq!(table.stats().memory_bytes, table.context.budget.used());
    assert_ne!(table.due(), Due::Compact);
    fill(&bench, &table, 3, Duration::ZERO);
    assert_eq!(table.context.budget.used() - before, ready, "the frames that were ready");
    settle(&bench, &table, 5000);
    let stats = table.stats();
    let chunks = stats.details.iter().find(|(name, _)| *name == "chunks_in_memory").unwrap().1;
    let held = stats.memory_bytes - stats.index_bytes;
    assert!(held <= (chunks + 2) * CHUNK, "{held} bytes for {chunks} chunks at rest");
    assert_eq!(all(&table).len(), 48);
}

#[test]
fn nothing_is_made_ready_where_memory_is_short() {
    let bench = bench(16 << 20);
    let (table, _) = bench.open();
    for round in 1..20 {
        fill(&bench, &table, 2, Duration::ZERO);
        settle(&bench, &table, round * 5000);
        let used = table.context.budget.used();
        assert!(used <= 16 << 20, "{used}");
    }
    assert_eq!(all(&table).len(), 32);
}
