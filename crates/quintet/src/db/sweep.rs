//! The sweep: deletes what has expired, in the order in which it did.
//!
//! What: a background job that reads the front of the expiry index ([`expiry`](super::expiry)) up
//! to the present, looks at the value behind each entry under its key's stripe, deletes it through
//! the normal commit path if it is expired, and removes the entry.
//! Why: space comes back without a reader, and costs what expires, not what exists. A job that
//! scanned the tables would read ten million values to find the one that has gone.
//!
//! It works in steps of [`STEP_ENTRIES`] and takes at most one part in [`SHARE`] of a core, so
//! that those who work beside it hardly notice; if what is due is more than [`LAG_MAX`] late, all
//! of it. It sleeps until the first value expires, and for good where none will.
//!
//! Two things more happen here, in steps too. After a table was dropped, one pass over the index
//! removes its entries. And when nothing is left to sweep, a table of which much has gone is
//! compacted, if its engine says that this gives back much.
//!
//! Invariants: a value is deleted only if it is expired when it is looked at under its stripe. An
//! entry goes only after its value has, or when there is none that expires then. What cannot be
//! swept (a stopped table, damage) keeps its entry, keeps nobody else's from being swept, and is
//! tried again.

use std::{collections::HashMap, time::Duration};

use super::{
    Durability,
    core::{Core, Status, TableState},
    expiry::{Listing, rests},
    options::Condition,
};
use crate::{
    Error, Result,
    contract::{Cursor, Engine as _, Entry, KeyRange, Op},
    io::Next,
    util::{
        mutant::{self, Bug},
        sync::{Mutex, Ordering, lock},
    },
};

/// Entries of the index that one step looks at: a fraction of a millisecond.
const STEP_ENTRIES: usize = 32;
/// The sweep takes one part in this many of a core.
const SHARE: u32 = 4;
/// Bounds of a pause between steps. The upper one is also the least time between two looks at what
/// has expired: what expires one by one is swept in groups.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// The longest sleep: the wall clock may have jumped meanwhile.
const SLEEP_MAX: Duration = Duration::from_mins(1);
/// After a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Milliseconds that the sweep may be late before it stops sparing others.
const LAG_MAX: u64 = 10_000;
/// A table is compacted when more than one of this many keys has been swept, and more than one of
/// this many bytes of its files is dead.
const COMPACT_SHARE: u64 = 4;

/// Where the sweep is.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Behind the last entry looked at in this pass; empty: at the front.
    from: Vec<u8>,
    /// Entries of this pass that could not be swept.
    kept: u64,
    /// When this pass began.
    began: Duration,
    /// Swept since the table was last compacted, by the table's number; the index is one.
    swept: HashMap<u64, u64>,
    /// Where the pass for dropped tables is.
    purge: Option<Cursor>,
}

/// What a step leaves to do.
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
    /// One step.
    pub(super) fn run(&self, core: &Core) -> Next {
        let Some(index) = core.expiries.index() else { return Next::WhenWoken };
        // A log that failed takes no deletes, and an index that stopped has nothing to say.
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
            // A full disk may have room later.
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

    /// Nothing more is due: what else there is to do.
    fn rest(&mut self, core: &Core, index: &TableState, now: u64) -> Result<Left> {
        // What could not be swept is not tried again with every value that comes due.
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
        // From here on whoever lists an earlier time than is seen here wakes the sweep.
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
            // The log is full or has failed: so it is for the others.
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

    /// Compacts tables of which much has gone.
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

/// The first entries from `from` on that are due.
fn due_entries(index: &TableState, from: &[u8], now: u64, limit: usize) -> Result<Vec<Entry>> {
    let end = now.checked_add(1).map(|end| end.to_be_bytes().to_vec());
    let range = KeyRange { start: Some(from.to_vec()), end };
    match index.engine.ordered() {
        Some(ordered) => ordered.range(range)?.take(limit).collect(),
        None => Ok(Vec::new()),
    }
}

/// The first entry of a range of the expiry index, which is an ordered table.
fn first_entry(index: &TableState, range: KeyRange) -> Result<Option<Entry>> {
    let entries = index.engine.ordered().map(|ordered| ordered.range(range)).transpose()?;
    entries.and_then(|mut entries| entries.next()).transpose()
}

/// Removes entries of tables that are gone, from `from` on; where to go on, unless it is over.
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
    /// Deletes the value behind an entry if it is expired, and removes the entry. Says whether
    /// there was one to delete.
    pub(super) fn sweep(&self, table: &TableState, listing: &Listing<'_>) -> Result<bool> {
        let condition = Condition::Expired { time: listing.time };
        let delete = Op::Delete { key: listing.key };
        let deleted = self.commit_one(table, &delete, condition, Durability::Buffered)?;
        if deleted {
            self.counters.expired_swept.fetch_add(1, Ordering::Relaxed);
        }
        if mutant::active(Bug::SweepUnlistsOutsideStripe) {
            self.unlist(listing)?;
        }
        Ok(deleted)
    }
}
