//! Writes numbers and strings of a dump. [`input`](super::input) has the layout.

use std::io::{self, Write};

use super::crc64;

/// A target with the checksum of what was written.
#[derive(Debug)]
pub(crate) struct Output<W> {
    target: W,
    /// Checksum of the bytes written.
    pub(super) crc: u64,
}

impl<W: Write> Output<W> {
    /// Writes to the start of a target, which should be buffered.
    pub(crate) fn new(target: W) -> Self {
        Self { target, crc: 0 }
    }

    /// The target.
    pub(crate) fn into_inner(self) -> W {
        self.target
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc64::update(self.crc, bytes);
        self.target.write_all(bytes)
    }

    /// Writes a length.
    pub(crate) fn length(&mut self, length: u64) -> io::Result<()> {
        if let Ok(short) = u8::try_from(length)
            && short < 0x40
        {
            return self.raw(&[short]);
        }
        if let Ok(short) = u16::try_from(length)
            && short < 0x4000
        {
            return self.raw(&(short | 0x4000).to_be_bytes());
        }
        if let Ok(short) = u32::try_from(length) {
            self.raw(&[0x80])?;
            return self.raw(&short.to_be_bytes());
        }
        self.raw(&[0x81])?;
        self.raw(&length.to_be_bytes())
    }

    /// Writes a number of things.
    pub(crate) fn count(&mut self, count: usize) -> io::Result<()> {
        self.length(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Writes a string, as an integer if it is one of 32 bits.
    pub(crate) fn string(&mut self, bytes: &[u8]) -> io::Result<()> {
        let short = if bytes.len() <= 11 { crate::number::parse_i64(bytes) } else { None };
        if let Some(number) = short.and_then(|number| i32::try_from(number).ok()) {
            if let Ok(number) = i8::try_from(number) {
                self.raw(&[0xc0])?;
                return self.raw(&number.to_le_bytes());
            }
            if let Ok(number) = i16::try_from(number) {
                self.raw(&[0xc1])?;
                return self.raw(&number.to_le_bytes());
            }
            self.raw(&[0xc2])?;
            return self.raw(&number.to_le_bytes());
        }
        self.count(bytes.len())?;
        self.raw(bytes)
    }

    /// Writes a time in milliseconds: 8 bytes, little-endian.
    pub(crate) fn millis(&mut self, millis: u64) -> io::Result<()> {
        self.raw(&millis.to_le_bytes())
    }

    /// Writes the checksum and flushes the target.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let crc = self.crc;
        self.target.write_all(&crc.to_le_bytes())?;
        self.target.flush()
    }
}
