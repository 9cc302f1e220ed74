//! What replay leaves for later: records that are in their regions and not yet in the trie.
//!
//! What: operations that the log gives back when a table is opened are appended to regions like
//! any other, but found through an ordered table of their keys, in parts by hash. They enter the
//! trie, one subtree lock each, when the table is next persisted, scanned or checked, and a key
//! alone before it is next written.
//! Why: entering a record in the trie means to read the path of its key and the record that it
//! replaces, which a reopened table has on the disk alone: replay would wait for two or three
//! reads an operation before the table could serve. CedrusDB replays a log of page writes and
//! needs neither; ours is of operations.
//!
//! Invariants:
//! - While a key has an entry here, what the trie has of it is old: the entry is looked at first,
//!   and leaves only after the trie has what it says, with the key's subtree locked.
//! - No cut is made while there are entries: regions would count as live what no word names.
//!
//! Thread rules: any thread. A reader takes the lock of a part, and looks at the version of the
//! key's subtree before and after, because a record may be changed in place once it has left;
//! without entries all of this is one look at a counter. Lock order: a subtree, then a part.

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

/// Parts of the table: enough that replay's threads rarely meet.
const PARTS: u64 = 64;
/// What an entry takes in memory beside its key, in bytes.
const ENTRY_BYTES: u64 = 80;
/// The address of what was deleted.
const DELETED: u64 = 0;
/// Keys whose old records are read at once.
const MERGED_AT_ONCE: usize = 64;

/// What an entry says.
pub(super) enum ReplayBufferAnswer {
    Deleted,
    Record(Answer),
}

/// Addresses by key.
type Part = BTreeMap<Box<[u8]>, u64>;

/// The entries. See the module head.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    /// The log is replayed: nothing was admitted yet.
    is_replaying: AtomicBool,
    count: AtomicU64,
    bytes: AtomicU64,
    parts: Box<[Mutex<Part>]>,
}

impl ReplayBuffer {
    pub(super) fn new(is_replaying: bool) -> Self {
        Self {
            is_replaying: AtomicBool::new(is_replaying),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
        }
    }

    #[inline]
    pub(super) fn is_replaying(&self) -> bool {
        self.is_replaying.load(Ordering::Relaxed)
    }

    /// The first operation is admitted, or the table persisted: the log has been replayed.
    pub(super) fn end_replay(&self) {
        if self.is_replaying() {
            self.is_replaying.store(false, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Bytes of memory drawn from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn part(&self, hash: u64) -> Option<&Mutex<Part>> {
        self.parts.get(to_usize(hash % PARTS))
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        lock(self.part(hash)?).get(key).copied()
    }
}

fn entry_bytes(key: &[u8]) -> u64 {
    to_u64(key.len()) + ENTRY_BYTES
}

impl Trie {
    /// What the entry of a key says; `None` where it has none. `take` is given the value.
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

    /// Applies an operation of the log that the table's files do not have.
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

    /// The record of an entry, whose subtree is locked.
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
            // It was brought into memory.
            None => match self.look_for(address, key) {
                Look::Found(current) => Ok(current),
                Look::Changed | Look::Cold(_) => Ok(None),
            },
        }
    }

    fn bury_young(&self, address: u64, key: &[u8]) -> Result<()> {
        if let Some(current) = self.young_current(address, key)? {
            self.bury(&current, 0);
        }
        Ok(())
    }

    /// Enters what a key's entry says in the trie, where it has one. The caller has no subtree
    /// locked.
    pub(super) fn merge_key(&self, key: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        if self.young.find(key, hash).is_some() {
            self.merge(key, hash, Vec::new())
        } else {
            Ok(())
        }
    }

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

    /// Enters all entries in the trie. The caller has no subtree locked.
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

    /// Reads the old records of these keys at once, and enters what their entries say.
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
