//! The commit path: from a write to the log and the tables.
//!
//! Steps: validate; ask the engines and the log whether they can take the write (`admit`); lock the
//! stripes of its keys; check its condition; append its record; apply it; unlock; wait for the sync
//! if asked.
//!
//! Invariants:
//! - Everything that can refuse or delay a write happens before the write is logged.
//! - A table's status, its types and the database's `closed` are checked again under the stripes.
//!   Closing holds all stripes, so nothing is appended after it.
//! - Every admitted operation is applied or cancelled.
//! - If the sync of a `Sync` write fails, the log has failed. The write is not acknowledged, but
//!   may be visible until the database is closed.

use std::{borrow::Cow, sync::Arc};

use super::{
    Durability,
    core::{Core, JobKind, TableState},
};
use crate::{
    Error, Result,
    contract::{Engine as _, Hint, Op},
    db::{
        api::options::Condition,
        encoding::operations::{Frame, Ops, put_op, size_of_pieces},
    },
    io::write_throttle::brake,
    util::{
        codec::Lsn,
        mutant::{self, Bug, mutant},
        sync::{Ordering, yield_now},
    },
    wal::{Appended, Ticket},
};

/// Writes are delayed in the last one of this many parts of the recovery budget.
const BRAKE_SHARE: u64 = 4;
/// Minimum size in bytes of that part. A smaller one is persisted too soon for delays to help.
const BRAKE_BYTES_MIN: u64 = 1 << 20;

/// A table of a batch.
type BatchTable = Arc<TableState>;

/// Number of operations of a batch that engines prefetch at once: a few times the queue depth of a
/// disk.
const EXPECTED: usize = 256;

impl Core {
    /// Commits one operation. Returns whether its condition held.
    pub(crate) fn commit_one(
        &self,
        table: &TableState,
        op: &Op<'_>,
        condition: Condition,
        durability: Durability,
    ) -> Result<bool> {
        let hash = hash_of(table, op);
        // Loads what applying the operation will read from memory, while the operation is logged.
        table.engine.prefetch(Hint::Write { hash, step: 0 });
        self.check_writable()?;
        self.check_takes_writes(table)?;
        self.bound_recovery(frees(op))?;
        table.engine.admit(op)?;
        table.engine.prefetch(Hint::Write { hash, step: 1 });
        let logged = self
            .admit_expiry(table, op)
            .and_then(|()| self.log_and_apply(table, (op, hash), condition));
        match logged {
            Ok(Some((appended, applied))) => {
                self.finish(appended, durability)?;
                applied.map(|()| true)
            }
            Ok(None) => {
                self.retract(table, op);
                Ok(false)
            }
            Err(error) => {
                self.retract(table, op);
                Err(error)
            }
        }
    }

    /// Cancels an admitted operation, in the table and in the expiry index.
    fn retract(&self, table: &TableState, op: &Op<'_>) {
        table.engine.cancel(op);
        self.retract_expiry(table, op);
    }

    /// Logs and applies an operation under its stripes. On an error, and on `None` (the condition
    /// does not hold), nothing was logged.
    fn log_and_apply(
        &self,
        table: &TableState,
        (op, hash): (&Op<'_>, u64),
        condition: Condition,
    ) -> Result<Option<(Appended, Result<()>)>> {
        let frame = Frame::alone(table.id, op);
        let pieces = frame.pieces(op);
        self.log.admit(size_of_pieces(&pieces), frees(op))?;
        let early = mutant::active(Bug::ConditionOutsideStripe);
        let early = if early { Some(self.holds_early(table, op, condition)?) } else { None };
        let held = match op {
            Op::Put { .. } | Op::Delete { .. } => {
                self.stripes.hold(self.stripes.index(table.id, hash))
            }
            Op::DeleteRange { .. } => self.stripes.hold_every(),
        };
        self.check_open()?;
        self.check_takes_writes(table)?;
        self.check_types(table, op)?;
        let holds = early.map_or_else(|| self.holds(table, op, condition), Ok)?;
        let settled = condition.settles(table.id, op);
        if !holds {
            settled.map_or(Ok(()), |listing| self.unlist(&listing))?;
            return Ok(None);
        }
        let replaced = table.replaced_expiry(op);
        let mut ticket = self.log.begin()?;
        table.engine.prefetch(Hint::Write { hash, step: 2 });
        let appended = ticket.append(&pieces)?;
        let applied = self.apply(table, appended, op);
        let listed = self.list(table, appended, op, replaced);
        let unlisted = settled.map_or(Ok(()), |listing| self.unlist(&listing));
        drop(ticket);
        held.bump();
        Ok(Some((appended, applied.and(listed).and(unlisted))))
    }

    /// Planted bug: checks the condition before the stripe is held, with time for other writers
    /// between.
    fn holds_early(&self, table: &TableState, op: &Op<'_>, condition: Condition) -> Result<bool> {
        let holds = self.holds(table, op, condition);
        (0..100).for_each(|_| yield_now());
        holds
    }

    fn holds(&self, table: &TableState, op: &Op<'_>, condition: Condition) -> Result<bool> {
        let (Op::Put { key, .. } | Op::Delete { key }) = op else { return Ok(true) };
        match condition {
            Condition::Always => Ok(true),
            Condition::Absent => self.contains(table, key).map(|has| !has),
            Condition::Present => self.contains(table, key),
            Condition::Expired { .. } if mutant::active(Bug::SweepDoesNotLookAgain) => Ok(true),
            Condition::Expired { .. } => {
                let expires_at = table.stored_expiry(key)?;
                Ok(expires_at.is_some_and(|time| time <= self.shared.clock.now()))
            }
        }
    }

    /// Applies a logged operation. A failure stops the table, because the log holds the write and
    /// the table does not.
    fn apply(&self, table: &TableState, appended: Appended, op: &Op<'_>) -> Result<()> {
        table.note_applied(appended.end);
        table.engine.apply(appended.lsn, op).map_err(|error| {
            table.fail(&error);
            Error::TableFailed { table: self.name_of(table), reason: error.to_string() }
        })
    }

    /// Runs after the stripes are released: wakes the jobs that the write made due, and waits for
    /// the sync if asked.
    fn finish(&self, appended: Appended, durability: Durability) -> Result<()> {
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        if self.log.wants_preparation() && !self.prepare_armed.swap(true, Ordering::AcqRel) {
            self.shared.jobs.wake(JobKind::LogPrepare);
        }
        if self.arrears(appended.end) > self.recovery_budget / 2 {
            if !self.shared.round_due.load(Ordering::Relaxed) {
                self.shared.round_due.store(true, Ordering::Relaxed);
            }
            self.shared.jobs.wake(JobKind::Persist);
        }
        if durability == Durability::Sync {
            return self.log.wait_durable(appended.end);
        }
        if !self.sync_armed.load(Ordering::SeqCst) && !self.sync_armed.swap(true, Ordering::SeqCst)
        {
            self.shared.jobs.wake(JobKind::LogSync);
        }
        Ok(())
    }

    /// Returns the bytes of log that opening would replay.
    pub(crate) fn unpersisted_bytes(&self, end: Lsn) -> u64 {
        end.0.saturating_sub(self.log_start.load(Ordering::Relaxed))
    }

    /// Delays a writer, or makes it run a checkpoint round, if background work has fallen behind.
    /// So recovery stays bounded. A write that `frees` space goes on if the round fails, because
    /// the disk may be full.
    fn bound_recovery(&self, frees: bool) -> Result<()> {
        let arrears = self.arrears(self.log.end());
        let way = self.recovery_budget / BRAKE_SHARE;
        let past = arrears.saturating_sub(self.recovery_budget - way);
        if past == 0 {
            return Ok(());
        }
        if arrears <= self.recovery_budget {
            if way >= BRAKE_BYTES_MIN && !brake(&*self.env, past, way).is_zero() {
                self.counters.write_delays.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        self.counters.write_stalls.fetch_add(1, Ordering::Relaxed);
        let outcome = self.persist_all_over(self.recovery_budget);
        if frees { Ok(()) } else { outcome }
    }

    /// Commits all operations of `body` or none. `tables` are the tables that it names.
    pub(crate) fn commit_batch(
        &self,
        body: &[u8],
        tables: &[BatchTable],
        durability: Durability,
    ) -> Result<()> {
        self.check_writable()?;
        if body.is_empty() {
            return Ok(());
        }
        let all_free = operations(body, tables).all(|(_, op)| frees(&op));
        self.bound_recovery(all_free)?;
        let mut admitted = 0;
        let logged = self
            .admit_batch(body, tables, &mut admitted)
            .and_then(|()| self.log_batch(body, tables, all_free));
        match logged {
            Ok((appended, applied)) => {
                self.finish(appended, durability)?;
                applied
            }
            Err(error) => {
                for (table, op) in operations(body, tables).take(admitted) {
                    self.retract(table, &op);
                }
                Err(error)
            }
        }
    }

    fn admit_batch(&self, body: &[u8], tables: &[BatchTable], admitted: &mut usize) -> Result<()> {
        tables.iter().try_for_each(|table| self.check_takes_writes(table))?;
        for_each_expected(body, tables, |table, op| {
            table.engine.prefetch(Hint::Write { hash: hash_of(table, &op), step: 0 });
            table.engine.admit(&op)?;
            *admitted += 1;
            self.admit_expiry(table, &op)
        })
    }

    fn log_batch(
        &self,
        body: &[u8],
        tables: &[BatchTable],
        frees: bool,
    ) -> Result<(Appended, Result<()>)> {
        self.log.admit(crate::util::codec::to_u64(body.len()), frees)?;
        let mut indexes = Vec::new();
        let mut every = false;
        for (table, op) in operations(body, tables) {
            match op {
                Op::Put { key, .. } | Op::Delete { key } => {
                    indexes.push(self.stripes.index(table.id, table.hash.hash(key)));
                }
                Op::DeleteRange { .. } => every = true,
            }
        }
        let held =
            if every { self.stripes.hold_every() } else { self.stripes.hold_all_of(&mut indexes) };
        self.check_open()?;
        tables.iter().try_for_each(|table| self.check_takes_writes(table))?;
        operations(body, tables).try_for_each(|(table, op)| self.check_types(table, &op))?;
        mutant!(BatchSplits => return self.log_split(body, tables));
        let mut ticket: Ticket<'_> = self.log.begin()?;
        let logged =
            if mutant::active(Bug::BatchLogsFirstOnly) { first_of(body) } else { body.into() };
        let appended = ticket.append(&[&logged])?;
        let mut applied = Ok(());
        for_each_expected(body, tables, |table, op| {
            let replaced = table.replaced_expiry(&op);
            // One table that stops does not keep the batch from the others: the log holds all of
            // it.
            let mut outcome = self.apply(table, appended, &op);
            if !mutant::active(Bug::BatchForgetsExpiryIndex) {
                outcome = outcome.and(self.list(table, appended, &op, replaced));
            }
            applied = std::mem::replace(&mut applied, Ok(())).and(outcome);
            Ok(())
        })?;
        drop(ticket);
        held.bump();
        Ok((appended, applied))
    }

    /// Planted bug: one record for each operation of a batch.
    fn log_split(&self, body: &[u8], tables: &[BatchTable]) -> Result<(Appended, Result<()>)> {
        let mut last = Appended { lsn: self.log.end(), end: self.log.end() };
        for (table, op) in operations(body, tables) {
            let frame = Frame::new(table.id, &op);
            let mut ticket = self.log.begin()?;
            last = ticket.append(&frame.pieces(&op))?;
            self.apply(table, last, &op)?;
            self.list(table, last, &op, None)?;
        }
        Ok((last, Ok(())))
    }
}

/// Returns the hash of an operation's key; 0 for a range.
#[inline]
fn hash_of(table: &TableState, op: &Op<'_>) -> u64 {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => table.hash.hash(key),
        Op::DeleteRange { .. } => 0,
    }
}

/// Planted bug: only the first operation of a batch.
fn first_of(body: &[u8]) -> Cow<'_, [u8]> {
    let mut first = Vec::new();
    if let Some((id, op)) = Ops::new(body).next().flatten() {
        put_op(&mut first, id, &op);
    }
    first.into()
}

/// Returns whether the operation releases space.
fn frees(op: &Op<'_>) -> bool {
    !matches!(op, Op::Put { .. })
}

/// Calls `work` with each operation of a batch's body until it fails. The tables prefetch
/// [`EXPECTED`] operations at a time.
fn for_each_expected(
    body: &[u8],
    tables: &[BatchTable],
    mut work: impl FnMut(&BatchTable, Op<'_>) -> Result<()>,
) -> Result<()> {
    let mut operations = operations(body, tables);
    let mut expected = 0;
    loop {
        if expected == 0 {
            for table in tables {
                let ahead = operations.clone().take(EXPECTED);
                let mut keys = ahead.filter(|(of, _)| of.id == table.id).filter_map(key_of);
                table.engine.prefetch(Hint::Batch(&mut keys));
            }
            expected = EXPECTED;
        }
        let Some((table, op)) = operations.next() else { return Ok(()) };
        work(table, op)?;
        expected -= 1;
    }
}

/// Returns the key of an operation, unless it is on a range.
fn key_of<'a>((_, op): (&BatchTable, Op<'a>)) -> Option<&'a [u8]> {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => Some(key),
        Op::DeleteRange { .. } => None,
    }
}

/// Returns the operations of a batch's body with their tables.
fn operations<'a>(
    body: &'a [u8],
    tables: &'a [BatchTable],
) -> impl Iterator<Item = (&'a BatchTable, Op<'a>)> + Clone {
    let mut last: Option<&BatchTable> = None;
    Ops::new(body).flatten().filter_map(move |(id, op)| {
        // Consecutive operations on one table are the common case.
        let table = last
            .filter(|table| table.id == id)
            .or_else(|| tables.iter().find(|table| table.id == id))?;
        last = Some(table);
        Some((table, op))
    })
}
