//! `HyperLogLog`: estimates of distinct elements, in Redis's own format of a string.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `HYLL` |
//! | 1 | 0 dense, 1 sparse |
//! | 3 | zero |
//! | 8 | cached estimate; here always marked as invalid |
//! | 12,288 | dense: 16,384 registers of 6 bits, lowest bits first |
//! | varies | sparse: runs of zeros (`00llllll`, `01llllll llllllll`) and of values (`1vvvvvll`) |

use super::{
    call::{Call, commands},
    strings::set_keeping_expiry,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    store::event,
};

commands! { Group::HyperLogLog;
    "pfadd" -2 [WRITE DENYOOM FAST] Keys::ONE, pfadd, "2.8.9",
        "Adds elements to a HyperLogLog key. Creates the key if it doesn't exist.";
    "pfcount" -2 [READ] Keys::ALL, pfcount, "2.8.9",
        "Returns the approximated cardinality of the set(s) observed by the HyperLogLog key(s).";
    "pfmerge" -2 [WRITE DENYOOM] Keys::ALL, pfmerge, "2.8.9",
        "Merges one or more HyperLogLog values into a single key.";
}

/// Bits of a hash that select a register, and the number of registers.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that the value of a register counts.
const COUNTED_BITS: u32 = 64 - INDEX_BITS;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = REGISTERS * 6 / 8;
/// Longest sparse form in bytes, as Redis's default.
const SPARSE_BYTES_MAX: usize = 3000;
/// Largest value of a register in the sparse form.
const SPARSE_VALUE_MAX: u8 = 32;

const NOT_HYPERLOGLOG: Fail = Fail::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
const DAMAGED: Fail = Fail::new("INVALIDOBJ Corrupted HLL object detected");

/// The registers of an estimate.
type Registers = Vec<u8>;

/// `MurmurHash64A` with Redis's seed.
fn hash(element: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let length = u64::try_from(element.len()).unwrap_or(0);
    let mut h = 0xadc8_3b19_u64 ^ length.wrapping_mul(M);
    let mut chunks = element.chunks_exact(8);
    for chunk in &mut chunks {
        let mut k = chunk.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        k = k.wrapping_mul(M);
        k ^= k >> 47;
        h = (h ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            h ^= u64::from(*byte) << (8 * at);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 47;
    h = h.wrapping_mul(M);
    h ^ h >> 47
}

/// Adds an element. Returns whether a register changed.
fn add(registers: &mut Registers, element: &[u8]) -> bool {
    let hash = hash(element);
    let index = usize::try_from(hash).unwrap_or(0) % REGISTERS;
    let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
    let value = u8::try_from(counted.trailing_zeros() + 1).unwrap_or(u8::MAX);
    match registers.get_mut(index) {
        Some(register) if *register < value => {
            *register = value;
            true
        }
        _ => false,
    }
}

fn decode(value: &[u8]) -> Done<Registers> {
    if value.len() < HEADER_BYTES || !value.starts_with(b"HYLL") {
        return Err(NOT_HYPERLOGLOG);
    }
    let body = value.get(HEADER_BYTES..).unwrap_or(&[]);
    let registers = match value.get(4) {
        Some(0) if body.len() == DENSE_BYTES => {
            let mut registers = Vec::with_capacity(REGISTERS);
            for chunk in body.chunks_exact(3) {
                let [a, b, c] = chunk.first_chunk::<3>().ok_or(DAMAGED)?;
                let word = u32::from(*a) | u32::from(*b) << 8 | u32::from(*c) << 16;
                for shift in [0, 6, 12, 18] {
                    registers.push(u8::try_from(word >> shift & 63).unwrap_or(0));
                }
            }
            registers
        }
        Some(1) => decode_sparse(body)?,
        _ => return Err(NOT_HYPERLOGLOG),
    };
    if registers.len() == REGISTERS { Ok(registers) } else { Err(DAMAGED) }
}

fn decode_sparse(body: &[u8]) -> Done<Registers> {
    let mut registers = Vec::with_capacity(REGISTERS);
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        let (value, length) = match byte >> 6 {
            0 => (0, usize::from(byte & 63) + 1),
            1 => {
                let low = bytes.next().ok_or(DAMAGED)?;
                (0, (usize::from(byte & 63) << 8 | usize::from(*low)) + 1)
            }
            _ => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1),
        };
        if registers.len() + length > REGISTERS {
            return Err(DAMAGED);
        }
        registers.resize(registers.len() + length, value);
    }
    Ok(registers)
}

fn encode(registers: &Registers) -> Vec<u8> {
    let mut value = vec![0; HEADER_BYTES];
    if let Some(magic) = value.get_mut(..4) {
        magic.copy_from_slice(b"HYLL");
    }
    if let Some(validity) = value.last_mut() {
        *validity = 0x80;
    }
    let dense = value.clone();
    if let Some(encoding) = value.get_mut(4) {
        *encoding = 1;
    }
    if encode_sparse(registers, &mut value) { value } else { encode_dense(registers, dense) }
}

fn encode_dense(registers: &Registers, mut value: Vec<u8>) -> Vec<u8> {
    for four in registers.chunks(4) {
        let word = four.iter().rev().fold(0_u32, |word, register| word << 6 | u32::from(*register));
        value.extend_from_slice(word.to_le_bytes().get(..3).unwrap_or(&[]));
    }
    value
}

/// Appends the sparse form. Returns `false` if there is none, or if it is too long.
fn encode_sparse(registers: &Registers, out: &mut Vec<u8>) -> bool {
    for run in registers.chunk_by(|a, b| a == b) {
        let value = run.first().copied().unwrap_or(0);
        let mut left = run.len();
        if value > SPARSE_VALUE_MAX {
            return false;
        }
        while left > 0 {
            let most = match value {
                0 if left > 64 => REGISTERS,
                0 => 64,
                _ => 4,
            };
            let length = left.min(most);
            let [high, low] = u16::try_from(length - 1).unwrap_or(0).to_be_bytes();
            match value {
                0 if length > 64 => out.extend_from_slice(&[0x40 | high, low]),
                0 => out.push(low),
                value => out.push(0x80 | (value - 1) << 2 | low),
            }
            left -= length;
        }
        if out.len() > SPARSE_BYTES_MAX {
            return false;
        }
    }
    true
}

/// Ertl's estimator, as Redis has it.
fn estimate(registers: &Registers) -> u64 {
    let mut histogram = [0_u32; 64];
    for register in registers {
        if let Some(count) = histogram.get_mut(usize::from(*register)) {
            *count += 1;
        }
    }
    let all = 16_384.0_f64;
    let count = |value: u32| {
        f64::from(
            usize::try_from(value).ok().and_then(|at| histogram.get(at)).copied().unwrap_or(0),
        )
    };
    let mut z = all * tau((all - count(COUNTED_BITS + 1)) / all);
    for value in (1..=COUNTED_BITS).rev() {
        z = 0.5 * (z + count(value));
    }
    z += all * sigma(count(0) / all);
    // 0.5 / ln 2
    let alpha = 0.721_347_520_444_481_7;
    round(alpha * all * all / z)
}

fn round(number: f64) -> u64 {
    // The text of a rounded number converts without a cast; infinity becomes the largest number.
    format!("{:.0}", number.round()).parse().unwrap_or(u64::MAX)
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before.to_bits() == z.to_bits() {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if before.to_bits() == z.to_bits() {
            return z / 3.0;
        }
    }
}

/// The registers at a key.
fn load(call: &mut Call<'_, '_>, key: &[u8]) -> Done<Option<Registers>> {
    call.unit
        .with_string(call.session.database, key, |value| value.map(decode).transpose())
        .and_then(|registers| registers)
}

fn pfadd(call: &mut Call<'_, '_>) -> Done {
    let (args, key) = (call.args, call.key());
    let loaded = load(call, key)?;
    let mut is_changed = loaded.is_none();
    let mut registers = loaded.unwrap_or_else(|| vec![0; REGISTERS]);
    for element in args.from(2) {
        is_changed |= add(&mut registers, element);
    }
    if is_changed {
        set_keeping_expiry(call, key, encode(&registers))?;
        call.notify(event::STRING, "pfadd", key);
    }
    call.reply.flag(is_changed);
    Ok(())
}

fn union(call: &mut Call<'_, '_>) -> Done<Registers> {
    let args = call.args;
    let mut all = vec![0; REGISTERS];
    for key in args.from(1) {
        for (own, other) in all.iter_mut().zip(load(call, key)?.unwrap_or_default()) {
            *own = (*own).max(other);
        }
    }
    Ok(all)
}

fn pfcount(call: &mut Call<'_, '_>) -> Done {
    let registers = union(call)?;
    call.reply.integer(i64::try_from(estimate(&registers)).unwrap_or(i64::MAX));
    Ok(())
}

fn pfmerge(call: &mut Call<'_, '_>) -> Done {
    let registers = union(call)?;
    set_keeping_expiry(call, call.key(), encode(&registers))?;
    call.notify(event::STRING, "pfadd", call.key());
    call.reply.ok();
    Ok(())
}
