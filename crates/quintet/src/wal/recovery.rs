//! Recovery: replays the segment files and repairs them, so that the log can be appended to.
//!
//! Why: a hole, a torn tail and damage look alike (bytes that are no record) and need opposite
//! treatment.
//!
//! How: recovery opens the segments, replays valid records in order, and classifies each gap, a
//! range that holds no valid record:
//! - **Damage**: a gap below the durable watermark, the highest of the catalog's and of every later
//!   valid record's `durable lsn`. Recovery fails with file, offset and LSN.
//! - **Hole**: the segment was made under the running kernel and no sync failed. The page cache is
//!   complete, so the gap is a write that its process never finished or acknowledged. Recovery
//!   steps over it to the next valid record and covers it with a filler.
//! - **Torn tail**: otherwise any subset of the unsynced pages may be missing. The longest valid
//!   prefix stays. Recovery removes the segments behind it and covers the rest of the last one
//!   with a filler.
//!
//! Invariants: fillers and removals are durable before the log takes a record. So cut and
//! stepped-over bytes never come back, even if recovery itself is interrupted. Recovering twice
//! gives the same records.
//!
//! Decisions: a record carries the durable LSN and not a count of syncs, because a count cannot
//! tell whether the damaged record was reserved before that sync began. A filler covers the cut
//! instead of zeros, because it takes one sector and zeros a segment.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::{
    mutants,
    options::{Anchor, LogOptions},
    reader::{RecordInfo, SegmentReader},
    record::{self, RecordKind},
    segment::{self, Segment, SegmentHead},
};
use crate::{
    Error, Result,
    io::{self, Dir, Env, Open},
    util::{codec::Lsn, mutant::mutant},
};

/// The outcome of recovery.
#[derive(Debug)]
pub(super) struct RecoveredLog {
    /// Segments that take no more records, oldest first.
    pub(super) sealed: Vec<SealedSegment>,
    /// Segments before them that stay for readers, oldest first.
    pub(super) retained: Vec<SegmentHead>,
    /// The segment to append to, if its tail may be continued.
    pub(super) current: Option<Segment>,
    /// Number and base of the segment to make if there is no `current`.
    pub(super) next: (u64, Lsn),
    /// LSN past the last record.
    pub(super) end: Lsn,
    /// LSN below which the log is durable.
    pub(super) durable: Lsn,
}

/// A segment that takes no more records.
#[derive(Clone, Debug)]
pub(super) struct SealedSegment {
    pub(super) head: SegmentHead,
    pub(super) file: Arc<dyn io::File>,
}

/// Receives each commit to replay: its LSN and body.
pub(super) type Replay<'a> = dyn FnMut(Lsn, &[u8]) -> Result<()> + 'a;

/// Recovers the log in `dir`. See the module head.
pub(super) fn recover(
    env: &dyn Env,
    dir: &dyn Dir,
    options: &LogOptions,
    anchor: &Anchor,
    replay: &mut Replay<'_>,
) -> Result<RecoveredLog> {
    let mut trusted_boot = Some(env.boot_id());
    let (mut segments, mut retained) = open_segments(dir, options, anchor, trusted_boot)?;
    if segments.iter().any(|reader| reader.head().failed) {
        // After a failed sync the page cache may hold bytes that the disk does not have.
        trusted_boot = None;
        (segments, retained) = open_segments(dir, options, anchor, trusted_boot)?;
    }
    let mut scan =
        RecoveryScan { anchor, trusted_boot, durable: anchor.durable, fillers: Vec::new() };
    let mut tail = None;
    let mut rest = segments.as_mut_slice();
    while let Some((reader, later)) = rest.split_first_mut() {
        let end = scan.replay_segment(reader, later, replay)?;
        reader.release_window();
        if let Some(offset) = end {
            tail = Some((reader.head().number, offset));
            break;
        }
        rest = later;
    }
    let recovered = scan.repair(dir, options, segments, tail)?;
    Ok(RecoveredLog { retained, ..recovered })
}

/// Opens the segments that recovery needs, and finds those before them that stay for readers.
/// Removes the others (unless read-only). Segments of
/// another boot than `trusted_boot` are read from the disk. An earlier recovery may have failed to
/// sync its writes, which then remain in the page cache.
fn open_segments(
    dir: &dyn Dir,
    options: &LogOptions,
    anchor: &Anchor,
    trusted_boot: Option<[u8; 16]>,
) -> Result<(Vec<SegmentReader>, Vec<SegmentHead>)> {
    let listing = dir.list().map_err(|error| Error::io("list log", error))?;
    let mut numbers: Vec<u64> =
        listing.iter().filter_map(|entry| segment::number_of(&entry.name)).collect();
    numbers.sort_unstable();
    if anchor.created {
        remove_unused(dir, &numbers, options, anchor, trusted_boot)?;
        return Ok((Vec::new(), Vec::new()));
    }
    let mut segments: Vec<SegmentReader> = Vec::new();
    let mut strays = Vec::new();
    let mut below = Vec::new();
    for number in numbers {
        match open_segment(dir, number, options, anchor, trusted_boot)? {
            SegmentFile::Valid(reader) => {
                // Pruned segments may remain for reuse and need not be consecutive. The last one
                // stays in any case: the log continues behind it.
                if segments.last().is_some_and(|last| last.head().end() <= anchor.start) {
                    below.extend(segments.drain(..).map(|reader| *reader.head()));
                }
                check_follows(segments.last(), &reader, &strays)?;
                segments.push(reader);
            }
            SegmentFile::Stray(fault) => strays.push((number, fault)),
        }
    }
    check_coverage(&segments, &strays, anchor)?;
    segments.iter().try_for_each(|reader| check_catalog(reader.head(), anchor))?;
    let retained = split_retained(&mut below, segments.first(), options);
    if !options.read_only {
        let below = below.iter().map(|head| head.number);
        for number in strays.into_iter().map(|(number, _)| number).chain(below) {
            segment::remove(dir, number)?;
        }
    }
    Ok((segments, retained))
}

/// Takes from `below` the segments that stay for readers: those that lead to `first` without a gap,
/// within the retention. A log that is open read-only removes nothing, so it keeps all of them.
fn split_retained(
    below: &mut Vec<SegmentHead>,
    first: Option<&SegmentReader>,
    options: &LogOptions,
) -> Vec<SegmentHead> {
    let Some(first) = first.map(SegmentReader::head) else { return Vec::new() };
    mutant!(LogForgetsRetained => return Vec::new());
    let bytes = if options.read_only { u64::MAX } else { options.retention };
    let mut next = (first.number, first.base);
    let follows = |head: &&SegmentHead| {
        let is_next = (head.number + 1, head.end()) == next;
        next = (head.number, head.base);
        is_next && first.base.0 - head.end().0 < bytes
    };
    let count = below.iter().rev().take_while(follows).count();
    below.split_off(below.len() - count)
}

/// Removes the files of an interrupted creation: at most the first segment, without a record.
fn remove_unused(
    dir: &dyn Dir,
    numbers: &[u64],
    options: &LogOptions,
    anchor: &Anchor,
    trusted_boot: Option<[u8; 16]>,
) -> Result<()> {
    for number in numbers {
        let used = match open_segment(dir, *number, options, anchor, trusted_boot)? {
            SegmentFile::Valid(mut reader) => {
                check_catalog(reader.head(), anchor)?;
                reader.record_at(SegmentReader::first_offset())?.is_some()
            }
            SegmentFile::Stray(_) => false,
        };
        if used || *number > 1 {
            let name = segment::display_name(*number);
            let what = "the log has records, but the catalog is that of a new database; restore it";
            return Err(Error::corruption(name, 0, what));
        }
    }
    if !options.read_only {
        numbers.iter().try_for_each(|number| segment::remove(dir, *number))?;
    }
    Ok(())
}

/// Fails if the log has recorded a catalog edit that the catalog does not have.
fn check_catalog(head: &SegmentHead, anchor: &Anchor) -> Result<()> {
    if head.catalog <= anchor.catalog {
        return Ok(());
    }
    let what = format!(
        "it is an older copy: it has {} edits, but {} has recorded edit {}; restore the newer copy",
        anchor.catalog,
        segment::display_name(head.number),
        head.catalog
    );
    Err(Error::corruption("catalog", 0, what))
}

enum SegmentFile {
    Valid(SegmentReader),
    /// Not in use: never completed, or pruned and kept for reuse. With the reason why it does not
    /// parse.
    Stray(Error),
}

fn open_segment(
    dir: &dyn Dir,
    number: u64,
    options: &LogOptions,
    anchor: &Anchor,
    trusted_boot: Option<[u8; 16]>,
) -> Result<SegmentFile> {
    let name = segment::display_name(number);
    let how = if options.read_only { Open::READ } else { Open::WRITE };
    let file = dir
        .open(&segment::file_name(number), how)
        .map_err(|error| Error::io(format!("open {name}"), error))?;
    let mut reader = SegmentReader::open(Arc::clone(&file), &name);
    if reader.as_ref().map_or(true, |reader| Some(reader.head().boot_id) != trusted_boot) {
        let _ = file.drop_cache();
        reader = SegmentReader::open(file, &name);
    }
    match reader {
        Ok(reader) if reader.head().database_id != anchor.database_id => {
            Err(Error::corruption(name, 16, "the segment belongs to another database"))
        }
        Ok(reader) if reader.head().number != number => Ok(SegmentFile::Stray(Error::corruption(
            name,
            32,
            format!("the head says segment {}", reader.head().number),
        ))),
        Ok(reader) => Ok(SegmentFile::Valid(reader)),
        Err(fault @ Error::Corruption { .. }) => Ok(SegmentFile::Stray(fault)),
        Err(error) => Err(error),
    }
}

/// Fails if `reader` is not the segment after `last`.
fn check_follows(
    last: Option<&SegmentReader>,
    reader: &SegmentReader,
    strays: &[(u64, Error)],
) -> Result<()> {
    let Some(last) = last else { return Ok(()) };
    let expected = (last.head().number + 1, last.head().end());
    if expected == (reader.head().number, reader.head().base) {
        return Ok(());
    }
    if let Some((_, fault)) = strays.iter().find(|(number, _)| *number == expected.0) {
        return Err(fault.clone());
    }
    Err(Error::corruption(
        segment::display_name(reader.head().number),
        40,
        format!("expected segment {} with base LSN {} here", expected.0, expected.1),
    ))
}

/// Fails unless the segments cover the LSNs that the catalog needs. A file that does not parse is a
/// stray only if it cannot hold a durable record: a segment is durable before its first record.
fn check_coverage(
    segments: &[SegmentReader],
    strays: &[(u64, Error)],
    anchor: &Anchor,
) -> Result<()> {
    if let (Some(first), Some(last)) = (segments.first(), segments.last())
        && first.head().base <= anchor.start
        && last.head().end() >= anchor.durable
    {
        return Ok(());
    }
    if let Some((_, fault)) = strays.first() {
        return Err(fault.clone());
    }
    let what = format!(
        "segments are missing: the catalog needs LSN {} to {}; restore them",
        anchor.start, anchor.durable
    );
    Err(Error::corruption("log", 0, what))
}

/// A filler to write into a segment, from `offset` to `end`.
struct PendingFiller {
    number: u64,
    offset: u64,
    end: u64,
}

/// The pass over the segments that replays them.
struct RecoveryScan<'a> {
    anchor: &'a Anchor,
    /// Boot id under which the page cache of a segment is complete; `None` after a failed sync.
    trusted_boot: Option<[u8; 16]>,
    durable: Lsn,
    fillers: Vec<PendingFiller>,
}

impl RecoveryScan<'_> {
    /// Returns whether the page cache has every write to the segment, synced or not.
    fn has_complete_cache(&self, head: &SegmentHead) -> bool {
        self.trusted_boot == Some(head.boot_id)
    }

    /// Returns the offset at and behind which no record begins in a segment. A recycled segment is
    /// full of old records, and a search through them takes as long as a replay of new ones.
    fn reach(&self, head: &SegmentHead) -> u64 {
        if !self.has_complete_cache(head) {
            head.capacity
        } else if head.was_never_used() && head.base >= self.anchor.durable {
            0
        } else {
            head.reach
        }
    }

    /// Replays one segment. Returns the offset at which the log ends, or `None` if it continues in
    /// the next segment.
    fn replay_segment(
        &mut self,
        reader: &mut SegmentReader,
        later: &mut [SegmentReader],
        replay: &mut Replay<'_>,
    ) -> Result<Option<u64>> {
        let mut offset = SegmentReader::first_offset();
        while reader.has_room(offset) {
            if let Some(record) = reader.record_at(offset)? {
                self.replay_record(reader, &record, replay)?;
                offset += record.size;
            } else if let Some(next) = self.classify_gap(reader, later, offset)? {
                offset = next;
            } else {
                return Ok(Some(offset));
            }
        }
        // The last segment may be full to the last byte.
        Ok(later.is_empty().then_some(offset))
    }

    /// Replays a record if it is a commit at or behind the anchor's start.
    fn replay_record(
        &mut self,
        reader: &mut SegmentReader,
        record: &RecordInfo,
        replay: &mut Replay<'_>,
    ) -> Result<()> {
        let start = self.anchor.start.0;
        let start = mutant!(LogReplaysOneTooLate: start + record.size, else start);
        self.durable = self.durable.max(record.durable);
        if record.kind != RecordKind::Commit || record.lsn.0 < start {
            return Ok(());
        }
        mutant!(LogReplaysOneTooFew => if mutants::is_last(reader, record)? { return Ok(()) });
        replay(record.lsn, reader.body(record)?)
    }

    /// Classifies the gap at `offset`: fails for damage, returns the offset behind a hole, and
    /// `None` for a torn tail, where the log ends.
    fn classify_gap(
        &mut self,
        reader: &mut SegmentReader,
        later: &mut [SegmentReader],
        offset: u64,
    ) -> Result<Option<u64>> {
        let head = *reader.head();
        let lsn = Lsn(head.base.0 + offset);
        let complete_cache = self.has_complete_cache(&head);
        if complete_cache && !head.in_use && lsn >= self.anchor.durable {
            return Ok(None); // Closed cleanly, or never used: no record follows.
        }
        let reach = self.reach(&head);
        let next = reader.next_valid_before(reach, offset + record::ALIGNMENT)?;
        let mut watermark = self.anchor.durable;
        if let Some(next) = &next {
            watermark = watermark.max(reader.highest_durable(next.offset, reach)?);
        }
        let mut follows = false;
        for later in later {
            let reach = self.reach(later.head());
            let durable = later.highest_durable(SegmentReader::first_offset(), reach)?;
            follows |=
                later.record_at(SegmentReader::first_offset())?.is_some() || durable > Lsn(0);
            watermark = watermark.max(durable);
            later.release_window();
        }
        let is_damage = mutant!(LogRefusesTornTail: true, else watermark > lsn);
        let is_damage = mutant!(LogCutsDamage: false, else is_damage);
        if is_damage {
            return Err(Error::corruption(
                segment::display_name(head.number),
                offset,
                format!("no valid record at LSN {lsn}, but the log was durable to {watermark}"),
            ));
        }
        let is_hole = mutant!(LogStepsOverHolesAfterReboot: true, else complete_cache);
        let is_hole = mutant!(LogStopsAtHoleAfterKill: false, else is_hole);
        let end = match (is_hole, next) {
            (true, Some(record)) => record.offset,
            (true, None) if follows => head.capacity,
            _ => return Ok(None),
        };
        self.fillers.push(PendingFiller { number: head.number, offset, end });
        Ok(Some(end))
    }

    /// Returns whether the log ends in a segment that it never moved to. Its creation may have
    /// failed, and its cached pages need not be on the disk, so it is made again.
    fn ends_unused(&self, segments: &[SegmentReader], tail: Option<(u64, u64)>) -> bool {
        let empty = tail.is_some_and(|(_, offset)| offset == SegmentReader::first_offset());
        let never_used = segments.last().is_some_and(|last| {
            last.head().was_never_used() && self.anchor.durable <= last.head().base
        });
        empty && never_used && segments.len() > 1
    }

    /// Repairs the files and returns where the log continues. `tail` is the number of the segment
    /// and the offset where the log ends; `None`: with the last segment.
    fn repair(
        mut self,
        dir: &dyn Dir,
        options: &LogOptions,
        mut segments: Vec<SegmentReader>,
        tail: Option<(u64, u64)>,
    ) -> Result<RecoveredLog> {
        let kept = segments.partition_point(|reader| {
            tail.is_none_or(|(number, _)| reader.head().number <= number)
        });
        let mut after = segments.split_off(kept);
        let mut tail = tail;
        if self.ends_unused(&segments, tail)
            && let Some(last) = segments.pop()
        {
            after.insert(0, last);
            tail = None;
        }
        let next =
            segments.last().map_or((1, Lsn(0)), |last| (last.head().number + 1, last.head().end()));
        let end = segments
            .last()
            .zip(tail)
            .map_or(next.1, |(last, (_, offset))| Lsn(last.head().base.0 + offset));
        let mut recovered = RecoveredLog {
            sealed: Vec::new(),
            retained: Vec::new(),
            current: None,
            next,
            end,
            durable: self.durable,
        };
        let complete_cache =
            segments.last().is_some_and(|last| self.has_complete_cache(last.head()));
        if !options.read_only {
            if let (Some((number, offset)), Some(last), false) =
                (tail, segments.last(), complete_cache)
            {
                self.fillers.push(PendingFiller { number, offset, end: last.head().capacity });
            }
            // A segment of this boot may have a name that is not durable yet.
            let sync_names = segments.last().is_some_and(|last| last.head().base >= self.durable);
            // Before the fillers: once the last segment is filled, recovery would continue in the
            // next one.
            remove_past_tail(dir, &after, sync_names)?;
            write_fillers(&segments, &self.fillers, !complete_cache)?;
            // If the cache is complete, the log's first sync covers these writes. If it fails, the
            // log marks that by a store into its mapping, which needs no disk.
            if !complete_cache {
                recovered.end = recovered.next.1;
                recovered.durable = recovered.end;
            } else if let Some((_, offset)) = tail
                && let Some(reader) = segments.pop()
            {
                let file = Arc::clone(reader.file());
                // Recovery has read it into large cached pages. A store would dirty all of one.
                let _ = file.drop_cache();
                recovered.current = Some(Segment::open(*reader.head(), file, offset)?);
            }
        }
        recovered.sealed = segments
            .into_iter()
            .map(|reader| SealedSegment { head: *reader.head(), file: Arc::clone(reader.file()) })
            .collect();
        Ok(recovered)
    }
}

/// Removes the segments past the tail: a spare that was never used, or cut ones. The removal is
/// durable on return. So are the names of the other segments, if a segment was removed or with
/// `sync_names`.
fn remove_past_tail(dir: &dyn Dir, after: &[SegmentReader], sync_names: bool) -> Result<()> {
    let sync = || dir.sync().map_err(|error| Error::io("sync log", error));
    // From the last one down, one by one: a crash leaves no gap.
    for reader in after.iter().rev() {
        segment::remove(dir, reader.head().number)?;
        sync()?;
    }
    if after.is_empty() && sync_names { sync() } else { Ok(()) }
}

/// Covers holes and the cut tail with fillers. With `sync` they are durable on return. Without, the
/// log's first sync makes them durable, before it acknowledges a later record.
fn write_fillers(segments: &[SegmentReader], pending: &[PendingFiller], sync: bool) -> Result<()> {
    for reader in segments {
        let head = reader.head();
        for filler in pending.iter().filter(|filler| filler.number == head.number) {
            let size = filler.end - filler.offset;
            if size < record::RECORD_BYTES_MIN {
                continue; // Too small for a record: readers stop there.
            }
            let lsn = Lsn(head.base.0 + filler.offset);
            let bytes =
                record::RecordHead::filler(lsn, size, Lsn(0)).encode(head.salt()).to_bytes();
            io::write_all_at(&**reader.file(), &bytes, filler.offset)
                .map_err(|error| io_error("write", head.number, error))?;
        }
        if sync {
            sync_fillers(reader)?;
        }
    }
    Ok(())
}

fn sync_fillers(reader: &SegmentReader) -> Result<()> {
    mutant!(LogLeavesFillersUnsynced => return Ok(()));
    reader.file().sync_data().map_err(|error| {
        // The next recovery must read the disk, and not what this one wrote into the page cache.
        segment::mark_failed(&**reader.file());
        io_error("sync", reader.head().number, error)
    })
}

fn io_error(doing: &str, number: u64, error: std::io::Error) -> Error {
    Error::io(format!("{doing} {}", segment::display_name(number)), error)
}
