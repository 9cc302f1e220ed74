//! Import files that may hold anything: a reader ends in rows or in an error that names a line,
//! and rows that were read, written in the same format and read again are the same.

use quintet_cli::formats::{
    Column, ReadError, ReadRows, Row, WriteRows,
    delimited::{self, DelimitedReader, Layout},
    dump::{Coding, DumpReader, DumpWriter},
    json_lines::{self, JsonLinesReader, LineShape},
};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads a file in the format that the first byte chooses.
///
/// # Panics
///
/// If a reader or a writer breaks its promise.
pub fn import(input: &[u8]) {
    let Some((choice, text)) = input.split_first() else { return };
    match choice % 6 {
        0 => pairs_of_delimited(text, b','),
        1 => pairs_of_delimited(text, b'\t'),
        2 => rows_of_delimited(text),
        3 => pairs_of_json(text),
        4 => drop(read_all(rows_of_json(text))),
        _ => pairs_of_dump(text),
    }
}

/// The rows up to the end or the first error.
fn read_all(mut reader: impl ReadRows) -> (Rows, bool) {
    let mut rows = Rows::new();
    let mut row = Row::default();
    let mut line = 0;
    loop {
        match reader.read(&mut row) {
            Ok(true) => {
                // A carriage return alone ends a row of CSV, but no line.
                assert!(row.line >= line, "rows come in the order of their lines");
                line = row.line;
                rows.push((row.key.clone(), row.value.clone()));
            }
            Ok(false) => return (rows, true),
            Err(error) => {
                explains_itself(&error);
                return (rows, false);
            }
        }
    }
}

fn explains_itself(error: &ReadError) {
    match error {
        ReadError::Io(error) => panic!("a slice cannot fail: {error}"),
        ReadError::Malformed { what, .. } => {
            assert!(!what.is_empty() && !what.contains('\n'), "{what:?}");
        }
    }
}

fn layout(delimiter: u8, value: Option<Column>) -> Layout {
    let key = Column("1".to_owned());
    Layout { delimiter, has_header: true, has_quotes: true, key, value }
}

fn delimited(text: &[u8], layout: &Layout) -> Option<(Rows, bool)> {
    match DelimitedReader::new(text, layout) {
        Ok(reader) => Some(read_all(reader)),
        Err(error) => {
            explains_itself(&error);
            None
        }
    }
}

fn pairs_of_delimited(text: &[u8], delimiter: u8) {
    let layout = layout(delimiter, Some(Column("2".to_owned())));
    let Some((rows, _)) = delimited(text, &layout) else { return };
    let mut written = Vec::new();
    let mut writer = delimited::DelimitedPairWriter::new(&mut written, delimiter, true)
        .expect("room for a header");
    write_all(&mut writer, &rows);
    drop(writer);
    let (again, ended) = delimited(&written, &layout).expect("our own header");
    assert!(ended && again == rows, "written and read again");
}

fn rows_of_delimited(text: &[u8]) {
    if let Some((rows, _)) = delimited(text, &layout(b',', None)) {
        for (_, value) in rows {
            assert!(value.starts_with(b"{") && value.ends_with(b"}"));
        }
    }
}

fn pairs_of_json(text: &[u8]) {
    let (rows, _) = read_all(JsonLinesReader::new(text, LineShape::Pairs));
    let mut written = Vec::new();
    write_all(&mut json_lines::JsonPairWriter::new(&mut written), &rows);
    let (again, ended) = read_all(JsonLinesReader::new(&written[..], LineShape::Pairs));
    assert!(ended && again == rows, "written and read again");
}

fn rows_of_json(text: &[u8]) -> impl ReadRows {
    JsonLinesReader::new(text, LineShape::Records { key: Column("1".to_owned()), value: None })
}

fn pairs_of_dump(text: &[u8]) {
    let rows = match DumpReader::new(text, None) {
        Ok(reader) => read_all(reader).0,
        Err(error) => return explains_itself(&error),
    };
    for coding in [Coding::ByteValue, Coding::Print] {
        let mut written = Vec::new();
        let mut writer = DumpWriter::new(&mut written, coding).expect("room for a header");
        write_all(&mut writer, &rows);
        let reader = DumpReader::new(&written[..], None).expect("our own header");
        assert!(read_all(reader) == (rows.clone(), true), "written and read again");
    }
}

fn write_all(writer: &mut dyn WriteRows, rows: &[(Vec<u8>, Vec<u8>)]) {
    for (key, value) in rows {
        writer.write(key, value).unwrap_or_else(|error| panic!("{error:?}"));
    }
    writer.finish().unwrap_or_else(|error| panic!("{error:?}"));
}
