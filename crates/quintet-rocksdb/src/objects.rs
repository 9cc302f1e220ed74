//! Caches, environments, filter policies, rate limiters and memory.

use std::{
    ffi::c_int,
    fmt, fs,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use quintet::DatabaseStats;
use quintet_compat::{
    boundary::{ProgramMemory, Text},
    export, export_fallible,
    files::failed,
    status::Status,
};

use crate::{
    environment::Environment,
    kept::{OptionNumbers, kept},
};

/// What the objects that databases share ask an open database.
pub trait OpenDatabase: fmt::Debug + Send + Sync {
    /// Returns the memory of blocks and pages of files in bytes.
    fn cache_bytes(&self) -> u64;
    /// Returns the counters.
    fn stats(&self) -> DatabaseStats;
}

/// `rocksdb_cache_t`: the capacity of a cache, and the databases that were opened with it. Each has
/// a separate cache.
#[derive(Clone, Debug, Default)]
pub struct Cache(Arc<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    capacity: AtomicUsize,
    users: Mutex<Vec<Weak<dyn OpenDatabase>>>,
}

impl Cache {
    fn new(capacity: usize) -> Self {
        Self(Arc::new(CacheState { capacity: AtomicUsize::new(capacity), ..CacheState::default() }))
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.0.capacity.load(Ordering::Relaxed)
    }

    /// Adds a database.
    pub fn add_user(&self, user: Weak<dyn OpenDatabase>) {
        let mut users = self.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|other| other.strong_count() > 0);
        users.push(user);
    }

    /// Returns the databases that are open.
    pub fn users(&self) -> Vec<Arc<dyn OpenDatabase>> {
        let users = self.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the bytes of the caches of the databases.
    fn usage(&self) -> u64 {
        self.users().iter().map(|user| user.cache_bytes()).fold(0, u64::saturating_add)
    }
}

/// `rocksdb_lru_cache_options_t`.
#[derive(Debug, Default)]
pub struct CacheOptions {
    pub(crate) kept: OptionNumbers,
}

/// `rocksdb_env_t`. Databases of the environment keep it after the object is freed.
#[derive(Debug, Default)]
pub struct Env {
    /// Where files are.
    pub environment: Environment,
    pub(crate) kept: OptionNumbers,
}

impl Env {
    /// Returns where files are. Null: on disk.
    pub fn environment(env: Option<&Self>) -> Environment {
        env.map(|env| env.environment.clone()).unwrap_or_default()
    }
}

/// `rocksdb_envoptions_t`.
#[derive(Debug, Default)]
pub struct EnvOptions(());

/// `rocksdb_filterpolicy_t`. It is kept and not used.
#[derive(Debug)]
pub struct FilterPolicy(());

/// `rocksdb_dbpath_t`. It is kept and not used.
#[derive(Debug)]
pub struct DbPath(());

/// `rocksdb_ratelimiter_t`. It is kept and not used.
#[derive(Debug)]
pub struct RateLimiter(());

/// `rocksdb_memory_allocator_t`. No function makes one.
#[derive(Debug)]
pub struct MemoryAllocator(());

export! {
    /// Makes the object of a cache.
    pub fn rocksdb_cache_create_lru(capacity: usize) -> Option<Box<Cache>>, None, {
        Some(Box::new(Cache::new(capacity)))
    }

    /// Makes the object of a cache.
    pub fn rocksdb_cache_create_lru_with_strict_capacity_limit(
        capacity: usize,
    ) -> Option<Box<Cache>>, None, {
        Some(Box::new(Cache::new(capacity)))
    }

    /// Makes the object of a cache, with the capacity of the options.
    pub fn rocksdb_cache_create_lru_opts(
        options: Option<&CacheOptions>,
    ) -> Option<Box<Cache>>, None, {
        let kept = options.and_then(|o| o.kept.get("rocksdb_lru_cache_options_set_capacity"));
        Some(Box::new(Cache::new(kept.unwrap_or_default())))
    }

    /// Does nothing: no caches take memory from an allocator of the program.
    pub fn rocksdb_lru_cache_options_set_memory_allocator(
        _options: Option<&CacheOptions>, _allocator: Option<&MemoryAllocator>,
    ) {
    }

    /// Frees the object of an allocator.
    pub fn rocksdb_memory_allocator_destroy(allocator: Option<Box<MemoryAllocator>>) {
        drop(allocator);
    }

    /// Frees the object of a cache.
    pub fn rocksdb_cache_destroy(cache: Option<Box<Cache>>) {
        drop(cache);
    }

    /// Does nothing: the object of a cache has no data.
    pub fn rocksdb_cache_disown_data(_cache: Option<&Cache>) {}

    /// Sets the capacity for databases that are opened later.
    pub fn rocksdb_cache_set_capacity(cache: Option<&Cache>, capacity: usize) {
        if let Some(cache) = cache {
            cache.0.capacity.store(capacity, Ordering::Relaxed);
        }
    }

    /// Returns the capacity.
    pub fn rocksdb_cache_get_capacity(cache: Option<&Cache>) -> usize, 0, {
        cache.map_or(0, Cache::capacity)
    }

    /// Returns the bytes that the databases use which were opened with the cache.
    pub fn rocksdb_cache_get_usage(cache: Option<&Cache>) -> usize, 0, {
        cache.map_or(0, |cache| usize::try_from(cache.usage()).unwrap_or(usize::MAX))
    }

    /// Returns 0: values are copied, or hold memory beside the cache.
    pub fn rocksdb_cache_get_pinned_usage(_cache: Option<&Cache>) -> usize, 0, {
        0
    }

    /// Makes the object of a path, which has no effect.
    pub fn rocksdb_dbpath_create(_path: Text, _size: u64) -> Option<Box<DbPath>>, None, {
        Some(Box::new(DbPath(())))
    }

    /// Frees the object of a path.
    pub fn rocksdb_dbpath_destroy(path: Option<Box<DbPath>>) {
        drop(path);
    }

    /// Makes cache options.
    pub fn rocksdb_lru_cache_options_create() -> Option<Box<CacheOptions>>, None, {
        Some(Box::default())
    }

    /// Frees cache options.
    pub fn rocksdb_lru_cache_options_destroy(options: Option<Box<CacheOptions>>) {
        drop(options);
    }

    /// Makes the object of the environment.
    pub fn rocksdb_create_default_env() -> Option<Box<Env>>, None, {
        Some(Box::default())
    }

    /// Makes the object of an environment in memory. If there is no memory file system, each use
    /// of the environment fails.
    pub fn rocksdb_create_mem_env() -> Option<Box<Env>>, None, {
        Some(Box::new(Env { environment: Environment::in_memory(), ..Env::default() }))
    }

    /// Frees the object of an environment. The files of one in memory are removed when no
    /// database and no other object uses it.
    pub fn rocksdb_env_destroy(env: Option<Box<Env>>) {
        drop(env);
    }

    /// Does nothing: closing a database ends its threads.
    pub fn rocksdb_env_join_all_threads(_env: Option<&Env>) {}

    /// Does nothing: background threads lower their own priority.
    pub fn rocksdb_env_lower_thread_pool_io_priority(_env: Option<&Env>) {}

    /// Does nothing: background threads lower their own priority.
    pub fn rocksdb_env_lower_high_priority_thread_pool_io_priority(_env: Option<&Env>) {}

    /// Does nothing: background threads lower their own priority.
    pub fn rocksdb_env_lower_thread_pool_cpu_priority(_env: Option<&Env>) {}

    /// Does nothing: background threads lower their own priority.
    pub fn rocksdb_env_lower_high_priority_thread_pool_cpu_priority(_env: Option<&Env>) {}

    /// Makes options of an environment.
    pub fn rocksdb_envoptions_create() -> Option<Box<EnvOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of an environment.
    pub fn rocksdb_envoptions_destroy(options: Option<Box<EnvOptions>>) {
        drop(options);
    }

    /// Makes a filter policy that has no effect.
    pub fn rocksdb_filterpolicy_create_bloom(_bits: f64) -> Option<Box<FilterPolicy>>, None, {
        Some(Box::new(FilterPolicy(())))
    }

    /// Makes a filter policy that has no effect.
    pub fn rocksdb_filterpolicy_create_bloom_full(_bits: f64) -> Option<Box<FilterPolicy>>, None, {
        Some(Box::new(FilterPolicy(())))
    }

    /// Makes a filter policy that has no effect.
    pub fn rocksdb_filterpolicy_create_ribbon(_bits: f64) -> Option<Box<FilterPolicy>>, None, {
        Some(Box::new(FilterPolicy(())))
    }

    /// Makes a filter policy that has no effect.
    pub fn rocksdb_filterpolicy_create_ribbon_hybrid(
        _bits: f64, _level: c_int,
    ) -> Option<Box<FilterPolicy>>, None, {
        Some(Box::new(FilterPolicy(())))
    }

    /// Frees a filter policy that belongs to no options.
    pub fn rocksdb_filterpolicy_destroy(policy: Option<Box<FilterPolicy>>) {
        drop(policy);
    }

    /// Makes a rate limiter that has no effect.
    pub fn rocksdb_ratelimiter_create(
        _rate: i64, _period: i64, _fairness: i32,
    ) -> Option<Box<RateLimiter>>, None, {
        Some(Box::new(RateLimiter(())))
    }

    /// Frees a rate limiter.
    pub fn rocksdb_ratelimiter_destroy(limiter: Option<Box<RateLimiter>>) {
        drop(limiter);
    }

    /// Releases memory that a function returned.
    pub fn rocksdb_free(memory: ProgramMemory) {
        memory.free();
    }
}

export_fallible! {
    /// Fails: caches take their memory from the budget of their database.
    pub fn rocksdb_jemalloc_nodump_allocator_create() -> Option<Box<MemoryAllocator>>, None, {
        Err(Status::unsupported("caches take no memory from an allocator of the program"))
    }

    /// Makes a directory unless it exists.
    pub fn rocksdb_create_dir_if_missing(env: Option<&Env>, path: Text) {
        let path = Env::environment(env).path(path)?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(failed(&path, &error))
            }
            _ => Ok(()),
        }
    }
}

kept! { CacheOptions {
    rocksdb_lru_cache_options_set_capacity(usize);
    rocksdb_lru_cache_options_set_num_shard_bits(i32);
} }

kept! { Env {
    rocksdb_env_set_background_threads(i32) => rocksdb_env_get_background_threads -> i32 = 0;
    rocksdb_env_set_high_priority_background_threads(i32)
        => rocksdb_env_get_high_priority_background_threads -> i32 = 0;
    rocksdb_env_set_low_priority_background_threads(i32)
        => rocksdb_env_get_low_priority_background_threads -> i32 = 0;
    rocksdb_env_set_bottom_priority_background_threads(i32)
        => rocksdb_env_get_bottom_priority_background_threads -> i32 = 0;
} }
