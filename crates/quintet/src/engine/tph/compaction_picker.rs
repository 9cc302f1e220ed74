//! The compaction picker: which tables are merged, and when.
//!
//! | input | condition | output |
//! |---|---|---|
//! | all of level 0 | it has `level0_tables` | level 1 |
//! | a table of a level of key ranges | the level exceeds its share: `level_bytes`, times `fanout` for each level above | the next level |
//! | a table of hash ranges | it is larger than two full tables | its `fanout` children |
//! | SSTs of a table | a quarter of its bytes are dead, and there is no other work | a new SST |
//! | the table with most tombstones, then all of level 0 | the disk is full ([`pick_deletes`]) | the next level |
//!
//! The level that exceeds its share by the largest factor goes first. If it were always level 0,
//! then level 1 would get all of a long load, and each merge would write the indexes of all of it
//! again.
//!
//! The deepest level may have [`DEEPEST_TIMES`] its share before a new level begins below it. A
//! small level costs as much to merge into and to search as a large one.

use std::sync::Arc;

use super::{
    manifest::LEVELS_MAX,
    options::{LevelMode, TphSettings},
    table::TphTable,
    version::Version,
};
use crate::util::codec::to_u64;

/// The deepest level of key ranges may have this many times its share.
const DEEPEST_TIMES: u64 = 4;
/// Percentage of a table's bytes that are dead before its garbage is collected.
pub(super) const DEAD_PER_CENT: u64 = 25;

/// The next compaction.
#[derive(Clone, Debug)]
pub(super) enum CompactionJob {
    /// Merges all of level 0 into level 1.
    Level0,
    /// Merges a table of a level (0 is level 1) into the next level.
    Down(usize, Arc<TphTable>),
    /// Collects the dead entries of a table of a level (0 is level 1).
    Collect(usize, Arc<TphTable>),
}

/// Returns the next compaction of a version, or `None` if it needs none.
pub(super) fn pick(settings: &TphSettings, version: &Version) -> Option<CompactionJob> {
    let level0 = to_u64(version.level0.len()) * 100 / to_u64(settings.level0_tables);
    let largest = level_sizes(settings, version).max_by_key(|(size, ..)| *size);
    match largest {
        Some((size, level, table)) if size > level0.max(100) => {
            Some(CompactionJob::Down(level, Arc::clone(table)))
        }
        _ if level0 >= 100 => Some(CompactionJob::Level0),
        _ => pick_garbage(version),
    }
}

/// Returns for each level that has a next one: its size in percent of its share, its index, and the
/// table to merge into the next level.
fn level_sizes<'a>(
    settings: &'a TphSettings,
    version: &'a Version,
) -> impl Iterator<Item = (u64, usize, &'a Arc<TphTable>)> {
    version.levels.iter().enumerate().filter_map(move |(index, level)| {
        let has_next = !settings.is_flat() && to_u64(index) + 2 < LEVELS_MAX;
        let table = level.iter().max_by_key(|table| table.fullness(settings))?;
        let (size, share) = if settings.mode == LevelMode::HashRange {
            (table.fullness(settings), 200)
        } else {
            let power = settings.fanout.saturating_pow(u32::try_from(index).unwrap_or(32));
            let is_deepest = index + 1 == version.levels.len();
            let times = if is_deepest && index > 0 { DEEPEST_TIMES } else { 1 };
            let share = settings.level_bytes.saturating_mul(power).saturating_mul(times);
            (level.iter().map(|table| table.live_bytes()).sum(), share)
        };
        let size_per_cent = size.saturating_mul(100) / share.max(1);
        has_next.then_some((size_per_cent, index, table))
    })
}

/// Returns a compaction that brings deletes to what they delete, for a full disk. Otherwise they
/// wait in their level until it is full, and what they delete keeps its space.
pub(super) fn pick_deletes(version: &Version) -> Option<CompactionJob> {
    let above = version.levels.iter().enumerate();
    let above = above.filter(|(index, _)| version.has_ssts_below(*index));
    let tables = above.flat_map(|(index, level)| level.iter().map(move |table| (index, table)));
    let most = tables.max_by_key(|(_, table)| table.tombstones);
    if let Some((index, table)) = most.filter(|(_, table)| table.tombstones > 0) {
        return Some(CompactionJob::Down(index, Arc::clone(table)));
    }
    let is_in_level0 = version.level0.iter().any(|table| table.tombstones > 0);
    is_in_level0.then_some(CompactionJob::Level0)
}

/// Returns a table with dead entries that are worth collecting.
fn pick_garbage(version: &Version) -> Option<CompactionJob> {
    let is_wasteful = |table: &&Arc<TphTable>| {
        let dead_bytes = table.payload_bytes().saturating_sub(table.live_bytes());
        dead_bytes * 100 > table.payload_bytes() * DEAD_PER_CENT
    };
    version.levels.iter().enumerate().find_map(|(index, level)| {
        let table = level.iter().find(is_wasteful)?;
        Some(CompactionJob::Collect(index, Arc::clone(table)))
    })
}
