//! Wrong code of the planted bugs of checkpoint rounds.

use std::sync::Arc;

use crate::{
    Result,
    db::{
        catalog::edit::Progress,
        tables::{registry::TableRegistry, state::TableState},
    },
    util::codec::Lsn,
};

/// Records in the catalog that the tables are complete to `up_to`, before their checkpoints.
pub(super) fn record_early(
    tables: &TableRegistry,
    chosen: &[Arc<TableState>],
    up_to: Lsn,
) -> Result<()> {
    let dirty = chosen.iter().filter(|table| table.is_dirty());
    let complete = dirty.map(|table| (table.id, up_to)).collect();
    tables.catalog.progress(Progress { tables: complete, ..Progress::default() })
}
