//! Commits of batches and transactions: one record for all operations, under the stripes of all
//! their keys. A transaction locks those of the keys that it has read too, and validates its reads
//! under them.

use super::{
    mutants,
    steps::{frees, hash_of, write_hint},
};
use crate::{
    Error, Result,
    contract::{Engine as _, Hint, MemoryWait, Op},
    db::{
        core::{Core, condition::Condition, durability::Durability},
        encoding::operations::{Ops, put_op},
        tables::state::{BY_PLACE_OPS_MAX, TableState, sort_by_place},
        transaction::TransactionReads,
    },
    io::{Stopwatch, process::ProcessArc},
    util::{codec::to_u64, mutant::mutant},
    wal::{Appended, Ticket},
};

/// A table of a batch.
type BatchTable = ProcessArc<TableState>;

/// Number of operations of a batch that engines prefetch at once: a few times the queue depth of a
/// disk.
const PREFETCH_OPS: usize = 256;
/// The needs of a batch that has more bytes than the budget divided by this are summed before it is
/// admitted.
const SUMMED_SHARE: u64 = 64;
/// The operations of a batch that has more bytes than the budget divided by this are sorted.
const SORTED_SHARE: u64 = 8;

impl Core {
    /// Commits all operations of `body` or none. `tables` are the tables that it names. Closes
    /// tables without a handle if there is no memory for the batch. `reads` of a transaction are
    /// validated, and ended, under the stripes.
    ///
    /// Fails with [`Error::OutOfMemory`] before anything is logged if the engines must hold more of
    /// the batch at once than the budget has. The error tells what the whole batch needs.
    pub(crate) fn commit_batch(
        &self,
        body: &[u8],
        tables: &[BatchTable],
        mut reads: Option<&mut TransactionReads>,
        durability: Durability,
    ) -> Result<()> {
        if reads.is_none()
            && let Some((table, op)) = only_operation(body, tables)
        {
            match self.commit_one(table, &op, Condition::Always, durability) {
                // Nothing was logged. What follows waits for room.
                Err(Error::OutOfMemory { .. } | Error::DiskFull { .. }) => {}
                outcome => return outcome.map(drop),
            }
        }
        let limit = self.budget.limit();
        // An encoded operation takes a few bytes, and a fixed amount of memory beside.
        if to_u64(body.len()) > limit / SUMMED_SHARE {
            let needed = admitted_bytes(body, tables);
            if needed > limit {
                return Err(Error::OutOfMemory { budget: limit, needed });
            }
        }
        let is_plain = reads.is_none();
        let wait = MemoryWait::default();
        let attempt = |reads: Option<&mut TransactionReads>| {
            self.try_commit_batch(body, tables, reads, &wait, durability)
        };
        let outcome = match attempt(reads.as_deref_mut()) {
            // Nothing is admitted any more: this thread may wait for a checkpoint round.
            Err(Error::OutOfMemory { .. }) => {
                self.after_closing_tables(|| attempt(reads.as_deref_mut()))
            }
            Err(Error::DiskFull { .. })
                if operations(body, tables).all(|(_, op)| frees(&op))
                    && self.checkpoints.free_space() =>
            {
                attempt(reads)
            }
            outcome => outcome,
        };
        // The log has none of a batch that was refused; it may have one whose table failed.
        let is_refused =
            |error: &Error| !matches!(error, Error::LogFailed { .. } | Error::TableFailed { .. });
        let has_successor = || tables.iter().any(|table| table.successor().is_some());
        if is_plain && outcome.as_ref().is_err_and(is_refused) && has_successor() {
            let (body, tables) = follow_successors(body, tables);
            return self.commit_batch(&body, &tables, None, durability);
        }
        if matches!(&outcome, Err(Error::Io { .. } | Error::OutOfMemory { .. })) && !is_plain {
            // The files of a table that was cleared meanwhile may be gone: then it is a conflict.
            tables.iter().try_for_each(|table| self.tables.check_takes_writes(table))?;
        }
        outcome.map_err(|error| match error {
            Error::OutOfMemory { budget, needed } => {
                Error::OutOfMemory { budget, needed: needed.max(admitted_bytes(body, tables)) }
            }
            other => other,
        })
    }

    fn try_commit_batch(
        &self,
        body: &[u8],
        tables: &[BatchTable],
        reads: Option<&mut TransactionReads>,
        wait: &MemoryWait,
        durability: Durability,
    ) -> Result<()> {
        self.tables.check_writable()?;
        if body.is_empty() {
            return Ok(());
        }
        let all_free = operations(body, tables).all(|(_, op)| frees(&op));
        self.admit_to_log(to_u64(body.len()), all_free)?;
        let mut admitted = 0;
        let logged = self
            .admit_batch((body, tables), wait, &mut admitted)
            .and_then(|()| self.log_batch((body, tables), reads));
        match logged {
            Ok((appended, applied)) => {
                self.finish(appended, durability)?;
                applied
            }
            Err(error) => {
                for (table, op) in operations(body, tables).take(admitted) {
                    self.cancel(table, &op);
                }
                Err(error)
            }
        }
    }

    fn admit_batch(
        &self,
        (body, tables): (&[u8], &[BatchTable]),
        wait: &MemoryWait,
        admitted: &mut usize,
    ) -> Result<()> {
        tables.iter().try_for_each(|table| self.tables.check_takes_writes(table))?;
        for_each_prefetched(operations(body, tables), tables, |table, op| {
            table.engine.prefetch(write_hint(&op, hash_of(table, &op), 0));
            table.engine.admit(&op, wait)?;
            *admitted += 1;
            self.expiry.admit(&self.tables, table, &op, wait)
        })
    }

    /// Logs and applies a batch under its stripes. On an error nothing was logged.
    fn log_batch(
        &self,
        (body, tables): (&[u8], &[BatchTable]),
        reads: Option<&mut TransactionReads>,
    ) -> Result<(Appended, Result<()>)> {
        let mut indexes = Vec::new();
        let mut every = reads.as_ref().is_some_and(|reads| reads.add_stripes(self, &mut indexes));
        let mut has_range = false;
        for (table, op) in operations(body, tables) {
            match op {
                Op::Put { key, .. } | Op::Delete { key } => {
                    indexes.push(self.tables.stripes.index(table.id, table.hash.hash(key)));
                }
                Op::DeleteRange { .. } => has_range = true,
            }
        }
        every |= has_range;
        let held = if every {
            self.tables.stripes.hold_every()
        } else {
            self.tables.stripes.hold_all_of(&mut indexes)
        };
        self.tables.check_open()?;
        tables.iter().try_for_each(|table| self.tables.check_takes_writes(table))?;
        operations(body, tables).try_for_each(|(table, op)| self.tables.check_types(table, &op))?;
        if let Some(reads) = reads {
            reads.validate(self, operations(body, tables).map(|(table, op)| (&***table, op)))?;
            reads.end();
        }
        mutant!(BatchSplits => return mutants::log_split(self, operations(body, tables)));
        held.begin_write();
        let logged = self.log_batch_locked(body, tables, has_range);
        held.end_write();
        logged
    }

    /// The part of [`Self::log_batch`] after everything that refuses the batch.
    fn log_batch_locked(
        &self,
        body: &[u8],
        tables: &[BatchTable],
        has_range: bool,
    ) -> Result<(Appended, Result<()>)> {
        let mut ticket: Ticket<'_> = self.log.begin()?;
        let logged = mutant!(BatchLogsFirstOnly: mutants::first_operation(body), else body);
        let watch = Stopwatch::start();
        let appended = ticket.append(&[logged])?;
        watch.stop(|counters, time| counters.log_time += time);
        let watch = Stopwatch::start();
        let mut applied = Ok(());
        // Tables that could not make room: the rest of the batch goes beyond the budget there.
        let mut without_room = Vec::new();
        let mut apply = |table: &BatchTable, op: Op<'_>| {
            let replaced = table.replaced_expiry(&op);
            if !without_room.contains(&table.id) && table.engine.make_room(&op).is_err() {
                without_room.push(table.id);
            }
            mutant!(SnapshotForgetsBatches: (), else
                self.versions.save(table, appended.lsn, &op, hash_of(table, &op)));
            // A table that fails does not keep the others from the batch: the log holds all of it.
            let of_table = self.apply(table, appended, &op);
            let of_index = mutant!(BatchForgetsExpiryIndex: Ok(()), else
                self.expiry.add(table, appended, &op, replaced));
            applied = std::mem::replace(&mut applied, Ok(())).and(of_table).and(of_index);
            Ok(())
        };
        if to_u64(body.len()) > self.budget.limit() / SORTED_SHARE && !has_range {
            for_each_sorted(body, tables, &mut apply)?;
        } else {
            for_each_prefetched(operations(body, tables), tables, &mut apply)?;
        }
        drop(ticket);
        watch.stop(|counters, time| counters.apply_time += time);
        Ok((appended, applied))
    }
}

/// Returns the operation of a batch that has exactly one.
fn only_operation<'a>(
    body: &'a [u8],
    tables: &'a [BatchTable],
) -> Option<(&'a TableState, Op<'a>)> {
    let mut ops = Ops::new(body);
    let (number, op) = ops.next()??;
    let table = tables.iter().find(|table| table.id == number)?;
    (ops.remaining_bytes() == 0).then_some((&**table, op))
}

/// Returns the memory that the tables must hold at once for a batch.
fn admitted_bytes(body: &[u8], tables: &[BatchTable]) -> u64 {
    mutant!(BatchNeedsAreNotSummed => return 0);
    operations(body, tables).map(|(table, op)| table.engine.admitted_bytes(&op)).sum()
}

/// Calls `work` with each operation on one key of a batch's body until it fails. Sorts some at a
/// time, so that an engine writes a page once for many of them.
fn for_each_sorted(
    body: &[u8],
    tables: &[BatchTable],
    mut work: impl FnMut(&BatchTable, Op<'_>) -> Result<()>,
) -> Result<()> {
    let mut rest = operations(body, tables);
    loop {
        let mut ops: Vec<_> = rest.by_ref().take(BY_PLACE_OPS_MAX).collect();
        if ops.is_empty() {
            return Ok(());
        }
        sort_by_place(&mut ops, |(table, op)| (table, *op));
        for_each_prefetched(ops.iter().copied(), tables, &mut work)?;
    }
}

/// Calls `work` with each operation until it fails. The tables prefetch [`PREFETCH_OPS`] operations
/// at a time.
fn for_each_prefetched<'a>(
    mut operations: impl Iterator<Item = (&'a BatchTable, Op<'a>)> + Clone,
    tables: &[BatchTable],
    mut work: impl FnMut(&BatchTable, Op<'_>) -> Result<()>,
) -> Result<()> {
    let mut prefetched = 0;
    loop {
        if prefetched == 0 {
            for table in tables {
                let ahead = operations.clone().take(PREFETCH_OPS);
                let mut keys = ahead.filter(|(of, _)| of.id == table.id).filter_map(key_of);
                table.engine.prefetch(Hint::Batch(&mut keys));
            }
            prefetched = PREFETCH_OPS;
        }
        let Some((table, op)) = operations.next() else { return Ok(()) };
        work(table, op)?;
        prefetched -= 1;
    }
}

/// Returns the key of an operation, unless it is on a range.
fn key_of<'a>((_, op): (&BatchTable, Op<'a>)) -> Option<&'a [u8]> {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => Some(key),
        Op::DeleteRange { .. } => None,
    }
}

/// Returns a batch that names the successors of the tables that were cleared.
#[cold]
fn follow_successors(body: &[u8], tables: &[BatchTable]) -> (Vec<u8>, Vec<BatchTable>) {
    let mut followed = Vec::with_capacity(body.len());
    for (table, op) in operations(body, tables) {
        put_op(&mut followed, TableState::current(table).id, &op);
    }
    (followed, tables.iter().map(TableState::current).collect())
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
