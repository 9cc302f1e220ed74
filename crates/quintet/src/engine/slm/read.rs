//! Gets and batches of gets.
//!
//! A get asks the memtables, then the index. A key that neither has does not exist. A key that the
//! index has costs one block: from the cache, or one read. The location cache
//! ([`crate::engine::slm::location_cache`]) can save the descent of the index. A batch descends the
//! index together and reads all blocks that the cache lacks at once.
//!
//! Invariant: between the lookup in the index and the lookup of the run, a compaction may move the
//! entry and remove the run. The reader then asks the index again ([`Inner::read_moved`]).

use std::sync::Arc;

use super::{
    Inner, SuperVersion,
    keys::IndexKey,
    runs::{Entered, Place, Run},
};
use crate::{
    Error, Result,
    bptree::finger::Finger,
    contract::{
        OwnedValue, Presence, Value, ValueSink,
        value_sink::{AppendOwned, ValueLocation},
    },
    engine::slm::{
        key_code::Buffer,
        location_cache::{Claim, Token},
    },
    io::{AlignedBuffer, Completion, Queue, Request},
    lsm::{
        memtable::Answer,
        sst::{Span, block},
    },
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

/// Keys of a batch that descend the index together.
const WINDOW: usize = 32;
/// Maximum number of blocks of a batch in memory at once.
const READS_MAX: usize = 256;

/// A block that is being read for a key.
struct Asked<'k> {
    key: &'k [u8],
    hash: u64,
    /// Index of its value in the output.
    slot: usize,
    run: Arc<Run>,
    block: u32,
    span: Span,
}

impl Inner {
    /// Returns what the index has for a key, or `None` if the index lacks it.
    #[inline]
    pub(super) fn entered(&self, key: &[u8]) -> Result<Option<Entered>> {
        let mut buffer = Buffer::default();
        let Some(key) = self.keys.index_key(key, &mut buffer) else { return Ok(None) };
        let found = self.paged.tree.get(key.0, Entered::take)?;
        found.map(|entered| self.sure(key, entered)).transpose()
    }

    /// Fails with `Corruption` if the key's value in the index did not decode.
    #[inline]
    fn sure(&self, key: IndexKey<'_>, entered: Option<Entered>) -> Result<Entered> {
        entered.ok_or_else(|| self.no_place(key))
    }

    /// Returns the place of a key's entry, or `None` if the index lacks the key.
    #[inline]
    pub(super) fn locate(&self, key: &[u8]) -> Result<Option<Place>> {
        Ok(self.entered(key)?.map(|entered| entered.place))
    }

    /// As [`Self::locate`]; cheap for a key near the last one that the finger located.
    pub(super) fn locate_near(
        &self,
        near: &mut Finger,
        key: IndexKey<'_>,
    ) -> Result<Option<Place>> {
        let found = self.paged.tree.get_by_finger(near, key.0, Entered::take)?;
        found.map(|entered| Ok(self.sure(key, entered)?.place)).transpose()
    }

    /// Returns whether a key has a value, as far as memory and index can tell.
    pub(super) fn presence(&self, key: &[u8]) -> Result<Presence> {
        let view = self.front.view.load();
        let hash = self.hash(key);
        if !matches!(view.in_memory(hash, key, &mut ValueLocation), Answer::Nothing) {
            return Ok(Presence::InValue);
        }
        Ok(match self.entered(key)? {
            None => Presence::Absent,
            Some(entered) if entered.lasts => Presence::Present,
            Some(_) => Presence::InValue,
        })
    }

    #[cold]
    pub(super) fn no_place(&self, key: IndexKey<'_>) -> Error {
        let what = format!("what the index has of key {} is no place", self.keys.shown(key));
        Error::corruption(self.paged.tree.cache().label(), 0, what)
    }

    #[cold]
    pub(super) fn no_key(&self, key: IndexKey<'_>) -> Error {
        let what = format!("no key is written as {}, which the index has", key.0.escape_ascii());
        Error::corruption(self.paged.tree.cache().label(), 0, what)
    }

    /// Passes the value of a key to the sink; `None` if the key does not exist.
    #[inline]
    pub(super) fn read_value<T: ValueSink>(
        &self,
        key: &[u8],
        take: &mut T,
    ) -> Result<Option<T::Output>> {
        let view = self.front.view.load();
        let hash = self.hash(key);
        self.shortcuts.approach(hash);
        match view.in_memory(hash, key, take) {
            Answer::Nothing => self.read_stored(&view, (hash, key), take),
            answer => Ok(answer.value()),
        }
    }

    /// Reads a key that the memtables of the view lack: by the location cache, then by the index.
    #[inline]
    pub(super) fn read_stored<T: ValueSink>(
        &self,
        view: &SuperVersion,
        (hash, key): (u64, &[u8]),
        take: &mut T,
    ) -> Result<Option<T::Output>> {
        let there = |entered| self.take_there(view, entered, key, take);
        let known = self.shortcuts.known(hash);
        if let Some(taken) = known.as_ref().and_then(|known| known.follow(there)) {
            return Ok(Some(taken));
        }
        let token = Token::default();
        let claim = known.and_then(|known| known.claim(&token));
        self.read_indexed(view, (hash, key), claim, take)
    }

    /// Reads a key through the index, and fills the claimed word of the location cache.
    #[inline]
    pub(super) fn read_indexed<T: ValueSink>(
        &self,
        view: &SuperVersion,
        (hash, key): (u64, &[u8]),
        claim: Option<Claim<'_>>,
        take: &mut T,
    ) -> Result<Option<T::Output>> {
        let Some(entered) = self.entered(key)? else { return Ok(None) };
        let place = entered.place;
        match view.version.find(place.run) {
            Some(run) => {
                run.prefetch(entered, &self.cache);
                if let Some(claim) = claim.filter(|_| run.has_shortcuts()) {
                    claim.fill(entered);
                }
                self.read_at((run, place.block), (hash, key), take).map(Some)
            }
            None => self.read_moved(place, (hash, key), take),
        }
    }

    /// Reads a key at a cached place. Returns `None` unless its block is cached and the key's entry
    /// is the only one that begins in that part of the block.
    #[inline]
    fn take_there<T: ValueSink>(
        &self,
        view: &SuperVersion,
        entered: Entered,
        key: &[u8],
        take: &mut T,
    ) -> Option<T::Output> {
        let run = view.version.find(entered.place.run)?;
        let at = run.beginning(entered)?;
        run.prefetch(entered, &self.cache);
        self.cache.find_key_at(run.sst.slot(entered.place.block), at, key, take)
    }

    /// Reads a key whose run the view lacks: the run is newer, or a compaction removed it.
    #[cold]
    fn read_moved<T: ValueSink>(
        &self,
        mut place: Place,
        (hash, key): (u64, &[u8]),
        take: &mut T,
    ) -> Result<Option<T::Output>> {
        loop {
            let view = self.front.view.load();
            if let Some(run) = view.version.find(place.run) {
                return self.read_at((run, place.block), (hash, key), take).map(Some);
            }
            match self.locate(key)? {
                None => return Ok(None),
                Some(now) if now == place => return Err(self.no_run(key.escape_ascii(), place)),
                Some(now) => place = now,
            }
        }
    }

    /// Reads a key from a block. Fails with `Corruption` if the block lacks it.
    #[inline]
    fn read_at<T: ValueSink>(
        &self,
        (run, number): (&Run, u32),
        (hash, key): (u64, &[u8]),
        take: &mut T,
    ) -> Result<T::Output> {
        match self.cache.find(run.sst.slot(number), (hash, key), take) {
            Some(Answer::Value(value)) => Ok(value),
            Some(_) => Err(not_there(run, number, key)),
            None => self.read_block(run, number, key, take),
        }
    }

    /// As [`Self::read_at`], from disk; the cache is filled.
    #[cold]
    fn read_block<T: ValueSink>(
        &self,
        run: &Run,
        number: u32,
        key: &[u8],
        take: &mut T,
    ) -> Result<T::Output> {
        if number >= run.sst.blocks() {
            return Err(not_there(run, number, key));
        }
        let span = run.sst.span(number..number + 1);
        self.note_read(span);
        let mut buffer = self.buffers.lend(span.whole());
        run.sst.read_into(span, &mut buffer)?;
        let taken = self.take_block((run, number), (span, &buffer), key, take);
        self.buffers.keep(buffer);
        taken
    }

    pub(super) fn note_read(&self, span: Span) {
        self.counters.reads_total.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes_total.fetch_add(to_u64(span.whole()), Ordering::Relaxed);
    }

    /// Finds a key in a block that was read, and fills the cache with the block.
    fn take_block<T: ValueSink>(
        &self,
        (run, number): (&Run, u32),
        (span, buffer): (Span, &AlignedBuffer),
        key: &[u8],
        take: &mut T,
    ) -> Result<T::Output> {
        let open = run.sst.open_block(buffer, span, (number, number))?;
        let entries = open.entries();
        self.cache.fill(run.sst.slot_to_fill(number, &self.cache), entries);
        let entry = block::find(entries, key).filter(|entry| !entry.tombstone);
        let entry = entry.ok_or_else(|| not_there(run, number, key))?;
        Ok(take.of_bytes(entries.get(entry.value).unwrap_or(&[])))
    }

    /// Appends the value of each key, in the order of `keys`.
    pub(super) fn read_many(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        let view = self.front.view.load_full();
        let mut asked = Vec::new();
        for window in keys.chunks(WINDOW) {
            self.look_for(&view, window, out, &mut asked)?;
        }
        if asked.is_empty() {
            return Ok(());
        }
        self.queues.with(&*self.context.env, |queue| {
            asked.chunks(READS_MAX).try_for_each(|asked| self.read_blocks(asked, queue, out))
        })
    }

    /// Looks some keys up in memtables, index and cache; those that need a read go to `asked`.
    fn look_for<'k>(
        &self,
        view: &SuperVersion,
        keys: &[&'k [u8]],
        out: &mut Vec<Option<Value>>,
        asked: &mut Vec<Asked<'k>>,
    ) -> Result<()> {
        let mut wanted: Vec<(&'k [u8], u64, usize)> = Vec::with_capacity(keys.len());
        for key in keys {
            let hash = self.hash(key);
            match view.in_memory(hash, key, &mut AppendOwned(out)) {
                Answer::Value(()) => {}
                Answer::Deleted => out.push(None),
                Answer::Nothing => {
                    wanted.push((key, hash, out.len()));
                    out.push(None);
                }
            }
        }
        if !self.keys.is_decided() {
            return Ok(());
        }
        let (mut coded, mut ends) = (Vec::new(), Vec::with_capacity(wanted.len()));
        for (key, ..) in &wanted {
            self.keys.push(key, &mut coded);
            ends.push(coded.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let bounds = starts.zip(ends.iter().copied());
        let stored: Vec<&[u8]> = bounds.map(|(from, to)| &coded[from..to]).collect();
        let mut places = Vec::with_capacity(stored.len());
        self.paged.tree.multi_get(&stored, Entered::take, &mut places)?;
        for entered in places.iter().flatten().flatten() {
            if let Some(run) = view.version.find(entered.place.run) {
                run.prefetch(*entered, &self.cache);
            }
        }
        let wanted = wanted.into_iter().zip(&stored);
        for (((key, hash, slot), coded), entered) in wanted.zip(places) {
            let Some(entered) = entered else { continue };
            let place = self.sure(IndexKey(coded), entered)?.place;
            let Some(run) = view.version.find(place.run) else {
                put_in(out, slot, self.read_moved(place, (hash, key), &mut OwnedValue)?);
                continue;
            };
            match self.cache.find(run.sst.slot(place.block), (hash, key), &mut OwnedValue) {
                Some(Answer::Value(value)) => put_in(out, slot, Some(value)),
                None if place.block < run.sst.blocks() => {
                    let span = run.sst.span(place.block..place.block + 1);
                    let (run, block) = (Arc::clone(run), place.block);
                    asked.push(Asked { key, hash, slot, run, block, span });
                }
                _ => return Err(not_there(run, place.block, key)),
            }
        }
        Ok(())
    }

    /// Reads one block for each key, all at once. On failure, returns the first error.
    fn read_blocks(
        &self,
        asked: &[Asked<'_>],
        queue: &mut dyn Queue,
        out: &mut [Option<Value>],
    ) -> Result<()> {
        for (token, one) in asked.iter().enumerate() {
            self.note_read(one.span);
            let buffer = self.buffers.lend(one.span.whole());
            let length = buffer.len();
            let (file, offset) = (Arc::clone(one.run.sst.file()), one.span.offset);
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length });
        }
        let (mut done, mut outcome) = (Vec::new(), Ok(()));
        while queue.pending() > 0 {
            queue.wait(1, &mut done);
            for Completion { token, buffer, result } in done.drain(..) {
                let Some(one) = asked.get(to_usize(token)) else { continue };
                let value = match result {
                    Ok(count) if count == buffer.len() => {
                        let read = (one.span, &buffer);
                        self.take_block((&one.run, one.block), read, one.key, &mut OwnedValue)
                    }
                    // A single read returns the error.
                    _ => self.read_at((&one.run, one.block), (one.hash, one.key), &mut OwnedValue),
                };
                match value {
                    Ok(value) => put_in(out, one.slot, Some(value)),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
                self.buffers.keep(buffer);
            }
        }
        outcome
    }
}

fn put_in(out: &mut [Option<Value>], slot: usize, value: Option<Value>) {
    if let Some(place) = out.get_mut(slot) {
        *place = value;
    }
}

/// The error of an index entry that points to a block without the key.
#[cold]
pub(super) fn not_there(run: &Run, number: u32, key: &[u8]) -> Error {
    let what =
        format!("block {number} lacks key {}, which is said to be there", key.escape_ascii());
    run.sst.damage(0, what)
}
