//! Distributions that choose the record of an operation: uniform, zipfian, scrambled zipfian,
//! latest, hot and cold.
//!
//! The zipfian generator is that of YCSB (Gray et al., "Quickly Generating Billion-Record
//! Synthetic Databases", SIGMOD 1994). The probability of the rank `r`, counted from 1,
//! is proportional to `1 / r^theta`. As in YCSB:
//! - The scrambled form draws one of 10^10 ranks and hashes it onto the records. This spreads the
//!   popular records over the key space. The caller must not change the number of records between
//!   draws, because that changes which records are popular.
//! - The number of items may grow. The generator then extends the normalising sum.

use crate::{
    numbers::{to_f64, truncate},
    random::{Random, fnv64},
};

/// Skew of YCSB.
pub const THETA: f64 = 0.99;
/// Number of ranks of YCSB's scrambled generator.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// The normalising sum for `SCRAMBLED_ITEMS` and `THETA`. It is a constant, as in YCSB, because
/// computing it takes minutes.
const SCRAMBLED_SUM: f64 = 26.469_028_201_783_02;

/// Generator of ranks with a zipfian distribution.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    /// Sum of `1 / i^theta` for `i` in `1..=items`.
    sum: f64,
    /// The sum for two items.
    sum_two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Returns a generator of ranks `0..items` (at least one). Takes time proportional to `items`.
    pub fn new(items: u64, theta: f64) -> Self {
        let items = items.max(1);
        Self::with_sum(items, theta, extend_sum(0.0, 0, items, theta))
    }

    fn with_sum(items: u64, theta: f64, sum: f64) -> Self {
        let sum_two = extend_sum(0.0, 0, 2, theta);
        let mut zipfian = Self { items, theta, sum, sum_two, alpha: 1.0 / (1.0 - theta), eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    fn set_eta(&mut self) {
        let share = 2.0 / to_f64(self.items);
        self.eta = (1.0 - share.powf(1.0 - self.theta)) / (1.0 - self.sum_two / self.sum);
    }

    /// Extends the ranks to `0..items`. Does nothing if there are more already.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.sum = extend_sum(self.sum, self.items, items, self.theta);
            self.items = items;
            self.set_eta();
        }
    }

    /// Draws a rank; 0 is the most frequent.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let fraction = random.fraction();
        let scaled = fraction * self.sum;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < self.sum_two || self.items == 2 {
            return 1;
        }
        let rank = to_f64(self.items) * (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
        truncate(rank).min(self.items - 1)
    }
}

/// Adds `1 / i^theta` for `i` in `from + 1..=to`.
fn extend_sum(sum: f64, from: u64, to: u64, theta: f64) -> f64 {
    (from..to).fold(sum, |sum, index| sum + 1.0 / to_f64(index + 1).powf(theta))
}

/// Distribution over `count` records. The count may grow between draws.
#[derive(Clone, Debug)]
pub enum Distribution {
    /// All records with the same probability.
    Uniform,
    /// A zipfian rank hashed onto the records.
    Scrambled(Zipfian),
    /// New records most often. [`Distribution::draw`] returns the distance from the newest.
    Latest(Zipfian),
    /// The first `hot_fraction` of the records with probability `hot_rate`; uniform within each
    /// part.
    HotCold {
        /// Share of the records that are hot; 0 for none.
        hot_fraction: f64,
        /// Share of the draws that go to hot records.
        hot_rate: f64,
    },
}

impl Distribution {
    /// Returns the "zipfian" request distribution of YCSB.
    pub fn scrambled() -> Self {
        Self::Scrambled(Zipfian::with_sum(SCRAMBLED_ITEMS, THETA, SCRAMBLED_SUM))
    }

    /// Returns the "latest" request distribution of YCSB, over `count` records at first.
    pub fn latest(count: u64) -> Self {
        Self::Latest(Zipfian::new(count, THETA))
    }

    /// Draws a number below `count`, or 0 if `count` is 0: a record, or for `Latest` the distance
    /// from the newest.
    #[inline]
    pub fn draw(&mut self, random: &mut Random, count: u64) -> u64 {
        match self {
            Self::Uniform => random.below(count),
            Self::Scrambled(zipfian) => fnv64(zipfian.draw(random)) % count.max(1),
            Self::Latest(zipfian) => {
                zipfian.grow(count);
                zipfian.draw(random).min(count.saturating_sub(1))
            }
            Self::HotCold { hot_fraction, hot_rate } => {
                let hot = truncate(to_f64(count) * *hot_fraction).min(count);
                if hot == count || (hot > 0 && random.chance(*hot_rate)) {
                    random.below(hot)
                } else {
                    hot + random.below(count - hot)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::to_usize;

    const DRAWS: u64 = 200_000;

    /// Pearson's statistic of observed counts against expected ones.
    fn chi_square(observed: &[u64], expected: &[f64]) -> f64 {
        observed
            .iter()
            .zip(expected)
            .map(|(observed, expected)| (to_f64(*observed) - expected).powi(2) / expected)
            .sum()
    }

    fn count(mut distribution: Distribution, records: u64) -> Vec<u64> {
        let mut random = Random::new(7, 3);
        let mut seen = vec![0; to_usize(records)];
        for _ in 0..DRAWS {
            seen[to_usize(distribution.draw(&mut random, records))] += 1;
        }
        seen
    }

    #[test]
    fn uniform_passes_a_chi_square_test() {
        let seen = count(Distribution::Uniform, 100);
        let expected = vec![to_f64(DRAWS) / 100.0; 100];
        // 99 degrees of freedom: 148 is exceeded once in a thousand seeds.
        assert!(chi_square(&seen, &expected) < 148.0);
        assert!(chi_square(&count(Distribution::latest(100), 100), &expected) > 10_000.0);
    }

    #[test]
    fn zipfian_frequencies_are_those_of_the_law() {
        let records = 1000;
        let zipfian = Zipfian::new(records, THETA);
        let sum = zipfian.sum;
        let seen = count(Distribution::Latest(zipfian), records);
        // Gray's method is exact for the first two ranks and approximate after them.
        for (rank, tolerance) in [(0, 0.02), (1, 0.03), (9, 0.25), (99, 0.35)] {
            let expected = to_f64(DRAWS) / (to_f64(rank + 1).powf(THETA) * sum);
            let share = to_f64(seen[to_usize(rank)]) / expected;
            assert!((share - 1.0).abs() < tolerance, "rank {rank}: {share} of what is expected");
        }
        let tenth: u64 = seen[..100].iter().sum();
        assert!((0.60..0.75).contains(&(to_f64(tenth) / to_f64(DRAWS))), "{tenth}");
    }

    #[test]
    fn growing_gives_the_same_as_starting_large() {
        let mut grown = Zipfian::new(10, THETA);
        grown.grow(500);
        grown.grow(1000);
        grown.grow(3);
        let large = Zipfian::new(1000, THETA);
        assert!((grown.sum - large.sum).abs() < 1e-9);
        assert!((grown.eta - large.eta).abs() < 1e-9);
        assert_eq!(grown.items, 1000);
    }

    #[test]
    fn the_scrambled_constant_is_the_sum() {
        // The tail of the sum by the integral, from a million on.
        let head = extend_sum(0.0, 0, 1_000_000, THETA);
        let power = 1.0 - THETA;
        let tail = (to_f64(SCRAMBLED_ITEMS).powf(power) - 1e6_f64.powf(power)) / power;
        assert!((head + tail - SCRAMBLED_SUM).abs() < 1e-3, "{}", head + tail);
    }

    #[test]
    fn scrambled_spreads_the_popular_records() {
        let seen = count(Distribution::scrambled(), 1000);
        let mut sorted = seen.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        // The hottest rank has 1 / 26.47 of the draws, wherever it lands.
        let hottest = to_f64(sorted[0]) / to_f64(DRAWS);
        assert!((0.036..0.042).contains(&hottest), "{hottest}");
        assert_ne!(seen[0], sorted[0]);
        assert_eq!(sorted[0], seen[to_usize(fnv64(0) % 1000)]);
    }

    #[test]
    fn hot_keys_get_their_rate() {
        let seen = count(Distribution::HotCold { hot_fraction: 0.2, hot_rate: 0.6 }, 1000);
        let hot: u64 = seen[..200].iter().sum();
        assert!((0.59..0.61).contains(&(to_f64(hot) / to_f64(DRAWS))));
        let seen = count(Distribution::HotCold { hot_fraction: 0.0, hot_rate: 0.9 }, 100);
        assert!(chi_square(&seen, &[to_f64(DRAWS) / 100.0; 100]) < 148.0);
        count(Distribution::HotCold { hot_fraction: 1.0, hot_rate: 0.5 }, 10);
    }

    #[test]
    fn tiny_counts_stay_in_range() {
        let mut random = Random::new(1, 1);
        let hot_cold = Distribution::HotCold { hot_fraction: 0.5, hot_rate: 0.5 };
        for distribution in
            [Distribution::Uniform, Distribution::scrambled(), Distribution::latest(1), hot_cold]
        {
            for count in [0, 1, 2, 3] {
                let mut distribution = distribution.clone();
                for _ in 0..100 {
                    assert!(distribution.draw(&mut random, count) < count.max(1));
                }
            }
        }
    }
}
