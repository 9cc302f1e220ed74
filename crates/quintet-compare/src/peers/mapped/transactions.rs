//! The write transactions of LMDB and MDBX.
//!
//! There is one write transaction at a time, so none has conflicts. The second table has a name,
//! the first one is the unnamed table of the environment.
#![expect(unsafe_code, reason = "calls into C libraries")]

use std::ffi::c_uint;

use quintet_bench::{
    failure::Outcome,
    numbers::to_u64,
    store::{
        EachEntry, StoreFeature, StoreTable, StoreTransaction, TransactionBody, TransactionMode,
        TransactionalStore, missing,
    },
};

use super::{
    MappedStore,
    api::{CREATE, Object, SECOND},
};

/// A running write transaction.
struct MappedTransaction<'a> {
    store: &'a MappedStore,
    txn: Object,
}

impl MappedStore {
    /// Returns the second table. Opens it in a transaction of its own, so no other may run in this
    /// thread.
    fn second(&self) -> Outcome<c_uint> {
        if let Some(second) = self.second.get() {
            return Ok(*second);
        }
        let mut second = 0;
        // SAFETY: the name is terminated; the library copies it.
        self.write(|txn| unsafe {
            self.check((self.api.dbi_open)(txn, SECOND.as_ptr(), CREATE, &raw mut second))
        })?;
        Ok(*self.second.get_or_init(|| second))
    }
}

impl MappedTransaction<'_> {
    fn table(&self, table: StoreTable) -> Outcome<c_uint> {
        match table {
            StoreTable::First => Ok(self.store.table),
            StoreTable::Second => {
                let second = self.store.second.get().copied();
                second.ok_or_else(|| missing(StoreFeature::Transactions))
            }
        }
    }
}

impl StoreTransaction for MappedTransaction<'_> {
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let table = self.table(table)?;
        // SAFETY: the transaction ends after the body.
        unsafe { self.store.get_in((self.txn, table), key, value) }
    }

    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome {
        let table = self.table(table)?;
        self.store.put_with((self.txn, table), (key, value), 0)
    }
}

impl TransactionalStore for MappedStore {
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64> {
        if mode != TransactionMode::Serializable {
            return Err(missing(StoreFeature::of(mode)));
        }
        self.write(|txn| body(&mut MappedTransaction { store: self, txn }))?;
        Ok(0)
    }

    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let second = self.second()?;
        self.write(|txn| {
            entries
                .iter()
                .try_for_each(|(key, value)| self.put_with((txn, second), (key, value), 0))
        })
    }

    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.visit(self.second()?, None, usize::MAX, each).map(to_u64)
    }
}
