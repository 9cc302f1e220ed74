//! The options of a table.

use crate::{
    Result,
    contract::TableOptions,
    lsm::sst::{BLOCK_BYTES_MAX, SstShape, block::Packing},
    util::codec::to_usize,
};

const OPTIONS: [&str; 17] = [
    "memtable_bytes",
    "memtables",
    "run_bytes",
    "block_bytes",
    "compression",
    "cache_bytes",
    "index_cache_bytes",
    "page_bytes",
    "live_ratio",
    "leaf_threshold",
    "leaf_runs",
    "range_threshold",
    "range_keys",
    "compaction_runs",
    "merge_runs",
    "merge_rate",
    "key_code",
];
/// Values of the option `key_code`, the default first.
const KEY_CODES: [&str; 2] = ["auto", "none"];

/// The options, parsed.
///
/// | option | range | default | meaning |
/// |---|---|---|---|
/// | `memtable_bytes` | 64 KiB to 4 GiB | 256 MiB, or 1/16 of the memory budget if less | flushed at once; in memory as lists of at most 16 MiB; all memtables together take at most half of the budget |
/// | `memtables` | 2 to 16 | 4 | maximum number of memtables of that size |
/// | `run_bytes` | 64 KiB to 4 GiB | 32 MiB, or 1/8 of the budget if less | size of a run |
/// | `block_bytes` | 512 to 1 MiB | 4096 | size of a block |
/// | `compression` | `none`, `lz4`, `zstd` | `none` | of blocks |
/// | `cache_bytes` | 0 to 2^46 | 7/8 of the budget less the index's share, at least 3/8 | block cache |
/// | `index_cache_bytes` | 0 and up | 0: half of the block cache | page cache of the index |
/// | `page_bytes` | power of two, 4096 to 65,536 | 16,384 | page of the index |
/// | `live_ratio` | 0 to 100 per cent | 70 | see [`compaction_picker`] |
/// | `leaf_threshold` | 0 to 2^20 | 10 | see [`compaction_picker`] |
/// | `leaf_runs` | 1 to 64 | 2 | a window of the index has the keys of this number of runs |
/// | `range_threshold` | 0 to 2^20 | 8 | see [`compaction_picker`] |
/// | `range_keys` | 1 to 2^20 | 30 | see [`compaction_picker`] |
/// | `compaction_runs` | 1 to 1024 | 4 | number of candidates that starts a merge |
/// | `merge_runs` | 2 to 256 | 64 | maximum number of runs in a merge |
/// | `merge_rate` | 0 to 2^46 bytes a second | 0: no limit | rate of a merge |
/// | `key_code` | `auto`, `none` | `auto` | code of the index's keys; fixed by the first flush |
#[derive(Clone, Copy, Debug)]
pub(super) struct SlmSettings {
    pub(super) memtable_bytes: u64,
    pub(super) memtables: u64,
    pub(super) run_bytes: u64,
    pub(super) shape: SstShape,
    /// Maximum size of the block cache, and the minimum that the index leaves to it.
    pub(super) cache_bytes: u64,
    pub(super) cache_bytes_min: u64,
    pub(super) live_ratio: u64,
    pub(super) leaf_threshold: usize,
    pub(super) leaf_runs: u64,
    pub(super) range_threshold: usize,
    pub(super) range_keys: usize,
    pub(super) compaction_runs: usize,
    pub(super) merge_runs: usize,
    pub(super) merge_rate: u64,
    /// Whether the index of a new table may code its keys.
    pub(super) has_key_code: bool,
}

impl SlmSettings {
    /// Reads the options of a table. Fails with `InvalidOption`.
    pub(super) fn parse(options: &TableOptions, budget: u64) -> Result<Self> {
        options.check_names(&OPTIONS)?;
        let bytes = |name, default, most| options.number(name, default, 64 << 10..=most);
        let count =
            |name, default, least| options.number(name, default, least..=1 << 20).map(to_usize);
        let memtables = options.number("memtables", 4, 2..=16)?;
        let memtable_bytes = bytes("memtable_bytes", 256 << 20, 4 << 30)?;
        // A table that asks for more gets half of the budget; others leave room for others.
        let asked = options.settings().any(|(name, _)| name == "memtable_bytes");
        let most = if asked { budget / 2 / memtables } else { budget / 16 };
        let cache_bytes = options.number("cache_bytes", budget / 8 * 7, 0..=1 << 46)?;
        let is_sized = options.settings().any(|(name, _)| name == "cache_bytes");
        let run_bytes = (32 << 20).min((budget / 8).max(64 << 10));
        Ok(Self {
            memtable_bytes: memtable_bytes.min(most.max(64 << 10)),
            memtables,
            run_bytes: bytes("run_bytes", run_bytes, 4 << 30)?,
            shape: SstShape {
                block_bytes: to_usize(options.number(
                    "block_bytes",
                    4096,
                    512..=BLOCK_BYTES_MAX,
                )?),
                packing: Packing::named(options.word("compression", &Packing::NAMES)?),
                write_bytes: SstShape::write_bytes(budget),
                keys: false,
            },
            cache_bytes,
            cache_bytes_min: if is_sized { cache_bytes } else { budget / 8 * 3 },
            live_ratio: options.number("live_ratio", 70, 0..=100)?,
            leaf_threshold: count("leaf_threshold", 10, 0)?,
            leaf_runs: options.number("leaf_runs", 2, 1..=64)?,
            range_threshold: count("range_threshold", 8, 0)?,
            range_keys: count("range_keys", 30, 1)?,
            compaction_runs: to_usize(options.number("compaction_runs", 4, 1..=1024)?),
            merge_runs: to_usize(options.number("merge_runs", 64, 2..=256)?),
            merge_rate: options.number("merge_rate", 0, 0..=1 << 46)?,
            has_key_code: options.word("key_code", &KEY_CODES)? == KEY_CODES[0],
        })
    }
}
