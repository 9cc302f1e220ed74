//! `PTHash` (Pibiri and Trani, SIGIR 2021): pilots, skewed buckets, two dictionaries.
//!
//! The slot of a key is `(hash xor mix(pilot)) mod slots`. The mixes of the first thousand pilots
//! are stored, and the modulus is Lemire's with 128 bits, as in the authors' program. One
//! dictionary encodes the pilots of the first 30 % of the buckets, another those of the rest.

use std::collections::HashMap;

use crate::baseline::{Bitmap, Bits, Buckets, index, mix, share};

/// Number of pilots whose mix is stored.
const REMEMBERED: usize = 1_000;

pub struct PtHash {
    modulus: Modulus,
    dense: u64,
    sparse: u64,
    front: Dictionary,
    back: Dictionary,
}

/// Computes remainders of 64-bit numbers.
#[derive(Clone, Copy)]
struct Modulus {
    divisor: u64,
    inverse: u128,
}

impl Modulus {
    fn new(divisor: u64) -> Self {
        Self { divisor, inverse: u128::MAX / u128::from(divisor) + 1 }
    }

    #[inline]
    fn of(self, value: u64) -> u64 {
        let fraction = self.inverse.wrapping_mul(u128::from(value));
        let (low, high) = (fraction & u128::from(u64::MAX), fraction >> 64);
        let bottom = (low * u128::from(self.divisor)) >> 64;
        let top = high * u128::from(self.divisor);
        u64::try_from((top + bottom) >> 64).unwrap()
    }
}

#[derive(Default)]
struct Dictionary {
    values: Vec<u64>,
    width: u32,
    indexes: Bits,
}

impl Dictionary {
    fn new(pilots: &[u64]) -> Self {
        let mut this = Self::default();
        let mut known = HashMap::new();
        let places: Vec<u64> = pilots
            .iter()
            .map(|pilot| {
                *known.entry(*pilot).or_insert_with(|| {
                    this.values.push(*pilot);
                    u64::try_from(this.values.len()).unwrap() - 1
                })
            })
            .collect();
        this.width = this.values.len().next_power_of_two().ilog2();
        for place in places {
            this.indexes.push(place, this.width);
        }
        this
    }

    #[inline]
    fn get(&self, at: u64) -> u64 {
        self.values[index(self.indexes.get(at * u64::from(self.width), self.width))]
    }

    fn bits(&self) -> u64 {
        self.indexes.bits() + 64 * u64::try_from(self.values.len()).unwrap()
    }
}

/// Returns the bucket of a hash. Six tenths of the keys are in the dense buckets.
fn bucket(hash: u64, dense: u64, sparse: u64) -> u64 {
    let (rest, tenth) = hash.carrying_mul(10, 0);
    if tenth < 6 { share(rest, dense) } else { dense + share(rest, sparse) }
}

impl PtHash {
    pub fn build(hashes: &[u64], bucket_keys: u64, load_percent: u64) -> Self {
        let keys = u64::try_from(hashes.len()).unwrap();
        let slots = keys * 100 / load_percent + 1;
        let count = keys.div_ceil(bucket_keys).max(2);
        let (dense, sparse) = (count * 3 / 10, count - count * 3 / 10);
        let buckets = Buckets::new(hashes, count, |hash| bucket(hash, dense, sparse));
        let modulus = Modulus::new(slots);
        let mut taken = Bitmap::new(slots);
        let mut pilots = vec![0_u64; index(count)];
        let remembered: Vec<u64> = (0..).map(mix).take(REMEMBERED).collect();
        let (mut members, mut places) = (Vec::new(), Vec::new());
        for bucket in &buckets.order {
            members.clear();
            members.extend(buckets.of(*bucket).iter().map(|hash| mix(!hash)));
            let mut pilot = 0;
            loop {
                let mixed = remembered.get(index(pilot)).copied().unwrap_or_else(|| mix(pilot));
                places.clear();
                for hash in &members {
                    let slot = modulus.of(hash ^ mixed);
                    if taken.is_taken(slot) {
                        break;
                    }
                    places.push(slot);
                }
                if places.len() == members.len() && taken.take(&places) {
                    break;
                }
                pilot += 1;
            }
            pilots[index(u64::from(*bucket))] = pilot;
        }
        let (front, back) = pilots.split_at(index(dense));
        let (front, back) = (Dictionary::new(front), Dictionary::new(back));
        Self { modulus, dense, sparse, front, back }
    }

    pub fn slot(&self, hash: u64) -> u64 {
        let bucket = bucket(hash, self.dense, self.sparse);
        let pilot = match bucket.checked_sub(self.dense) {
            Some(at) => self.back.get(at),
            None => self.front.get(bucket),
        };
        self.modulus.of(mix(!hash) ^ mix(pilot))
    }

    pub const fn slots(&self) -> u64 {
        self.modulus.divisor
    }

    pub fn bits(&self) -> u64 {
        self.front.bits() + self.back.bits()
    }
}
