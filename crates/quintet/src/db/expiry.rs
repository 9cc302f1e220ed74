//! Values that go away: the clock that says when, and the sweep that removes them.
//!
//! What: a value carries its absolute expiry in its envelope and is invisible from that moment on.
//! A background job scans tables that may hold such values and deletes the expired ones through
//! the normal commit path; then it has the engine compact where much had expired.
//! Why: reads pay one comparison and only for values that expire; space comes back without a
//! reader.
//!
//! Invariants: the clock never goes back while the database is open, so a value that was once
//! invisible stays so; the sweep looks at the value again under the key's stripe, so it never
//! deletes a newer one.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Durability,
    core::{Core, Status, TableState},
    envelope::Envelope,
    options::Condition,
};
use crate::{
    Result,
    disk::{Env, Next},
    engine::{Cursor, Engine as _, Op},
    seeded::{self, Bug},
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Entries that one step of the sweep looks at.
const STEP_ENTRIES: usize = 256;
/// Between steps, where little is expired.
const PAUSE: Duration = Duration::from_millis(100);
/// Between passes over a table.
const PASS_PAUSE: Duration = Duration::from_secs(1);
/// The sweep goes on at once while more than one entry in this many is expired.
const URGENT_SHARE: usize = 4;

/// Milliseconds since 1970 that never go back.
#[derive(Debug)]
pub(super) struct Clock {
    env: Arc<dyn Env>,
    latest: AtomicU64,
}

impl Clock {
    pub(super) fn new(env: Arc<dyn Env>) -> Self {
        Self { env, latest: AtomicU64::new(0) }
    }

    /// The time now.
    pub(super) fn now(&self) -> u64 {
        let now = self.env.unix_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if now <= latest {
            return latest;
        }
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

/// Where the sweep is, table by table.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    places: Mutex<HashMap<u64, Place>>,
}

/// The sweep's place in one table.
#[derive(Debug, Default)]
struct Place {
    cursor: Cursor,
    /// Seen in this pass: entries, those that will expire, and those that had.
    seen: usize,
    expiring: usize,
    expired: usize,
}

/// What one step over a table found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Much is expired: go on at once.
    Urgent,
    /// Go on after a pause.
    Unhurried,
    /// The pass is over.
    PassOver,
}

impl Sweep {
    /// One step over each table that may hold values that expire.
    pub(super) fn run(&self, core: &Core) -> Next {
        let mut next = Next::WhenWoken;
        let sooner = |next: Next, other: Next| match (next, other) {
            (Next::Now, _) | (_, Next::Now) => Next::Now,
            (Next::After(one), Next::After(other)) => Next::After(one.min(other)),
            (Next::WhenWoken, other) | (other, Next::WhenWoken) => other,
        };
        let mut places = lock(&self.places);
        for table in core.all_tables() {
            let sweepable =
                table.status() == Status::Open && table.may_expire.load(Ordering::Acquire);
            if core.is_closed() || !sweepable {
                places.remove(&table.id);
                continue;
            }
            let place = places.entry(table.id).or_default();
            let wanted = match step(core, &table, place) {
                Ok(Step::Urgent) => Next::Now,
                Ok(Step::Unhurried) => Next::After(PAUSE),
                Ok(Step::PassOver) | Err(_) if table.may_expire.load(Ordering::Acquire) => {
                    Next::After(PASS_PAUSE)
                }
                Ok(Step::PassOver) => Next::WhenWoken,
                // A log that failed takes no deletes; a full disk may have room later.
                Err(_) => Next::After(PASS_PAUSE),
            };
            next = sooner(next, wanted);
        }
        places.retain(|id, _| core.table_by_id(*id).is_some());
        if core.log.failure().is_some() { Next::WhenWoken } else { next }
    }
}

fn step(core: &Core, table: &Arc<TableState>, place: &mut Place) -> Result<Step> {
    if place.cursor.is_start() {
        *place = Place::default();
        // Set again by any put of a value that expires while this pass goes on.
        table.may_expire.store(false, Ordering::Release);
    }
    let outcome = step_on(core, table, place);
    if outcome.is_err() || place.expiring > place.expired || !place.cursor.is_start() {
        table.may_expire.store(true, Ordering::Release);
    }
    outcome
}

/// Deletes a key whose value was seen to be expired, if it still is.
pub(super) fn remove_expired(core: &Core, table: &TableState, key: &[u8]) -> Result<()> {
    let looks_again = !seeded::active(Bug::SweepDoesNotLookAgain);
    let condition = if looks_again { Condition::Expired } else { Condition::Always };
    if core.commit_one(table, &Op::Delete { key }, condition, Durability::Buffered)? {
        core.counters.expired_swept.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn step_on(core: &Core, table: &Arc<TableState>, place: &mut Place) -> Result<Step> {
    let (entries, cursor) = table.engine.scan(&place.cursor, STEP_ENTRIES)?;
    let now = core.shared.clock.now();
    let (seen, mut expired) = (entries.len(), 0);
    for entry in entries {
        let envelope = Envelope::decode(&entry.value).map(|(envelope, _)| envelope);
        let Some(envelope) = envelope.filter(|envelope| envelope.expires_at.is_some()) else {
            continue;
        };
        place.expiring += 1;
        if envelope.is_expired(now) {
            expired += 1;
            remove_expired(core, table, &entry.key)?;
        }
    }
    place.cursor = cursor;
    place.seen += seen;
    place.expired += expired;
    if place.cursor.is_start() {
        if place.expired * URGENT_SHARE > place.seen {
            core.compact(table)?;
        }
        return Ok(Step::PassOver);
    }
    Ok(if expired * URGENT_SHARE > seen { Step::Urgent } else { Step::Unhurried })
}
