//! The leaf under construction.

use super::node_fill::{LowerSeparator, NodeFill};
use crate::{
    bptree::node::{
        EntrySlot, HEAD_BYTES, HINTS, LongKey, REFERENCE_BYTES, SLOT_BYTES, TreeShape, hint_step,
        leaf_header, skip_of,
    },
    util::codec::shared_len,
};

/// An entry of the open leaf: where its key and what follows it lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedEntry {
    pub(super) start: usize,
    pub(super) key_end: usize,
    pub(super) end: usize,
    /// As in the page.
    pub(super) word: u32,
    pub(super) long: Option<LongKey>,
}

/// The leaf under construction.
#[derive(Debug, Default)]
pub(super) struct OpenLeaf {
    pub(super) lower: LowerSeparator,
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<StagedEntry>,
    pub(super) fill: NodeFill,
    /// What `lower` and the last key share.
    pub(super) shared: usize,
}

impl OpenLeaf {
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let entry = self.entries.get(index);
        entry.and_then(|entry| self.bytes.get(entry.start..entry.key_end)).unwrap_or(&[])
    }

    pub(super) fn last_key(&self) -> &[u8] {
        self.key(self.entries.len().wrapping_sub(1))
    }

    /// Returns the shortest key above entry `index - 1` that is not above entry `index`.
    pub(super) fn separator(&self, index: usize) -> Vec<u8> {
        let (below, above) = (self.key(index.wrapping_sub(1)), self.key(index));
        above.get(..=shared_len(below, above)).unwrap_or(above).to_vec()
    }

    pub(super) fn push(
        &mut self,
        shape: TreeShape,
        key: &[u8],
        staged: (u32, Option<LongKey>),
        rest: [&[u8]; 2],
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        for piece in rest {
            self.bytes.extend_from_slice(piece);
        }
        let end = self.bytes.len();
        let (word, long) = staged;
        self.fill.add(shape, (key.len(), end - key_end), long.is_some());
        self.entries.push(StagedEntry { start, key_end, end, word, long });
    }

    /// Removes the first entries, which are in a finished page.
    pub(super) fn drain(&mut self, shape: TreeShape, count: usize) {
        let from = self.entries.get(count).map_or(self.bytes.len(), |entry| entry.start);
        self.bytes.drain(..from);
        self.entries.drain(..count);
        self.fill = NodeFill::default();
        for entry in &mut self.entries {
            entry.start -= from;
            entry.key_end -= from;
            entry.end -= from;
            let sizes = (entry.key_end - entry.start, entry.end - entry.key_end);
            self.fill.add(shape, sizes, entry.long.is_some());
        }
    }

    /// Returns the first entry of the longest suffix that fits in a leaf without a prefix.
    pub(super) fn tail(&self, shape: TreeShape) -> usize {
        let mut fill = NodeFill::default();
        let fitting = self.entries.iter().rev().take_while(|entry| {
            let sizes = (entry.key_end - entry.start, entry.end - entry.key_end);
            fill.add(shape, sizes, entry.long.is_some());
            fill.size(0) <= shape.page_bytes
        });
        self.entries.len() - fitting.count()
    }

    /// Builds the page of the first `count` entries, with a prefix of this length.
    pub(super) fn build(
        &self,
        shape: TreeShape,
        count: usize,
        prefix: usize,
        page: &mut [u8],
    ) -> Option<()> {
        page.fill(0);
        let entries = self.entries.get(..count)?;
        let suffix = |entry: &StagedEntry| {
            let suffix = self.bytes.get(entry.start + prefix..entry.key_end)?;
            let inline = if entry.long.is_some() { shape.key_inline_max() } else { suffix.len() };
            suffix.get(..inline.min(suffix.len()))
        };
        let skip = match (entries.first(), entries.last()) {
            (Some(first), Some(last)) => skip_of(suffix(first)?, suffix(last)?),
            _ => 0,
        };
        let slots = (HEAD_BYTES + prefix).next_multiple_of(8);
        let mut heap = shape.page_bytes;
        for (index, entry) in entries.iter().enumerate() {
            let (key, rest) = (suffix(entry)?, self.bytes.get(entry.key_end..entry.end)?);
            let reference = if entry.long.is_some() { REFERENCE_BYTES } else { 0 };
            let bytes = 4 + key.len() + reference + rest.len();
            heap = heap.checked_sub(bytes)?;
            let (word, target) = page.get_mut(heap..heap + bytes)?.split_at_mut_checked(4)?;
            word.copy_from_slice(&entry.word.to_le_bytes());
            let (front, target) = target.split_at_mut_checked(key.len())?;
            front.copy_from_slice(key);
            let (middle, back) = target.split_at_mut_checked(reference)?;
            if let (Some(long), Some((length, page))) = (entry.long, middle.split_at_mut_checked(4))
            {
                length.copy_from_slice(&long.length.to_le_bytes());
                page.copy_from_slice(&long.page.to_le_bytes());
            }
            back.copy_from_slice(rest);
            let at = slots + index * SLOT_BYTES;
            let slot = EntrySlot::encode(key, skip, entry.long.is_some(), heap).to_le_bytes();
            page.get_mut(at..at + SLOT_BYTES)?.copy_from_slice(&slot);
        }
        let front = leaf_header(count, self.key(0).get(..prefix)?, heap, (skip, 0))?;
        page.get_mut(8..8 + front.len())?.copy_from_slice(&front);
        let step = hint_step(count);
        for hint in 0..if step == 0 { 0 } else { HINTS } {
            let at = slots + (hint + 1) * step * SLOT_BYTES + 4;
            page.copy_within(at..at + 4, 32 + hint * 4);
        }
        (slots + count * SLOT_BYTES <= heap).then_some(())
    }
}
