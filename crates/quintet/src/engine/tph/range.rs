//! Ranges in key order ([`crate::lsm::range`]): a merge of the memtables and the tables.
//!
//! Invariant: a range keeps the files of its version until it is dropped.

use std::sync::Arc;

use super::{
    cursor::{LevelCursor, TphCursor, TphMergeCursor, memtable_cursors, table_cursors},
    store::TphStore,
    version::SuperVersion,
};
use crate::{
    Result,
    contract::{Entry, KeyRange, Value, Visit},
    lsm::{
        cursor::merge::{Direction, ReadAheadSizes, ScanStart},
        range::{RangeSource, RemainingRange},
    },
    util::codec::to_u64,
};

/// What a range reads: the memtables and tables of a super version.
#[derive(Debug)]
pub(super) struct TphRangeSource {
    super_version: SuperVersion,
}

/// Calls `each` with the entries of a range in key order, until it breaks.
pub(super) fn visit(store: &TphStore, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let source = TphRangeSource::new(&store.write_buffer.view.load());
    let range = RemainingRange::new(range);
    if range.is_empty() {
        return Ok(());
    }
    let mut merge = source.open(Direction::Up, &range, store)?;
    while let Some(key) = merge.key() {
        if !range.contains(Direction::Up, key) {
            break;
        }
        if let Some(value) = merge.value()
            && each(key, value)?.is_break()
        {
            break;
        }
        merge.advance()?;
    }
    Ok(())
}

impl TphRangeSource {
    pub(super) fn new(super_version: &SuperVersion) -> Self {
        Self { super_version: super_version.share() }
    }
}

impl RangeSource for TphRangeSource {
    type Table = TphStore;
    type Cursor = TphMergeCursor;

    fn open(
        &self,
        direction: Direction,
        remaining: &RemainingRange,
        store: &TphStore,
    ) -> Result<TphMergeCursor> {
        let key = remaining.first_key(direction);
        let start =
            ScanStart { way: direction, key, cache: Some(Arc::clone(&store.cache)), flow: None };
        let active = std::slice::from_ref(&self.super_version.active);
        let mut sources = memtable_cursors(active, &start);
        sources.extend(memtable_cursors(&self.super_version.frozen, &start));
        let version = &self.super_version.version;
        let ahead = ReadAheadSizes::scan(version.data_bytes);
        for table in &version.level0 {
            sources.extend(table_cursors(table, &start, ahead));
        }
        for (index, level) in version.levels.iter().enumerate() {
            if store.has_key_ranges() {
                let version = Arc::clone(version);
                // Each table has all keys of the level in its range, so the read-ahead of a table
                // is its part of the data.
                let ahead = ReadAheadSizes::scan(version.data_bytes / to_u64(level.len().max(1)));
                let cursor = LevelCursor::new(version, index, start.clone(), ahead);
                sources.push(TphCursor::Level(Box::new(cursor)));
            } else {
                // The order of the tables of a level does not matter: they share no key.
                for table in level {
                    sources.extend(table_cursors(table, &start, ahead));
                }
            }
        }
        let mut merge = TphMergeCursor::new(sources, direction);
        merge.prime(&*store.context.env, &store.queues)?;
        merge.load_first()?;
        Ok(merge)
    }

    fn next_entry(
        merge: &mut TphMergeCursor,
        direction: Direction,
        remaining: &RemainingRange,
        _store: &TphStore,
    ) -> Result<Option<Entry>> {
        while let Some(key) = merge.key() {
            if !remaining.contains(direction, key) {
                break;
            }
            let entry = merge.value().map(|value| Entry {
                key: key.to_vec(),
                value: Value::fill_with(value.len(), |out| out.copy_from_slice(value)),
            });
            merge.advance()?;
            if entry.is_some() {
                return Ok(entry);
            }
        }
        Ok(None)
    }
}
