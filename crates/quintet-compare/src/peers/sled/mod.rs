//! sled: a lock-free tree in Rust, the last stable release.

mod transactions;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use sled::{Config, Db, Mode, Tree};

use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::to_u64,
    store::{
        ChangeValue, Durability, EachEntry, Setting, Store, StoreFeature, StoreOptions, StoreStats,
        TransactionalStore,
    },
};

use super::peer::{Peer, budget, failed, setting};

const NAME: &str = "sled";
/// Interval of background syncs in milliseconds, that of Quintet.
const FLUSH_MS: u64 = 100;
/// Longest wait for the threads of a closed database to release its lock.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

pub(super) struct Sled;

impl Peer for Sled {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> String {
        "0.34.7".to_owned()
    }

    fn check_available(&self) -> Outcome {
        Ok(())
    }

    fn promise(&self, durability: Durability) -> &'static str {
        match durability {
            Durability::Sync => "",
            Durability::Buffered => {
                "less than ours: a killed process loses what was written since the last flush, up \
                 to 100 ms"
            }
        }
    }

    fn settings(&self, options: &StoreOptions) -> Vec<Setting> {
        vec![
            setting("cache_capacity", budget(options), "the whole budget"),
            setting("flush_every_ms", FLUSH_MS, "the interval of Quintet"),
            setting("mode", "HighThroughput", "its setting for speed rather than space"),
        ]
    }

    fn has_feature(&self, feature: StoreFeature) -> bool {
        matches!(feature, StoreFeature::Transactions | StoreFeature::AtomicUpdate)
    }

    fn open(&self, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        if options.is_direct() {
            return Err(Failure::Failed(format!("{NAME} has no direct I/O")));
        }
        let database = Config::new()
            .path(&options.dir)
            .cache_capacity(budget(options))
            .flush_every_ms(Some(FLUSH_MS))
            .mode(Mode::HighThroughput)
            .open()
            .map_err(|error| failed(NAME, error))?;
        Ok(Box::new(SledStore {
            database,
            lock_path: options.dir.join("db"),
            second: OnceLock::new(),
            is_synced: options.is_synced(),
        }))
    }
}

struct SledStore {
    database: Db,
    /// The file that sled locks while the database is open.
    lock_path: PathBuf,
    /// The second tree, once it is needed.
    second: OnceLock<Tree>,
    is_synced: bool,
}

impl SledStore {
    fn written<T>(&self, outcome: sled::Result<T>) -> Outcome {
        outcome.map_err(|error| failed(NAME, error))?;
        if self.is_synced { self.sync() } else { Ok(()) }
    }

    fn visit(entries: sled::Iter, limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        let mut count = 0;
        for entry in entries.take(limit) {
            let (key, value) = entry.map_err(|error| failed(NAME, error))?;
            each(&key, &value);
            count += 1;
        }
        Ok(count)
    }
}

impl Store for SledStore {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let Some(found) = self.database.get(key).map_err(|error| failed(NAME, error))? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        self.written(self.database.insert(key, value))
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        self.written(self.database.remove(key))
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let mut batch = sled::Batch::default();
        for (key, value) in entries {
            batch.insert(key.as_slice(), value.as_slice());
        }
        self.written(self.database.apply_batch(batch))
    }

    fn atomic_update(&self, key: &[u8], change: &mut ChangeValue<'_>) -> Outcome {
        let mut failure = None;
        let updated = self.database.fetch_and_update(key, |old| {
            let mut value = Vec::new();
            match change(old, &mut value) {
                Ok(()) => Some(value),
                Err(why) => {
                    failure = Some(why);
                    old.map(<[u8]>::to_vec)
                }
            }
        });
        self.written(updated)?;
        failure.map_or(Ok(()), Err)
    }

    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        Some(self)
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        Self::visit(self.database.range(start..), limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        Self::visit(self.database.iter(), usize::MAX, each).map(to_u64)
    }

    fn sync(&self) -> Outcome {
        self.database.flush().map(drop).map_err(|error| failed(NAME, error))
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    fn close(self: Box<Self>) -> Outcome {
        self.sync()?;
        let lock_path = self.lock_path.clone();
        drop(self);
        await_unlocked(&lock_path)
    }
}

/// Waits until no other file handle has a lock on the file at `path`. Threads of sled keep its
/// database open for a moment after the last handle is dropped; opening it then fails.
fn await_unlocked(path: &Path) -> Outcome {
    let file = File::open(path).map_err(|error| failed(NAME, error))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() >= CLOSE_WAIT => return Err(failed(NAME, error)),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}
