//! Publishing: what makes a new version count, durably.
//!
//! The log is synced past every effect that the version holds; an edit of the manifest is written
//! and synced; readers see the version; then the files that it does not name go.
//!
//! Invariants: a failed publication leaves the version as it was. What its edit may have named
//! stays until a later one is durable, because a crash may find either.

use std::{io, sync::Arc};

use super::{
    Inner, Version,
    manifest::{Contents, Manifest, SstRecord, TableRecord},
    options::WORK_BYTES_PER_ENTRY,
    table::Table,
};
use crate::{
    Result,
    lsm::{
        memtable::Memtable,
        sst::{Sst, SstKind},
    },
    util::{
        codec::to_u64,
        mutant::{self, Bug},
        sync::{Mutex, Ordering, lock},
    },
};

const PIECE: SstKind = SstKind::PIECE;

/// What belongs to whoever publishes.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    pub(super) manifest: Manifest,
    /// Names that nothing may need once the next edit is durable.
    pub(super) obsolete: Vec<String>,
}

/// SSTs that were written and are not published: removed unless [`Fresh::keep`] is called.
#[derive(Debug)]
pub(super) struct Fresh<'a> {
    inner: &'a Inner,
    numbers: Mutex<Vec<u64>>,
}

impl<'a> Fresh<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        Self { inner, numbers: Mutex::default() }
    }

    /// The number of an SST that is to be written.
    pub(super) fn next(&self) -> u64 {
        let number = self.inner.next_sst.fetch_add(1, Ordering::Relaxed);
        lock(&self.numbers).push(number);
        number
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.numbers))
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        for number in self.take() {
            // Should this fail, the next opening removes it.
            let _ = self.inner.owner.dir.remove(&PIECE.name_of(number));
        }
    }
}

fn record(table: &Arc<Table>) -> TableRecord {
    let sst = |one: &super::table::SstUse| SstRecord {
        number: one.sst.number,
        file_bytes: one.sst.file_bytes,
        live: one.live,
        live_bytes: one.live_bytes,
    };
    TableRecord {
        low: table.low.clone(),
        tombstones: table.tombstones,
        ssts: table.uses.iter().map(sst).collect(),
    }
}

fn numbers(version: &Version) -> std::collections::BTreeSet<u64> {
    version.tables().flat_map(|table| &table.uses).map(|one| one.sst.number).collect()
}

impl Inner {
    /// Publishes what `edit` makes of the current version. With `complete`, the files have every
    /// effect below it; `flushed` are the memtables that they have now.
    pub(super) fn publish(
        &self,
        fresh: &Fresh<'_>,
        complete: Option<u64>,
        flushed: &[Arc<Memtable>],
        edit: impl FnOnce(&Version) -> Version,
    ) -> Result<u64> {
        let mut publisher = lock(&self.publisher);
        let before = Arc::clone(&self.front.view.load().version);
        let version = edit(&before);
        if !mutant::active(Bug::TphSkipsLogSync) {
            self.context.host.sync_log()?;
        }
        let known = publisher.manifest.contents.complete;
        let complete = complete.map_or(known, |lsn| lsn.max(known));
        let levels = std::iter::once(&version.level0).chain(&version.levels);
        let contents = Contents {
            complete,
            next_sst: self.next_sst.load(Ordering::Relaxed),
            fanout: if matches!(self.route, super::Route::Key) { 0 } else { self.settings.fanout },
            levels: levels.map(|level| level.iter().map(record).collect()).collect(),
        };
        let (kept, gone) = (numbers(&version), numbers(&before));
        let gone: Vec<String> = gone.difference(&kept).map(|n| PIECE.name_of(*n)).collect();
        if mutant::active(Bug::TphRemovesPiecesEarly) {
            for name in &gone {
                let _ = self.owner.dir.remove(name);
            }
        }
        let written: Vec<String> =
            fresh.take().into_iter().map(|number| PIECE.name_of(number)).collect();
        match publisher.manifest.publish(&self.owner, contents) {
            Ok(done) => {
                self.counters.written_bytes.fetch_add(done.bytes, Ordering::Relaxed);
                publisher.obsolete.extend(done.replaced);
            }
            Err(error) => {
                publisher.obsolete.extend(written);
                let doubtful = publisher.manifest.doubtful();
                publisher.obsolete.extend(doubtful);
                return Err(error);
            }
        }
        // What was written and not used.
        let unused = written
            .into_iter()
            .filter(|name| PIECE.number_of(name).is_some_and(|number| !kept.contains(&number)));
        publisher.obsolete.extend(unused);
        publisher.obsolete.extend(gone);
        self.show(version, flushed);
        self.clean(&mut publisher);
        Ok(complete)
    }

    /// Has readers see a version, without the memtables that it holds.
    fn show(&self, mut version: Version, flushed: &[Arc<Memtable>]) {
        version.count();
        self.charge_index(&version);
        self.make_space();
        self.compaction_wanted.store(self.wants_compaction(&version), Ordering::Relaxed);
        self.front.install_version(|_| version, flushed, self);
    }

    /// Draws what the indexes of a version take, and has memtables fit into the rest.
    pub(super) fn charge_index(&self, version: &Version) {
        let memory = |table: &Arc<Table>| table.memory_bytes().iter().sum::<u64>();
        let now: u64 = version.tables().map(memory).sum();
        let charged = self.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(charged));
        self.context.budget.release(charged.saturating_sub(now));
        self.front.set_work_memory_bytes(self.context.budget.limit().saturating_sub(now));
    }

    /// Removes files that nothing needs. What cannot be removed now is tried again.
    fn clean(&self, publisher: &mut Publisher) {
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

    /// Has the cache give back what exceeds the budget.
    pub(super) fn make_space(&self) {
        let budget = &self.context.budget;
        let excess = budget.used().saturating_sub(budget.limit());
        if excess > 0 {
            self.cache.blocks.shrink(excess);
        }
    }

    /// Notes what a new SST took.
    pub(super) fn note_written(&self, sst: &Sst) {
        self.counters.written_bytes.fetch_add(sst.file_bytes, Ordering::Relaxed);
    }

    /// How far the files are complete.
    pub(super) fn complete(&self) -> u64 {
        lock(&self.publisher).manifest.contents.complete
    }

    /// Memory that work of this size takes beside the table: entries' places, and the index before
    /// it is written.
    pub(super) fn work_bytes(&self, entries: u64) -> u64 {
        // What is written lies in two buffers.
        let buffers = 2 * to_u64(self.settings.shape.write_bytes);
        entries.saturating_mul(WORK_BYTES_PER_ENTRY).saturating_add(buffers)
    }
}
