use super::*;
use crate::{
    builtin::BuiltinStores,
    data::KeyOrder,
    store::{
        Durability, EachEntry, StoreOptions, StoreStats, StoreTable, StoreTransaction, Stores as _,
        TransactionBody, TransactionMode, TransactionalStore,
    },
    workload::{Suite, find, logkv::LogKvPreset, names},
};

fn amount(threads: u64) -> RunSize {
    RunSize { records: 400, operations: 3000, threads, seed: 5 }
}

fn shape(order: KeyOrder) -> RecordShape {
    RecordShape { key_bytes: 23, value_bytes: vec![24, 100], repeated_percent: 0, order }
}

fn run_one(
    store: &str,
    workload: &Workload,
    amount: RunSize,
    load_batch: usize,
) -> Outcome<Phases> {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        dir: dir.path().to_path_buf(),
        durability: Durability::Buffered,
        records_max: workload.records_max(amount.operations, amount.records),
        bytes_written_max: 16 << 20,
        memory: None,
        settings: Vec::new(),
    };
    let store = BuiltinStores.open(store, &options).unwrap();
    let shape = shape(workload.order);
    let task = Task {
        workload,
        shape: &shape,
        amount: RunSize {
            operations: workload.operations(amount.operations, amount.records),
            ..amount
        },
        timed_one_in: 4,
        rate: None,
        verify: true,
        load_batch,
    };
    let phases = run(store.as_ref(), &task)?;
    store.close()?;
    Ok(phases)
}

fn everything() -> Vec<Workload> {
    let named = [Suite::Ycsb, Suite::Micro, Suite::DbBench, Suite::Txn]
        .into_iter()
        .flat_map(|suite| names(suite).iter().map(move |name| find(suite, name).unwrap()));
    let points = LogKvPreset::Table2.points();
    named.chain(points.iter().map(|one| one.point.workload(&one.name).unwrap())).collect()
}

#[test]
fn every_workload_verifies_on_every_store() {
    for store in BuiltinStores.names().into_iter().filter(|name| *name != "null") {
        for workload in everything() {
            if workload.needs_order() && !BuiltinStores.is_ordered(store) {
                continue;
            }
            if workload.feature().is_some_and(|it| !BuiltinStores.has_feature(store, it)) {
                continue;
            }
            for threads in [1, 3] {
                if workload.sorted && threads > 1 {
                    continue;
                }
                let phases = run_one(store, &workload, amount(threads), 1)
                    .unwrap_or_else(|failure| panic!("{store} {}: {failure}", workload.name));
                assert_eq!(phases.load.operations, 400);
                assert!(phases.load.bytes_written >= 400 * 47);
                let Some(body) = phases.body else { continue };
                let expected = workload.operations(3000, 400);
                assert_eq!(body.operations, expected, "{store} {}", workload.name);
                assert!(body.time > Duration::ZERO);
                assert!(workload.name.contains("absent") || body.absent <= expected);
            }
        }
    }
}

#[test]
fn loading_in_batches_gives_the_same_records() {
    let workload = find(Suite::Ycsb, "c").unwrap();
    let one = run_one("hashbrown", &workload, amount(2), 1).unwrap();
    let many = run_one("hashbrown", &workload, amount(2), 64).unwrap();
    assert_eq!(one.load.bytes_written, many.load.bytes_written);
    assert_eq!(many.load.operations, 400);
    assert_eq!(many.body.unwrap().found, 3000);
}

#[test]
fn an_unordered_store_refuses_ranges() {
    let workload = find(Suite::Ycsb, "e").unwrap();
    let failure = run_one("hashbrown", &workload, amount(1), 1).unwrap_err();
    assert_eq!(failure.code(), 2);
}

#[test]
fn a_rate_is_kept_and_counts_stalls() {
    let workload = find(Suite::Micro, "read-uniform").unwrap();
    let shape = shape(workload.order);
    let stalling =
        Wrong { inner: BuiltinStores.open("hashbrown", &options()).unwrap(), fault: Fault::Stall };
    let task = Task {
        workload: &workload,
        shape: &shape,
        amount: RunSize { records: 10, operations: 1000, threads: 1, seed: 1 },
        timed_one_in: 1,
        rate: Some(10_000.0),
        verify: false,
        load_batch: 1,
    };
    let body = run(&stalling, &task).unwrap().body.unwrap();
    assert!(body.time >= Duration::from_millis(95), "1000 operations at 10,000 a second");
    let [reads, _, _] = body.times.summarize().unwrap();
    // One stall of 50 ms delays the 500 operations that fall due meanwhile.
    assert!(reads.max_ns >= 49_000_000, "{reads:?}");
    assert!(reads.p50_ns < 49_000_000 && reads.p99_ns > 20_000_000, "{reads:?}");
}

#[test]
fn verification_finds_stores_that_lie() {
    let cases = [
        (Fault::LosesUpdates, Suite::Ycsb, "a"),
        (Fault::LosesDeletes, Suite::Micro, "delete"),
        (Fault::FlipsBytes, Suite::Ycsb, "c"),
        (Fault::FindsAnything, Suite::Micro, "read-absent"),
        (Fault::FlipsBytes, Suite::Micro, "multi-get-16"),
        (Fault::DropsAnswers, Suite::Micro, "multi-get-16"),
    ];
    for (fault, suite, name) in cases {
        let workload = find(suite, name).unwrap();
        let shape = shape(workload.order);
        let store = Wrong { inner: BuiltinStores.open("hashbrown", &options()).unwrap(), fault };
        let task = Task {
            workload: &workload,
            shape: &shape,
            amount: RunSize { operations: workload.operations(3000, 400), ..amount(1) },
            timed_one_in: 16,
            rate: None,
            verify: true,
            load_batch: 1,
        };
        let failure = run(&store, &task).map(drop).unwrap_err();
        assert_eq!(failure.code(), 3, "{fault:?}: {failure}");
    }
}

#[test]
fn a_failing_thread_ends_the_run() {
    let workload = find(Suite::Ycsb, "a").unwrap();
    let shape = shape(workload.order);
    let store =
        Wrong { inner: BuiltinStores.open("hashbrown", &options()).unwrap(), fault: Fault::Fails };
    let task = Task {
        workload: &workload,
        shape: &shape,
        amount: amount(4),
        timed_one_in: 16,
        rate: None,
        verify: false,
        load_batch: 1,
    };
    let failure = run(&store, &task).map(drop).unwrap_err();
    assert_eq!((failure.code(), failure.to_string().as_str()), (1, "the disk is on fire"));
}

#[test]
fn writes_can_be_told_again() {
    let workload = find(Suite::Ycsb, "f").unwrap();
    let amount = amount(2);
    let mut versions = std::collections::BTreeSet::new();
    for thread in 0..2 {
        let inserts = each_write(&workload, amount, thread, |number, version| {
            assert!(number < 400);
            assert!(versions.insert(version.unwrap()));
        });
        assert_eq!(inserts, 0);
    }
    assert!((1300..1700).contains(&versions.len()));
}

fn options() -> StoreOptions {
    StoreOptions {
        dir: std::path::PathBuf::new(),
        durability: Durability::Buffered,
        records_max: 0,
        bytes_written_max: 0,
        memory: None,
        settings: Vec::new(),
    }
}

#[test]
fn the_sum_of_the_versions_finds_lost_updates() {
    for (name, dropped) in [("txn-rmw", 5), ("txn-transfer", 8), ("txn-hot", 1)] {
        let workload = find(Suite::Txn, name).unwrap();
        let shape = shape(workload.order);
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { dir: dir.path().to_path_buf(), ..options() };
        let inner = BuiltinStores.open("naive", &options).unwrap();
        let store = LossyTransactions { inner, puts: AtomicU64::new(0), dropped };
        let task = Task {
            workload: &workload,
            shape: &shape,
            amount: amount(1),
            timed_one_in: 16,
            rate: None,
            verify: false,
            load_batch: 1,
        };
        let failure = run(&store, &task).map(drop).unwrap_err();
        assert_eq!(failure.code(), 3, "{name}: {failure}");
        assert!(failure.to_string().contains("lost or applied twice"), "{name}: {failure}");
    }
}

/// A store that drops one put of its transactions.
struct LossyTransactions {
    inner: Box<dyn Store>,
    puts: AtomicU64,
    dropped: u64,
}

impl Store for LossyTransactions {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        self.inner.get_into(key, value)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        self.inner.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        self.inner.delete(key)
    }

    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        Some(self)
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        self.inner.range(start, limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.inner.scan(each)
    }

    fn sync(&self) -> Outcome {
        self.inner.sync()
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn close(self: Box<Self>) -> Outcome {
        self.inner.close()
    }
}

struct LossyTransaction<'a> {
    inner: &'a mut dyn StoreTransaction,
    store: &'a LossyTransactions,
}

impl StoreTransaction for LossyTransaction<'_> {
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        self.inner.get_into(table, key, value)
    }

    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome {
        if self.store.puts.fetch_add(1, Ordering::Relaxed) == self.store.dropped {
            return Ok(());
        }
        self.inner.put(table, key, value)
    }
}

impl TransactionalStore for LossyTransactions {
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64> {
        let inner = self.inner.transactions().unwrap();
        inner.transact(mode, &mut |inner| body(&mut LossyTransaction { inner, store: self }))
    }

    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        self.inner.transactions().unwrap().batch_second(entries)
    }

    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.inner.transactions().unwrap().scan_second(each)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    LosesUpdates,
    LosesDeletes,
    FlipsBytes,
    FindsAnything,
    DropsAnswers,
    Stall,
    Fails,
}

/// A store with one fault.
struct Wrong {
    inner: Box<dyn Store>,
    fault: Fault,
}

impl Store for Wrong {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        static STALLED: AtomicBool = AtomicBool::new(false);
        if self.fault == Fault::Stall && !STALLED.swap(true, Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(50));
        }
        let found = self.inner.get_into(key, value)?;
        if let (Fault::FlipsBytes, Some(byte)) = (self.fault, value.last_mut()) {
            *byte ^= 1;
        }
        Ok(found || self.fault == Fault::FindsAnything)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut crate::store::EachFound<'_>) -> Outcome {
        let mut value = Vec::new();
        let skipped = usize::from(self.fault == Fault::DropsAnswers);
        for (index, key) in keys.iter().enumerate().skip(skipped) {
            let found = self.get_into(key, &mut value)?;
            each(index, found.then_some(value.as_slice()));
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        let mut old = Vec::new();
        let present = self.inner.get_into(key, &mut old)?;
        if self.fault == Fault::Fails && present {
            return Err(Failure::Failed("the disk is on fire".to_owned()));
        }
        if self.fault == Fault::LosesUpdates && present {
            return Ok(());
        }
        self.inner.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        if self.fault == Fault::LosesDeletes { Ok(()) } else { self.inner.delete(key) }
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        self.inner.range(start, limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.inner.scan(each)
    }

    fn sync(&self) -> Outcome {
        self.inner.sync()
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn close(self: Box<Self>) -> Outcome {
        self.inner.close()
    }
}
