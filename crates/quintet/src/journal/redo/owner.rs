//! The table that a file belongs to.

use std::sync::Arc;

use crate::io::Dir;

/// The table that a file belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// The table's directory.
    pub(crate) dir: Arc<dyn Dir>,
    /// Identity of the database. Heads of files and groups carry it.
    pub(crate) database_id: [u8; 16],
    /// Identity of the table. Heads of files and groups carry it, and messages name it.
    pub(crate) table_id: u64,
}

impl Owner {
    /// Returns the name of one of the table's files for messages.
    pub(crate) fn label(&self, name: &str) -> String {
        format!("tables/{}/{name}", self.table_id)
    }
}
