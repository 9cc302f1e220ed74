//! A pending merge of a batch.

use crate::{db::tables::state::TableState, io::process::ProcessArc};

/// A merge of a batch.
#[derive(Debug)]
pub(super) struct BatchMerge {
    /// Number of bytes of the batch's body that precede it.
    pub(super) at: usize,
    pub(super) table: ProcessArc<TableState>,
    pub(super) key: Vec<u8>,
    pub(super) operand: Vec<u8>,
}
