//! Pages of nodes, built from decoded entries.
//!
//! For rare operations: splits of inner nodes, merges, leaves with long keys. Other full leaves are
//! split without decoding.

use super::{
    cell::{Cell, Payload},
    entry::EntrySlot,
    heads::{hint_step, is_plain_better, skip_of},
    layout::{HEAD_BYTES, HINTS, INNER, LEAF, PACKED, SLOT_BYTES, SLOT_KEY_BYTES},
    shape::TreeShape,
};
use crate::{
    bptree::page_cache::page_bytes::head_of,
    util::codec::{low_u32, put_u32, to_u64},
};

/// Builds the page of a node.
#[derive(Debug)]
pub struct NodeBuilder<'c> {
    /// 0 for a leaf.
    pub level: u8,
    /// Shared by every key that may come to the page.
    pub prefix: &'c [u8],
    /// First child of an inner node.
    pub first_child: u32,
    /// The entries in key order.
    pub cells: &'c [Cell],
}

impl<'c> NodeBuilder<'c> {
    /// Returns the number of bytes of a page that the node uses.
    pub fn size(&self, shape: TreeShape) -> usize {
        self.form(shape).1
    }

    /// Returns the key bytes after the prefix that the page holds.
    fn suffix(&self, shape: TreeShape, cell: Option<&'c Cell>) -> &'c [u8] {
        cell.map_or(&[], |cell| cell.suffix(shape, self.prefix.len()))
    }

    /// Returns the skip of the node if it is not packed.
    fn skip(&self, shape: TreeShape) -> usize {
        let [first, last] = [self.cells.first(), self.cells.last()];
        skip_of(self.suffix(shape, first), self.suffix(shape, last))
    }

    /// Returns whether the node is a packed leaf, and its size in bytes.
    fn form(&self, shape: TreeShape) -> (bool, usize) {
        let entry = |cell: &Cell| SLOT_BYTES + cell.entry_bytes(shape, self.prefix.len());
        let cells: usize = self.cells.iter().map(entry).sum();
        let head = (HEAD_BYTES + self.prefix.len()).next_multiple_of(8);
        let is_even = |cell: &Cell| {
            let is_here =
                matches!(&cell.payload, Payload::Inline(value) if value.len() == shape.value_bytes);
            is_here && cell.long.is_none()
        };
        let packs = self.level == 0 && shape.packs(self.cells.len());
        if !packs || !self.cells.iter().all(is_even) {
            return (false, head + cells);
        }
        let skip = self.skip(shape);
        if is_plain_better(skip, head + cells, shape) {
            return (false, head + cells);
        }
        let saved = |cell: &'c Cell| 4 + self.suffix(shape, Some(cell)).len().min(SLOT_KEY_BYTES);
        (true, head + cells - self.cells.iter().map(saved).sum::<usize>())
    }

    /// Returns the page; its first eight bytes (the cache's) are zero. Returns `None` if the
    /// entries do not fit.
    pub fn build(&self, shape: TreeShape) -> Option<Vec<u8>> {
        let page_bytes = shape.page_bytes;
        let (is_packed, size) = self.form(shape);
        if size > page_bytes {
            return None;
        }
        let mut page = vec![0; page_bytes];
        let mut start = page_bytes;
        let slots = (HEAD_BYTES + self.prefix.len()).next_multiple_of(8);
        let mut entry = Vec::new();
        let skip = if is_packed { 0 } else { self.skip(shape) };
        for (index, cell) in self.cells.iter().enumerate() {
            entry.clear();
            cell.encode(shape, self.prefix.len(), &mut entry);
            if is_packed {
                // Header and slot have the length and the head.
                entry.drain(..4 + self.suffix(shape, Some(cell)).len().min(SLOT_KEY_BYTES));
            }
            start -= entry.len();
            page.get_mut(start..start + entry.len())?.copy_from_slice(&entry);
            let suffix = cell.suffix(shape, self.prefix.len());
            let slot = EntrySlot::encode(suffix, skip, cell.long.is_some(), start);
            let at = slots + index * SLOT_BYTES;
            page.get_mut(at..at + SLOT_BYTES)?.copy_from_slice(&slot.to_le_bytes());
        }
        let kind = match (self.level, is_packed) {
            (0, true) => PACKED,
            (0, false) => LEAF,
            _ => INNER,
        };
        let value_bytes = if is_packed { u16::try_from(shape.value_bytes).ok()? } else { 0 };
        let count = u16::try_from(self.cells.len()).ok()?.to_le_bytes();
        let prefix_len = u16::try_from(self.prefix.len()).ok()?.to_le_bytes();
        let mut head = vec![kind, self.level];
        head.extend_from_slice(&count);
        head.extend_from_slice(&prefix_len);
        head.extend_from_slice(&value_bytes.to_le_bytes());
        put_u32(&mut head, low_u32(to_u64(start)));
        put_u32(&mut head, 0);
        put_u32(&mut head, self.first_child);
        put_u32(&mut head, low_u32(to_u64(skip)));
        let step = hint_step(self.cells.len());
        for hint in 1..=HINTS {
            let cell = if step == 0 { None } else { self.cells.get(hint * step) };
            let suffix = self.suffix(shape, cell);
            put_u32(&mut head, low_u32(head_of(suffix.get(skip..).unwrap_or(&[])) >> 32));
        }
        head.extend_from_slice(self.prefix);
        page.get_mut(8..8 + head.len())?.copy_from_slice(&head);
        Some(page)
    }
}

/// Returns the header of a leaf from its kind on, and its prefix; the hints are zero. The leaf is
/// packed if the length of values is not 0.
pub fn leaf_header(
    count: usize,
    prefix: &[u8],
    lowest: usize,
    (skip, value_bytes): (usize, usize),
) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + prefix.len());
    bytes.extend_from_slice(&[if value_bytes == 0 { LEAF } else { PACKED }, 0]);
    bytes.extend_from_slice(&u16::try_from(count).ok()?.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(prefix.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(value_bytes).ok()?.to_le_bytes());
    put_u32(&mut bytes, low_u32(to_u64(lowest)));
    bytes.extend_from_slice(&[0; 8]);
    put_u32(&mut bytes, low_u32(to_u64(skip)));
    bytes.resize(HEAD_BYTES - 8, 0);
    bytes.extend_from_slice(prefix);
    Some(bytes)
}
