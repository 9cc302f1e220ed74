//! Replay as writes: what is left of the log when replay has stopped for lack of memory.
//!
//! Problem: the log may hold more than fits in memory, and its operations are in the order of their
//! arrival. An engine that applies them in that order with few pages in memory reads and writes a
//! page for nearly each operation.
//!
//! How: a window collects operations, up to an eighth of the budget. They are sorted by table and
//! key, or by the key's hash if the engine has no order, and then applied. So operations on one
//! page follow each other. Before each operation the engine makes room in memory. The log is open,
//! so engines may write to their files what depends on it. Checkpoint rounds between two windows
//! free the log that is replayed ([`super::replay_rounds`]).
//!
//! Invariants: the sort is stable, so operations on one key stay in the order of the log. A record
//! with an operation that is not on one short key is applied alone, after everything before it.
//!
//! Threads: the opening thread alone.

use std::ops::Range;

use super::{
    replay::{apply_op, find, is_on_short_key, open_for, replay_record},
    replay_rounds::ReplayRounds,
    target::ReplayTarget,
};
use crate::{
    Result,
    contract::Op,
    db::{
        encoding::operations::Ops,
        tables::state::{BY_PLACE_OPS_MAX, TableState, sort_by_place},
    },
    util::{
        budget::Budget,
        codec::{Lsn, to_usize},
    },
    wal::Log,
};

/// A window has at most the budget divided by this, within these bounds in bytes.
const WINDOW_SHARE: u64 = 8;
const WINDOW_BYTES_MIN: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// Replays the rest of an open log, from the record at `start` on.
pub(super) fn replay_as_writes(
    target: &ReplayTarget<'_>,
    budget: &Budget,
    (log, start): (&Log, Lsn),
    rounds: ReplayRounds<'_, '_>,
) -> Result<()> {
    let bytes_max = (budget.limit() / WINDOW_SHARE).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    let mut window = ReplayWindow {
        target,
        rounds,
        bytes_max: to_usize(bytes_max),
        bytes: Vec::new(),
        records: Vec::new(),
    };
    log.read_from(start, &mut |lsn, body| window.push(lsn, body))?;
    window.apply()
}

/// Records that are applied together.
struct ReplayWindow<'t, 'a> {
    target: &'t ReplayTarget<'a>,
    rounds: ReplayRounds<'t, 'a>,
    bytes_max: usize,
    /// The bodies, back to back.
    bytes: Vec<u8>,
    records: Vec<(Lsn, Range<usize>)>,
}

impl ReplayWindow<'_, '_> {
    /// Adds a record, or applies it if it must be applied alone.
    fn push(&mut self, lsn: Lsn, body: &[u8]) -> Result<()> {
        if self.rounds.is_due(lsn) {
            self.apply()?;
            self.rounds.run(lsn)?;
        }
        let is_full = self.bytes.len() + body.len() > self.bytes_max;
        if is_full || self.records.len() >= BY_PLACE_OPS_MAX {
            self.apply()?;
        }
        let is_sortable = Ops::new(body).all(is_on_short_key);
        if !is_sortable {
            self.apply()?;
            return replay_record(self.target, lsn, body);
        }
        if body.len() > self.bytes_max {
            return apply_record(self.target, lsn, body);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(body);
        self.records.push((lsn, start..self.bytes.len()));
        Ok(())
    }

    /// Applies the operations of all records.
    fn apply(&mut self) -> Result<()> {
        let mut window = OpWindow { target: self.target, ops: Vec::new() };
        for (lsn, range) in self.records.drain(..) {
            let body = self.bytes.get(range).unwrap_or(&[]);
            for (id, op) in Ops::new(body).flatten() {
                window.push(lsn, id, op)?;
            }
        }
        window.apply()?;
        drop(window);
        self.bytes.clear();
        Ok(())
    }
}

/// Applies a record that is larger than a window.
fn apply_record(target: &ReplayTarget<'_>, lsn: Lsn, body: &[u8]) -> Result<()> {
    let mut window = OpWindow { target, ops: Vec::new() };
    for (id, op) in Ops::new(body).flatten() {
        window.push(lsn, id, op)?;
    }
    window.apply()
}

/// Operations to be sorted.
struct OpWindow<'t, 'a, 'b> {
    target: &'t ReplayTarget<'a>,
    ops: Vec<(Lsn, &'t TableState, Op<'b>)>,
}

impl<'b> OpWindow<'_, '_, 'b> {
    fn push(&mut self, lsn: Lsn, id: u64, op: Op<'b>) -> Result<()> {
        if let Some(table) = find(self.target, lsn, id)?
            && let Some(table) = open_for(self.target, table, lsn, &op)?
        {
            self.ops.push((lsn, table, op));
        }
        if self.ops.len() < BY_PLACE_OPS_MAX { Ok(()) } else { self.apply() }
    }

    fn apply(&mut self) -> Result<()> {
        sort_by_place(&mut self.ops, |(_, table, op)| (table, *op));
        for (lsn, table, op) in self.ops.drain(..) {
            if apply_op(self.target, table, lsn, &op)? {
                table.record_applied(Lsn(lsn.0 + 1));
            }
        }
        Ok(())
    }
}
