//! Every set of hashes gets distinct slots within bounds, for any size and pattern. An encoded
//! function decodes to itself, and damaged bytes are an error.

use proptest::prelude::*;

use super::*;

/// Distinct random hashes.
fn random(count: usize, seed: u64) -> Vec<u64> {
    (0..to_u64(count)).map(|number| mix(mix(seed) ^ number)).collect()
}

/// Slots are in bounds, no two are equal, and the function's bytes give it back.
fn verify(hashes: &[u64], options: &BuildOptions<'_>) -> PerfectHash {
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

const METHODS: [Method; 3] =
    [Method::Shift, Method::CpHash(Lanes::Widest), Method::CpHash(Lanes::One)];

fn all(hashes: &[u64]) {
    for method in METHODS {
        verify(hashes, &BuildOptions { method, ..BuildOptions::default() });
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
    let function = verify(&hashes, &BuildOptions::default());
    assert_eq!(function.slot_count(), hashes.len());
    let bits = to_u64(function.encode().len()) * 8 * 1000 / to_u64(hashes.len());
    assert!(bits <= 2_250, "{bits} thousandths of a bit a key");
}

#[test]
fn lanes_come_to_the_same() {
    let build = |hashes: &[u64], lanes| {
        let method = Method::CpHash(lanes);
        PerfectHash::build(hashes, 5, &BuildOptions { method, ..BuildOptions::default() }).unwrap()
    };
    for count in [1, 2, 5, 9, 100, 3_000, 100_000] {
        let hashes = random(count, 9);
        assert_eq!(build(&hashes, Lanes::Widest), build(&hashes, Lanes::One), "{count}");
    }
}

/// What `mix` took to `mixed`.
fn unmix(mixed: u64) -> u64 {
    let unshift = |value: u64, by: u32| value ^ (value >> by) ^ (value >> (2 * by));
    // The inverses of the two odd factors, modulo 2^64.
    let value = unshift(mixed, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    unshift(unshift(value, 27).wrapping_mul(0x96de_1b17_3f11_9089), 30)
}

/// The hash that is mixed to `mixed` where `verify` builds.
fn chosen(mixed: u64) -> u64 {
    unmix(mixed) ^ mix(7)
}

#[test]
fn patterns_are_as_good_as_random_hashes() {
    for count in [100_u64, 1_000, 20_000] {
        let patterns: [fn(u64) -> u64; 7] = [
            |number| number,
            |number| number << 40,
            |number| number * 0x0001_0001_0001_0001,
            |number| !number,
            |number| 0xdead_beef_0000_0000 | number,
            |number| number.reverse_bits(),
            |number| number * number,
        ];
        for pattern in patterns {
            all(&(0..count).map(pattern).collect::<Vec<u64>>());
        }
    }
}

#[test]
fn hashes_chosen_with_the_seed_make_a_build_no_worse_than_a_list() {
    assert_eq!(mix(unmix(12_345)), 12_345);
    // All in one segment; all in one bucket; the same halves but for a bit.
    let sets: [fn(u64) -> u64; 3] =
        [|number| mix(number) >> 10, |number| mix(number) >> 40, |number| number << 1 | 1 << 63];
    for set in sets {
        for count in [700, 5_000, 70_000] {
            let hashes: std::collections::BTreeSet<u64> =
                (0..count).map(|number| chosen(set(number))).collect();
            all(&hashes.into_iter().collect::<Vec<u64>>());
        }
    }
}

#[test]
fn equal_hashes_are_named() {
    for method in METHODS {
        for count in [2, 3, 50, 1_000, 100_000] {
            let mut hashes = random(count, 4);
            hashes[count / 2] = hashes[0];
            let options = BuildOptions { method, ..BuildOptions::default() };
            let text = PerfectHash::build(&hashes, 7, &options).unwrap_err().to_string();
            let named = format!("at 0 and at {} are both {:#018x};", count / 2, hashes[0]);
            assert!(text.contains(&named), "{text}");
        }
        let same = vec![5; 2_000];
        assert!(
            PerfectHash::build(&same, 7, &BuildOptions { method, ..BuildOptions::default() })
                .is_err()
        );
    }
}

#[test]
fn order_and_threads_do_not_matter() {
    let run = |count: usize, task: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            let start = |number| scope.spawn(move || task(number));
            let threads: Vec<_> = (0..count).map(start).collect();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    };
    let hashes = random(300_000, 6);
    let mut other = hashes.clone();
    other.sort_unstable();
    for method in METHODS {
        let one =
            PerfectHash::build(&hashes, 7, &BuildOptions { method, ..BuildOptions::default() });
        let many = PerfectHash::build(&other, 7, &BuildOptions { method, parallel: &run });
        assert_eq!(one.unwrap().encode(), many.unwrap().encode());
    }
}

#[test]
fn bytes_are_pinned() {
    // Functions are in files: a change here is a new version of the format.
    let crcs = [Method::Shift, Method::CpHash(Lanes::Widest)].map(|method| {
        let options = BuildOptions { method, ..BuildOptions::default() };
        let bytes = PerfectHash::build(&random(10_000, 2), 7, &options).unwrap().encode();
        assert_eq!(bytes[..8], *MAGIC);
        crc32c(&bytes)
    });
    assert_eq!(crcs, [2_697_037_776, 3_979_785_362]);
}

/// Gives bytes the checksums that fit.
fn fix(bytes: &mut [u8]) {
    let length = to_u64(bytes.len() - HEAD_BYTES);
    bytes[40..48].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c(&bytes[HEAD_BYTES..]);
    bytes[52..56].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn damage_is_an_error() {
    for method in METHODS {
        let options = BuildOptions { method, ..BuildOptions::default() };
        for count in [0, 30, 2_000] {
            let bytes = PerfectHash::build(&random(count, 8), 7, &options).unwrap().encode();
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                let error = PerfectHash::decode(&damaged, "piece", 100).unwrap_err();
                assert!(error.is_corruption(), "byte {at}: {error}");
                let error = PerfectHash::decode(&bytes[..at], "piece", 100).unwrap_err();
                assert!(error.is_corruption(), "cut at {at}: {error}");
            }
        }
    }
    let mut newer = PerfectHash::build(&[1], 7, &BuildOptions::default()).unwrap().encode();
    newer[8] = 2;
    fix(&mut newer);
    let error = PerfectHash::decode(&newer, "piece", 0).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Bytes with sound checksums that nobody wrote: an error, or slots within bounds.
    #[test]
    fn crafted_bytes_stay_in_bounds(
        which in 0..METHODS.len(),
        count in 0_usize..3_000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let options = BuildOptions { method: METHODS[which], ..BuildOptions::default() };
        let mut bytes = PerfectHash::build(&random(count, 8), 7, &options).unwrap().encode();
        for (at, value) in changes {
            let at = at.index(bytes.len() - 16) + 16;
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() - HEAD_BYTES) + HEAD_BYTES);
        }
        fix(&mut bytes);
        if let Ok(function) = PerfectHash::decode(&bytes, "piece", 0) {
            for hash in random(500, 1) {
                let slot = function.slot(hash);
                prop_assert!(slot < function.slot_count() || (slot == 0 && count == 0));
            }
        }
    }

    #[test]
    fn any_set_of_hashes(hashes in prop::collection::hash_set(any::<u64>(), 0..3_000)) {
        all(&hashes.into_iter().collect::<Vec<u64>>());
    }
}
