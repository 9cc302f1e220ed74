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
        Durability,
        api::options::Condition,
        core::{Core, Status, TableState},
        expiry::{Listing, rests},
    },
    io::Next,
    util::{
        mutant::mutant,
        sync::{Mutex, Ordering, lock},
    },
};

/// Number of index entries in one step, which takes a fraction of a millisecond.
const STEP_ENTRIES: usize = 32;
/// The sweep uses at most one part in this many of a core.
const SHARE: u32 = 4;
/// Bounds of the pause between steps. The upper bound is also the minimum time between two looks at
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
pub(crate) struct Sweep {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// After the last entry of this pass that was processed; empty: the start.
    from: Vec<u8>,
    /// Number of entries of this pass that could not be swept.
    kept: u64,
    /// When this pass began.
    began: Duration,
    /// Number of keys swept since the table was last compacted, by table number; includes the
    /// index.
    swept: HashMap<u64, u64>,
    /// Position of the pass that removes entries of dropped tables.
    purge: Option<Cursor>,
}

/// The work that is left after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Entries that were due at this time.
    Due(u64),
    /// Entries of dropped tables.
    Dropped,
    /// Nothing before this time.
    Later(u64),
    /// Entries that could not be swept.
    Kept,
    Nothing,
}

impl Sweep {
    /// Runs one step and returns when the next one is due.
    pub(crate) fn run(&self, core: &Core) -> Next {
        let Some(index) = core.expiries.index() else { return Next::WhenWoken };
        // A failed log takes no deletes, and a stopped index takes no changes.
        if core.log.failure().is_some() || !index.is_live() {
            return Next::WhenWoken;
        }
        let started = core.env.monotonic();
        let left = lock(&self.state).step(core, index);
        let spent = core.env.monotonic().saturating_sub(started);
        let pause = (spent * (SHARE - 1)).clamp(PAUSE_MIN, PAUSE_MAX);
        let now = core.shared.clock.now();
        let until = |time: u64| Duration::from_millis(time.saturating_sub(now));
        match left {
            Ok(Left::Due(time)) if now.saturating_sub(time) > LAG_MAX => Next::Now,
            Ok(Left::Due(_) | Left::Dropped) => Next::After(pause),
            Ok(Left::Later(time)) => Next::After(until(time).clamp(PAUSE_MAX, SLEEP_MAX)),
            Ok(Left::Kept) => Next::After(SLEEP_MAX),
            Ok(Left::Nothing) => Next::WhenWoken,
            // A full disk may have space later.
            Err(_) => Next::After(RETRY_PAUSE),
        }
    }
}

impl State {
    fn step(&mut self, core: &Core, index: &TableState) -> Result<Left> {
        core.check_open()?;
        let now = core.shared.clock.now();
        let due = due_entries(index, &self.from, now, STEP_ENTRIES)?;
        let Some(first) = due.first().and_then(|entry| Listing::decode(&entry.key)) else {
            return self.rest(core, index, now);
        };
        for entry in &due {
            self.settle(core, index, entry)?;
            self.from = [&entry.key, &[0][..]].concat();
        }
        Ok(Left::Due(first.time))
    }

    /// Does the remaining work when nothing is due.
    fn rest(&mut self, core: &Core, index: &TableState, now: u64) -> Result<Left> {
        // Entries that could not be swept are tried again after a pause, not with every due value.
        let monotonic = core.env.monotonic();
        if self.kept == 0 || monotonic.saturating_sub(self.began) >= SLEEP_MAX {
            self.from.clear();
            self.kept = 0;
            self.began = monotonic;
        }
        if core.expiries.purge_wanted.swap(false, Ordering::AcqRel) {
            self.purge = Some(Cursor::START);
        }
        if let Some(from) = self.purge.take() {
            self.purge = purge(core, index, &from)?;
            return Ok(Left::Dropped);
        }
        self.compact(core)?;
        // From here on, a writer that adds an earlier entry than this step sees wakes the sweep.
        core.expiries.next_look.store(u64::MAX, Ordering::SeqCst);
        let coming = (now.saturating_add(1)).to_be_bytes();
        let range = KeyRange { start: Some(coming.to_vec()), end: None };
        let next = first_entry(index, range)?;
        let Some(time) = next.and_then(|entry| Some(Listing::decode(&entry.key)?.time)) else {
            return Ok(if self.kept > 0 { Left::Kept } else { Left::Nothing });
        };
        let look = time.max(now.saturating_add(1) + to_millis(PAUSE_MAX));
        core.expiries.next_look.fetch_min(look, Ordering::SeqCst);
        Ok(Left::Later(time))
    }

    /// Sweeps one entry.
    fn settle(&mut self, core: &Core, index: &TableState, entry: &Entry) -> Result<()> {
        let Some(listing) = Listing::decode(&entry.key) else {
            let what = "the key of an entry is none that was listed";
            return Err(Error::corruption(format!("tables/{}", index.id), 0, what));
        };
        let Some(table) = core.table_by_id(listing.table_id) else {
            self.count(index);
            return core.forget_entry(index, &entry.key);
        };
        if entry.value.is_empty() {
            return self.settle_one(core, index, &table, &listing);
        }
        for rest in rests(&entry.value) {
            let key = [listing.key, rest].concat();
            self.settle_one(core, index, &table, &Listing { key: &key, ..listing })?;
        }
        Ok(())
    }

    fn settle_one(
        &mut self,
        core: &Core,
        index: &TableState,
        table: &TableState,
        listing: &Listing<'_>,
    ) -> Result<()> {
        match core.sweep(table, listing) {
            Ok(deleted) => {
                self.count(index);
                if deleted {
                    self.count(table);
                }
            }
            // These errors hold for all entries.
            Err(error @ (Error::LogFailed { .. } | Error::DiskFull { .. } | Error::Closed)) => {
                return Err(error);
            }
            Err(_) => self.kept += 1,
        }
        Ok(())
    }

    fn count(&mut self, table: &TableState) {
        *self.swept.entry(table.id).or_default() += 1;
    }

    /// Compacts the tables that have many swept keys and dead bytes.
    fn compact(&mut self, core: &Core) -> Result<()> {
        let swept: Vec<_> = self.swept.iter().map(|(id, count)| (*id, *count)).collect();
        for (id, count) in swept {
            let table = core.table_by_id(id);
            let Some(table) = table.filter(|table| table.status() == Status::Open) else {
                self.swept.remove(&id);
                continue;
            };
            let stats = table.engine.stats();
            let much = count * COMPACT_SHARE > stats.keys + count
                && stats.dead_bytes * COMPACT_SHARE > stats.file_bytes;
            if much {
                self.swept.remove(&id);
                core.compact(&table)?;
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
        let table_id = Listing::decode(&entry.key).map(|listing| listing.table_id);
        if table_id.is_some_and(|id| core.table_by_id(id).is_none()) {
            core.forget_entry(index, &entry.key)?;
        }
    }
    Ok((!next.is_start()).then_some(next))
}

impl Core {
    /// Deletes the value of an entry if it is expired, and removes the entry. Returns whether a
    /// value was deleted.
    pub(crate) fn sweep(&self, table: &TableState, listing: &Listing<'_>) -> Result<bool> {
        let condition = Condition::Expired { time: listing.time };
        let delete = Op::Delete { key: listing.key };
        let deleted = self.commit_one(table, &delete, condition, Durability::Buffered)?;
        if deleted {
            self.counters.expired_swept.fetch_add(1, Ordering::Relaxed);
        }
        mutant!(SweepUnlistsOutsideStripe => self.unlist(listing)?);
        Ok(deleted)
    }
}
