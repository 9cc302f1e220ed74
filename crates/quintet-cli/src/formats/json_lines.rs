//! JSON lines: one object per line.
//!
//! A pair is `{"key": "...", "value": "..."}`. A key or value that is not UTF-8 is `key_hex` or
//! `value_hex` in hexadecimal. A row is any object with a field that is the key; the stored value
//! is the line. Blank lines are skipped.

use std::io::{BufRead, Write};

use serde_json::{Map, Value};

use super::{
    Column, ROW_BYTES_MAX, ReadError, ReadRows, Row, WriteError, WriteRows, field_text, read_line,
};
use crate::bytes::{escape, get_json, put_json};

/// The shape of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineShape {
    /// An object with `key` and `value`.
    Pairs,
    /// A record.
    Records {
        /// The field that is the key: a string, number or boolean.
        key: Column,
        /// The field that is the value; `None` for the whole line.
        value: Option<Column>,
    },
}

/// Reads JSON lines.
#[derive(Debug)]
pub struct JsonLinesReader<R> {
    source: R,
    shape: LineShape,
    text: Vec<u8>,
    line: u64,
}

impl<R: BufRead> JsonLinesReader<R> {
    /// Reads from the start of `source`.
    pub fn new(source: R, shape: LineShape) -> Self {
        Self { source, shape, text: Vec::new(), line: 0 }
    }

    fn parse(&self, row: &mut Row) -> Result<(), String> {
        let text = self.text.trim_ascii();
        let object: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| format!("not a JSON object: {}", column_only(&error)))?;
        match &self.shape {
            LineShape::Pairs => {
                let missing = |name: &str| {
                    format!("there is no field {name:?}; for lines that are records, give --key")
                };
                row.key = get_json(&object, "key")?.ok_or_else(|| missing("key"))?;
                row.value = get_json(&object, "value")?.ok_or_else(|| missing("value"))?;
            }
            LineShape::Records { key, value } => {
                row.key = match field(&object, key)? {
                    Value::Null => return Err(format!("the key field {key} is null")),
                    Value::Array(_) | Value::Object(_) => {
                        return Err(format!("the key field {key} is not text or a number"));
                    }
                    simple => field_text(simple).into_bytes(),
                };
                row.value = match value {
                    None => text.to_vec(),
                    Some(value) => field_text(field(&object, value)?).into_bytes(),
                };
            }
        }
        Ok(())
    }
}

fn field<'a>(object: &'a Map<String, Value>, column: &Column) -> Result<&'a Value, String> {
    object.get(&column.0).ok_or_else(|| format!("there is no field {column}"))
}

/// Returns `serde_json`'s message without its line number, which is always 1.
fn column_only(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.find(" at line ") {
        Some(end) => {
            format!("{} at column {}", text.get(..end).unwrap_or(&text), error.column())
        }
        None => text,
    }
}

impl<R: BufRead> ReadRows for JsonLinesReader<R> {
    fn read(&mut self, row: &mut Row) -> Result<bool, ReadError> {
        loop {
            self.line += 1;
            let more = read_line(&mut self.source, &mut self.text, ROW_BYTES_MAX);
            if !more.map_err(|error| too_long(error, self.line))? {
                return Ok(false);
            }
            if self.line == 1 && self.text.starts_with(b"\xef\xbb\xbf") {
                self.text.drain(..3);
            }
            if !self.text.trim_ascii().is_empty() {
                break;
            }
        }
        row.line = self.line;
        self.parse(row).map_err(|what| ReadError::at(self.line, what))?;
        Ok(true)
    }
}

/// Converts an error of [`read_line`]. A line that is too long makes the file malformed.
pub(super) fn too_long(error: std::io::Error, line: u64) -> ReadError {
    match error.kind() {
        std::io::ErrorKind::InvalidData => ReadError::at(line, error.to_string()),
        _ => ReadError::Io(error),
    }
}

/// Writes pairs.
#[derive(Debug)]
pub struct JsonPairWriter<W>(W);

impl<W: Write> JsonPairWriter<W> {
    /// Writes to `target`.
    pub fn new(target: W) -> Self {
        Self(target)
    }
}

impl<W: Write> WriteRows for JsonPairWriter<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let mut object = Map::new();
        put_json(&mut object, "key", key);
        put_json(&mut object, "value", value);
        Ok(writeln!(self.0, "{}", Value::Object(object))?)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(self.0.flush()?)
    }
}

/// Writes rows: each value is a line.
#[derive(Debug)]
pub struct JsonRecordWriter<W> {
    target: W,
    /// The fields to write; `None` for the whole stored object.
    columns: Option<Vec<String>>,
}

impl<W: Write> JsonRecordWriter<W> {
    /// Writes to `target`.
    pub fn new(target: W, columns: Option<Vec<String>>) -> Self {
        Self { target, columns }
    }
}

impl<W: Write> WriteRows for JsonRecordWriter<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let unfit = |what: &str| {
            WriteError::Unfit(format!(
                "the value of key \"{}\" {what}; export --pairs",
                escape(key)
            ))
        };
        let mut object = super::record(value).ok_or_else(|| unfit("is not a JSON object"))?;
        match &self.columns {
            Some(columns) => {
                let mut chosen = Map::new();
                for name in columns {
                    chosen.insert(name.clone(), object.swap_remove(name).unwrap_or(Value::Null));
                }
                writeln!(self.target, "{}", Value::Object(chosen))?;
            }
            None if !object.values().any(|field| field_text(field).as_bytes() == key) => {
                return Err(unfit("has no field with its key"));
            }
            None if value.contains(&b'\n') => {
                writeln!(self.target, "{}", Value::Object(object))?;
            }
            None => {
                self.target.write_all(value)?;
                self.target.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(self.target.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8], shape: LineShape) -> Result<Vec<Row>, ReadError> {
        let mut reader = JsonLinesReader::new(text, shape);
        let mut rows = Vec::new();
        let mut row = Row::default();
        while reader.read(&mut row)? {
            rows.push(row.clone());
        }
        Ok(rows)
    }

    fn records(key: &str) -> LineShape {
        LineShape::Records { key: key.into(), value: None }
    }

    #[test]
    fn pairs_of_any_bytes_survive() {
        let mut file = Vec::new();
        let mut writer = JsonPairWriter::new(&mut file);
        let entries: Vec<(Vec<u8>, Vec<u8>)> = (0..=255)
            .map(|byte| (vec![byte], vec![b'{', byte]))
            .chain([(b"\n".to_vec(), Vec::new())])
            .collect();
        for (key, value) in &entries {
            writer.write(key, value).unwrap();
        }
        writer.finish().unwrap();
        let found: Vec<_> = rows(&file, LineShape::Pairs)
            .unwrap()
            .into_iter()
            .map(|row| (row.key, row.value))
            .collect();
        assert_eq!(found, entries);
    }

    #[test]
    fn a_record_is_kept_letter_by_letter() {
        let text = b" {\"b\": 1.50, \"id\": 7}\n\n{\"id\":\"x\",\"id2\":null}";
        let found = rows(text, records("id")).unwrap();
        assert_eq!(found[0].key, b"7");
        assert_eq!(found[0].value, b"{\"b\": 1.50, \"id\": 7}");
        assert_eq!((&found[1].key[..], found[1].line), (&b"x"[..], 3));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, shape, expected) in [
            ("{}\n", LineShape::Pairs, "no field \"key\""),
            ("{\"key\":\"k\"}", LineShape::Pairs, "no field \"value\""),
            ("{\"key_hex\":\"0\",\"value\":\"\"}", LineShape::Pairs, "hexadecimal"),
            ("[1]", LineShape::Pairs, "not a JSON object"),
            ("{\"id\":[]}", records("id"), "not text or a number"),
            ("{\"id\":null}", records("id"), "null"),
            ("{\"a\":1", records("id"), "not a JSON object"),
        ] {
            let text = format!("\n{text}");
            match rows(text.as_bytes(), shape) {
                Err(ReadError::Malformed { line: 2, what }) if what.contains(expected) => {}
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
