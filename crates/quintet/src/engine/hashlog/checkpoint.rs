//! Checkpoints: make the files and the manifest durable up to an LSN.
//!
//! 1. Freeze the open extents. Wait for writers that did not see the freeze.
//! 2. Sync the log.
//! 3. Write and sync the data ([`flush`](super::flush)).
//! 4. Commit in the manifest.
//! 5. Free the space that the checkpoint dropped.
//!
//! Invariants: a failed checkpoint changes nothing that recovery reads. The next one continues with
//! the data already written. A failed sync is never retried in the same file: data goes to another
//! data file, the manifest to another manifest. After a durable commit, failures of the cleanup do
//! not fail the checkpoint. They are counted and retried.
//!
//! Locks: `maintenance`, for the whole checkpoint.

use std::mem;

use super::{
    arena::EXTENT_HEAD_UNITS,
    maintenance::{Maintenance, PendingExtent},
    manifest::{Commit, Extent, HashLogManifest, LargeRecord, ManifestContents},
    mutants,
    table::HashLog,
};
use crate::{
    Error, Result,
    util::{
        codec::{Lsn, to_u64},
        mutant::mutant,
        sync::{Ordering, lock, read, write},
    },
};

/// A manifest is rewritten if it is half as large again as its live content, plus this many bytes.
const MANIFEST_BYTES_MIN: u64 = 32 << 10;

/// An idle table's manifest is rewritten if it exceeds its live content by one part in this many,
/// plus twice the bytes above.
const MANIFEST_IDLE_PART: u64 = 16;

/// Bytes of buffers during a rewrite: a part of the manifest, and the hints of one extent.
const MANIFEST_BUFFER_BYTES: u64 = 2 << 20;

impl HashLog {
    /// Makes a checkpoint that is complete to `up_to`. Returns the LSN that the files are complete
    /// to.
    pub(super) fn checkpoint_up_to(&self, up_to: Lsn) -> Result<Lsn> {
        let mut maintenance = lock(&self.maintenance);
        let applied = self.counters.applied.load(Ordering::Relaxed);
        self.make_checkpoint(&mut maintenance, up_to.0)?;
        self.counters.applied_persisted.store(applied, Ordering::Relaxed);
        Ok(Lsn(maintenance.complete))
    }

    /// Makes a checkpoint of everything applied so far, and records that the files are complete to
    /// `complete`. Fails with `ReadOnly`, or if the disk or the log sync fails; a later checkpoint
    /// retries.
    pub(super) fn make_checkpoint(
        &self,
        maintenance: &mut Maintenance,
        complete: u64,
    ) -> Result<()> {
        if self.context.read_only {
            return Err(Error::ReadOnly);
        }
        self.checkpoint_wanted.store(false, Ordering::Relaxed);
        let outcome = self.checkpoint_frozen(maintenance, complete.max(maintenance.complete));
        if outcome.is_err() {
            // Frozen entries count as flushed, so nothing else would request another attempt.
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn checkpoint_frozen(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        let started = self.context.env.monotonic();
        // Before the freeze: the entries that replaced these are applied, so this checkpoint holds
        // them.
        maintenance.dead_larges.append(&mut lock(&self.dead_larges));
        if self.has_unwritten_sealed() {
            // An earlier attempt lacked the space. Another small extent would take more of it.
            self.context.host.sync_log()?;
            self.write_or_free(maintenance)?;
        }
        self.freeze();
        mutant!(HashlogSkipsLogSync: (), else self.context.host.sync_log()?);
        match self.write_frozen(maintenance) {
            Err(Error::DiskFull { .. }) => self.write_sealed(maintenance)?,
            written => written?,
        }
        if !maintenance.is_idle() || complete > maintenance.complete {
            self.sync_written(maintenance)?;
            mutant!(HashlogFreesBeforePublishing => mutants::free_retired(maintenance));
            match self.commit(maintenance, complete) {
                Err(Error::DiskFull { .. })
                    if maintenance.manifest.as_ref().is_some_and(|one| !one.is_in_doubt()) =>
                {
                    self.trim_open_chunks(maintenance)?;
                    self.commit(maintenance, complete)?;
                }
                committed => committed?,
            }
            self.free_dropped(maintenance);
            self.rewrite_manifest(maintenance);
            let elapsed = self.context.env.monotonic().saturating_sub(started);
            self.counters.checkpoints.add(elapsed);
        }
        let failures = maintenance.files.punch_freed();
        self.counters.cleanup_failures_total.fetch_add(failures, Ordering::Relaxed);
        self.count_bytes(maintenance);
        self.charge_index();
        Ok(())
    }

    /// Returns whether a chunk that takes no more entries is not written. If the disk has no space
    /// for that one, sealing another would only take memory.
    fn has_unwritten_sealed(&self) -> bool {
        read(&self.chunks).values().any(|chunk| {
            let flush = lock(&chunk.flush);
            flush.sealed && !flush.ended.is_empty()
        })
    }

    /// Writes what [`Self::write_frozen`] could not for lack of space. The active chunk and that of
    /// copies take no more entries, so they need file ranges for their entries only, not for their
    /// full size.
    fn write_sealed(&self, maintenance: &mut Maintenance) -> Result<()> {
        if !self.has_unwritten_sealed() {
            self.seal_open_chunks(maintenance)?;
        }
        self.write_or_free(maintenance)
    }

    /// Gives back what the file ranges of chunks have beyond their entries, for a manifest that the
    /// disk has no space for. The active chunk takes no more entries.
    fn trim_open_chunks(&self, maintenance: &mut Maintenance) -> Result<()> {
        self.seal_open_chunks(maintenance)?;
        self.write_frozen(maintenance)?;
        self.sync_written(maintenance)
    }

    /// Seals the active chunk and that of copies, and freezes what they have.
    fn seal_open_chunks(&self, maintenance: &mut Maintenance) -> Result<()> {
        if let Some(chunk) = self.active.load(Ordering::Acquire).checked_sub(1) {
            self.arena.seal(chunk);
        }
        if let Some(copies) = maintenance.copy_chunk.take() {
            self.arena.seal(copies.id);
        }
        self.freeze();
        self.context.host.sync_log()
    }

    /// Writes what is frozen. On a full disk gives back what it can without that, and tries again.
    /// The log must be synced.
    fn write_or_free(&self, maintenance: &mut Maintenance) -> Result<()> {
        match self.write_frozen(maintenance) {
            Err(Error::DiskFull { .. }) if self.commit_written(maintenance)? => {
                self.write_frozen(maintenance)
            }
            outcome => outcome,
        }
    }

    /// Commits the extents that are written, and drops the chunks whose live entries they have. The
    /// files are complete to the same LSN as before: what they lack is in the log, which is synced.
    ///
    /// Dead large values stay. An entry may name them until the log is replayed.
    /// Returns whether there was something to commit.
    fn commit_written(&self, maintenance: &mut Maintenance) -> Result<bool> {
        let manifest = maintenance.manifest.as_ref();
        if manifest.is_none_or(HashLogManifest::is_in_doubt) || !maintenance.relocated.is_empty() {
            return Ok(false);
        }
        self.sync_written(maintenance)?;
        let mut held = Vec::new();
        if self.has_unwritten_copies() {
            held.append(&mut maintenance.retired);
        }
        let dead_larges = mem::take(&mut maintenance.dead_larges);
        self.retire_dead(maintenance);
        let mut outcome = Ok(!maintenance.is_idle());
        if !maintenance.is_idle() {
            outcome = self.commit(maintenance, maintenance.complete).map(|()| true);
            if outcome.is_ok() {
                self.free_dropped(maintenance);
            }
        }
        maintenance.retired.append(&mut held);
        maintenance.dead_larges = dead_larges;
        let failures = maintenance.files.punch_freed();
        self.counters.cleanup_failures_total.fetch_add(failures, Ordering::Relaxed);
        outcome
    }

    /// Returns whether entries that compaction has copied are not durable in the files.
    fn has_unwritten_copies(&self) -> bool {
        read(&self.chunks).values().any(|chunk| {
            let flush = lock(&chunk.flush);
            let used = self.arena.used(chunk.id).0;
            let has_unfrozen = !flush.sealed && used > flush.start + EXTENT_HEAD_UNITS;
            let is_durable = flush.ended.is_empty() && flush.durable_count == flush.extents.len();
            chunk.order % 2 == 1 && (has_unfrozen || !is_durable)
        })
    }

    /// Commits the extents, large values and drops to the manifest. The data must be durable.
    fn commit(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        if maintenance.has_lost_value {
            return Err(self.broken("a large value was in a file that failed; reopen the database"));
        }
        let commit = Commit {
            sequence: 0,
            complete,
            next_serial: lock(&self.roll).next_serial,
            next_large: self.next_large.load(Ordering::Relaxed),
            next_file: maintenance.files.next_number(),
            collided: u64::from(self.collided.load(Ordering::Relaxed)),
        };
        if maintenance.manifest.as_ref().is_none_or(HashLogManifest::is_in_doubt) {
            self.replace_manifest(maintenance, Commit { complete: 0, ..commit })?;
        }
        let added: u64 = maintenance.pending.iter().map(|add| add.extent.manifest_bytes()).sum();
        let _memory = self.working_memory(added);
        let Maintenance { manifest: Some(manifest), .. } = maintenance else {
            return Err(self.broken("the table has no manifest"));
        };
        manifest.begin();
        for (chunk, serial) in &maintenance.relocated {
            manifest.add_drop(*chunk, *serial);
        }
        for PendingExtent { extent, hints, .. } in &maintenance.pending {
            manifest.add_extent(extent, hints);
        }
        for large in &maintenance.pending_larges {
            if let Some(file_range) = large.file_range() {
                manifest.add_large(&LargeRecord {
                    number: large.number,
                    lsn: large.lsn,
                    file: file_range.file.number,
                    offset: file_range.offset,
                    range_bytes: file_range.bytes,
                    bytes: large.length,
                });
            }
        }
        for chunk in &maintenance.retired {
            manifest.add_drop(chunk.id, chunk.serial);
        }
        for number in &maintenance.dead_larges {
            manifest.add_drop_large(*number);
        }
        manifest.commit(commit)?;
        maintenance.complete = complete;
        maintenance.manifest_needed += added;
        maintenance.pending.clear();
        maintenance.pending_larges.clear();
        maintenance.relocated.clear();
        Ok(())
    }

    /// Removes the chunks and large values that the last checkpoint dropped, and frees their file
    /// ranges.
    fn free_dropped(&self, maintenance: &mut Maintenance) {
        for file_range in mem::take(&mut maintenance.old_ranges) {
            maintenance.files.free(file_range);
        }
        for chunk in mem::take(&mut maintenance.retired) {
            write(&self.chunks).remove(&chunk.id);
            self.release_frame(chunk.id);
            let needed: u64 = lock(&chunk.flush).extents.iter().map(Extent::manifest_bytes).sum();
            maintenance.manifest_needed = maintenance.manifest_needed.saturating_sub(needed);
            for file_range in chunk.file_ranges() {
                maintenance.files.free(file_range);
            }
            lock(&self.roll).free_ids.push(chunk.id);
        }
        for number in mem::take(&mut maintenance.dead_larges) {
            if let Some(large) = self.remove_large(number)
                && let Some(file_range) = large.file_range()
            {
                maintenance.files.free(file_range);
            }
        }
    }

    /// Rewrites the manifest if much of it is obsolete.
    fn rewrite_manifest(&self, maintenance: &mut Maintenance) {
        let Some(bytes) = maintenance.manifest.as_ref().map(HashLogManifest::bytes) else { return };
        let most = MANIFEST_BYTES_MIN + maintenance.manifest_needed * 3 / 2;
        if bytes >= most.max(maintenance.manifest_rewrite_at) {
            self.rewrite_manifest_now(maintenance, bytes);
        }
    }

    /// Returns whether the manifest is too large for an idle table.
    pub(super) fn is_manifest_untidy(&self) -> bool {
        let counters = &self.counters;
        let needed = counters.manifest_needed.load(Ordering::Relaxed);
        let most = needed + needed / MANIFEST_IDLE_PART + 2 * MANIFEST_BYTES_MIN;
        counters.manifest_bytes.load(Ordering::Relaxed) > most
    }

    /// Rewrites the manifest of an idle table if it is too large.
    pub(super) fn tidy_manifest(&self, maintenance: &mut Maintenance) {
        let bytes = maintenance.manifest.as_ref().map(HashLogManifest::bytes);
        if let Some(bytes) = bytes.filter(|_| self.is_manifest_untidy()) {
            self.rewrite_manifest_now(maintenance, bytes);
            self.count_bytes(maintenance);
        }
    }

    fn rewrite_manifest_now(&self, maintenance: &mut Maintenance, bytes: u64) {
        maintenance.manifest_rewrite_at = 0;
        if self.replace_manifest(maintenance, Commit::default()).is_err() {
            // The old manifest remains valid. (If it is in doubt, the next checkpoint needs a new
            // one and reports the failure.) Retry after more growth, not with every checkpoint.
            maintenance.manifest_rewrite_at = bytes + MANIFEST_BYTES_MIN;
            self.counters.cleanup_failures_total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Replaces the manifest by a new one with the durable live content of the old one. Without an
    /// old one, the new one holds only `first`.
    fn replace_manifest(&self, maintenance: &mut Maintenance, first: Commit) -> Result<()> {
        let dir = &self.context.dir;
        let old = maintenance.manifest.as_ref();
        let contents = match old {
            Some(old) => old.reread()?,
            None => ManifestContents { commit: first, ..ManifestContents::default() },
        };
        let buffer = old.map_or(0, |old| old.bytes().min(MANIFEST_BUFFER_BYTES));
        let _memory = self.working_memory(contents.memory_bytes() + buffer);
        let number = old.map_or(1, |old| old.number() + 1);
        let from = old.map(|old| (old, &contents));
        let new = HashLogManifest::prepare(dir, self.owner, number, from, contents.commit)?;
        if let Err(error) = new.install() {
            if let Some(old) = &mut maintenance.manifest {
                old.doubt();
            }
            return Err(error);
        }
        if let Some(old) = maintenance.manifest.replace(new) {
            maintenance.replaced_written_bytes += old.written_bytes;
            old.discard();
        }
        Ok(())
    }

    /// Updates the byte counts in the statistics.
    pub(super) fn count_bytes(&self, maintenance: &Maintenance) {
        let counters = &self.counters;
        counters.data_bytes.store(maintenance.files.file_bytes(), Ordering::Relaxed);
        let manifest = maintenance.manifest.as_ref();
        counters
            .manifest_bytes
            .store(manifest.map_or(0, HashLogManifest::bytes), Ordering::Relaxed);
        counters.manifest_needed.store(maintenance.manifest_needed, Ordering::Relaxed);
        let written = maintenance.files.written_bytes
            + maintenance.replaced_written_bytes
            + manifest.map_or(0, |manifest| manifest.written_bytes);
        counters.written_bytes_total.store(written, Ordering::Relaxed);
    }

    /// Requests a checkpoint if enough extents await one.
    pub(super) fn request_checkpoint_if_due(&self, maintenance: &Maintenance) {
        if to_u64(maintenance.pending.len()) >= self.settings.mutable_chunks {
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
    }
}
