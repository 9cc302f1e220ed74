//! The sweep: deletes expired values in the order of their expiry.
//!
//! A background job reads the start of the expiry index ([`expiry`](crate::db::expiry)) up to the
//! present. For each entry it checks the value under its key's stripe, deletes an expired value
//! through the normal commit path, and removes the entry. So space is released without a reader, at
//! a cost that depends on the expired values only. A job that scanned the tables would read ten
//! million values to find one that has expired.
//!
//! The sweep works in steps of [`STEP_ENTRIES`] and uses at most one part in [`SHARE`] of a core,
//! so that it hardly slows other work. If a due entry is more than [`LAG_MAX`] late, it runs
//! without pauses. It sleeps until the next value expires, or until it is woken if no value will.
//!
//! Two more tasks run here in steps. After a table was dropped, one pass over the index removes its
//! entries. When nothing is due, a table with many swept keys is compacted, if its engine reports
//! enough dead bytes.
//!
//! Invariants:
//! - A value is deleted only if it is expired when it is checked under its stripe.
//! - An entry is removed after its value, or if no value with this expiry exists.
//! - An entry that cannot be swept (a stopped table, damage) stays, does not block other entries,
//!   and is tried again.

use std::{collections::HashMap, time::Duration};

use crate::{
    Error, Result,
    contract::{Cursor, Engine as _, Entry, KeyRange, Op},
    db::{
        core::condition::Condition,
        core::{Core, durability::Durability},
        expiry::{ExpiryEntry, entry::key_suffixes},
        tables::state::{TableState, TableStatus},
    },
    io::NextRun,
    util::{
        mutant::mutant,
        sync::{Mutex, Ordering, lock},
    },
};

/// Number of index entries in one step, which takes a fraction of a millisecond.
const STEP_ENTRIES: usize = 32;
/// The sweep uses at most one part in this many of a core.
const SHARE: u32 = 4;
/// Bounds of the pause between steps. The upper bound is also the minimum time between two reads of
/// the index, so that values that expire one by one are swept in groups.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Maximum sleep. The wall clock may jump meanwhile.
const SLEEP_MAX: Duration = Duration::from_mins(1);
/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Milliseconds that a due entry may be late before the sweep runs without pauses.
const LAG_MAX: u64 = 10_000;
/// A table is compacted when more than one in this many keys has been swept, and more than one in
/// this many bytes of its files is dead.
const COMPACT_SHARE: u64 = 4;

/// The sweep of one database.
#[derive(Debug, Default)]
pub(super) struct ExpirySweep {
    state: Mutex<SweepState>,
}

#[derive(Debug, Default)]
struct SweepState {
    /// Where this pass continues: a key of the index; empty: the start.
    position: Vec<u8>,
    /// Number of entries of this pass that could not be swept.
    failed_entries: u64,
    /// When this pass began.
    began: Duration,
    /// Number of keys swept since the table was last compacted, by table number; includes the
    /// index.
    swept: HashMap<u64, u64>,
    /// Position of the pass that removes entries of dropped tables.
    purge: Option<Cursor>,
}

/// The work that remains after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemainingWork {
    /// Entries that were due at this time.
    Due(u64),
    /// Entries of dropped tables.
    Dropped,
    /// Nothing before this time.
    Later(u64),
    /// Entries that could not be swept.
    Failed,
    Nothing,
}

impl ExpirySweep {
    /// Runs one step and returns when the next one is due.
    pub(super) fn run(&self, core: &Core) -> NextRun {
        let Some(index) = core.expiry.table() else { return NextRun::WhenWoken };
        // A failed log takes no deletes, and a stopped index takes no changes.
        if core.log.failure().is_some() || !index.is_live() {
            return NextRun::WhenWoken;
        }
        let started = core.env.monotonic();
        let remaining = lock(&self.state).step(core, index);
        let spent = core.env.monotonic().saturating_sub(started);
        let pause = (spent * (SHARE - 1)).clamp(PAUSE_MIN, PAUSE_MAX);
        let now = core.host.clock.now();
        let until = |time: u64| Duration::from_millis(time.saturating_sub(now));
        match remaining {
            Ok(RemainingWork::Due(time)) if now.saturating_sub(time) > LAG_MAX => NextRun::Now,
            Ok(RemainingWork::Due(_) | RemainingWork::Dropped) => NextRun::After(pause),
            Ok(RemainingWork::Later(time)) => {
                NextRun::After(until(time).clamp(PAUSE_MAX, SLEEP_MAX))
            }
            Ok(RemainingWork::Failed) => NextRun::After(SLEEP_MAX),
            Ok(RemainingWork::Nothing) => NextRun::WhenWoken,
            // A full disk may have space later.
            Err(_) => NextRun::After(RETRY_PAUSE),
        }
    }
}

impl SweepState {
    fn step(&mut self, core: &Core, index: &TableState) -> Result<RemainingWork> {
        core.tables.check_open()?;
        let now = core.host.clock.now();
        let due = due_entries(index, &self.position, now, STEP_ENTRIES)?;
        let Some(first) = due.first().and_then(|entry| ExpiryEntry::decode(&entry.key)) else {
            return self.work_without_due_entries(core, index, now);
        };
        for entry in &due {
            self.sweep_entry(core, index, entry)?;
            self.position = [&entry.key, &[0][..]].concat();
        }
        Ok(RemainingWork::Due(first.time))
    }

    /// Removes entries of dropped tables, or compacts tables, and finds out when the next entry is
    /// due.
    fn work_without_due_entries(
        &mut self,
        core: &Core,
        index: &TableState,
        now: u64,
    ) -> Result<RemainingWork> {
        // Entries that could not be swept are tried again after a pause, not with every due value.
        let monotonic = core.env.monotonic();
        if self.failed_entries == 0 || monotonic.saturating_sub(self.began) >= SLEEP_MAX {
            self.position.clear();
            self.failed_entries = 0;
            self.began = monotonic;
        }
        if core.expiry.purge_wanted.swap(false, Ordering::AcqRel) {
            self.purge = Some(Cursor::START);
        }
        if let Some(from) = self.purge.take() {
            self.purge = purge(core, index, &from)?;
            return Ok(RemainingWork::Dropped);
        }
        self.compact(core)?;
        // From here on, a writer that adds an earlier entry than this step sees wakes the sweep.
        core.expiry.next_sweep.store(u64::MAX, Ordering::SeqCst);
        let coming = (now.saturating_add(1)).to_be_bytes();
        let range = KeyRange { start: Some(coming.to_vec()), end: None };
        let next = first_entry(index, range)?;
        let Some(time) = next.and_then(|entry| Some(ExpiryEntry::decode(&entry.key)?.time)) else {
            let has_failed = self.failed_entries > 0;
            return Ok(if has_failed { RemainingWork::Failed } else { RemainingWork::Nothing });
        };
        let next_sweep = time.max(now.saturating_add(1) + to_millis(PAUSE_MAX));
        core.expiry.next_sweep.fetch_min(next_sweep, Ordering::SeqCst);
        Ok(RemainingWork::Later(time))
    }

    /// Sweeps the keys of one entry of the index.
    fn sweep_entry(&mut self, core: &Core, index: &TableState, stored: &Entry) -> Result<()> {
        let Some(entry) = ExpiryEntry::decode(&stored.key) else {
            let what = "a key of the expiry index is not the key of an entry";
            return Err(Error::corruption(format!("tables/{}", index.id), 0, what));
        };
        let table = match core.open_table(entry.table_id) {
            Ok(Some(table)) => table,
            Ok(None) => {
                self.count_swept(index);
                return core.expiry.remove_orphan(index, &stored.key);
            }
            Err(Error::Closed) => return Err(Error::Closed),
            // A damaged table keeps its entries, and does not keep others from being swept.
            Err(_) => {
                self.failed_entries += 1;
                return Ok(());
            }
        };
        if stored.value.is_empty() {
            return self.sweep_key(core, index, &table, &entry);
        }
        for suffix in key_suffixes(&stored.value) {
            let key = [entry.key, suffix].concat();
            self.sweep_key(core, index, &table, &ExpiryEntry { key: &key, ..entry })?;
        }
        Ok(())
    }

    fn sweep_key(
        &mut self,
        core: &Core,
        index: &TableState,
        table: &TableState,
        entry: &ExpiryEntry<'_>,
    ) -> Result<()> {
        match delete_expired(core, table, entry) {
            Ok(deleted) => {
                self.count_swept(index);
                if deleted {
                    self.count_swept(table);
                }
            }
            // These errors hold for all entries.
            Err(error @ (Error::LogFailed { .. } | Error::DiskFull { .. } | Error::Closed)) => {
                return Err(error);
            }
            Err(_) => self.failed_entries += 1,
        }
        Ok(())
    }

    fn count_swept(&mut self, table: &TableState) {
        *self.swept.entry(table.id).or_default() += 1;
    }

    /// Compacts the tables that have many swept keys and dead bytes.
    fn compact(&mut self, core: &Core) -> Result<()> {
        let swept: Vec<_> = self.swept.iter().map(|(id, count)| (*id, *count)).collect();
        for (id, count) in swept {
            let table = core.tables.find(id);
            let Some(table) = table.filter(|table| table.status() == TableStatus::Open) else {
                self.swept.remove(&id);
                continue;
            };
            let stats = table.engine.stats();
            let is_due = count * COMPACT_SHARE > stats.keys + count
                && stats.dead_bytes * COMPACT_SHARE > stats.file_bytes;
            if is_due {
                self.swept.remove(&id);
                core.checkpoints.compact(&core.tables, &table)?;
            }
        }
        Ok(())
    }
}

fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the first due entries at or after `from`.
fn due_entries(index: &TableState, from: &[u8], now: u64, limit: usize) -> Result<Vec<Entry>> {
    let end = now.checked_add(1).map(|end| end.to_be_bytes().to_vec());
    let range = KeyRange { start: Some(from.to_vec()), end };
    match index.engine.ordered() {
        Some(ordered) => ordered.range(range)?.take(limit).collect(),
        None => Ok(Vec::new()),
    }
}

/// Returns the first entry of a range of the index.
fn first_entry(index: &TableState, range: KeyRange) -> Result<Option<Entry>> {
    let entries = index.engine.ordered().map(|ordered| ordered.range(range)).transpose()?;
    entries.and_then(|mut entries| entries.next()).transpose()
}

/// Removes entries of dropped tables, one step from `from`. Returns where to continue, or `None` at
/// the end.
fn purge(core: &Core, index: &TableState, from: &Cursor) -> Result<Option<Cursor>> {
    let (entries, next) = index.engine.scan(from, STEP_ENTRIES)?;
    for entry in entries {
        let table_id = ExpiryEntry::decode(&entry.key).map(|entry| entry.table_id);
        if table_id.is_some_and(|id| !core.tables.exists(id)) {
            core.expiry.remove_orphan(index, &entry.key)?;
        }
    }
    Ok((!next.is_start()).then_some(next))
}

/// Deletes the value of an entry if it is expired, and removes the entry. Returns whether a value
/// was deleted.
pub(crate) fn delete_expired(
    core: &Core,
    table: &TableState,
    entry: &ExpiryEntry<'_>,
) -> Result<bool> {
    let condition = Condition::Expired { time: entry.time };
    let delete = Op::Delete { key: entry.key };
    let deleted = core.commit_one(table, &delete, condition, Durability::Buffered)?;
    if deleted {
        core.counters.expired_swept.fetch_add(1, Ordering::Relaxed);
    }
    mutant!(SweepUnlistsOutsideStripe => core.expiry.remove(entry)?);
    Ok(deleted)
}
