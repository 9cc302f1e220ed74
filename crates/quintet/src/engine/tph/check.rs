//! Verifying: every block, every key through its table's index, counts, order.

use std::sync::Arc;

use super::{
    Inner, SuperVersion,
    cursor::{MergeCursor, Source},
    table::{Part, Table},
};
use crate::{
    Error, Result,
    lsm::{
        cursor::merge::{Direction, ReadAheadSizes, ScanStart, SortedCursor, SstCursor},
        sst::{Sst, key_section::KeyCursor},
    },
    util::{codec::to_u64, report::Report},
};

impl Inner {
    /// Verifies the files of the version that is current now. Merges wait meanwhile.
    pub(super) fn check_all(&self, report: &mut Report) -> Result<()> {
        let view: Arc<SuperVersion> = self.front.view.load_full();
        let version = &view.version;
        for table in &version.level0 {
            self.check_table(table, None, report)?;
        }
        for level in &version.levels {
            for (number, table) in level.iter().enumerate() {
                let next = level.get(number + 1);
                let high = next.map(|table| table.low.clone()).unwrap_or_default();
                let places = table.low.clone()..high;
                let part = Part { route: self.route, places, is_last: next.is_none() };
                self.check_table(table, Some(&part), report)?;
            }
        }
        Ok(())
    }

    fn check_table(&self, table: &Table, part: Option<&Part>, report: &mut Report) -> Result<()> {
        for one in &table.uses {
            report.checked_bytes += one.sst.file_bytes;
            note(report, one.sst.check_head())?;
            let section = one.sst.footer.index;
            note(report, one.sst.section(section).map(drop))?;
            let outcome = self.check_keys(&one.sst, report);
            note(report, outcome)?;
            let outcome = check_fences(&one.sst, report);
            note(report, outcome)?;
        }
        let outcome = self.check_entries(table, part, report);
        note(report, outcome)
    }

    /// The keys that an SST keeps apart are those of its entries.
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
            let same = keys.key() == entries.key()
                && (keys.block(), keys.value_bytes()) == (entries.block(), value_bytes);
            if !same {
                let key = entries.key().or(keys.key()).unwrap_or(&[]).escape_ascii();
                let what = format!("the keys apart from their values differ at {key}");
                report.add(&*sst.label, sst.footer.keys.offset, what);
                return Ok(());
            }
            keys.advance()?;
            entries.advance()?;
        }
        Ok(())
    }

    /// Walks over all SSTs at once: of each key, the newest SST's entry is where the index
    /// says.
    fn check_entries(&self, table: &Table, part: Option<&Part>, report: &mut Report) -> Result<()> {
        let start = ScanStart::up(None);
        let mut merge =
            MergeCursor::new(table.cursors(&start, ReadAheadSizes::WHOLE), Direction::Up);
        merge.load_first()?;
        let mut live = vec![(0_u64, 0_u64); table.uses.len()];
        let (mut tombstones, mut last) = (0, None::<Vec<u8>>);
        while let (Some(key), Some(current)) = (merge.key(), merge.current()) {
            let Some(one) = table.uses.get(current) else { break };
            let label = &*one.sst.label;
            let block = match merge.sources.get(current) {
                Some(Source::Sst(cursor)) => cursor.block(),
                _ => 0,
            };
            let found = table.find(self.hash(key), key);
            if !found.is_some_and(|(sst, at)| Arc::ptr_eq(sst, &one.sst) && at == block) {
                let what = format!("the index does not lead to key {}", key.escape_ascii());
                report.add(label, 0, what);
            }
            if last.as_deref().is_some_and(|last| last >= key) {
                report.add(label, 0, format!("key {} is out of order", key.escape_ascii()));
            }
            if part.is_some_and(|part| !part.has(key)) {
                report.add(label, 0, format!("key {} is another table's", key.escape_ascii()));
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
        for (one, (entries, bytes)) in table.uses.iter().zip(live) {
            if (one.live, one.live_bytes) != (entries, bytes) {
                let what = format!(
                    "{entries} live entries of {bytes} bytes, {} of {} counted",
                    one.live, one.live_bytes
                );
                report.add(&*one.sst.label, 0, what);
            }
        }
        if tombstones != table.tombstones
            && let Some(newest) = table.uses.first()
        {
            let what = format!("{tombstones} tombstones, {} counted", table.tombstones);
            report.add(&*newest.sst.label, 0, what);
        }
        Ok(())
    }
}

/// Seeks come by the block of each key of an SST.
fn check_fences(sst: &Arc<Sst>, report: &mut Report) -> Result<()> {
    let mut entries = SstCursor::new(Arc::clone(sst), ScanStart::up(None), ReadAheadSizes::WHOLE);
    entries.load_first()?;
    while let Some(key) = entries.key() {
        if !sst.seek(key).contains(&entries.block()) {
            let what = format!("the fences do not lead to key {}", key.escape_ascii());
            report.add(&*sst.label, sst.footer.fences.offset, what);
            return Ok(());
        }
        entries.advance()?;
    }
    Ok(())
}

/// Damage becomes a finding; other errors end the check.
fn note(report: &mut Report, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            Ok(())
        }
        other => other,
    }
}
