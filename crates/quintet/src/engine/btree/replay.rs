//! Reads and writes while the replay buffer has entries, and the merge of these into the tree.
//!
//! Invariants: a reader looks in the buffer first. An entry is removed only after the tree has it,
//! under the lock of its shard.

use std::ops::Bound;

use super::{
    replay_buffer::{BUDGET_SHARE, BufferShard, RangeEnd},
    state::{BTreeState, make_entry, make_value},
};
use crate::{
    Error, Result,
    bptree::{
        checkpoint::CHANGE_PAGES,
        scan_forward::{EntryRun, ForwardScan},
    },
    contract::{EachValue, Entry, Op, Value, ValueSink},
    util::mutant::mutant,
};

/// Number of keys of each shard that are merged together, with their leaves read together: in the
/// background, and by a scan that meets an entry.
const MERGED_AT_ONCE: usize = 32;
const MERGED_BY_SCAN: usize = 4;

/// The content of a key's entry.
enum BufferedAnswer {
    /// The key has no entry: read the tree.
    None,
    Deleted,
    Value(Value),
}

impl BTreeState {
    /// As `get_with`, while there are entries.
    #[cold]
    pub(super) fn get_buffered<S: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut S,
    ) -> Result<Option<S::Output>> {
        match self.buffered_answer(key) {
            BufferedAnswer::Value(value) => Ok(Some(sink.of_value(value))),
            BufferedAnswer::Deleted => Ok(None),
            BufferedAnswer::None => self.paged.tree.get_with(key, sink),
        }
    }

    /// As `multi_get`, while there are entries.
    #[cold]
    pub(super) fn multi_get_buffered(
        &self,
        keys: &[&[u8]],
        out: &mut Vec<Option<Value>>,
    ) -> Result<()> {
        let start = out.len();
        out.resize_with(start + keys.len(), || None);
        self.multi_get_each_buffered(keys, &mut |number, stored| {
            if let Some(value) = out.get_mut(start + number) {
                *value = stored.map(value_of);
            }
            Ok(())
        })
    }

    /// As `multi_get_each`, while there are entries.
    #[cold]
    pub(super) fn multi_get_each_buffered(
        &self,
        keys: &[&[u8]],
        each: &mut EachValue<'_>,
    ) -> Result<()> {
        let (mut rest, mut numbers) = (Vec::new(), Vec::new());
        for (number, key) in keys.iter().enumerate() {
            match self.buffered_answer(key) {
                BufferedAnswer::Value(value) => each(number, Some(&value))?,
                BufferedAnswer::Deleted => each(number, None)?,
                BufferedAnswer::None => {
                    rest.push(*key);
                    numbers.push(number);
                }
            }
        }
        self.paged.tree.multi_get_each(&rest, &mut |index, value| {
            numbers.get(index).map_or(Ok(()), |number| each(*number, value))
        })
    }

    /// Returns the content of a key's entry.
    fn buffered_answer(&self, key: &[u8]) -> BufferedAnswer {
        mutant!(ReadPassesYoung => return BufferedAnswer::None);
        if self.replay_buffer.is_empty() {
            return BufferedAnswer::None;
        }
        let answer = |stored: Option<&[u8]>| match stored {
            Some(stored) => BufferedAnswer::Value(value_of(stored)),
            None => BufferedAnswer::Deleted,
        };
        self.replay_buffer.find(key, answer).unwrap_or(BufferedAnswer::None)
    }

    /// Replays an operation of the log that the table's files lack.
    pub(super) fn replay(&self, op: &Op<'_>) -> Result<()> {
        let (key, value) = match op {
            Op::Put { key, head, body } => {
                let shape = self.paged.tree.shape();
                if shape.is_long(key) || !shape.is_inline(key, head.len() + body.len()) {
                    return self.apply_and_remove(key, op);
                }
                (*key, Some([*head, *body]))
            }
            Op::Delete { key } => (*key, None),
            Op::DeleteRange { .. } => return Ok(()),
        };
        let hash = self.replay_buffer.hash.hash(key);
        let mut shard = self.replay_buffer.shard(hash);
        let pool = &self.replay_buffer.pool;
        if !self.replay_buffer.change(&mut shard, |shard| shard.set(pool, (hash, key), value)) {
            self.merge_shard(&mut shard)?;
            self.paged.make_room_for_logged(CHANGE_PAGES)?;
            return self.apply_entry(key, value);
        }
        let most = self.replay_buffer.budget.limit() / BUDGET_SHARE;
        if self.replay_buffer.memory_bytes() > most { self.merge_shard(&mut shard) } else { Ok(()) }
    }

    /// Merges all entries of a shard into the tree, during replay.
    fn merge_shard(&self, shard: &mut BufferShard) -> Result<()> {
        let pool = &self.replay_buffer.pool;
        self.replay_buffer.change(shard, |shard| _ = shard.key_order(pool));
        let entries: Vec<_> = shard.key_order(pool).iter().collect();
        for some in entries.chunks(MERGED_AT_ONCE) {
            self.paged.tree.load_leaves(some.iter().map(|(key, _)| &*key.bytes));
            for (key, stored) in some {
                self.paged.make_room_for_logged(CHANGE_PAGES)?;
                self.apply_entry(&key.bytes, stored.as_deref().map(|value| [value, &[]]))?;
            }
        }
        self.replay_buffer.change(shard, |shard| shard.clear(pool));
        Ok(())
    }

    /// Applies an entry to the tree. The caller has made room.
    fn apply_entry(&self, key: &[u8], stored: Option<[&[u8]; 2]>) -> Result<()> {
        let pass = self.paged.gate.enter(key);
        let tree = &self.paged.tree;
        let change = match stored {
            Some(pieces) => tree.put(key, pieces, None)?,
            None => tree.delete(key, None)?,
        };
        pass.add(change);
        Ok(())
    }

    /// Applies a put or a delete to the tree, and removes the key's entry.
    pub(super) fn apply_and_remove(&self, key: &[u8], op: &Op<'_>) -> Result<()> {
        let hash = self.replay_buffer.hash.hash(key);
        let mut shard = self.replay_buffer.shard(hash);
        self.change_one(key, op)?;
        mutant!(WriteLeavesYoung => return Ok(()));
        self.replay_buffer
            .change(&mut shard, |shard| shard.remove(&self.replay_buffer.pool, (hash, key)));
        Ok(())
    }

    /// Merges the entries of these keys into the tree.
    fn merge_keys(&self, keys: &[Box<[u8]>]) -> Result<()> {
        self.paged.tree.load_leaves(keys.iter().map(|key| &**key));
        for key in keys {
            match self.paged.make_room_to_free(CHANGE_PAGES) {
                // Reads merge too, and must not fail. They add at most what the buffer holds.
                Err(Error::DiskFull { .. }) => {}
                made => made?,
            }
            let hash = self.replay_buffer.hash.hash(key);
            let mut shard = self.replay_buffer.shard(hash);
            let apply_entry =
                |stored: Option<&[u8]>| self.apply_entry(key, stored.map(|value| [value, &[]]));
            shard.find(&self.replay_buffer.pool, (hash, key), apply_entry).transpose()?;
            self.replay_buffer
                .change(&mut shard, |shard| shard.remove(&self.replay_buffer.pool, (hash, key)));
        }
        Ok(())
    }

    /// Merges all entries into the tree.
    pub(super) fn merge_all(&self) -> Result<()> {
        self.replay_buffer.end_replay();
        self.merge_range(&[], None)
    }

    /// Merges the entries of a range into the tree.
    pub(super) fn merge_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        while !self.replay_buffer.is_empty() {
            let keys = self
                .replay_buffer
                .edge_keys(between(start, end), (RangeEnd::First, MERGED_AT_ONCE));
            if keys.is_empty() {
                break;
            }
            self.merge_keys(&keys)?;
        }
        Ok(())
    }

    /// Reads a run of entries, ascending, as [`crate::bptree::Tree::scan_forward`].
    pub(super) fn scan_forward(
        &self,
        scan: &mut ForwardScan,
        step_size: (usize, isize),
        run: &mut EntryRun,
    ) -> Result<()> {
        mutant!(ReadPassesYoung => return self.paged.tree.scan_forward(scan, step_size, run));
        if self.replay_buffer.is_empty() {
            return self.paged.tree.scan_forward(scan, step_size, run);
        }
        let range = between(&scan.start, scan.end.as_deref());
        let mut first = self.replay_buffer.edge_key(range, RangeEnd::First);
        if first.as_deref() == Some(&*scan.start) {
            self.merge_keys(
                &self.replay_buffer.edge_keys(range, (RangeEnd::First, MERGED_BY_SCAN)),
            )?;
            first = self.replay_buffer.edge_key(range, RangeEnd::First);
        }
        let Some(bound) = first else { return self.paged.tree.scan_forward(scan, step_size, run) };
        // The tree is read up to the first key with an entry.
        let end = scan.end.replace(bound.to_vec());
        let outcome = self.paged.tree.scan_forward(scan, step_size, run);
        scan.end = end;
        if scan.is_over {
            scan.is_over = false;
            scan.start = bound.into_vec();
        }
        outcome
    }

    /// Reads a step of entries, descending. Returns them and the remaining end; `None` if the range
    /// is exhausted.
    pub(super) fn scan_reverse(
        &self,
        (start, end): (&[u8], Option<&[u8]>),
        step_size: (usize, isize),
    ) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
        let mut merged_from = start.to_vec();
        let is_merged = mutant!(ReadPassesYoung: true, else self.replay_buffer.is_empty());
        if !is_merged {
            let range = between(start, end);
            let mut last = self.replay_buffer.edge_key(range, RangeEnd::Last);
            if last.as_deref().is_some_and(|last| Some(&*successor(last)) == end) {
                self.merge_keys(
                    &self.replay_buffer.edge_keys(range, (RangeEnd::Last, MERGED_BY_SCAN)),
                )?;
                last = self.replay_buffer.edge_key(range, RangeEnd::Last);
            }
            if let Some(last) = last {
                merged_from = successor(&last);
            }
        }
        let tree = &self.paged.tree;
        let found =
            tree.scan_reverse((end, Some(&merged_from)), step_size, make_value, make_entry)?;
        let more = (*merged_from > *start).then_some(merged_from);
        Ok((found.entries, found.next.or(more)))
    }
}

/// Returns the range from `start` (included) to `end` (excluded).
fn between<'k>(start: &'k [u8], end: Option<&'k [u8]>) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded))
}

fn value_of(stored: &[u8]) -> Value {
    make_value(stored.len(), &mut |out| out.copy_from_slice(stored))
}

/// Returns the smallest key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
