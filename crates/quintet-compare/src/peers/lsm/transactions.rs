//! Transactions on a database of `RocksDB` that has them.
//!
//! Reads use `GetForUpdate`: the optimistic kind notes the key and validates it at commit, the
//! other one locks it at once. A conflict is the status `Busy` or `TryAgain` of the optimistic
//! kind, `TimedOut` of the other one. The body is then run again at once, without a pause.
#![expect(unsafe_code, reason = "calls into a C library")]

use std::{ffi::c_char, ptr};

use quintet_bench::{
    failure::Outcome,
    numbers::to_u64,
    store::{
        EachEntry, StoreFeature, StoreTable, StoreTransaction, TransactionBody, TransactionMode,
        TransactionalStore, missing,
    },
};

use super::{
    super::peer::Peer as _, LsmApi, LsmStore, api::Object, bytes, rocks::RocksApi,
    transaction_db::RocksTransactions,
};

/// Starts of the messages of the statuses `Busy`, `TimedOut` and `TryAgain`.
const CONFLICTS: [&str; 3] =
    ["Resource busy", "Operation timed out", "Operation failed. Try again"];

/// A running transaction.
struct RocksTransaction<'a> {
    store: &'a LsmStore,
    rocks: &'a RocksApi,
    all: &'a RocksTransactions,
    transaction: Object,
    /// Whether an operation has failed because of a conflict.
    has_conflict: bool,
}

impl RocksTransaction<'_> {
    /// Turns an error message into a failure, and notes whether it is a conflict.
    fn check(&mut self, error: *mut c_char) -> Outcome {
        let outcome = self.store.check(error);
        if let Err(failure) = &outcome {
            let what = failure.to_string();
            self.has_conflict |= CONFLICTS.iter().any(|status| what.contains(status));
        }
        outcome
    }

    fn commit(&mut self) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the transaction is this thread's alone.
        unsafe { (self.all.api.transaction_commit)(self.transaction, &raw mut error) };
        self.check(error)
    }

    fn rollback(&mut self) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the transaction is this thread's alone.
        unsafe { (self.all.api.transaction_rollback)(self.transaction, &raw mut error) };
        self.store.check(error)
    }
}

impl StoreTransaction for RocksTransaction<'_> {
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let mut error = ptr::null_mut();
        let get = self.all.api.transaction_get_pinned_for_update_cf;
        let (family, read) = (self.all.family(table), self.store.read);
        // SAFETY: the objects are live; the slice is read before it is given back.
        unsafe {
            let (start, len) = (key.as_ptr(), key.len());
            let slice = get(self.transaction, read, family, start, len, 1, &raw mut error);
            self.check(error)?;
            if slice.is_null() {
                return Ok(false);
            }
            let mut len = 0;
            let start = (self.rocks.pinnableslice_value)(slice, &raw mut len);
            value.clear();
            value.extend_from_slice(bytes(start, len));
            (self.rocks.pinnableslice_destroy)(slice);
        }
        Ok(true)
    }

    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome {
        let mut error = ptr::null_mut();
        let put = self.all.api.transaction_put_cf;
        let family = self.all.family(table);
        // SAFETY: the objects are live; the library copies key and value.
        unsafe {
            let (key, key_len) = (key.as_ptr(), key.len());
            let (value, value_len) = (value.as_ptr(), value.len());
            put(self.transaction, family, key, key_len, value, value_len, &raw mut error);
        }
        self.check(error)
    }
}

impl LsmStore {
    fn parts(&self) -> Outcome<(&RocksApi, &RocksTransactions)> {
        match (&self.extra, &self.transactions) {
            (LsmApi::Rocks(rocks), Some(all)) => Ok((rocks, all)),
            _ => Err(missing(StoreFeature::Transactions)),
        }
    }
}

impl TransactionalStore for LsmStore {
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64> {
        if !self.kind.has_feature(StoreFeature::of(mode)) {
            return Err(missing(StoreFeature::of(mode)));
        }
        let (rocks, all) = self.parts()?;
        let mut conflicts = 0;
        loop {
            let transaction = all.begin(self.write);
            let mut running =
                RocksTransaction { store: self, rocks, all, transaction, has_conflict: false };
            let outcome = body(&mut running).and_then(|()| running.commit());
            let rolled_back = if outcome.is_err() { running.rollback() } else { Ok(()) };
            let has_conflict = running.has_conflict;
            all.put_back(transaction);
            rolled_back?;
            match outcome {
                Err(_) if has_conflict => conflicts += 1,
                outcome => return outcome.map(|()| conflicts),
            }
        }
    }

    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let (_, all) = self.parts()?;
        let family = all.family(StoreTable::Second);
        let mut error = ptr::null_mut();
        // SAFETY: the batch copies keys and values and is destroyed after it was written.
        unsafe {
            let batch = (self.api.writebatch_create)();
            for (key, value) in entries {
                let put = all.api.writebatch_put_cf;
                put(batch, family, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            (self.api.write)(self.store, self.write, batch, &raw mut error);
            (self.api.writebatch_destroy)(batch);
        }
        self.check(error)
    }

    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        let (_, all) = self.parts()?;
        let family = all.family(StoreTable::Second);
        // SAFETY: the objects are live; `visit_iterator` destroys the iterator.
        let count = unsafe {
            let iterator = (all.api.create_iterator_cf)(self.store, self.read, family);
            self.visit_iterator(iterator, None, usize::MAX, each)?
        };
        Ok(to_u64(count))
    }
}
