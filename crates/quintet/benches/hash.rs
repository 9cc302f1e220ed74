//! The cost of hashing a key: SipHash-1-3, the default of `trie`, beside the paper's `HighwayHash`.
//!
//! `cargo bench -p quintet --bench hash`
//!
//! Prints nanoseconds a key, the median of interleaved rounds. "In a row": independent keys, whose
//! hashes the processor overlaps. "Each after the other": each key depends on the hash before, as a
//! get waits for its hash.

use std::{hint::black_box, time::Instant};

use highway::{HighwayHash as _, HighwayHasher, Key};
use quintet::testing::codec::KeyHash;

const ROUNDS: usize = 21;
const KEYS: u64 = 200_000;
const SEED: [u64; 4] = [1, 2, 3, 4];

fn main() {
    let sip = KeyHash::new([SEED[0], SEED[1]]);
    let siphash = |key: &[u8]| sip.hash(key);
    let highway = |key: &[u8]| HighwayHasher::new(Key(SEED)).hash64(key);
    println!("key bytes: siphash, highway64 in a row; siphash, highway64 each after the other");
    for bytes in [16, 23, 32, 100] {
        let mut rounds = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            for (index, rounds) in rounds.iter_mut().enumerate() {
                let chained = index >= 2;
                rounds.push(match index % 2 {
                    0 => nanoseconds(bytes, chained, siphash),
                    _ => nanoseconds(bytes, chained, highway),
                });
            }
        }
        let [one, two, three, four] = rounds.map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds.get(ROUNDS / 2).copied().unwrap_or_default()
        });
        println!("{bytes}: {one:.1} {two:.1}; {three:.1} {four:.1}");
    }
}

/// Returns the mean time of one hash, in nanoseconds.
fn nanoseconds(bytes: usize, chained: bool, hash: impl Fn(&[u8]) -> u64) -> f64 {
    let (mut key, mut last, mut number) = (vec![7; bytes], 0, 0_u32);
    let start = Instant::now();
    for count in 0..KEYS {
        let part = if chained { last } else { count };
        if let Some(front) = key.first_chunk_mut::<8>() {
            *front = part.to_le_bytes();
        }
        last = black_box(hash(black_box(&key)));
        number += 1;
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(number)
}
