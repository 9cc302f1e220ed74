//! The options of a table.

use std::time::Duration;

use crate::{
    Result,
    bptree::{
        checkpoint::{GRANULARITY_PAGES, PageOptions},
        page_cache::Replacement,
    },
    contract::{
        Compression, TableOptions,
        options::{
            OptionReader,
            declaration::{engine_options, option_words},
        },
    },
    io::persistence::Slowness,
    lsm::sst::{BLOCK_BYTES_MAX, SstShape, block::Packing},
    util::codec::to_usize,
};

const _: () = assert!(BLOCK_BYTES_MAX == 1_048_576, "the maximum of block_bytes");

option_words! {
    /// Whether the index of an slm table may store keys in an order-preserving code.
    KeyCode {
        /// The first flush decides, from its keys.
        Auto = "auto",
        /// No code.
        None = "none",
    }
}

option_words! {
    /// Where an slm table keeps its memtables and its index unless `memtable` and `index` say it.
    Medium {
        /// Memtables in memory, the index in pages of a file.
        Disk = "disk",
        /// Both in a pool of persistent memory.
        Pmem = "pmem",
    }
}

option_words! {
    /// Where an slm table keeps its memtables.
    MemtableMedium {
        /// As `medium` says.
        Auto = "auto",
        /// In ordinary memory.
        Dram = "dram",
        /// In a pool of persistent memory.
        Pmem = "pmem",
    }
}

option_words! {
    /// Where an slm table keeps its index.
    IndexMedium {
        /// As `medium` says.
        Auto = "auto",
        /// In pages of a file, through a cache.
        Pages = "pages",
        /// In a pool of persistent memory.
        Pmem = "pmem",
    }
}

engine_options! {
    /// Options of a table of the slm engine.
    SlmOptions: Slm;

    compression {
        values: words(Compression),
        unit: "",
        default: word("none"),
        meaning: "compresses each block",
        change_when: "values compress well. `zstd` is for data that is seldom read or merged: it \
                      took 30 times the processor time of `lz4` for 10 % less space (4 KB of JSON \
                      rows)",
        audience: General,
    }
    cache_bytes {
        values: number(0, 70_368_744_177_664),
        unit: "bytes",
        default: computed("7/8 of the budget less the pages of the index, at least 3/8"),
        meaning: "limit of the block cache; 0 is no cache. The location cache takes 1/1,024 of it \
                  beside that",
        change_when: "other tables need the memory",
        audience: General,
    }
    index_cache_bytes {
        values: number(0, 70_368_744_177_664),
        unit: "bytes",
        default: number(0, "half of the budget"),
        meaning: "limit of the page cache of the index",
        change_when: "the index does not fit and gets matter more than cached blocks (larger)",
        audience: General,
    }
    memtable_bytes {
        values: number(65_536, 4_294_967_296),
        unit: "bytes",
        default: number(268_435_456, "at most 1/16 of the budget"),
        meaning: "size of a memtable. If it is set, all memtables together take at most half of \
                  the budget",
        change_when: "writes are many and memory is free: larger memtables mean fewer merges",
        audience: General,
    }
    live_ratio {
        values: number(0, 100),
        unit: "per cent",
        default: number(70),
        meaning: "a run with fewer live entries is a candidate for compaction; 0: never",
        change_when: "disk space matters more than copies (larger)",
        audience: General,
    }
    key_code {
        values: words(KeyCode),
        unit: "",
        default: word("auto"),
        meaning: "whether the index may store keys in an order-preserving code. The first flush \
                  decides, from its keys, and the decision stays; `auto` uses no code that would \
                  save less than an eighth",
        change_when: "the first keys are unlike the later ones (`none`)",
        audience: Expert,
    }
    memtables {
        values: number(2, 16),
        unit: "",
        default: number(4),
        meaning: "number of memtables, the active one included",
        change_when: "writers are delayed while flushes are slow",
        audience: Expert,
    }
    run_bytes {
        values: number(65_536, 4_294_967_296),
        unit: "bytes",
        default: number(33_554_432, "at most 1/8 of the budget"),
        meaning: "size at which a flush or a merge begins another run",
        change_when: "a measurement says so: larger runs make a merge longer",
        audience: Expert,
    }
    block_bytes {
        values: number(512, 1_048_576),
        unit: "bytes",
        default: number(4_096),
        meaning: "size to which entries are gathered into a block; a larger entry has a block \
                  alone",
        change_when: "values are about 1 KiB and gets are random: with 1,024 the cache keeps only \
                      what gets read",
        audience: Expert,
    }
    page_bytes {
        values: power_of_two(4_096, 65_536),
        unit: "bytes",
        default: number(16_384),
        meaning: "size of a page of the index",
        change_when: "most of the index is on disk: smaller pages read less a get",
        audience: Expert,
    }
    leaf_threshold {
        values: number(0, 1_048_576),
        unit: "runs",
        default: number(10),
        meaning: "more runs than this in one window of the index become candidates (section 3.3 \
                  of the paper), unless their entries are larger than 8 KiB on average. 0 disables \
                  this selection, and merges at rest of overlapping runs",
        change_when: "ranges matter more than writes (smaller)",
        audience: Expert,
    }
    leaf_runs {
        values: number(1, 64),
        unit: "runs",
        default: number(2),
        meaning: "size of that window: the keys of this number of average runs",
        change_when: "you change `leaf_threshold`",
        audience: Expert,
    }
    range_threshold {
        values: number(0, 1_048_576),
        unit: "runs",
        default: number(8),
        meaning: "more runs than this in `range_keys` entries of a range query become candidates \
                  (section 3.3 of the paper), unless their entries are larger than 8 KiB on \
                  average; 0: never",
        change_when: "ranges matter more than writes (smaller)",
        audience: Expert,
    }
    range_keys {
        values: number(1, 1_048_576),
        unit: "entries",
        default: number(30),
        meaning: "see `range_threshold`",
        change_when: "ranges are much longer than 30 entries",
        audience: Expert,
    }
    compaction_runs {
        values: number(1, 1_024),
        unit: "runs",
        default: number(4),
        meaning: "number of candidates that starts a merge",
        change_when: "a measurement says so: a smaller number merges earlier",
        audience: Expert,
    }
    merge_runs {
        values: number(2, 256),
        unit: "runs",
        default: number(64),
        meaning: "limit of runs in one merge",
        change_when: "a measurement says so: a smaller number makes merges shorter",
        audience: Expert,
    }
    merge_rate {
        values: number(0, 70_368_744_177_664),
        unit: "bytes a second",
        default: number(0, "no limit"),
        meaning: "rate of merges. With 0, merges for order alone keep to 16 MiB a second while \
                  gets or ranges read the disk, and to 512 MiB a second while most of these reads \
                  belong to ranges over too many runs",
        change_when: "another program needs the disk",
        audience: Expert,
    }
    medium {
        values: words(Medium),
        unit: "",
        default: word("disk"),
        meaning: "`pmem` is the paper's design: memtables and index are in a pool of persistent \
                  memory, and opening replays almost no log",
        change_when: "the machine has persistent memory, or you emulate it for an experiment",
        audience: Paper,
    }
    memtable {
        values: words(MemtableMedium),
        unit: "",
        default: word("auto"),
        meaning: "where memtables are; `auto` is what `medium` says",
        change_when: "you measure one half of `medium=pmem`",
        audience: Paper,
    }
    index {
        values: words(IndexMedium),
        unit: "",
        default: word("auto"),
        meaning: "where the index is; `auto` is what `medium` says",
        change_when: "you measure one half of `medium=pmem`",
        audience: Paper,
    }
    pmem_path {
        values: path(absolute),
        unit: "",
        default: computed("the table's own directory"),
        meaning: "directory of the pool's file. The file is named after the database and the table",
        change_when: "persistent memory is mounted elsewhere (a file system with DAX)",
        audience: Paper,
    }
    pmem_bytes {
        values: number(262_144, 70_368_744_177_664),
        unit: "bytes",
        default: number(8_589_934_592, "it grows by doubling up to there"),
        meaning: "limit of the pool; the file grows to the largest power of two below",
        change_when: "the index needs more: about 90 bytes a key",
        audience: Paper,
    }
    pmem_latency_ns {
        values: number(0, 1_000_000),
        unit: "nanoseconds",
        default: number(0),
        meaning: "delay of each cache line that is written to an emulated pool. Real persistent \
                  memory ignores it",
        change_when: "you repeat the paper's measurements (300, 500, 900)",
        audience: Paper,
    }
    pmem_bandwidth {
        values: number(0, 70_368_744_177_664),
        unit: "bytes a second",
        default: number(0, "no limit"),
        meaning: "bandwidth of writes to an emulated pool. Real persistent memory ignores it",
        change_when: "you repeat the paper's measurements (2 and 5 GB/s)",
        audience: Paper,
    }
}

/// The largest memtable in a pool by default: the paper's.
const POOL_MEMTABLE_BYTES: u64 = 64 << 20;
/// Memtables in a pool take at most this fraction of its limit, all together.
const POOL_MEMTABLE_SHARE: u64 = 4;

/// The settings of a pool of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolSettings {
    pub(super) has_memtables: bool,
    pub(super) has_index: bool,
    /// Directory of the file; `None` is the table's own.
    pub(super) path: Option<String>,
    /// Limit of the pool.
    pub(super) bytes: u64,
    /// How slow an emulated pool is.
    pub(super) slowness: Slowness,
}

impl PoolSettings {
    /// Whether anything is in the pool.
    pub(super) const fn is_used(&self) -> bool {
        self.has_memtables || self.has_index
    }
}

fn pool_settings(options: &OptionReader<'_>) -> Result<PoolSettings> {
    let is_pmem = options.word::<Medium>("medium")? == Medium::Pmem;
    let has_memtables = match options.word("memtable")? {
        MemtableMedium::Auto => is_pmem,
        chosen => chosen == MemtableMedium::Pmem,
    };
    let has_index = match options.word("index")? {
        IndexMedium::Auto => is_pmem,
        chosen => chosen == IndexMedium::Pmem,
    };
    let slowness = Slowness {
        line: Duration::from_nanos(options.number("pmem_latency_ns")?),
        bytes_per_second: options.number("pmem_bandwidth")?,
    };
    Ok(PoolSettings {
        has_memtables,
        has_index,
        path: options.path("pmem_path")?.map(str::to_owned),
        bytes: options.number("pmem_bytes")?,
        slowness,
    })
}

/// The options, parsed.
#[derive(Clone, Debug)]
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
    /// The pool of persistent memory.
    pub(super) pool: PoolSettings,
}

/// Reads the options of a table whose memory budget has this limit: the engine's own, and those of
/// the index's pages. Fails with `InvalidOption`.
pub(super) fn parse(options: &TableOptions, budget: u64) -> Result<(SlmSettings, PageOptions)> {
    let options = OptionReader::new(options, SlmOptions::OPTIONS)?;
    let memtables = options.number("memtables")?;
    // A table that asks for more gets half of the budget; others leave room for others.
    let is_asked = options.is_set("memtable_bytes");
    let memtable_bytes_max = if is_asked { budget / 2 / memtables } else { budget / 16 };
    let pool = pool_settings(&options)?;
    let memtable_bytes_max = if pool.has_memtables {
        let most = if is_asked { u64::MAX } else { POOL_MEMTABLE_BYTES };
        let in_pool = pool.bytes / POOL_MEMTABLE_SHARE / memtables;
        memtable_bytes_max.min(in_pool).min(most)
    } else {
        memtable_bytes_max
    };
    let cache_bytes = options.number_or("cache_bytes", |_| budget / 8 * 7)?;
    let settings = SlmSettings {
        memtable_bytes: options.number("memtable_bytes")?.min(memtable_bytes_max.max(64 << 10)),
        memtables,
        run_bytes: options
            .number_or("run_bytes", |default| default.min((budget / 8).max(64 << 10)))?,
        shape: SstShape {
            block_bytes: to_usize(options.number("block_bytes")?),
            packing: Packing::of(options.word("compression")?),
            write_bytes: SstShape::write_bytes(budget),
            keys: false,
        },
        cache_bytes,
        cache_bytes_min: if options.is_set("cache_bytes") { cache_bytes } else { budget / 8 * 3 },
        live_ratio: options.number("live_ratio")?,
        leaf_threshold: to_usize(options.number("leaf_threshold")?),
        leaf_runs: options.number("leaf_runs")?,
        range_threshold: to_usize(options.number("range_threshold")?),
        range_keys: to_usize(options.number("range_keys")?),
        compaction_runs: to_usize(options.number("compaction_runs")?),
        merge_runs: to_usize(options.number("merge_runs")?),
        merge_rate: options.number("merge_rate")?,
        has_key_code: options.word::<KeyCode>("key_code")? == KeyCode::Auto,
        pool,
    };
    let index_cache_bytes = options.number("index_cache_bytes")?;
    let index = PageOptions {
        page_bytes: options.number("page_bytes")?,
        granularity: GRANULARITY_PAGES,
        cache_bytes: if index_cache_bytes == 0 { budget / 2 } else { index_cache_bytes },
        replacement: Replacement::Clock,
    };
    Ok((settings, index))
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::contract::{EngineKind, options::tests::assert_reads_all};

    #[test]
    fn every_declared_option_is_read() {
        assert_reads_all(EngineKind::Slm, SlmOptions::OPTIONS, |options| parse(options, 1 << 30));
    }
}
