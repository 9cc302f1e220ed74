//! What the machine is doing just before a run: load, latency of a sync, random reads of the disk.
//!
//! It takes some tens of milliseconds, and a result whose conditions are out of line with the
//! others' can be told from one that is not.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use quintet_bench::{
    failure::{Failure, Outcome},
    machine,
    numbers::{to_f64, to_u64, to_usize},
};

use crate::result::Conditions;

const BLOCK_BYTES: usize = 4096;
/// Larger than any cache of a device would make a sample of reads meaningless.
const FILE_BLOCKS: u64 = 16 << 10;
const SYNCS: u64 = 33;
const READS: u64 = 300;
const FILE: &str = "conditions";

/// A file to probe the disk with.
#[derive(Debug)]
pub struct Probe {
    /// None where nothing is to be probed.
    file: Option<File>,
    /// The same file for direct reads; none where the file system has no direct I/O.
    direct: Option<File>,
}

impl Probe {
    /// Makes the file in `dir`: 64 MiB. Where that fails, nothing of it stays: on a full disk a
    /// store may need what little is left.
    pub fn new(dir: &Path) -> Outcome<Self> {
        let path = dir.join(FILE);
        Self::make(&path).map_err(|error| {
            let _ = fs::remove_file(&path);
            Failure::io(path.display(), &error)
        })
    }

    /// A probe of nothing: looks at the load alone.
    pub const fn none() -> Self {
        Self { file: None, direct: None }
    }

    /// Whether it looks at the disk.
    pub const fn is_made(&self) -> bool {
        self.file.is_some()
    }

    fn make(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).open(path)?;
        let chunk = vec![0x51; BLOCK_BYTES * 256];
        for number in 0..FILE_BLOCKS / 256 {
            file.write_all_at(&chunk, number * to_u64(chunk.len()))?;
        }
        file.sync_all()?;
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
        let direct = File::options().read(true).custom_flags(flags).open(path).ok();
        Ok(Self { file: Some(file), direct })
    }

    /// Looks at the machine now. What cannot be measured is absent.
    pub fn look(&self) -> Conditions {
        let load_average_before = machine::load_average();
        let syncs = self.syncs().ok();
        Conditions {
            load_average_before,
            load_average_after: None,
            fsync_p50_ns: syncs.as_ref().and_then(|times| quantile(times, 50)),
            fsync_p99_ns: syncs.as_ref().and_then(|times| quantile(times, 99)),
            raw_read_iops: self.reads().ok(),
        }
    }

    fn syncs(&self) -> io::Result<Vec<Duration>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let block = vec![0x52; BLOCK_BYTES];
        let mut times = Vec::new();
        for number in 0..SYNCS {
            file.write_all_at(&block, number * to_u64(BLOCK_BYTES))?;
            let start = Instant::now();
            file.sync_data()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times)
    }

    fn reads(&self) -> io::Result<f64> {
        let direct = self.direct.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // Direct I/O wants an aligned buffer: an aligned part of a larger one.
        let mut buffer = vec![0; 2 * BLOCK_BYTES];
        let skip = buffer.as_ptr().align_offset(BLOCK_BYTES);
        let block = buffer.get_mut(skip..skip + BLOCK_BYTES).ok_or(io::ErrorKind::Unsupported)?;
        let start = Instant::now();
        for number in 0..READS {
            let at = quintet_bench::random::mix(number) % FILE_BLOCKS;
            direct.read_exact_at(block, at * to_u64(BLOCK_BYTES))?;
        }
        Ok(to_f64(READS) / start.elapsed().as_secs_f64())
    }
}

/// Bytes free on the disk of `dir`.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(dir).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
}

fn quantile(sorted: &[Duration], percent: u64) -> Option<u64> {
    let rank = to_u64(sorted.len()) * percent / 100;
    let time = sorted.get(to_usize(rank).min(sorted.len().checked_sub(1)?))?;
    u64::try_from(time.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_finds_a_sync_time() {
        let dir = tempfile::tempdir().unwrap();
        let conditions = Probe::new(dir.path()).unwrap().look();
        assert!(conditions.fsync_p50_ns.unwrap() <= conditions.fsync_p99_ns.unwrap());
        assert!(conditions.raw_read_iops.is_none_or(|rate| rate > 0.0));
        assert!(free_bytes(dir.path()).unwrap() > 0);
        assert_eq!(Probe::none().look().fsync_p50_ns, None);
        assert!(Probe::new(&dir.path().join("none")).is_err());
        assert!(!Probe::none().is_made());
    }
}
