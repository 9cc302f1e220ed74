//! The version store: takes and ends snapshots, saves versions, and frees runs.

use std::{
    sync::{Arc, atomic::fence},
    time::Duration,
};

use arc_swap::ArcSwap;

use super::{
    file::VersionDirectory,
    loaded_ranges::{IN_PROGRESS, LoadedRange},
    open_snapshots::{OpenSnapshot, OpenSnapshots, SnapshotEnd, SnapshotStats},
    run::VersionRun,
    segment::{VersionSegment, version_bytes},
    spill_state::{SpillState, memory_max},
    version_key::VersionKey,
};
use crate::{
    Error, Result,
    contract::{Engine as _, KeyRange, Op},
    db::tables::{host::DatabaseHost, job_handles::JobKind, state::TableState},
    io::{Dir, Env},
    lsm::memtable::arenas::Arenas,
    util::{
        budget::Budget,
        codec::Lsn,
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, RwLock, lock, write},
    },
    wal::Log,
};

/// The word that announces snapshots: none is open.
const NONE: u64 = 0;
/// The word that announces snapshots: one is being taken, so every write saves a version. Otherwise
/// the word is the LSN of the newest snapshot plus one.
const BEING_TAKEN: u64 = u64::MAX;
/// A segment is the memory of versions divided by this, within limits.
const SEGMENT_SHARE: u64 = 16;
/// Smaller for the model checkers, which may switch threads at each word.
const SEGMENT_BYTES_MIN: u64 = if cfg!(model) { 512 } else { 16 << 10 };
const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// Number of freed segments that are kept for the next.
const FREE_SEGMENTS: u64 = 1;
/// The number that the memory of versions has in place of a table's, which start at 1.
const NO_TABLE: u64 = 0;

/// Bounds of what open snapshots may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotLimits {
    /// Maximum bytes of versions, in memory and in files.
    pub(crate) bytes: u64,
    /// Maximum age of a snapshot.
    pub(crate) age: Duration,
}

/// The version store of a database. See the module head.
#[derive(Debug)]
pub(crate) struct VersionStore {
    pub(super) env: Arc<dyn Env>,
    pub(super) log: Arc<Log>,
    pub(super) host: Arc<DatabaseHost>,
    pub(super) budget: Arc<Budget>,
    pub(crate) limits: SnapshotLimits,
    /// [`NONE`], [`BEING_TAKEN`], or the LSN of the newest open snapshot plus one. On its own cache
    /// line: every write reads it.
    newest: CachePadded<AtomicU64>,
    pub(super) open: Mutex<OpenSnapshots>,
    /// From the oldest to the newest, which is filled: first files, then segments.
    pub(super) runs: ArcSwap<Vec<VersionRun>>,
    /// Held while the list of runs changes.
    pub(super) rotation: Mutex<()>,
    /// Held by the thread that compacts or spills.
    pub(super) compaction: Mutex<()>,
    /// Bytes of memory of versions that the last compaction left.
    pub(super) compacted_bytes: AtomicU64,
    pub(super) files: VersionDirectory,
    pub(super) spill: SpillState,
    pub(super) arenas: Arc<Arenas>,
    pub(super) loads: RwLock<Vec<LoadedRange>>,
    /// Whether `loads` is not empty.
    pub(super) has_loads: AtomicBool,
}

impl VersionStore {
    /// Creates the store of a database that has no snapshots.
    pub(crate) fn new(
        (env, dir): (&Arc<dyn Env>, &Arc<dyn Dir>),
        log: &Arc<Log>,
        host: &Arc<DatabaseHost>,
        budget: &Arc<Budget>,
        limits: SnapshotLimits,
    ) -> Arc<Self> {
        let bytes = memory_max(budget.limit(), limits.bytes) / SEGMENT_SHARE;
        let bytes = bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let mut secret = [0; 8];
        env.random(&mut secret);
        let bytes = if cfg!(model) { SEGMENT_BYTES_MIN } else { bytes };
        Arc::new(Self {
            env: Arc::clone(env),
            log: Arc::clone(log),
            host: Arc::clone(host),
            budget: Arc::clone(budget),
            limits,
            newest: CachePadded(AtomicU64::new(NONE)),
            open: Mutex::default(),
            runs: ArcSwap::default(),
            rotation: Mutex::new(()),
            compaction: Mutex::new(()),
            compacted_bytes: AtomicU64::new(0),
            files: VersionDirectory::new(dir, budget, u64::from_le_bytes(secret)),
            spill: SpillState::default(),
            arenas: Arenas::new((bytes, FREE_SEGMENTS), budget, NO_TABLE),
            loads: RwLock::default(),
            has_loads: AtomicBool::new(false),
        })
    }

    /// Adds a snapshot of the commits so far to the open ones. Returns it with its number.
    pub(super) fn open_snapshot(&self) -> (u64, OpenSnapshot) {
        let mut open = lock(&self.open);
        let too_old = self.end_old(&mut open);
        mutant!(SnapshotNotAnnounced: (), else self.newest.store(BEING_TAKEN, Ordering::SeqCst));
        if open.is_empty() {
            // No value expires for compactions until the time is known.
            self.host.expire_only_before(Some(0));
        }
        // A writer that has not seen the word reserved its LSN before it is read here.
        fence(Ordering::SeqCst);
        let lsn = self.log.end();
        let time = self.host.clock.now();
        let number = open.next_number();
        let end = Arc::new(SnapshotEnd::default());
        let taken = OpenSnapshot { lsn, time, taken_at: self.env.monotonic(), end };
        open.insert(number, taken.clone());
        self.announce(&open);
        drop(open);
        drop(too_old);
        (number, taken)
    }

    /// Publishes the newest snapshot for writers, and the time of the oldest for compactions.
    fn announce(&self, open: &OpenSnapshots) {
        let newest = open.newest().map_or(NONE, |newest| newest.lsn.0 + 1);
        self.newest.store(newest, Ordering::SeqCst);
        let oldest = open.oldest().map(|(_, oldest)| oldest.time);
        self.host.expire_only_before(oldest);
    }

    /// Ends the snapshot with this number, unless it has ended.
    pub(super) fn release(&self, number: u64) {
        let mut open = lock(&self.open);
        let is_oldest = open.oldest().is_some_and(|(oldest, _)| oldest == number);
        if !open.remove(number) {
            return;
        }
        self.announce(&open);
        let unneeded = is_oldest.then(|| self.take_unneeded(&mut open));
        drop(open);
        // Without the lock: freeing memory takes time.
        drop(unneeded);
    }

    /// Waits until every commit below `lsn` is applied.
    pub(super) fn await_applied(&self, lsn: Lsn) {
        mutant!(SnapshotDoesNotSettle => return);
        let mut rounds = 0;
        while self.log.applied() < lsn {
            if rounds < 64 {
                crate::util::sync::yield_now();
            } else {
                self.env.pause(Duration::from_micros(50));
            }
            rounds += 1;
        }
    }

    /// Returns the next number, for a drop or a sorted load: snapshots with a lower number precede
    /// it.
    pub(crate) fn next_number(&self) -> u64 {
        lock(&self.open).next_number()
    }

    /// Calls `mark` with the next number. No snapshot is taken meanwhile.
    pub(crate) fn number_for(&self, mark: &mut dyn FnMut(u64)) {
        let mut open = lock(&self.open);
        mark(open.next_number());
    }

    /// Returns whether an open snapshot may read a table that was created and dropped at these
    /// numbers.
    pub(crate) fn keeps_dropped(&self, (created_at, dropped_at): (u64, u64)) -> bool {
        let mut open = lock(&self.open);
        let keeps = open.is_any_between(created_at, dropped_at);
        open.keeps_dropped |= keeps;
        keeps
    }

    /// Saves what the operation at `lsn` is about to replace, if a snapshot needs it. The caller
    /// holds the stripes of its keys, and applies the operation afterwards. `hash` is that of its
    /// key; of a range, any.
    #[inline]
    pub(crate) fn save(&self, table: &TableState, lsn: Lsn, op: &Op<'_>, hash: u64) {
        let newest = self.newest.load(Ordering::SeqCst);
        if newest != NONE {
            self.save_for(newest, (table, hash), lsn, op);
        }
    }

    #[cold]
    fn save_for(&self, newest: u64, (table, hash): (&TableState, u64), lsn: Lsn, op: &Op<'_>) {
        let saved = match op {
            Op::Put { key, .. } | Op::Delete { key } => {
                let value = |key: &[u8]| table.engine.get(key);
                self.save_key(newest, (table, key, hash), lsn, value)
            }
            Op::DeleteRange { start, end } => self.save_range(newest, table, lsn, (start, end)),
        };
        if let Err(error) = saved {
            self.end_all(&format!("an earlier value could not be kept: {error}"));
        }
    }

    fn save_range(
        &self,
        newest: u64,
        table: &TableState,
        lsn: Lsn,
        (start, end): (&[u8], &[u8]),
    ) -> Result<()> {
        mutant!(SnapshotForgetsRanges => return Ok(()));
        let bound = |key: &[u8]| (!key.is_empty()).then(|| key.to_vec());
        let range = KeyRange { start: bound(start), end: bound(end) };
        let Some(ordered) = table.engine.ordered() else { return Ok(()) };
        for entry in ordered.range(range)? {
            let entry = entry?;
            let key = (table, &*entry.key, table.hash.hash(&entry.key));
            self.save_key(newest, key, lsn, |_| Ok(Some(entry.value.clone())))?;
        }
        Ok(())
    }

    /// Saves the version of a key that the write at `lsn` replaces, unless it has one for the
    /// newest snapshot.
    fn save_key(
        &self,
        newest: u64,
        (table, key, hash): (&TableState, &[u8], u64),
        lsn: Lsn,
        value: impl FnOnce(&[u8]) -> Result<Option<crate::contract::Value>>,
    ) -> Result<()> {
        let version = VersionKey::new(table, key, hash);
        if newest != BEING_TAKEN && self.has_since(&version, Lsn(newest - 1))? {
            return Ok(());
        }
        let value = value(key)?;
        mutant!(SnapshotForgetsAbsentKeys => if value.is_none() { return Ok(()) });
        self.insert(&version, lsn, value.as_deref())?;
        table.note_version(lsn);
        Ok(())
    }

    /// Returns whether a key has a version that was replaced at `lsn` or later.
    pub(super) fn has_since(&self, key: &VersionKey, lsn: Lsn) -> Result<bool> {
        for run in self.runs.load().iter().rev().filter(|run| run.reaches(lsn)) {
            if run.has_since(key, lsn)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn insert(&self, key: &VersionKey, lsn: Lsn, value: Option<&[u8]>) -> Result<()> {
        let bytes = version_bytes(key, value);
        self.reserve(bytes);
        loop {
            let runs = self.runs.load();
            let last = runs.last().and_then(VersionRun::segment);
            if last.is_some_and(|segment| segment.insert(key, lsn, value)) {
                return Ok(());
            }
            let full = last.cloned();
            drop(runs);
            if let Err(error) = self.rotate(full.as_ref()) {
                self.budget.release(bytes);
                return Err(error);
            }
        }
    }

    /// Reserves memory for a version. The write is logged, so it cannot wait for a checkpoint that
    /// would release memory of tables. The budget is exceeded instead, by at most the memory of
    /// versions, until they have. An iterator must not fail because tables fill the budget.
    fn reserve(&self, bytes: u64) {
        if self.budget.reserve(bytes).is_err() {
            self.host.jobs.wake(JobKind::Persist);
            self.budget.reserve_unchecked(bytes);
        }
    }

    /// Adds a segment behind `full`, unless another thread has, and keeps to the limits.
    fn rotate(&self, full: Option<&Arc<VersionSegment>>) -> Result<()> {
        {
            let _rotation = lock(&self.rotation);
            let mut runs = (**self.runs.load()).clone();
            let is_last = match (runs.last().and_then(VersionRun::segment), full) {
                (Some(last), Some(full)) => Arc::ptr_eq(last, full),
                (None, None) => true,
                // It was freed: no snapshot needs what it has.
                _ => false,
            };
            if !is_last {
                return Ok(());
            }
            let next = VersionSegment::new(&self.arenas, &self.budget);
            let next = next.map_err(|error| Error::io("reserve memory for versions", error))?;
            runs.push(VersionRun::Memory(Arc::new(next)));
            self.runs.store(Arc::new(runs));
            if let Some(full) = full {
                full.seal(self.log.end());
            }
        }
        let mut open = lock(&self.open);
        let old = self.end_old(&mut open);
        let unneeded = self.take_unneeded(&mut open);
        drop(open);
        drop((old, unneeded));
        self.make_room()
    }

    /// Returns the bytes of memory of all versions.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.runs.load().iter().map(VersionRun::memory_bytes).sum()
    }

    /// Removes the runs that no open snapshot needs from the list.
    fn take_unneeded(&self, open: &mut OpenSnapshots) -> Vec<VersionRun> {
        if open.keeps_dropped {
            open.keeps_dropped = false;
            self.host.jobs.wake(JobKind::Persist);
        }
        self.forget_loads(open);
        if self.runs.load().is_empty() {
            return Vec::new();
        }
        let _rotation = lock(&self.rotation);
        let runs = self.runs.load_full();
        let Some(last) = runs.last() else { return Vec::new() };
        let oldest = open.oldest().map(|(_, oldest)| oldest.lsn);
        let applied = self.log.applied();
        let is_needed = |run: &&VersionRun| {
            let is_last = run.is_same(last);
            let Some(lsn) = oldest else {
                // The versions of a write that is in progress are for snapshots that have ended.
                return is_last && run.segment().is_some_and(|segment| !segment.is_half_full());
            };
            mutant!(SnapshotFreesTooEarly => return is_last);
            // A writer that began before the segment was sealed may still add to it.
            is_last || run.reaches(lsn) || !run.is_complete(applied)
        };
        if runs.iter().all(|run| is_needed(&run)) {
            return Vec::new();
        }
        let (kept, unneeded) = runs.iter().cloned().partition(|run| is_needed(&run));
        self.runs.store(Arc::new(kept));
        unneeded
    }

    /// Ends snapshots that are older than the limit.
    fn end_old(&self, open: &mut OpenSnapshots) -> Vec<VersionRun> {
        let Some((_, oldest)) = open.oldest() else { return Vec::new() };
        let now = self.env.monotonic();
        if now.saturating_sub(oldest.taken_at) <= self.limits.age {
            return Vec::new();
        }
        let reason =
            format!("it was open for longer than snapshot_max_age ({:?})", self.limits.age);
        while let Some((number, oldest)) = open.oldest()
            && now.saturating_sub(oldest.taken_at) > self.limits.age
        {
            oldest.end.set(&reason);
            open.remove(number);
            open.expired_total += 1;
        }
        self.announce(open);
        self.take_unneeded(open)
    }

    /// Ends the oldest snapshot. Returns `false` if none is open.
    pub(super) fn end_oldest(&self, reason: &str) -> bool {
        let mut open = lock(&self.open);
        let Some((number, oldest)) = open.oldest() else { return false };
        mutant!(SnapshotEndsSilently: (), else oldest.end.set(reason));
        open.remove(number);
        open.expired_total += 1;
        self.announce(&open);
        let unneeded = self.take_unneeded(&mut open);
        drop(open);
        drop(unneeded);
        true
    }

    /// Ends every snapshot.
    #[cold]
    fn end_all(&self, reason: &str) {
        while self.end_oldest(reason) {}
    }

    /// Ends every snapshot, and removes the files. The database takes no more writes.
    pub(crate) fn close(&self) {
        self.end_all("the database was closed");
        // The job has stopped. A reader may still have a file open: it removes it.
        self.runs.store(Arc::default());
        self.files.remove();
    }

    /// Begins a sorted load of keys above `after`. The table takes no other writes.
    pub(crate) fn begin_load(&self, table: &TableState, after: &[u8]) {
        let (lsn, number) = (self.log.end(), IN_PROGRESS);
        let load = LoadedRange { table: table.id, after: after.to_vec(), lsn, number };
        write(&self.loads).push(load);
        self.has_loads.store(true, Ordering::Release);
    }

    /// Ends a sorted load. If it was adopted, snapshots from now on see its keys.
    pub(crate) fn end_load(&self, table: &TableState, is_adopted: bool) {
        let mut open = lock(&self.open);
        let number = open.next_number();
        {
            let mut loads = write(&self.loads);
            let of_table =
                |load: &LoadedRange| load.table == table.id && load.number == IN_PROGRESS;
            if is_adopted {
                loads
                    .iter_mut()
                    .filter(|load| of_table(load))
                    .for_each(|load| load.number = number);
            } else {
                loads.retain(|load| !of_table(load));
            }
        }
        self.forget_loads(&open);
    }

    /// Forgets the loads that all open snapshots see.
    fn forget_loads(&self, open: &OpenSnapshots) {
        if self.has_loads.load(Ordering::Acquire) {
            let oldest = open.oldest().map_or(IN_PROGRESS - 1, |(oldest, _)| oldest);
            let mut loads = write(&self.loads);
            loads.retain(|load| load.number > oldest);
            self.has_loads.store(!loads.is_empty(), Ordering::Release);
        }
    }

    /// Returns what the statistics show.
    pub(crate) fn stats(&self) -> SnapshotStats {
        let file_bytes = self.runs.load().iter().map(VersionRun::file_bytes).sum();
        let bytes = (self.memory_bytes(), file_bytes);
        lock(&self.open).stats(self.env.monotonic(), bytes)
    }
}
