//! Merges in batches.
//!
//! The values that merges read are those of the moment of the commit, so they are read and
//! validated as those of a transaction. If another commit changes one of them meanwhile, the batch
//! begins again.

use std::{ops::Range, time::Duration};

use super::{Batch, batch_merge::BatchMerge};
use crate::{
    Error, Result,
    contract::Op,
    db::{
        api::table::Table,
        core::durability::Durability,
        encoding::operations::Ops,
        limits::{check_key, check_value},
        tables::{state::TableState, value::Value},
        transaction::{OwnValue, ReadMode, TransactionReads, WriteSet},
    },
    util::{codec::to_u64, mutant::mutant},
};

/// Number of times that a batch is tried again.
const ATTEMPTS_MAX: u32 = 1000;
/// Time after which a batch is not tried again: a write may wait for memory at each attempt.
const REPEATED_FOR_MAX: Duration = Duration::from_secs(10);

impl Batch {
    /// Adds a merge; see [`Table::merge`]. The value is that of the moment of the commit, with the
    /// earlier operations of the batch. A batch with merges is committed as a transaction is: after
    /// a conflict it begins again. If it still conflicts after 1,000 attempts or 10 s, it fails
    /// with [`Error::Conflict`](crate::Error::Conflict).
    ///
    /// Each merge copies the value: the time of thousands of `append`s to one key in a batch grows
    /// with the square of their number.
    pub fn merge(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> &mut Self {
        let added = self.try_merge(table, key.as_ref(), operand.as_ref());
        self.keep_refusal(added)
    }

    fn try_merge(&mut self, table: &Table, key: &[u8], operand: &[u8]) -> Result<()> {
        let tables = &self.session.core.tables;
        tables.check_process()?;
        check_key(key)?;
        check_value(operand)?;
        tables.merge_operator(&table.state)?;
        self.add_merge(table, key, operand)
    }

    /// Adds a merge of a table that has an operator.
    fn add_merge(&mut self, table: &Table, key: &[u8], operand: &[u8]) -> Result<()> {
        self.check_own(table)?;
        let added = to_u64(key.len() + operand.len() + size_of::<BatchMerge>());
        self.merge_bytes += added;
        if let Err(error) = self.check_bytes() {
            self.merge_bytes -= added;
            return Err(error);
        }
        self.operations += 1;
        self.merges.push(BatchMerge {
            at: self.body.len(),
            table: table.state.clone(),
            key: key.to_vec(),
            operand: operand.to_vec(),
        });
        Ok(())
    }

    /// Commits the operations and the merges between them, all or none. Fails with
    /// [`Error::Conflict`] if other commits changed what the merges read at each of
    /// [`ATTEMPTS_MAX`] attempts, or for [`REPEATED_FOR_MAX`].
    pub(super) fn commit_merges(&self, durability: Durability) -> Result<()> {
        let core = &self.session.core;
        let (mut attempt, began) = (0, core.env.monotonic());
        let may_repeat = |attempt| {
            let waited = core.env.monotonic().saturating_sub(began);
            attempt < ATTEMPTS_MAX && waited < REPEATED_FOR_MAX
        };
        loop {
            let mode = if attempt == 0 { ReadMode::Versions } else { ReadMode::Snapshot };
            let mut reads = TransactionReads::new(mode);
            let mut writes = WriteSet::new();
            let outcome = self.fold_merges(&mut reads, &mut writes).and_then(|()| {
                mutant!(MergeNotValidated => {
                    return core.commit_batch(writes.body(), writes.tables(), None, durability);
                });
                core.commit_transaction(&writes, &mut reads, durability)
            });
            match outcome {
                Err(Error::Conflict { .. } | Error::SnapshotExpired { .. })
                    if may_repeat(attempt) =>
                {
                    core.pause_before_retry(attempt);
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Adds the operations to `writes`, each merge as a put.
    fn fold_merges(&self, reads: &mut TransactionReads, writes: &mut WriteSet) -> Result<()> {
        let mut done = 0;
        for merge in &self.merges {
            self.add_operations(done..merge.at, writes)?;
            done = merge.at;
            self.fold_merge(merge, reads, writes)?;
        }
        self.add_operations(done..self.body.len(), writes)
    }

    fn add_operations(&self, part: Range<usize>, writes: &mut WriteSet) -> Result<()> {
        let body = self.body.get(part).unwrap_or(&[]);
        for (id, op) in Ops::new(body).flatten() {
            if let Some(table) = self.tables.iter().find(|table| table.id == id) {
                writes.add(&self.session.core.budget, &TableState::current(table), &op)?;
            }
        }
        Ok(())
    }

    fn fold_merge(
        &self,
        merge: &BatchMerge,
        reads: &mut TransactionReads,
        writes: &mut WriteSet,
    ) -> Result<()> {
        let core = &self.session.core;
        let BatchMerge { table, key, operand, .. } = merge;
        let table = &TableState::current(table);
        let own = mutant!(MergeMissesOwnWrites: OwnValue::Unwritten, else
            writes.find(table.id, key));
        let old = match own {
            OwnValue::Unwritten => reads.get(core, table, key)?,
            OwnValue::Stored(place) => {
                let value = Value::open(writes.stored(place));
                Some(value.ok_or_else(|| core.tables.bad_envelope(table))?)
            }
            OwnValue::Deleted => None,
        };
        let (envelope, merged) = core.tables.merged(table, (key, old.as_ref()), operand)?;
        let op = Op::Put { key, head: envelope.as_slice(), body: &merged };
        writes.add(&core.budget, table, &op)
    }
}
