//! Merges into tables with two tiers ([`super::super::two_tiers`]): the cases of each key
//! ([`merge_case`]), and the new global hash.
//!
//! A merge visits the keys of the base in order, and reads the base's key-location array beside
//! them. Each key that the base leads to a piece has the next row. So the location of an entry that
//! stays is known.
//!
//! The locations of the builder are those of the new table's rows in key order. The upper bits are
//! those of an [`EntryLocation`], whose piece is 0 for the new one and else counted from 1 in the
//! order of the base. A key that leads to the invalid piece has [`INVALID_FLAG`], and the block and
//! slot of an old entry.

mod merge_case;

use std::{collections::BTreeMap, sync::Arc};

use self::merge_case::{KeyAction, MergeCase, MergedKey};
use super::{
    super::{
        cursor::{TphCursor, TphMergeCursor},
        index::Collision,
        piece_cursor::{keys_of, keys_of_block},
        publish::UnpublishedSsts,
        store::TphStore,
        table::{TableSst, TphTable},
        two_tiers::{global, key_order::RowReader},
    },
    plan::{MergeBase, MergePlan},
    table_builder::{TableBuilder, no_writer},
};
use crate::{
    Error, Result,
    lsm::sst::{
        SstWriter,
        order_section::{self, EntryLocation, PIECES_MAX},
    },
    util::{
        codec::{low_u32, to_u64},
        mutant::mutant,
    },
};

/// Flag of a location whose key leads to the invalid piece.
const INVALID_FLAG: u64 = 1 << 63;

/// The base of a merge, its plan, and the rows of the base's key-location array.
type OlderSide<'a> = (&'a MergeBase, &'a MergePlan, &'a mut RowReader);

impl TphStore {
    /// Merges the entries of the current key: see [`merge_case`].
    pub(super) fn merge_slotted_entry(
        &self,
        merge: &TphMergeCursor,
        (newer_count, hash): (usize, u64),
        (base, plan, rows): OlderSide<'_>,
        builder: &mut TableBuilder,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<()> {
        let (Some(current), Some(key)) = (merge.current(), merge.key()) else { return Ok(()) };
        let holders = || merge.holders().filter_map(|source| source.checked_sub(newer_count));
        let row = match holders().next() {
            Some(piece) if !base.is_invalid(hash, key) => Some(next_row(base, piece, rows)?),
            _ => None,
        };
        let held = holders().find(|piece| plan.keeps(*piece));
        let merged = MergedKey {
            case: MergeCase::of(current < newer_count, row.is_some()),
            base_stays: row.is_some_and(|row| plan.keeps(row.piece)),
            is_held: held.is_some(),
            has_deeper: plan.has_deeper,
        };
        let value = || merge.value().filter(|value| !self.context.host.is_expired(value));
        let action = merged.action(|| value().is_some());
        match (action, row, held) {
            (KeyAction::ToNewPiece, ..) => {
                self.add_to_new_piece((hash, key), value(), plan, builder, unpublished)?;
            }
            (KeyAction::Stays, Some(row), _) => {
                let entry = merge.sources.get(current).map(TphCursor::entry_block);
                let (_, value_bytes) = entry.unwrap_or_default();
                let piece = row.piece + 1;
                builder.locations.push((hash, EntryLocation { piece, ..row }.to_word()));
                builder.count_live(key, piece, value_bytes);
                builder.piece.as_mut().ok_or_else(no_writer)?.add_row(key);
            }
            (KeyAction::ToInvalidPiece, _, Some(piece)) => {
                let local = base.ssts.get(piece).and_then(|one| one.local.as_ref());
                if let Some(place) = local.and_then(|local| local.find(hash, key)) {
                    let (piece, ordinal) = (piece + 1, place.slot);
                    let old = EntryLocation { piece, block: place.block, ordinal };
                    builder.locations.push((hash, old.to_word() | INVALID_FLAG));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the newest entry of a key to the new piece; a value of `None` is a tombstone.
    fn add_to_new_piece(
        &self,
        (hash, key): (u64, &[u8]),
        value: Option<&[u8]>,
        plan: &MergePlan,
        builder: &mut TableBuilder,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<()> {
        self.writer_of(builder, plan, unpublished)?;
        let row = builder.locations.len();
        builder.locations.push((hash, 0));
        builder.count_live(key, 0, value.map(|value| to_u64(value.len())));
        let TableBuilder { piece, writer, locations, .. } = builder;
        let (Some(piece), Some(writer)) = (piece, writer) else { return Err(no_writer()) };
        piece.add_row(key);
        piece.add_entry((hash, key), value, row, (writer, &mut locator(locations)))
    }

    /// Completes a table: writes its key order, its local and its global hash, and returns it.
    pub(super) fn finish_slotted_table(
        &self,
        mut builder: TableBuilder,
        base: &MergeBase,
        plan: &MergePlan,
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<TphTable> {
        if builder.live.iter().all(|(entries, _)| *entries == 0) {
            return Ok(TphTable { lower_bound: builder.lower_bound, ..TphTable::default() });
        }
        self.writer_of(&mut builder, plan, unpublished)?;
        let TableBuilder { lower_bound, writer, mut locations, live, tombstones, piece, .. } =
            builder;
        let (mut writer, mut piece) = writer.zip(piece).ok_or_else(no_writer)?;
        piece.end_segment(&mut writer, &mut locator(&mut locations))?;
        let (kept, pieces) = kept_pieces(base, plan, &live)?;
        let location = |word: &u64| {
            let old = EntryLocation::from_word(*word);
            let piece = pieces.get(old.piece).copied().unwrap_or(0);
            EntryLocation { piece, ..old }
        };
        let is_row = |word: &&u64| mutant!(TphOrdersDeletedKeys: true, else !is_invalid(**word));
        let rows = locations.iter().map(|(_, word)| word).filter(is_row);
        let salt = writer.salt();
        writer.put_order(order_section::encode(rows.map(location), salt))?;
        locations.sort_unstable();
        let piece_number = |word: u64| global::number_of(location(&word).piece);
        let number =
            |word: u64| if is_invalid(word) { global::INVALID } else { piece_number(word) };
        let collisions = self.slotted_collisions(&locations, base, &mut writer, number)?;
        let mut invalid = 0;
        for (_, word) in &mut *locations {
            invalid += u64::from(is_invalid(*word));
            *word = number(*word);
        }
        let index = self.index_of(&locations, collisions)?;
        drop(locations);
        let (local, order) = piece.finish()?;
        let section = (index, order, invalid);
        let sst = Arc::new(writer.finish_slotted(global::encode(&section), &local.encode())?);
        let written = live.first().copied().unwrap_or_default();
        let newest = TableSst::new(sst, written, Some(Arc::new(local)));
        let ssts = self.merged_ssts(newest, kept, base);
        let (index, order, invalid) = section;
        let (index, order) = (Some(index), Some(order));
        Ok(TphTable { lower_bound, ssts, tombstones, index, order, invalid })
    }

    /// Returns the keys whose hash another key of the table has too. Reads their blocks.
    fn slotted_collisions(
        &self,
        locations: &[(u64, u64)],
        base: &MergeBase,
        writer: &mut SstWriter,
        number: impl Fn(u64) -> u64,
    ) -> Result<Vec<Collision>> {
        mutant!(TphForgetsCollisions => return Ok(Vec::new()));
        let mut found = Vec::new();
        for group in locations.chunk_by(|one, next| one.0 == next.0) {
            let [(hash, _), _, ..] = group else { continue };
            let mut numbers: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            // The flag sorts the keys of the invalid piece behind the others.
            for (_, word) in group {
                let location = EntryLocation::from_word(*word);
                let keys = keys_at(base, writer, location)?;
                if is_invalid(*word) {
                    // The slot of an old entry may have entries of other keys, live or not.
                    for key in keys.into_iter().filter(|key| self.hash(key) == *hash) {
                        numbers.entry(key).or_insert(global::INVALID);
                    }
                } else if let Some(key) = keys.into_iter().nth(location.ordinal) {
                    numbers.insert(key, number(*word));
                }
            }
            let collision = |(key, number)| Collision { hash: *hash, key, block: low_u32(number) };
            found.extend(numbers.into_iter().map(collision));
        }
        Ok(found)
    }
}

fn is_invalid(word: u64) -> bool {
    word & INVALID_FLAG != 0
}

/// Returns the function that stores where the entries of rows are.
fn locator(locations: &mut [(u64, u64)]) -> impl FnMut(usize, EntryLocation) {
    |row, location| {
        if let Some((_, word)) = locations.get_mut(row) {
            *word = location.to_word();
        }
    }
}

/// Returns the next row of the base, whose global hash leads to a piece.
fn next_row(base: &MergeBase, piece: usize, rows: &mut RowReader) -> Result<EntryLocation> {
    let row = rows.next()?.filter(|row| row.piece == piece);
    row.ok_or_else(|| {
        let newest = base.ssts.first().map(|one| &one.sst);
        let (label, offset) =
            newest.map_or(("", 0), |sst| (sst.label.as_str(), sst.footer.order.offset));
        Error::corruption(label, offset, "the key-location array differs from the pieces")
    })
}

/// Returns the pieces that stay, and the index in the new table of the new piece and of each piece
/// of the base.
fn kept_pieces(
    base: &MergeBase,
    plan: &MergePlan,
    live: &[(u64, u64)],
) -> Result<(Vec<TableSst>, Vec<usize>)> {
    let mut kept = Vec::new();
    let mut pieces = vec![0];
    for (index, one) in base.ssts.iter().enumerate() {
        let (entries, bytes) = live.get(index + 1).copied().unwrap_or_default();
        let stays = plan.keeps(index) && entries > 0;
        let number = mutant!(TphKeepsPieceNumbers: index + 1, else kept.len() + 1);
        pieces.push(if stays { number } else { 0 });
        if stays {
            kept.push(TableSst { live: entries, live_bytes: bytes, ..one.clone() });
        }
    }
    if kept.len() >= PIECES_MAX {
        return Err(Error::Limit { what: format!("a table exceeds {PIECES_MAX} pieces") });
    }
    Ok((kept, pieces))
}

/// Returns the keys of the block of a location, whose piece is counted as in the module head.
fn keys_at(
    base: &MergeBase,
    writer: &mut SstWriter,
    location: EntryLocation,
) -> Result<Vec<Vec<u8>>> {
    match location.piece.checked_sub(1) {
        None => {
            let block = writer.reader()?.entries(location.block)?;
            Ok(keys_of(&block).unwrap_or_default())
        }
        Some(piece) => match base.ssts.get(piece) {
            Some(one) => keys_of_block(&one.sst, location.block),
            None => Ok(Vec::new()),
        },
    }
}
