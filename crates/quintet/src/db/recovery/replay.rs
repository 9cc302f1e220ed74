//! Parallel replay of the log into the tables, when a database is opened.
//!
//! One thread reads the log and gathers its operations in batches, distributed by key to lanes. All
//! processors apply the lanes of the oldest batch meanwhile; the reader helps when it may not
//! gather more. Reading, checking and decoding records takes about as long as applying them, so
//! replay runs both at the same time.
//!
//! Invariants:
//! - Operations on one key are in one lane, in the order of the log. A batch begins when the batch
//!   before it has been applied. Engines accept operations on different keys in any order and from
//!   several threads.
//! - A record with an operation that is not on one key is applied alone, after everything before
//!   it. The reading thread applies entries that are heap allocations, because memory allocated by
//!   a thread that ends could not be reused by other threads.
//! - Batches are bounded, however long the log is.
//!
//! Threads: one thread gathers, any thread applies. No thread waits with a lock held.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
};

use crate::{
    Error, Result,
    contract::{Engine as _, Op},
    db::{
        core::TableState,
        encoding::{envelope::Envelope, operations::Ops},
        expiry::{self, Listing},
    },
    io::{Dir, Env},
    util::{
        budget::Budget,
        codec::{Lsn, crc32c, low_u32, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicBool, AtomicU32, Backoff, Mutex, Ordering, lock},
    },
    wal::{Anchor, Log, LogOptions},
};

/// Bytes of operations that wait in batches, and the part of the budget that this may be.
const GATHERED_BYTES_MAX: usize = 4 << 20;
const GATHERED_BYTES_MIN: usize = 64 << 10;
const GATHERED_PART: u64 = 32;
/// Batches that there are at once: one being gathered, one being applied, and what evens out.
/// Small ones stay in the processor's cache between the two.
const BATCHES: usize = 8;
/// By key, operations are dealt out to so many lanes.
const LANES: usize = 8;
/// Operations on longer keys go alone: what the expiry index says of very long ones is shared.
const LANE_KEY_BYTES_MAX: usize = 4 << 10;
/// Operations of a lane that engines are given at once: enough to hide a miss in memory behind
/// others.
const TOGETHER_OPS: usize = 32;
/// The value of an operation that deletes.
const NO_VALUE: u32 = u32::MAX;

/// What the log is replayed into.
pub(crate) struct Replayed<'a> {
    pub(crate) tables: &'a HashMap<u64, Arc<TableState>>,
    /// Numbers of tables from here on were never used.
    pub(crate) next_id: u64,
    /// The expiry index.
    pub(crate) index: Option<&'a TableState>,
}

/// Opens the log and replays it.
pub(crate) fn open_log(
    env: &Arc<dyn Env>,
    dir: &Arc<dyn Dir>,
    options: &LogOptions,
    anchor: &Anchor,
    (into, budget): (&Replayed<'_>, &Arc<Budget>),
) -> Result<Log> {
    let part = usize::try_from(budget.limit() / GATHERED_PART).unwrap_or(usize::MAX);
    let bytes_max = part.clamp(GATHERED_BYTES_MIN, GATHERED_BYTES_MAX);
    // Places in lanes take about as much as short records.
    let _memory = budget.reserve_transient(to_u64(2 * bytes_max));
    let replay = Replay::new(into, bytes_max / BATCHES);
    let opened = Mutex::new(None);
    env.parallel(LANES + 1, &|thread| {
        if thread > 0 {
            return replay.help();
        }
        let _end = Ending(&replay);
        let mut gatherer = Gatherer { replay: &replay, batch: Batch::default(), last: None };
        let log = Log::open(env, dir, options, anchor, &mut |lsn, body| gatherer.push(lsn, body));
        *lock(&opened) = Some(log.and_then(|log| gatherer.drain().map(|()| log)));
    });
    let opened = lock(&opened).take();
    opened.unwrap_or_else(|| Err(Error::io("replay the log", io::ErrorKind::Interrupted.into())))
}

/// An operation in a batch.
#[derive(Clone, Copy, Debug)]
struct Logged<'a> {
    lsn: Lsn,
    table: &'a TableState,
    /// Where in the batch the key is, and the value behind it.
    at: u32,
    key_bytes: u32,
    value_bytes: u32,
}

impl Logged<'_> {
    fn op<'b>(&self, bytes: &'b [u8]) -> Op<'b> {
        let bytes = bytes.get(to_usize(self.at.into())..).unwrap_or(&[]);
        let (key, rest) =
            bytes.split_at_checked(to_usize(self.key_bytes.into())).unwrap_or_default();
        if self.value_bytes == NO_VALUE {
            return Op::Delete { key };
        }
        let body = rest.get(..to_usize(self.value_bytes.into())).unwrap_or(&[]);
        Op::Put { key, head: &[], body }
    }
}

/// Operations that are applied together.
#[derive(Debug, Default)]
struct Batch<'a> {
    bytes: Vec<u8>,
    lanes: [Vec<Logged<'a>>; LANES],
    count: usize,
    /// Lanes that somebody has taken on, and those that are done.
    taken: AtomicU32,
    done: AtomicU32,
}

impl Batch<'_> {
    fn clear(&mut self) {
        self.bytes.clear();
        self.lanes.iter_mut().for_each(Vec::clear);
        self.count = 0;
        (self.taken, self.done) = (AtomicU32::new(0), AtomicU32::new(0));
    }
}

/// What the threads share.
struct Replay<'a> {
    into: &'a Replayed<'a>,
    bytes_max: usize,
    /// Batches that are not applied, the oldest first.
    waiting: Mutex<VecDeque<Arc<Batch<'a>>>>,
    /// Batches whose memory serves again.
    spare: Mutex<Vec<Batch<'a>>>,
    /// There will be no more.
    ended: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// Ends the replay, whatever becomes of the reader.
struct Ending<'r, 'a>(&'r Replay<'a>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

/// Counts a lane as done, even where applying it panics: the reader would wait for ever, and the
/// panic not be seen.
struct LaneDone<'r, 'a> {
    replay: &'r Replay<'a>,
    batch: Option<Arc<Batch<'a>>>,
}

impl Drop for LaneDone<'_, '_> {
    fn drop(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        if std::thread::panicking() {
            self.replay.has_failed.store(true, Ordering::Release);
        }
        if to_usize(batch.done.fetch_add(1, Ordering::AcqRel).into()) + 1 < LANES {
            return;
        }
        lock(&self.replay.waiting).pop_front();
        if let Ok(mut batch) = Arc::try_unwrap(batch) {
            batch.clear();
            lock(&self.replay.spare).push(batch);
        }
    }
}

impl<'a> Replay<'a> {
    fn new(into: &'a Replayed<'a>, bytes_max: usize) -> Self {
        Self {
            into,
            bytes_max,
            waiting: Mutex::default(),
            spare: Mutex::default(),
            ended: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Applies what is gathered until there will be no more.
    fn help(&self) {
        let mut patience = Backoff::default();
        loop {
            // What was gathered before the end is looked for after it was seen.
            let ended = self.ended.load(Ordering::Acquire);
            if self.work() {
                patience = Backoff::default();
            } else if ended {
                return;
            } else {
                patience.wait();
            }
        }
    }

    /// Applies a lane of the oldest batch; `false`: none is left.
    fn work(&self) -> bool {
        let Some(batch) = lock(&self.waiting).front().map(Arc::clone) else { return false };
        let lane = batch.taken.fetch_add(1, Ordering::Relaxed);
        let Some(lane) = batch.lanes.get(to_usize(lane.into())) else { return false };
        let lane_done = LaneDone { replay: self, batch: Some(Arc::clone(&batch)) };
        if !self.has_failed.load(Ordering::Relaxed)
            && let Err(error) = self.apply(&batch.bytes, lane)
        {
            lock(&self.failure).get_or_insert(error);
            self.has_failed.store(true, Ordering::Release);
        }
        drop(batch);
        drop(lane_done);
        true
    }

    /// Applies a lane's operations, some of one table at once.
    fn apply(&self, bytes: &[u8], lane: &[Logged<'_>]) -> Result<()> {
        let mut ops = Vec::with_capacity(TOGETHER_OPS);
        let mut last: Option<&TableState> = None;
        for logged in lane {
            if let Some(table) = last
                && (table.id != logged.table.id || ops.len() >= TOGETHER_OPS)
            {
                apply_together(table, &mut ops)?;
            }
            last = Some(logged.table);
            let op = logged.op(bytes);
            if is_lacking(self.into, logged.table, logged.lsn, &op)? {
                ops.push((logged.lsn, op));
            }
        }
        last.map_or(Ok(()), |table| apply_together(table, &mut ops))
    }

    /// An error that kept an operation from being applied.
    fn check(&self) -> Result<()> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.failure).take().map_or(Ok(()), Err)
    }
}

/// The reading thread's side.
struct Gatherer<'r, 'a> {
    replay: &'r Replay<'a>,
    batch: Batch<'a>,
    /// The table of the last operation, or that there is none of this number.
    last: Option<(u64, Option<&'a TableState>)>,
}

impl<'a> Gatherer<'_, 'a> {
    /// Takes a record.
    fn push(&mut self, lsn: Lsn, body: &[u8]) -> Result<()> {
        let bytes_max = self.replay.bytes_max;
        let places = size_of::<Logged<'_>>() * self.batch.count;
        if self.batch.bytes.len() + body.len() > bytes_max || places > 2 * bytes_max {
            self.publish()?;
        }
        // What does not parse is found when it is applied.
        let fits_a_lane = |item| match item {
            Some((_, Op::Put { key, .. } | Op::Delete { key })) => key.len() <= LANE_KEY_BYTES_MAX,
            _ => false,
        };
        let mut ops = Ops::new(body);
        let first = ops.next();
        let is_one = ops.rest_bytes() == 0;
        let fits = body.len() <= bytes_max && first.is_none_or(fits_a_lane);
        if !fits || !is_one && !ops.all(fits_a_lane) {
            self.drain()?;
            return replay(self.replay.into, lsn, body);
        }
        if let (true, Some(Some((id, op)))) = (is_one, first) {
            return self.push_op(lsn, id, &op);
        }
        Ops::new(body).flatten().try_for_each(|(id, op)| self.push_op(lsn, id, &op))
    }

    fn push_op(&mut self, lsn: Lsn, id: u64, op: &Op<'_>) -> Result<()> {
        let Some(table) = self.table(lsn, id)? else { return Ok(()) };
        if table.kind.allocates_per_entry() {
            if apply_op(self.replay.into, table, lsn, op)? {
                table.note_applied(Lsn(lsn.0 + 1));
            }
            return Ok(());
        }
        let (key, value) = match *op {
            Op::Put { key, body, .. } => (key, Some(body)),
            Op::Delete { key } => (key, None),
            Op::DeleteRange { .. } => return Ok(()),
        };
        let size = |bytes: &[u8]| low_u32(to_u64(bytes.len()));
        let Batch { bytes, lanes, count, .. } = &mut self.batch;
        let at = size(bytes);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or(&[]));
        let value_bytes = value.map_or(NO_VALUE, size);
        let lane = to_usize(u64::from(crc32c(key)) ^ id) % LANES;
        if let Some(lane) = lanes.get_mut(lane) {
            lane.push(Logged { lsn, table, at, key_bytes: size(key), value_bytes });
        }
        *count += 1;
        Ok(())
    }

    fn table(&mut self, lsn: Lsn, id: u64) -> Result<Option<&'a TableState>> {
        match self.last {
            Some((last, table)) if last == id => Ok(table),
            _ => {
                let table = find(self.replay.into, lsn, id)?;
                self.last = Some((id, table));
                Ok(table)
            }
        }
    }

    /// Has what is gathered applied, by whoever has time.
    fn publish(&mut self) -> Result<()> {
        let replay = self.replay;
        let mut patience = Backoff::default();
        // One is being gathered.
        while lock(&replay.waiting).len() + 1 >= BATCHES {
            if !replay.work() {
                patience.wait();
            }
        }
        let next = lock(&replay.spare).pop().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        lock(&replay.waiting).push_back(Arc::new(batch));
        replay.check()
    }

    /// Waits until everything so far has been applied.
    fn drain(&mut self) -> Result<()> {
        if self.batch.count > 0 {
            self.publish()?;
        }
        let mut patience = Backoff::default();
        while !lock(&self.replay.waiting).is_empty() {
            if !self.replay.work() {
                patience.wait();
            }
        }
        self.replay.check()
    }
}

/// Applies a record to the tables whose files lack it, and lists what expires.
fn replay(into: &Replayed<'_>, lsn: Lsn, body: &[u8]) -> Result<()> {
    for item in Ops::new(body) {
        let parsed = item.ok_or_else(|| damage(lsn, "a record's operations do not parse"));
        let (id, op) = parsed?;
        if let Some(table) = find(into, lsn, id)?
            && apply_op(into, table, lsn, &op)?
        {
            table.note_applied(Lsn(lsn.0 + 1));
        }
    }
    Ok(())
}

fn damage(lsn: Lsn, what: &str) -> Error {
    Error::corruption(format!("log, LSN {lsn}"), 0, what)
}

/// The table of this number; `None`: it was dropped since.
fn find<'a>(into: &Replayed<'a>, lsn: Lsn, id: u64) -> Result<Option<&'a TableState>> {
    if id >= into.next_id {
        return Err(damage(lsn, "a record names a table that the catalog never had"));
    }
    Ok(into.tables.get(&id).map(|table| &**table))
}

/// Applies operations that the table's files lack, and notes how far that got.
fn apply_together(table: &TableState, ops: &mut Vec<(Lsn, Op<'_>)>) -> Result<()> {
    let Some((lsn, _)) = ops.last() else { return Ok(()) };
    let end = Lsn(lsn.0 + 1);
    if mutant::active(Bug::ReplayForgetsExpiry) {
        ops.iter().try_for_each(|(lsn, op)| apply_without_expiry(table, *lsn, op))?;
    } else {
        table.engine.replay(ops)?;
    }
    table.note_applied(end);
    ops.clear();
    Ok(())
}

/// Applies an operation, if the table's files lack it; whether they do.
fn apply_op(into: &Replayed<'_>, table: &TableState, lsn: Lsn, op: &Op<'_>) -> Result<bool> {
    if !is_lacking(into, table, lsn, op)? {
        return Ok(false);
    }
    if mutant::active(Bug::ReplayForgetsExpiry) {
        apply_without_expiry(table, lsn, op)?;
    } else {
        table.engine.apply(lsn, op)?;
    }
    Ok(true)
}

/// Whether the table's files lack an operation. What expires is listed, if the index's files lack
/// that.
fn is_lacking(into: &Replayed<'_>, table: &TableState, lsn: Lsn, op: &Op<'_>) -> Result<bool> {
    let Replayed { tables, index, .. } = *into;
    if mutant::active(Bug::ReplaySkipsDeletes) && matches!(op, Op::Delete { .. }) {
        return Ok(false);
    }
    let mut complete = table.persisted();
    if mutant::active(Bug::ReplayIgnoresComplete) {
        complete = tables.values().map(|table| table.persisted()).max().unwrap_or(complete);
    }
    // Whether the index's files have the entry is another question than whether the table's have
    // the value.
    if let (Some(index), Some(listing)) = (index, Listing::of(table.id, op))
        && !mutant::active(Bug::ReplayForgetsExpiryIndex)
    {
        expiry::replay(index, &listing, lsn)?;
    }
    Ok(lsn >= complete)
}

/// Planted bug: replay drops the expiry of a value.
fn apply_without_expiry(table: &TableState, lsn: Lsn, op: &Op<'_>) -> Result<()> {
    let Op::Put { key, body, .. } = *op else { return table.engine.apply(lsn, op) };
    let start = Envelope::decode(body).map_or(0, |(_, start)| start);
    let head = Envelope::default().encode();
    let body = body.get(start..).unwrap_or(&[]);
    table.engine.apply(lsn, &Op::Put { key, head: head.as_slice(), body })
}
