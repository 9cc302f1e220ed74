//! Merge operators on every engine: their order, conflicts, envelopes, refusals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use crate::{
    Error,
    contract::{EngineKind, TableOptions},
    db::{Database, Options, PutOptions, Table, TransactionOptions, UpdateOptions},
    io::sim::SimEnv,
    util::{
        mutant::{Bug, finds},
        types::TypeTag,
    },
};

const TTL: Duration = Duration::from_mins(1);

/// The new value is the old one, a `+`, and the operand. Refuses an empty operand.
fn joined(_key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
    if operand.is_empty() {
        return Err("the operand is empty".to_owned());
    }
    Ok([old.unwrap_or(b"-"), b"+", operand].concat())
}

fn options() -> Options {
    Options::new().memory_budget(64 << 20).merge_operator("joined", joined)
}

fn open(env: &SimEnv) -> Database {
    options().open_in(Arc::new(env.clone()), "db").unwrap()
}

/// Runs a test on an empty table of each engine with this operator.
fn each_engine(operator: &str, test: impl Fn(&SimEnv, &Database, &Table)) {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        let env = SimEnv::new(seed);
        let db = open(&env);
        let table = db.create_table("t", TableOptions::new(*kind).merge(operator)).unwrap();
        test(&env, &db, &table);
    }
}

fn value(table: &Table, key: &str) -> Vec<u8> {
    table.get(key).unwrap().unwrap().to_vec()
}

fn merges_fold_in_order() {
    each_engine("joined", |env, db, table| {
        table.merge("k", "a").unwrap();
        table.merge("k", "b").unwrap();
        assert_eq!(value(table, "k"), b"-+a+b");
        let mut batch = db.batch();
        batch.merge(table, "k", "c").put(table, "l", "x").merge(table, "l", "d");
        batch.delete(table, "k").merge(table, "k", "e").merge(table, "k", "f");
        assert_eq!(batch.len(), 6);
        batch.commit().unwrap();
        assert!(batch.is_empty());
        assert_eq!((value(table, "k"), value(table, "l")), (b"-+e+f".to_vec(), b"x+d".to_vec()));
        db.transaction(|tx| {
            tx.put(table, "m", "y")?;
            tx.merge(table, "m", "g")?;
            assert_eq!(tx.get(table, "m")?.unwrap(), b"y+g");
            tx.merge(table, "k", "h")
        })
        .unwrap();
        let expected = [("k", "-+e+f+h"), ("l", "x+d"), ("m", "y+g")];
        // Half of it is in files when the process is killed. No replay counts a merge twice.
        db.persist().unwrap();
        table.merge("k", "i").unwrap();
        let db = open(&env.kill());
        let table = db.table("t").unwrap();
        for (key, text) in expected {
            let text = if key == "k" { format!("{text}+i") } else { text.to_owned() };
            assert_eq!(value(&table, key), text.as_bytes(), "{}", table.kind());
        }
    });
}

#[test]
fn operands_are_merged_in_the_order_of_the_calls() {
    merges_fold_in_order();
    finds(Bug::MergeIgnoresValue, merges_fold_in_order);
    finds(Bug::MergeMissesOwnWrites, merges_fold_in_order);
}

fn batches_see_the_writes_between() {
    let writer: Arc<std::sync::OnceLock<Table>> = Arc::default();
    let between = Arc::clone(&writer);
    let operator = move |key: &[u8], old: Option<&[u8]>, operand: &[u8]| {
        // Another write of the key comes between the read and the commit.
        if let (Some(table), Some(b"first")) = (between.get(), old) {
            table.put(key, "second").unwrap();
        }
        joined(key, old, operand)
    };
    let env = SimEnv::new(1);
    let options = Options::new().memory_budget(64 << 20).merge_operator("between", operator);
    let db = options.open_in(Arc::new(env), "db").unwrap();
    let table = TableOptions::new(EngineKind::HashLog).merge("between");
    let table = db.create_table("t", table).unwrap();
    table.put("k", "first").unwrap();
    writer.set(table.clone()).unwrap();
    db.batch().merge(&table, "k", "a").put(&table, "l", "x").commit().unwrap();
    assert_eq!(value(&table, "k"), b"second+a");
    table.put("k", "first").unwrap();
    table.merge("k", "b").unwrap();
    assert_eq!(value(&table, "k"), b"second+b");
}

#[test]
fn a_merge_in_a_batch_loses_no_write_that_comes_between() {
    batches_see_the_writes_between();
    finds(Bug::MergeNotValidated, batches_see_the_writes_between);
}

fn merges_keep_the_envelope() {
    each_engine("append", |env, db, table| {
        let stored = PutOptions::new().ttl(TTL).type_tag(TypeTag::String);
        table.put_with("k", "a", stored).unwrap();
        table.merge("k", "b").unwrap();
        db.batch().merge(table, "k", "c").commit().unwrap();
        db.transaction(|tx| tx.merge(table, "k", "d")).unwrap();
        let merged = table.get("k").unwrap().unwrap();
        assert_eq!(merged, b"abcd");
        assert!(merged.expires_at_unix_millis().is_some());
        assert_eq!(merged.type_tag(), Some(TypeTag::String));
        env.advance(TTL);
        // The old value has expired: the operand is alone.
        db.batch().merge(table, "k", "e").commit().unwrap();
        let merged = table.get("k").unwrap().unwrap();
        assert_eq!((&*merged, merged.expires_at_unix_millis()), (&b"e"[..], None));
        table.merge_with("k", "f", UpdateOptions::new().ttl(TTL)).unwrap();
        env.advance(TTL);
        assert_eq!(table.get("k").unwrap(), None);
    });
}

#[test]
fn a_merged_value_keeps_expiry_and_type() {
    merges_keep_the_envelope();
    finds(Bug::MergeForgetsExpiry, merges_keep_the_envelope);
}

#[test]
fn a_refused_operand_changes_nothing() {
    each_engine("joined", |_, db, table| {
        table.put("k", "a").unwrap();
        let refused = table.merge("k", "").unwrap_err();
        let expected = "key \"k\" of table t: joined refuses the operand: the operand is empty";
        assert_eq!(refused.to_string(), expected);
        let mut batch = db.batch();
        batch.put(table, "l", "b").merge(table, "k", "");
        assert!(matches!(batch.commit(), Err(Error::MergeRefused { .. })));
        let refused = db.transaction(|tx| tx.merge(table, "k", ""));
        assert!(matches!(refused, Err(Error::MergeRefused { .. })));
        assert_eq!((value(table, "k"), table.get("l").unwrap()), (b"a".to_vec(), None));
    });
    let env = SimEnv::new(1);
    let db = open(&env);
    let sums = TableOptions::new(EngineKind::BTree).merge("add_u64");
    let sums = db.create_typed::<String, u64>("sums", sums).unwrap();
    sums.merge("n", &u64::MAX).unwrap();
    sums.merge("m", &1).unwrap();
    sums.merge("m", &2).unwrap();
    assert!(matches!(sums.merge("n", &1), Err(Error::MergeRefused { .. })));
    assert_eq!((sums.get("n").unwrap(), sums.get("m").unwrap()), (Some(u64::MAX), Some(3)));
    assert!(matches!(sums.table().merge("n", "text"), Err(Error::MergeRefused { .. })));
    let mut tx = db.begin(TransactionOptions::new()).unwrap();
    tx.typed(&sums).merge("m", &4).unwrap();
    tx.commit().unwrap();
    assert_eq!(sums.get("m").unwrap(), Some(7));
}

#[test]
fn a_table_without_its_operator_is_refused_and_named() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let plain = db.create_table("plain", TableOptions::new(EngineKind::Slm)).unwrap();
    assert!(matches!(plain.merge("k", "a"), Err(Error::InvalidOption { .. })));
    let table = TableOptions::new(EngineKind::Slm).merge("joined");
    let table = db.create_table("dir/t", table).unwrap();
    table.merge("k", "a").unwrap();
    drop((table, plain));
    db.close().unwrap();
    let without = Options::new().memory_budget(64 << 20);
    let env: Arc<SimEnv> = Arc::new(env);
    let db = without.open_in(Arc::<SimEnv>::clone(&env), "db").unwrap();
    let missing = db.table("dir/t").unwrap_err();
    let expected = "table dir/t has the merge operator \"joined\", which is not registered; \
                    register it in the options of the database";
    assert_eq!(missing.to_string(), expected);
    let created = db.create_table("u", TableOptions::new(EngineKind::Tph).merge("joined"));
    assert!(matches!(created, Err(Error::MergeOperatorMissing { .. })));
    // All but the table works: it is checkpointed, checked and counted.
    db.table("plain").unwrap().put("k", "v").unwrap();
    db.persist().unwrap();
    assert!(db.check().unwrap().is_sound());
    db.close().unwrap();
    let db = without.clone().allow_missing_merge_operators(true);
    let db = db.open_in(env, "db").unwrap();
    let table = db.table("dir/t").unwrap();
    assert_eq!(value(&table, "k"), b"-+a");
    table.put("k", "b").unwrap();
    assert!(matches!(table.merge("k", "c"), Err(Error::MergeOperatorMissing { .. })));
    assert!(matches!(
        db.batch().merge(&table, "k", "c").commit(),
        Err(Error::MergeOperatorMissing { .. })
    ));
}

#[test]
fn a_cleared_table_keeps_its_operator() {
    each_engine("append", |_, db, table| {
        table.merge("k", "old").unwrap();
        let mut batch = db.batch();
        batch.put(table, "l", "x").merge(table, "l", "y").merge(table, "k", "new");
        table.clear().unwrap();
        batch.commit().unwrap();
        assert_eq!((value(table, "k"), value(table, "l")), (b"new".to_vec(), b"xy".to_vec()));
        table.clear().unwrap();
        table.merge("k", "a").unwrap();
        db.transaction(|tx| tx.merge(table, "k", "b")).unwrap();
        assert_eq!(value(table, "k"), b"ab");
    });
}

#[test]
fn an_operator_that_cannot_serve_a_table_is_refused() {
    let env: Arc<SimEnv> = Arc::new(SimEnv::new(1));
    let taken = Options::new().merge_operator("max", joined);
    let taken = taken.open_in(Arc::<SimEnv>::clone(&env), "db").unwrap_err();
    assert!(taken.to_string().contains("max is the name of a built-in operator"), "{taken}");
    let db = options().open_in(env, "db").unwrap();
    let sums = TableOptions::new(EngineKind::BTree).merge("add_i64");
    let refused = db.create_typed::<String, u64>("sums", sums).unwrap_err();
    assert!(refused.to_string().contains("add_i64 makes no values of the type u64"), "{refused}");
    for name in ["", "a b", &"x".repeat(65)] {
        let named = TableOptions::new(EngineKind::BTree).merge(name);
        let refused = db.create_table("t", named).unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
    }
    let by_name = TableOptions::new(EngineKind::BTree).set("merge", "max");
    let table = db.create_table("t", by_name).unwrap();
    db.batch().merge(&table, "k", "b").merge(&table, "k", "a").commit().unwrap();
    assert_eq!(value(&table, "k"), b"b");
}
