//! An inner node under construction.

use super::node_fill::{LowerSeparator, NodeFill};
use crate::{
    bptree::node::{Cell, TreeShape},
    util::codec::shared_len,
};

/// An inner node under construction.
#[derive(Debug, Default)]
pub(super) struct OpenNode {
    pub(super) lower: LowerSeparator,
    /// Missing until the first child is finished.
    pub(super) first_child: Option<u32>,
    pub(super) cells: Vec<Cell>,
    pub(super) fill: NodeFill,
}

impl OpenNode {
    pub(super) fn push(&mut self, shape: TreeShape, cell: Cell) {
        self.fill.add(shape, cell_sizes(&cell), cell.long.is_some());
        self.cells.push(cell);
    }

    /// Returns the length of the node's prefix if `upper` is its upper bound.
    pub(super) fn prefix(&self, shape: TreeShape, upper: &[u8]) -> usize {
        shared_len(&self.lower.key, upper).min(shape.prefix_max())
    }

    /// Returns the separator before the longest suffix that fits in a node without a prefix.
    pub(super) fn tail(&self, shape: TreeShape) -> usize {
        let mut fill = NodeFill::default();
        let fitting = self.cells.iter().rev().take_while(|cell| {
            fill.add(shape, cell_sizes(cell), cell.long.is_some());
            fill.size(0) <= shape.page_bytes
        });
        self.cells.len() - fitting.count()
    }
}

fn cell_sizes(cell: &Cell) -> (usize, usize) {
    (cell.key.len(), 0)
}
