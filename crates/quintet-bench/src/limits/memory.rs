//! Limits of memory: latency by chains of dependent loads, and bandwidth of copying.
//!
//! A chain visits each cache line of a mapping once and then begins again. Line `i` holds the
//! number of the next line, `(a x i + c) mod lines` with `a mod 4 = 1` and odd `c`. This cycle has
//! full length (Hull and Dobell, 1962). One sequential pass writes it, but its steps jump over the
//! whole mapping, so no prefetcher follows them.

use std::{
    hint::black_box,
    io,
    time::{Duration, Instant},
};

use crate::numbers::{to_f64, to_u64, to_usize};
use memmap2::{Advice, MmapMut};

use super::figures::{Limits, MeasurementScope};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Number of chains at a time. A core keeps no more misses in flight.
const CHAINS: usize = 16;
/// Bytes of one copy, far more than the caches, so that the copy reaches DRAM.
const COPY_BYTES: u64 = 64 << 20;
/// Number of loads between two readings of the clock.
const STEPS: u64 = 1 << 14;
/// Multiplier (1 mod 4) and increment (odd) of the cycle; see the module head.
const MULTIPLIER: u64 = 2_891_336_453;
const INCREMENT: u64 = 1_640_531_527;

/// Page size that a mapping requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageSize {
    Small,
    Huge,
}

/// Measures latencies and copying into `limits`.
pub(super) fn measure(scope: MeasurementScope, limits: &mut Limits) {
    // Line numbers have 32 bits, and a chain needs at least one line for each page.
    let most = scope.memory_bytes.clamp(1 << 16, 1 << 36).min(memory_available() / 4).max(1 << 16);
    let bytes = 1_u64 << most.ilog2();
    let time = Duration::from_millis(scope.time_ms);
    limits.dram_bytes = bytes;
    let small = limits.keep("DRAM latency, 4-KiB pages", LineCycle::new(bytes, PageSize::Small));
    if let Some(lines) = small {
        limits.dram_4k_ns = Some(lines.dependent_ns(time));
        limits.dram_overlapped_ns = Some(lines.overlapped_ns(time / 4));
    }
    let huge = LineCycle::new(bytes, PageSize::Huge);
    if let Some(lines) = limits.keep("DRAM latency, 2-MiB pages", huge) {
        limits.dram_2m_ns = Some(lines.dependent_ns(time));
        limits.dram_overlapped_ns = Some(lines.overlapped_ns(time / 4));
    }
    let copied = copied_per_second(COPY_BYTES.min(bytes), time / 2);
    limits.memcpy_bytes_per_second = limits.keep("copying", copied);
}

/// Returns the bytes of memory available without swapping; `u64::MAX` if the kernel does not report
/// it.
fn memory_available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |count| count.saturating_mul(1024))
}

fn map(bytes: u64, pages: PageSize) -> io::Result<MmapMut> {
    let map = MmapMut::map_anon(to_usize(bytes))?;
    #[cfg(target_os = "linux")]
    map.advise(match pages {
        PageSize::Small => Advice::NoHugePage,
        PageSize::Huge => Advice::HugePage,
    })?;
    Ok(map)
}

/// A cycle over the cache lines of a mapping.
struct LineCycle {
    map: MmapMut,
    /// Number of lines minus one; the number is a power of two.
    mask: u64,
}

impl LineCycle {
    /// Returns a cycle over `bytes`, a power of two. Fails if the kernel does not give the
    /// requested pages.
    fn new(bytes: u64, pages: PageSize) -> io::Result<Self> {
        let mut map = map(bytes, pages)?;
        let mask = bytes / to_u64(LINE_BYTES) - 1;
        let mut next = INCREMENT & mask;
        for line in map.chunks_exact_mut(LINE_BYTES) {
            if let Some(head) = line.first_chunk_mut::<4>() {
                *head = u32::try_from(next).unwrap_or(0).to_le_bytes();
            }
            next = (next + MULTIPLIER) & mask;
        }
        let huge = huge_bytes(&map).unwrap_or(0);
        // The ends of a mapping may have small pages. More small pages would distort the figure.
        if pages == PageSize::Huge && huge < bytes - bytes / 8 {
            return Err(io::Error::other(format!(
                "the kernel gave {huge} of {bytes} bytes in huge pages"
            )));
        }
        Ok(Self { map, mask })
    }

    /// Returns the number of the line after `line`.
    #[inline]
    fn next(&self, line: u64) -> u64 {
        let at = to_usize(line) * LINE_BYTES;
        let head = self.map.get(at..).and_then(<[u8]>::first_chunk::<4>);
        head.map_or(0, |head| u64::from(u32::from_le_bytes(*head)))
    }

    /// Returns nanoseconds per dependent load.
    fn dependent_ns(&self, time: Duration) -> f64 {
        let mut line = 0;
        repeated_ns(time, STEPS, || {
            for _ in 0..STEPS {
                line = self.next(line);
            }
            black_box(line);
        })
    }

    /// Returns nanoseconds per load with [`CHAINS`] in flight.
    fn overlapped_ns(&self, time: Duration) -> f64 {
        // Any start works: all lines are on one cycle, far apart.
        let part = (self.mask + 1) / to_u64(CHAINS);
        let mut lines: [u64; CHAINS] = std::array::from_fn(|chain| to_u64(chain) * part);
        repeated_ns(time, STEPS, || {
            for _ in 0..STEPS / to_u64(CHAINS) {
                for line in &mut lines {
                    *line = self.next(*line);
                }
            }
            black_box(&lines);
        })
    }
}

/// Repeats `work`, which has `count` parts, for `time`. Returns nanoseconds per part. The first
/// tenth of the time warms up the address translation and does not count.
fn repeated_ns(time: Duration, count: u64, mut work: impl FnMut()) -> f64 {
    let warm = Instant::now();
    while warm.elapsed() < time / 10 {
        work();
    }
    let start = Instant::now();
    let mut parts = 0;
    while parts == 0 || start.elapsed() < time {
        work();
        parts += count;
    }
    start.elapsed().as_secs_f64() * 1e9 / to_f64(parts)
}

/// Returns the bytes of a mapping in huge pages; `None` if the kernel does not report them.
fn huge_bytes(map: &MmapMut) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
    huge_bytes_in(&text, map.as_ptr().addr())
}

/// Returns `AnonHugePages` of the area that contains `address`. The kernel may have merged
/// neighbouring mappings into the area, so the result can be too high but never too low.
fn huge_bytes_in(smaps: &str, address: usize) -> Option<u64> {
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_whitespace().next()?;
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) =
                (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            inside = (from..to).contains(&address);
        } else if inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
            let kibibytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
            return kibibytes.checked_mul(1024);
        }
    }
    None
}

fn copied_per_second(bytes: u64, time: Duration) -> io::Result<f64> {
    let mut source = map(bytes, PageSize::Huge)?;
    let mut target = map(bytes, PageSize::Huge)?;
    source.fill(1);
    target.fill(2);
    let ns_per_byte = repeated_ns(time, bytes, || {
        target.copy_from_slice(&source);
        black_box(target.first());
    });
    Ok(1e9 / ns_per_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_once() {
        for bits in [16, 20] {
            let lines = LineCycle::new(1 << bits, PageSize::Small).unwrap();
            let count = to_usize(lines.mask + 1);
            let mut seen = vec![false; count];
            let mut line = 0;
            for _ in 0..count {
                let seen = seen.get_mut(to_usize(line)).unwrap();
                assert!(!std::mem::replace(seen, true), "line {line} comes twice");
                line = lines.next(line);
            }
            assert_eq!(line, 0, "the cycle is closed");
        }
    }

    #[test]
    fn huge_pages_are_found_in_the_listing_of_areas() {
        let text = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize: 2048 kB\n\
                    AnonHugePages:         0 kB\nVmFlags: rd wr\n\
                    7f0000200000-7f0000600000 rw-p 00000000 00:00 0 [name]\n\
                    AnonHugePages:      2048 kB\n";
        assert_eq!(huge_bytes_in(text, 0x7f00_0030_0000), Some(2 << 20));
        assert_eq!(huge_bytes_in(text, 0x7f00_0000_0000), Some(0));
        assert_eq!(huge_bytes_in(text, 0x7f00_0060_0000), None);
        assert_eq!(huge_bytes_in("", 1), None);
    }
}
