//! Verification of a table: every block, every key through its table's index, counts and order.

use std::sync::Arc;

use super::{
    cursor::{TphCursor, TphMergeCursor, merge_cursor, merge_cursors},
    partition::Partition,
    store::TphStore,
    table::{TableSst, TphTable},
    two_tiers::{
        key_order::RowReader,
        local::{LocalIndex, SlotPlace},
    },
    version::SuperVersion,
};
use crate::{
    Error, Result,
    lsm::{
        cursor::merge::{Direction, ReadAheadSizes, ScanStart, SortedCursor, SstCursor},
        sst::{
            Sst, block, key_section::KeyCursor, order_section::EntryLocation, slot_block::SlotBlock,
        },
    },
    util::{codec::to_u64, report::Report},
};

impl TphStore {
    /// Verifies the files of the current version. Damage is added to the report.
    pub(super) fn check_all(&self, report: &mut Report) -> Result<()> {
        let super_version: Arc<SuperVersion> = self.write_buffer.view.load_full();
        let version = &super_version.version;
        for table in &version.level0 {
            self.check_table(table, None, report)?;
        }
        for level in &version.levels {
            for (number, table) in level.iter().enumerate() {
                let next = level.get(number + 1);
                let end = next.map(|table| table.lower_bound.clone()).unwrap_or_default();
                let range = table.lower_bound.clone()..end;
                let partitioning = self.partitioning;
                let partition = Partition { partitioning, range, is_last: next.is_none() };
                self.check_table(table, Some(&partition), report)?;
            }
        }
        Ok(())
    }

    fn check_table(
        &self,
        table: &TphTable,
        partition: Option<&Partition>,
        report: &mut Report,
    ) -> Result<()> {
        for one in &table.ssts {
            report.checked_bytes += one.sst.file_bytes;
            report_damage(report, one.sst.check_head())?;
            let section = one.sst.footer.index;
            report_damage(report, one.sst.section(section).map(drop))?;
            let outcome = match &one.local {
                None => check_block_index(&one.sst, report),
                Some(local) => self.check_slots(&one.sst, local, report),
            };
            report_damage(report, outcome)?;
            let outcome = self.check_keys(one, report);
            report_damage(report, outcome)?;
        }
        let outcome = self.check_entries(table, partition, report);
        report_damage(report, outcome)
    }

    /// Verifies that the key section of an SST has the keys of its entries.
    fn check_keys(&self, one: &TableSst, report: &mut Report) -> Result<()> {
        let sst = &one.sst;
        let flow = self.queues.flow(&*self.context.env)?;
        let keys = KeyCursor::new(sst, ReadAheadSizes::WHOLE.most(), &flow);
        let Some(mut keys) = keys else { return Ok(()) };
        let start = ScanStart::up(None).with(&flow);
        let mut entries = merge_cursor(one, &start, ReadAheadSizes::WHOLE, None);
        keys.load_first()?;
        entries.load_first()?;
        while keys.key().is_some() || entries.key().is_some() {
            let value_bytes = entries.value().map(|value| to_u64(value.len()));
            let block = match &entries {
                // The section has the first block of the segment.
                TphCursor::Piece(cursor) => cursor.segment_block(),
                other => other.entry_block().0,
            };
            let is_same = keys.key() == entries.key()
                && (keys.block(), keys.value_bytes()) == (block, value_bytes);
            if !is_same {
                let key = entries.key().or(keys.key()).unwrap_or(&[]).escape_ascii();
                let what = format!("the key section differs from the entries at key {key}");
                report.add(&*sst.label, sst.footer.keys.offset, what);
                return Ok(());
            }
            keys.advance()?;
            entries.advance()?;
        }
        Ok(())
    }

    /// Verifies that each entry of a piece is in the slot that the local hash says.
    fn check_slots(&self, sst: &Arc<Sst>, local: &LocalIndex, report: &mut Report) -> Result<()> {
        for number in 0..sst.blocks() {
            let span = sst.span(number..number + 1);
            let buffer = sst.read(span)?;
            let open = sst.open_block(&buffer, span, (number, number))?;
            let damage = || sst.damage(span.offset, "a block of slots does not parse");
            let slots = SlotBlock::parse(open.entries()).ok_or_else(damage)?;
            let mut slot = 0;
            while let Some(range) = slots.slot(slot) {
                let entries = slots.entries().get(..range.end).unwrap_or(&[]);
                let mut at = range.start;
                while at < entries.len() {
                    let (entry, next) = block::entry_at(entries, at).ok_or_else(damage)?;
                    let key = entries.get(entry.key).unwrap_or(&[]);
                    let place = SlotPlace { block: number, slot };
                    if local.find(self.hash(key), key) != Some(place) {
                        let key = key.escape_ascii();
                        let what = format!("the local hash does not find key {key}");
                        report.add(&*sst.label, span.offset, what);
                    }
                    at = next;
                }
                slot += 1;
            }
        }
        Ok(())
    }

    /// Verifies that the index has the block of each key's newest entry, and that keys are in
    /// order, in the right table, and counted.
    fn check_entries(
        &self,
        table: &TphTable,
        partition: Option<&Partition>,
        report: &mut Report,
    ) -> Result<()> {
        let start = ScanStart::up(None);
        let sources = merge_cursors(table, &start, ReadAheadSizes::WHOLE, None);
        let mut merge = TphMergeCursor::new(sources, Direction::Up);
        merge.load_first()?;
        let mut live = vec![(0_u64, 0_u64); table.ssts.len()];
        let (mut tombstones, mut invalid, mut last) = (0, 0, None::<Vec<u8>>);
        let mut rows = RowReader::new(table.ssts.first().map(|one| &one.sst));
        while let (Some(key), Some(current)) = (merge.key(), merge.current()) {
            let Some(one) = table.ssts.get(current) else { break };
            let label = &*one.sst.label;
            let source = merge.sources.get(current);
            let hash = self.hash(key);
            if table.is_invalid(hash, key) {
                invalid += 1;
                merge.advance()?;
                continue;
            }
            let block = source.map_or(0, |source| source.entry_block().0);
            if !is_found((table, one), (hash, key), block) {
                let what = format!("the index does not find key {}", key.escape_ascii());
                report.add(label, 0, what);
            }
            if let Some(TphCursor::Piece(cursor)) = source
                && !is_next_row(table, &mut rows, key, (current, cursor.place()))?
            {
                let what = format!("the key-location array differs at key {}", key.escape_ascii());
                report.add(label, 0, what);
            }
            if last.as_deref().is_some_and(|last| last >= key) {
                report.add(label, 0, format!("key {} is out of order", key.escape_ascii()));
            }
            if partition.is_some_and(|partition| !partition.contains(key)) {
                let what = format!("key {} belongs to another table", key.escape_ascii());
                report.add(label, 0, what);
            }
            if let Some((entries, bytes)) = live.get_mut(current) {
                let value = merge.value().map_or(0, <[u8]>::len);
                *entries += 1;
                *bytes += to_u64(key.len() + value);
            }
            tombstones += u64::from(merge.value().is_none());
            report.checked_entries += 1;
            last = Some(key.to_vec());
            merge.advance()?;
        }
        if rows.next()?.is_some()
            && let Some(newest) = table.ssts.first()
        {
            let what = "the key-location array has more rows than the table has live keys";
            report.add(&*newest.sst.label, newest.sst.footer.order.offset, what);
        }
        for (one, (entries, bytes)) in table.ssts.iter().zip(live) {
            if (one.live, one.live_bytes) != (entries, bytes) {
                let what = format!(
                    "{entries} live entries of {bytes} bytes; the manifest counts {} of {}",
                    one.live, one.live_bytes
                );
                report.add(&*one.sst.label, 0, what);
            }
        }
        report_tombstones(table, (tombstones, invalid), report);
        Ok(())
    }
}

/// Reports wrong numbers of tombstones and of keys that lead to the invalid piece.
fn report_tombstones(table: &TphTable, (tombstones, invalid): (u64, u64), report: &mut Report) {
    // The index may have deleted keys whose last old entry has left the table.
    if (tombstones != table.tombstones || invalid > table.invalid)
        && let Some(newest) = table.ssts.first()
    {
        let what = format!(
            "{tombstones} tombstones and {invalid} invalid keys; the manifest and the index \
                 count {} and {}",
            table.tombstones, table.invalid
        );
        report.add(&*newest.sst.label, 0, what);
    }
}

/// Returns whether the index of a table leads a key to this block of this SST.
fn is_found((table, one): (&TphTable, &TableSst), (hash, key): (u64, &[u8]), block: u32) -> bool {
    let found = table.find(hash, key);
    found.is_some_and(|(other, number)| Arc::ptr_eq(&other.sst, &one.sst) && number == block)
}

/// Returns whether the next row of the key-location array is that of an entry, and whether the
/// samples lead its key there.
fn is_next_row(
    table: &TphTable,
    rows: &mut RowReader,
    key: &[u8],
    (piece, (block, ordinal)): (usize, (u32, usize)),
) -> Result<bool> {
    let number = rows.passed();
    let is_sought = table.order.as_ref().is_some_and(|order| order.seek(key).contains(&number));
    Ok(rows.next()? == Some(EntryLocation { piece, block, ordinal }) && is_sought)
}

/// Verifies that a seek in an SST reads the block of each key.
fn check_block_index(sst: &Arc<Sst>, report: &mut Report) -> Result<()> {
    let mut entries = SstCursor::new(Arc::clone(sst), ScanStart::up(None), ReadAheadSizes::WHOLE);
    entries.load_first()?;
    while let Some(key) = entries.key() {
        if !sst.seek(key).contains(&entries.block()) {
            let what = format!("the block index does not find key {}", key.escape_ascii());
            report.add(&*sst.label, sst.footer.fences.offset, what);
            return Ok(());
        }
        entries.advance()?;
    }
    Ok(())
}

/// Adds damage to the report. Returns other errors.
fn report_damage(report: &mut Report, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            Ok(())
        }
        other => other,
    }
}
