//! Merging news into a table: the four cases.
//!
//! A walk over the news (the delta) and all SSTs of the table (the base) in key order sees each
//! key with everyone who has it:
//!
//! | has the key | what happens |
//! |---|---|
//! | nobody | nothing: it does not come by |
//! | the delta alone | the entry goes to the new SST |
//! | delta and base | the delta's goes to the new SST; the base's is dead |
//! | the base alone | it stays where it is; or, where its SST is collected, goes to the new SST
//! |
//!
//! The new SST gets the index of the whole table. SSTs without live entries leave the table.
//! Where all SSTs are rewritten, the table can be cut into several.
//!
//! Invariants: of a key with entries in SSTs that stay, the newest is in the index, be it a
//! tombstone. A tombstone goes when no SST that stays and no deeper level can have its key. An
//! expired entry counts as a tombstone.
//!
//! Of an SST that stays, only the keys are read ([`crate::lsm::sst::key_section`]), where it keeps
//! them apart.
//!
//! How we differ from the paper: keys come by in order, so that no array of slots is needed; they
//! are compared whole.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Inner,
    cursor::{MergeCursor, Source},
    index::{Collision, Index},
    options::TphSettings,
    publish::Fresh,
    table::{SstUse, Table},
};
use crate::{
    Error, Result,
    engine::tph::perfect_hash::Options,
    io::{Array, Flow},
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{Direction, ReadAheadSizes, ScanStart, SstCursor},
        sst::{
            Sst, SstShape, SstWriter,
            block::{self, EntryRef},
            key_section::KeyCursor,
        },
    },
    util::{
        codec::{low_u32, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{Ordering, lock},
    },
};

/// What is merged into: a table, or nothing yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    pub(super) low: Vec<u8>,
    pub(super) uses: Vec<SstUse>,
}

impl From<&Table> for Base {
    fn from(table: &Table) -> Self {
        Self { low: table.low.clone(), uses: table.uses.clone() }
    }
}

/// How.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// For each SST of the base: whether its live entries go to the new SST.
    pub(super) rewrite: Vec<bool>,
    /// A deeper level may have what a tombstone hides.
    pub(super) deeper: bool,
    /// Where new tables begin. Only where all SSTs are rewritten.
    pub(super) cut: Option<Cut>,
    /// The news are memtables on their way to level 0: nothing holds them up.
    pub(super) is_flush: bool,
}

/// Into what a table is cut.
///
/// Into halves of a full table, not into full ones: each of those would soon be rewritten again.
/// Evenly, because a small rest costs a level as much as any other table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Of keys and values, and entries, after which a new table begins.
    bytes: u64,
    entries: u64,
    /// Bytes of the table that is cut, where it has any.
    whole: Option<u64>,
}

impl Cut {
    pub(super) fn evenly(table: &Table, settings: &TphSettings) -> Self {
        let bytes = table.live_bytes();
        let parts = (table.fullness(settings) + 25) / 50;
        if parts == 0 {
            let (bytes, entries) = (settings.table_bytes / 2, settings.table_entries / 2);
            return Self { bytes, entries, whole: None };
        }
        Self { bytes: bytes / parts, entries: u64::MAX, whole: Some(bytes) }
    }

    /// Whether a table with so much is enough, and what is left for the next one.
    fn is_due(&self, (entries, bytes): (u64, u64), done_bytes: u64) -> bool {
        let left = self.whole.map_or(self.bytes, |all| all.saturating_sub(done_bytes + bytes));
        let is_full = bytes >= self.bytes || entries >= self.entries;
        // What is merged into the table comes on top, and may be more than all of it.
        is_full && left >= self.bytes / 2 || bytes / 2 >= self.bytes
    }
}

/// Bytes of entries after which a merge looks at its rate, and whether a flush is waiting.
const STEP_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };

/// What the walks of one merge read at once is this part of the memory budget; each of them at
/// least so many bytes.
const AHEAD_PART: u64 = 64;
const AHEAD_MIN: u64 = 64 << 10;

/// Merges that take more than this part of the memory that indexes leave go one after the other.
const WORK_SHARE: u64 = 6;

/// In a place: the SST (0: the new one, else one more than its number in the base) above, the
/// block below.
const PIECE_SHIFT: u32 = 32;

/// A table in the making.
#[derive(Debug)]
struct Draft {
    low: Vec<u8>,
    writer: Option<SstWriter>,
    /// Hash and place of each key.
    places: Array<(u64, u64)>,
    /// Of the new SST and of each of the base: live entries, and bytes of keys and values.
    live: Vec<(u64, u64)>,
    tombstones: u64,
    flow: Flow,
}

impl Draft {
    fn new(low: Vec<u8>, ssts: usize, flow: &Flow) -> Self {
        let (live, flow) = (vec![(0, 0); ssts + 1], flow.clone());
        Self { low, writer: None, places: Array::new(), live, tombstones: 0, flow }
    }

    /// Notes an entry of an SST (0: the new one); a tombstone has no value.
    fn note(
        &mut self,
        (hash, key): (u64, &[u8]),
        (sst, block): (usize, u32),
        value_bytes: Option<u64>,
    ) {
        self.places.push((hash, to_u64(sst) << PIECE_SHIFT | u64::from(block)));
        if let Some((entries, bytes)) = self.live.get_mut(sst) {
            *entries += 1 + u64::from(sst > 0 && mutant::active(Bug::TphMiscountsLive));
            *bytes += to_u64(key.len()) + value_bytes.unwrap_or(0);
        }
        self.tombstones += u64::from(value_bytes.is_none());
    }

    /// Entries of the new SST, and bytes of their keys and values.
    fn written(&self) -> (u64, u64) {
        self.live.first().copied().unwrap_or_default()
    }
}

impl Inner {
    /// Merges `delta`, newest first, into `base`; the tables that come of it. Nothing is published.
    pub(super) fn merge_table(
        &self,
        base: &Base,
        delta: Vec<Source>,
        plan: &Plan,
        fresh: &Fresh<'_>,
    ) -> Result<Vec<Table>> {
        let live: u64 = base.uses.iter().map(|one| one.live).sum();
        let news = delta.len();
        let walks = news + base.uses.len();
        let ahead = self.ahead(walks);
        // Of each walk, one read is passed over while the next one is under way.
        let work_bytes = self.work_bytes(live + live / 8) + ahead.most() * 2 * to_u64(walks);
        // Where indexes leave little memory, writers need some of it too.
        let is_large = work_bytes * WORK_SHARE > self.front.work_memory_bytes() && !plan.is_flush;
        let _turn = is_large.then(|| lock(&self.large_merge));
        let _memory = self.context.budget.reserve_transient(work_bytes);
        self.make_space();
        let flow = self.queues.flow(&*self.context.env)?;
        let start = ScanStart::up(None).with(&flow);
        let mut read = 0;
        let mut old = Vec::new();
        for (one, rewrite) in base.uses.iter().zip(&plan.rewrite) {
            let keys = if *rewrite { None } else { KeyCursor::new(&one.sst, ahead.most(), &flow) };
            if let Some(cursor) = keys {
                read += one.sst.footer.keys.bytes;
                old.push(Source::Keys(Box::new(cursor)));
            } else {
                read += one.sst.data_bytes();
                let sst = Arc::clone(&one.sst);
                old.push(Source::Sst(Box::new(SstCursor::new(sst, start.clone(), ahead))));
            }
        }
        let mut merge = MergeCursor::new(delta.into_iter().chain(old).collect(), Direction::Up);
        merge.load_first()?;
        let mut tables = Vec::new();
        let mut draft = Draft::new(base.low.clone(), base.uses.len(), &flow);
        // Not by doubling: that takes three times as much for a moment. The news are few, mostly.
        draft.places.reserve(to_usize(live + live / 8));
        let (mut step_bytes, mut done_bytes) = (0, 0);
        while let Some(key) = merge.key() {
            let hash = self.hash(key);
            step_bytes += key.len() + merge.value().map_or(0, <[u8]>::len);
            if step_bytes >= STEP_BYTES && !plan.is_flush {
                self.pace_merge(to_u64(std::mem::take(&mut step_bytes)));
                self.flush_within();
            }
            if plan.cut.is_some_and(|cut| cut.is_due(draft.written(), done_bytes)) {
                done_bytes += draft.written().1;
                let next = Draft::new(key.to_vec(), base.uses.len(), &flow);
                let done = std::mem::replace(&mut draft, next);
                tables.push(self.finish_draft(done, base, plan, fresh)?);
            }
            self.take_entry(&merge, (news, hash), plan, &mut draft, fresh)?;
            merge.advance()?;
        }
        tables.push(self.finish_draft(draft, base, plan, fresh)?);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        self.counters.merge_read_bytes.fetch_add(read, Ordering::Relaxed);
        Ok(tables)
    }

    /// How much each of so many walks of a merge reads at once: all merges together stay within a
    /// small part of the budget.
    pub(super) fn ahead(&self, walks: usize) -> ReadAheadSizes {
        let share = self.context.budget.limit() / AHEAD_PART / to_u64(walks.max(1));
        ReadAheadSizes::bounded(share.max(AHEAD_MIN))
    }

    /// Flushes what waits for it: a merge takes long, and memtables fill meanwhile.
    fn flush_within(&self) {
        let is_waiting = || self.front.is_flush_due(&self.front.view.load());
        // A flat table's flush waits for the merge.
        if self.settings.is_flat() || !is_waiting() {
            return;
        }
        if !self.flush_within.swap(true, Ordering::Acquire) {
            // Should it fail, so will the next persist, which says so.
            let _ = self.flush_backlog();
            self.flush_within.store(false, Ordering::Release);
        }
    }

    /// One key: see the module head.
    fn take_entry(
        &self,
        merge: &MergeCursor,
        (news, hash): (usize, u64),
        plan: &Plan,
        draft: &mut Draft,
        fresh: &Fresh<'_>,
    ) -> Result<()> {
        let (Some(current), Some(key)) = (merge.current(), merge.key()) else { return Ok(()) };
        let stays = |sst: usize| plan.rewrite.get(sst).is_some_and(|rewrite| !rewrite);
        if let Some(sst) = current.checked_sub(news).filter(|sst| stays(*sst)) {
            let place = merge.sources.get(current).map(Source::place);
            let (block, value_bytes) = place.unwrap_or_default();
            draft.note((hash, key), (sst + 1, block), value_bytes);
            return Ok(());
        }
        let value = merge.value().filter(|value| !self.context.host.is_expired(value));
        if value.is_none() {
            let older = (current + 1).max(news)..merge.sources.len();
            let held = older.into_iter().any(|one| stays(one - news) && merge.has_key(one));
            let needed = held || plan.deeper;
            if !needed || mutant::active(Bug::TphDropsTombstonesEarly) {
                return Ok(());
            }
        }
        let writer = self.writer_of(draft, plan, fresh)?;
        let (block, _) = writer.add(key, value, CacheAdmission::IfFree)?;
        draft.note((hash, key), (0, block), value.map(|value| to_u64(value.len())));
        Ok(())
    }

    fn writer_of<'a>(
        &self,
        draft: &'a mut Draft,
        plan: &Plan,
        fresh: &Fresh<'_>,
    ) -> Result<&'a mut SstWriter> {
        if draft.writer.is_none() {
            let number = fresh.next();
            // A table of level 0 is merged once, and whole.
            let shape = SstShape { keys: !plan.is_flush, ..self.settings.shape };
            let writer = SstWriter::create(&self.owner, number, shape, (&self.cache, &draft.flow))?;
            draft.writer = Some(writer);
        }
        let missing = || Error::Limit { what: "a piece has no writer".to_owned() };
        draft.writer.as_mut().ok_or_else(missing)
    }

    fn finish_draft(
        &self,
        mut draft: Draft,
        base: &Base,
        plan: &Plan,
        fresh: &Fresh<'_>,
    ) -> Result<Table> {
        if draft.places.is_empty() {
            return Ok(Table { low: draft.low, ..Table::default() });
        }
        self.writer_of(&mut draft, plan, fresh)?;
        let Draft { low, writer, mut places, live, tombstones, flow: _flow } = draft;
        let missing = || Error::Limit { what: "a piece has no writer".to_owned() };
        let mut writer = writer.ok_or_else(missing)?;
        places.sort_unstable();
        let blocks = writer.end_blocks()?;
        // SSTs that stay, with the number of their first block in the table.
        let mut kept = Vec::new();
        let mut first = vec![0_u32; base.uses.len() + 1];
        let mut next = u64::from(blocks);
        for (place, one) in base.uses.iter().enumerate() {
            let (entries, bytes) = live.get(place + 1).copied().unwrap_or_default();
            let stays = plan.rewrite.get(place).is_some_and(|rewrite| !rewrite);
            let is_dropped = place == 0 && mutant::active(Bug::TphDropsLivePiece);
            if !stays || entries == 0 || is_dropped {
                continue;
            }
            if let Some(first) = first.get_mut(place + 1) {
                *first = low_u32(next);
            }
            next += u64::from(one.blocks);
            kept.push(SstUse { live: entries, live_bytes: bytes, ..one.clone() });
        }
        if next >= u64::from(u32::MAX) {
            return Err(Error::Limit { what: "a table exceeds 2^32 blocks".to_owned() });
        }
        let number = |place: u64| {
            let first = first.get(to_usize(place >> PIECE_SHIFT)).copied().unwrap_or(0);
            first + low_u32(place)
        };
        let collisions = self.collisions(&places, base, &mut writer, number)?;
        for (_, place) in &mut *places {
            *place = u64::from(number(*place));
        }
        let tag_bits = self.settings.tag_bits;
        let options = Options { method: self.settings.hash, ..Options::default() };
        let index = Index::build(&places, collisions, tag_bits, &options)?;
        drop(places);
        let sst = Arc::new(writer.finish(index.encode())?);
        self.note_written(&sst);
        let mut uses = vec![SstUse::new(sst, live.first().copied().unwrap_or_default())];
        uses.extend(kept);
        let gone = to_u64(base.uses.len() + 1 - uses.len());
        self.counters.collected.fetch_add(gone, Ordering::Relaxed);
        Ok(Table { low, uses, tombstones, index: Some(index) })
    }

    /// Keys whose hash another key of the table has too: read back from their blocks.
    fn collisions(
        &self,
        places: &[(u64, u64)],
        base: &Base,
        writer: &mut SstWriter,
        number: impl Fn(u64) -> u32,
    ) -> Result<Vec<Collision>> {
        let mut found = Vec::new();
        if mutant::active(Bug::TphForgetsCollisions) {
            return Ok(found);
        }
        for group in places.chunk_by(|one, next| one.0 == next.0) {
            let [(hash, _), _, ..] = group else { continue };
            // By key, the place in the newest SST.
            let mut newest: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for (_, place) in group {
                let entries = match to_usize(place >> PIECE_SHIFT).checked_sub(1) {
                    None => writer.reader()?.entries(low_u32(*place))?,
                    Some(sst) => match base.uses.get(sst) {
                        Some(one) => block_of(&one.sst, low_u32(*place))?,
                        None => Vec::new(),
                    },
                };
                for key in keys_of(&entries) {
                    if self.hash(key) == *hash {
                        newest.entry(key.to_vec()).or_insert(*place);
                    }
                }
            }
            let collision = |(key, place)| Collision { hash: *hash, key, block: number(place) };
            found.extend(newest.into_iter().map(collision));
        }
        Ok(found)
    }
}

/// The entries of a block.
pub(super) fn block_of(sst: &Sst, number: u32) -> Result<Vec<u8>> {
    let span = sst.span(number..number + 1);
    let buffer = sst.read(span)?;
    let open = sst.open_block(&buffer, span, (number, number))?;
    Ok(open.entries().to_vec())
}

fn keys_of(entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (EntryRef { key, .. }, next) = block::entry_at(entries, at)?;
        at = next;
        entries.get(key)
    })
}
