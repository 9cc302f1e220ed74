//! Atomic operations of one key beside other threads, on every engine: no write is lost, and no
//! value is taken twice.
//!
//! `QUINTET_ATOMIC_STEPS` sets the steps of each thread (300).

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use quintet::{
    CasOutcome, Database, EngineKind, Error, Options, Table, TableOptions, UpdateOptions,
    testing::disk::sim::SimEnv,
};

const THREADS: u64 = 8;

fn steps() -> u64 {
    std::env::var("QUINTET_ATOMIC_STEPS").map_or(300, |text| text.parse().unwrap())
}

fn open(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(64 << 20).segment_bytes(256 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

/// Runs a test on a table of each engine. The table is the same after the process was killed.
fn each_engine(test: impl Fn(&Database, &Table)) {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        let env = SimEnv::new(seed);
        let db = open(&env);
        let table = db.create_table("t", TableOptions::new(*kind)).unwrap();
        test(&db, &table);
        let sorted = |table: &Table| {
            let mut entries: Vec<_> = table.iter().map(Result::unwrap).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            entries
        };
        let before = sorted(&table);
        assert!(db.check().unwrap().is_sound(), "{kind}");
        let db = open(&env.kill());
        assert_eq!(sorted(&db.table("t").unwrap()), before, "{kind}");
    }
}

/// Runs `work` on each thread with its number, and returns the results.
fn on_threads<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    thread::scope(|threads| {
        let work = &work;
        let started: Vec<_> =
            (0..THREADS).map(|thread| threads.spawn(move || work(thread))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_counter_loses_no_addition() {
    let steps = steps();
    each_engine(|db, table| {
        let tickets = on_threads(|thread| {
            let add = |step| {
                // Writes of the same stripes, and a checkpoint, beside.
                table.put(format!("{thread}-{step}"), "other").unwrap();
                if step % 100 == thread {
                    db.persist().unwrap();
                }
                table.fetch_and_add("n", 1).unwrap()
            };
            (0..steps).map(add).collect::<Vec<i64>>()
        });
        // Each thread got numbers of its own, in ascending order.
        assert!(tickets.iter().all(|tickets| tickets.is_sorted_by(|one, next| one < next)));
        let tickets: BTreeSet<_> = tickets.into_iter().flatten().collect();
        let end = i64::try_from(THREADS * steps).unwrap();
        assert!(tickets.into_iter().eq(0..end), "{}", table.kind());
        assert_eq!(table.get("n").unwrap().unwrap(), end.to_le_bytes());
    });
}

#[test]
fn updates_with_a_function_lose_no_addition() {
    let steps = steps();
    each_engine(|_, table| {
        let number = |value: Option<&[u8]>| {
            value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
        };
        on_threads(|thread| {
            for step in 0..steps {
                let added = table.update("n", |old| {
                    // The function may write to its own table.
                    table.put(format!("{thread}-{step}"), "other").unwrap();
                    Some((number(old) + 1).to_le_bytes())
                });
                assert!(number(added.unwrap().as_ref().map(|n| &n[..])) > step);
            }
        });
        assert_eq!(number(table.get("n").unwrap().as_deref()), THREADS * steps);
    });
}

#[test]
fn a_list_that_grows_by_compare_and_swap_has_every_item() {
    let steps = steps() / 4;
    each_engine(|_, table| {
        on_threads(|thread| {
            for step in 0..steps {
                let item = format!("{thread}:{step};").into_bytes();
                let mut current = table.get("list").unwrap().map(|list| list.to_vec());
                loop {
                    let new = [current.as_deref().unwrap_or_default(), &item].concat();
                    match table.compare_and_swap("list", current.as_deref(), Some(&new)).unwrap() {
                        CasOutcome::Swapped => break,
                        CasOutcome::Different { current: other } => {
                            current = other.map(|list| list.to_vec());
                        }
                    }
                }
            }
        });
        let list = String::from_utf8(table.get("list").unwrap().unwrap().to_vec()).unwrap();
        for thread in 0..THREADS {
            let own = format!("{thread}:");
            let steps_found: Vec<_> =
                list.split(';').filter_map(|item| item.strip_prefix(&own)).collect();
            assert!(steps_found.into_iter().eq((0..steps).map(|step| step.to_string())));
        }
    });
}

/// Threads set and remove one key. Each value that was set is returned by exactly one operation.
#[test]
fn each_value_is_taken_or_replaced_once() {
    let steps = steps();
    each_engine(|_, table| {
        let gone = on_threads(|thread| {
            let mut gone = Vec::new();
            for step in 0..steps {
                let value = (thread * steps + step).to_le_bytes();
                gone.extend(table.replace("k", value).unwrap());
                if step % 3 == 0 {
                    gone.extend(table.take("k").unwrap());
                }
                if step % 5 == 0 {
                    // A delete by a function.
                    gone.extend(table.fetch_and_update("k", |_| None::<&[u8]>).unwrap());
                }
            }
            gone
        });
        let mut values: Vec<_> =
            gone.into_iter().flatten().chain(table.take("k").unwrap()).collect();
        values.sort_by_key(|value| u64::from_le_bytes((**value).try_into().unwrap()));
        assert!(
            values
                .iter()
                .map(|value| value.to_vec())
                .eq((0..THREADS * steps).map(|value| value.to_le_bytes().to_vec()))
        );
        assert!(table.is_empty().unwrap());
    });
}

#[test]
fn updates_do_not_undo_the_batches_beside_them() {
    let steps = steps();
    each_engine(|db, table| {
        let is_over = AtomicBool::new(false);
        let updates = AtomicU64::new(0);
        thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        table.update("k", |old| old.map(<[u8]>::to_vec)).unwrap();
                        updates.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // At least until an update has run.
            let is_beside = || updates.load(Ordering::Relaxed) > 0;
            for step in (0..).take_while(|step| *step < steps || !is_beside()) {
                let value: [u8; 8] = u64::to_le_bytes(step);
                db.batch().put(table, "k", value).put(table, "l", value).commit().unwrap();
                assert_eq!(table.get("k").unwrap().unwrap(), value);
                if step % 10 == 9 {
                    db.batch().delete(table, "k").delete(table, "l").commit().unwrap();
                    assert_eq!(table.get("k").unwrap(), None);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn get_or_insert_agrees_on_one_value() {
    each_engine(|_, table| {
        for step in 0..100_u32 {
            let values = on_threads(|thread| {
                table.get_or_insert_with(step.to_be_bytes(), || thread.to_le_bytes()).unwrap()
            });
            assert!(values.iter().all(|value| *value == values[0]));
            assert_eq!(table.get(step.to_be_bytes()).unwrap().unwrap(), values[0]);
        }
    });
}

#[test]
fn typed_tables_have_the_same_operations() {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        let db = open(&SimEnv::new(seed));
        let options = TableOptions::new(*kind);
        let counts = db.create_typed::<String, u64>("counts", &options).unwrap();
        assert_eq!(counts.fetch_and_add("a", 5).unwrap(), 0);
        assert_eq!(counts.fetch_and_add("a", -2).unwrap(), 5);
        assert!(matches!(counts.fetch_and_add("a", -4), Err(Error::Limit { .. })));
        assert_eq!(counts.update("a", |old| old.map(|old| old * 2)).unwrap(), Some(6));
        let options_of_update = UpdateOptions::new().without_expiry();
        assert_eq!(counts.update_with("a", options_of_update, |_| None).unwrap(), None);
        assert_eq!(counts.get_or_insert_with("a", || 7).unwrap(), 7);
        assert_eq!(counts.replace("a", &u64::MAX).unwrap(), Some(7));
        // A typed counter has the whole range.
        assert_eq!(counts.fetch_and_add("a", -1).unwrap(), u64::MAX);
        assert!(matches!(counts.table().fetch_and_add("a", 1), Err(Error::Limit { .. })));
        let outcome = counts.compare_and_swap("a", Some(&1), Some(&2)).unwrap();
        assert_eq!(outcome, CasOutcome::Different { current: Some(u64::MAX - 1) });
        let swapped = counts.compare_and_swap("a", Some(&(u64::MAX - 1)), Some(&2)).unwrap();
        assert!(swapped.is_swapped());
        assert_eq!(counts.iter().map(Result::unwrap).collect::<Vec<_>>(), [("a".to_owned(), 2)]);
        assert_eq!(counts.take("a").unwrap(), Some(2));
        assert!(counts.is_empty().unwrap() && counts.len().unwrap() == 0);
        // Other bytes are refused as by a put.
        let refused = counts.table().update("a", |_| Some("no number"));
        assert!(matches!(refused, Err(Error::TypeMismatch { .. })), "{refused:?}");
        let texts = db.create_typed::<String, String>("texts", &options).unwrap();
        assert!(matches!(texts.table().fetch_and_add("a", 1), Err(Error::TypeMismatch { .. })));
        assert_eq!(texts.update("a", |_| Some("text".to_owned())).unwrap().unwrap(), "text");
        texts.clear().unwrap();
        assert!(texts.is_empty().unwrap());
    }
}

#[test]
fn atomic_operations_fail_on_a_database_that_takes_no_writes() {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        let env = SimEnv::new(seed);
        let db = open(&env);
        db.create_table("t", TableOptions::new(*kind)).unwrap().put("k", "v").unwrap();
        db.close().unwrap();
        let options = Options::new().memory_budget(64 << 20).read_only(true);
        let db = options.open_in(Arc::new(env.clone()), "db").unwrap();
        let table = db.table("t").unwrap();
        assert!(matches!(table.take("k"), Err(Error::ReadOnly)));
        assert!(matches!(table.update("k", |_| Some("w")), Err(Error::ReadOnly)));
        assert!(matches!(table.clear(), Err(Error::ReadOnly)));
        assert_eq!(table.get("k").unwrap().unwrap(), b"v");
        db.close().unwrap();
        assert!(matches!(table.fetch_and_add("k", 1), Err(Error::Closed)));
    }
}
