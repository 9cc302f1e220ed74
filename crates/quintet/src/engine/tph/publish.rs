//! Publication: makes a new version durable and installs it for readers.
//!
//! A publication syncs the log up to all effects that the version has. It writes an edit of the
//! manifest and syncs it. Then readers see the version, and the files that it does not list are
//! removed.
//!
//! Invariants: a failed publication leaves the current version as it was. The files that its edit
//! may list stay until a later edit is durable, because a crash may find the failed edit.

use std::{collections::BTreeSet, io, sync::Arc};

use super::{
    compaction_picker,
    manifest::{SstRecord, TphTableRecord, VersionRecord},
    mutants,
    store::{Publisher, TphStore},
    table::{TableSst, TphTable},
    version::Version,
};
use crate::{
    Result,
    lsm::{memtable::Memtable, sst::SstKind},
    util::{
        mutant::mutant,
        sync::{Mutex, Ordering, lock},
    },
};

/// SSTs that are being written or are written and not published. Removes them when it is dropped.
#[derive(Debug)]
pub(super) struct UnpublishedSsts<'a> {
    store: &'a TphStore,
    numbers: Mutex<Vec<u64>>,
}

impl<'a> UnpublishedSsts<'a> {
    pub(super) fn new(store: &'a TphStore) -> Self {
        Self { store, numbers: Mutex::default() }
    }

    /// Returns the number of a new SST.
    pub(super) fn next_number(&self) -> u64 {
        let number = self.store.next_sst.fetch_add(1, Ordering::Relaxed);
        lock(&self.numbers).push(number);
        number
    }

    /// Hands the SSTs over to the publication, which removes those that it does not need.
    fn take_numbers(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.numbers))
    }
}

impl Drop for UnpublishedSsts<'_> {
    fn drop(&mut self) {
        for number in self.take_numbers() {
            // If this fails, the next open of the table removes the file.
            let _ = self.store.owner.dir.remove(&SstKind::PIECE.name_of(number));
        }
    }
}

fn record_of(table: &Arc<TphTable>) -> TphTableRecord {
    let sst = |one: &TableSst| SstRecord {
        number: one.sst.number,
        file_bytes: one.sst.file_bytes,
        live: one.live,
        live_bytes: one.live_bytes,
    };
    TphTableRecord {
        lower_bound: table.lower_bound.clone(),
        tombstones: table.tombstones,
        ssts: table.ssts.iter().map(sst).collect(),
    }
}

/// Returns the numbers of the SSTs of a version.
fn sst_numbers(version: &Version) -> BTreeSet<u64> {
    version.tables().flat_map(|table| &table.ssts).map(|one| one.sst.number).collect()
}

impl TphStore {
    /// Publishes the version that `edit` makes of the current one. With `complete`, the files have
    /// every effect below that LSN. `flushed` are the memtables that the version contains now.
    /// Returns the LSN below which the files are complete.
    pub(super) fn publish(
        &self,
        unpublished: &UnpublishedSsts<'_>,
        complete: Option<u64>,
        flushed: &[Arc<Memtable>],
        edit: impl FnOnce(&Version) -> Version,
    ) -> Result<u64> {
        let mut publisher = lock(&self.publisher);
        let before = Arc::clone(&self.write_buffer.view.load().version);
        let version = edit(&before);
        mutant!(TphSkipsLogSync: (), else self.context.host.sync_log()?);
        let complete_before = publisher.manifest.contents.complete;
        let complete = complete.map_or(complete_before, |lsn| lsn.max(complete_before));
        let levels = std::iter::once(&version.level0).chain(&version.levels);
        let contents = VersionRecord {
            complete,
            next_sst: self.next_sst.load(Ordering::Relaxed),
            fanout: if self.has_key_ranges() { 0 } else { self.settings.fanout },
            levels: levels.map(|level| level.iter().map(record_of).collect()).collect(),
        };
        let (kept, old) = (sst_numbers(&version), sst_numbers(&before));
        let removed: Vec<String> =
            old.difference(&kept).map(|n| SstKind::PIECE.name_of(*n)).collect();
        mutant!(TphRemovesPiecesEarly => mutants::remove_files(&*self.owner.dir, &removed));
        let written: Vec<String> =
            unpublished.take_numbers().into_iter().map(|n| SstKind::PIECE.name_of(n)).collect();
        match publisher.manifest.publish(&self.owner, contents) {
            Ok(done) => {
                self.counters.written_bytes.fetch_add(done.bytes, Ordering::Relaxed);
                publisher.obsolete.extend(done.replaced);
            }
            Err(error) => {
                publisher.obsolete.extend(written);
                let failed = publisher.manifest.failed_name();
                publisher.obsolete.extend(failed);
                return Err(error);
            }
        }
        let is_unused = |name: &String| {
            SstKind::PIECE.number_of(name).is_some_and(|number| !kept.contains(&number))
        };
        publisher.obsolete.extend(written.into_iter().filter(is_unused));
        publisher.obsolete.extend(removed);
        self.install_version(version, flushed);
        self.remove_obsolete(&mut publisher);
        Ok(complete)
    }

    /// Installs a version for readers and removes the memtables that it contains.
    fn install_version(&self, mut version: Version, flushed: &[Arc<Memtable>]) {
        version.update_data_bytes();
        self.reserve_index_memory(&version);
        self.shrink_cache();
        let wants_compaction = compaction_picker::pick(&self.settings, &version).is_some();
        self.wants_compaction.store(wants_compaction, Ordering::Relaxed);
        self.write_buffer.install_version(|_| version, flushed, self);
    }

    /// Removes the obsolete files. Keeps those that cannot be removed for the next call.
    fn remove_obsolete(&self, publisher: &mut Publisher) {
        let names = std::mem::take(&mut publisher.obsolete);
        for name in names {
            match self.owner.dir.remove(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.counters.cleanup_failures.fetch_add(1, Ordering::Relaxed);
                    publisher.obsolete.push(name);
                }
                _ => {}
            }
        }
    }
}
