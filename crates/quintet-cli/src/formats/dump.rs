//! The text format of LMDB's `mdb_dump` and `mdb_load`. Berkeley DB uses the same format;
//! duplicates are not supported.
//!
//! ```text
//! VERSION=3
//! format=bytevalue        or print
//! database=NAME           only for a named database
//! type=btree
//! (other name=value lines are skipped)
//! HEADER=END
//!  6b6579                 one space, then a key
//!  76616c7565             one space, then its value
//! DATA=END
//! ```
//!
//! `bytevalue` lines are hexadecimal digits. `print` lines are text: a backslash, and each byte
//! that is not a printable ASCII character, is `\` and two hexadecimal digits. The reader also
//! accepts `\\`. A file of `mdb_dump -a` has several such sections, one for each database.

use std::io::{BufRead, Write};

use super::{
    ROW_BYTES_MAX, ReadError, ReadRows, Row, WriteError, WriteRows, json_lines::too_long, read_line,
};
use crate::bytes::{escape, hex, parse_hex};

/// The encoding of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Hexadecimal digits.
    ByteValue,
    /// Printable text with escapes.
    Print,
}

/// The header of a section, or the end of the file.
#[derive(Debug, PartialEq, Eq)]
enum Header {
    /// A section, with the name of its database if it has one.
    Of(Option<String>),
    EndOfFile,
}

/// Reads one section of a dump.
#[derive(Debug)]
pub struct DumpReader<R> {
    source: R,
    /// The database to read; `None` if the file has one database.
    database: Option<String>,
    coding: Coding,
    text: Vec<u8>,
    line: u64,
    is_finished: bool,
}

impl<R: BufRead> DumpReader<R> {
    /// Reads up to the data of `database`, or of the first section.
    pub fn new(source: R, database: Option<String>) -> Result<Self, ReadError> {
        let mut reader = Self {
            source,
            database,
            coding: Coding::ByteValue,
            text: Vec::new(),
            line: 0,
            is_finished: false,
        };
        while let Header::Of(name) = reader.read_header()? {
            if reader.database.is_none() || reader.database == name {
                return Ok(reader);
            }
            while reader.read_data_line()? {}
        }
        Err(ReadError::at(
            reader.line,
            match &reader.database {
                Some(name) => format!("the file has no database named {name:?}"),
                None => "the file is empty; a dump starts with VERSION=3".to_owned(),
            },
        ))
    }

    fn next_line(&mut self) -> Result<bool, ReadError> {
        self.line += 1;
        read_line(&mut self.source, &mut self.text, ROW_BYTES_MAX)
            .map_err(|error| too_long(error, self.line))
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError::at(self.line, what))
    }

    fn read_header(&mut self) -> Result<Header, ReadError> {
        let mut name = None;
        let mut is_empty = true;
        self.coding = Coding::ByteValue;
        loop {
            if !self.next_line()? {
                if is_empty {
                    return Ok(Header::EndOfFile);
                }
                return self.wrong("the file ends within a header: HEADER=END is missing");
            }
            if self.text.is_empty() && is_empty {
                continue;
            }
            let text = String::from_utf8_lossy(&self.text).into_owned();
            match text.split_once('=') {
                _ if is_empty && !text.starts_with("VERSION=") => {
                    let shown: String = text.chars().take(40).collect();
                    return self.wrong(format!("a dump starts with VERSION=3, not {shown:?}"));
                }
                Some(("VERSION", "2" | "3")) => {}
                Some(("VERSION", other)) => {
                    return self
                        .wrong(format!("unknown dump version {other:?}; version 3 is supported"));
                }
                Some(("HEADER", "END")) => return Ok(Header::Of(name)),
                Some(("format", "bytevalue")) => self.coding = Coding::ByteValue,
                Some(("format", "print")) => self.coding = Coding::Print,
                Some(("format", other)) => {
                    let what = format!("unknown format {other:?}; use bytevalue or print");
                    return self.wrong(what);
                }
                Some(("database", database)) => name = Some(database.to_owned()),
                Some(_) => {}
                None => {
                    let shown: String = text.chars().take(40).collect();
                    return self.wrong(format!("{shown:?} is not a name=value header line"));
                }
            }
            is_empty = false;
        }
    }

    /// Reads one line of data into `text`. Returns false at DATA=END.
    fn read_data_line(&mut self) -> Result<bool, ReadError> {
        if !self.next_line()? {
            return self.wrong("the file ends early: DATA=END is missing");
        }
        if self.text == b"DATA=END" {
            return Ok(false);
        }
        if self.text.first() != Some(&b' ') {
            return self.wrong("a line of data starts with one space, and DATA=END ends the data");
        }
        Ok(true)
    }

    fn decode(&self, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let text = self.text.get(1..).unwrap_or(&[]);
        out.clear();
        match self.coding {
            Coding::ByteValue => match parse_hex(text) {
                Some(bytes) => *out = bytes,
                None => return self.wrong("not an even number of hexadecimal digits"),
            },
            Coding::Print => {
                if let Err(what) = decode_print(text, out) {
                    return self.wrong(what);
                }
            }
        }
        Ok(())
    }

    /// Fails if another section follows, unless the user named a database.
    fn finish(&mut self) -> Result<(), ReadError> {
        self.is_finished = true;
        if self.database.is_none() && self.read_header()? != Header::EndOfFile {
            return self.wrong("the file has several databases; choose one with --database NAME");
        }
        Ok(())
    }
}

fn decode_print(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    loop {
        match rest {
            [] => return Ok(()),
            [b'\\', b'\\', tail @ ..] => {
                out.push(b'\\');
                rest = tail;
            }
            [b'\\', high, low, tail @ ..] => {
                let byte = parse_hex(&[*high, *low]).ok_or_else(|| {
                    format!("\\{} is not two hexadecimal digits", escape(&[*high, *low]))
                })?;
                out.extend_from_slice(&byte);
                rest = tail;
            }
            [b'\\', ..] => return Err("the line ends within an escape".to_owned()),
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

impl<R: BufRead> ReadRows for DumpReader<R> {
    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        if self.is_finished {
            return Ok(false);
        }
        if !self.read_data_line()? {
            self.finish()?;
            return Ok(false);
        }
        row.line = self.line;
        self.decode(&mut row.key)?;
        if !self.read_data_line()? {
            return self.wrong("the last key has no value");
        }
        self.decode(&mut row.value)?;
        Ok(true)
    }
}

/// Writes a dump of one database.
#[derive(Debug)]
pub struct DumpWriter<W> {
    target: W,
    coding: Coding,
}

impl<W: Write> DumpWriter<W> {
    /// Writes the header.
    pub fn new(mut target: W, coding: Coding) -> Result<Self, WriteError> {
        let format = match coding {
            Coding::ByteValue => "bytevalue",
            Coding::Print => "print",
        };
        write!(target, "VERSION=3\nformat={format}\ntype=btree\nHEADER=END\n")?;
        Ok(Self { target, coding })
    }

    fn line(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match self.coding {
            Coding::ByteValue => writeln!(self.target, " {}", hex(bytes))?,
            Coding::Print => {
                self.target.write_all(b" ")?;
                for byte in bytes {
                    match byte {
                        b'\\' => self.target.write_all(b"\\5c")?,
                        b' '..=b'~' => self.target.write_all(&[*byte])?,
                        other => write!(self.target, "\\{other:02x}")?,
                    }
                }
                self.target.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

impl<W: Write> WriteRows for DumpWriter<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.line(key)?;
        self.line(value)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.target.write_all(b"DATA=END\n")?;
        Ok(self.target.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8], database: Option<&str>) -> Result<Vec<Row>, ReadError> {
        let mut reader = DumpReader::new(text, database.map(str::to_owned))?;
        let mut rows = Vec::new();
        let mut row = Row::default();
        while reader.read(&mut row)? {
            rows.push(row.clone());
        }
        Ok(rows)
    }

    #[test]
    fn both_codings_hold_any_bytes() {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> =
            (0..=255).map(|byte| (vec![byte], vec![byte, b'\\', byte])).collect();
        entries.push((b"empty".to_vec(), Vec::new()));
        for coding in [Coding::ByteValue, Coding::Print] {
            let mut file = Vec::new();
            let mut writer = DumpWriter::new(&mut file, coding).unwrap();
            for (key, value) in &entries {
                writer.write(key, value).unwrap();
            }
            writer.finish().unwrap();
            let found: Vec<_> =
                rows(&file, None).unwrap().into_iter().map(|row| (row.key, row.value)).collect();
            assert_eq!(found, entries);
        }
    }

    #[test]
    fn what_mdb_dump_writes_is_read() {
        let text = b"VERSION=3\nformat=print\ndatabase=one\ntype=btree\nmapsize=1048576\n\
            maxreaders=126\ndb_pagesize=4096\nHEADER=END\n k\\0a\n a\\\\b\\5cc\nDATA=END\n\
            VERSION=3\nformat=bytevalue\ndatabase=two\ntype=btree\nHEADER=END\n 6B\n \nDATA=END\n";
        let one = rows(text, Some("one")).unwrap();
        assert_eq!(
            (&one[0].key[..], &one[0].value[..], one[0].line),
            (&b"k\n"[..], &b"a\\b\\c"[..], 9)
        );
        let two = rows(text, Some("two")).unwrap();
        assert_eq!((&two[0].key[..], &two[0].value[..]), (&b"k"[..], &b""[..]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let head = "VERSION=3\nHEADER=END\n";
        for (text, line, expected) in [
            (String::new(), 1, "the file is empty"),
            ("key,value\n".to_owned(), 1, "starts with VERSION=3"),
            ("VERSION=4\n".to_owned(), 1, "version \"4\""),
            ("VERSION=3\nformat=x\n".to_owned(), 2, "format \"x\""),
            ("VERSION=3\n".to_owned(), 2, "HEADER=END is missing"),
            (head.to_owned(), 3, "DATA=END is missing"),
            (format!("{head} 61\n"), 4, "DATA=END is missing"),
            (format!("{head} 61\nDATA=END\n"), 4, "has no value"),
            (format!("{head} 6\n 6\nDATA=END\n"), 3, "hexadecimal"),
            (format!("{head}61\n"), 3, "starts with one space"),
            ("VERSION=3\nformat=print\nHEADER=END\n \\g0\n".to_owned(), 4, "\\g0"),
            (format!("{head}DATA=END\n{head}DATA=END\n"), 5, "several databases"),
        ] {
            match rows(text.as_bytes(), None) {
                Err(ReadError::Malformed { line: found, what })
                    if found == line && what.contains(expected) => {}
                other => panic!("{text:?}: {other:?}"),
            }
        }
        assert!(rows(format!("{head}DATA=END\n").as_bytes(), Some("x")).is_err());
    }
}
