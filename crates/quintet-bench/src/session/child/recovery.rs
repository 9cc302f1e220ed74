//! Checks a store after a kill: every acknowledged write must be present in its last version.
//!
//! The seed reproduces the operations of the run. For each record, the check knows the last write
//! of each thread. Threads are not ordered among each other, so any of these writes may be the last
//! one. The check times the first get, of record 0.

use std::{collections::HashMap, time::Instant};

use crate::{
    data::{ReadMatch, RecordShape},
    driver::each_write,
    failure::Outcome,
    result::Recovery,
    store::{Store, StoreOptions, Stores},
    workload::{RunSize, VERSION_FIRST, Workload},
};

/// The run before the kill.
#[derive(Clone, Copy, Debug)]
pub struct KilledRun<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Keys and values.
    pub shape: &'a RecordShape,
    /// Size of the run. All of its operations were acknowledged.
    pub amount: RunSize,
}

/// Reopens the store, times that, and compares every record with its expected content.
pub fn reopen(
    stores: &dyn Stores,
    name: &str,
    options: &StoreOptions,
    killed: &KilledRun<'_>,
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
        ..Recovery::default()
    };
    compare(store.as_ref(), killed, &mut recovery)?;
    store.close()?;
    Ok(recovery)
}

/// Last write of each thread to each record that was written after loading: thread and version,
/// `None` for a delete.
type LastWrites = HashMap<u64, Vec<(u64, Option<u64>)>>;

fn compare(store: &dyn Store, killed: &KilledRun<'_>, recovery: &mut Recovery) -> Outcome {
    let KilledRun { workload, shape, amount } = *killed;
    let mut written = LastWrites::new();
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
            // The background writer of `readwhilewriting` has no defined last operation: any of its
            // versions is right.
            (Some(_), true) if workload.background_writer => content != ReadMatch::Foreign,
            (Some(expected), true) => {
                content == ReadMatch::Version(*expected) || content == ReadMatch::Unversioned
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        builtin::BuiltinStores,
        data::KeyOrder,
        driver::{Task, run},
        store::Durability,
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
                memory: None,
                settings: Vec::new(),
            };
            let workload = find(suite, name).unwrap();
            let amount = RunSize {
                records: 300,
                operations: workload.operations(1000, 300),
                threads,
                seed: 3,
            };
            let shape = RecordShape {
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
            let store = BuiltinStores.open("naive", &options).unwrap();
            let phases = run(store.as_ref(), &task).unwrap();
            store.close().unwrap();
            let killed = KilledRun { workload: &workload, shape: &shape, amount };
            let recovery = reopen(&BuiltinStores, "naive", &options, &killed).unwrap();
            assert_eq!((recovery.missing, recovery.mismatching), (0, 0), "{name}");
            assert_eq!(recovery.checked, phases.records, "{name}");
            assert!(recovery.seconds > 0.0);
            // One record gone (or come back), one of an old version.
            let store = BuiltinStores.open("naive", &options).unwrap();
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
            let recovery = reopen(&BuiltinStores, "naive", &options, &killed).unwrap();
            assert_eq!(recovery.missing, 1, "{name}");
            assert_eq!(recovery.mismatching, u64::from(name != "delete"), "{name}");
        }
    }
}
