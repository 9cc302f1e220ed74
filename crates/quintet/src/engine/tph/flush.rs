//! From memtables to files: as a table of level 0, or straight into level 1.
//!
//! A flush freezes the active memtable with no writer on the way into it, so everything below what
//! the caller was promised to be applied is in what is written; later effects may be too, which
//! replay repeats.

use std::sync::Arc;

use super::{
    Inner, Version,
    cursor::Source,
    merge::{Base, Plan},
    publish::Fresh,
    table::Table,
};
use crate::{
    Result,
    lsm::{
        cursor::merge::{MemtableCursor, ScanStart},
        memtable::Memtable,
    },
    util::{
        codec::Lsn,
        sync::{Ordering, lock},
    },
};

/// Walks over memtables.
pub(super) fn walks(memtables: &[Arc<Memtable>], start: &ScanStart) -> Vec<Source> {
    let cursors = MemtableCursor::all(memtables.to_vec(), start);
    cursors.into_iter().map(|cursor| Source::Mem(Box::new(cursor))).collect()
}

impl Inner {
    /// Makes every effect below `up_to` durable in the files.
    pub(super) fn flush_to(&self, up_to: Lsn) -> Result<Lsn> {
        let _flushing = lock(&self.flushing);
        self.front.rotate_any(self)?;
        self.flush_frozen(Some(up_to.0)).map(Lsn)
    }

    /// Flushes what is frozen, and, where nothing is, the active memtable.
    pub(super) fn flush_backlog(&self) -> Result<()> {
        // No view is held while waiting: see `WriteBuffer::make_room`.
        let before = self.front.view.load().frozen.len();
        let _flushing = lock(&self.flushing);
        let view = self.front.view.load_full();
        if view.frozen.len() < before {
            // Whoever held the lock did it.
            return Ok(());
        }
        if view.frozen.is_empty() && !view.active.is_empty() {
            self.front.rotate(&view.active, self)?;
        }
        self.flush_frozen(None).map(drop)
    }

    /// Flushes what is frozen now, from the oldest on: with `complete` all of it, else as much as
    /// makes room for a memtable.
    fn flush_frozen(&self, complete: Option<u64>) -> Result<u64> {
        let is_backlog = complete.is_none();
        let view = self.front.view.load_full();
        let known = self.complete();
        if view.frozen.is_empty() {
            if complete.is_none_or(|lsn| lsn <= known) {
                return Ok(known);
            }
            return self.publish(&Fresh::new(self), complete, &[], Clone::clone);
        }
        let mut left = view.frozen.as_slice();
        loop {
            let (rest, these) = self.front.oldest(left);
            let complete = complete.filter(|_| rest.is_empty());
            let began = self.context.env.monotonic();
            let known = self.flush_these(these, complete)?;
            self.front.record_flush(these, began);
            if rest.is_empty() || complete.is_none() && is_backlog {
                return Ok(known);
            }
            left = rest;
        }
    }

    fn flush_these(&self, frozen: &[Arc<Memtable>], complete: Option<u64>) -> Result<u64> {
        let fresh = Fresh::new(self);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        if self.settings.is_flat() {
            let _compacting = lock(&self.compacting);
            let view = self.front.view.load_full();
            let delta = |start: &ScanStart| walks(frozen, start);
            let level = self.merge_into(&view.version, 0, &delta, &fresh)?;
            return self.publish(&fresh, complete, frozen, |version| {
                let mut version = version.clone();
                set_level(&mut version, 0, level);
                version
            });
        }
        let table = self.flush_table(frozen, &fresh)?;
        self.publish(&fresh, complete, frozen, |version| {
            let mut version = version.clone();
            version.level0.splice(0..0, table);
            version
        })
    }

    /// One table of some memtables; none where they have nothing.
    fn flush_table(
        &self,
        frozen: &[Arc<Memtable>],
        fresh: &Fresh<'_>,
    ) -> Result<Option<Arc<Table>>> {
        let start = ScanStart::up(None);
        let deeper = self.front.view.load().version.tables().any(|table| !table.uses.is_empty());
        let base = Base::default();
        let plan = Plan { rewrite: Vec::new(), deeper, cut: None, is_flush: true };
        let tables = self.merge_table(&base, walks(frozen, &start), &plan, fresh)?;
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
