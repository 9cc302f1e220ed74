//! Clearing a table: an empty one takes its place, under a new number.
//!
//! Invariants:
//! - The successor is set after the edit of the catalog is durable, and before any thread can find
//!   the new table by its name.
//! - No snapshot is taken while it is set. So each snapshot reads the old table or the new one.
//! - The pending removals own the old table as long as a snapshot may read it.
//! - A table leads to its last successor once the clear has returned. So handles that are older
//!   than many clears keep two tables: their own and the last.
//!
//! Locks: the file and the names of the catalog, then the map of tables, the pending removals and
//! the open snapshots.

use std::{cell::RefCell, sync::Arc};

use super::{registry::TableRegistry, state::TableState};
use crate::{
    Result,
    db::catalog::tree::TableNode,
    util::sync::{Ordering, lock, write},
};

impl TableRegistry {
    /// Replaces a table by an empty one with the same name, options and types. Returns whether the
    /// old one may have entries in the expiry index. `number_for` calls its argument with the
    /// moment in the numbers of snapshots, while no snapshot is taken.
    ///
    /// A write to the old table that has begun may still be applied to it: it is ordered before.
    pub(crate) fn clear(
        &self,
        old: &Arc<TableState>,
        number_for: impl FnOnce(&mut dyn FnMut(u64)),
    ) -> Result<bool> {
        self.prepare_edit()?;
        let state = RefCell::new(None);
        let prepare = |id, node: &TableNode| {
            self.check_takes_writes(old)?;
            if !self.log_begin(id)? {
                self.log.note_unlogged();
            }
            self.open_new(id, node, &mut state.borrow_mut())
        };
        let then = || {
            if let Some(new) = &*state.borrow() {
                self.replace(old, new, number_for);
            }
        };
        let outcome = match self.catalog.clear_table(old.id, prepare, then) {
            Ok(Some(id)) => Ok(id),
            // Another thread has dropped or cleared it.
            Ok(None) => return Err(self.unusable(old, old.status())),
            Err(error) => Err(error),
        };
        self.end_creation(outcome, state.into_inner())?;
        Ok(old.may_expire.load(Ordering::Acquire))
    }

    /// Puts an empty table in the place of one that is cleared.
    fn replace(
        &self,
        old: &Arc<TableState>,
        new: &Arc<TableState>,
        number_for: impl FnOnce(&mut dyn FnMut(u64)),
    ) {
        let mut tables = write(&self.tables);
        let mut removals = lock(&self.pending_removals);
        let removed = tables.remove(&old.id);
        number_for(&mut |number| old.mark_cleared(new, number));
        removals.push((old.id, removed));
        drop((removals, tables));
        // Without these locks: this may free a table.
        new.follow_predecessors();
    }
}
