//! LMDB and MDBX, through their C interfaces.
//!
//! MDBX is a fork of LMDB: the same calls with another prefix, the two words of a value in the
//! other order, and a few functions with more arguments. One adapter serves both; [`Flavour`]
//! covers the differences.
//!
//! Each put is a transaction, as in all stores here. A get renews a read transaction of a pool, as
//! the guides of both projects recommend.
//!
//! Thread rules: all threads share the environment. One thread at a time uses a read transaction: a
//! call takes it out of [`MappedStore::readers`].
#![expect(unsafe_code, reason = "calls into C libraries")]

mod api;
mod transactions;

use std::{
    ffi::{CString, c_int, c_uint},
    os::unix::ffi::OsStrExt as _,
    ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::{to_u64, to_usize},
    store::{
        Durability, EachEntry, NextEntry, Setting, Store, StoreFeature, StoreOptions, StoreStats,
        TransactionalStore,
    },
};

use self::api::{
    APPEND, CREATE, CURSOR_FIRST, CURSOR_NEXT, CURSOR_SET_RANGE, CommonApi, FLAGS, LmdbApi,
    MAP_BYTES_MIN, MAP_BYTES_PER_BYTE, MDBX_OPTION_READERS_MAX, MDBX_OPTION_TABLES_MAX, MODE,
    MdbxApi, NAMED_TABLES, NO_MEMORY_INIT, NO_READ_AHEAD, NO_SYNC, NO_TLS, NOT_FOUND, Object,
    READERS_MAX, RawSlice, SECOND, Stat, TXN_READ_ONLY, UTTERLY_NO_SYNC, WRITE_MAP,
};
use super::{
    library,
    peer::{Peer, failed, setting},
};

/// Options of the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MappedOverrides {
    /// Flags of the environment instead of the defaults: `flags=NAME+NAME`.
    flags: Option<c_uint>,
    /// Flags of each put: `append=yes` is for keys in ascending order.
    put_flags: c_uint,
}

impl MappedOverrides {
    fn new(asked: &[(String, String)]) -> Outcome<Self> {
        let mut all = Self::default();
        for (name, value) in asked {
            match (name.as_str(), value.as_str()) {
                ("flags", _) => all.flags = Some(named_flags(value)?),
                ("append", "yes") => all.put_flags = APPEND,
                ("append", "no") => all.put_flags = 0,
                ("append", _) => return Err(Failure::Usage("append is yes or no".to_owned())),
                _ => {
                    let what = format!("there is no option {name:?} but `flags` and `append`");
                    return Err(Failure::Usage(what));
                }
            }
        }
        Ok(all)
    }
}

fn named_flags(names: &str) -> Outcome<c_uint> {
    let mut bits = 0;
    for word in names.split('+').filter(|word| !word.is_empty()) {
        let known = FLAGS.iter().find(|(name, _)| *name == word);
        bits |= known.map(|(_, bit)| bit).ok_or_else(|| {
            let names: Vec<_> = FLAGS.iter().map(|(name, _)| *name).collect();
            Failure::Usage(format!("there is no flag {word:?}, but {}", names.join(", ")))
        })?;
    }
    Ok(bits)
}

/// Library of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Lmdb,
    Mdbx,
}

/// A library, and whether the kernel reads ahead on page faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedLibrary {
    pub(super) flavour: Flavour,
    pub(super) reads_ahead: bool,
}

impl MappedLibrary {
    const fn library(self) -> &'static str {
        match self.flavour {
            Flavour::Lmdb => "lmdb",
            Flavour::Mdbx => "mdbx",
        }
    }
}

impl Peer for MappedLibrary {
    fn name(&self) -> &'static str {
        match (self.flavour, self.reads_ahead) {
            (Flavour::Lmdb, false) => "lmdb",
            (Flavour::Lmdb, true) => "lmdb-readahead",
            (Flavour::Mdbx, _) => "mdbx",
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

    fn promise(&self, durability: Durability) -> &'static str {
        match (durability, self.flavour) {
            (Durability::Sync, _) => "",
            (Durability::Buffered, _) => {
                "less than ours: a write survives the process, but after a loss of power the file \
                 may be damaged as a whole"
            }
        }
    }

    fn settings(&self, options: &StoreOptions) -> Vec<Setting> {
        let mut settings = vec![
            setting("NOTLS", true, "read transactions are kept and renewed: the cheapest get"),
            setting(
                "NORDAHEAD",
                !self.reads_ahead,
                "read-ahead fetches pages that random access does not want; both are measured",
            ),
        ];
        if !options.is_synced() {
            let (name, reason) = match self.flavour {
                Flavour::Lmdb => ("NOSYNC", "the comparison is of writes that are not synced"),
                Flavour::Mdbx => (
                    "UTTERLY_NOSYNC",
                    "what LMDB's NOSYNC is; SAFE_NOSYNC reuses no page until a sync: 25 times \
                     slower here",
                ),
            };
            settings.push(setting(name, true, reason));
            settings.push(setting(
                "WRITEMAP, NOMEMINIT",
                true,
                "writes go to the map: no system call for each page of a commit",
            ));
        }
        settings
    }

    fn has_feature(&self, feature: StoreFeature) -> bool {
        feature == StoreFeature::Transactions
    }

    fn open(&self, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        if options.is_direct() {
            return Err(Failure::Failed(format!("{} has no direct I/O", self.library())));
        }
        let library = library::load(self.library())?;
        // SAFETY: the declarations above are those of `lmdb.h` and `mdbx.h`.
        let (api, extra) = unsafe {
            match self.flavour {
                Flavour::Lmdb => {
                    let extra = MappedApi::Lmdb(LmdbApi::look_up(library, "mdb_")?);
                    (CommonApi::look_up(library, "mdb_")?, extra)
                }
                Flavour::Mdbx => {
                    let extra = MappedApi::Mdbx(MdbxApi::look_up(library, "mdbx_")?);
                    (CommonApi::look_up(library, "mdbx_")?, extra)
                }
            }
        };
        Ok(Box::new(MappedStore::open(*self, api, extra, options)?))
    }
}

#[derive(Clone, Copy)]
enum MappedApi {
    Lmdb(LmdbApi),
    Mdbx(MdbxApi),
}

/// An open environment with its table.
struct MappedStore {
    kind: MappedLibrary,
    api: CommonApi,
    extra: MappedApi,
    environment: Object,
    table: c_uint,
    /// The second table, once it is needed.
    second: OnceLock<c_uint>,
    put_flags: c_uint,
    /// Read transactions that are reset and not in use.
    readers: Mutex<Vec<ReadTransaction>>,
}

/// A read transaction that is not in use.
struct ReadTransaction(Object);

// SAFETY: with NOTLS a read transaction belongs to no thread. Only the thread that took it out of
// the pool uses it.
unsafe impl Send for ReadTransaction {}
// SAFETY: the environment and the table may be used by all threads; `readers` is behind its lock.
unsafe impl Send for MappedStore {}
// SAFETY: as above.
unsafe impl Sync for MappedStore {}

impl MappedStore {
    fn open(
        kind: MappedLibrary,
        api: CommonApi,
        extra: MappedApi,
        options: &StoreOptions,
    ) -> Outcome<Self> {
        let name = kind.library();
        let path = CString::new(options.dir.as_os_str().as_bytes())
            .map_err(|error| failed(name, error))?;
        let mut flags = NO_TLS;
        if !kind.reads_ahead {
            flags |= NO_READ_AHEAD;
        }
        if !options.is_synced() {
            flags |= WRITE_MAP | NO_MEMORY_INIT;
            flags |= match kind.flavour {
                Flavour::Lmdb => NO_SYNC,
                Flavour::Mdbx => UTTERLY_NO_SYNC,
            };
        }
        let asked = MappedOverrides::new(&options.settings)?;
        if let Some(asked) = asked.flags {
            flags = NO_TLS | asked;
        }
        let wanted = options.bytes_written_max.saturating_mul(MAP_BYTES_PER_BYTE);
        let map_bytes = wanted.clamp(MAP_BYTES_MIN, 1 << 42);
        let mut mapped = Self {
            kind,
            api,
            extra,
            environment: ptr::null_mut(),
            table: 0,
            second: OnceLock::new(),
            put_flags: asked.put_flags,
            readers: Mutex::new(Vec::new()),
        };
        // SAFETY: calls in the order that the headers prescribe; the path outlives its call.
        unsafe {
            let code = (api.env_create)(&raw mut mapped.environment);
            mapped.check(code)?;
            let environment = mapped.environment;
            match &extra {
                MappedApi::Lmdb(lmdb) => {
                    mapped.check((lmdb.env_set_mapsize)(environment, to_usize(map_bytes)))?;
                    mapped.check((lmdb.env_set_maxreaders)(environment, READERS_MAX.into()))?;
                    mapped.check((lmdb.env_set_maxdbs)(environment, NAMED_TABLES.into()))?;
                }
                MappedApi::Mdbx(mdbx) => {
                    let most = isize::try_from(map_bytes).unwrap_or(isize::MAX);
                    let set = mdbx.env_set_geometry;
                    // -1 is the default. The file grows by 64 MiB and does not shrink while open.
                    mapped.check(set(environment, -1, -1, most, 64 << 20, 0, -1))?;
                    let set = mdbx.env_set_option;
                    let readers = u64::from(READERS_MAX);
                    mapped.check(set(environment, MDBX_OPTION_READERS_MAX, readers))?;
                    let tables = u64::from(NAMED_TABLES);
                    mapped.check(set(environment, MDBX_OPTION_TABLES_MAX, tables))?;
                }
            }
            mapped.check((api.env_open)(environment, path.as_ptr(), flags, MODE))?;
            let txn = mapped.begin(0)?;
            let code = (api.dbi_open)(txn, ptr::null(), CREATE, &raw mut mapped.table);
            mapped.check(code)?;
            mapped.commit(txn)?;
        }
        Ok(mapped)
    }

    fn check(&self, code: c_int) -> Outcome {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a terminated string for every code.
        let what = unsafe { library::text((self.api.strerror)(code)) };
        Err(failed(self.kind.library(), what))
    }

    fn begin(&self, flags: c_uint) -> Outcome<Object> {
        let mut txn = ptr::null_mut();
        let none = ptr::null_mut();
        // SAFETY: the environment is open; `txn` outlives the call.
        let code = unsafe {
            match &self.extra {
                MappedApi::Lmdb(lmdb) => {
                    (lmdb.txn_begin)(self.environment, none, flags, &raw mut txn)
                }
                MappedApi::Mdbx(mdbx) => {
                    (mdbx.txn_begin_ex)(self.environment, none, flags, &raw mut txn, none)
                }
            }
        };
        self.check(code)?;
        Ok(txn)
    }

    fn commit(&self, txn: Object) -> Outcome {
        // SAFETY: `txn` came from `begin` and is not used after this.
        self.check(unsafe {
            match &self.extra {
                MappedApi::Lmdb(lmdb) => (lmdb.txn_commit)(txn),
                MappedApi::Mdbx(mdbx) => (mdbx.txn_commit_ex)(txn, ptr::null_mut()),
            }
        })
    }

    /// Returns the raw slice of a key or a value.
    fn pair(&self, bytes: &[u8]) -> RawSlice {
        let start = bytes.as_ptr().expose_provenance();
        match self.kind.flavour {
            Flavour::Lmdb => [bytes.len(), start],
            Flavour::Mdbx => [start, bytes.len()],
        }
    }

    /// Returns the bytes of a raw slice of the library.
    ///
    /// # Safety
    /// The library has filled in the slice, and its transaction has not ended.
    unsafe fn bytes<'a>(&self, pair: RawSlice) -> &'a [u8] {
        let (start, len) = match self.kind.flavour {
            Flavour::Lmdb => (pair[1], pair[0]),
            Flavour::Mdbx => (pair[0], pair[1]),
        };
        if len == 0 {
            return &[];
        }
        // SAFETY: as the caller promises: the map holds these bytes while the transaction lasts.
        unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(start), len) }
    }

    /// Runs `work` in a read transaction of the current state.
    fn read<T>(&self, work: impl FnOnce(Object) -> Outcome<T>) -> Outcome<T> {
        let kept = self.lock().pop();
        let txn = match kept {
            None => self.begin(TXN_READ_ONLY)?,
            Some(ReadTransaction(txn)) => {
                // SAFETY: the transaction is read-only, reset, and this thread's alone.
                self.check(unsafe { (self.api.txn_renew)(txn) })?;
                txn
            }
        };
        let outcome = work(txn);
        // SAFETY: as above; what was read is not used any more.
        unsafe { (self.api.txn_reset)(txn) };
        self.lock().push(ReadTransaction(txn));
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ReadTransaction>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` in a write transaction and commits it.
    fn write(&self, work: impl FnOnce(Object) -> Outcome) -> Outcome {
        let txn = self.begin(0)?;
        match work(txn) {
            Ok(()) => self.commit(txn),
            Err(failure) => {
                // SAFETY: the transaction is this thread's and ends here.
                unsafe { (self.api.txn_abort)(txn) };
                Err(failure)
            }
        }
    }

    /// Copies the value of a key; returns false if the key is absent.
    ///
    /// # Safety
    /// The transaction is this thread's, and has not ended.
    unsafe fn get_in(
        &self,
        (txn, table): (Object, c_uint),
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Outcome<bool> {
        let key = self.pair(key);
        let mut found = [0; 2];
        // SAFETY: as the caller promises; the value is copied before the transaction ends.
        unsafe {
            let code = (self.api.get)(txn, table, &raw const key, &raw mut found);
            if code == NOT_FOUND {
                return Ok(false);
            }
            self.check(code)?;
            value.clear();
            value.extend_from_slice(self.bytes(found));
        }
        Ok(true)
    }

    fn put_in(&self, txn: Object, key: &[u8], value: &[u8]) -> Outcome {
        self.put_with((txn, self.table), (key, value), self.put_flags)
    }

    fn put_with(
        &self,
        (txn, table): (Object, c_uint),
        (key, value): (&[u8], &[u8]),
        flags: c_uint,
    ) -> Outcome {
        let (key, value) = (self.pair(key), self.pair(value));
        // SAFETY: the pairs point to live slices; the library copies both.
        self.check(unsafe { (self.api.put)(txn, table, &raw const key, &raw const value, flags) })
    }

    /// Visits up to `limit` entries of a table, from `start` on.
    fn visit(
        &self,
        table: c_uint,
        start: Option<&[u8]>,
        limit: usize,
        each: &mut EachEntry<'_>,
    ) -> Outcome<usize> {
        self.read(|txn| {
            let api = &self.api;
            let mut key = self.pair(start.unwrap_or(&[]));
            let mut value = [0; 2];
            let mut cursor = ptr::null_mut();
            let mut step = if start.is_some() { CURSOR_SET_RANGE } else { CURSOR_FIRST };
            let mut count = 0;
            // SAFETY: the cursor is closed before its transaction ends; keys and values are looked
            // at before it moves.
            unsafe {
                self.check((api.cursor_open)(txn, table, &raw mut cursor))?;
                let mut code = 0;
                while count < limit {
                    code = (api.cursor_get)(cursor, &raw mut key, &raw mut value, step);
                    if code != 0 {
                        break;
                    }
                    step = CURSOR_NEXT;
                    // The unnamed table has an entry for each named one.
                    if self.bytes(key) != SECOND.to_bytes() {
                        each(self.bytes(key), self.bytes(value));
                        count += 1;
                    }
                }
                (api.cursor_close)(cursor);
                if code != NOT_FOUND {
                    self.check(code)?;
                }
            }
            Ok(count)
        })
    }

    fn stat(&self) -> Outcome<Stat> {
        self.read(|txn| {
            let mut stat = Stat::default();
            // SAFETY: the struct has the size of either library's; mdbx gets it as an argument.
            self.check(unsafe {
                match &self.extra {
                    MappedApi::Lmdb(lmdb) => (lmdb.stat)(txn, self.table, &raw mut stat),
                    MappedApi::Mdbx(mdbx) => {
                        (mdbx.dbi_stat)(txn, self.table, &raw mut stat, size_of::<Stat>())
                    }
                }
            })?;
            Ok(stat)
        })
    }
}

impl Store for MappedStore {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        self.read(|txn| {
            // SAFETY: the value is copied before the transaction ends.
            unsafe { self.get_in((txn, self.table), key, value) }
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        self.write(|txn| self.put_in(txn, key, value))
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        let key = self.pair(key);
        self.write(|txn| {
            // SAFETY: the pair points to a live slice.
            let code = unsafe { (self.api.del)(txn, self.table, &raw const key, ptr::null()) };
            if code == NOT_FOUND { Ok(()) } else { self.check(code) }
        })
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        self.write(|txn| entries.iter().try_for_each(|(key, value)| self.put_in(txn, key, value)))
    }

    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        Some(self)
    }

    /// Loads in one transaction with `APPEND`.
    fn load_sorted(&self, next: &mut NextEntry<'_>) -> Outcome {
        self.write(|txn| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            while next(&mut key, &mut value) {
                self.put_with((txn, self.table), (&key, &value), APPEND)?;
            }
            Ok(())
        })
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        // The libraries do not allow a search for an empty key.
        self.visit(self.table, (!start.is_empty()).then_some(start), limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.visit(self.table, None, usize::MAX, each).map(to_u64)
    }

    fn sync(&self) -> Outcome {
        // SAFETY: the environment is open.
        self.check(unsafe {
            match &self.extra {
                MappedApi::Lmdb(lmdb) => (lmdb.env_sync)(self.environment, 1),
                MappedApi::Mdbx(mdbx) => match (mdbx.env_sync_ex)(self.environment, true, false) {
                    // MDBX_RESULT_TRUE: nothing to sync.
                    -1 => 0,
                    code => code,
                },
            }
        })
    }

    fn stats(&self) -> StoreStats {
        let Ok(stat) = self.stat() else { return StoreStats::default() };
        let page = u64::from(stat.page_bytes);
        StoreStats {
            keys: Some(stat.entries),
            memory_bytes: Some(page * (stat.branch_pages + stat.leaf_pages + stat.overflow_pages)),
            index_bytes: Some(page * stat.branch_pages),
            ..StoreStats::default()
        }
    }

    fn close(self: Box<Self>) -> Outcome {
        self.sync()?;
        for ReadTransaction(txn) in self.lock().drain(..) {
            // SAFETY: no thread uses the transaction.
            unsafe { (self.api.txn_abort)(txn) };
        }
        // SAFETY: all transactions have ended, and `self` is the only owner of the
        // environment.
        unsafe {
            match &self.extra {
                MappedApi::Lmdb(lmdb) => {
                    (lmdb.env_close)(self.environment);
                    Ok(())
                }
                MappedApi::Mdbx(mdbx) => self.check((mdbx.env_close_ex)(self.environment, false)),
            }
        }
    }
}
