//! The rates of writers and merges.

use super::*;

#[test]
fn writers_are_delayed_before_they_must_wait() {
    let (engine, mut step) = test_bench::delay_writers(&Bench::new(18, "sorted"));
    let lsn = step;
    // Without a merge, level 0 grows.
    for _ in 0..8 {
        let lsn = test_bench::fill(&engine, &mut step, 30 << 10);
        engine.checkpoint(Lsn(lsn)).unwrap();
    }
    assert!(detail(&engine, "level0_tables") > 6);
    assert!(detail(&engine, "write_rate") > 0);
    background(&engine, lsn);
    assert_eq!(detail(&engine, "write_rate"), 0);
}

#[test]
fn a_merge_keeps_to_its_rate_and_flushes_full_memtables() {
    let mut bench = Bench::new(19, "sorted");
    bench.options = bench.options.set("merge_rate", "100000");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=400_u64 {
        put(&engine, step, &step.to_be_bytes(), &[2; 200]);
        rows.insert(step.to_be_bytes().to_vec(), vec![2; 200]);
        if step % 200 == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
        }
    }
    put(&engine, 401, b"late", b"x");
    rows.insert(b"late".to_vec(), b"x".to_vec());
    let store = &engine.store;
    store.write_buffer.rotate_any(&**store).unwrap();
    let began = bench.env.monotonic();
    assert!(store.compact_step().unwrap());
    let took = bench.env.monotonic().saturating_sub(began);
    assert!(took.as_millis() > 500, "{took:?} for 80,000 bytes");
    assert!(store.write_buffer.view.load().frozen.is_empty());
    compare(&engine, &rows);
}
