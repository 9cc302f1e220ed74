//! Bytes and requests that reach the disk, from counters of the kernel.
//!
//! `/proc/self/io` counts the work of this process. The block device's `stat` counts the work of
//! all processes. On a quiet machine the device's counters are the better ones: for a dirty page of
//! a mapped file the process is charged the whole folio.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::procfs;

/// Unit of the block device's counters.
const SECTOR_BYTES: u64 = 512;

/// Bytes and requests, by three counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Bytes that the process read from the disk (`read_bytes` of `/proc/self/io`).
    pub process_bytes_read: Option<u64>,
    /// Bytes that the process wrote (`write_bytes` of `/proc/self/io`): pages made dirty and
    /// direct writes. It exceeds the bytes that reach the disk if files are mapped.
    pub process_bytes_written: Option<u64>,
    /// Bytes that all processes read from the block device of the directory.
    pub device_bytes_read: Option<u64>,
    /// Bytes that all processes wrote to it.
    pub device_bytes_written: Option<u64>,
    /// Read requests that the device completed.
    pub device_reads: Option<u64>,
    /// Write requests that the device completed.
    pub device_writes: Option<u64>,
}

impl IoCounters {
    /// Returns the difference to an earlier reading. A counter that is missing in one reading is
    /// missing in the result.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.join(earlier, u64::saturating_sub)
    }

    /// Returns the sum of two phases. A counter that is missing in one is missing in the sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.join(other, u64::saturating_add)
    }

    fn join(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(operation(one?, other?));
        Self {
            process_bytes_read: both(self.process_bytes_read, other.process_bytes_read),
            process_bytes_written: both(self.process_bytes_written, other.process_bytes_written),
            device_bytes_read: both(self.device_bytes_read, other.device_bytes_read),
            device_bytes_written: both(self.device_bytes_written, other.device_bytes_written),
            device_reads: both(self.device_reads, other.device_reads),
            device_writes: both(self.device_writes, other.device_writes),
        }
    }
}

/// Reads the counters of this process, and of the device of `dir`.
pub fn now(dir: &Path) -> IoCounters {
    let own = own_counters();
    let device = device_stat(dir).unwrap_or_default();
    // Documentation/block/stat.rst: reads, merged, sectors, ms, then the same for writes.
    let at = |index: usize| device.get(index).copied();
    let bytes = |index: usize| at(index)?.checked_mul(SECTOR_BYTES);
    IoCounters {
        process_bytes_read: counter(&own, "read_bytes"),
        process_bytes_written: counter(&own, "write_bytes"),
        device_bytes_read: bytes(2),
        device_bytes_written: bytes(6),
        device_reads: at(0),
        device_writes: at(4),
    }
}

/// Returns the bytes that this process has read and written.
pub fn process_bytes() -> u64 {
    let own = own_counters();
    counter(&own, "read_bytes").unwrap_or(0) + counter(&own, "write_bytes").unwrap_or(0)
}

fn own_counters() -> String {
    fs::read_to_string("/proc/self/io").unwrap_or_default()
}

fn counter(text: &str, name: &str) -> Option<u64> {
    procfs::field_of(text, name)?.parse().ok()
}

fn device_stat(dir: &Path) -> Option<Vec<u64>> {
    let (major, minor) = procfs::device(dir)?;
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn synced_bytes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let before = now(dir.path());
        let mut file = fs::File::create(dir.path().join("file")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let io = now(dir.path()).since(before);
        // In memory-backed file systems and some containers there is nothing to count.
        if let Some(written) = io.process_bytes_written.filter(|written| *written > 0) {
            assert!(written >= 1 << 20, "{io:?}");
        }
        if let Some(written) = io.device_bytes_written {
            assert!(written >= 1 << 20, "{io:?}");
        }
    }

    #[test]
    fn fields_go_by_their_whole_name() {
        let text = "rchar: 5\nread_bytes: 4096\nwrite_bytes: 17\n";
        assert_eq!(counter(text, "read_bytes"), Some(4096));
        assert_eq!(counter(text, "bytes"), None);
    }
}
