//! Merged scans of memtables and index in one direction.
//!
//! The memtables are newer: of two entries of one key, theirs is current.

use std::cmp::Ordering;

use super::index_scan::IndexScan;
use crate::{
    Result,
    contract::{OwnedValue, Value, Visit},
    engine::slm::table::SlmTable,
    lsm::{
        cursor::merge::{Direction, MemtableCursor, MergeCursor},
        range::{RangeStep, TombstoneRun},
    },
    util::mutant::mutant,
};

/// A merged scan of memtables and index in one direction.
#[derive(Debug)]
pub(crate) struct MergedScan {
    /// The memtables, merged.
    pub(super) memory: MergeCursor<MemtableCursor>,
    /// The entries that the index points to.
    pub(super) stored: IndexScan,
}

/// The source of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextSource {
    Memory,
    /// Memory; the index has an older entry of the same key.
    Both,
    Stored,
}

impl MergedScan {
    /// Returns the source of the next entry in key order. `index_key` keeps the key in memory as
    /// the index would store it, and is filled if it is empty.
    fn next(&self, index_key: &mut Vec<u8>, table: &SlmTable) -> Option<NextSource> {
        let (Some(memory), Some(stored)) = (self.memory.key(), self.stored.index_key()) else {
            let memory = self.memory.key().map(|_| NextSource::Memory);
            return memory.or(self.stored.index_key().map(|_| NextSource::Stored));
        };
        if index_key.is_empty() {
            table.keys.push(memory, index_key);
        }
        Some(match stored.0.cmp(index_key) {
            Ordering::Less => NextSource::Stored,
            Ordering::Equal => NextSource::Both,
            Ordering::Greater => NextSource::Memory,
        })
    }

    /// Returns the next user key, and whether memory has it.
    pub(super) fn next_user_key(
        &mut self,
        direction: Direction,
        table: &SlmTable,
    ) -> Result<Option<(&[u8], bool)>> {
        self.stored.restore(table)?;
        Ok(match (self.memory.key(), self.stored.key()) {
            (Some(memory), Some(stored)) => {
                let is_memory = match direction {
                    Direction::Up => memory <= stored,
                    Direction::Down => memory >= stored,
                };
                Some(if is_memory { (memory, true) } else { (stored, false) })
            }
            (Some(memory), None) => Some((memory, true)),
            (None, Some(stored)) => Some((stored, false)),
            (None, None) => None,
        })
    }

    /// Passes the entries below `end` to `each`, until it breaks or the scan must pause.
    pub(super) fn visit(
        &mut self,
        end: Option<&[u8]>,
        run: &mut TombstoneRun<'_>,
        table: &SlmTable,
        each: Visit<'_>,
    ) -> Result<RangeStep<()>> {
        let (mut value, mut index_key) = (Vec::new(), Vec::new());
        while let Some(next) = self.next(&mut index_key, table) {
            // The index scan has the bound already.
            let is_over = |key: &[u8]| end.is_some_and(|end| key >= end);
            if next != NextSource::Stored && self.memory.key().is_some_and(is_over) {
                return Ok(RangeStep::End);
            }
            let flow = if next == NextSource::Stored {
                self.end_run(run, table)?;
                let flow = self.stored.visit_entry(table, &mut value, each)?;
                self.stored.advance(table)?;
                flow
            } else {
                let key = self.memory.key().unwrap_or(&[]);
                let flow = match self.memory.value() {
                    Some(value) => {
                        run.end_at(key);
                        Some(each(key, value)?)
                    }
                    None if run.pass(key) => return Ok(RangeStep::Paused),
                    None => None,
                };
                if mutant!(SlmRangeShowsBoth: false, else next == NextSource::Both) {
                    self.stored.advance(table)?;
                }
                self.memory.advance()?;
                index_key.clear();
                flow
            };
            if flow.is_some_and(|flow| flow.is_break()) {
                return Ok(RangeStep::Found(()));
            }
        }
        Ok(RangeStep::End)
    }

    /// Ends the run of deleted keys at the current entry of the index. Decodes its key only if
    /// there is a run.
    fn end_run(&mut self, run: &mut TombstoneRun<'_>, table: &SlmTable) -> Result<()> {
        if run.is_open() {
            self.stored.restore(table)?;
        }
        run.end_at(self.stored.key().unwrap_or(&[]));
        Ok(())
    }

    /// Returns the value of the next key, if it has one, and advances.
    pub(super) fn take(
        &mut self,
        (key, is_memory): (&[u8], bool),
        table: &SlmTable,
    ) -> Result<Option<Value>> {
        if !is_memory {
            let value = self.stored.value(table, &mut OwnedValue)?;
            self.stored.advance(table)?;
            return Ok(value);
        }
        let value = self.memory.value().map(Value::copy);
        let is_stored = self.stored.key() == Some(key);
        if mutant!(SlmRangeShowsBoth: false, else is_stored) {
            self.stored.advance(table)?;
        }
        self.memory.advance()?;
        Ok(value)
    }
}
