//! The engines of Quintet, through the public API of the library.

mod transactions;

use std::{ops::ControlFlow, sync::OnceLock, time::Duration};

use quintet::{
    Cursor, Database, DeleteOptions, EngineKind, LoadOptions, Options, Table, TableOptions,
};

use crate::{
    args,
    failure::{Failure, Outcome},
    store::{
        ChangeValue, Durability, EachEntry, EachFound, NextEntry, Store, StoreOptions, StoreStats,
        TransactionalStore, unordered,
    },
};

/// Name of the measured table.
const TABLE: &str = "bench";
/// Engine of the second table, which transfers need. A setting of the database, not of the table.
const SECOND_ENGINE: &str = "second_engine";
/// Settings of the database, not of the table. They put its log into emulated persistent memory
/// with this write latency (nanoseconds for each line of 64 bytes) and this bandwidth (bytes per
/// second).
const WRITE_LATENCY: &str = "write_latency_ns";
const WRITE_BANDWIDTH: &str = "write_bandwidth";
/// Settings of the database, not of the table: the methods of `Options` of the same name.
const SYNC_INTERVAL: &str = "sync_interval";
const RECOVERY_BUDGET: &str = "recovery_budget";
const CHECKPOINT_INTERVAL: &str = "checkpoint_interval";
/// Entries that one call of a scan returns.
const SCAN_ENTRIES: usize = 1024;
/// A key that no workload uses: keys of workloads have 8 bytes or more.
const UNUSED_KEY: &[u8] = b"none";

/// A database with one table of one engine.
#[derive(Debug)]
pub struct Engine {
    database: Database,
    table: Table,
    second_kind: EngineKind,
    /// The second table, once it is needed.
    second: OnceLock<Table>,
}

impl Engine {
    /// Opens the database in `options.dir` and the table in it; creates what is missing.
    pub fn open(kind: EngineKind, options: &StoreOptions) -> Outcome<Self> {
        let mut how = Options::new().durability(durability(options.durability));
        if let Some(bytes) = options.memory_budget() {
            how = how.memory_budget(bytes);
        }
        let (mut latency, mut bandwidth) = (None, None);
        let mut table = TableOptions::new(kind);
        let is_btree = kind.name() == "btree";
        let mut second_kind = engine_named(if is_btree { "hashlog" } else { "btree" })?;
        for (name, value) in &options.settings {
            match name.as_str() {
                SECOND_ENGINE => second_kind = engine_named(value)?,
                WRITE_LATENCY => latency = Some(number(name, value)?),
                WRITE_BANDWIDTH => bandwidth = Some(number(name, value)?),
                SYNC_INTERVAL => how = how.sync_interval(time(name, value)?),
                RECOVERY_BUDGET => how = how.recovery_budget(number(name, value)?),
                CHECKPOINT_INTERVAL => how = how.checkpoint_interval(time(name, value)?),
                _ => table = table.set(name, value),
            }
        }
        if latency.is_some() || bandwidth.is_some() {
            let latency = Duration::from_nanos(latency.unwrap_or(0));
            how = how.emulate_persistent_memory(latency, bandwidth.unwrap_or(0));
        }
        let database = how.open(&options.dir)?;
        let table = database.open_or_create_table(TABLE, table)?;
        Ok(Self { database, table, second_kind, second: OnceLock::new() })
    }
}

fn engine_named(name: &str) -> Outcome<EngineKind> {
    EngineKind::AVAILABLE.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<_> = EngineKind::AVAILABLE.iter().map(EngineKind::name).collect();
        Failure::Usage(format!("{SECOND_ENGINE}={name}: not an engine: {}", names.join(", ")))
    })
}

fn number(name: &str, value: &str) -> Outcome<u64> {
    value.parse().map_err(|_| Failure::Usage(format!("{name}={value}: not a number")))
}

fn time(name: &str, value: &str) -> Outcome<Duration> {
    args::duration(value).map_err(|what| Failure::Usage(format!("{name}={value}: {what}")))
}

fn durability(durability: Durability) -> quintet::Durability {
    match durability {
        Durability::Buffered => quintet::Durability::Buffered,
        Durability::Sync => quintet::Durability::Sync,
    }
}

/// Updates the value of a key by a function. If the function fails, the value stays as it is.
fn update(table: &Table, key: &[u8], change: &mut ChangeValue<'_>) -> Outcome {
    let mut failure = None;
    let mut buffer = Vec::new();
    table.update(key, |old| {
        let mut value = std::mem::take(&mut buffer);
        match change(old, &mut value) {
            Ok(()) => Some(value),
            Err(why) => {
                failure = Some(why);
                old.map(<[u8]>::to_vec)
            }
        }
    })?;
    failure.map_or(Ok(()), Err)
}

/// Visits all entries of a table and returns their count.
fn scan(table: &Table, each: &mut EachEntry<'_>) -> Outcome<u64> {
    let mut cursor = Cursor::START;
    let mut count = 0;
    loop {
        let (entries, next) = table.scan(&cursor, SCAN_ENTRIES)?;
        for (key, value) in &entries {
            each(key, value);
            count += 1;
        }
        if next.is_start() {
            return Ok(count);
        }
        cursor = next;
    }
}

impl Store for Engine {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        Ok(self.table.get_into(key, value)?)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        Ok(self.table.multi_get_each(keys, each)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        Ok(self.table.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        Ok(self.table.delete(key)?)
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let mut batch = self.database.batch();
        for (key, value) in entries {
            batch.put(&self.table, key, value);
        }
        Ok(batch.commit()?)
    }

    fn load_sorted(&self, next: &mut NextEntry<'_>) -> Outcome {
        let mut loader = self.table.sorted_loader(LoadOptions::new())?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            loader.put(&key, &value)?;
        }
        loader.commit()?;
        Ok(())
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        let kind = self.table.kind();
        if !kind.is_ordered() {
            return Err(unordered(kind.name()));
        }
        let mut count = 0;
        if limit > 0 {
            self.table.visit(start.., |key, value| {
                each(key, value);
                count += 1;
                if count < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(count)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        scan(&self.table, each)
    }

    fn atomic_update(&self, key: &[u8], change: &mut ChangeValue<'_>) -> Outcome {
        update(&self.table, key, change)
    }

    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        Some(self)
    }

    /// Writes a synced delete of an absent key, which makes the log and all earlier writes durable.
    fn sync(&self) -> Outcome {
        let how = DeleteOptions::new().durability(quintet::Durability::Sync);
        self.table.delete_with(UNUSED_KEY, how)?;
        Ok(())
    }

    fn settle(&self) -> Outcome {
        Ok(self.database.persist()?)
    }

    fn stats(&self) -> StoreStats {
        self.table.stats().map_or_else(
            |_| StoreStats::default(),
            |stats| StoreStats {
                keys: Some(stats.keys),
                live_bytes: Some(stats.live_bytes),
                memory_bytes: Some(stats.memory_bytes),
                index_bytes: Some(stats.index_bytes),
                details: stats
                    .details
                    .iter()
                    .map(|(name, count)| ((*name).to_owned(), *count))
                    .collect(),
            },
        )
    }

    fn close(self: Box<Self>) -> Outcome {
        Ok(self.database.close()?)
    }
}
