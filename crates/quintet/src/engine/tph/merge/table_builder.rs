//! The construction of a table: the new SST, the locations of all keys, and the index.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        index::{Collision, TableIndex},
        publish::UnpublishedSsts,
        store::TphStore,
        table::{TableSst, TphTable},
    },
    piece_builder::PieceBuilder,
    plan::{MergeBase, MergePlan},
};
use crate::{
    Error, Result,
    engine::tph::perfect_hash::BuildOptions,
    io::{Array, Flow},
    lsm::sst::{
        Sst, SstShape, SstWriter,
        block::{self, EntryRef},
    },
    util::{
        codec::{low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::Ordering,
    },
};

/// A location has the SST above this bit and the block below it. SST 0 is the new one; the others
/// are numbered from 1 in the order of the base.
const SST_SHIFT: u32 = 32;

/// A table that a merge builds.
#[derive(Debug)]
pub(super) struct TableBuilder {
    pub(super) lower_bound: Vec<u8>,
    /// The writer of the new SST, after its first entry.
    pub(super) writer: Option<SstWriter>,
    /// Hash and location of each key.
    pub(super) locations: Array<(u64, u64)>,
    /// Of the new SST and each SST of the base: live entries, and bytes of their keys and values.
    pub(super) live: Vec<(u64, u64)>,
    pub(super) tombstones: u64,
    /// The part of a table with two tiers.
    pub(super) piece: Option<PieceBuilder>,
    flow: Flow,
}

impl TableBuilder {
    pub(super) fn new(lower_bound: Vec<u8>, ssts: usize, flow: &Flow) -> Self {
        let (live, flow) = (vec![(0, 0); ssts + 1], flow.clone());
        let (locations, tombstones) = (Array::new(), 0);
        Self { lower_bound, writer: None, locations, live, tombstones, piece: None, flow }
    }

    /// Counts an entry of an SST (0 is the new one). A tombstone has no value.
    pub(super) fn count_entry(
        &mut self,
        (hash, key): (u64, &[u8]),
        (sst, block): (usize, u32),
        value_bytes: Option<u64>,
    ) {
        self.locations.push((hash, to_u64(sst) << SST_SHIFT | u64::from(block)));
        self.count_live(key, sst, value_bytes);
    }

    /// Counts a live entry of an SST (0 is the new one).
    pub(super) fn count_live(&mut self, key: &[u8], sst: usize, value_bytes: Option<u64>) {
        if let Some((entries, bytes)) = self.live.get_mut(sst) {
            *entries += mutant!(TphMiscountsLive: 1 + u64::from(sst > 0), else 1);
            *bytes += to_u64(key.len()) + value_bytes.unwrap_or(0);
        }
        self.tombstones += u64::from(value_bytes.is_none());
    }

    /// Returns the entries of the new SST, and the bytes of their keys and values.
    pub(super) fn written(&self) -> (u64, u64) {
        self.live.first().copied().unwrap_or_default()
    }
}

pub(super) fn no_writer() -> Error {
    Error::Limit { what: "a table without a new SST cannot be completed".to_owned() }
}

/// Returns the SSTs that stay in the table. Also returns the number of the first block of the new
/// SST and of each SST of the base, numbered through the table.
fn kept_ssts(
    base: &MergeBase,
    plan: &MergePlan,
    live: &[(u64, u64)],
    new_blocks: u32,
) -> Result<(Vec<TableSst>, Vec<u32>)> {
    let mut kept = Vec::new();
    let mut first_blocks = vec![0_u32; base.ssts.len() + 1];
    let mut next = u64::from(new_blocks);
    for (index, one) in base.ssts.iter().enumerate() {
        mutant!(TphDropsLivePiece => if index == 0 { continue });
        let (entries, bytes) = live.get(index + 1).copied().unwrap_or_default();
        if !plan.keeps(index) || entries == 0 {
            continue;
        }
        if let Some(first) = first_blocks.get_mut(index + 1) {
            *first = low_u32(next);
        }
        next += u64::from(one.blocks);
        kept.push(TableSst { live: entries, live_bytes: bytes, ..one.clone() });
    }
    if next >= u64::from(u32::MAX) {
        return Err(Error::Limit { what: "a table exceeds 2^32 blocks".to_owned() });
    }
    Ok((kept, first_blocks))
}

impl TphStore {
    /// Returns the writer of the new SST, which the first call creates.
    pub(super) fn writer_of<'a>(
        &self,
        builder: &'a mut TableBuilder,
        plan: &MergePlan,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<&'a mut SstWriter> {
        if builder.writer.is_none() {
            let number = unpublished.next_number();
            // A merge reads a table of level 0 once and as a whole: it needs no key section.
            let shape = SstShape { keys: !plan.is_flush, ..self.settings.shape };
            let writer =
                SstWriter::create(&self.owner, number, shape, (&self.cache, &builder.flow))?;
            builder.writer = Some(writer);
        }
        builder.writer.as_mut().ok_or_else(no_writer)
    }

    /// Completes a table: writes its index and returns it.
    pub(super) fn finish_block_table(
        &self,
        mut builder: TableBuilder,
        base: &MergeBase,
        plan: &MergePlan,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<TphTable> {
        if builder.locations.is_empty() {
            return Ok(TphTable { lower_bound: builder.lower_bound, ..TphTable::default() });
        }
        self.writer_of(&mut builder, plan, unpublished)?;
        let TableBuilder { lower_bound, writer, mut locations, live, tombstones, flow, .. } =
            builder;
        let _flow = flow;
        let mut writer = writer.ok_or_else(no_writer)?;
        locations.sort_unstable();
        let (kept, first_blocks) = kept_ssts(base, plan, &live, writer.end_blocks()?)?;
        let block_of = |location: u64| {
            let sst = to_usize(location >> SST_SHIFT);
            first_blocks.get(sst).copied().unwrap_or(0) + low_u32(location)
        };
        let collisions = self.collisions(&locations, base, &mut writer, block_of)?;
        for (_, location) in &mut *locations {
            *location = u64::from(block_of(*location));
        }
        let index = self.index_of(&locations, collisions)?;
        drop(locations);
        let sst = Arc::new(writer.finish(index.encode())?);
        let newest = TableSst::new(sst, live.first().copied().unwrap_or_default(), None);
        let ssts = self.merged_ssts(newest, kept, base);
        Ok(TphTable { lower_bound, ssts, tombstones, index: Some(index), ..TphTable::default() })
    }

    /// Builds the index of a table from hashes in order, each with the number of its block or
    /// piece.
    pub(super) fn index_of(
        &self,
        locations: &[(u64, u64)],
        collisions: Vec<Collision>,
    ) -> Result<TableIndex> {
        let options = BuildOptions { method: self.settings.hash, ..BuildOptions::default() };
        TableIndex::build(locations, collisions, self.settings.tag_bits, &options)
    }

    /// Returns the SSTs of a merged table, newest first. Counts the bytes of the new one, and the
    /// SSTs of the base that leave.
    pub(super) fn merged_ssts(
        &self,
        newest: TableSst,
        kept: Vec<TableSst>,
        base: &MergeBase,
    ) -> Vec<TableSst> {
        self.count_written(&newest.sst);
        let collected = to_u64(base.ssts.len() - kept.len());
        self.counters.collected.fetch_add(collected, Ordering::Relaxed);
        let mut ssts = vec![newest];
        ssts.extend(kept);
        ssts
    }

    /// Returns the keys whose hash another key of the table has too. Reads their blocks.
    fn collisions(
        &self,
        locations: &[(u64, u64)],
        base: &MergeBase,
        writer: &mut SstWriter,
        block_of: impl Fn(u64) -> u32,
    ) -> Result<Vec<Collision>> {
        mutant!(TphForgetsCollisions => return Ok(Vec::new()));
        let mut found = Vec::new();
        for group in locations.chunk_by(|one, next| one.0 == next.0) {
            let [(hash, _), _, ..] = group else { continue };
            // The location of each key in the newest SST that has it.
            let mut newest: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for (_, location) in group {
                let entries = match to_usize(location >> SST_SHIFT).checked_sub(1) {
                    None => writer.reader()?.entries(low_u32(*location))?,
                    Some(sst) => match base.ssts.get(sst) {
                        Some(one) => read_entries(&one.sst, low_u32(*location))?,
                        None => Vec::new(),
                    },
                };
                for key in keys_of(&entries) {
                    if self.hash(key) == *hash {
                        newest.entry(key.to_vec()).or_insert(*location);
                    }
                }
            }
            let collision =
                |(key, location)| Collision { hash: *hash, key, block: block_of(location) };
            found.extend(newest.into_iter().map(collision));
        }
        Ok(found)
    }
}

/// Reads the entries of a block.
fn read_entries(sst: &Sst, number: u32) -> Result<Vec<u8>> {
    let span = sst.span(number..number + 1);
    let buffer = sst.read(span)?;
    let open = sst.open_block(&buffer, span, (number, number))?;
    Ok(open.entries().to_vec())
}

/// Iterates over the keys of a block's entries.
fn keys_of(entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (EntryRef { key, .. }, next) = block::entry_at(entries, at)?;
        at = next;
        entries.get(key)
    })
}
