//! Run builder: writes a run and collects the index updates that point to its entries.
//!
//! Invariant: the run is durable and readers see it before the index points to it.

use std::sync::Arc;

use super::{
    index_update::{IndexEdit, IndexUpdates},
    index_value::{BlockAddress, IndexValue, part_of_offset},
    run::{SortedRun, encode_bounds},
    table::SlmTable,
};
use crate::{
    Result,
    lsm::{block_cache::CacheAdmission, sst::SstWriter},
    util::{mutant::mutant, sync::Ordering},
};

/// Writes a run and collects the index updates for its entries. Dropping it before
/// [`Self::finish`] removes the file.
pub(super) struct RunBuilder<'a> {
    table: &'a SlmTable,
    /// Number of the run, once it has an entry.
    number: u32,
    /// `None` before the first entry: a flush of deletes alone writes no file.
    writer: Option<SstWriter>,
    low: Vec<u8>,
    high: Vec<u8>,
    pub(super) updates: IndexUpdates,
}

impl<'a> RunBuilder<'a> {
    /// Creates a builder without a file.
    pub(super) fn new(table: &'a SlmTable) -> Self {
        let (low, high, updates) = Default::default();
        Self { table, number: 0, writer: None, low, high, updates }
    }

    /// Appends an entry, and returns its index value. The block cache admits its block by
    /// `admission` or by a higher class that another entry of the block has.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        admission: CacheAdmission,
    ) -> Result<IndexValue> {
        if self.writer.is_none() {
            self.number = self.table.manifest.next_number()?;
            let (table, number) = (self.table, u64::from(self.number));
            let flow = table.queues.flow(&*table.context.env)?;
            let shape = table.settings.shape;
            let writer = SstWriter::create(&table.owner, number, shape, (&table.cache, &flow))?;
            self.writer = Some(writer);
            self.low = key.to_vec();
        }
        self.high.clear();
        self.high.extend_from_slice(key);
        let (block, offset) = match &mut self.writer {
            Some(writer) => writer.add(key, Some(value), admission)?,
            None => (0, 0),
        };
        let expires = self.table.context.host.expires(value);
        let never_expires = mutant!(SlmTakesAllForLasting: true, else !expires);
        let part = part_of_offset(offset, self.table.settings.shape.block_bytes);
        let part = mutant!(SlmMarksNextPart: part.saturating_add(1), else part);
        Ok(IndexValue { address: BlockAddress { run: self.number, block }, never_expires, part })
    }

    /// Whether the run has reached `run_bytes`, or the updates the limit of their memory.
    pub(super) fn is_full(&self) -> bool {
        let bytes = self.writer.as_ref().map_or(0, SstWriter::data_bytes);
        // Deletes add updates but no bytes to the file.
        bytes >= self.table.settings.run_bytes
            || self.updates.is_full(self.table.context.budget.limit())
    }

    /// Makes the file durable and adds the run to the super version. The index does not point to
    /// it yet.
    pub(super) fn finish(mut self) -> Result<IndexEdit> {
        let updates = std::mem::take(&mut self.updates);
        let Some(writer) = self.writer.take() else { return Ok(IndexEdit { run: None, updates }) };
        let bounds = (std::mem::take(&mut self.low), std::mem::take(&mut self.high));
        let table = self.table;
        match writer.finish([encode_bounds(&bounds.0, &bounds.1)]) {
            Ok(sst) => {
                table.counters.written_bytes_total.fetch_add(sst.file_bytes, Ordering::Relaxed);
                let run = Arc::new(SortedRun::new(self.number, sst, bounds));
                table.manifest.add(&run);
                // A run that the list lacks gets no live entry: the next checkpoint removes it.
                table.list_in_pool().inspect_err(|_| run.seal())?;
                table.reserve_run_memory(run.memory_bytes());
                table.write_buffer.install_version(|runs| runs.with(&run), &[], table);
                Ok(IndexEdit { run: Some(run), updates })
            }
            Err(error) => {
                self.remove();
                Err(error)
            }
        }
    }

    fn remove(&self) {
        // If this fails, the next opening removes the file.
        let name = self.table.owner.kind.name_of(u64::from(self.number));
        let _ = self.table.owner.dir.remove(&name);
    }
}

impl Drop for RunBuilder<'_> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            self.remove();
        }
    }
}
