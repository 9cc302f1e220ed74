//! Commits of one operation: put, delete, range delete.

use super::{
    mutants,
    steps::{frees, hash_of, write_hint},
};
use crate::{
    Error, Result,
    contract::{Engine as _, MemoryWait, Op},
    db::{
        core::{Core, condition::Condition, durability::Durability},
        encoding::operations::{Frame, size_of_pieces},
        expiry::entry::ExpiryEntry,
        tables::state::TableState,
    },
    io::Stopwatch,
    util::mutant::mutant,
    wal::Appended,
};

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
        table.engine.prefetch(write_hint(op, hash, 0));
        self.tables.check_writable()?;
        if let Err(error) = self.tables.check_takes_writes(table) {
            return self.commit_to_successor((table, error), op, condition, durability);
        }
        let wait = MemoryWait::default();
        let frame = Frame::alone(table.id, op);
        let pieces = frame.pieces(op);
        let admitted = self
            .admit_to_log(size_of_pieces(&pieces), frees(op))
            .and_then(|()| self.admit_first(table, op, &wait));
        if let Err(error) = admitted {
            // A table that was cleared meanwhile may have no files any more.
            return self.commit_to_successor((table, error), op, condition, durability);
        }
        table.engine.prefetch(write_hint(op, hash, 1));
        let logged = self
            .expiry
            .admit(&self.tables, table, op, &wait)
            .and_then(|()| self.log_and_apply(table, (op, hash), &pieces, condition));
        match logged {
            Ok(Some((appended, applied))) => {
                self.finish(appended, durability)?;
                applied.map(|()| true)
            }
            Ok(None) => {
                self.cancel(table, op);
                Ok(false)
            }
            Err(error) => {
                self.cancel(table, op);
                self.commit_to_successor((table, error), op, condition, durability)
            }
        }
    }

    /// Commits an operation that failed to the table's successor, if the table was cleared.
    #[cold]
    fn commit_to_successor(
        &self,
        (table, error): (&TableState, Error),
        op: &Op<'_>,
        condition: Condition,
        durability: Durability,
    ) -> Result<bool> {
        mutant!(ClearLosesHandles => return Err(error));
        // What these were decided from was in the table that is gone.
        let is_bound = matches!(condition, Condition::Unchanged { .. } | Condition::Expired { .. });
        match table.successor() {
            Some(successor) if !is_bound => self.commit_one(&successor, op, condition, durability),
            _ => Err(error),
        }
    }

    /// Logs and applies an operation under its stripes. On an error, and on `None` (the condition
    /// does not hold), nothing was logged.
    fn log_and_apply(
        &self,
        table: &TableState,
        (op, hash): (&Op<'_>, u64),
        pieces: &[&[u8]; 5],
        condition: Condition,
    ) -> Result<Option<(Appended, Result<()>)>> {
        let removed_entry = condition.removed_entry(table.id, op);
        mutant!(ConditionOutsideStripe => if !mutants::holds_early(self, table, op, condition)? {
            return removed_entry.map_or(Ok(()), |entry| self.expiry.remove(&entry)).map(|()| None);
        });
        let condition = mutant!(ConditionOutsideStripe: Condition::Always, else condition);
        let entry = (op, hash, removed_entry);
        let logged = match op {
            Op::Put { .. } | Op::Delete { .. } => {
                let stripe = self.tables.stripes.hold(self.tables.stripes.index(table.id, hash));
                let begin = || stripe.begin_write();
                let logged = self.log_and_apply_locked(table, entry, pieces, condition, begin);
                stripe.end_write();
                logged?
            }
            Op::DeleteRange { .. } => {
                let stripes = self.tables.stripes.hold_every();
                let begin = || stripes.begin_write();
                let logged = self.log_and_apply_locked(table, entry, pieces, condition, begin);
                stripes.end_write();
                logged?
            }
        };
        Ok(logged)
    }

    /// The part of [`Self::log_and_apply`] for which the stripes are locked. Calls `begin_write`
    /// once nothing but the expiry of the value refuses the write any more.
    pub(super) fn log_and_apply_locked(
        &self,
        table: &TableState,
        (op, hash, removed_entry): (&Op<'_>, u64, Option<ExpiryEntry<'_>>),
        pieces: &[&[u8]; 5],
        condition: Condition,
        begin_write: impl FnOnce(),
    ) -> Result<Option<(Appended, Result<()>)>> {
        self.tables.check_open()?;
        self.tables.check_takes_writes(table)?;
        self.tables.check_types(table, op)?;
        let Some(end) = self.holds_until(table, op, condition)? else {
            removed_entry.map_or(Ok(()), |entry| self.expiry.remove(&entry))?;
            return Ok(None);
        };
        let replaced = table.replaced_expiry(op);
        begin_write();
        if self.has_ended(end) {
            return Ok(None);
        }
        let mut ticket = self.log.begin()?;
        table.engine.prefetch(write_hint(op, hash, 2));
        let watch = Stopwatch::start();
        let appended = ticket.append(pieces)?;
        watch.stop(|counters, time| counters.log_time += time);
        self.versions.save(table, appended.lsn, op, hash);
        let watch = Stopwatch::start();
        let applied = self.apply(table, appended, op);
        let added = self.expiry.add(table, appended, op, replaced);
        let removed = removed_entry.map_or(Ok(()), |entry| self.expiry.remove(&entry));
        watch.stop(|counters, time| counters.apply_time += time);
        Ok(Some((appended, applied.and(added).and(removed))))
    }
}
