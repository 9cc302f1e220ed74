//! Bytes and requests that reach the disk, by the kernel's counters.
//!
//! `/proc/self/io` counts what this process caused; the block device's `stat` counts what happened,
//! by anybody: on a quiet machine the better figure, since a page that a map makes dirty is counted
//! by the process once for the whole folio.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use crate::result::Io;

const SECTOR_BYTES: u64 = 512;

/// The counters now.
pub fn now(dir: &Path) -> Io {
    let own = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let device = device_stat(dir).unwrap_or_default();
    // Documentation/block/stat.rst: reads, merged, sectors, ms, then the same for writes.
    let at = |index: usize| device.get(index).copied();
    let bytes = |index: usize| at(index)?.checked_mul(SECTOR_BYTES);
    Io {
        process_bytes_read: field(&own, "read_bytes"),
        process_bytes_written: field(&own, "write_bytes"),
        device_bytes_read: bytes(2),
        device_bytes_written: bytes(6),
        device_reads: at(0),
        device_writes: at(4),
    }
}

/// Bytes that this process has had read and written so far.
pub fn process_bytes() -> u64 {
    let own = fs::read_to_string("/proc/self/io").unwrap_or_default();
    field(&own, "read_bytes").unwrap_or(0) + field(&own, "write_bytes").unwrap_or(0)
}

/// What was added since `earlier`.
pub fn since(now: Io, earlier: Io) -> Io {
    join(now, earlier, u64::saturating_sub)
}

/// Both together.
pub fn sum(one: Io, other: Io) -> Io {
    join(one, other, u64::saturating_add)
}

fn join(one: Io, other: Io, both: impl Fn(u64, u64) -> u64) -> Io {
    let both = |one: Option<u64>, other: Option<u64>| Some(both(one?, other?));
    Io {
        process_bytes_read: both(one.process_bytes_read, other.process_bytes_read),
        process_bytes_written: both(one.process_bytes_written, other.process_bytes_written),
        device_bytes_read: both(one.device_bytes_read, other.device_bytes_read),
        device_bytes_written: both(one.device_bytes_written, other.device_bytes_written),
        device_reads: both(one.device_reads, other.device_reads),
        device_writes: both(one.device_writes, other.device_writes),
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

fn device_stat(dir: &Path) -> Option<Vec<u64>> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
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
        let io = since(now(dir.path()), before);
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
        assert_eq!(field(text, "read_bytes"), Some(4096));
        assert_eq!(field(text, "bytes"), None);
    }
}
