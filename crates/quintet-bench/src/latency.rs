//! Latencies: sampling of operations and histograms of their times.
//!
//! Two readings of the clock cost 40 to 100 ns on common machines, as much as a get. Where
//! operations are fast, the driver therefore times one operation of [`STRIDE`] on average. The
//! distances are irregular, so that a period of the store cannot coincide with the stride. A timed
//! operation is one call of the store; it excludes making key and value. With `sync` durability and
//! at a fixed rate, the driver times every operation. Times go into an `HdrHistogram` with three
//! significant digits. The cost of the clock is reported, not subtracted. The maximum is that of
//! the timed operations.
//!
//! At a fixed rate (`--rate`), the time of an operation counts from the moment at which it was due.
//! A stall therefore counts in every operation that it delays (no coordinated omission).

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome};

/// Mean number of operations for each operation that is timed.
pub const STRIDE: u32 = 16;
/// Maximum time in a histogram, one hour; a longer time counts as this one.
const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of a histogram.
const DIGITS: u8 = 3;

/// Selects the operations that are timed.
#[derive(Clone, Debug)]
pub struct Sampler {
    every: u32,
    left: u32,
    state: u32,
}

impl Sampler {
    /// Returns a sampler that times one operation of `every` on average.
    pub const fn new(every: u32) -> Self {
        Self { every, left: 0, state: 0x2545_f491 }
    }

    /// Returns whether to time the next operation.
    #[inline]
    pub const fn is_due(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        if self.every > 1 {
            // A linear congruential step: the distance to the next operation is from 0 to twice the
            // mean.
            self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.left = (self.state >> 8) % (2 * self.every - 1);
        }
        true
    }
}

/// Histograms of the times of reads and of writes.
#[derive(Clone, Debug)]
pub struct LatencyHistograms {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
}

impl LatencyHistograms {
    /// Returns empty histograms.
    pub fn new() -> Outcome<Self> {
        Ok(Self { reads: histogram()?, writes: histogram()? })
    }

    /// Adds the time of one operation.
    #[inline]
    pub fn add(&mut self, is_write: bool, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(TIME_NS_MAX);
        let histogram = if is_write { &mut self.writes } else { &mut self.reads };
        histogram.saturating_record(nanoseconds);
    }

    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &Self) -> Outcome {
        self.reads.add(&other.reads).map_err(unusable)?;
        self.writes.add(&other.writes).map_err(unusable)
    }

    /// Returns the times of reads in nanoseconds.
    pub const fn reads(&self) -> &Histogram<u64> {
        &self.reads
    }

    /// Returns the times of writes in nanoseconds.
    pub const fn writes(&self) -> &Histogram<u64> {
        &self.writes
    }

    /// Returns the percentiles of reads, of writes, and of all.
    pub fn summarize(&self) -> Outcome<[Percentiles; 3]> {
        let mut all = self.reads.clone();
        all.add(&self.writes).map_err(unusable)?;
        Ok([&self.reads, &self.writes, &all].map(Percentiles::of))
    }
}

fn histogram() -> Outcome<Histogram<u64>> {
    Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS).map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("latency histogram: {error}"))
}

/// Percentiles of latencies in nanoseconds; all 0 if no operation was timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of timed operations.
    pub samples: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

impl Percentiles {
    /// Returns the percentiles of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            samples: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

/// Returns the cost of reading the clock: nanoseconds between two readings, the mean of many.
pub fn timer_ns() -> u64 {
    const READINGS: u32 = 20_000;
    let start = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    u64::try_from((start.elapsed() / READINGS).as_nanos()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_sixteen_is_timed_at_irregular_distances() {
        let mut sampler = Sampler::new(STRIDE);
        let due: Vec<u32> = (0..160_000).filter(|_| sampler.is_due()).collect();
        assert!((9_500..10_500).contains(&due.len()), "{}", due.len());
        let gaps: std::collections::BTreeSet<u32> =
            due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() > 25, "{gaps:?}");
        let mut every = Sampler::new(1);
        assert!((0..100).all(|_| every.is_due()));
    }

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let mut times = LatencyHistograms::new().unwrap();
        let mut other = LatencyHistograms::new().unwrap();
        for n in 1..=1000 {
            times.add(false, Duration::from_nanos(n * 100));
            other.add(true, Duration::from_micros(n * 100));
        }
        times.merge(&other).unwrap();
        let [reads, writes, all] = times.summarize().unwrap();
        assert_eq!((reads.samples, writes.samples, all.samples), (1000, 1000, 2000));
        assert!((49_900..50_200).contains(&reads.p50_ns), "{reads:?}");
        assert!((98_900..99_200).contains(&reads.p99_ns), "{reads:?}");
        assert!((99_900_000..100_200_000).contains(&writes.max_ns), "{writes:?}");
        assert!(all.p999_ns > writes.p99_ns);
    }
}
