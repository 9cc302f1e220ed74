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
    /// some. Durable on return, so that no table begins without its record. Returns whether it
    /// logged that.
    pub(super) fn log_begin(&self, id: u64) -> Result<bool> {
        if !self.log.is_retained() {
            return Ok(false);
        }
        mutant!(TableBeginsUnlogged => return Ok(true));
        let begin = TableBegin::new(id);
        let frame = Frame::alone(NO_TABLE, &begin.op());
        self.log.begin()?.append(&frame.pieces(&begin.op()))?;
        self.log.sync().map(|_| true)
    }
}
