//! The cursor over one memtable.

use std::sync::Arc;

use super::sorted_cursor::{DiskCursor, ScanStart, SortedCursor};
use crate::{
    Result,
    contract::Direction,
    lsm::memtable::{Memtable, skiplist::Node},
};

/// A cursor over one memtable.
#[derive(Debug)]
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    way: Direction,
    node: Option<Node>,
    key: Vec<u8>,
    value: Vec<u8>,
    tombstone: bool,
}

impl MemtableCursor {
    /// Creates a cursor for each memtable, all at their first entry.
    pub(crate) fn all(memtables: Vec<Arc<Memtable>>, start: &ScanStart) -> Vec<Self> {
        let (way, key) = (start.way, start.key.as_deref());
        let nodes = match way {
            Direction::Up => Memtable::seek_all(&memtables, key.unwrap_or(&[])),
            Direction::Down => memtables.iter().map(|one| one.seek_before(key)).collect(),
        };
        let at = |(memtable, node)| {
            let (key, value) = Default::default();
            let mut cursor = Self { memtable, way, node, key, value, tombstone: false };
            cursor.load();
            cursor
        };
        memtables.into_iter().zip(nodes).map(at).collect()
    }

    fn load(&mut self) {
        if let Some(node) = self.node {
            if self.way == Direction::Up {
                // It arrives while this entry is merged.
                self.memtable.prefetch_next(node);
            }
            self.tombstone = self.memtable.read(node, &mut self.key, &mut self.value);
        }
    }

    fn advance_node(&mut self) {
        self.node = match (self.node, self.way) {
            (None, _) => None,
            (Some(node), Direction::Up) => self.memtable.next_key(node, &self.key),
            (Some(_), Direction::Down) => self.memtable.seek_before(Some(&self.key)),
        };
        self.load();
    }
}

impl SortedCursor for MemtableCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.node.is_some().then_some(self.key.as_slice())
    }

    fn value(&self) -> Option<&[u8]> {
        (!self.tombstone).then_some(self.value.as_slice())
    }

    fn advance(&mut self) -> Result<()> {
        self.advance_node();
        Ok(())
    }

    fn load_first(&mut self) -> Result<()> {
        Ok(())
    }

    fn prefetch(&self) {}

    fn collect_disk_reads<'a>(&'a mut self, _out: &mut Vec<&'a mut dyn DiskCursor>) -> Result<()> {
        Ok(())
    }
}
