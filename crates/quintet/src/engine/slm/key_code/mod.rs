//! Key codes: keys in fewer bits, in the same order.
//!
//! What: a code of bits for each byte, alphabetic (a greater byte has a greater code) and free of
//! prefixes, made from a sample of keys ([`train`]); [`KeyCode::encode`] puts the codes of a key's
//! bytes side by side, [`KeyCode::decode`] gives the key back.
//! Why: an index of coded keys holds more of them in a page. Ten digits take 3.6 bits each: 3.4
//! would be the least for ten, and the rest is for the bytes that no key of the sample has.
//!
//! There is one symbol more than there are bytes, the end of a key: the lowest, so its code is all
//! zeros, and so is what follows it. So zeros at the end are left out: the end takes no room, and a
//! coded key is as many bytes as there are up to the last one that is not zero.
//!
//! Invariants:
//! - For all keys a and b: a < b just if coded a < coded b, both as byte strings; so one coded key
//!   is one key's. Two keys differ at a symbol, whose codes differ at a bit that both have. Zeros
//!   behind the last byte change no order between byte strings that do not end in zero.
//! - Every key can be coded: each byte has a code, of at most [`BITS_MAX`] bits. The empty key is
//!   the only one whose code is empty.
//! - Decoding accepts what encoding makes, and nothing else, and never panics.
//!
//! Layout: a code is stored as the lengths of its symbols' codes, from which they follow, since
//! each begins where the one before ends (canonical order is the order of the symbols):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | end | bits of the end of a key, 1 to 16 |
//! | 1 | 256 | bytes | bits of each byte in turn, 1 to 16 |
//!
//! Lengths of which any code would begin in the midst of another, or that leave a sequence of bits
//! without a meaning, are damage.
//!
//! Thread rules: none, a code never changes.
//!
//! Paper: Zhang and others, "Order-Preserving Key Compression for In-Memory Search Trees" (HOPE,
//! SIGMOD 2020), its Single-Char scheme. How we differ: the end of a key is a symbol, so codes keep
//! keys apart that are prefixes of one another, without their length in bits; decoding is built
//! (the paper's trees never decode); bits are counted for bytes behind what a key shares with the
//! one before it, because pages leave out prefixes by themselves; the code is the optimal
//! alphabetic tree by Garsia and Wachs' algorithm instead of Hu and Tucker's.

mod train;

#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub use train::Trainer;

use crate::util::{
    codec::{low_u8, low_u32, to_u64, to_usize},
    mutant::{self, Bug},
};

/// The end of a key, and every byte.
pub const SYMBOLS: usize = 257;
/// Longest code: a window of a word holds several, and the code of a byte is a half-word.
pub const BITS_MAX: u32 = 16;
/// What one word may give at most in decoding, and the word that is written whole.
const SLACK: usize = 64;
/// Bytes of a coded key for each of the key's, at most.
pub const GROWTH_MAX: usize = 2;
/// Bits that decoding looks up at once: three digits, in a table of 16 KiB.
const LOOK_BITS: u32 = 11;
/// Symbols that one look-up gives at most.
const LOOK_SYMBOLS: usize = 6;
/// Keys of at most this many bytes are coded without a look for memory.
const INLINE_KEY_BYTES: usize = 56;

/// Bytes that coding a key of so many needs to write in.
const fn room_for(key_bytes: usize) -> usize {
    // And the word that is written whole.
    key_bytes * GROWTH_MAX + 8
}

/// Room for a coded key.
#[derive(Debug)]
pub struct Buffer {
    short: [u8; room_for(INLINE_KEY_BYTES)],
    long: Vec<u8>,
}

impl Default for Buffer {
    #[inline]
    fn default() -> Self {
        Self { short: [0; room_for(INLINE_KEY_BYTES)], long: Vec::new() }
    }
}

/// A code. See the module head.
#[derive(Clone)]
pub struct KeyCode {
    /// Of each byte: its code, and below it, in 8 bits, the number of its bits.
    codes: Box<[u32; 256]>,
    /// Of what the next bits may be: the symbols whose codes are whole in them, up to the end of a
    /// key, from the low byte on; in byte 6 how many, in byte 7 their bits. Where there is none, in
    /// bytes 0 and 1 the first symbol whose code may begin so.
    looks: Box<[u64; 1 << LOOK_BITS]>,
    /// Of each symbol, its code at the high end of 16 bits: ascending.
    starts: Box<[u16; SYMBOLS]>,
    lengths: Box<[u8; SYMBOLS]>,
}

impl PartialEq for KeyCode {
    fn eq(&self, other: &Self) -> bool {
        self.lengths == other.lengths
    }
}

impl Eq for KeyCode {}

impl std::fmt::Debug for KeyCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyCode").field("lengths", &self.lengths).finish_non_exhaustive()
    }
}

impl KeyCode {
    /// The code whose symbols have these lengths in bits; `None` where there is none.
    pub fn from_lengths(lengths: &[u8]) -> Option<Self> {
        let lengths: [u8; SYMBOLS] = lengths.try_into().ok()?;
        let (mut starts, mut next) = ([0; SYMBOLS], 0_u32);
        for (start, length) in starts.iter_mut().zip(lengths) {
            let free = BITS_MAX.checked_sub(u32::from(length)).filter(|free| *free < BITS_MAX)?;
            // It would be a part of another's.
            if next.trailing_zeros() < free {
                return None;
            }
            *start = u16::try_from(next).ok()?;
            next += 1 << free;
        }
        if next != 1 << BITS_MAX {
            return None;
        }
        let mut codes = [0; 256];
        for (code, symbol) in codes.iter_mut().zip(1..) {
            let (start, length) = (u32::from(starts[symbol]), u32::from(lengths[symbol]));
            *code = (start >> (BITS_MAX - length)) << 8 | length;
        }
        if mutant::active(Bug::KeyCodeLacksEnd) {
            codes[0] = u32::from(lengths[0]);
        }
        let mut code = Self {
            codes: Box::new(codes),
            looks: Box::new([0; 1 << LOOK_BITS]),
            starts: Box::new(starts),
            lengths: Box::new(lengths),
        };
        for index in 0..code.looks.len() {
            code.looks[index] = code.look(to_u64(index) << (64 - LOOK_BITS));
        }
        Some(code)
    }

    /// What it is stored as.
    pub fn lengths(&self) -> &[u8; SYMBOLS] {
        &self.lengths
    }

    /// The entry of `looks` for the high bits of a word.
    fn look(&self, mut word: u64) -> u64 {
        let (mut bytes, mut count, mut used) = ([0; 8], 0, 0);
        while count < LOOK_SYMBOLS {
            let (symbol, bits) = self.symbol_at(word);
            let Some(byte) = symbol.checked_sub(1).filter(|_| used + bits <= LOOK_BITS) else {
                break;
            };
            bytes[count] = low_u8(to_u64(byte));
            word <<= bits;
            (count, used) = (count + 1, used + bits);
        }
        if count == 0 {
            let (symbol, _) = self.symbol_at(word);
            [bytes[0], bytes[1]] = u16::try_from(symbol).unwrap_or(0).to_le_bytes();
        }
        bytes[6] = low_u8(to_u64(count));
        bytes[7] = low_u8(u64::from(used));
        u64::from_le_bytes(bytes)
    }

    /// The symbol whose code a word begins with, and the number of its bits.
    fn symbol_at(&self, word: u64) -> (usize, u32) {
        let window = low_u32(word >> (64 - BITS_MAX));
        let symbol = self.starts.partition_point(|start| u32::from(*start) <= window) - 1;
        (symbol, u32::from(self.lengths[symbol]))
    }

    /// The same, from a symbol on that is not beyond it.
    #[inline]
    fn symbol_from(&self, mut symbol: usize, word: u64) -> (usize, u32) {
        let window = word >> (64 - BITS_MAX);
        while self.starts.get(symbol + 1).is_some_and(|start| u64::from(*start) <= window) {
            symbol += 1;
        }
        (symbol, u32::from(self.lengths[symbol]))
    }

    /// Adds a key, coded.
    pub fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + room_for(key.len()), 0);
        let length = self.write(key, out.get_mut(start..).unwrap_or(&mut []));
        out.truncate(start + length);
    }

    /// A key, coded, in a buffer.
    #[inline]
    pub fn encode_in<'b>(&self, key: &[u8], buffer: &'b mut Buffer) -> &'b [u8] {
        if key.len() > INLINE_KEY_BYTES {
            buffer.long.clear();
            self.encode(key, &mut buffer.long);
            return &buffer.long;
        }
        let length = self.write(key, &mut buffer.short);
        buffer.short.get(..length).unwrap_or(&[])
    }

    /// Writes a coded key to where there is [`room_for`] it; returns how many bytes it has.
    #[inline]
    fn write(&self, key: &[u8], out: &mut [u8]) -> usize {
        // The low `held` bits of `word`, fewer than 8, are not written yet.
        let (mut word, mut held, mut at) = (0_u64, 0, 0);
        let code = |byte: u8| {
            let code = self.codes[usize::from(byte)];
            (u64::from(code >> 8), code & 0xff)
        };
        let mut put = |bits: u64, count: u32| {
            word = word << count | bits;
            held += count;
            if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>) {
                *place = (word << (64 - held)).to_be_bytes();
            }
            at += to_usize(u64::from(held / 8));
            held %= 8;
        };
        let (threes, rest) = key.as_chunks::<3>();
        for three in threes {
            let [(first, high), (second, middle), (third, low)] = three.map(code);
            put(first << (middle + low) | second << low | third, high + middle + low);
        }
        for byte in rest {
            let (bits, count) = code(*byte);
            put(bits, count);
        }
        let mut length = at + usize::from(held > 0);
        while length > 0 && out.get(length - 1) == Some(&0) {
            length -= 1;
        }
        length
    }

    /// Adds the key of a coded one; `None`, and nothing, where no key is coded so.
    pub fn decode(&self, coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        let end = self.read(coded, Step { bits: 0, at: start }, out, &mut |_| {});
        out.truncate(end.unwrap_or(start));
        end.map(|_| ())
    }

    /// The key of a coded one, which is likely to share its start with the one before; `None` where
    /// no key is coded so.
    pub fn decode_next<'s>(&self, coded: &[u8], series: &'s mut Series) -> Option<&'s [u8]> {
        let Series { coded: before, steps, key } = series;
        let shared = shared_bits(before, coded);
        while steps.pop_if(|step| step.bits > shared).is_some() {}
        let from = steps.last().copied().unwrap_or_default();
        before.clear();
        let end = self.read(coded, from, key, &mut |step| steps.push(step));
        if end.is_none() {
            steps.clear();
        } else {
            before.extend_from_slice(coded);
        }
        key.get(..end?)
    }

    /// Writes the key into `out`, from a step on up to which it is there; says where it ends, and
    /// each step that it takes.
    #[inline]
    fn read(
        &self,
        coded: &[u8],
        from: Step,
        out: &mut Vec<u8>,
        note: &mut impl FnMut(Step),
    ) -> Option<usize> {
        // The end of the key is not before the last bit that is set.
        let last = to_u64(coded.len()) * 8
            - match coded.last() {
                None => 0,
                Some(0) => return None,
                Some(byte) => u64::from(byte.trailing_zeros()),
            };
        let Step { bits: mut done, mut at } = from;
        loop {
            if out.len() < at + SLACK {
                out.resize((at + SLACK) * 2, 0);
            }
            let skip = low_u32(done % 8);
            let mut word = word_at(coded, to_usize(done / 8)) << skip;
            let mut used = 0;
            // Whatever comes next is whole in what is left of the word.
            while used + skip + BITS_MAX <= 64 {
                let look = self.looks[to_usize(word >> (64 - LOOK_BITS))];
                let [first, second, .., count, bits] = look.to_le_bytes();
                let bits = if count > 0 {
                    *out.get_mut(at..)?.first_chunk_mut::<8>()? = look.to_le_bytes();
                    at += usize::from(count);
                    u32::from(bits)
                } else {
                    let symbol = usize::from(u16::from_le_bytes([first, second]));
                    let (symbol, bits) = self.symbol_from(symbol, word);
                    let Some(byte) = symbol.checked_sub(1) else {
                        return (done + u64::from(used) >= last).then_some(at);
                    };
                    *out.get_mut(at)? = low_u8(to_u64(byte));
                    at += 1;
                    bits
                };
                word <<= bits;
                used += bits;
                note(Step { bits: done + u64::from(used), at });
            }
            done += u64::from(used);
        }
    }
}

/// How far decoding has come.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Bits that were read.
    bits: u64,
    /// Where the next byte of the key goes.
    at: usize,
}

/// Keys that are decoded in their order: each from where it is another than the one before.
#[derive(Debug, Default)]
pub struct Series {
    /// The last one, coded, if it is the code of a key.
    coded: Vec<u8>,
    /// That were taken in decoding it.
    steps: Vec<Step>,
    /// It, and what serves as room behind it.
    key: Vec<u8>,
}

/// The bits that two byte strings share at their start, with zeros behind the last byte of each.
fn shared_bits(one: &[u8], other: &[u8]) -> u64 {
    let words = one.len().max(other.len()).div_ceil(8);
    let differs = (0..words).map(|word| word_at(one, word * 8) ^ word_at(other, word * 8));
    let mut bits = 0;
    for difference in differs {
        bits += u64::from(difference.leading_zeros());
        if difference != 0 {
            break;
        }
    }
    bits
}

/// The eight bytes from `at` on, the first one highest, zeros behind the last.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or(&[]);
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    match bytes.last_chunk::<8>() {
        _ if rest.is_empty() => 0,
        Some(last) => u64::from_be_bytes(*last) << (64 - 8 * rest.len()),
        None => {
            let word = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            word << (64 - 8 * rest.len())
        }
    }
}
