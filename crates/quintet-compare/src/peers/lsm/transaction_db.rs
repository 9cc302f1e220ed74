//! `OptimisticTransactionDB` and `TransactionDB` of `RocksDB`.
//!
//! Both kinds open a database with two column families. Plain reads and writes use the database
//! below the transactions. They take no locks.
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
use quintet_bench::{failure::Outcome, store::StoreTable};

use super::{
    super::library::functions,
    api::{CommonApi, ErrorOut, Object, check},
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
/// An open database with transactions.
pub(super) struct RocksTransactions {
    pub(super) api: TransactionApi,
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
    pub(super) fn begin(&self, write: Object) -> Object {
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

    /// Takes a transaction object back, which has ended.
    pub(super) fn put_back(&self, transaction: Object) {
        self.lock().push(transaction);
    }

    pub(super) fn family(&self, table: StoreTable) -> Object {
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
