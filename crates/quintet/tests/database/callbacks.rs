//! Functions of the application that panic in the middle of a call. The call ends with the panic,
//! changes nothing, and leaves the table and the database in use: other threads go on, and the
//! database closes.

use std::{
    cell::Cell,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use quintet::{
    Database, EngineKind, LoadOptions, Options, Result, Table, TableOptions, TransactionOptions,
    testing::disk::sim::SimEnv,
};

const KEYS: u64 = 300;

#[expect(clippy::unnecessary_wraps, reason = "the type of a merge operator")]
fn refusing(
    _key: &[u8],
    old: Option<&[u8]>,
    operand: &[u8],
) -> std::result::Result<Vec<u8>, String> {
    assert!(operand != b"panic", "expected");
    Ok([old.unwrap_or_default(), operand].concat())
}

/// Runs a test on each engine, with entries in memory and in files, and uses the table afterwards.
fn each_engine(test: impl Fn(&Database, &Table)) {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        let env = SimEnv::new(seed);
        let options = Options::new().memory_budget(16 << 20).merge_operator("refusing", refusing);
        let db = options.open_in(Arc::new(env.clone()), "db").unwrap();
        let table = db.create_table("t", TableOptions::new(*kind).merge("refusing")).unwrap();
        for number in 0..KEYS {
            table.put(number.to_be_bytes(), [7; 100]).unwrap();
            if number == KEYS / 2 {
                table.persist().unwrap();
            }
        }
        let began = Instant::now();
        test(&db, &table);
        for number in 0..KEYS {
            assert_eq!(table.get(number.to_be_bytes()).unwrap().unwrap(), [7; 100], "{kind}");
            table.put(number.to_be_bytes(), [8; 100]).unwrap();
        }
        assert_eq!(table.len().unwrap(), KEYS, "{kind}");
        assert_eq!(db.stats().open_snapshots, 0, "{kind}: a snapshot was left");
        table.compact().unwrap();
        assert!(db.check().unwrap().is_sound(), "{kind}");
        db.close().unwrap();
        assert!(began.elapsed() < Duration::from_mins(1), "{kind}: something waited");
    }
}

fn panics(work: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let panic = outcome.expect_err("the function was not called");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"expected"));
}

#[test]
fn a_panic_while_a_range_is_visited() {
    each_engine(|_, table| {
        if !table.kind().is_ordered() {
            return;
        }
        for entries in [1, 2, 100, KEYS] {
            let seen = Cell::new(0);
            panics(|| {
                let each = |_: &[u8], _: &[u8]| {
                    seen.set(seen.get() + 1);
                    assert!(seen.get() < entries, "expected");
                    ControlFlow::Continue(())
                };
                table.visit(.., each).unwrap();
            });
        }
    });
}

#[test]
fn a_panic_while_keys_are_read() {
    each_engine(|_, table| {
        let keys: Vec<_> = (0..KEYS).map(u64::to_be_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        panics(|| {
            let seen = Cell::new(0);
            let each = |_, _: Option<&[u8]>| {
                seen.set(seen.get() + 1);
                assert!(seen.get() < KEYS / 2, "expected");
            };
            table.multi_get_each(&keys, each).unwrap();
        });
    });
}

#[test]
fn a_panic_of_a_merge_operator() {
    each_engine(|db, table| {
        panics(|| table.merge(0_u64.to_be_bytes(), "panic").unwrap());
        let mut batch = db.batch();
        batch.put(table, 1_u64.to_be_bytes(), "lost").merge(table, 2_u64.to_be_bytes(), "panic");
        panics(|| batch.commit().unwrap());
    });
}

#[test]
fn a_panic_in_a_transaction() {
    each_engine(|db, table| {
        panics(|| {
            db.transaction(|tx| -> Result<()> {
                tx.put(table, 0_u64.to_be_bytes(), "lost")?;
                assert!(tx.get_for_update(table, 1_u64.to_be_bytes())?.is_some());
                panic!("expected");
            })
            .unwrap();
        });
        // The lock of the key went with the transaction.
        let options = TransactionOptions::new().lock_timeout(Duration::from_millis(1));
        let mut tx = db.begin(options).unwrap();
        assert!(tx.get_for_update(table, 1_u64.to_be_bytes()).unwrap().is_some());
        tx.rollback();
    });
}

#[test]
fn a_panic_of_the_source_of_a_load() {
    each_engine(|db, table| {
        let other = db.create_table("loaded", TableOptions::new(table.kind())).unwrap();
        panics(|| {
            let entries = (0..KEYS).map(|number| {
                assert!(number < KEYS / 2, "expected");
                (number.to_be_bytes(), [7; 100])
            });
            let mut loader = other.sorted_loader(LoadOptions::new()).unwrap();
            entries.for_each(|(key, value)| loader.put(key, value).unwrap());
            loader.commit().unwrap();
        });
        assert!(other.is_empty().unwrap(), "{}", table.kind());
        other.put("k", "v").unwrap();
        drop(other);
        db.drop_table("loaded").unwrap();
    });
}
