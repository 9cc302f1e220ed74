//! The shared write-ahead log.
//!
//! What: one logical log for all tables. A commit is one record; its LSN is its byte offset;
//! writers reserve space by one atomic add and copy their records in parallel into a shared
//! mapping of a preallocated segment.
//! Why: the log alone makes a batch over several tables atomic and rebuilds any of them; a record
//! in the mapping survives the death of the process without a system call.
//!
//! Invariants:
//! - An acknowledged synced commit is durable together with everything before it: a sync waits for
//!   the copies below its end ([`inflight`]).
//! - A segment is durable under its name, with all its space, before its first record.
//! - After a failed sync nothing is appended or acknowledged; nobody retries.
//! - A segment goes only when no table needs it ([`Log::prune`]).
//! - A log that rests ([`Log::rest`]) goes on in a small segment behind a filler, as if a record
//!   had not fitted.
//!
//! Thread rules: any thread. No lock is held while a record is copied. Locks, in order:
//! `rotation`, `sealed`; group commit's state is never held with either.
//!
//! Files: `log/<number>.log`, layout in [`segment`] and [`record`]; rules of recovery in
//! [`recovery`]. Design: DESIGN.md 3; Aether (VLDB 10) for the parallel copy, PERFORMANCE.md 5.6
//! for group commit.

mod group;
mod inflight;
#[cfg(test)]
#[cfg(any(loom, shuttle))]
mod models;
mod reader;
mod record;
mod recovery;
mod segment;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

use std::{mem, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
pub use reader::{Found, SegmentReader};
pub use record::Kind;
pub use segment::Head as SegmentHead;

use self::{
    group::Group,
    inflight::{Claim, Inflight},
    record::total_bytes,
    recovery::Sealed,
    segment::Segment,
};
use crate::{
    Error, Result,
    io::{BLOCK_BYTES, Dir, Env},
    util::{
        codec::{Lsn, low_u64, round_up, to_u64},
        mutant::{self, Bug},
        report::Report,
        sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, lock, yield_now},
    },
};

/// Bytes that a record's body may have: a batch of 1 GiB with its keys.
pub const BODY_BYTES_MAX: u64 = (1 << 30) + (1 << 28);
/// The smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Pruned segments kept to be made again: they have their blocks, and often their cached pages.
const RECYCLED_MAX: usize = 2;
/// A log that nobody appends to goes on in a segment of this part of the usual size, where that
/// frees at least so many times what it takes.
const REST_PART: u64 = 32;
const REST_GAIN_MIN: u64 = 8;
/// How far ahead of the tail the pages of the mapping are made writable: one system call for many
/// faults. What is prepared counts as written, so it is little while the log grows slowly, and
/// more while it grows fast.
const AHEAD_BYTES_MIN: u64 = 256 << 10;
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// What is prepared lasts so long, by how fast the log has grown; half of it is left when more is
/// wanted. The system was seen to take 0.36 s for it, while other files were being synced.
const AHEAD_TIME: Duration = Duration::from_millis(800);

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a segment file in bytes, rounded up to whole blocks. A record that does not fit
    /// gets a segment of its own.
    pub segment_bytes: u64,
    /// Nothing is written: recovery replays and mends nothing, and `begin` refuses.
    pub read_only: bool,
}

/// What the catalog knows of the log when the database is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchor {
    /// Identity of the database.
    pub database_id: [u8; 16],
    /// No table needs a record below this; segments from here on must exist.
    pub start: Lsn,
    /// The log was durable below this: an invalid record below it is damage, not a torn tail.
    pub durable: Lsn,
    /// The database is being created: segments found are left-overs.
    pub created: bool,
    /// The catalog's newest edit, as [`Log::note_catalog`] counts: a log that was told of a later
    /// one is younger than the catalog.
    pub catalog: u64,
}

/// Figures of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// First LSN kept.
    pub start: Lsn,
    /// Past the last record.
    pub end: Lsn,
    /// Everything below is durable.
    pub durable: Lsn,
    /// Bytes in log files, the prepared and the recycled ones included.
    pub file_bytes: u64,
    /// Completed syncs since open.
    pub syncs_total: u64,
    /// Commits that asked to be synced since open.
    pub synced_commits_total: u64,
    /// Bytes appended since open.
    pub appended_bytes_total: u64,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record.
    pub lsn: Lsn,
    /// Past it.
    pub end: Lsn,
}

/// What rotation guards.
#[derive(Debug, Default)]
struct Rotation {
    spare: Option<Segment>,
    /// When pages were prepared last.
    prepared_at: Duration,
    /// Where the log ended then.
    prepared_end: Lsn,
    /// Names of pruned files, ready to become segments again.
    recycled: Vec<u64>,
}

/// The log.
#[derive(Debug)]
pub struct Log {
    env: Arc<dyn Env>,
    dir: Arc<dyn Dir>,
    database_id: [u8; 16],
    segment_bytes: u64,
    /// Where records go; `None` only for a read-only log.
    current: Option<ArcSwap<Segment>>,
    /// The end that a read-only log found.
    read_end: Lsn,
    inflight: Inflight,
    group: Group,
    rotation: Mutex<Rotation>,
    /// Full segments, oldest first.
    sealed: Mutex<Vec<Sealed>>,
    failure: OnceLock<String>,
    /// Whether `rotation` has a spare: for looks without the lock.
    has_spare: AtomicBool,
    /// The last attempt to prepare a segment met a full disk.
    starved: AtomicBool,
    /// How far ahead pages are prepared now.
    ahead: AtomicU64,
    started_at: Lsn,
    syncs: AtomicU64,
    synced_commits: AtomicU64,
    /// The catalog's newest durable edit.
    catalog: AtomicU64,
}

impl Log {
    /// Recovers the log in `dir` and calls `replay` for every record from `anchor.start` on, in
    /// order. An error from `replay` ends it. See [`recovery`] for what is refused.
    pub fn open(
        env: &Arc<dyn Env>,
        dir: &Arc<dyn Dir>,
        options: &LogOptions,
        anchor: &Anchor,
        replay: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        let recovered = recovery::recover(&**env, &**dir, options, anchor, replay)?;
        let segment_bytes = round_up(options.segment_bytes.max(SEGMENT_BYTES_MIN), BLOCK_BYTES);
        let mut log = Self {
            env: Arc::clone(env),
            dir: Arc::clone(dir),
            database_id: anchor.database_id,
            segment_bytes,
            current: None,
            read_end: recovered.end,
            inflight: Inflight::new(),
            group: Group::new(recovered.durable.min(recovered.end)),
            has_spare: AtomicBool::new(false),
            rotation: Mutex::new(Rotation::default()),
            sealed: Mutex::new(recovered.sealed),
            failure: OnceLock::new(),
            starved: AtomicBool::new(false),
            ahead: AtomicU64::new(AHEAD_BYTES_MIN),
            started_at: recovered.end,
            syncs: AtomicU64::new(0),
            synced_commits: AtomicU64::new(0),
            catalog: AtomicU64::new(anchor.catalog),
        };
        if !options.read_only {
            let current = match recovered.current {
                Some(segment) => segment,
                None => log.make_segment(recovered.next, segment_bytes, None)?,
            };
            current.mark_in_use(!mutant::active(Bug::LogNotesCloseEarly));
            log.started_at = current.reserved_end();
            log.current = Some(ArcSwap::from_pointee(current));
        }
        Ok(log)
    }

    fn make_segment(
        &self,
        (number, base): (u64, Lsn),
        capacity: u64,
        recycled: Option<u64>,
    ) -> Result<Segment> {
        let head = SegmentHead {
            database_id: self.database_id,
            number,
            base,
            capacity,
            boot_id: self.env.boot_id(),
            nonce: segment::nonce(&*self.env),
            in_use: false,
            reach: capacity,
            failed: false,
            catalog: 0,
        };
        Segment::create(&*self.dir, head, recycled.map(segment::file_name).as_deref())
    }

    fn current(&self) -> Result<&ArcSwap<Segment>> {
        self.current.as_ref().ok_or(Error::ReadOnly)
    }

    /// Refuses early what could not be logged: a body over [`BODY_BYTES_MAX`], a failed log, a
    /// full disk. `may_use_reserve` lets writes that free space into the room kept back for
    /// them.
    pub fn admit(&self, body_bytes: u64, may_use_reserve: bool) -> Result<()> {
        self.check_failure()?;
        if body_bytes > BODY_BYTES_MAX {
            return Err(Error::Limit {
                what: format!("the batch has {body_bytes} bytes; the limit is {BODY_BYTES_MAX}"),
            });
        }
        if !may_use_reserve && self.is_in_reserve()? {
            self.prepare()?;
        }
        Ok(())
    }

    /// Whether the room left is kept for writes that free space: the last attempt to prepare a
    /// segment met a full disk, or the current segment is three quarters full and has no
    /// successor.
    fn is_in_reserve(&self) -> Result<bool> {
        let segment = self.current()?.load();
        let low = segment.used() > segment.head.capacity / 4 * 3
            && !self.has_spare.load(Ordering::Relaxed);
        Ok(low || self.starved.load(Ordering::Relaxed))
    }

    /// Claims an in-flight place. Lock the stripes first, then append, apply, and drop the ticket
    /// before unlocking.
    pub fn begin(&self) -> Result<Ticket<'_>> {
        self.check_failure()?;
        let segment = self.current()?.load();
        let claim = self.inflight.claim(segment.reserved_end());
        Ok(Ticket { log: self, segment, claim, whole: true })
    }

    fn append(
        &self,
        segment: &mut arc_swap::Guard<Arc<Segment>>,
        pieces: &[&[u8]],
    ) -> Result<Appended> {
        let body_bytes = total_bytes(pieces);
        let size = record::size_of(body_bytes);
        let body = record::Body::of(pieces);
        let body_crc = body.crc();
        let narrow = u32::try_from(body_bytes).map_err(|_| Error::Limit {
            what: format!("a record of {body_bytes} bytes; the limit is {BODY_BYTES_MAX}"),
        })?;
        loop {
            let offset = segment.reserve(size);
            if offset + size > segment.head.capacity {
                self.fill_rest(segment, offset);
                self.rotate(segment.head.number, size)?;
                *segment = self.current()?.load();
                continue;
            }
            let lsn = Lsn(segment.head.base.0 + offset);
            let head = record::Head {
                kind: Kind::Commit,
                body_bytes: narrow,
                lsn,
                durable: if mutant::active(Bug::LogClaimsTooMuchDurable) {
                    lsn
                } else {
                    self.durable()
                },
                body_crc,
            };
            if segment.prepared_ahead() == 0 {
                segment.prepare_pages(round_up(offset + size, AHEAD_BYTES_MIN));
            }
            let words = record::words_at(segment.mapping.words(), offset, size);
            record::store(words, head.encode(segment.salt), body);
            return Ok(Appended { lsn, end: Lsn(lsn.0 + size) });
        }
    }

    /// Covers the rest of a segment with a filler. Only the one reservation that begins inside the
    /// capacity and ends outside has something to cover.
    fn fill_rest(&self, segment: &Segment, offset: u64) {
        let capacity = segment.head.capacity;
        if offset + record::RECORD_BYTES_MIN > capacity
            || mutant::active(Bug::LogLeavesSegmentEndOpen)
        {
            return;
        }
        let size = capacity - offset;
        let lsn = Lsn(segment.head.base.0 + offset);
        let head = record::Head::filler(lsn, size, self.durable());
        let words = record::words_at(segment.mapping.words(), offset, record::RECORD_BYTES_MIN);
        record::store(words, head.encode(segment.salt), record::Body::Long(&[]));
    }

    /// Goes on in the next segment, unless somebody has done so since `number` was found full.
    fn rotate(&self, number: u64, size: u64) -> Result<()> {
        self.check_failure()?;
        let current = self.current()?;
        let mut rotation = lock(&self.rotation);
        let full = current.load_full();
        if full.head.number != number {
            return Ok(());
        }
        let fits = |spare: &Segment| segment::HEAD_BYTES + size <= spare.head.capacity;
        if rotation.spare.as_ref().is_none_or(|spare| !fits(spare)) {
            if let Some(small) = rotation.spare.take() {
                self.has_spare.store(false, Ordering::Relaxed);
                let name = segment::file_name(small.head.number);
                drop(small);
                self.dir
                    .remove(&name)
                    .map_err(|error| Error::io(format!("remove log/{name}"), error))?;
            }
            let made = self.make_spare(&mut rotation, &full, segment::HEAD_BYTES + size);
            if made.is_err() {
                // The record is too large for the disk; smaller ones may not be.
                let _ = self.make_spare(&mut rotation, &full, 0);
            }
            made?;
        }
        if let Some(next) = rotation.spare.take() {
            self.has_spare.store(false, Ordering::Relaxed);
            next.mark_in_use(true);
            next.note_catalog(self.catalog.load(Ordering::Relaxed));
            let sealed = Sealed { head: full.head, file: Arc::clone(&full.file) };
            lock(&self.sealed).push(sealed);
            current.store(Arc::new(next));
        }
        Ok(())
    }

    /// Makes the segment after `full`, for records of at least `needed` bytes with the segment's
    /// head.
    fn make_spare(&self, rotation: &mut Rotation, full: &Segment, needed: u64) -> Result<()> {
        let next = (full.head.number + 1, full.head.end());
        let capacity = self.segment_bytes.max(round_up(needed, BLOCK_BYTES));
        let recycled = (capacity == self.segment_bytes).then(|| rotation.recycled.pop()).flatten();
        let made = self.make_segment(next, capacity, recycled);
        self.starved.store(matches!(made, Err(Error::DiskFull { .. })), Ordering::Relaxed);
        rotation.spare = Some(made?);
        self.has_spare.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Prepares what writers will need next: pages of the current segment, the next segment. A job
    /// calls it. After a full disk it tries again.
    pub fn prepare(&self) -> Result<()> {
        self.check_failure()?;
        let ahead = self.note_preparation();
        let current = self.current()?.load_full();
        current.prepare_pages(current.used() + ahead);
        let mut rotation = lock(&self.rotation);
        let current = self.current()?.load_full();
        if self.wants_spare(&current) {
            self.make_spare(&mut rotation, &current, 0)?;
        }
        Ok(())
    }

    /// How far ahead to prepare pages now, by what was used since the last time.
    fn note_preparation(&self) -> u64 {
        let now = self.env.monotonic();
        let mut rotation = lock(&self.rotation);
        let (since, end) = (now.saturating_sub(rotation.prepared_at), self.end());
        let used = end.0.saturating_sub(rotation.prepared_end.0);
        let wanted = u128::from(used) * AHEAD_TIME.as_micros() / since.as_micros().max(1);
        let ahead = low_u64(wanted.min(u128::from(AHEAD_BYTES_MAX))).max(AHEAD_BYTES_MIN);
        (rotation.prepared_at, rotation.prepared_end) = (now, end);
        self.ahead.store(ahead, Ordering::Relaxed);
        ahead
    }

    /// Whether [`Self::prepare`] has something to do. Cheap: a few loads.
    pub fn wants_preparation(&self) -> bool {
        let Some(current) = &self.current else { return false };
        let segment = current.load();
        let low = segment.prepared_ahead() < self.ahead.load(Ordering::Relaxed) / 2;
        let full = segment.prepared_ahead() + segment.used() >= segment.head.capacity;
        (low && !full) || self.wants_spare(&segment)
    }

    /// The segment is half full and has no successor, or the last attempt to make one met a full
    /// disk.
    fn wants_spare(&self, current: &Segment) -> bool {
        let half_full = current.used() > current.head.capacity / 2;
        (half_full || self.starved.load(Ordering::Relaxed))
            && !self.has_spare.load(Ordering::Relaxed)
    }

    /// Returns when everything below `end` is durable.
    pub fn wait_durable(&self, end: Lsn) -> Result<()> {
        self.synced_commits.fetch_add(1, Ordering::Relaxed);
        if mutant::active(Bug::LogAcknowledgesBeforeSync) {
            return Ok(());
        }
        self.group.wait(end, self)
    }

    /// Makes everything appended before the call durable; returns the durable end.
    pub fn sync(&self) -> Result<Lsn> {
        self.group.wait(self.end(), self)?;
        Ok(self.durable())
    }

    /// Past the last reservation.
    pub fn end(&self) -> Lsn {
        self.current.as_ref().map_or(self.read_end, |current| current.load().reserved_end())
    }

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        self.group.durable()
    }

    /// Everything below is applied: its tickets are dropped.
    pub fn applied(&self) -> Lsn {
        let end = self.end();
        self.inflight.applied_to(end)
    }

    /// First LSN that is still in a file.
    pub fn start(&self) -> Lsn {
        let first = lock(&self.sealed).first().map(|sealed| sealed.head.base);
        first
            .or_else(|| self.current.as_ref().map(|current| current.load().head.base))
            .unwrap_or(self.read_end)
    }

    /// Lets go of the segments that lie wholly below `below`. The catalog must already say,
    /// durably, that its `start` is `below` or later.
    pub fn prune(&self, below: Lsn) -> Result<()> {
        let durable = self.durable();
        let mut rotation = lock(&self.rotation);
        let gone: Vec<Sealed> = {
            let mut sealed = lock(&self.sealed);
            let goes = |sealed: &Sealed| sealed.head.end() <= below && sealed.head.end() <= durable;
            let more = usize::from(mutant::active(Bug::LogPrunesTooMuch));
            let count = (sealed.partition_point(goes) + more).min(sealed.len());
            sealed.drain(..count).collect()
        };
        for sealed in gone {
            let number = sealed.head.number;
            if sealed.head.capacity == self.segment_bytes && rotation.recycled.len() < RECYCLED_MAX
            {
                rotation.recycled.push(number);
            } else {
                let name = segment::file_name(number);
                self.dir
                    .remove(&name)
                    .map_err(|error| Error::io(format!("remove log/{name}"), error))?;
            }
        }
        Ok(())
    }

    /// For when nobody writes: goes on in a small segment, so that the full-size one that is begun
    /// can be pruned. Says whether it did; then the log's end has moved, past everything that is
    /// appended.
    pub fn rest(&self) -> Result<bool> {
        self.release_spares()?;
        let small = (self.segment_bytes / REST_PART).max(SEGMENT_BYTES_MIN);
        let small = round_up(small, BLOCK_BYTES);
        let full = self.current()?.load_full();
        if full.head.capacity < small * REST_GAIN_MIN {
            return Ok(false);
        }
        {
            let mut rotation = lock(&self.rotation);
            let is_last = self.current()?.load().head.number == full.head.number;
            if !is_last || rotation.spare.is_some() {
                // Somebody writes after all.
                return Ok(false);
            }
            let next = (full.head.number + 1, full.head.end());
            // Where there is no room for it, the log goes on as it is.
            let Ok(made) = self.make_segment(next, small, None) else { return Ok(false) };
            rotation.spare = Some(made);
            self.has_spare.store(true, Ordering::Relaxed);
        }
        self.begin()?.leave_segment()?;
        Ok(true)
    }

    /// Gives back the disk space that is kept for the next segments: for when nobody writes. The
    /// next writers have it made anew.
    pub fn release_spares(&self) -> Result<()> {
        let mut rotation = lock(&self.rotation);
        let spare = rotation.spare.take().map(|spare| spare.head.number);
        self.has_spare.store(false, Ordering::Relaxed);
        for number in spare.into_iter().chain(mem::take(&mut rotation.recycled)) {
            let name = segment::file_name(number);
            self.dir
                .remove(&name)
                .map_err(|error| Error::io(format!("remove log/{name}"), error))?;
        }
        Ok(())
    }

    /// Ends a clean close: everything is durable and nobody appends. The next open need not look
    /// for holes.
    pub fn close(&self) -> Result<Lsn> {
        let durable = self.sync()?;
        if let Some(current) = &self.current {
            current.load().mark_in_use(false);
        }
        Ok(durable)
    }

    /// Notes the number of the catalog's newest edit, which is durable: an older copy of the
    /// catalog is not taken for the right one. The note becomes durable with a later sync.
    pub fn note_catalog(&self, number: u64) {
        let before = self.catalog.fetch_max(number, Ordering::Relaxed);
        if let Some(current) = self.current.as_ref().filter(|_| before < number) {
            current.load().note_catalog(number);
        }
    }

    /// The first failure, if the log has failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn check_failure(&self) -> Result<()> {
        match self.failure.get().filter(|_| !mutant::active(Bug::LogWritesAfterFailedSync)) {
            None => Ok(()),
            Some(reason) => Err(Error::LogFailed { reason: reason.clone() }),
        }
    }

    fn fail(&self, reason: String) {
        if self.failure.set(reason).is_ok()
            && let Some(current) = &self.current
        {
            current.load().mark_failed();
        }
    }

    /// Verifies the records of every segment below the durable end.
    pub fn check(&self, report: &mut Report) -> Result<()> {
        let durable = self.durable();
        let mut files: Vec<Sealed> = lock(&self.sealed).clone();
        if let Some(current) = &self.current {
            let current = current.load();
            files.push(Sealed { head: current.head, file: Arc::clone(&current.file) });
        }
        for sealed in files {
            check_segment(&sealed, durable, report)?;
        }
        Ok(())
    }

    /// Figures.
    pub fn stats(&self) -> LogStats {
        let sealed_bytes: u64 = lock(&self.sealed).iter().map(|sealed| sealed.head.capacity).sum();
        let rotation = lock(&self.rotation);
        let spare_bytes = rotation.spare.as_ref().map_or(0, |spare| spare.head.capacity)
            + to_u64(rotation.recycled.len()) * self.segment_bytes;
        let current_bytes = self.current.as_ref().map_or(0, |current| current.load().head.capacity);
        LogStats {
            start: self.start(),
            end: self.end(),
            durable: self.durable(),
            file_bytes: sealed_bytes + spare_bytes + current_bytes,
            syncs_total: self.syncs.load(Ordering::Relaxed),
            synced_commits_total: self.synced_commits.load(Ordering::Relaxed),
            appended_bytes_total: self.end().0 - self.started_at.0,
        }
    }
}

impl group::Sync for Log {
    fn sync_to(&self, end: Lsn) -> Result<Lsn> {
        self.check_failure()?;
        let current = self.current()?.load_full();
        // The end first, then the places: see `inflight`.
        let reserved = current.reserved_end();
        let mut copied = self.inflight.copied_to(reserved);
        while copied < end && !mutant::active(Bug::LogSyncsPastHoles) {
            yield_now();
            copied = self.inflight.copied_to(reserved);
        }
        if mutant::active(Bug::LogSyncsPastHoles) {
            copied = reserved;
        }
        let durable = self.group.durable();
        let full: Vec<Sealed> = lock(&self.sealed)
            .iter()
            .filter(|sealed| sealed.head.end() > durable && sealed.head.base < copied)
            .cloned()
            .collect();
        let sync = |number, sync: &dyn Fn() -> std::io::Result<()>| {
            let mut synced = sync();
            if synced.is_err() && mutant::active(Bug::LogRetriesFailedSync) {
                synced = sync();
            }
            synced.map_err(|error| {
                let error = Error::io(format!("sync {}", segment::display_name(number)), error);
                self.fail(error.to_string());
                error
            })
        };
        if !mutant::active(Bug::LogForgetsSealedSegment) {
            for sealed in full {
                sync(sealed.head.number, &|| sealed.file.sync_data())?;
            }
        }
        if copied > current.head.base && !mutant::active(Bug::LogSkipsSync) {
            sync(current.head.number, &|| current.sync(durable, copied))?;
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(copied)
    }

    fn check(&self) -> Result<()> {
        self.check_failure()
    }

    fn now(&self) -> Duration {
        self.env.monotonic()
    }
}

fn check_segment(sealed: &Sealed, durable: Lsn, report: &mut Report) -> Result<()> {
    let name = segment::display_name(sealed.head.number);
    let mut reader = match SegmentReader::open(Arc::clone(&sealed.file), &name) {
        Ok(reader) => reader,
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut offset = SegmentReader::first_offset();
    while reader.has_room(offset) && sealed.head.base.0 + offset < durable.0 {
        let Some(found) = reader.record_at(offset)? else {
            let lsn = sealed.head.base.0 + offset;
            report.add(name, offset, format!("no valid record at LSN {lsn}"));
            return Ok(());
        };
        report.checked_entries += u64::from(found.kind == Kind::Commit);
        offset += found.size;
    }
    report.checked_bytes += offset;
    Ok(())
}

/// Leave to append one record and apply it. Dropping it says: applied, or never appended.
#[derive(Debug)]
pub struct Ticket<'a> {
    log: &'a Log,
    /// Where the record goes, unless it turns out to be full.
    segment: arc_swap::Guard<Arc<Segment>>,
    claim: Claim,
    /// False while a record is being copied: a panic then leaves a hole that nothing may follow.
    whole: bool,
}

impl Ticket<'_> {
    /// Reserves space by one atomic add and copies the record; its body is the pieces, one after
    /// the other. On an error nothing was logged: the disk is full, the log has failed, or the
    /// record is too large.
    pub fn append(&mut self, pieces: &[&[u8]]) -> Result<Appended> {
        self.whole = false;
        let appended = self.log.append(&mut self.segment, pieces);
        self.whole = true;
        self.log.inflight.copied(self.claim);
        appended
    }

    /// Has the log go on in the next segment, as a record that does not fit into this one would.
    fn leave_segment(mut self) -> Result<()> {
        self.whole = false;
        let capacity = self.segment.head.capacity;
        let offset = self.segment.reserve(capacity);
        self.log.fill_rest(&self.segment, offset);
        self.whole = true;
        self.log.inflight.copied(self.claim);
        self.log.rotate(self.segment.head.number, 0)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.whole {
            self.log.fail("a writer panicked while it copied its record".to_owned());
        }
        self.log.inflight.applied(self.claim);
    }
}
