//! What the registry tells change feeds through the log: tables that begin, and where the log lacks
//! a change. [Decision 141](../../../../../docs/decisions/141-change-feeds.md) has the reasons.

use super::registry::TableRegistry;
use crate::{
    Result,
    db::encoding::{
        operations::Frame,
        table_begin::{NO_TABLE, TableBegin, separator},
    },
    util::mutant::mutant,
};

impl TableRegistry {
    /// Notes that a table was cleared, or dropped and may be created again, without a record.
    pub(super) fn note_unlogged(&self) {
        if !self.log.is_retained() {
            self.log.note_unlogged();
        }
    }

    /// Logs a record that stands for nothing, if the log ends where it lacks a change. Then the end
    /// is behind the change, and a change feed can begin there.
    pub(crate) fn separate_unlogged(&self) -> Result<()> {
        if self.log.readable_from() <= self.log.end() {
            return Ok(());
        }
        self.check_writable()?;
        let op = separator();
        self.log.begin()?.append(&Frame::alone(NO_TABLE, &op).pieces(&op)).map(drop)
    }

    /// Logs that a table begins, before its catalog edit: for change feeds, if there are or may be
    /// some. Durable on return, so that no table begins without its record.
    pub(super) fn log_begin(&self, id: u64) -> Result<()> {
        if !self.log.is_retained() {
            return Ok(());
        }
        mutant!(TableBeginsUnlogged => return Ok(()));
        let begin = TableBegin::new(id);
        let frame = Frame::alone(NO_TABLE, &begin.op());
        self.log.begin()?.append(&frame.pieces(&begin.op()))?;
        self.log.sync().map(drop)
    }
}
