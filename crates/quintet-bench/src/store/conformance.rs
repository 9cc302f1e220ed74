//! Checks that a store fulfils what workloads need. The tests of each set of stores use it.

use std::fmt::Debug;

use super::{
    Store, StoreFeature, StoreTable, StoreTransaction, TransactionMode, TransactionalStore, missing,
};
use crate::{
    failure::{Failure, Outcome},
    numbers::to_usize,
};

/// Number of entries that [`check_operations`] writes in a batch.
pub const BATCH_ENTRIES: u8 = 100;

/// Runs gets, puts, deletes, a batch and a `multi_get` on an empty store, and compares every
/// result. Afterwards the store has the key `b` with an empty value, and [`BATCH_ENTRIES`] keys of
/// `k` and a byte *n*, each with the value of *n* bytes *n*.
///
/// # Errors
///
/// An operation fails, or its result is wrong ([`Failure::Damage`]).
pub fn check_operations(store: &dyn Store) -> Outcome {
    expect("a get of an absent key", &get(store, b"a")?, &None)?;
    store.put(b"a", b"1")?;
    store.put(b"b", b"")?;
    store.put(b"a", b"longer")?;
    expect("a get after an update", &get(store, b"a")?, &Some(b"longer".to_vec()))?;
    expect("a get of an empty value", &get(store, b"b")?, &Some(Vec::new()))?;
    store.delete(b"a")?;
    store.delete(b"a")?;
    expect("a get after a delete", &get(store, b"a")?, &None)?;
    let value = |byte: u8| vec![byte; to_usize(u64::from(byte))];
    let entries: Vec<_> = (0..BATCH_ENTRIES).map(|byte| (vec![b'k', byte], value(byte))).collect();
    store.batch(&entries)?;
    let bytes = 0..BATCH_ENTRIES + 10;
    let keys: Vec<Vec<u8>> = bytes.clone().map(|byte| vec![b'k', byte]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = vec![None; keys.len()];
    store.multi_get(&keys, &mut |index, value| {
        if let Some(found) = found.get_mut(index) {
            *found = Some(value.map(<[u8]>::to_vec));
        }
    })?;
    for (byte, found) in bytes.zip(found) {
        let expected = (byte < BATCH_ENTRIES).then(|| value(byte));
        expect(&format!("a multi_get of the key {byte}"), &found, &Some(expected))?;
    }
    Ok(())
}

/// Runs many threads that write and read keys of their own, and one key of all of them.
///
/// # Errors
///
/// An operation fails, or a thread does not read its last write ([`Failure::Damage`]).
pub fn check_threads(store: &dyn Store, threads: u8, rounds: u8) -> Outcome {
    let run = |thread: u8| -> Outcome {
        for round in 0..rounds {
            let key = [b't', thread, round % 50];
            store.put(&key, &[thread, round])?;
            expect("a get of a thread's own key", &get(store, &key)?, &Some(vec![thread, round]))?;
            store.put(b"shared", &[thread; 3])?;
            let shared = get(store, b"shared")?.unwrap_or_default();
            let is_whole =
                shared.len() == 3 && shared.iter().all(|byte| shared.first() == Some(byte));
            expect("whether a shared value is whole", &is_whole, &true)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

/// Runs transactions of a mode: reads of own writes, a rollback, then many threads that count in
/// the same two records, one of each table. The keys `x` and `y` may have any number before.
///
/// # Errors
///
/// An operation fails, or a result is wrong ([`Failure::Damage`]).
pub fn check_transactions(store: &dyn Store, mode: TransactionMode, threads: u64) -> Outcome {
    let transactions = store.transactions().ok_or_else(|| missing(StoreFeature::of(mode)))?;
    transactions.batch_second(&[(b"y".to_vec(), 7_u64.to_le_bytes().to_vec())])?;
    transactions.transact(mode, &mut |transaction| {
        transaction.put(StoreTable::First, b"x", &7_u64.to_le_bytes())?;
        let own = add(transaction, StoreTable::First, b"x", 0)?;
        expect("a read of an own write", &own, &7)
    })?;
    let rolled_back = transactions.transact(mode, &mut |transaction| {
        add(transaction, StoreTable::First, b"x", 1)?;
        Err(Failure::Failed("no".to_owned()))
    });
    let why = rolled_back.err().map(|failure| failure.to_string());
    expect("a transaction whose body fails", &why.as_deref(), &Some("no"))?;
    expect("a get after a rollback", &get(store, b"x")?, &Some(7_u64.to_le_bytes().to_vec()))?;
    let conflicts = count_in_threads(transactions, mode, threads)?;
    let single = threads == 1 && conflicts > 0;
    expect("whether one thread has conflicts", &single, &false)?;
    let expected = 7 + threads * ROUNDS;
    let found = get(store, b"x")?;
    expect("the first counter", &found, &Some(expected.to_le_bytes().to_vec()))?;
    let mut second = Vec::new();
    let count = transactions
        .scan_second(&mut |key, value| second.extend([key.to_vec(), value.to_vec()]))?;
    expect("a scan of the second table", &count, &1)?;
    expect("the second table", &second, &vec![b"y".to_vec(), expected.to_le_bytes().to_vec()])
}

/// Transactions of each thread of [`check_transactions`].
const ROUNDS: u64 = 100;

/// Adds one to both counters in each transaction. Returns the number of conflicts.
fn count_in_threads(
    transactions: &dyn TransactionalStore,
    mode: TransactionMode,
    threads: u64,
) -> Outcome<u64> {
    let run = || -> Outcome<u64> {
        let mut conflicts = 0;
        for _ in 0..ROUNDS {
            let mut counters = (0, 0);
            conflicts += transactions.transact(mode, &mut |transaction| {
                counters.0 = add(transaction, StoreTable::First, b"x", 1)?;
                counters.1 = add(transaction, StoreTable::Second, b"y", 1)?;
                // An optimistic transaction that reads without a snapshot may find others, and
                // then its commit fails.
                match mode {
                    TransactionMode::Serializable => Ok(()),
                    _ => expect("the counters in one transaction", &counters.0, &counters.1),
                }
            })?;
            // Those of the run that was committed.
            expect("the counters in one transaction", &counters.0, &counters.1)?;
        }
        Ok(conflicts)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).sum()
    })
}

fn panicked<T>(_: Box<dyn std::any::Any + Send>) -> Outcome<T> {
    Err(Failure::Failed("a thread panicked".to_owned()))
}

/// Adds `step` to a counter and returns its new value.
fn add(
    transaction: &mut dyn StoreTransaction,
    table: StoreTable,
    key: &[u8],
    step: u64,
) -> Outcome<u64> {
    let mut value = b"left over".to_vec();
    let found = transaction.get_into(table, key, &mut value)?;
    expect("whether a counter is found", &found, &true)?;
    let count = u64::from_le_bytes(value.try_into().unwrap_or_default()) + step;
    transaction.put(table, key, &count.to_le_bytes())?;
    Ok(count)
}

/// Runs threads that count in one record by atomic updates, and an update that fails.
///
/// # Errors
///
/// An operation fails, or a result is wrong ([`Failure::Damage`]).
pub fn check_atomic_updates(store: &dyn Store, threads: u64) -> Outcome {
    let count = |value: Option<&[u8]>| {
        let bytes = value.and_then(|value| value.try_into().ok()).unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    let run = || -> Outcome {
        (0..ROUNDS).try_for_each(|_| {
            store.atomic_update(b"counter", &mut |old, new| {
                new.clear();
                new.extend_from_slice(&(count(old) + 1).to_le_bytes());
                Ok(())
            })
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })?;
    let failed = store.atomic_update(b"counter", &mut |_, _| Err(Failure::Failed("no".to_owned())));
    let why = failed.err().map(|failure| failure.to_string());
    expect("an update that fails", &why.as_deref(), &Some("no"))?;
    let found = get(store, b"counter")?;
    expect("the counter", &found, &Some((threads * ROUNDS).to_le_bytes().to_vec()))
}

/// Returns the value of a key. The buffer is not empty before the call.
///
/// # Errors
///
/// The get fails.
pub fn get(store: &dyn Store, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
    let mut value = b"left over".to_vec();
    Ok(store.get_into(key, &mut value)?.then_some(value))
}

fn expect<T: Debug + PartialEq>(what: &str, actual: &T, expected: &T) -> Outcome {
    if actual == expected {
        return Ok(());
    }
    Err(Failure::Damage(format!("{what} gave {actual:?}, not {expected:?}")))
}
