//! Verifies the pages of the index, every block of every run, and that both agree.

use std::sync::Arc;

use super::{
    index_key::{FIRST_KEY, IndexKey},
    index_value::BlockAddress,
    run::{RunSet, SortedRun},
    table::SlmTable,
};
use crate::{
    Error, Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    lsm::{
        cursor::merge::{ReadAheadSizes, ScanStart, SortedCursor as _, SstCursor},
        sst::block,
    },
    util::{codec::to_u64, report::Report, sync::lock},
};

/// Index values that one step copies.
const STEP: usize = 1024;

impl SlmTable {
    /// Verifies the files. Flushes and merges wait meanwhile.
    pub(super) fn check_all(&self, report: &mut Report) -> Result<()> {
        let _compacting = lock(&self.compacting);
        let _flushing = lock(&self.flushing);
        if self.pool_index().is_none() {
            let mut checkpointer = lock(&self.paged.checkpointer);
            self.paged.check_files(&mut checkpointer, report)?;
        }
        self.check_pool(report)?;
        self.remove_obsolete_runs();
        let view = self.write_buffer.view.load_full();
        let mut live = 0;
        for run in view.version.iter() {
            report.checked_bytes += run.sst.file_bytes;
            record(report, run.sst.check_head())?;
            let found = self.check_run(run, report);
            live += found.or_else(|error| record(report, Err(error)).map(|()| run.live()))?;
        }
        let indexed = self.check_index(&view.version, report);
        let indexed = indexed.or_else(|error| record(report, Err(error)).map(|()| live))?;
        if indexed != live {
            let what = format!("the index has {indexed} keys, but only {live} point to an entry");
            report.add(self.index_label(), 0, what);
        }
        Ok(())
    }

    /// Checks the tree and the memtables in the pool.
    fn check_pool(&self, report: &mut Report) -> Result<()> {
        let Some(pool) = &self.pool else { return Ok(()) };
        report.checked_bytes += pool.pool.used_bytes();
        if let Some(index) = &pool.index {
            self.finish_index_batch(index)?;
            record(report, index.check().map(drop))?;
        }
        record(report, self.write_buffer.read_all())?;
        let view = self.write_buffer.view.load_full();
        let mut memtables = view.memtables();
        memtables.try_for_each(|memtable| record(report, memtable.check()))
    }

    /// Checks order, bounds and counts of a run. Returns how many entries the index points to.
    fn check_run(&self, run: &SortedRun, report: &mut Report) -> Result<u64> {
        let label = &*run.sst.label;
        let mut cursor =
            SstCursor::new(Arc::clone(&run.sst), ScanStart::up(None), ReadAheadSizes::WHOLE);
        cursor.load_first()?;
        let (mut entries, mut live, mut last) = (0, 0, None::<Vec<u8>>);
        // The block that the cursor is in, and where its next entry begins.
        let (mut block, mut offset) = (cursor.block(), 0);
        while let Some(key) = cursor.key() {
            if last.as_deref().is_some_and(|last| last >= key) {
                report.add(label, 0, format!("key {} is out of order", key.escape_ascii()));
            }
            if last.is_none() && key != run.low {
                report.add(label, 0, "the first key is not the lower bound of the run");
            }
            if cursor.block() != block {
                (block, offset) = (cursor.block(), 0);
            }
            let address = BlockAddress { run: run.number, block };
            if let Some(index_value) =
                self.index_value(key)?.filter(|index_value| index_value.address == address)
            {
                live += 1;
                if run.entry_offsets(index_value).is_some_and(|bytes| !bytes.contains(&offset)) {
                    let key = key.escape_ascii();
                    report.add(label, 0, format!("the index has another offset for key {key}"));
                }
            }
            offset += block::entry_bytes(key.len(), cursor.value().map_or(0, <[u8]>::len));
            entries += 1;
            report.checked_entries += 1;
            last = Some(key.to_vec());
            cursor.advance()?;
        }
        if last.is_some_and(|last| last != run.high) {
            report.add(label, 0, "the last key is not the upper bound of the run");
        }
        if (entries, live) != (run.entries(), run.live()) {
            let (all, counted) = (run.entries(), run.live());
            let what = format!(
                "{live} of {entries} entries are live, the manifest counts {counted} of {all}"
            );
            report.add(label, 0, what);
        }
        Ok(live)
    }

    /// Checks every key and value of the index. Returns the number of keys.
    fn check_index(&self, runs: &RunSet, report: &mut Report) -> Result<u64> {
        let (mut ascent, mut step) =
            (ForwardScan::new(FIRST_KEY.to_vec(), None), EntryRun::default());
        let (mut count, mut restored) = (0, Vec::new());
        while !ascent.is_over {
            match self.pool_index() {
                Some(index) => index.scan_forward(&mut ascent, STEP, &mut step)?,
                None => self.paged.tree.scan_forward(&mut ascent, (STEP, 8), &mut step)?,
            }
            count += to_u64(step.len());
            for (key, value) in (0..step.len()).filter_map(|index| step.entry(index)) {
                let key = IndexKey(key);
                let address =
                    BlockAddress::decode(value).ok_or_else(|| self.undecodable_value(key))?;
                let run = runs.find(address.run);
                if run.is_none_or(|run| address.block >= run.sst.blocks()) {
                    record(report, Err(self.missing_run(self.keys.format(key), address)))?;
                }
                restored.clear();
                if self.keys.restore(key, &mut restored).is_none() {
                    record(report, Err(self.undecodable_key(key)))?;
                }
            }
        }
        Ok(count)
    }
}

/// Adds damage to the report as a finding. Returns other errors.
fn record(report: &mut Report, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            Ok(())
        }
        other => other,
    }
}
