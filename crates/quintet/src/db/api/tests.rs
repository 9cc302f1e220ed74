//! Atomic operations and reads of whole tables, in the schedules that matter: another write between
//! the read and the commit of an update, an expiry there, a panic. Each planted bug is found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use super::{CasOutcome, Database, PutOptions, Table, UpdateOptions};
use crate::{
    Error,
    contract::{EngineKind, TableOptions},
    db::recovery::options::Options,
    io::sim::SimEnv,
    util::{
        mutant::{Bug, finds},
        types::TypeTag,
    },
};

const TTL: Duration = Duration::from_secs(10);

fn open(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(32 << 20).segment_bytes(256 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

/// Runs a test on a table of each engine, and checks the database after it.
fn each_engine(test: impl Fn(&SimEnv, &Table)) {
    for (seed, kind) in (1..).zip(EngineKind::ALL) {
        let env = SimEnv::new(seed);
        let db = open(&env);
        let table = db.create_table("t", TableOptions::new(kind)).unwrap();
        test(&env, &table);
        assert!(db.check().unwrap().is_sound(), "{kind}");
    }
}

fn each_ordered_engine(test: impl Fn(&SimEnv, &Table)) {
    each_engine(|env, table| {
        if table.kind().is_ordered() {
            test(env, table);
        }
    });
}

/// Returns a value with one byte more.
fn longer(old: Option<&[u8]>) -> Vec<u8> {
    [old.unwrap_or_default(), b"+"].concat()
}

fn updates_see_the_writes_between() {
    each_engine(|env, table| {
        table.put("k", "a").unwrap();
        let mut rounds = 0;
        let new = table.update("k", |old| {
            rounds += 1;
            if rounds == 1 {
                table.put("k", "b").unwrap();
            }
            Some(longer(old))
        });
        assert_eq!(new.unwrap().unwrap(), b"b+");
        assert_eq!((table.get("k").unwrap().unwrap().to_vec(), rounds), (b"b+".to_vec(), 2));
        // A delete between, and a batch.
        let old = table.fetch_and_update("k", |old| {
            if old.is_some() {
                table.delete("k").unwrap();
            }
            Some("new")
        });
        assert_eq!(old.unwrap(), None);
        let db = Database { session: table.session.clone() };
        let mut is_first = true;
        table
            .update("k", |old| {
                if std::mem::take(&mut is_first) {
                    db.batch().put(table, "k", "batch").put(table, "l", "batch").commit().unwrap();
                }
                Some(longer(old))
            })
            .unwrap();
        assert_eq!(table.get("k").unwrap().unwrap(), b"batch+");
        // The log has each once.
        let db = open(&env.kill());
        assert_eq!(db.table("t").unwrap().get("k").unwrap().unwrap(), b"batch+");
    });
}

#[test]
fn an_update_loses_no_write_that_comes_between() {
    updates_see_the_writes_between();
    finds(Bug::UpdateIgnoresOtherWrites, updates_see_the_writes_between);
}

#[test]
fn writes_of_other_keys_cause_no_second_round() {
    each_engine(|_, table| {
        let mut rounds = 0;
        table
            .update("k", |_| {
                rounds += 1;
                // More keys than stripes, so some share the stripe of "k".
                for number in 0..2000_u32 {
                    table.put(number.to_be_bytes(), "other").unwrap();
                }
                Some("value")
            })
            .unwrap();
        assert_eq!(rounds, 1);
        assert_eq!(table.get("k").unwrap().unwrap(), b"value");
    });
}

fn updates_see_an_expiry_between() {
    each_engine(|env, table| {
        table.put_with("k", "old", PutOptions::new().ttl(TTL)).unwrap();
        let mut rounds = 0;
        let new = table.update("k", |old| {
            rounds += 1;
            env.advance(TTL);
            old.map(<[u8]>::to_vec).or_else(|| Some(b"new".to_vec()))
        });
        assert_eq!((new.unwrap().unwrap(), rounds), (b"new".to_vec(), 2));
        let value = table.get("k").unwrap().unwrap();
        assert_eq!((&*value, value.expires_at_unix_millis()), (&b"new"[..], None));
    });
}

#[test]
fn a_value_that_expires_during_an_update_is_absent() {
    updates_see_an_expiry_between();
    finds(Bug::UpdateIgnoresExpiryMeanwhile, updates_see_an_expiry_between);
}

fn updates_keep_expiry_and_tag() {
    each_engine(|env, table| {
        let options = PutOptions::new().ttl(TTL).type_tag(TypeTag::I64);
        table.put_with("k", 5_i64.to_le_bytes(), options).unwrap();
        let expiry = table.get("k").unwrap().unwrap().expires_at_unix_millis();
        let is_kept = |expected: i64| {
            let value = table.get("k").unwrap().unwrap();
            assert_eq!(&*value, expected.to_le_bytes());
            assert_eq!(value.expires_at_unix_millis(), expiry);
            assert_eq!(value.type_tag(), Some(TypeTag::I64));
        };
        assert_eq!(table.fetch_and_add("k", 2).unwrap(), 5);
        is_kept(7);
        table.update("k", |old| old.map(<[u8]>::to_vec)).unwrap();
        is_kept(7);
        let [seven, eight] = [7_i64.to_le_bytes(), 8_i64.to_le_bytes()];
        assert!(table.compare_and_swap("k", Some(&seven), Some(&eight)).unwrap().is_swapped());
        is_kept(8);
        // Options replace them.
        let options = UpdateOptions::new().ttl(TTL * 3).type_tag(TypeTag::U64);
        assert_eq!(table.fetch_and_add_with("k", 1, options).unwrap(), 8);
        let value = table.get("k").unwrap().unwrap();
        assert_eq!(value.type_tag(), Some(TypeTag::U64));
        assert!(value.expires_at_unix_millis() > expiry);
        env.advance(TTL * 2);
        assert_eq!(table.fetch_and_add("k", 1).unwrap(), 9);
        let options = UpdateOptions::new().without_expiry();
        assert_eq!(table.fetch_and_add_with("k", 1, options).unwrap(), 10);
        assert_eq!(table.get("k").unwrap().unwrap().expires_at_unix_millis(), None);
        // An expired value is absent, and its expiry is not kept.
        table.put_with("l", "old", PutOptions::new().ttl(TTL)).unwrap();
        env.advance(TTL);
        assert_eq!(table.take("l").unwrap(), None);
        assert_eq!(table.replace("l", "new").unwrap(), None);
        assert_eq!(table.get("l").unwrap().unwrap().expires_at_unix_millis(), None);
    });
}

#[test]
fn an_update_keeps_expiry_and_type_tag_unless_options_replace_them() {
    updates_keep_expiry_and_tag();
    finds(Bug::UpdateForgetsExpiry, updates_keep_expiry_and_tag);
}

fn swaps_compare_values() {
    each_engine(|_, table| {
        let swap = |expected, new| table.compare_and_swap("k", expected, new).unwrap();
        let different = |current: &[u8]| CasOutcome::Different { current: Some(current.to_vec()) };
        let found = |outcome| match outcome {
            CasOutcome::Different { current } => CasOutcome::Different {
                current: current.map(|value: super::super::Value| value.to_vec()),
            },
            CasOutcome::Swapped => CasOutcome::Swapped,
        };
        assert!(swap(None, None).is_swapped());
        assert!(!swap(Some(b"a"), Some(b"b")).is_swapped());
        assert!(swap(None, Some(b"a")).is_swapped());
        assert_eq!(found(swap(None, Some(b"b"))), different(b"a"));
        assert_eq!(found(swap(Some(b"x"), Some(b"b"))), different(b"a"));
        assert!(swap(Some(b"a"), Some(b"b")).is_swapped());
        assert_eq!(found(swap(Some(b"a"), None)), different(b"b"));
        assert!(swap(Some(b"b"), None).is_swapped());
        assert_eq!(table.get("k").unwrap(), None);
    });
}

#[test]
fn a_swap_compares_the_whole_value_and_tells_the_current_one() {
    swaps_compare_values();
    finds(Bug::SwapComparesLengths, swaps_compare_values);
}

fn counters_stop_at_the_ends() {
    each_engine(|_, table| {
        let limit = |result: crate::Result<i64>| {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Limit { .. }), "{error}");
        };
        assert_eq!(table.fetch_and_add("n", i64::MAX).unwrap(), 0);
        limit(table.fetch_and_add("n", 1));
        assert_eq!(table.fetch_and_add("n", 0).unwrap(), i64::MAX);
        let tagged = |tag| UpdateOptions::new().type_tag(tag);
        assert_eq!(table.fetch_and_add_with("u", 3, tagged(TypeTag::U32)).unwrap(), 0);
        assert_eq!(table.get("u").unwrap().unwrap(), [3, 0, 0, 0]);
        limit(table.fetch_and_add("u", -4));
        limit(table.fetch_and_add("u", i64::from(u32::MAX)));
        assert_eq!(table.fetch_and_add("u", -3).unwrap(), 3);
        for (value, tag) in [("text", None), ("12345678", Some(TypeTag::String))] {
            let options = tag.map_or_else(PutOptions::new, |tag| PutOptions::new().type_tag(tag));
            table.put_with("s", value, options).unwrap();
            let error = table.fetch_and_add("s", 1).unwrap_err();
            assert!(matches!(error, Error::TypeMismatch { .. }), "{error}");
            assert_eq!(table.get("s").unwrap().unwrap(), value);
        }
    });
}

#[test]
fn a_counter_fails_beyond_its_range_and_on_other_values() {
    counters_stop_at_the_ends();
    finds(Bug::CounterWrapsAround, counters_stop_at_the_ends);
}

#[test]
fn get_or_insert_makes_a_value_once_and_returns_the_one_that_is_stored() {
    each_engine(|_, table| {
        assert_eq!(table.get_or_insert_with("k", || "made").unwrap(), b"made");
        assert_eq!(
            table.get_or_insert_with("k", || -> &str { panic!("unused") }).unwrap(),
            b"made"
        );
        let raced = table.get_or_insert_with("l", || {
            table.put("l", "other").unwrap();
            "made"
        });
        assert_eq!(raced.unwrap(), b"other");
        assert_eq!(table.get("l").unwrap().unwrap(), b"other");
        assert_eq!(table.get_or_insert_with("empty", || "").unwrap(), b"");
        assert_eq!(table.get("empty").unwrap().unwrap(), b"");
    });
}

#[test]
fn a_panic_in_an_update_changes_nothing() {
    each_engine(|_, table| {
        table.put("k", "v").unwrap();
        let used = table.session.core.budget.used();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            table.update("k", |_| -> Option<&str> { panic!("expected") })
        }));
        assert!(panicked.is_err());
        assert_eq!(table.session.core.budget.used(), used);
        assert_eq!(table.get("k").unwrap().unwrap(), b"v");
        assert_eq!(table.update("k", |old| Some(longer(old))).unwrap().unwrap(), b"v+");
    });
}

#[test]
fn a_lost_round_releases_what_it_reserved() {
    each_engine(|_, table| {
        table.put("k", "v").unwrap();
        let used = table.session.core.budget.used();
        for round in 0..20_u8 {
            let mut is_first = true;
            table
                .update("k", |_| {
                    let value = vec![round; 100];
                    if std::mem::take(&mut is_first) {
                        table.put("k", "v").unwrap();
                        return Some(vec![round; 100_000]);
                    }
                    Some(value)
                })
                .unwrap();
        }
        table.put("k", "v").unwrap();
        let grown = table.session.core.budget.used().saturating_sub(used);
        assert!(grown < 1 << 20, "{}: {grown} bytes", table.kind());
    });
}

#[test]
fn an_update_fails_where_a_put_does() {
    each_engine(|_, table| {
        let too_long = vec![0; crate::KEY_BYTES_MAX + 1];
        assert!(matches!(table.update(&too_long, |_| Some("")), Err(Error::Limit { .. })));
        assert!(matches!(table.take(""), Err(Error::Limit { .. })));
        let options = UpdateOptions::new().ttl(Duration::ZERO);
        let refused = table.compare_and_swap_with("k", None, Some(b"v"), options);
        assert!(matches!(refused, Err(Error::Limit { .. })));
        let options = UpdateOptions::new().expires_at(std::time::SystemTime::UNIX_EPOCH);
        assert!(matches!(table.update_with("k", options, |_| Some("")), Err(Error::Limit { .. })));
        let db = Database { session: table.session.clone() };
        let options = TableOptions::new(table.kind());
        let dropped = db.create_table("dropped", options).unwrap();
        dropped.put("k", "v").unwrap();
        // The table is dropped between the read and the commit.
        let outcome = dropped.update("k", |_| {
            db.drop_table("dropped").unwrap();
            Some("new")
        });
        assert!(matches!(outcome, Err(Error::StaleTable { .. })), "{outcome:?}");
        assert!(matches!(dropped.take("k"), Err(Error::StaleTable { .. })));
    });
    let env = SimEnv::new(8);
    let db = open(&env);
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let mut loader = table.sorted_loader(super::LoadOptions::new()).unwrap();
    loader.put("a", "v").unwrap();
    assert!(matches!(table.replace("k", "v"), Err(Error::Loading { .. })));
    loader.commit().unwrap();
    // A load between the read and the commit changes the key.
    let mut is_first = true;
    let new = table.update("b", |old| {
        if std::mem::take(&mut is_first) {
            table.load_sorted([("b", "loaded")]).unwrap();
        }
        Some(longer(old))
    });
    assert_eq!(new.unwrap().unwrap(), b"loaded+");
    let outcome = table.update("k", |_| {
        db.close().unwrap();
        Some("v")
    });
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
}

fn pops_share_no_entry() {
    const ENTRIES: u32 = 3000;
    each_ordered_engine(|_, table| {
        table.extend((0..ENTRIES).map(|number| (number.to_be_bytes(), "job"))).unwrap();
        let pop_all = |from_end: bool| {
            let mut keys = Vec::new();
            loop {
                let popped = if from_end { table.pop_last() } else { table.pop_first() };
                match popped.unwrap() {
                    Some((key, _)) => keys.push(key),
                    None => return keys,
                }
            }
        };
        let mut keys = std::thread::scope(|threads| {
            let other = threads.spawn(|| pop_all(false));
            let mut keys = pop_all(false);
            keys.extend(other.join().unwrap());
            keys
        });
        keys.sort_unstable();
        let all: Vec<_> = (0..ENTRIES).map(|number| number.to_be_bytes().to_vec()).collect();
        assert_eq!(keys, all);
        table.put("a", "1").unwrap();
        table.put("b", "2").unwrap();
        assert_eq!(pop_all(true), [b"b", b"a"]);
    });
}

#[test]
fn two_threads_never_pop_the_same_entry() {
    pops_share_no_entry();
    finds(Bug::PopDeletesBlindly, pops_share_no_entry);
}

#[test]
fn a_prefetch_changes_nothing_and_fails_only_where_reads_do() {
    each_engine(|_, table| {
        let keys: Vec<_> = (0..100_u32).map(u32::to_be_bytes).collect();
        for key in keys.iter().step_by(2) {
            table.put(key, key).unwrap();
        }
        let long = vec![7; 70_000];
        let mut ahead: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        ahead.extend([&[], &long[..]]);
        for count in [0, 1, ahead.len()] {
            table.prefetch(&ahead[..count]).unwrap();
        }
        for (number, key) in keys.iter().enumerate() {
            let value = table.get(key).unwrap();
            assert_eq!(value.is_some(), number % 2 == 0, "{}", table.kind());
        }
        table.clear().unwrap();
        table.prefetch(&ahead).unwrap();
        assert_eq!(table.get(keys[0]).unwrap(), None);
    });
    let env = SimEnv::new(9);
    let db = open(&env);
    let table = db.create_table("t", TableOptions::new(EngineKind::HashLog)).unwrap();
    db.drop_table("t").unwrap();
    assert!(matches!(table.prefetch(&[b"k"]), Err(Error::StaleTable { .. })));
}

fn len_is_exact() {
    each_engine(|env, table| {
        assert!(table.is_empty().unwrap());
        for number in 0..300_u32 {
            let ttl = if number % 3 == 0 { PutOptions::new().ttl(TTL) } else { PutOptions::new() };
            table.put_with(number.to_be_bytes(), "v", ttl).unwrap();
        }
        assert_eq!(table.len().unwrap(), 300);
        env.advance(TTL);
        assert_eq!(table.len().unwrap(), 200);
        assert_eq!(table.iter().count(), 200);
        assert!(!table.is_empty().unwrap());
        table.clear().unwrap();
        assert_eq!(table.len().unwrap(), 0);
        assert!(table.is_empty().unwrap());
    });
}

#[test]
fn len_counts_what_can_be_read() {
    len_is_exact();
    finds(Bug::LenCountsExpired, len_is_exact);
}

fn cursors_turn() {
    each_ordered_engine(|_, table| {
        for key in ["a", "c", "e"] {
            table.put(key, key.repeat(3)).unwrap();
        }
        let mut cursor = table.cursor().unwrap();
        assert_eq!((cursor.key(), cursor.value()), (None, None));
        assert!(cursor.next().unwrap());
        assert_eq!((cursor.key(), cursor.value()), (Some(&b"a"[..]), Some(&b"aaa"[..])));
        assert!(cursor.next().unwrap() && cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(&b"e"[..]));
        assert!(!cursor.next().unwrap());
        assert_eq!(cursor.key(), None);
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.key(), Some(&b"e"[..]));
        assert!(cursor.prev().unwrap());
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(&b"e"[..]));
        assert!(cursor.seek("b").unwrap());
        assert_eq!(cursor.key(), Some(&b"c"[..]));
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.key(), Some(&b"a"[..]));
        assert!(!cursor.prev().unwrap());
        assert!(cursor.seek_for_prev("d").unwrap());
        assert_eq!(cursor.value(), Some(&b"ccc"[..]));
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(&b"e"[..]));
        assert!(!cursor.seek("f").unwrap() && !cursor.seek_for_prev("A").unwrap());
    });
}

#[test]
fn a_cursor_may_change_its_direction() {
    cursors_turn();
    finds(Bug::CursorRepeatsAtTurn, cursors_turn);
}
