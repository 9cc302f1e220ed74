//! Options, and the memory budget.

use super::*;
use crate::Error;

#[test]
fn options_are_checked_and_memory_is_released() {
    let bench = Bench::new(14, "sorted");
    for (name, value) in [("mode", "tree"), ("max_pieces", "0"), ("block_bytes", "5"), ("x", "1")] {
        let options = bench.options.clone().set(name, value);
        let outcome = Tph::open(&options, bench.context());
        assert!(matches!(outcome, Err(Error::InvalidOption { .. })), "{name}");
    }
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (engine, _) = Tph::open(&bench.options, context).unwrap();
    let mut random = Random(4);
    for step in 1..3_000 {
        put(&engine, step, &random.below(5_000).to_be_bytes(), &[7; 200]);
    }
    let refused = Op::Put { key: b"never", head: b"", body: &[1; 100] };
    engine.admit(&refused).unwrap();
    engine.cancel(&refused);
    assert!(budget.used() > 0);
    drop(engine);
    assert_eq!(budget.used(), 0);
}

#[test]
fn writers_flush_and_keep_to_a_small_budget() {
    let mut bench = Bench::new(15, "sorted");
    bench.budget = 4 << 20;
    bench.options = bench.options.set("cache_bytes", "2097152");
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (engine, _) = Tph::open(&bench.options, context).unwrap();
    for step in 1..20_000_u64 {
        put(&engine, step, &(step * 7919 % 10_007).to_be_bytes(), &[7; 500]);
        if step % 3 == 0 {
            // The cache uses free memory and releases it.
            drop(engine.get(&(step * 104_729 % 10_007).to_be_bytes()).unwrap());
        }
    }
    assert!(detail(&engine, "cache_fills_total") > 0);
    assert!(detail(&engine, "writer_helps_total") > 0);
    assert!(budget.used() <= 4 << 20);
    // A running merge has most of the memory: writers do not wait for its end.
    let merging = lock(&engine.store.compacting);
    let merge_memory = budget.reserve_transient(3 << 20);
    for step in 20_000..30_000 {
        put(&engine, step, &(step * 7919 % 10_007).to_be_bytes(), &[7; 500]);
    }
    assert_eq!(engine.store.write_buffer.reserved(), 0, "reserved twice");
    drop(merge_memory);
    drop(merging);
    let large = Op::Put { key: b"k", head: b"", body: &vec![0; 5 << 20] };
    assert!(matches!(engine.admit(&large), Err(Error::OutOfMemory { .. })));
    check(&engine);
}
