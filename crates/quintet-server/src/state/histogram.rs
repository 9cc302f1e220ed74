//! Histograms of durations with logarithmic buckets.
//!
//! Bucket `i` counts durations of up to 2^`i` microseconds that are longer than those of bucket
//! `i - 1`. The last bucket counts all longer ones. Recording is two relaxed additions.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Number of buckets. The last bound is 2^24 microseconds, 16.8 seconds.
pub(crate) const BUCKETS: usize = 26;

/// A histogram that threads record to.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// The counts of a histogram at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistogramCounts {
    /// Durations in each bucket.
    pub(crate) buckets: [u64; BUCKETS],
    /// Sum of the durations.
    pub(crate) sum: Duration,
}

/// The upper bound of a bucket, or `None` for the last one.
pub(crate) fn bound(bucket: usize) -> Option<Duration> {
    let shift = u32::try_from(bucket).ok().filter(|_| bucket + 1 < BUCKETS)?;
    Some(Duration::from_micros(1_u64.checked_shl(shift)?))
}

fn bucket_of(duration: Duration) -> usize {
    let micros = u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
    let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
    usize::try_from(bits).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

impl Histogram {
    /// Adds a duration.
    pub(crate) fn record(&self, duration: Duration) {
        if let Some(count) = self.counts.get(bucket_of(duration)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Adds counts of the same kind.
    pub(crate) fn add(&self, counts: &HistogramCounts) {
        for (to, from) in self.counts.iter().zip(counts.buckets).filter(|(_, from)| *from > 0) {
            to.fetch_add(from, Ordering::Relaxed);
        }
        let nanos = u64::try_from(counts.sum.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The counts now. Durations that are recorded meanwhile may be missing in the sum.
    pub(crate) fn counts(&self) -> HistogramCounts {
        let mut counts = HistogramCounts::default();
        for (to, from) in counts.buckets.iter_mut().zip(&self.counts) {
            *to = from.load(Ordering::Relaxed);
        }
        counts.sum = Duration::from_nanos(self.nanos.load(Ordering::Relaxed));
        counts
    }

    /// Sets all counts to zero.
    pub(crate) fn reset(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
        self.nanos.store(0, Ordering::Relaxed);
    }
}

impl HistogramCounts {
    /// Adds a duration.
    pub(crate) fn record(&mut self, duration: Duration) {
        if let Some(count) = self.buckets.get_mut(bucket_of(duration)) {
            *count += 1;
        }
        self.sum += duration;
    }

    /// Number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds the counts of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        for (to, from) in self.buckets.iter_mut().zip(other.buckets) {
            *to += from;
        }
        self.sum += other.sum;
    }

    /// What was added since `earlier`. All of it if the histogram was reset meanwhile.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        if self.sum < earlier.sum || self.count() < earlier.count() {
            return *self;
        }
        let mut difference = *self;
        for (to, from) in difference.buckets.iter_mut().zip(earlier.buckets) {
            *to = to.saturating_sub(from);
        }
        difference.sum -= earlier.sum;
        difference
    }

    /// An upper bound of the duration that `thousandths` of all durations do not exceed. `None`
    /// without durations, and the last bound if it is exceeded.
    pub(crate) fn quantile(&self, thousandths: u64) -> Option<Duration> {
        let count = self.count();
        let wanted = (count * thousandths).div_ceil(1000).max(1);
        let mut below = 0;
        for (bucket, own) in self.buckets.iter().enumerate() {
            below += own;
            if below >= wanted && count > 0 {
                return bound(bucket).or_else(|| bound(BUCKETS - 2));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (nanos, bucket) in [
            (0, 0),
            (1, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
            (16_777_216_000, 24),
            (16_777_216_001, 25),
            (u64::MAX, 25),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(bucket_of(duration), bucket, "{nanos}");
            assert!(bound(bucket).is_none_or(|bound| duration <= bound), "{nanos}");
            assert!(bucket == 0 || bound(bucket - 1).unwrap() < duration, "{nanos}");
        }
        assert_eq!(bound(BUCKETS - 1), None);
        assert_eq!(bound(BUCKETS), None);
    }

    #[test]
    fn counts_are_added_subtracted_and_ranked() {
        let histogram = Histogram::default();
        assert_eq!(histogram.counts().quantile(500), None);
        for micros in 1..=100 {
            histogram.record(Duration::from_micros(micros));
        }
        let first = histogram.counts();
        assert_eq!(first.count(), 100);
        assert_eq!(first.sum, Duration::from_micros(5050));
        assert_eq!(first.quantile(10), Some(Duration::from_micros(1)));
        assert_eq!(first.quantile(500), Some(Duration::from_micros(64)));
        assert_eq!(first.quantile(1000), Some(Duration::from_micros(128)));
        histogram.record(Duration::from_mins(1));
        let second = histogram.counts();
        let added = second.since(&first);
        assert_eq!((added.count(), added.sum), (1, Duration::from_mins(1)));
        assert_eq!(added.quantile(990), Some(Duration::from_micros(1 << 24)));
        let mut sum = first;
        sum.add(&added);
        assert_eq!(sum, second);
        histogram.reset();
        assert_eq!(histogram.counts(), HistogramCounts::default());
        // After a reset, all counts are new.
        histogram.record(Duration::from_micros(3));
        assert_eq!(histogram.counts().since(&second), histogram.counts());
    }
}
