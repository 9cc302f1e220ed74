//! Memory that databases use.

use std::{ptr, sync::Arc};

use quintet_compat::{boundary::required, export, export_fallible, status::Status};

use crate::{
    core::{Core, Db},
    objects::{Cache, OpenDatabase},
};

/// `rocksdb_memory_consumers_t`.
#[derive(Debug, Default)]
pub struct MemoryConsumers {
    databases: Vec<Arc<Core>>,
    caches: Vec<Cache>,
}

/// `rocksdb_memory_usage_t`.
#[derive(Debug, Default)]
pub struct MemoryUsage {
    memtables: u64,
    indexes: u64,
    caches: u64,
}

impl MemoryConsumers {
    /// Returns the bytes of blocks and pages of the databases, each counted once.
    fn cache_bytes(&self) -> u64 {
        let listed = self.databases.iter().map(|core| core.clone() as Arc<dyn OpenDatabase>);
        let mut counted: Vec<Arc<dyn OpenDatabase>> = Vec::new();
        for database in listed.chain(self.caches.iter().flat_map(Cache::users)) {
            let address = Arc::as_ptr(&database);
            if !counted.iter().any(|other| ptr::addr_eq(Arc::as_ptr(other), address)) {
                counted.push(database);
            }
        }
        counted.iter().map(|database| database.cache_bytes()).fold(0, u64::saturating_add)
    }
}

impl MemoryUsage {
    fn add(&mut self, core: &Core) -> Result<(), Status> {
        for family in core.families().iter() {
            let memory = family.memory();
            self.memtables += memory.memtables;
            self.indexes += memory.indexes;
        }
        Ok(core.store.database.snapshot().map(drop)?)
    }
}

export! {
    /// Makes an empty list of what uses memory.
    pub fn rocksdb_memory_consumers_create() -> Option<Box<MemoryConsumers>>, None, {
        Some(Box::default())
    }

    /// Adds a database.
    pub fn rocksdb_memory_consumers_add_db(
        consumers: Option<&mut MemoryConsumers>, db: Option<&Db>,
    ) {
        if let (Some(consumers), Some(db)) = (consumers, db) {
            consumers.databases.push(db.core.clone());
        }
    }

    /// Adds a cache: the blocks and pages of the databases that were opened with it.
    pub fn rocksdb_memory_consumers_add_cache(
        consumers: Option<&mut MemoryConsumers>, cache: Option<&Cache>,
    ) {
        if let (Some(consumers), Some(cache)) = (consumers, cache) {
            consumers.caches.push(cache.clone());
        }
    }

    /// Frees a list of what uses memory.
    pub fn rocksdb_memory_consumers_destroy(consumers: Option<Box<MemoryConsumers>>) {
        drop(consumers);
    }

    /// Frees what `rocksdb_approximate_memory_usage_create` returned.
    pub fn rocksdb_approximate_memory_usage_destroy(usage: Option<Box<MemoryUsage>>) {
        drop(usage);
    }

    /// Returns the bytes of memtables.
    pub fn rocksdb_approximate_memory_usage_get_mem_table_total(
        usage: Option<&MemoryUsage>,
    ) -> u64, 0, {
        usage.map_or(0, |usage| usage.memtables)
    }

    /// Returns the bytes of memtables that are not in files.
    pub fn rocksdb_approximate_memory_usage_get_mem_table_unflushed(
        usage: Option<&MemoryUsage>,
    ) -> u64, 0, {
        usage.map_or(0, |usage| usage.memtables)
    }

    /// Returns the bytes of indexes.
    pub fn rocksdb_approximate_memory_usage_get_mem_table_readers_total(
        usage: Option<&MemoryUsage>,
    ) -> u64, 0, {
        usage.map_or(0, |usage| usage.indexes)
    }

    /// Returns the bytes of cached blocks and pages.
    pub fn rocksdb_approximate_memory_usage_get_cache_total(
        usage: Option<&MemoryUsage>,
    ) -> u64, 0, {
        usage.map_or(0, |usage| usage.caches)
    }
}

export_fallible! {
    /// Counts the memory that databases use now. Fails if one was closed.
    pub fn rocksdb_approximate_memory_usage_create(
        consumers: Option<&MemoryConsumers>,
    ) -> Option<Box<MemoryUsage>>, None, {
        let mut usage = MemoryUsage::default();
        let consumers = required(consumers, "the list of consumers")?;
        for core in &consumers.databases {
            usage.add(core)?;
        }
        usage.caches = consumers.cache_bytes();
        Ok(Some(Box::new(usage)))
    }
}
