//! Verification of a table: every block, every key through its table's index, counts and order.

use std::sync::Arc;

use super::{
    cursor::{TphCursor, TphMergeCursor, table_cursors},
    partition::Partition,
    store::TphStore,
    table::TphTable,
    version::SuperVersion,
};
use crate::{
    Error, Result,
    lsm::{
        cursor::merge::{Direction, ReadAheadSizes, ScanStart, SortedCursor, SstCursor},
        sst::{Sst, key_section::KeyCursor},
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
            let outcome = self.check_keys(&one.sst, report);
            report_damage(report, outcome)?;
            let outcome = check_block_index(&one.sst, report);
            report_damage(report, outcome)?;
        }
        let outcome = self.check_entries(table, partition, report);
        report_damage(report, outcome)
    }

    /// Verifies that the key section of an SST has the keys of its entries.
    fn check_keys(&self, sst: &Arc<Sst>, report: &mut Report) -> Result<()> {
        let flow = self.queues.flow(&*self.context.env)?;
        let keys = KeyCursor::new(sst, ReadAheadSizes::WHOLE.most(), &flow);
        let Some(mut keys) = keys else { return Ok(()) };
        let start = ScanStart::up(None).with(&flow);
        let mut entries = SstCursor::new(Arc::clone(sst), start, ReadAheadSizes::WHOLE);
        keys.load_first()?;
        entries.load_first()?;
        while keys.key().is_some() || entries.key().is_some() {
            let value_bytes = entries.value().map(|value| to_u64(value.len()));
            let is_same = keys.key() == entries.key()
                && (keys.block(), keys.value_bytes()) == (entries.block(), value_bytes);
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

    /// Verifies that the index has the block of each key's newest entry, and that keys are in
    /// order, in the right table, and counted.
    fn check_entries(
        &self,
        table: &TphTable,
        partition: Option<&Partition>,
        report: &mut Report,
    ) -> Result<()> {
        let start = ScanStart::up(None);
        let sources = table_cursors(table, &start, ReadAheadSizes::WHOLE);
        let mut merge = TphMergeCursor::new(sources, Direction::Up);
        merge.load_first()?;
        let mut live = vec![(0_u64, 0_u64); table.ssts.len()];
        let (mut tombstones, mut last) = (0, None::<Vec<u8>>);
        while let (Some(key), Some(current)) = (merge.key(), merge.current()) {
            let Some(one) = table.ssts.get(current) else { break };
            let label = &*one.sst.label;
            let block = match merge.sources.get(current) {
                Some(TphCursor::Sst(cursor)) => cursor.block(),
                _ => 0,
            };
            let found = table.find(self.hash(key), key);
            if !found.is_some_and(|(sst, number)| Arc::ptr_eq(sst, &one.sst) && number == block) {
                let what = format!("the index does not find key {}", key.escape_ascii());
                report.add(label, 0, what);
            }
            if last.as_deref().is_some_and(|last| last >= key) {
                report.add(label, 0, format!("key {} is out of order", key.escape_ascii()));
            }
            if partition.is_some_and(|partition| !partition.contains(key)) {
                report.add(
                    label,
                    0,
                    format!("key {} belongs to another table", key.escape_ascii()),
                );
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
        for (one, (entries, bytes)) in table.ssts.iter().zip(live) {
            if (one.live, one.live_bytes) != (entries, bytes) {
                let what = format!(
                    "{entries} live entries of {bytes} bytes; the manifest counts {} of {}",
                    one.live, one.live_bytes
                );
                report.add(&*one.sst.label, 0, what);
            }
        }
        if tombstones != table.tombstones
            && let Some(newest) = table.ssts.first()
        {
            let what = format!("{tombstones} tombstones; the manifest counts {}", table.tombstones);
            report.add(&*newest.sst.label, 0, what);
        }
        Ok(())
    }
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
