//! CSV and TSV.
//!
//! Reading: the first line has the names of the columns; without a header they are `c1`, `c2`, ...
//! Every row must have the same number of fields. Blank lines and a UTF-8 byte order mark are
//! skipped. Writing: fields are quoted by RFC 4180 if necessary, and lines end in `\n`.

use std::io::{Read, Write};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Writer, WriterBuilder};

use super::{
    Column, Limited, ROW_BYTES_MAX, ReadError, ReadRows, Row, WriteError, WriteRows, field_text,
    limited::Allowance, record,
};
use crate::bytes::escape;

/// How a file is read.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The byte between fields: `,` or a tab.
    pub delimiter: u8,
    /// Whether the first line has the names of the columns.
    pub has_header: bool,
    /// Whether fields may be in double quotes.
    pub has_quotes: bool,
    /// The column that is the key.
    pub key: Column,
    /// The column that is the value; `None` for the whole row.
    pub value: Option<Column>,
}

/// Reads delimited rows.
#[derive(Debug)]
pub struct DelimitedReader<R> {
    reader: Reader<Limited<R>>,
    allowance: Allowance,
    record: ByteRecord,
    /// Whether `record` has the first row of a file without a header, read to count the columns.
    has_pending: bool,
    names: Vec<String>,
    /// Each name as a JSON string.
    json_names: Vec<String>,
    key: usize,
    value: Option<usize>,
}

impl<R: Read> DelimitedReader<R> {
    /// Reads the header and finds the columns. The error of a missing column lists all columns.
    pub fn new(source: R, layout: &Layout) -> Result<Self, ReadError> {
        let limited = Limited::new(source, ROW_BYTES_MAX);
        let allowance = limited.allowance();
        let mut reader = ReaderBuilder::new()
            .delimiter(layout.delimiter)
            .quoting(layout.has_quotes)
            .has_headers(false)
            .from_reader(limited);
        let mut record = ByteRecord::new();
        let found = reader.read_byte_record(&mut record).map_err(|error| explain(error, 1))?;
        if !found && layout.has_header {
            return Err(ReadError::at(
                1,
                "the file is empty: its first line must name the columns",
            ));
        }
        let line = record.position().map_or(1, csv::Position::line);
        let names = if layout.has_header {
            header_names(&record, line)?
        } else {
            (1..=record.len()).map(|number| format!("c{number}")).collect()
        };
        let has_pending = found && !layout.has_header;
        // An empty file without a header has no columns.
        let locate = |column: &Column| match column.find(&names) {
            Some(index) => Ok(index),
            None if !found => Ok(0),
            None => Err(no_column(column, &names, line)),
        };
        let key = locate(&layout.key)?;
        let value = layout.value.as_ref().map(locate).transpose()?;
        let json_names = names.iter().map(|name| json_string(name)).collect();
        Ok(Self { reader, allowance, record, has_pending, names, json_names, key, value })
    }

    fn fill(&mut self) -> Result<bool, ReadError> {
        if std::mem::take(&mut self.has_pending) {
            return Ok(true);
        }
        self.allowance.renew();
        let line = self.reader.position().line();
        self.reader.read_byte_record(&mut self.record).map_err(|error| explain(error, line))
    }

    /// Appends the whole row to `out` as a JSON object.
    fn write_object(&self, line: u64, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let mut separator = b'{';
        for ((name, json_name), field) in self.names.iter().zip(&self.json_names).zip(&self.record)
        {
            let text = std::str::from_utf8(field).map_err(|_| {
                let what = format!(
                    "column {name:?} is not UTF-8 text; convert it, or store raw bytes with --value"
                );
                ReadError::at(line, what)
            })?;
            out.push(separator);
            out.extend_from_slice(json_name.as_bytes());
            out.push(b':');
            serde_json::to_writer(&mut *out, text)
                .map_err(|error| ReadError::at(line, error.to_string()))?;
            separator = b',';
        }
        out.push(b'}');
        Ok(())
    }
}

impl<R: Read> ReadRows for DelimitedReader<R> {
    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        row.key.clear();
        row.value.clear();
        if !self.fill()? {
            return Ok(false);
        }
        row.line = self.record.position().map_or(1, csv::Position::line);
        row.key.extend_from_slice(self.record.get(self.key).unwrap_or(&[]));
        match self.value {
            Some(index) => row.value.extend_from_slice(self.record.get(index).unwrap_or(&[])),
            None => self.write_object(row.line, &mut row.value)?,
        }
        Ok(true)
    }
}

fn header_names(record: &ByteRecord, line: u64) -> Result<Vec<String>, ReadError> {
    let mut names: Vec<String> = Vec::with_capacity(record.len());
    for field in record {
        let name = std::str::from_utf8(field).map_err(|_| {
            ReadError::at(line, format!("column name \"{}\" is not UTF-8 text", escape(field)))
        })?;
        if names.iter().any(|other| other == name) {
            return Err(ReadError::at(line, format!("two columns are named {name:?}")));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn no_column(column: &Column, names: &[String], line: u64) -> ReadError {
    // A message with thousands of columns would not be readable.
    let shown: Vec<_> = names.iter().take(20).map(|name| escape(name.as_bytes())).collect();
    let more = if names.len() > shown.len() { ", ..." } else { "" };
    let what = format!("there is no column {column}; the columns are: {}{more}", shown.join(", "));
    ReadError::at(line, what)
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Converts an error of the csv crate.
fn explain(error: csv::Error, line: u64) -> ReadError {
    match error.into_kind() {
        ErrorKind::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            ReadError::at(line, error.to_string())
        }
        ErrorKind::Io(error) => ReadError::Io(error),
        ErrorKind::UnequalLengths { pos, expected_len, len } => ReadError::at(
            pos.map_or(line, |pos| pos.line()),
            format!("the row has {len} fields, the first has {expected_len}"),
        ),
        other => ReadError::at(line, format!("{other:?}")),
    }
}

/// Writes pairs: columns `key` and `value`.
#[derive(Debug)]
pub struct DelimitedPairWriter<W: Write> {
    writer: Writer<W>,
}

impl<W: Write> DelimitedPairWriter<W> {
    /// Writes the header if `has_header`.
    pub fn new(target: W, delimiter: u8, has_header: bool) -> Result<Self, WriteError> {
        let mut writer = open(target, delimiter);
        if has_header {
            writer.write_record(["key", "value"]).map_err(refused)?;
        }
        Ok(Self { writer })
    }
}

impl<W: Write> WriteRows for DelimitedPairWriter<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.writer.write_record([key, value]).map_err(refused)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(self.writer.flush()?)
    }
}

/// Writes rows: the fields of each value, which is a JSON object.
#[derive(Debug)]
pub struct DelimitedRecordWriter<W: Write> {
    writer: Writer<W>,
    columns: Vec<String>,
    /// `Some` if the file must be lossless: every object must have exactly `columns`. The list has
    /// the columns that contained the key in all rows so far.
    key_columns: Option<Vec<usize>>,
}

impl<W: Write> DelimitedRecordWriter<W> {
    /// Writes `columns` of every row. Missing fields are empty; other fields are omitted.
    pub fn chosen(
        target: W,
        delimiter: u8,
        has_header: bool,
        columns: Vec<String>,
    ) -> Result<Self, WriteError> {
        Self::new(target, delimiter, has_header, columns, None)
    }

    /// Writes rows that all have the columns of the first one and their key in the same column, so
    /// that an import of the file gives the same table.
    pub fn exact(
        target: W,
        delimiter: u8,
        has_header: bool,
        first: &[u8],
    ) -> Result<Self, WriteError> {
        let object = record(first).unwrap_or_default();
        let columns: Vec<_> = object.keys().cloned().collect();
        let all = (0..columns.len()).collect();
        Self::new(target, delimiter, has_header, columns, Some(all))
    }

    fn new(
        target: W,
        delimiter: u8,
        has_header: bool,
        columns: Vec<String>,
        key_columns: Option<Vec<usize>>,
    ) -> Result<Self, WriteError> {
        let mut writer = open(target, delimiter);
        if has_header {
            writer.write_record(&columns).map_err(refused)?;
        }
        Ok(Self { writer, columns, key_columns })
    }
}

impl<W: Write> WriteRows for DelimitedRecordWriter<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let unfit = |what: &str| {
            WriteError::Unfit(format!(
                "the value of key \"{}\" {what}; choose columns with --columns, or export --pairs",
                escape(key)
            ))
        };
        let object = record(value).ok_or_else(|| unfit("is not a JSON object"))?;
        let fields: Vec<Option<String>> =
            self.columns.iter().map(|name| object.get(name).map(field_text)).collect();
        if let Some(key_columns) = &mut self.key_columns {
            if object.len() != fields.len() || fields.contains(&None) {
                return Err(unfit("does not have the same columns as the first entry"));
            }
            key_columns.retain(|index| {
                fields.get(*index).and_then(Option::as_ref).map(String::as_bytes) == Some(key)
            });
            if key_columns.is_empty() {
                return Err(unfit(
                    "does not have its key in the same column as the earlier entries",
                ));
            }
        }
        let texts = fields.iter().map(|field| field.as_deref().unwrap_or(""));
        self.writer.write_record(texts).map_err(refused)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(self.writer.flush()?)
    }
}

fn open<W: Write>(target: W, delimiter: u8) -> Writer<W> {
    WriterBuilder::new().delimiter(delimiter).from_writer(target)
}

fn refused(error: csv::Error) -> WriteError {
    match error.into_kind() {
        ErrorKind::Io(error) => WriteError::Io(error),
        other => WriteError::Unfit(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(key: &str, value: Option<&str>) -> Layout {
        Layout {
            delimiter: b',',
            has_header: true,
            has_quotes: true,
            key: key.into(),
            value: value.map(Column::from),
        }
    }

    fn rows(text: &[u8], layout: &Layout) -> Result<Vec<Row>, ReadError> {
        let mut reader = DelimitedReader::new(text, layout)?;
        let mut rows = Vec::new();
        let mut row = Row::default();
        while reader.read(&mut row)? {
            rows.push(row.clone());
        }
        Ok(rows)
    }

    fn malformed(text: &[u8], layout: &Layout) -> (u64, String) {
        match rows(text, layout) {
            Err(ReadError::Malformed { line, what }) => (line, what),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_is_its_whole_record_as_json() {
        let text = b"\xef\xbb\xbfid,\"the name\"\n7,\"a \"\"b\"\"\nc\"\n\n8,last";
        let found = rows(text, &layout("id", None)).unwrap();
        assert_eq!(found[0].key, b"7");
        assert_eq!(found[0].value, br#"{"id":"7","the name":"a \"b\"\nc"}"#);
        assert_eq!(found[0].line, 2);
        assert_eq!(found[1].value, br#"{"id":"8","the name":"last"}"#);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn columns_are_found_by_name_then_number_and_values_stay_raw() {
        let found = rows(b"k,v\na,\xff\x00\n", &layout("1", Some("v"))).unwrap();
        assert_eq!((&found[0].key[..], &found[0].value[..]), (&b"a"[..], &b"\xff\x00"[..]));
        let found = rows(b"2,1\na,b\n", &layout("1", Some("2"))).unwrap();
        assert_eq!((&found[0].key[..], &found[0].value[..]), (&b"b"[..], &b"a"[..]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let (line, what) = malformed(b"a,b\n1,2\n3\n", &layout("a", None));
        assert_eq!((line, what.as_str()), (3, "the row has 1 fields, the first has 2"));
        let (_, what) = malformed(b"a,b\n", &layout("c", None));
        assert_eq!(what, "there is no column \"c\"; the columns are: a, b");
        let (_, what) = malformed(b"a,a\n", &layout("a", None));
        assert_eq!(what, "two columns are named \"a\"");
        let (line, what) = malformed(b"a,b\n1,\xff\n", &layout("a", None));
        assert_eq!(line, 2);
        assert!(what.contains("\"b\" is not UTF-8"), "{what}");
        assert_eq!(malformed(b"", &layout("a", None)).0, 1);
    }

    #[test]
    fn without_a_header_columns_are_numbered() {
        let bare = Layout { has_header: false, delimiter: b'\t', ..layout("1", None) };
        let found = rows(b"x\ty\nz\t\"q\"\n", &bare).unwrap();
        assert_eq!(found[0].value, br#"{"c1":"x","c2":"y"}"#);
        assert_eq!(found[1].value, br#"{"c1":"z","c2":"q"}"#);
        let unquoted = Layout { has_quotes: false, ..bare };
        assert_eq!(rows(b"z\t\"q\n", &unquoted).unwrap()[0].value, br#"{"c1":"z","c2":"\"q"}"#);
        assert_eq!(rows(b"", &unquoted).unwrap(), []);
    }

    #[test]
    fn pairs_of_any_bytes_survive() {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> =
            (0..=255).map(|byte| (vec![byte], vec![byte, b'"', byte, b',', b'\n'])).collect();
        entries.push((b"empty".to_vec(), Vec::new()));
        let mut file = Vec::new();
        let mut writer = DelimitedPairWriter::new(&mut file, b',', true).unwrap();
        for (key, value) in &entries {
            writer.write(key, value).unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        let found = rows(&file, &layout("key", Some("value"))).unwrap();
        let found: Vec<_> = found.into_iter().map(|row| (row.key, row.value)).collect();
        assert_eq!(found, entries);
    }

    #[test]
    fn records_that_would_lose_something_are_refused() {
        let refused = |rows: &[(&str, &str)]| {
            let mut writer =
                DelimitedRecordWriter::exact(Vec::new(), b',', true, rows[0].1.as_bytes()).unwrap();
            rows.iter().find_map(|(key, value)| {
                match writer.write(key.as_bytes(), value.as_bytes()) {
                    Err(WriteError::Unfit(what)) => Some(what),
                    _ => None,
                }
            })
        };
        let first = ("1", r#"{"id":"1","n":"1"}"#);
        assert_eq!(refused(&[first, ("2", r#"{"n":"x","id":"2"}"#)]), None);
        assert!(refused(&[first, ("2", r#"{"id":"3","n":"x"}"#)]).unwrap().contains("its key"));
        assert!(refused(&[first, ("2", r#"{"id":"2"}"#)]).unwrap().contains("same columns"));
        assert!(refused(&[first, ("2", "text")]).unwrap().contains("not a JSON object"));
    }
}
