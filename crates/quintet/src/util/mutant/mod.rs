//! Planted bugs ("mutants"): deliberate errors that show that the tests find them.
//!
//! Each [`Bug`] is one that another store shipped or that this design invites. A test plants it,
//! runs, and must fail. `docs/planted-bugs.md` lists the site and the test of each. A *site* is one
//! line, the first statement of the step that it breaks:
//! ```ignore
//! mutant!(LogSkipsSync => return Ok(()));                 // a statement instead of the step
//! let valid = mutant!(LogSkipsHeadChecksum: true, else checksum == expected); // a wrong value
//! ```
//!
//! Invariants:
//! - Wrong code of more than one line is a function in the folder's `mutants.rs`.
//! - Without the feature `testing`, [`active`] is `false`: the optimiser removes every site.
//! - A bug is active until its [`Planted`] guard is dropped, also after a panic.
//! - Every bug has a site (`cargo xtask tidy` checks) and a test that finds it.
//!
//! Threads: [`plant`] acts on the calling thread, [`plant_everywhere`] on all.

mod declaration;
#[cfg(feature = "testing")]
mod switch;

use declaration::bugs;

#[cfg(feature = "testing")]
pub use switch::Planted;

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

bugs! {
    // The log: durability.
    /// A log sync reports success without a sync of the file.
    LogSkipsSync = 0, "log-skips-sync";
    /// A `Sync` commit is acknowledged before its record is durable (etcd #14370).
    LogAcknowledgesBeforeSync = 1, "log-acknowledges-before-sync";
    /// A sync counts records that were still being copied when it began (RocksDB #10560).
    LogSyncsPastHoles = 2, "log-syncs-past-holes";
    /// A sync after a rotation covers the new segment but not the full one.
    LogForgetsSealedSegment = 3, "log-forgets-sealed-segment";
    /// A failed log sync is retried, and the log trusts the retry's success.
    LogRetriesFailedSync = 4, "log-retries-failed-sync";
    /// The log takes writes after a failed sync.
    LogWritesAfterFailedSync = 5, "log-writes-after-failed-sync";
    /// A new segment is used before its name is durable (RocksDB #10573).
    LogSkipsSegmentDirSync = 6, "log-skips-segment-dir-sync";
    /// A new segment is used before its head and its space are durable.
    LogSkipsSegmentHeadSync = 7, "log-skips-segment-head-sync";
    /// The log is marked as closed cleanly while it is in use.
    LogNotesCloseEarly = 8, "log-notes-close-early";
    /// Records claim a durable LSN above the real one.
    LogClaimsTooMuchDurable = 9, "log-claims-too-much-durable";
    /// No filler covers the end of a full segment.
    LogLeavesSegmentEndOpen = 10, "log-leaves-segment-end-open";
    // The log: recovery and pruning.
    /// Recovery does not compare the checksum of a record's head.
    LogSkipsHeadChecksum = 11, "log-skips-head-checksum";
    /// Recovery does not compare the checksum of a record's body.
    LogSkipsBodyChecksum = 12, "log-skips-body-checksum";
    /// A record's checksum does not cover its LSN.
    LogSkipsLsnCheck = 13, "log-skips-lsn-check";
    /// Recovery treats a torn tail as damage and fails (RocksDB #10185).
    LogRefusesTornTail = 14, "log-refuses-torn-tail";
    /// Recovery cuts damage below the durable watermark like a torn tail.
    LogCutsDamage = 15, "log-cuts-damage";
    /// Fillers are not synced: cut or stepped-over records can return after a crash (redb 4.2).
    LogLeavesFillersUnsynced = 16, "log-leaves-fillers-unsynced";
    /// Recovery steps over holes after a reboot: the state is not a prefix of the commits.
    LogStepsOverHolesAfterReboot = 17, "log-steps-over-holes-after-reboot";
    /// Recovery stops at a hole after a process was killed: acknowledged writes are lost.
    LogStopsAtHoleAfterKill = 18, "log-stops-at-hole-after-kill";
    /// The reach in a segment's head is not raised when pages are prepared.
    LogNotesTooShortReach = 230, "log-notes-too-short-reach";
    /// A sync leaves out the cache line that the last record ends in.
    LogSyncsTooFewLines = 252, "log-syncs-too-few-lines";
    /// Replay stops one record too early.
    LogReplaysOneTooFew = 19, "log-replays-one-too-few";
    /// Replay starts one record too late.
    LogReplaysOneTooLate = 20, "log-replays-one-too-late";
    /// Pruning removes the segment of the first needed record.
    LogPrunesTooMuch = 21, "log-prunes-too-much";
    /// Pruning removes segments that a change feed has not read.
    LogForgetsHolds = 419, "log-forgets-holds";
    /// Recovery removes the segments that stay for change feeds.
    LogForgetsRetained = 420, "log-forgets-retained";
    /// A change feed reads records that are still being copied or applied.
    LogReaderPassesEnd = 421, "log-reader-passes-end";
    /// A change feed shows commits that a power loss can still undo.
    FeedShowsUnsynced = 422, "feed-shows-unsynced";
    /// A table that is created or cleared is not logged for change feeds.
    TableBeginsUnlogged = 423, "table-begins-unlogged";
    // The catalog.
    /// A catalog edit takes effect before it is durable.
    CatalogSkipsSync = 22, "catalog-skips-sync";
    /// Recovery does not compare the checksum of a catalog edit.
    CatalogSkipsChecksum = 23, "catalog-skips-checksum";
    /// A rewritten catalog is renamed before its content is durable.
    CatalogRenamesBeforeSync = 24, "catalog-renames-before-sync";
    /// The directory is not synced after a rewritten catalog was renamed.
    CatalogSkipsDirSync = 25, "catalog-skips-dir-sync";
    /// The catalog never records the durable watermark.
    CatalogForgetsWatermark = 26, "catalog-forgets-watermark";
    /// The catalog records a table as complete before its engine's checkpoint is durable.
    CatalogRecordsCompleteEarly = 27, "catalog-records-complete-early";
    /// The next table reuses a dropped table's id: recovery replays old records into it.
    CatalogReusesTableId = 28, "catalog-reuses-table-id";
    /// The name of a table's directory is not durable when the catalog counts the table's files.
    TableDirectoryUnsynced = 381, "table-directory-unsynced";
    // The naive engine.
    /// A checkpoint is published with effects that the log can still lose.
    SnapshotSkipsLogSync = 29, "snapshot-skips-log-sync";
    /// A snapshot is renamed before its content is durable.
    SnapshotRenamesBeforeSync = 30, "snapshot-renames-before-sync";
    /// The directory is not synced after a snapshot was renamed.
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
    /// Replay skips deletes.
    ReplaySkipsDeletes = 38, "replay-skips-deletes";
    /// Replay skips records below the newest LSN that any table is complete to.
    ReplayIgnoresComplete = 39, "replay-ignores-complete";
    /// Log segments are pruned before the catalog's new start of the log is durable.
    PrunesBeforeCatalog = 40, "prunes-before-catalog";
    /// Writers of one key do not lock its stripe: apply order differs from log order.
    StripesNotLocked = 41, "stripes-not-locked";
    /// A condition is evaluated before the stripe is locked.
    ConditionOutsideStripe = 42, "condition-outside-stripe";
    /// The sweep removes a key without checking whether it was written meanwhile.
    SweepDoesNotLookAgain = 43, "sweep-does-not-look-again";
    /// Values replayed from the log lose their expiry.
    ReplayForgetsExpiry = 44, "replay-forgets-expiry";
    /// A batch does not add its expiring values to the expiry index.
    BatchForgetsExpiryIndex = 80, "batch-forgets-expiry-index";
    /// Values replayed from the log are not added to the expiry index.
    ReplayForgetsExpiryIndex = 81, "replay-forgets-expiry-index";
    /// The sweep removes an entry of the expiry index after it has unlocked the key's stripe.
    SweepUnlistsOutsideStripe = 82, "sweep-unlists-outside-stripe";
    /// A read of an expired value does not wait for a write that found the value in time.
    ExpiredReadPassesWrites = 400, "expired-read-passes-writes";
    /// A write whose condition is that a value is there takes effect although the value has expired
    /// since the condition was checked.
    ConditionForgetsTheClock = 401, "condition-forgets-the-clock";
    /// A read of an expired value does not check whether the value was replaced before it expired.
    ExpiryIsNotLookedAtAgain = 84, "expiry-is-not-looked-at-again";
    /// The expiry index counts as complete beyond entries that its files lack.
    ExpiryIndexNotNoted = 83, "expiry-index-not-noted";
    // The hashlog engine.
    /// A checkpoint has effects that the log can still lose.
    HashlogSkipsLogSync = 45, "hashlog-skips-log-sync";
    /// A checkpoint refers to chunks that are not durable.
    HashlogSkipsDataSync = 46, "hashlog-skips-data-sync";
    /// A checkpoint counts before its manifest is durable.
    HashlogSkipsManifestSync = 47, "hashlog-skips-manifest-sync";
    /// Compaction drops a tombstone while an older chunk has an entry of its key.
    HashlogDropsTombstonesEarly = 48, "hashlog-drops-tombstones-early";
    /// A segment leaves its frame without a mark that readers see.
    SegmentKeepsStateOnDetach = 49, "segment-keeps-state-on-detach";
    /// An entry is updated in place although it is frozen.
    HashlogUpdatesFrozenEntries = 50, "hashlog-updates-frozen-entries";
    /// Opening loads an older manifest than the newest.
    HashlogLoadsOldManifest = 51, "hashlog-loads-old-manifest";
    /// Reading from the disk does not compare the checksum of an entry.
    HashlogSkipsEntryChecksum = 52, "hashlog-skips-entry-checksum";
    /// Reading a whole chunk does not compare the checksum of an extent.
    HashlogSkipsExtentChecksum = 53, "hashlog-skips-extent-checksum";
    /// Compaction counts what it copied as live a second time.
    HashlogMiscountsCopies = 54, "hashlog-miscounts-copies";
    /// A checkpoint drops a compacted chunk but lacks the copies of its entries.
    HashlogLosesMovedEntries = 55, "hashlog-loses-moved-entries";
    /// Space is freed before the checkpoint that drops it is durable.
    HashlogFreesBeforePublishing = 56, "hashlog-frees-before-publishing";
    /// A collision of two live keys is not recorded: opening keeps only the newer key.
    HashlogForgetsCollisions = 57, "hashlog-forgets-collisions";
    /// Copies of a compaction rank above entries that were written meanwhile.
    HashlogRanksCopiesHighest = 58, "hashlog-ranks-copies-highest";
    /// An opening of a hashlog table keeps the space that the process before had to append to.
    HashlogKeepsOpenRanges = 425, "hashlog-keeps-open-ranges";
    /// Small chunks of a hashlog table are never merged.
    HashlogKeepsSmallChunks = 426, "hashlog-keeps-small-chunks";
    /// `trie` moves records on a full disk without space for them.
    TrieMovesWithoutSpace = 427, "trie-moves-without-space";
    /// B+-trees keep a journal on a full disk that recovery does not need.
    FullDiskKeepsJournal = 428, "full-disk-keeps-journal";
    /// A put that the log has no space for requests no round.
    FullLogWakesNothing = 429, "full-log-wakes-nothing";
    /// A get takes a prefetched copy from its address whatever life its chunk had then.
    HashlogTakesOldCopies = 418, "hashlog-takes-old-copies";
    /// The index loses the entries of overflow nodes when it shrinks.
    SlotsShrinkLosesNodes = 59, "slots-shrink-loses-nodes";
    // The redo journal.
    /// A group is reported durable without a sync.
    RedoSkipsSync = 64, "redo-skips-sync";
    /// Recovery does not compare the checksum of a group's patches.
    RedoSkipsChecksum = 65, "redo-skips-checksum";
    /// A full file is removed while recovery still needs its groups.
    RedoRemovesNeeded = 66, "redo-removes-needed";
    // The page cache and the B+-tree.
    /// An optimistic reader does not check whether the page changed.
    PageReadNotValidated = 90, "page-read-not-validated";
    /// A page is used without comparing its checksum.
    PageSkipsChecksum = 91, "page-skips-checksum";
    /// The cache evicts a dirty page: its changes are lost.
    PageEvictsDirty = 92, "page-evicts-dirty";
    /// A page cache that is full of dirty pages allocates frames beyond its address space.
    CacheExceedsAddresses = 280, "cache-exceeds-addresses";
    /// A checkpoint writes a page with changes that were made after it began.
    CutSeesLaterChanges = 93, "cut-sees-later-changes";
    /// A checkpoint does not wait for running operations: it has half of one.
    CutWithinOperation = 94, "cut-within-operation";
    /// A checkpoint is published with effects that the log can still lose.
    CutSkipsLogSync = 95, "cut-skips-log-sync";
    /// Pages are written in place before the journal holds them.
    CutWritesInPlaceFirst = 96, "cut-writes-in-place-first";
    /// Opening does not apply the journal's newest group.
    CutNotReplayed = 97, "cut-not-replayed";
    /// A multi-get searches all sorted keys in the first key's leaf.
    RunOfKeysLeavesItsLeaf = 220, "run-of-keys-leaves-its-leaf";
    /// A key is searched and stored in the leaf of the previous key, even if it belongs elsewhere.
    NearKeyLeavesItsLeaf = 229, "near-key-leaves-its-leaf";
    /// A split does not add the new node's separator to the parent.
    SplitLosesSeparator = 98, "split-loses-separator";
    /// A redistribution between leaves does not update their separator.
    SpreadKeepsSeparator = 250, "spread-keeps-separator";
    /// The next memtable reuses the buckets of an old one without clearing them.
    ArenaKeepsBuckets = 251, "arena-keeps-buckets";
    /// A delete never merges nodes.
    DeleteNeverMerges = 99, "delete-never-merges";
    /// A scan resumes behind the key where it stopped, not at it.
    ScanSkipsAnEntry = 100, "scan-skips-an-entry";
    /// Reads ignore the replay buffer.
    ReadPassesYoung = 221, "read-passes-young";
    /// A write leaves its key in the replay buffer, which overwrites it later.
    WriteLeavesYoung = 222, "write-leaves-young";
    /// The head of a sealed group of the journal is written before the rest is durable.
    RedoSealsEarly = 223, "redo-seals-early";
    /// A group is taken back, but not durably.
    RedoRevokesUnsynced = 410, "redo-revokes-unsynced";
    /// A full disk stays full of groups that failed.
    RedoKeepsFailedSpace = 411, "redo-keeps-failed-space";
    /// A freed page is reused before the checkpoint that frees it is durable.
    SpaceReusesTooEarly = 101, "space-reuses-too-early";
    // The trie engine.
    /// A region's image is read without a check of its checksum.
    ImageSkipsChecksum = 67, "image-skips-checksum";
    /// Images of regions count before they are durable.
    ImagesSkipSync = 68, "images-skip-sync";
    /// A node that a delete leaves empty is never reused.
    TrieLeaksNodes = 70, "trie-leaks-nodes";
    /// A checkpoint is published with effects that the log can still lose.
    TrieSkipsLogSync = 71, "trie-skips-log-sync";
    /// A checkpoint's group is written before its records are durable.
    TrieSkipsDataSync = 72, "trie-skips-data-sync";
    /// A checkpoint claims to be complete to the log's end, not to the requested LSN.
    TrieClaimsTooMuch = 73, "trie-claims-too-much";
    /// A record is read from the disk without a check of its checksum.
    TrieSkipsRecordChecksum = 74, "trie-skips-record-checksum";
    /// A record is changed in place while a checkpoint writes it.
    TrieUpdatesFrozen = 75, "trie-updates-frozen";
    /// Compaction frees a region before it has moved all live records.
    TrieFreesLiveRegion = 76, "trie-frees-live-region";
    /// Compaction empties a region that was freed and reused after it was chosen.
    TrieEmptiesAnyLife = 77, "trie-empties-any-life";
    /// A scan skips one path after a full page.
    TrieScanSkips = 78, "trie-scan-skips";
    /// A region is loaded again without the changes that no durable checkpoint has.
    SpaceEvictsUncommitted = 79, "space-evicts-uncommitted";
    /// A lookup in the trie does not validate that its subtree is unchanged.
    TrieReadNotValidated = 210, "trie-read-not-validated";
    // The tph engine.
    /// A manifest names SST files before they are durable.
    TphSkipsPieceSync = 192, "tph-skips-piece-sync";
    /// An SST file is synced while its last write is in flight.
    LsmSyncsUnderWrite = 227, "lsm-syncs-under-write";
    /// A block is read from the disk without a check of its checksum.
    TphSkipsBlockChecksum = 193, "tph-skips-block-checksum";
    /// A manifest is renamed before its content is durable.
    TphSkipsManifestSync = 194, "tph-skips-manifest-sync";
    /// A manifest is renamed before the names of its SST files are durable.
    TphNamesPiecesLate = 195, "tph-names-pieces-late";
    /// The directory is not synced after a manifest was renamed.
    TphSkipsDirSync = 196, "tph-skips-dir-sync";
    /// A manifest is published with effects that the log can still lose.
    TphSkipsLogSync = 197, "tph-skips-log-sync";
    /// A tombstone is dropped while an older SST or level has its key.
    TphDropsTombstonesEarly = 198, "tph-drops-tombstones-early";
    /// SST files are removed before the manifest without them is durable.
    TphRemovesPiecesEarly = 199, "tph-removes-pieces-early";
    /// Of two keys of one hash in a table, one is lost.
    TphForgetsCollisions = 200, "tph-forgets-collisions";
    /// A frame that was reused for another block is returned for the requested block.
    BlockKeepsIdentity = 201, "block-keeps-identity";
    /// A reader of a cached block does not check whether the frame changed.
    BlockNotValidated = 202, "block-not-validated";
    /// A pinned frame is evicted.
    PinnedFrameEmptied = 228, "pinned-frame-emptied";
    /// A memtable does not find tombstones by their hash.
    TphFilterForgetsTombstones = 203, "tph-filter-forgets-tombstones";
    /// A merge removes an SST that has live entries.
    TphDropsLivePiece = 204, "tph-drops-live-piece";
    /// Scans skip a put into a range that was recorded as empty.
    EmptyRangeKeepsPut = 259, "empty-range-keeps-put";
    /// A scan records a range as empty although a put came while it passed the range.
    EmptyRangeForgetsWatch = 260, "empty-range-forgets-watch";
    /// Of the versions of a key that are ordered at once, a memtable links the oldest.
    OrderLinksOldest = 291, "order-links-oldest";
    /// A range reads each older version of a key on its way to the next one.
    NextKeyReadsEachVersion = 292, "next-key-reads-each-version";
    /// A memtable that was ordered in the background once is never queued for it again.
    MemtableStaysQueued = 293, "memtable-stays-queued";
    /// A cursor over a level ends after its first table.
    TphRangeStopsEarly = 205, "tph-range-stops-early";
    /// Entries that a merge does not move do not count as live.
    TphMiscountsLive = 206, "tph-miscounts-live";
    /// After a failed edit of the manifest the next one is appended behind it.
    TphTrustsFailedEdit = 207, "tph-trusts-failed-edit";
    /// An edit of the manifest is read without a check of its checksum.
    TphSkipsEditChecksum = 208, "tph-skips-edit-checksum";
    /// An edit of the manifest counts before it is durable.
    TphSkipsEditSync = 209, "tph-skips-edit-sync";
    /// A merge skips the first key of each chunk of an SST that stays.
    TphMergePassesKeys = 211, "tph-merge-passes-keys";
    /// A seek in an SST skips blocks whose hints equal the key's.
    TphSeeksPastEqualHints = 212, "tph-seeks-past-equal-hints";
    /// A get takes the newest piece, whatever piece the global hash says.
    TphTakesOtherPiece = 370, "tph-takes-other-piece";
    /// A merge forgets deleted keys whose old entries stay in a piece.
    TphForgetsInvalid = 371, "tph-forgets-invalid";
    /// The key-location array has the entry behind the right one.
    TphShiftsSlots = 372, "tph-shifts-slots";
    /// A scan by the key-location array skips a row between two batches.
    TphScanSkipsRows = 373, "tph-scan-skips-rows";
    /// A merge into two tiers takes base keys of the invalid piece for live ones.
    TphRevivesInvalid = 374, "tph-revives-invalid";
    /// Reads do not compare the checksums of the chunks of the key-location array.
    TphSkipsOrderChecksum = 375, "tph-skips-order-checksum";
    /// A sample of the key order is not above the key before it.
    TphShortensSamples = 376, "tph-shortens-samples";
    /// The first key of a segment is not above the key before it.
    TphShortensFirstKeys = 377, "tph-shortens-first-keys";
    /// Pieces that stay keep their numbers although a newer one leaves the table.
    TphKeepsPieceNumbers = 378, "tph-keeps-piece-numbers";
    /// The key-location array has deleted keys too.
    TphOrdersDeletedKeys = 379, "tph-orders-deleted-keys";
    // Memory.
    /// An idle table keeps its memory if one in use has more.
    ArbiterIgnoresUses = 290, "arbiter-ignores-uses";
    /// Replay applies a value that an engine has dropped as expired and that the sweep has handled.
    ReplayRevivesSweptValues = 343, "replay-revives-swept-values";
    // Snapshots.
    /// A snapshot is not announced to writers while it is taken.
    SnapshotNotAnnounced = 330, "snapshot-not-announced";
    /// A read does not wait for commits that were in progress when the snapshot was taken.
    SnapshotDoesNotSettle = 331, "snapshot-does-not-settle";
    /// A range delete saves no earlier values.
    SnapshotForgetsRanges = 332, "snapshot-forgets-ranges";
    /// A write saves no version if the key had no value.
    SnapshotForgetsAbsentKeys = 333, "snapshot-forgets-absent-keys";
    /// Batches save no earlier values.
    SnapshotForgetsBatches = 334, "snapshot-forgets-batches";
    /// Segments are freed although an open snapshot needs them.
    SnapshotFreesTooEarly = 335, "snapshot-frees-too-early";
    /// A snapshot ends without telling its readers.
    SnapshotEndsSilently = 336, "snapshot-ends-silently";
    /// Engines drop expired values that an open snapshot shows.
    SnapshotExpiresByTheClock = 337, "snapshot-expires-by-the-clock";
    /// A snapshot judges expiry at the time of the read.
    SnapshotJudgesExpiryNow = 338, "snapshot-judges-expiry-now";
    /// A read asks the version store before the engine and not afterwards.
    SnapshotAsksEngineLast = 339, "snapshot-asks-engine-last";
    /// A range of a snapshot lacks keys that were deleted since.
    SnapshotRangeMissesDeleted = 340, "snapshot-range-misses-deleted";
    /// A compaction of versions drops those that open snapshots need.
    SnapshotCompactsTooMuch = 344, "snapshot-compacts-too-much";
    /// A compaction of versions misses a snapshot that is taken while it begins.
    SnapshotCompactsBesideTaking = 345, "snapshot-compacts-beside-taking";
    /// The filter of a file of versions misses some keys.
    VersionFilterMissesKeys = 346, "version-filter-misses-keys";
    /// A lookup in a file of versions begins one block too late.
    VersionFenceSkipsBlock = 347, "version-fence-skips-block";
    /// Versions leave memory before their file can be read.
    SpillLeavesGap = 348, "spill-leaves-gap";
    /// Files of versions of before a crash stay in the directory.
    VersionFilesStay = 349, "version-files-stay";
    /// A failed write of a file of versions is taken for a success.
    VersionFileIgnoresErrors = 350, "version-file-ignores-errors";
    /// A damaged block of versions is read.
    VersionBlockNotVerified = 351, "version-block-not-verified";
    /// A segment of versions is moved while a writer adds to it.
    SpillTakesIncomplete = 352, "spill-takes-incomplete";
    /// A cleared table loses its types.
    ClearForgetsTypes = 353, "clear-forgets-types";
    /// Writes by the handles of a cleared table fail.
    ClearLosesHandles = 354, "clear-loses-handles";
    /// An old snapshot shows a cleared table as empty.
    ClearChangesOldSnapshots = 355, "clear-changes-old-snapshots";
    /// A clear is visible before it is durable, and stays if the sync fails.
    ClearShowsEarly = 356, "clear-shows-early";
    /// A snapshot shows the keys of a later sorted load.
    SnapshotSeesLoads = 341, "snapshot-sees-loads";
    /// A read takes the newest version of a key instead of the snapshot's.
    SnapshotReadsNewestVersion = 342, "snapshot-reads-newest-version";
    // Merge operators.
    /// A merge takes the operand for the new value.
    MergeIgnoresValue = 357, "merge-ignores-value";
    /// A merge in a batch does not see the earlier operations of the batch.
    MergeMissesOwnWrites = 358, "merge-misses-own-writes";
    /// A batch with merges is committed without validating what the merges read.
    MergeNotValidated = 359, "merge-not-validated";
    /// A value that was merged in a batch or a transaction has no expiry.
    MergeForgetsExpiry = 360, "merge-forgets-expiry";
    // The slm engine.
    /// A checkpoint refers to runs whose names are not durable.
    SlmSkipsDirSync = 128, "slm-skips-dir-sync";
    /// Runs are removed before the checkpoint without them is durable.
    SlmRemovesRunsEarly = 129, "slm-removes-runs-early";
    /// A checkpoint lacks the list of its runs.
    SlmCutsWithoutList = 130, "slm-cuts-without-list";
    /// A replaced entry still counts as live.
    SlmMiscountsLive = 131, "slm-miscounts-live";
    /// A compaction updates the index even if a flush has replaced the entry meanwhile.
    SlmMovesUnconditionally = 132, "slm-moves-unconditionally";
    /// A compaction copies the first entry of a key, not the live one.
    SlmCopiesAnyEntry = 133, "slm-copies-any-entry";
    /// A flush leaves deleted keys in the index.
    SlmForgetsDeletes = 134, "slm-forgets-deletes";
    /// A range returns a key twice if both memory and the index have it.
    SlmRangeShowsBoth = 135, "slm-range-shows-both";
    /// The index marks every entry as one that does not expire.
    SlmTakesAllForLasting = 213, "slm-takes-all-for-lasting";
    /// A checkpoint has the list of runs without the code of the index's keys.
    SlmForgetsKeyCode = 240, "slm-forgets-key-code";
    /// A full compaction holds a buffer of each run at once, whatever the budget.
    SlmCompactsAtOnce = 380, "slm-compacts-at-once";
    /// An idle table counts its journal as written back although it was not.
    JournalEndsUnplaced = 254, "journal-ends-unplaced";
    /// The index has too high an offset for an entry in its block.
    SlmMarksNextPart = 253, "slm-marks-next-part";
    /// A flush or a merge leaves its keys in the location cache.
    ShortcutsKeepPlace = 256, "shortcuts-keep-place";
    /// A flush or a merge leaves claims of running gets in the location cache.
    ShortcutsKeepClaim = 257, "shortcuts-keep-claim";
    // Codes of keys.
    /// The lowest byte has the code of a key's end.
    KeyCodeLacksEnd = 241, "key-code-lacks-end";
    /// Each change on a full disk tries to make room.
    RoomTriesEachTime = 406, "room-tries-each-time";
    /// Changes on a full disk take memory without bound.
    RoomIsUnbounded = 407, "room-is-unbounded";
    /// Deletes are refused if other tables hold the memory.
    RoomNeedsMemory = 409, "room-needs-memory";
    /// Each operation of a batch waits for memory as long as a commit may.
    WaitsAreApart = 424, "waits-are-apart";
    // Persistent memory.
    /// A slab is used before its directory word is persistent.
    PmemForgetsSlab = 136, "pmem-forgets-slab";
    /// Space that a crash left unreachable is never freed.
    PmemSweepsNothing = 137, "pmem-sweeps-nothing";
    /// A word is published before its target is persistent.
    PmemPublishesEarly = 138, "pmem-publishes-early";
    /// A publication returns before its word is persistent.
    PmemPublishesLazily = 139, "pmem-publishes-lazily";
    /// A node of the persistent list is linked before it is written back.
    PersistentListSkipsNode = 140, "persistent-list-skips-node";
    /// A value of the persistent list is replaced by one that is not written back.
    PersistentListSkipsValue = 141, "persistent-list-skips-value";
    /// An older version replaces a newer one.
    PersistentListTakesOlder = 142, "persistent-list-takes-older";
    /// Opening keeps the entries that the shared log may lack.
    PersistentListKeepsLater = 390, "persistent-list-keeps-later";
    /// The index in the pool points to a run whose name is not durable.
    SlmIndexBeforeRun = 391, "slm-index-before-run";
    /// The live counts in the pool are not those after an update of the index.
    SlmPoolForgetsLive = 392, "slm-pool-forgets-live";
    /// A sweep frees objects of the index that were reachable.
    PmemSweepFreesReachable = 393, "pmem-sweep-frees-reachable";
    /// Opening repairs only the leaf of a change that a crash interrupted.
    FairRepairsLeavesAlone = 394, "fair-repairs-leaves-alone";
    /// The index in the pool is updated without a log of the updates.
    SlmPoolSkipsUpdateLog = 395, "slm-pool-skips-update-log";
    /// A flush puts entries into the pool's index that the log does not have durably.
    SlmFlushesUnsynced = 396, "slm-flushes-unsynced";
    /// A table claims to be complete although a memtable in ordinary memory has entries.
    SlmPoolClaimsTooMuch = 397, "slm-pool-claims-too-much";
    /// Tables in persistent memory are told that the log is durable before it is synced.
    TablesNotedBeforeSync = 402, "tables-noted-before-sync";
    /// An opening forgets which entries of a memtable it has left to read are removed.
    SlmPoolForgetsEnds = 403, "slm-pool-forgets-ends";
    /// An opening needs the space that only the sweep of a pool finds.
    SlmPoolOpensSwept = 404, "slm-pool-opens-swept";
    /// An interrupted batch of index updates is never completed.
    SlmPoolLeavesInterrupted = 405, "slm-pool-leaves-interrupted";
    /// A table with its index in a pool is complete past the durable end of the log.
    SlmPoolMarksUnsynced = 408, "slm-pool-marks-unsynced";
    /// A flushed memtable leaves the pool before the index in pages is durable.
    SlmPoolForgetsMemtable = 398, "slm-pool-forgets-memtable";
    /// A search of the persistent skip list reads the last node's successor again.
    PersistentListLooksAgain = 151, "persistent-list-looks-again";
    /// A shift to the right leaves a cache line that is not persistent.
    FairSkipsShift = 143, "fair-skips-shift";
    /// A shift to the left leaves a cache line that is not persistent.
    FairSkipsShiftBack = 144, "fair-skips-shift-back";
    /// A record is inserted before it is written back.
    FairSkipsRecord = 145, "fair-skips-record";
    /// The right half of a node is linked before it is written back.
    FairSkipsNode = 146, "fair-skips-node";
    /// A node is truncated before its right half is linked.
    FairCutsFirst = 147, "fair-cuts-first";
    /// An entry gets its new prefix while its old pointer is valid.
    FairKeepsPointer = 148, "fair-keeps-pointer";
    /// Opening does not repair an operation that a crash interrupted.
    FairRepairsNothing = 149, "fair-repairs-nothing";
    /// A reader does not check whether the record was freed meanwhile.
    FairReadNotValidated = 150, "fair-read-not-validated";
    // Tables that are not open.
    /// A table is closed although its files lack operations.
    ClosesUnsavedTables = 270, "closes-unsaved-tables";
    /// A checkpoint that lacks file descriptors closes no unused table.
    RoundKeepsFiles = 294, "round-keeps-files";
    /// Replay skips the operations of tables that are not open.
    ReplayOpensNothing = 271, "replay-opens-nothing";
    /// Replay that stopped for lack of memory continues one record too late.
    ReplayResumesLate = 281, "replay-resumes-late";
    /// Replay goes on although memory is short.
    ReplayNeverStops = 283, "replay-never-stops";
    /// Replay on a full disk keeps the log that tables no longer need.
    ReplayKeepsLog = 412, "replay-keeps-log";
    /// Replay on a full disk removes log of a table whose checkpoint has failed.
    ReplayForgetsTables = 413, "replay-forgets-tables";
    /// A full disk does not release the space that is kept for it.
    ReserveIsKept = 414, "reserve-is-kept";
    /// Writes that free nothing take the space that was released for deletes.
    WritesTakeTheReserve = 415, "writes-take-the-reserve";
    /// The space for a full disk is counted, and not allocated.
    ReserveIsNotAllocated = 417, "reserve-is-not-allocated";
    /// A full disk does not make the database shorten its log.
    FullDiskWaitsForALongLog = 416, "full-disk-waits-for-a-long-log";
    /// The sort of operations changes the order of those on one key.
    SortReordersKeys = 284, "sort-reorders-keys";
    /// A checkpoint of `trie` does not sync large values that were written for lack of memory.
    TrieForgetsUnsyncedValues = 286, "trie-forgets-unsynced-values";
    /// With paths of key bytes, a list of crafted keys grows without bound.
    TrieNeverSwitches = 361, "trie-never-switches";
    /// A switch to the keyed hash keeps the tags of the key bytes.
    TrieSwitchKeepsTags = 362, "trie-switch-keeps-tags";
    /// An update in a switched subtree stores the tag of the key bytes.
    TrieExchangesTag = 363, "trie-exchanges-tag";
    /// A delete moves the last record of a switched subtree up as if its tag were of the path.
    TrieMergeLosesSwitch = 364, "trie-merge-loses-switch";
    /// A scan continues after a switched subtree without its entries.
    TrieScanSkipsSwitched = 365, "trie-scan-skips-switched";
    /// The position of a key in scans lacks the bits of the keyed hash.
    TrieWalkPositionLacksHash = 366, "trie-walk-position-lacks-hash";
    /// Records that are read ahead for writes of keys with equal paths are mixed up.
    TrieMixesReadAhead = 367, "trie-mixes-read-ahead";
    /// The rest of a record that was updated in place by a shorter one is no record.
    TrieLeavesNoFiller = 368, "trie-leaves-no-filler";
    /// A switched subtree that becomes a list again keeps the tags of the keyed hash.
    TrieGatherKeepsTags = 369, "trie-gather-keeps-tags";
    /// A checkpoint of `hashlog` leaves out large values that were written for lack of memory.
    HashlogForgetsUnsyncedValues = 287, "hashlog-forgets-unsynced-values";
    /// A batch that cannot be taken is admitted operation by operation until one is refused.
    BatchNeedsAreNotSummed = 285, "batch-needs-are-not-summed";
    /// A batch that is larger than the page cache is applied without room for its dirty pages.
    BatchMakesNoRoom = 282, "batch-makes-no-room";
    // Transactions.
    /// A commit validates the keys that a transaction has read, but not its ranges.
    TransactionSkipsRanges = 310, "transaction-skips-ranges";
    /// A commit locks the keys that it writes, but not those that it has read.
    TransactionLocksWritesOnly = 311, "transaction-locks-writes-only";
    /// A range of a transaction does not show its own writes.
    RangeMissesOwnWrites = 312, "range-misses-own-writes";
    /// A rollback to a savepoint keeps the writes since.
    SavepointForgotten = 313, "savepoint-forgotten";
    /// A transaction that is run again reads the snapshot of the first attempt.
    RetryKeepsSnapshot = 314, "retry-keeps-snapshot";
    /// A rolled back transaction keeps its key locks.
    RollbackKeepsLocks = 315, "rollback-keeps-locks";
    /// A key that was read as absent is not validated.
    AbsentReadsNotValidated = 316, "absent-reads-not-validated";
    /// A wait that closes a cycle of waiting transactions is not detected.
    DeadlockNotDetected = 317, "deadlock-not-detected";
    /// The lock of a key is handed to the transaction that has waited least.
    LockGoesToLastWaiter = 318, "lock-goes-to-last-waiter";
    /// A read without a snapshot does not check that the earlier reads are still current.
    ReadsAtTwoMoments = 319, "reads-at-two-moments";
    /// A locked key is read as of the snapshot, although a commit has changed it since.
    LockedReadIsStale = 320, "locked-read-is-stale";
    /// A condition of a write in a transaction is not validated at commit.
    ConditionNotValidated = 321, "condition-not-validated";
    /// A deleted range of the transaction hides keys that it has put since.
    OwnRangeHidesLaterPuts = 322, "own-range-hides-later-puts";
    /// A commit with `Isolation::Snapshot` does not validate the keys that it writes.
    SnapshotIsolationSkipsWrites = 323, "snapshot-isolation-skips-writes";
    /// An iterator over a range counts as read only the range up to the last entry before its end.
    RangeEndNotRead = 324, "range-end-not-read";
    /// A reader without a snapshot does not notice a commit that is being applied.
    ReadDuringApply = 325, "read-during-apply";
    // Atomic operations on one key, and reads of whole tables.
    /// An update commits although another write of its key came between.
    UpdateIgnoresOtherWrites = 300, "update-ignores-other-writes";
    /// An update commits although the value that it read has expired meanwhile.
    UpdateIgnoresExpiryMeanwhile = 301, "update-ignores-expiry-meanwhile";
    /// An update drops the expiry of the value that it replaces.
    UpdateForgetsExpiry = 302, "update-forgets-expiry";
    /// A compare-and-swap compares only the lengths of the values.
    SwapComparesLengths = 303, "swap-compares-lengths";
    /// A counter wraps around beyond the range of its type.
    CounterWrapsAround = 304, "counter-wraps-around";
    /// Two threads that pop at the same time may get the same entry.
    PopDeletesBlindly = 305, "pop-deletes-blindly";
    /// The number of entries counts values that have expired.
    LenCountsExpired = 306, "len-counts-expired";
    /// A cursor that changes its direction returns the same entry again.
    CursorRepeatsAtTurn = 307, "cursor-repeats-at-turn";
    // Sorted loads.
    /// A load's root is adopted before its pages are synced.
    LoadSkipsSync = 224, "load-skips-sync";
    /// A load's root is visible before it is durable, and stays if the sync fails.
    LoadShownEarly = 225, "load-shown-early";
    /// The cache keeps the old content of pages that a load reuses.
    LoadForgetsNothing = 226, "load-forgets-nothing";
    // Threads.
    /// An in-place update writes an entry's LSN with a plain store, beside readers.
    UpdateStoresPlainly = 124, "update-stores-plainly";
    /// An in-place update does not mark the entry as changing before it writes the value.
    UpdateKeepsVersion = 125, "update-keeps-version";
    /// An evicted segment keeps its generation.
    RecycleKeepsGeneration = 126, "recycle-keeps-generation";
    /// A read does not check again whether the segment is still in its frame.
    ReadForgetsRecycling = 127, "read-forgets-recycling";
    /// A read checks the frame before it checks the entry's first word.
    ReadChecksFrameFirst = 258, "read-checks-frame-first";
    /// A scan reads an address although its chunk was reused.
    ScanForgetsReuse = 214, "scan-forgets-reuse";
    /// A lookup returns the record at an address that has left its slot.
    FindForgetsItsSlot = 255, "find-forgets-its-slot";
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        let bits: BTreeSet<(usize, u64)> = Bug::ALL.iter().map(|bug| bug.position()).collect();
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
