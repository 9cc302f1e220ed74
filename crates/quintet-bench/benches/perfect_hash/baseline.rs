//! Parts of both baselines: keys by bucket, a bitmap, packed numbers.

/// Derives independent bits from 64 bits of hash (the last steps of `SplitMix64`).
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

pub fn index(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

/// Returns the upper 64 bits of the product: `of` scaled by a fraction of 2^64.
pub fn share(fraction: u64, of: u64) -> u64 {
    fraction.carrying_mul(of, 0).1
}

/// Keys by bucket, and buckets in descending order of size.
pub struct Buckets {
    pub keys: Vec<u64>,
    pub begins: Vec<u32>,
    pub order: Vec<u32>,
}

impl Buckets {
    /// Two counting sorts, which are cheaper than the sorts of pairs in the published programs.
    pub fn new(hashes: &[u64], count: u64, bucket: impl Fn(u64) -> u64) -> Self {
        let mut begins = vec![0_u32; index(count) + 2];
        for hash in hashes {
            begins[index(bucket(*hash)) + 2] += 1;
        }
        sum_up(&mut begins);
        let mut keys = vec![0; hashes.len()];
        for hash in hashes {
            let next = &mut begins[index(bucket(*hash)) + 1];
            keys[index(u64::from(*next))] = *hash;
            *next += 1;
        }
        begins.pop();
        let sizes = || (0_u32..).zip(begins.windows(2).map(|pair| pair[1] - pair[0]));
        let largest = sizes().map(|(_, size)| size).max().unwrap_or(0);
        let mut turns = vec![0_u32; index(u64::from(largest)) + 2];
        sizes().for_each(|(_, size)| turns[index(u64::from(largest - size)) + 1] += 1);
        sum_up(&mut turns);
        let mut order = vec![0; index(count)];
        for (bucket, size) in sizes() {
            let next = &mut turns[index(u64::from(largest - size))];
            order[index(u64::from(*next))] = bucket;
            *next += 1;
        }
        Self { keys, begins, order }
    }

    pub fn of(&self, bucket: u32) -> &[u64] {
        let bucket = index(u64::from(bucket));
        &self.keys[index(u64::from(self.begins[bucket]))..index(u64::from(self.begins[bucket + 1]))]
    }
}

fn sum_up(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// A bitmap with a bit for each slot.
pub struct Bitmap(Vec<u64>);

impl Bitmap {
    pub fn new(slots: u64) -> Self {
        Self(vec![0; index(slots.div_ceil(64))])
    }

    /// Takes all of the slots, or none if one is taken or occurs twice.
    #[inline]
    pub fn take(&mut self, slots: &[u64]) -> bool {
        for (done, slot) in slots.iter().enumerate() {
            let word = &mut self.0[index(slot / 64)];
            if *word >> (slot % 64) & 1 != 0 {
                slots[..done].iter().for_each(|slot| self.0[index(slot / 64)] ^= 1 << (slot % 64));
                return false;
            }
            *word |= 1 << (slot % 64);
        }
        true
    }

    #[inline]
    pub fn is_taken(&self, slot: u64) -> bool {
        self.0[index(slot / 64)] >> (slot % 64) & 1 != 0
    }
}

/// Packed numbers of up to 57 bits, each with its own width.
#[derive(Default)]
pub struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    pub fn push(&mut self, value: u64, width: u32) {
        if width == 0 {
            return;
        }
        let (word, shift) = (index(self.len / 64), self.len % 64);
        self.words.resize(index((self.len + u64::from(width)).div_ceil(64)), 0);
        self.words[word] |= value << shift;
        if shift + u64::from(width) > 64 {
            self.words[word + 1] |= value >> (64 - shift);
        }
        self.len += u64::from(width);
    }

    #[inline]
    pub fn get(&self, at: u64, width: u32) -> u64 {
        let (word, shift) = (index(at / 64), at % 64);
        let here = self.words.get(word).copied().unwrap_or(0) >> shift;
        let next = match shift {
            0 => 0,
            _ => self.words.get(word + 1).copied().unwrap_or(0) << (64 - shift),
        };
        (here | next) & ((1 << width) - 1)
    }

    pub const fn bits(&self) -> u64 {
        self.len
    }
}
