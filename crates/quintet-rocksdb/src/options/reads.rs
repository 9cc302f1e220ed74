//! Options of reads.

use quintet_compat::{
    boundary::Bytes,
    export, keys,
    snapshot::{SnapshotObject, SnapshotReference},
};

use crate::kept::{OptionNumbers, kept};

/// `rocksdb_readoptions_t`.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    pub(crate) kept: OptionNumbers,
    /// The snapshot to read.
    pub(crate) snapshot: SnapshotReference,
    /// The first key of iterators, in its stored form.
    pub(crate) lower: Option<Vec<u8>>,
    /// The first key past the end of iterators, in its stored form.
    pub(crate) upper: Option<Vec<u8>>,
    /// The newest timestamp to read.
    pub(crate) timestamp: Option<Vec<u8>>,
    /// The oldest timestamp of the versions that an iterator shows. `None`: it shows one of a key.
    pub(crate) oldest: Option<Vec<u8>>,
}

impl ReadOptions {
    fn is_set(&self, name: &str) -> bool {
        self.kept.get::<u8>(name).is_some_and(|value| value != 0)
    }

    /// Returns whether each movement of an iterator reads the present state.
    pub fn is_tailing(&self) -> bool {
        self.is_set("rocksdb_readoptions_set_tailing")
    }

    /// Returns whether an iterator ends with the prefix of the key that it sought.
    pub fn is_prefix_same_as_start(&self) -> bool {
        self.is_set("rocksdb_readoptions_set_prefix_same_as_start")
    }
}

/// Returns a timestamp of the program. Reads with an unsuitable one fail.
fn timestamp(bytes: Bytes, size: usize) -> Option<Vec<u8>> {
    (!bytes.is_null()).then(|| bytes.items(size).map(<[u8]>::to_vec).unwrap_or_default())
}

fn bound(key: Bytes, size: usize) -> Option<Vec<u8>> {
    if key.is_null() {
        return None;
    }
    key.items(size).ok().map(|key| keys::stored(key).into_owned())
}

export! {
    /// Makes read options with the defaults of RocksDB.
    pub fn rocksdb_readoptions_create() -> Option<Box<ReadOptions>>, None, {
        Some(Box::default())
    }

    /// Frees read options.
    pub fn rocksdb_readoptions_destroy(options: Option<Box<ReadOptions>>) {
        drop(options);
    }

    /// Sets the snapshot to read. Null: the present state.
    pub fn rocksdb_readoptions_set_snapshot(
        options: Option<&mut ReadOptions>, snapshot: Option<&SnapshotObject>,
    ) {
        if let Some(options) = options {
            options.snapshot = SnapshotReference::to(snapshot);
        }
    }

    /// Sets the newest timestamp to read. Null: none.
    pub fn rocksdb_readoptions_set_timestamp(
        options: Option<&mut ReadOptions>, bytes: Bytes, size: usize,
    ) {
        if let Some(options) = options {
            options.timestamp = timestamp(bytes, size);
        }
    }

    /// Sets the oldest timestamp of the versions that iterators show. Null: they show one version
    /// of a key.
    pub fn rocksdb_readoptions_set_iter_start_ts(
        options: Option<&mut ReadOptions>, bytes: Bytes, size: usize,
    ) {
        if let Some(options) = options {
            options.oldest = timestamp(bytes, size);
        }
    }

    /// Sets the first key past the end of iterators. Null: none.
    pub fn rocksdb_readoptions_set_iterate_upper_bound(
        options: Option<&mut ReadOptions>, key: Bytes, size: usize,
    ) {
        if let Some(options) = options {
            options.upper = bound(key, size);
        }
    }

    /// Sets the first key of iterators. Null: none.
    pub fn rocksdb_readoptions_set_iterate_lower_bound(
        options: Option<&mut ReadOptions>, key: Bytes, size: usize,
    ) {
        if let Some(options) = options {
            options.lower = bound(key, size);
        }
    }
}

kept! { ReadOptions {
    rocksdb_readoptions_set_verify_checksums(u8)
        => rocksdb_readoptions_get_verify_checksums -> u8 = 1;
    rocksdb_readoptions_set_fill_cache(u8) => rocksdb_readoptions_get_fill_cache -> u8 = 1;
    rocksdb_readoptions_set_read_tier(i32) => rocksdb_readoptions_get_read_tier -> i32 = 0;
    rocksdb_readoptions_set_tailing(u8) => rocksdb_readoptions_get_tailing -> u8 = 0;
    rocksdb_readoptions_set_managed(u8);
    rocksdb_readoptions_set_readahead_size(usize)
        => rocksdb_readoptions_get_readahead_size -> usize = 0;
    rocksdb_readoptions_set_prefix_same_as_start(u8)
        => rocksdb_readoptions_get_prefix_same_as_start -> u8 = 0;
    rocksdb_readoptions_set_pin_data(u8) => rocksdb_readoptions_get_pin_data -> u8 = 0;
    rocksdb_readoptions_set_total_order_seek(u8)
        => rocksdb_readoptions_get_total_order_seek -> u8 = 0;
    rocksdb_readoptions_set_max_skippable_internal_keys(u64)
        => rocksdb_readoptions_get_max_skippable_internal_keys -> u64 = 0;
    rocksdb_readoptions_set_background_purge_on_iterator_cleanup(u8)
        => rocksdb_readoptions_get_background_purge_on_iterator_cleanup -> u8 = 0;
    rocksdb_readoptions_set_ignore_range_deletions(u8)
        => rocksdb_readoptions_get_ignore_range_deletions -> u8 = 0;
    rocksdb_readoptions_set_deadline(u64) => rocksdb_readoptions_get_deadline -> u64 = 0;
    rocksdb_readoptions_set_io_timeout(u64) => rocksdb_readoptions_get_io_timeout -> u64 = 0;
} }
