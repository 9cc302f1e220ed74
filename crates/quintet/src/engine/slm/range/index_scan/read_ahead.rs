//! Read-ahead of a scan's blocks.
//!
//! Problem: a disk returns 64 KiB in 90 us and 1 MiB in 800 us. A scan that waits for each read
//! before it submits the next gets half of the disk's throughput. A scan that reads far ahead reads
//! blocks that the caller never asks for.
//!
//! How: the scan names the blocks that it will need. Adjacent blocks of one file become one read.
//! Reads are in flight while the scan returns entries. The scan submits more reads when less than
//! half of a window is left, so the disk stays busy. A range reads at most one window too much. The
//! window grows with the blocks that the scan has read.
//!
//! Invariants: a failed read-ahead is dropped. The scan reads that block alone when it reaches it,
//! and only then returns an error. Reads in flight at the end of a range complete unobserved.
//!
//! Thread rules: one scan owns it.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::{
    engine::slm::{index_value::BlockAddress, run::SortedRun, table::SlmTable},
    io::{AlignedBuffer, Flow, Pending, Request},
    lsm::{
        cursor::merge::{Direction, range_read_bytes},
        memtable::Answer,
        sst::{OpenBlock, Span, block},
    },
    util::{
        codec::{to_u64, to_usize},
        sync::Ordering,
    },
};

/// Minimum bytes of a window. A disk needs about this much in flight for its full throughput.
const WINDOW_BYTES_MIN: usize = 128 << 10;
/// Minimum number of blocks of a window: large blocks are one request each, and a disk needs
/// several requests in flight.
const WINDOW_BLOCKS: usize = 16;
/// Limit of the bytes of these [`WINDOW_BLOCKS`].
const WINDOW_BLOCKS_BYTES_MAX: usize = 384 << 10;
/// Fraction of the bytes that the scan has read which the window grows to: a 16th.
const WINDOW_SHARE: usize = 16;
/// Maximum bytes of a window that has grown, with a budget that is large enough.
const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of unwanted bytes between two blocks of one read. Reading one page too much costs
/// less than another read.
const GAP_BYTES: u64 = 4 << 10;

/// The reads in flight and the blocks read of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanReadAhead {
    /// Queue of the reads in flight; `None` if none was in flight lately.
    flow: Option<Flow>,
    /// In the order of their requests. Those before `oldest` are discarded.
    reads: Vec<PendingRead>,
    oldest: usize,
    /// The requested blocks of all reads that are not discarded.
    blocks: BTreeMap<BlockAddress, RequestedBlock>,
    /// Bytes of all blocks that were requested so far.
    bytes: usize,
    /// Bytes of the window.
    window: usize,
}

/// A read of several blocks of one run, in order, with small gaps between them.
#[derive(Debug)]
struct PendingRead {
    run: Arc<SortedRun>,
    blocks: Vec<u32>,
    /// The first of the scan's entries that needs one of the blocks.
    first_index: usize,
    /// The last one.
    last_index: usize,
    /// Bytes of the blocks without the gaps.
    bytes: usize,
    state: PendingReadState,
}

/// The state of a read.
#[derive(Debug)]
enum PendingReadState {
    InFlight(Pending),
    /// With the bytes that were read.
    Done(AlignedBuffer),
    /// Not submitted yet, failed, or passed by the scan.
    Discarded,
}

/// A requested block.
#[derive(Debug)]
struct RequestedBlock {
    /// Index of its read.
    read: usize,
    entries: FetchedEntries,
    /// Offset behind the entry that was found last.
    at: usize,
}

/// The entries of a requested block.
#[derive(Debug)]
enum FetchedEntries {
    InFlight,
    /// In these bytes of the read's buffer.
    InBuffer(Range<usize>),
    /// Decompressed.
    Unpacked(Vec<u8>),
}

/// A block to request, with the first and the last of the scan's entries that need it.
#[derive(Debug)]
pub(super) struct WantedBlock<'r> {
    pub(super) run: &'r Arc<SortedRun>,
    /// Index of the first entry.
    pub(super) first: usize,
    /// Index of the last entry.
    pub(super) last: usize,
}

impl ScanReadAhead {
    /// Discards the reads that only entries before index `next` need.
    pub(super) fn discard_before(&mut self, next: usize, table: &SlmTable) {
        while let Some(read) = self.reads.get_mut(self.oldest).filter(|read| read.last_index < next)
        {
            let state = std::mem::replace(&mut read.state, PendingReadState::Discarded);
            for block in &read.blocks {
                self.blocks.remove(&BlockAddress { run: read.run.number, block: *block });
            }
            match state {
                PendingReadState::Done(buffer) => table.buffers.keep(buffer),
                // Reads that the scan has passed must not accumulate.
                PendingReadState::InFlight(pending) => table.buffers.keep(pending.wait().buffer),
                PendingReadState::Discarded => {}
            }
            self.oldest += 1;
        }
    }

    /// Returns the bytes of blocks that the scan may request now if the next block has
    /// `block_bytes`: 0, or at least half a window.
    pub(super) fn request_limit(&mut self, block_bytes: usize, budget: u64) -> usize {
        let most = to_usize(range_read_bytes(budget, WINDOW_BYTES_MAX));
        let least = (block_bytes * WINDOW_BLOCKS).min(WINDOW_BLOCKS_BYTES_MAX);
        let least = least.max(WINDOW_BYTES_MIN);
        self.window = (self.bytes / WINDOW_SHARE).min(most).max(least);
        let left: usize = self.reads.iter().skip(self.oldest).map(|read| read.bytes).sum();
        if left > self.window / 2 { 0 } else { self.window - left }
    }

    /// Whether a block is requested and not discarded. If so, notes that entry `index` needs it.
    pub(super) fn mark_needed(&mut self, address: BlockAddress, index: usize) -> bool {
        let Some(block) = self.blocks.get(&address) else { return false };
        if let Some(read) = self.reads.get_mut(block.read) {
            read.last_index = read.last_index.max(index);
        }
        true
    }

    /// Whether no block is requested.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether a block is requested and its read is in flight.
    pub(super) fn is_in_flight(&self, address: BlockAddress) -> bool {
        let block = self.blocks.get(&address);
        block.is_some_and(|block| matches!(block.entries, FetchedEntries::InFlight))
    }

    /// Requests blocks. Returns the number of reads.
    pub(super) fn request(
        &mut self,
        wanted: BTreeMap<BlockAddress, WantedBlock<'_>>,
        direction: Direction,
        table: &SlmTable,
    ) -> usize {
        let most = self.window / 2;
        let mut added: Vec<PendingRead> = Vec::new();
        for (BlockAddress { block, .. }, WantedBlock { run, first, last }) in wanted {
            let bytes = run.sst.span(block..block + 1).bytes;
            self.bytes += bytes;
            match added.last_mut().filter(|read| read.can_extend_to(run, block, most)) {
                Some(read) => {
                    read.first_index = read.first_index.min(first);
                    read.last_index = read.last_index.max(last);
                    read.blocks.push(block);
                    read.bytes += bytes;
                }
                None => added.push(PendingRead {
                    run: Arc::clone(run),
                    blocks: vec![block],
                    first_index: first,
                    last_index: last,
                    bytes,
                    state: PendingReadState::Discarded,
                }),
            }
        }
        added.sort_unstable_by_key(|read| read.first_index);
        for read in &added {
            table.count_read(read.span());
        }
        let count = added.len();
        table.counters.range_reads_total.fetch_add(to_u64(count), Ordering::Relaxed);
        let first = self.reads.len();
        for (token, read) in (first..).zip(&added) {
            for block in &read.blocks {
                let address = BlockAddress { run: read.run.number, block: *block };
                let block =
                    RequestedBlock { read: token, entries: FetchedEntries::InFlight, at: 0 };
                self.blocks.insert(address, block);
            }
        }
        let is_alone = first == self.oldest && count == 1;
        self.reads.append(&mut added);
        if is_alone {
            self.read_alone(first, direction, table);
        } else if count > 0 {
            self.start(first, direction, table);
        }
        count
    }

    /// Reads synchronously, in one system call. The scan waits for this read while none is in
    /// flight.
    fn read_alone(&mut self, token: usize, direction: Direction, table: &SlmTable) {
        let Some(read) = self.reads.get(token) else { return };
        let mut buffer = table.buffers.lend(read.span().whole());
        let outcome = read.run.sst.read_into(read.span(), &mut buffer);
        self.finish_read(token, outcome.is_ok().then_some(buffer), direction, table);
    }

    /// Submits the reads from index `first` on.
    fn start(&mut self, first: usize, direction: Direction, table: &SlmTable) {
        if self.flow.is_none() {
            self.flow = table.queues.flow(&*table.context.env).ok();
        }
        let Some(flow) = &self.flow else {
            (first..self.reads.len()).for_each(|token| self.read_alone(token, direction, table));
            return;
        };
        let request = |read: &PendingRead| {
            let span = read.span();
            let buffer = table.buffers.lend(span.whole());
            let (file, length) = (Arc::clone(read.run.sst.file()), buffer.len());
            Request::Read { file, offset: span.offset, buffer, length }
        };
        let started = flow.start_all(self.reads.iter().skip(first).map(request));
        for (read, pending) in self.reads.iter_mut().skip(first).zip(started) {
            read.state = PendingReadState::InFlight(pending);
        }
    }

    /// Waits for the read of a block, if it is in flight.
    pub(super) fn wait_for(
        &mut self,
        address: BlockAddress,
        direction: Direction,
        table: &SlmTable,
    ) {
        if !self.is_in_flight(address) {
            return;
        }
        let Some(token) = self.blocks.get(&address).map(|block| block.read) else { return };
        let Some(read) = self.reads.get_mut(token) else { return };
        let PendingReadState::InFlight(pending) =
            std::mem::replace(&mut read.state, PendingReadState::Discarded)
        else {
            return;
        };
        let completion = pending.wait();
        let is_whole = completion.result.is_ok_and(|count| count == completion.buffer.len());
        self.finish_read(token, is_whole.then_some(completion.buffer), direction, table);
        let is_waiting = |read: &PendingRead| matches!(read.state, PendingReadState::InFlight(_));
        if !self.reads.iter().skip(self.oldest).any(is_waiting) {
            // A paused scan must not hold one of the system's queues.
            self.flow = None;
        }
    }

    /// Stores the blocks of a read and fills the block cache with them. `buffer` is `None` if the
    /// read failed.
    fn finish_read(
        &mut self,
        token: usize,
        buffer: Option<AlignedBuffer>,
        direction: Direction,
        table: &SlmTable,
    ) {
        let Some(read) = self.reads.get_mut(token) else { return };
        let sst = &read.run.sst;
        // The scan is likely to need the other whole blocks of the buffer next.
        let whole = sst.whole_blocks(read.first_block()..read.last_block() + 1, direction);
        let span = sst.span(whole.clone());
        for number in whole.clone() {
            let address = BlockAddress { run: read.run.number, block: number };
            let wanted = self.blocks.get_mut(&address).filter(|block| block.read == token);
            let within = (read.first_block()..=read.last_block()).contains(&number);
            let open = buffer.as_ref().filter(|_| wanted.is_some() || !within);
            let open =
                open.and_then(|buffer| sst.open_block(buffer, span, (whole.start, number)).ok());
            match (open, wanted) {
                (Some(open), wanted) => {
                    table.cache.fill(sst.slot_to_fill(number, &table.cache), open.entries());
                    if let Some(block) = wanted {
                        block.entries = FetchedEntries::of(open);
                    }
                }
                // The scan reads it alone when it reaches it, and returns the error.
                (None, Some(_)) => drop(self.blocks.remove(&address)),
                (None, None) => {}
            }
        }
        read.state = buffer.map_or(PendingReadState::Discarded, PendingReadState::Done);
    }

    /// Returns the value of a key in a block that is read ahead; `None` for other blocks.
    pub(super) fn find(&mut self, address: BlockAddress, key: &[u8]) -> Option<Answer<&[u8]>> {
        let RequestedBlock { read, entries, at } = self.blocks.get_mut(&address)?;
        let entries = match (entries, self.reads.get(*read).map(|read| &read.state)) {
            (FetchedEntries::InBuffer(range), Some(PendingReadState::Done(buffer))) => {
                buffer.as_slice().get(range.clone())?
            }
            (FetchedEntries::Unpacked(bytes), _) => bytes.as_slice(),
            _ => return None,
        };
        let found = find_from(entries, *at, key).or_else(|| find_from(entries, 0, key));
        let value = found.and_then(|(value, next)| {
            *at = next;
            entries.get(value)
        });
        Some(value.map_or(Answer::Nothing, Answer::Value))
    }

    /// Discards all reads: the next step of the scan counts its entries from 0.
    pub(super) fn clear(&mut self, table: &SlmTable) {
        self.discard_before(usize::MAX, table);
        self.reads.clear();
        self.blocks.clear();
        self.oldest = 0;
    }

    /// Ends the scan. Reads in flight complete without it.
    pub(super) fn end(self, table: &SlmTable) {
        for read in self.reads {
            match read.state {
                PendingReadState::Done(buffer) => table.buffers.keep(buffer),
                PendingReadState::InFlight(pending) => pending.abandon(),
                PendingReadState::Discarded => {}
            }
        }
    }
}

impl FetchedEntries {
    fn of(open: OpenBlock<'_>) -> Self {
        let in_buffer = open.in_place().map(Self::InBuffer);
        in_buffer.unwrap_or_else(|| Self::Unpacked(open.into_entries()))
    }
}

impl PendingRead {
    fn first_block(&self) -> u32 {
        self.blocks.first().copied().unwrap_or(0)
    }

    fn last_block(&self) -> u32 {
        self.blocks.last().copied().unwrap_or(0)
    }

    fn span(&self) -> Span {
        self.run.sst.span(self.first_block()..self.last_block() + 1)
    }

    /// Whether the read can be extended to a block: it follows in the same run after a small gap,
    /// and the read stays below `most` bytes.
    fn can_extend_to(&self, run: &SortedRun, block: u32, most: usize) -> bool {
        run.number == self.run.number
            && self.run.sst.gap_bytes(self.last_block()..block) <= GAP_BYTES
            && self.span().bytes < most
    }
}

/// Finds a key in a block's entries from offset `at` on. Returns the bytes of its value, and the
/// offset of the next entry.
fn find_from(entries: &[u8], mut at: usize, key: &[u8]) -> Option<(Range<usize>, usize)> {
    while let Some((entry, next)) = block::entry_at(entries, at) {
        let found = entries.get(entry.key)?;
        if found == key && !entry.tombstone {
            return Some((entry.value, next));
        }
        if found > key {
            return None;
        }
        at = next;
    }
    None
}
