//! Compactions: merges of tables into levels, and garbage collection.
//!
//! [`compaction_picker`] chooses the work. Besides that, each merge into a table of `max_pieces`
//! SSTs collects garbage: it rewrites the smaller half of the SSTs, and those that are mostly dead.
//! The next merge into a table of key ranges that is half as large again as a full one rewrites all
//! of it and splits it.
//!
//! A merge rewrites the smaller half and not the oldest SSTs. The oldest SST is the largest, so to
//! rewrite it each time would write the whole table again and again. A merge rewrites it when a
//! quarter of it is dead.

use std::sync::Arc;

use super::{
    compaction_picker::{self, CompactionJob, DEAD_PER_CENT},
    cursor::{PartitionCursor, TphCursor, TphMergeCursor, merge_cursors},
    merge::plan::{MergeBase, MergePlan, TableSplit},
    partition::{Partition, Partitioning},
    piece_cursor::InvalidFilter,
    publish::UnpublishedSsts,
    store::TphStore,
    table::{TableSst, TphTable},
    version::{SuperVersion, Version},
};
use crate::{
    Result,
    lsm::{
        cursor::merge::{Direction, ReadAheadSizes, ScanStart},
        write_buffer::FlushTarget,
    },
    util::{
        codec::low_u32,
        sync::{Mutex, lock},
    },
};

/// Percentage of an SST's bytes that are dead before a merge that collects garbage rewrites it.
const DEAD_SST_PER_CENT: u64 = 50;
/// Maximum number of tables of a new level of hash ranges.
const HASH_TABLES_MAX: u64 = 1 << 20;

/// Returns the sources of newer entries for a level, from a start on.
type NewerSources<'a> = dyn Fn(&ScanStart) -> Vec<TphCursor> + Sync + 'a;

/// The result of a merge into one table: `None` while it runs, or if it has no newer entries. The
/// inner `None` means that the
/// table does not change.
type MergeOutcome = Option<Result<Option<Vec<TphTable>>>>;

/// Returns whether more than this percentage of an SST's bytes are dead.
fn is_dead(one: &TableSst, per_cent: u64) -> bool {
    one.live_bytes * 100 < one.sst.footer.payload_bytes * (100 - per_cent)
}

/// Returns the tables that are not among those removed.
fn without(tables: &[Arc<TphTable>], removed: &[Arc<TphTable>]) -> Vec<Arc<TphTable>> {
    let stays = |one: &&Arc<TphTable>| !removed.iter().any(|other| Arc::ptr_eq(one, other));
    tables.iter().filter(stays).cloned().collect()
}

impl TphStore {
    /// Runs the next compaction. Returns whether there was one.
    pub(super) fn compact_step(&self) -> Result<bool> {
        let _compacting = lock(&self.compacting);
        let version = Arc::clone(&self.write_buffer.view.load().version);
        let Some(job) = compaction_picker::pick(&self.settings, &version) else { return Ok(false) };
        self.run(&version, &job)?;
        self.context.host.wake();
        Ok(true)
    }

    /// Runs compactions that give space back on a full disk: one of deletes, and the next one.
    pub(super) fn space_step(&self) -> Result<()> {
        let of_deletes = {
            let _compacting = lock(&self.compacting);
            let version = Arc::clone(&self.write_buffer.view.load().version);
            let job = compaction_picker::pick_deletes(&version);
            job.map_or(Ok(()), |job| self.run(&version, &job))
        };
        // It may need less space.
        self.compact_step()?;
        of_deletes
    }

    /// Merges everything into the deepest level, without dead or expired entries.
    pub(super) fn compact_all(&self) -> Result<()> {
        let last = Arc::clone(&self.write_buffer.view.load().active);
        self.write_buffer.rotate_any(self)?;
        let is_waiting = |super_version: &SuperVersion| {
            super_version.frozen.iter().any(|one| Arc::ptr_eq(one, &last))
        };
        while is_waiting(&self.write_buffer.view.load()) {
            self.flush_backlog()?;
        }
        let _compacting = lock(&self.compacting);
        let version = Arc::clone(&self.write_buffer.view.load().version);
        if !version.level0.is_empty() {
            self.run(&version, &CompactionJob::Level0)?;
        }
        let mut index = 0;
        loop {
            let version = Arc::clone(&self.write_buffer.view.load().version);
            let Some(level) = version.levels.get(index) else { return Ok(()) };
            let is_last = index + 1 == version.levels.len();
            for table in level.iter().filter(|table| !table.ssts.is_empty()) {
                let version = Arc::clone(&self.write_buffer.view.load().version);
                let table = Arc::clone(table);
                if is_last {
                    self.rewrite(&version, index, &table, &vec![true; table.ssts.len()])?;
                } else {
                    self.run(&version, &CompactionJob::Down(index, table))?;
                }
            }
            index += 1;
        }
    }

    fn run(&self, version: &Version, job: &CompactionJob) -> Result<()> {
        match job {
            CompactionJob::Level0 => {
                let unpublished = UnpublishedSsts::new(self);
                let merged = version.level0.clone();
                let ahead = self.merge_ahead(merged.iter().map(|table| table.ssts.len()).sum());
                let newer = |start: &ScanStart| {
                    merged
                        .iter()
                        .flat_map(|table| self.newer_cursors(table, start, ahead))
                        .collect()
                };
                let level = self.merge_into(version, 0, &newer, None, &unpublished)?;
                self.publish(&unpublished, None, &[], |version| {
                    let mut version = version.clone();
                    version.level0 = without(&version.level0, &merged);
                    version.set_level(0, level);
                    version
                })?;
                let bytes = merged.iter().map(|table| table.payload_bytes()).sum();
                self.merge_rates.record_level0(&*self.context.env, bytes);
            }
            CompactionJob::Down(index, table) => {
                let unpublished = UnpublishedSsts::new(self);
                let ahead = self.merge_ahead(table.ssts.len());
                let newer = |start: &ScanStart| self.newer_cursors(table, start, ahead);
                let within = self.partition_of(version, *index, table);
                let level =
                    self.merge_into(version, index + 1, &newer, within.as_ref(), &unpublished)?;
                self.publish(&unpublished, None, &[], |version| {
                    let mut version = version.clone();
                    let lower_bound = table.lower_bound.clone();
                    let empty = TphTable { lower_bound, ..TphTable::default() };
                    let above = version.levels.get(*index).map_or(&[][..], Vec::as_slice);
                    let above = self.replace_table(above, table, vec![empty]);
                    version.set_level(*index, above);
                    version.set_level(index + 1, level);
                    version
                })?;
            }
            CompactionJob::Collect(index, table) => {
                let rewrite: Vec<bool> =
                    table.ssts.iter().map(|one| is_dead(one, DEAD_PER_CENT / 2)).collect();
                self.rewrite(version, *index, table, &rewrite)?;
            }
        }
        Ok(())
    }

    /// Returns the cursors of a table that is merged into another.
    fn newer_cursors(
        &self,
        table: &Arc<TphTable>,
        start: &ScanStart,
        ahead: ReadAheadSizes,
    ) -> Vec<TphCursor> {
        let filter = InvalidFilter::new(table, self.write_buffer.hasher);
        merge_cursors(table, start, ahead, filter.as_ref())
    }

    /// Rewrites SSTs of a table of a level (0 is level 1).
    fn rewrite(
        &self,
        version: &Version,
        index: usize,
        table: &Arc<TphTable>,
        rewrite: &[bool],
    ) -> Result<()> {
        let unpublished = UnpublishedSsts::new(self);
        let is_whole = rewrite.iter().all(|one| *one);
        let plan = MergePlan {
            rewrite: rewrite.to_vec(),
            has_deeper: version.has_ssts_below(index),
            split: if is_whole { self.split(table) } else { None },
            is_flush: false,
        };
        let base = MergeBase::from(table);
        let tables = self.merge_table(&base, Vec::new(), &plan, &unpublished)?;
        self.publish(&unpublished, None, &[], |version| {
            let mut version = version.clone();
            let level = version.levels.get(index).map_or(&[][..], Vec::as_slice);
            let level = self.replace_table(level, table, tables);
            version.set_level(index, level);
            version
        })?;
        Ok(())
    }

    /// Returns the tables of a level with others in the place of one.
    fn replace_table(
        &self,
        level: &[Arc<TphTable>],
        old: &Arc<TphTable>,
        new: Vec<TphTable>,
    ) -> Vec<Arc<TphTable>> {
        let mut new = Some(new);
        let tables = level.iter().flat_map(|one| {
            if Arc::ptr_eq(one, old) {
                new.take().unwrap_or_default().into_iter().map(Arc::new).collect()
            } else {
                vec![Arc::clone(one)]
            }
        });
        self.drop_empty(tables.collect())
    }

    /// Drops empty tables of key ranges; the table before takes over their range. Returns no tables
    /// if all are empty.
    fn drop_empty(&self, mut tables: Vec<Arc<TphTable>>) -> Vec<Arc<TphTable>> {
        if tables.iter().all(|table| table.ssts.is_empty()) {
            return Vec::new();
        }
        if self.has_key_ranges() {
            tables.retain(|table| table.lower_bound.is_empty() || !table.ssts.is_empty());
        }
        tables
    }

    /// Returns the tables of a level (0 is level 1), or the empty tables of a new level.
    fn level_tables(&self, version: &Version, index: usize) -> Vec<Arc<TphTable>> {
        match version.levels.get(index) {
            Some(tables) if !tables.is_empty() => return tables.clone(),
            _ => {}
        }
        let count = match self.partitioning {
            Partitioning::Key => 1,
            Partitioning::Hash(_) => {
                let power = u32::try_from(index + 1).unwrap_or(u32::MAX);
                self.settings.fanout.saturating_pow(power).min(HASH_TABLES_MAX)
            }
        };
        let table = |number: u64| {
            let bound = low_u32((number << 32).div_ceil(count)).to_be_bytes();
            let lower_bound = if number == 0 { Vec::new() } else { bound.to_vec() };
            Arc::new(TphTable { lower_bound, ..TphTable::default() })
        };
        (0..count).map(table).collect()
    }

    /// Returns the partition of one table of a level (0 is level 1).
    fn partition_of(
        &self,
        version: &Version,
        index: usize,
        table: &Arc<TphTable>,
    ) -> Option<Partition> {
        let level = version.levels.get(index)?;
        let number = level.iter().position(|one| Arc::ptr_eq(one, table))?;
        self.partition(level, number)
    }

    /// Returns the partition of a table of a level, by its number.
    fn partition(&self, level: &[Arc<TphTable>], number: usize) -> Option<Partition> {
        let next = level.get(number + 1);
        let end = next.map(|table| table.lower_bound.clone()).unwrap_or_default();
        let range = level.get(number)?.lower_bound.clone()..end;
        Some(Partition { partitioning: self.partitioning, range, is_last: next.is_none() })
    }

    /// Merges newer entries into the tables of a level (0 is level 1) that have their keys, in
    /// parallel. Returns the new tables of the level. All newer entries are `within` a partition,
    /// if there is one: they are not read for tables that it does not overlap.
    pub(super) fn merge_into(
        &self,
        version: &Version,
        index: usize,
        newer: &NewerSources<'_>,
        within: Option<&Partition>,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<Vec<Arc<TphTable>>> {
        let level = self.level_tables(version, index);
        let has_deeper = version.has_ssts_below(index);
        let outcomes: Vec<Mutex<MergeOutcome>> = level.iter().map(|_| Mutex::new(None)).collect();
        self.context.env.parallel(level.len(), &|number| {
            let (Some(table), Some(partition)) =
                (level.get(number), self.partition(&level, number))
            else {
                return;
            };
            if within.is_some_and(|within| !within.overlaps(&partition)) {
                return;
            }
            let outcome = self.merge_into_table((table, partition), has_deeper, newer, unpublished);
            if let Some(slot) = outcomes.get(number) {
                *lock(slot) = Some(outcome);
            }
        });
        let mut tables = Vec::new();
        for (table, slot) in level.iter().zip(outcomes) {
            let outcome = lock(&slot).take();
            match outcome.transpose()?.flatten() {
                None => tables.push(Arc::clone(table)),
                Some(new) => tables.extend(new.into_iter().map(Arc::new)),
            }
        }
        Ok(self.drop_empty(tables))
    }

    /// Merges the newer entries that belong to one table into it. Returns `None` if there are none.
    fn merge_into_table(
        &self,
        (table, partition): (&Arc<TphTable>, Partition),
        has_deeper: bool,
        newer: &NewerSources<'_>,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<Option<Vec<TphTable>>> {
        let flow = self.queues.flow(&*self.context.env)?;
        let start = ScanStart::up(partition.first_key()).with(&flow);
        let inner = TphMergeCursor::new(newer(&start), Direction::Up);
        let source = TphCursor::Partition(Box::new(PartitionCursor { inner, partition }));
        let mut first = TphMergeCursor::new(vec![source], Direction::Up);
        first.load_first()?;
        if first.key().is_none() {
            return Ok(None);
        }
        let plan = self.plan(table, has_deeper);
        let base = MergeBase::from(table);
        let tables = self.merge_table(&base, first.sources, &plan, unpublished)?;
        Ok(Some(tables))
    }

    /// Returns the plan of a merge into a table: which of its SSTs are rewritten.
    fn plan(&self, table: &TphTable, has_deeper: bool) -> MergePlan {
        let settings = &self.settings;
        let count = table.ssts.len();
        let mut rewrite = vec![false; count];
        let is_large = self.has_key_ranges() && table.fullness(settings) > 150;
        if is_large {
            rewrite.fill(true);
        } else if count >= settings.max_pieces {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|index| table.ssts.get(*index).map_or(0, |one| one.live_bytes));
            let smaller = settings.max_pieces.div_ceil(2).max(count + 1 - settings.max_pieces);
            for index in order.into_iter().take(smaller) {
                if let Some(slot) = rewrite.get_mut(index) {
                    *slot = true;
                }
            }
            let is_oldest_dead = table.ssts.last().is_some_and(|one| is_dead(one, DEAD_PER_CENT));
            for (index, slot) in rewrite.iter_mut().enumerate() {
                *slot |= table.ssts.get(index).is_some_and(|one| is_dead(one, DEAD_SST_PER_CENT));
                *slot |= is_oldest_dead && index + 1 == count;
            }
        }
        let split = if rewrite.iter().all(|one| *one) { self.split(table) } else { None };
        MergePlan { rewrite, has_deeper, split, is_flush: false }
    }

    /// Returns where a table that is rewritten as a whole is split. Tables of hash ranges are not.
    fn split(&self, table: &TphTable) -> Option<TableSplit> {
        self.has_key_ranges().then(|| TableSplit::even(table, &self.settings))
    }
}
