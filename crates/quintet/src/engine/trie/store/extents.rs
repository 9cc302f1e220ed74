//! Extents: large values, one in each run of blocks of a file.
//!
//! Problem: a large value should neither waste the end of a region nor be copied when its
//! neighbours die.
//!
//! How: an allocator of runs of blocks with next-fit over the holes that earlier values left
//! (CedrusDB, section 3.1). It examines at most `max_scan` holes, and merges neighbours. New values
//! stay in memory until a checkpoint has written them. If memory is short, a logged value is
//! written at once ([`Extents::put_in_file`]), and the next checkpoint syncs it.
//!
//! | offset in `extents` | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | see [`crate::journal::FileHead`], magic `QTRIEEXT` |
//! | 4096 | | extents | the bytes of a value each, from a multiple of 4096; who they belong to, and their CRC32C, is in the record that names the place |
//!
//! How we differ from the paper: a table has few holes, because only large values leave them. They
//! are in memory and part of the state in the journal, so there are no footers to read.
//!
//! Invariant: an extent that a durable state names is not written again before a state without it
//! is durable. A released extent goes to `released`, and becomes a hole when a checkpoint made
//! after that is durable.
//!
//! Thread rules: any thread. Only maintenance makes checkpoints and commits them.

use std::{
    collections::BTreeMap,
    io,
    mem::take,
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Env, File, write_all_at},
    journal::{FileHead, read_all_blocks, redo::Owner, write_back::Writeback},
    util::{
        budget::Budget,
        codec::{Decoder, crc32c, move_to, put_varint, round_up, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, Mutex, Ordering, lock},
    },
};

const NAME: &str = "extents";
const MAGIC: &[u8; 8] = b"QTRIEEXT";
/// Bytes of one write to the file.
const PIECE_BYTES: usize = 1 << 20;

/// Extents in use and free.
#[derive(Debug, Default)]
struct ExtentAllocator {
    /// The first byte never allocated.
    tail: u64,
    /// Holes: offset and bytes.
    holes: BTreeMap<u64, u64>,
    /// Where the search for a hole continues.
    next: u64,
    /// Released extents that a durable state may name: offset and bytes.
    released: Vec<(u64, u64)>,
    /// Values that are not in the file, by offset.
    unwritten: BTreeMap<u64, Arc<[u8]>>,
    counts: ExtentCounts,
}

/// Counts of allocations since the table was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtentCounts {
    pub(crate) allocated: u64,
    /// Allocations in a hole.
    pub(crate) reused: u64,
    /// Holes that allocations inspected.
    pub(crate) inspected: u64,
}

/// The extents of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Extents {
    owner: Owner,
    read_only: bool,
    scan_max: u64,
    budget: Arc<Budget>,
    file: Mutex<Option<Arc<dyn File>>>,
    /// Values were written at once and are not synced.
    is_unsynced: AtomicBool,
    /// A sync of such values failed. Only the log has them for certain, so no checkpoint may
    /// succeed.
    has_lost_values: AtomicBool,
    allocator: Mutex<ExtentAllocator>,
}

/// The values that a checkpoint writes, and the extents that become holes with it.
#[derive(Debug, Default)]
pub(crate) struct ExtentCheckpoint {
    values: Vec<(u64, Arc<[u8]>)>,
    released: Vec<(u64, u64)>,
}

impl Extents {
    pub(crate) fn new(owner: Owner, read_only: bool, scan_max: u64, budget: Arc<Budget>) -> Self {
        let allocator = ExtentAllocator { tail: BLOCK_BYTES, ..ExtentAllocator::default() };
        let (file, allocator) = (Mutex::default(), Mutex::new(allocator));
        let (is_unsynced, has_lost_values) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { owner, read_only, scan_max, budget, file, is_unsynced, has_lost_values, allocator }
    }

    /// Allocates an extent for a value and returns its offset. The value stays in memory until a
    /// checkpoint has written it.
    pub(crate) fn put(&self, value: Arc<[u8]>) -> u64 {
        let bytes = round_up(to_u64(value.len()).max(1), BLOCK_BYTES);
        self.budget.reserve_unchecked(to_u64(value.len()));
        let mut allocator = lock(&self.allocator);
        let offset = allocator.allocate(bytes, self.scan_max);
        allocator.unwritten.insert(offset, value);
        offset
    }

    /// Allocates an extent for a value and writes it, so that it takes no memory. The next
    /// checkpoint syncs it. Fails with `Io` or `DiskFull`; the extent is free then.
    pub(crate) fn put_in_file(&self, value: [&[u8]; 2]) -> Result<u64> {
        let length = value[0].len() + value[1].len();
        let bytes = round_up(to_u64(length).max(1), BLOCK_BYTES);
        let file = self.file()?;
        let offset = lock(&self.allocator).allocate(bytes, self.scan_max);
        let mut buffer = AlignedBuffer::zeroed(PIECE_BYTES.min(to_usize(bytes)));
        let mut rest = value;
        for start in (0..length).step_by(PIECE_BYTES) {
            let count = (length - start).min(PIECE_BYTES);
            let whole = to_usize(round_up(to_u64(count), BLOCK_BYTES));
            let piece = buffer.as_mut_slice().get_mut(..whole).unwrap_or(&mut []);
            move_to(&mut rest, piece);
            if let Err(error) = write_all_at(&*file, piece, offset + to_u64(start)) {
                lock(&self.allocator).free(offset, bytes);
                return Err(Error::io(format!("write {}", self.label()), error));
            }
        }
        mutant!(TrieForgetsUnsyncedValues => return Ok(offset));
        self.is_unsynced.store(true, Ordering::Release);
        Ok(offset)
    }

    /// Releases an extent that no record names any more.
    pub(crate) fn release(&self, offset: u64, value_bytes: u64) {
        let bytes = round_up(value_bytes.max(1), BLOCK_BYTES);
        let mut allocator = lock(&self.allocator);
        if let Some(value) = allocator.unwritten.remove(&offset) {
            self.budget.release(to_u64(value.len()));
        }
        allocator.released.push((offset, bytes));
    }

    /// Reads the value at `offset`. Returns `None` if its checksum does not match: the extent was
    /// reused, or is damaged.
    pub(crate) fn read(&self, offset: u64, bytes: u64, crc: u32) -> Result<Option<Arc<[u8]>>> {
        if let Some(value) = lock(&self.allocator).unwritten.get(&offset) {
            let same = to_u64(value.len()) == bytes && crc32c(value) == crc;
            return Ok(same.then(|| Arc::clone(value)));
        }
        let Some(file) = lock(&self.file).clone() else { return Ok(None) };
        let mut buffer = AlignedBuffer::zeroed(to_usize(bytes));
        match read_all_blocks(&*file, buffer.as_mut_slice(), offset) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(Error::io(format!("read {}", self.label()), error)),
        }
        let value = buffer.as_slice().get(..to_usize(bytes)).unwrap_or(&[]);
        Ok((crc32c(value) == crc).then(|| value.into()))
    }

    pub(crate) fn label(&self) -> String {
        self.owner.label(NAME)
    }

    /// Takes the values that the file lacks, and the extents that were released. The caller keeps
    /// writers out.
    pub(crate) fn begin_checkpoint(&self) -> ExtentCheckpoint {
        let mut allocator = lock(&self.allocator);
        let values = allocator.unwritten.iter().map(|(at, value)| (*at, Arc::clone(value)));
        ExtentCheckpoint { values: values.collect(), released: take(&mut allocator.released) }
    }

    /// Writes a checkpoint's values and syncs them. Returns the bytes written.
    pub(crate) fn write(&self, env: &dyn Env, checkpoint: &ExtentCheckpoint) -> Result<u64> {
        let label = self.label();
        if self.has_lost_values.load(Ordering::Acquire) {
            let lost = io::Error::other("an earlier sync failed; reopen the database");
            return Err(Error::io(format!("sync {label}"), lost));
        }
        if checkpoint.values.is_empty() && !self.is_unsynced.load(Ordering::Acquire) {
            return Ok(0);
        }
        let file = self.file()?;
        let mut writes = Writeback::new(env)?;
        for (offset, value) in &checkpoint.values {
            for (at, piece) in (*offset..).step_by(PIECE_BYTES).zip(value.chunks(PIECE_BYTES)) {
                let mut buffer = AlignedBuffer::zeroed(piece.len());
                let length = buffer.len();
                if let Some(front) = buffer.as_mut_slice().get_mut(..piece.len()) {
                    front.copy_from_slice(piece);
                }
                writes.write((&file, &label), at, buffer, length);
            }
        }
        writes.finish()?;
        // Values that are written from here on belong to the next checkpoint.
        let is_unsynced = self.is_unsynced.swap(false, Ordering::AcqRel);
        file.sync_data().map_err(|error| {
            self.has_lost_values.fetch_or(is_unsynced, Ordering::AcqRel);
            Error::io(format!("sync {label}"), error)
        })?;
        Ok(writes.written_bytes())
    }

    /// Commits a checkpoint that is durable: drops its values from memory, and makes its released
    /// extents holes.
    pub(crate) fn commit(&self, checkpoint: &ExtentCheckpoint) {
        let mut allocator = lock(&self.allocator);
        for (offset, value) in &checkpoint.values {
            let same = allocator.unwritten.get(offset).is_some_and(|now| Arc::ptr_eq(now, value));
            if same {
                allocator.unwritten.remove(offset);
                self.budget.release(to_u64(value.len()));
            }
        }
        let file = lock(&self.file).clone();
        for (offset, bytes) in &checkpoint.released {
            allocator.free(*offset, *bytes);
            if let Some(file) = &file {
                // File systems without this keep the space.
                let _ = file.punch_hole(*offset, *bytes);
            }
        }
    }

    /// Undoes [`Self::begin_checkpoint`] for a checkpoint that failed.
    pub(crate) fn abort(&self, checkpoint: ExtentCheckpoint) {
        lock(&self.allocator).released.extend(checkpoint.released);
    }

    /// Returns the file, and creates it if there is none.
    fn file(&self) -> Result<Arc<dyn File>> {
        let mut file = lock(&self.file);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        Ok(Arc::clone(file.insert(self.head().create(&self.owner, NAME)?)))
    }

    fn head(&self) -> FileHead {
        FileHead::new(*MAGIC, &self.owner, BLOCK_BYTES)
    }

    /// Appends the state after the checkpoint. The caller keeps writers out.
    pub(crate) fn encode(&self, checkpoint: &ExtentCheckpoint, out: &mut Vec<u8>) {
        let allocator = lock(&self.allocator);
        let mut after = ExtentAllocator {
            tail: allocator.tail,
            holes: allocator.holes.clone(),
            ..ExtentAllocator::default()
        };
        drop(allocator);
        for (offset, bytes) in &checkpoint.released {
            after.free(*offset, *bytes);
        }
        put_varint(out, after.tail);
        put_varint(out, to_u64(after.holes.len()));
        for (offset, bytes) in &after.holes {
            put_varint(out, *offset);
            put_varint(out, *bytes);
        }
    }

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else.
    pub(crate) fn decode(&self, rest: &mut Decoder<'_>) -> Option<()> {
        let (tail, holes) = decode_extents(rest)?;
        let mut allocator = lock(&self.allocator);
        (allocator.tail, allocator.holes) = (tail, holes);
        Some(())
    }

    /// Opens the file, after the state was decoded. Fails with [`Error::Corruption`] if there are
    /// extents and no file.
    pub(crate) fn open_file(&self) -> Result<()> {
        if self.used_bytes() == 0 {
            // It may be incomplete: the first checkpoint with a value creates it again.
            return Ok(());
        }
        let file = self.head().open(&self.owner, NAME, self.read_only)?;
        if file.is_none() {
            return Err(Error::corruption(self.label(), 0, "the file is missing"));
        }
        *lock(&self.file) = file;
        Ok(())
    }

    /// Bytes of the file that are not holes.
    pub(crate) fn used_bytes(&self) -> u64 {
        let allocator = lock(&self.allocator);
        let holes: u64 = allocator.holes.values().sum();
        (allocator.tail - BLOCK_BYTES).saturating_sub(holes)
    }

    /// Bytes of values in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        lock(&self.allocator).unwritten.values().map(|value| to_u64(value.len())).sum()
    }

    /// Counts of allocations.
    pub(crate) fn counts(&self) -> ExtentCounts {
        lock(&self.allocator).counts
    }

    /// Holes and released extents, for checks: offset and bytes.
    pub(crate) fn holes(&self) -> Vec<(u64, u64)> {
        let allocator = lock(&self.allocator);
        let holes = allocator.holes.iter().map(|(offset, bytes)| (*offset, *bytes));
        holes.chain(allocator.released.iter().copied()).collect()
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        self.budget.release(self.memory_bytes());
    }
}

impl ExtentAllocator {
    /// Allocates `bytes`: the first of at most `scan_max` holes that is large enough, or the end of
    /// the file.
    fn allocate(&mut self, bytes: u64, scan_max: u64) -> u64 {
        let behind = self.holes.range((Included(self.next), Unbounded));
        let before = self.holes.range((Unbounded, Excluded(self.next)));
        let counts = &mut self.counts;
        counts.allocated += 1;
        let mut looked_at =
            behind.chain(before).take(to_usize(scan_max)).inspect(|_| counts.inspected += 1);
        let found = looked_at.find(|(_, size)| **size >= bytes);
        let found = found.map(|(offset, size)| (*offset, *size));
        let Some((offset, size)) = found else {
            self.tail += bytes;
            return self.tail - bytes;
        };
        self.counts.reused += 1;
        self.holes.remove(&offset);
        if size > bytes {
            self.holes.insert(offset + bytes, size - bytes);
        }
        self.next = offset + bytes;
        offset
    }

    /// Makes an extent a hole, merged with its neighbours, or shortens the used part of the file.
    fn free(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some((&before, &size)) = self.holes.range(..offset).next_back()
            && before + size == offset
        {
            self.holes.remove(&before);
            (offset, bytes) = (before, size + bytes);
        }
        if let Some(size) = self.holes.remove(&(offset + bytes)) {
            bytes += size;
        }
        if offset + bytes == self.tail {
            self.tail = offset;
        } else {
            self.holes.insert(offset, bytes);
        }
    }
}

/// Decodes what [`Extents::encode`] wrote: the tail, and the holes. Returns `None` for anything
/// else.
fn decode_extents(rest: &mut Decoder<'_>) -> Option<(u64, BTreeMap<u64, u64>)> {
    let (tail, mut holes, mut end) = (rest.varint()?, BTreeMap::new(), BLOCK_BYTES);
    for _ in 0..rest.varint()? {
        let (offset, bytes) = (rest.varint()?, rest.varint()?);
        let aligned =
            offset.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES) && bytes > 0;
        if !aligned || offset < end || offset.checked_add(bytes)? > tail {
            return None;
        }
        end = offset + bytes;
        holes.insert(offset, bytes);
    }
    Some((tail, holes))
}

impl Extents {
    /// Describes the state that [`Extents::encode`] wrote: the space of large values, and its holes
    /// (CedrusDB, figure 7). Returns `None` for anything else.
    pub(crate) fn describe_state(
        rest: &mut Decoder<'_>,
        space: &mut Vec<String>,
        free: &mut Vec<String>,
    ) -> Option<()> {
        let (tail, holes) = decode_extents(rest)?;
        space.push(format!("    large values: to byte {tail} of their file"));
        for (offset, bytes) in holes {
            free.push(format!("    hole at byte {offset} of large values: {bytes} bytes"));
        }
        Some(())
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn holes_merge_are_reused_next_fit_and_the_tail_shrinks() {
        let mut allocator = ExtentAllocator { tail: BLOCK_BYTES, ..ExtentAllocator::default() };
        let places: Vec<u64> = (1..=6).map(|n| allocator.allocate(n * BLOCK_BYTES, 100)).collect();
        let tail = allocator.tail;
        allocator.free(places[1], 2 * BLOCK_BYTES);
        allocator.free(places[3], 4 * BLOCK_BYTES);
        allocator.free(places[2], 3 * BLOCK_BYTES);
        assert_eq!(allocator.holes.len(), 1);
        assert_eq!(allocator.allocate(5 * BLOCK_BYTES, 100), places[1]);
        assert_eq!(allocator.allocate(4 * BLOCK_BYTES, 100), places[1] + 5 * BLOCK_BYTES);
        assert!(allocator.holes.is_empty());
        assert_eq!(allocator.tail, tail);
        allocator.free(places[5], 6 * BLOCK_BYTES);
        allocator.free(places[4], 5 * BLOCK_BYTES);
        assert_eq!(allocator.tail, places[4]);
        allocator.free(places[0], BLOCK_BYTES);
        assert_eq!(allocator.allocate(BLOCK_BYTES, 0), places[4], "no hole is looked at");
    }
}
