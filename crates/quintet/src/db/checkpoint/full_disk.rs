//! A full disk: when rounds run for lack of space, and what they may use.
//!
//! Why: writes, deletes, checkpoints and compactions may each meet a full disk. Only rounds give
//! space back, and some need space first.
//!
//! How: what meets a full disk requests a round. While the log, the reserve or a table lacks space,
//! a round follows the last one after a pause. It checkpoints all tables. Then each table takes a
//! step that gives space back. Only deletes, checkpoints and such steps may use the reserve
//! ([`super::space_reserve`]).
//!
//! Locks: those of rounds.

use super::{CheckpointScheduler, maintain, retry_with_files};
use crate::{
    Error, Result,
    contract::MaintenanceMode,
    db::tables::{registry::TableRegistry, state::TableState},
    util::mutant::mutant,
};

/// A database at rest keeps one part in this many of what was written so far for a full disk.
const RESERVE_AT_REST_PART: u64 = 8;
/// Most bytes that a database at rest keeps.
const RESERVE_AT_REST_MAX: u64 = 4 << 20;

impl CheckpointScheduler {
    /// Releases the space that is kept for a full disk, and requests a round that frees more.
    /// Returns whether it released some.
    pub(crate) fn free_space(&self) -> bool {
        let released = self.log.release_retained()
            || self.space.release_for_rounds()
            || self.space.release_for_log();
        self.host.request_round();
        released
    }

    /// Requests a round for lack of space, unless one ran a moment ago.
    #[cold]
    pub(crate) fn request_space_round(&self) {
        let is_due = self.space_rounds.is_due(self.env.monotonic());
        if mutant!(FullLogWakesNothing: false, else is_due) {
            self.host.request_round();
        }
    }

    /// Returns whether a table's work waits for a round for lack of space: its last one met a full
    /// disk, and each delete requests another.
    pub(super) fn waits_for_space(&self, table: &TableState) -> bool {
        table.lacks_space() && !self.space_rounds.is_due(self.env.monotonic())
    }

    /// Returns whether the disk is full for the log, for the reserve, or for a table.
    pub(crate) fn is_any_space_short(&self, tables: &TableRegistry) -> bool {
        self.is_space_short() || tables.any(|table| table.is_live() && table.lacks_space())
    }

    /// Runs work of a table, and again on a full disk: without the log that stays for readers, and
    /// then with the reserve released.
    pub(super) fn with_space<T>(
        &self,
        table: &TableState,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut outcome = work();
        let releases: [&dyn Fn() -> bool; 2] =
            [&|| self.log.release_retained(), &|| self.space.release_for_rounds()];
        for release in releases {
            if matches!(outcome, Err(Error::DiskFull { .. })) && release() {
                outcome = work();
            }
        }
        table.note_space(outcome)
    }

    /// Returns the space that the next round may need: half more than the log has for it. A
    /// database at rest needs a little to log deletes, and to write what they change.
    pub(crate) fn reserve_needed(&self) -> u64 {
        let end = self.log.end();
        let at_rest = (end.0 / RESERVE_AT_REST_PART).min(RESERVE_AT_REST_MAX);
        let unpersisted = self.unpersisted_log_bytes(end);
        (unpersisted + unpersisted / 2).max(at_rest)
    }

    /// Adjusts the space that is kept for a full disk. If it is short, requests a round. Not for
    /// rounds themselves: they would follow one another without a pause.
    pub(crate) fn adjust_reserve(&self) {
        let is_whole = self.space.adjust(self.reserve_needed())
            || self.log.release_retained() && self.space.adjust(self.reserve_needed());
        if !is_whole {
            self.host.request_round();
        }
    }

    /// Returns whether the disk is full, or was and the space kept for it is not whole.
    pub(crate) fn is_space_short(&self) -> bool {
        (self.space.is_short() || self.log.lacks_space())
            && mutant!(FullDiskWaitsForALongLog: false, else true)
    }

    /// Returns whether space is short, and the last round for that was a while ago.
    pub(super) fn is_space_round_due(&self, tables: &TableRegistry) -> bool {
        self.is_any_space_short(tables) && self.space_rounds.is_due(self.env.monotonic())
    }

    /// Takes a step of every table that gives space back, on a disk that is full. One that lacks
    /// the space for a step waits for those of the others. The caller holds `round`.
    pub(super) fn give_space_back(&self, tables: &TableRegistry) {
        self.log.release_retained();
        for table in tables.all().into_iter().filter(|table| table.is_live()) {
            let step = || maintain(tables, &table, MaintenanceMode::SpaceStep);
            let _ = self.with_space(&table, || retry_with_files(tables, step));
        }
        self.space.adjust(self.reserve_needed());
        self.space_rounds.begin(self.env.monotonic());
    }
}
