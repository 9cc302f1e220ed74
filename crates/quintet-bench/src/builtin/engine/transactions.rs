//! Transactions and atomic updates of the engines.

use quintet::{Isolation, Table, TableOptions, Transaction, TransactionOptions};

use super::{Engine, scan};
use crate::{
    failure::{Failure, Outcome},
    store::{
        EachEntry, StoreTable, StoreTransaction, TransactionBody, TransactionMode,
        TransactionalStore,
    },
};

/// Name of the second table.
const SECOND_TABLE: &str = "bench-second";

impl Engine {
    fn second(&self) -> Outcome<&Table> {
        if let Some(second) = self.second.get() {
            return Ok(second);
        }
        let options = TableOptions::new(self.second_kind);
        let table = self.database.open_or_create_table(SECOND_TABLE, options)?;
        Ok(self.second.get_or_init(|| table))
    }

    fn table_of(&self, table: StoreTable) -> Outcome<&Table> {
        match table {
            StoreTable::First => Ok(&self.table),
            StoreTable::Second => self.second(),
        }
    }
}

/// A running transaction.
struct EngineTransaction<'a> {
    engine: &'a Engine,
    transaction: &'a mut Transaction,
    locks: bool,
}

impl StoreTransaction for EngineTransaction<'_> {
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let table = self.engine.table_of(table)?;
        if !self.locks {
            return Ok(self.transaction.get_into(table, key, value)?);
        }
        value.clear();
        let found = self.transaction.get_for_update(table, key)?;
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome {
        let table = self.engine.table_of(table)?;
        Ok(self.transaction.put(table, key, value)?)
    }
}

impl TransactionalStore for Engine {
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64> {
        let isolation = match mode {
            TransactionMode::Snapshot => Isolation::Snapshot,
            TransactionMode::Serializable | TransactionMode::Locked => Isolation::Serializable,
        };
        // The default gives up after 64 repetitions. The workload would only start again.
        let options = TransactionOptions::new().isolation(isolation).retries(u32::MAX);
        let mut runs = 0;
        self.database.transaction_with::<(), Failure>(options, |transaction| {
            runs += 1;
            let locks = mode == TransactionMode::Locked;
            body(&mut EngineTransaction { engine: self, transaction, locks })
        })?;
        Ok(runs - 1)
    }

    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let second = self.second()?;
        let mut batch = self.database.batch();
        for (key, value) in entries {
            batch.put(second, key, value);
        }
        Ok(batch.commit()?)
    }

    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        scan(self.second()?, each)
    }
}
