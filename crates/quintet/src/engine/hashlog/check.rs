//! The check of a table: every extent, every entry, every large value, every slot, and the counts.
//!
//! Locks: `maintenance` for the whole check; one index group at a time. Writers continue.

use std::collections::BTreeMap;

use super::{
    arena::EXTENT_HEAD_UNITS,
    chunk::Chunk,
    entry::{StoredEntry, UNIT_BYTES},
    files::label,
    table::HashLog,
};
use crate::{
    Error, Result,
    contract::Cursor,
    util::{
        codec::{to_u64, to_usize},
        report::Report,
        sync::{Ordering, lock, read},
    },
};

/// Entries of a step of the scan over the index.
const STEP: usize = 1024;

impl HashLog {
    /// Checks the table, and adds damage to `report`. Fails only if the disk fails.
    pub(super) fn check_all(&self, report: &mut Report) -> Result<()> {
        let maintenance = lock(&self.maintenance);
        if let Some(manifest) = &maintenance.manifest {
            add_finding(report, manifest.reread().map(drop))?;
            report.checked_bytes += manifest.bytes();
        }
        let chunks: Vec<_> = read(&self.chunks).values().cloned().collect();
        for chunk in &chunks {
            if !chunk.retired.load(Ordering::Relaxed) {
                self.check_chunk(chunk, report)?;
            }
        }
        let larges: Vec<_> = read(&self.larges).values().cloned().collect();
        for large in larges {
            if large.written.load(Ordering::Relaxed)
                && let Some(file_range) = large.file_range()
            {
                add_finding(report, self.read_large_at(&large, &file_range).map(drop))?;
                report.checked_bytes += large.length;
            }
        }
        self.check_index(report)
    }

    fn check_chunk(&self, chunk: &Chunk, report: &mut Report) -> Result<()> {
        let buffer = match self.read_chunk(chunk) {
            Ok(buffer) => buffer,
            Err(error) => return add_finding(report, Err(error)),
        };
        report.checked_bytes += to_u64(buffer.as_slice().len());
        for extent in lock(&chunk.flush).extents.clone() {
            let mut unit = extent.start + EXTENT_HEAD_UNITS;
            let mut count = 0;
            while unit < extent.end {
                let bytes = buffer.as_slice().get(to_usize(unit) * UNIT_BYTES..).unwrap_or(&[]);
                let Some(entry) = StoredEntry::verify(bytes, chunk.serial, to_usize(unit)) else {
                    let damage = chunk.damage(unit, "the entry's checksum does not match");
                    return add_finding(report, Err(damage));
                };
                unit += to_u64(entry.head.units());
                count += 1;
            }
            report.checked_entries += count;
            if count != extent.entry_count {
                let what = format!("{count} entries in an extent of {}", extent.entry_count);
                report.add(label(self.owner.table_id, "manifest"), 0, what);
            }
        }
        Ok(())
    }

    /// Checks that a lookup of every scanned key returns the scanned value. Compares the counts if
    /// no thread writes meanwhile.
    fn check_index(&self, report: &mut Report) -> Result<()> {
        let before = self.written_to();
        let mut seen = BTreeMap::new();
        let mut cursor = Cursor::START;
        let mut count = 0;
        loop {
            let (entries, next) = self.scan_from(&cursor, STEP)?;
            for entry in entries {
                count += 1;
                let again = self.read_value(&entry.key)?;
                let differs = again.is_none_or(|value| value != entry.value);
                if differs && self.written_to() == before {
                    let what = format!("key {} is not found by its hash", entry.key.escape_ascii());
                    report.add(label(self.owner.table_id, "index"), 0, what);
                }
                *seen.entry(self.hash(&entry.key)).or_insert(0_u32) += 1;
            }
            if next.is_start() {
                break;
            }
            cursor = next;
        }
        let keys = self.index.len();
        let twice = seen.values().any(|times| *times > 1);
        let differs = count != keys || twice && !self.collided.load(Ordering::Relaxed);
        // Read last: a write that changed the counts has changed this too.
        if differs && self.written_to() == before {
            let what = format!("{count} entries, {keys} keys counted");
            report.add(label(self.owner.table_id, "index"), 0, what);
        }
        Ok(())
    }

    /// Returns the number of operations and the size of the index. Two results differ if a write
    /// took effect or the index was resized between the calls. Every counted operation is in effect
    /// on return.
    fn written_to(&self) -> (u64, u64) {
        self.index.wait_for_writers();
        let seen = (self.counters.applied.load(Ordering::Relaxed), self.index.size());
        self.index.wait_for_writers();
        seen
    }
}

/// Adds damage to `report`. Returns other errors.
fn add_finding(report: &mut Report, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            Ok(())
        }
        other => other,
    }
}
