//! Edits make the versions that were written, damage is found, and the layout is pinned.

use super::{
    format::{UNFINISHED, decode, edit_bytes, header, identity_of, number_of},
    record::{SstRecord, TphTableRecord, VersionRecord},
};
use crate::util::{
    codec::to_u64,
    mutant::{Bug, finds},
};

fn sst(number: u64) -> SstRecord {
    SstRecord { number, file_bytes: 8192, live: 3, live_bytes: 300 }
}

fn table(low: &[u8], numbers: &[u64]) -> TphTableRecord {
    let ssts = numbers.iter().map(|number| sst(*number)).collect();
    TphTableRecord { lower_bound: low.to_vec(), tombstones: 1, ssts }
}

fn sample() -> VersionRecord {
    VersionRecord {
        complete: 4096,
        next_sst: 50,
        fanout: 0,
        levels: vec![vec![table(b"", &[4, 2])], vec![table(b"", &[6]), table(b"m", &[8, 7])]],
    }
}

fn file(versions: &[VersionRecord]) -> Vec<u8> {
    let identity = identity_of(&[9; 16], 3, 7);
    let mut bytes = header(&identity);
    let mut before = VersionRecord::default();
    for version in versions {
        let offset = to_u64(bytes.len());
        bytes.extend(edit_bytes(&identity, offset, &version.encode_edit(&before)));
        before = version.clone();
    }
    bytes
}

fn versions() -> [VersionRecord; 3] {
    let first = sample();
    let mut second = first.clone();
    second.complete = 5000;
    second.levels[0].insert(0, table(b"", &[9]));
    let mut third = second.clone();
    third.levels[0].clear();
    third.levels[1] =
        vec![table(b"", &[6]), table(b"c", &[12]), table(b"m", &[13, 8, 7]), table(b"x", &[14])];
    third.levels.push(vec![table(b"", &[])]);
    [first, second, third]
}

#[test]
fn each_edit_makes_its_version() {
    let all = versions();
    for count in 1..=3 {
        let found = decode(&file(&all[..count])).unwrap();
        assert_eq!(found.contents, all[count - 1]);
        assert_eq!((found.edits, found.is_torn), (to_u64(count), false));
        assert_eq!(found.identity, ([9; 16], 3, 7));
    }
    // From any version to any other.
    for one in &all {
        for other in &all {
            assert_eq!(one.apply_edit(&other.encode_edit(one)).as_ref(), Some(other));
        }
    }
}

#[test]
fn a_flipped_bit_is_damage_or_takes_the_last_edit_away() {
    flipped_bits();
}

#[test]
fn skipping_the_checksum_of_edits_is_found() {
    finds(Bug::TphSkipsEditChecksum, flipped_bits);
}

fn flipped_bits() {
    let all = versions();
    let bytes = file(&all);
    let last = to_u64(file(&all[..2]).len());
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1 << (byte % 8);
        match decode(&damaged) {
            Err(_) => assert!(to_u64(byte) < last, "byte {byte}"),
            Ok(found) if found.contents == all[2] => {
                assert_eq!(bytes[byte], 0, "byte {byte} is checked");
            }
            Ok(found) => {
                assert!(to_u64(byte) >= last && found.is_torn, "byte {byte}");
                assert_eq!(found.contents, all[1]);
            }
        }
    }
    for cut in 0..bytes.len() {
        match decode(&bytes[..cut]) {
            Ok(found) => assert!(all.contains(&found.contents)),
            Err(_) => assert!(cut < file(&all[..1]).len()),
        }
    }
}

#[test]
fn what_no_writer_makes_does_not_parse() {
    let first = sample();
    let body = first.encode_edit(&VersionRecord::default());
    for cut in 0..body.len() {
        assert_eq!(VersionRecord::default().apply_edit(&body[..cut]), None);
    }
    // It keeps a table of a version that has none.
    let keeps = first.encode_edit(&first);
    assert_eq!(VersionRecord::default().apply_edit(&keeps), None);
    let mut unsorted = first.clone();
    unsorted.levels[1].reverse();
    assert_eq!(first.apply_edit(&unsorted.encode_edit(&first)), None);
}

#[test]
fn the_layout_is_pinned() {
    let bytes = file(&versions()[..2]);
    assert_eq!(bytes.len(), 3 * 512);
    assert_eq!(bytes[..12], *b"QTPHMANI\x01\0\0\0");
    assert_eq!(bytes[40..48], [7, 0, 0, 0, 0, 0, 0, 0]);
    let body = &bytes[520..];
    assert_eq!(body[..11], [0, 16, 0, 0, 0, 0, 0, 0, 50, 0, 2]);
    assert_eq!(body[11..17], [1, 2, 0, 1, 2, 4]);
    let second = &bytes[1032..];
    assert_eq!(second[..11], [136, 19, 0, 0, 0, 0, 0, 0, 50, 0, 2]);
    assert_eq!(second[11..24], [2, 2, 0, 1, 1, 9, 128, 64, 3, 172, 2, 0, 1]);
    assert_eq!(second[24..28], [1, 0, 2, 0]);
}

#[test]
fn names_are_exact() {
    assert_eq!(number_of("manifest-0000000a"), Some(10));
    assert_eq!(number_of("manifest-a"), None);
    assert_eq!(number_of("manifest-0000000A"), None);
    assert_eq!(number_of(UNFINISHED), None);
}
