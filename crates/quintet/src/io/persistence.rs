//! Write-back of cache lines to persistent memory, and fences.
//!
//! Problem: a store to persistent memory stays in a cache, which a power loss empties, until the
//! line is written back.
//! How: [`WriteBack::write_back`] starts the write-back of a cache line. [`fence`] orders
//! write-backs before what follows. [`wait`] emulates slower memory. [`WriteBack::detect`] picks
//! the best instruction of the processor: `clwb` keeps the line in the cache, `clflushopt` evicts
//! it, `clflush` is also ordered.
//!
//! Invariants: no instruction here changes the result of a load.
//!
//! Threads: a fence orders the write-backs of its own thread only.

use std::time::{Duration, Instant};

use crate::util::{codec::to_usize, sync::AtomicU64};

/// Bytes of a cache line, the unit of write-back.
pub const LINE_BYTES: u64 = 64;

/// How much slower emulated persistent memory is than this machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowness {
    /// Time added to each line that is written back.
    pub line: Duration,
    /// Bandwidth limit of write-backs in bytes a second; 0 means no limit.
    pub bytes_per_second: u64,
}

impl Slowness {
    /// Returns the time of one line: its latency, or its share of the bandwidth if that is longer.
    pub fn of_line(self) -> Duration {
        let nanos = (LINE_BYTES * 1_000_000_000).checked_div(self.bytes_per_second);
        self.line.max(Duration::from_nanos(nanos.unwrap_or(0)))
    }
}

/// The kind of memory that mapped files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MappedMemory {
    /// Persistent memory if the file system has it (DAX with `MAP_SYNC`), else the page cache.
    #[default]
    AsItIs,
    /// The page cache in place of persistent memory, for experiments. A sync of a mapping writes
    /// its lines back to ordinary memory and waits as slower memory would; it does not write to the
    /// disk. Synced data survives the death of the process, but no power loss.
    Emulated(Slowness),
}

/// The write-back instruction. Only [`detect`](Self::detect) makes one, so that the processor has
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBack(Instruction);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    /// `clwb`.
    #[cfg(target_arch = "x86_64")]
    Keep,
    /// `clflushopt`.
    #[cfg(target_arch = "x86_64")]
    Drop,
    /// `clflush`.
    #[cfg(target_arch = "x86_64")]
    DropInOrder,
    /// No known instruction on this processor.
    #[cfg(not(target_arch = "x86_64"))]
    Unknown,
}

impl WriteBack {
    /// Returns the best instruction that this processor has.
    pub fn detect() -> Self {
        Self(instructions::detect())
    }

    /// Whether the processor has an instruction. Without one, memory cannot be persistent.
    pub const fn is_known(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instruction::Keep | Instruction::Drop | Instruction::DropInOrder => true,
            #[cfg(not(target_arch = "x86_64"))]
            Instruction::Unknown => false,
        }
    }

    /// Starts the write-back of the cache line of `word`.
    #[inline]
    pub fn write_back(self, word: &AtomicU64) {
        instructions::write_back(self.0, word);
    }
}

/// Makes a range of words persistent: writes back each line, waits `line_takes` for each, and
/// fences. The first word must begin a cache line.
pub fn persist(words: &[AtomicU64], how: WriteBack, line_takes: Duration) {
    let mut lines = 0;
    for line in words.chunks(to_usize(LINE_BYTES / 8)) {
        if let Some(word) = line.first() {
            how.write_back(word);
        }
        lines += 1;
    }
    wait(line_takes, lines);
    fence();
}

/// Orders earlier write-backs and stores before later stores.
#[inline]
pub fn fence() {
    instructions::fence();
}

/// Spins for `line_takes` for each of `lines`, as slower memory would stall the processor. One wait
/// for all of them is more exact than one for each: the clock takes a tenth of a line's 500 ns.
pub fn wait(line_takes: Duration, lines: u64) {
    if line_takes.is_zero() {
        return;
    }
    let time = line_takes.saturating_mul(u32::try_from(lines).unwrap_or(u32::MAX));
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    #![expect(unsafe_code, reason = "instructions without a function; listed in UNSAFE.md")]

    use std::arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence},
    };

    use super::Instruction;
    use crate::util::sync::AtomicU64;

    pub(super) fn detect() -> Instruction {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        if __cpuid(0).eax < 7 {
            return Instruction::DropInOrder;
        }
        let features = __cpuid_count(7, 0).ebx;
        match features {
            _ if features & CLWB != 0 => Instruction::Keep,
            _ if features & CLFLUSHOPT != 0 => Instruction::Drop,
            _ => Instruction::DropInOrder,
        }
    }

    #[inline]
    pub(super) fn write_back(how: Instruction, word: &AtomicU64) {
        let line = std::ptr::from_ref(word);
        // SAFETY: the address is of a live word; the instructions change no memory and no flags.
        // `detect` alone makes the variants that need a feature, and found it.
        unsafe {
            match how {
                Instruction::Keep => {
                    asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                Instruction::Drop => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                Instruction::DropInOrder => _mm_clflush(line.cast()),
            }
        }
    }

    #[inline]
    pub(super) fn fence() {
        // SAFETY: an instruction of every x86-64 processor, without operands.
        unsafe { _mm_sfence() };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod instructions {
    use super::Instruction;
    use crate::util::sync::{AtomicU64, Ordering, fence as order};

    pub(super) fn detect() -> Instruction {
        Instruction::Unknown
    }

    pub(super) fn write_back(_: Instruction, _: &AtomicU64) {}

    pub(super) fn fence() {
        order(Ordering::SeqCst);
    }
}
