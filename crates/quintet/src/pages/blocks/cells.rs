//! Which cells are free, and where frames begin: buddies (Knowlton, 1965).
//!
//! Invariants: every cell is in one frame or in one free run; both have a power of two of cells and
//! begin at a multiple of it. Two free halves of a larger run are that run.

use std::{collections::BTreeSet, mem::take, ops::Range};

use crate::codec::{low_u8, to_usize};

#[derive(Debug)]
pub(super) struct Cells {
    /// Frames and runs have at most two to this power of cells.
    order_max: u32,
    /// Where runs of each order are free.
    free: Vec<BTreeSet<u32>>,
    /// For each cell, the order of the frame that begins there, and one; 0: none does.
    orders: Vec<u8>,
}

fn index(number: u32) -> usize {
    to_usize(u64::from(number))
}

impl Cells {
    /// No cells.
    pub(super) fn new(order_max: u32) -> Self {
        let free = (0..=order_max).map(|_| BTreeSet::new()).collect();
        Self { order_max, free, orders: Vec::new() }
    }

    /// Adds cells, a whole number of the largest runs, behind the last one.
    pub(super) fn extend(&mut self, cells: Range<u32>) {
        self.orders.resize(index(cells.end), 0);
        if let Some(free) = self.free.last_mut() {
            free.extend(cells.step_by(1 << self.order_max));
        }
    }

    /// Takes away all cells from this one on.
    pub(super) fn truncate(&mut self, end: u32) {
        self.orders.truncate(index(end));
        for free in &mut self.free {
            drop(free.split_off(&end));
        }
    }

    /// The order of the frame that begins at a cell, if one does.
    pub(super) fn order_at(&self, cell: u32) -> Option<u32> {
        u32::from(*self.orders.get(index(cell))?).checked_sub(1)
    }

    /// Whether no frame begins at any of these cells.
    pub(super) fn are_free(&self, cells: Range<u32>) -> bool {
        let orders = self.orders.get(index(cells.start)..index(cells.end));
        orders.is_some_and(|orders| orders.iter().all(|order| *order == 0))
    }

    /// A frame of this order, out of the first free run that is large enough.
    pub(super) fn cut(&mut self, order: u32) -> Option<u32> {
        let mut free = self.free.iter_mut().zip(0..).skip(index(order));
        let (cell, mut found) = free.find_map(|(free, found)| Some((free.pop_first()?, found)))?;
        while found > order {
            found -= 1;
            self.free.get_mut(index(found))?.insert(cell + (1 << found));
        }
        *self.orders.get_mut(index(cell))? = low_u8(u64::from(order) + 1);
        Some(cell)
    }

    /// Frees the frame that begins at a cell, if one does; whether.
    pub(super) fn give(&mut self, mut cell: u32) -> bool {
        let order = self.orders.get_mut(index(cell)).map_or(0, take);
        let Some(mut order) = u32::from(order).checked_sub(1) else { return false };
        while order < self.order_max
            && let Some(free) = self.free.get_mut(index(order))
            && free.remove(&(cell ^ 1 << order))
        {
            cell &= !(1 << order);
            order += 1;
        }
        self.free.get_mut(index(order)).is_some_and(|free| free.insert(cell))
    }

    /// Cells in free runs, in frames, and in free runs of the largest order.
    #[cfg(test)]
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let of_order = |(order, free): (usize, &BTreeSet<u32>)| free.len() << order;
        let free = self.free.iter().enumerate().map(of_order).sum();
        let used = self.orders.iter().filter(|order| **order > 0).map(|order| 1 << (order - 1));
        let whole = self.free.last().map_or(0, BTreeSet::len) << self.order_max;
        (free, used.sum(), whole)
    }
}
