//! Replay buffer: operations recovered from the log whose records are in regions and not yet in the
//! trie.
//!
//! Problem: to insert a record in the trie, replay would have to read the path of its key and the
//! record that it replaces. A reopened table has both on disk only: two or three reads for each
//! operation before the table could serve. CedrusDB replays a log of page writes and needs neither;
//! our log is of operations.
//!
//! How: replayed operations append their records to regions like any other. An ordered table of
//! keys, partitioned by hash, holds their addresses. The entries are merged into the trie, under
//! one subtree lock each, before the table is checkpointed, scanned or checked. The entry of a
//! single key is merged before the key is next written.
//!
//! Invariants:
//! - While a key has an entry, its record in the trie is outdated. Readers look at the entry first.
//!   It is removed after the trie has its record, with the key's subtree locked.
//! - No checkpoint is made while there are entries: regions would count records as live that no
//!   word of the trie names.
//!
//! Thread rules: any thread. A reader locks a partition, and compares the version of the key's
//! subtree before and after, because a record may be changed in place once its entry is removed.
//! Without entries a reader only loads a counter. Lock order: a subtree, then a partition.

use std::collections::BTreeMap;

use super::{
    Trie,
    read::{Answer, ColdRecord, answer_in},
    record::{Head, Place},
    write::{Current, Found, Known, stored_bytes},
};
use crate::{
    Result,
    contract::Op,
    engine::trie::{index::Verdict, store::regions::Look},
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock, yield_now},
    },
};

/// Partitions of the table: enough that the threads of replay rarely contend.
const PARTS: u64 = 64;
/// Bytes of memory that an entry takes beside its key.
const ENTRY_BYTES: u64 = 80;
/// The address in the entry of a deleted key.
const DELETED: u64 = 0;
/// Keys whose old records are read at the same time.
const MERGED_AT_ONCE: usize = 64;

/// What an entry says about its key.
pub(super) enum ReplayBufferAnswer {
    Deleted,
    Record(Answer),
}

/// Addresses by key.
type Part = BTreeMap<Box<[u8]>, u64>;

/// The replay buffer of a table. See the module documentation.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    /// The log is being replayed: no operation has been admitted yet.
    is_replaying: AtomicBool,
    count: AtomicU64,
    bytes: AtomicU64,
    parts: Box<[Mutex<Part>]>,
}

impl ReplayBuffer {
    /// An empty buffer. With `is_replaying`, operations are buffered until [`Self::end_replay`].
    pub(super) fn new(is_replaying: bool) -> Self {
        Self {
            is_replaying: AtomicBool::new(is_replaying),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns whether operations go to the buffer.
    #[inline]
    pub(super) fn is_replaying(&self) -> bool {
        self.is_replaying.load(Ordering::Relaxed)
    }

    /// Ends replay: the first operation is admitted, or the table checkpointed.
    pub(super) fn end_replay(&self) {
        if self.is_replaying() {
            self.is_replaying.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether no key has an entry.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Bytes reserved from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn part(&self, hash: u64) -> Option<&Mutex<Part>> {
        self.parts.get(to_usize(hash % PARTS))
    }

    /// The address in the entry of a key.
    fn find(&self, key: &[u8], hash: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        lock(self.part(hash)?).get(key).copied()
    }
}

/// Bytes that an entry reserves.
fn entry_bytes(key: &[u8]) -> u64 {
    to_u64(key.len()) + ENTRY_BYTES
}

impl Trie {
    /// The answer of a key's entry, or `None` if it has none. `take` receives the value.
    #[cold]
    pub(super) fn young_answer(
        &self,
        key: &[u8],
        hash: u64,
        take: &mut impl FnMut(&Head, &[AtomicU64]),
    ) -> Option<ReplayBufferAnswer> {
        loop {
            let version = self.index.version(hash);
            let address = self.young.find(key, hash)?;
            let answer = match self.regions.look(address, |words| answer_in(words, key, take)) {
                _ if address == DELETED => Some(ReplayBufferAnswer::Deleted),
                Look::Found(seen) => seen.answer().map(ReplayBufferAnswer::Record),
                Look::Cold(life) => Some(ReplayBufferAnswer::Record(Answer::Cold(address, life))),
                Look::Changed => None,
            };
            if let Some(answer) = answer
                && self.index.is_version(hash, version)
            {
                return Some(answer);
            }
            yield_now();
        }
    }

    /// Applies an operation of the log that the table's files lack, to the regions and the buffer.
    pub(super) fn replay_op(&self, op: &Op<'_>) -> Result<()> {
        self.make_room_in_replay(op);
        match op {
            Op::Put { key, head, body } => {
                let (record, place) = self.form(key, [head, body]);
                match &place {
                    None => self.replay_put(record, key, [head, body]),
                    Some(place) => self.replay_put(record, key, [place, &[]]),
                }
            }
            Op::Delete { key } => {
                let hash = self.hash(key);
                let _writer = self.index.lock(hash);
                let old = self.young.find(key, hash).unwrap_or(DELETED);
                self.bury_young(old, key)?;
                self.set_young(key, hash, DELETED);
                Ok(())
            }
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    fn replay_put(&self, head: Head, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let hash = self.hash(key);
        let new_bytes = stored_bytes(&head, || Place::decode(value[0]));
        let _writer = self.index.lock(hash);
        let old = self.young.find(key, hash).unwrap_or(DELETED);
        if let Some(current) = self.young_current(old, key)?
            && self.exchange(&current, &head, key, value)
        {
            return Ok(());
        }
        let address = self.append(&head, key, value)?;
        self.bury_young(old, key)?;
        self.counters.live_bytes.fetch_add(new_bytes, Ordering::Relaxed);
        self.set_young(key, hash, address);
        Ok(())
    }

    fn set_young(&self, key: &[u8], hash: u64, address: u64) {
        let Some(part) = self.young.part(hash) else { return };
        let mut part = lock(part);
        if let Some(entry) = part.get_mut(key) {
            *entry = address;
            return;
        }
        part.insert(key.into(), address);
        let bytes = entry_bytes(key);
        self.context.budget.reserve_unchecked(bytes);
        self.young.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.young.count.fetch_add(1, Ordering::Release);
    }

    /// The record of an entry whose subtree is locked.
    fn young_current(&self, address: u64, key: &[u8]) -> Result<Option<Current>> {
        if address == DELETED {
            return Ok(None);
        }
        if let Look::Found(current) = self.look_for(address, key) {
            return Ok(current);
        }
        let life = self.regions.life(self.regions.split(address).0);
        match self.learn(address, life, key)? {
            Some(known) => Ok(known.current()),
            // `learn` loaded its region.
            None => match self.look_for(address, key) {
                Look::Found(current) => Ok(current),
                Look::Changed | Look::Cold(_) => Ok(None),
            },
        }
    }

    /// Counts the record of an entry as dead.
    fn bury_young(&self, address: u64, key: &[u8]) -> Result<()> {
        if let Some(current) = self.young_current(address, key)? {
            self.bury(&current, 0);
        }
        Ok(())
    }

    /// Merges the entry of a key into the trie, if it has one. The caller has no subtree locked.
    pub(super) fn merge_key(&self, key: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        if self.young.find(key, hash).is_some() {
            self.merge(key, hash, Vec::new())
        } else {
            Ok(())
        }
    }

    /// Merges the entry of a key. `known` are records that were read from disk for it.
    fn merge(&self, key: &[u8], hash: u64, mut known: Vec<Known>) -> Result<()> {
        let mut misled = 0;
        let mut writer = self.index.lock(hash);
        while let Some(young) = self.young.find(key, hash) {
            match self.find_current(&writer, key, &known)? {
                Some(Found::Unknown(address, life)) => {
                    drop(writer);
                    self.count_misled(address, &mut misled)?;
                    known.extend(self.learn(address, life, key)?);
                    writer = self.index.lock(hash);
                    continue;
                }
                Some(Found::Current(old, spot)) => {
                    if young == DELETED {
                        writer.remove(old.address)?;
                    } else {
                        writer.exchange(spot, young);
                    }
                    self.bury(&old, 0);
                }
                None if young != DELETED => writer.insert(young)?,
                None => {}
            }
            if let Some(part) = self.young.part(hash)
                && lock(part).remove(key).is_some()
            {
                let bytes = entry_bytes(key);
                self.context.budget.release(bytes);
                self.young.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.young.count.fetch_sub(1, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Ends replay and merges all entries into the trie. The caller has no subtree locked.
    pub(super) fn merge_all(&self) -> Result<()> {
        self.young.end_replay();
        for part in &self.young.parts {
            while !self.young.is_empty() {
                let keys: Vec<Box<[u8]>> =
                    lock(part).keys().take(MERGED_AT_ONCE).cloned().collect();
                if keys.is_empty() {
                    break;
                }
                self.merge_some(&keys)?;
                self.relieve(0);
            }
        }
        Ok(())
    }

    /// Reads the old records of these keys at the same time, and merges their entries.
    fn merge_some(&self, keys: &[Box<[u8]>]) -> Result<()> {
        let mut cold = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let look = |address| match self.regions.look(address, |_| Some(())) {
                Look::Found(()) => Verdict::Other,
                Look::Changed => Verdict::Changed,
                Look::Cold(life) => Verdict::Found((address, life)),
            };
            let found = self.index.find(self.hash(key), look, |at| self.load_index(at))?;
            if let Some((address, life)) = found
                && !self.wants_warming(address)
            {
                cold.push((index, address, life));
            }
        }
        let mut known: Vec<Vec<Known>> = keys.iter().map(|_| Vec::new()).collect();
        self.read_cold_records(&cold, |(index, address, life), record| {
            let record = record.as_ref().and_then(ColdRecord::record);
            if let (Some(record), Some(key), Some(known)) =
                (record, keys.get(index), known.get_mut(index))
            {
                known.push(Known::of(address, life, &record, key));
            }
            Ok(())
        })?;
        for (key, known) in keys.iter().zip(known) {
            self.merge(key, self.hash(key), known)?;
        }
        Ok(())
    }
}
