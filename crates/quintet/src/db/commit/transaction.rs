//! Commits of transactions.

use crate::{
    Error, Result,
    contract::Op,
    db::{
        core::{Core, durability::Durability},
        encoding::operations::Ops,
        transaction::{TransactionReads, WriteSet},
    },
};

impl Core {
    /// Commits the writes of a transaction if everything that it depends on is current, else fails
    /// with [`Error::Conflict`]. Otherwise as [`Core::commit_batch`]. Without writes it does
    /// nothing.
    ///
    /// A transaction of one write that has read only this key takes the path of a single write,
    /// with a condition. So do blind writes.
    pub(crate) fn commit_transaction(
        &self,
        writes: &WriteSet,
        reads: &mut TransactionReads,
        durability: Durability,
    ) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        if writes.operations() == 1
            && let [table] = writes.tables()
            && let Some(Some((_, op))) = Ops::new(writes.body()).next()
            && let Op::Put { key, .. } | Op::Delete { key } = op
            // Of a table that was cleared, the batch below tells of the conflict.
            && table.dropped_at() == 0
        {
            let stripe = self.tables.stripes.index(table.id, table.hash.hash(key));
            if let Some(condition) = reads.condition(table, stripe) {
                if self.commit_one(table, &op, condition, durability)? {
                    return Ok(());
                }
                return Err(Error::Conflict {
                    table: self.tables.name_of(table),
                    key: key.to_vec(),
                });
            }
        }
        self.commit_batch(writes.body(), writes.tables(), Some(reads), durability)
    }
}
