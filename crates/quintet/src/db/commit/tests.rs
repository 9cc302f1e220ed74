//! Goal: a write that cannot be taken is refused before it is logged, with what it needs.

use std::sync::Arc;

use crate::{
    Error,
    contract::{EngineKind, TableOptions},
    db::{Database, Options},
    io::sim::SimEnv,
    util::mutant::{Bug, finds},
};

const BUDGET_BYTES: u64 = 16 << 20;
const MIB: u64 = 1 << 20;

fn open() -> Database {
    let options = Options::new().memory_budget(BUDGET_BYTES).recovery_budget(1 << 30);
    options.open_in(Arc::new(SimEnv::new(41)), "db").unwrap()
}

/// Commits a batch of this many MiB to a table, and one entry to another. Returns what it needs.
fn refused_batch(kind: EngineKind, held_mib: u64, batch_mib: u64) -> u64 {
    let db = open();
    let pages = db.create_table("pages", TableOptions::new(EngineKind::BTree)).unwrap();
    let table = db.create_table("t", TableOptions::new(kind)).unwrap();
    for number in 0..held_mib * 64 {
        table.put(number.to_be_bytes(), vec![1; 16 << 10]).unwrap();
    }
    let (used, end) = (db.session.core.budget.used(), db.session.core.log.end());
    let mut batch = db.batch();
    batch.put(&pages, "k", "v");
    for number in 0..batch_mib * 64 {
        batch.put(&table, (number + (1 << 40)).to_be_bytes(), vec![2; 16 << 10]);
    }
    let error = batch.commit().unwrap_err();
    let Error::OutOfMemory { budget: BUDGET_BYTES, needed } = error else { panic!("{error}") };
    assert_eq!(db.session.core.log.end(), end, "{kind}: nothing is logged");
    assert!(db.session.core.budget.used() <= used, "{kind}: nothing stays reserved");
    assert_eq!(pages.get("k").unwrap(), None);
    assert_eq!(table.get((1_u64 << 40).to_be_bytes()).unwrap(), None);
    // Both tables take other writes.
    db.batch().put(&pages, "k", "v").put(&table, "k", "v").commit().unwrap();
    needed
}

fn the_error_tells_what_a_batch_needs() {
    for kind in [EngineKind::Naive, EngineKind::Slm, EngineKind::Tph] {
        let needed = refused_batch(kind, 0, 20);
        assert!((20 * MIB..24 * MIB).contains(&needed), "{kind}: {needed}");
    }
    // It would fit an empty database.
    let needed = refused_batch(EngineKind::Naive, 8, 10);
    assert!((10 * MIB..12 * MIB).contains(&needed), "{needed}");
}

#[test]
fn a_batch_that_cannot_be_held_is_refused_with_what_it_needs() {
    the_error_tells_what_a_batch_needs();
    finds(Bug::BatchNeedsAreNotSummed, the_error_tells_what_a_batch_needs);
}

#[test]
fn a_value_larger_than_the_budget_is_refused_or_streamed() {
    let value = vec![3; 20 << 20];
    for kind in EngineKind::ALL {
        let db = open();
        let table = db.create_table("t", TableOptions::new(kind)).unwrap();
        let end = db.session.core.log.end();
        match table.put("k", &value) {
            // Large values bypass its cache.
            Ok(()) => {
                assert_eq!(kind, EngineKind::BTree);
                assert!(table.get("k").unwrap().unwrap() == value[..]);
            }
            Err(Error::OutOfMemory { budget: BUDGET_BYTES, needed }) => {
                assert!(needed >= 20 * MIB, "{kind}: {needed}");
                assert_eq!(db.session.core.log.end(), end, "{kind}: nothing is logged");
            }
            Err(error) => panic!("{kind}: {error}"),
        }
        table.put("k", "v").unwrap();
    }
}
