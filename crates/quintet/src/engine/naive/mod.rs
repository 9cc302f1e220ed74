//! The baseline engine: a hash table in memory, and checkpoints of the whole table (LogKV's
//! `NaiveKV`).
//!
//! Every key and value is in memory. After each `snapshot_bytes` of updates, a checkpoint streams
//! the whole table to a new file ([`checkpoint`]). Opening loads the newest file and replays the
//! log from its LSN.
//! It is the simplest engine that keeps the contract. The other engines are measured against it,
//! and their tests use it as the oracle.
//!
//! Invariants:
//! - A checkpoint is fuzzy: writers continue while it streams shard after shard. For each key it
//!   holds a state at or after its LSN. Replay from that LSN makes it exact, because operations are
//!   blind.
//! - The log is durable past every effect in a checkpoint before the checkpoint gets its name.
//! - Only the newest checkpoint counts. Damage in it is an error. An older one is no substitute:
//!   the log that follows it may be pruned.
//! - The engine's share of the budget is what `admit` reserved and no write has used, plus
//!   `charged` of each shard.
//!
//! Locks: one reader-writer lock a shard. A get takes one for reading. No operation holds two.
//! Returned values share the stored bytes and stay valid after any change of the table.
//!
//! Options: [`options`].
//!
//! How we differ from the paper: recovery is exact, where the paper loses what follows the last
//! snapshot. Checkpoints do not stop writers. The threshold option has an effect; the original
//! ignores it.
//!
//! Start reading at [`Naive::open`]. The hash table is in [`table`], the file format in
//! [`checkpoint`].

pub mod checkpoint;
mod mutants;
pub(crate) mod options;
mod record;
pub(crate) mod table;

use self::{
    mutants::remove_newest,
    options::NaiveSettings,
    record::{NaiveRecord, cost},
};
use crate::{
    Error, Result,
    contract::{
        Context, Cursor, Engine, EngineKind, EngineStats, Entry, HashOrder, Hint, MaintenanceMode,
        MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine, PendingWork, Presence,
        TableOptions, ValueSink, replay_one_by_one, unordered,
    },
    engine::naive::table::{HashTable, Keyed as _},
    io::Open,
    util::{
        codec::{Decoder, Lsn, to_u64, to_usize},
        mutant::mutant,
        report::Report,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
        timed_counter::TimedCounter,
    },
};

/// Number of shards. 64 threads rarely meet on one lock. Each shard costs a cache line or two.
const SHARD_COUNT: usize = 64;
/// The shard's number is the hash without this many low bits.
const SHARD_SHIFT: u32 = 58;
/// Maximum number of entries that a checkpoint copies while it holds a shard's lock.
const CHECKPOINT_STEP_ENTRIES: usize = 256;
/// Bytes after which it releases the lock.
const CHECKPOINT_STEP_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
struct NaiveShard {
    table: HashTable<NaiveRecord>,
    /// Bytes of keys and stored values.
    live_bytes: u64,
    /// Bytes of budget that the shard holds: for its entries and its bucket array.
    charged: u64,
}

/// The newest checkpoint.
#[derive(Clone, Debug, Default)]
struct NewestCheckpoint {
    /// Name of its file; `None` before the first checkpoint.
    name: Option<String>,
    lsn: Lsn,
    file_bytes: u64,
}

/// A table of the naive engine. See the module documentation.
#[derive(Debug)]
pub struct Naive {
    context: Context,
    shards: Box<[RwLock<NaiveShard>]>,
    snapshot_bytes: u64,
    /// Bytes of budget that `admit` reserved for operations neither applied nor cancelled yet.
    reserved: AtomicU64,
    /// Bytes of updates since the start of the newest checkpoint.
    update_bytes: AtomicU64,
    /// Bytes of entries replaced or removed since then.
    dead_bytes: AtomicU64,
    /// A checkpoint is due after few updates, because compaction dropped expired entries.
    checkpoint_wanted: AtomicBool,
    newest: Mutex<NewestCheckpoint>,
    snapshots: TimedCounter,
    written_bytes_total: AtomicU64,
}

impl Naive {
    /// Loads and verifies the newest checkpoint in the table's directory, and removes older and
    /// unfinished ones. Returns the LSN that the checkpoint is complete to, or 0 without one.
    ///
    /// Fails with `Corruption` if the newest checkpoint is damaged.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let NaiveSettings { snapshot_bytes } = NaiveSettings::parse(options)?;
        let naive = Self {
            context,
            shards: (0..SHARD_COUNT).map(|_| RwLock::new(NaiveShard::default())).collect(),
            snapshot_bytes,
            reserved: AtomicU64::new(0),
            update_bytes: AtomicU64::new(0),
            dead_bytes: AtomicU64::new(0),
            checkpoint_wanted: AtomicBool::new(false),
            newest: Mutex::new(NewestCheckpoint::default()),
            snapshots: TimedCounter::default(),
            written_bytes_total: AtomicU64::new(0),
        };
        let lsn = naive.load_newest()?;
        Ok((naive, lsn))
    }

    fn load_newest(&self) -> Result<Lsn> {
        let dir = &self.context.dir;
        let doing = |what: &str, name: &str| format!("{what} {}", self.label(name));
        let entries = dir.list().map_err(|error| Error::io(doing("list", ""), error))?;
        let mut snapshots: Vec<(Lsn, String)> = entries
            .iter()
            .filter_map(|entry| Some((checkpoint::lsn_of_name(&entry.name)?, entry.name.clone())))
            .collect();
        snapshots.sort_unstable();
        let newest = snapshots.pop();
        if let Some((lsn, name)) = &newest {
            self.load(*lsn, name)?;
        }
        if !self.context.read_only && !entries.is_empty() {
            // A killed process may have left the newest name in the page cache only. The log is
            // pruned and older checkpoints are removed because this one exists, so its name must be
            // durable.
            dir.sync().map_err(|error| Error::io(doing("sync", ""), error))?;
            let unfinished = entries.iter().map(|entry| &entry.name);
            let unfinished = unfinished.filter(|name| *name == checkpoint::UNFINISHED_NAME);
            for name in snapshots.iter().map(|(_, name)| name).chain(unfinished) {
                dir.remove(name).map_err(|error| Error::io(doing("remove", name), error))?;
            }
        }
        Ok(newest.map_or(Lsn(0), |(lsn, _)| lsn))
    }

    fn load(&self, lsn: Lsn, name: &str) -> Result<()> {
        let label = self.label(name);
        let file = self
            .context
            .dir
            .open(name, Open::READ)
            .map_err(|error| Error::io(format!("open {label}"), error))?;
        let mut visit = |key: &[u8], stored: &[u8]| {
            self.insert(key, &[], stored, 0);
        };
        let summary = checkpoint::load(&*file, &label, &self.identity(lsn), &mut visit)?;
        let newest =
            NewestCheckpoint { name: Some(name.to_owned()), lsn, file_bytes: summary.file_bytes };
        *lock(&self.newest) = newest;
        Ok(())
    }

    fn identity(&self, lsn: Lsn) -> checkpoint::Identity {
        checkpoint::Identity {
            database_id: self.context.database_id,
            table_id: self.context.table_id,
            lsn,
        }
    }

    /// Returns the path of a file of this table, for messages.
    fn label(&self, name: &str) -> String {
        format!("tables/{}/{name}", self.context.table_id)
    }

    fn shard(&self, hash: u64) -> Option<&RwLock<NaiveShard>> {
        // The table inside the shard uses the low bits.
        self.shards.get(to_usize(hash >> SHARD_SHIFT))
    }

    /// Inserts or replaces an entry. `reserved_cost` is the budget reserved for it: its cost, or 0.
    fn insert(&self, key: &[u8], head: &[u8], body: &[u8], reserved_cost: u64) {
        let record = NaiveRecord::new(key, head, body);
        let (cost, payload) = (record.cost(), to_u64(record.payload_bytes()));
        let hash = self.context.hash.hash(key);
        let Some(shard) = self.shard(hash) else { return };
        if reserved_cost == 0 {
            self.context.budget.reserve_unchecked(cost);
        }
        let mut shard = write(shard);
        let before = shard.table.bucket_bytes();
        let old = shard.table.insert(hash, record);
        shard.live_bytes += payload;
        shard.charged += cost;
        self.account_for_removed(&mut shard, before, old);
    }

    fn remove(&self, key: &[u8]) {
        let hash = self.context.hash.hash(key);
        let Some(shard) = self.shard(hash) else { return };
        let mut shard = write(shard);
        let before = shard.table.bucket_bytes();
        let old = shard.table.remove(hash, key);
        self.account_for_removed(&mut shard, before, old);
    }

    /// Releases the budget of entries removed from the shard, and adjusts the budget to the new
    /// size of its bucket array.
    fn account_for_removed(
        &self,
        shard: &mut NaiveShard,
        bucket_bytes_before: u64,
        removed: impl IntoIterator<Item = NaiveRecord>,
    ) {
        for record in removed {
            let payload = to_u64(record.payload_bytes());
            shard.live_bytes -= payload;
            shard.charged -= record.cost();
            self.context.budget.release(record.cost());
            self.dead_bytes.fetch_add(payload, Ordering::Relaxed);
        }
        let after = shard.table.bucket_bytes();
        // The growth of the array cannot be refused here. It takes 8 bytes an entry, one shard at a
        // time.
        self.context.budget.reserve_unchecked(after.saturating_sub(bucket_bytes_before));
        self.context.budget.release(bucket_bytes_before.saturating_sub(after));
        shard.charged = shard.charged + after - bucket_bytes_before;
    }

    /// Takes `bytes` from what `admit` reserved. Returns `false` in replay, which admits nothing.
    fn take_reserved(&self, bytes: u64) -> bool {
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| held.checked_sub(bytes))
            .is_ok()
    }

    fn count_update(&self, bytes: usize) {
        let bytes = to_u64(bytes).max(1);
        let before = self.update_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before < self.snapshot_bytes && before + bytes >= self.snapshot_bytes {
            self.context.host.wake();
        }
    }

    /// Streams the table into `writer`, a step of entries at a time: memory is bounded.
    fn stream(&self, writer: &mut checkpoint::CheckpointWriter) -> Result<()> {
        let mut records: Vec<NaiveRecord> = Vec::new();
        for shard in &self.shards {
            let mut cursor = 0;
            loop {
                let mut bytes = 0;
                {
                    let shard = read(shard);
                    while records.len() < CHECKPOINT_STEP_ENTRIES && bytes < CHECKPOINT_STEP_BYTES {
                        cursor = shard.table.scan(cursor, |record| {
                            bytes += record.payload_bytes();
                            records.push(record.clone());
                        });
                        if cursor == 0 {
                            break;
                        }
                    }
                }
                for record in records.drain(..) {
                    if !self.context.host.is_expired(record.stored()) {
                        writer.entry(record.key(), record.stored())?;
                    }
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Writes a checkpoint that is complete to `lsn`, renames it to its final name, and removes the
    /// one before. Fails if the disk or the log sync fails; the one before remains then.
    fn write_checkpoint(&self, lsn: Lsn) -> Result<()> {
        let dir = &self.context.dir;
        let started = self.context.env.monotonic();
        let mut writer = checkpoint::CheckpointWriter::create(
            dir,
            self.label(checkpoint::UNFINISHED_NAME),
            &self.identity(lsn),
        )?;
        self.stream(&mut writer)?;
        let file_bytes = writer.finish()?;
        self.written_bytes_total.fetch_add(file_bytes, Ordering::Relaxed);
        mutant!(SnapshotSkipsLogSync: (), else self.context.host.sync_log()?);
        let name = checkpoint::name_of(lsn);
        mutant!(SnapshotRemovesOldFirst => remove_newest(dir, lock(&self.newest).name.as_deref()));
        dir.rename(checkpoint::UNFINISHED_NAME, &name)
            .and_then(|()| mutant!(SnapshotSkipsDirSync: Ok(()), else dir.sync()))
            .map_err(|error| Error::io(format!("publish {}", self.label(&name)), error))?;
        let newest = NewestCheckpoint { name: Some(name.clone()), lsn, file_bytes };
        let old = std::mem::replace(&mut *lock(&self.newest), newest);
        self.snapshots.add(self.context.env.monotonic().saturating_sub(started));
        if let Some(old) = old.name.filter(|old| *old != name) {
            // If this fails, the next open removes it.
            let _ = dir.remove(&old);
        }
        Ok(())
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        let charged: u64 = self.shards.iter().map(|shard| read(shard).charged).sum();
        self.context.budget.release(charged + self.reserved.load(Ordering::Relaxed));
    }
}

impl Engine for Naive {
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        let hash = self.context.hash.hash(key);
        let Some(shard) = self.shard(hash) else { return Ok(None) };
        Ok(read(shard).table.get(hash, key).map(|record| sink.of_value(record.value())))
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        sink.fill(keys.len(), |out| {
            for key in keys {
                out.push(self.get(key)?);
            }
            Ok(())
        })
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    fn prefetch(&self, _hint: Hint<'_, '_>) {}

    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        if let Op::Put { key, head, body } = op {
            let cost = cost(key.len() + head.len() + body.len());
            let budget = &self.context.budget;
            self.context.reserve_with_retry(wait, cost, || budget.reserve(cost))?;
            self.reserved.fetch_add(cost, Ordering::Relaxed);
        }
        Ok(())
    }

    fn admitted_bytes(&self, op: &Op<'_>) -> u64 {
        match op {
            Op::Put { key, head, body } => cost(key.len() + head.len() + body.len()),
            Op::Delete { .. } | Op::DeleteRange { .. } => 0,
        }
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, head, body } = op {
            let cost = cost(key.len() + head.len() + body.len());
            if self.take_reserved(cost) {
                self.context.budget.release(cost);
            }
        }
    }

    // All entries stay in memory.
    fn make_room(&self, _op: &Op<'_>) -> Result<()> {
        Ok(())
    }

    fn apply(&self, _lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { key, head, body } => {
                let bytes = key.len() + head.len() + body.len();
                let cost = cost(bytes);
                let reserved_cost = if self.take_reserved(cost) { cost } else { 0 };
                self.insert(key, head, body, reserved_cost);
                self.count_update(bytes);
                Ok(())
            }
            Op::Delete { key } => {
                self.remove(key);
                self.count_update(key.len());
                Ok(())
            }
            Op::DeleteRange { .. } => Err(unordered(&self.context, EngineKind::Naive)),
        }
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        let (mut number, mut cursor) = decode_cursor(from)?;
        let mut entries = Vec::new();
        while let Some(shard) = self.shards.get(number) {
            let shard = read(shard);
            loop {
                cursor = shard.table.scan(cursor, |record| {
                    entries.push(Entry { key: record.key().to_vec(), value: record.value() });
                });
                if cursor == 0 {
                    number += 1;
                    break;
                }
                if entries.len() >= limit {
                    break;
                }
            }
            if entries.len() >= limit {
                break;
            }
        }
        Ok((entries, encode_cursor(number, cursor)))
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        replay_one_by_one(self, ops)
    }

    fn hash_order(&self) -> Option<&dyn HashOrder> {
        Some(self)
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        None
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        let updates = self.update_bytes.load(Ordering::Relaxed);
        let dead = self.dead_bytes.load(Ordering::Relaxed);
        let wanted = self.checkpoint_wanted.swap(false, Ordering::Relaxed);
        if updates > 0 || wanted {
            if let Err(error) = self.write_checkpoint(up_to) {
                self.checkpoint_wanted.fetch_or(wanted, Ordering::Relaxed);
                // The disk may be full: release the space of the unfinished file.
                let _ = self.context.dir.remove(checkpoint::UNFINISHED_NAME);
                return Err(error);
            }
            self.update_bytes.fetch_sub(updates, Ordering::Relaxed);
            self.dead_bytes.fetch_sub(dead, Ordering::Relaxed);
        }
        let mut lsn = lock(&self.newest).lsn;
        mutant!(SnapshotClaimsItsEnd => lsn.0 += self.update_bytes.load(Ordering::Relaxed));
        Ok(lsn)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        if mode == MaintenanceMode::SpaceStep {
            // A checkpoint writes all entries anew.
            return Ok(());
        }
        for shard in &self.shards {
            let mut cursor = 0;
            loop {
                let mut shard = write(shard);
                let mut removed = Vec::new();
                cursor = shard.table.sweep(
                    cursor,
                    |record| self.context.host.is_expired(record.stored()),
                    |record| removed.push(record),
                );
                let before = shard.table.bucket_bytes();
                if cursor == 0 {
                    shard.table.shrink();
                }
                self.account_for_removed(&mut shard, before, removed);
                if cursor == 0 {
                    break;
                }
            }
        }
        if self.dead_bytes.load(Ordering::Relaxed) > 0 {
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
        Ok(())
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        let newest = lock(&self.newest).clone();
        let Some(name) = newest.name else { return Ok(()) };
        let label = self.label(&name);
        let file = match self.context.dir.open(&name, Open::READ) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                report.add(label, 0, "the newest checkpoint file is missing");
                return Ok(());
            }
            Err(error) => return Err(Error::io(format!("open {label}"), error)),
        };
        // The check must read the disk, not the page cache.
        let _ = file.drop_cache();
        match checkpoint::load(&*file, &label, &self.identity(newest.lsn), &mut |_, _| {}) {
            Ok(summary) => {
                report.checked_bytes += summary.file_bytes;
                report.checked_entries += summary.entries;
                Ok(())
            }
            Err(Error::Corruption { file, offset, what }) => {
                report.add(file, offset, what);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn reclaim(&self, _bytes: u64) -> u64 {
        0
    }

    fn stats(&self) -> EngineStats {
        let mut stats = EngineStats::default();
        for shard in &self.shards {
            let shard = read(shard);
            stats.keys += to_u64(shard.table.len());
            stats.live_bytes += shard.live_bytes;
            stats.memory_bytes += shard.charged;
        }
        let newest = lock(&self.newest).clone();
        stats.file_bytes = newest.file_bytes;
        stats.dead_bytes = self.dead_bytes.load(Ordering::Relaxed).min(newest.file_bytes);
        stats.index_bytes = stats.memory_bytes - stats.live_bytes;
        stats.written_bytes_total = self.written_bytes_total.load(Ordering::Relaxed);
        stats.details = vec![
            ("snapshots_total", self.snapshots.count()),
            ("snapshot_micros_total", self.snapshots.micros()),
            ("snapshot_lsn", newest.lsn.0),
            ("update_bytes", self.update_bytes.load(Ordering::Relaxed)),
        ];
        stats
    }

    fn pending_work(&self) -> PendingWork {
        let updates = self.update_bytes.load(Ordering::Relaxed);
        if updates >= self.snapshot_bytes || self.checkpoint_wanted.load(Ordering::Relaxed) {
            PendingWork::Checkpoint
        } else {
            PendingWork::None
        }
    }
}

impl HashOrder for Naive {
    /// The shard is the high bits of the hash; in it, the low bits decide, the lowest first.
    fn position(&self, _key: &[u8], hash: u64) -> u64 {
        hash >> SHARD_SHIFT << SHARD_SHIFT | (hash << (64 - SHARD_SHIFT)).reverse_bits()
    }

    fn cursor_position(&self, cursor: &Cursor) -> Result<u64> {
        let (shard, cursor) = decode_cursor(cursor)?;
        Ok(to_u64(shard) << SHARD_SHIFT | cursor.reverse_bits() >> (64 - SHARD_SHIFT))
    }
}

/// Encodes the position of a scan: the shard's number, then the cursor in its table.
fn encode_cursor(shard: usize, cursor: u64) -> Cursor {
    match u8::try_from(shard).ok().filter(|_| shard < SHARD_COUNT) {
        None => Cursor::START,
        Some(shard) => {
            let mut bytes = vec![shard];
            bytes.extend_from_slice(&cursor.to_le_bytes());
            Cursor(bytes)
        }
    }
}

fn decode_cursor(cursor: &Cursor) -> Result<(usize, u64)> {
    if cursor.is_start() {
        return Ok((0, 0));
    }
    let mut decoder = Decoder::new(&cursor.0);
    match (decoder.u8(), decoder.u64(), decoder.is_empty()) {
        (Some(shard), Some(cursor), true) if usize::from(shard) < SHARD_COUNT => {
            Ok((usize::from(shard), cursor))
        }
        _ => Err(Cursor::unknown()),
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests;
