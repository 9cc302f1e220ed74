//! The traits of cursors over sorted entries, and the parameters of scans: start and read-ahead.

use std::sync::Arc;

use crate::{
    Result,
    contract::Direction,
    io::{AlignedBuffer, File, Flow},
    lsm::sst::{Span, decoded_block::DecodedBlockCache},
};

/// Bytes that the first reads of a range take together, without the unused parts of blocks: 30
/// entries of 1 KiB, or 200 of 128 bytes.
const SCAN_BYTES: u64 = 32 << 10;
/// Number of reads of ranges at once that together may take as much memory as the budget.
const RANGES_EXPECTED: u64 = 256;

/// Returns the maximum bytes of one read of a range, at most `most`. The buffers of ranges are not
/// in the budget, and there may be many ranges at once, so with a small budget reads are small.
pub(crate) fn range_read_bytes(budget: u64, most: u64) -> u64 {
    (budget / RANGES_EXPECTED).clamp(16 << 10, most)
}

/// Where a scan starts: upwards at the first key not below `key`, downwards at the last key below
/// it.
#[derive(Clone, Debug)]
pub(crate) struct ScanStart {
    pub(crate) way: Direction,
    pub(crate) key: Option<Arc<[u8]>>,
    /// The cache that is asked for blocks first. Blocks of the first disk read are added to it;
    /// `None` bypasses it.
    pub(crate) cache: Option<Arc<DecodedBlockCache>>,
    /// Upward scans read the next blocks ahead through this.
    pub(crate) flow: Option<Flow>,
}

impl ScanStart {
    /// An upward scan that bypasses the cache: a scan of a whole table would only evict other
    /// blocks.
    pub(crate) fn up(key: Option<Vec<u8>>) -> Self {
        Self { way: Direction::Up, key: key.map(Arc::from), cache: None, flow: None }
    }

    /// The same, with read-ahead through `flow`.
    pub(crate) fn with(self, flow: &Flow) -> Self {
        Self { flow: Some(flow.clone()), ..self }
    }
}

/// How many bytes a scan reads at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAheadSizes {
    /// Bytes of the first read of an SST, or of all SSTs of a scan together.
    first: u64,
    /// Bytes of all SSTs among which the first read is divided in proportion; 0: each SST reads
    /// `first`.
    among: u64,
    /// Maximum bytes of a read.
    most: u64,
}

impl ReadAheadSizes {
    /// For a scan of a whole file.
    pub(crate) const WHOLE: Self = Self { first: 512 << 10, among: 0, most: 1 << 20 };

    /// For a range that may end soon, over SSTs of `among` bytes together. The first read of each
    /// is in proportion to its size, at least one block. `budget` is the limit of memory.
    pub(crate) fn scan(among: u64, budget: u64) -> Self {
        Self { first: SCAN_BYTES, among, most: range_read_bytes(budget, 512 << 10) }
    }

    /// For a scan of a whole file with buffers of at most `bytes`.
    pub(crate) fn bounded(bytes: u64) -> Self {
        let Self { first, most, .. } = Self::WHOLE;
        Self { first: first.min(bytes), among: 0, most: most.min(bytes) }
    }

    /// Returns the maximum bytes of a read.
    pub(crate) const fn most(self) -> u64 {
        self.most
    }

    /// Returns about how many bytes of an SST of this size are read first.
    pub(crate) fn first_of(self, sst_bytes: u64) -> u64 {
        match self.among {
            0 => self.first,
            among => self.first.saturating_mul(sst_bytes).div_ceil(among).min(self.first),
        }
    }
}

/// A cursor over sorted entries: one source of a [`MergeCursor`].
pub(crate) trait SortedCursor {
    /// Returns the current key; `None` at the end.
    fn key(&self) -> Option<&[u8]>;
    /// Returns the current value; `None` for a tombstone.
    fn value(&self) -> Option<&[u8]>;
    /// Advances to the next key.
    fn advance(&mut self) -> Result<()>;
    /// Loads the first entry, if that has not happened yet.
    fn load_first(&mut self) -> Result<()>;
    /// Prefetches the cached block that [`collect_disk_reads`](Self::collect_disk_reads) will read.
    fn prefetch(&self);
    /// Loads the first entries from the cache. Appends the SST cursors that need a disk read to
    /// `out`.
    fn collect_disk_reads<'a>(&'a mut self, out: &mut Vec<&'a mut dyn DiskCursor>) -> Result<()>;
}

/// A cursor that needs a disk read before it can continue.
pub(crate) trait DiskCursor {
    /// Returns what must be read: the span, and the file.
    fn request(&self) -> Option<(&Arc<dyn File>, Span)>;
    /// Takes the buffer that was read for the request.
    fn accept(&mut self, buffer: AlignedBuffer) -> Result<()>;
}
