//! Checks that a store fulfils what workloads need. The tests of each set of stores use it.

use std::fmt::Debug;

use super::Store;
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
        threads.into_iter().try_for_each(|thread| {
            let panicked = |_| Err(Failure::Failed("a thread panicked".to_owned()));
            thread.join().unwrap_or_else(panicked)
        })
    })
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
