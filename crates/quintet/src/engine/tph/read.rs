//! Gets and multi-gets.
//!
//! A get searches the memtables, then the index of each table that may have the key, from the
//! newest to the oldest. An index that returns a block costs one direct read, if the block is not
//! in the cache. A multi-get reads the blocks of all its keys at once. It reads again for the keys
//! whose signature matched by chance.
//!
//! With two tiers, the index leads to a piece and the piece's local hash to the block. A block that
//! is read leads to the entry by its table of slots; a cached block is searched by hash bytes.

use std::sync::Arc;

use super::{
    store::TphStore,
    table::{TableSst, TphTable},
    version::SuperVersion,
};
use crate::{
    Result,
    contract::{OwnedValue, Value, ValueSink, value_sink::AppendOwned},
    io::{AlignedBuffer, Queue, Request},
    lsm::{
        memtable::Answer,
        sst::{Span, block, slot_block::SlotBlock},
    },
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

/// Number of keys of a multi-get that are searched together. Their cache misses overlap, and the
/// first lines of their blocks fit the first-level cache.
const WINDOW: usize = 32;
/// Maximum number of blocks that a multi-get reads at once: it bounds the memory.
const READS_MAX: usize = 256;

/// The search of one key.
#[derive(Clone)]
struct KeySearch<'a> {
    key: &'a [u8],
    /// Index of the key in the output.
    index: usize,
    hash: u64,
    /// Number of the next table: those of level 0 are first, then one of each level.
    next: usize,
    /// The newest entry of the key was found.
    is_done: bool,
}

impl KeySearch<'_> {
    /// Returns the next block that may have the key.
    fn next_block<'v>(
        &mut self,
        store: &TphStore,
        super_version: &'v SuperVersion,
    ) -> Option<(&'v TableSst, u32)> {
        let count = super_version.version.level0.len() + super_version.version.levels.len();
        while self.next < count {
            let table = self.table(store, super_version);
            self.next += 1;
            if let Some(found) = table.and_then(|table| table.find(self.hash, self.key)) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the table that the search has reached.
    #[inline]
    fn table<'v>(
        &self,
        store: &TphStore,
        super_version: &'v SuperVersion,
    ) -> Option<&'v Arc<TphTable>> {
        let version = &super_version.version;
        match self.next.checked_sub(version.level0.len()) {
            Some(level) => store.table_of(version.levels.get(level)?, self.key),
            None => version.level0.get(self.next),
        }
    }
}

/// The result of a search in memory: an answer, or the block to read.
enum SearchStep<'v, T> {
    Answer(Answer<T>),
    Block(&'v TableSst, u32),
}

/// A block that is read for a key.
struct BlockRead<'v, 'k> {
    search: KeySearch<'k>,
    piece: &'v TableSst,
    number: u32,
    span: Span,
}

impl TphStore {
    /// Returns the table of a level that a key belongs to.
    #[inline]
    fn table_of<'v>(&self, level: &'v [Arc<TphTable>], key: &[u8]) -> Option<&'v Arc<TphTable>> {
        let after = self.partitioning.with(key, |partition_key| {
            level.partition_point(|table| table.lower_bound.as_slice() <= partition_key)
        });
        level.get(after.checked_sub(1)?)
    }

    /// Passes the value of a key to the sink. Returns `None` if there is no value.
    #[inline]
    pub(super) fn read_value<T: ValueSink>(
        &self,
        key: &[u8],
        sink: &mut T,
    ) -> Result<Option<T::Output>> {
        let super_version = self.write_buffer.view.load();
        let hash = self.hash(key);
        match super_version.in_memory(hash, key, sink) {
            Answer::Nothing => {}
            answer => return Ok(answer.value()),
        }
        let mut search = KeySearch { key, index: 0, hash, next: 0, is_done: false };
        loop {
            let answer = match self.continue_search(&super_version, &mut search, sink) {
                SearchStep::Answer(answer) => return Ok(answer.value()),
                SearchStep::Block(piece, number) => {
                    self.read_block((piece, number), &search, sink)?
                }
            };
            if !matches!(answer, Answer::Nothing) {
                return Ok(answer.value());
            }
        }
    }

    /// Continues a search until it ends or needs a block from the disk.
    #[inline]
    fn continue_search<'v, T: ValueSink>(
        &self,
        super_version: &'v SuperVersion,
        search: &mut KeySearch<'_>,
        sink: &mut T,
    ) -> SearchStep<'v, T::Output> {
        while let Some((piece, number)) = search.next_block(self, super_version) {
            match self.cache.find(piece.sst.slot(number), (search.hash, search.key), sink) {
                None => return SearchStep::Block(piece, number),
                Some(Answer::Nothing) => {}
                Some(answer) => return SearchStep::Answer(answer),
            }
        }
        SearchStep::Answer(Answer::Nothing)
    }

    /// Reads a block and looks the key up in it.
    #[cold]
    fn read_block<T: ValueSink>(
        &self,
        (piece, number): (&TableSst, u32),
        search: &KeySearch<'_>,
        sink: &mut T,
    ) -> Result<Answer<T::Output>> {
        let span = piece.sst.span(number..number + 1);
        self.count_read(span);
        let buffer = piece.sst.read(span)?;
        self.find_in_block((piece, number), (span, &buffer), search, sink)
    }

    fn count_read(&self, span: Span) {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(to_u64(span.whole()), Ordering::Relaxed);
    }

    /// Looks a key up in a block that was read, and adds the block to the cache.
    fn find_in_block<T: ValueSink>(
        &self,
        (piece, number): (&TableSst, u32),
        (span, buffer): (Span, &AlignedBuffer),
        search: &KeySearch<'_>,
        sink: &mut T,
    ) -> Result<Answer<T::Output>> {
        let sst = &piece.sst;
        let block = sst.open_block(buffer, span, (number, number))?;
        let (entries, found) = match &piece.local {
            None => (block.entries(), block::find(block.entries(), search.key)),
            Some(local) => {
                let slots = SlotBlock::parse(block.entries());
                let slots = slots
                    .ok_or_else(|| sst.damage(span.offset, "a block has no table of slots"))?;
                let place = local.find(search.hash, search.key);
                (slots.entries(), place.and_then(|place| slots.find(place.slot, search.key)))
            }
        };
        self.cache.fill(sst.slot_to_fill(number, &self.cache), entries);
        let Some(entry) = found else {
            self.counters.false_reads.fetch_add(1, Ordering::Relaxed);
            return Ok(Answer::Nothing);
        };
        if entry.tombstone {
            return Ok(Answer::Deleted);
        }
        Ok(Answer::Value(sink.of_bytes(entries.get(entry.value).unwrap_or(&[]))))
    }

    /// Appends the values of the keys to `out`.
    pub(super) fn read_many(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        let super_version = self.write_buffer.view.load_full();
        let mut reads = Vec::new();
        for window in keys.chunks(WINDOW) {
            let mut searches = Vec::with_capacity(window.len());
            for key in window {
                let hash = self.hash(key);
                let mut search = KeySearch { key, index: out.len(), hash, next: 0, is_done: false };
                let answer = super_version.in_memory(hash, key, &mut AppendOwned(out));
                search.is_done = !matches!(answer, Answer::Nothing);
                if !matches!(answer, Answer::Value(())) {
                    out.push(None);
                }
                searches.push(search);
            }
            self.search_window(&super_version, searches, &mut reads, out);
        }
        if reads.is_empty() {
            return Ok(());
        }
        self.queues.with(&*self.context.env, |queue| {
            // A second round is needed for signatures that matched by chance.
            while !reads.is_empty() {
                let mut next = Vec::new();
                while !reads.is_empty() {
                    let rest = reads.split_off(reads.len().min(READS_MAX));
                    self.read_blocks(&mut reads, queue, out)?;
                    for read in std::mem::replace(&mut reads, rest) {
                        next.extend(self.continue_read(&super_version, read, out));
                    }
                }
                reads = next;
            }
            Ok(())
        })
    }

    /// Continues many searches until each ends or needs a block from the disk.
    ///
    /// All searches take each step together, so that their cache misses overlap. The steps are:
    /// index slots, then blocks, then the cache's entries of the blocks, then the keys.
    fn search_window<'v, 'k>(
        &self,
        super_version: &'v SuperVersion,
        mut searches: Vec<KeySearch<'k>>,
        reads: &mut Vec<BlockRead<'v, 'k>>,
        out: &mut [Option<Value>],
    ) {
        let count = super_version.version.level0.len() + super_version.version.levels.len();
        let mut slots = Vec::with_capacity(searches.len());
        let mut blocks = Vec::with_capacity(searches.len());
        for _ in 0..count {
            searches.retain(|search| !search.is_done);
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
            for (piece, number) in blocks.iter().flatten() {
                self.cache.prefetch(piece.sst.slot(*number));
            }
            for (search, found) in searches.iter_mut().zip(&blocks) {
                search.next += 1;
                let Some((piece, number)) = *found else { continue };
                let wanted = (search.hash, search.key);
                match self.cache.find(piece.sst.slot(number), wanted, &mut OwnedValue) {
                    Some(Answer::Nothing) => {}
                    Some(answer) => {
                        search.is_done = true;
                        if let Some(slot) = out.get_mut(search.index) {
                            *slot = answer.value();
                        }
                    }
                    None => {
                        // `continue_read` continues this search.
                        let span = piece.sst.span(number..number + 1);
                        reads.push(BlockRead { search: search.clone(), piece, number, span });
                        search.is_done = true;
                    }
                }
            }
        }
    }

    /// Continues the search of a block that was read. Returns the next block if there is one.
    fn continue_read<'v, 'k>(
        &self,
        super_version: &'v SuperVersion,
        mut read: BlockRead<'v, 'k>,
        out: &mut [Option<Value>],
    ) -> Option<BlockRead<'v, 'k>> {
        if read.search.is_done {
            return None;
        }
        match self.continue_search(super_version, &mut read.search, &mut OwnedValue) {
            SearchStep::Answer(answer) => {
                if let Some(slot) = out.get_mut(read.search.index) {
                    *slot = answer.value();
                }
                None
            }
            SearchStep::Block(piece, number) => {
                let span = piece.sst.span(number..number + 1);
                Some(BlockRead { piece, number, span, ..read })
            }
        }
    }

    /// Reads the blocks of several keys at once and looks the keys up in them.
    fn read_blocks(
        &self,
        reads: &mut [BlockRead<'_, '_>],
        queue: &mut dyn Queue,
        out: &mut [Option<Value>],
    ) -> Result<()> {
        for (token, one) in reads.iter().enumerate() {
            self.count_read(one.span);
            let buffer = AlignedBuffer::zeroed(one.span.whole());
            let length = buffer.len();
            let (file, offset) = (Arc::clone(one.piece.sst.file()), one.span.offset);
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length });
        }
        let mut done = Vec::new();
        queue.wait(queue.pending(), &mut done);
        let mut outcome = Ok(());
        for completion in done {
            let Some(one) = reads.get_mut(to_usize(completion.token)) else { continue };
            let answer = match completion.result {
                Ok(count) if count == completion.buffer.len() => {
                    let bytes = (one.span, &completion.buffer);
                    self.find_in_block((one.piece, one.number), bytes, &one.search, &mut OwnedValue)
                }
                Ok(_) => {
                    Err(one.piece.sst.damage(one.span.offset, "the file ends before its data"))
                }
                Err(error) => Err(one.piece.sst.read_error(one.span.offset, error)),
            };
            match answer {
                Ok(Answer::Nothing) => {}
                Ok(answer) => {
                    one.search.is_done = true;
                    if let Some(slot) = out.get_mut(one.search.index) {
                        *slot = answer.value();
                    }
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}
