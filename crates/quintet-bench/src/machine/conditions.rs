//! Conditions of a run: load average, sync latency and random reads of the disk just before it.
//!
//! Measuring them takes some tens of milliseconds. They distinguish a result under unusual
//! conditions from an unusual result.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::process;
use crate::{
    failure::{Failure, Outcome},
    numbers::{to_f64, to_u64, to_usize},
    random::mix,
};

/// Bytes of one block that is read or written.
const BLOCK_BYTES: usize = 4096;
/// Size of the file: 64 MiB, more than the cache of a device, so that reads reach the medium.
const FILE_BLOCKS: u64 = 16 << 10;
/// Blocks that one write creates while the file is made: 1 MiB.
const CHUNK_BLOCKS: u64 = 256;
/// Number of timed syncs: their median is stable, and they take some 10 ms.
const SYNCS: u64 = 33;
/// Number of timed reads.
const READS: u64 = 300;
/// Name of the file.
const FILE: &str = "conditions";

/// Conditions at the start of a run. Work of other programs shows here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Load average of the last minute before the run.
    pub load_average_before: Option<f64>,
    /// Load average of the last minute after the run.
    pub load_average_after: Option<f64>,
    /// Median duration of an `fdatasync` of a 4 KiB overwrite in the run's directory, just before.
    pub fsync_p50_ns: Option<u64>,
    /// 99th percentile of these durations.
    pub fsync_p99_ns: Option<u64>,
    /// 4 KiB random direct reads per second of the directory's disk at depth 1, just before.
    pub raw_read_iops: Option<f64>,
}

/// A file that probes the disk.
#[derive(Debug)]
pub struct DiskProbe {
    /// The file; `None` if there is no probe.
    file: Option<File>,
    /// The same file for direct reads; `None` if the file system has no direct I/O.
    direct: Option<File>,
}

impl DiskProbe {
    /// Creates the file in `dir`. On failure it removes the file, because a store may need the last
    /// bytes of a full disk.
    pub fn new(dir: &Path) -> Outcome<Self> {
        let path = dir.join(FILE);
        Self::make(&path).map_err(|error| {
            let _ = fs::remove_file(&path);
            Failure::io(path.display(), &error)
        })
    }

    /// Returns a probe without a file, which measures the load average only.
    pub const fn none() -> Self {
        Self { file: None, direct: None }
    }

    /// Returns whether the probe has a file.
    pub const fn is_made(&self) -> bool {
        self.file.is_some()
    }

    fn make(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).open(path)?;
        let chunk = vec![0x51; BLOCK_BYTES * to_usize(CHUNK_BLOCKS)];
        for number in 0..FILE_BLOCKS / CHUNK_BLOCKS {
            file.write_all_at(&chunk, number * to_u64(chunk.len()))?;
        }
        file.sync_all()?;
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
        let direct = File::options().read(true).custom_flags(flags).open(path).ok();
        Ok(Self { file: Some(file), direct })
    }

    /// Measures the conditions now. A value that cannot be measured is absent.
    pub fn measure(&self) -> Conditions {
        let load_average_before = process::load_average();
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
        // Direct I/O needs an aligned buffer: an aligned part of a larger one.
        let mut buffer = vec![0; 2 * BLOCK_BYTES];
        let skip = buffer.as_ptr().align_offset(BLOCK_BYTES);
        let block = buffer.get_mut(skip..skip + BLOCK_BYTES).ok_or(io::ErrorKind::Unsupported)?;
        let start = Instant::now();
        for number in 0..READS {
            let at = mix(number) % FILE_BLOCKS;
            direct.read_exact_at(block, at * to_u64(BLOCK_BYTES))?;
        }
        Ok(to_f64(READS) / start.elapsed().as_secs_f64())
    }
}

/// Returns the free bytes of the file system of `dir`.
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
        let conditions = DiskProbe::new(dir.path()).unwrap().measure();
        assert!(conditions.fsync_p50_ns.unwrap() <= conditions.fsync_p99_ns.unwrap());
        assert!(conditions.raw_read_iops.is_none_or(|rate| rate > 0.0));
        assert!(free_bytes(dir.path()).unwrap() > 0);
        assert_eq!(DiskProbe::none().measure().fsync_p50_ns, None);
        assert!(DiskProbe::new(&dir.path().join("none")).is_err());
        assert!(!DiskProbe::none().is_made());
    }
}
