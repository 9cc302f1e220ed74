//! `RocksDB` and `LevelDB`, through their C interfaces.
//!
//! The interface of `RocksDB` is that of `LevelDB` with more functions. One adapter serves both;
//! functions of one library are behind [`LsmApi`]. A get of `RocksDB` pins the block and copies the
//! value once. `multi_get` uses its batched form, which groups filter probes and reads.
//!
//! Thread rules: both stores allow any number of threads on one handle. Read and write options do
//! not change after opening. [`LsmStore`] is therefore `Send` and `Sync`.
#![expect(unsafe_code, reason = "calls into C libraries")]

mod api;
mod level;
mod rocks;
mod transaction_db;
mod transactions;

use std::{
    ffi::{CString, c_char, c_uchar},
    os::unix::ffi::OsStrExt as _,
    ptr,
};

use libloading::Library;
use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::to_u64,
    store::{
        Durability, EachEntry, EachFound, Setting, Store, StoreFeature, StoreOptions, StoreStats,
        TransactionalStore,
    },
};

use self::{
    api::{COMPRESSION_NONE, CommonApi, Object, check},
    level::LevelApi,
    rocks::RocksApi,
    transaction_db::RocksTransactions,
};
use super::{
    library,
    peer::{Peer, UNUSED_KEY, failed, setting},
};

/// Library of a store, and the kind of its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LsmLibrary {
    /// `RocksDB` without transactions.
    Rocks,
    /// `OptimisticTransactionDB` of `RocksDB`.
    RocksOptimistic,
    /// `TransactionDB` of `RocksDB`, which locks keys.
    RocksPessimistic,
    Level,
}

impl LsmLibrary {
    const fn library(self) -> &'static str {
        match self {
            Self::Rocks | Self::RocksOptimistic | Self::RocksPessimistic => "rocksdb",
            Self::Level => "leveldb",
        }
    }
}

impl Peer for LsmLibrary {
    fn name(&self) -> &'static str {
        match self {
            Self::RocksOptimistic => "rocksdb-optimistic",
            Self::RocksPessimistic => "rocksdb-pessimistic",
            Self::Rocks | Self::Level => self.library(),
        }
    }

    fn is_only_for_transactions(&self) -> bool {
        self.has_feature(StoreFeature::Transactions)
    }

    fn has_feature(&self, feature: StoreFeature) -> bool {
        match self {
            Self::Rocks | Self::Level => false,
            Self::RocksOptimistic => feature == StoreFeature::Transactions,
            Self::RocksPessimistic => {
                matches!(feature, StoreFeature::Transactions | StoreFeature::LockingTransactions)
            }
        }
    }

    fn version(&self) -> String {
        library::version(self.library())
    }

    fn check_available(&self) -> Outcome {
        library::find(self.library()).map(drop)
    }

    fn takes_options(&self) -> bool {
        true
    }

    fn promise(&self, _: Durability) -> &'static str {
        // Without sync, the log goes to the page cache and survives the end of the process, as in
        // Quintet. A power failure may lose an unlimited amount.
        ""
    }

    fn settings(&self, options: &StoreOptions) -> Vec<Setting> {
        match self {
            Self::Rocks => rocks::settings(options),
            Self::RocksOptimistic | Self::RocksPessimistic => {
                let mut settings = rocks::settings(options);
                let kind = match self {
                    Self::RocksOptimistic => "OptimisticTransactionDB",
                    _ => "TransactionDB",
                };
                let reason = "reads by GetForUpdate; transaction objects are used again";
                settings.push(setting("database", kind, reason));
                settings
            }
            Self::Level => level::settings(options),
        }
    }

    fn open(&self, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        if *self == Self::Level && options.is_direct() {
            return Err(Failure::Failed("leveldb has no direct I/O".to_owned()));
        }
        let library = library::load(self.library())?;
        // SAFETY: the declarations above are those of the libraries' headers, `rocksdb/c.h` and
        // `leveldb/c.h`.
        let (api, extra) = unsafe {
            let prefix = format!("{}_", self.library());
            let extra = match self {
                Self::Rocks | Self::RocksOptimistic | Self::RocksPessimistic => {
                    LsmApi::Rocks(RocksApi::look_up(library, &prefix)?)
                }
                Self::Level => LsmApi::Level(LevelApi::look_up(library, &prefix)?),
            };
            (CommonApi::look_up(library, &prefix)?, extra)
        };
        Ok(Box::new(LsmStore::open(*self, library, (api, extra), options)?))
    }
}

/// Functions of one of the libraries only.
#[derive(Clone, Copy)]
enum LsmApi {
    Rocks(RocksApi),
    Level(LevelApi),
}

/// An open store of one of the two libraries.
struct LsmStore {
    kind: LsmLibrary,
    api: CommonApi,
    extra: LsmApi,
    store: Object,
    read: Object,
    write: Object,
    write_synced: Object,
    column_family: Object,
    /// Transactions, of the kinds that have them.
    transactions: Option<RocksTransactions>,
}

// SAFETY: the module head: both libraries synchronise all functions that are called here on a
// shared handle, and the option objects are not changed after `open`.
unsafe impl Send for LsmStore {}
// SAFETY: as above.
unsafe impl Sync for LsmStore {}

impl LsmStore {
    fn open(
        kind: LsmLibrary,
        library: &'static Library,
        (api, extra): (CommonApi, LsmApi),
        options: &StoreOptions,
    ) -> Outcome<Self> {
        let path = CString::new(options.dir.as_os_str().as_bytes())
            .map_err(|error| failed(kind.library(), error))?;
        // SAFETY: objects are made and used as the headers say; filter and cache objects live as
        // long as the process, which the store may rely on.
        unsafe {
            let native = (api.options_create)();
            (api.options_set_create_if_missing)(native, 1);
            (api.options_set_compression)(native, COMPRESSION_NONE);
            let tuned = match &extra {
                LsmApi::Rocks(rocks) => {
                    rocks::tune(&api, rocks, native, options);
                    rocks::override_options(&api, rocks, native, &options.settings)
                }
                LsmApi::Level(level) => level::tune(&api, level, native, options),
            };
            tuned.inspect_err(|_| (api.options_destroy)(native))?;
            let opened = if kind.has_feature(StoreFeature::Transactions) {
                let is_optimistic = kind == LsmLibrary::RocksOptimistic;
                RocksTransactions::open(library, &api, is_optimistic, (native, &path))
                    .map(|(transactions, store)| (store, Some(transactions)))
            } else {
                let mut error = ptr::null_mut();
                let store = (api.open)(native, path.as_ptr(), &raw mut error);
                check(kind.library(), &api, error).map(|()| (store, None))
            };
            (api.options_destroy)(native);
            let (store, transactions) = opened?;
            let write = (api.writeoptions_create)();
            (api.writeoptions_set_sync)(write, c_uchar::from(options.is_synced()));
            let write_synced = (api.writeoptions_create)();
            (api.writeoptions_set_sync)(write_synced, 1);
            let column_family = match &extra {
                LsmApi::Rocks(rocks) => (rocks.get_default_column_family_handle)(store),
                LsmApi::Level(_) => ptr::null_mut(),
            };
            let read = (api.readoptions_create)();
            Ok(Self {
                kind,
                api,
                extra,
                store,
                read,
                write,
                write_synced,
                column_family,
                transactions,
            })
        }
    }

    fn check(&self, error: *mut c_char) -> Outcome {
        check(self.kind.library(), &self.api, error)
    }

    /// Visits up to `limit` entries from `start` on.
    fn visit(
        &self,
        start: Option<&[u8]>,
        limit: usize,
        each: &mut EachEntry<'_>,
    ) -> Outcome<usize> {
        // SAFETY: the objects are live; `visit_iterator` destroys the iterator.
        unsafe {
            let iterator = (self.api.create_iterator)(self.store, self.read);
            self.visit_iterator(iterator, start, limit, each)
        }
    }

    /// Visits up to `limit` entries of an iterator from `start` on, and destroys it.
    ///
    /// # Safety
    /// `iterator` is a live iterator of the library that nothing else uses.
    unsafe fn visit_iterator(
        &self,
        iterator: Object,
        start: Option<&[u8]>,
        limit: usize,
        each: &mut EachEntry<'_>,
    ) -> Outcome<usize> {
        let api = &self.api;
        let mut count = 0;
        // SAFETY: as the caller promises; key and value are valid until the iterator moves.
        unsafe {
            match start {
                Some(start) => (api.iter_seek)(iterator, start.as_ptr(), start.len()),
                None => (api.iter_seek_to_first)(iterator),
            }
            while count < limit && (api.iter_valid)(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = (api.iter_key)(iterator, &raw mut key_len);
                let value = (api.iter_value)(iterator, &raw mut value_len);
                each(bytes(key, key_len), bytes(value, value_len));
                (api.iter_next)(iterator);
                count += 1;
            }
            let mut error = ptr::null_mut();
            (api.iter_get_error)(iterator, &raw mut error);
            (api.iter_destroy)(iterator);
            self.check(error)?;
        }
        Ok(count)
    }

    /// Returns a property of `RocksDB` by its name.
    fn property(&self, name: &std::ffi::CStr) -> Option<u64> {
        let LsmApi::Rocks(rocks) = &self.extra else { return None };
        let mut value = 0;
        // SAFETY: the name is terminated, `value` outlives the call.
        let missing = unsafe { (rocks.property_int)(self.store, name.as_ptr(), &raw mut value) };
        (missing == 0).then_some(value)
    }
}

/// Returns the bytes at a pointer of the library.
///
/// # Safety
/// `start` points to `len` bytes that do not change while the result is used.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start, len) }
}

impl Store for LsmStore {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let mut error = ptr::null_mut();
        let mut len = 0;
        // SAFETY: pinned slices and returned memory are read before they are given back.
        unsafe {
            if let LsmApi::Rocks(rocks) = &self.extra {
                let slice = (rocks.get_pinned)(
                    self.store,
                    self.read,
                    key.as_ptr(),
                    key.len(),
                    &raw mut error,
                );
                self.check(error)?;
                if slice.is_null() {
                    return Ok(false);
                }
                let start = (rocks.pinnableslice_value)(slice, &raw mut len);
                value.clear();
                value.extend_from_slice(bytes(start, len));
                (rocks.pinnableslice_destroy)(slice);
                return Ok(true);
            }
            let start = (self.api.get)(
                self.store,
                self.read,
                key.as_ptr(),
                key.len(),
                &raw mut len,
                &raw mut error,
            );
            self.check(error)?;
            if start.is_null() {
                return Ok(false);
            }
            value.clear();
            value.extend_from_slice(bytes(start, len));
            (self.api.free)(start.cast());
        }
        Ok(true)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        let LsmApi::Rocks(rocks) = &self.extra else {
            let mut value = Vec::new();
            for (index, key) in keys.iter().enumerate() {
                let found = self.get_into(key, &mut value)?;
                each(index, found.then_some(value.as_slice()));
            }
            return Ok(());
        };
        let starts: Vec<*const u8> = keys.iter().map(|key| key.as_ptr()).collect();
        let lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        let mut slices: Vec<Object> = vec![ptr::null_mut(); keys.len()];
        let mut errors: Vec<*mut c_char> = vec![ptr::null_mut(); keys.len()];
        // SAFETY: all four arrays have as many elements as there are keys.
        unsafe {
            (rocks.batched_multi_get_cf)(
                self.store,
                self.read,
                self.column_family,
                keys.len(),
                starts.as_ptr(),
                lengths.as_ptr(),
                slices.as_mut_ptr(),
                errors.as_mut_ptr(),
                0,
            );
        }
        let mut outcome = Ok(());
        for (index, (slice, error)) in slices.into_iter().zip(errors).enumerate() {
            outcome = outcome.and(self.check(error));
            if slice.is_null() {
                each(index, None);
                continue;
            }
            let mut len = 0;
            // SAFETY: the slice is live until it is destroyed here.
            unsafe {
                let start = (rocks.pinnableslice_value)(slice, &raw mut len);
                each(index, Some(bytes(start, len)));
                (rocks.pinnableslice_destroy)(slice);
            }
        }
        outcome
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the library copies both before it returns.
        unsafe {
            (self.api.put)(
                self.store,
                self.write,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &raw mut error,
            );
        }
        self.check(error)
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the library copies the key before it returns.
        unsafe {
            let delete = self.api.delete;
            delete(self.store, self.write, key.as_ptr(), key.len(), &raw mut error);
        }
        self.check(error)
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the batch copies keys and values and is destroyed after it was written.
        unsafe {
            let batch = (self.api.writebatch_create)();
            for (key, value) in entries {
                let put = self.api.writebatch_put;
                put(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            (self.api.write)(self.store, self.write, batch, &raw mut error);
            (self.api.writebatch_destroy)(batch);
        }
        self.check(error)
    }

    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        self.transactions.is_some().then_some(self as &dyn TransactionalStore)
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        self.visit(Some(start), limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.visit(None, usize::MAX, each).map(to_u64)
    }

    /// Writes a synced delete of an absent key, which makes the log and all earlier writes durable.
    fn sync(&self) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: as for `delete`.
        unsafe {
            let delete = self.api.delete;
            let (key, len) = (UNUSED_KEY.as_ptr(), UNUSED_KEY.len());
            delete(self.store, self.write_synced, key, len, &raw mut error);
        }
        self.check(error)
    }

    fn stats(&self) -> StoreStats {
        let tables = self.property(c"rocksdb.estimate-table-readers-mem");
        let memtables = self.property(c"rocksdb.cur-size-all-mem-tables");
        let cache = self.property(c"rocksdb.block-cache-usage");
        let memory_bytes = tables
            .zip(memtables)
            .zip(cache)
            .map(|((tables, memtables), cache)| tables + memtables + cache);
        StoreStats { memory_bytes, index_bytes: tables, ..StoreStats::default() }
    }

    fn close(self: Box<Self>) -> Outcome {
        // SAFETY: `self` is the only owner of the handle; nothing of the store is used afterwards.
        unsafe {
            match self.transactions {
                Some(transactions) => transactions.close(self.store),
                None => (self.api.close)(self.store),
            }
            (self.api.readoptions_destroy)(self.read);
            (self.api.writeoptions_destroy)(self.write);
            (self.api.writeoptions_destroy)(self.write_synced);
        }
        Ok(())
    }
}
