//! Which runs the look at the leaves makes candidates.

use super::*;

/// A table of runs that have so many keys each, all over one another.
fn of_keys(seed: u64, counts: &[u64]) -> Slm {
    let (engine, _) = Bench::new(seed).set("leaf_threshold", "10").open();
    let mut lsn = 0;
    for (number, count) in (0_u64..).zip(counts) {
        for place in 0..*count {
            lsn += 1;
            // From the first key to the last, whatever the count.
            let key = place * 1_000_000 / count * 10 + number;
            put(&engine, lsn, &key.to_be_bytes(), b"value");
        }
        engine.persist(Lsn(lsn)).unwrap();
    }
    engine
}

fn candidates(engine: &Slm) -> usize {
    engine.inner.scan_leaves().unwrap();
    let view = engine.inner.front.view.load();
    view.version.iter().filter(|run| run.reasons() != 0).count()
}

#[test]
fn fewer_runs_lie_over_one_another_at_rest_than_while_somebody_writes() {
    let engine = of_keys(62, &[100; 6]);
    put(&engine, 601, b"somebody writes", b"value");
    assert_eq!(candidates(&engine), 0);
    engine.persist(Lsn(602)).unwrap();
    assert_eq!(candidates(&engine), 6);
    assert_eq!(candidates(&of_keys(63, &[100; 3])), 0);
}

#[test]
fn a_few_entries_are_no_reason_to_write_others_again() {
    assert_eq!(candidates(&of_keys(64, &[600, 5, 5, 5, 5, 5, 5])), 0);
    // With many of them they are most of what there is.
    assert_eq!(candidates(&of_keys(65, &[20, 20, 20, 20, 20, 5])), 6);
}
