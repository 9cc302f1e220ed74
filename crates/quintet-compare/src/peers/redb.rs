//! redb: a copy-on-write B-tree in Rust.
//!
//! Each put is a transaction, without a sync if writes are buffered. A get uses the read
//! transaction of its thread until another commit, because beginning a transaction costs more than
//! the get.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

use redb::{
    Database, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    WriteTransaction,
};

use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::to_u64,
    store::{
        Durability, EachEntry, Setting, Store, StoreFeature, StoreOptions, StoreStats, StoreTable,
        StoreTransaction, TransactionBody, TransactionMode, TransactionalStore, missing,
    },
};

use super::peer::{Peer, budget, failed, override_settings, setting, size};

const NAME: &str = "redb";
const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("bench");
/// Table that only transactions use.
const SECOND: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("second");
const FILE: &str = "redb";
/// Default distance of durable commits; 0 for none. See the settings.
const SYNC_EVERY: u64 = 0;

pub(super) struct Redb;

type RedbReader = ReadOnlyTable<&'static [u8], &'static [u8]>;

thread_local! {
    /// Read transaction of this thread, and the count of commits at its start.
    static READER: RefCell<Option<(u64, RedbReader)>> = const { RefCell::new(None) };
}

impl Peer for Redb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        "4.5.0".to_owned()
    }

    fn check_available(&self) -> Outcome {
        Ok(())
    }

    fn takes_options(&self) -> bool {
        true
    }

    fn promise(&self, durability: Durability) -> &'static str {
        match durability {
            Durability::Sync => "",
            Durability::Buffered => {
                "less than ours: a killed process loses every commit since the last synced one"
            }
        }
    }

    fn settings(&self, options: &StoreOptions) -> Vec<Setting> {
        let durability = if options.is_synced() { "immediate" } else { "none" };
        vec![
            setting("cache_size", budget(options), "the whole budget; it has no other memory"),
            setting("durability", durability, "it has nothing between a sync and no promise"),
            setting("sync_every", SYNC_EVERY, "a durable commit each 100,000 costs a third"),
            setting("read transactions", "kept until a commit", "the cheapest get"),
        ]
    }

    fn has_feature(&self, feature: StoreFeature) -> bool {
        feature == StoreFeature::Transactions
    }

    fn open(&self, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        if options.is_direct() {
            return Err(Failure::Failed(format!("{NAME} has no direct I/O")));
        }
        let path = options.dir.join(FILE);
        let (mut cache_size, mut sync_every) = (budget(options), SYNC_EVERY);
        let asked = &options.settings;
        let known = &mut [("cache_size", &mut cache_size), ("sync_every", &mut sync_every)];
        override_settings(NAME, asked, known)?;
        let mut builder = Database::builder();
        builder.set_cache_size(size(cache_size));
        let database = builder.create(path).map_err(|error| failed(NAME, error))?;
        let store = RedbStore {
            database,
            commits: AtomicU64::new(0),
            is_synced: options.is_synced(),
            sync_every,
        };
        // Creates the table for the first read.
        store.write(store.is_synced, |_| Ok(()))?;
        Ok(Box::new(store))
    }
}

struct RedbStore {
    database: Database,
    /// Number of commits. A read transaction from before the last commit is out of date.
    commits: AtomicU64,
    is_synced: bool,
    /// Distance of durable commits; 0 for requested ones only.
    sync_every: u64,
}

type RedbTable<'txn> = redb::Table<'txn, &'static [u8], &'static [u8]>;

impl RedbStore {
    fn write(
        &self,
        is_synced: bool,
        work: impl FnOnce(&mut RedbTable<'_>) -> Result<(), redb::StorageError>,
    ) -> Outcome {
        let txn = self.begin(is_synced)?;
        {
            let mut table = txn.open_table(TABLE).map_err(|error| failed(NAME, error))?;
            work(&mut table).map_err(|error| failed(NAME, error))?;
        }
        txn.commit().map_err(|error| failed(NAME, error))?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn begin(&self, is_synced: bool) -> Outcome<WriteTransaction> {
        let mut txn = self.database.begin_write().map_err(|error| failed(NAME, error))?;
        let commits = self.commits.load(Ordering::Relaxed);
        let is_turn = self.sync_every > 0 && commits % self.sync_every == self.sync_every - 1;
        let durability =
            if is_synced || is_turn { redb::Durability::Immediate } else { redb::Durability::None };
        txn.set_durability(durability).map_err(|error| failed(NAME, error))?;
        Ok(txn)
    }

    fn read<T>(&self, work: impl FnOnce(&RedbReader) -> Outcome<T>) -> Outcome<T> {
        let commits = self.commits.load(Ordering::Acquire);
        READER.with_borrow_mut(|kept| {
            if let Some((at, reader)) = kept
                && *at == commits
            {
                return work(reader);
            }
            *kept = None;
            let txn = self.database.begin_read().map_err(|error| failed(NAME, error))?;
            let reader = txn.open_table(TABLE).map_err(|error| failed(NAME, error))?;
            let outcome = work(&reader);
            *kept = Some((commits, reader));
            outcome
        })
    }

    fn visit(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        self.read(|table| {
            let entries = table.range(start..).map_err(|error| failed(NAME, error))?;
            let mut count = 0;
            for entry in entries.take(limit) {
                let (key, value) = entry.map_err(|error| failed(NAME, error))?;
                each(key.value(), value.value());
                count += 1;
            }
            Ok(count)
        })
    }
}

impl Store for RedbStore {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        self.read(|table| {
            let Some(found) = table.get(key).map_err(|error| failed(NAME, error))? else {
                return Ok(false);
            };
            value.clear();
            value.extend_from_slice(found.value());
            Ok(true)
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        self.write(self.is_synced, |table| table.insert(key, value).map(drop))
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        self.write(self.is_synced, |table| table.remove(key).map(drop))
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        self.write(self.is_synced, |table| {
            entries.iter().try_for_each(|(key, value)| {
                table.insert(key.as_slice(), value.as_slice()).map(drop)
            })
        })
    }

    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        Some(self)
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        self.visit(start, limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        let count = self.visit(&[], usize::MAX, each).map(to_u64);
        // Without its read transaction: no commit could release a page while this thread keeps it,
        // and the cost of a commit grows with the pages that wait.
        READER.with_borrow_mut(|kept| *kept = None);
        count
    }

    /// Commits an empty synced transaction, which makes all earlier commits durable.
    fn sync(&self) -> Outcome {
        self.write(true, |_| Ok(()))
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    fn close(self: Box<Self>) -> Outcome {
        READER.with_borrow_mut(|kept| *kept = None);
        self.sync()
    }
}

/// A running write transaction with the tables that it has opened. There is one at a time, so none
/// has conflicts.
struct RedbTransaction<'txn> {
    txn: &'txn WriteTransaction,
    first: Option<RedbTable<'txn>>,
    second: Option<RedbTable<'txn>>,
}

impl<'txn> RedbTransaction<'txn> {
    fn table(&mut self, table: StoreTable) -> Outcome<&mut RedbTable<'txn>> {
        let (opened, definition) = match table {
            StoreTable::First => (&mut self.first, TABLE),
            StoreTable::Second => (&mut self.second, SECOND),
        };
        if opened.is_none() {
            let table = self.txn.open_table(definition);
            *opened = Some(table.map_err(|error| failed(NAME, error))?);
        }
        opened.as_mut().ok_or_else(|| missing(StoreFeature::Transactions))
    }
}

impl StoreTransaction for RedbTransaction<'_> {
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let table = self.table(table)?;
        let Some(found) = table.get(key).map_err(|error| failed(NAME, error))? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(found.value());
        Ok(true)
    }

    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome {
        let table = self.table(table)?;
        table.insert(key, value).map(drop).map_err(|error| failed(NAME, error))
    }
}

impl TransactionalStore for RedbStore {
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64> {
        if mode != TransactionMode::Serializable {
            return Err(missing(StoreFeature::of(mode)));
        }
        let txn = self.begin(self.is_synced)?;
        // A failure drops the transaction, which rolls it back.
        body(&mut RedbTransaction { txn: &txn, first: None, second: None })?;
        txn.commit().map_err(|error| failed(NAME, error))?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(0)
    }

    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        self.transact(TransactionMode::Serializable, &mut |transaction| {
            entries
                .iter()
                .try_for_each(|(key, value)| transaction.put(StoreTable::Second, key, value))
        })
        .map(drop)
    }

    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        let txn = self.database.begin_read().map_err(|error| failed(NAME, error))?;
        let table = txn.open_table(SECOND).map_err(|error| failed(NAME, error))?;
        let mut count = 0;
        for entry in table.iter().map_err(|error| failed(NAME, error))? {
            let (key, value) = entry.map_err(|error| failed(NAME, error))?;
            each(key.value(), value.value());
            count += 1;
        }
        Ok(count)
    }
}
