//! Values and files that are built by hand, read whole and cut short.

use std::borrow::Cow;

use super::{
    Failure, FileSink, FileWriter, Item, ListpackWriter, Output, Parsed, Payload, Sink, Summary,
    crc64, finish_payload, read_file, value_type,
};

/// Notes each element as text.
#[derive(Debug, Default)]
struct Record {
    lines: Vec<String>,
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl Sink for Record {
    fn item(&mut self, item: Item<'_>) -> Parsed {
        self.lines.push(match item {
            Item::String(value) => format!("string {}", text(&value)),
            Item::Element(element) => format!("element {}", text(element)),
            Item::Member(member) => format!("member {}", text(member)),
            Item::Scored(member, score) => format!("scored {} {score}", text(member)),
            Item::Field(field, value, expiry) => {
                format!("field {} {} {expiry:?}", text(field), text(value))
            }
            Item::Entry(id, words) => {
                let words: Vec<_> = words.iter().map(|word| text(word)).collect();
                format!("entry {id:?} {words:?}")
            }
            Item::State { last, max_deleted, added } => {
                format!("state {last:?} {max_deleted:?} {added:?}")
            }
            Item::Group { name, last, read } => format!("group {} {last:?} {read:?}", text(name)),
            Item::Pending { id, delivered, deliveries, .. } => {
                format!("pending {id:?} {delivered} {deliveries}")
            }
            Item::Consumer { name, seen, .. } => format!("consumer {} {seen}", text(name)),
            Item::Owner { consumer, id, .. } => format!("owner {} {id:?}", text(consumer)),
        });
        Ok(())
    }
}

impl FileSink for Record {
    fn begin(&mut self, database: u64, key: Vec<u8>, expiry: Option<u64>) -> Parsed<bool> {
        self.lines.push(format!("key {database} {} {expiry:?}", text(&key)));
        Ok(!key.starts_with(b"skip"))
    }

    fn end(&mut self) -> Parsed {
        self.lines.push("end".to_owned());
        Ok(())
    }

    fn aux(&mut self, name: &[u8], value: &[u8]) -> Parsed {
        self.lines.push(format!("aux {} {}", text(name), text(value)));
        Ok(())
    }
}

fn output(write: impl FnOnce(&mut Output<Vec<u8>>) -> std::io::Result<()>) -> Vec<u8> {
    let mut output = Output::new(Vec::new());
    write(&mut output).unwrap();
    output.into_inner()
}

fn payload(kind: u8, value: &[u8]) -> Vec<u8> {
    finish_payload([&[kind], value].concat(), 12)
}

fn read(kind: u8, value: &[u8]) -> Parsed<Vec<String>> {
    let payload = payload(kind, value);
    let mut record = Record::default();
    Payload::verify(&payload).unwrap().read(&mut record)?;
    Ok(record.lines)
}

fn listpack(words: &[&str]) -> Vec<u8> {
    let mut writer = ListpackWriter::new();
    for word in words {
        match word.parse() {
            Ok(number) => writer.integer(number),
            Err(_) => writer.string(word.as_bytes()),
        }
    }
    let bytes = writer.finish();
    output(|output| output.string(&bytes))
}

#[test]
fn strings_have_all_encodings() {
    for (value, expected) in [
        (b"\x03abc".as_slice(), "abc"),
        (b"\x40\x03abc", "abc"),
        (b"\x80\0\0\0\x03abc", "abc"),
        (b"\x81\0\0\0\0\0\0\0\x03abc", "abc"),
        (b"\xc0\x85", "-123"),
        (b"\xc1\x39\x30", "12345"),
        (b"\xc2\xff\xff\xff\x7f", "2147483647"),
        (b"\xc3\x05\x0a\x00a\xe0\x00\x00", "aaaaaaaaaa"),
    ] {
        let lines = read(value_type::STRING, value).unwrap();
        assert_eq!(lines, [format!("string {expected}")]);
    }
}

#[test]
fn what_is_written_is_read_again() {
    for value in ["", "0", "-1", "127", "128", "-32769", "2147483648", "007", "word"] {
        let bytes = output(|output| output.string(value.as_bytes()));
        assert_eq!(read(value_type::STRING, &bytes).unwrap(), [format!("string {value}")]);
    }
    for length in [0_u64, 63, 64, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
        let bytes = output(|output| output.length(length));
        let mut input = super::input::Input::new(bytes.as_slice());
        assert_eq!(input.length().unwrap(), length);
        assert_eq!(input.offset, u64::try_from(bytes.len()).unwrap());
    }
}

#[test]
fn hashes_with_expiries_have_both_layouts_of_redis_7_4() {
    let expected = ["field a 1 None", "field b 2 Some(5000)", "field c 3 Some(5001)"];
    let before = output(|output| {
        output.count(3)?;
        for (expiry, field, value) in [(0, "a", "1"), (5000, "b", "2"), (5001, "c", "3")] {
            output.length(expiry)?;
            output.string(field.as_bytes())?;
            output.string(value.as_bytes())?;
        }
        Ok(())
    });
    assert_eq!(read(value_type::HASH_EXPIRY_OLD, &before).unwrap(), expected);
    let relative = output(|output| {
        output.millis(5000)?;
        output.count(3)?;
        for (expiry, field, value) in [(0, "a", "1"), (1, "b", "2"), (2, "c", "3")] {
            output.length(expiry)?;
            output.string(field.as_bytes())?;
            output.string(value.as_bytes())?;
        }
        Ok(())
    });
    assert_eq!(read(value_type::HASH_EXPIRY, &relative).unwrap(), expected);
    let packed = listpack(&["a", "1", "0", "b", "2", "5000", "c", "3", "5001"]);
    assert_eq!(read(value_type::HASH_LISTPACK_EXPIRY_OLD, &packed).unwrap(), expected);
    let packed = [&5000_u64.to_le_bytes(), packed.as_slice()].concat();
    assert_eq!(read(value_type::HASH_LISTPACK_EXPIRY, &packed).unwrap(), expected);
}

/// A stream of type 21 with a deleted entry, common fields, a group and two consumers.
fn stream() -> Vec<u8> {
    let node = listpack(&[
        "2", "1", "1", "f", "0", // Two entries, one deleted, one common field.
        "2", "0", "0", "v", "4", // The common field.
        "3", "1", "-3", "w", "4", // Deleted.
        "0", "2", "-4", "1", "g", "x", "6", // Another field.
    ]);
    let id = |millis: u64, sequence: u64| [millis.to_be_bytes(), sequence.to_be_bytes()].concat();
    output(|output| {
        output.count(1)?;
        output.string(&id(7, 5))?;
        output.raw(&node)?;
        for number in [2, 9, 1, 7, 5, 8, 2, 4] {
            output.length(number)?;
        }
        output.count(1)?;
        output.string(b"group")?;
        for number in [9, 1, u64::MAX] {
            output.length(number)?;
        }
        output.count(1)?;
        output.raw(&id(7, 5))?;
        output.millis(1000)?;
        output.count(3)?;
        output.count(2)?;
        for (name, own) in [("one", 1), ("two", 0)] {
            output.string(name.as_bytes())?;
            output.millis(2000)?;
            output.millis(1900)?;
            output.count(own)?;
            if own == 1 {
                output.raw(&id(7, 5))?;
            }
        }
        Ok(())
    })
}

#[test]
fn streams_have_entries_groups_and_consumers() {
    let expected = [
        "entry (7, 5) [\"f\", \"v\"]",
        "entry (9, 1) [\"g\", \"x\"]",
        "state (9, 1) (8, 2) Some(4)",
        "group group (9, 1) None",
        "pending (7, 5) 1000 3",
        "consumer one 2000",
        "owner one (7, 5)",
        "consumer two 2000",
    ];
    assert_eq!(read(value_type::STREAM_3, &stream()).unwrap(), expected);
}

/// Values of types that no test of the server makes, whole and malformed.
#[test]
fn malformed_values_fail_with_an_offset() {
    for (kind, value, what) in [
        (99, b"\0".as_slice(), "no value has the type 99"),
        (value_type::MODULE, b"\0", "module"),
        (value_type::STRING, b"\xc7", "encoding 7"),
        (value_type::STRING, b"\x82", "no length begins with 0x82"),
        (value_type::STRING, b"\x81\xff\xff\xff\xff\xff\xff\xff\xff", "too long"),
        (value_type::STRING, b"\xc3\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff", "too long"),
        (value_type::STRING, b"\xc3\x02\x05\x00a", "does not decompress"),
        (value_type::LIST, b"\xc0\x01", "in the place of a length"),
        (value_type::SORTED_SET, b"\x01\x01a\0\0\0\0\0\0\xf8\x7f", "not a number"),
        (value_type::SORTED_SET_TEXT, b"\x01\x01a\xfd", "not a number"),
        (value_type::SORTED_SET_TEXT, b"\x01\x01a\x01x", "not a number"),
        (value_type::LIST_QUICKLIST_2, b"\x01\x03\x01a", "container 3"),
        (value_type::SET_INTSET, b"\x08\x03\0\0\0\0\0\0\0", "size"),
        (value_type::HASH_LISTPACK, b"\x09\x09\0\0\0\x01\0\x01\x01\xff", "lacks a value"),
        (value_type::STREAM, b"\x01\x01a", "16 bytes"),
        (value_type::STRING, b"\x01ab", "bytes behind the value"),
    ] {
        let failure = read(kind, value).unwrap_err();
        let Failure::Malformed { offset, what: found } = &failure else {
            panic!("{kind}: {failure}")
        };
        assert!(found.contains(what), "{kind}: {failure}");
        assert!(*offset <= u64::try_from(value.len()).unwrap(), "{failure}");
    }
}

#[test]
fn values_that_are_cut_short_fail() {
    let value = stream();
    for length in 0..value.len() {
        let failure = read(value_type::STREAM_3, &value[..length]).unwrap_err();
        assert!(matches!(failure, Failure::Io { .. }), "{length}: {failure}");
    }
}

#[test]
fn a_large_declared_length_allocates_nothing() {
    // 512 MiB are declared, and three bytes follow.
    let failure = read(value_type::STRING, b"\x80\x20\0\0\0abc").unwrap_err();
    assert!(matches!(failure, Failure::Io { offset: 5, .. }), "{failure}");
    let failure = read(value_type::LIST, b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a").unwrap_err();
    assert!(matches!(failure, Failure::Io { offset: 11, .. }), "{failure}");
}

#[test]
fn payloads_need_their_version_and_their_checksum() {
    let good = payload(value_type::STRING, b"\x01a");
    assert!(Payload::verify(&good).is_some());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(Payload::verify(&bad).is_none(), "{at}");
        assert!(Payload::verify(&good[..at]).is_none(), "{at}");
    }
    let newer = finish_payload(b"\0\x01a".to_vec(), 13);
    assert!(Payload::verify(&newer).is_none());
}

/// A file with every opcode.
fn file() -> Vec<u8> {
    let mut bytes = b"REDIS0012".to_vec();
    for part in [
        b"\xfa\x09redis-ver\x057.4.0".as_slice(),
        // A module's record: its id, when, words of all types.
        b"\xf7\x05\x02\x01\x01\x07\x02\x08\x03\0\0\0\0\x04\0\0\0\0\0\0\0\0\x05\x01x\0",
        b"\xf5\x04code",
        b"\xfe\x02\xfb\x05\x02\xf4\x01\x02\x03",
        b"\xfc\x10\x27\0\0\0\0\0\0\xf8\x05\x00\x01a\x01x",
        b"\xfd\x0a\0\0\0\xf9\x07\x01\x01b\x02\x01y\x01z",
        b"\x07\x06module\x09\x02\x01\0",
        b"\x00\x04skip\x01x",
        b"\x00\x01c\x01x\xff",
    ] {
        bytes.extend_from_slice(part);
    }
    let crc = crc64::update(0, &bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn files_have_keys_between_opcodes() {
    let mut record = Record::default();
    let summary = read_file(file().as_slice(), &mut record).unwrap();
    let expected =
        Summary { version: 12, keys: 3, functions: 1, module_values: 1, module_records: 1 };
    assert_eq!(summary, expected);
    let lines = [
        "aux redis-ver 7.4.0",
        "key 2 a Some(10000)",
        "string x",
        "end",
        "key 2 b Some(10000)",
        "element y",
        "element z",
        "end",
        "key 2 skip None",
        "key 2 c None",
        "string x",
        "end",
    ];
    assert_eq!(record.lines, lines);
}

#[test]
fn files_that_are_damaged_or_cut_short_fail() {
    let good = file();
    for at in 0..good.len() {
        let failure = read_file(&good[..at], &mut Record::default()).unwrap_err();
        assert!(matches!(failure, Failure::Io { .. }), "{at}: {failure}");
        // A lower version has no checksum.
        let mut bad = good.clone();
        bad[at.max(9)] ^= 1;
        read_file(bad.as_slice(), &mut Record::default()).unwrap_err();
    }
    // Redis without checksums writes zeros.
    let mut unchecked = good.clone();
    let end = unchecked.len() - 8;
    unchecked[end..].fill(0);
    read_file(unchecked.as_slice(), &mut Record::default()).unwrap();
    // Before version 5 there was no checksum, and `SELECT` and seconds were all.
    read_file(b"REDIS0003\xfe\0\0\x01a\x01x\xff".as_slice(), &mut Record::default()).unwrap();
    for (bytes, what) in [
        (b"MYSQL0003\xff".as_slice(), "begins with REDIS"),
        (b"REDIS0013\xff", "version 0013"),
        (b"REDIS00x3\xff", "version 00x3"),
        (b"REDIS0009\xf6", "release candidate"),
    ] {
        let failure = read_file(bytes, &mut Record::default()).unwrap_err().to_string();
        assert!(failure.contains(what), "{failure}");
    }
}

#[test]
fn a_written_file_is_read_again() {
    let mut file = FileWriter::begin(Vec::new(), 10, &[("redis-ver", "7.0.15")]).unwrap();
    file.select(3, 1, 1).unwrap();
    file.key(b"key", value_type::STRING, Some(99)).unwrap();
    file.output.string(b"value").unwrap();
    let bytes = file.finish().unwrap();
    let mut record = Record::default();
    let summary = read_file(bytes.as_slice(), &mut record).unwrap();
    assert_eq!((summary.version, summary.keys), (10, 1));
    let lines = ["aux redis-ver 7.0.15", "key 3 key Some(99)", "string value", "end"];
    assert_eq!(record.lines, lines);
}
