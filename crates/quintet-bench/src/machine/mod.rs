//! The machine and the process: the conditions of a result and its costs.
//!
//! All values come from `/proc` and `/sys`. A value that is missing there (another operating
//! system, a container) is `None`, and reports show a dash.

pub mod conditions;
pub mod io_counters;
pub mod process;
mod procfs;

use std::{
    fs, io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
    time::{Duration, Instant},
};

use crate::numbers::{to_u64, to_usize};
use serde::{Deserialize, Serialize};

use self::procfs::{device, field, kibibytes, read};
pub use self::{
    conditions::Conditions,
    io_counters::IoCounters,
    process::{ProcessMemory, cpu_time, load_average, memory, unix_ms},
};

/// Unit of `st_blocks` in bytes.
const SECTOR_BYTES: u64 = 512;
/// Default read-ahead of Linux (`VM_READAHEAD_PAGES`).
pub const READ_AHEAD_DEFAULT_BYTES: u64 = 128 << 10;
/// Number of timed syncs.
const SYNCS: usize = 33;

/// Properties of the machine that influence results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Processors available to this process.
    pub cpus: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Read-ahead of the kernel in bytes, for files of the benchmark's directory. A page fault in a
    /// mapped file reads that much around the page.
    #[serde(default)]
    pub read_ahead_bytes: Option<u64>,
    /// Median duration of an `fdatasync` after a 4 KiB overwrite in the benchmark's directory.
    pub fsync_p50_ns: Option<u64>,
    /// Cost of reading the clock in nanoseconds.
    pub timer_ns: u64,
}

impl Machine {
    /// Returns whether the read-ahead exceeds the default, which slows down stores that map files.
    pub fn reads_far_ahead(&self) -> bool {
        self.read_ahead_bytes.is_some_and(|bytes| bytes > READ_AHEAD_DEFAULT_BYTES)
    }

    /// Returns the properties of this machine and of the disk of `dir`.
    pub fn look(dir: &Path) -> Self {
        let cpus = std::thread::available_parallelism();
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: cpus.ok().map(|count| to_u64(count.get())),
            memory_bytes: field("/proc/meminfo", "MemTotal").and_then(|text| kibibytes(&text)),
            kernel: read("/proc/sys/kernel/osrelease"),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled").map(|text| {
                let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                chosen.map_or(text.clone(), |(chosen, _)| chosen.to_owned())
            }),
            read_ahead_bytes: read_ahead_bytes(dir),
            fsync_p50_ns: fsync_p50(dir).ok(),
            timer_ns: crate::latency::timer_ns(),
        }
    }
}

/// Returns the read-ahead of the disk of `dir`. A partition has none: its disk has. A file system
/// on several devices has one under the device number of its files.
fn read_ahead_bytes(dir: &Path) -> Option<u64> {
    let (major, minor) = device(dir)?;
    let kibibytes = [
        format!("/sys/dev/block/{major}:{minor}/queue/read_ahead_kb"),
        format!("/sys/dev/block/{major}:{minor}/../queue/read_ahead_kb"),
        format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"),
    ];
    kibibytes.iter().find_map(|path| read(path))?.parse::<u64>().ok()?.checked_mul(1024)
}

fn fsync_p50(dir: &Path) -> io::Result<u64> {
    let path = dir.join("fsync-latency");
    let result = fsync_times(&path);
    fs::remove_file(&path)?;
    let mut times = result?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(u64::try_from(median.as_nanos()).unwrap_or(u64::MAX))
}

fn fsync_times(path: &Path) -> io::Result<Vec<Duration>> {
    const BLOCK: [u8; 4096] = [0x51; 4096];
    let file = fs::File::options().write(true).create_new(true).open(path)?;
    for block in 0..to_u64(SYNCS) {
        file.write_all_at(&BLOCK, block * 4096)?;
    }
    file.sync_all()?;
    let sync = |block: u64| {
        file.write_all_at(&BLOCK, block * 4096)?;
        let start = Instant::now();
        file.sync_data()?;
        Ok(start.elapsed())
    };
    (0..to_u64(SYNCS)).map(sync).collect()
}

/// Returns the allocated bytes of all files below `dir`.
pub fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // The store may remove a file between the listing and this call.
        let Ok(metadata) = entry.metadata() else { continue };
        total += if metadata.is_dir() {
            disk_bytes(&entry.path()).unwrap_or(0)
        } else {
            metadata.blocks() * SECTOR_BYTES
        };
    }
    Ok(total)
}

/// Returns median, minimum and maximum; zeros if there are no figures.
pub fn spread(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    let middle = sorted.len() / 2;
    let median = if sorted.len().is_multiple_of(2) && middle > 0 {
        f64::midpoint(at(middle - 1), at(middle))
    } else {
        at(middle)
    };
    (median, at(0), at(to_usize(to_u64(sorted.len()).saturating_sub(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::look(dir.path());
        assert!(machine.cpus.unwrap() >= 1);
        assert!(machine.memory_bytes.unwrap() > 1 << 20);
        assert!(machine.fsync_p50_ns.unwrap() > 0);
        assert!(!machine.kernel.unwrap().is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
        let memory = memory();
        assert!(memory.peak_bytes >= memory.resident_bytes && memory.resident_bytes > 0);
    }

    #[test]
    fn disk_bytes_counts_nested_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), vec![1; 100_000]).unwrap();
        let bytes = disk_bytes(dir.path()).unwrap();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert!(disk_bytes(&dir.path().join("none")).is_err());
    }

    #[test]
    fn spread_is_median_least_and_greatest() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0]), (2.5, 1.0, 4.0));
        assert_eq!(spread(&[7.0]), (7.0, 7.0, 7.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
    }
}
