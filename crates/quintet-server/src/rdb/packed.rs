//! Small collections that Redis keeps in one string: ziplist, listpack, intset and zipmap.
//!
//! | packing | layout; numbers are little-endian |
//! |---|---|
//! | ziplist | bytes (4), offset of the last entry (4), entries (2), entries, `0xff` |
//! | listpack | bytes (4), entries (2), entries, `0xff` |
//! | intset | bytes of an integer (4), integers (4), integers |
//! | zipmap | entries (1), length, key, length, unused bytes (1), value, unused, ..., `0xff` |
//!
//! Entries of a ziplist have the length of the entry before them (1 byte, or `0xfe` and 4 bytes),
//! an encoding, and content. Entries of a listpack have an encoding, content, and their own length.

use std::borrow::Cow;

/// A packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// The list of Redis before 7.0.
    Ziplist,
    /// The list of Redis 7.0.
    Listpack,
    /// A set of integers.
    Intset,
    /// The map of Redis before 2.6.
    Zipmap,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'b> {
    /// Bytes.
    Bytes(&'b [u8]),
    /// An integer, which stands for its decimal digits.
    Integer(i64),
}

/// An error and its byte in the packed string.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) usize, pub(super) &'static str);

type Unpacked<T> = Result<T, Malformed>;

/// A packed string whose entries are read in order.
#[derive(Debug)]
pub(super) struct Packed<'b> {
    packing: Packing,
    bytes: &'b [u8],
    at: usize,
    /// Bytes of an integer of an intset.
    width: usize,
    /// Whether the next entry of a zipmap is a value.
    is_value: bool,
}

impl<'b> Entry<'b> {
    /// The bytes that the entry stands for.
    pub(super) fn bytes(self) -> Cow<'b, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Integer(number) => Cow::Owned(number.to_string().into_bytes()),
        }
    }

    /// The integer, if the entry is one.
    pub(super) fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(number),
            Self::Bytes(bytes) => crate::number::parse_i64(bytes),
        }
    }
}

impl<'b> Packed<'b> {
    /// Checks the head of a packed string.
    pub(super) fn open(packing: Packing, bytes: &'b [u8]) -> Unpacked<Self> {
        let mut packed = Self { packing, bytes, at: 0, width: 0, is_value: false };
        match packing {
            Packing::Ziplist | Packing::Listpack => {
                let length = u32::from_le_bytes(packed.array()?);
                if usize::try_from(length) != Ok(bytes.len()) {
                    return Err(Malformed(0, "its length is not that of its string"));
                }
                packed.at = if packing == Packing::Ziplist { 10 } else { 6 };
            }
            Packing::Intset => {
                packed.width = match u32::from_le_bytes(packed.array()?) {
                    2 => 2,
                    4 => 4,
                    8 => 8,
                    _ => return Err(Malformed(0, "integers of another size than 2, 4 or 8")),
                };
                let count = u32::from_le_bytes(packed.array()?);
                let length = usize::try_from(count).ok().and_then(|n| n.checked_mul(packed.width));
                if length != Some(bytes.len() - 8) {
                    return Err(Malformed(4, "its length is not that of its integers"));
                }
            }
            Packing::Zipmap => packed.at = 1,
        }
        Ok(packed)
    }

    /// The next entry, or `None` at the end.
    pub(super) fn next(&mut self) -> Unpacked<Option<Entry<'b>>> {
        if self.packing == Packing::Intset {
            if self.at == self.bytes.len() {
                return Ok(None);
            }
            let number = self.integer(self.width)?;
            return Ok(Some(Entry::Integer(number)));
        }
        let Some(first) = self.bytes.get(self.at) else {
            return Err(Malformed(self.at, "its end is missing"));
        };
        if *first == 0xff {
            return if self.at + 1 == self.bytes.len() && !self.is_value {
                Ok(None)
            } else {
                Err(Malformed(self.at, "bytes behind its end"))
            };
        }
        match self.packing {
            Packing::Ziplist => self.ziplist_entry().map(Some),
            Packing::Listpack => self.listpack_entry().map(Some),
            Packing::Zipmap | Packing::Intset => self.zipmap_entry().map(Some),
        }
    }

    fn take(&mut self, length: usize) -> Unpacked<&'b [u8]> {
        let end = self.at.checked_add(length);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or(Malformed(self.at, "an entry is cut short"))?;
        self.at += length;
        Ok(found)
    }

    fn array<const N: usize>(&mut self) -> Unpacked<[u8; N]> {
        let at = self.at;
        let bytes = self.take(N)?;
        bytes.first_chunk().copied().ok_or(Malformed(at, "an entry is cut short"))
    }

    fn byte(&mut self) -> Unpacked<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A signed integer of 1 to 8 bytes.
    fn integer(&mut self, width: usize) -> Unpacked<i64> {
        let bytes = self.take(width)?;
        let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut whole = if is_negative { [0xff; 8] } else { [0; 8] };
        whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(i64::from_le_bytes(whole))
    }

    fn bytes_entry(&mut self, length: u32) -> Unpacked<Entry<'b>> {
        self.take(usize::try_from(length).unwrap_or(usize::MAX)).map(Entry::Bytes)
    }

    fn ziplist_entry(&mut self) -> Unpacked<Entry<'b>> {
        if self.byte()? == 0xfe {
            self.take(4)?;
        }
        let at = self.at;
        let first = self.byte()?;
        let low = first & 0x3f;
        match first {
            0..=0x3f => self.bytes_entry(u32::from(low)),
            0x40..=0x7f => {
                let length = u32::from(u16::from_be_bytes([low, self.byte()?]));
                self.bytes_entry(length)
            }
            0x80 => {
                let length = u32::from_be_bytes(self.array()?);
                self.bytes_entry(length)
            }
            0xc0 => self.integer(2).map(Entry::Integer),
            0xd0 => self.integer(4).map(Entry::Integer),
            0xe0 => self.integer(8).map(Entry::Integer),
            0xf0 => self.integer(3).map(Entry::Integer),
            0xfe => self.integer(1).map(Entry::Integer),
            0xf1..=0xfd => Ok(Entry::Integer(i64::from(first & 15) - 1)),
            _ => Err(Malformed(at, "an entry has no known encoding")),
        }
    }

    fn listpack_entry(&mut self) -> Unpacked<Entry<'b>> {
        let start = self.at;
        let first = self.byte()?;
        let entry = match first {
            0..=0x7f => Entry::Integer(i64::from(first)),
            0x80..=0xbf => self.bytes_entry(u32::from(first & 0x3f))?,
            0xc0..=0xdf => {
                let number = i64::from(u16::from_be_bytes([first & 0x1f, self.byte()?]));
                Entry::Integer(if number >= 1 << 12 { number - (1 << 13) } else { number })
            }
            0xe0..=0xef => {
                let length = u32::from(u16::from_be_bytes([first & 0x0f, self.byte()?]));
                self.bytes_entry(length)?
            }
            0xf0 => {
                let length = u32::from_le_bytes(self.array()?);
                self.bytes_entry(length)?
            }
            0xf1 => Entry::Integer(self.integer(2)?),
            0xf2 => Entry::Integer(self.integer(3)?),
            0xf3 => Entry::Integer(self.integer(4)?),
            0xf4 => Entry::Integer(self.integer(8)?),
            _ => return Err(Malformed(start, "an entry has no known encoding")),
        };
        self.take(length_of_length(self.at - start))?;
        Ok(entry)
    }

    fn zipmap_entry(&mut self) -> Unpacked<Entry<'b>> {
        let length = match self.byte()? {
            0xfe => u32::from_le_bytes(self.array()?),
            short => u32::from(short),
        };
        let unused = if self.is_value { self.byte()? } else { 0 };
        let entry = self.bytes_entry(length)?;
        self.take(usize::from(unused))?;
        self.is_value = !self.is_value;
        Ok(entry)
    }
}

/// Bytes that the length behind an entry of a listpack takes, 7 bits each. The largest length of
/// each width but the first takes a byte more, as in Redis.
fn length_of_length(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// Largest listpack in bytes. Redis refuses larger ones.
pub(crate) const LISTPACK_BYTES_MAX: usize = 1 << 30;

/// Writes a listpack.
#[derive(Debug)]
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl ListpackWriter {
    /// An empty listpack.
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 6], count: 0 }
    }

    /// Number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an integer.
    pub(crate) fn integer(&mut self, number: i64) {
        let start = self.bytes.len();
        if let Ok(short) = u8::try_from(number)
            && short < 0x80
        {
            self.bytes.push(short);
        } else if let Ok(short) = i16::try_from(number) {
            self.bytes.push(0xf1);
            self.bytes.extend_from_slice(&short.to_le_bytes());
        } else if let Ok(short) = i32::try_from(number) {
            self.bytes.push(0xf3);
            self.bytes.extend_from_slice(&short.to_le_bytes());
        } else {
            self.bytes.push(0xf4);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.end_entry(start);
    }

    /// Adds bytes.
    pub(crate) fn string(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        if let Ok(short) = u8::try_from(bytes.len())
            && short < 0x40
        {
            self.bytes.push(0x80 | short);
        } else if let Ok(short) = u16::try_from(bytes.len())
            && short < 0x1000
        {
            self.bytes.extend_from_slice(&(short | 0xe000).to_be_bytes());
        } else {
            // The caller keeps a listpack below 1 GiB, so the length has 32 bits.
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.bytes.push(0xf0);
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.bytes.extend_from_slice(bytes);
        self.end_entry(start);
    }

    /// Adds the length of the entry, readable from behind.
    fn end_entry(&mut self, start: usize) {
        let length = self.bytes.len() - start;
        let width = length_of_length(length);
        for at in (0..width).rev() {
            let [low, ..] = (length >> (7 * at)).to_le_bytes();
            let low = low & 0x7f;
            self.bytes.push(if at + 1 == width { low } else { low | 0x80 });
        }
        self.count += 1;
    }

    /// The finished listpack.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0xff);
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        let head = length.to_le_bytes().into_iter().chain(count.to_le_bytes());
        self.bytes.iter_mut().zip(head).for_each(|(to, from)| *to = from);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(packing: Packing, bytes: &[u8]) -> Unpacked<Vec<Vec<u8>>> {
        let mut packed = Packed::open(packing, bytes)?;
        let mut found = Vec::new();
        while let Some(entry) = packed.next()? {
            found.push(entry.bytes().into_owned());
        }
        Ok(found)
    }

    #[test]
    fn listpacks_decode_to_what_was_written() {
        let numbers = [0, 127, 128, -1, 4095, -4096, 32_767, -32_769, 1 << 23, i64::MAX, i64::MIN];
        let strings = [0, 1, 63, 64, 4095, 4096, 20_000, 3_000_000].map(|n| vec![b'x'; n]);
        let mut writer = ListpackWriter::new();
        for number in numbers {
            writer.integer(number);
        }
        for string in &strings {
            writer.string(string);
        }
        let bytes = writer.finish();
        let expected: Vec<Vec<u8>> =
            numbers.iter().map(|n| n.to_string().into_bytes()).chain(strings).collect();
        assert_eq!(unpack(Packing::Listpack, &bytes).unwrap(), expected);
    }

    #[test]
    fn each_packing_decodes() {
        let listpack = b"\x0e\0\0\0\x02\0\xdf\xff\x02\xf2\xff\xff\xff\x04\xff";
        assert_eq!(listpack.len(), 15);
        let mut listpack = listpack.to_vec();
        listpack[0] = 15;
        assert_eq!(unpack(Packing::Listpack, &listpack).unwrap(), [b"-1", b"-1"]);
        let ziplist = b"\x1a\0\0\0\x0a\0\0\0\x04\0\0\x02hi\x04\xf3\x02\xfe\x80\x03\xc0\x00\x01\xff";
        let mut ziplist = ziplist.to_vec();
        ziplist[0] = u8::try_from(ziplist.len()).unwrap();
        let expected: [&[u8]; 4] = [b"hi", b"2", b"-128", b"256"];
        assert_eq!(unpack(Packing::Ziplist, &ziplist).unwrap(), expected);
        let intset = b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\x00";
        let expected: [&[u8]; 2] = [b"-1", b"5"];
        assert_eq!(unpack(Packing::Intset, intset).unwrap(), expected);
        let zipmap = b"\x01\x03foo\x03\x01bar!\xff";
        let expected: [&[u8]; 2] = [b"foo", b"bar"];
        assert_eq!(unpack(Packing::Zipmap, zipmap).unwrap(), expected);
    }

    #[test]
    fn packed_strings_that_are_cut_short_are_refused() {
        let mut writer = ListpackWriter::new();
        writer.string(b"hello");
        writer.integer(1 << 40);
        let bytes = writer.finish();
        for length in 0..bytes.len() {
            let mut cut = bytes[..length].to_vec();
            if let Some(head) = cut.first_chunk_mut::<4>() {
                *head = u32::try_from(length).unwrap().to_le_bytes();
            }
            assert!(unpack(Packing::Listpack, &cut).is_err(), "{length}");
            assert!(unpack(Packing::Ziplist, &cut).is_err(), "{length}");
        }
    }
}
