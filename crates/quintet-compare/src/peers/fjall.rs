//! fjall.

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry},
};

use quintet_bench::{
    failure::{Failure, Outcome},
    store::{Durability, EachEntry, Store, StoreStats},
};

use super::{Opening, Peer, failed, setting};
use crate::result::Setting;

const NAME: &str = "fjall";
const BLOOM_BITS: f32 = 10.0;
/// The most that its guide recommends.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;
const MEMTABLE_BYTES_MIN: u64 = 1 << 20;

pub(super) struct Fjall;

fn memtable(budget: u64) -> u64 {
    (budget / 8).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)
}

fn cache(budget: u64) -> u64 {
    budget - (budget / 2).min(4 * memtable(budget))
}

impl Peer for Fjall {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        "3.1.13".to_owned()
    }

    fn is_there(&self) -> Outcome {
        Ok(())
    }

    fn promise(&self, _: Durability) -> &'static str {
        ""
    }

    fn settings(&self, opening: &Opening<'_>) -> Vec<Setting> {
        let budget = opening.budget();
        vec![
            setting("cache_size", cache(budget), "the budget less four memtables"),
            setting("max_memtable_size", memtable(budget), "the most that its guide recommends"),
            setting("filter", "Bloom, 10 bits a key", "as the other merge trees"),
            setting("compression", "none", "as the other stores; values do not compress"),
            setting("expect_point_read_hits", false, "absent keys are asked for as well"),
            setting(
                "persist",
                if opening.is_synced() { "SyncData" } else { "Buffer" },
                "its default writes the journal to the page cache: the promise of our buffered \
                 writes",
            ),
        ]
    }

    fn open(&self, opening: &Opening<'_>) -> Outcome<Box<dyn Store>> {
        if opening.is_direct() {
            return Err(Failure::Failed(format!("{NAME} has no direct I/O")));
        }
        let budget = opening.budget();
        let database = Database::builder(&opening.options.dir)
            .cache_size(cache(budget))
            .open()
            .map_err(|error| failed(NAME, error))?;
        let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(BLOOM_BITS));
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable(budget))
                .filter_policy(FilterPolicy::all(bloom))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
        };
        let keyspace = database.keyspace("bench", options).map_err(|error| failed(NAME, error))?;
        Ok(Box::new(Opened { database, keyspace, is_synced: opening.is_synced() }))
    }
}

struct Opened {
    database: Database,
    keyspace: Keyspace,
    is_synced: bool,
}

impl Opened {
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

impl Store for Opened {
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
        Self::visit(self.keyspace.iter(), usize::MAX, each).map(quintet_bench::numbers::to_u64)
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
