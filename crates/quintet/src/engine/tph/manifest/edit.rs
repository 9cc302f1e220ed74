//! Edits: the difference between two versions, and its encoding.
//!
//! The body of an edit:
//!
//! | part | meaning |
//! |---|---|
//! | complete | 8 bytes: LSN below which the files have every effect |
//! | next SST | varint: number of the next SST |
//! | fan-out | varint: tables of level 1 in hash ranges, 0 in key ranges |
//! | levels | varint count; each: varint number of steps, and the steps in order |
//! | a step | varint kind: 0 `keep`, 1 `skip` (varint: how many of the tables of the version before), 2 `add` (a table) |
//! | a table | lower bound (varint length, bytes), varint tombstones, varint number of SSTs, and these from the newest on: varints number, file bytes, live entries, live bytes |
//!
//! Level 0 lists its tables from the newest to the oldest. The other levels list theirs by lower
//! bound; the first lower bound is empty.

use std::collections::BTreeMap;

use super::record::{LEVELS_MAX, TphTableRecord, VersionRecord};
use crate::util::codec::{Decoder, put_u64, put_varint, to_u64, to_usize};

const KEEP: u64 = 0;
const SKIP: u64 = 1;
const ADD: u64 = 2;

/// The steps that turn the tables of a level into those of the next version.
#[derive(Debug, Default)]
struct LevelEdit {
    bytes: Vec<u8>,
    count: u64,
    /// Number of tables kept since the last step.
    kept: u64,
}

impl LevelEdit {
    fn between(before: &[TphTableRecord], after: &[TphTableRecord]) -> Self {
        let indexes: BTreeMap<_, _> =
            before.iter().zip(0_usize..).map(|(table, index)| (table.id(), index)).collect();
        let (mut steps, mut next) = (Self::default(), 0);
        for table in after {
            let index = indexes.get(&table.id()).copied().filter(|index| *index >= next);
            match index.filter(|index| before.get(*index) == Some(table)) {
                Some(index) => {
                    steps.skip(to_u64(index - next));
                    steps.kept += 1;
                    next = index + 1;
                }
                None => steps.add(table),
            }
        }
        steps.end_kept();
        steps
    }

    fn put(&mut self, kind: u64, count: u64) {
        put_varint(&mut self.bytes, kind);
        put_varint(&mut self.bytes, count);
        self.count += 1;
    }

    fn end_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        if kept > 0 {
            self.put(KEEP, kept);
        }
    }

    fn skip(&mut self, count: u64) {
        if count > 0 {
            self.end_kept();
            self.put(SKIP, count);
        }
    }

    fn add(&mut self, table: &TphTableRecord) {
        self.end_kept();
        put_varint(&mut self.bytes, ADD);
        table.encode(&mut self.bytes);
        self.count += 1;
    }
}

/// Decodes the steps of a level and applies them to the tables of the previous version.
fn apply_steps(
    decoder: &mut Decoder<'_>,
    before: &[TphTableRecord],
    next_sst: u64,
) -> Option<Vec<TphTableRecord>> {
    let mut remaining = before.iter();
    let mut tables = Vec::new();
    for _ in 0..decoder.varint()? {
        let kind = decoder.varint()?;
        if kind == ADD {
            tables.push(TphTableRecord::decode(decoder, next_sst)?);
            continue;
        }
        let count = decoder.varint().filter(|count| *count <= to_u64(remaining.len()))?;
        let these = remaining.by_ref().take(to_usize(count));
        match kind {
            KEEP => tables.extend(these.cloned()),
            SKIP => these.for_each(drop),
            _ => return None,
        }
    }
    Some(tables)
}

impl VersionRecord {
    /// Encodes the body of the edit that turns `before` into `self`.
    pub(super) fn encode_edit(&self, before: &Self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.complete);
        put_varint(&mut out, self.next_sst);
        put_varint(&mut out, self.fanout);
        put_varint(&mut out, to_u64(self.levels.len()));
        for (index, level) in self.levels.iter().enumerate() {
            let before = before.levels.get(index).map_or(&[][..], Vec::as_slice);
            let steps = LevelEdit::between(before, level);
            put_varint(&mut out, steps.count);
            out.extend_from_slice(&steps.bytes);
        }
        out
    }

    /// Applies the body of an edit to `self`. Returns `None` if the body does not decode.
    pub(super) fn apply_edit(&self, body: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(body);
        let complete = decoder.u64()?;
        let (next_sst, fanout) = (decoder.varint()?, decoder.varint()?);
        let mut levels = Vec::new();
        for index in 0..to_usize(decoder.varint().filter(|count| *count <= LEVELS_MAX)?) {
            let before = self.levels.get(index).map_or(&[][..], Vec::as_slice);
            levels.push(apply_steps(&mut decoder, before, next_sst)?);
        }
        // Below level 0, the tables of a level cover all partition keys, or the level is empty.
        let covers = |level: &Vec<TphTableRecord>| {
            level.first().is_none_or(|table| table.lower_bound.is_empty())
                && level.is_sorted_by(|one, next| one.lower_bound < next.lower_bound)
        };
        let is_valid = decoder.is_empty() && levels.iter().skip(1).all(covers);
        is_valid.then_some(Self { complete, next_sst, fanout, levels })
    }
}
