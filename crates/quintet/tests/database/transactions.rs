//! Transactions on every engine: the anomalies that each isolation excludes, own writes, locks, and
//! a bank of eight threads.

use std::{
    collections::BTreeMap,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quintet::{
    Cursor, Database, EngineKind, Error, Isolation, Options, PutOptions, Result, Table,
    TableOptions, Transaction, TransactionOptions,
};

use crate::{random::Random, scratch::Scratch};

struct Bench {
    _scratch: Scratch,
    db: Database,
    tables: Vec<Table>,
}

fn bench(name: &str) -> Bench {
    let scratch = Scratch::new(name);
    let db = Options::new().memory_budget(32 << 20).open(&scratch.0).unwrap();
    let create =
        |kind: &EngineKind| db.create_table(kind.name(), TableOptions::new(*kind)).unwrap();
    let tables = EngineKind::AVAILABLE.iter().map(create).collect();
    Bench { _scratch: scratch, db, tables }
}

fn begin(db: &Database, isolation: Isolation) -> Transaction {
    db.begin(TransactionOptions::new().isolation(isolation)).unwrap()
}

fn number(value: Option<quintet::Value>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes((*value).try_into().unwrap()))
}

const BOTH: [Isolation; 2] = [Isolation::Serializable, Isolation::Snapshot];

#[test]
fn dirty_and_non_repeatable_reads_are_excluded() {
    let Bench { _scratch, db, tables } = bench("tx-reads");
    for (table, isolation) in tables.iter().flat_map(|table| BOTH.map(|how| (table, how))) {
        table.put("k", "1").unwrap();
        let (reader, mut writer) = (begin(&db, isolation), begin(&db, isolation));
        assert_eq!(reader.get(table, "k").unwrap().unwrap(), "1");
        writer.put(table, "k", "2").unwrap();
        assert_eq!(reader.get(table, "k").unwrap().unwrap(), "1", "no dirty read");
        assert_eq!(table.get("k").unwrap().unwrap(), "1", "no dirty read");
        writer.commit().unwrap();
        assert_eq!(table.get("k").unwrap().unwrap(), "2");
        assert_eq!(reader.get(table, "k").unwrap().unwrap(), "1", "repeatable");
        let values = reader.multi_get(table, &["k", "none"]).unwrap();
        assert_eq!(values[0].as_deref(), Some(b"1".as_slice()));
        assert!(values[1].is_none() && reader.contains(table, "k").unwrap());
        let mut out = b"old".to_vec();
        assert!(reader.get_into(table, "k", &mut out).unwrap() && out == b"1");
        assert!(!reader.get_into(table, "none", &mut out).unwrap() && out.is_empty());
        // What was only read does not fail.
        reader.commit().unwrap();
    }
}

#[test]
fn lost_updates_are_excluded() {
    let Bench { _scratch, db, tables } = bench("tx-updates");
    for (table, isolation) in tables.iter().flat_map(|table| BOTH.map(|how| (table, how))) {
        table.put("count", 1_u64.to_le_bytes()).unwrap();
        let mut both = [begin(&db, isolation), begin(&db, isolation)];
        for tx in &mut both {
            let count = number(tx.get(table, "count").unwrap());
            tx.put(table, "count", (count + 1).to_le_bytes()).unwrap();
        }
        let [one, other] = both;
        one.commit().unwrap();
        match other.commit() {
            Err(Error::Conflict { table: name, key }) => {
                assert_eq!((name, key), (table.name(), b"count".to_vec()));
            }
            outcome => panic!("{}: {outcome:?}", table.name()),
        }
        assert_eq!(number(table.get("count").unwrap()), 2);
        // A plain write conflicts as well.
        let mut tx = begin(&db, isolation);
        let count = number(tx.get(table, "count").unwrap());
        tx.put(table, "count", (count + 1).to_le_bytes()).unwrap();
        table.put("count", 7_u64.to_le_bytes()).unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    }
}

#[test]
fn write_skew_is_excluded_unless_isolation_is_snapshot() {
    let Bench { _scratch, db, tables } = bench("tx-skew");
    for (index, table) in tables.iter().enumerate() {
        // The two keys are in tables of different engines.
        let second = &tables[(index + 1) % tables.len()];
        for isolation in BOTH {
            db.batch().put(table, "on call", "yes").put(second, "on call", "yes").commit().unwrap();
            let (mut one, mut other) = (begin(&db, isolation), begin(&db, isolation));
            for tx in [&one, &other] {
                for table in [table, second] {
                    assert_eq!(tx.get(table, "on call").unwrap().unwrap(), "yes");
                }
            }
            one.put(table, "on call", "no").unwrap();
            other.put(second, "on call", "no").unwrap();
            one.commit().unwrap();
            let outcome = other.commit();
            match isolation {
                Isolation::Serializable => match outcome {
                    Err(Error::Conflict { table: name, .. }) => assert_eq!(name, table.name()),
                    outcome => panic!("{outcome:?}"),
                },
                Isolation::Snapshot => outcome.unwrap(),
            }
        }
    }
}

fn count_all(tx: &Transaction, table: &Table) -> usize {
    if table.kind().is_ordered() {
        return tx.range(table, ..).unwrap().map(Result::unwrap).count();
    }
    let (mut cursor, mut count) = (Cursor::START, 0);
    loop {
        let (entries, next) = tx.scan(table, &cursor, 3).unwrap();
        count += entries.len();
        if next.is_start() {
            return count;
        }
        cursor = next;
    }
}

#[test]
fn phantoms_are_excluded_unless_isolation_is_snapshot() {
    let Bench { _scratch, db, tables } = bench("tx-phantoms");
    for (index, table) in tables.iter().enumerate() {
        let totals = &tables[(index + 1) % tables.len()];
        for isolation in BOTH {
            let mut tx = begin(&db, isolation);
            let count = count_all(&tx, table);
            tx.put(totals, format!("total-{}-{isolation:?}", table.name()), [1]).unwrap();
            table.put(format!("entry-{isolation:?}"), "new").unwrap();
            assert_eq!(count_all(&tx, table), count, "a range is repeatable");
            let outcome = tx.commit();
            match isolation {
                Isolation::Serializable => {
                    assert!(matches!(outcome, Err(Error::Conflict { .. })), "{outcome:?}");
                }
                Isolation::Snapshot => outcome.unwrap(),
            }
        }
    }
}

#[test]
fn an_absent_key_that_was_read_must_stay_absent() {
    let Bench { _scratch, db, tables } = bench("tx-absent");
    for table in &tables {
        let mut tx = begin(&db, Isolation::Serializable);
        assert!(!tx.contains(table, "name").unwrap());
        tx.put(table, "other", "1").unwrap();
        table.put("name", "taken").unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { key, .. }) if key == b"name"));
        // The condition of a put is such a read.
        let mut tx = begin(&db, Isolation::Serializable);
        assert!(tx.put_with(table, "second", "1", PutOptions::new().if_absent()).unwrap());
        table.put("second", "taken").unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { key, .. }) if key == b"second"));
        assert_eq!(table.get("second").unwrap().unwrap(), "taken");
    }
}

/// Random writes, range deletes, savepoints and rollbacks, compared with a map; then a commit, and
/// the same comparison of the table.
#[test]
fn random_transactions_read_their_own_writes() {
    let Bench { _scratch, db, tables } = bench("tx-model");
    let mut random = Random(11);
    let mut committed: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = vec![BTreeMap::new(); tables.len()];
    for round in 0..60_u64 {
        let (index, isolation) = (random.index(tables.len()), BOTH[random.index(2)]);
        let table = &tables[index];
        let mut tx = begin(&db, isolation);
        let mut model = committed[index].clone();
        let mut savepoints = Vec::new();
        let key = |random: &mut Random| format!("{:03}", random.below(200)).into_bytes();
        for step in 0..random.below(60) {
            let key = key(&mut random);
            let value = [round.to_le_bytes(), step.to_le_bytes()].concat();
            match random.below(12) {
                0..5 => {
                    tx.put(table, &key, &value).unwrap();
                    model.insert(key, value);
                }
                5 | 6 => {
                    tx.delete(table, &key).unwrap();
                    model.remove(&key);
                }
                7 if table.kind().is_ordered() => {
                    let end = [key.as_slice(), b"~"].concat();
                    tx.delete_range(table, key.clone()..end.clone()).unwrap();
                    model.retain(|other, _| *other < key || *other >= end);
                }
                8 => savepoints.push((tx.savepoint(), model.clone())),
                9 if !savepoints.is_empty() => {
                    let at = random.index(savepoints.len());
                    savepoints.truncate(at + 1);
                    let (savepoint, saved) = savepoints[at].clone();
                    tx.rollback_to(savepoint).unwrap();
                    model = saved;
                }
                _ => compare(&tx, table, &model, &mut random),
            }
        }
        compare(&tx, table, &model, &mut random);
        if random.chance(3) {
            tx.rollback();
        } else {
            tx.commit().unwrap();
            committed[index] = model;
        }
        compare(&begin(&db, isolation), table, &committed[index], &mut random);
    }
}

/// Compares what a transaction reads with a map: keys, ranges from both ends at once, and scans.
fn compare(
    tx: &Transaction,
    table: &Table,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    random: &mut Random,
) {
    for number in [random.below(200), random.below(200)] {
        let key = format!("{number:03}").into_bytes();
        assert_eq!(tx.get(table, &key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
    }
    let mut found = BTreeMap::new();
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = tx.scan(table, &cursor, 7).unwrap();
        found.extend(entries.into_iter().map(|(key, value)| (key, value.to_vec())));
        if next.is_start() {
            break;
        }
        cursor = next;
    }
    assert_eq!(found, *model, "{}", table.name());
    if !table.kind().is_ordered() {
        return;
    }
    let low = format!("{:03}", random.below(200)).into_bytes();
    let high = format!("{:03}", 100 + random.below(200)).into_bytes();
    let mut entries = tx.range(table, low.clone()..high.clone()).unwrap();
    let mut expected = model.iter().filter(|(key, _)| **key >= low && **key < high);
    loop {
        let (found, expected) = if random.chance(2) {
            (entries.next(), expected.next())
        } else {
            (entries.next_back(), expected.next_back())
        };
        let found = found.map(|entry| entry.unwrap()).map(|(key, value)| (key, value.to_vec()));
        assert_eq!(found.as_ref().map(|(key, value)| (key, value)), expected);
        if expected.is_none() {
            break;
        }
    }
    let prefix = tx.prefix(table, "1").unwrap().map(|entry| entry.unwrap().0);
    assert!(prefix.eq(model.keys().filter(|key| key[0] == b'1').cloned()));
}

/// Accounts of each table of a bank.
const ACCOUNTS: u64 = 20;

fn account(number: u64) -> String {
    format!("account-{number:02}")
}

/// Moves an amount from one account to another, if it is there.
fn move_an_amount(db: &Database, tables: &[Table], random: &mut Random) {
    let (from, to) = (random.index(4), random.index(4));
    let (source, target) = (account(random.below(ACCOUNTS)), account(random.below(ACCOUNTS)));
    let amount = random.below(30);
    let locks = random.chance(4);
    db.transaction(|tx| {
        let has = if locks {
            tx.get_for_update(&tables[from], &source)?
        } else {
            tx.get(&tables[from], &source)?
        };
        let has = number(has);
        if has < amount {
            return Ok(());
        }
        tx.put(&tables[from], &source, (has - amount).to_le_bytes())?;
        let has = number(tx.get(&tables[to], &target)?);
        tx.put(&tables[to], &target, (has + amount).to_le_bytes())
    })
    .unwrap();
}

/// Each thread moves amounts between accounts of four engines. Readers see one sum in every
/// transaction.
#[test]
fn the_sum_of_a_bank_is_the_same_in_every_transaction() {
    const MOVES: u64 = 300;
    const THREADS: u64 = 8;
    let Bench { _scratch, db, tables } = bench("tx-bank");
    let tables = &tables[..4];
    for table in tables {
        for number in 0..ACCOUNTS {
            table.put(account(number), 100_u64.to_le_bytes()).unwrap();
        }
    }
    let expected = 100 * ACCOUNTS * 4;
    let sum = |tx: &Transaction| -> Result<u64> {
        let accounts = tables.iter().flat_map(|table| (0..ACCOUNTS).map(move |of| (table, of)));
        accounts.map(|(table, of)| Ok(number(tx.get(table, account(of))?))).sum()
    };
    let (done, sums) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (db, sum, done, sums) = (&db, &sum, &done, &sums);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let once = |isolation| {
                    let tx = begin(db, isolation);
                    let found = sum(&tx)?;
                    tx.commit().map(|()| found)
                };
                let [serializable, snapshot] = BOTH.map(once);
                let found = [db.transaction(|tx| sum(tx)), serializable, snapshot];
                // Before the assertions: the movers wait for it.
                sums.fetch_add(1, Ordering::Relaxed);
                for sum in found {
                    assert_eq!(sum.unwrap(), expected);
                }
            }
        });
        let movers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random(thread);
                    let mut moves = 0;
                    // The reader reads once at least, however the threads are scheduled.
                    while moves < MOVES || sums.load(Ordering::Relaxed) == 0 {
                        moves += 1;
                        move_an_amount(db, tables, &mut random);
                    }
                })
            })
            .collect();
        for mover in movers {
            mover.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(sum(&begin(&db, Isolation::Serializable)).unwrap(), expected);
    assert!(sums.load(Ordering::Relaxed) > 0);
}

/// A hot key that every transaction locks: none is in vain.
#[test]
fn transactions_that_lock_a_hot_key_do_not_conflict() {
    let Bench { _scratch, db, tables } = bench("tx-hot");
    for table in &tables {
        let attempts = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let options =
                            TransactionOptions::new().lock_timeout(Duration::from_mins(1));
                        let counted: Result<()> = db.transaction_with(options, |tx| {
                            attempts.fetch_add(1, Ordering::Relaxed);
                            let count = number(tx.get_for_update(table, "count")?);
                            tx.put(table, "count", (count + 1).to_le_bytes())
                        });
                        counted.unwrap();
                    }
                });
            }
        });
        assert_eq!(number(table.get("count").unwrap()), 400);
        assert_eq!(attempts.load(Ordering::Relaxed), 400, "{}", table.name());
    }
}

#[test]
fn a_deadlock_is_found_and_repeated() {
    let Bench { _scratch, db, tables } = bench("tx-deadlock");
    let table = &tables[0];
    for (first, second) in [("a", "b"), ("b", "a")] {
        table.put(first, second).unwrap();
    }
    // The caller of `begin` sees the error.
    let both = Barrier::new(2);
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let (db, both) = (&db, &both);
        let threads: Vec<_> = [["a", "b"], ["b", "a"]]
            .into_iter()
            .map(|keys| {
                scope.spawn(move || {
                    let options = TransactionOptions::new().lock_timeout(Duration::from_mins(1));
                    let mut tx = db.begin(options)?;
                    tx.get_for_update(table, keys[0])?;
                    both.wait();
                    tx.get_for_update(table, keys[1])?;
                    tx.put(table, keys[0], "done")?;
                    tx.commit()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    let [Error::Deadlock { table: name, key }] = failed.as_slice() else { panic!("{failed:?}") };
    assert!(*name == table.name() && (key == b"a" || key == b"b"));
    // A closure is run again.
    thread::scope(|scope| {
        for keys in [["a", "b"], ["b", "a"]] {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..100 {
                    db.transaction(|tx| {
                        tx.get_for_update(table, keys[0])?;
                        thread::yield_now();
                        tx.get_for_update(table, keys[1])?;
                        tx.put(table, keys[0], "again")
                    })
                    .unwrap();
                }
            });
        }
    });
}

#[test]
fn typed_tables_are_used_in_transactions() {
    let Bench { _scratch, db, .. } = bench("tx-typed");
    let options = TableOptions::new(EngineKind::BTree);
    let stock = db.create_typed::<String, u64>("stock", options.clone()).unwrap();
    let orders = db.create_typed::<(u32, String), i64>("orders", options).unwrap();
    let taken = db
        .transaction(|tx| {
            let mut stock = tx.typed(&stock);
            stock.put("cup", &3)?;
            stock.put("pot", &1)?;
            assert!(stock.put_with("jug", &2, PutOptions::new().if_absent())?);
            let taken = stock.get("cup")?.unwrap();
            assert_eq!(stock.get_for_update("pot")?, Some(1));
            assert_eq!(stock.multi_get(&["cup".to_owned(), "can".to_owned()])?, [Some(3), None]);
            assert!(stock.contains("jug")? && !stock.contains("can")?);
            stock.delete("jug")?;
            assert!(!stock.delete_with("jug", quintet::DeleteOptions::new().if_present())?);
            let names: Vec<_> = stock.range(..)?.map(|entry| entry.unwrap().0).collect();
            assert_eq!(names, ["cup", "pot"]);
            let last = stock.prefix("po")?.next_back().unwrap()?;
            assert_eq!(last, ("pot".to_owned(), 1));
            assert_eq!(stock.scan(Cursor::START, 10)?.0.len(), 2);
            stock.delete_range("p".to_owned()..)?;
            tx.typed(&orders).put(&(7, "cup".to_owned()), &-1)?;
            Ok(taken)
        })
        .unwrap();
    assert_eq!(taken, 3);
    assert_eq!(stock.range(..).unwrap().count(), 1);
    assert_eq!(orders.get(&(7, "cup".to_owned())).unwrap(), Some(-1));
    // Types are checked at once.
    let mut tx = begin(&db, Isolation::Serializable);
    let refused = tx.put(stock.table(), "cup", "no number");
    assert!(matches!(refused, Err(Error::TypeMismatch { .. })));
    tx.commit().unwrap();
}

#[test]
fn what_a_transaction_refuses() {
    let Bench { _scratch, db, tables } = bench("tx-refused");
    let other = bench("tx-refused-other");
    let table = &tables[0];
    let mut tx = begin(&db, Isolation::Serializable);
    assert!(matches!(tx.get(&other.tables[0], "k"), Err(Error::OtherDatabase { .. })));
    assert!(matches!(tx.put(&other.tables[0], "k", "v"), Err(Error::OtherDatabase { .. })));
    assert!(matches!(tx.put(table, "", "v"), Err(Error::Limit { .. })));
    assert!(matches!(tx.get(table, vec![0; 70_000]), Err(Error::Limit { .. })));
    let unordered = tables.iter().find(|table| !table.kind().is_ordered()).unwrap();
    assert!(matches!(tx.range(unordered, ..), Err(Error::Unordered { .. })));
    assert!(matches!(tx.delete_range(unordered, "a".."b"), Err(Error::Unordered { .. })));
    let durable = PutOptions::new().durability(quintet::Durability::Sync);
    let refused = tx.put_with(table, "k", "v", durable);
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    // It goes on after each of them.
    tx.put(table, "k", "v").unwrap();
    assert!(format!("{tx:?}").contains("operations: 1"));
    tx.commit().unwrap();
    assert_eq!(table.get("k").unwrap().unwrap(), "v");
}

/// Times `step` with numbers of keys, in nanoseconds: the best of some rounds.
fn nanoseconds(mut step: impl FnMut(u64)) -> u128 {
    const STEPS: u64 = 50_000;
    let mut random = Random(3);
    let round = |_| {
        let start = Instant::now();
        (0..STEPS).for_each(|_| step(random.below(10_000)));
        start.elapsed().as_nanos() / u128::from(STEPS)
    };
    (0..7).map(round).min().unwrap()
}

/// Prints what a read-modify-write and a transfer cost beside gets and puts.
/// `cargo test --release -p quintet --test database cost_of_transactions -- --ignored --nocapture`
#[test]
#[ignore = "prints figures"]
fn cost_of_transactions() {
    let Bench { _scratch, db, tables } = bench("tx-cost");
    let name = |number: u64| number.to_be_bytes();
    for table in &tables {
        (0..10_000).for_each(|number| table.put(name(number), [1; 128]).unwrap());
    }
    for (index, table) in tables.iter().enumerate() {
        let other = &tables[(index + 1) % tables.len()];
        let changed = |value: Option<quintet::Value>| {
            let mut bytes = [0; 128];
            bytes.copy_from_slice(&value.unwrap());
            bytes[0] = bytes[0].wrapping_add(1);
            bytes
        };
        let plain = nanoseconds(|number| {
            let value = changed(table.get(name(number)).unwrap());
            table.put(name(number), value).unwrap();
        });
        let one = nanoseconds(|number| {
            db.transaction(|tx| {
                let value = changed(tx.get(table, name(number))?);
                tx.put(table, name(number), value)
            })
            .unwrap();
        });
        let pair = nanoseconds(|number| {
            for table in [table, other] {
                let value = changed(table.get(name(number)).unwrap());
                table.put(name(number), value).unwrap();
            }
        });
        let transfer = nanoseconds(|number| {
            db.transaction(|tx| {
                for table in [table, other] {
                    let value = changed(tx.get(table, name(number))?);
                    tx.put(table, name(number), value)?;
                }
                Ok(())
            })
            .unwrap();
        });
        let begun = nanoseconds(|number| {
            let mut tx = db.begin(TransactionOptions::new()).unwrap();
            let value = changed(tx.get(table, name(number)).unwrap());
            tx.put(table, name(number), value).unwrap();
            tx.commit().unwrap();
        });
        println!(
            "{}: get and put {plain} ns, transaction {one} ns, with begin {begun} ns; \
             two tables {pair} ns, transfer {transfer} ns",
            table.name()
        );
    }
}
