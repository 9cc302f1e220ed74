//! Writing cache lines back to persistent memory, and waiting for it.
//!
//! What: [`WriteBack::write_back`] starts the way of a cache line from the processor's caches to
//! the memory, [`fence`] orders what was started before what follows, [`wait`] stands in for slower
//! memory.
//! Why: a store to persistent memory stays in a cache that a power loss empties until it is
//! written back. The instruction is the best that the processor has: `clwb` keeps the line in the
//! cache, `clflushopt` drops it, `clflush` also waits for it.
//!
//! Invariants: no instruction here changes what any load sees.
//! Thread rules: a fence orders the write-backs of its own thread.

use std::time::{Duration, Instant};

use crate::util::sync::AtomicU64;

/// Bytes of a cache line: what is written back at once.
pub const LINE_BYTES: u64 = 64;

/// How much slower than this machine's memory an emulated one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowness {
    /// Added to each line that is written back.
    pub line: Duration,
    /// Bytes a second that are written back at most; 0: as many as come.
    pub bytes_per_second: u64,
}

impl Slowness {
    /// What one line takes: its latency, or its share of the bandwidth where that is more.
    pub fn of_line(self) -> Duration {
        let nanos = (LINE_BYTES * 1_000_000_000).checked_div(self.bytes_per_second);
        self.line.max(Duration::from_nanos(nanos.unwrap_or(0)))
    }
}

/// What mapped files of a system are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Persistent memory where the file system has it (DAX with `MAP_SYNC`), else the page cache.
    #[default]
    AsItIs,
    /// The page cache, which stands in for persistent memory: a sync of a mapping writes its lines
    /// back to ordinary memory, waits as slower memory would, and asks no disk. What is synced
    /// survives the death of the process and no power loss. For experiments.
    Emulated(Slowness),
}

/// How a line is written back: only [`detect`](Self::detect) makes one, of what the processor has.
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
    /// This processor has none that we know.
    #[cfg(not(target_arch = "x86_64"))]
    Unknown,
}

impl WriteBack {
    /// The best that this processor has.
    pub fn detect() -> Self {
        Self(instructions::detect())
    }

    /// Whether there is an instruction at all: without, memory is not persistent.
    pub const fn is_known(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instruction::Keep | Instruction::Drop | Instruction::DropInOrder => true,
            #[cfg(not(target_arch = "x86_64"))]
            Instruction::Unknown => false,
        }
    }

    /// Starts to write back the line of `word`.
    #[inline]
    pub fn write_back(self, word: &AtomicU64) {
        instructions::write_back(self.0, word);
    }
}

/// Makes a range of words persistent: writes their lines back, each as slow as it is said to be,
/// and fences. Lines are taken from the first word on, which begins one.
pub fn persist(words: &[AtomicU64], how: WriteBack, line_takes: Duration) {
    for line in words.chunks(crate::util::codec::to_usize(LINE_BYTES / 8)) {
        if let Some(word) = line.first() {
            how.write_back(word);
        }
        if !line_takes.is_zero() {
            wait(line_takes);
        }
    }
    fence();
}

/// Orders write-backs and stores before it before stores after it.
#[inline]
pub fn fence() {
    instructions::fence();
}

/// Keeps the processor for this long, as slower memory would.
pub fn wait(time: Duration) {
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
