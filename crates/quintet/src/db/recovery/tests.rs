//! Goal: a database opens with any budget, whatever its log holds, and replay keeps the budget.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    contract::{Cursor, EngineKind, TableOptions},
    db::{Database, Options, Table},
    io::sim::{Policy, SimEnv},
    util::{
        budget::Budget,
        codec::to_u64,
        mutant::{Bug, finds},
    },
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The minimum of the memory budget.
const SMALL_BYTES: u64 = 1 << 20;
/// Bytes of the largest value.
const VALUE_BYTES: usize = 3 << 19;
/// Bytes beyond the budget: a large value, and what engines hold at least.
const BESIDE_BYTES: u64 = 8 << 20;

fn open(env: &SimEnv, budget: u64) -> Database {
    let options = Options::new().memory_budget(budget).recovery_budget(1 << 30);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn budget(db: &Database) -> &Arc<Budget> {
    &db.session.core.budget
}

fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

/// Writes a table with much memory: some of it to its files, the rest to the log alone.
fn write(env: &SimEnv, kind: EngineKind) -> Rows {
    let db = open(env, 256 << 20);
    let table = db.create_table("t", TableOptions::new(kind)).unwrap();
    let mut rows = Rows::new();
    let mut put = |number: u64, value: Vec<u8>| {
        table.put(key(number), &value).unwrap();
        rows.insert(key(number), value);
    };
    (0..2000).for_each(|number| put(number, vec![1; 300]));
    db.persist().unwrap();
    // Each key once, so that each record counts.
    (20_000..32_000).for_each(|number| put(number, vec![low(number); 700]));
    put(1, vec![2; VALUE_BYTES]);
    // The order of operations on one key counts.
    (0..200).for_each(|round| put(2, vec![low(round); 500]));
    let mut batch = db.batch();
    for number in 8000..12_000 {
        batch.put(&table, key(number), [3; 1000]);
        rows.insert(key(number), vec![3; 1000]);
    }
    batch.commit().unwrap();
    for number in (0..9000).step_by(5) {
        table.delete(key(number)).unwrap();
        rows.remove(&key(number));
    }
    rows
}

fn low(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn contents(table: &Table) -> Rows {
    let (mut rows, mut cursor) = (Rows::new(), Cursor::START);
    loop {
        let (entries, next) = table.scan(&cursor, 1000).unwrap();
        rows.extend(entries.into_iter().map(|(key, value)| (key, value.to_vec())));
        if next.is_start() {
            return rows;
        }
        cursor = next;
    }
}

fn check(db: &Database, rows: &Rows) {
    let table = db.table("t").unwrap();
    let found = contents(&table);
    assert!(found.keys().eq(rows.keys()), "{} keys instead of {}", found.len(), rows.len());
    assert!(found == *rows, "a value is wrong");
    let report = db.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

fn opens_with_the_minimum_of_memory(kind: EngineKind) {
    let env = SimEnv::new(31);
    let rows = write(&env, kind);
    let data: u64 = rows.iter().map(|(key, value)| to_u64(key.len() + value.len())).sum();
    assert!(data > SMALL_BYTES + BESIDE_BYTES + (1 << 20), "{data} bytes would fit");
    let env = env.kill();
    let db = open(&env, SMALL_BYTES);
    let peak = budget(&db).peak();
    println!("{kind}: {data} bytes of data, {peak} bytes of memory");
    if kind != EngineKind::Naive {
        assert!(peak <= SMALL_BYTES + BESIDE_BYTES, "{kind} held {peak} bytes");
    }
    check(&db, &rows);
    db.table("t").unwrap().delete(key(3)).unwrap();
    // The files that replay wrote are consistent with the log.
    let mut rows = rows;
    rows.remove(&key(3));
    check(&open(&env.kill(), SMALL_BYTES), &rows);
    check(&open(&env.kill(), 256 << 20), &rows);
    let env = env.kill();
    open(&env, SMALL_BYTES).persist().unwrap();
    check(&open(&env.crash(Policy::AllLost), SMALL_BYTES), &rows);
}

fn every_engine_opens_with_the_minimum_of_memory() {
    EngineKind::ALL.into_iter().for_each(opens_with_the_minimum_of_memory);
}

#[test]
fn whatever_the_log_holds_opens_with_the_minimum_of_memory() {
    every_engine_opens_with_the_minimum_of_memory();
    finds(Bug::ReplayResumesLate, || opens_with_the_minimum_of_memory(EngineKind::HashLog));
    finds(Bug::SortReordersKeys, || opens_with_the_minimum_of_memory(EngineKind::BTree));
    finds(Bug::TrieForgetsUnsyncedValues, || opens_with_the_minimum_of_memory(EngineKind::Trie));
    finds(Bug::HashlogForgetsUnsyncedValues, || {
        opens_with_the_minimum_of_memory(EngineKind::HashLog);
    });
    finds(Bug::ReplayNeverStops, || opens_with_the_minimum_of_memory(EngineKind::Tph));
}

/// A power loss during replay as writes loses nothing that was durable.
fn a_crash_while_the_log_is_replayed_as_writes(kind: EngineKind) {
    let env = SimEnv::new(32);
    let rows = write(&env, kind);
    let env = env.kill();
    // The log is durable after this, and so is all that is in it.
    open(&env, 256 << 20).close().unwrap();
    check(&open(&env.crash(Policy::AllLost), SMALL_BYTES), &rows);
}

#[test]
fn a_power_loss_after_replay_as_writes_loses_nothing() {
    EngineKind::ALL.into_iter().for_each(a_crash_while_the_log_is_replayed_as_writes);
}

/// A batch that changes more pages than the cache has.
fn a_large_batch_stays_in_the_cache() {
    let env = SimEnv::new(33);
    let db = open(&env, 4 << 20);
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let mut rows = Rows::new();
    let mut batch = db.batch();
    for number in 0..12_000 {
        batch.put(&table, key(number), [5; 1000]);
        rows.insert(key(number), vec![5; 1000]);
    }
    batch.commit().unwrap();
    let details = table.stats().unwrap().details;
    let overflows = details.iter().find(|(name, _)| *name == "cache_overflows_total").unwrap().1;
    assert!(overflows <= 32, "{overflows} pages beyond the cache");
    check(&db, &rows);
    // Half of the batch is in the table's files, and all of it in the log.
    check(&open(&env.kill(), 4 << 20), &rows);
}

#[test]
fn a_batch_larger_than_the_page_cache_is_applied_within_it() {
    a_large_batch_stays_in_the_cache();
    finds(Bug::BatchMakesNoRoom, a_large_batch_stays_in_the_cache);
}
