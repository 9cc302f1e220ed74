//! The memory of a pool: mapped segments of a file, or a recorder whose trace a test replays.

use std::{io, sync::Arc, time::Duration};

#[cfg(test)]
use super::simulator::Recorder;
use crate::{
    io::{
        File, Mapping,
        persistence::{LINE_BYTES, Slowness, WriteBack, fence, wait},
    },
    util::{
        codec::to_usize,
        sync::{AtomicU64, OnceLock, Ordering},
    },
};

/// Maximum number of doublings of a pool.
pub(super) const SEGMENTS_MAX: u32 = 32;
/// Maximum number of segments: the first, and one for each doubling.
const SEGMENTS: usize = 33;

/// Write-backs and fences since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Cache lines written back.
    pub(crate) lines: u64,
    /// Fences.
    pub(crate) fences: u64,
}

/// Segment geometry: each segment but the first is as large as all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    /// Bytes of the first segment, a power of two.
    pub(super) first: u64,
}

impl Segments {
    /// Returns the number of the segment that an offset is in.
    #[inline]
    pub(super) fn of(self, offset: u64) -> usize {
        let pieces = offset >> self.first.trailing_zeros();
        to_usize(u64::from(64 - pieces.leading_zeros()))
    }

    /// Returns the offset at which a segment starts.
    pub(super) fn start(self, segment: usize) -> u64 {
        segment.checked_sub(1).map_or(0, |before| self.first << before)
    }
}

/// How the file of a pool is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Persistent memory (DAX with `MAP_SYNC`).
    Persistent,
    /// An ordinary file, shared.
    Shared,
    /// A copy for this process: stores change no file.
    Private,
}

/// The memory of a pool.
#[derive(Debug)]
#[cfg_attr(test, expect(clippy::large_enum_variant, reason = "there is one for each pool"))]
pub(super) enum Medium {
    /// A mapped file.
    Mapped(MappedPool),
    /// A test's recorder, which sees every store.
    #[cfg(test)]
    Recorded(Arc<Recorder>),
}

/// A file and the mappings of its segments.
#[derive(Debug)]
pub(super) struct MappedPool {
    file: Arc<dyn File>,
    access: Access,
    segments: Segments,
    /// Each mapping covers the file from its start to the segment's end, so offsets need no
    /// translation. Only the segment's part is accessed; the kernel keeps no page table for the
    /// rest.
    mappings: [OnceLock<Arc<Mapping>>; SEGMENTS],
    write_back: WriteBack,
    line_takes: Duration,
    lines: AtomicU64,
    fences: AtomicU64,
}

impl Medium {
    /// Wraps a file, without a mapping yet. [`Access::Persistent`] needs a processor with a
    /// write-back instruction.
    pub(super) fn new(
        file: Arc<dyn File>,
        segments: Segments,
        access: Access,
        slowness: Slowness,
    ) -> io::Result<Self> {
        let write_back = WriteBack::detect();
        if access == Access::Persistent && !write_back.is_known() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self::Mapped(MappedPool {
            file,
            access,
            segments,
            mappings: std::array::from_fn(|_| OnceLock::new()),
            write_back,
            line_takes: slowness.of_line(),
            lines: AtomicU64::new(0),
            fences: AtomicU64::new(0),
        }))
    }

    /// Maps a segment of a file that has at least `end` bytes.
    pub(super) fn map(&self, segment: usize, end: u64) -> io::Result<()> {
        match self {
            Self::Mapped(mapped) => {
                let slot = mapped.mappings.get(segment).ok_or(io::ErrorKind::InvalidInput)?;
                if slot.get().is_none() {
                    let mapping = match mapped.access {
                        Access::Persistent => mapped.file.map_persistent(end)?,
                        Access::Shared => mapped.file.map(end)?,
                        Access::Private => mapped.file.map_private(end)?,
                    };
                    #[cfg(feature = "testing")]
                    mapping.tell_stores();
                    let _ = slot.set(mapping);
                }
                Ok(())
            }
            #[cfg(test)]
            Self::Recorded(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the words from the one at `offset` at least to the end of its segment; none beyond
    /// the pool.
    #[inline]
    pub(super) fn tail(&self, offset: u64) -> &[AtomicU64] {
        let words = match self {
            Self::Mapped(mapped) => {
                let slot = mapped.mappings.get(mapped.segments.of(offset));
                slot.and_then(OnceLock::get).map_or(&[][..], |mapping| mapping.words())
            }
            #[cfg(test)]
            Self::Recorded(recorder) => recorder.words(),
        };
        words.get(to_usize(offset / 8)..).unwrap_or(&[])
    }

    /// Returns the word at an offset; 0 beyond the end.
    #[inline]
    pub(super) fn load(&self, offset: u64) -> u64 {
        self.tail(offset).first().map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores a word. The offset must be within the pool.
    #[inline]
    pub(super) fn store(&self, offset: u64, value: u64) {
        match self {
            Self::Mapped(_) => {
                let Some(word) = self.tail(offset).first() else {
                    debug_assert!(false, "a store at {offset}, beyond the pool");
                    return;
                };
                word.store(value, Ordering::Release);
                #[cfg(feature = "testing")]
                self.tell_store(offset);
            }
            #[cfg(test)]
            Self::Recorded(recorder) => recorder.store(offset, value),
        }
    }

    /// Tells a simulated disk of a store.
    #[cfg(feature = "testing")]
    fn tell_store(&self, offset: u64) {
        if let Self::Mapped(mapped) = self
            && let Some(slot) = mapped.mappings.get(mapped.segments.of(offset))
        {
            slot.get().inspect(|mapping| mapping.stored(offset));
        }
    }

    /// Starts the write-back of the cache lines of a range.
    pub(super) fn flush(&self, offset: u64, bytes: u64) {
        let lines = offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES);
        match self {
            Self::Mapped(mapped) => {
                let count = lines.end - lines.start;
                mapped.lines.fetch_add(count, Ordering::Relaxed);
                if cfg!(feature = "testing") && mapped.access == Access::Persistent {
                    mapped.file.line_written_back(offset..offset + bytes);
                }
                for line in lines {
                    if let Some(word) = self.tail(line * LINE_BYTES).first() {
                        mapped.write_back.write_back(word);
                    }
                }
                wait(mapped.line_takes, count);
            }
            #[cfg(test)]
            Self::Recorded(recorder) => lines.for_each(|line| recorder.flushed(line)),
        }
    }

    /// Makes everything that this thread has written back persistent before its later stores.
    pub(super) fn fence(&self) {
        match self {
            Self::Mapped(mapped) => {
                fence();
                mapped.fences.fetch_add(1, Ordering::Relaxed);
            }
            #[cfg(test)]
            Self::Recorded(recorder) => recorder.fenced(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        match self {
            Self::Mapped(mapped) => Counts {
                lines: mapped.lines.load(Ordering::Relaxed),
                fences: mapped.fences.load(Ordering::Relaxed),
            },
            #[cfg(test)]
            Self::Recorded(recorder) => recorder.counts(),
        }
    }

    /// Returns the file; `None` for a recorder.
    #[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "tests have recorders"))]
    pub(super) fn file(&self) -> Option<&Arc<dyn File>> {
        match self {
            Self::Mapped(mapped) => Some(&mapped.file),
            #[cfg(test)]
            Self::Recorded(_) => None,
        }
    }
}
