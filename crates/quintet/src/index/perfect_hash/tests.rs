//! Goal: every set of hashes gets distinct slots within bounds, whatever its size and pattern;
//! functions survive their bytes, and other bytes give errors.

use super::*;

/// Distinct random hashes.
fn random(count: usize, seed: u64) -> Vec<u64> {
    (0..to_u64(count)).map(|number| mix(mix(seed) ^ number)).collect()
}

/// Slots are in bounds, no two are equal, and the function's bytes give it back.
fn verify(hashes: &[u64], options: &Options<'_>) -> PerfectHash {
    let function = PerfectHash::build(hashes, 7, options).unwrap();
    assert_eq!(function.key_count(), hashes.len());
    let mut used = vec![false; function.slot_count()];
    for hash in hashes {
        let slot = &mut used[function.slot(*hash)];
        assert!(!*slot, "{hash:#x} shares its slot, {} keys", hashes.len());
        *slot = true;
    }
    let bytes = function.encode();
    let read = PerfectHash::decode(&bytes, "piece", 0).unwrap();
    assert_eq!(read, function);
    assert_eq!(read.encode(), bytes);
    function
}

const METHODS: [Method; 1] = [Method::Shift];

fn all(hashes: &[u64]) {
    for method in METHODS {
        verify(hashes, &Options { method, ..Options::default() });
    }
}

#[test]
fn every_size_up_to_two_thousand() {
    for count in 0..2000 {
        all(&random(count, to_u64(count)));
    }
}

#[test]
fn sizes_around_the_segments() {
    for count in [65_535, 65_536, 131_071, 131_072, 200_000] {
        all(&random(count, 3));
    }
}

#[test]
fn a_key_takes_few_bits() {
    let hashes = random(400_000, 1);
    let function = verify(&hashes, &Options::default());
    assert_eq!(function.slot_count(), hashes.len());
    let bits = to_u64(function.encode().len()) * 8 * 1000 / to_u64(hashes.len());
    println!("{bits} thousandths");
    assert!(bits <= 2_250, "{bits} thousandths of a bit a key");
}
