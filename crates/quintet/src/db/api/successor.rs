//! Handles of a table that was cleared: they refer to its successor.
//!
//! [`Table::clear`] drops the table and creates an empty one of the same name. A handle keeps the
//! state of the table that it was created for. An operation that finds the state dropped is done by
//! a handle of the successor. So operations on a table that was not cleared cost nothing more.

use std::borrow::Cow;

use super::table::Table;
use crate::{Error, Result, io::process::ProcessArc};

impl Table {
    /// Returns a handle of the table's successor. Fails with `error` if the table was not cleared.
    #[cold]
    pub(super) fn follow(&self, error: Error) -> Result<Self> {
        let state = self.state.successor().ok_or(error)?;
        Ok(Self { session: self.session.clone(), state: ProcessArc::new(state) })
    }

    /// Runs a read that has found the table not live on its successor. Fails if the table was not
    /// cleared.
    #[cold]
    #[inline(never)]
    pub(super) fn on_successor<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let usable = self.session.core.tables.check_usable(&self.state);
        read(&usable.map_or_else(|error| self.follow(error), |()| Ok(self.clone()))?)
    }

    /// Returns this handle, or one of the table's successor if the table was cleared.
    pub(crate) fn current(&self) -> Cow<'_, Self> {
        if self.state.is_live() {
            return Cow::Borrowed(self);
        }
        self.follow(Error::Closed).map_or(Cow::Borrowed(self), Cow::Owned)
    }
}
