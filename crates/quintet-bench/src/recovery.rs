//! What a store holds after it was killed: every write that was acknowledged, and in its last
//! version.
//!
//! The operations of a run are drawn again from the seed. For each record, each thread's last
//! write is known; since threads are not ordered among each other, any of these may be the last
//! one of all, and nothing else. Record 0 is the first get, which is timed.

use std::{collections::HashMap, time::Instant};

use crate::{
    data::{Found, Shape},
    driver::each_write,
    failure::Outcome,
    measurement::Recovery,
    numbers::to_f64,
    store::{Store, StoreOptions, Stores},
    workload::{Amount, VERSION_FIRST, Workload},
};

/// What was run before the store was killed.
#[derive(Clone, Copy, Debug)]
pub struct Killed<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Keys and values.
    pub shape: &'a Shape,
    /// How much: all of it had been acknowledged.
    pub amount: Amount,
}

/// Opens the store again, times it, and compares every record with what it has to be.
pub fn reopen(
    stores: &dyn Stores,
    name: &str,
    options: &StoreOptions,
    killed: &Killed<'_>,
) -> Outcome<Recovery> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    killed.shape.key(0, &mut key);
    let start = Instant::now();
    let store = stores.open(name, options)?;
    let opened = start.elapsed();
    store.get_into(&key, &mut value)?;
    let answered = start.elapsed();
    let mut recovery = Recovery {
        seconds: answered.as_secs_f64(),
        open_seconds: opened.as_secs_f64(),
        first_get_seconds: answered.saturating_sub(opened).as_secs_f64(),
        ..Recovery::default()
    };
    compare(store.as_ref(), killed, &mut recovery)?;
    store.close()?;
    Ok(recovery)
}

/// For each record that was written after it was loaded: each thread's last write, deletes as
/// `None`.
type Written = HashMap<u64, Vec<(u64, Option<u64>)>>;

fn compare(store: &dyn Store, killed: &Killed<'_>, recovery: &mut Recovery) -> Outcome {
    let Killed { workload, shape, amount } = *killed;
    let mut written = Written::new();
    let mut records = amount.records;
    for thread in 0..amount.threads {
        records += each_write(workload, amount, thread, |number, version| {
            let last = written.entry(number).or_default();
            last.retain(|(by, _)| *by != thread);
            last.push((thread, version));
        });
    }
    let (mut key, mut value, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..records {
        shape.key(number, &mut key);
        let found = store.get_into(&key, &mut value)?;
        let loaded = [(0, Some(VERSION_FIRST))];
        let last = written.get(&number).map_or(loaded.as_slice(), Vec::as_slice);
        let content = shape.check(number, &value, &mut scratch);
        let is_right = last.iter().any(|(_, expected)| match (expected, found) {
            (None, false) => true,
            // The writer of `readwhilewriting` is not in step with anything: any version of it will
            // do.
            (Some(_), true) if workload.background_writer => content != Found::Foreign,
            (Some(expected), true) => {
                content == Found::Version(*expected) || content == Found::Unversioned
            }
            _ => false,
        });
        recovery.checked += 1;
        if !is_right {
            let should_be = last.iter().any(|(_, expected)| expected.is_some());
            if found == should_be {
                recovery.mismatching += 1;
            } else {
                recovery.missing += 1;
            }
        }
    }
    let wrong = to_f64(recovery.missing + recovery.mismatching);
    recovery.error_rate = wrong / to_f64(recovery.checked.max(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        data::KeyOrder,
        driver::{Task, run},
        store::{Durability, Own},
        workload::{Suite, find},
    };

    #[test]
    fn an_undisturbed_store_has_no_errors_and_a_disturbed_one_has() {
        for (suite, name, threads) in
            [(Suite::Ycsb, "a", 3), (Suite::Ycsb, "d", 2), (Suite::Micro, "delete", 1)]
        {
            let dir = tempfile::tempdir().unwrap();
            let options = StoreOptions {
                dir: dir.path().to_path_buf(),
                durability: Durability::Buffered,
                records_max: 2000,
                bytes_written_max: 1 << 20,
                memory_budget: None,
                settings: Vec::new(),
            };
            let workload = find(suite, name).unwrap();
            let amount = Amount {
                records: 300,
                operations: workload.operations(1000, 300),
                threads,
                seed: 3,
            };
            let shape = Shape {
                key_bytes: 23,
                value_bytes: vec![64],
                repeated_percent: 0,
                order: KeyOrder::Hashed,
            };
            let task = Task {
                workload: &workload,
                shape: &shape,
                amount,
                timed_one_in: 16,
                rate: None,
                verify: false,
                load_batch: 1,
            };
            let store = Own.open("naive", &options).unwrap();
            let phases = run(store.as_ref(), &task).unwrap();
            store.close().unwrap();
            let killed = Killed { workload: &workload, shape: &shape, amount };
            let recovery = reopen(&Own, "naive", &options, &killed).unwrap();
            assert_eq!((recovery.missing, recovery.mismatching), (0, 0), "{name}");
            assert_eq!(recovery.checked, phases.records, "{name}");
            assert!(recovery.seconds > 0.0);
            // One record gone (or come back), one of an old version.
            let store = Own.open("naive", &options).unwrap();
            let (mut key, mut value) = (Vec::new(), Vec::new());
            shape.key(7, &mut key);
            if name == "delete" {
                store.put(&key, b"back").unwrap();
            } else {
                store.delete(&key).unwrap();
                shape.key(8, &mut key);
                shape.value(8, 1 << 40, &mut value);
                store.put(&key, &value).unwrap();
            }
            store.close().unwrap();
            let recovery = reopen(&Own, "naive", &options, &killed).unwrap();
            assert_eq!(recovery.missing, 1, "{name}");
            assert_eq!(recovery.mismatching, u64::from(name != "delete"), "{name}");
            assert!(recovery.error_rate > 0.0);
        }
    }
}
