//! Models of reservation, copying and group commit, explored by loom (every interleaving up to a
//! bound) and by shuttle (many random ones).
//!
//! Run with `just loom` or `just shuttle`.

use super::{
    group::{GroupCommit, SyncTarget},
    inflight::Inflight,
};
use crate::{
    Error, Result,
    util::{
        codec::Lsn,
        sync::{
            Arc, AtomicBool, AtomicU64, Ordering,
            model_check::{Exploration, model_tests},
            thread,
        },
    },
};

const EXPLORATION: Exploration = Exploration { schedules: 5_000, ..Exploration::DEFAULT };

/// A log of one-byte records: the tail is reserved, then the record's cell is filled.
struct Tape {
    tail: AtomicU64,
    cells: [AtomicU64; 3],
    inflight: Inflight,
}

impl Tape {
    fn new() -> Self {
        Self {
            tail: AtomicU64::new(0),
            cells: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            inflight: Inflight::new(),
        }
    }

    fn append(&self) {
        let claim = self.inflight.claim(Lsn(self.tail.load(Ordering::Acquire)));
        let lsn = self.tail.fetch_add(1, Ordering::AcqRel);
        let cell = &self.cells[usize::try_from(lsn).unwrap()];
        cell.store(1, Ordering::Relaxed);
        self.inflight.mark_copied(claim);
        cell.store(2, Ordering::Relaxed);
        self.inflight.release(claim);
    }

    fn lowest_below(&self, bound: Lsn) -> u64 {
        let below = usize::try_from(bound.0).unwrap();
        self.cells[..below].iter().map(|cell| cell.load(Ordering::Relaxed)).min().unwrap_or(2)
    }
}

fn everything_below_the_bound_is_copied_and_applied() {
    EXPLORATION.explore(|| {
        let tape = Arc::new(Tape::new());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let tape = Arc::clone(&tape);
                thread::spawn(move || tape.append())
            })
            .collect();
        let end = Lsn(tape.tail.load(Ordering::Acquire));
        let copied = tape.inflight.copied_to(end);
        assert!(tape.lowest_below(copied) >= 1, "copied to {copied}");
        let end = Lsn(tape.tail.load(Ordering::Acquire));
        let applied = tape.inflight.applied_to(end);
        assert_eq!(tape.lowest_below(applied), 2, "applied to {applied}");
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(tape.inflight.applied_to(Lsn(2)), Lsn(2));
    });
}

/// A device whose syncs cover what was written before they began, until it fails.
struct Device {
    written: AtomicU64,
    failing: bool,
    failed: AtomicBool,
    syncing: AtomicBool,
}

impl SyncTarget for Device {
    fn sync_to(&self, _end: Lsn) -> Result<Lsn> {
        assert!(!self.syncing.swap(true, Ordering::AcqRel), "two syncs at once");
        let covered = self.written.load(Ordering::Acquire);
        self.syncing.store(false, Ordering::Release);
        if self.failing {
            self.failed.store(true, Ordering::Release);
            return self.check().map(|()| Lsn(0));
        }
        Ok(Lsn(covered))
    }

    fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::LogFailed { reason: "model".to_owned() });
        }
        Ok(())
    }

    fn now(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

fn commit_from_threads(failing: bool, count: u64) {
    let device = Arc::new(Device {
        written: AtomicU64::new(0),
        failing,
        failed: AtomicBool::new(false),
        syncing: AtomicBool::new(false),
    });
    let group = Arc::new(GroupCommit::new(Lsn(0)));
    let commit = move |device: &Device, group: &GroupCommit| {
        let end = Lsn(device.written.fetch_add(1, Ordering::AcqRel) + 1);
        let outcome = group.wait(end, device);
        assert_eq!(outcome.is_err(), failing);
        assert!(failing || group.durable() >= end, "acknowledged before durable");
    };
    let threads: Vec<_> = (1..count)
        .map(|_| {
            let (device, group) = (Arc::clone(&device), Arc::clone(&group));
            thread::spawn(move || commit(&device, &group))
        })
        .collect();
    commit(&device, &group);
    for thread in threads {
        thread.join().unwrap();
    }
}

fn every_waiter_is_covered_or_leads() {
    EXPLORATION.explore(|| commit_from_threads(false, 3));
}

fn a_failed_sync_reaches_every_waiter() {
    EXPLORATION.explore(|| commit_from_threads(true, 3));
}

model_tests! {
    loom_inflight, shuttle_inflight: everything_below_the_bound_is_copied_and_applied;
    loom_group_commit, shuttle_group_commit: every_waiter_is_covered_or_leads;
    loom_failed_sync, shuttle_failed_sync: a_failed_sync_reaches_every_waiter;
}
