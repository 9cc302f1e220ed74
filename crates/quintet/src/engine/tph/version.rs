//! Versions: the tables of all levels at one time.

use std::sync::Arc;

use super::table::TphTable;

/// A version of the table set. Readers see it in a [`SuperVersion`]; it never changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Version {
    /// Tables of level 0, newest first.
    pub(super) level0: Vec<Arc<TphTable>>,
    /// Levels from 1 on, so index 0 is level 1. The tables of a level are in the order of their
    /// lower bounds, the first of which is empty.
    pub(super) levels: Vec<Vec<Arc<TphTable>>>,
    /// Bytes of the blocks of all SSTs.
    pub(super) data_bytes: u64,
}

/// The memtables and the version that a reader sees.
pub(super) type SuperVersion = crate::lsm::super_version::SuperVersion<Version>;

impl Version {
    /// Computes `data_bytes`, after the last change of the tables.
    pub(super) fn update_data_bytes(&mut self) {
        let ssts = self.tables().flat_map(|table| &table.ssts);
        self.data_bytes = ssts.map(|one| one.sst.data_bytes()).sum();
    }

    /// Iterates over all tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<TphTable>> {
        self.level0.iter().chain(self.levels.iter().flatten())
    }

    /// Returns whether a level below `level` (0 is level 1) has an SST.
    pub(super) fn has_ssts_below(&self, level: usize) -> bool {
        self.levels.iter().skip(level + 1).flatten().any(|table| !table.ssts.is_empty())
    }

    /// Replaces the tables of a level (0 is level 1), and adds the level if it is new.
    pub(super) fn set_level(&mut self, level: usize, tables: Vec<Arc<TphTable>>) {
        while self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        if let Some(slot) = self.levels.get_mut(level) {
            *slot = tables;
        }
        // The deepest level has tables.
        while self.levels.last().is_some_and(Vec::is_empty) {
            self.levels.pop();
        }
    }
}
