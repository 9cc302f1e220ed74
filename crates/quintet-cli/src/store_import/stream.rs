//! What the process that reads a database sends to the process that imports it.
//!
//! A frame is a byte with its kind, then its numbers (8 bytes, little-endian), then its byte
//! strings (a length of 4 bytes, little-endian, and the bytes).
//!
//! | kind | numbers | strings |
//! |---|---|---|
//! | `O` opened | number of families, total of the progress | the name of each family |
//! | `F` family | | its name |
//! | `E` entry | | key, value |
//! | `P` progress | its growth | |
//! | `D` end of the family | number of its entries | |
//! | `X` failure | 1 if it is damage, else 0 | the message |
//! | `Z` end | | |
//!
//! Both processes run the same program, so there is one version. A frame that is cut off, or of
//! another kind, is an error: the library may have ended its process or written to its output.

use std::io::{self, BufRead, BufReader, Read, Write};

use quintet::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Bytes of a name or a message, at most.
const TEXT_BYTES_MAX: usize = 1 << 16;
/// Number of families, at most. Each becomes a table.
const FAMILIES_MAX: u64 = 1 << 20;
/// Bytes that are read from the pipe at once.
const READ_BYTES: usize = 1 << 18;

/// A frame. The strings of an entry stay in the [`FrameReader`], so no entry allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The database is open.
    Opened {
        /// The names of its column families.
        families: Vec<String>,
        /// The sum of all [`Frame::Progress`], about.
        total: u64,
    },
    /// The entries of this family follow.
    Family(String),
    /// An entry.
    Entry,
    /// The reader has moved on by this much: entries in `RocksDB`, bytes of files in `LevelDB`.
    Progress(u64),
    /// The family had this many entries.
    FamilyEnd(u64),
    /// Reading failed.
    Failed {
        /// Whether files are damaged.
        is_damage: bool,
        /// The message.
        what: String,
    },
    /// All families have been sent.
    End,
}

/// Writes an entry.
pub fn write_entry(out: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    out.write_all(b"E")?;
    write_bytes(out, key)?;
    write_bytes(out, value)
}

/// Writes any other frame.
pub fn write_frame(out: &mut dyn Write, frame: &Frame) -> io::Result<()> {
    match frame {
        Frame::Opened { families, total } => {
            let count = u64::try_from(families.len()).unwrap_or(u64::MAX);
            write_head(out, b'O', &[count, *total])?;
            families.iter().try_for_each(|name| write_bytes(out, name.as_bytes()))
        }
        Frame::Family(name) => {
            write_head(out, b'F', &[])?;
            write_bytes(out, name.as_bytes())
        }
        Frame::Entry => write_entry(out, &[], &[]),
        Frame::Progress(growth) => write_head(out, b'P', &[*growth]),
        Frame::FamilyEnd(entries) => write_head(out, b'D', &[*entries]),
        Frame::Failed { is_damage, what } => {
            write_head(out, b'X', &[u64::from(*is_damage)])?;
            let end = what.floor_char_boundary(TEXT_BYTES_MAX);
            write_bytes(out, what.get(..end).unwrap_or_default().as_bytes())
        }
        Frame::End => write_head(out, b'Z', &[]),
    }
}

fn write_head(out: &mut dyn Write, kind: u8, numbers: &[u64]) -> io::Result<()> {
    out.write_all(&[kind])?;
    numbers.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))
}

fn write_bytes(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader<R> {
    input: BufReader<R>,
    /// The key of the last entry.
    pub key: Vec<u8>,
    /// The value of the last entry.
    pub value: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Creates a reader of the frames in `input`.
    pub fn new(input: R) -> Self {
        let input = BufReader::with_capacity(READ_BYTES, input);
        Self { input, key: Vec::new(), value: Vec::new() }
    }

    /// Reads the next frame. Returns `None` at the end of the input. Fails with `InvalidData` for a
    /// frame that this program does not write, and with `UnexpectedEof` for a part of one.
    pub fn read(&mut self) -> io::Result<Option<Frame>> {
        let Some(&kind) = self.input.fill_buf()?.first() else { return Ok(None) };
        self.input.consume(1);
        let frame = match kind {
            b'O' => {
                let (count, total) = (self.number()?, self.number()?);
                if count > FAMILIES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let families = (0..count).map(|_| self.text()).collect::<io::Result<_>>()?;
                Frame::Opened { families, total }
            }
            b'F' => Frame::Family(self.text()?),
            b'E' => {
                read_bytes(&mut self.input, &mut self.key, KEY_BYTES_MAX)?;
                read_bytes(&mut self.input, &mut self.value, VALUE_BYTES_MAX)?;
                Frame::Entry
            }
            b'P' => Frame::Progress(self.number()?),
            b'D' => Frame::FamilyEnd(self.number()?),
            b'X' => Frame::Failed { is_damage: self.number()? != 0, what: self.text()? },
            b'Z' => Frame::End,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some(frame))
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        read_bytes(&mut self.input, &mut bytes, TEXT_BYTES_MAX)?;
        String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Reads a byte string into `bytes`, which grows only as bytes arrive.
fn read_bytes(input: &mut impl Read, bytes: &mut Vec<u8>, bytes_max: usize) -> io::Result<()> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if usize::try_from(length).map_or(true, |length| length > bytes_max) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.clear();
    let count = input.take(u64::from(length)).read_to_end(bytes)?;
    if u32::try_from(count) == Ok(length) {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Opened { families: vec!["default".to_owned(), String::new()], total: 7 },
            Frame::Family("default".to_owned()),
            Frame::Entry,
            Frame::Progress(u64::MAX),
            Frame::FamilyEnd(1),
            Frame::Failed { is_damage: true, what: "broken".to_owned() },
            Frame::End,
        ]
    }

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames() {
            match frame {
                Frame::Entry => write_entry(&mut bytes, b"key", b"value").expect("memory"),
                other => write_frame(&mut bytes, &other).expect("memory"),
            }
        }
        bytes
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let bytes = encoded();
        let mut reader = FrameReader::new(&*bytes);
        for frame in frames() {
            assert_eq!(reader.read().expect("a frame"), Some(frame));
        }
        assert_eq!((&*reader.key, &*reader.value), (&b"key"[..], &b"value"[..]));
        assert_eq!(reader.read().expect("the end"), None);
    }

    #[test]
    fn cut_and_foreign_frames_are_errors() {
        let bytes = encoded();
        for end in 0..bytes.len() {
            let mut reader = FrameReader::new(bytes.get(..end).expect("a prefix"));
            // It ends, with an error unless the cut is between two frames.
            while let Ok(Some(_)) = reader.read() {}
        }
        for foreign in [&b"terminate called"[..], b"E\xff\xff\xff\xff", &[b'O'; 40]] {
            let error = FrameReader::new(foreign).read().expect_err("no frame");
            assert!(matches!(error.kind(), io::ErrorKind::InvalidData), "{error:?}");
        }
        let error = FrameReader::new(&b"E\x03\0\0\0ab"[..]).read().expect_err("a part");
        assert!(matches!(error.kind(), io::ErrorKind::UnexpectedEof), "{error:?}");
    }

    #[test]
    fn an_entry_has_the_documented_layout() {
        let mut bytes = Vec::new();
        write_entry(&mut bytes, b"k", b"vw").expect("memory");
        assert_eq!(bytes, b"E\x01\0\0\0k\x02\0\0\0vw");
    }
}
