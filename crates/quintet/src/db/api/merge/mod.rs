//! Merges: changes by the merge operator of a table.

#[cfg(all(test, not(model)))]
mod tests;

use super::{
    atomic::change_to, table::Table, transaction::Transaction, write_options::UpdateOptions,
};
use crate::{
    Result,
    contract::Op,
    db::{
        core::{condition::Condition, key_change::ComputeSite},
        limits::check_key,
    },
};

impl Table {
    /// Changes the value of `key` by the table's merge operator and `operand`. No other write of
    /// the key comes between.
    ///
    /// The operator is chosen when the table is created
    /// ([`TableOptions::merge`](crate::TableOptions::merge)):
    ///
    /// | operator | new value |
    /// |---|---|
    /// | `add_i64`, `add_u64` | the sum; value and operand have 8 bytes, little-endian; a missing value counts as 0 |
    /// | `max`, `min` | the greater or the smaller of value and operand. Values of a numeric type of the table compare as numbers, others byte by byte |
    /// | `append` | the value followed by the operand |
    /// | another name | what the function returns that [`Options::merge_operator`](crate::Options::merge_operator) has added |
    ///
    /// A missing or expired value takes the operand with `max`, `min` and `append`. The new value
    /// keeps the expiry and the type tag of the old one.
    ///
    /// Cost: that of a get and a put: the log and the engine get the new value.
    ///
    /// Fails with [`Error::InvalidOption`](crate::Error::InvalidOption) if the table has no
    /// operator. Fails with [`Error::MergeOperatorMissing`](crate::Error::MergeOperatorMissing) if
    /// the operator is not registered. Fails with
    /// [`Error::MergeRefused`](crate::Error::MergeRefused) if it cannot merge the operand, for
    /// example because the sum is outside the range. Otherwise fails as [`Table::put`] and
    /// [`Table::get`] do.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// use quintet::{EngineKind, TableOptions};
    /// let hits = TableOptions::new(EngineKind::HashLog).merge("add_u64");
    /// let hits = db.open_or_create_table("hits", hits)?;
    /// hits.merge("/index.html", 1_u64.to_le_bytes())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, UpdateOptions::new())
    }

    /// Merges `operand` into the value of `key` as `options` say. Otherwise as [`Table::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: UpdateOptions,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        check_key(key)?;
        let tables = &self.session.core.tables;
        tables.check_process()?;
        // A function of the application must not run under a lock.
        let site = if tables.merge_operator(&self.state)?.is_registered() {
            ComputeSite::Unlocked
        } else {
            ComputeSite::Anywhere
        };
        self.commit_update_at(site, key, options, |rule, old| {
            change_to(rule, old, Some(tables.merged_value(&self.state, (key, old), operand)?))
        })?;
        Ok(())
    }
}

impl Transaction {
    /// Merges `operand` into the value of `key`, at commit; see [`Table::merge`]. It counts as a
    /// read of the key.
    pub fn merge(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let key = key.as_ref();
        let old = self.get(table, key)?;
        let tables = &self.session.core.tables;
        let (envelope, merged) =
            tables.merged(&table.state, (key, old.as_ref()), operand.as_ref())?;
        let op = Op::Put { key, head: envelope.as_slice(), body: &merged };
        self.write(table, &op, (Condition::Always, None)).map(drop)
    }
}
