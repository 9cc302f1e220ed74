//! Comparators, filter policies, caches, environments and snapshots.

use std::{
    env,
    ffi::c_int,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::PathBuf,
};

use quintet_compat::{
    boundary::{Allocated, Context, Out, ProgramMemory, View},
    comparator::{Comparator, CompareFunction, Destructor, NameFunction},
    export,
};

/// Makes a filter of keys. It is never called.
pub type CreateFilterFunction = extern "C-unwind" fn(
    state: Context,
    keys: View<View>,
    sizes: View<usize>,
    count: c_int,
    filter_size: Out<'_, usize>,
) -> ProgramMemory;
/// Asks a filter for a key. It is never called.
pub type MatchFunction = extern "C-unwind" fn(
    state: Context,
    key: View,
    size: usize,
    filter: View,
    filter_size: usize,
) -> u8;

/// `leveldb_cache_t`: the capacity of a cache. The database has its own.
#[derive(Debug)]
pub struct Cache(usize);

impl Cache {
    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.0
    }
}

/// `leveldb_env_t`. There is one environment.
#[derive(Debug)]
pub struct Env(());

/// `leveldb_filterpolicy_t`. It is kept and not used. Dropping it releases the state of its
/// callbacks.
#[derive(Debug)]
pub struct FilterPolicy(Option<(Destructor, Context)>);

impl Drop for FilterPolicy {
    fn drop(&mut self) {
        if let Some((destructor, state)) = self.0 {
            destructor(state);
        }
    }
}

/// The directory that LevelDB's tests use: `TEST_TMPDIR`, or one in `/tmp` for each user.
fn test_directory() -> PathBuf {
    if let Some(directory) = env::var_os("TEST_TMPDIR").filter(|value| !value.is_empty()) {
        return directory.into();
    }
    let user = fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid());
    let directory = env::temp_dir().join(format!("leveldbtest-{user}"));
    // It may exist.
    let _ = fs::create_dir(&directory);
    directory
}

export! {
    /// Makes a comparator of callbacks.
    pub fn leveldb_comparator_create(
        state: Context, destructor: Option<Destructor>, compare: Option<CompareFunction>,
        name: Option<NameFunction>,
    ) -> Option<Box<Comparator>>, None, {
        Some(Box::new(Comparator::new(state, destructor, compare, name)))
    }

    /// Frees a comparator: calls its destructor.
    pub fn leveldb_comparator_destroy(comparator: Option<Box<Comparator>>) {
        drop(comparator);
    }

    /// Makes a filter policy of callbacks, of which only the destructor is called.
    pub fn leveldb_filterpolicy_create(
        state: Context, destructor: Option<Destructor>, _create: Option<CreateFilterFunction>,
        _may_match: Option<MatchFunction>, _name: Option<NameFunction>,
    ) -> Option<Box<FilterPolicy>>, None, {
        Some(Box::new(FilterPolicy(destructor.map(|destructor| (destructor, state)))))
    }

    /// Frees a filter policy: calls its destructor.
    pub fn leveldb_filterpolicy_destroy(policy: Option<Box<FilterPolicy>>) {
        drop(policy);
    }

    /// Makes a filter policy that has no effect.
    pub fn leveldb_filterpolicy_create_bloom(
        _bits_per_key: c_int,
    ) -> Option<Box<FilterPolicy>>, None, {
        Some(Box::new(FilterPolicy(None)))
    }

    /// Makes the object of a cache.
    pub fn leveldb_cache_create_lru(capacity: usize) -> Option<Box<Cache>>, None, {
        Some(Box::new(Cache(capacity)))
    }

    /// Frees the object of a cache.
    pub fn leveldb_cache_destroy(cache: Option<Box<Cache>>) {
        drop(cache);
    }

    /// Makes the object of the environment.
    pub fn leveldb_create_default_env() -> Option<Box<Env>>, None, {
        Some(Box::new(Env(())))
    }

    /// Frees the object of the environment.
    pub fn leveldb_env_destroy(env: Option<Box<Env>>) {
        drop(env);
    }

    /// Returns a directory for tests, to be released by `leveldb_free`.
    pub fn leveldb_env_get_test_directory(_env: Option<&Env>) -> Allocated, Allocated::NULL, {
        Allocated::copy(test_directory().as_os_str().as_bytes())
    }

    /// Releases memory that a function returned.
    pub fn leveldb_free(memory: ProgramMemory) {
        memory.free();
    }

    /// Returns 1: the interface is that of LevelDB 1.23.
    pub fn leveldb_major_version() -> c_int, 1, {
        1
    }

    /// Returns 23: the interface is that of LevelDB 1.23.
    pub fn leveldb_minor_version() -> c_int, 23, {
        23
    }
}
