//! Planted bugs ("mutants"): deliberate errors that show that the tests find them.
//!
//! Each [`Bug`] is one that another store shipped or that this design invites. A test plants it,
//! runs,
//! and must see a failure. `docs/planted-bugs.md` lists the site and the test of each.
//!
//! A *site* is one line, the first statement of the step that it breaks:
//!
//! ```ignore
//! mutant!(LogSkipsSync => return Ok(copied));             // a statement instead of the step
//! let valid = mutant!(LogSkipsHeadChecksum: true, else checksum == expected); // a wrong value
//! ```
//!
//! Wrong code of more than one line is a function in the folder's `mutants.rs`.
//!
//! Invariants:
//! - Without the feature `testing`, [`active`] is the constant `false`: the optimiser removes every
//!   site.
//! - A bug is active until its [`Planted`] guard is dropped, also after a panic.
//! - Every bug has a site (`cargo xtask tidy` checks) and a test that finds it.
//!
//! Threads: [`plant`] acts on the calling thread only, so that tests run in parallel (the simulated
//! disk runs everything on one thread). [`plant_everywhere`] acts on all threads.

/// A site of a planted bug. See the module documentation.
macro_rules! mutant {
    ($bug:ident => $wrong:expr) => {
        if $crate::util::mutant::active($crate::util::mutant::Bug::$bug) {
            $wrong
        }
    };
    ($bug:ident: $wrong:expr, else $right:expr) => {
        if $crate::util::mutant::active($crate::util::mutant::Bug::$bug) { $wrong } else { $right }
    };
}
pub(crate) use mutant;

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

            /// The bug's place in the sets: word and bit.
            const fn place(self) -> (usize, u64) {
                let number: usize = match self {
                    $(Self::$variant => $number,)+
                };
                (number / 64, 1 << (number % 64))
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
    /// A segment's head says that records reach less far than they do.
    LogNotesTooShortReach = 230, "log-notes-too-short-reach";
    /// A sync leaves out the line of memory that the last record ends in.
    LogSyncsTooFewLines = 252, "log-syncs-too-few-lines";
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
    /// A batch does not enter its values that expire in the expiry index.
    BatchForgetsExpiryIndex = 80, "batch-forgets-expiry-index";
    /// Values replayed from the log are not entered in the expiry index.
    ReplayForgetsExpiryIndex = 81, "replay-forgets-expiry-index";
    /// The sweep removes an entry of the expiry index after it has let go of the key's stripe.
    SweepUnlistsOutsideStripe = 82, "sweep-unlists-outside-stripe";
    /// A read that finds a value expired does not look whether it was replaced before its time.
    ExpiryIsNotLookedAtAgain = 84, "expiry-is-not-looked-at-again";
    /// The expiry index counts as complete past entries that its files lack.
    ExpiryIndexNotNoted = 83, "expiry-index-not-noted";
    // The hashlog engine.
    /// A publication holds effects that the log can still lose.
    HashlogSkipsLogSync = 45, "hashlog-skips-log-sync";
    /// Chunks are published before they are durable.
    HashlogSkipsDataSync = 46, "hashlog-skips-data-sync";
    /// A publication counts before it is durable.
    HashlogSkipsManifestSync = 47, "hashlog-skips-manifest-sync";
    /// Compaction drops a tombstone while an older chunk has an entry of its key.
    HashlogDropsTombstonesEarly = 48, "hashlog-drops-tombstones-early";
    /// A chunk is recycled before those who read it look again whether it is still there.
    HashlogRecyclesUnderReaders = 49, "hashlog-recycles-under-readers";
    /// An entry is updated in place although it is frozen.
    HashlogUpdatesFrozenEntries = 50, "hashlog-updates-frozen-entries";
    /// Opening takes an older manifest than the newest.
    HashlogLoadsOldManifest = 51, "hashlog-loads-old-manifest";
    /// Reading from the disk does not compare the checksum of an entry.
    HashlogSkipsEntryChecksum = 52, "hashlog-skips-entry-checksum";
    /// Reading a whole chunk does not compare the checksum of an extent.
    HashlogSkipsExtentChecksum = 53, "hashlog-skips-extent-checksum";
    /// Compaction counts what it copied as live a second time.
    HashlogMiscountsCopies = 54, "hashlog-miscounts-copies";
    /// A compacted chunk is dropped by a publication that lacks the copies of its entries.
    HashlogLosesMovedEntries = 55, "hashlog-loses-moved-entries";
    /// Space is given back before the publication that drops it.
    HashlogFreesBeforePublishing = 56, "hashlog-frees-before-publishing";
    /// Two live keys of one hash are not noted: opening keeps the newer alone.
    HashlogForgetsCollisions = 57, "hashlog-forgets-collisions";
    /// Copies of compaction rank above what was written meanwhile.
    HashlogRanksCopiesHighest = 58, "hashlog-ranks-copies-highest";
    /// The index loses what lies in overflow nodes when it shrinks.
    SlotsShrinkLosesNodes = 59, "slots-shrink-loses-nodes";
    // The redo journal.
    /// A group is reported durable without asking the disk.
    RedoSkipsSync = 64, "redo-skips-sync";
    /// Recovery does not compare the checksum of a group's patches.
    RedoSkipsChecksum = 65, "redo-skips-checksum";
    /// A full file is removed while the newest group still needs its groups.
    RedoRemovesNeeded = 66, "redo-removes-needed";
    // The page cache and the B+-tree.
    /// A reader without a latch does not look whether the page changed under it.
    PageReadNotValidated = 90, "page-read-not-validated";
    /// A page is used without comparing its checksum.
    PageSkipsChecksum = 91, "page-skips-checksum";
    /// A dirty page leaves the cache: its changes are lost.
    PageEvictsDirty = 92, "page-evicts-dirty";
    /// A page that changes while its cut is being written is written as it is then.
    CutSeesLaterChanges = 93, "cut-sees-later-changes";
    /// A cut does not wait for operations under way: it holds a half of one.
    CutWithinOperation = 94, "cut-within-operation";
    /// A cut is published with effects that the log can still lose.
    CutSkipsLogSync = 95, "cut-skips-log-sync";
    /// Pages are written in place before the journal holds them.
    CutWritesInPlaceFirst = 96, "cut-writes-in-place-first";
    /// Opening does not apply the journal's newest group.
    CutNotReplayed = 97, "cut-not-replayed";
    /// Of keys in order that are looked up at once, all are looked for in the first one's leaf.
    RunOfKeysLeavesItsLeaf = 220, "run-of-keys-leaves-its-leaf";
    /// A key is looked for and put in the leaf of the one before, whether it belongs there or not.
    NearKeyLeavesItsLeaf = 229, "near-key-leaves-its-leaf";
    /// A new node's separator does not get into its parent.
    SplitLosesSeparator = 98, "split-loses-separator";
    /// Leaves that share with a neighbour keep the separator that they had.
    SpreadKeepsSeparator = 250, "spread-keeps-separator";
    /// The buckets of a memtable that has gone serve the next one as they are.
    ArenaKeepsBuckets = 251, "arena-keeps-buckets";
    /// A delete never merges nodes.
    DeleteNeverMerges = 99, "delete-never-merges";
    /// A scan goes on behind the key where it stopped, not at it.
    ScanSkipsAnEntry = 100, "scan-skips-an-entry";
    /// Reads do not see what replay has left for later.
    ReadPassesYoung = 221, "read-passes-young";
    /// What replay left for later of a key comes again after the key was written.
    WriteLeavesYoung = 222, "write-leaves-young";
    /// The head of a sealed group of the journal is written before the rest is durable.
    RedoSealsEarly = 223, "redo-seals-early";
    /// A page that was freed is used before the cut that frees it is durable.
    SpaceReusesTooEarly = 101, "space-reuses-too-early";
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
    /// Compaction empties a region that was chosen in an earlier life of it.
    TrieEmptiesAnyLife = 77, "trie-empties-any-life";
    /// A scan goes on one path too far after a full page.
    TrieScanSkips = 78, "trie-scan-skips";
    /// A region of the trie comes back into memory without the changes that no durable cut has.
    SpaceEvictsUncommitted = 79, "space-evicts-uncommitted";
    /// A lookup in the trie does not look again whether its subtree has changed meanwhile.
    TrieReadNotValidated = 210, "trie-read-not-validated";
    // The tph engine.
    /// Pieces are named by a manifest before they are durable.
    TphSkipsPieceSync = 192, "tph-skips-piece-sync";
    /// A piece is synced while its last write is still on its way.
    LsmSyncsUnderWrite = 227, "lsm-syncs-under-write";
    /// A block read from the disk is taken without comparing its checksum.
    TphSkipsBlockChecksum = 193, "tph-skips-block-checksum";
    /// A manifest gets its name before its content is durable.
    TphSkipsManifestSync = 194, "tph-skips-manifest-sync";
    /// A manifest gets its name before the pieces that it names have theirs durably.
    TphNamesPiecesLate = 195, "tph-names-pieces-late";
    /// The directory is not synced after a manifest got its name.
    TphSkipsDirSync = 196, "tph-skips-dir-sync";
    /// A manifest is published with effects that the log can still lose.
    TphSkipsLogSync = 197, "tph-skips-log-sync";
    /// A tombstone is dropped while an older piece or level holds its key.
    TphDropsTombstonesEarly = 198, "tph-drops-tombstones-early";
    /// Pieces are removed before the manifest without them is durable.
    TphRemovesPiecesEarly = 199, "tph-removes-pieces-early";
    /// Of two keys of one hash in a table, one is lost.
    TphForgetsCollisions = 200, "tph-forgets-collisions";
    /// A frame that has another block by now is taken for the one that was asked for.
    BlockKeepsIdentity = 201, "block-keeps-identity";
    /// A reader of a cached block does not look whether the frame changed under it.
    BlockNotValidated = 202, "block-not-validated";
    /// A frame is emptied while somebody looks at its bytes in place.
    PinnedFrameEmptied = 228, "pinned-frame-emptied";
    /// A memtable does not find tombstones by their hash.
    TphFilterForgetsTombstones = 203, "tph-filter-forgets-tombstones";
    /// A piece that has live entries leaves its table in a merge.
    TphDropsLivePiece = 204, "tph-drops-live-piece";
    /// A walk over a level ends with its first table.
    TphRangeStopsEarly = 205, "tph-range-stops-early";
    /// Entries that a merge leaves where they are do not count as live.
    TphMiscountsLive = 206, "tph-miscounts-live";
    /// After an edit of the manifest failed, the next one is added behind it.
    TphTrustsFailedEdit = 207, "tph-trusts-failed-edit";
    /// An edit of the manifest is taken without comparing its checksum.
    TphSkipsEditChecksum = 208, "tph-skips-edit-checksum";
    /// An edit of the manifest counts before it is durable.
    TphSkipsEditSync = 209, "tph-skips-edit-sync";
    /// A merge passes over the first key of each chunk of a piece that stays.
    TphMergePassesKeys = 211, "tph-merge-passes-keys";
    /// A seek in a piece passes over blocks whose hints equal its key's.
    TphSeeksPastEqualHints = 212, "tph-seeks-past-equal-hints";
    // The slm engine.
    /// Runs are named by a cut before their names are durable.
    SlmSkipsDirSync = 128, "slm-skips-dir-sync";
    /// Runs are removed before the cut without them is durable.
    SlmRemovesRunsEarly = 129, "slm-removes-runs-early";
    /// A cut does not carry the list of runs that it points into.
    SlmCutsWithoutList = 130, "slm-cuts-without-list";
    /// An entry that is replaced still counts as live.
    SlmMiscountsLive = 131, "slm-miscounts-live";
    /// A compaction enters what it copied even where a flush has come between.
    SlmMovesUnconditionally = 132, "slm-moves-unconditionally";
    /// A compaction copies the entry of the run that comes first, not the live one.
    SlmCopiesAnyEntry = 133, "slm-copies-any-entry";
    /// A flush leaves deleted keys in the index.
    SlmForgetsDeletes = 134, "slm-forgets-deletes";
    /// A range gives a key that memory and the index have twice.
    SlmRangeShowsBoth = 135, "slm-range-shows-both";
    /// The index says of every entry that it does not expire.
    SlmTakesAllForLasting = 213, "slm-takes-all-for-lasting";
    /// A cut carries the list of runs without the code of the index's keys.
    SlmForgetsKeyCode = 240, "slm-forgets-key-code";
    /// The journal is taken to be in place at rest, and was not brought there.
    JournalEndsUnplaced = 254, "journal-ends-unplaced";
    /// The index says of an entry that it begins a little further in its block.
    SlmMarksNextPart = 253, "slm-marks-next-part";
    /// A flush or a merge leaves what gets have learned of its keys' places.
    ShortcutsKeepPlace = 256, "shortcuts-keep-place";
    /// The same, but only what gets are about to learn.
    ShortcutsKeepClaim = 257, "shortcuts-keep-claim";
    // Codes of keys.
    /// The lowest byte has the code of what follows a key's end.
    KeyCodeLacksEnd = 241, "key-code-lacks-end";
    // Persistent memory.
    /// A slab is given out from before its directory word is persistent.
    PmemForgetsSlab = 136, "pmem-forgets-slab";
    /// Room that a crash left unreachable is never given out again.
    PmemSweepsNothing = 137, "pmem-sweeps-nothing";
    /// A word is published before what it leads to is persistent.
    PmemPublishesEarly = 138, "pmem-publishes-early";
    /// A publication returns before its word is persistent.
    PmemPublishesLazily = 139, "pmem-publishes-lazily";
    /// A node of the persistent list is linked although it was not written back.
    PersistentListSkipsNode = 140, "persistent-list-skips-node";
    /// A value of the persistent list is exchanged for one that was not written back.
    PersistentListSkipsValue = 141, "persistent-list-skips-value";
    /// An older version takes the place of a newer one.
    PersistentListTakesOlder = 142, "persistent-list-takes-older";
    /// A search of the persistent skip list takes whatever comes after its last node by then.
    PersistentListLooksAgain = 151, "persistent-list-looks-again";
    /// A shift to the right leaves a line that is not persistent.
    FairSkipsShift = 143, "fair-skips-shift";
    /// A shift to the left leaves a line that is not persistent.
    FairSkipsShiftBack = 144, "fair-skips-shift-back";
    /// A record is entered although it was not written back.
    FairSkipsRecord = 145, "fair-skips-record";
    /// The right half of a node is linked although it was not written back.
    FairSkipsNode = 146, "fair-skips-node";
    /// A node is cut before its right half is linked.
    FairCutsFirst = 147, "fair-cuts-first";
    /// A place gets its new prefix while its old pointer counts.
    FairKeepsPointer = 148, "fair-keeps-pointer";
    /// Opening leaves what a crash has interrupted.
    FairRepairsNothing = 149, "fair-repairs-nothing";
    /// A reader does not look whether what it read was given back meanwhile.
    FairReadNotValidated = 150, "fair-read-not-validated";
    // Sorted loads.
    /// A load's root is adopted before its pages are synced.
    LoadSkipsSync = 224, "load-skips-sync";
    /// A load's root is seen before it is durable, and stays if it does not become so.
    LoadShownEarly = 225, "load-shown-early";
    /// What the cache has of a page from before a load took it stays.
    LoadForgetsNothing = 226, "load-forgets-nothing";
    // Threads.
    /// An in-place update writes an entry's LSN with a plain store, beside readers.
    UpdateStoresPlainly = 124, "update-stores-plainly";
    /// An in-place update does not mark the entry as changing before it writes the value.
    UpdateKeepsVersion = 125, "update-keeps-version";
    /// A chunk that leaves its frame keeps its generation.
    RecycleKeepsGeneration = 126, "recycle-keeps-generation";
    /// A read does not look again whether the chunk is still in its frame.
    ReadForgetsRecycling = 127, "read-forgets-recycling";
    /// A scan reads what is at an address now, whatever life its chunk is in.
    ScanForgetsReuse = 214, "scan-forgets-reuse";
    /// A lookup takes what is at an address that has left its slot meanwhile.
    FindForgetsItsSlot = 255, "find-forgets-its-slot";
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
    // Not through `crate::util::sync`: the switch is no part of what the model checkers explore.
    use std::{
        cell::Cell,
        marker::PhantomData,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::Bug;

    /// Words of a set of bugs.
    const WORDS: usize = 5;

    static EVERYWHERE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    thread_local! {
        static HERE: [Cell<u64>; WORDS] = const { [const { Cell::new(0) }; WORDS] };
        static REACHED: [Cell<u64>; WORDS] = const { [const { Cell::new(0) }; WORDS] };
    }

    /// Bugs whose site was reached on any thread while they were planted everywhere.
    static REACHED_EVERYWHERE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    type Set = std::thread::LocalKey<[Cell<u64>; WORDS]>;

    #[inline]
    fn has(set: &'static Set, (word, bit): (usize, u64)) -> bool {
        set.with(|set| set[word].get() & bit != 0)
    }

    fn change(set: &'static Set, (word, bit): (usize, u64), member: bool) {
        set.with(|set| {
            let rest = set[word].get() & !bit;
            set[word].set(if member { rest | bit } else { rest });
        });
    }

    /// Whether the site of `bug` is to do the wrong thing. Two loads where nothing is planted.
    #[inline]
    pub fn active(bug: Bug) -> bool {
        let place @ (word, bit) = bug.place();
        let here = has(&HERE, place);
        let everywhere = EVERYWHERE[word].load(Ordering::Relaxed) & bit != 0;
        if here {
            change(&REACHED, place, true);
        }
        if everywhere {
            REACHED_EVERYWHERE[word].fetch_or(bit, Ordering::Relaxed);
        }
        here || everywhere
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
        let was_active = has(&HERE, bug.place());
        change(&HERE, bug.place(), true);
        if !was_active {
            change(&REACHED, bug.place(), false);
        }
        Planted { bug, everywhere: false, was_active, _here: PhantomData }
    }

    /// Makes `bug` active on every thread of the process.
    pub fn plant_everywhere(bug: Bug) -> Planted {
        let (word, bit) = bug.place();
        let was_active = EVERYWHERE[word].fetch_or(bit, Ordering::SeqCst) & bit != 0;
        if !was_active {
            REACHED_EVERYWHERE[word].fetch_and(!bit, Ordering::SeqCst);
        }
        Planted { bug, everywhere: true, was_active, _here: PhantomData }
    }

    impl Planted {
        /// Whether a site of the bug was reached since it was planted. A bug that no run reaches
        /// shows nothing about the tests: assert this beside the failure.
        pub fn was_reached(&self) -> bool {
            let place @ (word, bit) = self.bug.place();
            if self.everywhere {
                REACHED_EVERYWHERE[word].load(Ordering::SeqCst) & bit != 0
            } else {
                has(&REACHED, place)
            }
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            if self.was_active {
                return;
            }
            if self.everywhere {
                let (word, bit) = self.bug.place();
                EVERYWHERE[word].fetch_and(!bit, Ordering::SeqCst);
            } else {
                change(&HERE, self.bug.place(), false);
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
        let bits: BTreeSet<(usize, u64)> = Bug::ALL.iter().map(|bug| bug.place()).collect();
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
