//! Reading: gets from memory and from the disk, batches, scans.
//!
//! A get from memory: hash, one index line, the record; the value is copied out and the copy is
//! kept only if neither the entry nor its chunk changed meanwhile. From the disk: [`super::cold`].

use super::{
    HashLog,
    arena::{Look, copy_value},
    cold::{ColdEntry, ColdRead},
    entry::{Head, Kind, LargeRef, Stored},
};
use crate::{
    Error, Result,
    contract::{Cursor, Entry, FoundValue, OwnedValue, Value, ValueSink},
    engine::hashlog::index::Verdict,
    io::{AlignedBuffer, Completion, Request},
    util::{
        codec::Decoder,
        sync::{AtomicU64, Backoff, Ordering},
        words::copy_out,
    },
};

/// Keys of a batch in flight together: as many as hide the memory behind each other's misses.
const BATCH: usize = 32;

/// Entries that changed under one read, one after the other. Beyond this many it is no change that
/// a writer makes but an entry that names a large value which is not there.
const ATTEMPTS_MAX: u32 = 1_000;
const MISLED: &str = "the index points at what is no value";

/// What a key's entry says.
#[derive(Debug)]
enum Answer {
    /// It has a value, which the reader has taken.
    Taken,
    Large(LargeRef),
    /// Not in memory: address and state of its chunk.
    Cold(u64, u64),
}

/// Where the answers of a batch go: each with the position of its key.
type Answers<'a> = dyn FnMut(usize, Option<FoundValue<'_>>) -> Result<()> + 'a;

/// What an entry from the disk says of a key.
#[derive(Debug)]
enum InCold {
    Value(Value),
    OtherKey,
    /// Its chunk changed, or its value is elsewhere by now: look again.
    Changed,
}

impl HashLog {
    #[inline]
    pub(super) fn read_with<S: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut S,
    ) -> Result<Option<S::Output>> {
        let hash = self.hash(key);
        let mut output = None;
        let mut take = |head: &Head, words: &[AtomicU64]| {
            output = Some(sink.of_words(words, (head.value_at(), head.value_bytes)));
        };
        match self.answer(key, hash, &[], &mut take) {
            None => Ok(None),
            Some(Answer::Taken) => Ok(output),
            Some(answer) => {
                let value = self.read_slowly(key, hash, answer)?;
                Ok(value.map(|value| sink.of_value(value)))
            }
        }
    }

    pub(super) fn read_value(&self, key: &[u8]) -> Result<Option<Value>> {
        self.read_with(key, &mut OwnedValue)
    }

    /// Looks the key up in memory; entries in `others` are known to be other keys'. `take` is given
    /// the value; more than once where it changed meanwhile, and the last time counts.
    #[inline]
    fn answer(
        &self,
        key: &[u8],
        hash: u64,
        others: &[(u64, u64)],
        take: &mut impl FnMut(&Head, &[AtomicU64]),
    ) -> Option<Answer> {
        self.index.find(hash, |address| {
            match self.arena.look(address, key, |head, words| answer_of(head, words, take)) {
                Look::Found(Some(answer)) => Verdict::Found(answer),
                // No slot points at what is no value, unless a checkpoint that lies made it.
                Look::Found(None) | Look::OtherKey => Verdict::Other,
                Look::Changed => Verdict::Changed,
                Look::Cold(state) if others.contains(&(address, state)) => Verdict::Other,
                Look::Cold(state) => Verdict::Found(Answer::Cold(address, state)),
            }
        })
    }

    #[cold]
    fn read_slowly(&self, key: &[u8], hash: u64, first: Answer) -> Result<Option<Value>> {
        self.settle(key, hash, (Some(first), None), Vec::new())
    }

    /// Follows an answer to the value that it is or leads to; entries in `others` are other keys'.
    fn settle(
        &self,
        key: &[u8],
        hash: u64,
        first: (Option<Answer>, Option<Value>),
        mut others: Vec<(u64, u64)>,
    ) -> Result<Option<Value>> {
        let (mut answer, mut value) = first;
        let mut patience = Backoff::default();
        while patience.count() < ATTEMPTS_MAX {
            match answer {
                None => return Ok(None),
                Some(Answer::Taken) => return Ok(value),
                Some(Answer::Large(large)) => {
                    if let Some(value) = self.read_large(large)? {
                        return Ok(Some(value));
                    }
                    // Gone since: the key has another entry now.
                }
                Some(Answer::Cold(address, state)) => {
                    let cold = self.read_cold(address, state)?;
                    match self.value_in(key, cold.as_ref())? {
                        InCold::Value(value) => return Ok(Some(value)),
                        InCold::OtherKey => others.push((address, state)),
                        InCold::Changed => {}
                    }
                }
            }
            patience.wait();
            (answer, value) = self.answer_with_value(key, hash, &others);
        }
        let label = super::files::label(self.owner.table_id, "");
        Err(Error::corruption(label, 0, MISLED))
    }

    fn answer_with_value(
        &self,
        key: &[u8],
        hash: u64,
        others: &[(u64, u64)],
    ) -> (Option<Answer>, Option<Value>) {
        let mut value = None;
        let answer = self.answer(key, hash, others, &mut |head, words| {
            value = Some(Value::fill_with(head.value_bytes, |out| copy_value(head, words, out)));
        });
        (answer, value)
    }

    /// What an entry that was read from the disk says of `key`.
    fn value_in(&self, key: &[u8], cold: Option<&ColdEntry>) -> Result<InCold> {
        let Some(entry) = cold.and_then(ColdEntry::entry) else { return Ok(InCold::Changed) };
        if entry.key() != key {
            self.counters.false_reads_total.fetch_add(1, Ordering::Relaxed);
            return Ok(InCold::OtherKey);
        }
        if entry.head.kind != Kind::Large {
            return Ok(InCold::Value(value_of(&entry)));
        }
        let large = LargeRef::decode(entry.value());
        let value = large.map_or(Ok(None), |large| self.read_large(large))?;
        Ok(value.map_or(InCold::Changed, InCold::Value))
    }

    /// Whether the key has an entry. A copied tombstone would outrank one that was overlooked.
    pub(super) fn has_entry(&self, hash: u64, key: &[u8]) -> Result<bool> {
        let mut others = Vec::new();
        loop {
            match self.answer(key, hash, &others, &mut |_, _| {}) {
                None => return Ok(false),
                Some(Answer::Taken | Answer::Large(_)) => return Ok(true),
                Some(Answer::Cold(address, state)) => {
                    if let Some(cold) = self.read_cold(address, state)?
                        && let Some(entry) = cold.entry()
                    {
                        if entry.key() == key {
                            return Ok(true);
                        }
                        others.push((address, state));
                    }
                }
            }
        }
    }

    /// A batch: all index lines are on their way before the first is looked at, then all records.
    pub(super) fn read_many(&self, keys: &[&[u8]], each: &mut Answers<'_>) -> Result<()> {
        let mut cold = Vec::new();
        let mut scratch = Vec::new();
        for (number, batch) in keys.chunks(BATCH).enumerate() {
            let mut hashes = [0; BATCH];
            for (hash, key) in hashes.iter_mut().zip(batch) {
                *hash = self.hash(key);
                self.index.prefetch(*hash);
            }
            let mut seen = [None; BATCH];
            for ((seen, hash), _) in seen.iter_mut().zip(&hashes).zip(batch) {
                *seen = self
                    .index
                    .find(*hash, |address| Verdict::Found((address, self.arena.prefetch(address))));
            }
            for (index, ((key, hash), seen)) in batch.iter().zip(hashes).zip(seen).enumerate() {
                let index = number * BATCH + index;
                match self.answer_seen(key, hash, seen, &mut scratch) {
                    None => each(index, None)?,
                    Some(Answer::Taken) => each(index, Some(FoundValue::Bytes(&scratch)))?,
                    Some(Answer::Cold(address, state)) => cold.push((index, address, state)),
                    Some(answer) => {
                        let value = self.read_slowly(key, hash, answer)?;
                        each(index, value.map(FoundValue::Value))?;
                    }
                }
            }
        }
        if cold.is_empty() { Ok(()) } else { self.read_many_cold(keys, &cold, each) }
    }

    /// What the entry says that an earlier look at the index found, with the state of its chunk
    /// then: it was the key's since the batch began, if it is its entry at all. The value goes to
    /// `out`.
    #[inline]
    fn answer_seen(
        &self,
        key: &[u8],
        hash: u64,
        seen: Option<(u64, u64)>,
        out: &mut Vec<u8>,
    ) -> Option<Answer> {
        let (address, state) = seen?;
        let mut take = |head: &Head, words: &[AtomicU64]| {
            out.resize(head.value_bytes, 0);
            copy_value(head, words, out);
        };
        let look = self
            .arena
            .look_in(address, state, key, |head, words| answer_of(head, words, &mut take));
        match look {
            Look::Found(Some(answer)) => Some(answer),
            _ => self.answer(key, hash, &[], &mut take),
        }
    }

    /// Reads many entries from the disk at once.
    fn read_many_cold(
        &self,
        keys: &[&[u8]],
        cold: &[(usize, u64, u64)],
        each: &mut Answers<'_>,
    ) -> Result<()> {
        self.ask_for_warming();
        let reads = cold.iter().map(|(_, address, state)| self.cold_read(*address, *state));
        let reads: Vec<Option<ColdRead>> = reads.collect();
        let requests = reads.iter().flatten().map(|read| {
            self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
            let (offset, _, length) = read.place.span(read.from, read.bytes);
            let file = std::sync::Arc::clone(&read.place.file.file);
            Request::Read { file, offset, buffer: AlignedBuffer::zeroed(length), length }
        });
        let mut done = self.queues.transfer(&*self.context.env, requests)?.into_iter();
        for ((index, address, state), read) in cold.iter().zip(&reads) {
            let Some(key) = keys.get(*index) else { continue };
            let value = match read.as_ref().and_then(|read| Some((read, done.next()?))) {
                Some((read, completion)) => {
                    self.complete_cold(key, *address, *state, read, completion)?
                }
                None => self.read_value(key)?,
            };
            each(*index, value.map(FoundValue::Value))?;
        }
        Ok(())
    }

    fn complete_cold(
        &self,
        key: &[u8],
        address: u64,
        state: u64,
        request: &ColdRead,
        completion: Completion,
    ) -> Result<Option<Value>> {
        let (offset, skip, span) = request.place.span(request.from, request.bytes);
        let count = completion.result.map_err(|error| request.place.read_error(offset, error))?;
        if count < span {
            return self.read_value(key);
        }
        let cold = self.finish_cold(address, state, request, completion.buffer, skip)?;
        match self.value_in(key, cold.as_ref())? {
            InCold::Value(value) => Ok(Some(value)),
            InCold::OtherKey => {
                let (hash, others) = (self.hash(key), vec![(address, state)]);
                self.settle(key, hash, self.answer_with_value(key, hash, &others), others)
            }
            InCold::Changed => self.read_value(key),
        }
    }

    /// Shows `each` the addresses of a group of the index, with the state that the chunk of each
    /// has while the index points to it: [`HashLog::read_entry`] reads from this life of the chunk
    /// alone. Returns the next group.
    pub(super) fn walk(&self, cursor: u64, each: &mut Vec<(u64, u64)>) -> Option<u64> {
        self.index.walk(cursor, |address| each.push((address, self.arena.state_of(address))))
    }

    /// The key and value of the entry at `address`; `None` where it is gone, or its chunk's number
    /// has begun another life.
    pub(super) fn read_entry(&self, address: u64, state: u64) -> Result<Option<Entry>> {
        let (id, _) = self.arena.split(address);
        let (head, key, value) = match self.arena.copy(address, state) {
            Look::Found(found) => found,
            Look::Changed | Look::OtherKey => return Ok(None),
            Look::Cold(state) => {
                debug_assert!(id < self.arena.chunks_max());
                let Some(cold) = self.read_cold(address, state)? else { return Ok(None) };
                let Some(entry) = cold.entry() else { return Ok(None) };
                (entry.head, entry.key().to_vec(), entry.value().to_vec())
            }
        };
        let value = match head.kind {
            Kind::Put => Some(Value::from(value)),
            Kind::Tombstone => return Err(self.misled(id)),
            Kind::Large => match LargeRef::decode(&value) {
                Some(large) => self.read_large(large)?,
                None => None,
            },
        };
        Ok(value.map(|value| Entry { key, value }))
    }

    /// A checkpoint or an entry that lies, under sound checksums.
    #[cold]
    fn misled(&self, chunk: u64) -> Error {
        let chunk = self.chunk(chunk);
        let place = chunk.as_ref().and_then(|chunk| chunk.place());
        let label = super::files::label(self.owner.table_id, "");
        place.map_or_else(|| Error::corruption(label, 0, MISLED), |place| place.damage(0, MISLED))
    }

    pub(super) fn scan_from(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        let mut cursor = if from.is_start() {
            0
        } else {
            let mut decoder = Decoder::new(&from.0);
            decoder.u64().filter(|_| decoder.is_empty()).ok_or_else(|| Error::Limit {
                what: "the cursor is not one that a scan returned".to_owned(),
            })?
        };
        let mut entries = Vec::new();
        let mut addresses = Vec::new();
        let mut patience = Backoff::default();
        while entries.len() < limit.max(1) {
            addresses.clear();
            let next = self.walk(cursor, &mut addresses);
            let before = entries.len();
            let mut whole = true;
            for (address, state) in &addresses {
                match self.read_entry(*address, *state)? {
                    Some(entry) => entries.push(entry),
                    None => whole = false,
                }
            }
            if !whole {
                // Something moved between the walk and the read: the group is taken again.
                entries.truncate(before);
                if let (Some((address, _)), true) =
                    (addresses.first(), patience.count() > ATTEMPTS_MAX)
                {
                    return Err(self.misled(self.arena.split(*address).0));
                }
                // Whoever moves it may wait for this very processor.
                patience.wait();
                continue;
            }
            match next {
                None => return Ok((entries, Cursor::START)),
                Some(next) => (cursor, patience) = (next, Backoff::default()),
            }
        }
        Ok((entries, Cursor(cursor.to_le_bytes().to_vec())))
    }
}

#[inline]
fn answer_of(
    head: &Head,
    words: &[AtomicU64],
    take: &mut impl FnMut(&Head, &[AtomicU64]),
) -> Option<Answer> {
    match head.kind {
        Kind::Put => {
            take(head, words);
            Some(Answer::Taken)
        }
        Kind::Large => {
            let mut bytes = [0; 16];
            copy_out(words, head.value_at(), &mut bytes);
            LargeRef::decode(&bytes).map(Answer::Large)
        }
        Kind::Tombstone => None,
    }
}

fn value_of(entry: &Stored<'_>) -> Value {
    let bytes = entry.value();
    Value::fill_with(bytes.len(), |out| out.copy_from_slice(bytes))
}
