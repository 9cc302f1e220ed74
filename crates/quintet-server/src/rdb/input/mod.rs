//! Numbers and strings of a dump, read from a source, with the offset and the checksum of what was
//! read.
//!
//! A length is 1, 2, 5 or 9 bytes. The upper two bits of the first say which:
//!
//! | first byte | length |
//! |---|---|
//! | `00......` | the lower 6 bits |
//! | `01......` | the lower 6 bits and the next byte |
//! | `10000000` | 4 bytes, big-endian |
//! | `10000001` | 8 bytes, big-endian |
//! | `110000..` | none: a string that is an integer of 1, 2 or 4 bytes, or compressed |

mod lzf;

use std::io::Read;

use super::{
    crc64,
    failure::{Failure, Parsed},
};

/// Bytes by which a buffer grows for a declared length.
pub(super) const STEP_BYTES: usize = 64 << 10;
/// Longest string in bytes, which is the longest value of the server too.
pub(super) const STRING_BYTES_MAX: u64 = 512 << 20;

/// A source with what was read of it.
#[derive(Debug)]
pub(super) struct Input<R> {
    source: R,
    /// Bytes read.
    pub(super) offset: u64,
    /// Checksum of them.
    pub(super) crc: u64,
}

/// A length, or the number of an encoding of a string.
pub(super) enum Length {
    /// A length.
    Plain(u64),
    /// An encoding.
    Encoding(u8),
}

impl<R: Read> Input<R> {
    /// Reads from the start of a source, which should be buffered.
    pub(super) fn new(source: R) -> Self {
        Self { source, offset: 0, crc: 0 }
    }

    /// The failure for malformed bytes that end here.
    pub(super) fn malformed(&self, what: impl Into<String>) -> Failure {
        Failure::Malformed { offset: self.offset, what: what.into() }
    }

    /// Reads exactly as many bytes as `out` has.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Parsed {
        let offset = self.offset;
        self.source.read_exact(out).map_err(|error| Failure::Io { offset, error })?;
        self.crc = crc64::update(self.crc, out);
        self.offset += u64::try_from(out.len()).unwrap_or(0);
        Ok(())
    }

    /// Reads `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads one byte.
    pub(super) fn byte(&mut self) -> Parsed<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads a time in milliseconds: 8 bytes, little-endian.
    pub(super) fn millis(&mut self) -> Parsed<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads `length` bytes.
    fn bytes(&mut self, length: u64) -> Parsed<Vec<u8>> {
        if length > STRING_BYTES_MAX {
            return Err(self.malformed(format!(
                "a string of {length} bytes is too long; the limit is {STRING_BYTES_MAX}"
            )));
        }
        let mut left = usize::try_from(length).unwrap_or(usize::MAX);
        let mut out = Vec::new();
        while left > 0 {
            let step = left.min(STEP_BYTES);
            let start = out.len();
            out.resize(start + step, 0);
            self.fill(out.get_mut(start..).unwrap_or(&mut []))?;
            left -= step;
        }
        Ok(out)
    }

    /// Reads a length or the number of an encoding.
    pub(super) fn length_or_encoding(&mut self) -> Parsed<Length> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(Length::Plain(match first {
            0..=0x3f => u64::from(low),
            0x40..=0x7f => u64::from(u16::from_be_bytes([low, self.byte()?])),
            0x80 => u64::from(u32::from_be_bytes(self.array()?)),
            0x81 => u64::from_be_bytes(self.array()?),
            0xc0..=0xff => return Ok(Length::Encoding(low)),
            _ => return Err(self.malformed(format!("no length begins with {first:#04x}"))),
        }))
    }

    /// Reads a length.
    pub(super) fn length(&mut self) -> Parsed<u64> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            Length::Encoding(_) => Err(self.malformed("an encoding in the place of a length")),
        }
    }

    /// Reads a string of any encoding.
    pub(super) fn string(&mut self) -> Parsed<Vec<u8>> {
        let number = match self.length_or_encoding()? {
            Length::Plain(length) => return self.bytes(length),
            Length::Encoding(0) => i32::from(i8::from_le_bytes(self.array()?)),
            Length::Encoding(1) => i32::from(i16::from_le_bytes(self.array()?)),
            Length::Encoding(2) => i32::from_le_bytes(self.array()?),
            Length::Encoding(3) => return self.compressed(),
            Length::Encoding(other) => {
                return Err(self.malformed(format!("no string has encoding {other}")));
            }
        };
        Ok(number.to_string().into_bytes())
    }

    fn compressed(&mut self) -> Parsed<Vec<u8>> {
        let (length, expected) = (self.length()?, self.length()?);
        if expected > STRING_BYTES_MAX {
            return Err(self.malformed(format!(
                "a compressed string of {expected} bytes is too long; the limit is \
                 {STRING_BYTES_MAX}"
            )));
        }
        let compressed = self.bytes(length)?;
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        let found = lzf::decompress(&compressed, expected);
        found.ok_or_else(|| self.malformed("a compressed string does not decompress"))
    }
}
