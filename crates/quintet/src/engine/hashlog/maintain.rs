//! Publishing: what makes files and memory agree, durably.
//!
//! persist: freeze what is in the chunks -> wait for writers that did not see it -> sync the log
//! -> write ([`flush`](super::flush)) -> sync the data -> publish in the manifest -> free what the
//! publication dropped.
//!
//! Invariants: after an error everything is as before, but for what is on the way already: a later
//! persist goes on from there. No sync that failed is tried again and believed: data goes to
//! another file, the manifest to another manifest. Once the publication is durable, what is left
//! to be cleaned up can fail without failing the persist: it is counted, and tried again.

use std::{mem, sync::Arc};

use super::{
    Chunk, HashLog, Large,
    files::{DataFiles, Owner, Place},
    manifest::{Commit, Contents, Extent, LargeRecord, Manifest},
};
use crate::{
    Error, Result,
    io::Dir,
    util::{
        budget::Reservation,
        codec::{Lsn, to_u64},
        mutant::{self, Bug},
        sync::{Ordering, lock, write},
    },
};

/// A manifest is rewritten when it is half as large again as what it says needs, and this.
const MANIFEST_BYTES_MIN: u64 = 32 << 10;

/// At a long rest it is, where it is larger than that by this part and the above twice.
const MANIFEST_REST_PART: u64 = 16;

/// What a rewrite takes beyond what the manifest says of extents: a piece of it, and the hints of
/// one extent.
const MANIFEST_BUFFER_BYTES: u64 = 2 << 20;

/// What belongs to the one thread that maintains the table.
#[derive(Debug)]
pub(super) struct Maintenance {
    pub(super) files: DataFiles,
    pub(super) manifest: Option<Manifest>,
    /// The chunk that compaction copies to.
    pub(super) cold: Option<Arc<Chunk>>,
    /// Chunks without anything live, for the next publication to drop.
    pub(super) retired: Vec<Arc<Chunk>>,
    /// Large values likewise.
    pub(super) dead_larges: Vec<u64>,
    /// Written and not yet published.
    pub(super) pending: Vec<Pending>,
    pub(super) pending_larges: Vec<Arc<Large>>,
    /// Number and serial of chunks that have left a file that failed: what the manifest says of
    /// them is dropped by the publication that names their new places.
    pub(super) moved: Vec<(u64, u64)>,
    /// Places that the manifest names until then.
    pub(super) left: Vec<Place>,
    pub(super) complete: u64,
    /// Bytes that the manifest would take, written anew.
    pub(super) manifest_needed: u64,
    /// The manifest is rewritten when it is longer than this.
    manifest_rewrite_at: u64,
    /// Bytes written to manifests that are replaced.
    replaced_written_bytes: u64,
}

/// An extent that is in its file and not in the manifest.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) extent: Extent,
    pub(super) hints: Vec<u8>,
    /// For the hints.
    pub(super) _memory: Reservation,
}

impl Maintenance {
    pub(super) fn new(dir: Arc<dyn Dir>, owner: Owner) -> Self {
        Self {
            files: DataFiles::new(dir, owner, 0),
            manifest: None,
            cold: None,
            retired: Vec::new(),
            dead_larges: Vec::new(),
            pending: Vec::new(),
            pending_larges: Vec::new(),
            moved: Vec::new(),
            left: Vec::new(),
            complete: 0,
            manifest_needed: 0,
            manifest_rewrite_at: 0,
            replaced_written_bytes: 0,
        }
    }

    /// Whether a publication would say nothing but how far the files are complete.
    fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.retired.is_empty()
            && self.dead_larges.is_empty()
            && self.pending_larges.is_empty()
    }
}

impl HashLog {
    pub(super) fn persist_to(&self, up_to: Lsn) -> Result<Lsn> {
        let mut maintenance = lock(&self.maintenance);
        let applied = self.counters.applied.load(Ordering::Relaxed);
        self.publish(&mut maintenance, up_to.0)?;
        self.counters.applied_persisted.store(applied, Ordering::Relaxed);
        Ok(Lsn(maintenance.complete))
    }

    /// Makes everything applied so far durable in the files, and says that they are complete to
    /// `complete`.
    pub(super) fn publish(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        if self.context.read_only {
            return Err(Error::ReadOnly);
        }
        self.publish_wanted.store(false, Ordering::Relaxed);
        let outcome = self.publish_frozen(maintenance, complete.max(maintenance.complete));
        if outcome.is_err() {
            // What is frozen counts as flushed: nothing else would ask again.
            self.publish_wanted.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn publish_frozen(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        // Before the freeze: what replaced these is applied, so this publication holds it.
        maintenance.dead_larges.append(&mut lock(&self.dead_larges));
        self.freeze();
        if !mutant::active(Bug::HashlogSkipsLogSync) {
            self.context.host.sync_log()?;
        }
        self.write_frozen(maintenance)?;
        if !maintenance.is_idle() || complete > maintenance.complete {
            self.sync_written(maintenance)?;
            if mutant::active(Bug::HashlogFreesBeforePublishing) {
                for place in maintenance.retired.iter().flat_map(|chunk| chunk.places()) {
                    let _ = place.file.file.punch_hole(place.offset, place.bytes);
                }
            }
            self.commit(maintenance, complete)?;
            self.free_dropped(maintenance);
            self.rewrite_manifest(maintenance);
        }
        let failures = maintenance.files.give_back();
        self.counters.cleanup_failures_total.fetch_add(failures, Ordering::Relaxed);
        self.count_bytes(maintenance);
        self.charge_index();
        Ok(())
    }

    /// Publishes what is written and durable.
    fn commit(&self, maintenance: &mut Maintenance, complete: u64) -> Result<()> {
        let commit = Commit {
            sequence: 0,
            complete,
            next_serial: lock(&self.roll).next_serial,
            next_large: self.next_large.load(Ordering::Relaxed),
            next_file: maintenance.files.next_number(),
            collided: u64::from(self.collided.load(Ordering::Relaxed)),
        };
        if maintenance.manifest.as_ref().is_none_or(Manifest::is_in_doubt) {
            self.replace_manifest(maintenance, Commit { complete: 0, ..commit })?;
        }
        let added: u64 = maintenance.pending.iter().map(|add| add.extent.manifest_bytes()).sum();
        let _memory = self.working_memory(added);
        let Maintenance { manifest: Some(manifest), .. } = maintenance else {
            return Err(self.broken("there is no manifest"));
        };
        manifest.begin();
        for (chunk, serial) in &maintenance.moved {
            manifest.add_drop(*chunk, *serial);
        }
        for Pending { extent, hints, .. } in &maintenance.pending {
            manifest.add_extent(extent, hints);
        }
        for large in &maintenance.pending_larges {
            if let Some(place) = large.place() {
                manifest.add_large(&LargeRecord {
                    number: large.number,
                    lsn: large.lsn,
                    file: place.file.number,
                    offset: place.offset,
                    place_bytes: place.bytes,
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
        maintenance.moved.clear();
        Ok(())
    }

    /// Takes out of memory what the last publication dropped, and frees its places.
    fn free_dropped(&self, maintenance: &mut Maintenance) {
        for place in mem::take(&mut maintenance.left) {
            maintenance.files.free(place);
        }
        for chunk in mem::take(&mut maintenance.retired) {
            write(&self.chunks).remove(&chunk.id);
            self.release_frame(chunk.id);
            let needed: u64 = lock(&chunk.flush).extents.iter().map(Extent::manifest_bytes).sum();
            maintenance.manifest_needed = maintenance.manifest_needed.saturating_sub(needed);
            for place in chunk.places() {
                maintenance.files.free(place);
            }
            lock(&self.roll).free_ids.push(chunk.id);
        }
        for number in mem::take(&mut maintenance.dead_larges) {
            if let Some(large) = self.remove_large(number)
                && let Some(place) = large.place()
            {
                maintenance.files.free(place);
            }
        }
    }

    /// Writes the manifest anew where most of it is of the past.
    fn rewrite_manifest(&self, maintenance: &mut Maintenance) {
        let Some(bytes) = maintenance.manifest.as_ref().map(Manifest::bytes) else { return };
        let most = MANIFEST_BYTES_MIN + maintenance.manifest_needed * 3 / 2;
        if bytes >= most.max(maintenance.manifest_rewrite_at) {
            self.rewrite_manifest_now(maintenance, bytes);
        }
    }

    /// Whether the manifest takes more than a resting table's should.
    pub(super) fn is_manifest_untidy(&self) -> bool {
        let counters = &self.counters;
        let needed = counters.manifest_needed.load(Ordering::Relaxed);
        let most = needed + needed / MANIFEST_REST_PART + 2 * MANIFEST_BYTES_MIN;
        counters.manifest_bytes.load(Ordering::Relaxed) > most
    }

    /// The last of a long rest's work.
    pub(super) fn tidy_manifest(&self, maintenance: &mut Maintenance) {
        let bytes = maintenance.manifest.as_ref().map(Manifest::bytes);
        if let Some(bytes) = bytes.filter(|_| self.is_manifest_untidy()) {
            self.rewrite_manifest_now(maintenance, bytes);
            self.count_bytes(maintenance);
        }
    }

    fn rewrite_manifest_now(&self, maintenance: &mut Maintenance, bytes: u64) {
        maintenance.manifest_rewrite_at = 0;
        if self.replace_manifest(maintenance, Commit::default()).is_err() {
            // The old one does as well (or, where it is in doubt, the next publication needs a new
            // one and says what fails). Not with every persist: when it has grown by as much again.
            maintenance.manifest_rewrite_at = bytes + MANIFEST_BYTES_MIN;
            self.counters.cleanup_failures_total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets a new manifest take the old one's place, with all that is known to be durable of it;
    /// without an old one, with nothing but `first`.
    fn replace_manifest(&self, maintenance: &mut Maintenance, first: Commit) -> Result<()> {
        let dir = &self.context.dir;
        let old = maintenance.manifest.as_ref();
        let contents = match old {
            Some(old) => old.reread()?,
            None => Contents { commit: first, ..Contents::default() },
        };
        let buffer = old.map_or(0, |old| old.bytes().min(MANIFEST_BUFFER_BYTES));
        let _memory = self.working_memory(contents.memory_bytes() + buffer);
        let number = old.map_or(1, |old| old.number() + 1);
        let from = old.map(|old| (old, &contents));
        let new = Manifest::prepare(dir, self.owner, number, from, contents.commit)?;
        if let Err(error) = new.publish() {
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

    pub(super) fn broken(&self, what: &str) -> Error {
        Error::TableFailed { table: self.context.table_id.to_string(), reason: what.to_owned() }
    }

    /// Draws memory for a buffer of maintenance or recovery. What is colder makes room for it;
    /// where nothing is, it is drawn past the limit, because the work that it is for is what gives
    /// memory back.
    pub(super) fn working_memory(&self, bytes: u64) -> Reservation {
        let budget = &self.context.budget;
        while budget.used() + bytes > budget.limit() && self.evict_one() {}
        budget.reserve_transient(bytes)
    }

    pub(super) fn count_bytes(&self, maintenance: &Maintenance) {
        let counters = &self.counters;
        counters.data_bytes.store(maintenance.files.file_bytes(), Ordering::Relaxed);
        let manifest = maintenance.manifest.as_ref();
        counters.manifest_bytes.store(manifest.map_or(0, Manifest::bytes), Ordering::Relaxed);
        counters.manifest_needed.store(maintenance.manifest_needed, Ordering::Relaxed);
        let written = maintenance.files.written_bytes
            + maintenance.replaced_written_bytes
            + manifest.map_or(0, |manifest| manifest.written_bytes);
        counters.written_bytes_total.store(written, Ordering::Relaxed);
    }

    pub(super) fn publish_soon(&self, maintenance: &Maintenance) {
        if to_u64(maintenance.pending.len()) >= self.mutable_chunks {
            self.publish_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
    }
}
