//! Perfect hash functions of arbitrary bytes: an error, or slots within bounds.

use quintet::testing::{
    codec::to_u64,
    perfect_hash::{BuildOptions, Lanes, Method, PerfectHash},
};

use super::{
    explains_itself,
    fix::{self, Input},
};

/// Decodes a function whose body is the input. Variants: 1, of the second method.
pub(super) fn perfect_hash(input: &[u8]) {
    let bytes = fix::perfect_hash(Input::new(input));
    match PerfectHash::decode(&bytes, "piece", 4096) {
        Ok(function) => {
            let slots = function.slot_count();
            for number in 0..1_000_u64 {
                let slot = function.slot(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                assert!(slot < slots.max(1), "slot {slot} of {slots}");
            }
            assert!(function.encode() == bytes, "what was read is written as it was");
        }
        Err(error) => explains_itself(&error),
    }
}

pub(super) fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let sample = |method, count: u64, flags: u8| {
        let hashes: Vec<u64> =
            (0..count).map(|number| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let options = BuildOptions { method, ..BuildOptions::default() };
        let function = PerfectHash::build(&hashes, 7, &options).expect("distinct hashes");
        let head = [count.to_le_bytes(), to_u64(function.slot_count()).to_le_bytes()].concat();
        [&[flags][..], &head, &function.encode()[64..]].concat()
    };
    let displaced = Method::CpHash(Lanes::default());
    vec![
        ("perfect_hash", "shifted", sample(Method::Shift, 1_500, 0)),
        ("perfect_hash", "a-list", sample(Method::Shift, 20, 0)),
        ("perfect_hash", "empty", sample(Method::Shift, 0, 0)),
        ("perfect_hash", "displaced", sample(displaced, 600, 1 << 3)),
        ("perfect_hash", "displaced-segments", sample(displaced, 2_100, 1 << 3)),
    ]
}
