//! Merges into the values of a table.

use super::{registry::TableRegistry, state::TableState, value::Value};
use crate::{
    Error, Result,
    contract::TableOptions,
    db::{encoding::envelope::EncodedEnvelope, limits::check_value, merge::TableMerge},
    util::{mutant::mutant, types::TableTypes},
};

impl TableRegistry {
    /// Fails with [`Error::MergeOperatorMissing`] if the table has a merge operator that this
    /// database does not know, unless the options of the database allow that.
    pub(crate) fn check_merge_operator(&self, table: &TableState) -> Result<()> {
        let merge = table.merge.as_ref().filter(|merge| merge.is_missing());
        match merge {
            Some(merge) if !self.merge_operators().may_be_missing => {
                Err(self.merge_operator_missing(table, merge))
            }
            _ => Ok(()),
        }
    }

    /// Fails if a new table cannot have the merge operator that its options name.
    pub(super) fn check_new_merge_operator(
        &self,
        path: &str,
        options: &TableOptions,
    ) -> Result<()> {
        let Some(name) = options.merge_operator() else { return Ok(()) };
        let merge = self.merge_operators().find(name);
        if merge.is_missing() {
            let (table, operator) = (path.to_owned(), name.to_owned());
            return Err(Error::MergeOperatorMissing { table, operator });
        }
        options.table_types().map_or(Ok(()), |types| merge.check_types(types))
    }

    fn merge_operator_missing(&self, table: &TableState, merge: &TableMerge) -> Error {
        let (table, operator) = (self.name_of(table), merge.name.to_string());
        Error::MergeOperatorMissing { table, operator }
    }

    /// Returns the table's merge operator. Fails with [`Error::InvalidOption`] if it has none, and
    /// with [`Error::MergeOperatorMissing`].
    pub(crate) fn merge_operator<'a>(&self, table: &'a TableState) -> Result<&'a TableMerge> {
        match &table.merge {
            Some(merge) if merge.is_missing() => Err(self.merge_operator_missing(table, merge)),
            Some(merge) => Ok(merge),
            None => Err(Error::InvalidOption {
                name: "merge".to_owned(),
                what: format!("table {} was created without a merge operator", self.name_of(table)),
            }),
        }
    }

    /// Returns what a merge makes of the value of `key`: the envelope, which is that of the value,
    /// and the new value.
    pub(crate) fn merged(
        &self,
        table: &TableState,
        (key, old): (&[u8], Option<&Value>),
        operand: &[u8],
    ) -> Result<(EncodedEnvelope, Vec<u8>)> {
        let merged = self.merged_value(table, (key, old), operand)?;
        let old = mutant!(MergeForgetsExpiry: None, else old);
        Ok((old.map(Value::envelope).unwrap_or_default().encode(), merged))
    }

    /// Returns the value that the table's operator makes of the value of `key` and an operand.
    pub(crate) fn merged_value(
        &self,
        table: &TableState,
        (key, old): (&[u8], Option<&Value>),
        operand: &[u8],
    ) -> Result<Vec<u8>> {
        let merge = self.merge_operator(table)?;
        let value_type = table.types().map(TableTypes::value);
        mutant!(MergeIgnoresValue => return Ok(operand.to_vec()));
        let merged = merge.merge(value_type, (key, old.map(|old| &**old)), operand);
        let merged = merged.map_err(|reason| Error::MergeRefused {
            table: self.name_of(table),
            key: key.to_vec(),
            operator: merge.name.to_string(),
            reason,
        })?;
        check_value(&merged)?;
        Ok(merged)
    }
}
