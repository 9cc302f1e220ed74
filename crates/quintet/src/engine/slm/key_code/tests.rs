//! Order, unique codes, decoding, and the layout.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{trainer::alphabetic_lengths, *};
use crate::util::mutant::{Bug, finds};

/// Returns the code for a sample, also if it saves little.
fn code_for<'k>(sample: impl IntoIterator<Item = &'k [u8]>) -> KeyCode {
    let mut keys: Vec<&[u8]> = sample.into_iter().collect();
    keys.sort_unstable();
    let mut trainer = Trainer::default();
    for key in &keys {
        trainer.add(key);
    }
    trainer.code().unwrap()
}

/// Returns a code for keys of a word and a decimal number.
fn decimal() -> KeyCode {
    let keys: Vec<String> =
        (0..5_000_u64).map(|number| format!("user{:019}", spread(number) >> 1)).collect();
    code_for(keys.iter().map(String::as_bytes))
}

fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn encoded(code: &KeyCode, key: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    code.encode(key, &mut out);
    let out = out.split_off(6);
    assert_eq!(code.encode_in(key, &mut KeyBuffer::default()), out);
    out
}

fn decoded(code: &KeyCode, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    let found = code.decode(bytes, &mut out);
    assert!(out.starts_with(b"before"));
    found.map(|()| out.split_off(6))
}

/// Returns the bits of a coded key by definition.
fn bits_of(code: &KeyCode, key: &[u8]) -> Vec<bool> {
    let mut bits = Vec::new();
    for byte in key {
        let symbol = usize::from(*byte) + 1;
        let (start, length) = (code.starts[symbol], code.lengths[symbol]);
        bits.extend((0..length).map(|bit| start >> (15 - bit) & 1 == 1));
    }
    bits
}

#[test]
fn a_digit_takes_little_more_than_its_logarithm() {
    let code = decimal();
    let bits: u32 = (b'0'..=b'9').map(|byte| u32::from(code.lengths[usize::from(byte) + 1])).sum();
    assert_eq!(bits, 36, "{:?}", code.lengths);
    assert!(code.lengths.iter().all(|length| *length <= 14), "{:?}", code.lengths);
    let keys = (0..100).map(|number| format!("user{:019}", spread(number + 9_999) >> 1));
    let bytes: usize = keys.map(|key| encoded(&code, key.as_bytes()).len()).sum();
    assert!(bytes <= 100 * 15, "{bytes} bytes for 100 keys of 23");
}

#[test]
fn a_code_that_saves_little_is_not_used() {
    let mut trainer = Trainer::default();
    assert!(trainer.finish().is_none(), "nothing to learn from");
    let mut keys: Vec<[u8; 8]> = (0..5_000).map(|number| spread(number).to_be_bytes()).collect();
    keys.sort_unstable();
    for key in &keys {
        trainer.add(key);
    }
    assert!(trainer.finish().is_none());
    let mut trainer = Trainer::default();
    trainer.add(b"user1");
    assert!(trainer.finish().is_some());
}

/// A sample of one key is enough for others of its kind.
#[test]
fn a_small_sample_is_enough_for_similar_keys() {
    let code = code_for([&b"user0000000000000000001"[..]]);
    let bytes: usize =
        (0..100).map(|n| encoded(&code, format!("user{:019}", spread(n)).as_bytes()).len()).sum();
    assert!(bytes <= 100 * 16, "{bytes} bytes for 100 keys of 23 to 24");
}

/// Returns the least weighted length of all alphabetic trees, by dynamic programming.
fn least_cost(weights: &[u64]) -> u64 {
    let count = weights.len();
    let mut cost = vec![vec![0; count + 1]; count + 1];
    for size in 2..=count {
        for start in 0..=count - size {
            let sum: u64 = weights[start..start + size].iter().sum();
            let splits = 1..size;
            let parts = splits.map(|at| cost[at][start] + cost[size - at][start + at]);
            cost[size][start] = sum + parts.min().unwrap();
        }
    }
    cost[count][0]
}

#[test]
fn coded_keys_have_the_documented_layout() {
    let mut lengths = [8; SYMBOLS];
    // The end and byte 0 have nine bits, all other bytes have eight.
    lengths[..3].copy_from_slice(&[9, 9, 8]);
    let code = KeyCode::from_lengths(&lengths).unwrap();
    assert_eq!(code.lengths(), &lengths);
    assert_eq!(encoded(&code, b""), b"");
    assert_eq!(encoded(&code, &[0]), [0, 128]);
    assert_eq!(encoded(&code, &[0, 0]), [0, 128, 64]);
    assert_eq!(encoded(&code, &[1, 2, 255]), [1, 2, 255]);
    assert_eq!(encoded(&code, &[255, 0]), [255, 0, 128]);
    assert_eq!(decoded(&code, &[255, 0, 128]), Some(vec![255, 0]));
    for bad in [&[0][..], &[0, 64], &[0, 1, 2], &[7, 0], &[255, 0, 0, 1]] {
        assert_eq!(decoded(&code, bad), None, "{bad:?}");
    }
}

#[test]
fn bad_lengths_are_refused() {
    let good = *decimal().lengths();
    assert_eq!(KeyCode::from_lengths(&good), Some(decimal()));
    assert!(KeyCode::from_lengths(&good[1..]).is_none());
    for symbol in 0..SYMBOLS {
        for other in [0, good[symbol] - 1, good[symbol] + 1, 16, 17, 255] {
            let mut bad = good;
            bad[symbol] = other;
            assert!(KeyCode::from_lengths(&bad).is_none() || bad == good, "{symbol}: {other}");
        }
    }
}

#[test]
fn long_keys_of_rare_bytes_decode() {
    let code = decimal();
    for key in [vec![0; 65_535], vec![255; 65_535], vec![b'7'; 65_535], vec![0; 57], vec![9; 56]] {
        let coded = encoded(&code, &key);
        assert!(coded.len() <= key.len() * 2);
        assert_eq!(decoded(&code, &coded), Some(key));
    }
}

/// Keys with many lowest and highest bytes, and many bytes of the samples.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(255), b'0'..=b'9', Just(b'u')];
    prop_oneof![vec(byte, 0..40), "[a-f0-9]{0,70}".prop_map(String::into_bytes)]
}

fn codes() -> impl Strategy<Value = KeyCode> {
    let fixed =
        select(vec![b"0123456789".to_vec(), b"0123456789abcdef".to_vec(), vec![0], vec![255]]);
    let sample = prop_oneof![
        vec(bytes(), 0..20),
        fixed.prop_flat_map(|of| vec(vec(select(of), 0..30), 1..40)),
    ];
    sample.prop_map(|sample| code_for(sample.iter().map(Vec::as_slice)))
}

proptest! {
    #[test]
    fn coded_keys_have_their_keys_order(
        code in codes(), a in bytes(), b in bytes(), shared in bytes(),
    ) {
        let pairs = [
            (a.clone(), b.clone()),
            ([&*shared, &*a].concat(), [&*shared, &*b].concat()),
            (a.clone(), [&*a, &*b].concat()),
            (a.clone(), [&*a, &[0]].concat()),
        ];
        for (one, other) in pairs {
            let coded = (encoded(&code, &one), encoded(&code, &other));
            prop_assert_eq!(one.cmp(&other), coded.0.cmp(&coded.1), "{:?} {:?}", one, other);
            prop_assert_eq!(decoded(&code, &coded.0), Some(one));
            prop_assert_eq!(decoded(&code, &coded.1), Some(other));
        }
    }

    #[test]
    fn a_coded_key_is_the_bits_of_its_symbols(code in codes(), key in bytes()) {
        let mut bits = bits_of(&code, &key);
        bits.truncate(bits.iter().rposition(|bit| *bit).map_or(0, |last| last + 1));
        let coded = encoded(&code, &key);
        prop_assert_eq!(coded.len(), bits.len().div_ceil(8));
        for (index, bit) in bits.iter().enumerate() {
            prop_assert_eq!(coded[index / 8] >> (7 - index % 8) & 1 == 1, *bit);
        }
    }

    #[test]
    fn decoded_bytes_encode_to_themselves(code in codes(), garbage in bytes()) {
        if let Some(key) = decoded(&code, &garbage) {
            prop_assert_eq!(encoded(&code, &key), garbage);
        }
    }

    /// Keys in order, in any order, and with bytes between them that are no code.
    #[test]
    fn keys_decode_in_sequence(
        code in codes(),
        mut keys in vec(bytes(), 0..40),
        sorts: bool,
    ) {
        if sorts {
            keys.sort_unstable();
        }
        let mut series = DecodeState::default();
        for key in &keys {
            let coded = encoded(&code, key);
            prop_assert_eq!(code.decode_next(&coded, &mut series), Some(&key[..]));
            let as_garbage = code.decode_next(key, &mut series).map(<[u8]>::to_vec);
            prop_assert_eq!(as_garbage, decoded(&code, key));
        }
    }

    #[test]
    fn lengths_determine_the_code(code in codes()) {
        prop_assert_eq!(KeyCode::from_lengths(code.lengths()), Some(code));
    }

    #[test]
    fn the_code_is_optimal(weights in vec(1..1_000_u64, 1..24)) {
        let lengths = alphabetic_lengths(&weights);
        let cost = weights.iter().zip(&lengths).map(|(weight, length)| weight * u64::from(*length));
        prop_assert_eq!(cost.sum::<u64>(), least_cost(&weights));
        let mut next = 0_u64;
        for length in lengths {
            prop_assert_eq!(next % (1 << (32 - length)), 0);
            next += 1 << (32 - length);
        }
        prop_assert_eq!(next, 1 << 32);
    }
}

/// Codes of keys that are prefixes of one another differ.
fn prefixes_stay_apart() {
    let code = decimal();
    let keys = [&b""[..], b"0", b"00", b"000", b"1", b"10", b"100", b"user", b"user\0", b"user0"];
    let mut last = None;
    for key in keys {
        let coded = Some(encoded(&code, key));
        assert!(last < coded, "{}", key.escape_ascii());
        last = coded;
    }
}

#[test]
fn keys_that_are_prefixes_have_different_codes() {
    prefixes_stay_apart();
}

#[test]
fn a_code_without_an_end_is_found() {
    finds(Bug::KeyCodeLacksEnd, prefixes_stay_apart);
}
