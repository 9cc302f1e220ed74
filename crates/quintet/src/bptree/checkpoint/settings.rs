//! The sizes of a tree's pages and of its cache, from the options of a table.

use crate::{
    Error, Result,
    bptree::{
        node::INNER,
        page_cache::{CacheOptions, Replacement},
    },
    contract::{Context, TableOptions},
    util::codec::{crc32c, crc32c_append, to_u64, to_usize},
};

const PAGE_BYTES_DEFAULT: u64 = 16 << 10;
pub(super) const PAGE_BYTES_MAX: usize = 64 << 10;
const GRANULARITY_DEFAULT: u64 = 1024;
/// Minimum number of frames: a descent, a split at each level and the maps need this many at once,
/// for several threads.
pub(super) const FRAMES_MIN: u64 = 48;

/// The sizes of a tree's pages and of its cache.
#[derive(Clone, Debug)]
pub(crate) struct TreeSettings {
    pub(super) granularity: u64,
    pub(super) cache: CacheOptions,
    pub(super) value_bytes: usize,
}

impl TreeSettings {
    /// Reads the options `page_bytes`, `extend_granularity`, `replacement` and one that limits the
    /// cache (0: `most` bytes). Fails with `InvalidOption`.
    pub(crate) fn new(
        options: &TableOptions,
        context: &Context,
        (cache_option, most): (&str, u64),
    ) -> Result<Self> {
        let page_bytes =
            options.number("page_bytes", PAGE_BYTES_DEFAULT, 4096..=to_u64(PAGE_BYTES_MAX))?;
        let granularity = options.number("extend_granularity", GRANULARITY_DEFAULT, 64..=16_384)?;
        let invalid = |name: &str, what: &str| Error::InvalidOption {
            name: name.to_owned(),
            what: what.to_owned(),
        };
        if !page_bytes.is_power_of_two() {
            return Err(invalid("page_bytes", "it is a power of two"));
        }
        if granularity % 64 != 0 {
            return Err(invalid("extend_granularity", "it is a multiple of 64"));
        }
        let replacement = match options.settings().find(|(name, _)| *name == "replacement") {
            None | Some((_, "clock")) => Replacement::Clock,
            Some((_, "random")) => Replacement::Random,
            Some(_) => return Err(invalid("replacement", "it is clock or random")),
        };
        let wanted = options.number(cache_option, 0, 0..=1 << 46)?;
        let most = if wanted == 0 { most } else { wanted };
        let frames_max = (most / page_bytes).max(FRAMES_MIN);
        let salt = salt_of(&context.database_id, context.table_id);
        let cache = CacheOptions {
            page_bytes: to_usize(page_bytes),
            frames_min: FRAMES_MIN,
            frames_max,
            may_reclaim_others: false,
            replacement,
            evict_last_kind: INNER,
            salt,
        };
        Ok(Self { granularity, cache, value_bytes: 0 })
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
