//! fjall: a log-structured merge tree in Rust.

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    config::{
        BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy,
        FilterPolicyEntry, HashRatioPolicy, PinningPolicy, RestartIntervalPolicy,
    },
};

use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::to_u64,
    store::{Durability, EachEntry, Setting, Store, StoreOptions, StoreStats},
};

use super::peer::{Peer, budget, failed, override_settings, setting, size};

const NAME: &str = "fjall";
const BLOOM_BITS: f32 = 10.0;
/// Maximum size of a memtable that its guide recommends.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;
const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// Minimum journal size; fjall panics below it.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// Number of worker threads: its default for two processors.
const WORKERS: u64 = 2;

pub(super) struct Fjall;

/// Settings under the names of its options.
#[derive(Clone, Copy, Debug)]
struct FjallTuning {
    cache_size: u64,
    max_memtable_size: u64,
    max_journaling_size: u64,
    worker_threads: u64,
    block_size: u64,
    restart_interval: u64,
    /// Buckets of the hash table in each block, per 100 entries.
    hash_percent: u64,
    /// Whether all blocks of indexes and filters stay in memory: 0 or 1.
    pins: u64,
}

impl FjallTuning {
    fn new(budget: u64) -> Self {
        let memtable = (budget / 8).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        Self {
            cache_size: budget - (budget / 2).min(4 * memtable),
            max_memtable_size: memtable,
            max_journaling_size: 512 << 20,
            worker_threads: WORKERS,
            block_size: 4096,
            restart_interval: 16,
            hash_percent: 0,
            pins: 1,
        }
    }

    /// Overrides settings by options of the command line.
    fn change(&mut self, asked: &[(String, String)]) -> Outcome {
        override_settings(
            NAME,
            asked,
            &mut [
                ("cache_size", &mut self.cache_size),
                ("max_memtable_size", &mut self.max_memtable_size),
                ("max_journaling_size", &mut self.max_journaling_size),
                ("worker_threads", &mut self.worker_threads),
                ("block_size", &mut self.block_size),
                ("restart_interval", &mut self.restart_interval),
                ("hash_percent", &mut self.hash_percent),
                ("pins", &mut self.pins),
            ],
        )
    }

    fn keyspace(&self) -> Outcome<KeyspaceCreateOptions> {
        let narrow = |value: u64| u32::try_from(value).map_err(|error| failed(NAME, error));
        let restart = u8::try_from(self.restart_interval).map_err(|error| failed(NAME, error))?;
        let hash = f32::from(u16::try_from(self.hash_percent).unwrap_or(u16::MAX)) / 100.0;
        let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(BLOOM_BITS));
        let mut options = KeyspaceCreateOptions::default()
            .max_memtable_size(self.max_memtable_size)
            .filter_policy(FilterPolicy::all(bloom))
            .data_block_size_policy(BlockSizePolicy::all(narrow(self.block_size)?))
            .data_block_restart_interval_policy(RestartIntervalPolicy::all(restart))
            .data_block_hash_ratio_policy(HashRatioPolicy::all(hash))
            .data_block_compression_policy(CompressionPolicy::disabled())
            .index_block_compression_policy(CompressionPolicy::disabled());
        if self.pins > 0 {
            options = options
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true));
        }
        Ok(options)
    }
}

impl Peer for Fjall {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        "3.1.13".to_owned()
    }

    fn check_available(&self) -> Outcome {
        Ok(())
    }

    fn takes_options(&self) -> bool {
        true
    }

    fn promise(&self, _: Durability) -> &'static str {
        ""
    }

    fn settings(&self, options: &StoreOptions) -> Vec<Setting> {
        let tuning = FjallTuning::new(budget(options));
        vec![
            setting("cache_size", tuning.cache_size, "the budget less four memtables"),
            setting(
                "max_memtable_size",
                tuning.max_memtable_size,
                "the most that its guide recommends",
            ),
            setting("pinned blocks", "indexes, filters", "they fit; gets a tenth faster or more"),
            setting("filter", "Bloom, 10 bits a key", "as the other merge trees"),
            setting("compression", "none", "as the other stores; values do not compress"),
            setting("expect_point_read_hits", false, "absent keys are asked for as well"),
            setting(
                "persist",
                if options.is_synced() { "SyncData" } else { "Buffer" },
                "its default writes the journal to the page cache: the promise of our buffered \
                 writes",
            ),
        ]
    }

    fn open(&self, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        if options.is_direct() {
            return Err(Failure::Failed(format!("{NAME} has no direct I/O")));
        }
        let mut tuning = FjallTuning::new(budget(options));
        tuning.change(&options.settings)?;
        let keyspace_options = tuning.keyspace()?;
        let database = Database::builder(&options.dir)
            .cache_size(tuning.cache_size)
            .max_journaling_size(tuning.max_journaling_size.max(JOURNAL_BYTES_MIN))
            .worker_threads(size(tuning.worker_threads.max(1)))
            .open()
            .map_err(|error| failed(NAME, error))?;
        let keyspace =
            database.keyspace("bench", || keyspace_options).map_err(|error| failed(NAME, error))?;
        Ok(Box::new(FjallStore { database, keyspace, is_synced: options.is_synced() }))
    }
}

struct FjallStore {
    database: Database,
    keyspace: Keyspace,
    is_synced: bool,
}

impl FjallStore {
    fn written(&self, outcome: fjall::Result<()>) -> Outcome {
        outcome.map_err(|error| failed(NAME, error))?;
        if self.is_synced { self.sync() } else { Ok(()) }
    }

    fn visit(entries: fjall::Iter, limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        let mut count = 0;
        for entry in entries.take(limit) {
            let (key, value) = entry.into_inner().map_err(|error| failed(NAME, error))?;
            each(&key, &value);
            count += 1;
        }
        Ok(count)
    }
}

impl Store for FjallStore {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let Some(found) = self.keyspace.get(key).map_err(|error| failed(NAME, error))? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        self.written(self.keyspace.insert(key, value))
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        self.written(self.keyspace.remove(key))
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let durability = self.is_synced.then_some(PersistMode::SyncData);
        let mut batch = self.database.batch().durability(durability);
        for (key, value) in entries {
            batch.insert(&self.keyspace, key.as_slice(), value.as_slice());
        }
        batch.commit().map_err(|error| failed(NAME, error))
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        Self::visit(self.keyspace.range(start..), limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        Self::visit(self.keyspace.iter(), usize::MAX, each).map(to_u64)
    }

    fn sync(&self) -> Outcome {
        self.database.persist(PersistMode::SyncData).map_err(|error| failed(NAME, error))
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    fn close(self: Box<Self>) -> Outcome {
        self.database.persist(PersistMode::SyncAll).map_err(|error| failed(NAME, error))
    }
}
