//! Options of writes, flushes and compactions.

use quintet::Durability;
use quintet_compat::{boundary::Bytes, export};

use crate::kept::{OptionNumbers, kept};

impl WriteOptions {
    /// Returns the durability of a write.
    pub fn durability(&self) -> Durability {
        match self.kept.get::<u8>("rocksdb_writeoptions_set_sync") {
            Some(0) | None => Durability::Buffered,
            Some(_) => Durability::Sync,
        }
    }
}

/// `rocksdb_writeoptions_t`.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes write options with the defaults of RocksDB.
    pub fn rocksdb_writeoptions_create() -> Option<Box<WriteOptions>>, None, {
        Some(Box::default())
    }

    /// Frees write options.
    pub fn rocksdb_writeoptions_destroy(options: Option<Box<WriteOptions>>) {
        drop(options);
    }
}

kept! { WriteOptions {
    rocksdb_writeoptions_set_sync(u8) => rocksdb_writeoptions_get_sync -> u8 = 0;
    rocksdb_writeoptions_disable_WAL(i32) => rocksdb_writeoptions_get_disable_WAL -> u8 = 0;
    rocksdb_writeoptions_set_ignore_missing_column_families(u8)
        => rocksdb_writeoptions_get_ignore_missing_column_families -> u8 = 0;
    rocksdb_writeoptions_set_no_slowdown(u8) => rocksdb_writeoptions_get_no_slowdown -> u8 = 0;
    rocksdb_writeoptions_set_low_pri(u8) => rocksdb_writeoptions_get_low_pri -> u8 = 0;
    rocksdb_writeoptions_set_memtable_insert_hint_per_batch(u8)
        => rocksdb_writeoptions_get_memtable_insert_hint_per_batch -> u8 = 0;
} }

/// `rocksdb_flushoptions_t`.
#[derive(Clone, Debug, Default)]
pub struct FlushOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes flush options with the defaults of RocksDB.
    pub fn rocksdb_flushoptions_create() -> Option<Box<FlushOptions>>, None, {
        Some(Box::default())
    }

    /// Frees flush options.
    pub fn rocksdb_flushoptions_destroy(options: Option<Box<FlushOptions>>) {
        drop(options);
    }
}

kept! { FlushOptions {
    rocksdb_flushoptions_set_wait(u8) => rocksdb_flushoptions_get_wait -> u8 = 1;
} }

/// `rocksdb_compactoptions_t`.
#[derive(Clone, Debug, Default)]
pub struct CompactOptions {
    pub(crate) kept: OptionNumbers,
    /// The timestamp below which old versions may be removed.
    pub(crate) history_low: Option<Vec<u8>>,
}

export! {
    /// Makes compaction options with the defaults of RocksDB.
    pub fn rocksdb_compactoptions_create() -> Option<Box<CompactOptions>>, None, {
        Some(Box::default())
    }

    /// Frees compaction options.
    pub fn rocksdb_compactoptions_destroy(options: Option<Box<CompactOptions>>) {
        drop(options);
    }

    /// Sets the timestamp below which old versions may be removed. Null: none.
    pub fn rocksdb_compactoptions_set_full_history_ts_low(
        options: Option<&mut CompactOptions>, bytes: Bytes, size: usize,
    ) {
        if let Some(options) = options {
            let low = (!bytes.is_null()).then(|| bytes.items(size).map(<[u8]>::to_vec));
            options.history_low = low.and_then(Result::ok);
        }
    }
}

kept! { CompactOptions {
    rocksdb_compactoptions_set_exclusive_manual_compaction(u8)
        => rocksdb_compactoptions_get_exclusive_manual_compaction -> u8 = 0;
    rocksdb_compactoptions_set_bottommost_level_compaction(u8)
        => rocksdb_compactoptions_get_bottommost_level_compaction -> u8 = 1;
    rocksdb_compactoptions_set_change_level(u8)
        => rocksdb_compactoptions_get_change_level -> u8 = 0;
    rocksdb_compactoptions_set_target_level(i32)
        => rocksdb_compactoptions_get_target_level -> i32 = -1;
} }
