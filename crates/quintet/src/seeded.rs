//! Deliberate bugs, to show that the tests find them.
//!
//! What: a switch for each [`Bug`]. A *site* in the code asks [`active`] and then does the wrong
//! thing; a test plants the bug, runs, and must see a failure. `docs/testing.md` lists site and
//! test of each. Why: a test programme that never failed has proved nothing. The bugs are ones
//! that other stores shipped, or that this design invites.
//!
//! Invariants:
//! - Without the feature `testing`, `active` is a constant `false`: the optimiser removes every
//!   site.
//! - A bug stays active until its [`Planted`] guard is dropped, panics included.
//! - Every bug has a site (`cargo xtask tidy` checks) and a test that finds it.
//!
//! Thread rules: [`plant`] acts on the calling thread alone, so that tests run side by side (the
//! simulated disk runs everything on one thread); [`plant_everywhere`] acts on all threads.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)+) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[doc = $doc])+ $variant,)+
        }

        #[cfg(feature = "testing")]
        impl Bug {
            /// Every bug, in the order of their layers.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// A short name for messages and for the command line of a test: `log-skips-sync`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What goes wrong, in a sentence.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// The bug's place in a set of 128 bits.
            const fn bit(self) -> u128 {
                match self {
                    $(Self::$variant => 1 << $number,)+
                }
            }
        }
    };
}

bugs! {
    // The log: durability.
    /// A log sync reports success without asking the disk.
    LogSkipsSync = 0, "log-skips-sync";
    /// A `Sync` commit is acknowledged before its record is durable (etcd #14370).
    LogAcknowledgesBeforeSync = 1, "log-acknowledges-before-sync";
    /// A sync counts records that were still being copied when it began (RocksDB #10560).
    LogSyncsPastHoles = 2, "log-syncs-past-holes";
    /// A sync after a rotation covers the new segment and not the full one.
    LogForgetsSealedSegment = 3, "log-forgets-sealed-segment";
    /// A failed log sync is tried again, and its success believed.
    LogRetriesFailedSync = 4, "log-retries-failed-sync";
    /// The log takes writes after a failed sync.
    LogWritesAfterFailedSync = 5, "log-writes-after-failed-sync";
    /// A new segment is used before its name is durable (RocksDB #10573).
    LogSkipsSegmentDirSync = 6, "log-skips-segment-dir-sync";
    /// A new segment is used before its head and its space are durable.
    LogSkipsSegmentHeadSync = 7, "log-skips-segment-head-sync";
    /// A clean close is noted before the last sync has ended.
    LogNotesCloseEarly = 8, "log-notes-close-early";
    /// Records say that more of the log was durable than was.
    LogClaimsTooMuchDurable = 9, "log-claims-too-much-durable";
    /// The rest of a full segment is not covered by a filler.
    LogLeavesSegmentEndOpen = 10, "log-leaves-segment-end-open";
    // The log: recovery and pruning.
    /// Recovery does not compare the checksum of a record's head.
    LogSkipsHeadChecksum = 11, "log-skips-head-checksum";
    /// Recovery does not compare the checksum of a record's body.
    LogSkipsBodyChecksum = 12, "log-skips-body-checksum";
    /// Recovery does not compare the LSN that a record carries with its place.
    LogSkipsLsnCheck = 13, "log-skips-lsn-check";
    /// A torn tail is refused as damage (RocksDB #10185).
    LogRefusesTornTail = 14, "log-refuses-torn-tail";
    /// Damage below the durable watermark is cut off like a torn tail.
    LogCutsDamage = 15, "log-cuts-damage";
    /// What recovery cut or stepped over can come back after the next crash (redb 4.2).
    LogLeavesFillersUnsynced = 16, "log-leaves-fillers-unsynced";
    /// Recovery steps over holes after a reboot: the state is no prefix of the commits.
    LogStepsOverHolesAfterReboot = 17, "log-steps-over-holes-after-reboot";
    /// Recovery stops at a hole after the death of the process: acknowledged writes go.
    LogStopsAtHoleAfterKill = 18, "log-stops-at-hole-after-kill";
    /// Replay stops one record early.
    LogReplaysOneTooFew = 19, "log-replays-one-too-few";
    /// Replay starts one record late.
    LogReplaysOneTooLate = 20, "log-replays-one-too-late";
    /// Pruning removes the segment that the first needed record is in.
    LogPrunesTooMuch = 21, "log-prunes-too-much";
    // The catalog.
    /// A catalog edit takes effect before it is durable.
    CatalogSkipsSync = 22, "catalog-skips-sync";
    /// Recovery does not compare the checksum of a catalog edit.
    CatalogSkipsChecksum = 23, "catalog-skips-checksum";
    /// A rewritten catalog gets its name before its content is durable.
    CatalogRenamesBeforeSync = 24, "catalog-renames-before-sync";
    /// The directory is not synced after a rewritten catalog got its name.
    CatalogSkipsDirSync = 25, "catalog-skips-dir-sync";
    /// The durable watermark never reaches the catalog.
    CatalogForgetsWatermark = 26, "catalog-forgets-watermark";
    /// The catalog records a table as complete before its engine has persisted.
    CatalogRecordsCompleteEarly = 27, "catalog-records-complete-early";
    /// A dropped table's number goes to the next table: old records are replayed there.
    CatalogReusesTableId = 28, "catalog-reuses-table-id";
    // The naive engine.
    /// A snapshot is published with effects that the log can still lose.
    SnapshotSkipsLogSync = 29, "snapshot-skips-log-sync";
    /// A snapshot gets its name before its content is durable.
    SnapshotRenamesBeforeSync = 30, "snapshot-renames-before-sync";
    /// The directory is not synced after a snapshot got its name.
    SnapshotSkipsDirSync = 31, "snapshot-skips-dir-sync";
    /// A snapshot claims to be complete to the LSN at its end, not the one at its start.
    SnapshotClaimsItsEnd = 32, "snapshot-claims-its-end";
    /// Loading does not compare the checksums of a snapshot's blocks.
    SnapshotSkipsChecksum = 33, "snapshot-skips-checksum";
    /// The previous snapshot is removed before the new one is durable.
    SnapshotRemovesOldFirst = 34, "snapshot-removes-old-first";
    /// A scan loses entries when the table grows under it (redb 4.3).
    ScanSkipsOnGrowth = 35, "scan-skips-on-growth";
    // Commit and recovery of the database.
    /// A batch is applied in full but only its first operation is logged.
    BatchLogsFirstOnly = 36, "batch-logs-first-only";
    /// A batch is logged as one record for each of its operations.
    BatchSplits = 37, "batch-splits";
    /// Replay leaves out deletes.
    ReplaySkipsDeletes = 38, "replay-skips-deletes";
    /// Replay gives a table nothing below the newest LSN that any table is complete to.
    ReplayIgnoresComplete = 39, "replay-ignores-complete";
    /// Log segments are pruned before the catalog's new start of the log is durable.
    PrunesBeforeCatalog = 40, "prunes-before-catalog";
    /// Writers of one key do not exclude one another: apply order is not log order.
    StripesNotLocked = 41, "stripes-not-locked";
    /// A condition is looked at before the stripe is locked.
    ConditionOutsideStripe = 42, "condition-outside-stripe";
    /// The sweep removes a key without looking whether it was written meanwhile.
    SweepDoesNotLookAgain = 43, "sweep-does-not-look-again";
    /// Values replayed from the log lose their expiry.
    ReplayForgetsExpiry = 44, "replay-forgets-expiry";
    // The redo journal.
    /// A group is reported durable without asking the disk.
    RedoSkipsSync = 64, "redo-skips-sync";
    /// Recovery does not compare the checksum of a group's patches.
    RedoSkipsChecksum = 65, "redo-skips-checksum";
    /// A full file is removed while the newest group still needs its groups.
    RedoRemovesNeeded = 66, "redo-removes-needed";
    // The trie engine.
    /// A region's image is taken without comparing its checksum.
    ImageSkipsChecksum = 67, "image-skips-checksum";
    /// Images of regions count before they are durable.
    ImagesSkipSync = 68, "images-skip-sync";
    /// A node that a delete leaves empty is never used again.
    TrieLeaksNodes = 70, "trie-leaks-nodes";
    /// A cut is published with effects that the log can still lose.
    TrieSkipsLogSync = 71, "trie-skips-log-sync";
    /// A cut's group is written before its records are durable.
    TrieSkipsDataSync = 72, "trie-skips-data-sync";
    /// A cut claims to be complete to the log's end, not to where it was asked to.
    TrieClaimsTooMuch = 73, "trie-claims-too-much";
    /// A record read from the disk is taken without comparing its checksum.
    TrieSkipsRecordChecksum = 74, "trie-skips-record-checksum";
    /// A record is changed in place although a cut is writing it.
    TrieUpdatesFrozen = 75, "trie-updates-frozen";
    /// Compaction frees a region although it has not moved all that is live in it.
    TrieFreesLiveRegion = 76, "trie-frees-live-region";
    /// A scan goes on one path too far after a full page.
    TrieScanSkips = 78, "trie-scan-skips";
}

#[cfg(feature = "testing")]
impl std::fmt::Display for Bug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Whether the site of `bug` is to do the wrong thing.
#[cfg(not(feature = "testing"))]
#[inline]
pub const fn active(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "testing")]
pub use switch::{Planted, active, plant, plant_everywhere};

/// Asserts that `test` fails with `bug` planted, and not without having met it.
///
/// # Panics
///
/// Where the test passes, or fails before it comes to the bug.
#[cfg(test)]
pub fn finds(bug: Bug, test: fn()) {
    let planted = plant(bug);
    let outcome = std::panic::catch_unwind(test);
    assert!(planted.was_reached(), "{bug}: the test does not reach it");
    assert!(outcome.is_err(), "{bug} was not found");
}

#[cfg(feature = "testing")]
mod switch {
    // Not through `crate::sync`: the switch is no part of what the model checkers explore.
    use std::{
        cell::Cell,
        marker::PhantomData,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::Bug;

    /// A set of bugs that all threads share: the low and the high half of its bits.
    struct Shared([AtomicU64; 2]);

    impl Shared {
        const fn new() -> Self {
            Self([AtomicU64::new(0), AtomicU64::new(0)])
        }

        /// The half that a bug is in, and its bit there.
        fn half(&self, bug: Bug) -> (&AtomicU64, u64) {
            let bit = bug.bit();
            match u64::try_from(bit) {
                Ok(low) => (&self.0[0], low),
                Err(_) => (&self.0[1], u64::try_from(bit >> 64).unwrap_or(0)),
            }
        }

        fn contains(&self, bug: Bug, order: Ordering) -> bool {
            let (half, bit) = self.half(bug);
            half.load(order) & bit != 0
        }

        /// Adds a bug and says whether it was there.
        fn insert(&self, bug: Bug) -> bool {
            let (half, bit) = self.half(bug);
            half.fetch_or(bit, Ordering::SeqCst) & bit != 0
        }

        fn remove(&self, bug: Bug) {
            let (half, bit) = self.half(bug);
            half.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    static EVERYWHERE: Shared = Shared::new();

    thread_local! {
        static HERE: Cell<u128> = const { Cell::new(0) };
        static REACHED: Cell<u128> = const { Cell::new(0) };
    }

    /// Bugs whose site was reached on any thread while they were planted everywhere.
    static REACHED_EVERYWHERE: Shared = Shared::new();

    /// Whether the site of `bug` is to do the wrong thing. Two loads where nothing is planted.
    #[inline]
    pub fn active(bug: Bug) -> bool {
        let here = HERE.get();
        let everywhere = EVERYWHERE.contains(bug, Ordering::Relaxed);
        if here & bug.bit() != 0 {
            REACHED.set(REACHED.get() | bug.bit());
        } else if !everywhere {
            return false;
        }
        if everywhere {
            REACHED_EVERYWHERE.insert(bug);
        }
        true
    }

    /// Keeps a bug active until dropped.
    #[derive(Debug)]
    #[must_use = "the bug is active only as long as the guard lives"]
    pub struct Planted {
        bug: Bug,
        everywhere: bool,
        /// Whether an outer guard keeps the bug active when this one goes.
        was_active: bool,
        /// The guard belongs to its thread.
        _here: PhantomData<*const ()>,
    }

    /// Makes `bug` active on the calling thread.
    pub fn plant(bug: Bug) -> Planted {
        let before = HERE.get();
        let was_active = before & bug.bit() != 0;
        HERE.set(before | bug.bit());
        if !was_active {
            REACHED.set(REACHED.get() & !bug.bit());
        }
        Planted { bug, everywhere: false, was_active, _here: PhantomData }
    }

    /// Makes `bug` active on every thread of the process.
    pub fn plant_everywhere(bug: Bug) -> Planted {
        let was_active = EVERYWHERE.insert(bug);
        if !was_active {
            REACHED_EVERYWHERE.remove(bug);
        }
        Planted { bug, everywhere: true, was_active, _here: PhantomData }
    }

    impl Planted {
        /// Whether a site of the bug was reached since it was planted. A bug that no run reaches
        /// shows nothing about the tests: assert this beside the failure.
        pub fn was_reached(&self) -> bool {
            if self.everywhere {
                REACHED_EVERYWHERE.contains(self.bug, Ordering::SeqCst)
            } else {
                REACHED.get() & self.bug.bit() != 0
            }
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            if self.was_active {
                return;
            }
            if self.everywhere {
                EVERYWHERE.remove(self.bug);
            } else {
                HERE.set(HERE.get() & !self.bug.bit());
            }
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        let bits: BTreeSet<u128> = Bug::ALL.iter().map(|bug| bug.bit()).collect();
        let names: BTreeSet<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(bits.len(), Bug::ALL.len());
        assert_eq!(names.len(), Bug::ALL.len());
        assert!(Bug::ALL.len() >= 30);
        assert!(Bug::ALL.iter().all(|bug| bug.description().ends_with('.')));
    }

    #[test]
    fn a_bug_is_active_on_its_thread_while_its_guard_lives() {
        assert!(!active(Bug::LogReplaysOneTooLate));
        let guard = plant(Bug::LogReplaysOneTooLate);
        assert!(!guard.was_reached());
        assert!(active(Bug::LogReplaysOneTooLate) && !active(Bug::LogReplaysOneTooFew));
        assert!(guard.was_reached());
        let elsewhere = std::thread::spawn(|| active(Bug::LogReplaysOneTooLate)).join();
        assert!(!elsewhere.unwrap());
        drop(plant(Bug::LogReplaysOneTooLate));
        assert!(active(Bug::LogReplaysOneTooLate), "the outer guard still lives");
        drop(guard);
        assert!(!active(Bug::LogReplaysOneTooLate));
        assert!(!plant(Bug::LogReplaysOneTooLate).was_reached(), "a new guard starts anew");
    }

    #[test]
    fn a_bug_planted_everywhere_is_active_on_other_threads() {
        // No site and no other test uses this bug through this switch.
        let guard = plant_everywhere(Bug::ScanSkipsOnGrowth);
        assert!(!guard.was_reached());
        assert!(std::thread::spawn(|| active(Bug::ScanSkipsOnGrowth)).join().unwrap());
        assert!(guard.was_reached());
        drop(guard);
        assert!(!std::thread::spawn(|| active(Bug::ScanSkipsOnGrowth)).join().unwrap());
    }

    #[test]
    fn a_panic_takes_the_bug_away() {
        let result = std::panic::catch_unwind(|| {
            let _guard = plant(Bug::BatchSplits);
            assert!(!active(Bug::BatchSplits), "planted");
        });
        assert!(result.is_err());
        assert!(!active(Bug::BatchSplits));
    }
}
