//! CHD: "Hash, displace, and compress" (Belazzougui, Botelho, Dietzfelbinger, ESA 2009), as in the
//! C library of its authors.
//!
//! The slot of a key in bucket `b` is `(f + d0 * g + d1) mod slots`. Displacements have the number
//! `d0 + slots * d1` and are tried in this order, for the largest bucket first. Each number is
//! stored in as many bits as it has.

use crate::baseline::{Bitmap, Bits, Buckets, index, mix, share};

/// Number of entries whose widths are summed from one stored position.
const SAMPLE: usize = 32;
/// Bits of a width.
const WIDTH_BITS: u32 = 6;

pub struct Chd {
    slots: u64,
    buckets: u64,
    widths: Bits,
    numbers: Bits,
    samples: Vec<u64>,
}

struct Hashed {
    f: u64,
    g: u64,
}

impl Hashed {
    fn new(hash: u64, slots: u64) -> Self {
        let other = mix(hash);
        Self { f: (other & 0xffff_ffff) % slots, g: (other >> 32) % (slots - 1) + 1 }
    }

    #[inline]
    const fn slot(&self, d0: u64, d1: u64, slots: u64) -> u64 {
        (self.f + self.g * d0 + d1) % slots
    }
}

impl Chd {
    pub fn build(hashes: &[u64], bucket_keys: u64, load_percent: u64) -> Self {
        let keys = u64::try_from(hashes.len()).unwrap();
        let slots = next_prime(keys * 100 / load_percent + 1);
        let count = keys.div_ceil(bucket_keys);
        let buckets = Buckets::new(hashes, count, |hash| share(hash, count));
        let mut taken = Bitmap::new(slots);
        let mut chosen = vec![0_u64; index(count)];
        let (mut members, mut places) = (Vec::new(), Vec::new());
        for bucket in &buckets.order {
            members.clear();
            members.extend(buckets.of(*bucket).iter().map(|hash| Hashed::new(*hash, slots)));
            let (mut d0, mut d1) = (0, 0);
            loop {
                places.clear();
                for key in &members {
                    let slot = key.slot(d0, d1, slots);
                    if taken.is_taken(slot) {
                        break;
                    }
                    places.push(slot);
                }
                if places.len() == members.len() && taken.take(&places) {
                    break;
                }
                d0 += 1;
                if d0 == slots {
                    (d0, d1) = (0, d1 + 1);
                }
            }
            chosen[index(u64::from(*bucket))] = d0 + slots * d1;
        }
        let mut this = Self {
            slots,
            buckets: count,
            widths: Bits::default(),
            numbers: Bits::default(),
            samples: Vec::new(),
        };
        for (at, number) in chosen.iter().enumerate() {
            if at % SAMPLE == 0 {
                this.samples.push(this.numbers.bits());
            }
            // The highest bit of `number + 1` is not stored.
            let width = (number + 1).ilog2();
            this.widths.push(u64::from(width), WIDTH_BITS);
            this.numbers.push((number + 1) - (1 << width), width);
        }
        this
    }

    pub fn slot(&self, hash: u64) -> u64 {
        let bucket = share(hash, self.buckets);
        let width_at = |at: u64| {
            u32::try_from(self.widths.get(at * u64::from(WIDTH_BITS), WIDTH_BITS)).unwrap()
        };
        let sampled = bucket - bucket % 32;
        let before: u64 = (sampled..bucket).map(|at| u64::from(width_at(at))).sum();
        let width = width_at(bucket);
        let at = self.samples[index(bucket / 32)] + before;
        let number = self.numbers.get(at, width) + (1 << width) - 1;
        let key = Hashed::new(hash, self.slots);
        key.slot(number % self.slots, number / self.slots, self.slots)
    }

    pub const fn slots(&self) -> u64 {
        self.slots
    }

    pub fn bits(&self) -> u64 {
        self.widths.bits() + self.numbers.bits() + 64 * u64::try_from(self.samples.len()).unwrap()
    }
}

fn next_prime(from: u64) -> u64 {
    let is_prime = |number: &u64| (2..=number.isqrt()).all(|factor| !number.is_multiple_of(factor));
    (from..2 * from + 2).find(is_prime).unwrap()
}
