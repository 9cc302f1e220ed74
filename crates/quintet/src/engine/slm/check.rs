//! Verifies the pages of the index, every block of every run, and that both agree.

use super::{
    Inner,
    keys::IndexKey,
    runs::{FIRST_KEY, Place, Run, Runs},
};
use crate::{
    Error, Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    lsm::{
        cursor::merge::{Ahead, ScanStart, SortedCursor as _, SstCursor},
        sst::block,
    },
    util::{codec::to_u64, report::Report, sync::lock},
};

use std::sync::Arc;

/// Places that one step copies.
const STEP: usize = 1024;

impl Inner {
    /// Verifies the files. Flushes and merges wait meanwhile.
    pub(super) fn check_all(&self, report: &mut Report) -> Result<()> {
        let _compacting = lock(&self.compacting);
        let _flushing = lock(&self.flushing);
        {
            let mut checkpointer = lock(&self.paged.checkpointer);
            self.paged.check_files(&mut checkpointer, report)?;
        }
        self.clean();
        let view = self.front.view.load_full();
        let mut live = 0;
        for run in view.version.iter() {
            report.checked_bytes += run.sst.file_bytes;
            note(report, run.sst.check_head())?;
            let found = self.check_run(run, report);
            live += found.or_else(|error| note(report, Err(error)).map(|()| run.live()))?;
        }
        let placed = self.check_places(&view.version, report);
        let placed = placed.or_else(|error| note(report, Err(error)).map(|()| live))?;
        if placed != live {
            let what = format!("it has {placed} keys, of which {live} lead to their entry");
            report.add(self.paged.tree.cache().label(), 0, what);
        }
        Ok(())
    }

    /// Walks over a run: order, bounds and counts; how many entries the index points to.
    fn check_run(&self, run: &Run, report: &mut Report) -> Result<u64> {
        let label = &*run.sst.label;
        let mut cursor = SstCursor::new(Arc::clone(&run.sst), ScanStart::up(None), Ahead::WHOLE);
        cursor.settle()?;
        let (mut entries, mut live, mut last) = (0, 0, None::<Vec<u8>>);
        // The block that the cursor is in, and where its next entry begins.
        let (mut block, mut offset) = (cursor.block(), 0);
        while let Some(key) = cursor.key() {
            if last.as_deref().is_some_and(|last| last >= key) {
                report.add(label, 0, format!("key {} is out of order", key.escape_ascii()));
            }
            if last.is_none() && key != run.low {
                report.add(label, 0, "the first key is not the one that the run says");
            }
            if cursor.block() != block {
                (block, offset) = (cursor.block(), 0);
            }
            let place = Place { run: run.number, block };
            if let Some(entered) = self.entered(key)?.filter(|entered| entered.place == place) {
                live += 1;
                if run.beginning(entered).is_some_and(|bytes| !bytes.contains(&offset)) {
                    let key = key.escape_ascii();
                    report.add(label, 0, format!("the index says that {key} begins elsewhere"));
                }
            }
            offset += block::entry_bytes(key.len(), cursor.value().map_or(0, <[u8]>::len));
            entries += 1;
            report.checked_entries += 1;
            last = Some(key.to_vec());
            cursor.advance()?;
        }
        if last.is_some_and(|last| last != run.high) {
            report.add(label, 0, "the last key is not the one that the run says");
        }
        if (entries, live) != (run.entries(), run.live()) {
            let (all, counted) = (run.entries(), run.live());
            let what =
                format!("{live} of {entries} entries are live, counted were {counted} of {all}");
            report.add(label, 0, what);
        }
        Ok(live)
    }

    /// Walks over the index: how many keys it has.
    fn check_places(&self, runs: &Runs, report: &mut Report) -> Result<u64> {
        let (mut ascent, mut step) =
            (ForwardScan::new(FIRST_KEY.to_vec(), None), EntryRun::default());
        let (mut count, mut restored) = (0, Vec::new());
        while !ascent.is_over {
            self.paged.tree.scan_forward(&mut ascent, (STEP, 8), &mut step)?;
            count += to_u64(step.len());
            for (key, value) in (0..step.len()).filter_map(|index| step.entry(index)) {
                let key = IndexKey(key);
                let place = Place::decode(value).ok_or_else(|| self.no_place(key))?;
                let run = runs.find(place.run);
                if run.is_none_or(|run| place.block >= run.sst.blocks()) {
                    note(report, Err(self.no_run(self.keys.shown(key), place)))?;
                }
                restored.clear();
                if self.keys.restore(key, &mut restored).is_none() {
                    note(report, Err(self.no_key(key)))?;
                }
            }
        }
        Ok(count)
    }
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
