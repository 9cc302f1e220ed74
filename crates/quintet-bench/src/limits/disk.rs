//! Limits of the disk without the page cache: random reads, sequential writes, and syncs.
//!
//! Random reads at depth 32 use 32 threads with a blocking read each. They are as fast as one
//! submission queue if the processors are not busy with context switches. A read costs about 10 us
//! of processor time; the device of the reference machine is the bottleneck.

use std::{
    fs::{self, File},
    io::{self, IoSlice, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    numbers::{to_f64, to_u64, to_usize},
    random::Random,
};
use rustix::fs::OFlags;

use super::figures::{Limits, MeasurementScope, READ_DEPTH};

/// Bytes of one block.
const BLOCK_BYTES: u64 = 4096;
/// Blocks of one sequential write: 1 MiB.
const WRITE_BLOCKS: usize = 256;
/// Maximum number of timed syncs.
const SYNCS_MAX: usize = 1000;
/// Seed of the read positions.
const SEED: u64 = 0x0051_7569;

/// A block with the alignment that direct I/O needs.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// A file that is removed when the value is dropped.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // The file may not exist. A file that cannot be removed remains in the directory of the
        // caller.
        let _ = fs::remove_file(&self.0);
    }
}

/// Measures the disk below `dir` into `limits`.
pub(super) fn measure(dir: &Path, scope: MeasurementScope, limits: &mut Limits) {
    let time = Duration::from_millis(scope.time_ms);
    let file = TemporaryFile(dir.join("limits-blocks"));
    let written = write_in_sequence(&file.0, scope.disk_bytes, time * 4);
    if let Some((bytes, rate)) = limits.keep("sequential direct writes", written) {
        limits.disk_bytes = bytes;
        limits.write_bytes_per_second = Some(rate);
        let one = reads_per_second(&file.0, bytes, 1, time);
        limits.read_iops_1 = limits.keep("random direct reads, one at a time", one);
        let many = reads_per_second(&file.0, bytes, READ_DEPTH, time);
        limits.read_iops_32 = limits.keep("random direct reads, 32 at a time", many);
    }
    drop(file);
    let syncs = sync_times(dir, time * 2);
    if let Some(times) = limits.keep("fdatasync", syncs) {
        limits.fdatasync_p50_ns = quantile(&times, 50);
        limits.fdatasync_p99_ns = quantile(&times, 99);
    }
}

fn open_direct(path: &Path, write: bool) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let opened =
        File::options().read(true).write(write).create_new(write).custom_flags(flags).open(path);
    opened.map_err(|error| {
        io::Error::new(error.kind(), format!("open {} for direct I/O: {error}", path.display()))
    })
}

/// Writes a file of `bytes`, or as much as `time` allows. Returns the bytes written and the bytes
/// per second.
fn write_in_sequence(path: &Path, bytes: u64, time: Duration) -> io::Result<(u64, f64)> {
    let mut file = open_direct(path, true)?;
    let mut random = Random::new(SEED, 0);
    // Random bytes, which a device cannot compress.
    let mut blocks = vec![Block([0; 4096]); WRITE_BLOCKS];
    for word in blocks.iter_mut().flat_map(|block| block.0.chunks_exact_mut(8)) {
        word.copy_from_slice(&random.bits().to_le_bytes());
    }
    let slices: Vec<IoSlice<'_>> = blocks.iter().map(|block| IoSlice::new(&block.0)).collect();
    let chunk = BLOCK_BYTES * to_u64(WRITE_BLOCKS);
    let mut written = 0;
    let start = Instant::now();
    while written < bytes.max(chunk) && (written == 0 || start.elapsed() < time) {
        let count = file.write_vectored(&slices)?;
        if to_u64(count) != chunk {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        written += chunk;
    }
    file.sync_data()?;
    Ok((written, to_f64(written) / start.elapsed().as_secs_f64()))
}

/// Returns the random reads of single blocks per second with `threads` at a time.
fn reads_per_second(path: &Path, bytes: u64, threads: u32, time: Duration) -> io::Result<f64> {
    let file = open_direct(path, false)?;
    let blocks = bytes / BLOCK_BYTES;
    let start = Instant::now();
    let read = |stream: u32| -> io::Result<u64> {
        let mut block = Block([0; 4096]);
        let mut random = Random::new(SEED, 1 + u64::from(stream));
        let mut count = 0;
        while count == 0 || start.elapsed() < time {
            file.read_exact_at(&mut block.0, random.below(blocks) * BLOCK_BYTES)?;
            count += 1;
        }
        Ok(count)
    };
    let counts: Vec<io::Result<u64>> = thread::scope(|scope| {
        let handles: Vec<_> =
            (0..threads).map(|stream| scope.spawn(move || read(stream))).collect();
        let joined = handles.into_iter().map(|handle| {
            handle.join().unwrap_or_else(|_| Err(io::Error::other("a reading thread panicked")))
        });
        joined.collect()
    });
    let count = counts.into_iter().sum::<io::Result<u64>>()?;
    Ok(to_f64(count) / start.elapsed().as_secs_f64())
}

/// Returns the durations of syncs in ascending order. Each follows an overwrite of one block of a
/// file of its final size.
fn sync_times(dir: &Path, time: Duration) -> io::Result<Vec<Duration>> {
    const BLOCKS: u64 = 1024;
    let path = TemporaryFile(dir.join("limits-sync"));
    let file = File::options().write(true).create_new(true).open(&path.0).map_err(|error| {
        io::Error::new(error.kind(), format!("create {}: {error}", path.0.display()))
    })?;
    let block = [0x51; 4096];
    for index in 0..BLOCKS {
        file.write_all_at(&block, index * BLOCK_BYTES)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < SYNCS_MAX && (times.is_empty() || start.elapsed() < time) {
        file.write_all_at(&block, to_u64(times.len()) % BLOCKS * BLOCK_BYTES)?;
        let synced = Instant::now();
        file.sync_data()?;
        times.push(synced.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// Returns a percentile (nearest rank) in nanoseconds.
fn quantile(sorted: &[Duration], percent: u64) -> Option<u64> {
    let rank = (to_u64(sorted.len()) * percent).div_ceil(100).max(1) - 1;
    let time = sorted.get(to_usize(rank))?;
    Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_nanos).collect();
        assert_eq!(quantile(&times, 50), Some(100));
        assert_eq!(quantile(&times, 99), Some(198));
        assert_eq!(quantile(times.get(..1).unwrap(), 99), Some(1));
        assert_eq!(quantile(&[], 50), None);
    }
}
