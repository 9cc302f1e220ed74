//! Values that are passed on in the cache's memory, while the visitor changes the table.

use std::ops::ControlFlow;

use super::*;
use crate::util::codec::low_u8;

fn value_of(number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(7) { 40 } else { 600 + 37 * (number % 60) };
    (0..bytes).map(|at| low_u8(number.wrapping_mul(31) ^ at)).collect()
}

/// The cache has only a part of the values, so that blocks of visited values are evicted.
fn visited_values_do_not_change() {
    let (engine, _) =
        Bench::new(41).set("cache_bytes", "1048576").set("block_bytes", "4096").open();
    let key = |number: u64| format!("key-{number:05}").into_bytes();
    for number in 0..1_500 {
        put(&engine, number + 1, &key(number), &value_of(number));
    }
    background(&engine, 1_501);
    let mut lsn = 2_000;
    for round in 0..3 {
        let mut shown = 0;
        let range = KeyRange { start: Some(key(100)), end: Some(key(1_400)) };
        let mut each = |found: &[u8], value: &[u8]| {
            let number = 100 + shown;
            assert_eq!(found, key(number), "round {round}");
            if shown % 10 == 3 {
                // Another consumer wants all memory of the cache.
                engine.table.cache.blocks.shrink(u64::MAX);
            }
            // Blocks are cached and files are removed while this value is visited.
            for step in 1..=20 {
                let other = (number * 7 + step * 211) % 1_500;
                let got = engine.get(&key(other)).unwrap();
                assert_eq!(got.as_deref(), Some(&value_of(other)[..]));
            }
            if shown % 16 == 0 {
                lsn += 1;
                put(&engine, lsn, &key(number), &value_of(number));
            }
            if shown % 400 == 399 {
                background(&engine, lsn + 1);
            }
            assert!(value == value_of(number), "round {round}: {number} changed during the visit");
            shown += 1;
            Ok(ControlFlow::Continue(()))
        };
        engine.visit(range, &mut each).unwrap();
        assert_eq!(shown, 1_300);
    }
    check(&engine);
}

#[test]
fn values_stay_while_they_are_visited() {
    visited_values_do_not_change();
}
