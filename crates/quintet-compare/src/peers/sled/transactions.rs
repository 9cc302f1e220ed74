//! The transactions of sled.

use std::cell::{Cell, RefCell};

use sled::transaction::{
    ConflictableTransactionError, TransactionError, Transactional as _, TransactionalTree,
    UnabortableTransactionError,
};

use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::to_u64,
    store::{
        EachEntry, StoreFeature, StoreTable, StoreTransaction, TransactionBody, TransactionMode,
        TransactionalStore, missing,
    },
};

use super::{super::peer::failed, NAME, SledStore};

/// Name of the second tree.
const SECOND: &str = "second";

/// A running transaction.
struct SledTransaction<'a> {
    first: &'a TransactionalTree,
    second: &'a TransactionalTree,
    /// The error that ends this run of the body, if it is one of the store.
    error: Option<UnabortableTransactionError>,
}

impl SledTransaction<'_> {
    fn tree(&self, table: StoreTable) -> &TransactionalTree {
        match table {
            StoreTable::First => self.first,
            StoreTable::Second => self.second,
        }
    }

    /// Keeps the error of an operation for the store.
    fn keep<T>(&mut self, outcome: Result<T, UnabortableTransactionError>) -> Outcome<T> {
        outcome.map_err(|error| {
            let failure = failed(NAME, &error);
            self.error = Some(error);
            failure
        })
    }
}

impl StoreTransaction for SledTransaction<'_> {
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let found = self.tree(table).get(key);
        let Some(found) = self.keep(found)? else { return Ok(false) };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome {
        let put = self.tree(table).insert(key, value);
        self.keep(put).map(drop)
    }
}

impl SledStore {
    fn second(&self) -> Outcome<&sled::Tree> {
        if let Some(second) = self.second.get() {
            return Ok(second);
        }
        let second = self.database.open_tree(SECOND).map_err(|error| failed(NAME, error))?;
        Ok(self.second.get_or_init(|| second))
    }
}

impl TransactionalStore for SledStore {
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64> {
        if mode != TransactionMode::Serializable {
            return Err(missing(StoreFeature::of(mode)));
        }
        let (body, runs) = (RefCell::new(body), Cell::new(0));
        let run = |first: &TransactionalTree, second: &TransactionalTree| {
            runs.set(runs.get() + 1);
            let mut transaction = SledTransaction { first, second, error: None };
            let outcome = (*body.borrow_mut())(&mut transaction);
            match transaction.error {
                Some(error) => Err(error.into()),
                None => outcome.map_err(ConflictableTransactionError::Abort),
            }
        };
        let first: &sled::Tree = &self.database;
        let outcome = match self.second.get() {
            Some(second) => (first, second).transaction(|(first, second)| run(first, second)),
            None => first.transaction(|first| run(first, first)),
        };
        outcome.map_err(|error: TransactionError<Failure>| match error {
            TransactionError::Abort(failure) => failure,
            TransactionError::Storage(error) => failed(NAME, error),
        })?;
        if self.is_synced {
            self.database.flush().map_err(|error| failed(NAME, error))?;
        }
        Ok(runs.get() - 1)
    }

    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let mut batch = sled::Batch::default();
        for (key, value) in entries {
            batch.insert(key.as_slice(), value.as_slice());
        }
        self.written(self.second()?.apply_batch(batch))
    }

    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        Self::visit(self.second()?.iter(), usize::MAX, each).map(to_u64)
    }
}
