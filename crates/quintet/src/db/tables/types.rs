//! The check of a write against the types of its table.

use super::{registry::TableRegistry, state::TableState};
use crate::{
    Error, Result, contract::Op, db::encoding::envelope::Envelope, util::types::TableTypes,
};

impl TableRegistry {
    /// Fails with [`Error::TypeMismatch`] for a write of other types than the table's.
    #[inline]
    pub(crate) fn check_types(&self, table: &TableState, op: &Op<'_>) -> Result<()> {
        match table.types() {
            None => Ok(()),
            Some(types) => self.check_types_of_write(table, types, op),
        }
    }

    fn check_types_of_write(
        &self,
        table: &TableState,
        types: &TableTypes,
        op: &Op<'_>,
    ) -> Result<()> {
        let (key, value) = match *op {
            Op::Put { key, head, body } => (key, Some((head, body))),
            Op::Delete { key } => (key, None),
            Op::DeleteRange { .. } => return Ok(()),
        };
        if !types.is_key(key) {
            let what = format!("a key of {} bytes that is no {}", key.len(), types.key_names());
            return Err(self.type_mismatch(table, types, what));
        }
        let Some((head, body)) = value else { return Ok(()) };
        // A batch carries envelope and value in one piece.
        let start_of_value = if head.is_empty() { body } else { head };
        let (envelope, start) =
            Envelope::decode(start_of_value).ok_or_else(|| self.bad_envelope(table))?;
        if let Some(tag) = envelope.type_tag.filter(|tag| *tag != types.value()) {
            return Err(self.type_mismatch(
                table,
                types,
                format!("a value that is said to be {tag}"),
            ));
        }
        let body = if head.is_empty() { body.get(start..).unwrap_or(&[]) } else { body };
        if types.is_value(body) {
            return Ok(());
        }
        let what = format!("a value of {} bytes that is no {}", body.len(), types.value());
        Err(self.type_mismatch(table, types, what))
    }

    pub(crate) fn type_mismatch(
        &self,
        table: &TableState,
        types: &TableTypes,
        found: String,
    ) -> Error {
        Error::TypeMismatch { table: self.name_of(table), expected: types.to_string(), found }
    }
}
