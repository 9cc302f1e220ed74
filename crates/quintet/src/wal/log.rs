//! The log's state, how it is opened, and what it reports.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::{
    group::GroupCommit,
    inflight::Inflight,
    options::{Anchor, LogOptions, LogStats, SEGMENT_BYTES_MIN},
    recovery::{self, SealedSegment},
    retention::Retention,
    segment::{self, Segment, SegmentHead},
};
use crate::{
    Error, Result,
    io::{BLOCK_BYTES, Dir, Env},
    util::{
        codec::{Lsn, round_up, to_u64},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
};

/// Fewest bytes past the tail whose pages are made writable in one system call, which replaces
/// many page faults. Prepared pages count as written, so a log that grows slowly prepares few.
pub(super) const PREPARED_BYTES_MIN: u64 = 256 << 10;

/// State that the rotation lock guards.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    /// The next segment, made ahead of need.
    pub(super) spare: Option<Segment>,
    /// Time of the last preparation of pages.
    pub(super) prepared_at: Duration,
    /// End of the log at that time.
    pub(super) prepared_end: Lsn,
    /// Numbers of pruned segments whose files can become segments again.
    pub(super) recycled: Vec<u64>,
}

/// The log. See the module head of `wal`.
#[derive(Debug)]
pub struct Log {
    pub(super) env: Arc<dyn Env>,
    pub(super) dir: Arc<dyn Dir>,
    database_id: [u8; 16],
    /// Usual size of a segment in bytes.
    pub(super) segment_bytes: u64,
    /// The segment that records go to; `None` only for a read-only log.
    pub(super) current: Option<ArcSwap<Segment>>,
    /// End of a read-only log.
    read_end: Lsn,
    pub(super) inflight: Inflight,
    pub(super) group: GroupCommit,
    pub(super) rotation: Mutex<Rotation>,
    /// Full segments, oldest first.
    pub(super) sealed: Mutex<Vec<SealedSegment>>,
    /// What stays below them for readers.
    pub(super) retention: Retention,
    /// The first failure. Once set, the log takes no record.
    failure: OnceLock<String>,
    /// Whether `rotation` has a spare: readable without the lock.
    pub(super) has_spare: AtomicBool,
    /// The last attempt to prepare a segment met a full disk.
    pub(super) is_disk_full: AtomicBool,
    /// How many bytes past the tail are prepared at the current rate of growth.
    pub(super) prepared_bytes: AtomicU64,
    started_at: Lsn,
    pub(super) syncs: AtomicU64,
    pub(super) synced_commits: AtomicU64,
    /// Number of the catalog's newest durable edit.
    pub(super) catalog_edit: AtomicU64,
}

impl Log {
    /// Recovers the log in `dir` and calls `replay` for every commit from `anchor.start` on, in
    /// order. Fails if the log is damaged (see [`recovery`]) or `replay` fails.
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
            group: GroupCommit::new(recovered.durable.min(recovered.end)),
            has_spare: AtomicBool::new(false),
            rotation: Mutex::new(Rotation::default()),
            sealed: Mutex::new(recovered.sealed),
            retention: Retention::new(
                options.retention,
                if options.read_only { Lsn(0) } else { anchor.start },
                recovered.retained,
            ),
            failure: OnceLock::new(),
            is_disk_full: AtomicBool::new(false),
            prepared_bytes: AtomicU64::new(PREPARED_BYTES_MIN),
            started_at: recovered.end,
            syncs: AtomicU64::new(0),
            synced_commits: AtomicU64::new(0),
            catalog_edit: AtomicU64::new(anchor.catalog),
        };
        if !options.read_only {
            let current = match recovered.current {
                Some(segment) => segment,
                None => log.make_segment_within_space(recovered.next, log.segment_bytes)?,
            };
            current.mark_in_use(mutant!(LogNotesCloseEarly: false, else true));
            log.started_at = current.reserved_end();
            log.current = Some(ArcSwap::from_pointee(current));
        }
        Ok(log)
    }

    /// Makes a segment of `capacity` bytes: a smaller one if the disk lacks the space. A recovered
    /// log continues in one, so a database on a full disk opens after a power loss too.
    pub(super) fn make_segment_within_space(
        &self,
        next: (u64, Lsn),
        mut capacity: u64,
    ) -> Result<Segment> {
        loop {
            match self.make_segment(next, capacity, None) {
                Err(Error::DiskFull { .. }) if capacity > SEGMENT_BYTES_MIN => {
                    capacity = round_up((capacity / 4).max(SEGMENT_BYTES_MIN), BLOCK_BYTES);
                }
                made => return made,
            }
        }
    }

    /// Makes a segment, durable under its name: from the pruned file `recycled`, or a new file.
    pub(super) fn make_segment(
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
            nonce: segment::random_nonce(&*self.env),
            in_use: false,
            reach: capacity,
            failed: false,
            catalog: 0,
        };
        Segment::create(&*self.dir, head, recycled.map(segment::file_name).as_deref())
    }

    /// Returns the segment that records go to. Fails with `ReadOnly` for a read-only log.
    pub(super) fn current(&self) -> Result<&ArcSwap<Segment>> {
        self.current.as_ref().ok_or(Error::ReadOnly)
    }

    /// Returns the LSN past the last reservation.
    pub fn end(&self) -> Lsn {
        self.current.as_ref().map_or(self.read_end, |current| current.load().reserved_end())
    }

    /// Returns the LSN below which everything is durable.
    pub fn durable(&self) -> Lsn {
        self.group.durable()
    }

    /// Returns the LSN below which every record is applied: their tickets are dropped.
    pub fn applied(&self) -> Lsn {
        let end = self.end();
        self.inflight.applied_to(end)
    }

    /// Returns the first LSN that is still in a file.
    pub fn start(&self) -> Lsn {
        // Held to the end: a rotation adds the current segment here before it stores the next one.
        let sealed = lock(&self.sealed);
        let retained = lock(&self.retention.retained).first().map(|head| head.base);
        retained
            .or_else(|| sealed.first().map(|sealed| sealed.head.base))
            .or_else(|| self.current.as_ref().map(|current| current.load().head.base))
            .unwrap_or(self.read_end)
    }

    /// Records the number of the catalog's newest edit, which is durable. The next open refuses a
    /// catalog without it as an older copy. The record becomes durable with a later sync.
    pub fn record_catalog_edit(&self, number: u64) {
        let before = self.catalog_edit.fetch_max(number, Ordering::Relaxed);
        if let Some(current) = self.current.as_ref().filter(|_| before < number) {
            current.load().store_catalog_edit(number);
        }
    }

    /// Returns the first failure, or `None` while the log works.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Fails with `LogFailed` after the first failure.
    pub(super) fn check_failure(&self) -> Result<()> {
        mutant!(LogWritesAfterFailedSync => return Ok(()));
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(Error::LogFailed { reason: reason.clone() }),
        }
    }

    /// Fails the log for good, and marks the current segment so that recovery trusts the disk only.
    pub(super) fn fail(&self, reason: String) {
        if self.failure.set(reason).is_ok()
            && let Some(current) = &self.current
        {
            current.load().mark_failed();
        }
    }

    /// Returns the statistics.
    pub fn stats(&self) -> LogStats {
        let sealed_bytes: u64 = lock(&self.sealed).iter().map(|sealed| sealed.head.capacity).sum();
        let retained_bytes: u64 =
            lock(&self.retention.retained).iter().map(|head| head.capacity).sum();
        let rotation = lock(&self.rotation);
        let spare_bytes = rotation.spare.as_ref().map_or(0, |spare| spare.head.capacity)
            + to_u64(rotation.recycled.len()) * self.segment_bytes;
        let current_bytes = self.current.as_ref().map_or(0, |current| current.load().head.capacity);
        LogStats {
            start: self.start(),
            end: self.end(),
            durable: self.durable(),
            file_bytes: sealed_bytes + retained_bytes + spare_bytes + current_bytes,
            retained_bytes,
            syncs_total: self.syncs.load(Ordering::Relaxed),
            synced_commits_total: self.synced_commits.load(Ordering::Relaxed),
            appended_bytes_total: self.end().0 - self.started_at.0,
        }
    }
}
