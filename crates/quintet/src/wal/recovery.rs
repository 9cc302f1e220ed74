//! From segment files to a log that can be appended to.
//!
//! What: finds the segments, decides for everything that does not parse whether it is a hole, a
//! torn tail or damage, replays what is valid, and mends the files so that the next recovery sees
//! the same. Why: three cases look alike (bytes that are no record) and need opposite treatment.
//!
//! The rules:
//! - **Damage**: an invalid place below the durable watermark. The watermark is the highest of the
//!   catalog's and of every later valid record's `durable lsn`. Open is refused, with file, offset
//!   and LSN.
//! - **Hole**: the segment was made under the running kernel and no sync failed: the page cache is
//!   whole, so an invalid place is a write that its process never finished and nobody was told of.
//!   Recovery steps over it to the next valid record and covers it with a filler.
//! - **Torn tail**: otherwise, un-synced pages may be missing in any subset: the longest valid
//!   prefix stays, the rest is cut: its segments are removed and a filler covers the rest of the
//!   last one.
//!
//! Invariants: fillers and removals are durable before the log takes a record, so what was cut or
//! stepped over never comes back, at whatever point recovery itself is interrupted; recovering
//! twice gives the same records.
//!
//! Differs from DESIGN.md: a record carries the durable LSN rather than a count of syncs (a count
//! cannot tell whether the damaged record was reserved before that sync began), and the cut is
//! covered by a filler rather than zeroed (one sector is written rather than a segment).

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::{
    Anchor, LogOptions,
    reader::{Found, SegmentReader},
    record::{self, Kind},
    segment::{self, Segment},
};
use crate::{
    Error, Result,
    io::{self, Dir, Env, Open},
    util::{
        codec::Lsn,
        mutant::{self, Bug},
    },
};

/// What recovery hands to the log.
#[derive(Debug)]
pub(super) struct Recovered {
    /// Segments that are full or sealed, oldest first.
    pub(super) sealed: Vec<Sealed>,
    /// The segment to go on in, if the tail may be continued.
    pub(super) current: Option<Segment>,
    /// Number and base of the segment to make where there is no `current`.
    pub(super) next: (u64, Lsn),
    /// Past the last record.
    pub(super) end: Lsn,
    /// Known durable below.
    pub(super) durable: Lsn,
}

/// A segment that takes no more records.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) head: segment::Head,
    pub(super) file: Arc<dyn io::File>,
}

/// Called with each record to replay.
pub(super) type Replay<'a> = dyn FnMut(Lsn, &[u8]) -> Result<()> + 'a;

/// Reads the log in `dir`; see the module head.
pub(super) fn recover(
    env: &dyn Env,
    dir: &dyn Dir,
    options: &LogOptions,
    anchor: &Anchor,
    replay: &mut Replay<'_>,
) -> Result<Recovered> {
    let mut whole = Some(env.boot_id());
    let mut segments = open_segments(dir, options, anchor, whole)?;
    if segments.iter().any(|reader| reader.head().failed) {
        // After a failed sync the cache may show what the disk does not have.
        whole = None;
        segments = open_segments(dir, options, anchor, whole)?;
    }
    let mut scan = Scan { anchor, whole, durable: anchor.durable, mends: Vec::new() };
    let mut tail = None;
    let mut rest = segments.as_mut_slice();
    while let Some((reader, later)) = rest.split_first_mut() {
        if let Some(offset) = scan.segment(reader, later, replay)? {
            tail = Some((reader.head().number, offset));
            break;
        }
        rest = later;
    }
    scan.finish(dir, options, segments, tail)
}

/// Opens the run of segments that recovery needs, and removes strays (unless read-only). Those
/// made under another boot than `whole` are read from the disk: an earlier recovery may have
/// failed to sync what it wrote, which leaves that in the cache.
fn open_segments(
    dir: &dyn Dir,
    options: &LogOptions,
    anchor: &Anchor,
    whole: Option<[u8; 16]>,
) -> Result<Vec<SegmentReader>> {
    let listing = dir.list().map_err(|error| Error::io("list log", error))?;
    let mut numbers: Vec<u64> =
        listing.iter().filter_map(|entry| segment::number_of(&entry.name)).collect();
    numbers.sort_unstable();
    if anchor.created {
        return remove_unused(dir, &numbers, options, anchor, whole);
    }
    let mut segments: Vec<SegmentReader> = Vec::new();
    let mut strays = Vec::new();
    let mut below = Vec::new();
    for number in numbers {
        match open_segment(dir, number, options, anchor, whole)? {
            Opened::Segment(reader) => {
                // Pruned ones may be kept to be made again, and need not be consecutive. The last
                // is kept in any case: the log goes on behind it.
                if segments.last().is_some_and(|last| last.head().end() <= anchor.start) {
                    below.extend(segments.drain(..).map(|reader| reader.head().number));
                }
                check_follows(segments.last(), &reader, &strays)?;
                segments.push(reader);
            }
            Opened::Stray(fault) => strays.push((number, fault)),
        }
    }
    check_coverage(&segments, &strays, anchor)?;
    segments.iter().try_for_each(|reader| check_catalog(reader.head(), anchor))?;
    if !options.read_only {
        for number in strays.into_iter().map(|(number, _)| number).chain(below) {
            remove(dir, number)?;
        }
    }
    Ok(segments)
}

/// Removes what an interrupted creation left: at most the first segment, without a record.
fn remove_unused(
    dir: &dyn Dir,
    numbers: &[u64],
    options: &LogOptions,
    anchor: &Anchor,
    whole: Option<[u8; 16]>,
) -> Result<Vec<SegmentReader>> {
    for number in numbers {
        let used = match open_segment(dir, *number, options, anchor, whole)? {
            Opened::Segment(mut reader) => {
                check_catalog(reader.head(), anchor)?;
                reader.record_at(SegmentReader::first_offset())?.is_some()
            }
            Opened::Stray(_) => false,
        };
        if used || *number > 1 {
            let name = segment::display_name(*number);
            let what = "the log was in use, the catalog is that of a new database";
            return Err(Error::corruption(name, 0, what));
        }
    }
    if !options.read_only {
        numbers.iter().try_for_each(|number| remove(dir, *number))?;
    }
    Ok(Vec::new())
}

/// Refuses a log that was told of an edit that the catalog does not have.
fn check_catalog(head: &segment::Head, anchor: &Anchor) -> Result<()> {
    if head.catalog <= anchor.catalog {
        return Ok(());
    }
    let what = format!(
        "it is an older copy: it has {} edits, {} was told of {}",
        anchor.catalog,
        segment::display_name(head.number),
        head.catalog
    );
    Err(Error::corruption("catalog", 0, what))
}

enum Opened {
    Segment(SegmentReader),
    /// Not in use: never completed, or pruned and about to be made again.
    Stray(Error),
}

fn open_segment(
    dir: &dyn Dir,
    number: u64,
    options: &LogOptions,
    anchor: &Anchor,
    whole: Option<[u8; 16]>,
) -> Result<Opened> {
    let name = segment::display_name(number);
    let how = if options.read_only { Open::READ } else { Open::WRITE };
    let file = dir
        .open(&segment::file_name(number), how)
        .map_err(|error| Error::io(format!("open {name}"), error))?;
    let mut reader = SegmentReader::open(Arc::clone(&file), &name);
    if reader.as_ref().map_or(true, |reader| Some(reader.head().boot_id) != whole) {
        let _ = file.drop_cache();
        reader = SegmentReader::open(file, &name);
    }
    match reader {
        Ok(reader) if reader.head().database_id != anchor.database_id => {
            Err(Error::corruption(name, 16, "the segment belongs to another database"))
        }
        Ok(reader) if reader.head().number != number => Ok(Opened::Stray(Error::corruption(
            name,
            32,
            format!("the head says segment {}", reader.head().number),
        ))),
        Ok(reader) => Ok(Opened::Segment(reader)),
        Err(fault @ Error::Corruption { .. }) => Ok(Opened::Stray(fault)),
        Err(error) => Err(error),
    }
}

/// Refuses a gap between two segments.
fn check_follows(
    last: Option<&SegmentReader>,
    reader: &SegmentReader,
    strays: &[(u64, Error)],
) -> Result<()> {
    let Some(last) = last else { return Ok(()) };
    let wanted = (last.head().number + 1, last.head().end());
    if wanted == (reader.head().number, reader.head().base) {
        return Ok(());
    }
    if let Some((_, fault)) = strays.iter().find(|(number, _)| *number == wanted.0) {
        return Err(fault.clone());
    }
    Err(Error::corruption(
        segment::display_name(reader.head().number),
        40,
        format!("segment {} with base {} should come here", wanted.0, wanted.1),
    ))
}

/// Whether the segments cover what the catalog says must be there. A file that does not parse is a
/// mere stray only if nothing durable can lie in it: a segment is made durable before its first
/// record.
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
        "segments are missing: the catalog needs LSN {} to {}",
        anchor.start, anchor.durable
    );
    Err(Error::corruption("log", 0, what))
}

fn remove(dir: &dyn Dir, number: u64) -> Result<()> {
    let name = segment::file_name(number);
    dir.remove(&name).map_err(|error| Error::io(format!("remove log/{name}"), error))
}

/// A filler to write into a segment: from an offset up to another.
struct Mend {
    number: u64,
    offset: u64,
    end: u64,
}

struct Scan<'a> {
    anchor: &'a Anchor,
    /// Segments made under this boot have their page cache whole; `None` after a failed sync.
    whole: Option<[u8; 16]>,
    durable: Lsn,
    mends: Vec<Mend>,
}

impl Scan<'_> {
    /// Whether what was written to the segment is all there, synced or not.
    fn has_whole_cache(&self, head: &segment::Head) -> bool {
        self.whole == Some(head.boot_id)
    }

    /// Offset at and behind which no record begins in a segment. A recycled one is full of old
    /// records, and to find that none of them counts takes as long as replaying new ones.
    fn reach(&self, head: &segment::Head) -> u64 {
        if !self.has_whole_cache(head) {
            head.capacity
        } else if head.was_never_used() && head.base >= self.anchor.durable {
            0
        } else {
            head.reach
        }
    }

    /// Replays one segment. Returns the offset at which the log ends, or `None` where it goes on
    /// in the next.
    fn segment(
        &mut self,
        reader: &mut SegmentReader,
        later: &mut [SegmentReader],
        replay: &mut Replay<'_>,
    ) -> Result<Option<u64>> {
        let mut offset = SegmentReader::first_offset();
        while reader.has_room(offset) {
            if let Some(found) = reader.record_at(offset)? {
                self.replay(reader, &found, replay)?;
                offset += found.size;
            } else if let Some(next) = self.invalid_place(reader, later, offset)? {
                offset = next;
            } else {
                return Ok(Some(offset));
            }
        }
        // The last segment may be full to the last byte.
        Ok(later.is_empty().then_some(offset))
    }

    fn replay(
        &mut self,
        reader: &mut SegmentReader,
        found: &Found,
        replay: &mut Replay<'_>,
    ) -> Result<()> {
        self.durable = self.durable.max(found.durable);
        let late = u64::from(mutant::active(Bug::LogReplaysOneTooLate));
        if found.kind == Kind::Commit && found.lsn.0 >= self.anchor.start.0 + late * found.size {
            if mutant::active(Bug::LogReplaysOneTooFew)
                && reader.record_at(found.offset + found.size)?.is_none()
            {
                return Ok(());
            }
            replay(found.lsn, reader.body(found)?)?;
        }
        Ok(())
    }

    /// Judges a place that holds no record: where to go on, or `None` for the end of the log.
    fn invalid_place(
        &mut self,
        reader: &mut SegmentReader,
        later: &mut [SegmentReader],
        offset: u64,
    ) -> Result<Option<u64>> {
        let head = *reader.head();
        let lsn = Lsn(head.base.0 + offset);
        let whole_cache = self.has_whole_cache(&head);
        if whole_cache && !head.in_use && lsn >= self.anchor.durable {
            return Ok(None); // Closed cleanly, or never used: nothing follows.
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
        }
        let refused = watermark > lsn || mutant::active(Bug::LogRefusesTornTail);
        if refused && !mutant::active(Bug::LogCutsDamage) {
            return Err(Error::corruption(
                segment::display_name(head.number),
                offset,
                format!("no valid record at LSN {lsn}, but the log was durable to {watermark}"),
            ));
        }
        let whole_cache = (whole_cache || mutant::active(Bug::LogStepsOverHolesAfterReboot))
            && !mutant::active(Bug::LogStopsAtHoleAfterKill);
        let end = match (whole_cache, next) {
            (true, Some(found)) => found.offset,
            (true, None) if follows => head.capacity,
            _ => return Ok(None),
        };
        self.mends.push(Mend { number: head.number, offset, end });
        Ok(Some(end))
    }

    /// Whether the log ends in a segment that it never went on in. Its making may have failed, and
    /// what is cached of it need not be on the disk: it is made again.
    fn ends_unused(&self, segments: &[SegmentReader], tail: Option<(u64, u64)>) -> bool {
        let empty = tail.is_some_and(|(_, offset)| offset == SegmentReader::first_offset());
        let unknown = segments.last().is_some_and(|last| {
            last.head().was_never_used() && self.anchor.durable <= last.head().base
        });
        empty && unknown && segments.len() > 1
    }

    /// Mends the files and says where the log goes on. `tail` is the segment and offset where it
    /// ends.
    fn finish(
        mut self,
        dir: &dyn Dir,
        options: &LogOptions,
        mut segments: Vec<SegmentReader>,
        tail: Option<(u64, u64)>,
    ) -> Result<Recovered> {
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
        let mut recovered =
            Recovered { sealed: Vec::new(), current: None, next, end, durable: self.durable };
        let whole = segments.last().is_some_and(|last| self.has_whole_cache(last.head()));
        if !options.read_only {
            if let (Some((number, offset)), Some(last), false) = (tail, segments.last(), whole) {
                self.mends.push(Mend { number, offset, end: last.head().capacity });
            }
            // A segment of the same kernel may have been made and not yet named durably.
            let unsure = segments.last().is_some_and(|last| last.head().base >= self.durable);
            // Before the fillers: once the last segment is filled, the next one counts as its
            // sequel.
            remove_past_tail(dir, &after, unsure)?;
            write_fillers(&segments, &self.mends, !whole)?;
            // Where the cache is whole, the log's first sync covers what recovery wrote. Should
            // that one fail, the log notes it by a store into its mapping, which needs no disk.
            if !whole {
                recovered.end = recovered.next.1;
                recovered.durable = recovered.end;
            } else if let Some((_, offset)) = tail
                && let Some(reader) = segments.pop()
            {
                let file = Arc::clone(reader.file());
                // Recovery read it with large cached pages, which a store would dirty whole.
                let _ = file.drop_cache();
                recovered.current = Some(Segment::open(*reader.head(), file, offset)?);
            }
        }
        recovered.sealed = segments
            .into_iter()
            .map(|reader| Sealed { head: *reader.head(), file: Arc::clone(reader.file()) })
            .collect();
        Ok(recovered)
    }
}

/// Removes what lies past the tail: a spare that was never used, or what is cut. That is durable
/// on return, as are the names of the segments kept (`sync_names`, or because something was
/// removed).
fn remove_past_tail(dir: &dyn Dir, after: &[SegmentReader], sync_names: bool) -> Result<()> {
    let sync = || dir.sync().map_err(|error| Error::io("sync log", error));
    // From the last on, one by one: whatever a crash leaves has no gap.
    for reader in after.iter().rev() {
        remove(dir, reader.head().number)?;
        sync()?;
    }
    if after.is_empty() && sync_names { sync() } else { Ok(()) }
}

/// Covers holes and the cut tail. With `sync` that is durable on return; without, the log's first
/// sync makes it so, before anything after it is acknowledged.
fn write_fillers(segments: &[SegmentReader], mends: &[Mend], sync: bool) -> Result<()> {
    for reader in segments {
        let head = reader.head();
        let failed = |doing: &str, error| {
            Error::io(format!("{doing} {}", segment::display_name(head.number)), error)
        };
        for mend in mends.iter().filter(|mend| mend.number == head.number) {
            let size = mend.end - mend.offset;
            if size < record::RECORD_BYTES_MIN {
                continue; // Too small for a record: readers stop there by themselves.
            }
            let lsn = Lsn(head.base.0 + mend.offset);
            let filler = record::Head::filler(lsn, size, Lsn(0)).encode(head.salt()).to_bytes();
            io::write_all_at(&**reader.file(), &filler, mend.offset)
                .map_err(|error| failed("write", error))?;
        }
        if sync && !mutant::active(Bug::LogLeavesFillersUnsynced) {
            reader.file().sync_data().map_err(|error| {
                // The next recovery reads what is on the disk, not what this one wrote into the
                // cache.
                segment::note_failed(&**reader.file());
                failed("sync", error)
            })?;
        }
    }
    Ok(())
}
