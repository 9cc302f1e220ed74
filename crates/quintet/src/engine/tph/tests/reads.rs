//! The number of disk reads of gets.

use super::*;

#[test]
fn a_get_reads_once_and_an_absent_key_hardly_ever() {
    for mode in MODES {
        // The signatures of two tiers have 8 bits, and five tables may lack a key.
        a_get_reads_once(mode, if mode.ends_with("two") { 30 } else { 100 });
    }
}

/// Gets of keys read once, and one of `misses_one_in` absent keys reads at most.
fn a_get_reads_once(mode: &str, misses_one_in: u64) {
    let (engine, rows) = load(mode, "0", 6_000, 9_000);
    engine.checkpoint(Lsn(1 << 20)).unwrap();
    let totals = || (detail(&engine, "reads_total"), detail(&engine, "false_reads_total"));
    let before = totals();
    for key in rows.keys() {
        engine.get(key).unwrap().unwrap();
    }
    let (hits, others) = (totals().0 - before.0, totals().1 - before.1);
    let count = to_u64(rows.len());
    // One read has the entry. Others are those of signatures that matched by chance.
    assert_eq!(hits, count + others, "{mode}: {hits} reads for {count} keys, {others} in vain");
    assert!(others <= count / 50, "{mode}: {others} reads in vain for {count} keys");
    if mode.starts_with("one_level") || mode.starts_with("single_tier") {
        assert_eq!(others, 0, "{mode}: one table has the key");
    }
    let before = detail(&engine, "reads_total");
    for number in 0..count {
        assert!(engine.get(format!("absent-{number}").as_bytes()).unwrap().is_none());
    }
    let misses = detail(&engine, "reads_total") - before;
    assert!(misses <= count / misses_one_in, "{mode}: {misses} reads for {count} absent keys");
}

#[test]
fn blocks_that_were_written_or_read_are_in_the_cache() {
    for mode in MODES {
        let (engine, rows) = load(mode, "4194304", 6_000, 9_000);
        engine.checkpoint(Lsn(1 << 20)).unwrap();
        let all = |engine: &Tph| {
            let before = detail(engine, "reads_total");
            for (key, value) in &rows {
                assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
            let mut found = Vec::new();
            engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
            assert!(found.iter().flatten().map(|value| &**value).eq(rows.values()));
            detail(engine, "reads_total") - before
        };
        assert_eq!(all(&engine), 0, "{mode}");
        engine.store.cache.blocks.shrink(u64::MAX);
        assert!(all(&engine) > 0, "{mode}");
        assert_eq!(all(&engine), 0, "{mode}");
        assert!(detail(&engine, "cache_bytes") > 0);
        // Ranges find the same entries in the cache and on the disk.
        compare(&engine, &rows);
        assert_eq!(all(&engine), 0, "{mode}");
    }
}
