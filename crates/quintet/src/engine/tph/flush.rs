//! From memtables to files: as a table of level 0, or straight into level 1.
//!
//! A flush freezes the active memtable with no writer on the way into it, so everything below what
//! the caller was promised to be applied is in what is written; later effects may be too, which
//! replay repeats.

use std::sync::Arc;

use super::{
    Inner, Version, View,
    cursor::{MemCursor, Source, Start, Way},
    memtable::Memtable,
    merge::{Base, Plan},
    publish::Fresh,
    table::Table,
};
use crate::{
    Result,
    codec::Lsn,
    sync::{Ordering, lock},
};

/// Walks over memtables.
pub(super) fn walks(memtables: &[Arc<Memtable>], start: &Start) -> Vec<Source> {
    let walk = |one: &Arc<Memtable>| MemCursor::new(Arc::clone(one), start);
    memtables.iter().map(|one| Source::Mem(Box::new(walk(one)))).collect()
}

impl Inner {
    /// Makes every effect below `up_to` durable in the files.
    pub(super) fn flush_to(&self, up_to: Lsn) -> Result<Lsn> {
        let _flushing = lock(&self.flushing);
        let view = self.view.load_full();
        if !view.active.is_empty() {
            self.rotate(&view.active)?;
        }
        self.flush_frozen(Some(up_to.0)).map(Lsn)
    }

    /// Flushes what is frozen, and, where nothing is, the active memtable.
    pub(super) fn flush_backlog(&self) -> Result<()> {
        let before = self.view.load_full();
        let _flushing = lock(&self.flushing);
        let view = self.view.load_full();
        if !before.frozen.is_empty() && view.frozen.len() < before.frozen.len() {
            // Whoever held the lock did it.
            return Ok(());
        }
        if view.frozen.is_empty() && !view.active.is_empty() {
            self.rotate(&view.active)?;
        }
        self.flush_frozen(None).map(drop)
    }

    fn flush_frozen(&self, complete: Option<u64>) -> Result<u64> {
        let view = self.view.load_full();
        let known = self.complete();
        if view.frozen.is_empty() && complete.is_none_or(|lsn| lsn <= known) {
            return Ok(known);
        }
        let fresh = Fresh::new(self);
        if view.frozen.is_empty() {
            return self.publish(&fresh, complete, &[], Clone::clone);
        }
        self.counters.flushes_total.fetch_add(1, Ordering::Relaxed);
        if self.settings.is_flat() {
            let _compacting = lock(&self.compacting);
            let view = self.view.load_full();
            let delta = |start: &Start| walks(&view.frozen, start);
            let level = self.merge_into(&view.version, 0, &delta, &fresh)?;
            return self.publish(&fresh, complete, &view.frozen, |version| {
                let mut version = version.clone();
                set_level(&mut version, 0, level);
                version
            });
        }
        let table = self.flush_table(&view, &fresh)?;
        self.publish(&fresh, complete, &view.frozen, |version| {
            let mut version = version.clone();
            version.level0.splice(0..0, table);
            version
        })
    }

    /// One table of everything that is frozen; none where that is nothing.
    fn flush_table(&self, view: &View, fresh: &Fresh<'_>) -> Result<Option<Arc<Table>>> {
        let start = Start { way: Way::Up, key: None };
        let deeper = view.version.tables().any(|table| !table.uses.is_empty());
        let base = Base::default();
        let plan = Plan { rewrite: Vec::new(), deeper, cut_bytes: None };
        let tables = self.merge_table(&base, walks(&view.frozen, &start), &plan, fresh)?;
        Ok(tables.into_iter().find(|table| !table.uses.is_empty()).map(Arc::new))
    }
}

/// Exchanges a level (0 is level 1), which may be a new one.
pub(super) fn set_level(version: &mut Version, place: usize, tables: Vec<Arc<Table>>) {
    while version.levels.len() <= place {
        version.levels.push(Vec::new());
    }
    if let Some(level) = version.levels.get_mut(place) {
        *level = tables;
    }
    // A level without tables covers nothing.
    while version.levels.last().is_some_and(Vec::is_empty) {
        version.levels.pop();
    }
}
