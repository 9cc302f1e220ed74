//! The replay buffer: operations recovered from the log that are not in the tree yet.
//!
//! What: puts and deletes of the log go to an ordered table of their keys, in shards. They are
//! merged into the tree in batches, with their leaves read together: all of them at the next
//! checkpoint, compaction or check; those of a range when it is scanned or deleted; a single one
//! when its key is next written. Why: a reopened table has its leaves on disk only. Replay into the
//! tree would wait for a disk read for nearly each operation before the table could serve.
//!
//! Invariants:
//! - While a key has an entry here, the tree's version of the key is old. Readers look here first,
//!   and an entry is removed only after the tree has it, under the lock of its shard.
//! - After replay entries are only removed: a range without entries stays so.
//! - No checkpoint claims the replayed operations while there are entries.
//! - Entries take at most an eighth of the budget; beyond that, replay merges some into the tree.
//! - Values that are not inline go to the tree at once: they are written, not read.
//!
//! Threads: any thread. Without entries each access costs one load of a counter. Lock order: a
//! shard, then the gate and pages. A thread that makes room holds no shard.

mod key;
mod shard;

use std::{ops::Bound, sync::Arc};

use self::{
    key::ReplayKey,
    shard::{BufferShard, ChunkPool},
};
use super::{BTree, BTreeState, make_entry, make_value};
use crate::{
    Result,
    bptree::{
        checkpoint::CHANGE_PAGES,
        scan_forward::{EntryRun, ForwardScan},
    },
    contract::{EachValue, Entry, Op, Value, ValueSink},
    util::{
        budget::Budget,
        codec::{KeyHash, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
    },
};

/// Number of shards: few, because a scan reads each; enough that replay's threads rarely share one.
const SHARDS: usize = 32;
/// Memory for partly filled chunks, in bytes.
const CHUNK_SLACK_BYTES: u64 = 16 << 20;
/// Entries take at most the budget divided by this.
const BUDGET_SHARE: u64 = 8;
/// Number of keys of each shard that are merged together, with their leaves read together: in the
/// background, and by a scan that meets an entry.
const MERGED_AT_ONCE: usize = 32;
const MERGED_BY_SCAN: usize = 4;
/// Flag in the count of non-empty shards: the log is being replayed.
const REPLAYING: u64 = 1 << 63;

/// The content of a key's entry.
enum BufferedAnswer {
    /// The key has no entry: read the tree.
    None,
    Deleted,
    Value(Value),
}

/// The replay buffer. See the module documentation.
#[derive(Debug)]
pub(super) struct BTreeReplayBuffer {
    /// Number of shards with entries, and the flag [`REPLAYING`].
    state: AtomicU64,
    bytes: AtomicU64,
    shards: Box<[Mutex<BufferShard>]>,
    pool: ChunkPool,
    hash: KeyHash,
    budget: Arc<Budget>,
}

/// The end of a range that a search begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeEnd {
    First,
    Last,
}

impl BTreeReplayBuffer {
    /// Returns an empty buffer. `takes_replay`: operations applied before the first write is
    /// admitted go here.
    pub(super) fn new(hash: KeyHash, budget: Arc<Budget>, takes_replay: bool) -> Self {
        // Partly filled chunks count too.
        let room = budget.limit() / BUDGET_SHARE + CHUNK_SLACK_BYTES;
        let pool = if takes_replay { ChunkPool::reserve(room) } else { ChunkPool::default() };
        Self {
            state: AtomicU64::new(if takes_replay { REPLAYING } else { 0 }),
            bytes: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pool,
            hash,
            budget,
        }
    }

    /// Whether there are entries, or replay may add some.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & !REPLAYING == 0
    }

    pub(super) fn is_replaying(&self) -> bool {
        self.state.load(Ordering::Relaxed) & REPLAYING != 0
    }

    /// Ends replay: called when the first operation is admitted, or at a checkpoint.
    pub(super) fn end_replay(&self) {
        self.state.fetch_and(!REPLAYING, Ordering::Relaxed);
    }

    /// Returns the number of keys that have an entry.
    pub(super) fn len(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.shards.iter().map(|shard| to_u64(lock(shard).len())).sum()
    }

    /// Returns the number of bytes reserved from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, BufferShard> {
        lock(self.shards.get(to_usize(hash) % SHARDS).unwrap_or(&self.shards[0]))
    }

    /// Changes a shard, and updates the budget and the counts.
    fn change<T>(&self, shard: &mut BufferShard, change: impl FnOnce(&mut BufferShard) -> T) -> T {
        let (bytes, was_empty) = (shard.memory_bytes(), shard.is_empty());
        let done = change(shard);
        let after = shard.memory_bytes();
        if after > bytes {
            self.budget.reserve_unchecked(after - bytes);
            self.bytes.fetch_add(after - bytes, Ordering::Relaxed);
        } else if after < bytes {
            self.budget.release(bytes - after);
            self.bytes.fetch_sub(bytes - after, Ordering::Relaxed);
        }
        match (was_empty, shard.is_empty()) {
            (true, false) => _ = self.state.fetch_add(1, Ordering::Release),
            (false, true) => _ = self.state.fetch_sub(1, Ordering::Release),
            _ => {}
        }
        done
    }

    /// Prefetches what replay of an operation on a key reads first.
    pub(super) fn prefetch(&self, key: &[u8]) {
        if self.is_replaying() {
            let hash = self.hash.hash(key);
            self.shard(hash).prefetch(hash);
        }
    }

    /// Passes the content of a key's entry to `read`; returns `None` if there is none.
    fn find<T>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> Option<T> {
        let hash = self.hash.hash(key);
        self.shard(hash).find(&self.pool, (hash, key), read)
    }

    /// Returns the first or the last key in a range.
    fn edge_key(&self, range: (Bound<&[u8]>, Bound<&[u8]>), which: RangeEnd) -> Option<Box<[u8]>> {
        let mut edge_key: Option<Box<[u8]>> = None;
        for shard in &self.shards {
            let mut shard = lock(shard);
            let mut keys = self.keys_in(&mut shard, range);
            let key = if which == RangeEnd::First { keys.next() } else { keys.next_back() };
            let is_nearer = |key: &&[u8]| match (&edge_key, which) {
                (None, _) => true,
                (Some(edge_key), RangeEnd::First) => **key < **edge_key,
                (Some(edge_key), RangeEnd::Last) => **key > **edge_key,
            };
            if let Some(key) = key.filter(is_nearer) {
                edge_key = Some(key.into());
            }
        }
        edge_key
    }

    /// Returns `count` of each shard's first or last keys in a range, sorted.
    fn edge_keys(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        (which, count): (RangeEnd, usize),
    ) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let keys = self.keys_in(&mut shard, range);
            let add = |key: &[u8]| found.push(key.into());
            match which {
                RangeEnd::First => keys.take(count).for_each(add),
                RangeEnd::Last => keys.rev().take(count).for_each(add),
            }
        }
        found.sort_unstable();
        found
    }

    fn keys_in<'p>(
        &self,
        shard: &'p mut BufferShard,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = &'p [u8]> + use<'p> {
        self.change(shard, |shard| _ = shard.key_order(&self.pool));
        // The ordered map panics on an empty range.
        let is_empty = match range {
            (Bound::Included(start), Bound::Excluded(end)) => start >= end,
            _ => false,
        };
        let range = (range.0.map(ReplayKey::from), range.1.map(ReplayKey::from));
        let keys = (!is_empty)
            .then(|| shard.key_order(&self.pool).range(range).map(|(key, _)| &*key.bytes));
        keys.into_iter().flatten()
    }
}

/// Returns the range from `start` (included) to `end` (excluded).
fn between<'k>(start: &'k [u8], end: Option<&'k [u8]>) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded))
}

impl BTree {
    /// As `get_with`, while there are entries.
    #[cold]
    pub(super) fn get_buffered<S: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut S,
    ) -> Result<Option<S::Output>> {
        match self.inner.buffered_answer(key) {
            BufferedAnswer::Value(value) => Ok(Some(sink.of_value(value))),
            BufferedAnswer::Deleted => Ok(None),
            BufferedAnswer::None => self.inner.paged.tree.get_with(key, sink),
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
            if let Some(place) = out.get_mut(start + number) {
                *place = stored.map(value_of);
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
            match self.inner.buffered_answer(key) {
                BufferedAnswer::Value(value) => each(number, Some(&value))?,
                BufferedAnswer::Deleted => each(number, None)?,
                BufferedAnswer::None => {
                    rest.push(*key);
                    numbers.push(number);
                }
            }
        }
        self.inner.paged.tree.multi_get_each(&rest, &mut |index, value| {
            numbers.get(index).map_or(Ok(()), |number| each(*number, value))
        })
    }
}

impl BTreeState {
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
                self.apply_entry(&key.bytes, stored.as_deref().map(|value| [value, &[]]))?;
            }
        }
        self.replay_buffer.change(shard, |shard| shard.clear(pool));
        Ok(())
    }

    /// Applies an entry to the tree.
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
            if !self.paged.context.read_only {
                self.paged.make_room(CHANGE_PAGES)?;
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

fn value_of(stored: &[u8]) -> Value {
    make_value(stored.len(), &mut |out| out.copy_from_slice(stored))
}

/// Returns the smallest key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use crate::contract::MultiGetSink;
    use crate::contract::value_sink::HeadAndBuffer;
    use std::collections::BTreeMap;

    use super::{
        super::tests::{Fixture, contents, delete, findings, key, put},
        *,
    };
    use crate::{
        contract::{Engine, KeyRange, PendingWork},
        io::sim::{Call, Policy},
        util::{
            codec::Lsn,
            mutant::{self, Bug},
        },
    };

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
    /// What the log gives back, in its order; no value: a delete.
    type Logged = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    /// Keys 0 to 1999 are in the files; of those from 0 to 2399 some come from the log.
    fn rows() -> (Rows, Logged) {
        let mut rows: Rows = (0..2000).map(|number| (key(number).to_vec(), vec![7; 90])).collect();
        let mut logged = Vec::new();
        for number in (0..2400_u32).filter(|number| number % 3 == 0) {
            let value = match number / 3 % 4 {
                0 => Some(vec![8; 90]),
                1 => Some(number.to_be_bytes().to_vec()),
                2 => Some(vec![9; if number % 5 == 0 { 9000 } else { 40 }]),
                _ => None,
            };
            let key = key(number).to_vec();
            // Twice, as two records.
            logged.push((key.clone(), Some(b"older".to_vec())));
            logged.push((key.clone(), value.clone()));
            match value {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        (rows, logged)
    }

    fn replay(table: &BTree, logged: &[(Vec<u8>, Option<Vec<u8>>)]) {
        for (key, value) in logged {
            let op = match value {
                Some(value) => Op::Put { key, head: &value[..1], body: &value[1..] },
                None => Op::Delete { key },
            };
            table.apply(Lsn(20), &op).unwrap();
        }
    }

    fn reopened(budget: u64) -> (Fixture, BTree, Rows) {
        let mut fixture = Fixture::new(budget);
        let table = fixture.open();
        (0..2000).for_each(|number| put(&table, &key(number), &[7; 90]));
        table.checkpoint(Lsn(9)).unwrap();
        drop(table);
        fixture.env = fixture.env.crash(Policy::AllLost);
        let table = fixture.open();
        let (rows, logged) = rows();
        let reads = fixture.env.calls(&[Call::Read]);
        replay(&table, &logged);
        if budget > 1 << 20 {
            // What is not in its leaf is put there.
            let most =
                2 * logged.iter().flat_map(|(_, value)| value).filter(|v| v.len() > 4000).count();
            assert!(fixture.env.calls(&[Call::Read]) - reads <= to_u64(most) + 40);
            assert!(table.inner.replay_buffer.len() > 600);
        }
        assert_eq!(table.pending_work(), PendingWork::Checkpoint);
        (fixture, table, rows)
    }

    fn compare_gets(table: &BTree, rows: &Rows) {
        let keys: Vec<_> = (0..2500).map(key).collect();
        let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        let mut many = Vec::new();
        table.multi_get(&keys, MultiGetSink::Append(&mut many)).unwrap();
        for (key, many) in keys.iter().zip(many) {
            let expected = rows.get(*key).map(Vec::as_slice);
            assert_eq!(table.get(key).unwrap().as_deref(), expected);
            assert_eq!(many.as_deref(), expected);
            let mut rest = Vec::new();
            let first = table.get_with(key, &mut HeadAndBuffer(&mut rest)).unwrap();
            let whole = first.map(|first| [&[first], &rest[..]].concat());
            assert_eq!(whole.as_deref(), expected);
        }
    }

    fn compare_ranges(table: &BTree, rows: &Rows, from: usize) {
        let bounds: Vec<_> = rows.keys().step_by(37).skip(from).cloned().collect();
        for pair in bounds.windows(2) {
            let range = KeyRange { start: Some(pair[0].clone()), end: Some(pair[1].clone()) };
            let expected: Vec<_> = rows.range(pair[0].clone()..pair[1].clone()).collect();
            let entries =
                || table.ordered().unwrap().range(range.clone()).unwrap().map(Result::unwrap);
            let agree = |found: Vec<Entry>| {
                let found = found.iter().map(|entry| (&entry.key, entry.value.to_vec()));
                assert!(found.eq(expected.iter().map(|(key, value)| (*key, (*value).clone()))));
            };
            match from % 3 {
                0 => agree(entries().collect()),
                1 => {
                    let mut found: Vec<_> = entries().rev().collect();
                    found.reverse();
                    agree(found);
                }
                _ => {
                    let (mut entries, mut front, mut back) = (entries(), Vec::new(), Vec::new());
                    while let Some(entry) = entries.next() {
                        front.push(entry);
                        back.extend(entries.next_back());
                    }
                    front.extend(back.into_iter().rev());
                    agree(front);
                }
            }
        }
    }

    fn what_waits_is_seen() {
        for budget in [64 << 20, 1 << 20] {
            let (fixture, table, mut rows) = reopened(budget);
            compare_gets(&table, &rows);
            for from in 0..3 {
                compare_ranges(&table, &rows, from);
            }
            drop(table);
            let table = fixture.open();
            replay(&table, &self::rows().1);
            let (start, end) = (key(6), key(9));
            let (start, end) = (start.min(end).to_vec(), start.max(end).to_vec());
            // A range that goes before what waits in it was looked at, then single keys.
            table.apply(Lsn(21), &Op::DeleteRange { start: &start, end: &end }).unwrap();
            let gone: Vec<_> = rows.range(start..end).map(|(key, _)| key.clone()).collect();
            assert!(gone.len() > 10);
            for key in &gone {
                rows.remove(key);
            }
            for number in (0..2400).step_by(30) {
                put(&table, &key(number), b"newest");
                rows.insert(key(number).to_vec(), b"newest".to_vec());
                delete(&table, &key(number + 3));
                rows.remove(&key(number + 3)[..]);
            }
            compare_gets(&table, &rows);
            assert_eq!(contents(&table), rows);
            assert!(table.inner.replay_buffer.is_empty(), "a scan of everything leaves none");
            assert_eq!(table.stats().keys, to_u64(rows.len()));
        }
    }

    #[test]
    fn what_waits_for_its_leaf_is_seen_by_every_read() {
        what_waits_is_seen();
        for bug in [Bug::ReadPassesYoung, Bug::WriteLeavesYoung] {
            mutant::finds(bug, what_waits_is_seen);
        }
    }

    #[test]
    fn what_waits_is_in_the_next_cut() {
        for budget in [64 << 20, 1 << 20] {
            let (mut fixture, table, rows) = reopened(budget);
            assert!(table.inner.replay_buffer.memory_bytes() <= budget / BUDGET_SHARE + (64 << 10));
            assert_eq!(table.checkpoint(Lsn(30)).unwrap(), Lsn(30));
            assert!(table.inner.replay_buffer.is_empty());
            assert_eq!(table.pending_work(), PendingWork::None);
            drop(table);
            assert_eq!(fixture.budget.used(), 0);
            fixture.env = fixture.env.crash(Policy::AllLost);
            let table = fixture.open();
            assert_eq!(contents(&table), rows);
            assert_eq!(findings(&table), Vec::<String>::new());
        }
    }

    #[test]
    fn readers_and_writers_meet_the_merge() {
        let (_fixture, table, mut rows) = reopened(64 << 20);
        let written: Vec<_> = (0..2400).filter(|number| number % 7 == 0).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| table.checkpoint(Lsn(30)).unwrap());
            scope.spawn(|| {
                for number in &written {
                    put(&table, &key(*number), b"newest");
                }
            });
            for number in (0..2400).filter(|number| number % 7 != 0) {
                let found = table.get(&key(number)).unwrap();
                assert_eq!(found.as_deref(), rows.get(&key(number)[..]).map(Vec::as_slice));
            }
        });
        for number in &written {
            rows.insert(key(*number).to_vec(), b"newest".to_vec());
        }
        assert_eq!(contents(&table), rows);
    }
}
