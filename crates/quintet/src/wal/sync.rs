//! Durability: what a sync of the log covers, and in which order it syncs files.

use std::{io, time::Duration};

use super::{
    group::SyncTarget,
    log::Log,
    recovery::SealedSegment,
    segment::{self, Segment},
};
use crate::{
    Error, Result,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Ordering, lock, yield_now},
    },
};

impl Log {
    /// Returns when everything below `end` is durable.
    pub fn wait_durable(&self, end: Lsn) -> Result<()> {
        self.synced_commits.fetch_add(1, Ordering::Relaxed);
        mutant!(LogAcknowledgesBeforeSync => return Ok(()));
        self.group.wait(end, self)
    }

    /// Makes everything appended before the call durable. Returns the durable end.
    pub fn sync(&self) -> Result<Lsn> {
        self.group.wait(self.end(), self)?;
        Ok(self.durable())
    }

    /// Ends a clean close: everything is durable and no thread appends. The next open need not
    /// search for holes.
    pub fn close(&self) -> Result<Lsn> {
        // First: the directory is given to other processes also if the sync fails.
        self.stop_removal();
        let durable = self.sync()?;
        if let Some(current) = &self.current {
            current.load().mark_in_use(false);
        }
        Ok(durable)
    }

    /// Waits until every record below `end` is copied. Returns the LSN below which all are: `end`
    /// or more, at most `reserved`, an end of the log that was loaded before the call.
    fn wait_copied(&self, end: Lsn, reserved: Lsn) -> Lsn {
        mutant!(LogSyncsPastHoles => return reserved);
        loop {
            let copied = self.inflight.copied_to(reserved);
            if copied >= end {
                return copied;
            }
            yield_now();
        }
    }

    /// Syncs the full segments that have records from `durable` to `copied`.
    fn sync_sealed(&self, durable: Lsn, copied: Lsn) -> Result<()> {
        mutant!(LogForgetsSealedSegment => return Ok(()));
        let needs_sync =
            |sealed: &&SealedSegment| sealed.head.end() > durable && sealed.head.base < copied;
        let unsynced: Vec<_> = lock(&self.sealed).iter().filter(needs_sync).cloned().collect();
        unsynced
            .iter()
            .try_for_each(|sealed| self.sync_once(sealed.head.number, || sealed.file.sync_data()))
    }

    /// Syncs the records of the current segment from `durable` to `copied`.
    fn sync_current(&self, current: &Segment, durable: Lsn, copied: Lsn) -> Result<()> {
        mutant!(LogSkipsSync => return Ok(()));
        if copied <= current.head.base {
            return Ok(());
        }
        self.sync_once(current.head.number, || current.sync(durable, copied))
    }

    /// Runs one segment's sync. An error fails the log for good: after a failed sync the page
    /// cache may hold clean pages that never reached the disk.
    fn sync_once(&self, number: u64, sync: impl Fn() -> io::Result<()>) -> Result<()> {
        let synced = mutant!(LogRetriesFailedSync: sync().or_else(|_| sync()), else sync());
        synced.map_err(|error| {
            let error = Error::io(format!("sync {}", segment::display_name(number)), error);
            self.fail(error.to_string());
            error
        })
    }
}

impl SyncTarget for Log {
    fn sync_to(&self, end: Lsn) -> Result<Lsn> {
        self.check_failure()?;
        let current = self.current()?.load_full();
        // The end is loaded before the slots are: `inflight` relies on this order.
        let copied = self.wait_copied(end, current.reserved_end());
        let durable = self.group.durable();
        self.sync_sealed(durable, copied)?;
        self.sync_current(&current, durable, copied)?;
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
