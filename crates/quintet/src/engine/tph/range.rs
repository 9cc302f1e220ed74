//! Ranges in key order ([`crate::lsm::range`]): a merge of the memtables and the tables.
//!
//! Invariant: a range keeps the files of its version until it is dropped.

use std::sync::Arc;

use super::{
    cursor::{LevelCursor, TphCursor, TphMergeCursor, memtable_cursors, range_cursors},
    order_cursor::ScanIo,
    store::TphStore,
    version::SuperVersion,
};
use crate::{
    Result,
    contract::{Entry, Value, Visit},
    lsm::{
        cursor::merge::{Direction, ReadAheadSizes, ScanStart},
        empty_ranges::EmptyRanges,
        range::{RangeSource, RangeStep, RemainingRange, TombstoneRun},
    },
    util::codec::to_u64,
};

/// What a range reads: the memtables and tables of a super version.
#[derive(Debug)]
pub(super) struct TphRangeSource {
    super_version: SuperVersion,
}

impl TphRangeSource {
    pub(super) fn new(super_version: &SuperVersion) -> Self {
        Self { super_version: super_version.share() }
    }
}

impl RangeSource for TphRangeSource {
    type Table = TphStore;
    type Cursor = TphMergeCursor;

    fn empty_ranges(store: &TphStore) -> &Arc<EmptyRanges> {
        &store.write_buffer.empty_ranges
    }

    fn order_memtables(&self) {
        self.super_version.order_memtables();
    }

    fn is_current(&self, store: &TphStore) -> bool {
        store.write_buffer.is_current(&self.super_version)
    }

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
        let budget = store.context.budget.limit();
        let ahead = ReadAheadSizes::scan(version.data_bytes, budget);
        let io = ScanIo { env: Arc::clone(&store.context.env), queues: store.queues.clone() };
        for table in &version.level0 {
            sources.extend(range_cursors(table, &start, ahead, &io));
        }
        for (index, level) in version.levels.iter().enumerate() {
            if store.has_key_ranges() {
                let version = Arc::clone(version);
                // Each table has all keys of the level in its range, so the read-ahead of a table
                // is its part of the data.
                let among = version.data_bytes / to_u64(level.len().max(1));
                let ahead = ReadAheadSizes::scan(among, budget);
                let cursor = LevelCursor::new(version, index, start.clone(), (ahead, io.clone()));
                sources.push(TphCursor::Level(Box::new(cursor)));
            } else {
                // The order of the tables of a level does not matter: they share no key.
                for table in level {
                    sources.extend(range_cursors(table, &start, ahead, &io));
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
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        _store: &TphStore,
    ) -> Result<RangeStep<Entry>> {
        while let Some(key) = merge.key() {
            if !remaining.contains(run.direction(), key) {
                break;
            }
            let Some(value) = merge.value() else {
                if run.pass(key) {
                    return Ok(RangeStep::Paused);
                }
                merge.advance()?;
                continue;
            };
            run.end_at(key);
            let value = Value::fill_with(value.len(), |out| out.copy_from_slice(value));
            let entry = Entry { key: key.to_vec(), value };
            merge.advance()?;
            return Ok(RangeStep::Found(entry));
        }
        Ok(RangeStep::End)
    }

    fn visit(
        merge: &mut TphMergeCursor,
        run: &mut TombstoneRun<'_>,
        remaining: &RemainingRange,
        _store: &TphStore,
        each: Visit<'_>,
    ) -> Result<RangeStep<()>> {
        while let Some(key) = merge.key() {
            if !remaining.contains(Direction::Up, key) {
                break;
            }
            if let Some(value) = merge.value() {
                run.end_at(key);
                if each(key, value)?.is_break() {
                    return Ok(RangeStep::Found(()));
                }
            } else if run.pass(key) {
                return Ok(RangeStep::Paused);
            }
            merge.advance()?;
        }
        Ok(RangeStep::End)
    }
}
