//! The code itself: encoding, decoding and the stored form. See [`super`].
//!
//! Layout: a code is stored as the lengths of its symbols' codes. They determine the codes, because
//! each code begins where the one before ends (canonical order is the order of the symbols):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | end | bits of the end of a key, 1 to 16 |
//! | 1 | 256 | bytes | bits of each byte in turn, 1 to 16 |
//!
//! Lengths are damaged if a code would begin inside another, or if some sequence of bits has no
//! symbol.

use crate::util::{
    codec::{low_u8, low_u32, to_u64, to_usize},
    mutant::mutant,
};

/// Number of symbols: the end of a key, and every byte value.
pub const SYMBOLS: usize = 257;
/// Maximum bits of a code. It fits in a half-word, and the 64-bit window of the decoder holds
/// several codes.
pub const BITS_MAX: u32 = 16;
/// Bytes of output space that decoding one 64-bit window needs, with the eight-byte stores that
/// pass its last symbol.
const SLACK: usize = 64;
/// Maximum ratio of the bytes of a coded key to those of the key.
pub const GROWTH_MAX: usize = 2;
/// Bits that the decoder looks up at once: three digits. The table has 16 KiB.
const LOOKUP_BITS: u32 = 11;
/// Maximum number of symbols of one lookup.
const LOOKUP_SYMBOLS: usize = 6;
/// Maximum bytes of a key that is coded without an allocation.
const INLINE_KEY_BYTES: usize = 56;

/// Returns the bytes of output space that coding a key needs.
const fn space_for(key_bytes: usize) -> usize {
    // Eight-byte stores may pass the end.
    key_bytes * GROWTH_MAX + 8
}

/// A buffer for a coded key.
#[derive(Debug)]
pub struct KeyBuffer {
    short: [u8; space_for(INLINE_KEY_BYTES)],
    long: Vec<u8>,
}

impl Default for KeyBuffer {
    #[inline]
    fn default() -> Self {
        Self { short: [0; space_for(INLINE_KEY_BYTES)], long: Vec::new() }
    }
}

/// An alphabetic code. See the module head.
#[derive(Clone)]
pub struct KeyCode {
    /// For each byte value: its code, shifted left by 8, and the number of its bits.
    codes: Box<[u32; 256]>,
    /// Decoding table, by the next [`LOOKUP_BITS`] bits. Bytes 0 to 5 are the symbols whose codes
    /// are complete in these bits, up to the end of a key. Byte 6 is their count. Byte 7 is the
    /// number of their bits. If the count is 0, bytes 0 and 1 are the first symbol whose code may
    /// begin so.
    decode_table: Box<[u64; 1 << LOOKUP_BITS]>,
    /// For each symbol, its code at the high end of 16 bits: ascending.
    pub(super) starts: Box<[u16; SYMBOLS]>,
    /// For each symbol, the number of bits of its code.
    pub(super) lengths: Box<[u8; SYMBOLS]>,
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
    /// Creates the code whose symbols have these lengths in bits; `None` if no such code exists.
    pub fn from_lengths(lengths: &[u8]) -> Option<Self> {
        let lengths: [u8; SYMBOLS] = lengths.try_into().ok()?;
        let (mut starts, mut next) = ([0; SYMBOLS], 0_u32);
        for (start, length) in starts.iter_mut().zip(lengths) {
            let free = BITS_MAX.checked_sub(u32::from(length)).filter(|free| *free < BITS_MAX)?;
            // The code would begin inside the previous one.
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
        mutant!(KeyCodeLacksEnd => codes[0] = u32::from(lengths[0]));
        let mut code = Self {
            codes: Box::new(codes),
            decode_table: Box::new([0; 1 << LOOKUP_BITS]),
            starts: Box::new(starts),
            lengths: Box::new(lengths),
        };
        for index in 0..code.decode_table.len() {
            code.decode_table[index] = code.lookup(to_u64(index) << (64 - LOOKUP_BITS));
        }
        Some(code)
    }

    /// Returns the lengths of the symbols' codes in bits: the stored form of the code.
    pub fn lengths(&self) -> &[u8; SYMBOLS] {
        &self.lengths
    }

    /// Returns the entry of `decode_table` for the high bits of a word.
    fn lookup(&self, mut word: u64) -> u64 {
        let (mut bytes, mut count, mut used) = ([0; 8], 0, 0);
        while count < LOOKUP_SYMBOLS {
            let (symbol, bits) = self.symbol_at(word);
            let Some(byte) = symbol.checked_sub(1).filter(|_| used + bits <= LOOKUP_BITS) else {
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

    /// Returns the symbol whose code a word begins with, and the number of its bits.
    fn symbol_at(&self, word: u64) -> (usize, u32) {
        let window = low_u32(word >> (64 - BITS_MAX));
        let symbol = self.starts.partition_point(|start| u32::from(*start) <= window) - 1;
        (symbol, u32::from(self.lengths[symbol]))
    }

    /// As [`Self::symbol_at`], by a linear search from a symbol that is not greater.
    #[inline]
    fn symbol_from(&self, mut symbol: usize, word: u64) -> (usize, u32) {
        let window = word >> (64 - BITS_MAX);
        while self.starts.get(symbol + 1).is_some_and(|start| u64::from(*start) <= window) {
            symbol += 1;
        }
        (symbol, u32::from(self.lengths[symbol]))
    }

    /// Appends a key in coded form.
    pub fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + space_for(key.len()), 0);
        let length = self.write(key, out.get_mut(start..).unwrap_or(&mut []));
        out.truncate(start + length);
    }

    /// Returns a key in coded form, in the buffer. Allocates only for long keys.
    #[inline]
    pub fn encode_in<'b>(&self, key: &[u8], buffer: &'b mut KeyBuffer) -> &'b [u8] {
        if key.len() > INLINE_KEY_BYTES {
            buffer.long.clear();
            self.encode(key, &mut buffer.long);
            return &buffer.long;
        }
        let length = self.write(key, &mut buffer.short);
        buffer.short.get(..length).unwrap_or(&[])
    }

    /// Writes a key in coded form and returns its length. `out` has [`space_for`] the key.
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

    /// Appends the key of a coded key. Returns `None` and appends nothing if it is not the code of
    /// a key.
    pub fn decode(&self, coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        let end = self.decode_from(coded, DecodeStep { bits: 0, at: start }, out, &mut |_| {});
        out.truncate(end.unwrap_or(start));
        end.map(|_| ())
    }

    /// Returns the key of a coded key; `None` if it is not the code of a key. Cheap if it shares
    /// its start with the key of the previous call.
    pub fn decode_next<'s>(&self, coded: &[u8], series: &'s mut DecodeState) -> Option<&'s [u8]> {
        let DecodeState { coded: before, steps, key } = series;
        let shared = shared_bits(before, coded);
        while steps.pop_if(|step| step.bits > shared).is_some() {}
        let from = steps.last().copied().unwrap_or_default();
        before.clear();
        let end = self.decode_from(coded, from, key, &mut |step| steps.push(step));
        if end.is_none() {
            steps.clear();
        } else {
            before.extend_from_slice(coded);
        }
        key.get(..end?)
    }

    /// Decodes into `out`, which has the key up to the step `from`. Returns the end of the key, and
    /// passes each step to `note`.
    #[inline]
    fn decode_from(
        &self,
        coded: &[u8],
        from: DecodeStep,
        out: &mut Vec<u8>,
        note: &mut impl FnMut(DecodeStep),
    ) -> Option<usize> {
        // The end of the key is not before the last bit that is set.
        let last = to_u64(coded.len()) * 8
            - match coded.last() {
                None => 0,
                Some(0) => return None,
                Some(byte) => u64::from(byte.trailing_zeros()),
            };
        let DecodeStep { bits: mut done, mut at } = from;
        loop {
            if out.len() < at + SLACK {
                out.resize((at + SLACK) * 2, 0);
            }
            let skip = low_u32(done % 8);
            let mut word = word_at(coded, to_usize(done / 8)) << skip;
            let mut used = 0;
            // The rest of the word has room for one more code of any length.
            while used + skip + BITS_MAX <= 64 {
                let lookup = self.decode_table[to_usize(word >> (64 - LOOKUP_BITS))];
                let [first, second, .., count, bits] = lookup.to_le_bytes();
                let bits = if count > 0 {
                    *out.get_mut(at..)?.first_chunk_mut::<8>()? = lookup.to_le_bytes();
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
                note(DecodeStep { bits: done + u64::from(used), at });
            }
            done += u64::from(used);
        }
    }
}

/// A position between two symbols of a coded key.
#[derive(Clone, Copy, Debug, Default)]
struct DecodeStep {
    /// Bits of the coded key that were read.
    bits: u64,
    /// Bytes of the key that were written.
    at: usize,
}

/// State of [`KeyCode::decode_next`] between keys in ascending order. Each key is decoded from
/// where it differs from the one before.
#[derive(Debug, Default)]
pub struct DecodeState {
    /// The last coded key; empty if it was not the code of a key.
    coded: Vec<u8>,
    /// The steps of its decoding.
    steps: Vec<DecodeStep>,
    /// The last key, followed by output space.
    key: Vec<u8>,
}

/// Returns the number of bits that two byte strings share at their start, with zeros behind the
/// last byte of each.
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

/// Returns the eight bytes from `at` on as a big-endian number, with zeros behind the last byte.
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
