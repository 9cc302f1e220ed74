//! The sizes of a tree's pages and of its cache, from the options of a table.

use crate::{
    bptree::{
        node::INNER,
        page_cache::{CacheOptions, Replacement},
    },
    contract::Context,
    util::codec::{crc32c, crc32c_append, to_usize},
};

pub(super) const PAGE_BYTES_MAX: usize = 64 << 10;
/// Number of pages by which a file grows, unless an option says otherwise.
pub(crate) const GRANULARITY_PAGES: u64 = 1024;
/// Minimum number of frames: a descent, a split at each level and the maps need this many at once,
/// for several threads.
pub(super) const FRAMES_MIN: u64 = 48;

/// The options of a tree's pages and of their cache, as a table sets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageOptions {
    /// Size of a page: a power of two, 4096 to 65,536.
    pub(crate) page_bytes: u64,
    /// Number of pages by which the file grows: a multiple of 64.
    pub(crate) granularity: u64,
    /// Limit of the page cache in bytes.
    pub(crate) cache_bytes: u64,
    /// How the cache chooses the page to evict.
    pub(crate) replacement: Replacement,
}

/// The sizes of a tree's pages and of its cache.
#[derive(Clone, Debug)]
pub(crate) struct TreeSettings {
    pub(super) granularity: u64,
    pub(super) cache: CacheOptions,
    pub(super) value_bytes: usize,
}

impl TreeSettings {
    /// Returns the settings of a table with these options.
    pub(crate) fn new(options: &PageOptions, context: &Context) -> Self {
        let cache = CacheOptions {
            page_bytes: to_usize(options.page_bytes),
            frames_min: FRAMES_MIN,
            frames_max: (options.cache_bytes / options.page_bytes).max(FRAMES_MIN),
            may_reclaim_others: false,
            table_id: context.table_id,
            replacement: options.replacement,
            evict_last_kind: INNER,
            salt: salt_of(&context.database_id, context.table_id),
        };
        Self { granularity: options.granularity, cache, value_bytes: 0 }
    }

    /// With a page cache that may reclaim memory from block caches.
    pub(crate) fn may_reclaim_blocks(mut self) -> Self {
        self.cache.may_reclaim_others = true;
        self
    }

    /// With a tree of many small entries whose values mostly have this many bytes.
    pub(crate) const fn with_value_bytes(mut self, value_bytes: usize) -> Self {
        self.value_bytes = value_bytes;
        self
    }
}

/// Returns the salt of the checksums of a table's pages.
pub(crate) fn salt_of(database_id: &[u8; 16], table_id: u64) -> u32 {
    crc32c_append(crc32c(database_id), &table_id.to_le_bytes())
}
