//! Parallel replay of the log into the tables, when a database is opened.
//!
//! The reading thread reads the log and collects its operations in batches. Each batch distributes
//! its operations by key over *lanes*. Helper threads, one for each processor, apply the lanes of
//! the oldest batch meanwhile; the reading thread helps when the queue of batches is full. Reading,
//! checking and decoding records takes about as long as applying them, so replay runs both at the
//! same time.
//!
//! Invariants:
//! - Operations on one key are in one lane, in the order of the log. A batch begins when the batch
//!   before it has been applied. Engines accept operations on different keys in any order and from
//!   several threads.
//! - A record with an operation that is not on one key is applied alone, after everything before
//!   it. The reading thread itself applies operations whose entries are heap allocations, because
//!   memory that a helper thread allocates could not be reused by other threads after its end.
//! - The number and the size of batches are bounded, however long the log is.
//! - Replay keeps the memory budget. Engines write nothing that depends on the log while it is
//!   recovered. If memory becomes short, or a record is too large, replay stops there. The log is
//!   recovered to its end, and the rest is replayed as writes ([`super::replay_writes`]). A
//!   database opened read-only exceeds the budget instead.
//!
//! Threads: one thread reads, any thread applies. No thread waits with a lock held.

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    mutants,
    replay_rounds::ReplayPace,
    target::{ReplayTable, ReplayTarget},
};
use crate::{
    Error, Result,
    contract::{Engine as _, Op},
    db::{encoding::operations::Ops, expiry::ExpiryEntry, tables::state::TableState},
    io::{Dir, Env},
    util::{
        budget::Budget,
        codec::{Lsn, crc32c, low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU32, Backoff, Mutex, Ordering, lock},
    },
    wal::{Anchor, Log, LogOptions},
};

/// Bounds of the bytes of operations in all batches.
const BATCHED_BYTES_MAX: usize = 4 << 20;
const BATCHED_BYTES_MIN: usize = 64 << 10;
/// Between these bounds, batches use one part in this many of the memory budget.
const BATCHED_SHARE: u64 = 32;
/// Number of batches: one that is being filled, one that is being applied, and a queue between the
/// two. Batches are small enough to stay in the processor's cache until they are applied.
const BATCHES: usize = 8;
/// Number of lanes of a batch.
const LANES: usize = 8;
/// Operations on longer keys are applied alone, because expiry entries of very long keys share one
/// key of the index.
const LANE_KEY_BYTES_MAX: usize = 4 << 10;
/// Maximum number of operations that an engine replays in one call: enough to overlap the cache
/// misses of several operations.
const REPLAY_OPS: usize = 32;
/// The size that stands for the missing value of a delete.
const NO_VALUE: u32 = u32::MAX;

/// Replay may exceed the budget by one part in this many of it, and at most this many bytes, before
/// the rest of the log is replayed as writes.
const OVERSHOOT_SHARE: u64 = 16;
const OVERSHOOT_BYTES_MAX: u64 = 8 << 20;

/// Opens the log and replays it. Returns the LSN of the first record that is not replayed because
/// memory is short, or because `pace` ends the first step. [`super::replay_writes`] continues
/// there.
pub(super) fn open_log(
    env: &Arc<dyn Env>,
    dir: &Arc<dyn Dir>,
    options: &LogOptions,
    anchor: &Anchor,
    (target, budget): (&ReplayTarget<'_>, &Arc<Budget>),
    pace: ReplayPace,
) -> Result<(Log, Option<Lsn>)> {
    let share = usize::try_from(budget.limit() / BATCHED_SHARE).unwrap_or(usize::MAX);
    let bytes_max = share.clamp(BATCHED_BYTES_MIN, BATCHED_BYTES_MAX);
    // The lanes need about as much as the bytes of short records.
    let _memory = budget.reserve_transient(to_u64(2 * bytes_max));
    let replay = ParallelReplay::new(target, bytes_max / BATCHES);
    let opened = Mutex::new(None);
    env.parallel(LANES + 1, &|thread| {
        if thread > 0 {
            return replay.run_helper();
        }
        let _end = EndOnDrop(&replay);
        let mut reader = BatchBuilder {
            replay: &replay,
            batch: ReplayBatch::default(),
            last: None,
            // A database that is open read-only can write nothing to its files.
            budget: (!options.read_only).then_some(&**budget),
            bytes_left: pace.step_bytes(),
            stopped_at: None,
        };
        let log = Log::open(env, dir, options, anchor, &mut |lsn, body| reader.push(lsn, body));
        let stopped_at = reader.stopped_at;
        *lock(&opened) = Some(log.and_then(|log| reader.drain().map(|()| (log, stopped_at))));
    });
    let opened = lock(&opened).take();
    opened.unwrap_or_else(|| Err(Error::io("replay the log", io::ErrorKind::Interrupted.into())))
}

/// An operation in a batch.
#[derive(Clone, Copy, Debug)]
struct LoggedOp<'a> {
    lsn: Lsn,
    table: &'a TableState,
    /// Offset of the key in the batch's bytes; the value follows the key.
    key_offset: u32,
    key_bytes: u32,
    value_bytes: u32,
}

impl LoggedOp<'_> {
    fn op<'b>(&self, bytes: &'b [u8]) -> Op<'b> {
        let bytes = bytes.get(to_usize(self.key_offset.into())..).unwrap_or(&[]);
        let (key, rest) =
            bytes.split_at_checked(to_usize(self.key_bytes.into())).unwrap_or_default();
        if self.value_bytes == NO_VALUE {
            return Op::Delete { key };
        }
        let body = rest.get(..to_usize(self.value_bytes.into())).unwrap_or(&[]);
        Op::Put { key, head: &[], body }
    }
}

/// Operations that are applied in parallel.
#[derive(Debug, Default)]
struct ReplayBatch<'a> {
    bytes: Vec<u8>,
    lanes: [Vec<LoggedOp<'a>>; LANES],
    count: usize,
    /// Number of lanes that a thread has claimed; past the number of lanes once all are claimed.
    lanes_claimed: AtomicU32,
    lanes_finished: AtomicU32,
}

impl ReplayBatch<'_> {
    fn clear(&mut self) {
        self.bytes.clear();
        self.lanes.iter_mut().for_each(Vec::clear);
        self.count = 0;
        (self.lanes_claimed, self.lanes_finished) = (AtomicU32::new(0), AtomicU32::new(0));
    }
}

/// The state that the threads share.
struct ParallelReplay<'a> {
    target: &'a ReplayTarget<'a>,
    /// Maximum size of a batch in bytes.
    bytes_max: usize,
    /// Batches that are not applied, the oldest first.
    queue: Mutex<VecDeque<Arc<ReplayBatch<'a>>>>,
    /// Empty batches whose memory is reused.
    spare: Mutex<Vec<ReplayBatch<'a>>>,
    /// The reading thread adds no more batches.
    ended: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// Ends the replay on drop, also if the reading thread fails or panics.
struct EndOnDrop<'r, 'a>(&'r ParallelReplay<'a>);

impl Drop for EndOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

/// Counts a lane as finished on drop, also if applying it panics. Otherwise the reading thread
/// would wait forever and hide the panic.
struct ClaimedLane<'r, 'a> {
    replay: &'r ParallelReplay<'a>,
    batch: Option<Arc<ReplayBatch<'a>>>,
}

impl Drop for ClaimedLane<'_, '_> {
    fn drop(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        if std::thread::panicking() {
            self.replay.has_failed.store(true, Ordering::Release);
        }
        if to_usize(batch.lanes_finished.fetch_add(1, Ordering::AcqRel).into()) + 1 < LANES {
            return;
        }
        lock(&self.replay.queue).pop_front();
        if let Ok(mut batch) = Arc::try_unwrap(batch) {
            batch.clear();
            lock(&self.replay.spare).push(batch);
        }
    }
}

impl<'a> ParallelReplay<'a> {
    fn new(target: &'a ReplayTarget<'a>, bytes_max: usize) -> Self {
        Self {
            target,
            bytes_max,
            queue: Mutex::default(),
            spare: Mutex::default(),
            ended: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Applies lanes until the reading thread has ended and the queue is empty.
    fn run_helper(&self) {
        let mut backoff = Backoff::default();
        loop {
            // Read before the queue: a batch that was added before the end is found after it.
            let ended = self.ended.load(Ordering::Acquire);
            if self.apply_next_lane() {
                backoff = Backoff::default();
            } else if ended {
                return;
            } else {
                backoff.wait();
            }
        }
    }

    /// Applies a lane of the oldest batch. Returns `false` if there was no unclaimed lane.
    fn apply_next_lane(&self) -> bool {
        let Some(batch) = lock(&self.queue).front().map(Arc::clone) else { return false };
        let lane = batch.lanes_claimed.fetch_add(1, Ordering::Relaxed);
        let Some(lane) = batch.lanes.get(to_usize(lane.into())) else { return false };
        let claimed = ClaimedLane { replay: self, batch: Some(Arc::clone(&batch)) };
        if !self.has_failed.load(Ordering::Relaxed)
            && let Err(error) = self.apply(&batch.bytes, lane)
        {
            lock(&self.failure).get_or_insert(error);
            self.has_failed.store(true, Ordering::Release);
        }
        // First, so that the last lane can reuse the batch.
        drop(batch);
        drop(claimed);
        true
    }

    /// Applies a lane's operations. An engine gets consecutive operations on one table together.
    fn apply(&self, bytes: &[u8], lane: &[LoggedOp<'_>]) -> Result<()> {
        let mut ops = Vec::with_capacity(REPLAY_OPS);
        let mut last: Option<&TableState> = None;
        for logged in lane {
            if let Some(table) = last
                && (table.id != logged.table.id || ops.len() >= REPLAY_OPS)
            {
                apply_together(table, &mut ops)?;
            }
            last = Some(logged.table);
            let op = logged.op(bytes);
            if let Some(op) = missing_op(self.target, logged.table, logged.lsn, &op)? {
                ops.push((logged.lsn, op));
            }
        }
        last.map_or(Ok(()), |table| apply_together(table, &mut ops))
    }

    /// Fails with the first error of an operation.
    fn check(&self) -> Result<()> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.failure).take().map_or(Ok(()), Err)
    }
}

/// The reading thread's state: it collects operations in batches.
struct BatchBuilder<'r, 'a> {
    replay: &'r ParallelReplay<'a>,
    batch: ReplayBatch<'a>,
    /// The number of the last operation's table, and the table; `None` if it was dropped.
    last: Option<(u64, Option<&'a ReplayTable>)>,
    /// The budget that replay keeps.
    budget: Option<&'r Budget>,
    /// Bytes of records after which replay stops.
    bytes_left: u64,
    /// The first record that is not replayed.
    stopped_at: Option<Lsn>,
}

impl<'a> BatchBuilder<'_, 'a> {
    /// Returns whether replay must stop before a record of this size.
    fn must_stop(&mut self, body_bytes: usize) -> bool {
        let Some(budget) = self.budget else { return false };
        let Some(left) = self.bytes_left.checked_sub(to_u64(body_bytes)) else { return true };
        self.bytes_left = left;
        mutant!(ReplayNeverStops => return false);
        let slack = (budget.limit() / OVERSHOOT_SHARE).min(OVERSHOOT_BYTES_MAX);
        self.replay.target.lacks_memory()
            || budget.used() + to_u64(body_bytes) > budget.limit() + slack
    }

    /// Adds the operations of a record, or applies it if it must be applied alone.
    fn push(&mut self, lsn: Lsn, body: &[u8]) -> Result<()> {
        if self.stopped_at.is_some() {
            return Ok(());
        }
        if self.must_stop(body.len()) {
            self.stopped_at = Some(lsn);
            return self.drain();
        }
        let bytes_max = self.replay.bytes_max;
        let lane_bytes = size_of::<LoggedOp<'_>>() * self.batch.count;
        if self.batch.bytes.len() + body.len() > bytes_max || lane_bytes > 2 * bytes_max {
            self.submit()?;
        }
        let mut ops = Ops::new(body);
        let first = ops.next();
        let is_one = ops.remaining_bytes() == 0;
        let fits = body.len() <= bytes_max && first.is_none_or(is_on_short_key);
        if !fits || !is_one && !ops.all(is_on_short_key) {
            self.drain()?;
            return replay_record(self.replay.target, lsn, body);
        }
        if let (true, Some(Some((id, op)))) = (is_one, first) {
            return self.push_op(lsn, id, &op);
        }
        Ops::new(body).flatten().try_for_each(|(id, op)| self.push_op(lsn, id, &op))
    }

    fn push_op(&mut self, lsn: Lsn, id: u64, op: &Op<'_>) -> Result<()> {
        let Some(table) = self.table(lsn, id)? else { return Ok(()) };
        let Some(table) = open_for(self.replay.target, table, lsn, op)? else { return Ok(()) };
        if lsn < complete_of(self.replay.target, table) && ExpiryEntry::of(id, op).is_none() {
            return Ok(());
        }
        if table.kind.allocates_per_entry() {
            if apply_op(self.replay.target, table, lsn, op)? {
                table.record_applied(Lsn(lsn.0 + 1));
            }
            return Ok(());
        }
        let (key, value) = match *op {
            Op::Put { key, body, .. } => (key, Some(body)),
            Op::Delete { key } => (key, None),
            Op::DeleteRange { .. } => return Ok(()),
        };
        let size = |bytes: &[u8]| low_u32(to_u64(bytes.len()));
        let ReplayBatch { bytes, lanes, count, .. } = &mut self.batch;
        let key_offset = size(bytes);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or(&[]));
        let value_bytes = value.map_or(NO_VALUE, size);
        let lane = to_usize(u64::from(crc32c(key)) ^ id) % LANES;
        if let Some(lane) = lanes.get_mut(lane) {
            lane.push(LoggedOp { lsn, table, key_offset, key_bytes: size(key), value_bytes });
        }
        *count += 1;
        Ok(())
    }

    fn table(&mut self, lsn: Lsn, id: u64) -> Result<Option<&'a ReplayTable>> {
        match self.last {
            Some((last, table)) if last == id => Ok(table),
            _ => {
                let table = find(self.replay.target, lsn, id)?;
                self.last = Some((id, table));
                Ok(table)
            }
        }
    }

    /// Adds the batch to the queue and begins another one. Applies lanes while the queue is full.
    fn submit(&mut self) -> Result<()> {
        let replay = self.replay;
        let mut backoff = Backoff::default();
        // The batch that is being filled counts.
        while lock(&replay.queue).len() + 1 >= BATCHES {
            if !replay.apply_next_lane() {
                backoff.wait();
            }
        }
        let next = lock(&replay.spare).pop().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        lock(&replay.queue).push_back(Arc::new(batch));
        replay.check()
    }

    /// Waits until all operations so far have been applied.
    fn drain(&mut self) -> Result<()> {
        if self.batch.count > 0 {
            self.submit()?;
        }
        let mut backoff = Backoff::default();
        while !lock(&self.replay.queue).is_empty() {
            if !self.replay.apply_next_lane() {
                backoff.wait();
            }
        }
        self.replay.check()
    }
}

/// Returns whether an item of a record is an operation on one key that is not very long.
/// [`replay_record`] reports items that do not parse.
pub(super) fn is_on_short_key(item: Option<(u64, Op<'_>)>) -> bool {
    match item {
        Some((_, Op::Put { key, .. } | Op::Delete { key })) => key.len() <= LANE_KEY_BYTES_MAX,
        _ => false,
    }
}

/// Applies a record to the tables whose files lack it, and adds its expiry entries.
pub(super) fn replay_record(target: &ReplayTarget<'_>, lsn: Lsn, body: &[u8]) -> Result<()> {
    for item in Ops::new(body) {
        let parsed = item.ok_or_else(|| damage(lsn, "a record's operations do not parse"));
        let (id, op) = parsed?;
        if let Some(table) = find(target, lsn, id)?
            && let Some(table) = open_for(target, table, lsn, &op)?
            && apply_op(target, table, lsn, &op)?
        {
            table.record_applied(Lsn(lsn.0 + 1));
        }
    }
    Ok(())
}

fn damage(lsn: Lsn, what: &str) -> Error {
    Error::corruption(format!("log, LSN {lsn}"), 0, what)
}

/// Returns the table with a number. `None`: it was dropped after the record.
pub(super) fn find<'a>(
    target: &'a ReplayTarget<'_>,
    lsn: Lsn,
    id: u64,
) -> Result<Option<&'a ReplayTable>> {
    if !target.had(id) {
        return Err(damage(lsn, "a record names a table that the catalog never had"));
    }
    Ok(target.find(id))
}

/// Returns the table of an operation, and opens it if its files lack the operation. `None`: it is
/// not open, and complete past the operation.
pub(super) fn open_for<'a>(
    target: &ReplayTarget<'_>,
    table: &'a ReplayTable,
    lsn: Lsn,
    op: &Op<'_>,
) -> Result<Option<&'a TableState>> {
    mutant!(ReplayOpensNothing => return Ok(table.state()));
    match table.state() {
        Some(state) => Ok(Some(state)),
        None if lsn < table.complete() => {
            add_expiry_entry(target, table.id, lsn, op)?;
            Ok(None)
        }
        None => target.open(table).map(Some),
    }
}

/// Applies operations that the table's files lack, and records the last one as applied.
fn apply_together(table: &TableState, ops: &mut Vec<(Lsn, Op<'_>)>) -> Result<()> {
    let Some((lsn, _)) = ops.last() else { return Ok(()) };
    let end = Lsn(lsn.0 + 1);
    mutant!(ReplayForgetsExpiry => mutants::remove_expiries(ops));
    table.engine.replay(ops)?;
    table.record_applied(end);
    ops.clear();
    Ok(())
}

/// Applies an operation if the table's files lack it. Returns whether they did.
pub(super) fn apply_op(
    target: &ReplayTarget<'_>,
    table: &TableState,
    lsn: Lsn,
    op: &Op<'_>,
) -> Result<bool> {
    let Some(op) = missing_op(target, table, lsn, op)? else { return Ok(false) };
    let op = mutant!(ReplayForgetsExpiry: mutants::without_expiry(op), else op);
    table.engine.make_room(&op)?;
    table.engine.apply(lsn, &op)?;
    Ok(true)
}

/// Returns the LSN below which a table's files need no replay.
fn complete_of(target: &ReplayTarget<'_>, table: &TableState) -> Lsn {
    mutant!(ReplayIgnoresComplete: mutants::newest_complete(target), else table.persisted())
}

/// Returns what to apply for an operation if the table's files lack it: the operation, or a delete
/// in place of a value that the sweep has found expired. Adds the expiry entry of a value if the
/// index's files lack it.
fn missing_op<'a>(
    target: &ReplayTarget<'_>,
    table: &TableState,
    lsn: Lsn,
    op: &Op<'a>,
) -> Result<Option<Op<'a>>> {
    mutant!(ReplaySkipsDeletes => if matches!(op, Op::Delete { .. }) { return Ok(None) });
    add_expiry_entry(target, table.id, lsn, op)?;
    if lsn < complete_of(target, table) {
        return Ok(None);
    }
    match op {
        Op::Put { key, .. } if is_swept(target, table.id, lsn, op)? => Ok(Some(Op::Delete { key })),
        op => Ok(Some(*op)),
    }
}

/// Returns whether the sweep has removed the expiry entry of a logged value. An engine may have
/// dropped the value before its files are complete to it. Then the sweep found nothing to delete.
fn is_swept(target: &ReplayTarget<'_>, id: u64, lsn: Lsn, op: &Op<'_>) -> Result<bool> {
    mutant!(ReplayRevivesSweptValues => return Ok(false));
    match (target.index(), ExpiryEntry::of(id, op)) {
        (Some(index), Some(entry)) if lsn < index.persisted() => {
            entry.is_in(index).map(|is_listed| !is_listed)
        }
        _ => Ok(false),
    }
}

/// Adds the expiry entry of a value if the index's files lack it. They may lack it although the
/// table's files have the value.
fn add_expiry_entry(target: &ReplayTarget<'_>, id: u64, lsn: Lsn, op: &Op<'_>) -> Result<()> {
    let index = mutant!(ReplayForgetsExpiryIndex: None, else target.index());
    match (index, ExpiryEntry::of(id, op)) {
        (Some(index), Some(entry)) => entry.replay(index, lsn),
        _ => Ok(()),
    }
}
