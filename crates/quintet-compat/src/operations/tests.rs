//! Tests of batches: the format, damage, save points.

use super::*;

const ACTIONS: [Action; 6] = [
    Action::Put,
    Action::Delete,
    Action::SingleDelete,
    Action::Merge,
    Action::DeleteRange,
    Action::LogData,
];

#[test]
fn records_are_read_as_they_were_added() {
    let mut batch = Operations::default();
    for family in [0, 1, 127, 128, u32::MAX] {
        for action in ACTIONS {
            batch.add(Record { action, family, key: &[7; 200], value: b"value" });
        }
    }
    assert_eq!(batch.count(), 25);
    let records: Vec<_> = batch.records().map(|record| record.expect("a record")).collect();
    assert_eq!(records.len(), 30);
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record.action, ACTIONS[index % 6]);
        assert_eq!(record.key, [7; 200]);
        assert_eq!(record.value.is_empty(), !has_value(record.action));
        let is_of_default = index < 6 || record.action == Action::LogData;
        assert_eq!(record.family == 0, is_of_default, "{index}");
    }
}

/// The bytes of a batch that LevelDB's own tests and documents show.
#[test]
fn format_is_that_of_leveldb() {
    let mut batch = Operations::default();
    batch.add(Record { action: Action::Put, family: 0, key: b"foo", value: b"bar" });
    batch.add(Record { action: Action::Delete, family: 0, key: b"box", value: b"" });
    batch.add(Record { action: Action::Put, family: 3, key: b"k", value: b"" });
    let expected = b"\0\0\0\0\0\0\0\0\x03\0\0\0\x01\x03foo\x03bar\x00\x03box\x05\x03\x01k\x00";
    assert_eq!(batch.bytes(), expected);
}

#[test]
fn truncated_and_foreign_bytes_are_corruption() {
    let mut batch = Operations::default();
    batch.add(Record { action: Action::Put, family: 5, key: b"key", value: b"value" });
    for size in HEADER + 1..batch.bytes().len() {
        let cut = Operations::from_bytes(&batch.bytes()[..size]);
        assert!(cut.records().any(|record| record.is_err()), "{size}");
    }
    assert!(Operations::from_bytes(b"short").refused.is_some());
    for tag in 0..=u8::MAX {
        let bytes = [&[0; HEADER][..], &[tag], &[0xFF; 11]].concat();
        assert!(Operations::from_bytes(&bytes).records().any(|record| record.is_err()));
    }
    let mut bytes = batch.bytes().to_vec();
    assert!(Operations::from_bytes(&bytes).check().is_ok());
    bytes[COUNT] += 1;
    assert!(Operations::from_bytes(&bytes).check().is_err());
}

#[test]
fn save_points_are_a_stack() {
    let mut batch = Operations::default();
    let add = |batch: &mut Operations| {
        batch.add(Record { action: Action::Put, family: 0, key: b"k", value: b"v" });
    };
    add(&mut batch);
    batch.set_save_point();
    add(&mut batch);
    batch.set_save_point();
    add(&mut batch);
    batch.pop_save_point().expect("a save point");
    assert_eq!(batch.count(), 3);
    batch.rollback_to_save_point().expect("a save point");
    assert_eq!((batch.count(), batch.records().count()), (1, 1));
    assert_eq!(batch.rollback_to_save_point().expect_err("none").code(), Code::NotFound);
}
