//! Merges of newer entries into a table.
//!
//! A merging cursor over the newer entries and all SSTs of the table (the base) visits each key
//! with all of its entries:
//!
//! | entries of the key | action |
//! |---|---|
//! | newer only | the newer entry goes to the new SST |
//! | newer and base | the newer entry goes to the new SST; the base's entry is dead |
//! | base only | the entry stays; if its SST is rewritten, it goes to the new SST |
//!
//! The new SST gets the index of the whole table. SSTs without live entries leave the table. If all
//! SSTs are rewritten, the table can be split.
//!
//! Invariants:
//! - Of a key's entries in SSTs that stay, the index has the newest, even if it is a tombstone.
//! - A tombstone is dropped only if no SST that stays and no deeper level can have its key.
//! - An expired entry counts as a tombstone.
//!
//! The merge reads only the keys of an SST that stays ([`crate::lsm::sst::key_section`]), if the
//! SST stores them apart.
//!
//! With two tiers ([`super::two_tiers`]), the cases are those of
//! [`slotted`].
//!
//! Difference from the paper: the cursor visits keys in order, so no array of slots is needed. Keys
//! are compared as a whole.
//!
//! Start reading at [`TphStore::merge_table`].

mod piece_builder;
pub(super) mod plan;
mod slotted;
mod table_builder;

use self::{
    piece_builder::PieceBuilder,
    plan::{MergeBase, MergePlan},
    table_builder::TableBuilder,
};
use super::{
    cursor::{TphCursor, TphMergeCursor, merge_cursor},
    options::Tiers,
    publish::UnpublishedSsts,
    store::TphStore,
    table::{TableSst, TphTable},
    two_tiers::key_order::{ROWS_BYTES, RowReader},
};
use crate::{
    Result,
    io::Flow,
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{Direction, ReadAheadSizes, ScanStart},
        sst::key_section::KeyCursor,
        write_buffer::FlushTarget,
    },
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Bytes of entries after which a merge checks its rate and whether a flush is due.
const STEP_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };
/// The reads of one merge take this fraction (1/64) of the memory budget.
const AHEAD_FRACTION: u64 = 64;
/// Minimum bytes that a source of a merge reads at once.
const AHEAD_BYTES_MIN: u64 = 64 << 10;
/// Merges that need more than this fraction (1/6) of the memory that the indexes leave run one at a
/// time.
const MEMORY_FRACTION: u64 = 6;

impl TphStore {
    /// Merges `newer`, newest first, into `base`. Returns the new tables; nothing is published.
    pub(super) fn merge_table(
        &self,
        base: &MergeBase,
        newer: Vec<TphCursor>,
        plan: &MergePlan,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<Vec<TphTable>> {
        let live: u64 = base.ssts.iter().map(|one| one.live).sum();
        let newer_count = newer.len();
        let sources = newer_count + base.ssts.len();
        let ahead = self.merge_ahead(sources);
        let source_bytes = self.source_memory(&newer, base, plan, ahead);
        let work_bytes = self.merge_memory(live + live / 8) + source_bytes;
        // If indexes leave little memory, writers need a part of it.
        let is_large =
            work_bytes * MEMORY_FRACTION > self.write_buffer.work_memory_bytes() && !plan.is_flush;
        let _large_merge = is_large.then(|| lock(&self.large_merge));
        let _memory = self.context.budget.reserve_transient(work_bytes);
        self.shrink_cache();
        let flow = self.queues.flow(&*self.context.env)?;
        let start = ScanStart::up(None).with(&flow);
        let (older, read_bytes) = base_sources(base, plan, &start, ahead, &flow);
        let mut merge =
            TphMergeCursor::new(newer.into_iter().chain(older).collect(), Direction::Up);
        merge.load_first()?;
        let mut tables = Vec::new();
        let mut rows = RowReader::new(base.ssts.first().map(|one| &one.sst));
        let mut builder = self.builder(base.lower_bound.clone(), base, &flow);
        // Growth by doubling would need three times the memory for a moment. Newer entries are
        // usually few.
        builder.locations.reserve(to_usize(live + live / 8));
        let (mut step_bytes, mut done_bytes) = (0, 0);
        while let Some(key) = merge.key() {
            let hash = self.hash(key);
            step_bytes += key.len() + merge.value().map_or(0, <[u8]>::len);
            if step_bytes >= STEP_BYTES && !plan.is_flush {
                let bytes = to_u64(std::mem::take(&mut step_bytes));
                self.merge_rates.throttle(&*self.context.env, bytes, self.settings.merge_rate);
                self.flush_if_due();
            }
            if plan.split.is_some_and(|split| split.is_due(builder.written(), done_bytes)) {
                done_bytes += builder.written().1;
                let next = self.builder(key.to_vec(), base, &flow);
                let done = std::mem::replace(&mut builder, next);
                tables.push(self.finish_table(done, base, plan, unpublished)?);
            }
            let place = (newer_count, hash);
            match self.settings.tiers {
                Tiers::One => self.merge_entry(&merge, place, plan, &mut builder, unpublished)?,
                Tiers::Two => {
                    let older = (base, plan, &mut rows);
                    self.merge_slotted_entry(&merge, place, older, &mut builder, unpublished)?;
                }
            }
            merge.advance()?;
        }
        tables.push(self.finish_table(builder, base, plan, unpublished)?);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        self.counters.merge_read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        Ok(tables)
    }

    /// Returns the builder of an empty table.
    fn builder(&self, lower_bound: Vec<u8>, base: &MergeBase, flow: &Flow) -> TableBuilder {
        let mut builder = TableBuilder::new(lower_bound, base.ssts.len(), flow);
        builder.piece = match self.settings.tiers {
            Tiers::One => None,
            Tiers::Two => {
                let block_bytes = self.settings.shape.block_bytes;
                Some(PieceBuilder::new(self.settings.shape.write_bytes, block_bytes))
            }
        };
        builder
    }

    /// Completes a table: writes its index and returns it.
    fn finish_table(
        &self,
        builder: TableBuilder,
        base: &MergeBase,
        plan: &MergePlan,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<TphTable> {
        match self.settings.tiers {
            Tiers::One => self.finish_block_table(builder, base, plan, unpublished),
            Tiers::Two => self.finish_slotted_table(builder, base, plan, unpublished),
        }
    }

    /// Returns the memory that the sources of a merge take. With two tiers, this includes the
    /// segment of the new piece.
    fn source_memory(
        &self,
        newer: &[TphCursor],
        base: &MergeBase,
        plan: &MergePlan,
        ahead: ReadAheadSizes,
    ) -> u64 {
        // Each source has one read in use while the next one runs.
        let read_bytes = ahead.most() * 2 * to_u64(newer.len() + base.ssts.len());
        if self.settings.tiers == Tiers::One {
            return read_bytes;
        }
        let most = to_u64(self.settings.shape.write_bytes);
        let of_newer: u64 = newer.iter().map(|source| source.segment_bytes(most)).sum();
        // Of a piece that stays, a merge reads only the keys, if it stores them apart.
        let is_visited = |one: &TableSst, rewrite: bool| rewrite || one.sst.footer.keys.bytes == 0;
        let of_base = base.ssts.iter().zip(&plan.rewrite);
        let of_base = of_base.filter(|(one, rewrite)| is_visited(one, **rewrite));
        let of_base: u64 = of_base.map(|(one, _)| one.sst.footer.payload_bytes.min(most)).sum();
        read_bytes + 2 * (of_newer + of_base + most) + ROWS_BYTES
    }

    /// Returns how much each source of a merge reads at once. All sources together use a small part
    /// of the memory budget.
    pub(super) fn merge_ahead(&self, sources: usize) -> ReadAheadSizes {
        let share = self.context.budget.limit() / AHEAD_FRACTION / to_u64(sources.max(1));
        ReadAheadSizes::bounded(share.max(AHEAD_BYTES_MIN))
    }

    /// Flushes the memtables that wait for it: they fill during a long merge.
    fn flush_if_due(&self) {
        let is_due = || self.write_buffer.is_flush_due(&self.write_buffer.view.load());
        // In the flat modes, a flush waits for the merge.
        if self.settings.is_flat() || !is_due() {
            return;
        }
        if !self.is_merge_flushing.swap(true, Ordering::Acquire) {
            // If this fails, the next checkpoint fails too and reports it.
            let _ = self.flush_backlog();
            self.is_merge_flushing.store(false, Ordering::Release);
        }
    }

    /// Merges the entries of the current key: see the table of the module head.
    fn merge_entry(
        &self,
        merge: &TphMergeCursor,
        (newer_count, hash): (usize, u64),
        plan: &MergePlan,
        builder: &mut TableBuilder,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<()> {
        let (Some(current), Some(key)) = (merge.current(), merge.key()) else { return Ok(()) };
        if let Some(sst) = current.checked_sub(newer_count).filter(|sst| plan.keeps(*sst)) {
            let entry = merge.sources.get(current).map(TphCursor::entry_block);
            let (block, value_bytes) = entry.unwrap_or_default();
            builder.count_entry((hash, key), (sst + 1, block), value_bytes);
            return Ok(());
        }
        let value = merge.value().filter(|value| !self.context.host.is_expired(value));
        if value.is_none() {
            let mut older = (current + 1).max(newer_count)..merge.sources.len();
            let is_held = older.any(|one| plan.keeps(one - newer_count) && merge.has_key(one));
            let is_needed = is_held || plan.has_deeper;
            if !mutant!(TphDropsTombstonesEarly: false, else is_needed) {
                return Ok(());
            }
        }
        let writer = self.writer_of(builder, plan, unpublished)?;
        let (block, _) = writer.add(key, value, CacheAdmission::IfFree)?;
        builder.count_entry((hash, key), (0, block), value.map(|value| to_u64(value.len())));
        Ok(())
    }
}

/// Returns the sources of the base, and the bytes that they read. If an SST stays, the merge reads
/// only its keys, if it stores them apart.
fn base_sources(
    base: &MergeBase,
    plan: &MergePlan,
    start: &ScanStart,
    ahead: ReadAheadSizes,
    flow: &Flow,
) -> (Vec<TphCursor>, u64) {
    let mut read_bytes = base.ssts.first().map_or(0, |one| one.sst.footer.order.bytes);
    let mut sources = Vec::new();
    for (one, rewrite) in base.ssts.iter().zip(&plan.rewrite) {
        let keys = if *rewrite { None } else { KeyCursor::new(&one.sst, ahead.most(), flow) };
        if let Some(cursor) = keys {
            read_bytes += one.sst.footer.keys.bytes;
            sources.push(TphCursor::Keys(Box::new(cursor)));
        } else {
            read_bytes += one.sst.data_bytes();
            sources.push(merge_cursor(one, start, ahead, None));
        }
    }
    (sources, read_bytes)
}
