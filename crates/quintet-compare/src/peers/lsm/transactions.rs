//! The transactions of `RocksDB`: `OptimisticTransactionDB` and `TransactionDB`.
//!
//! Both kinds open a database with two column families. Reads use `GetForUpdate`: the optimistic
//! kind notes the key and validates it at commit, the other one locks it at once. A conflict is the
//! status `Busy` or `TryAgain` of the optimistic kind, `TimedOut` of the other one. The body is
//! then run again at once, without a pause.
//!
//! Plain reads and writes use the database below the transactions. They take no locks.
//!
//! Thread rules: one thread at a time uses a transaction object. [`RocksTransactions::idle`] keeps
//! those that are not in use, because making one costs more than beginning it again.
#![expect(unsafe_code, reason = "calls into a C library")]

use std::{
    ffi::{CStr, c_char, c_int, c_uchar},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use libloading::Library;
use quintet_bench::{
    failure::Outcome,
    numbers::to_u64,
    store::{
        EachEntry, StoreFeature, StoreTable, StoreTransaction, TransactionBody, TransactionMode,
        TransactionalStore, missing,
    },
};

use super::{
    super::library::functions,
    LsmApi, LsmLibrary, LsmStore,
    api::{CommonApi, ErrorOut, Object, check},
    bytes,
    rocks::RocksApi,
};

functions! {
    /// Functions of both kinds of transactions.
    TransactionApi {
        options_set_create_missing_column_families: fn(Object, c_uchar);
        column_family_handle_destroy: fn(Object);
        create_iterator_cf: fn(Object, Object, Object) -> Object;
        writebatch_put_cf: fn(Object, Object, *const u8, usize, *const u8, usize);
        optimistictransactiondb_open_column_families: fn(
            Object, *const c_char, c_int, *const *const c_char, *const Object, *mut Object, ErrorOut
        ) -> Object;
        optimistictransactiondb_get_base_db: fn(Object) -> Object;
        optimistictransactiondb_close_base_db: fn(Object);
        optimistictransactiondb_close: fn(Object);
        optimistictransaction_options_create: fn() -> Object;
        optimistictransaction_options_destroy: fn(Object);
        optimistictransaction_begin: fn(Object, Object, Object, Object) -> Object;
        transactiondb_options_create: fn() -> Object;
        transactiondb_options_destroy: fn(Object);
        transactiondb_open_column_families: fn(
            Object, Object, *const c_char, c_int, *const *const c_char, *const Object, *mut Object,
            ErrorOut
        ) -> Object;
        transactiondb_get_base_db: fn(Object) -> Object;
        transactiondb_close_base_db: fn(Object);
        transactiondb_close: fn(Object);
        transaction_options_create: fn() -> Object;
        transaction_options_destroy: fn(Object);
        transaction_begin: fn(Object, Object, Object, Object) -> Object;
        transaction_commit: fn(Object, ErrorOut);
        transaction_rollback: fn(Object, ErrorOut);
        transaction_destroy: fn(Object);
        transaction_get_pinned_for_update_cf: fn(
            Object, Object, Object, *const u8, usize, c_uchar, ErrorOut
        ) -> Object;
        transaction_put_cf: fn(Object, Object, *const u8, usize, *const u8, usize, ErrorOut);
    }
}

/// Names of the column families: of the first table and of the second one.
const COLUMN_FAMILIES: [&CStr; 2] = [c"default", c"second"];
/// Starts of the messages of the statuses `Busy`, `TimedOut` and `TryAgain`.
const CONFLICTS: [&str; 3] =
    ["Resource busy", "Operation timed out", "Operation failed. Try again"];

/// Returns whether a kind has a feature.
pub(super) fn has_feature(kind: LsmLibrary, feature: StoreFeature) -> bool {
    match kind {
        LsmLibrary::Rocks | LsmLibrary::Level => false,
        LsmLibrary::RocksOptimistic => feature == StoreFeature::Transactions,
        LsmLibrary::RocksPessimistic => {
            matches!(feature, StoreFeature::Transactions | StoreFeature::LockingTransactions)
        }
    }
}

/// An open database with transactions.
pub(super) struct RocksTransactions {
    api: TransactionApi,
    is_optimistic: bool,
    database: Object,
    /// Options of every transaction.
    options: Object,
    /// Column families of both tables.
    families: [Object; 2],
    /// Transaction objects that are not in use.
    idle: Mutex<Vec<Object>>,
}

impl RocksTransactions {
    /// Opens a database with the options `native`. Returns the database below it too.
    ///
    /// # Safety
    /// `library` is that of `RocksDB`, and `native` a live options object of it. `path` is
    /// terminated.
    pub(super) unsafe fn open(
        library: &'static Library,
        common: &CommonApi,
        is_optimistic: bool,
        (native, path): (Object, &CStr),
    ) -> Outcome<(Self, Object)> {
        let names = COLUMN_FAMILIES.map(CStr::as_ptr);
        let natives = [native; 2];
        let mut families = [ptr::null_mut(); 2];
        let mut error = ptr::null_mut();
        // SAFETY: as the caller promises; the arrays have two elements each, and the library copies
        // the options.
        unsafe {
            let api = TransactionApi::look_up(library, "rocksdb_")?;
            (api.options_set_create_missing_column_families)(native, 1);
            let (names, natives, handles) =
                (names.as_ptr(), natives.as_ptr(), families.as_mut_ptr());
            let (database, options) = if is_optimistic {
                let open = api.optimistictransactiondb_open_column_families;
                let database =
                    open(native, path.as_ptr(), 2, names, natives, handles, &raw mut error);
                (database, (api.optimistictransaction_options_create)())
            } else {
                let own = (api.transactiondb_options_create)();
                let open = api.transactiondb_open_column_families;
                let database =
                    open(native, own, path.as_ptr(), 2, names, natives, handles, &raw mut error);
                (api.transactiondb_options_destroy)(own);
                (database, (api.transaction_options_create)())
            };
            check("rocksdb", common, error)?;
            let base = if is_optimistic {
                (api.optimistictransactiondb_get_base_db)(database)
            } else {
                (api.transactiondb_get_base_db)(database)
            };
            let idle = Mutex::new(Vec::new());
            Ok((Self { api, is_optimistic, database, options, families, idle }, base))
        }
    }

    /// Begins a transaction.
    fn begin(&self, write: Object) -> Object {
        let kept = self.lock().pop().unwrap_or(ptr::null_mut());
        // SAFETY: the objects are live, and a kept transaction is in no other thread's use.
        unsafe {
            if self.is_optimistic {
                (self.api.optimistictransaction_begin)(self.database, write, self.options, kept)
            } else {
                (self.api.transaction_begin)(self.database, write, self.options, kept)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Object>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn family(&self, table: StoreTable) -> Object {
        let [first, second] = self.families;
        match table {
            StoreTable::First => first,
            StoreTable::Second => second,
        }
    }

    /// Closes the database and the one below it.
    ///
    /// # Safety
    /// No thread uses either.
    pub(super) unsafe fn close(self, base: Object) {
        // SAFETY: as the caller promises.
        unsafe {
            for transaction in self.lock().drain(..) {
                (self.api.transaction_destroy)(transaction);
            }
            for family in self.families {
                (self.api.column_family_handle_destroy)(family);
            }
            if self.is_optimistic {
                (self.api.optimistictransaction_options_destroy)(self.options);
                (self.api.optimistictransactiondb_close_base_db)(base);
                (self.api.optimistictransactiondb_close)(self.database);
            } else {
                (self.api.transaction_options_destroy)(self.options);
                (self.api.transactiondb_close_base_db)(base);
                (self.api.transactiondb_close)(self.database);
            }
        }
    }
}

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
        if !has_feature(self.kind, StoreFeature::of(mode)) {
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
            all.lock().push(transaction);
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
