//! Reading: gets and batches of them.
//!
//! A get asks memtables, then the index of each table that may have the key, from the newest to the
//! oldest; an index that names a block costs one direct read. A batch asks for all its keys'
//! blocks at once, and once more for those that were named by chance or hide nothing.

use std::sync::Arc;

use super::{SuperVersion, TphStore, table::TphTable};
use crate::{
    Result,
    contract::{OwnedValue, Value, ValueSink, value_sink::AppendOwned},
    io::{AlignedBuffer, Queue, Request},
    lsm::{
        memtable::Answer,
        sst::{Span, Sst, block},
    },
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

/// Keys of a batch that are looked for side by side: as many as memory answers at once, and their
/// blocks' first lines fit the nearest cache.
const WINDOW: usize = 32;
/// Blocks of one batch in memory at once.
const READS_MAX: usize = 256;

/// A key that is looked for: where the search goes on.
#[derive(Clone)]
struct KeySearch<'a> {
    key: &'a [u8],
    /// Where its value goes.
    place: usize,
    hash: u64,
    /// The next table: those of level 0, then one for each level.
    next: usize,
    /// The key's newest entry was found.
    is_over: bool,
}

impl KeySearch<'_> {
    /// The next block that may have the key.
    fn next<'v>(
        &mut self,
        inner: &TphStore,
        super_version: &'v SuperVersion,
    ) -> Option<(&'v Arc<Sst>, u32)> {
        let count = super_version.version.level0.len() + super_version.version.levels.len();
        while self.next < count {
            let table = self.table(inner, super_version);
            self.next += 1;
            if let Some(found) = table.and_then(|table| table.find(self.hash, self.key)) {
                return Some(found);
            }
        }
        None
    }

    /// The table that the search has come to.
    #[inline]
    fn table<'v>(
        &self,
        inner: &TphStore,
        super_version: &'v SuperVersion,
    ) -> Option<&'v Arc<TphTable>> {
        let version = &super_version.version;
        match self.next.checked_sub(version.level0.len()) {
            Some(place) => inner.table_of(version.levels.get(place)?, self.key),
            None => version.level0.get(self.next),
        }
    }
}

/// What memory says of a key, or the block that has to be read.
enum SearchStep<'v, T> {
    Answer(Answer<T>),
    Block(&'v Arc<Sst>, u32),
}

/// A block that is being read for a key.
struct BlockRead<'v, 'k> {
    search: KeySearch<'k>,
    sst: &'v Arc<Sst>,
    number: u32,
    span: Span,
}

impl TphStore {
    /// The table of a level that a key belongs to.
    #[inline]
    fn table_of<'v>(&self, level: &'v [Arc<TphTable>], key: &[u8]) -> Option<&'v Arc<TphTable>> {
        let after = self.route.with(key, |place| {
            level.partition_point(|table| table.lower_bound.as_slice() <= place)
        });
        level.get(after.checked_sub(1)?)
    }

    /// What `take` makes of the value of a key.
    #[inline]
    pub(super) fn read_value<T: ValueSink>(
        &self,
        key: &[u8],
        take: &mut T,
    ) -> Result<Option<T::Output>> {
        let super_version = self.write_buffer.view.load();
        let hash = self.hash(key);
        match super_version.in_memory(hash, key, take) {
            Answer::Nothing => {}
            answer => return Ok(answer.value()),
        }
        let mut search = KeySearch { key, place: 0, hash, next: 0, is_over: false };
        loop {
            let answer = match self.look(&super_version, &mut search, take) {
                SearchStep::Answer(answer) => return Ok(answer.value()),
                SearchStep::Block(sst, number) => self.read_block((sst, number), &search, take)?,
            };
            if !matches!(answer, Answer::Nothing) {
                return Ok(answer.value());
            }
        }
    }

    /// Goes on with a search until it ends, or to a block that has to be read.
    #[inline]
    fn look<'v, T: ValueSink>(
        &self,
        super_version: &'v SuperVersion,
        search: &mut KeySearch<'_>,
        take: &mut T,
    ) -> SearchStep<'v, T::Output> {
        while let Some((sst, number)) = search.next(self, super_version) {
            match self.cache.find(sst.slot(number), (search.hash, search.key), take) {
                None => return SearchStep::Block(sst, number),
                Some(Answer::Nothing) => {}
                Some(answer) => return SearchStep::Answer(answer),
            }
        }
        SearchStep::Answer(Answer::Nothing)
    }

    /// What a block on the disk says of a key.
    #[cold]
    fn read_block<T: ValueSink>(
        &self,
        (sst, number): (&Sst, u32),
        search: &KeySearch<'_>,
        take: &mut T,
    ) -> Result<Answer<T::Output>> {
        let span = sst.span(number..number + 1);
        self.note_read(span);
        let buffer = sst.read(span)?;
        self.answer((sst, number), (span, &buffer), search, take)
    }

    fn note_read(&self, span: Span) {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(to_u64(span.whole()), Ordering::Relaxed);
    }

    fn answer<T: ValueSink>(
        &self,
        (sst, number): (&Sst, u32),
        (span, buffer): (Span, &AlignedBuffer),
        search: &KeySearch<'_>,
        take: &mut T,
    ) -> Result<Answer<T::Output>> {
        let open = sst.open_block(buffer, span, (number, number))?;
        let entries = open.entries();
        self.cache.fill(sst.slot_to_fill(number, &self.cache), entries);
        let Some(entry) = block::find(entries, search.key) else {
            self.counters.false_reads.fetch_add(1, Ordering::Relaxed);
            return Ok(Answer::Nothing);
        };
        if entry.tombstone {
            return Ok(Answer::Deleted);
        }
        Ok(Answer::Value(take.of_bytes(entries.get(entry.value).unwrap_or(&[]))))
    }

    /// The values of many keys.
    pub(super) fn read_many(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        let super_version = self.write_buffer.view.load_full();
        let mut open = Vec::new();
        for window in keys.chunks(WINDOW) {
            let mut searches = Vec::with_capacity(window.len());
            for key in window {
                let hash = self.hash(key);
                let mut search = KeySearch { key, place: out.len(), hash, next: 0, is_over: false };
                let answer = super_version.in_memory(hash, key, &mut AppendOwned(out));
                search.is_over = !matches!(answer, Answer::Nothing);
                if !matches!(answer, Answer::Value(())) {
                    out.push(None);
                }
                searches.push(search);
            }
            self.look_for_all(&super_version, searches, &mut open, out);
        }
        if open.is_empty() {
            return Ok(());
        }
        self.queues.with(&*self.context.env, |queue| {
            // Later rounds are of signatures that matched by chance.
            while !open.is_empty() {
                let mut next = Vec::new();
                while !open.is_empty() {
                    let rest = open.split_off(open.len().min(READS_MAX));
                    self.read_blocks(&mut open, queue, out)?;
                    for asked in std::mem::replace(&mut open, rest) {
                        next.extend(self.go_on(&super_version, asked, out));
                    }
                }
                open = next;
            }
            Ok(())
        })
    }

    /// Goes on with many searches: each ends, or comes to a block that has to be read.
    ///
    /// Step by step for all of them, so that what one waits for in memory is on its way while the
    /// others ask for theirs: slots, then blocks, then their places in the cache, then the keys.
    fn look_for_all<'v, 'k>(
        &self,
        super_version: &'v SuperVersion,
        mut searches: Vec<KeySearch<'k>>,
        open: &mut Vec<BlockRead<'v, 'k>>,
        out: &mut [Option<Value>],
    ) {
        let count = super_version.version.level0.len() + super_version.version.levels.len();
        let mut slots = Vec::with_capacity(searches.len());
        let mut blocks = Vec::with_capacity(searches.len());
        for _ in 0..count {
            searches.retain(|search| !search.is_over);
            slots.clear();
            slots.extend(searches.iter().map(|search| {
                let table = search.table(self, super_version);
                (table, table.map_or(0, |table| table.slot_of(search.hash)))
            }));
            blocks.clear();
            blocks.extend(slots.iter().zip(&searches).map(|((table, slot), search)| {
                let table: &'v Arc<TphTable> = (*table)?;
                table.find_at(*slot, search.hash, search.key)
            }));
            for (sst, number) in blocks.iter().flatten() {
                self.cache.prefetch(sst.slot(*number));
            }
            for (search, found) in searches.iter_mut().zip(&blocks) {
                search.next += 1;
                let Some((sst, number)) = *found else { continue };
                let wanted = (search.hash, search.key);
                match self.cache.find(sst.slot(number), wanted, &mut OwnedValue) {
                    Some(Answer::Nothing) => {}
                    Some(answer) => {
                        search.is_over = true;
                        if let Some(slot) = out.get_mut(search.place) {
                            *slot = answer.value();
                        }
                    }
                    None => {
                        // From here on it goes on alone.
                        let span = sst.span(number..number + 1);
                        open.push(BlockRead { search: search.clone(), sst, number, span });
                        search.is_over = true;
                    }
                }
            }
        }
    }

    /// The next block of a search that is not over.
    fn go_on<'v, 'k>(
        &self,
        super_version: &'v SuperVersion,
        mut asked: BlockRead<'v, 'k>,
        out: &mut [Option<Value>],
    ) -> Option<BlockRead<'v, 'k>> {
        if asked.search.is_over {
            return None;
        }
        match self.look(super_version, &mut asked.search, &mut OwnedValue) {
            SearchStep::Answer(answer) => {
                if let Some(slot) = out.get_mut(asked.search.place) {
                    *slot = answer.value();
                }
                None
            }
            SearchStep::Block(sst, number) => {
                let span = sst.span(number..number + 1);
                Some(BlockRead { sst, number, span, ..asked })
            }
        }
    }

    /// Reads a block for each of some keys, all at once.
    fn read_blocks(
        &self,
        asked: &mut [BlockRead<'_, '_>],
        queue: &mut dyn Queue,
        out: &mut [Option<Value>],
    ) -> Result<()> {
        for (token, one) in asked.iter().enumerate() {
            self.note_read(one.span);
            let buffer = AlignedBuffer::zeroed(one.span.whole());
            let length = buffer.len();
            let (file, offset) = (Arc::clone(one.sst.file()), one.span.offset);
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length });
        }
        let mut done = Vec::new();
        queue.wait(queue.pending(), &mut done);
        let mut outcome = Ok(());
        for completion in done {
            let Some(one) = asked.get_mut(to_usize(completion.token)) else { continue };
            let answer = match completion.result {
                Ok(count) if count == completion.buffer.len() => {
                    let read = (one.span, &completion.buffer);
                    self.answer((one.sst, one.number), read, &one.search, &mut OwnedValue)
                }
                Ok(_) => Err(one.sst.damage(one.span.offset, "the file ends before its data")),
                Err(error) => Err(one.sst.read_error(one.span.offset, error)),
            };
            match answer {
                Ok(Answer::Nothing) => {}
                Ok(answer) => {
                    one.search.is_over = true;
                    if let Some(slot) = out.get_mut(one.search.place) {
                        *slot = answer.value();
                    }
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}
